//! Recovery: an open reads the state after a crash, validates it, and makes it safe to continue.
//!
//! The order of the steps makes a crash at any of them harmless:
//! 1. Read the directory; remove unfinished files; sync it, so that all names found are durable.
//! 2. Read and validate all segment headers ([`plan`]).
//! 3. Read all batches, in order, and pass their records to the caller ([`scan`]).
//! 4. Write the last batch again, unchanged, and sync: it may be in the page cache only, and if a sync failed before,
//!    not even a sync would bring it to the disk.
//! 5. Append a mark of the new epoch: whatever lies behind it is older than everything to come.
//! 6. Begin a new segment if the active key is not that of the last one.
//!
//! Steps 4 and 5 overwrite only equal bytes or bytes after the tail, so a recovery after a crash in the middle finds the
//! same records.

mod plan;
mod reader;
mod scan;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kedge_disk::Disk;

use crate::catalog::{CatalogState, SegmentCatalog, SegmentRange};
use crate::format::ALIGN;
use crate::log::{Log, LogCounters};
use crate::pool::SegmentFiles;
use crate::segment::{FileName, Segment};
use crate::{CorruptionKind, LogConfig, LogError, LogRecord, Lsn, RecoveryMode};

use plan::RecoveryPlan;
use scan::{LogScan, ScanResult};

/// Size of a write while the tail is rewritten, in bytes.
const REWRITE_BYTES: u64 = 1 << 20;

/// The largest valid count. No log gets that far, and a log that states more has no room for successors.
const COUNT_MAX: u64 = 1 << 62;

/// A location in a file of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLocation {
    /// The file.
    pub file: PathBuf,
    /// The offset in the file, in bytes.
    pub offset: u64,
}

/// The results of [`Log::open`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// `true` if there was no log, so that an empty one was created.
    pub is_new: bool,
    /// Number of segments.
    pub segments: u64,
    /// Size of the sound batches, in bytes.
    pub bytes: u64,
    /// Number of sound batches, end markers included.
    pub batches: u64,
    /// Number of replayed records.
    pub records: u64,
    /// The oldest retained position. If the caller needs an older one, segments are lost.
    pub first_lsn: Lsn,
    /// The location of an unfinished append, if it left a trace. It was cut off; no acknowledged data is affected.
    pub torn_tail: Option<LogLocation>,
    /// Number of damaged ranges that were skipped: all of them in the salvage mode, and those that an earlier salvage
    /// accepted in the strict mode.
    pub skipped_places: u64,
    /// Size of the skipped ranges in bytes. Their records are lost.
    pub skipped_bytes: u64,
    /// The location of the first skipped range.
    pub first_skipped: Option<LogLocation>,
    /// Number of bytes that could not be read from the medium. Salvage mode only.
    pub unreadable_bytes: u64,
    /// `true` if the catalog was damaged and has been written anew. It is then unknown whether the newest or the oldest
    /// segments are missing.
    pub is_catalog_damaged: bool,
}

