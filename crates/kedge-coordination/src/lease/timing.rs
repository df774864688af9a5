//! The times of a lease, and the inequality between them.

use std::time::Duration;

use crate::{DriftBound, Moment};

/// The shortest lease time.
pub const LEASE_TIME_MIN: Duration = Duration::from_secs(1);
/// The longest lease time.
pub const LEASE_TIME_MAX: Duration = Duration::from_secs(120);
/// The tolerated pause, unless a quarter of the lease time is less.
pub const TOLERATED_PAUSE: Duration = Duration::from_millis(500);

/// The renewals per lease time, if none fails.
const RENEWALS: u32 = 4;

/// The times of a lease that satisfy the inequality of [the module](super).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTiming {
    time: Duration,
    pause: Duration,
    drift: DriftBound,
}

/// Times that no lease can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TimingError {
    /// The lease time is out of range.
    #[error("a lease time is 1 s to 120 s, not {0:?}")]
    OutOfRange(Duration),
    /// The holder could not renew before it has to stop.
    #[error(
        "a lease of {time:?} cannot be held: the renewal interval of {interval:?}, the request timeout of {request:?} and the \
         tolerated pause of {pause:?} together have to be less than {usable:?}; use a shorter pause or a longer lease time"
    )]
    TooTight {
        /// The lease time.
        time: Duration,
        /// The time between two renewals.
        interval: Duration,
        /// The timeout of a renewal.
        request: Duration,
        /// The tolerated pause.
        pause: Duration,
        /// The lease time as far as the drift of clocks lets the holder use it.
        usable: Duration,
    },
}

impl LeaseTiming {
    /// Checks the times of a lease. Without `pause` it is [`TOLERATED_PAUSE`], or a quarter of a shorter lease time.
    ///
    /// # Errors
    /// `OutOfRange`; `TooTight` if the inequality does not hold.
    pub fn new(time: Duration, pause: Option<Duration>) -> Result<Self, TimingError> {
        if !(LEASE_TIME_MIN..=LEASE_TIME_MAX).contains(&time) {
            return Err(TimingError::OutOfRange(time));
        }
        let timing = LeaseTiming {
            time,
            pause: pause.unwrap_or_else(|| TOLERATED_PAUSE.min(time / RENEWALS)),
            drift: DriftBound::default(),
        };
        let (interval, request) = (timing.renewal_interval(), timing.request_timeout());
        let usable = timing.drift.shortened(time);
        let needed = (interval + request).saturating_add(timing.pause);
        if needed < usable {
            return Ok(timing);
        }
        Err(TimingError::TooTight {
            time,
            interval,
            request,
            pause: timing.pause,
            usable,
        })
    }

    /// Returns the time of the lease.
    #[must_use]
    pub const fn time(self) -> Duration {
        self.time
    }

    /// Returns the tolerated pause.
    #[must_use]
    pub const fn pause(self) -> Duration {
        self.pause
    }

    /// Returns the bound on the drift of clocks.
    #[must_use]
    pub const fn drift(self) -> DriftBound {
        self.drift
    }

    /// Returns the time from a successful renewal to the next one.
    #[must_use]
    pub fn renewal_interval(self) -> Duration {
        self.time / RENEWALS
    }

    /// Returns the timeout of a renewal.
    #[must_use]
    pub fn request_timeout(self) -> Duration {
        self.time / RENEWALS
    }

    /// Returns the pause after a renewal that failed.
    #[must_use]
    pub fn retry_interval(self) -> Duration {
        self.time / (4 * RENEWALS)
    }

    /// Returns the moment until which a holder serves whose renewal was sent at `sent`.
    #[must_use]
    pub fn serves_until(self, sent: Moment) -> Moment {
        self.ends(sent).minus(self.pause)
    }

    /// Returns the moment at which nothing that was begun before may go on, if the renewal was sent at `sent`.
    #[must_use]
    pub fn ends(self, sent: Moment) -> Moment {
        sent.plus(self.drift.shortened(self.time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lease_time_has_a_pause_with_which_it_can_be_held() {
        for ms in (1_000..=120_000).step_by(250) {
            let time = Duration::from_millis(ms);
            let timing = LeaseTiming::new(time, None).expect("the inequality holds");
            assert!(timing.pause() <= TOLERATED_PAUSE);
            let sent = Moment::at_ns(1 << 40);
            // A renewal and its repetition end in time.
            let second = timing.renewal_interval() + timing.request_timeout();
            assert!(sent.plus(second) < timing.serves_until(sent), "{time:?}");
        }
    }

    #[test]
    fn times_that_violate_the_inequality_are_refused() {
        let ms = Duration::from_millis;
        for time in [ms(0), ms(999), ms(120_001)] {
            assert_eq!(
                LeaseTiming::new(time, None),
                Err(TimingError::OutOfRange(time))
            );
        }
        assert_eq!(
            LeaseTiming::new(ms(1_000), Some(ms(498))).map(|it| it.pause()),
            Ok(ms(498))
        );
        let error = LeaseTiming::new(ms(1_000), Some(ms(499))).expect_err("it is too long");
        assert!(
            error.to_string().contains("have to be less than 999ms"),
            "{error}"
        );
        LeaseTiming::new(ms(5_000), Some(Duration::MAX)).expect_err("it is too long");
    }
}
