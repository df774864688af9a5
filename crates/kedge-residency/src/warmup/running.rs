//! The jobs of warmup that are being done: a file is read to its end, or documents are looked up.

use super::component::Warmup;
use super::jobs::WarmupJob;
use kedge_bucket_core::{BucketError, EvictionPolicy};
use kedge_storage::{FileRecord, FileRecordKind, RecordScan};
use kedge_types::{Seqno, VbId};
use kedge_vbucket::{FetchTicket, Fetched, Item, VBucket};
use std::sync::atomic::Ordering;

/// Documents of one step, for which a vBucket is locked.
const STEP_ITEMS: usize = 256;
/// Documents of one step that are looked up one by one: they may be large.
const HOT_ITEMS: usize = 64;
/// Bytes of their values.
const STEP_BYTES: usize = 1 << 20;
/// Bytes that a document is likely to take beside key and value.
const OVERHEAD_LIKELY: usize = 64;

/// Bytes that the key and metadata of a document are likely to take in memory.
const KEY_BYTES_LIKELY: u64 = 100;

/// A job that was begun.
#[derive(Debug)]
pub(super) enum RunningJob {
    File(FileScan),
    Values {
        vb: VbId,
        ticket: FetchTicket,
        scan: RecordScan,
    },
    Hot {
        vb: VbId,
        keys: Vec<Box<[u8]>>,
    },
}

/// A file that is read to its end.
#[derive(Debug)]
pub(super) struct FileScan {
    vb: VbId,
    history: u32,
    applied: Seqno,
    scan: RecordScan,
    /// The last seqno that was read.
    last: Seqno,
    /// True if the scan reads values.
    values: bool,
    /// True if keys were left out: those of the file go into a filter.
    left_out: bool,
}

impl Warmup {
    /// Begins a job. Returns `None` if it is done.
    pub(super) fn begin_job(&self, job: WarmupJob) -> Result<Option<RunningJob>, BucketError> {
        match job {
            WarmupJob::Places(vb) => {
                self.core.storage()?.remember_keys(vb)?;
                Ok(None)
            }
            WarmupJob::Keys(vb) => self.scan_file(vb, false),
            WarmupJob::Documents(vb) => self.scan_file(vb, true),
            WarmupJob::Values(vb) => {
                let ticket = self.core.vbuckets[vb.index()].lock().store().fetch_ticket();
                let scan = self.core.storage()?.scan(vb, .., true)?;
                Ok(scan.map(|scan| RunningJob::Values { vb, ticket, scan }))
            }
            WarmupJob::Hot(vb, keys) => Ok(Some(RunningJob::Hot { vb, keys })),
        }
    }

    fn scan_file(&self, vb: VbId, values: bool) -> Result<Option<RunningJob>, BucketError> {
        let (history, applied) = {
            let vbucket = self.core.vbuckets[vb.index()].lock();
            if vbucket.documents().is_warm() {
                // The vBucket has no file, or another history than the file.
                return Ok(None);
            }
            (vbucket.history_id(), vbucket.applied_seqno())
        };
        let Some(scan) = self.core.storage()?.scan(vb, ..=applied, values)? else {
            self.core.vbuckets[vb.index()]
                .lock()
                .store_mut()
                .warmed(history, true);
            return Ok(None);
        };
        Ok(Some(RunningJob::File(FileScan {
            vb,
            history,
            applied,
            scan,
            last: Seqno(0),
            values,
            left_out: false,
        })))
    }

    fn has_room(&self) -> bool {
        self.core.quota.below_low() > 0
    }

    /// Returns the bytes that are kept for keys that come later: values are not to take their place.
    fn kept_for_keys(&self, keeps_keys: bool) -> u64 {
        if !keeps_keys {
            return 0;
        }
        let (all, loaded) = (&self.estimated, &self.keys);
        let loaded = loaded.load(Ordering::Relaxed);
        all.load(Ordering::Relaxed).saturating_sub(loaded) * KEY_BYTES_LIKELY
    }

