//! The state of the receiving side of a bucket's streams.

use kedge_sync::{RankedRwLock, ranks::ReplicaSinkRank};
use kedge_types::{Seqno, VbId};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The replication side of inbound streams.
pub trait ReplicaSink: Send + Sync {
    /// Acknowledges prepares of these vBuckets up to these seqnos, because they have been persisted. It drains `acks`. It is
    /// called on any thread and must not block.
    fn acknowledge(&self, acks: &mut Vec<(VbId, Seqno)>);

    /// Reports that memory is available for changes that were deferred.
    fn memory_available(&self);
}

/// The state of the receiving side of a bucket.
#[derive(Default)]
pub(super) struct ReceiverState {
    pub(super) sink: RankedRwLock<ReplicaSinkRank, Option<Arc<dyn ReplicaSink>>>,
    /// True if changes were deferred since the last notification.
    pub(super) waits_for_memory: AtomicBool,
    /// True if received changes need a flush that has not been requested yet.
    pub(super) flush_wanted: AtomicBool,
}

impl std::fmt::Debug for ReceiverState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReceiverState").finish_non_exhaustive()
    }
}
