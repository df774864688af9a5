//! What comes from the queue of changes, and the snapshots that it is announced as.
//!
//! A key stands once in a snapshot, as consumers expect it; where it is changed again, another snapshot begins. Longer ones
//! say that they may have a key twice: those of nodes that keep a replica, which would otherwise note down a snapshot for each
//! change of a counter, and those that have to reach a certain end before the receiver is at a consistent point.

use super::VbStream;
use kedge_bucket_core::BucketPhase;
use kedge_bucket_core::Total;
use kedge_replication::{EndReason, SourceState, StreamItem};
use kedge_types::Seqno;
use kedge_vbucket::{
    Change, CursorGone, Item, Snapshot, SnapshotKind, StreamCursor, VBucket, VbState,
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
                let drops = &self.shared.counts.cursor_drops;
                drops.fetch_add(1, Ordering::Relaxed);
                self.begin_backfill();
                self.shared.idle.store(true, Ordering::SeqCst);
                SourceState::Idle
            }
            Ok(_) if changes.is_empty() => {
                self.shared.idle.store(true, Ordering::SeqCst);
                vbucket.changes_mut().wait_for_changes();
                drop(vbucket);
                self.rest(out)
            }
            Ok(_) => {
                let bounds = Bounds::of(&vbucket);
                drop(vbucket);
                self.give(&mut changes, &bounds, out);
                SourceState::More
            }
        };
        changes.clear();
        self.changes = changes;
        state
    }

    /// Gives changes out of the queue, with the markers that they need.
    fn give(&mut self, changes: &mut Vec<Change>, bounds: &Bounds, out: &mut Vec<StreamItem>) {
        let mut count = 0;
        let mut runs = self.runs(changes).into_iter().peekable();
        for change in changes.drain(..) {
            let Some(seqno) = change.seqno() else {
                continue;
            };
            // What the file had already.
            if seqno <= self.last {
                continue;
            }
            if seqno > self.request.end {
                self.last = self.request.end;
                break;
            }
            if seqno > self.announced {
                while runs.next_if(|run| run.end < seqno).is_some() {}
                let run = runs.peek().copied().unwrap_or(Run::to(seqno));
                self.announce(&run, bounds, out);
            }
            self.last = seqno;
            if is_visible(&change) {
                self.visible = seqno;
            }
            count += 1;
            out.push(match change {
                Change::Advance(seqno) => StreamItem::SeqnoAdvanced(seqno),
                Change::Commit { item, .. } if seqno <= self.torn => {
                    StreamItem::Change(Change::Document(item))
                }
                change => StreamItem::Change(change),
            });
        }
        let counts = &self.shared.counts;
        counts.from_memory.fetch_add(count, Ordering::Relaxed);
        self.note_sent();
    }

    /// Cuts what was read into runs in which a key stands once, as far as the receiver is to see it.
    fn runs(&self, changes: &[Change]) -> Vec<Run> {
        let is_whole = self.request.consumer.is_some();
        let mut runs: Vec<Run> = Vec::new();
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
                runs.push(Run::to(seqno));
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

    /// Announces a run of what was read as a snapshot: an active was like this after each change. Behind a snapshot that the
    /// receiver has in part, or of a vBucket that follows another, all that the queue has.
    fn announce(&mut self, run: &Run, bounds: &Bounds, out: &mut Vec<StreamItem>) {
        let is_disk = bounds.is_disk || self.last < self.torn;
        let end = if is_disk {
            bounds.end.max(self.torn)
        } else {
            run.end
        };
        // Not all of it was read: what is to come may have any key again.
        let repeats_keys = run.repeats_keys || run.end < end;
        let end = end.min(self.request.end);
        if is_disk {
            self.torn = end;
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
        out.push(StreamItem::Marker(Snapshot {
            max_visible: Some(visible.min(end)),
            high_completed: is_disk.then_some(bounds.completed),
            high_prepared: is_disk.then_some(bounds.prepared),
            purge: is_disk.then_some(bounds.purge),
            checkpoint: is_disk || start != Seqno(self.last.get() + 1),
            repeats_keys,
            ..Snapshot::new(kind, start, end)
        }));
    }
}

/// Whether clients without SyncWrites hear of it.
fn is_visible(change: &Change) -> bool {
    matches!(
        change,
        Change::Document(_) | Change::Commit { .. } | Change::System(_)
    )
}

/// Changes that were read, in which a key stands once, or that are announced together all the same.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// The last seqno.
    end: Seqno,
    /// The last document.
    visible: Option<Seqno>,
    repeats_keys: bool,
}

impl Run {
    fn to(end: Seqno) -> Self {
        Self {
            end,
            visible: None,
            repeats_keys: false,
        }
    }
}

/// What snapshots are told with.
struct Bounds {
    /// The vBucket follows another, whose snapshots may have come from a disk.
    is_disk: bool,
    /// The next consistent point of all that the queue has, and what there is up to there.
    end: Seqno,
    visible: Seqno,
    completed: Seqno,
    prepared: Seqno,
    purge: Seqno,
}

impl Bounds {
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
