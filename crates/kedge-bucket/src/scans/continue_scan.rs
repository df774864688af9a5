//! Execution of a RANGE_SCAN_CONTINUE.

use super::failure::ScanFailure;
use super::job::{PART_BYTES, PART_RECORDS, ScanProgress};
use super::{OpenScan, ScanLimits};
use crate::scans::component::RangeScanner;
use kedge_bucket_core::Total;
use kedge_types::Status;
use kedge_types::limits::RANGE_SCAN_CONTINUE_BYTES_MAX;
use kedge_vbucket::{Completion, Cookie, Item, ScanEnd, ScanFound, ScanPart};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A RANGE_SCAN_CONTINUE that is being executed.
#[derive(Debug)]
pub(super) struct ContinueScan {
    pub(super) scan: Arc<OpenScan>,
    limits: ScanLimits,
    pub(super) cookie: Cookie,
    began_ns: u64,
    items: u32,
    bytes: u64,
}

impl ContinueScan {
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

    /// Returns whether one of the limits has been reached.
    fn is_full(&self, now_ns: u64) -> bool {
        let ScanLimits { items, ms, bytes } = self.limits;
        let took_ms = now_ns.saturating_sub(self.began_ns) / 1_000_000;
        self.items > 0
            && ((items > 0 && self.items >= items)
                || (ms > 0 && took_ms >= u64::from(ms))
                || (bytes > 0 && self.bytes >= u64::from(bytes))
                || self.bytes >= RANGE_SCAN_CONTINUE_BYTES_MAX)
    }

    /// Reads the next part of the scan.
    pub(super) fn advance(&mut self, scanner: &RangeScanner) -> Result<ScanProgress, ScanFailure> {
        let scan = Arc::clone(&self.scan);
        scanner.check_scan(&scan)?;
        if scan.is_cancelled.load(Ordering::SeqCst) {
            return Err(Status::RangeScanCancelled.into());
        }
        let mut position = scan.position.lock();
        let (mut keys, mut documents) = (Vec::new(), Vec::new());
        let (items_before, bytes_before) = (self.items, self.bytes);
        let mut examined = 0;
        let end = loop {
            let now = scanner.core.setup.clock.now();
            let part_bytes = (self.bytes - bytes_before) as usize;
            let is_known = position.advance(now.unix_secs())?.is_none();
            if is_known && position.next.is_none() {
                break Some(ScanEnd::Complete);
            }
            if self.is_full(now.mono_ns) && position.next.is_some() {
                break Some(ScanEnd::More);
            }
            examined += 1;
            if part_bytes >= PART_BYTES || examined > PART_RECORDS {
                break None;
            }
            let Some(record) = position.next.take() else {
                continue;
            };
            self.items += 1;
            if scan.request.key_only {
                self.bytes += record.key().len() as u64;
                keys.push(record.key().into());
            } else {
                let item: Item = position.scan.item(&record)?;
                self.bytes += (record.key().len() + item.value().len()) as u64;
                documents.push(item);
            }
        };
        drop(position);
        let items = u64::from(self.items - items_before);
        let bytes = self.bytes - bytes_before;
        scan.items.fetch_add(items, Ordering::Relaxed);
        scan.bytes.fetch_add(bytes, Ordering::Relaxed);
        scanner.core.totals.add(Total::RangeScanItems, items);
        scanner.core.totals.add(Total::RangeScanBytes, bytes);
        if end.is_none() && items == 0 {
            return Ok(ScanProgress::Advanced(None));
        }
        let found = if scan.request.key_only {
            ScanFound::Keys(keys)
        } else {
            ScanFound::Documents {
                items: documents,
                with_xattrs: scan.request.with_xattrs,
            }
        };
        let part = Completion::Scanned {
            result: Ok(ScanPart { found, end }),
        };
        Ok(match end {
            None => ScanProgress::Advanced(Some((self.cookie, part))),
            Some(end) => {
                self.end(scanner, end);
                ScanProgress::Finished((self.cookie, part))
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
