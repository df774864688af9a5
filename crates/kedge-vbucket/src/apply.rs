//! What goes from the log into a vBucket's file.
//!
//! Invariants:
//! * What the log has and the file has not is *unapplied*: it stands in [`unapplied::Unapplied`], in seqno order, the
//!   newest version of a key that the log has.
//! * A [`ApplyBatch`] takes all of it at once, so the file is at a consistent point when all its parts are written;
//!   its parts are commits of the file, in seqno order.
//! * A prepare that has not ended at the end of a part is in the file then: the log's commit repeats no value.
//! * A document may leave memory only when it is applied.

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

use crate::checkpoint::Change;
use crate::failover::FailoverTable;
use crate::item::Item;
use crate::snapshot::SnapshotKind;
use crate::state::VbState;
use kedge_types::{Cas, RevSeqno, Seqno};

/// A change on its way to the vBucket's file.
#[derive(Clone, Debug)]
pub enum FileChange {
    /// A document or tombstone, written without a durability level or committed; or a [`crate::SystemEvent`].
    Document(Item),
    /// A SyncWrite that waits for its level.
    Prepare(Item),
    /// A SyncWrite that was given up. Boxed: it is rare, and an entry is to have 16 bytes.
    Abort(Box<Aborted>),
}

const _: () = assert!(size_of::<FileChange>() == 16);

/// A SyncWrite that was given up.
#[derive(Clone, Debug)]
pub struct Aborted {
    /// A tombstone with key and seqno of the abort.
    pub item: Item,
    /// The seqno of the prepare.
    pub prepared: Seqno,
}

impl FileChange {
    /// The change to be written to the file, of a change that has an item.
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

    /// The item to be written.
    #[must_use]
    pub fn item(&self) -> &Item {
        match self {
            Self::Document(item) | Self::Prepare(item) => item,
            Self::Abort(aborted) => &aborted.item,
        }
    }

    /// Returns whether it belongs to the documents, not to the prepares: a file keeps a key once in each of these
    /// namespaces.
    #[must_use]
    pub fn is_committed_namespace(&self) -> bool {
        matches!(self, Self::Document(_))
    }
}

/// The state of a vBucket in its file, beside the documents (couchstore file format, section 3.4: `_local/vbstate`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PersistedState {
    /// Its state on its node.
    pub state: VbState,
    /// Its history.
    pub failover: FailoverTable,
    /// The last CAS given out.
    pub max_cas: Cas,
    /// The consistent point that the file had before what is being written.
    pub snap_start: Seqno,
    /// The next consistent point. The file is at it when its last seqno is: all of what is being written is there, and
    /// all of a snapshot that comes from another node.
    pub snap_end: Seqno,
    /// The kind of the changes between them: of a snapshot from a disk, older versions may be missing whose newer ones
    /// are to come.
    pub snap_kind: SnapshotKind,
    /// The last seqno that a client without SyncWrites may hear of.
    pub visible: Seqno,
    /// The highest prepare there was.
    pub prepared: Seqno,
    /// The highest prepare that was committed or aborted. All below it have ended too.
    pub completed: Seqno,
    /// The highest revision of a tombstone: a document made anew must not start below (`max_deleted_seqno`).
    pub max_deleted_rev: RevSeqno,
    /// The highest seqno of a tombstone that was purged.
    pub purge: Seqno,
    /// A value of it may have extended attributes.
    pub may_have_xattrs: bool,
}
