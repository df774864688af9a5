//! Reads the batches of all segments in order and decides, where the chain of sound batches
//! breaks, whether that is the end of the log or damage.
//!
//! The rule: an append is acknowledged after its sync, and the next one states in its header that
//! everything before it is durable, as does the header of a next segment. So after a break,
//! * a later segment, or a sound batch header that was written for its place and states a durable
//!   position beyond the break, proves that acknowledged bytes are missing: damage;
//! * otherwise the break is where an append did not finish: the end.
//!
//! Batches that an earlier recovery cut off lie behind the end too. They state durable positions
//! at or before that cut, which proves nothing; and they are never taken into the chain, as their
//! epoch is older than that of the mark which that recovery wrote at the cut.

use std::path::{Path, PathBuf};

use kedge_disk::{Disk, File};
use kedge_types::VbId;

use crate::format::{ALIGN, BATCH_HEADER_BYTES, BatchHeader, PAGE_BYTES, RawRecord, check_body};
use crate::recovery::plan::{End, Plan, Planned};
use crate::recovery::reader::SegmentReader;
use crate::recovery::{Place, RecoveryReport};
use crate::segment::FileName;
use crate::{LogError, Lsn, Problem, Record, RecoveryMode};

/// The state of a run through all segments.
pub(super) struct Scan<'a, E> {
    disk: &'a dyn Disk,
    dir: &'a Path,
    mode: RecoveryMode,
    forgiven: Lsn,
    replay: &'a mut dyn FnMut(Record<'_>) -> Result<(), E>,
    report: RecoveryReport,
    /// Position of the next batch; `None` before the first segment.
    next: Option<Lsn>,
    /// Epoch of the chain so far: what is older is left over from before a cut.
    epoch: u64,
    /// Highest epoch seen anywhere, in the chain or not.
    max_epoch: u64,
    /// Everything before this is known to be durable.
    durable: Lsn,
    /// Start of the unbroken run of batches that reaches `next`.
    run_start: Lsn,
    has_new_damage: bool,
    buf: Vec<u8>,
    file: Option<Box<dyn File>>,
}

/// What a run came to.
pub(super) struct Scanned {
    pub(super) report: RecoveryReport,
    /// Where the log goes on.
    pub(super) next: Lsn,
    pub(super) max_epoch: u64,
    /// From here on to `next` the batches may be in the page cache only.
    pub(super) rewrite_from: Lsn,
    /// Whether something was skipped that no later open should stumble over.
    pub(super) has_new_damage: bool,
    /// The last segment's file.
    pub(super) file: Option<Box<dyn File>>,
}

/// A place that has no sound batch.
struct Break {
    /// Where the check failed, in the file.
    offset: u64,
    problem: Problem,
    /// Whether the header is one that was written for this place.
    has_header: bool,
}

