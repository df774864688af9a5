//! When sleepers are due.
//!
//! A task's deadline stands in its slot. Here it is noted only when to look at the slot again: at the deadline if that
//! is near, else earlier, at a round time. So a deadline that moves away costs one store, and far ones that are looked
//! at early are looked at together.
//!
//! Invariants:
//! * `visit_ns` of a slot is the least time at which the heap has an entry for it, or [`NEVER`].
//! * A sleeper stores its deadline, then falls asleep, then looks at `visit_ns`; the timer clears `visit_ns`, then
//!   looks at the state and the deadline. So one of them sees the other, and no deadline is missed.

use crate::queue::Index;
use crate::slab::{NEVER, Slab, Slot};
use crate::sync::{AtomicU64, Mutex, Ordering};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A deadline that is nearer is visited when it is due.
const NEAR_NS: u64 = 1_000_000_000;
/// The heap is cleared of entries that were overtaken when it has this many more than it kept the last time.
const SLACK: usize = 1_024;

#[derive(Debug)]
pub(crate) struct Timers {
    heap: Mutex<Heap>,
    /// When the timer's thread wakes up by itself.
    wakes_ns: AtomicU64,
}

#[derive(Debug, Default)]
struct Heap {
    entries: BinaryHeap<Reverse<(u64, Index)>>,
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

/// When to look at a slot whose deadline is `deadline_ns`.
fn visit_at(now_ns: u64, deadline_ns: u64) -> u64 {
    let left = deadline_ns.saturating_sub(now_ns);
    if left <= NEAR_NS {
        return deadline_ns;
    }
    // Half of the way, rounded down to a step of a quarter or an eighth of it: still in the future.
    let step = 1 << (left.ilog2() - 2);
    (now_ns + left / 2) & !(step - 1)
}

impl Timers {
    /// Takes care that the timer looks at a sleeper in time. Returns whether its thread must be woken for that.
    pub(crate) fn arm(&self, slab: &Slab, index: Index, slot: &Slot, now_ns: u64) -> bool {
        let deadline_ns = slot.deadline_ns.load(Ordering::SeqCst);
        if deadline_ns == NEVER {
            return false;
        }
        // Any visit up to the deadline does: what is due is read then.
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

    /// Takes out what is to be looked at. Returns when to come back.
    pub(crate) fn take_due(&self, slab: &Slab, now_ns: u64, due: &mut Vec<Index>) -> u64 {
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

impl Heap {
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
    fn far_deadlines_are_looked_at_early_together_and_never_late() {
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

    /// Visits a slot until its deadline is over; returns how often.
    fn visits(timers: &Timers, slab: &Slab, index: Index, mut now_ns: u64) -> u64 {
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
    fn a_deadline_that_moves_away_is_not_entered_again() {
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
    fn overtaken_entries_do_not_pile_up() {
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
