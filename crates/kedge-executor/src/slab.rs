//! The slots of tasks. Slots are reused but never deallocated, so an id leads to its slot without a lock.
//!
//! Invariant: a bit of [`SlabPage::free`] is set exactly while the slot is free. The thread that clears the bit owns the
//! slot.

use crate::queue::SlotIndex;
use crate::state::AtomicState;
use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering};
use crate::task::Runnable;
use std::borrow::Cow;
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;

/// Number of slots of a page. Models have few, because the checker explores the orders of all accesses.
const PAGE: usize = if cfg!(kedge_model) { 4 } else { 64 };
/// Number of pages of segment 0. Each further segment has twice as many as the one before.
const FIRST_PAGES: usize = if cfg!(kedge_model) { 1 } else { 8 };
const SEGMENTS: usize = 12;
/// Largest number of concurrent tasks: 2,096,640.
pub const MAX_TASKS: usize = PAGE * FIRST_PAGES * ((1 << SEGMENTS) - 1);

/// The time "never", later than all others.
pub(crate) const NEVER: u64 = u64::MAX;

/// The slot of a task, on cache lines of its own, because different threads use neighbouring slots.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct TaskSlot {
    pub(crate) state: AtomicState,
    /// Deadline of a sleeping task, in ns.
    pub(crate) deadline_ns: AtomicU64,
    /// Time of the timer's next check, in ns, or [`NEVER`].
    pub(crate) visit_ns: AtomicU64,
    /// Time at which the task was queued, in ns.
    pub(crate) queued_ns: AtomicU64,
    /// Index of the kind in the lower half, and of the owner in the upper half.
    belongs: AtomicU32,
    pub(crate) runs: AtomicU32,
    /// Sum of run times, in ns.
    pub(crate) run_ns: AtomicU64,
    /// Start of the last run, in ns.
    pub(crate) begun_ns: AtomicU64,
    /// Duration of the last completed run, in ns.
    pub(crate) last_run_ns: AtomicU64,
    pub(crate) cell: Mutex<TaskCell>,
}

/// The body of a task, absent while it runs, and its description.
#[derive(Debug, Default)]
pub(crate) struct TaskCell {
    pub(crate) body: Option<Runnable>,
    pub(crate) description: Cow<'static, str>,
    pub(crate) wants_last_run: bool,
}

impl Default for TaskSlot {
    fn default() -> Self {
        Self {
            state: AtomicState::default(),
            deadline_ns: AtomicU64::new(NEVER),
            visit_ns: AtomicU64::new(NEVER),
            queued_ns: AtomicU64::new(0),
            belongs: AtomicU32::new(0),
            runs: AtomicU32::new(0),
            run_ns: AtomicU64::new(0),
            begun_ns: AtomicU64::new(0),
            last_run_ns: AtomicU64::new(0),
            cell: Mutex::default(),
        }
    }
}

impl TaskSlot {
    pub(crate) fn set_belongs(&self, kind: usize, owner: u16) {
        let word = kind as u32 | u32::from(owner) << 16;
        self.belongs.store(word, Ordering::Relaxed);
    }

    pub(crate) fn kind(&self) -> usize {
        (self.belongs.load(Ordering::Relaxed) & 0xffff) as usize
    }

    pub(crate) fn owner(&self) -> u16 {
        (self.belongs.load(Ordering::Relaxed) >> 16) as u16
    }
}

#[derive(Debug)]
struct SlabPage {
    free: AtomicU64,
    slots: [TaskSlot; PAGE],
}

impl SlabPage {
    fn new() -> Self {
        Self {
            free: AtomicU64::new(u64::MAX >> (64 - PAGE)),
            slots: std::array::from_fn(|_| TaskSlot::default()),
        }
    }

