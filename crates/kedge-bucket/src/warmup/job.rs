//! The parts of warmup: a file is read to its end, or documents are looked up.

use crate::bucket::Bucket;
use crate::config::EvictionPolicy;
use crate::error::BucketError;
use kedge_storage::{Record, RecordKind, Scan};
use kedge_types::{Seqno, VbId};
use kedge_vbucket::{FetchTicket, Fetched, VBucket};
use std::sync::atomic::Ordering;

/// Documents of one step: so many a vBucket is locked for.
const STEP_ITEMS: usize = 256;

/// What the key and metadata of a document are likely to take in memory.
const KEY_BYTES_LIKELY: u64 = 100;

/// Something to do.
#[derive(Debug)]
pub(super) enum Job {
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
            Self::Keys(vb) | Self::Hot(vb, _) | Self::Documents(vb) | Self::Values(vb) => *vb,
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
    settled: Seqno,
    scan: Scan,
    /// Up to here it was read.
    last: Seqno,
    /// Whether the scan reads values.
    values: bool,
    /// Keys were left out: those of the file go into a filter.
    left_out: bool,
}

impl Bucket {
    /// `None` if there is nothing to do.
    pub(super) fn begin_job(&self, job: Job) -> Result<Option<Running>, BucketError> {
        match job {
            Job::Keys(vb) => self.scan_file(vb, false),
            Job::Documents(vb) => self.scan_file(vb, true),
            Job::Values(vb) => {
                let ticket = self.vbuckets[vb.index()].lock().fetch_ticket();
                let scan = self.storage()?.scan(vb, .., true)?;
                Ok(scan.map(|scan| Running::Values { vb, ticket, scan }))
            }
            Job::Hot(vb, keys) => Ok(Some(Running::Hot { vb, keys })),
        }
    }

    fn scan_file(&self, vb: VbId, values: bool) -> Result<Option<Running>, BucketError> {
        let (history, settled) = {
            let vbucket = self.vbuckets[vb.index()].lock();
            if vbucket.is_warm() {
                // It has no file, or another history than the one that was found.
                return Ok(None);
            }
            (vbucket.history(), vbucket.settled_seqno())
        };
        let Some(scan) = self.storage()?.scan(vb, ..=settled, values)? else {
            self.vbuckets[vb.index()].lock().warmed(history, true);
            return Ok(None);
        };
        Ok(Some(Running::File(FileScan {
            vb,
            history,
            settled,
            scan,
            last: Seqno(0),
            values,
            left_out: false,
        })))
    }

    fn has_room(&self) -> bool {
        self.quota.below_low() > 0
    }

    /// Values are not to take the place of keys that come later.
    fn has_room_for_values(&self, keeps_keys: bool) -> bool {
        let reserved = if keeps_keys {
            let (all, loaded) = (&self.warmup.estimated, &self.warmup.keys);
            let left = all
                .load(Ordering::Relaxed)
                .saturating_sub(loaded.load(Ordering::Relaxed));
            left * KEY_BYTES_LIKELY
        } else {
            0
        };
        self.quota.below_low() > reserved
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
    pub(super) fn step(&mut self, bucket: &Bucket) -> Result<bool, BucketError> {
        match self {
            Self::File(file) => file.step(bucket),
            Self::Values { vb, ticket, scan } => {
                if !bucket.has_room() {
                    return Ok(false);
                }
                let records: Result<Vec<Record>, _> = scan.by_ref().take(STEP_ITEMS).collect();
                let records = records?;
                let documents = records
                    .iter()
                    .filter(|record| record.kind() == RecordKind::Document);
                let found = documents.filter_map(Record::item).collect();
                bucket.put_fetched(*vb, *ticket, found);
                Ok(!records.is_empty())
            }
            Self::Hot { vb, keys } => {
                if keys.is_empty() || !bucket.has_room() {
                    return Ok(false);
                }
                let rest = keys.split_off(keys.len().min(STEP_ITEMS));
                let ticket = bucket.vbuckets[vb.index()].lock().fetch_ticket();
                let wanted: Vec<&[u8]> = keys.iter().map(|key| &**key).collect();
                let found = bucket.storage()?.get_many(*vb, &wanted)?;
                let found: Vec<_> = found.into_iter().flatten().collect();
                let count = found.len() as u64;
                bucket.warmup.hot.fetch_add(count, Ordering::Relaxed);
                bucket.put_fetched(*vb, ticket, found);
                *keys = rest;
                Ok(true)
            }
        }
    }
}

impl Bucket {
    /// Documents were read from the file: those go into memory whose place is free, or that lack their value.
    fn put_fetched(&self, vb: VbId, ticket: FetchTicket, found: Vec<kedge_vbucket::Item>) {
        let mut values = 0;
        let mut vbucket = self.vbuckets[vb.index()].lock();
        self.measure(&mut vbucket, |vbucket| {
            for item in found {
                let key: Box<[u8]> = item.key().into();
                let known = vbucket.fetched(ticket, &key, Some(item));
                values += u64::from(known == Fetched::Known);
            }
        });
        drop(vbucket);
        self.warmup.values.fetch_add(values, Ordering::Relaxed);
    }
}

impl FileScan {
    fn step(&mut self, bucket: &Bucket) -> Result<bool, BucketError> {
        let keeps_keys = bucket.config().eviction_policy == EvictionPolicy::ValueOnly;
        if self.values && !bucket.has_room_for_values(keeps_keys) {
            // Bodies are of no use any more.
            let range = Seqno(self.last.get() + 1)..=self.settled;
            let Some(scan) = bucket.storage()?.scan(self.vb, range, false)? else {
                return Ok(false);
            };
            (self.scan, self.values) = (scan, false);
        }
        let mut records = Vec::with_capacity(STEP_ITEMS);
        for record in self.scan.by_ref().take(STEP_ITEMS) {
            let record = record?;
            self.last = record.meta().seqno;
            records.push(record);
        }
        let ended = records.is_empty();
        records.retain(|record| record.kind() == RecordKind::Document);
        let mut vbucket = bucket.vbuckets[self.vb.index()].lock();
        if vbucket.history() != self.history || vbucket.is_warm() {
            return Ok(false);
        }
        let fits = bucket.has_room() && (keeps_keys || self.values);
        bucket.measure(&mut vbucket, |vbucket| {
            if fits && !self.left_out {
                self.put(bucket, vbucket, &records);
            } else {
                self.leave_out(vbucket, &records);
            }
            if ended {
                if self.left_out {
                    vbucket.finish_filter();
                }
                vbucket.warmed(self.history, !self.left_out);
            }
        });
        Ok(!ended)
    }

    fn put(&self, bucket: &Bucket, vbucket: &mut VBucket, records: &[Record]) {
        let (mut keys, mut values) = (0, 0);
        for record in records {
            match record.item() {
                Some(item) => values += u64::from(vbucket.warm(self.history, item)),
                None => {
                    let (meta, key) = (record.meta(), record.key());
                    keys += u64::from(vbucket.warm_without_value(self.history, meta, key));
                }
            }
        }
        bucket
            .warmup
            .keys
            .fetch_add(keys + values, Ordering::Relaxed);
        bucket.warmup.values.fetch_add(values, Ordering::Relaxed);
    }

    fn leave_out(&mut self, vbucket: &mut VBucket, records: &[Record]) {
        if records.is_empty() {
            return;
        }
        if !self.left_out {
            self.left_out = true;
            vbucket.begin_filter(vbucket.documents());
        }
        vbucket.add_to_filter(records.iter().map(Record::key));
    }
}
