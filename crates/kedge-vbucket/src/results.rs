//! Results of commands.

use crate::item::Item;
use crate::state::VbState;
use kedge_types::{Cas, Datatype, Expiry, RevSeqno, Seqno, VbUuid};

/// The outcome of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepOutcome<T> {
    /// The command has finished.
    Done(T),
    /// The command is parked. A [`crate::Completion`] with its cookie follows.
    Parked,
    /// The command has changed nothing because it needs a document from the disk. The caller reads the document, passes
    /// it to [`crate::VbStore::fetched`], and runs the command again.
    Fetch,
}

/// The result of a write: the CAS of the new version and the mutation token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mutated {
    /// The CAS of the new version.
    pub cas: Cas,
    /// The vBucket UUID of the current branch.
    pub uuid: VbUuid,
    /// The seqno of the change. For a SyncWrite, the seqno of the commit.
    pub seqno: Seqno,
}

impl<T> StepOutcome<T> {
    /// Applies `with` to the result of a finished command.
    pub fn map<U>(self, with: impl FnOnce(T) -> U) -> StepOutcome<U> {
        match self {
            Self::Done(done) => StepOutcome::Done(with(done)),
            Self::Parked => StepOutcome::Parked,
            Self::Fetch => StepOutcome::Fetch,
        }
    }
}

/// A document as a reader sees it.
#[derive(Clone, Copy, Debug)]
pub struct DocumentRef<'a> {
    /// Key, value and metadata.
    pub item: &'a Item,
    /// The CAS, or [`Cas::LOCKED`] while the document is locked.
    pub cas: Cas,
}

/// A randomly selected document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RandomDocument<R> {
    /// The result of the visitor.
    Shown(R),
    /// The key of a document whose value is on disk only.
    OnDisk(Box<[u8]>),
}

/// The metadata of a document or tombstone, for GET_META.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// The CAS, or [`Cas::LOCKED`] while the document is locked.
    pub cas: Cas,
    /// The flags that the client set.
    pub flags: u32,
    /// The expiry. For a tombstone, the time of deletion.
    pub expiry: Expiry,
    /// The revision: the number of changes.
    pub rev_seqno: RevSeqno,
    /// The seqno of the last change.
    pub seqno: Seqno,
    /// The datatype of the value.
    pub datatype: Datatype,
    /// True for a tombstone.
    pub deleted: bool,
}

impl Meta {
    pub(crate) fn of(item: &Item, cas: Cas) -> Self {
        Self {
            cas,
            flags: item.flags(),
            expiry: item.expiry(),
            rev_seqno: item.rev_seqno(),
            seqno: item.seqno(),
            datatype: item.datatype(),
            deleted: item.is_deleted(),
        }
    }
}

/// The persistence state of a key in OBSERVE. The numbers are those of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ObserveState {
    /// The document is in memory only.
    NotPersisted = 0,
    /// The document is on disk.
    Persisted = 1,
    /// The document does not exist.
    NotFound = 0x80,
    /// The document is deleted, and the tombstone is in memory only.
    DeletedNotPersisted = 0x81,
}

/// The progress of a vBucket, as OBSERVE_SEQNO returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservedSeqno {
    /// The vBucket UUID of the current branch.
    pub uuid: VbUuid,
    /// The persisted seqno.
    pub persisted: Seqno,
    /// The high seqno.
    pub current: Seqno,
    /// For a request that names an older branch: the UUID of that branch and the seqno at which it ended.
    pub failover: Option<(VbUuid, Seqno)>,
}

/// The result of a comparison of a key in memory with the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyValidity {
    /// Memory and the file agree, or only the file has the document.
    Valid,
    /// The last change has not been applied to the file yet.
    Dirty,
    /// The document is missing in the file.
    RamButNotDisk,
    /// The flags differ.
    FlagsMismatch,
    /// The lengths of the values differ.
    LengthMismatch,
    /// The values or their versions differ.
    DataMismatch,
    /// The document is deleted.
    ItemDeleted,
}

impl KeyValidity {
    /// Returns the name in the statistics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Valid => "valid",
            Self::Dirty => "dirty",
            Self::RamButNotDisk => "ram_but_not_disk",
            Self::FlagsMismatch => "flags_mismatch",
            Self::LengthMismatch => "length_mismatch",
            Self::DataMismatch => "data_mismatch",
            Self::ItemDeleted => "item_deleted",
        }
    }
}

/// The statistics of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyFigures {
    /// The metadata. The CAS is the real one even while the document is locked.
    pub meta: Meta,
    /// The state of the vBucket.
    pub state: VbState,
    /// True if the last change is in memory only.
    pub is_dirty: bool,
    /// True if the value is in memory.
    pub is_resident: bool,
    /// The result of the comparison with the file, if it was requested.
    pub validity: Option<KeyValidity>,
}

/// The position from which a stream resumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResumePoint {
    /// The high seqno.
    pub start: Seqno,
    /// The last consistent point. Equal to `start` if `start` is a consistent point.
    pub snap_start: Seqno,
    /// The next consistent point. Equal to `start` if `start` is a consistent point.
    pub snap_end: Seqno,
    /// A branch that contains `start`. A branch that began at `start` has no changes yet and may be unknown to other
    /// nodes, so an older branch is preferred.
    pub uuid: VbUuid,
}

/// The progress of a vBucket, for the comparison of several nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VbProgress {
    /// The state on this node.
    pub state: VbState,
    /// The vBucket UUID of the current branch.
    pub uuid: VbUuid,
    /// The high seqno.
    pub high_seqno: Seqno,
    /// The persisted seqno.
    pub persisted_seqno: Seqno,
    /// The high prepared seqno: prepares up to it count as acknowledged by this node.
    pub high_prepared: Seqno,
    /// The high completed seqno: the highest prepare that is known to be committed or aborted.
    pub high_completed: Seqno,
    /// The last consistent point: the high seqno, unless a snapshot is incomplete.
    pub consistent: Seqno,
}
