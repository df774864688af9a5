//! Answers of commands.

use crate::item::Item;
use crate::state::VbState;
use kedge_types::{Cas, Datatype, Expiry, RevSeqno, Seqno, VbUuid};

/// A command that was done, is to be completed later under its cookie, or needs what is on disk only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepOutcome<T> {
    /// Done.
    Done(T),
    /// To be completed later.
    Parked,
    /// Nothing was done: the document has to be read from the disk first, see [`VBucket::fetched`].
    Fetch,
}

/// The answer to a write: the new version, and the parts of a mutation token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mutated {
    /// The new version.
    pub cas: Cas,
    /// The branch of the vBucket.
    pub uuid: VbUuid,
    /// The seqno of the change; of the commit, for a SyncWrite.
    pub seqno: Seqno,
}

impl<T> StepOutcome<T> {
    /// The same outcome with what was done changed by `with`.
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
pub struct Document<'a> {
    /// Key, value and metadata.
    pub item: &'a Item,
    /// Its version; [`Cas::LOCKED`] while another holds its lock.
    pub cas: Cas,
}

/// A document that was picked at random.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RandomDocument<R> {
    /// It was shown.
    Shown(R),
    /// Its value is on disk only. This is its key.
    OnDisk(Box<[u8]>),
}

/// The metadata of a document or tombstone, for GET_META.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Its version; [`Cas::LOCKED`] while it is locked.
    pub cas: Cas,
    /// The client's own 32 bits.
    pub flags: u32,
    /// When it expires, or was deleted.
    pub expiry: Expiry,
    /// Count of changes.
    pub rev_seqno: RevSeqno,
    /// Place in the vBucket's order.
    pub seqno: Seqno,
    /// The datatype of the value.
    pub datatype: Datatype,
    /// True if it is a tombstone.
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

/// The state of a key in OBSERVE, with the numbers of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ObserveState {
    /// In memory only.
    NotPersisted = 0,
    /// On disk.
    Persisted = 1,
    /// No such document.
    NotFound = 0x80,
    /// Deleted, and the tombstone is in memory only.
    DeletedNotPersisted = 0x81,
}

/// The progress of a vBucket in OBSERVE_SEQNO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservedSeqno {
    /// The branch that is written now.
    pub uuid: VbUuid,
    /// Everything up to this is on disk.
    pub persisted: Seqno,
    /// The last seqno given out.
    pub current: Seqno,
    /// The branch that was asked for and its last seqno, when it is an older one.
    pub failover: Option<(VbUuid, Seqno)>,
}

/// The result of a comparison of a key in memory with the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyValidity {
    /// They are the same, or only the file has the document.
    Valid,
    /// The file cannot have it yet.
    Dirty,
    /// The file should have it, and has not.
    RamButNotDisk,
    /// The flags are others.
    FlagsMismatch,
    /// The values are not of the same length.
    LengthMismatch,
    /// The values or their versions are others.
    DataMismatch,
    /// It was deleted.
    ItemDeleted,
}

impl KeyValidity {
    /// Its name in the statistics.
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

/// Statistics of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyFigures {
    /// Its metadata; the CAS is that of the document while it is locked, too.
    pub meta: Meta,
    /// The state of its vBucket.
    pub state: VbState,
    /// True if its last change is in memory only.
    pub is_dirty: bool,
    /// True if its value is in memory.
    pub is_resident: bool,
    /// Its comparison with the file, if that was asked for.
    pub validity: Option<KeyValidity>,
}

/// Where a stream goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResumePoint {
    /// The last seqno there is.
    pub start: Seqno,
    /// The last consistent point; `start`, if that is one.
    pub snap_start: Seqno,
    /// The next consistent point; `start`, if that is one.
    pub snap_end: Seqno,
    /// A branch that `start` lies on. A branch that began at `start` has nothing yet, and may be known here only.
    pub uuid: VbUuid,
}

/// The progress of a vBucket, to find out which of several nodes has the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VbProgress {
    /// Its state on its node.
    pub state: VbState,
    /// The branch that it is on.
    pub uuid: VbUuid,
    /// Its last seqno.
    pub high_seqno: Seqno,
    /// Everything up to here is on its disk.
    pub persisted_seqno: Seqno,
    /// Prepares up to here count as acknowledged by it.
    pub high_prepared: Seqno,
    /// The highest prepare that it knows to have ended.
    pub high_completed: Seqno,
    /// Its last consistent point: its last seqno, unless it is in the middle of a snapshot.
    pub consistent: Seqno,
}
