//! How far a scan is.

use super::job::Failed;
use super::sample::Sample;
use kedge_storage::{FileRecord, KeyScan};

/// How far a scan is.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) scan: KeyScan,
    pub(super) sample: Option<Sample>,
    /// What it gives next.
    pub(super) next: Option<FileRecord>,
}

impl Place {
    /// Looks at the next document of the file. `None`: `next` is known, as one was found or none is left.
    pub(super) fn advance(&mut self, unix_secs: u64) -> Result<Option<()>, Failed> {
        if self.next.is_some() || self.sample.as_ref().is_some_and(Sample::is_over) {
            return Ok(None);
        }
        let Some(record) = self.scan.next() else {
            return Ok(None);
        };
        let record = record?;
        let is_chosen =
            is_live(&record, unix_secs) && self.sample.as_mut().is_none_or(Sample::chooses);
        self.next = is_chosen.then_some(record);
        Ok(Some(()))
    }
}

/// What has expired is not shown, whether or not the vBucket has let go of it.
pub(super) fn is_live(record: &FileRecord, unix_secs: u64) -> bool {
    !record.meta().expiry.has_passed(unix_secs)
}