impl<'a, E: From<LogError>> Scan<'a, E> {
    pub(super) fn new(
        disk: &'a dyn Disk,
        dir: &'a Path,
        mode: RecoveryMode,
        plan: &Plan,
        replay: &'a mut dyn FnMut(Record<'_>) -> Result<(), E>,
    ) -> Self {
        let mut report = RecoveryReport::default();
        for lost in plan.lost.iter().filter(|lost| lost.is_whole()) {
            let place = Place {
                file: lost.file.clone(),
                offset: lost.offset,
            };
            report.skipped_places += 1;
            report.first_skipped.get_or_insert(place);
        }
        Scan {
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

    pub(super) fn finish(self) -> Scanned {
        let next = self.next.unwrap_or_default();
        Scanned {
            report: self.report,
            next,
            max_epoch: self.max_epoch,
            rewrite_from: self.durable.max(self.run_start).min(next),
            has_new_damage: self.has_new_damage,
            file: self.file,
        }
    }

    /// Reads one segment, the successor of the one before.
    pub(super) fn segment(&mut self, planned: &Planned) -> Result<(), E> {
        let base = planned.segment.base;
        match self.next {
            None => self.report.first_lsn = base,
            Some(next) => self.report.skipped_bytes += base.0.saturating_sub(next.0),
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
        let mut reader =
            SegmentReader::new(file, planned.segment, planned.file_bytes, buf, is_tolerant);
        let mut at = base;
        while End::At(at) != planned.end {
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
        self.file = (planned.end == End::Tail).then_some(file);
        Ok(())
    }

    fn end_segment(&mut self, planned: &Planned, at: Lsn) {
        let is_short = planned.file_bytes < planned.segment.bytes;
        self.next = Some(match planned.end {
            End::At(end) => {
                self.report.skipped_bytes += end.0 - at.0;
                end
            }
            // Positions that the missing part may have used are not used again.
            End::Tail if is_short => {
                self.run_start = planned.segment.capacity_end();
                self.run_start
            }
            End::Tail | End::Unknown => self.next.unwrap_or(at).max(at),
        });
    }

    /// Reads the batch at a position and gives its records away; returns the position behind it.
    fn batch(
        &mut self,
        reader: &mut SegmentReader,
        planned: &Planned,
        at: Lsn,
    ) -> Result<Result<Lsn, Break>, E> {
        let header = match self.check_batch(reader, planned, at)? {
            Ok(header) => header,
            Err(broken) => return Ok(Err(broken)),
        };
        let body = planned.segment.offset(at) + BATCH_HEADER_BYTES as u64;
        let body_bytes = header.bytes - BATCH_HEADER_BYTES as u64;
        let mut rest = reader.get(body, body_bytes).map_err(LogError::from)?;
        while let Some((record, after)) = RawRecord::split(rest) {
            let (kind, vb, payload) = (record.kind, VbId(record.vb), record.payload);
            (self.replay)(Record {
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

    /// Whether the batch at a position is sound in all its bytes.
    fn check_batch(
        &self,
        reader: &mut SegmentReader,
        planned: &Planned,
        at: Lsn,
    ) -> Result<Result<BatchHeader, Break>, LogError> {
        let offset = planned.segment.offset(at);
        let limit = match planned.end {
            End::At(end) => planned.segment.offset(end).min(reader.len()),
            End::Unknown | End::Tail => reader.len(),
        };
        let no_header = Break {
            offset,
            problem: Problem::BatchHeader,
            has_header: false,
        };
        if offset + BATCH_HEADER_BYTES as u64 > limit {
            return Ok(Err(no_header));
        }
        let fields = reader.get(offset, BATCH_HEADER_BYTES as u64)?;
        let header = match BatchHeader::decode(fields, planned.segment.salt, at) {
            Some(header) if header.epoch >= self.epoch => header,
            _ => return Ok(Err(no_header)),
        };
        if header.bytes > limit - offset {
            return Ok(Err(Break {
                offset,
                problem: Problem::BatchLength,
                has_header: true,
            }));
        }
        let start = offset + BATCH_HEADER_BYTES as u64;
        let body = reader.get(start, header.bytes - BATCH_HEADER_BYTES as u64)?;
        Ok(check_body(&header, body)
            .map(|()| header)
            .map_err(|(within, problem)| Break {
                offset: start + within as u64,
                problem,
                has_header: true,
            }))
    }

    /// Judges a break. `Some` is the position of the next sound batch in the segment.
    fn broken(
        &mut self,
        reader: &mut SegmentReader,
        planned: &Planned,
        at: Lsn,
        broken: &Break,
    ) -> Result<Option<Lsn>, E> {
        if planned.end == End::Tail && !self.is_damage(reader, planned, at)? {
            self.note_tail(reader, planned, at, broken)?;
            return Ok(None);
        }
        let resumed = self.find_batch(reader, planned, at)?;
        if planned.end == End::Unknown && resumed.is_none() {
            // As good an end as any: the lost segment behind it is counted already.
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
            .get_or_insert(Place { file, offset });
        if let Some(resumed) = resumed {
            self.report.skipped_bytes += resumed.0 - at.0;
            self.run_start = resumed;
        } else if planned.end == End::Tail {
            let end = planned.segment.capacity_end();
            self.report.skipped_bytes += end.0 - at.0;
            self.run_start = end;
            self.next = Some(end);
        }
        Ok(resumed)
    }

    /// Whether anything behind a break in the last segment proves that acknowledged bytes are
    /// missing.
    fn is_damage(
        &mut self,
        reader: &mut SegmentReader,
        planned: &Planned,
        at: Lsn,
    ) -> Result<bool, LogError> {
        let mut max_epoch = self.max_epoch;
        let from = planned.segment.offset(at) + ALIGN as u64;
        let proof = reader.find_header(from, |header| {
            // Left over from before a cut, or not: no epoch may be used twice.
            max_epoch = max_epoch.max(header.epoch);
            header.durable > at
        })?;
        self.max_epoch = max_epoch;
        Ok(proof.is_some())
    }

    /// The next sound batch behind a break.
    fn find_batch(
        &self,
        reader: &mut SegmentReader,
        planned: &Planned,
        at: Lsn,
    ) -> Result<Option<Lsn>, LogError> {
        let end = match planned.end {
            End::At(end) => end,
            End::Unknown | End::Tail => Lsn(u64::MAX),
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

    /// Reports an append that did not finish, if there is a sign of one.
    fn note_tail(
        &mut self,
        reader: &mut SegmentReader,
        planned: &Planned,
        at: Lsn,
        broken: &Break,
    ) -> Result<(), LogError> {
        let offset = planned.segment.offset(at);
        // Every append fills its last page with zeros, so that anything else there is younger. A
        // page that starts at the tail may have anything from the file's former use.
        let page_end = offset.next_multiple_of(PAGE_BYTES).min(reader.len());
        let rest = reader.get(offset.min(page_end), page_end.saturating_sub(offset))?;
        if broken.has_header || rest.iter().any(|byte| *byte != 0) {
            self.report.torn_tail = Some(Place {
                file: self.path(planned),
                offset,
            });
        }
        Ok(())
    }

    fn path(&self, planned: &Planned) -> PathBuf {
        self.dir
            .join(FileName::Segment(planned.segment.number).to_string())
    }
}
