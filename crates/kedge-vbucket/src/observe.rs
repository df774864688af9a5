//! Client requests about persistence.

use crate::completion::Cookie;
use crate::item::Item;
use crate::results::{Mutated, ObserveState, StepOutcome};
use crate::step::Step;
use kedge_types::{Cas, DocKey, Seqno, Status};

impl Step<'_> {
    /// Returns the persistence state of a key, and its CAS.
    ///
    /// # Errors
    /// `UnknownCollection`.
    pub fn observe_key(
        &mut self,
        key: &DocKey,
    ) -> Result<StepOutcome<(ObserveState, Cas)>, Status> {
        self.store.collections.check(key)?;
        let hash = self.store.documents.hash(key.as_bytes());
        self.live(hash, key.as_bytes());
        Ok(match self.store.documents.find(hash, key.as_bytes()) {
            None if self.store.documents.may_have(hash, key.as_bytes()) => StepOutcome::Fetch,
            None => StepOutcome::Done((ObserveState::NotFound, Cas(0))),
            Some(item) => {
                let persisted = item.seqno() <= self.store.history.persisted_seqno;
                let state = match (item.is_deleted(), persisted) {
                    (false, false) => ObserveState::NotPersisted,
                    (false, true) => ObserveState::Persisted,
                    (true, false) => ObserveState::DeletedNotPersisted,
                    (true, true) => ObserveState::NotFound,
                };
                StepOutcome::Done((state, item.cas()))
            }
        })
    }

    /// Waits until `seqno` is persisted, at most [`kedge_types::limits::SEQNO_PERSISTENCE_SECS`]. A parked command
    /// completes with success, or with `TemporaryFailure` after the timeout.
    pub fn seqno_persistence(&mut self, seqno: Seqno, cookie: Cookie) -> StepOutcome<()> {
        if seqno <= self.store.history.persisted_seqno {
            return StepOutcome::Done(());
        }
        self.wait_for(seqno, cookie, None);
        StepOutcome::Parked
    }

    /// Delays the response to a finished write as backpressure, so that its client is no faster than the disk. The
    /// command completes when the write is persisted, or after the timeout of [`Step::seqno_persistence`].
    pub fn delay_response(
        &mut self,
        key: &DocKey,
        mutated: Mutated,
        cookie: Cookie,
    ) -> StepOutcome<Mutated> {
        let hash = self.store.documents.hash(key.as_bytes());
        match self.store.documents.find(hash, key.as_bytes()) {
            Some(item) if mutated.seqno > self.store.history.persisted_seqno => {
                let item = item.clone();
                self.wait_for(mutated.seqno, cookie, Some((mutated, item)));
                StepOutcome::Parked
            }
            _ => StepOutcome::Done(mutated),
        }
    }

    fn wait_for(&mut self, seqno: Seqno, cookie: Cookie, write: Option<(Mutated, Item)>) {
        self.durability.wait_for(self.now, seqno, cookie, write);
        self.store.changes.request_log();
    }
}
