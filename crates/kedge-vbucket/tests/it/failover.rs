//! Tests of state changes: promotion, takeover, and recovery in each state.

use crate::disk::{Disk, WHOLE};
use crate::tools::*;
use kedge_types::DurabilityLevel::{Majority, PersistToMajority};
use kedge_types::{Seqno, Status, VbUuid};
use kedge_vbucket::{
    Change, FailoverTable, Received, StateChange, StoreMode, Topology, VBucket, VbState,
};

fn take(vb: &mut VBucket, snapshot: kedge_vbucket::DcpSnapshot, all: Vec<Received>) {
    vb.begin_snapshot(snapshot).unwrap();
    for received in all {
        vb.receive(at(0), received).unwrap();
    }
}

fn promote(vb: &mut VBucket, uuid: u64, chains: &[&str]) {
    vb.set_state(StateChange {
        topology: Some(topology(chains)),
        ..StateChange::to(VbState::Active, VbUuid(uuid))
    });
}

fn branches(vb: &VBucket) -> Vec<(u64, u64)> {
    let entries = vb.failover().entries().iter();
    entries
        .map(|(uuid, seqno)| (uuid.get(), seqno.get()))
        .collect()
}

/// Rule: a promotion starts a branch at the end of the last complete snapshot, and removes later entries.
#[test]
fn promotion_starts_a_branch_at_the_last_complete_snapshot() {
    let vb = &mut replica();
    let mut table = FailoverTable::new(VbUuid(1));
    table.begin(VbUuid(2), Seqno(2));
    table.begin(VbUuid(3), Seqno(4));
    vb.begin_stream(table).unwrap();
    take(vb, memory(1, 3), vec![document("a", 1), document("b", 3)]);
    take(vb, memory(4, 9), vec![document("c", 5)]);
    promote(vb, 4, &["a"]);
    assert_eq!(branches(vb), [(4, 3), (2, 2), (1, 0)]);
    assert_eq!(
        vb.history().consistent_seqno(),
        Seqno(5),
        "what came is part of the branch"
    );
    assert_eq!(set(vb, at(0), "d", b"x").seqno, Seqno(6));
    assert!(!vb.is_streaming());
    let whole = &mut replica();
    take(whole, memory(1, 3), vec![document("a", 3)]);
    promote(whole, 4, &["a"]);
    assert_eq!(branches(whole), [(4, 3), (0xabc, 0)]);
}

/// Rule: a takeover starts no branch, because nothing was lost.
#[test]
fn takeover_starts_no_branch() {
    let vb = &mut replica();
    take(vb, memory(1, 3), vec![document("a", 3)]);
    vb.set_state(StateChange::to(VbState::Pending, VbUuid(8)));
    assert!(vb.is_streaming(), "the stream goes on");
    take(vb, memory(4, 4), vec![prepared("k", 4, Majority)]);
    assert_eq!(vb.take_ack(), Some(Seqno(4)), "a pending one acknowledges");
    vb.set_state(StateChange {
        takeover: true,
        topology: Some(topology(&["b"])),
        ..StateChange::to(VbState::Active, VbUuid(9))
    });
    assert_eq!(branches(vb), [(0xabc, 0)]);
    assert_eq!(get(vb, at(0), "k").unwrap(), b"4");
}

/// Rule: a dead vBucket keeps its last consistent point, and a failover from it starts there.
#[test]
fn dead_vbucket_keeps_its_last_consistent_point() {
    let mut vb = replica();
    let mut disk_of = Disk::default();
    take(&mut vb, memory(1, 3), vec![prepared("k", 3, Majority)]);
    take(&mut vb, disk(4, 9), vec![document("c", 5)]);
    vb.set_state(StateChange::to(VbState::Dead, VbUuid(8)));
    disk_of.log(&mut vb, usize::MAX);
    let logged = disk_of.clone().recover(active(&[]), Some(VbUuid(7)));
    disk_of.apply(&mut vb, WHOLE);
    disk_of.release(&vb);
    let applied = disk_of.recover(active(&[]), Some(VbUuid(7)));
    for mut vb in [vb, logged, applied] {
        assert_eq!(vb.state(), VbState::Dead);
        let standing = vb.progress();
        assert_eq!(
            (standing.consistent, standing.high_seqno),
            (Seqno(3), Seqno(5))
        );
        assert_eq!(standing.high_prepared, Seqno(3), "it had acknowledged that");
        promote(&mut vb, 9, &["a"]);
        assert_eq!(branches(&vb), [(9, 3), (0xabc, 0)]);
        assert_eq!(
            get(&mut vb, at(0), "k").unwrap(),
            b"3",
            "its prepare is completed"
        );
    }
}

