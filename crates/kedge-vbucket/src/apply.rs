//! Transfer of changes from the log to the file of a vBucket.
//!
//! Invariants:
//! * A change that is in the log but not in the file is *unapplied*. [`unapplied::Unapplied`] holds the unapplied
//!   changes in seqno order. Of each key it holds only the newest logged version.
//! * An [`ApplyBatch`] takes all unapplied changes, so the file is at a consistent point after the whole batch. The
//!   parts of a batch are commits of the file, in seqno order.
//! * A prepare that is not completed at the end of a part is in the file at that point, because a commit record in the
//!   log has no value.
//! * A document may be evicted only after it is applied.

mod batch;
mod progress;
mod steps;
#[cfg(test)]
mod tests;
mod unapplied;
mod unapplied_list;

pub use batch::{ApplyBatch, BatchPart};
pub(crate) use progress::ApplyProgress;
pub(crate) use unapplied::Unapplied;
pub use unapplied::{PersistenceMode, UnappliedFigures};

use crate::catch_up::CatchUpPoint;
use crate::checkpoint::Change;
use crate::failover::FailoverTable;
use crate::item::Item;
use crate::snapshot::SnapshotKind;
use crate::state::VbState;
use kedge_types::{Cas, RevSeqno, Seqno};

/// A change to be written to the file of a vBucket.
#[derive(Clone, Debug)]
pub enum FileChange {
    /// A document or tombstone that was written without a durability level, or committed. Also a
    /// [`crate::SystemEvent`].
    Document(Item),
    /// A prepare that is not completed.
    Prepare(Item),
    /// An aborted SyncWrite. Boxed because aborts are rare and an entry must have 16 bytes.
    Abort(Box<Aborted>),
}

const _: () = assert!(size_of::<FileChange>() == 16);

/// An aborted SyncWrite.
#[derive(Clone, Debug)]
pub struct Aborted {
    /// A tombstone with the key and the seqno of the abort.
    pub item: Item,
    /// The seqno of the prepare.
    pub prepared: Seqno,
}

impl FileChange {
    /// Returns the file change of a queued change, or `None` if that change has no item.
    pub(crate) fn of(change: &Change) -> Option<Self> {
        match change {
            Change::Document(item) | Change::Commit { item, .. } | Change::System(item) => {
                Some(Self::Document(item.clone()))
            }
            Change::Prepare(item) => Some(Self::Prepare(item.clone())),
            Change::Abort { item, prepared } => Some(Self::Abort(Box::new(Aborted {
                item: item.clone(),
                prepared: *prepared,
            }))),
            Change::State(..)
            | Change::Reset(..)
            | Change::Rollback { .. }
            | Change::Delete
            | Change::Snapshot(_)
            | Change::Advance(_) => None,
        }
    }

    /// Returns the item to be written.
    #[must_use]
    pub fn item(&self) -> &Item {
        match self {
            Self::Document(item) | Self::Prepare(item) => item,
            Self::Abort(aborted) => &aborted.item,
        }
    }

    /// Returns whether the change belongs to the namespace of committed documents, not to that of prepares. A file has
    /// a key at most once in each namespace.
    #[must_use]
    pub fn is_committed_namespace(&self) -> bool {
        matches!(self, Self::Document(_))
    }
}

/// The metadata of a vBucket in its file (couchstore file format, section 3.4: `_local/vbstate`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PersistedState {
    /// The state of the vBucket on its node.
    pub state: VbState,
    /// The failover table.
    pub failover: FailoverTable,
    /// The highest CAS that was assigned.
    pub max_cas: Cas,
    /// The consistent point of the file before this write.
    pub snap_start: Seqno,
    /// The next consistent point. The file is consistent when its high seqno reaches it: then it has the whole batch,
    /// and the whole snapshot if the changes come from another node.
    pub snap_end: Seqno,
    /// The kind of the changes between the two points. With a disk snapshot, an older version of a key may be missing
    /// while its newer version has not arrived yet.
    pub snap_kind: SnapshotKind,
    /// The highest seqno that is visible to a client without SyncWrites.
    pub visible: Seqno,
    /// The highest seqno of a prepare.
    pub prepared: Seqno,
    /// The highest prepare that was committed or aborted. All earlier prepares are completed too.
    pub completed: Seqno,
    /// The highest revision of a tombstone (`max_deleted_seqno`). A re-created document must start above it.
    pub max_deleted_rev: RevSeqno,
    /// The highest seqno of a purged tombstone.
    pub purge: Seqno,
    /// True if a value may have extended attributes.
    pub may_have_xattrs: bool,
    /// The point that the vBucket must reach again since a rollback.
    pub catch_up: Option<CatchUpPoint>,
}
