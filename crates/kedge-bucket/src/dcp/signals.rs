//! The open streams of a bucket, and the notifications that they are to get.

use super::receiver_state::ReceiverState;
use super::stream::shared::StreamShared;
use kedge_bucket_core::Parker;
use kedge_sync::{
    RankedMutex,
    ranks::{DcpNews, DcpOpen},
};
use kedge_types::VbId;
use kedge_vbucket::StreamEvents;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

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
    pub(super) open: Box<[RankedMutex<DcpOpen, Vec<Arc<StreamShared>>>]>,
    /// Notifications that have not been delivered yet.
    pub(super) news: RankedMutex<DcpNews, Vec<(VbId, StreamEvents)>>,
    pub(super) has_news: AtomicBool,
    pub(super) receiver: ReceiverState,
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
