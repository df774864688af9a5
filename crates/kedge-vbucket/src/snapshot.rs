//! Snapshots: sequences of changes that end at a consistent point.
//!
//! The changes of an active vBucket are consistent after each change. A replica receives snapshots. A memory snapshot
//! omits nothing. A disk snapshot has only the newest version of each key, so inside it older versions may be missing
//! whose newer versions have not arrived. A vBucket inside a snapshot knows the previous and the next consistent point.

use kedge_types::Seqno;

/// The source of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotKind {
    /// The memory of the sender: all changes as they happened.
    Memory,
    /// A file: only the newest version of each key.
    Disk,
}

/// A snapshot, as described by its marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DcpSnapshot {
    /// The lower bound of its seqnos. In a queue of changes, the last consistent point before the snapshot.
    pub start: Seqno,
    /// The last seqno, which is the next consistent point.
    pub end: Seqno,
    /// The source.
    pub kind: SnapshotKind,
    /// The last seqno in the snapshot that is visible to a client without SyncWrites.
    pub max_visible: Option<Seqno>,
    /// Prepares up to this seqno are completed. Sent with a disk snapshot, which may lack their completions.
    pub high_completed: Option<Seqno>,
    /// Prepares up to this seqno were in the snapshot or are completed. Sent with a disk snapshot.
    pub high_prepared: Option<Seqno>,
    /// Tombstones up to this seqno may be missing.
    pub purge: Option<Seqno>,
    /// True if a checkpoint of the sender begins with the snapshot.
    pub checkpoint: bool,
    /// True if a key may occur more than once. Sent to receivers only and not kept.
    pub repeats_keys: bool,
}

impl DcpSnapshot {
    /// Returns a snapshot without optional fields.
    #[must_use]
    pub fn new(kind: SnapshotKind, start: Seqno, end: Seqno) -> Self {
        Self {
            start,
            end,
            kind,
            max_visible: None,
            high_completed: None,
            high_prepared: None,
            purge: None,
            checkpoint: false,
            repeats_keys: false,
        }
    }

    /// Returns this snapshot as the continuation of the interrupted one `torn`, whose missing changes are in this
    /// snapshot or later ones.
    pub(crate) fn after(self, torn: Option<Self>) -> Self {
        let Some(torn) = torn else {
            return self;
        };
        let is_disk = [torn.kind, self.kind].contains(&SnapshotKind::Disk);
        Self {
            start: torn.start,
            end: torn.end.max(self.end),
            kind: if is_disk {
                SnapshotKind::Disk
            } else {
                SnapshotKind::Memory
            },
            max_visible: torn.max_visible.max(self.max_visible),
            high_completed: torn.high_completed.max(self.high_completed),
            purge: torn.purge.max(self.purge),
            ..self
        }
    }

    pub(crate) fn is_disk(&self) -> bool {
        self.kind == SnapshotKind::Disk
    }
}

/// The stream that a replica or pending vBucket receives.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct IncomingStream {
    pub(crate) is_open: bool,
    /// The range of the last announced snapshot.
    pub(crate) first: Seqno,
    pub(crate) last: Seqno,
}
