//! Tests of a replica: received changes and acknowledgements.

use crate::disk::{Disk, WHOLE};
use crate::tools::*;
use kedge_types::DurabilityLevel::{self, Majority, MajorityAndPersistOnActive, PersistToMajority};
use kedge_types::{Seqno, Status, VbUuid};
use kedge_vbucket::{
    Change, DcpSnapshot, FailoverTable, ReceiveError, Received, ResumePoint, StateChange, VBucket,
    VbState,
};
use proptest::prelude::*;

fn take(vb: &mut VBucket, snapshot: DcpSnapshot, all: impl IntoIterator<Item = Received>) {
    vb.begin_snapshot(snapshot).unwrap();
    for received in all {
        vb.receive(at(0), received).unwrap();
    }
}

fn replica_get(vb: &mut VBucket, name: &str) -> Result<Vec<u8>, Status> {
    let found = vb
        .at(at(0))
        .get_replica(&key(name), |document| document.item.value().to_vec())?;
    Ok(done(found))
}

#[test]
fn replica_keeps_the_seqnos_and_cas_of_the_active() {
    let vb = &mut replica();
    log_all(vb);
    take(
        vb,
        memory(1, 5),
        [
            document("a", 1),
            prepared("b", 2, Majority),
            commit("b", 2, 3),
            prepared("a", 4, Majority),
            abort("a", 4, 5),
        ],
    );
    assert_eq!(replica_get(vb, "a").unwrap(), b"1");
    assert_eq!(replica_get(vb, "b").unwrap(), b"2");
    let b = key("b");
    let found = vb.table().find(vb.table().hash(b.as_bytes()), b.as_bytes());
    let meta = found.unwrap().meta();
    assert_eq!((meta.seqno, meta.cas.get()), (Seqno(3), 2 << 16));
    assert_eq!(
        (vb.high_seqno(), vb.history().visible_seqno()),
        (Seqno(5), Seqno(3))
    );
    assert_eq!(vb.durability().high_completed_seqno(), Seqno(4));
    assert!(
        vb.history().last_cas().get() >= 4 << 16,
        "no CAS is given out twice"
    );
    let changes = log_all(vb);
    assert!(matches!(&changes[0], Change::Snapshot(_)), "{changes:?}");
    assert_eq!((changes.len(), vb.persisted_seqno()), (6, Seqno(5)));
    let refused = store(vb, at(0), &write(&b), kedge_vbucket::StoreMode::Set, b"x");
    assert!(refused.is_ok(), "who runs commands asks for the state");
}

/// Rule: seqnos ascend within their snapshot, and a snapshot ends before the next one starts.
#[test]
fn invalid_received_changes_are_refused_without_effect() {
    let vb = &mut replica();
    let order = |high, seqno| {
        Err(ReceiveError::Order {
            high: Seqno(high),
            seqno: Seqno(seqno),
        })
    };
    assert_eq!(
        vb.receive(at(0), document("a", 1)),
        order(0, 1),
        "no snapshot"
    );
    let bad = |start, end| {
        Err(ReceiveError::BadSnapshot {
            start: Seqno(start),
            end: Seqno(end),
        })
    };
    assert_eq!(vb.begin_snapshot(memory(3, 2)), bad(3, 2));
    vb.begin_snapshot(memory(2, 6)).unwrap();
    assert_eq!(vb.receive(at(0), document("a", 1)), order(0, 1));
    vb.receive(at(0), document("a", 3)).unwrap();
    for seqno in [3, 2, 7] {
        assert_eq!(vb.receive(at(0), document("a", seqno)), order(3, seqno));
    }
    assert_eq!(vb.begin_snapshot(memory(7, 9)), bad(7, 9), "not at its end");
    let missing = Err(ReceiveError::NoPrepare { prepared: Seqno(1) });
    assert_eq!(vb.receive(at(0), commit("a", 1, 4)), missing);
    assert_eq!(vb.receive(at(0), abort("a", 1, 4)), missing);
    let bad_prepare = |seqno| {
        Err(ReceiveError::BadPrepare {
            prepared: Seqno(seqno),
        })
    };
    let no_level = Received::Prepare(item("p", 4, b"x", None));
    assert_eq!(vb.receive(at(0), no_level), bad_prepare(4));
    vb.receive(at(0), prepared("p", 4, Majority)).unwrap();
    let again = vb.receive(at(0), prepared("p", 5, Majority));
    assert_eq!(again, bad_prepare(5), "from memory its end would have come");
    assert_eq!(
        (vb.high_seqno(), vb.durability_figures().tracked),
        (Seqno(4), 1)
    );
    vb.receive(at(0), Received::Advance(Seqno(6))).unwrap();
    assert_eq!(vb.begin_snapshot(memory(3, 5)), bad(3, 5));
    vb.begin_snapshot(memory(6, 6)).unwrap();
    assert_eq!(vb.history().consistent_seqno(), Seqno(6));
}

