//! Reads the batches of all segments in order. Where the chain of sound batches breaks, it decides between the end of
//! the log and damage.
//!
//! The rule: an append is acknowledged after its sync, and the header of the next batch or segment states that
//! everything before it is durable. So after a break,
//! * a later segment, or a sound batch header that was written for its place and states a durable position beyond the
//!   break, proves that acknowledged bytes are missing: damage;
//! * otherwise the break is an unfinished append: the end.
//!
//! Batches that an earlier recovery cut off also lie after the end. They state durable positions at or before that cut,
//! which proves nothing. They never become part of the chain, because their epoch is older than that of the marker that
//! the recovery wrote at the cut.

use std::path::{Path, PathBuf};

use kedge_disk::{Disk, File};
use kedge_types::VbId;

use crate::format::{ALIGN, BatchHeader, PAGE_BYTES, RawRecord, check_body};
use crate::recovery::plan::{PlannedSegment, RecoveryPlan, SegmentEnd};
use crate::recovery::reader::SegmentReader;
use crate::recovery::{LogLocation, RecoveryReport};
use crate::segment::FileName;
use crate::{CorruptionKind, LogError, LogRecord, Lsn, RecoveryMode};

/// The state of a pass over all segments.
pub(super) struct LogScan<'a, E> {
    disk: &'a dyn Disk,
    dir: &'a Path,
    mode: RecoveryMode,
    forgiven: Lsn,
    replay: &'a mut dyn FnMut(LogRecord<'_>) -> Result<(), E>,
    report: RecoveryReport,
    /// Position of the next batch, or `None` before the first segment.
    next: Option<Lsn>,
    /// Epoch of the chain so far. Older batches are left over from before a cut.
    epoch: u64,
    /// Highest epoch seen so far, inside or outside of the chain.
    max_epoch: u64,
    /// The position up to which the log is known to be durable.
    durable: Lsn,
    /// Start of the unbroken run of batches up to `next`.
    run_start: Lsn,
    has_new_damage: bool,
    buf: Vec<u8>,
    file: Option<Box<dyn File>>,
}

/// The result of a pass.
pub(super) struct ScanResult {
    pub(super) report: RecoveryReport,
    /// The position at which the log continues.
    pub(super) next: Lsn,
    pub(super) max_epoch: u64,
    /// The position from which batches up to `next` may be in the page cache only.
    pub(super) rewrite_from: Lsn,
    /// `true` if damage was skipped that later opens have to accept.
    pub(super) has_new_damage: bool,
    /// The file of the last segment.
    pub(super) file: Option<Box<dyn File>>,
}

/// A position without a sound batch.
struct ChainBreak {
    /// Offset of the failed check in the file.
    offset: u64,
    problem: CorruptionKind,
    /// `true` if a header is there that was written for this position.
    has_header: bool,
}

