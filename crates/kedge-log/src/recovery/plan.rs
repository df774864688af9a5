//! The contents of a log's directory, and the order in which recovery reads them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kedge_disk::Disk;

use crate::catalog::SegmentRange;
use crate::format::{
    InvalidSegmentHeader, PAGE_BYTES, SEGMENT_HEADER_BYTES, SegmentHeader, VERSION_MAX,
};
use crate::key_use::may_have_plain_text;
use crate::keys::SegmentKeys;
use crate::pool::{SegmentFiles, SpareSegment};
use crate::seal::SegmentSecret;
use crate::segment::{FileName, Segment};
use crate::{CorruptionKind, LogConfig, LogError, Lsn, RecoveryMode};

/// Files of a log.
#[derive(Debug, Default)]
pub(super) struct DirectoryFiles {
    /// Numbers in ascending order.
    pub(super) segments: Vec<u64>,
    pub(super) spares: Vec<SpareSegment>,
}

/// Reads the directory of a log with a rounded `config`, creating it if necessary, and removes unfinished files of a
/// crash.
pub(super) fn read_directory(
    disk: &dyn Disk,
    dir: &Path,
    config: &LogConfig,
) -> Result<DirectoryFiles, LogError> {
    disk.create_dir_all(dir)?;
    let mut files = DirectoryFiles::default();
    let is_encrypted = config.keys.active().is_some();
    for name in disk.list(dir)? {
        let path = dir.join(&name);
        match FileName::parse(&name) {
            Some(FileName::Segment(number)) => files.segments.push(number),
            // A file that remains only takes space: its name is reused, or the next open removes it.
            Some(FileName::Unfinished(_)) => drop(disk.remove(&path)),
            Some(FileName::Spare(number)) => {
                let bytes = disk.len(&path)?;
                // In a plain log nobody asks, and the spare need not be read.
                let has_plain_text = !is_encrypted || may_have_plain_text(disk, &path);
                let is_kept = files.spares.len() < config.max_spares
                    && bytes <= config.segment_bytes
                    && bytes > SEGMENT_HEADER_BYTES
                    && bytes.is_multiple_of(PAGE_BYTES)
                    && !(is_encrypted && has_plain_text);
                if is_kept {
                    files.spares.push(SpareSegment {
                        number,
                        bytes,
                        has_plain_text,
                    });
                } else {
                    drop(disk.remove(&path));
                }
            }
            None => {}
        }
    }
    files.segments.sort_unstable();
    // A process that was killed between a rename and this sync leaves a name that is not durable. No batch may be
    // acknowledged in such a segment, and no such spare may be overwritten.
    disk.sync_dir(dir)?;
    Ok(files)
}

/// The end of the batches of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SegmentEnd {
    /// The start of the next segment.
    At(Lsn),
    /// Unknown, because the next segment is lost.
    Unknown,
    /// The end of the log, which is still to be found.
    Tail,
}

/// A segment to read.
#[derive(Debug, Clone)]
pub(super) struct PlannedSegment {
    pub(super) segment: Segment,
    pub(super) file_bytes: u64,
    pub(super) epoch: u64,
    pub(super) end: SegmentEnd,
}

/// A segment that is missing or not completely readable.
#[derive(Debug)]
pub(super) struct LostSegment {
    pub(super) file: PathBuf,
    pub(super) offset: u64,
    pub(super) problem: CorruptionKind,
    /// Start of the next sound segment, or `None` at the end of the log.
    before: Option<Lsn>,
    /// `true` if nothing of it can be read.
    is_whole: bool,
}

impl LostSegment {
    fn missing(file: PathBuf, before: Option<Lsn>) -> Self {
        Self {
            file,
            offset: 0,
            problem: CorruptionKind::MissingSegment,
            before,
            is_whole: true,
        }
    }

    fn into_error(self) -> LogError {
        LogError::Corrupt {
            file: self.file,
            offset: self.offset,
            problem: self.problem,
        }
    }
}

/// The segments of a log, in order.
#[derive(Debug)]
pub(super) struct RecoveryPlan {
    pub(super) segments: Vec<PlannedSegment>,
    pub(super) lost: Vec<LostSegment>,
    /// All files, including unreadable ones, which are released in their turn.
    pub(super) files: Vec<Segment>,
    /// The position up to which an earlier salvage has accepted damage.
    pub(super) forgiven: Lsn,
    /// `true` if a segment is lost that no earlier salvage has accepted.
    pub(super) has_new_losses: bool,
    /// `true` if the header of the last file is lost.
    pub(super) is_tail_lost: bool,
    /// Number of missing segments after the last file.
    pub(super) missing_at_end: u64,
}

