//! The position of a scan in its file.

use super::failure::ScanFailure;
use super::sample::SampleSelector;
use kedge_storage::{FileRecord, KeyScan};

/// The position of a scan in its file.
#[derive(Debug)]
pub(super) struct ScanPosition {
    pub(super) scan: KeyScan,
    pub(super) sample: Option<SampleSelector>,
    /// The next record to return, if it is known.
    pub(super) next: Option<FileRecord>,
}

impl ScanPosition {
    /// Reads the next document of the file. Returns `None` once `next` is final: a record, or the end of the scan.
    pub(super) fn advance(&mut self, unix_secs: u64) -> Result<Option<()>, ScanFailure> {
        if self.next.is_some()
            || self
                .sample
                .as_ref()
                .is_some_and(SampleSelector::is_complete)
        {
            return Ok(None);
        }
        let Some(record) = self.scan.next() else {
            return Ok(None);
        };
        let record = record?;
        let is_chosen =
            is_live(&record, unix_secs) && self.sample.as_mut().is_none_or(SampleSelector::selects);
        self.next = is_chosen.then_some(record);
        Ok(Some(()))
    }
}

/// Returns whether a record has not expired. A scan omits expired documents even if the vBucket has not deleted them.
pub(super) fn is_live(record: &FileRecord, unix_secs: u64) -> bool {
    !record.meta().expiry.has_passed(unix_secs)
}
