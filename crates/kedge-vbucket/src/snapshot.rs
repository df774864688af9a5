//! Runs of changes whose end is a consistent point.
//!
//! What an active writes is consistent after each change. What comes from another node comes in snapshots: of one out of
//! its memory nothing is left out; of one from its disk only the newest version of each key came, so between its ends
//! older versions may be missing whose newer ones are still to come. A vBucket that is in the middle of a snapshot knows
//! where the last consistent point lies, and the next.

use kedge_types::Seqno;

/// Where a snapshot was taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotKind {
    /// Changes as they happened.
    Memory,
    /// A file: the newest version of each key.
    Disk,
}

/// A snapshot, as its marker tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// No change in it has a seqno below this. In a queue of changes: the last consistent point before it.
    pub start: Seqno,
    /// Its last seqno: the next consistent point.
    pub end: Seqno,
    /// Where it comes from.
    pub kind: SnapshotKind,
    /// The last seqno in it that a client without SyncWrites may hear of.
    pub max_visible: Option<Seqno>,
    /// Prepares up to here have ended. Told of a disk snapshot, from which their ends may be missing.
    pub high_completed: Option<Seqno>,
    /// Prepares up to here were in it, or have ended. Told of a disk snapshot.
    pub high_prepared: Option<Seqno>,
    /// Tombstones up to here may be missing.
    pub purge: Option<Seqno>,
    /// A checkpoint of the sender begins with it.
    pub checkpoint: bool,
    /// A key may stand in it more than once. Said to receivers only; nothing depends on it afterwards.
    pub repeats_keys: bool,
}

impl Snapshot {
    /// One of which nothing more is known.
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

    /// This snapshot behind one that broke off: what was missing there comes in this one, or in those that follow.
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

/// The stream that a vBucket follows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct IncomingStream {
    pub(crate) is_open: bool,
    /// The snapshot that was announced last.
    pub(crate) first: Seqno,
    pub(crate) last: Seqno,
}
