//! Writing the access log.

use super::format::{self, KeyBlock};
use super::seal::LogSeal;
use super::{NAME, NAME_WHILE_WRITTEN};
use kedge_bucket_core::{BucketCore, BucketError};
use kedge_disk::File;
use kedge_encryption::DataKey;
use kedge_types::VbId;
use std::sync::Arc;
use std::time::Duration;

/// Percentage of documents in memory above which the order of reading makes no difference.
const RESIDENT_PERCENT_MAX: u64 = 95;
/// Parts of the keys, by their frequencies. Each takes a visit of all keys.
const BANDS: usize = 4;
/// Least number of keys whose frequencies are counted before keys are divided into bands.
const SAMPLE_MIN: u64 = 10_000;
/// Bytes that are written at a time.
const WRITE_BYTES: usize = 1 << 20;

/// A log that is being written.
#[derive(Debug)]
pub(super) struct AccessLogWriter {
    file: Box<dyn File>,
    /// The encryption, in an encrypted bucket.
    seal: Option<LogSeal>,
    written: u64,
    buffer: Vec<u8>,
    keys: u32,
    /// Least frequencies of the bands, the highest first; the last is 0.
    least: [u8; BANDS],
    band: usize,
    vb: u16,
    shard: usize,
    block: KeyBlock,
}

impl AccessLogWriter {
    /// Begins a log. Returns `None` when so much is in memory that a log is of no use; an old one is removed then.
    pub(super) fn begin(core: &BucketCore) -> Result<Option<Self>, BucketError> {
        let (mut documents, mut not_resident) = (0, 0);
        for vbucket in &core.vbuckets {
            let vbucket = vbucket.lock();
            let residency = vbucket.documents().residency();
            documents += vbucket.documents().count() as u64;
            not_resident += (residency.on_disk_only + residency.without_value) as u64;
        }
        let disk = &core.setup.disk;
        if not_resident * 100 <= documents * (100 - RESIDENT_PERCENT_MAX) {
            let old = core.setup.dir.join(NAME);
            if disk.exists(&old)? {
                disk.remove(&old)?;
            }
            return Ok(None);
        }
        let uuid = core.setup.config.uuid_bytes().unwrap_or_default();
        let key = active_key(core);
        let mut buffer = format::header(uuid, key.is_some()).to_vec();
        Ok(Some(Self {
            seal: key.map(|key| LogSeal::begin(&key, &mut buffer)),
            file: disk.create(&core.setup.dir.join(NAME_WHILE_WRITTEN))?,
            written: 0,
            buffer,
            keys: 0,
            least: bands(&count_frequencies(core)),
            band: 0,
            vb: 0,
            shard: 0,
            block: KeyBlock::default(),
        }))
    }

    /// Writes for a while. Returns whether the log is complete.
    pub(super) fn write(&mut self, core: &BucketCore, time: Duration) -> Result<bool, BucketError> {
        let now_ns = || core.setup.clock.now().mono_ns;
        let began_ns = now_ns();
        while self.band < BANDS {
            let is_last = self.visit(core);
            self.advance(core, is_last);
            if self.buffer.len() >= WRITE_BYTES {
                self.flush()?;
            }
            if now_ns().saturating_sub(began_ns) >= time.as_nanos() as u64 {
                return Ok(false);
            }
        }
        format::write_end(self.keys, &mut self.buffer);
        self.flush()?;
        let (disk, dir) = (&core.setup.disk, &core.setup.dir);
        let key = active_key(core);
        if key.as_ref().map(|key| key.id()) != self.seal.as_ref().map(LogSeal::key_id) {
            // The keys were changed meanwhile.
            disk.remove(&dir.join(NAME_WHILE_WRITTEN))?;
            return Ok(true);
        }
        disk.rename(&dir.join(NAME_WHILE_WRITTEN), &dir.join(NAME))?;
        tracing::info!(
            bucket = core.name(),
            keys = self.keys,
            bytes = self.written,
            "the access log is written"
        );
        Ok(true)
    }

    /// Adds the keys of a shard that belong to the band. Returns whether it is the table's last shard.
    fn visit(&mut self, core: &BucketCore) -> bool {
        let least = self.least[self.band];
        let below = self.band.checked_sub(1).map(|above| self.least[above]);
        let vb = VbId(self.vb);
        let vbucket = core.vbuckets[vb.index()].lock();
        for item in vbucket.table().shard(self.shard) {
            let frequency = item.frequency();
            let in_band = frequency >= least && below.is_none_or(|below| frequency < below);
            if in_band && item.is_resident() && !item.is_deleted() {
                self.block.push(item.key());
                self.keys += 1;
                if self.block.is_full() {
                    let at = self.written + self.buffer.len() as u64;
                    self.block
                        .write(vb, self.seal.as_ref(), at, &mut self.buffer);
                }
            }
        }
        self.shard + 1 >= vbucket.table().shard_count()
    }

    fn advance(&mut self, core: &BucketCore, is_last: bool) {
        self.shard += 1;
        if !is_last {
            return;
        }
        let at = self.written + self.buffer.len() as u64;
        let (vb, seal) = (VbId(self.vb), self.seal.as_ref());
        self.block.write(vb, seal, at, &mut self.buffer);
        self.shard = 0;
        self.vb += 1;
        if self.vb == core.vbucket_count() {
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

/// Returns the key of new data.
fn active_key(core: &BucketCore) -> Option<Arc<DataKey>> {
    let keys = core.setup.keyring.as_ref()?.keys();
    keys.active().cloned()
}

/// Counts documents in memory by their frequencies. A part of each vBucket's documents is enough, if there are many.
fn count_frequencies(core: &BucketCore) -> [u64; 256] {
    let mut counts = [0; 256];
    for shard in 0..core.table_shards().max().unwrap_or(1) {
        for vbucket in &core.vbuckets {
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

/// Returns the least frequencies of the bands, the highest first. Bands have about the same number of keys; a band is
/// smaller if the next frequency has so many keys that it would be larger than that.
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
    fn bands_have_about_the_same_number_of_keys() {
        let mut counts = [0; 256];
        assert_eq!(bands(&counts), [0; BANDS]);
        for (frequency, count) in [(200, 26), (100, 26), (64, 26), (10, 22)] {
            counts[frequency] = count;
        }
        assert_eq!(bands(&counts), [200, 100, 64, 0]);
        counts = [0; 256];
        counts[64] = 1_000;
        assert_eq!(
            bands(&counts),
            [64, 64, 64, 0],
            "the first band has all keys"
        );
        counts[90] = 60;
        counts[110] = 40;
        counts[10] = 5;
        assert_eq!(bands(&counts)[..2], [90, 64], "a small band of its own");
    }
}