#[test]
fn only_replica_and_pending_receive_changes() {
    let refused = Err(ReceiveError::NotReceiving);
    let table = FailoverTable::new(VbUuid(5));
    let mut vb = active(&["a"]);
    assert_eq!(vb.begin_stream(table.clone()), refused);
    assert_eq!(vb.begin_snapshot(memory(1, 2)), refused);
    for state in [VbState::Replica, VbState::Pending, VbState::Dead] {
        vb.set_state(StateChange::to(state, VbUuid(9)));
        assert_eq!(vb.receive(at(0), document("a", 1)), refused, "no stream");
        let follows = state != VbState::Dead;
        assert_eq!(vb.begin_stream(table.clone()).is_ok(), follows);
        assert_eq!(vb.is_streaming(), follows);
        vb.end_stream();
    }
    vb.set_state(StateChange::to(VbState::Replica, VbUuid(9)));
    vb.begin_stream(table.clone()).unwrap();
    assert_eq!(vb.failover(), &table, "the history is that of the active");
    take(&mut vb, memory(1, 2), [document("a", 1)]);
    vb.end_stream();
    assert_eq!(vb.receive(at(0), document("a", 2)), refused);
    vb.begin_stream(table).unwrap();
    let early = vb.receive(at(0), document("a", 2));
    assert!(
        matches!(early, Err(ReceiveError::Order { .. })),
        "no marker yet"
    );
}

/// Rule: nothing is acknowledged before the end of its snapshot. Then prepares without persistence requirement count.
#[test]
fn memory_snapshot_is_acknowledged_only_at_its_end() {
    let vb = &mut replica();
    take(
        vb,
        memory(1, 3),
        [
            prepared("a", 1, Majority),
            prepared("b", 2, MajorityAndPersistOnActive),
        ],
    );
    log_all(vb);
    assert_eq!(vb.take_ack(), None);
    vb.receive(at(0), document("c", 3)).unwrap();
    assert_eq!(
        vb.take_ack(),
        Some(Seqno(2)),
        "the active's disk is not ours"
    );
    assert_eq!(vb.take_ack(), None, "once");
}

/// Rule: the first prepare that must be persisted to a majority blocks later ones until the whole snapshot is on disk.
#[test]
fn persist_to_majority_blocks_acks_until_the_snapshot_is_on_disk() {
    let vb = &mut replica();
    let log = |vb: &mut VBucket, max| {
        let to = vb.changes().for_log(max, usize::MAX, &mut Vec::new());
        vb.on_logged(to);
    };
    log_all(vb);
    take(
        vb,
        memory(1, 4),
        [
            prepared("a", 1, Majority),
            prepared("b", 2, PersistToMajority),
            prepared("c", 3, Majority),
            document("d", 4),
        ],
    );
    take(vb, memory(5, 5), [prepared("e", 5, Majority)]);
    assert_eq!(vb.take_ack(), Some(Seqno(1)));
    // The marker and three changes.
    log(vb, 4);
    assert_eq!(vb.persisted_seqno(), Seqno(3));
    assert_eq!(vb.take_ack(), None, "not the whole snapshot");
    log(vb, 1);
    assert_eq!(vb.take_ack(), Some(Seqno(5)));
}

