//! DCP streams of vBuckets: outbound, to replicas and other clients, and inbound, from the active of a replica.
//!
//! An outbound stream starts after the last seqno that its receiver has. If the checkpoints lack changes since then, a
//! backfill reads them from the vBucket's file as a snapshot (`backfill`). The stream then follows the checkpoints with a
//! cursor (`stream`). A cursor that keeps too much memory is dropped (`memory`), and its stream returns to a backfill.
//!
//! Invariants:
//! * Between two seqnos that a stream has sent, only versions are missing that newer versions in the same snapshot replaced.
//! * A stream belongs to one state, one branch and one history of its vBucket. It ends when any of these changes.
//! * The reader of an idle stream is notified once when there are new items. No lock is held during the notification.

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
pub use receive::{ApplyError, ReceiveOutcome, ReplicaSink};
pub use stream::VbStream;
pub use streams::ConnectionStreams;

use kedge_bucket_core::Parker;
use kedge_sync::{
    RankedMutex,
    ranks::{DcpNews, DcpOpen},
};
use kedge_types::VbId;
use kedge_vbucket::StreamEvents;
use receive::ReceiverState;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use stream::StreamShared;

/// The receiver of notifications about the streams of a connection.
pub trait StreamNotify: Send + Sync {
    /// Reports that a stream of `vb` that was idle has items to read, or has ended. It is called once until the stream is
    /// idle again, on any thread, and must not block.
    fn ready(&self, vb: VbId);
}

/// The open streams of a bucket, and their pending notifications.
#[derive(Debug)]
pub(crate) struct StreamSignals {
    /// The open outbound streams, by vBucket.
    open: Box<[RankedMutex<DcpOpen, Vec<Arc<StreamShared>>>]>,
    /// Notifications that have not been delivered yet.
    news: RankedMutex<DcpNews, Vec<(VbId, StreamEvents)>>,
    has_news: AtomicBool,
    receiver: ReceiverState,
    /// The parker of the task that bounds the memory of cursors and notifies receivers of available memory.
    pub(crate) cursors: Parker,
}

impl StreamSignals {
    pub(crate) fn new(vbuckets: u16) -> Self {
        Self {
            open: (0..vbuckets).map(|_| RankedMutex::default()).collect(),
            news: RankedMutex::default(),
            has_news: AtomicBool::new(false),
            receiver: ReceiverState::default(),
            cursors: Parker::default(),
        }
    }
}
