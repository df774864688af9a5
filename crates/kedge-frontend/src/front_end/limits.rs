//! Time limits of connections, and the timers of DCP connections.

use std::time::Duration;

use super::turn_time::TurnPart;
use super::{CloseReason, FrontEnd};
use crate::session::SessionTurn;

/// Shortest time between two checks of the time limits.
const SWEEP_INTERVAL: Duration = Duration::from_millis(100);

impl FrontEnd {
    /// Schedules a check of the time limits for `at`, unless an earlier one is scheduled.
    pub(super) fn sweep_at(&mut self, at: Option<u64>, now_ns: u64) {
        let Some(at) = at else {
            return;
        };
        let at = at.max(now_ns + SWEEP_INTERVAL.as_nanos() as u64);
        if self.sweep_ns.is_none_or(|known| at < known) {
            self.sweep_ns = Some(at);
        }
    }

    /// Closes connections that exceeded a time limit, and schedules the next check.
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
        let part = TurnPart::of_thread("time limits of connections");
        self.check_time(turn, now_ns, part);
        turn.now = shared.now();
        due.into_iter().for_each(|slot| self.serve(slot, turn));
    }
}
