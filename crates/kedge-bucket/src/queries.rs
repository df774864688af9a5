//! Questions about vBuckets, and waiting for the disk.

use crate::bucket::Bucket;
use kedge_bucket_core::DiskWriters as _;
use kedge_bucket_core::Outcome;
use kedge_bucket_core::Read;
use kedge_bucket_core::{Ctx, Phase, Role};
use kedge_residency::{BackgroundFetcher, Op};
use kedge_types::{Cas, CollectionId, DocKey, Seqno, Status, VbId, VbUuid};
use kedge_vbucket::{
    CheckpointFigures, Cookie, DocOp, Document, Drift, DurabilityFigures, FailoverTable,
    HashFigures, KeyFigures, ObserveSeqno, ObserveState, Picked, VBucket, VbState,
};
use std::sync::atomic::Ordering;

/// No key of a collection is in front of it.
const FIRST_KEY: &[u8] = &[0];

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
    /// A live document of `collection`, chosen at random. `cookie` is told when it was parked, as the document must come
    /// from the disk.
    ///
    /// # Errors
    /// `KeyNotFound` when there is none, `TemporaryFailure` while loading.
    pub fn random_document<R>(
        &self,
        ctx: Ctx,
        collection: CollectionId,
        cookie: Cookie,
        read: impl FnOnce(Document<'_>) -> R,
    ) -> Result<Outcome<R>, Status> {
        if self.core.phase() != Phase::Open {
            return Err(Status::TemporaryFailure);
        }
        if self.core.manifest().collection(collection).is_none() {
            return Err(Status::UnknownCollection);
        }
        let random = self.core.next_random();
        let count = self.core.vbuckets.len();
        let start = (random >> 32) as usize % count;
        let mut read = Some(read);
        let mut on_disk = None;
        for index in (start..count).chain(0..start) {
            // Others have the vBucket between two shards of it.
            let mut shard = random as usize;
            for visited in 0.. {
                let mut vbucket = self.core.vbuckets[index].lock();
                let shards = vbucket.table().shard_count();
                let answers = vbucket.state() == VbState::Active && !vbucket.store().is_rewinding();
                if !answers || vbucket.documents().count() == 0 {
                    break;
                }
                if visited == shards {
                    if BackgroundFetcher::has_keys_on_disk(&vbucket) {
                        on_disk = on_disk.or(Some(vbucket.id()));
                    }
                    break;
                }
                shard = (shard + 1) % shards;
                let show = |document: Document<'_>| read.take().map(|read| read(document));
                match vbucket
                    .at(ctx.now)
                    .random_document(collection, shard, random, show)
                {
                    Some(Picked::Shown(Some(result))) => return Ok(Outcome::Done(result)),
                    Some(Picked::OnDisk(key)) => {
                        let key = DocKey::from_prefixed(&key).map_err(|_| Status::Internal)?;
                        let vb = vbucket.id();
                        drop(vbucket);
                        let wanted = Read {
                            vb,
                            key: &key,
                            cookie,
                        };
                        return self.residency.fetch(ctx, &wanted, DocOp::Get);
                    }
                    _ => {}
                }
            }
        }
        // What is in memory has none.
        let vb = on_disk.ok_or(Status::KeyNotFound)?;
        let key = DocKey::new(collection, FIRST_KEY).map_err(|_| Status::Internal)?;
        let wanted = Read {
            vb,
            key: &key,
            cookie,
        };
        self.residency.fetch(ctx, &wanted, Op::Random { random })
    }

    /// Gives the keys of a vBucket from `start` on to `each`, in order, without collection prefix, at most `count`.
    ///
    /// # Errors
    /// `NotMyVbucket`, `TemporaryFailure` while loading.
    pub fn keys_from(
        &self,
        ctx: Ctx,
        start: &Read<'_>,
        count: u32,
        mut each: impl FnMut(&[u8]),
    ) -> Result<Outcome<()>, Status> {
        match self.residency.fetcher().keys_in_memory(
            ctx.now,
            start.vb,
            start.key,
            count as usize,
            false,
        )? {
            Some(keys) => {
                keys.iter().for_each(|key| each(key));
                Ok(Outcome::Done(()))
            }
            None => self.residency.fetch(ctx, start, Op::Keys { count }),
        }
    }

    /// Whether a key's last change is on disk, and its CAS.
    ///
    /// # Errors
    /// `NotMyVbucket`, `TemporaryFailure` while loading.
    pub fn observe_key(
        &self,
        ctx: Ctx,
        wanted: &Read<'_>,
    ) -> Result<Outcome<(ObserveState, Cas)>, Status> {
        let outcome = self
            .core
            .step_as(ctx.now, wanted.vb, Role::Any, |vbucket| {
                vbucket.at(ctx.now).observe_key(wanted.key)
            })??;
        self.or_fetch(ctx, wanted, DocOp::Observe, outcome)
    }

    /// What statistics tell of a key: of a live document in memory or on disk. With `validate` the file is looked at in
    /// any case, and compared to memory.
    ///
    /// # Errors
    /// `KeyNotFound`, `UnknownCollection`; `NotMyVbucket`, `TemporaryFailure` while loading.
    pub fn key_figures(
        &self,
        ctx: Ctx,
        wanted: &Read<'_>,
        validate: bool,
    ) -> Result<Outcome<KeyFigures>, Status> {
        let outcome = self
            .core
            .step_as(ctx.now, wanted.vb, Role::Any, |vbucket| {
                vbucket.at(ctx.now).key_figures(wanted.key)
            })?;
        match outcome {
            Ok(_) | Err(Status::KeyNotFound) if validate => {
                self.residency.fetch(ctx, wanted, Op::ValidateKey)
            }
            outcome => self.or_fetch(ctx, wanted, DocOp::KeyFigures, outcome?),
        }
    }

    /// How far the branch `uuid` of a vBucket is.
    ///
    /// # Errors
    /// `KeyNotFound` for an unknown uuid; `NotMyVbucket`, `TemporaryFailure` while loading.
    pub fn observe_seqno(&self, ctx: Ctx, vb: VbId, uuid: VbUuid) -> Result<ObserveSeqno, Status> {
        self.core
            .step_as(ctx.now, vb, Role::Any, |vbucket| {
                vbucket.history().observe_seqno(uuid)
            })
            .flatten()
    }

    /// (uuid, seqno) of a vBucket's branches, newest first.
    ///
    /// # Errors
    /// `NotMyVbucket`, `TemporaryFailure` while loading.
    pub fn failover_log(&self, ctx: Ctx, vb: VbId) -> Result<Vec<(VbUuid, Seqno)>, Status> {
        self.core.step_as(ctx.now, vb, Role::Any, |vbucket| {
            vbucket.failover().entries().to_vec()
        })
    }

    /// The history of a vBucket.
    ///
    /// # Errors
    /// `NotMyVbucket`, `TemporaryFailure` while loading.
    pub fn failover_table(&self, ctx: Ctx, vb: VbId) -> Result<FailoverTable, Status> {
        self.core
            .step_as(ctx.now, vb, Role::Any, |vbucket| vbucket.failover().clone())
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
        let outcome = self.core.step_as(ctx.now, vb, Role::Any, |vbucket| {
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
        self.look(vb, |vbucket| {
            vbucket.changes().figures(vbucket.high_seqno())
        })
    }

    /// The hash table of a vBucket, `None` when there is none of this number. With `counted` each of its documents is
    /// looked at, with the vBucket locked.
    #[must_use]
    pub fn hash_figures(&self, vb: VbId, counted: bool) -> Option<HashFigures> {
        self.look(vb, |vbucket| vbucket.table().figures(counted))
    }

    /// The document or tombstone of a key, if memory has its value. Nothing is checked, and nothing counted.
    #[must_use]
    pub fn peek(&self, vb: VbId, key: &DocKey) -> Option<kedge_vbucket::Item> {
        self.look(vb, |vbucket| vbucket.store().peek(key)).flatten()
    }

    fn look<R>(&self, vb: VbId, look: impl FnOnce(&VBucket) -> R) -> Option<R> {
        let vbucket = self.core.vbuckets.get(vb.index())?.lock();
        (!vbucket.is_deleted()).then(|| look(&vbucket))
    }
}
