//! The counters of a stream, and its state.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// The state of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum StreamState {
    /// The stream reads the vBucket's file.
    Backfilling = 0,
    /// The stream reads the checkpoints in memory.
    InMemory = 1,
    /// The receiver is taking over the vBucket.
    TakingOver = 2,
    /// The stream has ended but has not been closed.
    Dead = 3,
}

impl StreamState {
    /// Returns the name of the state in statistics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Backfilling => "backfilling",
            Self::InMemory => "in-memory",
            Self::TakingOver => "takeover",
            Self::Dead => "dead",
        }
    }
}

/// Counters of a stream, which its reader updates.
#[derive(Debug, Default)]
pub(super) struct StreamCounters {
    pub(super) state: AtomicU8,
    pub(super) last_sent: AtomicU64,
    pub(super) backfilled: AtomicU64,
    pub(super) from_memory: AtomicU64,
    pub(super) cursor_drops: AtomicU64,
}

impl StreamCounters {
    pub(super) fn set_state(&self, state: StreamState) {
        self.state.store(state as u8, Ordering::Relaxed);
    }

    pub(super) fn state(&self) -> StreamState {
        match self.state.load(Ordering::Relaxed) {
            0 => StreamState::Backfilling,
            1 => StreamState::InMemory,
            2 => StreamState::TakingOver,
            _ => StreamState::Dead,
        }
    }
}
