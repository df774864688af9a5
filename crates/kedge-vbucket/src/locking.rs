//! Commands that lock documents.

use crate::precompute::PrebuiltItem;
use crate::results::{DocumentRef, StepOutcome};
use crate::step::Step;
use kedge_types::limits::{LOCK_SECS_DEFAULT, LOCK_SECS_MAX};
use kedge_types::{Cas, DocKey, Status};

impl Step<'_> {
    /// Locks a document for `secs` seconds. If `secs` is 0 or more than [`LOCK_SECS_MAX`], the duration is
    /// [`LOCK_SECS_DEFAULT`]. Until then, only a client with the CAS that `read` receives may change the document.
    /// `prebuilt` is a copy that was made before the vBucket was locked.
    ///
    /// # Errors
    /// `KeyNotFound`, `Locked`, `SyncWriteInProgress`.
    pub fn get_and_lock<R>(
        &mut self,
        key: &DocKey,
        secs: u32,
        prebuilt: Option<&PrebuiltItem<'_>>,
        read: impl FnOnce(DocumentRef<'_>) -> R,
    ) -> Result<StepOutcome<R>, Status> {
        self.store.collections.check(key)?;
        let bytes = key.as_bytes();
        let hash = self.store.documents.hash(bytes);
        if self.durability.prepares.holds(hash, bytes) {
            return Err(Status::SyncWriteInProgress);
        }
        let Some(item) = self.live(hash, bytes) else {
            return self.absent(hash, bytes);
        };
        if self.store.documents.locks.holds(bytes, self.now) {
            return Err(Status::Locked);
        }
        if !item.is_resident() {
            return Ok(StepOutcome::Fetch);
        }
        item.count_access(self.store.documents.next_random());
        let cas = self.store.history.clock.next(self.now.unix_ns);
        let draft = prebuilt.and_then(|prebuilt| prebuilt.take(item.value()));
        let locked = item.lock_copy(cas, draft);
        let secs = if secs == 0 || secs > LOCK_SECS_MAX {
            LOCK_SECS_DEFAULT
        } else {
            secs
        };
        let until = self.now.mono_ns + u64::from(secs) * 1_000_000_000;
        self.store.documents.locks.add(bytes, until);
        let result = read(DocumentRef { item: &locked, cas });
        self.store.put(hash, locked);
        Ok(StepOutcome::Done(result))
    }

    /// Unlocks a document.
    ///
    /// # Errors
    /// `KeyNotFound`, `NotLocked`, `SyncWriteInProgress`; `Locked` if `cas` is not that of the lock.
    pub fn unlock(&mut self, key: &DocKey, cas: Cas) -> Result<StepOutcome<()>, Status> {
        self.store.collections.check(key)?;
        let bytes = key.as_bytes();
        let hash = self.store.documents.hash(bytes);
        if self.durability.prepares.holds(hash, bytes) {
            return Err(Status::SyncWriteInProgress);
        }
        let Some(item) = self.live(hash, bytes) else {
            return self.absent(hash, bytes);
        };
        if !self.store.documents.locks.holds(bytes, self.now) {
            return Err(Status::NotLocked);
        }
        if item.cas() != cas {
            return Err(Status::Locked);
        }
        self.store.documents.locks.remove(bytes);
        Ok(StepOutcome::Done(()))
    }
}
