//! Exponential backoff that counts opportunities instead of time. After a success every opportunity is taken.

/// Number of opportunities skipped after the first failure.
const FIRST_PAUSE: u32 = 4;
/// Largest number of opportunities skipped after a failure.
const LAST_PAUSE: u32 = 64;

#[derive(Clone, Copy, Debug)]
pub(crate) struct AttemptBackoff {
    /// Number of opportunities to skip after the next failure.
    pause: u32,
    /// Number of opportunities still to skip.
    left: u32,
}

impl AttemptBackoff {
    pub(crate) const fn new() -> Self {
        Self {
            pause: FIRST_PAUSE,
            left: 0,
        }
    }

    /// Returns `true` if this opportunity is to be taken. The caller then reports the result to [`Self::note`].
    pub(crate) fn try_now(&mut self) -> bool {
        let now = self.left == 0;
        self.left = self.left.saturating_sub(1);
        now
    }

    /// Records the result of an attempt.
    pub(crate) fn note(&mut self, paid: bool) {
        if paid {
            *self = Self::new();
        } else {
            self.left = self.pause;
            self.pause = (2 * self.pause).min(LAST_PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_become_rarer_after_failures_and_resume_after_a_success() {
        let mut backoff = AttemptBackoff::new();
        let attempts = |backoff: &mut AttemptBackoff, chances: u32, paid| {
            let mut count = 0;
            for _ in 0..chances {
                if backoff.try_now() {
                    backoff.note(paid);
                    count += 1;
                }
            }
            count
        };
        assert_eq!(attempts(&mut backoff, 100, true), 100);
        assert_eq!(attempts(&mut backoff, 1 + 4 + 1 + 8 + 1, false), 3);
        let rare = attempts(&mut backoff, 1_000_000, false);
        assert!((15_000..16_000).contains(&rare), "{rare}");
        attempts(&mut backoff, LAST_PAUSE + 1, true);
        assert_eq!(attempts(&mut backoff, 100, true), 100);
    }
}
