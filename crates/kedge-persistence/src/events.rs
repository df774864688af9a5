//! The events that persistence reports upwards.

use kedge_types::{Seqno, VbId};
use std::sync::{Arc, OnceLock, Weak};

/// The receiver of what persistence reports. It is called by writers and appliers, once for each commit, under no
/// vBucket's lock.
pub trait PersistenceEvents: Send + Sync {
    /// Replicas have new seqnos to acknowledge, as their changes are durable. Takes them out of `acks`.
    fn persisted(&self, acks: &mut Vec<(VbId, Seqno)>);

    /// The file of a vBucket has more than before, or is another one.
    fn file_advanced(&self, vb: VbId);

    /// Changes were written to a file, so that documents may leave memory.
    fn memory_freed(&self);

    /// Writes are refused from now on, as the disk is full or refuses them.
    fn writes_refused(&self);

    /// Returns whether a reader waits for the file of `vb`, or of any vBucket, to advance.
    fn has_file_waiter(&self, vb: Option<VbId>) -> bool;

    /// Documents that a rollback changed could not be read back into memory.
    fn read_failed(&self, vb: VbId, error: &str);
}

/// The way to the receiver, which is held weakly: it holds persistence.
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

    /// Reports acknowledgements of replicas.
    pub(crate) fn persisted(&self, acks: &mut Vec<(VbId, Seqno)>) {
        if !acks.is_empty()
            && let Some(events) = self.receiver()
        {
            events.persisted(acks);
        }
    }

    /// Reports that the file of a vBucket has more than before, or is another one.
    pub(crate) fn file_advanced(&self, vb: VbId) {
        if let Some(events) = self.receiver() {
            events.file_advanced(vb);
        }
    }

    /// Reports that documents may leave memory.
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

    /// Reports that documents could not be read.
    pub(crate) fn read_failed(&self, vb: VbId, error: &str) {
        if let Some(events) = self.receiver() {
            events.read_failed(vb, error);
        }
    }

    /// Returns whether a reader waits for the file of `vb`, or of any vBucket.
    pub(crate) fn has_file_waiter(&self, vb: Option<VbId>) -> bool {
        self.receiver()
            .is_some_and(|events| events.has_file_waiter(vb))
    }

    fn receiver(&self) -> Option<Arc<dyn PersistenceEvents>> {
        self.0.get().and_then(Weak::upgrade)
    }
}
