//! Which vBuckets are to be compacted, and which are being.
//!
//! Invariants:
//! * A vBucket is compacted by one task at a time, and stands in the queue at most once. Who asks for one that is queued
//!   joins it; who asks for one that is being compacted gets another compaction after that.
//! * Every ticket that came in goes out: to the compaction that [`CompactionQueue::next`] hands out, or from [`CompactionQueue::cancel`].

use super::ticket::CompactionTicket;
use kedge_types::{Seqno, VbId};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The pause after a failure; it doubles with every further one.
const RETRY_NS: u64 = 1_000_000_000;
/// As long as this at most.
const RETRY_NS_MAX: u64 = 600 * RETRY_NS;

/// What is to be left out of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PurgeOptions {
    /// Tombstones of deletes before this Unix second, if that is later than the purge age says.
    pub(super) purge_before_secs: Option<u32>,
    /// Only those up to this seqno.
    pub(super) purge_before_seqno: Option<Seqno>,
    /// All tombstones.
    pub(super) drop_deletes: bool,
}

impl PurgeOptions {
    /// What fulfils both.
    fn union(self, other: Self) -> Self {
        let limits = self.purge_before_seqno.zip(other.purge_before_seqno);
        Self {
            purge_before_secs: self.purge_before_secs.max(other.purge_before_secs),
            // Who set no limit has all that age allows.
            purge_before_seqno: limits.map(|(one, other)| one.max(other)),
            drop_deletes: self.drop_deletes || other.drop_deletes,
        }
    }
}

/// What was asked for, by one or more.
#[derive(Clone, Debug, Default)]
pub(super) struct QueuedCompaction {
    pub(super) purge: PurgeOptions,
    pub(super) tickets: Vec<CompactionTicket>,
    /// Nobody did but the look at files, for their garbage: it may be put off.
    pub(super) is_automatic: bool,
}

impl QueuedCompaction {
    fn merge(&mut self, mut other: Self) {
        self.is_automatic &= other.is_automatic;
        self.purge = self.purge.union(other.purge);
        self.tickets.append(&mut other.tickets);
    }
}

/// Tells a compaction under way to end.
pub(super) type CancelFlag = Arc<AtomicBool>;

/// A compaction that is to begin.
#[derive(Debug)]
pub(super) struct CompactionJob {
    pub(super) vb: VbId,
    pub(super) request: QueuedCompaction,
    pub(super) cancel: CancelFlag,
}

#[derive(Debug, Default)]
struct QueueEntry {
    /// It is in the queue.
    request: Option<QueuedCompaction>,
    not_before_ns: u64,
    failures: u32,
    running: Option<CancelFlag>,
    /// What runs was asked for by nobody.
    is_automatic_run: bool,
}

/// See the head of this file.
#[derive(Debug, Default)]
pub(super) struct CompactionQueue {
    entries: BTreeMap<VbId, QueueEntry>,
    /// Those that are asked for, in the order in which that was.
    order: VecDeque<VbId>,
    running: usize,
}

impl CompactionQueue {
    /// A vBucket is to be compacted. One who waits for it need not wait for a pause that failures have brought about.
    pub(super) fn enqueue(&mut self, vb: VbId, request: QueuedCompaction) {
        let entry = self.entries.entry(vb).or_default();
        if !request.tickets.is_empty() {
            entry.not_before_ns = 0;
        }
        match &mut entry.request {
            Some(queued) => queued.merge(request),
            None => {
                entry.request = Some(request);
                self.order.push_back(vb);
            }
        }
    }

    /// The next that may begin, with `limit` at once at most.
    pub(super) fn next(&mut self, now_ns: u64, limit: usize) -> Option<CompactionJob> {
        if self.running >= limit {
            return None;
        }
        let may = |vb: &VbId| {
            let entry = &self.entries[vb];
            entry.running.is_none() && entry.not_before_ns <= now_ns
        };
        let at = self.order.iter().position(may)?;
        let vb = self.order.remove(at)?;
        let entry = self.entries.get_mut(&vb)?;
        let request = entry.request.take()?;
        let cancel = CancelFlag::default();
        entry.running = Some(Arc::clone(&cancel));
        entry.is_automatic_run = request.is_automatic;
        self.running += 1;
        Some(CompactionJob {
            vb,
            request,
            cancel,
        })
    }

