//! Documents locked by GET_LOCKED.

use crate::ahead::Ahead;
use crate::read::Document;
use crate::vbucket::VBucket;
use crate::write::Outcome;
use kedge_types::limits::{LOCK_SECS_DEFAULT, LOCK_SECS_MAX};
use kedge_types::{Cas, DocKey, Now, Status};
use std::collections::HashMap;

/// Which keys are locked, and until when (nanoseconds of the monotonic clock). The CAS that opens a lock is that of
/// the document, which got a new one when it was locked. Locks are not kept on disk.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    until_ns: HashMap<Box<[u8]>, u64>,
}

impl Locks {
    /// Whether the key is locked. A lock whose time is up is forgotten here.
    pub(crate) fn holds(&mut self, key: &[u8], now: Now) -> bool {
        if self.until_ns.is_empty() {
            return false;
        }
        match self.until_ns.get(key) {
            Some(until) if *until > now.mono_ns => true,
            Some(_) => {
                self.until_ns.remove(key);
                false
            }
            None => false,
        }
    }

    /// Whether the key is locked.
    pub(crate) fn is_locked(&self, key: &[u8], now: Now) -> bool {
        !self.until_ns.is_empty()
            && self
                .until_ns
                .get(key)
                .is_some_and(|until| *until > now.mono_ns)
    }

    pub(crate) fn remove(&mut self, key: &[u8]) {
        if !self.until_ns.is_empty() {
            self.until_ns.remove(key);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.until_ns.is_empty()
    }

    /// Forgets locks whose time is up and whose document nobody asked for since.
    pub(crate) fn forget_late(&mut self, now: Now) {
        self.until_ns.retain(|_, until| *until > now.mono_ns);
    }
}

impl VBucket {
    /// Locks a document for `secs` seconds (0 or more than [`LOCK_SECS_MAX`]: [`LOCK_SECS_DEFAULT`]). Until then only
    /// who has the CAS that `read` is shown may change it.
    ///
    /// # Errors
    /// `KeyNotFound`, `Locked`, `SyncWriteInProgress`.
    pub fn get_and_lock<R>(
        &mut self,
        now: Now,
        key: &DocKey,
        secs: u32,
        read: impl FnOnce(Document<'_>) -> R,
    ) -> Result<Outcome<R>, Status> {
        self.get_and_lock_with(now, key, secs, None, read)
    }

    /// [`VBucket::get_and_lock`] for which a copy of the value may have been made ahead.
    ///
    /// # Errors
    /// As [`VBucket::get_and_lock`].
    pub fn get_and_lock_with<R>(
        &mut self,
        now: Now,
        key: &DocKey,
        secs: u32,
        ahead: Option<&Ahead<'_>>,
        read: impl FnOnce(Document<'_>) -> R,
    ) -> Result<Outcome<R>, Status> {
        self.collections.check(key)?;
        let bytes = key.as_bytes();
        let hash = self.table.hash(bytes);
        if self.prepares.holds(hash, bytes) {
            return Err(Status::SyncWriteInProgress);
        }
        let Some(item) = self.live(now, hash, bytes) else {
            return self.absent(hash, bytes);
        };
        if self.locks.holds(bytes, now) {
            return Err(Status::Locked);
        }
        if !item.is_resident() {
            return Ok(Outcome::Fetch);
        }
        item.count_access(self.next_random());
        let cas = self.clock.next(now.unix_ns);
        let draft = ahead.and_then(|ahead| ahead.take(item.value()));
        let locked = item.lock_copy(cas, draft);
        let secs = if secs == 0 || secs > LOCK_SECS_MAX {
            LOCK_SECS_DEFAULT
        } else {
            secs
        };
        let until = now.mono_ns + u64::from(secs) * 1_000_000_000;
        self.locks.until_ns.insert(bytes.into(), until);
        let result = read(Document { item: &locked, cas });
        self.put(hash, locked);
        Ok(Outcome::Done(result))
    }

    /// Opens a lock.
    ///
    /// # Errors
    /// `KeyNotFound`; `NotLocked`; `Locked` when `cas` is not the lock's; `SyncWriteInProgress`.
    pub fn unlock(&mut self, now: Now, key: &DocKey, cas: Cas) -> Result<Outcome<()>, Status> {
        self.collections.check(key)?;
        let bytes = key.as_bytes();
        let hash = self.table.hash(bytes);
        if self.prepares.holds(hash, bytes) {
            return Err(Status::SyncWriteInProgress);
        }
        let Some(item) = self.live(now, hash, bytes) else {
            return self.absent(hash, bytes);
        };
        if !self.locks.holds(bytes, now) {
            return Err(Status::NotLocked);
        }
        if item.cas() != cas {
            return Err(Status::Locked);
        }
        self.locks.remove(bytes);
        Ok(Outcome::Done(()))
    }
}
