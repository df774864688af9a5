//! Segment files: their names, and their insertion into the sequence.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use kedge_disk::{Disk, File};

use crate::format::{
    BATCH_HEADER_BYTES, PAGE_BYTES, SEALED_BATCH_HEADER_BYTES, SEGMENT_HEADER_BYTES, SegmentHeader,
};
use crate::seal::SegmentSecret;
use crate::{LogError, Lsn};

/// The names of files in the directory of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileName {
    /// A segment, by its number in the sequence.
    Segment(u64),
    /// A file of allocated blocks, ready to become a segment. Its contents are meaningless.
    Spare(u64),
    /// A file under construction. At an open it is left over from a crash.
    Unfinished(u64),
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileName::Segment(number) => write!(f, "{number:020}.log"),
            FileName::Spare(number) => write!(f, "spare-{number:020}"),
            FileName::Unfinished(number) => write!(f, "unfinished-{number:020}"),
        }
    }
}

impl FileName {
    /// Parses a name. Returns `None` for files that do not belong to the log.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let parsed = if let Some(number) = name.strip_prefix("spare-") {
            FileName::Spare(number.parse().ok()?)
        } else if let Some(number) = name.strip_prefix("unfinished-") {
            FileName::Unfinished(number.parse().ok()?)
        } else {
            FileName::Segment(name.strip_suffix(".log")?.parse().ok()?)
        };
        // Only the exact spelling counts: "1.log" is not a file of the log.
        (parsed.to_string() == name).then_some(parsed)
    }
}

/// A segment in the sequence.
#[derive(Debug, Clone)]
pub(crate) struct Segment {
    pub(crate) number: u64,
    /// Position of its first batch.
    pub(crate) base: Lsn,
    /// Length of the file, in bytes.
    pub(crate) bytes: u64,
    /// The salt of the checksums of its batch headers.
    pub(crate) salt: u64,
    /// The secret of an encrypted segment.
    pub(crate) secret: Option<Arc<SegmentSecret>>,
}

impl Segment {
    /// Returns the size of the headers of its batches.
    pub(crate) fn batch_header_bytes(&self) -> u64 {
        match self.secret {
            Some(_) => SEALED_BATCH_HEADER_BYTES as u64,
            None => BATCH_HEADER_BYTES as u64,
        }
    }

    /// Returns the id of the key that it is encrypted with.
    pub(crate) fn key_id(&self) -> Option<&str> {
        self.secret.as_ref().map(|secret| secret.key_id())
    }

    /// Returns the offset of position `lsn` in the file.
    pub(crate) fn offset(&self, lsn: Lsn) -> u64 {
        SEGMENT_HEADER_BYTES + (lsn.0 - self.base.0)
    }

    /// Returns the position after the last byte of the file.
    pub(crate) fn capacity_end(&self) -> Lsn {
        Lsn(self.base.0 + self.bytes - SEGMENT_HEADER_BYTES)
    }
}

/// Returns the length of a segment file with room for batches of `batch_bytes`, at least `wanted`.
pub(crate) fn segment_bytes_for(batch_bytes: u64, wanted: u64) -> u64 {
    wanted
        .max(SEGMENT_HEADER_BYTES + batch_bytes)
        .max(2 * PAGE_BYTES)
        .next_multiple_of(PAGE_BYTES)
}

/// Creates a preallocated file outside of the sequence.
pub(crate) fn allocate_file(
    disk: &dyn Disk,
    path: &Path,
    bytes: u64,
) -> Result<Box<dyn File>, LogError> {
    let file = disk.create(path)?;
    if let Err(error) = file.allocate(bytes) {
        // Others need the space. If the file cannot be removed now, the next open removes it.
        drop(disk.remove(path));
        return Err(error.into());
    }
    Ok(file)
}

/// Writes the header of a file and inserts it into the sequence.
///
/// The order makes a named segment trustworthy: header, sync, name, sync of the directory, and only then the first
/// batch.
pub(crate) fn enter_sequence(
    disk: &dyn Disk,
    dir: &Path,
    from: FileName,
    file: &dyn File,
    header: &SegmentHeader,
) -> Result<(), LogError> {
    // The file is not in the sequence yet, so a partly written header does no harm.
    let written = file.write_at(&header.encode(), 0);
    written.map_err(|error| match LogError::from(error) {
        LogError::Io(error) => LogError::Refused(error),
        other => other,
    })?;
    file.sync_all()?;
    let name = FileName::Segment(header.number).to_string();
    disk.rename(&dir.join(from.to_string()), &dir.join(name))?;
    disk.sync_dir(dir)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::FileName;

    #[test]
    fn file_names_round_trip_and_other_spellings_are_rejected() {
        for name in [
            FileName::Segment(1),
            FileName::Spare(u64::MAX),
            FileName::Unfinished(0),
        ] {
            assert_eq!(FileName::parse(&name.to_string()), Some(name));
        }
        for other in [
            "1.log",
            "LOCK",
            "spare-1",
            "0000000000000000000x.log",
            ".log",
            "spare-",
        ] {
            assert_eq!(FileName::parse(other), None, "{other}");
        }
    }
}
