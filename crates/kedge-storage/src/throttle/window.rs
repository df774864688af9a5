//! The latencies of one window.

use super::signals::{ClientLatencies, ThrottleSignal};

/// Duration of a window in ns, if enough requests occur in it.
const WINDOW_NS: u64 = 100_000_000;
/// Number of commits, and of reads, for which a window is extended.
const WINDOW_REQUESTS: u64 = 8;
/// Longest duration of a window, in ns.
const WINDOW_NS_MAX: u64 = 4 * WINDOW_NS;
/// Number of latencies that are kept of a window.
const SAMPLES: usize = 256;

/// The latencies of a window.
#[derive(Debug)]
pub(super) struct ThrottleWindow {
    start_ns: u64,
    /// The most recent latencies of commits, in no order.
    commits_us: Vec<u64>,
    /// Number of commits.
    commits: u64,
    /// Number of reads of evicted documents.
    pub(super) reads: u64,
    /// The latencies of clients' requests, known at the end of the window.
    pub(super) clients: ClientLatencies,
    /// `true` if the window is at the lowest rate.
    pub(super) is_lowest: bool,
    /// `true` if the window before it was at the lowest rate, too.
    pub(super) is_stable: bool,
}

impl ThrottleWindow {
    pub(super) fn new() -> Self {
        Self {
            start_ns: 0,
            commits_us: Vec::with_capacity(SAMPLES),
            commits: 0,
            reads: 0,
            clients: ClientLatencies::default(),
            is_lowest: true,
            is_stable: true,
        }
    }

    pub(super) fn add_commit(&mut self, latency_us: u64) {
        if self.commits_us.len() < SAMPLES {
            self.commits_us.push(latency_us);
        } else {
            self.commits_us[(self.commits % SAMPLES as u64) as usize] = latency_us;
        }
        self.commits += 1;
    }

    pub(super) fn is_over(&self, now_ns: u64) -> bool {
        let age_ns = now_ns.saturating_sub(self.start_ns);
        let has_enough = |requests| requests == 0 || requests >= WINDOW_REQUESTS;
        let has_enough = has_enough(self.commits) && has_enough(self.reads);
        age_ns >= WINDOW_NS_MAX || (age_ns >= WINDOW_NS && has_enough)
    }

    /// Returns the latency of the signal, of commits the 90th percentile, if there is one.
    pub(super) fn latency_us(&mut self, signal: ThrottleSignal) -> Option<u64> {
        match signal {
            ThrottleSignal::Commits => {
                let last = self.commits_us.len().checked_sub(1)?;
                let (_, latency_us, _) = self.commits_us.select_nth_unstable(last * 9 / 10);
                Some(*latency_us)
            }
            ThrottleSignal::Reads => self.clients.reads_us,
            ThrottleSignal::Processor => self.clients.processor_us,
        }
    }

    pub(super) fn restart(&mut self, now_ns: u64, is_lowest: bool) {
        self.start_ns = now_ns;
        self.commits_us.clear();
        self.commits = 0;
        self.reads = 0;
        self.clients = ClientLatencies::default();
        self.is_stable = is_lowest && self.is_lowest;
        self.is_lowest = is_lowest;
    }
}
