//! Queries about keys: a random document, keys in order, and the state of a key.

use super::component::DocumentCommands;
use super::reads::pick;
use kedge_bucket_core::{BucketPhase, Ctx, Outcome, Read, RequiredRole};
use kedge_residency::{BackgroundFetcher, Op, role_of};
use kedge_types::{Cas, CollectionId, DocKey, Status};
use kedge_vbucket::{
    Cookie, DocOp, DocumentRef, Executed, KeyFigures, ObserveState, RandomDocument, VbState,
};

/// The lowest key of a collection.
const FIRST_KEY: &[u8] = &[0];

impl DocumentCommands {
    /// Passes a random live document of `collection` to `read`. The command is parked under `cookie` if the document must be
    /// fetched from disk.
    ///
    /// # Errors
    /// `KeyNotFound` if the collection is empty; `UnknownCollection`; `TemporaryFailure` while loading.
    pub fn random_document<R>(
        &self,
        ctx: Ctx,
        collection: CollectionId,
        cookie: Cookie,
        read: impl FnOnce(DocumentRef<'_>) -> R,
    ) -> Result<Outcome<R>, Status> {
        if self.core.phase() != BucketPhase::Open {
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
            // The lock is released between two shards, so that other commands can run.
            let mut shard = random as usize;
            for visited in 0.. {
                let mut vbucket = self.core.vbuckets[index].lock();
                let shards = vbucket.table().shard_count();
                let answers = vbucket.state() == VbState::Active && !vbucket.store().is_rewinding();
                // A node serves all of its active vBuckets, or none.
                self.core
                    .check_served(ctx.now, &vbucket, RequiredRole::Active)?;
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
                let show = |document: DocumentRef<'_>| read.take().map(|read| read(document));
                match vbucket
                    .at(ctx.now)
                    .random_document(collection, shard, random, show)
                {
                    Some(RandomDocument::Shown(Some(result))) => return Ok(Outcome::Done(result)),
                    Some(RandomDocument::OnDisk(key)) => {
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
        // There is no such document in memory.
        let vb = on_disk.ok_or(Status::KeyNotFound)?;
        let key = DocKey::new(collection, FIRST_KEY).map_err(|_| Status::Internal)?;
        let wanted = Read {
            vb,
            key: &key,
            cookie,
        };
        self.residency.fetch(ctx, &wanted, Op::Random { random })
    }

    /// Passes up to `count` keys of a vBucket to `each`, in order from `start` on, without the collection prefix.
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

    /// Returns whether the last change of a key is persisted, and its CAS.
    ///
    /// # Errors
    /// `NotMyVbucket`, `TemporaryFailure` while loading.
    pub fn observe_key(
        &self,
        ctx: Ctx,
        wanted: &Read<'_>,
    ) -> Result<Outcome<(ObserveState, Cas)>, Status> {
        let outcome = self.run(ctx, wanted, &DocOp::Observe, None, |_| ())?;
        pick(outcome, Executed::into_observed)
    }

    /// Returns the statistics of a live document. With `validate`, the file is read in any case and compared to memory.
    ///
    /// # Errors
    /// `KeyNotFound`, `UnknownCollection`; `NotMyVbucket`, `TemporaryFailure` while loading.
    pub fn key_figures(
        &self,
        ctx: Ctx,
        wanted: &Read<'_>,
        validate: bool,
    ) -> Result<Outcome<KeyFigures>, Status> {
        if !validate {
            let outcome = self.run(ctx, wanted, &DocOp::KeyFigures, None, |_| ())?;
            return pick(outcome, Executed::into_key);
        }
        let role = role_of(&DocOp::KeyFigures);
        let in_memory = self.core.step_as(ctx.now, wanted.vb, role, |vbucket| {
            vbucket.at(ctx.now).key_figures(wanted.key)
        })?;
        match in_memory {
            Ok(_) | Err(Status::KeyNotFound) => self.residency.fetch(ctx, wanted, Op::ValidateKey),
            Err(status) => Err(status),
        }
    }
}
