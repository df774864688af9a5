//! The access log: the keys that are in memory, those that are used most first, so that a start reads these first.
//!
//! It is a hint. It is not synced; one that is damaged, old or missing costs time at the next start and nothing else.
//!
//! Invariants:
//! * The file is written under another name, and replaces the valid one when it is complete.
//! * A vBucket is locked for one part of its table at a time.

mod format;
pub(crate) mod reader;
mod scanner;
mod writer;

pub use scanner::AccessScanner;
pub(crate) use scanner::WriteAccessLog;

/// Name of the file. Its number is that of the part of the bucket, of which there is one here.
const NAME: &str = "access.log.0";