    /// Reserves `bytes` of memory if they fit into `room`. They count against the other workers until the documents are in
    /// memory.
    fn reserve(&self, bytes: u64, room: u64) -> Option<Reserved<'_>> {
        let reserved = Reserved {
            warmup: self,
            bytes,
        };
        let before = self.reserved.fetch_add(bytes, Ordering::SeqCst);
        (before + bytes <= room).then_some(reserved)
    }
}

/// Memory that is reserved.
struct Reserved<'a> {
    warmup: &'a Warmup,
    bytes: u64,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        let reserved = &self.warmup.reserved;
        reserved.fetch_sub(self.bytes, Ordering::SeqCst);
    }
}

impl RunningJob {
    pub(super) fn vb(&self) -> VbId {
        match self {
            Self::File(file) => file.vb,
            Self::Values { vb, .. } | Self::Hot { vb, .. } => *vb,
        }
    }

    /// Reads a few documents. Returns false at the end.
    pub(super) fn step(&mut self, warmup: &Warmup) -> Result<bool, BucketError> {
        match self {
            Self::File(file) => file.step(warmup),
            Self::Values { vb, ticket, scan } => {
                if !warmup.has_room() {
                    return Ok(false);
                }
                let (mut found, mut bytes) = (Vec::with_capacity(STEP_ITEMS), 0);
                while found.len() < STEP_ITEMS && bytes < STEP_BYTES {
                    let Some(record) = scan.next() else {
                        warmup.progress.note_read(found.len());
                        warmup.put_fetched(*vb, *ticket, found);
                        return Ok(false);
                    };
                    let record = record?;
                    bytes += record.value().map_or(0, <[u8]>::len);
                    if record.kind() == FileRecordKind::Document {
                        found.extend(record.item());
                    }
                }
                warmup.progress.note_read(found.len());
                Ok(warmup.put_fetched(*vb, *ticket, found))
            }
            Self::Hot { vb, keys } => {
                if keys.is_empty() || !warmup.has_room() {
                    return Ok(false);
                }
                let rest = keys.split_off(keys.len().min(HOT_ITEMS));
                let ticket = warmup.core.vbuckets[vb.index()]
                    .lock()
                    .store()
                    .fetch_ticket();
                let wanted: Vec<&[u8]> = keys.iter().map(|key| &**key).collect();
                let found = warmup.core.storage()?.get_many(*vb, &wanted)?;
                warmup.progress.note_read(wanted.len());
                let found: Vec<_> = found.into_iter().flatten().collect();
                let count = found.len() as u64;
                warmup.hot.fetch_add(count, Ordering::Relaxed);
                *keys = rest;
                Ok(warmup.put_fetched(*vb, ticket, found))
            }
        }
    }
}

impl Warmup {
    /// Puts documents of the file into memory that are not there, or lack their value. Returns false when there is no
    /// room for them.
    fn put_fetched(&self, vb: VbId, ticket: FetchTicket, found: Vec<Item>) -> bool {
        let bytes: usize = found.iter().map(Item::heap_bytes).sum();
        let Some(_room) = self.reserve(bytes as u64, self.core.quota.below_low()) else {
            return false;
        };
        let (mut keys, mut values) = (0, 0);
        let mut vbucket = self.core.vbuckets[vb.index()].lock();
        self.core.measure(&mut vbucket, |vbucket| {
            for item in found {
                let key: Box<[u8]> = item.key().into();
                // The key is in memory; its value is, too.
                let is_there = |vbucket: &VBucket| {
                    let table = vbucket.table();
                    let item = table.find(table.hash(&key), &key);
                    (item.is_some(), item.is_some_and(Item::is_resident))
                };
                let is_live = !item.is_deleted();
                let before = is_there(vbucket);
                if vbucket.store_mut().fetched(ticket, &key, Some(item)) == Fetched::Known
                    && is_live
                {
                    let after = is_there(vbucket);
                    keys += u64::from(after.0 && !before.0);
                    values += u64::from(after.1 && !before.1);
                }
            }
        });
        drop(vbucket);
        self.keys.fetch_add(keys, Ordering::Relaxed);
        self.values.fetch_add(values, Ordering::Relaxed);
        true
    }
}

