//! Streams of a pair: start positions and disk snapshots.

use crate::tools::*;
use kedge_types::Seqno;
use kedge_vbucket::{
    Change, DcpSnapshot, FailoverTable, Received, ResumePoint, SnapshotKind, VbState,
};
use std::collections::BTreeMap;

/// Returns the seqno to which a replica must roll back before its stream starts, or `None` if it may start.
pub(super) fn rollback_point(
    table: &FailoverTable,
    high: Seqno,
    resume: &ResumePoint,
) -> Option<Seqno> {
    let ResumePoint {
        start,
        mut snap_start,
        mut snap_end,
        uuid,
    } = *resume;
    if start == Seqno(0) {
        return None;
    }
    let at = table.entries().iter().position(|(known, _)| *known == uuid);
    let Some(at) = at else {
        return Some(Seqno(0));
    };
    let upper = at
        .checked_sub(1)
        .map_or(high, |newer| table.entries()[newer].1);
    if start == snap_start {
        snap_end = start;
    }
    if snap_end <= upper {
        return None;
    }
    if start == snap_end {
        snap_start = start;
    }
    Some(upper.min(snap_start))
}

/// Returns the seqno after which a history has every change. A disk snapshot omitted earlier ones.
pub(super) fn whole_from(history: &[Change]) -> u64 {
    let (mut from, mut open) = (Seqno(0), None);
    for change in history {
        match change {
            Change::Snapshot(snapshot) => open = Some(**snapshot),
            Change::State(_, VbState::Active) => open = None,
            Change::Rollback { to, .. } => (from, open) = (from.min(*to), None),
            _ => {}
        }
        let Some(seqno) = change.seqno() else {
            continue;
        };
        if open.is_some_and(|open| open.kind == SnapshotKind::Disk) {
            from = seqno;
        }
        open.take_if(|open| open.end <= seqno);
    }
    from.get()
}

/// Returns the disk snapshot after `start` of a file at `upto`: the newest version of each key in each namespace.
pub(super) fn disk_snapshot(
    history: &[Change],
    start: u64,
    upto: u64,
) -> (DcpSnapshot, Vec<Received>) {
    let mut newest: BTreeMap<(bool, Vec<u8>), Received> = BTreeMap::new();
    let (mut completed, mut prepared, mut visible) = (Seqno(0), Seqno(0), None);
    // The completed seqno is known at the end of a disk snapshot.
    let mut open: Option<DcpSnapshot> = None;
    for change in history {
        match change {
            Change::Snapshot(snapshot) => open = Some(**snapshot),
            Change::State(_, VbState::Active) | Change::Rollback { .. } => open = None,
            _ => {}
        }
        let Some(item) = change.item().filter(|item| item.seqno().get() <= upto) else {
            continue;
        };
        let key = item.key().to_vec();
        let received = match change {
            Change::Document(_) | Change::Commit { .. } => {
                visible = Some(item.seqno());
                Received::Document(item.clone())
            }
            _ => sent(change).unwrap(),
        };
        let in_disk = open.is_some_and(|open| open.kind == SnapshotKind::Disk);
        match change {
            Change::Prepare(_) => prepared = item.seqno(),
            Change::Commit { prepared, .. } | Change::Abort { prepared, .. } if !in_disk => {
                completed = completed.max(*prepared);
            }
            _ => {}
        }
        if let Some(open) = open.take_if(|open| open.end <= item.seqno()) {
            completed = completed.max(open.high_completed.unwrap_or_default());
        }
        let is_document = matches!(received, Received::Document(_));
        newest.insert((is_document, key), received);
    }
    let mut all: Vec<Received> = newest
        .into_values()
        .filter(|received| received.seqno().get() > start)
        .filter(|received| match received {
            Received::Prepare(item) => item.seqno() > completed,
            _ => true,
        })
        .collect();
    all.sort_by_key(Received::seqno);
    let snapshot = DcpSnapshot {
        max_visible: visible,
        high_completed: Some(completed),
        high_prepared: Some(prepared.max(completed)),
        ..disk(start + 1, upto)
    };
    (snapshot, all)
}
