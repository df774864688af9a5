//! What is in the directory of a log, and in which order it has to be read.

use std::path::{Path, PathBuf};

use kedge_disk::Disk;

use crate::catalog::Range;
use crate::format::{NotAHeader, PAGE_BYTES, SEGMENT_HEADER_BYTES, SegmentHeader, VERSION};
use crate::pool::Spare;
use crate::segment::{FileName, Segment};
use crate::{LogConfig, LogError, Lsn, Problem, RecoveryMode};

/// Files of a log.
#[derive(Debug, Default)]
pub(super) struct Files {
    /// Numbers, ascending.
    pub(super) segments: Vec<u64>,
    pub(super) spares: Vec<Spare>,
}

/// Reads the directory of a log with a rounded `config`, making it if there is none, and removes what a crash left unfinished.
pub(super) fn read_directory(
    disk: &dyn Disk,
    dir: &Path,
    config: &LogConfig,
) -> Result<Files, LogError> {
    disk.create_dir_all(dir)?;
    let mut files = Files::default();
    for name in disk.list(dir)? {
        let path = dir.join(&name);
        match FileName::parse(&name) {
            Some(FileName::Segment(number)) => files.segments.push(number),
            // One that stays takes space, and no more: its name is used again, or the next open removes it.
            Some(FileName::Unfinished(_)) => drop(disk.remove(&path)),
            Some(FileName::Spare(number)) => {
                let bytes = disk.len(&path)?;
                let is_kept = files.spares.len() < config.max_spares
                    && bytes <= config.segment_bytes
                    && bytes > SEGMENT_HEADER_BYTES
                    && bytes.is_multiple_of(PAGE_BYTES);
                if is_kept {
                    files.spares.push(Spare { number, bytes });
                } else {
                    drop(disk.remove(&path));
                }
            }
            None => {}
        }
    }
    files.segments.sort_unstable();
    // A process that was killed between a rename and this sync leaves names that are not durable
    // yet: neither may a batch be acknowledged in such a segment, nor such a spare be overwritten.
    disk.sync_dir(dir)?;
    Ok(files)
}

/// Where the batches of a segment end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Where the next segment starts.
    At(Lsn),
    /// Not known, as the next segment is lost.
    Unknown,
    /// Where the log ends: to be found.
    Tail,
}

/// A segment to be read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Planned {
    pub(super) segment: Segment,
    pub(super) file_bytes: u64,
    pub(super) epoch: u64,
    pub(super) end: End,
}

/// A segment that cannot be read as a whole, or is not there.
#[derive(Debug)]
pub(super) struct Lost {
    pub(super) file: PathBuf,
    pub(super) offset: u64,
    pub(super) problem: Problem,
    /// Start of the next segment that is sound; `None` at the end of the log.
    before: Option<Lsn>,
    /// Whether nothing of it can be read.
    is_whole: bool,
}