impl FileScan {
    fn step(&mut self, warmup: &Warmup) -> Result<bool, BucketError> {
        let keeps_keys = warmup.core.config().eviction_policy == EvictionPolicy::ValueOnly;
        if self.values && warmup.core.quota.below_low() <= warmup.kept_for_keys(keeps_keys) {
            // There is no room for values any more.
            let range = Seqno(self.last.get() + 1)..=self.applied;
            let Some(scan) = warmup.core.storage()?.scan(self.vb, range, false)? else {
                return Ok(false);
            };
            (self.scan, self.values) = (scan, false);
        }
        let (records, ended) = self.read()?;
        warmup.progress.note_read(records.len());
        let bytes_of = |with_values: bool| -> u64 {
            let of = |record: &FileRecord| {
                let value = record.value().filter(|_| with_values);
                value.map_or(0, <[u8]>::len) + record.key().len() + OVERHEAD_LIKELY
            };
            records.iter().map(|record| of(record) as u64).sum()
        };
        let quota = &warmup.core.quota;
        let for_values = quota
            .below_low()
            .saturating_sub(warmup.kept_for_keys(keeps_keys));
        let whole = self
            .values
            .then(|| warmup.reserve(bytes_of(true), for_values))
            .flatten();
        let with_values = whole.is_some();
        // Values may leave memory to make room for keys.
        let keys = || warmup.reserve(bytes_of(false), quota.room_for_keys());
        let room = whole.or_else(|| keeps_keys.then(keys).flatten());
        let mut vbucket = warmup.core.vbuckets[self.vb.index()].lock();
        if vbucket.history_id() != self.history || vbucket.documents().is_warm() {
            return Ok(false);
        }
        warmup.core.measure(&mut vbucket, |vbucket| {
            if room.is_some() && !self.left_out {
                self.put(warmup, vbucket, &records, with_values);
            } else {
                self.leave_out(vbucket, &records);
            }
            if ended {
                if self.left_out {
                    vbucket.documents_mut().finish_filter();
                }
                vbucket.store_mut().warmed(self.history, !self.left_out);
            }
        });
        Ok(!ended)
    }

    /// Reads the next documents and tombstones. Returns whether the file has ended, too.
    fn read(&mut self) -> Result<(Vec<FileRecord>, bool), BucketError> {
        let (mut records, mut bytes) = (Vec::with_capacity(STEP_ITEMS), 0);
        while records.len() < STEP_ITEMS && bytes < STEP_BYTES {
            let Some(record) = self.scan.next() else {
                return Ok((records, true));
            };
            let record = record?;
            self.last = record.meta().seqno;
            bytes += record.value().map_or(0, <[u8]>::len);
            if record.kind() == FileRecordKind::Document {
                records.push(record);
            }
        }
        Ok((records, false))
    }

    fn put(
        &self,
        warmup: &Warmup,
        vbucket: &mut VBucket,
        records: &[FileRecord],
        with_values: bool,
    ) {
        let (mut keys, mut values) = (0, 0);
        for record in records {
            let is_live = record.meta().deleted.is_none();
            match record.item().filter(|_| with_values) {
                Some(item) => {
                    values += u64::from(vbucket.store_mut().warm(self.history, item) && is_live);
                }
                None => {
                    let (meta, key) = (record.meta(), record.key());
                    let is_new = vbucket
                        .store_mut()
                        .warm_without_value(self.history, meta, key);
                    keys += u64::from(is_new && is_live);
                }
            }
        }
        warmup.keys.fetch_add(keys + values, Ordering::Relaxed);
        warmup.values.fetch_add(values, Ordering::Relaxed);
    }

    fn leave_out(&mut self, vbucket: &mut VBucket, records: &[FileRecord]) {
        if records.is_empty() {
            return;
        }
        if !self.left_out {
            self.left_out = true;
            vbucket.documents_mut().begin_filter();
        }
        vbucket
            .documents_mut()
            .add_to_filter(records.iter().map(FileRecord::key));
    }
}