/// Rule: a disk snapshot counts only when all of it is on disk. Then everything that the sender had prepared counts,
/// even without a prepare in the snapshot.
#[test]
fn disk_snapshot_is_acknowledged_when_it_is_on_disk() {
    for (told, expected) in [(None, 6), (Some(Seqno(4)), 4)] {
        let vb = &mut replica();
        let snapshot = DcpSnapshot {
            high_prepared: told,
            ..disk(1, 6)
        };
        log_all(vb);
        take(vb, snapshot, [document("a", 2), document("b", 6)]);
        take(vb, memory(7, 7), [prepared("c", 7, Majority)]);
        assert_eq!(vb.take_ack(), None);
        let to = vb.changes().for_log(4, usize::MAX, &mut Vec::new());
        vb.on_logged(to);
        assert_eq!(vb.persisted_seqno(), Seqno(6));
        assert_eq!(
            vb.take_ack(),
            Some(Seqno(7)),
            "what followed from memory counts, too"
        );
        let vb = &mut replica();
        take(vb, snapshot, [document("a", 2), document("b", 6)]);
        log_all(vb);
        assert_eq!(vb.take_ack(), Some(Seqno(expected)));
    }
}

/// A new stream repeats the acknowledgement, because the active node has forgotten it.
#[test]
fn new_stream_repeats_the_acknowledgement() {
    let vb = &mut replica();
    take(vb, memory(1, 1), [prepared("a", 1, Majority)]);
    assert_eq!(vb.take_ack(), Some(Seqno(1)));
    vb.end_stream();
    assert_eq!(vb.take_ack(), None);
    vb.begin_stream(vb.failover().clone()).unwrap();
    assert_eq!(vb.take_ack(), Some(Seqno(1)));
}

/// Rule: in a disk snapshot a commit arrives as a document. That document, a newer one, or a newer prepare completes
/// the prepare.
#[test]
fn disk_snapshot_completes_prepares_without_their_commits() {
    let vb = &mut replica();
    take(
        vb,
        memory(1, 4),
        [
            prepared("committed", 1, Majority),
            prepared("replaced", 2, Majority),
            prepared("aborted", 3, Majority),
            prepared("forgotten", 4, Majority),
        ],
    );
    let snapshot = DcpSnapshot {
        high_completed: Some(Seqno(4)),
        max_visible: Some(Seqno(9)),
        ..disk(5, 12)
    };
    take(vb, snapshot, [document("committed", 9)]);
    assert_eq!(
        vb.durability().high_completed_seqno(),
        Seqno(0),
        "it is not at its end"
    );
    assert_eq!(vb.history().visible_seqno(), Seqno(0));
    vb.receive(at(0), prepared("replaced", 10, Majority))
        .unwrap();
    // The completion of a prepare that was never received.
    vb.receive(at(0), abort("aborted", 8, 11)).unwrap();
    assert_eq!(vb.durability_figures().tracked, 2);
    vb.receive(at(0), abort("unknown", 7, 12)).unwrap();
    let figures = vb.durability_figures();
    assert_eq!(figures.tracked_range, Some((Seqno(10), Seqno(10))));
    assert_eq!(figures.high_completed, Seqno(4));
    assert_eq!(vb.history().visible_seqno(), Seqno(9));
    take(vb, memory(13, 13), [commit("replaced", 10, 13)]);
    assert_eq!(replica_get(vb, "replaced").unwrap(), b"10");
    assert_eq!(vb.durability().high_completed_seqno(), Seqno(10));
}

/// Rule: prepares, commits and plain writes do not replace each other in the queue or in the file.
#[test]
fn prepares_and_documents_do_not_replace_each_other() {
    let vb = &mut replica();
    let mut log = Disk::default();
    log.log(vb, usize::MAX);
    take(
        vb,
        memory(1, 5),
        [
            document("k", 1),
            prepared("k", 2, Majority),
            commit("k", 2, 3),
            document("k", 4),
            prepared("k", 5, Majority),
        ],
    );
    assert_eq!(vb.changes().queued(), 6);
    log.log(vb, usize::MAX);
    log.apply(vb, WHOLE);
    let file = log.file().unwrap();
    let base = file.base();
    assert_eq!((base.documents, base.prepares.len()), (1, 1));
    assert_eq!(base.prepares[0].seqno(), Seqno(5));
    let documents: Vec<Seqno> = file.live().map(kedge_vbucket::Item::seqno).collect();
    assert_eq!(documents, [Seqno(4)]);
}