impl Lost {
    fn missing(file: PathBuf, before: Option<Lsn>) -> Self {
        Self {
            file,
            offset: 0,
            problem: Problem::MissingSegment,
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
pub(super) struct Plan {
    pub(super) segments: Vec<Planned>,
    pub(super) lost: Vec<Lost>,
    /// All files, also those that cannot be read: they are released in their turn.
    pub(super) files: Vec<Segment>,
    /// Damage below this was accepted by an earlier salvage.
    pub(super) forgiven: Lsn,
    /// Whether a segment is lost that no earlier salvage knew of.
    pub(super) has_new_losses: bool,
    /// Whether the last file's header is lost.
    pub(super) is_tail_lost: bool,
    /// Segments behind the last file that were there.
    pub(super) missing_at_end: u64,
}

/// One file as pass one sees it.
struct Found {
    number: u64,
    file_bytes: u64,
    header: Option<SegmentHeader>,
}

/// Reads all headers and checks that they are one sequence, and all that is `known` to have been there. Batches are not
/// looked at.
pub(super) fn plan(
    disk: &dyn Disk,
    dir: &Path,
    owner: [u8; 16],
    mode: RecoveryMode,
    numbers: &[u64],
    known: Option<Range>,
) -> Result<Plan, LogError> {
    let mut found = Vec::with_capacity(numbers.len());
    for &number in numbers {
        let path = segment_path(dir, number);
        found.push(read_header(disk, &path, number, owner, mode)?);
    }
    check_headers(dir, &found)?;
    let missing_at_end = missing_at_end(&found, known);
    let forgiven = found
        .iter()
        .filter_map(|file| Some(file.header?.forgiven))
        .max();
    let mut segments = planned(&found);
    if let Some(planned) = segments.last_mut().filter(|_| missing_at_end > 0)
        && planned.end == End::Tail
    {
        planned.end = End::Unknown;
    }
    let plan = Plan {
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

/// The start of the first file with a sound header.
fn first_base(found: &[Found]) -> Option<Lsn> {
    found.iter().find_map(|file| Some(file.header?.base))
}

/// The number of segments behind the last file that are known to have been there.
fn missing_at_end(found: &[Found], known: Option<Range>) -> u64 {
    let last = found.last().map_or(0, |file| file.number);
    known.map_or(0, |known| known.last.saturating_sub(last))
}

/// Checks that headers have the numbers of their files, and that no segment starts before the one in front of it.
fn check_headers(dir: &Path, found: &[Found]) -> Result<(), LogError> {
    let mut last_base = Lsn(0);
    for file in found {
        let Some(header) = file.header else { continue };
        if header.number != file.number {
            let path = segment_path(dir, file.number);
            return Err(corrupt(path, Problem::SegmentNumber));
        }
        if header.base < last_base {
            let path = segment_path(dir, file.number);
            return Err(corrupt(path, Problem::SegmentStart));
        }
        last_base = header.base;
    }
    Ok(())
}

/// Lists the segments that are missing, have no sound header, or are shorter than their headers say, in the order of the
/// log.
fn losses(dir: &Path, found: &[Found], known: Option<Range>) -> Vec<Lost> {
    let path = |number| segment_path(dir, number);
    let mut lost = Vec::new();
    let first = found.first().map_or(0, |file| file.number);
    if let Some(known) = known.filter(|known| known.first < first) {
        lost.push(Lost::missing(path(known.first), first_base(found)));
    }
    let mut expected = first;
    for (index, file) in found.iter().enumerate() {
        let before = first_base(&found[index..]);
        if file.number != expected {
            lost.push(Lost::missing(path(expected), before));
        }
        expected = file.number + 1;
        match file.header {
            None => lost.push(Lost {
                file: path(file.number),
                offset: 0,
                problem: Problem::SegmentHeader,
                before,
                is_whole: true,
            }),
            Some(header) if file.file_bytes < header.bytes => lost.push(Lost {
                file: path(file.number),
                offset: file.file_bytes,
                problem: Problem::SegmentLength,
                before: first_base(&found[index + 1..]),
                is_whole: false,
            }),
            Some(_) => {}
        }
    }
    if missing_at_end(found, known) > 0 {
        let last = found.last().map_or(0, |file| file.number);
        lost.push(Lost::missing(path(last + 1), None));
    }
    lost
}

/// Refuses losses that the mode and earlier salvages do not allow.
fn judge(mut plan: Plan, mode: RecoveryMode) -> Result<Plan, LogError> {
    let forgiven = plan.forgiven;
    let is_new = |lost: &Lost| lost.before.is_none_or(|before| before > forgiven);
    if let Some(at) = plan.lost.iter().position(is_new) {
        if mode == RecoveryMode::Strict || plan.segments.is_empty() {
            return Err(plan.lost.swap_remove(at).into_error());
        }
        plan.has_new_losses = true;
    }
    Ok(plan)
}

/// All files as far as releasing them is concerned. One without a header has the positions of
/// none, so it goes with the one before it.
fn files(found: &[Found]) -> Vec<Segment> {
    let segment = |(index, file): (usize, &Found)| {
        // A file that was cut must not be recycled as if it had its full length.
        let bytes = file
            .header
            .map_or(file.file_bytes, |h| h.bytes.min(file.file_bytes));
        Segment {
            number: file.number,
            base: first_base(&found[index..]).unwrap_or_default(),
            bytes,
            salt: file.header.map_or(0, |header| header.salt),
        }
    };
    found.iter().enumerate().map(segment).collect()
}

fn planned(found: &[Found]) -> Vec<Planned> {
    let mut segments = Vec::with_capacity(found.len());
    for (index, file) in found.iter().enumerate() {
        let Some(header) = file.header else { continue };
        let end = match found.get(index + 1) {
            None => End::Tail,
            Some(next) if next.number == file.number + 1 => {
                next.header.map_or(End::Unknown, |next| End::At(next.base))
            }
            Some(_) => End::Unknown,
        };
        segments.push(Planned {
            segment: Segment {
                number: header.number,
                base: header.base,
                bytes: header.bytes,
                salt: header.salt,
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
) -> Result<Found, LogError> {
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
        Err(NotAHeader::Version(version)) if version > VERSION => {
            return Err(LogError::UnsupportedVersion {
                file: path.to_owned(),
                version,
            });
        }
        Err(_) => None,
    };
    Ok(Found {
        number,
        file_bytes,
        header,
    })
}

fn corrupt(file: PathBuf, problem: Problem) -> LogError {
    LogError::Corrupt {
        file,
        offset: 0,
        problem,
    }
}

impl Lost {
    /// Whether the file as a whole counts as one damaged place of the report.
    pub(super) fn is_whole(&self) -> bool {
        self.is_whole
    }
}
