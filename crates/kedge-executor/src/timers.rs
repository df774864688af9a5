//! The deadlines of sleeping tasks.
//!
//! The slot of a task stores its deadline. The heap only stores the time at which to check the slot: at the deadline if
//! it is near, otherwise earlier, at a round time. So postponing a deadline takes one store, and slots with far
//! deadlines are checked together.
//!
//! Invariants:
//! * `visit_ns` of a slot is the least time at which the heap has an entry for it, or [`NEVER`].
//! * A task stores its deadline, then sleeps, then reads `visit_ns`. The timer clears `visit_ns`, then reads the state
//!   and the deadline. So at least one of them sees the other, and no deadline is missed.

use crate::queue::SlotIndex;
use crate::slab::{NEVER, Slab, TaskSlot};
use crate::sync::{AtomicU64, Mutex, Ordering};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Distance in ns below which a deadline is checked exactly when it is due.
const NEAR_NS: u64 = 1_000_000_000;
/// Number of stale heap entries above which the heap is compacted.
const SLACK: usize = 1_024;

#[derive(Debug)]
pub(crate) struct Timers {
    heap: Mutex<TimerHeap>,
    /// Time at which the timer thread wakes up by itself.
    wakes_ns: AtomicU64,
}

#[derive(Debug, Default)]
struct TimerHeap {
    entries: BinaryHeap<Reverse<(u64, SlotIndex)>>,
    kept: usize,
}

impl Default for Timers {
    fn default() -> Self {
        Self {
            heap: Mutex::default(),
            wakes_ns: AtomicU64::new(NEVER),
        }
    }
}

/// Returns the time at which to check a slot with this deadline.
fn visit_at(now_ns: u64, deadline_ns: u64) -> u64 {
    let left = deadline_ns.saturating_sub(now_ns);
    if left <= NEAR_NS {
        return deadline_ns;
    }
    // Half of the remaining time, rounded down to a multiple of a quarter or an eighth of it, which is still in the
    // future.
    let step = 1 << (left.ilog2() - 2);
    (now_ns + left / 2) & !(step - 1)
}

impl Timers {
    /// Ensures that the timer checks a sleeping task in time. Returns `true` if the timer thread must be woken for
    /// that.
    pub(crate) fn arm(&self, slab: &Slab, index: SlotIndex, slot: &TaskSlot, now_ns: u64) -> bool {
        let deadline_ns = slot.deadline_ns.load(Ordering::SeqCst);
        if deadline_ns == NEVER {
            return false;
        }
        // Any check up to the deadline suffices, because the check reads the deadline.
        if slot.visit_ns.load(Ordering::SeqCst) <= deadline_ns {
            return false;
        }
        let mut heap = self.heap.lock();
        if slot.visit_ns.load(Ordering::SeqCst) <= deadline_ns {
            return false;
        }
        let visit_ns = visit_at(now_ns, deadline_ns);
        slot.visit_ns.store(visit_ns, Ordering::SeqCst);
        heap.entries.push(Reverse((visit_ns, index)));
        if heap.entries.len() > 2 * heap.kept + SLACK {
            heap.clear_overtaken(slab);
        }
        visit_ns < self.wakes_ns.load(Ordering::SeqCst)
    }

    /// Removes the slots that are to be checked. Returns the time of the next check.
    pub(crate) fn take_due(&self, slab: &Slab, now_ns: u64, due: &mut Vec<SlotIndex>) -> u64 {
        let mut heap = self.heap.lock();
        while let Some(Reverse((visit_ns, index))) = heap.entries.peek().copied() {
            if visit_ns > now_ns {
                break;
            }
            heap.entries.pop();
            let slot = slab.slot(index);
            if slot.visit_ns.load(Ordering::SeqCst) == visit_ns {
                slot.visit_ns.store(NEVER, Ordering::SeqCst);
                due.push(index);
            }
        }
        let next_ns = heap.entries.peek().map_or(NEVER, |entry| entry.0.0);
        self.wakes_ns.store(next_ns, Ordering::SeqCst);
        next_ns
    }
}

impl TimerHeap {
    fn clear_overtaken(&mut self, slab: &Slab) {
        self.entries.retain(|Reverse((visit_ns, index))| {
            slab.slot(*index).visit_ns.load(Ordering::SeqCst) == *visit_ns
        });
        self.kept = self.entries.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn far_deadlines_are_checked_together_and_never_late() {
        assert_eq!(visit_at(5, 7), 7);
        assert_eq!(visit_at(7, 5), 5);
        assert_eq!(visit_at(3, 3 + NEAR_NS), 3 + NEAR_NS);
        for now_ns in (0..100 * S).step_by(987_654_321) {
            for left_ns in [2 * S, 10 * S, 30 * S, 3_600 * S] {
                let visit_ns = visit_at(now_ns, now_ns + left_ns);
                assert!(visit_ns > now_ns && visit_ns <= now_ns + left_ns / 2);
            }
        }
        let visits: std::collections::HashSet<u64> = (0..1_000)
            .map(|nth| visit_at(100 * S, 110 * S + nth * S / 100))
            .collect();
        assert!(visits.len() <= 4, "{visits:?}");
    }

    /// Checks a slot until its deadline has passed. Returns the number of checks.
    fn visits(timers: &Timers, slab: &Slab, index: SlotIndex, mut now_ns: u64) -> u64 {
        let slot = slab.slot(index);
        let mut count = 0;
        loop {
            let mut due = Vec::new();
            now_ns = timers.take_due(slab, now_ns, &mut due).max(now_ns);
            if due.is_empty() {
                continue;
            }
            assert_eq!(due, [index]);
            count += 1;
            if slot.deadline_ns.load(Ordering::SeqCst) <= now_ns {
                return count;
            }
            timers.arm(slab, index, slot, now_ns);
        }
    }

    #[test]
    fn postponed_deadline_adds_no_heap_entry() {
        let (timers, slab) = (Timers::default(), Slab::default());
        let index = slab.take().unwrap();
        let slot = slab.slot(index);
        let set = |now_ns, deadline_ns| {
            slot.deadline_ns.store(deadline_ns, Ordering::SeqCst);
            timers.arm(&slab, index, slot, now_ns)
        };
        assert!(set(0, 20 * S));
        for now in 1..5 {
            assert!(!set(now * S, (now + 10) * S));
        }
        assert_eq!(timers.heap.lock().entries.len(), 1);
        set(5 * S, 6 * S);
        assert_eq!(timers.heap.lock().entries.len(), 2);
        assert!(!set(5 * S, NEVER));
        set(5 * S, 6 * S);
        assert_eq!(visits(&timers, &slab, index, 5 * S), 1);
        set(6 * S, 3_606 * S);
        assert!(visits(&timers, &slab, index, 6 * S) < 20);
    }

    #[test]
    fn stale_heap_entries_are_compacted() {
        let (timers, slab) = (Timers::default(), Slab::default());
        let index = slab.take().unwrap();
        let slot = slab.slot(index);
        let mut now_ns = 1;
        for _ in 0..20_000 {
            for delay_ns in [3_600 * S, 1_000] {
                slot.deadline_ns.store(now_ns + delay_ns, Ordering::SeqCst);
                timers.arm(&slab, index, slot, now_ns);
            }
            now_ns += 1_000;
            timers.take_due(&slab, now_ns, &mut Vec::new());
        }
        assert!(timers.heap.lock().entries.len() <= SLACK + 2);
    }
}