/// A file as the first pass finds it.
struct FoundSegment {
    number: u64,
    file_bytes: u64,
    header: Option<SegmentHeader>,
    /// The secret of an encrypted segment with a sound header.
    secret: Option<Arc<SegmentSecret>>,
}

impl FoundSegment {
    fn base(&self) -> Option<Lsn> {
        self.header.as_ref().map(|header| header.base)
    }
}

/// Reads all headers, and checks that they form one sequence, that all `known` segments exist and that their keys do. It
/// does not read batches.
pub(super) fn plan(
    shared: &SegmentFiles,
    owner: [u8; 16],
    mode: RecoveryMode,
    numbers: &[u64],
    known: Option<SegmentRange>,
) -> Result<RecoveryPlan, LogError> {
    let SegmentFiles {
        disk, dir, config, ..
    } = shared;
    let mut found = Vec::with_capacity(numbers.len());
    for &number in numbers {
        let path = segment_path(dir, number);
        let mut file = read_header(&**disk, &path, number, owner, mode)?;
        if let Some(header) = &file.header {
            file.secret = secret_of(&*config.keys, &path, header)?;
        }
        found.push(file);
    }
    check_headers(dir, &found)?;
    let missing_at_end = missing_at_end(&found, known);
    let forgiven = found
        .iter()
        .filter_map(|file| Some(file.header.as_ref()?.forgiven))
        .max();
    let mut segments = planned(&found);
    if let Some(planned) = segments.last_mut().filter(|_| missing_at_end > 0)
        && planned.end == SegmentEnd::Tail
    {
        planned.end = SegmentEnd::Unknown;
    }
    let plan = RecoveryPlan {
        segments,
        files: files(&found),
        has_new_losses: false,
        lost: losses(dir, &found, known),
        forgiven: forgiven.unwrap_or_default(),
        is_tail_lost: found.last().is_some_and(|file| file.header.is_none()),
        missing_at_end,
    };
    judge(plan, mode)
}

fn segment_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(FileName::Segment(number).to_string())
}

/// Returns the start of the first file with a sound header.
fn first_base(found: &[FoundSegment]) -> Option<Lsn> {
    found.iter().find_map(FoundSegment::base)
}

/// Returns the number of segments after the last file that must exist.
fn missing_at_end(found: &[FoundSegment], known: Option<SegmentRange>) -> u64 {
    let last = found.last().map_or(0, |file| file.number);
    known.map_or(0, |known| known.last.saturating_sub(last))
}

/// Checks that headers have the numbers of their files, and that no segment starts before the preceding one.
fn check_headers(dir: &Path, found: &[FoundSegment]) -> Result<(), LogError> {
    let mut last_base = Lsn(0);
    for file in found {
        let Some(header) = &file.header else { continue };
        if header.number != file.number {
            let path = segment_path(dir, file.number);
            return Err(corrupt(path, CorruptionKind::SegmentNumber));
        }
        if header.base < last_base {
            let path = segment_path(dir, file.number);
            return Err(corrupt(path, CorruptionKind::SegmentStart));
        }
        last_base = header.base;
    }
    Ok(())
}

/// Lists the segments that are missing, have no sound header, or are shorter than their headers state, in log order.
fn losses(dir: &Path, found: &[FoundSegment], known: Option<SegmentRange>) -> Vec<LostSegment> {
    let path = |number| segment_path(dir, number);
    let mut lost = Vec::new();
    let first = found.first().map_or(0, |file| file.number);
    if let Some(known) = known.filter(|known| known.first < first) {
        lost.push(LostSegment::missing(path(known.first), first_base(found)));
    }
    let mut expected = first;
    for (index, file) in found.iter().enumerate() {
        let before = first_base(&found[index..]);
        if file.number != expected {
            lost.push(LostSegment::missing(path(expected), before));
        }
        expected = file.number + 1;
        match &file.header {
            None => lost.push(LostSegment {
                file: path(file.number),
                offset: 0,
                problem: CorruptionKind::SegmentHeader,
                before,
                is_whole: true,
            }),
            Some(header) if file.file_bytes < header.bytes => lost.push(LostSegment {
                file: path(file.number),
                offset: file.file_bytes,
                problem: CorruptionKind::SegmentLength,
                before: first_base(&found[index + 1..]),
                is_whole: false,
            }),
            Some(_) => {}
        }
    }
    if missing_at_end(found, known) > 0 {
        let last = found.last().map_or(0, |file| file.number);
        lost.push(LostSegment::missing(path(last + 1), None));
    }
    lost
}