    /// Takes a free slot of the page.
    fn take(&self) -> Option<usize> {
        let mut free = self.free.load(Ordering::Relaxed);
        while free != 0 {
            let bit = free.trailing_zeros();
            let before = self.free.fetch_and(!(1 << bit), Ordering::SeqCst);
            if before & 1 << bit != 0 {
                return Some(bit as usize);
            }
            free = before & !(1 << bit);
        }
        None
    }
}

#[derive(Debug, Default)]
pub(crate) struct Slab {
    segments: [OnceLock<Box<[SlabPage]>>; SEGMENTS],
}

/// Distributes threads over different pages at first.
static NEXT_HINT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The page in which this thread last found a free slot.
    static HINT: Cell<usize> = Cell::new(NEXT_HINT.fetch_add(1, Ordering::Relaxed));
}

impl Slab {
    /// Takes a free slot. Returns `None` if there are [`MAX_TASKS`].
    pub(crate) fn take(&self) -> Option<SlotIndex> {
        let segment = |number: usize| {
            self.segments[number].get_or_init(|| {
                (0..FIRST_PAGES << number)
                    .map(|_| SlabPage::new())
                    .collect()
            })
        };
        segment(0);
        let hint = HINT.get();
        for number in 0..SEGMENTS {
            let pages = segment(number);
            for nth in 0..pages.len() {
                let at = (hint + nth) % pages.len();
                if let Some(place) = pages[at].take() {
                    HINT.set(at);
                    let page = FIRST_PAGES * ((1 << number) - 1) + at;
                    return Some((page * PAGE + place) as SlotIndex);
                }
            }
        }
        None
    }

    fn page(&self, index: SlotIndex) -> Option<&SlabPage> {
        let page = index as usize / PAGE;
        // Segment s begins at page FIRST_PAGES * (2^s - 1).
        let segment = (page / FIRST_PAGES + 1).ilog2() as usize;
        let first = FIRST_PAGES * ((1 << segment) - 1);
        self.segments.get(segment)?.get()?.get(page - first)
    }

    pub(crate) fn get(&self, index: SlotIndex) -> Option<&TaskSlot> {
        Some(&self.page(index)?.slots[index as usize % PAGE])
    }

    /// Returns a slot that is known to exist.
    pub(crate) fn slot(&self, index: SlotIndex) -> &TaskSlot {
        self.get(index).expect("an index comes from take")
    }

    /// Frees a slot whose state is free.
    pub(crate) fn give_back(&self, index: SlotIndex) {
        let page = self.page(index).expect("an index comes from take");
        page.free
            .fetch_or(1 << (index as usize % PAGE), Ordering::SeqCst);
    }

    /// Iterates over all slots that were ever used, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SlotIndex, &TaskSlot)> {
        let pages = self.segments.iter().filter_map(OnceLock::get).flatten();
        pages.enumerate().flat_map(|(page, contents)| {
            let slots = contents.slots.iter().enumerate();
            slots.map(move |(place, slot)| ((page * PAGE + place) as SlotIndex, slot))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn slots_are_distinct_and_found_by_index() {
        let slab = Slab::default();
        let taken: Vec<SlotIndex> = (0..5_000).map(|_| slab.take().unwrap()).collect();
        let different: HashSet<SlotIndex> = taken.iter().copied().collect();
        assert_eq!(different.len(), taken.len());
        for index in &taken {
            slab.slot(*index)
                .set_belongs(*index as usize % 200, (*index % 999) as u16);
        }
        for (index, slot) in slab.iter() {
            if different.contains(&index) {
                assert_eq!(slot.kind(), index as usize % 200);
                assert_eq!(u32::from(slot.owner()), index % 999);
            }
        }
        for index in &taken {
            slab.give_back(*index);
        }
        let again: HashSet<SlotIndex> = (0..5_000).map(|_| slab.take().unwrap()).collect();
        assert!(again.iter().all(|index| slab.get(*index).is_some()));
        assert!(slab.get(u32::MAX).is_none());
    }
}
