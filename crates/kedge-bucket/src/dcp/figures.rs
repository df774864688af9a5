//! Statistics of DCP streams.

use super::counters::StreamState;
use super::stream::shared::StreamShared;
use crate::dcp::component::Dcp;
use kedge_types::{Seqno, VbId};
use std::sync::atomic::Ordering;

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
