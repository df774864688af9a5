//! The events that persistence reports to its owner.

use kedge_types::{Seqno, VbId};
use std::sync::{Arc, OnceLock, Weak};

/// The receiver of the events of persistence. Writers and appliers call it once for each commit, without the lock of a
/// vBucket.
pub trait PersistenceEvents: Send + Sync {
    /// Hands over the seqnos that replicas can acknowledge because their changes are durable. The receiver drains
    /// `acks`.
    fn persisted(&self, acks: &mut Vec<(VbId, Seqno)>);

    /// Reports that the file of a vBucket has a new commit or was replaced.
    fn file_advanced(&self, vb: VbId);

    /// Reports that changes were written to a file, so that their documents may be evicted.
    fn memory_freed(&self);

    /// Reports that writes are refused from now on, because the disk is full or the log cannot be written to.
    fn writes_refused(&self);

    /// Returns whether a reader waits for a new commit in the file of `vb`, or of any vBucket if `None`.
    fn has_file_waiter(&self, vb: Option<VbId>) -> bool;

    /// Reports that new data has another key, or none any more.
    fn key_changed(&self);

    /// Reports that documents changed by a rollback could not be read back into memory.
    fn read_failed(&self, vb: VbId, error: &str);
}

/// A weak reference to the receiver, which owns persistence.
#[derive(Default)]
pub(crate) struct EventSink(OnceLock<Weak<dyn PersistenceEvents>>);

impl std::fmt::Debug for EventSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventSink").finish_non_exhaustive()
    }
}

impl EventSink {
    /// Sets the receiver of events, once, before the bucket is loaded.
    pub(crate) fn set(&self, receiver: Weak<dyn PersistenceEvents>) {
        // Components are wired once.
        let _ = self.0.set(receiver);
    }

    /// Reports acknowledgements of replicas, unless there are none.
    pub(crate) fn persisted(&self, acks: &mut Vec<(VbId, Seqno)>) {
        if !acks.is_empty()
            && let Some(events) = self.receiver()
        {
            events.persisted(acks);
        }
    }

    /// Reports that the file of a vBucket has a new commit or was replaced.
    pub(crate) fn file_advanced(&self, vb: VbId) {
        if let Some(events) = self.receiver() {
            events.file_advanced(vb);
        }
    }

    /// Reports that documents may be evicted.
    pub(crate) fn memory_freed(&self) {
        if let Some(events) = self.receiver() {
            events.memory_freed();
        }
    }

    /// Reports that writes are refused from now on.
    pub(crate) fn writes_refused(&self) {
        if let Some(events) = self.receiver() {
            events.writes_refused();
        }
    }

    /// Reports that new data has another key.
    pub(crate) fn key_changed(&self) {
        if let Some(events) = self.receiver() {
            events.key_changed();
        }
    }

    /// Reports that documents could not be read.
    pub(crate) fn read_failed(&self, vb: VbId, error: &str) {
        if let Some(events) = self.receiver() {
            events.read_failed(vb, error);
        }
    }

    /// Returns whether a reader waits for the file of `vb`, or of any vBucket if `None`.
    pub(crate) fn has_file_waiter(&self, vb: Option<VbId>) -> bool {
        self.receiver()
            .is_some_and(|events| events.has_file_waiter(vb))
    }

    fn receiver(&self) -> Option<Arc<dyn PersistenceEvents>> {
        self.0.get().and_then(Weak::upgrade)
    }
}
