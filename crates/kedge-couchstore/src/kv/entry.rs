//! The meaning of an entry of the trees, which follows from its deleted flag, `content_meta`, metadata, and the
//! namespace of its key. Couchstore file format, sections 2.4 and 3.2.
//!
//! | entry | namespace | deleted flag | metadata | body |
//! |---|---|---|---|---|
//! | live document | committed | no | without SyncWrite | any |
//! | tombstone | committed | yes | without SyncWrite | empty, or system attributes |
//! | SyncWrite | prepare | no | pending | the value |
//! | SyncDelete | prepare | no | pending, of a delete | empty |
//! | abort | prepare | yes | abort | empty |
//! | system event | system | when it drops | without SyncWrite | a flatbuffer |

use super::{
    DeleteSource, DiskKey, KvError, RevMeta, SyncWrite, SystemEventKind, datatype_of_value,
};
use crate::ContentMeta;
use kedge_types::{Cas, Datatype, DurabilityLevel, Expiry, Seqno};

/// The properties of a document's entry, except key, seqno, revision and body pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryMeta {
    /// The deleted flag of the body pointer.
    pub deleted: bool,
    /// The content metadata of the body.
    pub content_meta: ContentMeta,
    /// The private metadata.
    pub rev_meta: RevMeta,
}

/// The properties of a value that the metadata depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ValueMeta {
    /// The client's flags as on the wire.
    pub flags: [u8; 4],
    /// The datatype.
    pub datatype: Datatype,
    /// The length, in bytes.
    pub bytes: usize,
}

/// The kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// A committed document.
    Live,
    /// A tombstone of a committed document.
    Tombstone,
    /// A SyncWrite or SyncDelete, pending unless a later prepare has completed.
    Prepare {
        /// The requested level.
        level: DurabilityLevel,
        /// `true` for a SyncDelete.
        is_delete: bool,
    },
    /// A commit of early releases. It only completes a prepare; the document has another entry.
    LegacyCommit {
        /// The seqno of the prepare.
        prepare: Seqno,
    },
    /// The abort of a SyncWrite.
    Abort {
        /// The seqno of the prepare.
        prepare: Seqno,
    },
    /// A change of the collection manifest; the body has the details.
    SystemEvent {
        /// The kind of change.
        kind: SystemEventKind,
        /// The id of the collection or scope.
        subject: u32,
        /// `true` if it was dropped.
        dropped: bool,
    },
}

impl EntryMeta {
    /// Creates the entry of a committed document.
    #[must_use]
    pub fn live(cas: Cas, expiry: Expiry, value: ValueMeta) -> Self {
        Self::new(false, cas, expiry.0, value)
    }

    /// Creates the entry of a deleted document. `deleted_at` is a Unix second, which decides about purging.
    #[must_use]
    pub fn tombstone(cas: Cas, deleted_at: u32, source: DeleteSource, value: ValueMeta) -> Self {
        let mut entry = Self::new(true, cas, deleted_at, value);
        entry.rev_meta.delete_source = source;
        entry
    }

    /// Creates the entry of a pending SyncWrite.
    #[must_use]
    pub fn prepare(cas: Cas, expiry: Expiry, value: ValueMeta, level: DurabilityLevel) -> Self {
        Self::new(false, cas, expiry.0, value).with(SyncWrite::Pending {
            level,
            is_delete: false,
        })
    }

    /// Creates the entry of a pending SyncDelete, without the deleted flag of the file.
    #[must_use]
    pub fn prepare_delete(cas: Cas, level: DurabilityLevel) -> Self {
        Self::new(false, cas, 0, ValueMeta::default()).with(SyncWrite::Pending {
            level,
            is_delete: true,
        })
    }

    /// Creates the entry of the abort of the prepare at `prepare`, which it replaces in the trees.
    #[must_use]
    pub fn abort(cas: Cas, deleted_at: u32, prepare: Seqno) -> Self {
        Self::new(true, cas, deleted_at, ValueMeta::default()).with(SyncWrite::Abort { prepare })
    }

    /// Creates the entry of a system event with a body of `body_bytes`; `dropped_at` is set if it drops its subject.
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

    /// Decodes the three parts of an entry.
    ///
    /// # Errors
    /// [`KvError`] if `content_meta` or the metadata is malformed.
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

    /// Returns the kind of the entry under `key`.
    ///
    /// # Errors
    /// [`KvError`] if the key's namespace, the deleted flag and the metadata contradict each other.
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
