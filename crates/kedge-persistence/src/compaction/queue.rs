//! Which vBuckets are to be compacted, and which are being.
//!
//! Invariants:
//! * A vBucket is compacted by one task at a time, and stands in the queue at most once. Who asks for one that is queued
//!   joins it; who asks for one that is being compacted gets another compaction after that.
//! * Every ticket that came in goes out: to the compaction that [`Queue::next`] hands out, or from [`Queue::cancel`].

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
pub(super) struct CompactionWish {
    /// Tombstones of deletes before this Unix second, if that is later than the purge age says.
    pub(super) purge_before_secs: Option<u32>,
    /// Only those up to this seqno.
    pub(super) purge_before_seqno: Option<Seqno>,
    /// All tombstones.
    pub(super) drop_deletes: bool,
}

impl CompactionWish {
    /// What fulfils both.
    fn and(self, other: Self) -> Self {
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
pub(super) struct QueuedRequest {
    pub(super) wish: CompactionWish,
    pub(super) tickets: Vec<CompactionTicket>,
    /// Nobody did but the look at files, for their garbage: it may be put off.
    pub(super) by_itself: bool,
}

impl QueuedRequest {
    fn join(&mut self, mut other: Self) {
        self.by_itself &= other.by_itself;
        self.wish = self.wish.and(other.wish);
        self.tickets.append(&mut other.tickets);
    }
}

/// Tells a compaction under way to end.
pub(super) type Cancel = Arc<AtomicBool>;

/// A compaction that is to begin.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) vb: VbId,
    pub(super) asked: QueuedRequest,
    pub(super) cancel: Cancel,
}

#[derive(Debug, Default)]
struct Entry {
    /// It is in the queue.
    asked: Option<QueuedRequest>,
    not_before_ns: u64,
    failures: u32,
    running: Option<Cancel>,
    /// What runs was asked for by nobody.
    runs_by_itself: bool,
}

/// See the head of this file.
#[derive(Debug, Default)]
pub(super) struct Queue {
    entries: BTreeMap<VbId, Entry>,
    /// Those that are asked for, in the order in which that was.
    order: VecDeque<VbId>,
    running: usize,
}

impl Queue {
    /// A vBucket is to be compacted. One who waits for it need not wait for a pause that failures have brought about.
    pub(super) fn ask(&mut self, vb: VbId, asked: QueuedRequest) {
        let entry = self.entries.entry(vb).or_default();
        if !asked.tickets.is_empty() {
            entry.not_before_ns = 0;
        }
        match &mut entry.asked {
            Some(queued) => queued.join(asked),
            None => {
                entry.asked = Some(asked);
                self.order.push_back(vb);
            }
        }
    }

    /// The next that may begin, with `limit` at once at most.
    pub(super) fn next(&mut self, now_ns: u64, limit: usize) -> Option<Job> {
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
        let asked = entry.asked.take()?;
        let cancel = Cancel::default();
        entry.running = Some(Arc::clone(&cancel));
        entry.runs_by_itself = asked.by_itself;
        self.running += 1;
        Some(Job { vb, asked, cancel })
    }

    /// A compaction has ended, and need not be repeated.
    pub(super) fn end(&mut self, vb: VbId) {
        self.leave(vb);
        if let Some(entry) = self.entries.get_mut(&vb) {
            entry.failures = 0;
            entry.not_before_ns = 0;
            self.forget(vb);
        }
    }

    /// A compaction has ended without a result: it is to be repeated for `asked` after a pause. Says how long that is.
    pub(super) fn retry(
        &mut self,
        vb: VbId,
        asked: QueuedRequest,
        now_ns: u64,
        failed: bool,
    ) -> u64 {
        self.leave(vb);
        let entry = self.entries.entry(vb).or_default();
        let doublings = entry.failures.min(20);
        let pause_ns = (RETRY_NS << doublings).min(RETRY_NS_MAX);
        if failed {
            entry.failures += 1;
        }
        let is_waited_for = |asked: &QueuedRequest| !asked.tickets.is_empty();
        // Who asked meanwhile may know that the reason is gone.
        if !entry.asked.as_ref().is_some_and(is_waited_for) {
            entry.not_before_ns = now_ns.saturating_add(pause_ns);
        }
        match &mut entry.asked {
            Some(queued) => queued.join(asked),
            None => {
                entry.asked = Some(asked);
                self.order.push_back(vb);
            }
        }
        pause_ns
    }

    fn leave(&mut self, vb: VbId) {
        let entry = self.entries.get_mut(&vb);
        if entry.is_some_and(|entry| entry.running.take().is_some()) {
            self.running -= 1;
        }
    }

    fn forget(&mut self, vb: VbId) {
        let is_idle = |entry: &Entry| entry.asked.is_none() && entry.running.is_none();
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
        let asked = entry.asked.take();
        if asked.is_some() {
            self.order.retain(|queued| *queued != vb);
        }
        self.forget(vb);
        (asked.map(|asked| asked.tickets).unwrap_or_default(), true)
    }

    /// [`Self::cancel`] of what nobody asked for. Gives the vBuckets.
    pub(super) fn cancel_by_itself(&mut self) -> Vec<VbId> {
        let is_by_itself = |entry: &Entry| match &entry.asked {
            Some(asked) => asked.by_itself,
            None => entry.running.is_some() && entry.runs_by_itself,
        };
        let entries = self.entries.iter().filter(|(_, entry)| is_by_itself(entry));
        let vbuckets: Vec<VbId> = entries.map(|(vb, _)| *vb).collect();
        for vb in &vbuckets {
            match self.entries.get_mut(vb) {
                // What runs is somebody's.
                Some(entry) if entry.running.is_some() && !entry.runs_by_itself => {
                    entry.asked = None;
                    self.order.retain(|queued| queued != vb);
                }
                _ => drop(self.cancel(*vb)),
            }
        }
        vbuckets
    }

    /// Whether there is anything in here that nobody asked for.
    pub(super) fn has_by_itself(&self) -> bool {
        self.entries.values().any(|entry| {
            let is_queued = entry.asked.as_ref().is_some_and(|asked| asked.by_itself);
            is_queued || (entry.running.is_some() && entry.runs_by_itself)
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
