//! The access log: the keys that are in memory, in the order of their frequencies, so that a start reads the documents that
//! are used most first.
//!
//! It is a hint, and not synced. A log that is damaged, old or missing makes the next warmup slower, and has no other effect.
//!
//! Invariants:
//! * The file is written under another name, and replaces the valid one when it is complete.
//! * A vBucket is locked for one part of its table at a time.
//! * In an encrypted bucket the file is encrypted with the active key. One of another key, or in plain text, is removed.

mod format;
pub(crate) mod reader;
mod scanner;
mod seal;
mod writer;

pub use scanner::AccessScanner;
pub(crate) use scanner::WriteAccessLog;

/// Name of the file. Its number is that of a part of the bucket; a bucket has one part.
const NAME: &str = "access.log.0";
/// Name of a file that is not complete.
const NAME_WHILE_WRITTEN: &str = "access.log.0.next";
