//! Writes of documents.
//!
//! Every write takes the same path: find the existing document; check prepare, lock and CAS; create the new item with
//! the next seqno and CAS; then either store it in the hash table and the checkpoint, or, for a SyncWrite, queue it in
//! the checkpoint and the durability monitor, so that it becomes visible with its commit.

use crate::checkpoint::Change;
use crate::completion::Cookie;
use crate::concat::ConcatChange;
use crate::hash_table::KeyHash;
use crate::item::{Deletion, Draft, Item, ItemMeta};
use crate::modify::Modify;
use crate::precompute::PrebuiltItem;
use crate::results::{DocumentRef, Mutated, StepOutcome};
use crate::step::Step;
use crate::value::{NewValue, ValueParts, kept_by_tombstone};
use kedge_types::{Cas, DocKey, Durability, Expiry, RevSeqno, Status};
use std::borrow::Cow;

/// The arguments that all writes share.
#[derive(Clone, Copy, Debug)]
pub struct StepWrite<'a> {
    /// The key of the document.
    pub key: &'a DocKey,
    /// The required CAS, or 0 for any.
    pub cas: Cas,
    /// The CAS of the new version, or 0 for the next value of the clock.
    pub new_cas: Cas,
    /// The durability requirements of a SyncWrite.
    pub durability: Option<Durability>,
    /// True to keep the expiry of the existing document.
    pub preserve_ttl: bool,
    /// The cookie of the completion, if the write is parked.
    pub cookie: Cookie,
    /// The item of the value, if it was created before the vBucket was locked.
    pub prebuilt: Option<&'a PrebuiltItem<'a>>,
}

impl<'a> StepWrite<'a> {
    /// Returns the arguments of a read.
    #[must_use]
    pub fn of_read(key: &'a DocKey, prebuilt: Option<&'a PrebuiltItem<'a>>) -> Self {
        Self {
            key,
            cas: Cas(0),
            new_cas: Cas(0),
            durability: None,
            preserve_ttl: false,
            cookie: Cookie(0),
            prebuilt,
        }
    }

    /// Returns the same write with a prebuilt item.
    #[must_use]
    pub fn with_prebuilt<'b>(&'b self, prebuilt: Option<&'b PrebuiltItem<'b>>) -> StepWrite<'b> {
        StepWrite { prebuilt, ..*self }
    }

    /// Takes the prebuilt item of a value.
    pub(crate) fn draft_of(&self, value: &[u8]) -> Option<Draft> {
        self.prebuilt.and_then(|prebuilt| prebuilt.take(value))
    }
}

/// The condition of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreMode {
    /// Stores unconditionally.
    Set,
    /// Stores if the document does not exist.
    Add,
    /// Stores if the document exists.
    Replace,
}

/// The end of a value for a concat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConcatMode {
    /// The end.
    Append,
    /// The front.
    Prepend,
}

/// An increment or decrement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterOp {
    /// True to subtract, false to add.
    pub negative: bool,
    /// The amount.
    pub delta: u64,
    /// The value of a new counter, or `None` to fail without an existing one.
    pub initial: Option<u64>,
    /// The expiry of a new counter.
    pub expiry: Expiry,
}

/// The part of the existing document that a write needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequiredPart {
    Nothing,
    Metadata,
    Value,
}

/// The key hash and the existing document of a write.
pub(crate) struct WriteTarget {
    pub(crate) hash: KeyHash,
    /// The live document.
    pub(crate) old: Option<Item>,
}

