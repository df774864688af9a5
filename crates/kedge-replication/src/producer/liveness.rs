//! Detection of a consumer that is gone.

use crate::disconnect::Disconnect;

const SECOND_NS: u64 = 1_000_000_000;
/// The default NOOP interval, in seconds.
const NOOP_INTERVAL_SECS: u64 = 180;

/// The times of the last messages, from a monotonic clock, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Liveness {
    pub(super) noop_enabled: bool,
    interval_ns: u64,
    idle_timeout_ns: u64,
    last_sent_ns: u64,
    last_received_ns: u64,
    /// The time of a NOOP that has no reply yet.
    asked_at_ns: Option<u64>,
}

impl Liveness {
    pub(super) fn new(idle_timeout_ns: u64, now_ns: u64) -> Self {
        Self {
            noop_enabled: false,
            interval_ns: NOOP_INTERVAL_SECS * SECOND_NS,
            idle_timeout_ns,
            last_sent_ns: now_ns,
            last_received_ns: now_ns,
            asked_at_ns: None,
        }
    }

    pub(super) fn set_interval_secs(&mut self, secs: u32) {
        self.interval_ns = u64::from(secs) * SECOND_NS;
    }

    pub(super) fn sent(&mut self, now_ns: u64) {
        self.last_sent_ns = now_ns;
    }

    pub(super) fn received(&mut self, now_ns: u64) {
        self.last_received_ns = now_ns;
    }

    pub(super) fn answered(&mut self) {
        self.asked_at_ns = None;
    }

    /// Returns the time of the next action, if nothing is sent or received until then.
    pub(super) fn deadline_ns(&self) -> Option<u64> {
        self.noop_enabled.then(|| match self.asked_at_ns {
            Some(asked) => asked.max(self.last_received_ns) + self.idle_timeout_ns,
            None => self.last_sent_ns + self.interval_ns,
        })
    }

    /// Returns whether a NOOP must be sent now.
    pub(super) fn on_time(&mut self, now_ns: u64) -> Result<bool, Disconnect> {
        if self.deadline_ns().is_none_or(|deadline| now_ns < deadline) {
            return Ok(false);
        }
        if self.asked_at_ns.is_some() {
            return Err(Disconnect::Silent);
        }
        self.asked_at_ns = Some(now_ns);
        Ok(true)
    }
}
