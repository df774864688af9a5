//! What an entry of the trees means: its deleted flag, `content_meta` and metadata together with the namespace of its
//! key. Couchstore file format, sections 2.4 and 3.2.
//!
//! | entry | namespace | deleted flag | metadata | body |
//! |---|---|---|---|---|
//! | live document | committed | no | without SyncWrite | any |
//! | tombstone | committed | yes | without SyncWrite | empty, or system attributes |
//! | SyncWrite | prepare | no | pending | the value |
//! | SyncDelete | prepare | no | pending, of a delete | empty |
//! | abort | prepare | yes | abort | empty |
//! | system event | system | when it drops | without SyncWrite | a flatbuffer |

use super::datatype_of_value;
use super::{DeleteSource, DiskKey, KvError, RevMeta, SyncWrite, SystemEventKind};
use crate::ContentMeta;
use kedge_types::{Cas, Datatype, DurabilityLevel, Expiry, Seqno};

/// What an entry says of a document beside key, seqno, revision and where the body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryMeta {
    /// The flag on the pointer to the body.
    pub deleted: bool,
    /// How the body is stored.
    pub content_meta: ContentMeta,
    /// The rest.
    pub rev_meta: RevMeta,
}

/// A value, as far as the metadata cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ValueMeta {
    /// The client's flags, byte by byte as they came over the wire.
    pub flags: [u8; 4],
    /// What it is made of.
    pub datatype: Datatype,
    /// Its length.
    pub bytes: usize,
}

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// A committed document.
    Live,
    /// A deleted one.
    Tombstone,
    /// A SyncWrite or SyncDelete that is not complete, unless a later prepare than it is.
    Prepare {
        /// The level asked for.
        level: DurabilityLevel,
        /// Whether it is a SyncDelete.
        is_delete: bool,
    },
    /// A commit as early releases wrote it. It only ends a prepare; the document is an entry of its own.
    LegacyCommit {
        /// The prepare.
        prepare: Seqno,
    },
    /// The end of a SyncWrite that did not come to be.
    Abort {
        /// The prepare.
        prepare: Seqno,
    },
    /// A change of the collection manifest; the body says the rest.
    SystemEvent {
        /// What changed.
        kind: SystemEventKind,
        /// The id of the collection or scope.
        subject: u32,
        /// Whether it was dropped.
        dropped: bool,
    },
}

impl EntryMeta {
    /// A committed document.
    #[must_use]
    pub fn live(cas: Cas, expiry: Expiry, value: ValueMeta) -> Self {
        Self::new(false, cas, expiry.0, value)
    }

    /// A deleted document. `deleted_at` is a Unix second; purging goes by it.
    #[must_use]
    pub fn tombstone(cas: Cas, deleted_at: u32, source: DeleteSource, value: ValueMeta) -> Self {
        let mut entry = Self::new(true, cas, deleted_at, value);
        entry.rev_meta.delete_source = source;
        entry
    }

    /// A SyncWrite on its way.
    #[must_use]
    pub fn prepare(cas: Cas, expiry: Expiry, value: ValueMeta, level: DurabilityLevel) -> Self {
        Self::new(false, cas, expiry.0, value).with(SyncWrite::Pending {
            level,
            is_delete: false,
        })
    }

    /// A SyncDelete on its way: not deleted as far as the file goes.
    #[must_use]
    pub fn prepare_delete(cas: Cas, level: DurabilityLevel) -> Self {
        Self::new(false, cas, 0, ValueMeta::default()).with(SyncWrite::Pending {
            level,
            is_delete: true,
        })
    }

    /// The end of the prepare at `prepare`, which it replaces in the trees.
    #[must_use]
    pub fn abort(cas: Cas, deleted_at: u32, prepare: Seqno) -> Self {
        Self::new(true, cas, deleted_at, ValueMeta::default()).with(SyncWrite::Abort { prepare })
    }

    /// A system event with a body of `body_bytes`; `dropped_at` if it drops its subject.
    #[must_use]
    pub fn event(
        cas: Cas,
        kind: SystemEventKind,
        dropped_at: Option<u32>,
        body_bytes: usize,
    ) -> Self {
        let value = ValueMeta {
            flags: kind.flags(),
            datatype: Datatype::RAW,
            bytes: body_bytes,
        };
        Self::new(
            dropped_at.is_some(),
            cas,
            dropped_at.unwrap_or_default(),
            value,
        )
    }

    fn new(deleted: bool, cas: Cas, exptime: u32, value: ValueMeta) -> Self {
        let datatype = datatype_of_value(value.datatype, value.bytes);
        Self {
            deleted,
            content_meta: ContentMeta::of_value(datatype, value.bytes),
            rev_meta: RevMeta {
                cas,
                exptime,
                flags: value.flags,
                delete_source: DeleteSource::Explicit,
                datatype,
                sync_write: None,
            },
        }
    }

    fn with(mut self, sync_write: SyncWrite) -> Self {
        self.rev_meta.sync_write = Some(sync_write);
        self
    }

    /// The three as an entry has them.
    ///
    /// # Errors
    /// `content_meta` or the metadata is malformed.
    pub fn decode(
        deleted: bool,
        content_meta: ContentMeta,
        rev_meta: &[u8],
    ) -> Result<Self, KvError> {
        Ok(Self {
            deleted,
            content_meta: content_meta.check()?,
            rev_meta: RevMeta::decode(rev_meta)?,
        })
    }

    /// What the entry under `key` is.
    ///
    /// # Errors
    /// The key's namespace, the deleted flag and the metadata contradict each other.
    pub fn meaning(&self, key: &DiskKey<'_>) -> Result<Meaning, KvError> {
        match (*key, self.rev_meta.sync_write) {
            (DiskKey::Document { prepared: true, .. }, Some(sync_write)) => self.of(sync_write),
            (DiskKey::Document { prepared: true, .. }, None) => Err(KvError::Entry {
                expected: "metadata of 25 bytes under a prepare's key",
            }),
            (_, Some(_)) => Err(KvError::Entry {
                expected: "metadata of less than 25 bytes under the key of no prepare",
            }),
            (DiskKey::SystemEvent { kind, subject }, None) => Ok(Meaning::SystemEvent {
                kind,
                subject,
                dropped: self.deleted,
            }),
            (DiskKey::Document { .. }, None) if self.deleted => Ok(Meaning::Tombstone),
            (DiskKey::Document { .. }, None) => Ok(Meaning::Live),
        }
    }

    fn of(&self, sync_write: SyncWrite) -> Result<Meaning, KvError> {
        match sync_write {
            SyncWrite::Pending { .. } if self.deleted => Err(KvError::Entry {
                expected: "a prepare without the deleted flag",
            }),
            SyncWrite::Abort { .. } if !self.deleted => Err(KvError::Entry {
                expected: "an abort with the deleted flag",
            }),
            SyncWrite::Pending { level, is_delete } => Ok(Meaning::Prepare { level, is_delete }),
            SyncWrite::Abort { prepare } => Ok(Meaning::Abort { prepare }),
            SyncWrite::LegacyCommit { prepare } => Ok(Meaning::LegacyCommit { prepare }),
        }
    }
}