/// Implements [`Log::open`].
pub(crate) fn open<E: From<LogError>>(
    disk: Arc<dyn Disk>,
    dir: &Path,
    owner: [u8; 16],
    config: LogConfig,
    mode: RecoveryMode,
    replay: &mut dyn FnMut(LogRecord<'_>) -> Result<(), E>,
) -> Result<(Log, RecoveryReport), E> {
    let config = config.rounded();
    let files = plan::read_directory(&*disk, dir, &config)?;
    let (catalog, found) = SegmentCatalog::read(&*disk, dir)?;
    let known = match found {
        CatalogState::Segments(range) => Some(range),
        CatalogState::Nothing | CatalogState::Damaged => None,
    };
    let shared = Arc::new(SegmentFiles::new(
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
            secret: None,
        },
        file: None,
        sealer: None,
        sealed: std::collections::VecDeque::new(),
        next: Lsn(0),
        has_marker: true,
        has_failed: false,
        resume: None,
        counters: LogCounters::default(),
    };
    let is_catalog_damaged = found == CatalogState::Damaged;
    if files.segments.is_empty() {
        let mut report = begin(&mut log, mode, known)?;
        if log.current.number > 0 {
            establish(&log, log.current.number)?;
        }
        report.is_catalog_damaged = is_catalog_damaged;
        return Ok((log, report));
    }
    let plan = plan::plan(&shared, owner, mode, &files.segments, known)?;
    let mut scan = LogScan::new(&*shared.disk, dir, mode, &plan, replay);
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

/// Starts a log in a directory without segments, where those of `known` may be missing.
fn begin(
    log: &mut Log,
    mode: RecoveryMode,
    known: Option<SegmentRange>,
) -> Result<RecoveryReport, LogError> {
    let mut report = RecoveryReport {
        is_new: known.is_none(),
        ..RecoveryReport::default()
    };
    if let Some(range) = known {
        let name = FileName::Segment(range.first).to_string();
        let (file, offset) = (log.shared.dir.join(name), 0);
        if mode == RecoveryMode::Strict {
            let problem = CorruptionKind::MissingSegment;
            return Err(LogError::Corrupt {
                file,
                offset,
                problem,
            });
        }
        report.skipped_places = 1;
        report.first_skipped = Some(LogLocation { file, offset });
    }
    // If the disk is full, the first append tries again.
    if_passing(log.change_segment(0, Lsn(0)))?;
    Ok(report)
}

/// Writes the range of existing segments to the catalog.
fn establish(log: &Log, first: u64) -> Result<(), LogError> {
    let last = log.current.number;
    let shared = &log.shared;
    let range = SegmentRange { first, last };
    Ok(shared.catalog.establish(&*shared.disk, range)?)
}

/// Deferred work at the end of a log, which is required before the first append.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeferredRecovery {
    /// The position from which batches are rewritten.
    rewrite_from: Option<Lsn>,
    /// `true` if a new segment accepts the damage before it.
    forgives: bool,
}

/// Ignores an error that may pass, because the operation is tried again.
fn if_passing(result: Result<(), LogError>) -> Result<(), LogError> {
    match result {
        Err(error) if error.is_passing() => Ok(()),
        result => result,
    }
}

/// Makes the end of the log safe for appends, now or when that is possible.
fn resume(log: &mut Log, plan: &RecoveryPlan, scanned: ScanResult) -> Result<(), LogError> {
    log.sealed = plan.files.iter().cloned().collect();
    if let Some(last) = log.sealed.pop_back() {
        log.current = last;
        log.note_current_key();
    }
    let counts = [scanned.max_epoch, scanned.next.0, log.current.number];
    if counts.iter().any(|count| *count >= COUNT_MAX) {
        return Err(LogError::Corrupt {
            file: log.current_path(),
            offset: 0,
            problem: CorruptionKind::Counts,
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
        // Positions that the lost files may have used are not reused.
        let bytes = log.current.bytes.max(log.shared.config.segment_bytes);
        let next = log.next.0 + bytes.saturating_mul(lost_files).min(COUNT_MAX);
        log.next = Lsn(next.next_multiple_of(ALIGN as u64));
    } else {
        log.file = scanned.file;
        log.note_use();
        rewrite_from = Some(scanned.rewrite_from);
    }
    log.resume = Some(DeferredRecovery {
        rewrite_from,
        forgives: scanned.has_new_damage,
    });
    let finished = log.finish_open();
    if finished.as_ref().is_err_and(LogError::is_passing)
        && let Some(file) = &log.file
    {
        // It makes unsynced writes of an earlier process durable, except those that a failed sync has dropped.
        file.sync_data()?;
    }
    if_passing(finished)
}

/// Does the deferred work of an open. It can be repeated.
pub(crate) fn finish(log: &mut Log, resume: &DeferredRecovery) -> Result<(), LogError> {
    if let Some(from) = resume.rewrite_from {
        rewrite_tail(log, from)?;
    }
    if resume.forgives {
        // All damage known so far is before the new segment, which is retained as long as any of it.
        log.change_segment(0, log.next)?;
    } else if log.file.is_some() && !log.has_active_key() {
        log.change_segment(0, Lsn(0))?;
    }
    Ok(())
}

/// Rewrites the batches from `from` to the end, and writes an end marker once they are durable.
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
    log.has_marker = false;
    if end + log.current.batch_header_bytes() <= log.current.bytes {
        log.write_marker()?;
    }
    // Without space for a marker there is none for a batch either, and the header of the next segment states the new
    // epoch before its first batch.
    Ok(())
}

#[cfg(test)]
mod tests;
