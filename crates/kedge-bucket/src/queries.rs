//! Queries about vBuckets: seqnos, failover tables, states and statistics, and the wait for persistence.

use crate::bucket::Bucket;
use kedge_bucket_core::{Ctx, DiskWriters as _, Outcome, RequiredRole};
use kedge_types::{Cas, CollectionId, Seqno, Status, VbId, VbUuid};
use kedge_vbucket::{
    CheckpointFigures, Cookie, Drift, DurabilityFigures, FailoverTable, HashFigures, ObservedSeqno,
    VbState,
};
use std::sync::atomic::Ordering;

/// Statistics of one vBucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VbFigures {
    /// The number of the vBucket.
    pub vb: VbId,
    /// The state of the vBucket.
    pub state: VbState,
    /// The number of live documents.
    pub documents: usize,
    /// The number of tombstones.
    pub tombstones: usize,
    /// The memory of documents, hash table slots and checkpoints, in bytes.
    pub bytes: usize,
    /// The number of changes that have not been written to the log.
    pub queued: usize,
    /// The high seqno.
    pub high_seqno: Seqno,
    /// The last seqno that is visible to clients without SyncWrites.
    pub visible_seqno: Seqno,
    /// The persisted seqno.
    pub persisted_seqno: Seqno,
    /// The last seqno that has been applied to the vBucket's file.
    pub applied_seqno: Seqno,
    /// The number of changes that are in the log and not in the file.
    pub unapplied: usize,
    /// The purge seqno: the highest seqno of a purged tombstone.
    pub purge_seqno: Seqno,
    /// The id of the open checkpoint.
    pub checkpoint: u64,
    /// The highest CAS.
    pub max_cas: Cas,
    /// The drift of the clocks whose CAS values the vBucket accepted.
    pub drift: Drift,
    /// The number of documents that expired since the start.
    pub expired: u64,
    /// The failover table: pairs of UUID and start seqno, newest first.
    pub failover: Vec<(VbUuid, Seqno)>,
    /// Statistics of SyncWrites.
    pub durability: DurabilityFigures,
}

impl Bucket {
    /// Returns the seqnos of the branch `uuid` of a vBucket.
    ///
    /// # Errors
    /// `KeyNotFound` for an unknown UUID; `NotMyVbucket`; `TemporaryFailure` while loading.
    pub fn observe_seqno(&self, ctx: Ctx, vb: VbId, uuid: VbUuid) -> Result<ObservedSeqno, Status> {
        self.core
            .step_as(ctx.now, vb, RequiredRole::Any, |vbucket| {
                vbucket.history().observe_seqno(uuid)
            })
            .flatten()
    }

    /// Returns the failover table of a vBucket as pairs of UUID and start seqno, newest first.
    ///
    /// # Errors
    /// `NotMyVbucket`, `TemporaryFailure` while loading.
    pub fn failover_log(&self, ctx: Ctx, vb: VbId) -> Result<Vec<(VbUuid, Seqno)>, Status> {
        self.core
            .step_as(ctx.now, vb, RequiredRole::Followed, |vbucket| {
                vbucket.failover().entries().to_vec()
            })
    }

    /// Returns the failover table of a vBucket.
    ///
    /// # Errors
    /// `NotMyVbucket`, `TemporaryFailure` while loading.
    pub fn failover_table(&self, ctx: Ctx, vb: VbId) -> Result<FailoverTable, Status> {
        self.core
            .step_as(ctx.now, vb, RequiredRole::Followed, |vbucket| {
                vbucket.failover().clone()
            })
    }

    /// Waits until a seqno is persisted. The command is parked if it is not; the completion has `TemporaryFailure` after 30 s.
    ///
    /// # Errors
    /// `NotMyVbucket`, `TemporaryFailure` while loading.
    pub fn seqno_persistence(
        &self,
        ctx: Ctx,
        vb: VbId,
        seqno: Seqno,
        cookie: Cookie,
    ) -> Result<Outcome<()>, Status> {
        self.core.parked.fetch_add(1, Ordering::SeqCst);
        let outcome = self
            .core
            .step_as(ctx.now, vb, RequiredRole::Any, |vbucket| {
                vbucket.at(ctx.now).seqno_persistence(seqno, cookie)
            });
        if outcome == Ok(kedge_vbucket::StepOutcome::Parked) {
            self.signals.queues.on_waiting(vb);
            self.core.on_parked();
            return Ok(Outcome::Parked);
        }
        self.core.parked.fetch_sub(1, Ordering::Relaxed);
        outcome.map(|_| Outcome::Done(()))
    }

