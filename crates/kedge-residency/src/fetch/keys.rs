//! Operations that are answered from a vBucket's file: the next keys, a random key, and the file's document of a key.

use super::component::BackgroundFetcher;
use crate::parked::{Op, PendingOp, may_resume};
use kedge_bucket_core::{BucketPhase, RequiredRole};
use kedge_types::{CollectionId, DocKey, Now, Status, VbId};
use kedge_vbucket::{FileLookup, KeyFigures, VBucket, VbState};

/// Keys of one read of the file.
const KEYS_AT_ONCE: usize = 1_024;

/// An answer from the file.
pub(super) enum FileAnswer {
    Keys(Vec<Box<[u8]>>),
    /// The key of a document, which is to be read.
    Document(Box<DocKey>),
    Figures(KeyFigures),
}

impl BackgroundFetcher {
    /// Returns the first `count` keys in memory from `start` on, in order, without collection prefix. `None` if there are
    /// keys on disk only, unless those do not matter. The vBucket is locked for one shard of its hash table at a time.
    ///
    /// # Errors
    /// Those of a step, and `UnknownCollection`.
    pub fn keys_in_memory(
        &self,
        now: Now,
        vb: VbId,
        start: &DocKey,
        count: usize,
        ignores_disk: bool,
    ) -> Result<Option<Vec<Box<[u8]>>>, Status> {
        let mut keys = Vec::new();
        let mut shards = 0..1;
        while let Some(shard) = shards.next() {
            let found = self.core.step(now, vb, |vbucket| {
                vbucket.collections().check(start)?;
                shards.end = vbucket.table().shard_count();
                let is_all = ignores_disk || !Self::has_keys_on_disk(vbucket);
                Ok(is_all.then(|| vbucket.at(now).keys_from(shard, start, count)))
            })??;
            let Some(found) = found else {
                return Ok(None);
            };
            keys.extend(found);
            keys.sort_unstable();
            keys.truncate(count);
        }
        Ok(Some(keys))
    }

    /// Returns whether a vBucket has keys that are on disk only.
    #[must_use]
    pub fn has_keys_on_disk(vbucket: &VBucket) -> bool {
        !vbucket.documents().is_warm() || vbucket.documents().residency().on_disk_only > 0
    }

    /// Answers an operation from the file.
    pub(super) fn ask_the_file(&self, op: &PendingOp) -> Result<FileAnswer, Status> {
        match op.op {
            Op::Random { random } => self.random_key(op.vb, &op.key, random),
            Op::Keys { count } => self
                .merged_keys(op.vb, &op.key, count as usize)
                .map(FileAnswer::Keys),
            Op::ValidateKey => self.validate(op).map(FileAnswer::Figures),
            _ => Err(Status::Internal),
        }
    }

    /// Returns keys of live documents in the file, from `from` on, as they are stored; none if the file is of another
    /// history than the vBucket. Memory may know that some were deleted.
    fn keys_on_disk(&self, vb: VbId, from: &[u8], max: usize) -> Result<Vec<Vec<u8>>, Status> {
        let history = || self.core.vbuckets[vb.index()].lock().store().file_history();
        let before = history();
        let keys = self
            .core
            .storage()
            .and_then(|storage| Ok(storage.keys(vb, from, max)?));
        let keys = keys.map_err(|error| {
            self.on_read_failed(vb, &error.to_string());
            Status::Internal
        })?;
        let is_of_vbucket = before.is_some() && before == history();
        Ok(if is_of_vbucket { keys } else { Vec::new() })
    }

    /// Returns the key of any document of the collection of `first`, one of those behind it in the file.
    fn random_key(&self, vb: VbId, first: &DocKey, random: u64) -> Result<FileAnswer, Status> {
        let collection = first.collection();
        let prefix = first.as_bytes().len() - first.logical().len();
        let from = &first.as_bytes()[..prefix];
        let mut keys = self.keys_on_disk(vb, from, KEYS_AT_ONCE)?;
        keys.retain(|key| is_in(key, collection));
        let chosen = keys.get(random as usize % keys.len().max(1));
        let key = chosen.and_then(|key| DocKey::from_prefixed(key).ok());
        key.map(|key| FileAnswer::Document(Box::new(key)))
            .ok_or(Status::KeyNotFound)
    }

    /// Returns the first `count` keys from `start` on, those of the file and those of memory.
    fn merged_keys(
        &self,
        vb: VbId,
        start: &DocKey,
        count: usize,
    ) -> Result<Vec<Box<[u8]>>, Status> {
        let collection = start.collection();
        let prefix = start.as_bytes().len() - start.logical().len();
        let mut from = start.as_bytes().to_vec();
        let mut keys: Vec<Box<[u8]>> = Vec::new();
        loop {
            let page = self.keys_on_disk(vb, &from, KEYS_AT_ONCE)?;
            // Read after the file, as the lease of the node may have ended meanwhile.
            let now = self.core.setup.clock.now();
            let vbucket = self.core.vbuckets[vb.index()].lock();
            self.check_open(now, &vbucket)?;
            let ends = page.len() < KEYS_AT_ONCE
                || page.last().is_none_or(|last| !is_in(last, collection));
            // Memory is newer than the file.
            let is_live = |key: &[u8]| {
                let table = vbucket.table();
                let item = table.find(table.hash(key), key);
                item.is_none_or(|item| {
                    !item.is_deleted() && !item.expiry().has_passed(now.unix_secs())
                })
            };
            let live = page
                .iter()
                .filter(|key| is_in(key, collection) && is_live(key));
            keys.extend(live.map(|key| key[prefix..].into()));
            if ends || keys.len() >= count {
                drop(vbucket);
                keys.extend(
                    self.keys_in_memory(now, vb, start, count, true)?
                        .unwrap_or_default(),
                );
                break;
            }
            from = page.last().cloned().unwrap_or_default();
            from.push(0);
        }
        keys.sort_unstable();
        keys.dedup();
        keys.truncate(count);
        Ok(keys)
    }

    /// Compares the document of a key in the file to that in memory.
    fn validate(&self, op: &PendingOp) -> Result<KeyFigures, Status> {
        let now = self.core.setup.clock.now();
        let vbucket = self.core.vbuckets[op.vb.index()].lock();
        // Not while the file is another than memory says.
        may_resume(&self.core, now, &vbucket, &op.op)?;
        let (history, applied) = (vbucket.history_id(), vbucket.applied_seqno());
        let is_void = vbucket.store().is_file_void();
        drop(vbucket);
        let found = self.read_keys(op.vb, &[op.key.as_bytes()]).pop();
        // A flush has made the content of the file void.
        let item = found.ok_or(Status::Internal)??.filter(|_| !is_void);
        let now = self.core.setup.clock.now();
        let mut vbucket = self.core.vbuckets[op.vb.index()].lock();
        may_resume(&self.core, now, &vbucket, &op.op)?;
        let stored = FileLookup {
            history,
            applied,
            item: item.as_ref(),
        };
        vbucket.at(now).validate_key(&op.key, stored)
    }

    fn check_open(&self, now: Now, vbucket: &VBucket) -> Result<(), Status> {
        if self.core.phase() != BucketPhase::Open {
            return Err(Status::TemporaryFailure);
        }
        match vbucket.state() {
            VbState::Active => self.core.check_served(now, vbucket, RequiredRole::Active),
            _ => Err(Status::NotMyVbucket),
        }
    }
}

fn is_in(key: &[u8], collection: CollectionId) -> bool {
    kedge_types::decode_leb128(key).is_some_and(|(id, _)| id == collection.get())
}
