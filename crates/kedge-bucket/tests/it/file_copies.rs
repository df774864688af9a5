//! Copies of files between nodes: contents, refusals, and power losses at each disk operation.

use crate::dcp::pair::{Node, Pair, copy_file, install, install_if, result_of};
use crate::dcp::{names_in, request};
use crate::tools::*;
use kedge_bucket::{CompactionRequest, VbState};
use kedge_disk::Fault;
use kedge_types::{DurabilityLevel, Seqno, Status, VbId};

const VB: VbId = VbId(1);

/// Returns a pair whose active has documents, a tombstone, a committed SyncWrite and an open one in its file, and whose
/// replica is empty.
fn pair(seed: u64) -> Pair {
    let pair = Pair::new(seed, |config| config.apply_max_lag_ms = 100_000);
    fill(&pair);
    pair
}

fn fill(pair: &Pair) {
    let names = names_in(VB, 12);
    let open = pair.active().open();
    for name in &names[..10] {
        open.set(name, &b"first".repeat(500)).unwrap();
    }
    let gone = key(&names[3]);
    let deleted = open.bucket.documents().delete(open.ctx(), &write(&gone));
    done(deleted).unwrap();
    pair.prepare(&names[10], b"open", DurabilityLevel::Majority, 7)
        .unwrap();
    open.bucket.persistence().apply().unwrap();
}

fn high(node: &Node) -> Seqno {
    node.open().bucket.vbucket_figures(VB).unwrap().high_seqno
}

#[test]
fn copy_of_a_file_equals_its_active_and_dcp_continues() {
    let mut pair = pair(1);
    let seqno = high(pair.active());
    let file = copy_file(pair.active(), VB).unwrap();
    let open = pair.active().open();
    open.set(&names_in(VB, 1)[0], b"later").unwrap();
    assert_eq!(install(pair.replica(), VB, &file), Ok(seqno));
    let replica = pair.replica().open();
    let figures = replica.bucket.vbucket_figures(VB).unwrap();
    assert_eq!(
        (figures.high_seqno, figures.persisted_seqno),
        (seqno, seqno)
    );
    assert_eq!(figures.unapplied, 0, "nothing was logged");
    assert_eq!(replica.figure("ep_file_copies"), 1);
    assert_eq!(replica.figure("ep_file_copy_bytes"), file.len() as u64);
    let sent = pair.active().open().figure("ep_file_copy_sent_bytes");
    assert_eq!(sent, file.len() as u64);
    pair.check_equal();
    let received = pair.replica().open().figure("ep_dcp_received_items");
    // The SyncWrite completed meanwhile, too.
    assert!(received <= 3, "{received} changes came by DCP");
    assert!(
        pair.active().open().sink.get(7).is_some(),
        "the replica acknowledged"
    );
    for killed in [true, false] {
        pair.disconnect();
        let at = 1 - pair.active;
        pair.nodes[at].crash(9, killed);
        pair.nodes[at].start().unwrap();
        pair.set_states();
        assert!(high(pair.replica()) > seqno, "it was synced");
        pair.check_equal();
    }
}

#[test]
fn documents_of_a_copied_file_are_read_into_memory() {
    let pair = pair(2);
    let file = copy_file(pair.active(), VB).unwrap();
    install(pair.replica(), VB, &file).unwrap();
    pair.replica().steps().run();
    let figures = pair.replica().open().bucket.vbucket_figures(VB).unwrap();
    assert_eq!(figures.documents, 9);
    let reads = pair.replica().open().figure("ep_bg_fetched");
    let states = pair.replica().open().bucket.states();
    states.set_vbucket(VB, VbState::Active).unwrap();
    for name in &names_in(VB, 3) {
        assert_eq!(
            pair.replica().open().get(name).unwrap(),
            b"first".repeat(500)
        );
    }
    assert_eq!(pair.replica().open().figure("ep_bg_fetched"), reads);
}

#[test]
fn source_may_be_compacted_while_its_file_is_copied() {
    let mut pair = pair(3);
    let active = pair.active();
    let copies = active.open().bucket.copies();
    let prepared = result_of(active, |done| copies.prepare(VB, done)).unwrap();
    let half = prepared.bytes / 2;
    let mut file = Vec::new();
    for (at, length) in [(0, half), (half, prepared.bytes - half)] {
        let read = |done: Box<_>| copies.read_part(VB, prepared.id, at, length, done);
        file.extend(result_of(active, read).unwrap().bytes);
        let request = CompactionRequest::default();
        let compactions = active.open().bucket.persistence().compactions();
        compactions.compact(&request).unwrap();
        active.steps().run();
    }
    install(pair.replica(), VB, &file).unwrap();
    pair.check_equal();
}

