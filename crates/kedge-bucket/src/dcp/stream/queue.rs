//! Reading of the checkpoints in memory, and the announcement of their changes as snapshots.
//!
//! A snapshot contains a key once, as consumers expect; a second change of the key begins another snapshot. Two kinds of
//! snapshots may repeat keys, and say so: those for replicas, which would otherwise record a snapshot for each change of a
//! counter, and those that must reach a certain seqno before the receiver is at a consistent point.

use super::VbStream;
use kedge_bucket_core::{BucketPhase, Total};
use kedge_replication::{EndReason, SourceState, StreamItem};
use kedge_types::Seqno;
use kedge_vbucket::{
    Change, CursorGone, DcpSnapshot, Item, SnapshotKind, StreamCursor, VBucket, VbState,
};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl VbStream {
    pub(super) fn read_queue(
        &mut self,
        cursor: StreamCursor,
        max_items: usize,
        max_bytes: usize,
        out: &mut Vec<StreamItem>,
    ) -> SourceState {
        if self.last >= self.request.end {
            return self.end(EndReason::Ok);
        }
        if self.dcp.core.phase() != BucketPhase::Open {
            return self.end(EndReason::Disconnected);
        }
        let dcp = Arc::clone(&self.dcp);
        let mut changes = std::mem::take(&mut self.changes);
        let mut vbucket = dcp.core.vbuckets[self.shared.vb.index()].lock();
        self.shared.check_identity(vbucket.identity());
        let ended = self.shared.state.lock().ended;
        if let Some(reason) = ended {
            drop(vbucket);
            return self.end(reason);
        }
        let (read, _) = dcp.core.measure(&mut vbucket, |vbucket| {
            vbucket
                .changes_mut()
                .read_cursor(cursor, max_items, max_bytes, &mut changes)
        });
        let state = match read {
            Err(CursorGone) => {
                drop(vbucket);
                dcp.core.totals.add(Total::StreamsBackToFile, 1);
                let drops = &self.shared.counters.cursor_drops;
                drops.fetch_add(1, Ordering::Relaxed);
                self.begin_backfill();
                self.shared.idle.store(true, Ordering::SeqCst);
                SourceState::Idle
            }
            Ok(_) if changes.is_empty() => {
                self.shared.idle.store(true, Ordering::SeqCst);
                vbucket.changes_mut().wait_for_changes();
                drop(vbucket);
                self.on_drained(out)
            }
            Ok(_) => {
                let bounds = SnapshotBounds::of(&vbucket);
                drop(vbucket);
                self.emit(&mut changes, &bounds, out);
                SourceState::More
            }
        };
        changes.clear();
        self.changes = changes;
        state
    }

    /// Appends changes to `out`, with the markers of their snapshots.
    fn emit(
        &mut self,
        changes: &mut Vec<Change>,
        bounds: &SnapshotBounds,
        out: &mut Vec<StreamItem>,
    ) {
        let mut count = 0;
        let mut runs = self.runs(changes).into_iter().peekable();
        for change in changes.drain(..) {
            let Some(seqno) = change.seqno() else {
                continue;
            };
            // The backfill has sent this change already.
            if seqno <= self.last {
                continue;
            }
            if seqno > self.request.end {
                self.last = self.request.end;
                break;
            }
            if seqno > self.announced {
                while runs.next_if(|run| run.end < seqno).is_some() {}
                let run = runs.peek().copied().unwrap_or(ChangeRun::to(seqno));
                self.announce(&run, bounds, out);
            }
            self.last = seqno;
            if is_visible(&change) {
                self.visible = seqno;
            }
            count += 1;
            out.push(match change {
                Change::Advance(seqno) => StreamItem::SeqnoAdvanced(seqno),
                Change::Commit { item, .. } if seqno <= self.partial_end => {
                    StreamItem::Change(Change::Document(item))
                }
                change => StreamItem::Change(change),
            });
        }
        let counters = &self.shared.counters;
        counters.from_memory.fetch_add(count, Ordering::Relaxed);
        self.record_progress();
    }

    /// Splits changes into runs that contain each key once, as far as the receiver sees the changes.
    fn runs(&self, changes: &[Change]) -> Vec<ChangeRun> {
        let is_whole = self.request.consumer.is_some();
        let mut runs: Vec<ChangeRun> = Vec::new();
        let mut keys: HashSet<&[u8]> = HashSet::new();
        for change in changes {
            let Some(seqno) = change.seqno() else {
                continue;
            };
            if seqno <= self.last {
                continue;
            }
            let is_seen = is_visible(change) || self.request.sync_writes;
            let item = change.item().filter(|_| is_seen);
            let is_repeated = item.is_some_and(|item| !keys.insert(item.key()));
            if runs.is_empty() || (is_repeated && !is_whole) {
                keys.clear();
                keys.extend(item.map(Item::key));
                runs.push(ChangeRun::to(seqno));
            }
            if let Some(run) = runs.last_mut() {
                run.end = seqno;
                run.repeats_keys |= is_repeated && is_whole;
                if is_visible(change) {
                    run.visible = Some(seqno);
                }
            }
        }
        runs
    }

    /// Announces a snapshot. For an active vBucket it contains one run, since each of its seqnos is a consistent point. For a
    /// replica, and while the receiver has a part of a snapshot, it contains all changes of the checkpoints.
    fn announce(&mut self, run: &ChangeRun, bounds: &SnapshotBounds, out: &mut Vec<StreamItem>) {
        let is_disk = bounds.is_disk || self.last < self.partial_end;
        let end = if is_disk {
            bounds.end.max(self.partial_end)
        } else {
            run.end
        };
        // The unread changes of the snapshot may repeat any key.
        let repeats_keys = run.repeats_keys || run.end < end;
        let end = end.min(self.request.end);
        if is_disk {
            self.partial_end = end;
        }
        let visible = if is_disk {
            bounds.visible
        } else {
            run.visible.unwrap_or(self.visible)
        };
        let start = self.first_start.take();
        let start = start.unwrap_or(Seqno(self.last.get() + 1));
        let kind = if is_disk {
            SnapshotKind::Disk
        } else {
            SnapshotKind::Memory
        };
        self.announced = end;
        out.push(StreamItem::Marker(DcpSnapshot {
            max_visible: Some(visible.min(end)),
            high_completed: is_disk.then_some(bounds.completed),
            high_prepared: is_disk.then_some(bounds.prepared),
            purge: is_disk.then_some(bounds.purge),
            checkpoint: is_disk || start != Seqno(self.last.get() + 1),
            repeats_keys,
            ..DcpSnapshot::new(kind, start, end)
        }));
    }
}

