//! Places for tasks. A place is used again but never given back, so an id finds its task without a lock.
//!
//! Invariant: a bit of [`Page::free`] is set exactly while nobody has that place; who clears the bit has it.

use crate::job::Body;
use crate::queue::Index;
use crate::state::State;
use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering};
use std::borrow::Cow;
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;

/// Places of a page. Few in models, which try the orders of all looks at them.
const PAGE: usize = if cfg!(kedge_model) { 4 } else { 64 };
/// Pages of segment 0; every further segment has twice as many as the one before.
const FIRST_PAGES: usize = if cfg!(kedge_model) { 1 } else { 8 };
const SEGMENTS: usize = 12;
/// Tasks that there may be at a time: 2,096,640.
pub const MAX_TASKS: usize = PAGE * FIRST_PAGES * ((1 << SEGMENTS) - 1);

/// No time: later than all.
pub(crate) const NEVER: u64 = u64::MAX;

/// A place for a task. On cache lines of its own: neighbours are used by different threads.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Slot {
    pub(crate) state: State,
    /// When it is due, while it sleeps, in ns.
    pub(crate) deadline_ns: AtomicU64,
    /// When the timer will look at it, in ns; [`NEVER`] if it will not.
    pub(crate) visit_ns: AtomicU64,
    /// When it was queued, in ns.
    pub(crate) queued_ns: AtomicU64,
    /// Index of its kind, and of its owner in the upper half.
    belongs: AtomicU32,
    pub(crate) runs: AtomicU32,
    /// Sum of its run times, in ns.
    pub(crate) run_ns: AtomicU64,
    /// When its last run began, in ns.
    pub(crate) begun_ns: AtomicU64,
    /// How long the last run that ended took, in ns.
    pub(crate) last_run_ns: AtomicU64,
    pub(crate) cell: Mutex<TaskCell>,
}

/// What a task is made of, except while it runs.
#[derive(Debug, Default)]
pub(crate) struct TaskCell {
    pub(crate) body: Option<Body>,
    pub(crate) description: Cow<'static, str>,
    pub(crate) wants_last_run: bool,
}

impl Default for Slot {
    fn default() -> Self {
        Self {
            state: State::default(),
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

impl Slot {
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
struct Page {
    free: AtomicU64,
    slots: [Slot; PAGE],
}

impl Page {
    fn new() -> Self {
        Self {
            free: AtomicU64::new(u64::MAX >> (64 - PAGE)),
            slots: std::array::from_fn(|_| Slot::default()),
        }
    }

    /// Takes a free place.
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
    segments: [OnceLock<Box<[Page]>>; SEGMENTS],
}

/// Gives threads different pages to begin with.
static NEXT_HINT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The page in which this thread found a place last.
    static HINT: Cell<usize> = Cell::new(NEXT_HINT.fetch_add(1, Ordering::Relaxed));
}

impl Slab {
    /// Takes a free place. None when there are [`MAX_TASKS`].
    pub(crate) fn take(&self) -> Option<Index> {
        let segment = |number: usize| {
            self.segments[number]
                .get_or_init(|| (0..FIRST_PAGES << number).map(|_| Page::new()).collect())
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
                    return Some((page * PAGE + place) as Index);
                }
            }
        }
        None
    }

    fn page(&self, index: Index) -> Option<&Page> {
        let page = index as usize / PAGE;
        // Segment s begins at page FIRST_PAGES * (2^s - 1).
        let segment = (page / FIRST_PAGES + 1).ilog2() as usize;
        let first = FIRST_PAGES * ((1 << segment) - 1);
        self.segments.get(segment)?.get()?.get(page - first)
    }

    pub(crate) fn get(&self, index: Index) -> Option<&Slot> {
        Some(&self.page(index)?.slots[index as usize % PAGE])
    }

    /// A place that is known to be there.
    pub(crate) fn slot(&self, index: Index) -> &Slot {
        self.get(index).expect("an index comes from take")
    }

    /// Gives a place back, whose state is free.
    pub(crate) fn give_back(&self, index: Index) {
        let page = self.page(index).expect("an index comes from take");
        page.free
            .fetch_or(1 << (index as usize % PAGE), Ordering::SeqCst);
    }

    /// All places that were ever used, in no special order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Index, &Slot)> {
        let pages = self.segments.iter().filter_map(OnceLock::get).flatten();
        pages.enumerate().flat_map(|(page, contents)| {
            let slots = contents.slots.iter().enumerate();
            slots.map(move |(place, slot)| ((page * PAGE + place) as Index, slot))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn places_are_found_again_and_are_different() {
        let slab = Slab::default();
        let taken: Vec<Index> = (0..5_000).map(|_| slab.take().unwrap()).collect();
        let different: HashSet<Index> = taken.iter().copied().collect();
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
        let again: HashSet<Index> = (0..5_000).map(|_| slab.take().unwrap()).collect();
        assert!(again.iter().all(|index| slab.get(*index).is_some()));
        assert!(slab.get(u32::MAX).is_none());
    }
}
