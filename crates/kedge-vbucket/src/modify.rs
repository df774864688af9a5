//! Changes that are computed from the existing document, under the vBucket's lock.

use crate::item::{Deletion, Draft, Item, ItemMeta};
use crate::results::{DocumentRef, Mutated, StepOutcome};
use crate::step::Step;
use crate::write::{RequiredPart, StepWrite, WriteTarget};
use kedge_types::{Cas, Datatype, DocKey, Expiry, RevSeqno, Seqno, Status, VbUuid};
use std::fmt::Debug;

/// A function from an existing document to a new version.
pub trait Modify: Debug + Send + Sync {
    /// Returns whether the change applies to a tombstone, if there is one.
    fn wants_tombstones(&self) -> bool;

    /// Returns an upper bound of the bytes that the change adds to the document.
    fn bytes(&self) -> usize;

    /// Computes the expensive part of a large new version before the vBucket is locked. The result is used if the
    /// document `there` is unchanged by then.
    fn prepare(&self, _key: &DocKey, _there: Option<&Item>) {}

    /// Returns the new version of the document or tombstone `there`, whose value is in memory. May be called again
    /// before its result is used.
    ///
    /// # Errors
    /// The status for the client. The document stays unchanged.
    fn modify(&self, there: Option<&Item>, next: &NextVersion) -> Result<Modified, Status>;
}

/// The version numbers and the time of a new version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextVersion {
    /// The CAS.
    pub cas: Cas,
    /// The seqno. For a SyncWrite, the seqno of the prepare.
    pub seqno: Seqno,
    /// The vBucket UUID of the current branch.
    pub uuid: VbUuid,
    /// The time in Unix seconds.
    pub unix_secs: u64,
}

/// A new version of a document.
#[derive(Debug)]
pub struct Modified {
    /// The extended attributes followed by the body, or nothing if there is a draft.
    pub value: Vec<u8>,
    /// The item with this value, if it was created before the vBucket was locked.
    pub draft: Option<Draft>,
    /// The datatype of the value.
    pub datatype: Datatype,
    /// The flags that the client set.
    pub flags: u32,
    /// True for a tombstone.
    pub deleted: bool,
}

impl Modified {
    /// Returns the extended attributes followed by the body.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match &self.draft {
            Some(draft) => draft.value(),
            None => &self.value,
        }
    }

    /// Moves the value into a draft item.
    #[must_use]
    pub fn drafted(self, key: &DocKey) -> Self {
        let draft = Draft::new(key.as_bytes(), &[&self.value]);
        Self {
            value: Vec::new(),
            draft: Some(draft),
            ..self
        }
    }
}

impl Step<'_> {
    /// Applies `change` to a document. `expiry` is the expiry of a live result, unless `write` preserves the existing
    /// one.
    ///
    /// # Errors
    /// Those of `change`; `KeyNotFound`, `KeyExists`, `Locked`, `SyncWriteInProgress`.
    pub fn modify(
        &mut self,
        write: &StepWrite<'_>,
        expiry: Expiry,
        change: &dyn Modify,
    ) -> Result<StepOutcome<Mutated>, Status> {
        let Some(WriteTarget { hash, old }) = self.find_for_write(write, RequiredPart::Value)?
        else {
            return Ok(StepOutcome::Fetch);
        };
        let live_expiry = old.as_ref().map(Item::expiry);
        let old = match old {
            None if change.wants_tombstones() => {
                let there = self.store.documents.find(hash, write.key.as_bytes());
                if there.is_some_and(|there| !there.is_resident()) {
                    return Ok(StepOutcome::Fetch);
                }
                // An expired document that is not deleted yet because of a SyncWrite in flight is no tombstone.
                there.filter(|there| there.is_deleted()).cloned()
            }
            old => old,
        };
        self.check_version(write, old.as_ref())?;
        let next = NextVersion {
            cas: self.next_cas(write),
            seqno: self.store.history.high_seqno.next(),
            uuid: self.store.history.failover.uuid(),
            unix_secs: self.now.unix_secs(),
        };
        let modified = change.modify(old.as_ref(), &next)?;
        let rev = match &old {
            Some(old) => old.rev_seqno(),
            None => self.store.rev_before(hash, write.key.as_bytes()),
        };
        let meta = ItemMeta {
            cas: next.cas,
            seqno: self.store.history.next_seqno(),
            rev: RevSeqno(rev.get() + 1),
            flags: modified.flags,
            expiry: match live_expiry {
                _ if modified.deleted => {
                    Expiry(u32::try_from(self.now.unix_secs()).unwrap_or(u32::MAX))
                }
                Some(there) if write.preserve_ttl => there,
                _ => expiry,
            },
            datatype: modified.datatype,
            deleted: modified.deleted.then_some(Deletion::Explicit),
            level: write.durability.map(|durability| durability.level),
        };
        let found = WriteTarget { hash, old };
        let Modified { value, draft, .. } = modified;
        Ok(self.put_new(write, &found, &meta, &value, draft))
    }

    /// Shows a document or tombstone to `read`.
    ///
    /// # Errors
    /// As [`Step::get`].
    pub fn get_with_tombstones<R>(
        &mut self,
        key: &DocKey,
        read: impl FnOnce(DocumentRef<'_>) -> R,
    ) -> Result<StepOutcome<R>, Status> {
        self.store.collections.check(key)?;
        let bytes = key.as_bytes();
        let hash = self.store.documents.hash(bytes);
        self.check_not_pending(hash, bytes)?;
        self.live(hash, bytes);
        let Some(item) = self.store.documents.find(hash, bytes) else {
            return self.absent(hash, bytes);
        };
        if !item.is_resident() {
            return Ok(StepOutcome::Fetch);
        }
        if !item.is_deleted() {
            return self.get(key, read);
        }
        Ok(StepOutcome::Done(read(DocumentRef {
            item,
            cas: item.cas(),
        })))
    }
}