#[test]
fn file_that_nobody_reads_is_closed() {
    let pair = pair(4);
    let active = pair.active();
    let copies = active.open().bucket.copies();
    let prepared = result_of(active, |done| copies.prepare(VB, done)).unwrap();
    assert_eq!(copies.sending(), 1);
    active.steps().pass(SEC * 50);
    let part = |length| {
        result_of(active, |done| {
            copies.read_part(VB, prepared.id, 0, length, done);
        })
    };
    assert!(part(8).is_ok());
    active.steps().pass(SEC * 50);
    assert_eq!(copies.sending(), 1, "it was read");
    active.steps().pass(SEC * 25);
    assert_eq!(copies.sending(), 0);
    assert_eq!(part(8), Err(Status::KeyNotFound));
    assert_eq!(copies.release(VB, prepared.id), Err(Status::KeyNotFound));
}

#[test]
fn only_files_of_actives_are_sent_and_only_inside() {
    let pair = pair(5);
    let (active, replica) = (pair.active(), pair.replica());
    let prepare = |node: &Node, vb| {
        let copies = node.open().bucket.copies();
        result_of(node, |done| copies.prepare(vb, done))
    };
    assert_eq!(prepare(replica, VB), Err(Status::NotMyVbucket));
    assert_eq!(prepare(active, VbId(4)), Err(Status::NotMyVbucket));
    let prepared = prepare(active, VB).unwrap();
    let copies = active.open().bucket.copies();
    for (vb, offset, length, expected) in [
        (VB, prepared.bytes - 4, 4, Ok(4)),
        (VB, prepared.bytes - 4, 5, Err(Status::Invalid)),
        (VB, u64::MAX, 5, Err(Status::Invalid)),
        (VbId(2), 0, 4, Err(Status::KeyNotFound)),
    ] {
        let read = |done: Box<_>| copies.read_part(vb, prepared.id, offset, length, done);
        let read = result_of(active, read).map(|part| part.bytes.len());
        assert_eq!(read, expected, "{vb} {offset} {length}");
    }
}

#[test]
fn file_is_refused_by_all_but_empty_replicas_and_dcp_copies_then() {
    let mut pair = pair(6);
    let file = copy_file(pair.active(), VB).unwrap();
    let other = install(pair.active(), VB, &file);
    assert_eq!(other, Err(Status::NotMyVbucket), "an active");
    let unwanted = install_if(pair.replica(), VB, &file, false);
    assert_eq!(unwanted, Err(Status::TemporaryFailure));
    let mut damaged = file.clone();
    // The header of the last commit.
    let last = damaged.len() - 10;
    damaged[last] ^= 1;
    for wrong in [&damaged[..], &file[..file.len() - 1], b"not a file", b""] {
        let refused = install(pair.replica(), VB, wrong);
        assert_eq!(refused, Err(Status::TemporaryFailure));
    }
    assert_eq!(high(pair.replica()), Seqno(0));
    assert!(pair.replica().is_well());
    let names = pair.replica().site.disk.list(&pair.replica().site.dir);
    let left = names
        .unwrap()
        .into_iter()
        .find(|name| name.contains("copy"));
    assert_eq!(left, None, "copies that were refused are removed");
    pair.check_equal();
    let again = install(pair.replica(), VB, &file);
    assert_eq!(
        again,
        Err(Status::TemporaryFailure),
        "it is not empty any more"
    );
    let figure = |name| pair.replica().open().figure(name);
    assert_eq!(
        (figure("ep_file_copies"), figure("ep_file_copy_failures")),
        (0, 6)
    );
    pair.check_equal();
}

#[test]
fn bucket_without_a_log_copies_no_files() {
    let mut pair = Pair::new(7, |config| config.commit_log = false);
    fill(&pair);
    assert_eq!(pair.replica().open().bucket.copies().min_bytes(), None);
    let file = copy_file(pair.active(), VB).unwrap();
    let refused = install(pair.replica(), VB, &file);
    assert_eq!(refused, Err(Status::NotSupported));
    pair.check_equal();
}

