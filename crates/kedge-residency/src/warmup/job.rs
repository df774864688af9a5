//! The parts of warmup: a file is read to its end, or documents are looked up.

use crate::residency::Residency;
use kedge_bucket_core::BucketError;
use kedge_bucket_core::EvictionPolicy;
use kedge_storage::{Record, RecordKind, Scan};
use kedge_types::{Seqno, VbId};
use kedge_vbucket::{FetchTicket, Fetched, Item, VBucket};
use std::sync::atomic::Ordering;

/// Documents of one step: so many a vBucket is locked for.
const STEP_ITEMS: usize = 256;
/// Those that are looked up one by one may be large.
const HOT_ITEMS: usize = 64;
/// Bytes of their values.
const STEP_BYTES: usize = 1 << 20;
/// What a document is likely to take beside key and value.
const OVERHEAD_LIKELY: usize = 64;

/// What the key and metadata of a document are likely to take in memory.
const KEY_BYTES_LIKELY: u64 = 100;

/// Something to do.
#[derive(Debug)]
pub(super) enum Job {
    /// Where a file has its documents.
    Places(VbId),
    /// The keys of a file, with metadata.
    Keys(VbId),
    /// These documents.
    Hot(VbId, Vec<Box<[u8]>>),
    /// The documents of a file.
    Documents(VbId),
    /// Values of documents whose keys are there.
    Values(VbId),
}

impl Job {
    pub(super) fn vb(&self) -> VbId {
        match self {
            Self::Places(vb)
            | Self::Keys(vb)
            | Self::Hot(vb, _)
            | Self::Documents(vb)
            | Self::Values(vb) => *vb,
        }
    }
}

/// A job that was begun.
#[derive(Debug)]
pub(super) enum Running {
    File(FileScan),
    Values {
        vb: VbId,
        ticket: FetchTicket,
        scan: Scan,
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
    scan: Scan,
    /// Up to here it was read.
    last: Seqno,
    /// Whether the scan reads values.
    values: bool,
    /// Keys were left out: those of the file go into a filter.
    left_out: bool,
}

impl Residency {
    /// `None` if there is nothing more to do.
    pub(super) fn begin_job(&self, job: Job) -> Result<Option<Running>, BucketError> {
        match job {
            Job::Places(vb) => {
                self.core.storage()?.remember_keys(vb)?;
                Ok(None)
            }
            Job::Keys(vb) => self.scan_file(vb, false),
            Job::Documents(vb) => self.scan_file(vb, true),
            Job::Values(vb) => {
                let ticket = self.core.vbuckets[vb.index()].lock().store().fetch_ticket();
                let scan = self.core.storage()?.scan(vb, .., true)?;
                Ok(scan.map(|scan| Running::Values { vb, ticket, scan }))
            }
            Job::Hot(vb, keys) => Ok(Some(Running::Hot { vb, keys })),
        }
    }

