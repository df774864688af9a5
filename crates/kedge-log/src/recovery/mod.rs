//! Opening a log: what a crash left is read, judged and made safe to continue.
//!
//! The steps, in an order that makes a crash at any of them harmless:
//! 1. Read the directory; remove unfinished files; sync it, so that all names found are durable.
//! 2. Read and check all segment headers ([`plan`]).
//! 3. Read all batches, in order, and give their records to the caller ([`scan`]).
//! 4. Write the last batch again, unchanged, and sync: it may be in the page cache only, and if a
//!    sync failed before, not even a sync would bring it to the disk.
//! 5. Append a mark of the new epoch: whatever lies behind it is older than everything to come.
//!
//! The last two write only over bytes that are the same or behind the tail, so running them again
//! after a crash in the middle finds the same records.

mod plan;
mod reader;
mod scan;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kedge_disk::Disk;

use crate::catalog::{Catalog, Found, Range};
use crate::format::{ALIGN, BATCH_HEADER_BYTES};
use crate::log::{Counters, Log};
use crate::pool::Shared;
use crate::segment::{FileName, Segment};
use crate::{LogConfig, LogError, Lsn, Problem, Record, RecoveryMode};

use plan::Plan;
use scan::{Scan, Scanned};

/// What is rewritten at once, in bytes.
const REWRITE_BYTES: u64 = 1 << 20;

/// No log comes so far as to count from here on; one that says so has no room for what is to come.
const COUNT_MAX: u64 = 1 << 62;

/// A place in a file of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub file: PathBuf,
    /// Where in it, in bytes.
    pub offset: u64,
}

/// What [`Log::open`] found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// There was no log, so an empty one was made.
    pub is_new: bool,
    /// Segments found.
    pub segments: u64,
    /// Bytes of sound batches.
    pub bytes: u64,
    /// Sound batches, with marks.
    pub batches: u64,
    /// Records given to the caller.
    pub records: u64,
    /// Oldest position that is kept. A caller that needs an older one has lost segments.
    pub first_lsn: Lsn,
    /// Where an append was begun that never finished, if it left a trace. Cut off; nothing that
    /// was acknowledged is concerned.
    pub torn_tail: Option<Place>,
    /// Damaged places that were skipped: all in the salvage mode, and in the strict mode those that
    /// an earlier salvage accepted.
    pub skipped_places: u64,
    /// Bytes of log that these took. What they contained is lost.
    pub skipped_bytes: u64,
    /// The first of these places.
    pub first_skipped: Option<Place>,
    /// Bytes that the medium did not give. Salvage mode only.
    pub unreadable_bytes: u64,
    /// The catalog, which says which segments have to be there, could not be understood, and was made anew: whether the
    /// newest or the oldest segments are missing is not known.
    pub is_catalog_damaged: bool,
}

/// See [`Log::open`].
pub(crate) fn open<E: From<LogError>>(
    disk: Arc<dyn Disk>,
    dir: &Path,
    owner: [u8; 16],
    config: LogConfig,
    mode: RecoveryMode,
    replay: &mut dyn FnMut(Record<'_>) -> Result<(), E>,
) -> Result<(Log, RecoveryReport), E> {
    let config = config.rounded();
    let files = plan::read_directory(&*disk, dir, &config)?;
    let (catalog, found) = Catalog::read(&*disk, dir).map_err(LogError::from)?;
    let known = match found {
        Found::Segments(range) => Some(range),
        Found::Nothing | Found::Damaged => None,
    };
    let shared = Arc::new(Shared::new(
        disk,
        dir.to_owned(),
        config,
        catalog,
        files.spares,
    ));
    let mut log = Log {
        shared: Arc::clone(&shared),
        owner,
        epoch: 1,
        current: Segment {
            number: 0,
            base: Lsn(0),
            bytes: 0,
            salt: 0,
        },
        file: None,
        sealed: std::collections::VecDeque::new(),
        next: Lsn(0),
        is_marked: true,
        has_failed: false,
        resume: None,
        counters: Counters::default(),
    };
    let is_catalog_damaged = found == Found::Damaged;
    if files.segments.is_empty() {
        let mut report = begin(&mut log, mode, known)?;
        if log.current.number > 0 {
            establish(&log, log.current.number)?;
        }
        report.is_catalog_damaged = is_catalog_damaged;
        return Ok((log, report));
    }
    let plan = plan::plan(&*shared.disk, dir, owner, mode, &files.segments, known)?;
    let mut scan = Scan::new(&*shared.disk, dir, mode, &plan, replay);
    for planned in &plan.segments {
        scan.segment(planned)?;
    }
    let mut scanned = scan.finish();
    scanned.report.segments = files.segments.len() as u64;
    let mut report = std::mem::take(&mut scanned.report);
    resume(&mut log, &plan, scanned)?;
    establish(&log, files.segments[0])?;
    report.is_catalog_damaged = is_catalog_damaged;
    Ok((log, report))
}

/// Begins a log in a directory without segments, where `known` ones may be missing.
fn begin(
    log: &mut Log,
    mode: RecoveryMode,
    known: Option<Range>,
) -> Result<RecoveryReport, LogError> {
    let mut report = RecoveryReport {
        is_new: known.is_none(),
        ..RecoveryReport::default()
    };
    if let Some(range) = known {
        let name = FileName::Segment(range.first).to_string();
        let (file, offset) = (log.shared.dir.join(name), 0);
        if mode == RecoveryMode::Strict {
            let problem = Problem::MissingSegment;
            return Err(LogError::Corrupt {
                file,
                offset,
                problem,
            });
        }
        report.skipped_places = 1;
        report.first_skipped = Some(Place { file, offset });
    }
    // Without room the first append tries again.
    if_passing(log.change_segment(0, Lsn(0)))?;
    Ok(report)
}

/// Has the catalog say which segments there are.
fn establish(log: &Log, first: u64) -> Result<(), LogError> {
    let last = log.current.number;
    let shared = &log.shared;
    let range = Range { first, last };
    Ok(shared.catalog.establish(&*shared.disk, range)?)
}

/// What has to be done at the end of a log before it is safe to append to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Resume {
    /// Batches from here on are written again.
    rewrite_from: Option<Lsn>,
    /// A segment begins that accepts the damage before it.
    forgives: bool,
}

