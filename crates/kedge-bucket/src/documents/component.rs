//! The component that executes commands on documents, and the arguments that all writes have.

use kedge_bucket_core::BucketCore;
use kedge_persistence::WriteQueues;
use kedge_residency::Residency;
use kedge_types::{Cas, DocKey, Durability, VbId};
use kedge_vbucket::Cookie;
use std::sync::Arc;

/// The arguments that all writes have.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    /// The vBucket.
    pub vb: VbId,
    /// The document.
    pub key: &'a DocKey,
    /// The version it must have; 0 for any.
    pub cas: Cas,
    /// The version it gets; 0 for the next of the vBucket's clock.
    pub new_cas: Cas,
    /// The level of a SyncWrite.
    pub durability: Option<Durability>,
    /// Keep the expiry of the document that is there.
    pub preserve_ttl: bool,
    /// Who is told when the write was parked.
    pub cookie: Cookie,
}

/// The commands on documents.
pub struct Documents {
    pub(super) core: Arc<BucketCore>,
    pub(super) queues: Arc<WriteQueues>,
    pub(super) residency: Arc<Residency>,
}

impl Documents {
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
