//! Streams of vBuckets' changes: out of the bucket, to its replicas and to other clients, and into it.
//!
//! A stream out begins behind a seqno that its receiver has. What the queue of changes lacks since then comes from the
//! vBucket's file first, as a snapshot (a backfill, see `backfill`); then the stream reads the queue with a cursor, as
//! changes come (`stream`). A cursor that keeps too much in memory is dropped (`memory`), and its stream goes back to the
//! file.
//!
//! Invariants:
//! * Between two seqnos that a stream gave out, nothing is missing but what newer versions in the same snapshot replaced.
//! * A stream is of one state, one branch and one history of its vBucket. When any of these changes it ends.
//! * Who reads a stream until it is idle is called once when there is more, without any lock.

mod backfill;
mod component;
mod connection;
mod figures;
mod memory;
mod news;
mod order;
mod receive;
mod stream;
mod streams;

pub use component::Dcp;
pub use connection::{OpenedStream, StreamConnection, StreamRefused};
pub use figures::{StreamFigures, StreamState};
pub use receive::{ApplyError, ReplicaSink, Taken};
pub use stream::VbStream;
pub use streams::Streams;

use kedge_bucket_core::Parker;
use kedge_sync::{
    RankedMutex,
    ranks::{DcpNews, DcpOpen},
};
use kedge_types::VbId;
use kedge_vbucket::StreamEvents;
use receive::Receiving;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use stream::Shared;

/// Who reads streams of a connection.
pub trait StreamNotify: Send + Sync {
    /// There is something to read in a stream of `vb` that was idle, or it has ended. Called once until it was read idle
    /// again, on any thread: it is to return at once.
    fn ready(&self, vb: VbId);
}

/// The streams of a dcp.
#[derive(Debug)]
pub(crate) struct StreamSignals {
    /// Those that are open, by vBucket.
    open: Box<[RankedMutex<DcpOpen, Vec<Arc<Shared>>>]>,
    /// What they are to be told.
    news: RankedMutex<DcpNews, Vec<(VbId, StreamEvents)>>,
    has_news: AtomicBool,
    receiving: Receiving,
    /// The task that bounds the memory of cursors, and says when there is room for what came.
    pub(crate) cursors: Parker,
}

impl StreamSignals {
    pub(crate) fn new(vbuckets: u16) -> Self {
        Self {
            open: (0..vbuckets).map(|_| RankedMutex::default()).collect(),
            news: RankedMutex::default(),
            has_news: AtomicBool::new(false),
            receiving: Receiving::default(),
            cursors: Parker::default(),
        }
    }
}
