//! The keys that the segments of a log need.

use std::collections::BTreeSet;
use std::path::Path;

use kedge_disk::Disk;

use crate::LogError;
use crate::format::{InvalidSegmentHeader, SEGMENT_HEADER_BYTES, SegmentHeader, VERSION_MAX};
use crate::segment::FileName;

/// The keys that the segments of a log are encrypted with. All others are not needed by that log any more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentKeyUse {
    /// The ids of the keys.
    pub key_ids: BTreeSet<String>,
    /// `true` if there are plain segments, too.
    pub has_plain_segments: bool,
}

impl SegmentKeyUse {
    /// Adds a segment that is encrypted with a key, or plain.
    pub(crate) fn note(&mut self, key_id: Option<&str>) {
        match key_id {
            Some(id) if self.key_ids.contains(id) => {}
            Some(id) => drop(self.key_ids.insert(id.to_owned())),
            None => self.has_plain_segments = true,
        }
    }

    /// Reads the headers of all segments in `dir`.
    pub(crate) fn read(disk: &dyn Disk, dir: &Path) -> Result<Self, LogError> {
        let mut keys = Self::default();
        if !disk.exists(dir)? {
            return Ok(keys);
        }
        for name in disk.list(dir)? {
            if !matches!(FileName::parse(&name), Some(FileName::Segment(_))) {
                continue;
            }
            let path = dir.join(name);
            match SegmentHeader::decode(&first_page(disk, &path)?) {
                Ok(header) => keys.note(header.encryption.map(|it| it.key_id).as_deref()),
                Err(InvalidSegmentHeader::Version(version)) if version > VERSION_MAX => {
                    let file = path;
                    return Err(LogError::UnsupportedVersion { file, version });
                }
                Err(_) => keys.note(None),
            }
        }
        Ok(keys)
    }
}

/// Returns `true` if the file, which is not in the sequence, may contain batches of a plain segment.
pub(crate) fn may_have_plain_text(disk: &dyn Disk, path: &Path) -> bool {
    // Every segment has its header before its first batch, and only files without plain text become encrypted ones.
    first_page(disk, path).map_or(true, |page| {
        let is_encrypted = SegmentHeader::decode(&page).is_ok_and(|it| it.encryption.is_some());
        !is_encrypted && page.iter().any(|byte| *byte != 0)
    })
}

fn first_page(disk: &dyn Disk, path: &Path) -> Result<Vec<u8>, LogError> {
    let file = disk.open(path)?;
    let mut page = vec![0; file.len()?.min(SEGMENT_HEADER_BYTES) as usize];
    file.read_at(&mut page, 0)?;
    Ok(page)
}