    /// Returns the high seqno of every vBucket in `state`, or in any state but dead if it is `None`. With `visible_only`,
    /// returns the seqnos that are visible to clients without SyncWrites. With `collection`, returns the high seqnos of that
    /// collection, in the vBuckets in which it is open.
    #[must_use]
    pub fn vbucket_seqnos(
        &self,
        state: Option<VbState>,
        visible_only: bool,
        collection: Option<CollectionId>,
    ) -> Vec<(VbId, Seqno)> {
        let mut seqnos = Vec::with_capacity(self.core.vbuckets.len());
        for vbucket in &self.core.vbuckets {
            let vbucket = vbucket.lock();
            let wanted = state.map_or(vbucket.state() != VbState::Dead, |state| {
                vbucket.state() == state
            });
            if wanted && !vbucket.is_deleted() {
                let seqno = if visible_only {
                    vbucket.history().visible_seqno()
                } else {
                    vbucket.high_seqno()
                };
                let of_collection = |id: CollectionId| {
                    let mut all = vbucket.collections().open().iter();
                    all.find(|open| open.id == id).map(|open| open.high_seqno)
                };
                match collection {
                    None => seqnos.push((vbucket.id(), seqno)),
                    Some(id) => {
                        let high = of_collection(id).map(|high| high.min(seqno));
                        seqnos.extend(high.map(|high| (vbucket.id(), high)));
                    }
                }
            }
        }
        seqnos
    }

    /// Returns the state of a vBucket.
    ///
    /// # Errors
    /// `NotMyVbucket` if the vBucket does not exist.
    pub fn vbucket_state(&self, vb: VbId) -> Result<VbState, Status> {
        let vbucket = self
            .core
            .vbuckets
            .get(vb.index())
            .ok_or(Status::NotMyVbucket)?;
        let vbucket = vbucket.lock();
        if vbucket.is_deleted() {
            return Err(Status::NotMyVbucket);
        }
        Ok(vbucket.state())
    }

    /// Returns the statistics of a vBucket; `None` if it does not exist.
    #[must_use]
    pub fn vbucket_figures(&self, vb: VbId) -> Option<VbFigures> {
        let vbucket = self.core.vbuckets.get(vb.index())?.lock();
        if vbucket.is_deleted() {
            return None;
        }
        Some(VbFigures {
            vb,
            state: vbucket.state(),
            documents: vbucket.documents().count(),
            tombstones: vbucket.table().tombstones(),
            bytes: vbucket.bytes(),
            queued: vbucket.changes().queued(),
            high_seqno: vbucket.high_seqno(),
            visible_seqno: vbucket.history().visible_seqno(),
            persisted_seqno: vbucket.persisted_seqno(),
            applied_seqno: vbucket.applied_seqno(),
            unapplied: vbucket.unapplied().items,
            purge_seqno: vbucket.history().purge_seqno(),
            checkpoint: vbucket.changes().checkpoint_id(),
            max_cas: vbucket.history().last_cas(),
            drift: vbucket.history().drift(),
            expired: vbucket.documents().expired(),
            failover: vbucket.failover().entries().to_vec(),
            durability: vbucket.durability_figures(),
        })
    }

    /// Returns the statistics of a vBucket's checkpoints; `None` if it does not exist.
    #[must_use]
    pub fn checkpoint_figures(&self, vb: VbId) -> Option<CheckpointFigures> {
        self.core.look(vb, |vbucket| {
            vbucket.changes().figures(vbucket.high_seqno())
        })
    }

    /// Returns the statistics of a vBucket's hash table; `None` if it does not exist. With `counted`, every document is
    /// visited while the vBucket is locked.
    #[must_use]
    pub fn hash_figures(&self, vb: VbId, counted: bool) -> Option<HashFigures> {
        self.core
            .look(vb, |vbucket| vbucket.table().figures(counted))
    }
}
