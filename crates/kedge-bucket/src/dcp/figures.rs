//! What is known of a stream.

use super::stream::Shared;
use crate::dcp::component::Dcp;
use kedge_types::{Seqno, VbId};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// What a stream does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum StreamState {
    /// What it gives comes from the vBucket's file.
    Backfilling = 0,
    /// What it gives comes from memory.
    InMemory = 1,
    /// The receiver takes the vBucket over.
    TakingOver = 2,
    /// It has ended, and was not closed yet.
    Dead = 3,
}

impl StreamState {
    /// Its name in statistics.
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

/// Figures of one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamFigures {
    /// Its vBucket.
    pub vb: VbId,
    /// The connection that it belongs to.
    pub connection: String,
    /// What it does.
    pub state: StreamState,
    /// The last seqno that it gave out.
    pub last_sent: Seqno,
    /// Changes that it gave out from files.
    pub backfilled: u64,
    /// Changes that it gave out from memory.
    pub from_memory: u64,
    /// Bytes that were read from the file and not given out yet.
    pub buffered_bytes: u64,
    /// Seqnos that the vBucket has and the stream has not given out yet.
    pub remaining: u64,
    /// Times that its cursor was dropped.
    pub cursor_drops: u64,
}

/// Counted by whoever reads the stream.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) state: AtomicU8,
    pub(super) last_sent: AtomicU64,
    pub(super) backfilled: AtomicU64,
    pub(super) from_memory: AtomicU64,
    pub(super) cursor_drops: AtomicU64,
}

impl Counts {
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
    /// Figures of the streams out of the bucket, in the order of vBuckets.
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
        let figures = |stream: &std::sync::Arc<Shared>| {
            let counts = &stream.counts;
            let last_sent = counts.last_sent.load(Ordering::Relaxed);
            StreamFigures {
                vb,
                connection: stream.connection.clone(),
                state: counts.state(),
                last_sent: Seqno(last_sent),
                backfilled: counts.backfilled.load(Ordering::Relaxed),
                from_memory: counts.from_memory.load(Ordering::Relaxed),
                buffered_bytes: stream.buffered_bytes() as u64,
                remaining: high.get().saturating_sub(last_sent),
                cursor_drops: counts.cursor_drops.load(Ordering::Relaxed),
            }
        };
        streams.iter().map(figures).collect()
    }
}