fn resume(start: u64, snap_start: u64, snap_end: u64, uuid: u64) -> ResumePoint {
    ResumePoint {
        start: Seqno(start),
        snap_start: Seqno(snap_start),
        snap_end: Seqno(snap_end),
        uuid: VbUuid(uuid),
    }
}

/// A header inside a snapshot is not a consistent point and is marked as such. After a restart the stream resumes
/// there.
#[test]
fn incomplete_snapshot_survives_in_memory_log_and_file() {
    for applies in [false, true] {
        let vb = &mut replica();
        let mut disk_of = Disk::default();
        take(
            vb,
            memory(1, 2),
            [document("a", 1), prepared("p", 2, Majority)],
        );
        disk_of.log(vb, usize::MAX);
        disk_of.apply(vb, WHOLE);
        assert!(disk_of.file().unwrap().is_consistent());
        assert_eq!(vb.progress().high_prepared, Seqno(2));
        let snapshot = DcpSnapshot {
            high_completed: Some(Seqno(2)),
            purge: Some(Seqno(1)),
            ..disk(3, 9)
        };
        take(vb, snapshot, [document("b", 5), document("p", 6)]);
        assert_eq!(vb.history().resume_point(), resume(6, 2, 9, 0xabc));
        assert_eq!(vb.progress().consistent, Seqno(2));
        disk_of.log(vb, usize::MAX);
        if applies {
            disk_of.apply(vb, WHOLE);
            disk_of.release(vb);
            let state = &disk_of.file().unwrap().state;
            assert_eq!((state.snap_start, state.snap_end), (Seqno(2), Seqno(9)));
            assert_eq!((state.completed, state.visible), (Seqno(0), Seqno(1)));
            assert!(!disk_of.file().unwrap().is_consistent());
        }
        let mut again = disk_of.recover(active(&[]), Some(VbUuid(77)));
        assert_eq!(
            again.history().resume_point(),
            resume(6, 2, 9, 0xabc),
            "{applies}"
        );
        assert_eq!(again.history().purge_seqno(), Seqno(1));
        assert_eq!(again.durability_figures().tracked, 0, "a document ended it");
        // A failover must not see a lower high prepared seqno than the acknowledged one.
        assert_eq!(again.progress().high_prepared, Seqno(2), "{applies}");
        again
            .begin_stream(FailoverTable::new(VbUuid(0xabc)))
            .unwrap();
        // The rest arrives from memory and may contain versions that a disk snapshot would omit.
        take(&mut again, memory(7, 8), [document("a", 8)]);
        assert_eq!(
            again.history().resume_point(),
            resume(8, 2, 9, 0xabc),
            "not yet"
        );
        take(&mut again, memory(9, 10), [document("c", 9)]);
        assert_eq!(again.history().resume_point(), resume(9, 2, 10, 0xabc));
        again.receive(at(0), Received::Advance(Seqno(10))).unwrap();
        assert_eq!(again.history().resume_point(), resume(10, 10, 10, 0xabc));
        disk_of.log(&mut again, usize::MAX);
        assert_eq!(again.take_ack(), Some(Seqno(10)));
        disk_of.apply(&mut again, WHOLE);
        assert!(disk_of.file().unwrap().is_consistent());
        let last = disk_of.recover(active(&[]), None);
        assert_eq!(last.state(), VbState::Replica);
        assert_eq!(last.history().visible_seqno(), Seqno(9));
    }
}

/// The active node may have lost the changes that it announced, so the replica must not wait for the end of a snapshot
/// without changes.
#[test]
fn interrupted_snapshot_without_changes_is_dropped() {
    let vb = &mut replica();
    let mut disk_of = Disk::default();
    take(vb, memory(1, 2), [document("a", 1), document("b", 2)]);
    take(vb, memory(3, 9), []);
    assert_eq!(vb.history().resume_point(), resume(2, 2, 9, 0xabc));
    vb.end_stream();
    vb.begin_stream(FailoverTable::new(VbUuid(0xabc))).unwrap();
    take(vb, memory(3, 3), [document("c", 3)]);
    assert_eq!(vb.history().resume_point(), resume(3, 3, 3, 0xabc));
    disk_of.log(vb, usize::MAX);
    disk_of.apply(vb, WHOLE);
    assert!(disk_of.file().unwrap().is_consistent());
}

