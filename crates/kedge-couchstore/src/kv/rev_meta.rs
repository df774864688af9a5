//! `rev_meta`: the engine's metadata of a document in addition to seqno and revision. Couchstore file format, section
//! 3.2.
//!
//! ```text
//! u64 CAS | u32 expiry or time of deletion | 4 bytes flags | u8 code | u8 datatype              18 bytes (version 1)
//!                                                            + u8 ignored                       19 bytes (version 2)
//!                                                            + u8 operation | u48 details       25 bytes (version 3)
//! ```
//! Numbers are big-endian. The length is the version.

use super::KvError;
use kedge_types::{Cas, Datatype, DurabilityLevel, Seqno};

const V0_BYTES: usize = 16;
const V1_BYTES: usize = 18;
const V2_BYTES: usize = 19;
const V3_BYTES: usize = 25;

/// Low bits of byte 16. They have no meaning, but the tools of most releases reject an entry without them, and some
/// releases write 0. So they are written, and ignored when read.
const FLEX_CODE: u8 = 0x01;
const DELETED_BY_TTL: u8 = 0x80;

const PENDING: u8 = 0;
const LEGACY_COMMIT: u8 = 1;
const ABORT: u8 = 2;

const U48_MAX: u64 = (1 << 48) - 1;

/// The metadata of one document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RevMeta {
    /// The CAS.
    pub cas: Cas,
    /// The Unix second at which a live document expires (0: never), or at which a tombstone was deleted.
    pub exptime: u32,
    /// The client's flags as on the wire.
    pub flags: [u8; 4],
    /// The cause of the deletion; [`DeleteSource::Explicit`] for a live document.
    pub delete_source: DeleteSource,
    /// The datatype of the value.
    pub datatype: Datatype,
    /// The kind of an entry in the prepare namespace; `None` for all others.
    pub sync_write: Option<SyncWrite>,
}

/// The cause of a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeleteSource {
    /// A client deleted the document.
    #[default]
    Explicit,
    /// The document expired.
    Ttl,
}

/// The kind of an entry in the prepare namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncWrite {
    /// A SyncWrite that was neither committed nor aborted when it was written.
    Pending {
        /// The level that the client requested.
        level: DurabilityLevel,
        /// `true` for a SyncDelete.
        is_delete: bool,
    },
    /// A commit of early releases. Today's commits are ordinary entries under the committed key.
    LegacyCommit {
        /// The seqno of the prepare that it completes.
        prepare: Seqno,
    },
    /// The abort of a SyncWrite.
    Abort {
        /// The seqno of the prepare that it completes.
        prepare: Seqno,
    },
}

/// Encoded metadata, on the stack.
#[derive(Debug, Clone, Copy)]
pub struct RevMetaBytes {
    bytes: [u8; V3_BYTES],
    len: u8,
}

impl RevMetaBytes {
    /// Returns the bytes as in the file.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl AsRef<[u8]> for RevMetaBytes {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl RevMeta {
    /// Decodes metadata of version 1, 2 or 3.
    ///
    /// # Errors
    /// [`KvError`] for another length, an undefined bit of the datatype, or an unknown operation or level.
    pub fn decode(bytes: &[u8]) -> Result<Self, KvError> {
        let sync_write = match bytes.len() {
            V1_BYTES | V2_BYTES => None,
            V3_BYTES => Some(SyncWrite::decode(bytes[18], u48(&bytes[19..25]))?),
            V0_BYTES => return Err(KvError::RevMetaVersion0),
            found => return Err(KvError::RevMetaLength { found }),
        };
        let mut cas = [0; 8];
        cas.copy_from_slice(&bytes[0..8]);
        let mut exptime = [0; 4];
        exptime.copy_from_slice(&bytes[8..12]);
        let mut flags = [0; 4];
        flags.copy_from_slice(&bytes[12..16]);
        let datatype = bytes[17];
        Ok(Self {
            cas: Cas(u64::from_be_bytes(cas)),
            exptime: u32::from_be_bytes(exptime),
            flags,
            delete_source: if bytes[16] & DELETED_BY_TTL == 0 {
                DeleteSource::Explicit
            } else {
                DeleteSource::Ttl
            },
            datatype: Datatype::from_bits(datatype).ok_or(KvError::Datatype { found: datatype })?,
            sync_write,
        })
    }

    /// Encodes version 1, or version 3 if there is a [`SyncWrite`].
    ///
    /// # Panics
    /// Panics if a prepare's seqno does not fit into 48 bits. No document of a couchstore file has such a seqno.
    #[must_use]
    pub fn encode(&self) -> RevMetaBytes {
        let mut bytes = [0; V3_BYTES];
        bytes[0..8].copy_from_slice(&self.cas.get().to_be_bytes());
        bytes[8..12].copy_from_slice(&self.exptime.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.flags);
        bytes[16] = match self.delete_source {
            DeleteSource::Explicit => FLEX_CODE,
            DeleteSource::Ttl => FLEX_CODE | DELETED_BY_TTL,
        };
        bytes[17] = self.datatype.bits();
        let Some(sync_write) = self.sync_write else {
            return RevMetaBytes {
                bytes,
                len: V1_BYTES as u8,
            };
        };
        let (operation, details) = sync_write.encode();
        assert!(details <= U48_MAX, "a prepare's seqno fits 48 bits");
        bytes[18] = operation;
        bytes[19..25].copy_from_slice(&details.to_be_bytes()[2..]);
        RevMetaBytes {
            bytes,
            len: V3_BYTES as u8,
        }
    }
}

impl SyncWrite {
    fn decode(operation: u8, details: u64) -> Result<Self, KvError> {
        match operation {
            PENDING => {
                let level = details >> 1;
                let known = u8::try_from(level)
                    .ok()
                    .and_then(DurabilityLevel::from_wire);
                Ok(Self::Pending {
                    level: known.ok_or(KvError::DurabilityLevel { found: level })?,
                    is_delete: details & 1 != 0,
                })
            }
            LEGACY_COMMIT => Ok(Self::LegacyCommit {
                prepare: Seqno(details),
            }),
            ABORT => Ok(Self::Abort {
                prepare: Seqno(details),
            }),
            found => Err(KvError::SyncWriteOperation { found }),
        }
    }

    fn encode(self) -> (u8, u64) {
        match self {
            Self::Pending { level, is_delete } => {
                (PENDING, u64::from(level as u8) << 1 | u64::from(is_delete))
            }
            Self::LegacyCommit { prepare } => (LEGACY_COMMIT, prepare.get()),
            Self::Abort { prepare } => (ABORT, prepare.get()),
        }
    }
}

fn u48(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |number, &byte| number << 8 | u64::from(byte))
}
