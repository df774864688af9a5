//! Whether to try again what may not pay: after failures ever more rarely, after a success every time.

/// Chances passed over after the first failure.
const FIRST_PAUSE: u32 = 4;
/// Chances passed over at most.
const LAST_PAUSE: u32 = 64;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    /// Chances to be passed over after the next failure.
    pause: u32,
    /// Chances still to be passed over.
    left: u32,
}

impl Backoff {
    pub(crate) const fn new() -> Self {
        Self {
            pause: FIRST_PAUSE,
            left: 0,
        }
    }

    /// There is a chance to try. Returns whether to take it; then [`Self::note`] must follow.
    pub(crate) fn try_now(&mut self) -> bool {
        let now = self.left == 0;
        self.left = self.left.saturating_sub(1);
        now
    }

    /// How the attempt went.
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
    fn what_pays_is_tried_every_time_and_what_does_not_ever_more_rarely() {
        let mut backoff = Backoff::new();
        let attempts = |backoff: &mut Backoff, chances: u32, paid| {
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
