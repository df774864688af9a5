//! The access log: the keys that are in memory, those that are asked for most first, so that a start reads these first.
//!
//! It is a hint. It is not synced; one that is damaged, old or missing costs time at the next start and nothing else.
//!
//! Invariants:
//! * The file is written beside the one that counts, and takes its name when it is whole.
//! * A vBucket is locked for one part of its table at a time.

mod format;

use crate::residency::Residency;
use format::{BLOCK_HEADER_BYTES, Block, BlockHeader, HEADER_BYTES, Unusable};
use kedge_bucket_core::BucketError;
use kedge_bucket_core::TaskBody;
use kedge_disk::File;
use kedge_executor::Next;
use kedge_types::VbId;
use std::path::PathBuf;
use std::time::Duration;

/// The name that this kind of server gives such a file; its number is that of the part of the bucket, of which there is
/// one here.
const NAME: &str = "access.log.0";
const NAME_WHILE_WRITTEN: &str = "access.log.0.next";
/// With more than this in memory, in percent, the order in which it is read makes no difference.
const RESIDENT_PERCENT_MAX: u64 = 95;
/// Parts of the keys, by how often they are asked for. Each takes a look at all of them.
const BANDS: usize = 4;
/// Of so many keys at least it is known how often they are asked for before they are cut into bands.
const SAMPLE_MIN: u64 = 10_000;
/// A run; then other work of its pool has its turn.
const SLICE: Duration = Duration::from_millis(25);
/// While documents are being read into memory they say nothing of what is asked for. So long until the next look.
const WARMING: Duration = Duration::from_secs(60);
/// Bytes that are written at a time.
const WRITE_BYTES: usize = 1 << 20;
/// What a shutdown spends on it at most.
const SHUTDOWN: Duration = Duration::from_millis(500);

/// The task.
#[derive(Debug, Default)]
pub(crate) struct AccessScanner {
    /// When the last log was begun.
    last: Option<Duration>,
    writing: Option<Writing>,
}

impl TaskBody<Residency> for AccessScanner {
    fn run(&mut self, residency: &Residency, now: Duration) -> Next {
        let memory = residency.core.config().memory.clone();
        let interval = Duration::from_secs(memory.access_scanner_interval_secs);
        if self.writing.is_none() {
            let due = *self.last.get_or_insert(now) + interval;
            if now < due {
                return Next::Snooze(due - now);
            }
            if !memory.access_scanner_enabled {
                self.last = Some(now);
                return Next::Snooze(interval);
            }
            if residency.is_warming() {
                return Next::Snooze(WARMING);
            }
            self.last = Some(now);
            match residency.begin_access_log() {
                Ok(Some(writing)) => self.writing = Some(writing),
                Ok(None) => return Next::Snooze(interval),
                Err(error) => {
                    residency.on_access_log_failed(&error);
                    return Next::Snooze(interval);
                }
            }
        }
        if let Some(writing) = &mut self.writing {
            match writing.go_on(residency, SLICE) {
                Ok(false) => return Next::Again,
                Ok(true) => {}
                Err(error) => residency.on_access_log_failed(&error),
            }
            self.writing = None;
        }
        Next::Snooze(interval)
    }
}

/// A log that is being written.
#[derive(Debug)]
struct Writing {
    file: Box<dyn File>,
    written: u64,
    buffer: Vec<u8>,
    keys: u32,
    /// Least counts of the bands, the highest first; the last is 0.
    least: [u8; BANDS],
    band: usize,
    vb: u16,
    shard: usize,
    block: Block,
}

impl Writing {
    /// Goes on for a while. True when it is whole.
    fn go_on(&mut self, residency: &Residency, time: Duration) -> Result<bool, BucketError> {
        let now_ns = || residency.core.setup.clock.now().mono_ns;
        let began_ns = now_ns();
        while self.band < BANDS {
            let is_last = self.visit(residency);
            self.advance(residency, is_last);
            if self.buffer.len() >= WRITE_BYTES {
                self.flush()?;
            }
            if now_ns().saturating_sub(began_ns) >= time.as_nanos() as u64 {
                return Ok(false);
            }
        }
        format::write_end(self.keys, &mut self.buffer);
        self.flush()?;
        let (disk, dir) = (&residency.core.setup.disk, &residency.core.setup.dir);
        disk.rename(&dir.join(NAME_WHILE_WRITTEN), &dir.join(NAME))?;
        tracing::info!(
            bucket = residency.core.name(),
            keys = self.keys,
            bytes = self.written,
            "the access log is written"
        );
        Ok(true)
    }

