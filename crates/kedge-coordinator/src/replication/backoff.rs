//! Exponential backoff of retries.

use std::time::Duration;

/// The first wait.
const FIRST: Duration = Duration::from_millis(50);
/// No wait is longer.
const LAST: Duration = Duration::from_secs(2);

/// Delays that double.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RetryBackoff {
    next: Duration,
}

impl Default for RetryBackoff {
    fn default() -> Self {
        Self { next: FIRST }
    }
}

impl RetryBackoff {
    /// Notes a failure at `now_ns`, and returns the time of the retry.
    pub(super) fn after(&mut self, now_ns: u64) -> u64 {
        let wait = self.next;
        self.next = (wait * 2).min(LAST);
        now_ns + wait.as_nanos() as u64
    }

    /// Notes a success.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_backoff_doubles_up_to_a_limit() {
        let mut backoff = RetryBackoff::default();
        let waits: Vec<u64> = (0..8).map(|_| backoff.after(1) / 1_000_000).collect();
        assert_eq!(waits, [50, 100, 200, 400, 800, 1_600, 2_000, 2_000]);
        backoff.reset();
        assert_eq!(backoff.after(0), 50_000_000);
    }
}
