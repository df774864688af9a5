//! The state of a vBucket in its file, before the log is replayed.

use crate::apply::{ApplyProgress, PersistedState};
use crate::collections::FileCollections;
use crate::item::Item;
use crate::snapshot::DcpSnapshot;
use kedge_types::{Seqno, VbUuid};

/// The content of a vBucket's file without its documents.
#[derive(Clone, Debug)]
pub struct FileState {
    /// The vBucket metadata.
    pub state: PersistedState,
    /// The high seqno of the file.
    pub high_seqno: Seqno,
    /// The number of live documents.
    pub documents: u64,
    /// The prepares that are not completed: those above `state.completed`, except aborted ones and those whose key has
    /// a newer document.
    pub prepares: Vec<Item>,
    /// The collections.
    pub collections: FileCollections,
    /// The UUID of the reset that made place for the file, if it is a copy of another node's.
    pub installed: Option<VbUuid>,
}

impl FileState {
    /// Returns whether the failover table has the branch `uuid`, or the file was installed in its place, so the file was
    /// written after the branch began.
    pub(crate) fn knows(&self, uuid: VbUuid) -> bool {
        let branches = self.state.failover.entries();
        self.installed == Some(uuid) || branches.iter().any(|(known, _)| *known == uuid)
    }

    pub(crate) fn documents(&self) -> usize {
        usize::try_from(self.documents).unwrap_or(usize::MAX)
    }

    /// Returns the snapshot that is incomplete in the file.
    pub(crate) fn open(&self) -> Option<DcpSnapshot> {
        let PersistedState {
            snap_start,
            snap_end,
            snap_kind,
            ..
        } = self.state;
        (self.high_seqno < snap_end).then(|| DcpSnapshot::new(snap_kind, snap_start, snap_end))
    }

    /// Returns the seqno that replay must reach before all completed prepares are known to be completed, or 0 if they
    /// are.
    pub(crate) fn torn_upto(&self) -> Seqno {
        let open = self.open().filter(DcpSnapshot::is_disk);
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
