//! Limits of time that connections have, and the timers of those that follow vBuckets.

use std::time::Duration;

use super::{CloseReason, FrontEnd};
use crate::session::SessionTurn;

/// Limits of time are looked at no more often than this.
const SWEEP_INTERVAL: Duration = Duration::from_millis(100);

impl FrontEnd {
    /// Makes sure that limits of time are looked at when the one at `at` may be met.
    pub(super) fn sweep_at(&mut self, at: Option<u64>, now_ns: u64) {
        let Some(at) = at else {
            return;
        };
        let at = at.max(now_ns + SWEEP_INTERVAL.as_nanos() as u64);
        if self.sweep_ns.is_none_or(|known| at < known) {
            self.sweep_ns = Some(at);
        }
    }

    /// Closes connections that met a limit of time, and finds out when the next one may.
    pub(super) fn sweep(&mut self, turn: &mut SessionTurn<'_>) {
        let shared = turn.shared;
        let now_ns = turn.last_ns;
        self.sweep_ns = None;
        let mut late = Vec::new();
        let mut due = Vec::new();
        let mut next = None;
        for (slot, connection) in self.connections.iter() {
            match connection.session.dcp.timer_ns() {
                Some(at) if at <= now_ns => due.push(slot),
                Some(at) => next = Some(next.map_or(at, |next: u64| next.min(at))),
                None => {}
            }
            match connection.deadline(&shared.limits) {
                Some((at, what)) if at <= now_ns => late.push((slot, what)),
                Some((at, _)) => next = Some(next.map_or(at, |next: u64| next.min(at))),
                None => {}
            }
        }
        for (slot, what) in late {
            self.close(slot, &CloseReason::TimedOut(what));
        }
        self.sweep_at(next, now_ns);
        turn.now = shared.now();
        due.into_iter().for_each(|slot| self.serve(slot, turn));
    }
}
