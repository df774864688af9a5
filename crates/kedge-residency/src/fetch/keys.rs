//! Questions that a vBucket's file has to be asked for its keys: which follow one, or any, or what it has of one.

use super::{Op, PendingOp};
use crate::residency::Residency;
use kedge_bucket_core::Phase;
use kedge_types::{CollectionId, DocKey, Now, Status, VbId};
use kedge_vbucket::{KeyFigures, Stored, VBucket, VbState};

/// Keys of one look at the file.
const KEYS_AT_ONCE: usize = 1_024;

/// An answer.
pub(super) enum Listed {
    Keys(Vec<Box<[u8]>>),
    /// The key of a document, which is to be read.
    Document(Box<DocKey>),
    Figures(KeyFigures),
}

impl Residency {
    /// The first `count` keys from `start` on that memory has, in order, without collection prefix. `None` if there are keys
    /// on disk only, unless those do not matter. Others have the vBucket between two shards of its hash table.
    ///
    /// # Errors
    /// Those of a step, and `UnknownCollection`.
    pub fn keys_in_memory(
        &self,
        now: Now,
        vb: VbId,
        start: &DocKey,
        count: usize,
        beside_the_disk: bool,
    ) -> Result<Option<Vec<Box<[u8]>>>, Status> {
        let mut keys = Vec::new();
        let mut shards = 0..1;
        while let Some(shard) = shards.next() {
            let found = self.core.step(now, vb, |vbucket| {
                vbucket.collections().check(start)?;
                shards.end = vbucket.table().shard_count();
                let is_all = beside_the_disk || !Self::has_keys_on_disk(vbucket);
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

    /// Whether a vBucket has keys that are on disk only.
    #[must_use]
    pub fn has_keys_on_disk(vbucket: &VBucket) -> bool {
        !vbucket.documents().is_warm() || vbucket.documents().residency().on_disk_only > 0
    }

    pub(super) fn ask_the_file(
        &self,
        vb: VbId,
        now: Now,
        pending: &PendingOp,
    ) -> Result<Listed, Status> {
        match pending.op {
            Op::Random { random } => self.random_key(vb, &pending.key, random),
            Op::Keys { count } => self
                .merged_keys(vb, now, &pending.key, count as usize)
                .map(Listed::Keys),
            Op::ValidateKey => self.validate(vb, now, pending).map(Listed::Figures),
            _ => Err(Status::Internal),
        }
    }

    /// Stored keys of documents that live in the file, from `from` on; none if the file is of another history than the
    /// vBucket. Memory may know that some were deleted.
    fn keys_on_disk(&self, vb: VbId, from: &[u8], max: usize) -> Result<Vec<Vec<u8>>, Status> {
        let history = || self.core.vbuckets[vb.index()].lock().store().file_history();
        let before = history();
        let keys = self
            .core
            .storage()
            .and_then(|storage| Ok(storage.keys(vb, from, max)?));
        let keys = keys.map_err(|error| {
            self.on_fetch_failed(vb, &error.to_string());
            Status::Internal
        })?;
        let is_of_vbucket = before.is_some() && before == history();
        Ok(if is_of_vbucket { keys } else { Vec::new() })
    }

    /// Any document of the collection of `first`, one of those behind it in the file.
    fn random_key(&self, vb: VbId, first: &DocKey, random: u64) -> Result<Listed, Status> {
        let collection = first.collection();
        let prefix = first.as_bytes().len() - first.logical().len();
        let from = &first.as_bytes()[..prefix];
        let mut keys = self.keys_on_disk(vb, from, KEYS_AT_ONCE)?;
        keys.retain(|key| is_in(key, collection));
        let chosen = keys.get(random as usize % keys.len().max(1));
        let key = chosen.and_then(|key| DocKey::from_prefixed(key).ok());
        key.map(|key| Listed::Document(Box::new(key)))
            .ok_or(Status::KeyNotFound)
    }

    /// The first `count` keys from `start` on, those of the file and those of memory.
    fn merged_keys(
        &self,
        vb: VbId,
        now: Now,
        start: &DocKey,
        count: usize,
    ) -> Result<Vec<Box<[u8]>>, Status> {
        let collection = start.collection();
        let prefix = start.as_bytes().len() - start.logical().len();
        let mut from = start.as_bytes().to_vec();
        let mut keys: Vec<Box<[u8]>> = Vec::new();
        loop {
            let page = self.keys_on_disk(vb, &from, KEYS_AT_ONCE)?;
            let vbucket = self.core.vbuckets[vb.index()].lock();
            self.check_open(&vbucket)?;
            let ends = page.len() < KEYS_AT_ONCE
                || page.last().is_none_or(|last| !is_in(last, collection));
            // What memory knows it knows better.
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

    /// Compares what the file has of a key to what memory has.
    fn validate(&self, vb: VbId, now: Now, pending: &PendingOp) -> Result<KeyFigures, Status> {
        let vbucket = self.core.vbuckets[vb.index()].lock();
        // Not while the file is another than memory says.
        self.may_go_on(&vbucket, &pending.op)?;
        let (history, applied) = (vbucket.history_id(), vbucket.applied_seqno());
        let is_void = vbucket.store().is_file_void();
        drop(vbucket);
        let found = self.read_keys(vb, &[pending.key.as_bytes()]).pop();
        // What a flush has made void is not there.
        let item = found.ok_or(Status::Internal)??.filter(|_| !is_void);
        let mut vbucket = self.core.vbuckets[vb.index()].lock();
        self.may_go_on(&vbucket, &pending.op)?;
        let stored = Stored {
            history,
            applied,
            item: item.as_ref(),
        };
        vbucket.at(now).validate_key(&pending.key, stored)
    }

    fn check_open(&self, vbucket: &VBucket) -> Result<(), Status> {
        if self.core.phase() != Phase::Open {
            return Err(Status::TemporaryFailure);
        }
        match vbucket.state() {
            VbState::Active => Ok(()),
            _ => Err(Status::NotMyVbucket),
        }
    }
}

fn is_in(key: &[u8], collection: CollectionId) -> bool {
    kedge_types::decode_leb128(key).is_some_and(|(id, _)| id == collection.get())
}
