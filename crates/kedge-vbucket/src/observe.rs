//! What clients ask about the disk.

use crate::durability::{Completion, Cookie, Done, PersistWaiter, Waiter};
use crate::item::Item;
use crate::vbucket::VBucket;
use crate::write::{Mutated, Outcome};
use kedge_types::limits::SEQNO_PERSISTENCE_SECS;
use kedge_types::{Cas, DocKey, Now, Seqno, Status, VbUuid};

/// What OBSERVE says of a key, with the numbers of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ObserveState {
    /// In memory only.
    NotPersisted = 0,
    /// On disk.
    Persisted = 1,
    /// No such document.
    NotFound = 0x80,
    /// Deleted, and the tombstone is in memory only.
    DeletedNotPersisted = 0x81,
}

/// What OBSERVE_SEQNO says of a vBucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObserveSeqno {
    /// The branch that is written now.
    pub uuid: VbUuid,
    /// Everything up to this is on disk.
    pub persisted: Seqno,
    /// The last seqno given out.
    pub current: Seqno,
    /// The branch that was asked for and its last seqno, when it is an older one.
    pub failover: Option<(VbUuid, Seqno)>,
}

impl VBucket {
    /// Whether a key's last change is on disk.
    ///
    /// # Errors
    /// `UnknownCollection`.
    pub fn observe_key(
        &mut self,
        now: Now,
        key: &DocKey,
    ) -> Result<Outcome<(ObserveState, Cas)>, Status> {
        self.collections.check(key)?;
        let hash = self.table.hash(key.as_bytes());
        self.live(now, hash, key.as_bytes());
        Ok(match self.table.find(hash, key.as_bytes()) {
            None if self.may_have(hash, key.as_bytes()) => Outcome::Fetch,
            None => Outcome::Done((ObserveState::NotFound, Cas(0))),
            Some(item) => {
                let persisted = item.seqno() <= self.persisted_seqno;
                let state = match (item.is_deleted(), persisted) {
                    (false, false) => ObserveState::NotPersisted,
                    (false, true) => ObserveState::Persisted,
                    (true, false) => ObserveState::DeletedNotPersisted,
                    (true, true) => ObserveState::NotFound,
                };
                Outcome::Done((state, item.cas()))
            }
        })
    }

    /// How far the branch `uuid` is.
    ///
    /// # Errors
    /// `KeyNotFound` when it is not in the failover table.
    pub fn observe_seqno(&self, uuid: VbUuid) -> Result<ObserveSeqno, Status> {
        let failover = if uuid == self.failover.uuid() {
            None
        } else {
            Some((
                uuid,
                self.failover.ended_at(uuid).ok_or(Status::KeyNotFound)?,
            ))
        };
        Ok(ObserveSeqno {
            uuid: self.failover.uuid(),
            persisted: self.persisted_seqno,
            current: self.high_seqno,
            failover,
        })
    }

    /// Waits until `seqno` is on disk, at most [`SEQNO_PERSISTENCE_SECS`]; then a completion says so, or
    /// `TemporaryFailure`.
    pub fn seqno_persistence(&mut self, now: Now, seqno: Seqno, cookie: Cookie) -> Outcome<()> {
        if seqno <= self.persisted_seqno {
            return Outcome::Done(());
        }
        self.wait_for(now, seqno, cookie, None);
        Outcome::Parked
    }

    /// Holds back the answer to a write that was done: its client is to go no faster than the disk. It is answered
    /// when the write is on disk, or when the wait takes as long as [`VBucket::seqno_persistence`] would.
    pub fn hold_back(
        &mut self,
        now: Now,
        key: &DocKey,
        mutated: Mutated,
        cookie: Cookie,
    ) -> Outcome<Mutated> {
        let hash = self.table.hash(key.as_bytes());
        match self.table.find(hash, key.as_bytes()) {
            Some(item) if mutated.seqno > self.persisted_seqno => {
                let item = item.clone();
                self.wait_for(now, mutated.seqno, cookie, Some((mutated, item)));
                Outcome::Parked
            }
            _ => Outcome::Done(mutated),
        }
    }

    fn wait_for(&mut self, now: Now, seqno: Seqno, cookie: Cookie, write: Option<(Mutated, Item)>) {
        let deadline_ns = now.mono_ns + SEQNO_PERSISTENCE_SECS * 1_000_000_000;
        let waiter = Waiter {
            cookie,
            began_ns: now.mono_ns,
            deadline_ns,
        };
        self.persist_waiters.push(PersistWaiter {
            seqno,
            waiter,
            write,
        });
        self.expect_log();
    }

    /// Takes the completion of `cookie` back out if it came at once, so that its command need not be parked.
    pub(crate) fn take_done_of(&mut self, cookie: Cookie) -> Option<Completion> {
        let Done { completion, .. } = self.done.pop_if(|done| done.cookie == cookie)?;
        Some(completion)
    }
}
