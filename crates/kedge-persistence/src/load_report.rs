//! The result of loading a bucket.

/// The result of loading a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// The number of log records that were read.
    pub records: u64,
    /// The length of the log, in bytes.
    pub bytes: u64,
    /// The number of documents of the bucket.
    pub documents: u64,
    /// True if the bucket had neither a log nor files.
    pub is_new: bool,
    /// True if the last shutdown was clean.
    pub clean: bool,
    /// The number of damaged places that salvage skipped.
    pub skipped: u64,
    /// The duration, in microseconds.
    pub took_us: u64,
}
