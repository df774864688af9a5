//! The seqno that a copy must reach again after a rollback.

use crate::disk::{Disk, WHOLE};
use crate::tools::*;
use kedge_types::DurabilityLevel::PersistToMajority;
use kedge_types::{Seqno, VbUuid};
use kedge_vbucket::{DcpSnapshot, FailoverTable, Received, StateChange, VBucket, VbState};

/// The branch of the active that the replica of the tests follows.
const OLD: VbUuid = VbUuid(0xabc);

fn take(vb: &mut VBucket, snapshot: DcpSnapshot, all: impl IntoIterator<Item = Received>) {
    vb.begin_snapshot(snapshot).unwrap();
    for received in all {
        vb.receive(at(0), received).unwrap();
    }
}

fn persist(vb: &mut VBucket, disk: &mut Disk) {
    disk.log(vb, usize::MAX);
    disk.apply(vb, WHOLE);
}

fn must_reach(vb: &VBucket) -> Option<u64> {
    vb.history().catch_up().map(|point| point.seqno.get())
}

/// A replica that has acknowledged a prepare at seqno 5, with a header of its file at seqno 2.
fn acknowledged() -> (VBucket, Disk) {
    let mut vb = replica();
    let mut disk = Disk::default();
    take(&mut vb, memory(1, 2), [document("a", 1), document("b", 2)]);
    persist(&mut vb, &mut disk);
    let rest = [
        document("c", 3),
        document("d", 4),
        prepared("e", 5, PersistToMajority),
    ];
    take(&mut vb, memory(3, 5), rest);
    persist(&mut vb, &mut disk);
    assert_eq!(vb.take_ack(), Some(Seqno(5)));
    take(&mut vb, memory(6, 7), [commit("e", 5, 6), document("f", 7)]);
    persist(&mut vb, &mut disk);
    (vb, disk)
}

/// Rolls back to the header at seqno 2.
fn roll_back(vb: &mut VBucket, disk: &mut Disk) {
    vb.rollback(Seqno(2), VbUuid(0x999));
    disk.log(vb, usize::MAX);
    disk.rewind(Seqno(2), vb);
    vb.recovery().rewound(&disk.file().unwrap().base()).unwrap();
}

/// The table of an active that began a branch at a seqno.
fn restarted_at(seqno: u64) -> FailoverTable {
    let mut table = FailoverTable::new(OLD);
    table.begin(VbUuid(0xf00), Seqno(seqno));
    table
}

/// The active restarted and lost what came after seqno 4. The file of the replica has no header between 2 and 4.
#[test]
fn rolled_back_copy_must_reach_what_it_had_acknowledged_and_its_active_still_has() {
    let (mut vb, mut disk) = acknowledged();
    assert_eq!(must_reach(&vb), None);
    roll_back(&mut vb, &mut disk);
    assert_eq!(must_reach(&vb), Some(5));
    vb.begin_stream(restarted_at(4)).unwrap();
    assert_eq!(
        must_reach(&vb),
        Some(4),
        "the active has no more of that history"
    );
    take(&mut vb, memory(3, 6), [document("c", 3), document("d", 4)]);
    persist(&mut vb, &mut disk);
    assert_eq!(must_reach(&vb), Some(4), "the snapshot is not complete");
    vb.receive(at(0), document("g", 6)).unwrap();
    assert_eq!(
        must_reach(&vb),
        Some(6),
        "the end of the snapshot is not on disk"
    );
    take(&mut vb, memory(7, 7), [document("h", 7)]);
    assert_eq!(must_reach(&vb), Some(6), "later snapshots do not matter");
    persist(&mut vb, &mut disk);
    assert_eq!(must_reach(&vb), None);
    let again = disk.recover(active(&[]), None);
    assert_eq!(must_reach(&again), None);
}

