//! The check that clients' observations of a key are linearizable.
//!
//! A key is a register. Each write took effect at one moment between its call and its reply, or never if its outcome is
//! unknown or it failed; each read saw the register at one moment of its own. A history is linearizable if such moments
//! can be ordered consistently. The search is that of J. Wing and C. Gong, "Testing and verifying concurrent objects"
//! (1993), with the memory of states by G. Lowe, "Testing for linearizability" (2017).

use std::collections::HashSet;

/// The value of a key: the number of the write, or nothing.
pub(crate) type RegisterValue = Option<u64>;

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OperationKind {
    /// A write, or a deletion.
    Wrote(RegisterValue),
    /// A read, with the value that it saw.
    Read(RegisterValue),
}

/// An operation on a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    pub(crate) did: OperationKind,
    /// The time of the call.
    pub(crate) called: u64,
    /// The time of the reply; `None` if the outcome is unknown: the operation may still take effect, or never will.
    pub(crate) answered: Option<u64>,
}

/// Returns whether the events are linearizable. The register is empty at first.
///
/// # Panics
/// If there are more than 128 events.
pub(crate) fn is_linearizable(events: &[Operation]) -> bool {
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
            // An operation that was called after the reply to another one comes after it.
            if event.called > first_answer {
                continue;
            }
            match event.did {
                OperationKind::Wrote(new) => open.push((done | 1 << at, new)),
                OperationKind::Read(saw) if saw == value => open.push((done | 1 << at, value)),
                OperationKind::Read(_) => {}
            }
        }
    }
    false
}

fn bits(events: &[Operation], wanted: impl Fn(&Operation) -> bool) -> u128 {
    let set = events.iter().enumerate().filter(|(_, event)| wanted(event));
    set.fold(0, |bits, (at, _)| bits | 1 << at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrote(value: u64, called: u64, answered: impl Into<Option<u64>>) -> Operation {
        Operation {
            did: OperationKind::Wrote(Some(value)),
            called,
            answered: answered.into(),
        }
    }

    fn read(saw: RegisterValue, called: u64, answered: u64) -> Operation {
        Operation {
            did: OperationKind::Read(saw),
            called,
            answered: Some(answered),
        }
    }

    #[test]
    fn reads_see_the_last_completed_write_or_a_concurrent_one() {
        assert!(is_linearizable(&[wrote(1, 1, 4), read(None, 2, 3)]));
        assert!(is_linearizable(&[wrote(1, 1, 4), read(Some(1), 2, 3)]));
        assert!(!is_linearizable(&[wrote(1, 1, 2), read(None, 3, 4)]));
        assert!(!is_linearizable(&[read(Some(1), 1, 2), wrote(1, 3, 4)]));
    }

    #[test]
    fn a_value_that_was_read_cannot_be_rolled_back() {
        let seen = [wrote(1, 1, 10), read(Some(1), 2, 3), read(None, 4, 5)];
        assert!(!is_linearizable(&seen));
    }

    #[test]
    fn unknown_outcome_may_be_either_but_not_both() {
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
    fn checker_finds_a_lost_write() {
        assert!(!is_linearizable(&[
            wrote(1, 1, 2),
            wrote(2, 3, 4),
            read(Some(1), 5, 6)
        ]));
    }
}