    fn scan_file(&self, vb: VbId, values: bool) -> Result<Option<Running>, BucketError> {
        let (history, applied) = {
            let vbucket = self.core.vbuckets[vb.index()].lock();
            if vbucket.documents().is_warm() {
                // It has no file, or another history than the one that was found.
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
        Ok(Some(Running::File(FileScan {
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

    /// Bytes that are kept for keys that come later: values are not to take their place.
    fn kept_for_keys(&self, keeps_keys: bool) -> u64 {
        if !keeps_keys {
            return 0;
        }
        let (all, loaded) = (&self.warmup.estimated, &self.warmup.keys);
        let loaded = loaded.load(Ordering::Relaxed);
        all.load(Ordering::Relaxed).saturating_sub(loaded) * KEY_BYTES_LIKELY
    }

    /// Takes room for what is put into memory next, if `bytes` fit into `room`; it counts against the other workers
    /// until it is in memory.
    fn reserve(&self, bytes: u64, room: u64) -> Option<Reserved<'_>> {
        let reserved = Reserved {
            residency: self,
            bytes,
        };
        let before = self.warmup.reserved.fetch_add(bytes, Ordering::SeqCst);
        (before + bytes <= room).then_some(reserved)
    }
}

/// Admission that is taken.
struct Reserved<'a> {
    residency: &'a Residency,
    bytes: u64,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        let reserved = &self.residency.warmup.reserved;
        reserved.fetch_sub(self.bytes, Ordering::SeqCst);
    }
}

impl Running {
    pub(super) fn vb(&self) -> VbId {
        match self {
            Self::File(file) => file.vb,
            Self::Values { vb, .. } | Self::Hot { vb, .. } => *vb,
        }
    }

    /// Goes on for a few documents. False at the end.
    pub(super) fn step(&mut self, residency: &Residency) -> Result<bool, BucketError> {
        match self {
            Self::File(file) => file.step(residency),
            Self::Values { vb, ticket, scan } => {
                if !residency.has_room() {
                    return Ok(false);
                }
                let (mut found, mut bytes) = (Vec::with_capacity(STEP_ITEMS), 0);
                while found.len() < STEP_ITEMS && bytes < STEP_BYTES {
                    let Some(record) = scan.next() else {
                        residency.warmup.note_read(found.len());
                        residency.put_fetched(*vb, *ticket, found);
                        return Ok(false);
                    };
                    let record = record?;
                    bytes += record.value().map_or(0, <[u8]>::len);
                    if record.kind() == RecordKind::Document {
                        found.extend(record.item());
                    }
                }
                residency.warmup.note_read(found.len());
                Ok(residency.put_fetched(*vb, *ticket, found))
            }
            Self::Hot { vb, keys } => {
                if keys.is_empty() || !residency.has_room() {
                    return Ok(false);
                }
                let rest = keys.split_off(keys.len().min(HOT_ITEMS));
                let ticket = residency.core.vbuckets[vb.index()]
                    .lock()
                    .store()
                    .fetch_ticket();
                let wanted: Vec<&[u8]> = keys.iter().map(|key| &**key).collect();
                let found = residency.core.storage()?.get_many(*vb, &wanted)?;
                residency.warmup.note_read(wanted.len());
                let found: Vec<_> = found.into_iter().flatten().collect();
                let count = found.len() as u64;
                residency.warmup.hot.fetch_add(count, Ordering::Relaxed);
                *keys = rest;
                Ok(residency.put_fetched(*vb, ticket, found))
            }
        }
    }
}

impl Residency {
    /// Documents were read from the file: those go into memory whose place is free, or that lack their value. False
    /// when there is no room for them.
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
                // Whether the key is in memory, and with its value.
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
        self.warmup.keys.fetch_add(keys, Ordering::Relaxed);
        self.warmup.values.fetch_add(values, Ordering::Relaxed);
        true
    }
}

impl FileScan {
    fn step(&mut self, residency: &Residency) -> Result<bool, BucketError> {
        let keeps_keys = residency.core.config().eviction_policy == EvictionPolicy::ValueOnly;
        if self.values && residency.core.quota.below_low() <= residency.kept_for_keys(keeps_keys) {
            // Bodies are of no use any more.
            let range = Seqno(self.last.get() + 1)..=self.applied;
            let Some(scan) = residency.core.storage()?.scan(self.vb, range, false)? else {
                return Ok(false);
            };
            (self.scan, self.values) = (scan, false);
        }
        let (records, ended) = self.read()?;
        residency.warmup.note_read(records.len());
        let bytes_of = |with_values: bool| -> u64 {
            let of = |record: &Record| {
                let value = record.value().filter(|_| with_values);
                value.map_or(0, <[u8]>::len) + record.key().len() + OVERHEAD_LIKELY
            };
            records.iter().map(|record| of(record) as u64).sum()
        };
        let quota = &residency.core.quota;
        let for_values = quota
            .below_low()
            .saturating_sub(residency.kept_for_keys(keeps_keys));
        let whole = self
            .values
            .then(|| residency.reserve(bytes_of(true), for_values))
            .flatten();
        let with_values = whole.is_some();
        // Values may leave memory to make room for keys.
        let keys = || residency.reserve(bytes_of(false), quota.room_for_keys());
        let room = whole.or_else(|| keeps_keys.then(keys).flatten());
        let mut vbucket = residency.core.vbuckets[self.vb.index()].lock();
        if vbucket.history_id() != self.history || vbucket.documents().is_warm() {
            return Ok(false);
        }
        residency.core.measure(&mut vbucket, |vbucket| {
            if room.is_some() && !self.left_out {
                self.put(residency, vbucket, &records, with_values);
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

    /// The next documents and tombstones, and whether the file has ended.
    fn read(&mut self) -> Result<(Vec<Record>, bool), BucketError> {
        let (mut records, mut bytes) = (Vec::with_capacity(STEP_ITEMS), 0);
        while records.len() < STEP_ITEMS && bytes < STEP_BYTES {
            let Some(record) = self.scan.next() else {
                return Ok((records, true));
            };
            let record = record?;
            self.last = record.meta().seqno;
            bytes += record.value().map_or(0, <[u8]>::len);
            if record.kind() == RecordKind::Document {
                records.push(record);
            }
        }
        Ok((records, false))
    }

    fn put(
        &self,
        residency: &Residency,
        vbucket: &mut VBucket,
        records: &[Record],
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
        residency
            .warmup
            .keys
            .fetch_add(keys + values, Ordering::Relaxed);
        residency.warmup.values.fetch_add(values, Ordering::Relaxed);
    }

    fn leave_out(&mut self, vbucket: &mut VBucket, records: &[Record]) {
        if records.is_empty() {
            return;
        }
        if !self.left_out {
            self.left_out = true;
            vbucket.documents_mut().begin_filter();
        }
        vbucket
            .documents_mut()
            .add_to_filter(records.iter().map(Record::key));
    }
}