/// Returns whether clients without SyncWrites see the change.
fn is_visible(change: &Change) -> bool {
    matches!(
        change,
        Change::Document(_) | Change::Commit { .. } | Change::System(_)
    )
}

/// Consecutive changes that are announced as one snapshot.
#[derive(Clone, Copy, Debug)]
struct ChangeRun {
    /// The last seqno.
    end: Seqno,
    /// The last visible seqno.
    visible: Option<Seqno>,
    repeats_keys: bool,
}

impl ChangeRun {
    fn to(end: Seqno) -> Self {
        Self {
            end,
            visible: None,
            repeats_keys: false,
        }
    }
}

/// The seqnos of a vBucket that snapshot markers contain.
struct SnapshotBounds {
    /// True if the vBucket is not active, so that its changes may come from a disk snapshot.
    is_disk: bool,
    /// The next consistent point after all changes in the checkpoints.
    end: Seqno,
    visible: Seqno,
    completed: Seqno,
    prepared: Seqno,
    purge: Seqno,
}

impl SnapshotBounds {
    fn of(vbucket: &VBucket) -> Self {
        Self {
            is_disk: vbucket.state() != VbState::Active,
            end: vbucket
                .history()
                .resume_point()
                .snap_end
                .max(vbucket.high_seqno()),
            visible: vbucket.history().visible_seqno(),
            completed: vbucket.durability().high_completed_seqno(),
            prepared: vbucket.progress().high_prepared,
            purge: vbucket.history().purge_seqno(),
        }
    }
}
