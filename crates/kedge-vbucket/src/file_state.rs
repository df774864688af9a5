//! The state that a vBucket's file brings back, before the log's records are applied to it.

use crate::apply::{ApplyProgress, PersistedState};
use crate::collections::FileCollections;
use crate::item::Item;
use crate::snapshot::Snapshot;
use kedge_types::{Seqno, VbUuid};

/// The content of a vBucket's file, its documents apart.
#[derive(Clone, Debug)]
pub struct FileState {
    /// The state of the vBucket.
    pub state: PersistedState,
    /// Its last seqno.
    pub high_seqno: Seqno,
    /// Its live documents.
    pub documents: u64,
    /// Its prepares that did not end: those above `state.completed`, aborts apart, and those apart whose key has a
    /// newer document.
    pub prepares: Vec<Item>,
    /// Its collections.
    pub collections: FileCollections,
}

impl FileState {
    /// Returns whether the file was written after the branch `uuid` began.
    pub(crate) fn knows(&self, uuid: VbUuid) -> bool {
        let branches = self.state.failover.entries();
        branches.iter().any(|(known, _)| *known == uuid)
    }

    pub(crate) fn documents(&self) -> usize {
        usize::try_from(self.documents).unwrap_or(usize::MAX)
    }

    /// The snapshot that the file is in the middle of.
    pub(crate) fn open(&self) -> Option<Snapshot> {
        let PersistedState {
            snap_start,
            snap_end,
            snap_kind,
            ..
        } = self.state;
        (self.high_seqno < snap_end).then(|| Snapshot::new(snap_kind, snap_start, snap_end))
    }

    /// Up to where the log has to go before all prepares that ended are known to have; 0: they are.
    pub(crate) fn torn_upto(&self) -> Seqno {
        let open = self.open().filter(Snapshot::is_disk);
        open.map_or(Seqno(0), |open| open.end)
    }

    pub(crate) fn progress(&self) -> ApplyProgress {
        let high = self.high_seqno;
        let PersistedState {
            visible,
            prepared,
            completed,
            ..
        } = self.state;
        ApplyProgress {
            high,
            open: self.open(),
            visible: visible.min(high),
            prepared: prepared.min(high),
            completed: completed.min(high),
            ..ApplyProgress::default()
        }
    }
}
