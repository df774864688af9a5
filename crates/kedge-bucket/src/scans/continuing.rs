//! A continue of a scan.

use super::job::{Failed, PART_BYTES, PART_RECORDS, Turn};
use super::{OpenScan, ScanLimits};
use crate::scans::component::RangeScanner;
use kedge_bucket_core::Total;
use kedge_types::Status;
use kedge_types::limits::RANGE_SCAN_CONTINUE_BYTES_MAX;
use kedge_vbucket::{Completion, Cookie, Item, ScanEnd, ScanFound, ScanPart};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A continue.
#[derive(Debug)]
pub(super) struct Continuing {
    pub(super) scan: Arc<OpenScan>,
    limits: ScanLimits,
    pub(super) cookie: Cookie,
    began_ns: u64,
    items: u32,
    bytes: u64,
}

impl Continuing {
    pub(super) fn new(
        scan: &Arc<OpenScan>,
        limits: ScanLimits,
        cookie: Cookie,
        began_ns: u64,
    ) -> Self {
        Self {
            scan: Arc::clone(scan),
            limits,
            cookie,
            began_ns,
            items: 0,
            bytes: 0,
        }
    }

    /// Whether it has given what it may.
    fn is_full(&self, now_ns: u64) -> bool {
        let ScanLimits { items, ms, bytes } = self.limits;
        let took_ms = now_ns.saturating_sub(self.began_ns) / 1_000_000;
        self.items > 0
            && ((items > 0 && self.items >= items)
                || (ms > 0 && took_ms >= u64::from(ms))
                || (bytes > 0 && self.bytes >= u64::from(bytes))
                || self.bytes >= RANGE_SCAN_CONTINUE_BYTES_MAX)
    }

    pub(super) fn turn(&mut self, scanner: &RangeScanner) -> Result<Turn, Failed> {
        let scan = Arc::clone(&self.scan);
        scanner.check_scan(&scan)?;
        if scan.is_cancelled.load(Ordering::SeqCst) {
            return Err(Status::RangeScanCancelled.into());
        }
        let mut place = scan.place.lock();
        let (mut keys, mut documents) = (Vec::new(), Vec::new());
        let (items_before, bytes_before) = (self.items, self.bytes);
        let mut looked_at = 0;
        let end = loop {
            let now = scanner.core.setup.clock.now();
            let part_bytes = (self.bytes - bytes_before) as usize;
            let is_known = place.advance(now.unix_secs())?.is_none();
            if is_known && place.next.is_none() {
                break Some(ScanEnd::Complete);
            }
            if self.is_full(now.mono_ns) && place.next.is_some() {
                break Some(ScanEnd::More);
            }
            looked_at += 1;
            if part_bytes >= PART_BYTES || looked_at > PART_RECORDS {
                break None;
            }
            let Some(record) = place.next.take() else {
                continue;
            };
            self.items += 1;
            if scan.wanted.key_only {
                self.bytes += record.key().len() as u64;
                keys.push(record.key().into());
            } else {
                let item: Item = place.scan.item(&record)?;
                self.bytes += (record.key().len() + item.value().len()) as u64;
                documents.push(item);
            }
        };
        drop(place);
        let items = u64::from(self.items - items_before);
        let bytes = self.bytes - bytes_before;
        scan.items.fetch_add(items, Ordering::Relaxed);
        scan.bytes.fetch_add(bytes, Ordering::Relaxed);
        scanner.core.totals.add(Total::RangeScanItems, items);
        scanner.core.totals.add(Total::RangeScanBytes, bytes);
        if end.is_none() && items == 0 {
            return Ok(Turn::Worked(None));
        }
        let found = if scan.wanted.key_only {
            ScanFound::Keys(keys)
        } else {
            ScanFound::Documents {
                items: documents,
                with_xattrs: scan.wanted.with_xattrs,
            }
        };
        let part = Completion::Scanned {
            result: Ok(ScanPart { found, end }),
        };
        Ok(match end {
            None => Turn::Worked(Some((self.cookie, part))),
            Some(end) => {
                self.end(scanner, end);
                Turn::Over((self.cookie, part))
            }
        })
    }

    fn end(&self, scanner: &RangeScanner, end: ScanEnd) {
        match end {
            ScanEnd::Complete => drop(scanner.scans.remove(&self.scan.id)),
            ScanEnd::More => {
                let now_ns = scanner.core.setup.clock.now().mono_ns;
                self.scan.used_ns.store(now_ns, Ordering::Relaxed);
                self.scan.is_busy.store(false, Ordering::SeqCst);
            }
        }
    }
}