impl<'a, E: From<LogError>> LogScan<'a, E> {
    pub(super) fn new(
        disk: &'a dyn Disk,
        dir: &'a Path,
        mode: RecoveryMode,
        plan: &RecoveryPlan,
        replay: &'a mut dyn FnMut(LogRecord<'_>) -> Result<(), E>,
    ) -> Self {
        let mut report = RecoveryReport::default();
        for lost in plan.lost.iter().filter(|lost| lost.is_whole()) {
            let place = LogLocation {
                file: lost.file.clone(),
                offset: lost.offset,
            };
            report.skipped_places += 1;
            report.first_skipped.get_or_insert(place);
        }
        LogScan {
            disk,
            dir,
            mode,
            forgiven: plan.forgiven,
            replay,
            report,
            next: None,
            epoch: 0,
            max_epoch: 0,
            durable: Lsn(0),
            run_start: Lsn(0),
            has_new_damage: plan.has_new_losses,
            buf: Vec::new(),
            file: None,
        }
    }

    pub(super) fn finish(self) -> ScanResult {
        let next = self.next.unwrap_or_default();
        ScanResult {
            report: self.report,
            next,
            max_epoch: self.max_epoch,
            rewrite_from: self.durable.max(self.run_start).min(next),
            has_new_damage: self.has_new_damage,
            file: self.file,
        }
    }

    /// Reads a segment, the successor of the one before.
    pub(super) fn segment(&mut self, planned: &PlannedSegment) -> Result<(), E> {
        let base = planned.segment.base;
        match self.next {
            None => self.report.first_lsn = base,
            Some(next) if base < next => self.overlaps(planned)?,
            Some(next) => self.report.skipped_bytes += base.0 - next.0,
        }
        if self.next != Some(base) {
            self.run_start = base;
        }
        self.epoch = self.epoch.max(planned.epoch);
        self.max_epoch = self.max_epoch.max(self.epoch);
        self.durable = self.durable.max(base);

        let path = self.path(planned);
        let file = self.disk.open(&path).map_err(LogError::from)?;
        let buf = std::mem::take(&mut self.buf);
        let is_tolerant = self.mode == RecoveryMode::Salvage;
        let segment = planned.segment.clone();
        let mut reader = SegmentReader::new(file, segment, planned.file_bytes, buf, is_tolerant);
        let mut at = base;
        while SegmentEnd::At(at) != planned.end {
            at = match self.batch(&mut reader, planned, at)? {
                Ok(after) => after,
                Err(broken) => match self.broken(&mut reader, planned, at, &broken)? {
                    Some(after) => after,
                    None => break,
                },
            };
            self.next = Some(at);
        }
        self.end_segment(planned, at);
        self.report.unreadable_bytes += reader.unreadable_bytes;
        let (file, buf) = reader.into_parts();
        self.buf = buf;
        self.file = (planned.end == SegmentEnd::Tail).then_some(file);
        Ok(())
    }

    /// Rejects a segment that starts before the end of the batches that precede it, unless it is salvaged. A lost segment
    /// between them hides that from the check of the headers.
    fn overlaps(&mut self, planned: &PlannedSegment) -> Result<(), LogError> {
        let (file, offset) = (self.path(planned), 0);
        if planned.segment.base >= self.forgiven {
            if self.mode == RecoveryMode::Strict {
                return Err(LogError::Corrupt {
                    file,
                    offset,
                    problem: CorruptionKind::SegmentStart,
                });
            }
            self.has_new_damage = true;
        }
        self.report.skipped_places += 1;
        self.report
            .first_skipped
            .get_or_insert(LogLocation { file, offset });
        Ok(())
    }

    fn end_segment(&mut self, planned: &PlannedSegment, at: Lsn) {
        let is_short = planned.file_bytes < planned.segment.bytes;
        self.next = Some(match planned.end {
            SegmentEnd::At(end) => {
                self.report.skipped_bytes += end.0 - at.0;
                end
            }
            // Positions that the missing part may have used are not reused.
            SegmentEnd::Tail if is_short => {
                self.run_start = planned.segment.capacity_end();
                self.run_start
            }
            SegmentEnd::Tail | SegmentEnd::Unknown => self.next.unwrap_or(at).max(at),
        });
    }

    /// Reads the batch at a position and passes on its records. Returns the position after it.
    fn batch(
        &mut self,
        reader: &mut SegmentReader,
        planned: &PlannedSegment,
        at: Lsn,
    ) -> Result<Result<Lsn, ChainBreak>, E> {
        let header = match self.check_batch(reader, planned, at)? {
            Ok(header) => header,
            Err(broken) => return Ok(Err(broken)),
        };
        let body = reader.body(&header).map_err(LogError::from)?;
        let mut rest = body.unwrap_or_default();
        while let Some((record, after)) = RawRecord::split(rest) {
            let (kind, vb, payload) = (record.kind, VbId(record.vb), record.payload);
            (self.replay)(LogRecord {
                lsn: at,
                kind,
                vb,
                payload,
            })?;
            rest = after;
        }
        self.report.batches += 1;
        self.report.records += u64::from(header.records);
        self.report.bytes += header.bytes;
        self.epoch = header.epoch;
        self.max_epoch = self.max_epoch.max(header.epoch);
        self.durable = self.durable.max(header.durable);
        Ok(Ok(Lsn(at.0 + header.bytes)))
    }

    /// Returns `true` if all bytes of the batch at a position are sound.
    fn check_batch(
        &self,
        reader: &mut SegmentReader,
        planned: &PlannedSegment,
        at: Lsn,
    ) -> Result<Result<BatchHeader, ChainBreak>, LogError> {
        let offset = planned.segment.offset(at);
        let limit = match planned.end {
            SegmentEnd::At(end) => planned.segment.offset(end).min(reader.len()),
            SegmentEnd::Unknown | SegmentEnd::Tail => reader.len(),
        };
        let no_header = ChainBreak {
            offset,
            problem: CorruptionKind::BatchHeader,
            has_header: false,
        };
        let header_bytes = planned.segment.batch_header_bytes();
        if offset + header_bytes > limit {
            return Ok(Err(no_header));
        }
        let fields = reader.get(offset, header_bytes)?;
        let header = match BatchHeader::decode(fields, planned.segment.salt, at) {
            Some(header) if header.epoch >= self.epoch => header,
            _ => return Ok(Err(no_header)),
        };
        if header.bytes > limit - offset {
            return Ok(Err(ChainBreak {
                offset,
                problem: CorruptionKind::BatchLength,
                has_header: true,
            }));
        }
        let start = offset + header_bytes;
        let checked = match reader.body(&header)? {
            Some(body) => check_body(&header, body),
            None => Err((0, CorruptionKind::BatchSeal)),
        };
        Ok(checked
            .map(|()| header)
            .map_err(|(within, problem)| ChainBreak {
                offset: start + within as u64,
                problem,
                has_header: true,
            }))
    }

    /// Classifies a break. Returns the position of the next sound batch in the segment, if any.
    fn broken(
        &mut self,
        reader: &mut SegmentReader,
        planned: &PlannedSegment,
        at: Lsn,
        broken: &ChainBreak,
    ) -> Result<Option<Lsn>, E> {
        if planned.end == SegmentEnd::Tail && !self.is_damage(reader, planned, at)? {
            self.note_tail(reader, planned, at, broken)?;
            return Ok(None);
        }
        let resumed = self.find_batch(reader, planned, at)?;
        if planned.end == SegmentEnd::Unknown && resumed.is_none() {
            // Any end will do, because the lost segment after it is counted already.
            return Ok(None);
        }
        let file = self.path(planned);
        let (offset, problem) = (broken.offset, broken.problem);
        if at >= self.forgiven {
            if self.mode == RecoveryMode::Strict {
                return Err(LogError::Corrupt {
                    file,
                    offset,
                    problem,
                }
                .into());
            }
            self.has_new_damage = true;
        }
        self.report.skipped_places += 1;
        self.report
            .first_skipped
            .get_or_insert(LogLocation { file, offset });
        if let Some(resumed) = resumed {
            self.report.skipped_bytes += resumed.0 - at.0;
            self.run_start = resumed;
        } else if planned.end == SegmentEnd::Tail {
            let end = planned.segment.capacity_end();
            self.report.skipped_bytes += end.0 - at.0;
            self.run_start = end;
            self.next = Some(end);
        }
        Ok(resumed)
    }

    /// Returns `true` if data after a break in the last segment proves that acknowledged bytes are missing.
    fn is_damage(
        &mut self,
        reader: &mut SegmentReader,
        planned: &PlannedSegment,
        at: Lsn,
    ) -> Result<bool, LogError> {
        let mut max_epoch = self.max_epoch;
        let from = planned.segment.offset(at) + ALIGN as u64;
        let proof = reader.find_header(from, |header| {
            // Left over from before a cut or not: no epoch may be used twice.
            max_epoch = max_epoch.max(header.epoch);
            header.durable > at
        })?;
        self.max_epoch = max_epoch;
        Ok(proof.is_some())
    }

    /// Returns the next sound batch after a break.
    fn find_batch(
        &self,
        reader: &mut SegmentReader,
        planned: &PlannedSegment,
        at: Lsn,
    ) -> Result<Option<Lsn>, LogError> {
        let end = match planned.end {
            SegmentEnd::At(end) => end,
            SegmentEnd::Unknown | SegmentEnd::Tail => Lsn(u64::MAX),
        };
        let epoch = self.epoch;
        let mut from = planned.segment.offset(at) + ALIGN as u64;
        loop {
            let accept = |header: &BatchHeader| header.lsn < end && header.epoch >= epoch;
            let Some((offset, header)) = reader.find_header(from, accept)? else {
                return Ok(None);
            };
            if self.check_batch(reader, planned, header.lsn)?.is_ok() {
                return Ok(Some(header.lsn));
            }
            from = offset + ALIGN as u64;
        }
    }

    /// Reports an unfinished append, if there is a trace of one.
    fn note_tail(
        &mut self,
        reader: &mut SegmentReader,
        planned: &PlannedSegment,
        at: Lsn,
        broken: &ChainBreak,
    ) -> Result<(), LogError> {
        let offset = planned.segment.offset(at);
        // Every append fills its last page with zeros, so anything else there is younger. A page that starts at the
        // tail may have bytes of an earlier use of the file.
        let page_end = offset.next_multiple_of(PAGE_BYTES).min(reader.len());
        let rest = reader.get(offset.min(page_end), page_end.saturating_sub(offset))?;
        if broken.has_header || rest.iter().any(|byte| *byte != 0) {
            self.report.torn_tail = Some(LogLocation {
                file: self.path(planned),
                offset,
            });
        }
        Ok(())
    }

    fn path(&self, planned: &PlannedSegment) -> PathBuf {
        self.dir
            .join(FileName::Segment(planned.segment.number).to_string())
    }
}