/// Writes another history of the vBucket to the replica's log, which ends with an empty replica.
fn live_before(node: &Node, is_applied: bool) {
    let open = node.open();
    let states = open.bucket.states();
    states.set_vbucket(VB, VbState::Active).unwrap();
    for round in 0..5 {
        for name in names_in(VB, 12) {
            let value = format!("of an earlier life {round}");
            open.set(&name, value.as_bytes()).unwrap();
        }
    }
    open.bucket.persistence().sync().unwrap();
    if is_applied {
        open.bucket.persistence().apply().unwrap();
    }
    states.delete_vbucket(VB).unwrap();
    states.set_vbucket(VB, VbState::Replica).unwrap();
}

#[test]
fn log_of_an_earlier_life_is_not_replayed_over_an_installed_file() {
    for is_applied in [true, false] {
        let mut pair = pair(8);
        live_before(pair.replica(), is_applied);
        let file = copy_file(pair.active(), VB).unwrap();
        let seqno = install(pair.replica(), VB, &file).unwrap();
        for killed in [true, false] {
            let at = 1 - pair.active;
            pair.nodes[at].crash(9, killed);
            pair.nodes[at].start().unwrap();
            pair.set_states();
            assert_eq!(high(pair.replica()), seqno);
        }
        pair.check_equal();
        // The file has further commits, and another start.
        let open = pair.active().open();
        open.set(&names_in(VB, 1)[0], b"later").unwrap();
        pair.quiet();
        pair.replica().open().bucket.persistence().apply().unwrap();
        pair.disconnect();
        let at = 1 - pair.active;
        pair.nodes[at].crash(10, false);
        pair.nodes[at].start().unwrap();
        pair.set_states();
        assert!(high(pair.replica()) > seqno);
        pair.check_equal();
    }
}

#[test]
fn installed_vbucket_can_be_rolled_back_deleted_and_promoted() {
    for how in ["rollback", "deletion", "promotion"] {
        let mut pair = pair(11);
        let file = copy_file(pair.active(), VB).unwrap();
        let seqno = install(pair.replica(), VB, &file).unwrap();
        let bucket = pair.replica().open().bucket.clone();
        match how {
            "rollback" => {
                let to = Seqno(seqno.get() - 1);
                let back = bucket.persistence().rollbacks().rollback(VB, to).unwrap();
                assert!(back.seqno < seqno);
            }
            "deletion" => {
                bucket.states().delete_vbucket(VB).unwrap();
                bucket.states().set_vbucket(VB, VbState::Replica).unwrap();
            }
            _ => {
                let states = bucket.states();
                states.set_vbucket(VB, VbState::Active).unwrap();
                let open = pair.replica().open();
                open.set(&names_in(VB, 1)[0], b"after the promotion")
                    .unwrap();
                let log = request(open, VB, 0).uuid;
                assert_ne!(log, request(pair.active().open(), VB, 0).uuid);
                states.set_vbucket(VB, VbState::Replica).unwrap();
            }
        }
        drop(bucket);
        let at = 1 - pair.active;
        pair.nodes[at].crash(12, false);
        pair.nodes[at].start().unwrap();
        pair.set_states();
        pair.check_equal();
    }
}

/// Installs a file with a power loss at a disk operation. Returns whether the power failed.
fn with_power_loss(seed: u64, number: u64, is_applied: bool) -> bool {
    let mut pair = pair(seed);
    live_before(pair.replica(), is_applied);
    let file = copy_file(pair.active(), VB).unwrap();
    let disk = pair.replica().disk.clone();
    disk.fail_operation(disk.operations() + number, Fault::PowerLoss);
    let installed = install(pair.replica(), VB, &file);
    let failed = !pair.replica().is_well();
    let at = 1 - pair.active;
    // A start that is interrupted leads to the same state.
    for cut in [Some(seed + number % 7), None] {
        disk.clear_faults();
        pair.nodes[at].crash(seed * 1_000 + number, false);
        if let Some(cut) = cut {
            disk.fail_operation(disk.operations() + cut, Fault::PowerLoss);
        }
        let started = pair.nodes[at].start();
        assert!(started.is_ok() || cut.is_some(), "{number}: {started:?}");
    }
    pair.set_states();
    let found = high(pair.replica());
    let whole = high(pair.active());
    assert!(
        found == whole || (found == Seqno(0) && installed.is_err()),
        "operation {number}: {installed:?}, then {found} of {whole}"
    );
    pair.check_equal();
    pair.nodes.iter_mut().for_each(Node::shutdown);
    failed
}

#[test]
fn installation_is_atomic_under_power_loss_at_each_operation() {
    for (seed, is_applied) in [(21, true), (22, false), (23, true)] {
        let numbers = (1..).take_while(|number| with_power_loss(seed, *number, is_applied));
        assert!(numbers.count() > 10);
    }
}
