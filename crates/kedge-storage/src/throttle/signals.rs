//! The latencies that the throttle protects.

use std::ops::{Index, IndexMut};

/// A latency that clients notice, and that compactions and new copies may raise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThrottleSignal {
    /// Commits that clients wait for.
    Commits,
    /// Reads of evicted documents.
    Reads,
    /// Waits of front-end threads for a processor. On a node short of processor time all requests wait.
    Processor,
}

impl ThrottleSignal {
    pub(super) const ALL: [Self; 3] = [Self::Commits, Self::Reads, Self::Processor];

    /// Returns the name in statistics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Commits => "commits",
            Self::Reads => "reads",
            Self::Processor => "processor",
        }
    }
}

/// A value for each signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PerSignal<T>([T; 3]);

impl<T> Index<ThrottleSignal> for PerSignal<T> {
    type Output = T;

    fn index(&self, signal: ThrottleSignal) -> &T {
        &self.0[signal as usize]
    }
}

impl<T> IndexMut<ThrottleSignal> for PerSignal<T> {
    fn index_mut(&mut self, signal: ThrottleSignal) -> &mut T {
        &mut self.0[signal as usize]
    }
}

impl PerSignal<u64> {
    /// Returns the sum of all signals.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// Latencies of clients' requests in microseconds; `None` where there was no request, or no measurement is possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClientLatencies {
    /// The 90th percentile of the latency of reads of evicted documents.
    pub reads_us: Option<u64>,
    /// The mean time for which a front-end thread waited for a processor each time that it was to run.
    pub processor_us: Option<u64>,
}
