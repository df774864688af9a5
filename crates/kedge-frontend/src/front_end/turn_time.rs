//! The time of the parts of a turn: long ones are counted, and some of them logged.

use std::net::SocketAddr;

use crate::metrics::Metrics;

/// Longest part of a turn, nanoseconds. Longer ones are counted and logged.
const TURN_NS_MAX: u64 = 10_000_000;

/// A part of a turn: the service of one connection, one message, or work for all connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct TurnPart {
    /// The longest command of the connection, or the name of the work.
    pub(super) command: &'static str,
    pub(super) peer: Option<SocketAddr>,
}

impl TurnPart {
    /// Work for no connection alone.
    pub(super) const fn of_thread(command: &'static str) -> Self {
        Self {
            command,
            peer: None,
        }
    }

    /// Counts this part if it took too long for the other connections, and logs some of those.
    #[inline]
    pub(super) fn check(self, metrics: &Metrics, thread: u16, began_ns: u64, now_ns: u64) {
        let took_ns = now_ns.saturating_sub(began_ns);
        if took_ns > TURN_NS_MAX {
            self.took_too_long(metrics, thread, now_ns, took_ns);
        }
    }

    #[cold]
    fn took_too_long(self, metrics: &Metrics, thread: u16, now_ns: u64, took_ns: u64) {
        if metrics.long_turn(thread, now_ns, took_ns) {
            tracing::warn!(
                thread,
                took_ms = took_ns / 1_000_000,
                command = self.command,
                peer = self.peer.map(tracing::field::display),
                "a turn of a front-end thread took too long, and its other clients waited; \
                 kedge_front_end_long_turns_total counts them"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use super::*;

    const MS: u64 = 1_000_000;
    const SECOND: u64 = 1_000 * MS;

    /// Checks turns of thread 0 that began at the first number and ended at the second. Returns the log lines.
    fn checked(metrics: &Metrics, turns: &[(u64, u64)]) -> Vec<String> {
        let (written, log) = io::pipe().unwrap();
        let log = tracing_subscriber::fmt()
            .with_writer(Arc::new(log))
            .finish();
        tracing::subscriber::with_default(log, || {
            for &(began_ns, now_ns) in turns {
                let part = TurnPart {
                    command: "SUBDOC_MULTI_LOOKUP",
                    peer: Some(([127, 0, 0, 1], 4_711).into()),
                };
                part.check(metrics, 0, began_ns, now_ns);
            }
        });
        let lines = io::read_to_string(written).unwrap();
        lines.lines().map(str::to_owned).collect()
    }

    #[test]
    fn turns_of_more_than_10_ms_are_counted_and_logged() {
        let metrics = Metrics::new(1);
        let start = SECOND;
        let short = [(start, start), (start, start + 10 * MS), (start, 0)];
        assert_eq!(checked(&metrics, &short), [""; 0]);
        let of = |metrics: &Metrics| {
            let now = metrics.snapshot();
            (now.long_turns, now.longest_turn_us)
        };
        assert_eq!(of(&metrics), (0, 0));
        let lines = checked(&metrics, &[(start, start + 25 * MS)]);
        assert_eq!(of(&metrics), (1, 25_000));
        let [line] = &lines[..] else {
            panic!("{lines:?}");
        };
        for part in [
            "WARN",
            "took_ms=25",
            "command=\"SUBDOC_MULTI_LOOKUP\"",
            "peer=127.0.0.1:4711",
            "kedge_front_end_long_turns_total",
        ] {
            assert!(line.contains(part), "{part}: {line}");
        }
    }

    #[test]
    fn long_turns_are_logged_once_in_ten_seconds() {
        let metrics = Metrics::new(1);
        let turns: Vec<(u64, u64)> = (0..30)
            .map(|at| (at * SECOND + 1, at * SECOND + 12 * MS))
            .collect();
        assert_eq!(checked(&metrics, &turns).len(), 3);
        assert_eq!(metrics.snapshot().long_turns, 30);
    }
}