/// Takes an error that may pass for nothing: what failed is tried again.
fn if_passing(result: Result<(), LogError>) -> Result<(), LogError> {
    match result {
        Err(error) if error.is_passing() => Ok(()),
        result => result,
    }
}

/// Makes the end of the log safe to append to, now or when that is possible.
fn resume(log: &mut Log, plan: &Plan, scanned: Scanned) -> Result<(), LogError> {
    log.sealed = plan.files.iter().copied().collect();
    if let Some(last) = log.sealed.pop_back() {
        log.current = last;
    }
    let counts = [scanned.max_epoch, scanned.next.0, log.current.number];
    if counts.iter().any(|count| *count >= COUNT_MAX) {
        let name = FileName::Segment(log.current.number).to_string();
        return Err(LogError::Corrupt {
            file: log.shared.dir.join(name),
            offset: 0,
            problem: Problem::Counts,
        });
    }
    log.epoch = scanned.max_epoch + 1;
    log.next = scanned.next;
    let mut rewrite_from = None;
    if plan.is_tail_lost {
        log.current.base = log.next;
    }
    let lost_files = plan.missing_at_end + u64::from(plan.is_tail_lost);
    if lost_files > 0 {
        // Positions that the lost files may have used are not used again.
        let bytes = log.current.bytes.max(log.shared.config.segment_bytes);
        let next = log.next.0 + bytes.saturating_mul(lost_files).min(COUNT_MAX);
        log.next = Lsn(next.next_multiple_of(ALIGN as u64));
    } else {
        log.file = scanned.file;
        log.note_use();
        rewrite_from = Some(scanned.rewrite_from);
    }
    log.resume = Some(Resume {
        rewrite_from,
        forgives: scanned.has_new_damage,
    });
    let finished = log.finish_open();
    if finished.as_ref().is_err_and(LogError::is_passing)
        && let Some(file) = &log.file
    {
        // What a process before wrote and did not sync is durable then. Only what a failed sync dropped is not.
        file.sync_data()?;
    }
    if_passing(finished)
}

/// Does what is left of an open. Harmless when repeated.
pub(crate) fn finish(log: &mut Log, resume: &Resume) -> Result<(), LogError> {
    if let Some(from) = resume.rewrite_from {
        rewrite_tail(log, from)?;
    }
    if resume.forgives {
        // All damage known so far is before the new segment, which is kept as long as any of it.
        log.change_segment(0, log.next)?;
    }
    Ok(())
}

/// Writes the batches from `from` to the end again, and when they are durable a mark behind them.
fn rewrite_tail(log: &mut Log, from: Lsn) -> Result<(), LogError> {
    let Some(file) = &log.file else { return Ok(()) };
    let end = log.current.offset(log.next);
    let mut at = log.current.offset(from.max(log.current.base));
    let mut buf = vec![0; REWRITE_BYTES.min(end.saturating_sub(at)) as usize];
    while at < end {
        let piece = &mut buf[..REWRITE_BYTES.min(end - at) as usize];
        file.read_at(piece, at)?;
        file.write_at(piece, at)?;
        at += piece.len() as u64;
    }
    file.sync_data()?;
    log.counters.syncs += 1;
    log.is_marked = false;
    if end + BATCH_HEADER_BYTES as u64 <= log.current.bytes {
        log.mark()?;
    }
    // Without room for a mark there is none for a batch either, and the next segment's header
    // states the new epoch before the first batch of it.
    Ok(())
}

#[cfg(test)]
mod tests;