/// A replica that rolled back has a branch that no other node knows, so it resumes on the branch before.
#[test]
fn stream_resumes_on_a_branch_that_the_active_knows() {
    let vb = &mut replica();
    let mut disk_of = Disk::default();
    take(vb, memory(1, 2), [document("a", 1), document("b", 2)]);
    disk_of.log(vb, usize::MAX);
    disk_of.apply(vb, WHOLE);
    take(vb, memory(3, 3), [document("c", 3)]);
    disk_of.log(vb, usize::MAX);
    disk_of.apply(vb, WHOLE);
    vb.rollback(Seqno(2), VbUuid(0x999));
    disk_of.log(vb, usize::MAX);
    disk_of.rewind(Seqno(2), vb);
    assert_eq!(
        vb.begin_stream(FailoverTable::new(VbUuid(0xabc))),
        Err(ReceiveError::NotReceiving),
        "its file has not followed"
    );
    vb.recovery()
        .rewound(&disk_of.file().unwrap().base())
        .unwrap();
    let again = disk_of.clone().recover(active(&[]), None);
    for vb in [&*vb, &again] {
        assert_eq!(vb.failover().uuid(), VbUuid(0x999));
        assert_eq!(vb.history().resume_point(), resume(2, 2, 2, 0xabc));
    }
    let mut table = FailoverTable::new(VbUuid(0xabc));
    table.begin(VbUuid(0xf00), Seqno(2));
    vb.begin_stream(table.clone()).unwrap();
    take(vb, memory(3, 3), [document("d", 3)]);
    disk_of.log(vb, usize::MAX);
    for applies in [false, true] {
        if applies {
            disk_of.apply(vb, WHOLE);
        }
        let again = disk_of.clone().recover(active(&[]), None);
        assert_eq!(again.failover(), &table, "after a start, too");
        assert_eq!(again.history().resume_point(), resume(3, 3, 3, 0xf00));
    }
}

#[derive(Clone, Copy, Debug)]
enum Sent {
    Document,
    Prepare(DurabilityLevel),
    /// The first prepare, committed (true) or aborted.
    End(bool),
}