    /// A compaction has ended, and need not be repeated.
    pub(super) fn end(&mut self, vb: VbId) {
        self.stop_running(vb);
        if let Some(entry) = self.entries.get_mut(&vb) {
            entry.failures = 0;
            entry.not_before_ns = 0;
            self.remove_if_idle(vb);
        }
    }

    /// A compaction has ended without a result: it is to be repeated for `request` after a pause. Says how long that is.
    pub(super) fn retry(
        &mut self,
        vb: VbId,
        request: QueuedCompaction,
        now_ns: u64,
        failed: bool,
    ) -> u64 {
        self.stop_running(vb);
        let entry = self.entries.entry(vb).or_default();
        let doublings = entry.failures.min(20);
        let pause_ns = (RETRY_NS << doublings).min(RETRY_NS_MAX);
        if failed {
            entry.failures += 1;
        }
        let has_ticket = |request: &QueuedCompaction| !request.tickets.is_empty();
        // Who request meanwhile may know that the reason is gone.
        if !entry.request.as_ref().is_some_and(has_ticket) {
            entry.not_before_ns = now_ns.saturating_add(pause_ns);
        }
        match &mut entry.request {
            Some(queued) => queued.merge(request),
            None => {
                entry.request = Some(request);
                self.order.push_back(vb);
            }
        }
        pause_ns
    }

    fn stop_running(&mut self, vb: VbId) {
        let entry = self.entries.get_mut(&vb);
        if entry.is_some_and(|entry| entry.running.take().is_some()) {
            self.running -= 1;
        }
    }

    fn remove_if_idle(&mut self, vb: VbId) {
        let is_idle = |entry: &QueueEntry| entry.request.is_none() && entry.running.is_none();
        if self.entries.get(&vb).is_some_and(is_idle) {
            self.entries.remove(&vb);
        }
    }

    /// Takes a vBucket out of the queue, and tells its compaction to end. Gives the tickets that were queued, and
    /// whether there was anything to cancel.
    pub(super) fn cancel(&mut self, vb: VbId) -> (Vec<CompactionTicket>, bool) {
        let Some(entry) = self.entries.get_mut(&vb) else {
            return (Vec::new(), false);
        };
        if let Some(cancel) = &entry.running {
            cancel.store(true, Ordering::Relaxed);
        }
        let request = entry.request.take();
        if request.is_some() {
            self.order.retain(|queued| *queued != vb);
        }
        self.remove_if_idle(vb);
        (
            request.map(|request| request.tickets).unwrap_or_default(),
            true,
        )
    }

    /// [`Self::cancel`] of what nobody asked for. Gives the vBuckets.
    pub(super) fn cancel_automatic(&mut self) -> Vec<VbId> {
        let is_automatic_entry = |entry: &QueueEntry| match &entry.request {
            Some(request) => request.is_automatic,
            None => entry.running.is_some() && entry.is_automatic_run,
        };
        let entries = self
            .entries
            .iter()
            .filter(|(_, entry)| is_automatic_entry(entry));
        let vbuckets: Vec<VbId> = entries.map(|(vb, _)| *vb).collect();
        for vb in &vbuckets {
            match self.entries.get_mut(vb) {
                // What runs is somebody's.
                Some(entry) if entry.running.is_some() && !entry.is_automatic_run => {
                    entry.request = None;
                    self.order.retain(|queued| queued != vb);
                }
                _ => drop(self.cancel(*vb)),
            }
        }
        vbuckets
    }

    /// Whether there is anything in here that nobody asked for.
    pub(super) fn has_automatic(&self) -> bool {
        self.entries.values().any(|entry| {
            let is_queued = entry
                .request
                .as_ref()
                .is_some_and(|request| request.is_automatic);
            is_queued || (entry.running.is_some() && entry.is_automatic_run)
        })
    }

    /// When the first of those that wait for a pause to end may begin.
    pub(super) fn next_retry_ns(&self, now_ns: u64) -> Option<u64> {
        let entries = self.order.iter().map(|vb| &self.entries[vb]);
        let times = entries.map(|entry| entry.not_before_ns);
        times.filter(|time_ns| *time_ns > now_ns).min()
    }

    /// All vBuckets in here, and whether they are being compacted.
    pub(super) fn vbuckets(&self) -> Vec<(VbId, bool)> {
        let entries = self.entries.iter();
        entries
            .map(|(vb, entry)| (*vb, entry.running.is_some()))
            .collect()
    }

    pub(super) fn queued(&self) -> usize {
        self.order.len()
    }

    pub(super) fn running(&self) -> usize {
        self.running
    }
}

#[cfg(test)]
mod tests;
