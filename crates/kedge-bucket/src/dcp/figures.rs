//! Statistics of DCP streams.

use super::stream::StreamShared;
use crate::dcp::component::Dcp;
use kedge_types::{Seqno, VbId};
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

/// Statistics of one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamFigures {
    /// The vBucket.
    pub vb: VbId,
    /// The name of the connection.
    pub connection: String,
    /// The state of the stream.
    pub state: StreamState,
    /// The last seqno that the stream has sent.
    pub last_sent: Seqno,
    /// The number of changes sent from files.
    pub backfilled: u64,
    /// The number of changes sent from memory.
    pub from_memory: u64,
    /// The number of bytes that were read from the file and not sent yet.
    pub buffered_bytes: u64,
    /// The number of seqnos between the last sent one and the high seqno of the vBucket.
    pub remaining: u64,
    /// The number of times that the stream's cursor was dropped.
    pub cursor_drops: u64,
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

    fn state(&self) -> StreamState {
        match self.state.load(Ordering::Relaxed) {
            0 => StreamState::Backfilling,
            1 => StreamState::InMemory,
            2 => StreamState::TakingOver,
            _ => StreamState::Dead,
        }
    }
}

impl Dcp {
    /// Returns the statistics of the outbound streams, ordered by vBucket.
    #[must_use]
    pub fn stream_figures(&self) -> Vec<StreamFigures> {
        let vbuckets = (0..self.core.vbucket_count()).map(VbId);
        vbuckets.flat_map(|vb| self.streams_of(vb)).collect()
    }

    fn streams_of(&self, vb: VbId) -> Vec<StreamFigures> {
        let streams = self.signals.open_streams(vb);
        if streams.is_empty() {
            return Vec::new();
        }
        let high = self.core.vbuckets[vb.index()].lock().high_seqno();
        let figures = |stream: &std::sync::Arc<StreamShared>| {
            let counters = &stream.counters;
            let last_sent = counters.last_sent.load(Ordering::Relaxed);
            StreamFigures {
                vb,
                connection: stream.connection.clone(),
                state: counters.state(),
                last_sent: Seqno(last_sent),
                backfilled: counters.backfilled.load(Ordering::Relaxed),
                from_memory: counters.from_memory.load(Ordering::Relaxed),
                buffered_bytes: stream.buffered_bytes() as u64,
                remaining: high.get().saturating_sub(last_sent),
                cursor_drops: counters.cursor_drops.load(Ordering::Relaxed),
            }
        };
        streams.iter().map(figures).collect()
    }
}