#[derive(Clone, Debug)]
enum Step {
    /// A snapshot (from a disk, changes, number of changes before the stream is interrupted).
    Snapshot(bool, Vec<Sent>, usize),
    Log(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let levels = [Majority, MajorityAndPersistOnActive, PersistToMajority];
    let sent = prop_oneof![
        2 => Just(Sent::Document),
        5 => proptest::sample::select(levels.to_vec()).prop_map(Sent::Prepare),
        2 => any::<bool>().prop_map(Sent::End),
    ];
    let sent = proptest::collection::vec(sent, 1..6);
    let step = prop_oneof![
        5 => (prop::bool::weighted(0.2), sent, 0usize..20).prop_map(|(disk, sent, count)| Step::Snapshot(disk, sent, count)),
        4 => (1usize..9).prop_map(Step::Log),
    ];
    proptest::collection::vec(step, 1..40)
}

/// A prepare in the naive model.
#[derive(Clone, Copy, Debug)]
struct Known {
    seqno: u64,
    level: DurabilityLevel,
    ended: bool,
}

/// A sequence of snapshots up to a consistent point.
#[derive(Clone, Copy, Debug)]
struct Run {
    start: u64,
    end: u64,
    is_disk: bool,
    is_complete: bool,
    ended: u64,
}

/// Returns the expected acknowledgement, calculated from the full history.
fn naive_ack(runs: &[Run], prepares: &[Known], persisted: u64) -> u64 {
    let mut acknowledged = 0;
    for run in runs {
        let whole = run.end <= persisted;
        if !run.is_complete || (run.is_disk && !whole) {
            break;
        }
        if run.is_disk {
            acknowledged = run.end;
            continue;
        }
        // Prepares that were completed by the end of the snapshot block nothing.
        let mine = prepares
            .iter()
            .filter(|known| known.seqno > run.start && known.seqno <= run.end);
        let open: Vec<&Known> = mine
            .clone()
            .filter(|known| !known.ended || known.seqno > run.ended)
            .collect();
        let fence = open
            .iter()
            .find(|known| known.level == PersistToMajority && !whole);
        let counts = |known: &&Known| fence.is_none_or(|fence| known.seqno < fence.seqno);
        let last = mine.filter(counts).map(|known| known.seqno).max();
        acknowledged = last.unwrap_or(0).max(acknowledged);
        if fence.is_some() {
            break;
        }
    }
    acknowledged
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn acknowledgements_match_the_naive_model(steps in steps()) {
        let mut vb = replica();
        log_all(&mut vb);
        let mut prepares: Vec<Known> = Vec::new();
        let mut runs: Vec<Run> = Vec::new();
        let (mut high, mut persisted, mut acked) = (0, 0, 0);
        for step in &steps {
            match step {
                Step::Snapshot(is_disk, sent, count) => {
                    vb.end_stream();
                    vb.begin_stream(vb.failover().clone()).unwrap();
                    acked = 0;
                    let end = high + sent.len() as u64;
                    vb.begin_snapshot(DcpSnapshot::new(
                        if *is_disk { kedge_vbucket::SnapshotKind::Disk } else { kedge_vbucket::SnapshotKind::Memory },
                        Seqno(high + 1),
                        Seqno(end),
                    )).unwrap();
                    // A snapshot that was interrupted before its first change lacks nothing.
                    runs.pop_if(|run| !run.is_complete && run.start == high);
                    match runs.last_mut().filter(|run| !run.is_complete) {
                        Some(torn) => {
                            torn.is_disk |= is_disk;
                            torn.end = torn.end.max(end);
                        }
                        None => runs.push(Run { start: high, end, is_disk: *is_disk, is_complete: false, ended: 0 }),
                    }
                    for sent in sent.iter().take(*count) {
                        high += 1;
                        let open = prepares.iter_mut().find(|known| !known.ended);
                        let name = |seqno: u64| format!("p{seqno}");
                        let received = match (sent, open) {
                            (Sent::Prepare(level), _) => {
                                prepares.push(Known { seqno: high, level: *level, ended: false });
                                prepared(&name(high), high, *level)
                            }
                            (Sent::End(commits), Some(open)) => {
                                open.ended = true;
                                let (name, seqno) = (name(open.seqno), open.seqno);
                                if *commits { commit(&name, seqno, high) } else { abort(&name, seqno, high) }
                            }
                            _ => document("d", high),
                        };
                        vb.receive(at(0), received).unwrap();
                        let run = runs.last_mut().unwrap();
                        if high >= run.end {
                            run.is_complete = true;
                            let ended = prepares.iter().filter(|known| known.ended);
                            run.ended = ended.map(|known| known.seqno).max().unwrap_or(0);
                        }
                    }
                }
                Step::Log(max) => {
                    let mut changes = Vec::new();
                    let to = vb.changes().for_log(*max, usize::MAX, &mut changes);
                    vb.on_logged(to);
                    let last = changes.iter().filter_map(Change::seqno).next_back();
                    persisted = last.map_or(persisted, Seqno::get);
                }
            }
            if let Some(ack) = vb.take_ack() {
                prop_assert!(ack.get() > acked, "it only grows");
                acked = ack.get();
            }
            // Prepares that were completed since then and are not on disk may count or not, because no client waits for
            // them.
            let expected = naive_ack(&runs, &prepares, persisted);
            let same = |prepares: &[Known]| prepares.iter()
                .filter(|known| known.seqno > acked.min(expected) && known.seqno <= acked.max(expected))
                .all(|known| known.ended);
            prop_assert!(
                acked == expected || same(&prepares),
                "acknowledged {}, expected {} after {:?}", acked, expected, step
            );
        }
    }
}
