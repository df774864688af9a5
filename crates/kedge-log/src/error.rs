//! What can go wrong, told apart by what the caller can do.

use std::fmt;
use std::path::PathBuf;

use kedge_disk::DiskError;

/// An operation on the log that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The disk is full. Nothing was acknowledged and the log stays usable: the same batch can be
    /// appended again when there is room.
    #[error("no space for the commit log: {0}")]
    NoSpace(#[source] DiskError),
    /// The system refused a file, a name or a length: no descriptors are left, say, or the directory may not be written
    /// to. Nothing was acknowledged and the log stays usable: the same batch can be appended again later.
    #[error("the commit log gets no file from the system: {0}")]
    Refused(#[source] DiskError),
    /// A sync failed: what it covered may be lost even if a later sync succeeds. The process has to
    /// end; the next open reads what is really on the disk.
    #[error("a sync of the commit log failed, what is durable is unknown: {0}")]
    SyncFailed(#[source] DiskError),
    /// Another operation of the disk failed. A log that was open refuses everything after it.
    #[error("the commit log cannot be read or written: {0}")]
    Io(#[source] DiskError),
    /// An earlier operation failed, so the log refuses this one.
    #[error("the commit log is closed by an earlier error")]
    PreviousIo,
    /// Something that was durable is not there any more or not the same.
    #[error("the commit log is damaged: {} at byte {offset}: {problem}", file.display())]
    Corrupt {
        /// The segment file.
        file: PathBuf,
        /// Where in the file, in bytes.
        offset: u64,
        /// What was expected and not found.
        problem: Problem,
    },
    /// The segment belongs to another bucket, or another life of this one.
    #[error("{} belongs to the log of another owner", file.display())]
    WrongOwner {
        /// The segment file.
        file: PathBuf,
    },
    /// The segment was written by a newer version of the format.
    #[error("{} has format version {version}, only 1 is known", file.display())]
    UnsupportedVersion {
        /// The segment file.
        file: PathBuf,
        /// The version it states.
        version: u32,
    },
    /// The payload of one record is above [`crate::MAX_PAYLOAD_BYTES`].
    #[error("a record of {bytes} bytes is too large for the commit log")]
    RecordTooLarge {
        /// Its length.
        bytes: u64,
    },
}

impl LogError {
    /// Returns whether the disk was full. See [`LogError::is_passing`].
    pub fn is_no_space(&self) -> bool {
        matches!(self, LogError::NoSpace(_))
    }

    /// Returns whether the same call may succeed later, without anything lost.
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

/// What a damaged place should have contained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// Neither copy of the segment's header has its magic, a right checksum and sound fields.
    SegmentHeader,
    /// The header is that of a segment of another number.
    SegmentNumber,
    /// A segment that was there does not exist.
    MissingSegment,
    /// The segment does not start where the one before it ended.
    SegmentStart,
    /// The file is shorter than its header says.
    SegmentLength,
    /// No header of a batch, though a later one proves that there was one.
    BatchHeader,
    /// The batch's header is sound, but the batch reaches beyond the end of the segment.
    BatchLength,
    /// A record's length reaches beyond its batch, or the records do not fill it.
    RecordLength,
    /// A record's checksum does not match.
    RecordChecksum,
    /// The records are sound each, but not those that the batch's header was written for.
    BatchDigest,
    /// An epoch, a position or a number of a segment is so large that none could follow it.
    Counts,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Problem::SegmentHeader => "expected a segment header, found none that is sound",
            Problem::SegmentNumber => "expected the header of this segment, found another's",
            Problem::MissingSegment => {
                "expected this segment, it does not exist; put it back, or skip it with --recover salvage"
            }
            Problem::SegmentStart => "expected the segment to start where the one before it ended",
            Problem::SegmentLength => "expected more of the segment, the file ends",
            Problem::BatchHeader => "expected a batch header, found none that is sound",
            Problem::BatchLength => "expected the batch to end within its segment",
            Problem::RecordLength => "expected the records to fill their batch exactly",
            Problem::RecordChecksum => "expected another checksum of a record",
            Problem::BatchDigest => "expected other records in the batch",
            Problem::Counts => "expected an epoch, positions and a number that others can follow",
        })
    }
}
