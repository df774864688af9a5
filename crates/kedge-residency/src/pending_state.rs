//! Operations on a pending vBucket: they wait until it is active, and then go on, or has another state, and then fail.
//!
//! Invariant: operations wait for a vBucket only while it is pending. Its state is checked, and they are parked, under the
//! vBucket's lock; a change of its state takes them afterwards.

use crate::fetch::BackgroundFetcher;
use crate::parked::{ParkedOperations, PendingOp, Resumption};
use kedge_bucket_core::{BucketCore, BucketPhase};
use kedge_types::{Status, VbId};
use kedge_vbucket::VbState;
use std::sync::Arc;

/// The operations that wait for a vBucket to become active.
#[derive(Debug)]
pub struct PendingStateQueue {
    core: Arc<BucketCore>,
    fetcher: Arc<BackgroundFetcher>,
    parked: ParkedOperations<VbId>,
}

impl PendingStateQueue {
    pub(crate) fn new(core: &Arc<BucketCore>, fetcher: &Arc<BackgroundFetcher>) -> Self {
        Self {
            core: Arc::clone(core),
            fetcher: Arc::clone(fetcher),
            parked: ParkedOperations::default(),
        }
    }

    /// Returns whether a vBucket is about to become active.
    #[must_use]
    pub fn is_pending(&self, vb: VbId) -> bool {
        let vbucket = self.core.vbuckets.get(vb.index());
        vbucket.is_some_and(|vbucket| vbucket.lock().state() == VbState::Pending)
    }

    /// Returns the number of waiting operations.
    pub(crate) fn waiting(&self) -> usize {
        self.parked.waiting()
    }

    /// Parks an operation until its vBucket is active.
    ///
    /// # Errors
    /// `TemporaryFailure` when too many wait, the bucket ends, or the vBucket is not pending any more.
    pub(crate) fn park(&self, op: PendingOp) -> Result<(), Status> {
        self.parked.admit(&op, self.core.quota.limit())?;
        let vb = op.vb;
        let vbucket = self.core.vbuckets[vb.index()].lock();
        if vbucket.state() != VbState::Pending || self.core.phase() != BucketPhase::Open {
            self.parked.release(&op);
            return Err(Status::TemporaryFailure);
        }
        self.parked.push(0, vb, op).map(drop)
    }

    /// Resumes or fails the operations that waited for a vBucket, which may have another state.
    pub fn on_vbucket_state(&self, vb: VbId) {
        if self.parked.waiting() == 0 {
            return;
        }
        let vbucket = self.core.vbuckets[vb.index()].lock();
        let state = vbucket.state();
        if state == VbState::Pending {
            return;
        }
        let waiting = self.parked.lock(0).take_line(vb);
        drop(vbucket);
        let mut resumption = Resumption::default();
        for op in waiting {
            self.parked.release(&op);
            if state == VbState::Active {
                // The step runs in the task that reads documents.
                self.fetcher.park_or_fail(op, &mut resumption);
            } else {
                resumption.fail(&self.core, &op, Status::NotMyVbucket);
            }
        }
        resumption.hand_over(&self.core);
    }

    /// Fails all operations that wait, as the bucket ends.
    pub(crate) fn close(&self) {
        self.parked.close(&self.core, Vec::new());
    }
}