/// Rule: after an unclean shutdown, an active vBucket starts a branch at its high seqno, or at the last consistent
/// point inside a snapshot. Other states keep the history of their active node.
#[test]
fn unclean_shutdown_starts_a_branch_only_if_active() {
    let mut vb = replica();
    let mut disk_of = Disk::default();
    take(&mut vb, memory(1, 3), vec![document("a", 3)]);
    take(&mut vb, memory(4, 9), vec![document("c", 5)]);
    disk_of.log(&mut vb, usize::MAX);
    let again = disk_of.clone().recover(active(&[]), Some(VbUuid(7)));
    assert_eq!(branches(&again), [(0xabc, 0)]);
    assert_eq!(again.progress().consistent, Seqno(3));
    promote(&mut vb, 4, &["a"]);
    disk_of.log(&mut vb, usize::MAX);
    let again = disk_of.recover(active(&[]), Some(VbUuid(7)));
    assert_eq!(branches(&again), [(7, 5), (4, 3), (0xabc, 0)]);
}

/// Rule: prepares from the disk or from another active node have no timeout and are completed. Until then, reads of
/// their keys fail with a re-commit status, because a client may have seen the commit.
#[test]
fn inherited_prepares_never_time_out() {
    let mut promoted = replica();
    take(
        &mut promoted,
        memory(1, 3),
        vec![
            document("k", 1),
            prepared("k", 2, Majority),
            prepared("l", 3, PersistToMajority),
        ],
    );
    promote(&mut promoted, 9, &["ab"]);

    let mut from_disk = active(&["ab"]);
    let mut disk_of = Disk::default();
    set(&mut from_disk, at(0), "k", b"1");
    let (k, l) = (key("k"), key("l"));
    store(
        &mut from_disk,
        at(0),
        &durable(&k, Majority, 1),
        StoreMode::Set,
        b"2",
    )
    .unwrap();
    store(
        &mut from_disk,
        at(0),
        &durable(&l, Majority, 1),
        StoreMode::Set,
        b"3",
    )
    .unwrap();
    disk_of.log(&mut from_disk, usize::MAX);
    let mut from_disk = disk_of.recover(active(&[]), Some(VbUuid(7)));
    assert_eq!(from_disk.state(), VbState::Active);
    assert_eq!(from_disk.durability().topology(), None);
    from_disk.acknowledge(&node("b"), Seqno(3)).unwrap();
    assert_eq!(
        from_disk.durability_figures().tracked,
        2,
        "there is no topology"
    );
    from_disk.durability_mut().forget_acks(&node("b"));
    promote(&mut from_disk, 8, &["ab"]);
    assert_eq!(
        from_disk.failover().uuid(),
        VbUuid(7),
        "it was active before"
    );

    for vb in [&mut promoted, &mut from_disk] {
        assert!(!vb.durability().has_waiters());
        vb.on_time(at(1_000_000));
        assert_eq!(vb.durability_figures().tracked, 2);
        let again = Status::SyncWriteReCommitInProgress;
        assert_eq!(get(vb, at(0), "k"), Err(again));
        assert_eq!(
            get(vb, at(0), "l"),
            Err(again),
            "though there is nothing to see"
        );
        assert_eq!(vb.at(at(0)).get_meta(&k), Err(again));
        let default = kedge_types::CollectionId::DEFAULT;
        for shard in 0..vb.table().shard_count() {
            assert_eq!(
                vb.at(at(0)).random_document(default, shard, 3, |_| ()),
                None
            );
        }
        let busy = store(vb, at(0), &write(&k), StoreMode::Set, b"x");
        assert_eq!(busy, Err(Status::SyncWriteInProgress));
        // A prepare of the new active follows them and is not visible.
        let m = key("m");
        store(vb, at(0), &durable(&m, Majority, 5), StoreMode::Set, b"5").unwrap();
        assert_eq!(get(vb, at(0), "m"), Err(Status::KeyNotFound));
        log_all(vb);
        vb.acknowledge(&node("b"), Seqno(2)).unwrap();
        assert_eq!(get(vb, at(0), "k").unwrap(), b"2");
        assert_eq!(get(vb, at(0), "l"), Err(again));
        vb.acknowledge(&node("b"), vb.progress().high_prepared)
            .unwrap();
        assert_eq!(get(vb, at(0), "l").unwrap(), b"3");
        assert_eq!(results(vb).len(), 1, "only one had a client");
        assert_eq!(get(vb, at(0), "m").unwrap(), b"5");
    }
}