    /// Notes the keys of a shard of a hash table that belong to the band. Returns whether it is the table's last shard.
    fn visit(&mut self, residency: &Residency) -> bool {
        let least = self.least[self.band];
        let below = self.band.checked_sub(1).map(|above| self.least[above]);
        let vb = VbId(self.vb);
        let vbucket = residency.core.vbuckets[vb.index()].lock();
        for item in vbucket.table().shard(self.shard) {
            let frequency = item.frequency();
            let in_band = frequency >= least && below.is_none_or(|below| frequency < below);
            if in_band && item.is_resident() && !item.is_deleted() {
                self.block.push(item.key());
                self.keys += 1;
                if self.block.is_full() {
                    self.block.write(vb, &mut self.buffer);
                }
            }
        }
        self.shard + 1 >= vbucket.table().shard_count()
    }

    fn advance(&mut self, residency: &Residency, is_last: bool) {
        self.shard += 1;
        if !is_last {
            return;
        }
        self.block.write(VbId(self.vb), &mut self.buffer);
        self.shard = 0;
        self.vb += 1;
        if self.vb == residency.core.vbucket_count() {
            self.vb = 0;
            self.band += 1;
        }
    }

    fn flush(&mut self) -> Result<(), BucketError> {
        self.file.write_at(&self.buffer, self.written)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

impl Residency {
    fn access_log(&self) -> PathBuf {
        self.core.setup.dir.join(NAME)
    }

    /// `None` when so much is in memory that a log is of no use; an old one is removed then.
    fn begin_access_log(&self) -> Result<Option<Writing>, BucketError> {
        let (mut documents, mut not_resident) = (0, 0);
        for vbucket in &self.core.vbuckets {
            let vbucket = vbucket.lock();
            let residency = vbucket.documents().residency();
            documents += vbucket.documents().count() as u64;
            not_resident += (residency.on_disk_only + residency.without_value) as u64;
        }
        let disk = &self.core.setup.disk;
        if not_resident * 100 <= documents * (100 - RESIDENT_PERCENT_MAX) {
            let old = self.access_log();
            if disk.exists(&old)? {
                disk.remove(&old)?;
            }
            return Ok(None);
        }
        let uuid = self.core.setup.config.uuid_bytes().unwrap_or_default();
        Ok(Some(Writing {
            file: disk.create(&self.core.setup.dir.join(NAME_WHILE_WRITTEN))?,
            written: 0,
            buffer: format::header(uuid).to_vec(),
            keys: 0,
            least: bands(&self.count_frequencies()),
            band: 0,
            vb: 0,
            shard: 0,
            block: Block::default(),
        }))
    }

    /// How often documents in memory are asked for. A part of each vBucket's is enough, if there are many.
    fn count_frequencies(&self) -> [u64; 256] {
        let mut counts = [0; 256];
        for shard in 0..self.core.table_shards().max().unwrap_or(1) {
            for vbucket in &self.core.vbuckets {
                for item in vbucket.lock().table().shard(shard) {
                    counts[usize::from(item.frequency())] += u64::from(item.is_resident());
                }
            }
            if counts.iter().sum::<u64>() >= SAMPLE_MIN {
                break;
            }
        }
        counts
    }

    fn on_access_log_failed(&self, error: &BucketError) {
        tracing::warn!(bucket = self.core.name(), %error, "the access log cannot be written");
    }

    /// The settings have changed: the scanner looks at them.
    pub fn on_scanner_config(&self) {
        if let Some(task) = self.access_scanner.task() {
            self.core.setup.executor.wake(task);
        }
    }

    /// Writes the log at the end of the bucket, unless that takes too long: the last one stays then.
    pub fn write_access_log_at_end(&self) {
        if !self.core.config().memory.access_scanner_enabled || self.is_warming() {
            return;
        }
        let written = self.begin_access_log().and_then(|writing| match writing {
            Some(mut writing) => writing.go_on(self, SHUTDOWN),
            None => Ok(true),
        });
        match written {
            Ok(true) => {}
            Ok(false) => tracing::info!(
                bucket = self.core.name(),
                "the access log would take too long now, and stays as it was"
            ),
            Err(error) => self.on_access_log_failed(&error),
        }
    }

    /// Keys of the access log, those that were asked for most first, about `max` of them.
    pub(crate) fn read_access_log(&self, max: u64) -> Vec<(VbId, Vec<Box<[u8]>>)> {
        let path = self.access_log();
        let mut blocks = Vec::new();
        let why = match self.read_blocks(max, &mut blocks) {
            Ok(Ok(())) => return blocks,
            Ok(Err(unusable)) => unusable.to_string(),
            Err(error) => error.to_string(),
        };
        tracing::warn!(
            bucket = self.core.name(),
            file = %path.display(),
            why,
            "the access log, or the rest of it, is ignored"
        );
        blocks
    }

    fn read_blocks(
        &self,
        max: u64,
        blocks: &mut Vec<(VbId, Vec<Box<[u8]>>)>,
    ) -> Result<Result<(), Unusable>, BucketError> {
        let path = self.access_log();
        if !self.core.setup.disk.exists(&path)? {
            return Ok(Ok(()));
        }
        let file = self.core.setup.disk.open(&path)?;
        let len = file.len()?;
        if len < (HEADER_BYTES + BLOCK_HEADER_BYTES) as u64 {
            return Ok(Err(Unusable::Damaged));
        }
        let mut header = [0; HEADER_BYTES];
        file.read_at(&mut header, 0)?;
        let uuid = self.core.setup.config.uuid_bytes().unwrap_or_default();
        if let Err(unusable) = format::check_header(&header, uuid) {
            return Ok(Err(unusable));
        }
        let mut at = HEADER_BYTES as u64;
        let mut keys = 0;
        let mut payload = Vec::new();
        while keys < max {
            let mut header = [0; BLOCK_HEADER_BYTES];
            let begins = at + BLOCK_HEADER_BYTES as u64;
            if begins > len {
                return Ok(Err(Unusable::Damaged));
            }
            file.read_at(&mut header, at)?;
            let block = match BlockHeader::parse(&header) {
                Ok(block) if begins + block.bytes as u64 <= len => block,
                _ => return Ok(Err(Unusable::Damaged)),
            };
            payload.resize(block.bytes, 0);
            file.read_at(&mut payload, begins)?;
            let found = match block.keys(&payload) {
                Ok(found) => found,
                Err(unusable) => return Ok(Err(unusable)),
            };
            let Some(vb) = block.vb else {
                break;
            };
            if vb.get() >= self.core.vbucket_count() {
                return Ok(Err(Unusable::Damaged));
            }
            keys += found.len() as u64;
            blocks.push((vb, found));
            at = begins + block.bytes as u64;
        }
        Ok(Ok(()))
    }
}

/// Least counts that cut the keys into parts, the highest first: of about the same number, but rather smaller than with
/// many in it that are asked for less than the others.
fn bands(counts: &[u64; 256]) -> [u8; BANDS] {
    let all: u64 = counts.iter().sum();
    let (mut seen, mut band, mut last) = (0, 0, 0);
    let mut least = [0; BANDS];
    let mut in_band = 0;
    for (frequency, count) in (0..=u8::MAX).zip(counts).rev() {
        if *count == 0 {
            continue;
        }
        let is_full = (seen + count) * BANDS as u64 > all * (band as u64 + 1);
        if in_band > 0 && is_full && band < BANDS - 1 {
            least[band] = last;
            band += 1;
            in_band = 0;
        }
        seen += count;
        in_band += count;
        last = frequency;
    }
    least[band..BANDS - 1].fill(last);
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_hold_about_as_many_keys_each_and_all_together() {
        let mut counts = [0; 256];
        assert_eq!(bands(&counts), [0; BANDS]);
        for (frequency, count) in [(200, 26), (100, 26), (64, 26), (10, 22)] {
            counts[frequency] = count;
        }
        assert_eq!(bands(&counts), [200, 100, 64, 0]);
        counts = [0; 256];
        counts[64] = 1_000;
        assert_eq!(bands(&counts), [64, 64, 64, 0], "the first has all");
        counts[90] = 60;
        counts[110] = 40;
        counts[10] = 5;
        assert_eq!(bands(&counts)[..2], [90, 64], "alone, few as they are");
    }
}
