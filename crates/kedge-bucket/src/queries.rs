//! Questions about vBuckets, and waiting for the disk.

use crate::bucket::Bucket;
use kedge_bucket_core::DiskWriters as _;
use kedge_bucket_core::Outcome;
use kedge_bucket_core::{Ctx, RequiredRole};
use kedge_types::{Cas, CollectionId, Seqno, Status, VbId, VbUuid};
use kedge_vbucket::{
    CheckpointFigures, Cookie, Drift, DurabilityFigures, FailoverTable, HashFigures, ObservedSeqno,
    VbState,
};
use std::sync::atomic::Ordering;

/// Figures of one vBucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VbFigures {
    /// Its number.
    pub vb: VbId,
    /// What it is to its node.
    pub state: VbState,
    /// Live documents.
    pub documents: usize,
    /// Tombstones.
    pub tombstones: usize,
    /// Bytes of documents, slots and checkpoints.
    pub bytes: usize,
    /// Changes on their way to the log.
    pub queued: usize,
    /// Last seqno given out.
    pub high_seqno: Seqno,
    /// Last seqno that clients without SyncWrites may hear of.
    pub visible_seqno: Seqno,
    /// Everything up to this is on disk.
    pub persisted_seqno: Seqno,
    /// Everything up to this is in the vBucket's file.
    pub applied_seqno: Seqno,
    /// Changes that are in the log and not in the file.
    pub unapplied: usize,
    /// Highest seqno of a forgotten tombstone.
    pub purge_seqno: Seqno,
    /// Number of the open checkpoint.
    pub checkpoint: u64,
    /// Last CAS given out.
    pub max_cas: Cas,
    /// How far apart the clocks are whose CAS values it took.
    pub drift: Drift,
    /// Documents that expired since the start.
    pub expired: u64,
    /// (uuid, seqno), newest first.
    pub failover: Vec<(VbUuid, Seqno)>,
    /// Its SyncWrites.
    pub durability: DurabilityFigures,
}

impl Bucket {
    /// How far the branch `uuid` of a vBucket is.
    ///
    /// # Errors
    /// `KeyNotFound` for an unknown uuid; `NotMyVbucket`, `TemporaryFailure` while loading.
    pub fn observe_seqno(&self, ctx: Ctx, vb: VbId, uuid: VbUuid) -> Result<ObservedSeqno, Status> {
        self.core
            .step_as(ctx.now, vb, RequiredRole::Any, |vbucket| {
                vbucket.history().observe_seqno(uuid)
            })
            .flatten()
    }

    /// (uuid, seqno) of a vBucket's branches, newest first.
    ///
    /// # Errors
    /// `NotMyVbucket`, `TemporaryFailure` while loading.
    pub fn failover_log(&self, ctx: Ctx, vb: VbId) -> Result<Vec<(VbUuid, Seqno)>, Status> {
        self.core
            .step_as(ctx.now, vb, RequiredRole::Any, |vbucket| {
                vbucket.failover().entries().to_vec()
            })
    }

    /// The history of a vBucket.
    ///
    /// # Errors
    /// `NotMyVbucket`, `TemporaryFailure` while loading.
    pub fn failover_table(&self, ctx: Ctx, vb: VbId) -> Result<FailoverTable, Status> {
        self.core
            .step_as(ctx.now, vb, RequiredRole::Any, |vbucket| {
                vbucket.failover().clone()
            })
    }

    /// Waits until a seqno is on disk; a completion says so, or `TemporaryFailure` after 30 s.
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

    /// The last seqno of every vBucket in `state` (any but dead when `None`); with `visible_only` the last that
    /// clients without SyncWrites may hear of. With `collection`, the last seqno of that alone, in the vBuckets where it is
    /// open.
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

    /// The state of a vBucket.
    ///
    /// # Errors
    /// `NotMyVbucket` when there is none of this number.
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

    /// Figures of one vBucket, `None` when there is none of this number.
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

    /// The checkpoints of a vBucket, `None` when there is none of this number.
    #[must_use]
    pub fn checkpoint_figures(&self, vb: VbId) -> Option<CheckpointFigures> {
        self.core.look(vb, |vbucket| {
            vbucket.changes().figures(vbucket.high_seqno())
        })
    }

    /// The hash table of a vBucket, `None` when there is none of this number. With `counted` each of its documents is
    /// looked at, with the vBucket locked.
    #[must_use]
    pub fn hash_figures(&self, vb: VbId, counted: bool) -> Option<HashFigures> {
        self.core
            .look(vb, |vbucket| vbucket.table().figures(counted))
    }
}
