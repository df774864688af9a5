//! The errors of the log, by the reaction that they require.

use std::fmt;
use std::path::PathBuf;

use kedge_disk::DiskError;

/// A failed operation on the log.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The disk is full. Nothing was acknowledged, and the log stays usable: the caller may append the same batch again
    /// when there is space.
    #[error("no space for the commit log: {0}")]
    NoSpace(#[source] DiskError),
    /// The system refused a file, a name or a length, for example because of the limit of descriptors or missing
    /// permissions. Nothing was acknowledged, and the log stays usable: the caller may append the same batch again
    /// later.
    #[error("the operating system refused a file of the commit log: {0}")]
    Refused(#[source] DiskError),
    /// A sync failed. The data that it covered may be lost, even if a later sync succeeds. The process has to end; the
    /// next open reads the data that is on the disk.
    #[error("a sync of the commit log failed, so the durable state is unknown: {0}")]
    SyncFailed(#[source] DiskError),
    /// Another disk operation failed. An open log then rejects all further operations.
    #[error("the commit log cannot be read or written: {0}")]
    Io(#[source] DiskError),
    /// The log rejects the operation because an earlier one failed.
    #[error("the commit log is closed by an earlier error")]
    PreviousIo,
    /// Durable data is missing or has changed.
    #[error("the commit log is damaged: {} at byte {offset}: {problem}", file.display())]
    Corrupt {
        /// The segment file.
        file: PathBuf,
        /// The offset in the file, in bytes.
        offset: u64,
        /// The kind of the damage.
        problem: CorruptionKind,
    },
    /// The segment belongs to another bucket, or to an earlier bucket of the same name.
    #[error("{} belongs to the log of another owner", file.display())]
    WrongOwner {
        /// The segment file.
        file: PathBuf,
    },
    /// A segment or the catalog has a newer format version.
    #[error("{} has format version {version}, which this release does not read: use the release that wrote it", file.display())]
    UnsupportedVersion {
        /// The file.
        file: PathBuf,
        /// The version in its header.
        version: u32,
    },
    /// A segment is encrypted with a key that is not there. Nothing is wrong with the segment, and no recovery mode
    /// skips it.
    #[error("{} is encrypted with the key {key_id:?}, which is missing: restore the key", file.display())]
    MissingKey {
        /// The segment file.
        file: PathBuf,
        /// The id of the key.
        key_id: String,
    },
    /// A segment is encrypted with another key than the one with the id that its header states, or somebody without the
    /// key has changed its header. No recovery mode skips it.
    #[error("{} was not written with the present key {key_id:?}: restore the key that wrote it", file.display())]
    WrongKey {
        /// The segment file.
        file: PathBuf,
        /// The id of the key.
        key_id: String,
    },
    /// The payload of a record is larger than [`crate::MAX_PAYLOAD_BYTES`].
    #[error("a record of {bytes} bytes is too large for the commit log")]
    RecordTooLarge {
        /// The length of the payload, in bytes.
        bytes: u64,
    },
}

impl LogError {
    /// Returns `true` if the disk was full, see [`LogError::is_passing`].
    pub fn is_no_space(&self) -> bool {
        matches!(self, LogError::NoSpace(_))
    }

    /// Returns `true` if the same call may succeed later and no data was lost.
    pub fn is_passing(&self) -> bool {
        matches!(self, LogError::NoSpace(_) | LogError::Refused(_))
    }
}

impl From<DiskError> for LogError {
    fn from(error: DiskError) -> Self {
        if error.is_sync_failure() {
            LogError::SyncFailed(error)
        } else if error.is_no_space() {
            LogError::NoSpace(error)
        } else if error.is_refusal() {
            LogError::Refused(error)
        } else {
            LogError::Io(error)
        }
    }
}

/// The kind of damage of a log file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CorruptionKind {
    /// Neither copy of the segment's header has the magic, a correct checksum and valid fields.
    SegmentHeader,
    /// The header belongs to a segment with another number.
    SegmentNumber,
    /// A segment does not exist that must exist.
    MissingSegment,
    /// The segment does not start at the end of the one before it.
    SegmentStart,
    /// The file is shorter than its header states.
    SegmentLength,
    /// A batch header is missing, and a later one proves that there was one.
    BatchHeader,
    /// The batch header is sound, but the batch extends beyond the end of the segment.
    BatchLength,
    /// A record extends beyond its batch, or the records do not fill the batch.
    RecordLength,
    /// A record's checksum does not match.
    RecordChecksum,
    /// Each record is sound, but the records are not those of the batch's header.
    BatchDigest,
    /// The batch of an encrypted segment is not as it was when it was encrypted.
    BatchSeal,
    /// An epoch, a position or a segment number is too large to be followed by another.
    Counts,
}

impl fmt::Display for CorruptionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CorruptionKind::SegmentHeader => "expected a segment header, found none that is sound",
            CorruptionKind::SegmentNumber => "expected the header of this segment, found another's",
            CorruptionKind::MissingSegment => {
                "expected this segment, it does not exist; put it back, or skip it with --recover salvage"
            }
            CorruptionKind::SegmentStart => "expected the segment to start where the one before it ended",
            CorruptionKind::SegmentLength => "expected more of the segment, the file ends",
            CorruptionKind::BatchHeader => "expected a batch header, found none that is sound",
            CorruptionKind::BatchLength => "expected the batch to end within its segment",
            CorruptionKind::RecordLength => "expected the records to fill their batch exactly",
            CorruptionKind::RecordChecksum => "expected another checksum of a record",
            CorruptionKind::BatchDigest => "expected other records in the batch",
            CorruptionKind::BatchSeal => "expected the batch as it was encrypted",
            CorruptionKind::Counts => "expected an epoch, positions and a number that others can follow",
        })
    }
}