impl Step<'_> {
    /// Stores a value. Keeps the extended attributes of an existing document, but not those of a tombstone.
    ///
    /// # Errors
    /// `KeyExists`, `KeyNotFound`, `Locked`, `SyncWriteInProgress`; `TooBig` with the attributes.
    pub fn store(
        &mut self,
        write: &StepWrite<'_>,
        mode: StoreMode,
        value: &NewValue<'_>,
        flags: u32,
        expiry: Expiry,
    ) -> Result<StepOutcome<Mutated>, Status> {
        // An unconditional store does not depend on the existing document.
        let blind = mode == StoreMode::Set
            && write.cas.is_none()
            && !write.preserve_ttl
            && !self.store.documents.may_have_xattrs;
        let needs = if blind {
            RequiredPart::Nothing
        } else {
            RequiredPart::Metadata
        };
        let Some(found) = self.find_for_write(write, needs)? else {
            return Ok(StepOutcome::Fetch);
        };
        match (mode, &found.old) {
            (StoreMode::Add, Some(_)) => return Err(Status::KeyExists),
            (StoreMode::Replace, None) => return Err(Status::KeyNotFound),
            _ => {}
        }
        self.check_version(write, found.old.as_ref())?;
        let expiry = match &found.old {
            Some(old) if write.preserve_ttl => old.expiry(),
            _ => expiry,
        };
        let with_xattrs;
        let value = match &found.old {
            Some(old) if old.has_xattrs() && !old.is_resident() => return Ok(StepOutcome::Fetch),
            Some(old) if old.has_xattrs() => {
                with_xattrs = value.behind_xattrs_of(old)?;
                &with_xattrs
            }
            _ => value,
        };
        let meta = ItemMeta {
            flags,
            expiry,
            datatype: value.datatype,
            ..ItemMeta::default()
        };
        Ok(self.apply(write, &found, meta, &value.bytes))
    }

    /// Appends or prepends bytes to a value. Keeps flags, expiry and extended attributes.
    ///
    /// # Errors
    /// `NotStored` if the document does not exist; `TooBig`; `KeyExists`, `Locked`, `SyncWriteInProgress`.
    pub fn concat(
        &mut self,
        write: &StepWrite<'_>,
        mode: ConcatMode,
        bytes: &[u8],
    ) -> Result<StepOutcome<Mutated>, Status> {
        self.concat_with(write, &ConcatChange::new(mode, bytes))
    }

    /// Runs [`Step::concat`] with a [`ConcatChange`] that may have been precomputed.
    ///
    /// # Errors
    /// As [`Step::concat`].
    pub fn concat_with(
        &mut self,
        write: &StepWrite<'_>,
        concat: &dyn Modify,
    ) -> Result<StepOutcome<Mutated>, Status> {
        let keeping = StepWrite {
            preserve_ttl: true,
            ..*write
        };
        self.modify(&keeping, Expiry::NEVER, concat)
    }

    /// Deletes a document. The tombstone keeps the system attributes.
    ///
    /// # Errors
    /// `KeyNotFound`, `KeyExists`, `Locked`, `SyncWriteInProgress`.
    pub fn delete(&mut self, write: &StepWrite<'_>) -> Result<StepOutcome<Mutated>, Status> {
        let Some(found) = self.find_for_write(write, RequiredPart::Metadata)? else {
            return Ok(StepOutcome::Fetch);
        };
        let Some(old) = found.old.clone() else {
            return Err(Status::KeyNotFound);
        };
        self.check_version(write, Some(&old))?;
        if old.has_xattrs() && !old.is_resident() {
            return Ok(StepOutcome::Fetch);
        }
        let (datatype, kept) = kept_by_tombstone(&old)?;
        let meta = ItemMeta {
            deleted: Some(Deletion::Explicit),
            expiry: Expiry(u32::try_from(self.now.unix_secs()).unwrap_or(u32::MAX)),
            datatype,
            ..ItemMeta::default()
        };
        Ok(self.apply(write, &found, meta, &kept))
    }

    /// Adds to or subtracts from a counter, which is stored as decimal text. Addition wraps at 2^64, subtraction stops
    /// at 0.
    ///
    /// # Errors
    /// `KeyNotFound` if the counter does not exist and is not to be created; `DeltaBadValue` if the value is not a
    /// number; `KeyExists`, `Locked`, `SyncWriteInProgress`.
    pub fn arithmetic(
        &mut self,
        write: &StepWrite<'_>,
        op: &CounterOp,
    ) -> Result<StepOutcome<(Mutated, u64)>, Status> {
        let Some(found) = self.find_for_write(write, RequiredPart::Value)? else {
            return Ok(StepOutcome::Fetch);
        };
        let (number, meta) = match &found.old {
            None => {
                let initial = op.initial.ok_or(Status::KeyNotFound)?;
                self.check_version(write, None)?;
                (
                    initial,
                    ItemMeta {
                        expiry: op.expiry,
                        ..ItemMeta::default()
                    },
                )
            }
            Some(old) => {
                self.check_version(write, Some(old))?;
                // A long value cannot be a number, so it is not inflated.
                if old.is_long() && !old.has_xattrs() {
                    return Err(Status::DeltaBadValue);
                }
                let there = counter(ValueParts::of(old)?.body())?;
                let number = if op.negative {
                    there.saturating_sub(op.delta)
                } else {
                    there.wrapping_add(op.delta)
                };
                (
                    number,
                    ItemMeta {
                        flags: old.flags(),
                        expiry: old.expiry(),
                        ..ItemMeta::default()
                    },
                )
            }
        };
        let value = body_of(number.to_string().into_bytes(), found.old.as_ref())?;
        let meta = ItemMeta {
            datatype: value.datatype,
            ..meta
        };
        Ok(self
            .apply(write, &found, meta, &value.bytes)
            .map(|mutated| (mutated, number)))
    }

    /// Changes the expiry of a document. Has no effect if the expiry is the same.
    ///
    /// # Errors
    /// `KeyNotFound`, `KeyExists`, `Locked`, `SyncWriteInProgress`.
    pub fn touch(
        &mut self,
        write: &StepWrite<'_>,
        expiry: Expiry,
    ) -> Result<StepOutcome<Mutated>, Status> {
        self.touch_with(write, expiry, RequiredPart::Metadata)
    }

    fn touch_with(
        &mut self,
        write: &StepWrite<'_>,
        expiry: Expiry,
        needs: RequiredPart,
    ) -> Result<StepOutcome<Mutated>, Status> {
        let Some(found) = self.find_for_write(write, needs)? else {
            return Ok(StepOutcome::Fetch);
        };
        let Some(old) = found.old.clone() else {
            return Err(Status::KeyNotFound);
        };
        self.check_version(write, Some(&old))?;
        if old.expiry() == expiry && write.durability.is_none() {
            return Ok(StepOutcome::Done(self.store.history.mutated(&old)));
        }
        if !old.is_resident() {
            return Ok(StepOutcome::Fetch);
        }
        let meta = ItemMeta {
            expiry,
            deleted: None,
            level: None,
            ..old.meta()
        };
        Ok(self.apply(write, &found, meta, old.value()))
    }

    /// Runs [`Step::touch`] and passes the document to `read`. The document of a SyncWrite is in its completion
    /// instead.
    ///
    /// # Errors
    /// As [`Step::touch`].
    pub fn get_and_touch<R>(
        &mut self,
        write: &StepWrite<'_>,
        expiry: Expiry,
        read: impl FnOnce(DocumentRef<'_>) -> R,
    ) -> Result<StepOutcome<(Mutated, R)>, Status> {
        let outcome = self.touch_with(write, expiry, RequiredPart::Value)?;
        Ok(outcome.map(|mutated| {
            let key = write.key.as_bytes();
            let documents = &self.store.documents;
            let item = documents
                .find(documents.hash(key), key)
                .expect("it was touched just now");
            let document = DocumentRef {
                item,
                cas: item.cas(),
            };
            (mutated, read(document))
        }))
    }

    /// Finds the existing document and checks the prerequisites of a write. Returns `None` if the document must be
    /// fetched first.
    pub(crate) fn find_for_write(
        &mut self,
        write: &StepWrite<'_>,
        needs: RequiredPart,
    ) -> Result<Option<WriteTarget>, Status> {
        if write.durability.is_some() {
            self.durability.check_possible()?;
        }
        self.store.collections.check(write.key)?;
        let key = write.key.as_bytes();
        let hash = self.store.documents.hash(key);
        if self.durability.prepares.holds(hash, key) {
            return Err(Status::SyncWriteInProgress);
        }
        let old = self.live(hash, key);
        let fetch = match &old {
            Some(old) => needs == RequiredPart::Value && !old.is_resident(),
            None => needs != RequiredPart::Nothing && self.store.documents.may_have(hash, key),
        };
        Ok((!fetch).then_some(WriteTarget { hash, old }))
    }

    /// Checks that the document is not locked by another client and has the required CAS.
    pub(crate) fn check_version(
        &mut self,
        write: &StepWrite<'_>,
        old: Option<&Item>,
    ) -> Result<(), Status> {
        if !write.new_cas.is_none()
            && !self
                .store
                .history
                .clock
                .accepts(write.new_cas, self.now.unix_ns)
        {
            return Err(Status::CasValueInvalid);
        }
        let Some(old) = old else {
            return if write.cas.is_none() {
                Ok(())
            } else {
                Err(Status::KeyNotFound)
            };
        };
        let same = write.cas == old.cas();
        if self
            .store
            .documents
            .locks
            .holds(write.key.as_bytes(), self.now)
            && !same
        {
            return Err(Status::Locked);
        }
        if !write.cas.is_none() && !same {
            return Err(Status::KeyExists);
        }
        Ok(())
    }

    /// Creates and stores the new item. `meta` has the fields that the command determines; CAS, seqno and revision are
    /// added here.
    fn apply(
        &mut self,
        write: &StepWrite<'_>,
        found: &WriteTarget,
        meta: ItemMeta,
        value: &[u8],
    ) -> StepOutcome<Mutated> {
        let key = write.key.as_bytes();
        let rev = match &found.old {
            Some(old) => old.rev_seqno(),
            None => self.store.rev_before(found.hash, key),
        };
        let meta = ItemMeta {
            cas: self.next_cas(write),
            seqno: self.store.history.next_seqno(),
            rev: RevSeqno(rev.get() + 1),
            level: write.durability.map(|durability| durability.level),
            ..meta
        };
        let draft = write.draft_of(value);
        self.put_new(write, found, &meta, value, draft)
    }

    /// Returns the CAS of a new version.
    pub(crate) fn next_cas(&mut self, write: &StepWrite<'_>) -> Cas {
        if write.new_cas.is_none() {
            return self.store.history.clock.next(self.now.unix_ns);
        }
        self.store.history.clock.raise_to(write.new_cas);
        write.new_cas
    }

    /// Stores an item with the next seqno: into the hash table, or as a prepare. A draft replaces `value`.
    pub(crate) fn put_new(
        &mut self,
        write: &StepWrite<'_>,
        found: &WriteTarget,
        meta: &ItemMeta,
        value: &[u8],
        draft: Option<Draft>,
    ) -> StepOutcome<Mutated> {
        let key = write.key.as_bytes();
        self.store.documents.locks.remove(key);
        let item = match draft {
            Some(draft) => draft.finish(meta),
            None => Item::new(meta, key, &[value]),
        };
        self.store.collections.count(key, |ops| match meta.deleted {
            None => &mut ops.writes,
            Some(_) => &mut ops.deletes,
        });
        if let Some(old) = &found.old {
            item.inherit_frequency(old);
            item.count_access(self.store.documents.next_random());
        }
        match write.durability {
            None => {
                let mutated = self.store.history.mutated(&item);
                let change = Change::Document(item.clone());
                self.store.put_and_push(found.hash, item, change);
                StepOutcome::Done(mutated)
            }
            Some(durability) => self.durability.prepare(
                self.now,
                durability,
                write.cookie,
                (found.hash, item),
                self.store,
            ),
        }
    }
}

/// Returns a new body with the extended attributes of the existing document.
pub(crate) fn body_of(body: Vec<u8>, old: Option<&Item>) -> Result<NewValue<'static>, Status> {
    let value = NewValue::plain(Cow::Owned(body))?;
    match old {
        Some(old) if old.has_xattrs() => value.behind_xattrs_of(old),
        _ => Ok(value),
    }
}

/// Parses the value of a counter: at most 20 decimal digits, up to 2^64 - 1. Ignores trailing spaces, which memcached
/// leaves when a number gets shorter.
fn counter(text: &[u8]) -> Result<u64, Status> {
    let digits = text.trim_ascii_end();
    let plain = !digits.is_empty() && digits.len() <= 20 && digits.iter().all(u8::is_ascii_digit);
    let number = std::str::from_utf8(digits)
        .ok()
        .filter(|_| plain)
        .and_then(|text| text.parse().ok());
    number.ok_or(Status::DeltaBadValue)
}
