//! The time limits of a connection.

use std::time::Duration;

use crate::limits::{FrontendLimits, SLOW_SENDER_PROGRESS_BYTES};

/// A frame that is received only in part.
#[derive(Clone, Copy, Debug)]
struct IncompleteFrame {
    /// The time of the last progress, nanoseconds of the monotonic clock.
    since_ns: u64,
    /// Bytes that were there then.
    bytes: usize,
}

/// The times that the limits of a connection are counted from, nanoseconds of the monotonic clock.
pub(super) struct ConnectionTimers {
    accepted_ns: u64,
    active_ns: u64,
    last_request_ns: u64,
    incomplete: Option<IncompleteFrame>,
    /// The time since which output waits and nothing was sent.
    stalled_ns: Option<u64>,
    /// True if something was sent since the last call of [`Self::update`].
    sent_some: bool,
}

/// The state of a connection, as far as time limits depend on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimedState {
    /// The client is to log in.
    pub(super) needs_login: bool,
    /// The TLS handshake is not complete.
    pub(super) is_handshaking: bool,
    /// The connection waits for the server, or for DCP streams, so it is not idle.
    pub(super) is_busy: bool,
}

impl ConnectionTimers {
    pub(super) fn new(now_ns: u64) -> Self {
        Self {
            accepted_ns: now_ns,
            active_ns: now_ns,
            last_request_ns: now_ns,
            incomplete: None,
            stalled_ns: None,
            sent_some: false,
        }
    }

    /// The connection is served.
    pub(super) fn on_served(&mut self, now_ns: u64) {
        self.active_ns = now_ns;
    }

    /// A frame was completed.
    pub(super) fn on_frame(&mut self) {
        self.incomplete = None;
        self.last_request_ns = self.active_ns;
    }

    /// The time of the last request, or of the beginning.
    pub(super) fn last_request_ns(&self) -> u64 {
        self.last_request_ns
    }

    /// Bytes were sent.
    pub(super) fn on_sent(&mut self) {
        self.sent_some = true;
    }

    /// Starts and stops timers as the state requires: `has_output` for output that waits, `incomplete` for the bytes of an
    /// incomplete frame.
    pub(super) fn update(&mut self, now_ns: u64, has_output: bool, incomplete: Option<usize>) {
        let sent_some = std::mem::take(&mut self.sent_some);
        if !has_output {
            self.stalled_ns = None;
        } else if sent_some || self.stalled_ns.is_none() {
            self.stalled_ns = Some(now_ns);
        }
        let Some(bytes) = incomplete else {
            self.incomplete = None;
            return;
        };
        let has_progress =
            |known: IncompleteFrame| bytes >= known.bytes + SLOW_SENDER_PROGRESS_BYTES;
        if self.incomplete.is_none_or(has_progress) {
            self.incomplete = Some(IncompleteFrame {
                since_ns: now_ns,
                bytes,
            });
        }
    }

    /// The nearest deadline, nanoseconds of the monotonic clock, and the reason to close the connection then.
    pub(super) fn deadline(
        &self,
        limits: &FrontendLimits,
        state: TimedState,
    ) -> Option<(u64, &'static str)> {
        let after =
            |since_ns: u64, limit: Duration| since_ns.saturating_add(limit.as_nanos() as u64);
        let mut nearest: Option<(u64, &'static str)> = None;
        let mut consider = |at: u64, reason| {
            if nearest.is_none_or(|(nearest, _)| at < nearest) {
                nearest = Some((at, reason));
            }
        };
        if state.needs_login || state.is_handshaking {
            let at = after(self.accepted_ns, limits.unauthenticated);
            let reason = match state.is_handshaking {
                true => "did not complete its TLS handshake",
                false => "did not log in",
            };
            consider(at, reason);
        }
        if let Some(frame) = self.incomplete {
            let at = after(frame.since_ns, limits.slow_sender);
            consider(at, "sends too slowly");
        }
        if let Some(since_ns) = self.stalled_ns {
            let at = after(since_ns, limits.send_stall);
            consider(at, "does not read its replies");
        }
        let is_idle = !state.is_busy && self.stalled_ns.is_none();
        if !limits.idle.is_zero() && is_idle {
            consider(after(self.active_ns, limits.idle), "is idle");
        }
        nearest
    }
}
