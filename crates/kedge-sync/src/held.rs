//! The locks that a thread holds.
//!
//! Invariants:
//! * The stack of a thread has an entry for each guard that the thread holds, and is read by that thread only.
//! * A lock is checked before the thread waits for it: a circle is a panic and not a deadlock.

#[cfg(debug_assertions)]
use std::cell::RefCell;
use std::marker::PhantomData;

use crate::Rank;

#[cfg(debug_assertions)]
thread_local! {
    static HELD: RefCell<Vec<(u8, &'static str)>> = const { RefCell::new(Vec::new()) };
}

/// Checks that a lock of this rank may be waited for now.
///
/// # Panics
/// In debug builds, if the thread holds a lock of the same rank or a higher one.
#[inline]
#[cfg_attr(debug_assertions, track_caller)]
pub(crate) fn check<R: Rank>() {
    #[cfg(debug_assertions)]
    {
        let held = HELD.try_with(|held| {
            let held = held.borrow();
            held.iter().rfind(|(order, _)| *order >= R::ORDER).copied()
        });
        // A guard that lives on while a panic is under way is no reason for another, which would end the process.
        if let Ok(Some((order, name))) = held
            && !std::thread::panicking()
        {
            panic!(
                "lock order: {} (rank {}) must not be taken while {name} (rank {order}) is held; see docs/reference/locks.md",
                R::NAME,
                R::ORDER
            );
        }
    }
}

/// The entry of a guard.
#[derive(Debug)]
pub(crate) struct Holding<R: Rank> {
    /// A guard stays on its thread.
    rank: PhantomData<*const R>,
}

impl<R: Rank> Holding<R> {
    /// Notes that the thread holds a lock of this rank from now on.
    #[inline]
    pub(crate) fn new() -> Self {
        #[cfg(debug_assertions)]
        let _ = HELD.try_with(|held| held.borrow_mut().push((R::ORDER, R::NAME)));
        Self { rank: PhantomData }
    }
}

#[cfg(debug_assertions)]
impl<R: Rank> Drop for Holding<R> {
    fn drop(&mut self) {
        // Guards are dropped in any order.
        let _ = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            if let Some(at) = held.iter().rposition(|it| *it == (R::ORDER, R::NAME)) {
                held.remove(at);
            }
        });
    }
}
