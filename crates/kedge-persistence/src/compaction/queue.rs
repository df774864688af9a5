//! The queue of compactions, and the compactions that are running.
//!
//! Invariants:
//! * A vBucket is compacted by one task at a time, and is in the queue at most once. A request for a queued vBucket is
//!   merged with the queued one. A request for a vBucket that is being compacted is queued for another compaction.
//! * Every ticket that is enqueued is returned: by the [`CompactionQueue::next`] that starts its compaction, or by
//!   [`CompactionQueue::cancel`].

use super::ticket::CompactionTicket;
use kedge_types::{Seqno, VbId};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The pause after the first failure, in nanoseconds. It doubles with every further one.
const RETRY_NS: u64 = 1_000_000_000;
/// The maximum pause, in nanoseconds.
const RETRY_NS_MAX: u64 = 600 * RETRY_NS;

/// The tombstones that a compaction purges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PurgeOptions {
    /// Tombstones of deletes before this Unix time, in seconds, if that is later than the limit of the purge age.
    pub(super) purge_before_secs: Option<u32>,
    /// Only tombstones up to this seqno.
    pub(super) purge_before_seqno: Option<Seqno>,
    /// All tombstones.
    pub(super) drop_deletes: bool,
}

impl PurgeOptions {
    /// Returns the options that purge everything that either of the two purges.
    fn union(self, other: Self) -> Self {
        let limits = self.purge_before_seqno.zip(other.purge_before_seqno);
        Self {
            purge_before_secs: self.purge_before_secs.max(other.purge_before_secs),
            // No limit purges everything that the age allows.
            purge_before_seqno: limits.map(|(one, other)| one.max(other)),
            drop_deletes: self.drop_deletes || other.drop_deletes,
        }
    }
}

/// One or more merged requests for the compaction of a vBucket.
#[derive(Clone, Debug, Default)]
pub(super) struct QueuedCompaction {
    pub(super) purge: PurgeOptions,
    pub(super) tickets: Vec<CompactionTicket>,
    /// True if only the check of files requested it, because of their garbage. Such a compaction may be deferred.
    pub(super) is_automatic: bool,
}

impl QueuedCompaction {
    fn merge(&mut self, mut other: Self) {
        self.is_automatic &= other.is_automatic;
        self.purge = self.purge.union(other.purge);
        self.tickets.append(&mut other.tickets);
    }
}

/// The flag that stops a running compaction.
pub(super) type CancelFlag = Arc<AtomicBool>;

/// A compaction that is to be started.
#[derive(Debug)]
pub(super) struct CompactionJob {
    pub(super) vb: VbId,
    pub(super) request: QueuedCompaction,
    pub(super) cancel: CancelFlag,
}

#[derive(Debug, Default)]
struct QueueEntry {
    /// The queued request, if the vBucket is in the queue.
    request: Option<QueuedCompaction>,
    not_before_ns: u64,
    failures: u32,
    running: Option<CancelFlag>,
    /// True if the running compaction is an automatic one.
    is_automatic_run: bool,
}

/// The queue of compactions of a bucket, with its running compactions.
#[derive(Debug, Default)]
pub(super) struct CompactionQueue {
    entries: BTreeMap<VbId, QueueEntry>,
    /// The queued vBuckets, in the order of their requests.
    order: VecDeque<VbId>,
    running: usize,
}

impl CompactionQueue {
    /// Queues a vBucket. A request with a ticket does not wait for the pause after a failure.
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

    /// Starts the next compaction if fewer than `limit` are running, and returns its job.
    pub(super) fn next(&mut self, now_ns: u64, limit: usize) -> Option<CompactionJob> {
        if self.running >= limit {
            return None;
        }
        let can_start = |vb: &VbId| {
            let entry = &self.entries[vb];
            entry.running.is_none() && entry.not_before_ns <= now_ns
        };
        let at = self.order.iter().position(can_start)?;
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

    /// Ends a compaction that is not to be retried.
    pub(super) fn end(&mut self, vb: VbId) {
        self.stop_running(vb);
        if let Some(entry) = self.entries.get_mut(&vb) {
            entry.failures = 0;
            entry.not_before_ns = 0;
            self.remove_if_idle(vb);
        }
    }

    /// Ends a compaction without a result, and queues `request` again after a pause. Returns the pause in nanoseconds.
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
        // A client that has sent a request meanwhile may have removed the cause.
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

    /// Removes a vBucket from the queue, and stops its running compaction. Returns the tickets of the queued request,
    /// and whether there was anything to cancel.
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

    /// Cancels automatic compactions, as [`Self::cancel`] does. Returns their vBuckets.
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
                // The running compaction was requested by a client.
                Some(entry) if entry.running.is_some() && !entry.is_automatic_run => {
                    entry.request = None;
                    self.order.retain(|queued| queued != vb);
                }
                _ => drop(self.cancel(*vb)),
            }
        }
        vbuckets
    }

    /// Returns whether an automatic compaction is queued or running.
    pub(super) fn has_automatic(&self) -> bool {
        self.entries.values().any(|entry| {
            let is_queued = entry
                .request
                .as_ref()
                .is_some_and(|request| request.is_automatic);
            is_queued || (entry.running.is_some() && entry.is_automatic_run)
        })
    }

    /// Returns the time at which the first retry pause ends, in nanoseconds of the monotonic clock.
    pub(super) fn next_retry_ns(&self, now_ns: u64) -> Option<u64> {
        let entries = self.order.iter().map(|vb| &self.entries[vb]);
        let times = entries.map(|entry| entry.not_before_ns);
        times.filter(|time_ns| *time_ns > now_ns).min()
    }

    /// Returns all vBuckets of the queue, and whether each is being compacted.
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