#[test]
fn restart_at_any_point_remembers_what_the_copy_must_reach() {
    let (mut vb, mut disk) = acknowledged();
    vb.rollback(Seqno(2), VbUuid(0x999));
    let before = disk.clone().recover(active(&[]), None);
    assert_eq!((before.high_seqno(), must_reach(&before)), (Seqno(7), None));
    disk.log(&mut vb, usize::MAX);
    let behind_record = disk.clone().recover(active(&[]), None);
    assert_eq!(
        (behind_record.high_seqno(), must_reach(&behind_record)),
        (Seqno(2), Some(5))
    );
    disk.rewind(Seqno(2), &vb);
    vb.recovery().rewound(&disk.file().unwrap().base()).unwrap();
    for truncates in [false, true] {
        if truncates {
            disk.release(&vb);
        }
        let again = disk.clone().recover(active(&[]), None);
        assert_eq!(
            (again.high_seqno(), must_reach(&again)),
            (Seqno(2), Some(5))
        );
    }
    vb.begin_stream(restarted_at(4)).unwrap();
    take(&mut vb, memory(3, 3), [document("c", 3)]);
    disk.log(&mut vb, usize::MAX);
    for applies in [false, true] {
        if applies {
            disk.apply(&mut vb, WHOLE);
            disk.release(&vb);
        }
        let again = disk.clone().recover(active(&[]), None);
        assert_eq!(
            (again.high_seqno(), must_reach(&again)),
            (Seqno(3), Some(4))
        );
    }
}

#[test]
fn second_rollback_keeps_what_the_first_one_requires() {
    let (mut vb, mut disk) = acknowledged();
    roll_back(&mut vb, &mut disk);
    vb.begin_stream(restarted_at(4)).unwrap();
    take(&mut vb, memory(3, 3), [document("c", 3)]);
    persist(&mut vb, &mut disk);
    roll_back(&mut vb, &mut disk);
    assert_eq!(must_reach(&vb), Some(4));
    vb.recovery().reset_for_rollback(VbUuid(0x777));
    persist(&mut vb, &mut disk);
    assert_eq!((vb.high_seqno(), must_reach(&vb)), (Seqno(0), Some(4)));
    let again = disk.recover(active(&[]), None);
    assert_eq!(
        (again.high_seqno(), must_reach(&again)),
        (Seqno(0), Some(4))
    );
    // Another active has a part of that history only.
    let mut other = FailoverTable::new(OLD);
    other.begin(VbUuid(0xe00), Seqno(3));
    vb.begin_stream(other).unwrap();
    assert_eq!(must_reach(&vb), Some(3));
    vb.begin_stream(FailoverTable::new(VbUuid(0xd00))).unwrap();
    assert_eq!(must_reach(&vb), None, "nothing of it is left anywhere");
}

#[test]
fn rollback_that_removes_nothing_acknowledged_requires_nothing() {
    let mut vb = replica();
    let mut disk = Disk::default();
    take(&mut vb, memory(1, 2), [document("a", 1), document("b", 2)]);
    persist(&mut vb, &mut disk);
    take(&mut vb, memory(3, 4), [document("c", 3), document("d", 4)]);
    persist(&mut vb, &mut disk);
    roll_back(&mut vb, &mut disk);
    assert_eq!(must_reach(&vb), None, "no SyncWrite was acknowledged");
}

#[test]
fn promoted_or_flushed_copy_requires_nothing() {
    for flushes in [false, true] {
        let (mut vb, mut disk) = acknowledged();
        roll_back(&mut vb, &mut disk);
        if flushes {
            vb.reset(VbUuid(0x777));
        } else {
            vb.set_state(StateChange::to(VbState::Active, VbUuid(0x777)));
        }
        assert_eq!(must_reach(&vb), None);
        disk.log(&mut vb, usize::MAX);
        let again = disk.clone().recover(active(&[]), None);
        assert_eq!(must_reach(&again), None);
        disk.apply(&mut vb, WHOLE);
        disk.release(&vb);
        let again = disk.recover(active(&[]), None);
        assert_eq!(must_reach(&again), None);
    }
}