/// Rule: waiting clients get an ambiguous status when a vBucket leaves the active state. The prepares stay, and reads
/// on a later active node fail with a re-commit status.
#[test]
fn leaving_active_returns_ambiguous_and_keeps_prepares() {
    for state in [VbState::Replica, VbState::Pending, VbState::Dead] {
        let vb = &mut active(&["ab"]);
        set(vb, at(0), "k", b"old");
        let (k, l) = (key("k"), key("l"));
        store(vb, at(0), &durable(&k, Majority, 1), StoreMode::Set, b"new").unwrap();
        store(
            vb,
            at(0),
            &durable(&l, PersistToMajority, 2),
            StoreMode::Set,
            b"new",
        )
        .unwrap();
        vb.acknowledge(&node("b"), Seqno(1)).unwrap();
        vb.set_state(StateChange::to(state, VbUuid(9)));
        let ambiguous = Err(Status::SyncWriteAmbiguous);
        assert_eq!(results(vb), [(1, ambiguous), (2, ambiguous)]);
        assert_eq!(vb.durability().topology(), None);
        assert_eq!(vb.durability_figures().tracked, 2);
        if state == VbState::Replica {
            let shown = vb
                .at(at(0))
                .get_replica(&k, |document| document.item.value().to_vec());
            assert_eq!(
                done(shown.unwrap()),
                b"old",
                "a replica shows what is committed"
            );
        }
        assert_eq!(
            vb.progress().high_prepared,
            Seqno(2),
            "the other is on no disk"
        );
        vb.on_time(at(1_000));
        log_all(vb);
        assert_eq!(vb.progress().high_prepared, Seqno(3));
        assert!(results(vb).is_empty(), "answered once");
        promote(vb, 10, &["ab"]);
        assert_eq!(
            get(vb, at(0), "k"),
            Err(Status::SyncWriteReCommitInProgress)
        );
        vb.acknowledge(&node("b"), Seqno(3)).unwrap();
        assert_eq!(get(vb, at(0), "k").unwrap(), b"new");
        assert!(results(vb).is_empty());
    }
}

/// The new active node commits the prepares of the old one, which receives the commits as a replica.
#[test]
fn old_active_receives_the_commits_of_the_new_one() {
    let old = &mut active(&["ab"]);
    let k = key("k");
    store(
        old,
        at(0),
        &durable(&k, Majority, 1),
        StoreMode::Set,
        b"new",
    )
    .unwrap();
    let new = &mut replica();
    take(new, memory(1, 1), vec![prepared("k", 1, Majority)]);
    old.set_state(StateChange::to(VbState::Replica, VbUuid(9)));
    log_all(new);
    promote(new, 0xf00, &["ba"]);
    new.acknowledge(&node("a"), Seqno(1)).unwrap();
    old.begin_stream(new.failover().clone()).unwrap();
    assert_eq!(old.take_ack(), Some(Seqno(1)), "it has the prepare");
    let changes = log_all(new);
    let all: Vec<Received> = changes.iter().filter_map(sent).collect();
    take(old, memory(2, 2), all);
    let shown = old
        .at(at(0))
        .get_replica(&k, |document| document.item.seqno());
    assert_eq!(done(shown.unwrap()), Seqno(2));
    assert_eq!(old.durability_figures().tracked, 0);
    assert_eq!(old.failover(), new.failover());
}

/// A single node needs no topology from a cluster manager.
#[test]
fn single_node_needs_no_topology() {
    let vb = &mut vbucket();
    assert_eq!(vb.durability().topology(), Some(&Topology::alone()));
    vb.set_state(StateChange::to(VbState::Dead, VbUuid(5)));
    assert_eq!(vb.durability().topology(), None);
    vb.set_state(StateChange::to(VbState::Active, VbUuid(6)));
    assert_eq!(vb.durability().topology(), Some(&Topology::alone()));
    drop(vb.delete_vbucket());
    vb.set_state(StateChange::to(VbState::Active, VbUuid(7)));
    let k = key("k");
    done(store(vb, at(0), &durable(&k, Majority, 1), StoreMode::Set, b"x").unwrap());
    let logged = log_all(vb);
    assert!(
        logged
            .iter()
            .any(|change| matches!(change, Change::Commit { .. }))
    );
}
