//! The component that executes commands on documents, and the common arguments of writes.

use kedge_bucket_core::BucketCore;
use kedge_persistence::WriteQueues;
use kedge_residency::Residency;
use kedge_types::{Cas, DocKey, Durability, VbId};
use kedge_vbucket::Cookie;
use std::sync::Arc;

/// The common arguments of writes.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    /// The vBucket.
    pub vb: VbId,
    /// The key of the document.
    pub key: &'a DocKey,
    /// The CAS that the existing document must have; 0 for any.
    pub cas: Cas,
    /// The CAS of the new version; 0 for the next value of the vBucket's clock.
    pub new_cas: Cas,
    /// The durability requirements of a SyncWrite; `None` for a normal write.
    pub durability: Option<Durability>,
    /// True if the new version keeps the expiry of the existing document.
    pub preserve_ttl: bool,
    /// The identifier of the completion if the write is parked.
    pub cookie: Cookie,
}

/// The executor of commands on documents.
pub struct DocumentCommands {
    pub(super) core: Arc<BucketCore>,
    pub(super) queues: Arc<WriteQueues>,
    pub(super) residency: Arc<Residency>,
}

impl DocumentCommands {
    pub(crate) fn new(
        core: &Arc<BucketCore>,
        queues: &Arc<WriteQueues>,
        residency: &Arc<Residency>,
    ) -> Self {
        Self {
            core: Arc::clone(core),
            queues: Arc::clone(queues),
            residency: Arc::clone(residency),
        }
    }
}
