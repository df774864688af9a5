//! Positions in the history of a store, and the check that a store does not go backwards.
//!
//! Invariant: the position that a handle has seen only grows. An answer older than what was seen when its request began is
//! never given to a caller.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::CoordinationError;

/// The number of a change: each transaction that changes something has the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A store and a revision of it. A caller that keeps it over a restart notices that a store was restored meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorePosition {
    /// The identity of the store: etcd's cluster id.
    pub store: u64,
    /// The revision.
    pub revision: Revision,
}

impl fmt::Display for StorePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "revision {} of store {:x}", self.revision, self.store)
    }
}

/// The newest position that a handle has seen.
#[derive(Debug)]
pub(crate) struct Seen {
    state: Mutex<SeenState>,
}

#[derive(Clone, Copy, Debug, Default)]
struct SeenState {
    newest: Option<StorePosition>,
    /// The position of a store that went backwards: no later answer counts.
    backwards: Option<StorePosition>,
}

impl Seen {
    pub(crate) fn new(newest: Option<StorePosition>) -> Self {
        let state = SeenState {
            newest,
            backwards: None,
        };
        Seen {
            state: Mutex::new(state),
        }
    }

    /// Returns the newest position; it is read before a request, whose answer must not be older.
    ///
    /// # Errors
    /// `WentBackwards` if that was found before.
    pub(crate) fn newest(&self) -> Result<Option<StorePosition>, CoordinationError> {
        let state = *self.state();
        match (state.newest, state.backwards) {
            (Some(seen), Some(found)) => Err(CoordinationError::WentBackwards { seen, found }),
            (newest, _) => Ok(newest),
        }
    }

    /// Returns the newest position, whatever was found since.
    pub(crate) fn last(&self) -> Option<StorePosition> {
        self.state().newest
    }

    /// Notes the position of an answer to a request that began when `before` was the newest.
    ///
    /// # Errors
    /// `WentBackwards` if the answer is from another store, or older.
    pub(crate) fn observe(
        &self,
        before: Option<StorePosition>,
        found: StorePosition,
    ) -> Result<(), CoordinationError> {
        let mut state = self.state();
        if let Some(seen) = before
            && (found.store != seen.store || found.revision < seen.revision)
        {
            state.backwards = Some(found);
            return Err(CoordinationError::WentBackwards { seen, found });
        }
        state.note(found);
        Ok(())
    }

    /// Notes a position that cannot be older than what was seen before.
    pub(crate) fn note(&self, found: StorePosition) {
        self.state().note(found);
    }

    fn state(&self) -> MutexGuard<'_, SeenState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SeenState {
    fn note(&mut self, found: StorePosition) {
        let is_newer = |newest: StorePosition| found.revision > newest.revision;
        if self.newest.is_none_or(is_newer) {
            self.newest = Some(found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(store: u64, revision: u64) -> StorePosition {
        StorePosition {
            store,
            revision: Revision(revision),
        }
    }

    #[test]
    fn answers_may_arrive_in_another_order_than_they_were_made() {
        let seen = Seen::new(None);
        let before = seen.newest().expect("nothing went wrong");
        seen.observe(before, at(1, 7)).expect("the first answer");
        seen.observe(before, at(1, 6))
            .expect("its request began before the other answer");
        assert_eq!(seen.newest().expect("all is well"), Some(at(1, 7)));
    }

    #[test]
    fn an_older_or_another_store_is_refused_from_then_on() {
        for found in [at(1, 6), at(2, 9)] {
            let seen = Seen::new(Some(at(1, 7)));
            let before = seen.newest().expect("nothing went wrong");
            let error = seen
                .observe(before, found)
                .expect_err("it is older or another");
            assert!(matches!(error, CoordinationError::WentBackwards { .. }));
            seen.newest().expect_err("the handle is of no use any more");
        }
    }
}
