//! The durability of a bucket: what makes its changes survive, and brings them back.
//!
//! [`Persistence`] owns the commit log and the files of the vBuckets. Writers append to the log (or, without a log, commit
//! the files), appliers bring the log into the files, compactions rewrite files, recovery reads everything at a start, and a
//! rollback takes a vBucket back. It learns of changes and of waiting commands through [`WriteQueues`], and reports upwards
//! through [`PersistenceEvents`] alone: it knows nothing of commands, connections or streams.

mod applier;
mod close;
mod commit;
mod compaction;
mod files;
mod flusher;
mod import;
mod load_report;
mod persistence;
mod quarantine;
mod queues;
mod record;
mod recover;
mod reserve;
mod rollback;
mod segments;
mod shutdown_marker;
mod stats;
mod stuck;
mod tasks;
mod truncation;
mod writer;

pub use compaction::{CompactionProgress, CompactionReport, CompactionRequest, CompactionTicket};
pub use import::{import_files, vbuckets_of_files};
pub use load_report::LoadReport;
pub use persistence::{Persistence, PersistenceEvents};
pub use quarantine::VbReset;
pub use queues::WriteQueues;
pub use recover::{LOG_DIR, keeps_log};
pub use rollback::RolledBack;
pub use shutdown_marker::DIRECT_FILE;
