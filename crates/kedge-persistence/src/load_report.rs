//! The outcome of loading.

/// The outcome of loading a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// Records read.
    pub records: u64,
    /// Bytes of the log.
    pub bytes: u64,
    /// Documents there are.
    pub documents: u64,
    /// True if there was nothing yet, neither log nor files.
    pub is_new: bool,
    /// True if the last shutdown was clean.
    pub clean: bool,
    /// Damaged places that salvage skipped.
    pub skipped: u64,
    /// Duration, in microseconds.
    pub took_us: u64,
}
