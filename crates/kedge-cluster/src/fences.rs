//! Fences: the nodes that a node does not follow, because they are about to be failed over.
//!
//! Invariant: a fence belongs to an attempt of a failover, and only the end of that attempt lifts it. The transaction of another
//! attempt may still be made, for instance when the coordination store has not answered, and its plan depends on the fence.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The random identifier of one attempt of a failover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FailoverAttempt(pub u64);

impl fmt::Display for FailoverAttempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The fences of a node, with their ends as moments of type `T`.
#[derive(Clone, Debug)]
pub struct Fences<T>(BTreeMap<(u16, FailoverAttempt), T>);

impl<T> Default for Fences<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Copy + Ord> Fences<T> {
    /// Fences a node for an attempt until a moment.
    pub fn add(&mut self, node: u16, attempt: FailoverAttempt, until: T) {
        self.0.insert((node, attempt), until);
    }

    /// Lifts the fences of an attempt that was given up.
    pub fn lift(&mut self, attempt: FailoverAttempt) {
        self.0.retain(|(_, of), _| *of != attempt);
    }

    /// Lifts all fences, because nobody follows the nodes any more.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the fenced nodes.
    pub fn nodes(&mut self, now: T) -> BTreeSet<u16> {
        self.0.retain(|_, until| *until > now);
        self.0.keys().map(|(node, _)| *node).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A failover was planned, and its transaction sent. Another attempt was given up then, and lifted all fences, so that a
    /// replica followed the old active again and rolled back before the store made the failover.
    #[test]
    fn attempt_that_is_given_up_lifts_no_fence_of_another_one() {
        let (first, second) = (FailoverAttempt(1), FailoverAttempt(2));
        let mut fences = Fences::default();
        fences.add(1, first, 10);
        fences.add(1, second, 12);
        fences.add(2, second, 12);
        fences.lift(second);
        assert_eq!(fences.nodes(9), BTreeSet::from([1]));
        fences.lift(second);
        assert_eq!(fences.nodes(9), BTreeSet::from([1]));
        fences.lift(first);
        assert!(fences.nodes(9).is_empty());
    }

    #[test]
    fn fence_ends_by_itself() {
        let mut fences = Fences::default();
        fences.add(1, FailoverAttempt(1), 10);
        fences.add(1, FailoverAttempt(1), 20);
        assert_eq!(fences.nodes(19), BTreeSet::from([1]));
        assert!(fences.nodes(20).is_empty());
        fences.add(2, FailoverAttempt(3), 30);
        fences.clear();
        assert!(fences.nodes(20).is_empty());
    }
}
