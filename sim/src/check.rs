//! Whether what clients saw of a key can be explained.
//!
//! A key is a register. Each write took effect at one moment between its call and its answer, or never if its outcome is
//! not known or it failed; each read saw the register at one moment of its own. A history is linearizable when there is an
//! order of such moments. It is searched for as by J. Wing and C. Gong, "Testing and verifying concurrent objects"
//! (1993), with the memory of states by G. Lowe, "Testing for linearizability" (2017).

use std::collections::HashSet;

/// What a key holds: the number of the write, or nothing.
pub(crate) type Value = Option<u64>;

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Did {
    /// A write, or a deletion.
    Wrote(Value),
    /// A read, and what it saw.
    Read(Value),
}

/// An operation on a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) did: Did,
    /// When it was called.
    pub(crate) called: u64,
    /// When it was answered; `None` if it may still take effect, or never will: its outcome is not known.
    pub(crate) answered: Option<u64>,
}

/// Whether there is an explanation. The register holds nothing at first.
///
/// # Panics
/// If there are more than 128 events.
pub(crate) fn is_linearizable(events: &[Event]) -> bool {
    assert!(events.len() <= 128, "the search remembers sets of 128 bits");
    let must: u128 = bits(events, |event| event.answered.is_some());
    let mut seen = HashSet::new();
    let mut open = vec![(0_u128, None)];
    while let Some((done, value)) = open.pop() {
        if done & must == must {
            return true;
        }
        if !seen.insert((done, value)) {
            continue;
        }
        let left = |index: &usize| done & (1 << index) == 0;
        let answers = (0..events.len())
            .filter(left)
            .filter_map(|at| events[at].answered);
        let first_answer = answers.min().unwrap_or(u64::MAX);
        for at in (0..events.len()).filter(left) {
            let event = events[at];
            // What was called after something had been answered comes after it.
            if event.called > first_answer {
                continue;
            }
            match event.did {
                Did::Wrote(new) => open.push((done | 1 << at, new)),
                Did::Read(saw) if saw == value => open.push((done | 1 << at, value)),
                Did::Read(_) => {}
            }
        }
    }
    false
}

fn bits(events: &[Event], wanted: impl Fn(&Event) -> bool) -> u128 {
    let set = events.iter().enumerate().filter(|(_, event)| wanted(event));
    set.fold(0, |bits, (at, _)| bits | 1 << at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrote(value: u64, called: u64, answered: impl Into<Option<u64>>) -> Event {
        Event {
            did: Did::Wrote(Some(value)),
            called,
            answered: answered.into(),
        }
    }

    fn read(saw: Value, called: u64, answered: u64) -> Event {
        Event {
            did: Did::Read(saw),
            called,
            answered: Some(answered),
        }
    }

    #[test]
    fn reads_see_the_last_write_that_was_answered_or_one_under_way() {
        assert!(is_linearizable(&[wrote(1, 1, 4), read(None, 2, 3)]));
        assert!(is_linearizable(&[wrote(1, 1, 4), read(Some(1), 2, 3)]));
        assert!(!is_linearizable(&[wrote(1, 1, 2), read(None, 3, 4)]));
        assert!(!is_linearizable(&[read(Some(1), 1, 2), wrote(1, 3, 4)]));
    }

    #[test]
    fn what_was_seen_cannot_be_taken_back() {
        let seen = [wrote(1, 1, 10), read(Some(1), 2, 3), read(None, 4, 5)];
        assert!(!is_linearizable(&seen));
    }

    #[test]
    fn an_unknown_outcome_may_be_any_but_is_one() {
        let unknown = wrote(1, 1, None);
        assert!(is_linearizable(&[
            unknown,
            read(None, 2, 3),
            read(Some(1), 8, 9)
        ]));
        assert!(is_linearizable(&[unknown, read(None, 2, 3)]));
        assert!(!is_linearizable(&[
            unknown,
            read(Some(1), 2, 3),
            read(None, 4, 5)
        ]));
    }

    #[test]
    fn a_lost_write_is_found() {
        assert!(!is_linearizable(&[
            wrote(1, 1, 2),
            wrote(2, 3, 4),
            read(Some(1), 5, 6)
        ]));
    }
}