/// Rejects losses that the mode and earlier salvages do not allow.
fn judge(mut plan: RecoveryPlan, mode: RecoveryMode) -> Result<RecoveryPlan, LogError> {
    let forgiven = plan.forgiven;
    let is_new = |lost: &LostSegment| lost.before.is_none_or(|before| before > forgiven);
    if let Some(at) = plan.lost.iter().position(is_new) {
        if mode == RecoveryMode::Strict || plan.segments.is_empty() {
            return Err(plan.lost.swap_remove(at).into_error());
        }
        plan.has_new_losses = true;
    }
    Ok(plan)
}

/// Returns all files with the positions that matter for their release. A file without a header has no positions of its
/// own, so it is released with the one before it.
fn files(found: &[FoundSegment]) -> Vec<Segment> {
    let segment = |(index, file): (usize, &FoundSegment)| {
        // A truncated file must not be recycled as if it had its full length.
        let header = file.header.as_ref();
        let bytes = header.map_or(file.file_bytes, |h| h.bytes.min(file.file_bytes));
        Segment {
            number: file.number,
            base: first_base(&found[index..]).unwrap_or_default(),
            bytes,
            salt: header.map_or(0, |header| header.salt),
            secret: file.secret.clone(),
        }
    };
    found.iter().enumerate().map(segment).collect()
}

fn planned(found: &[FoundSegment]) -> Vec<PlannedSegment> {
    let mut segments = Vec::with_capacity(found.len());
    for (index, file) in found.iter().enumerate() {
        let Some(header) = &file.header else { continue };
        let end = match found.get(index + 1) {
            None => SegmentEnd::Tail,
            Some(next) if next.number == file.number + 1 => {
                next.base().map_or(SegmentEnd::Unknown, SegmentEnd::At)
            }
            Some(_) => SegmentEnd::Unknown,
        };
        segments.push(PlannedSegment {
            segment: Segment {
                number: header.number,
                base: header.base,
                bytes: header.bytes,
                salt: header.salt,
                secret: file.secret.clone(),
            },
            file_bytes: file.file_bytes,
            epoch: header.epoch,
            end,
        });
    }
    segments
}

fn read_header(
    disk: &dyn Disk,
    path: &Path,
    number: u64,
    owner: [u8; 16],
    mode: RecoveryMode,
) -> Result<FoundSegment, LogError> {
    let file = disk.open(path)?;
    let file_bytes = file.len()?;
    let mut page = vec![0; file_bytes.min(SEGMENT_HEADER_BYTES) as usize];
    match file.read_at(&mut page, 0) {
        Err(_) if mode == RecoveryMode::Salvage => page.clear(),
        result => result?,
    }
    let header = match SegmentHeader::decode(&page) {
        Ok(header) if header.owner != owner => {
            return Err(LogError::WrongOwner {
                file: path.to_owned(),
            });
        }
        Ok(header) => Some(header),
        Err(InvalidSegmentHeader::Version(version)) if version > VERSION_MAX => {
            return Err(LogError::UnsupportedVersion {
                file: path.to_owned(),
                version,
            });
        }
        Err(_) => None,
    };
    Ok(FoundSegment {
        number,
        file_bytes,
        header,
        secret: None,
    })
}

/// Derives the secret of an encrypted segment. A key that is missing or another one is an error in every mode: a segment
/// that cannot be read for that reason must not be taken for a damaged one.
fn secret_of(
    keys: &dyn SegmentKeys,
    path: &Path,
    header: &SegmentHeader,
) -> Result<Option<Arc<SegmentSecret>>, LogError> {
    let Some(encryption) = &header.encryption else {
        return Ok(None);
    };
    let (file, key_id) = (path.to_owned(), encryption.key_id.clone());
    let Some(key) = keys.find(&key_id) else {
        return Err(LogError::MissingKey { file, key_id });
    };
    let secret = SegmentSecret::derive(&key, encryption.salt);
    if key.id() != key_id || !secret.is_proof(header, &encryption.proof) {
        return Err(LogError::WrongKey { file, key_id });
    }
    Ok(Some(Arc::new(secret)))
}

fn corrupt(file: PathBuf, problem: CorruptionKind) -> LogError {
    LogError::Corrupt {
        file,
        offset: 0,
        problem,
    }
}

impl LostSegment {
    /// Returns `true` if the file as a whole counts as one damaged range of the report.
    pub(super) fn is_whole(&self) -> bool {
        self.is_whole
    }
}
