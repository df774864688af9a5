//! Figures of single files, and of all operations on files.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use kedge_types::Seqno;

use crate::{FileRevision, metered};

/// The figures of a vBucket's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileFigures {
    /// The revision of the file.
    pub revision: FileRevision,
    /// Length of the file, in bytes.
    pub file_bytes: u64,
    /// Size of the bodies and nodes that the last commit refers to, in bytes. A compaction leaves about as much.
    pub data_bytes: u64,
    /// The highest seqno.
    pub high_seqno: Seqno,
    /// The highest seqno of a purged tombstone.
    pub purge_seqno: Seqno,
    /// Number of documents and prepares.
    pub live: u64,
    /// Number of tombstones and aborts.
    pub deleted: u64,
}

impl FileFigures {
    /// Returns the figures of the file as if it had no valid contents.
    #[must_use]
    pub fn without_content(self) -> Self {
        Self {
            revision: self.revision,
            file_bytes: self.file_bytes,
            data_bytes: 0,
            high_seqno: Seqno(0),
            purge_seqno: Seqno(0),
            live: 0,
            deleted: 0,
        }
    }

    /// Returns the part of the file that is garbage, in percent.
    #[must_use]
    pub fn fragmentation_percent(&self) -> u8 {
        let needless = self.file_bytes.saturating_sub(self.data_bytes);
        let percent = u128::from(needless) * 100 / u128::from(self.file_bytes.max(1));
        percent as u8
    }
}

/// The operations on the files of a bucket since the storage was opened, and the open files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StorageStats {
    /// Number of commits that returned.
    pub commits: u64,
    /// Number of documents, tombstones, prepares and aborts in them.
    pub committed_items: u64,
    /// Number of commits and other changes of files that failed.
    pub failed_commits: u64,
    /// Number of times that a file was needed and open.
    pub hits: u64,
    /// Number of times that a file was needed and not open.
    pub misses: u64,
    /// Number of files closed because too many were open.
    pub evictions: u64,
    /// Number of files that are kept open.
    pub kept_files: u64,
    /// Memory of these, in bytes.
    pub kept_bytes: u64,
    /// Number of open file handles, those in use included.
    pub handles: u64,
    /// Number of running scans.
    pub scans: u64,
    /// Number of file handles opened so far.
    pub opened: u64,
    /// Number of bytes read.
    pub read_bytes: u64,
    /// Number of bytes written.
    pub written_bytes: u64,
    /// Number of syncs of files.
    pub syncs: u64,
    /// Number of syncs of the directory.
    pub directory_syncs: u64,
    /// Number of replaced files that could not be removed.
    pub files_left: u64,
}

impl StorageStats {
    pub(crate) fn new(
        counters: &StorageCounters,
        done: &metered::DiskCounters,
        kept_files: usize,
        kept_bytes: u64,
    ) -> Self {
        let closed = done.closed.load(Relaxed);
        let opened = done.opened.load(Relaxed);
        StorageStats {
            commits: counters.commits.load(Relaxed),
            committed_items: counters.committed_items.load(Relaxed),
            failed_commits: counters.failed_commits.load(Relaxed),
            hits: counters.hits.load(Relaxed),
            misses: counters.misses.load(Relaxed),
            evictions: counters.evictions.load(Relaxed),
            kept_files: kept_files as u64,
            kept_bytes,
            handles: opened.saturating_sub(closed),
            scans: counters.scans.load(Relaxed),
            opened,
            read_bytes: done.read_bytes.load(Relaxed),
            written_bytes: done.written_bytes.load(Relaxed),
            syncs: done.syncs.load(Relaxed),
            directory_syncs: done.directory_syncs.load(Relaxed),
            files_left: counters.files_left.load(Relaxed),
        }
    }
}

/// The counters of a storage.
#[derive(Debug, Default)]
pub(crate) struct StorageCounters {
    pub(crate) commits: AtomicU64,
    pub(crate) committed_items: AtomicU64,
    pub(crate) failed_commits: AtomicU64,
    pub(crate) hits: AtomicU64,
    pub(crate) misses: AtomicU64,
    pub(crate) evictions: AtomicU64,
    pub(crate) files_left: AtomicU64,
    scans: AtomicU64,
}

impl StorageCounters {
    pub(crate) fn count(counter: &AtomicU64) {
        Self::add(counter, 1);
    }

    pub(crate) fn add(counter: &AtomicU64, more: u64) {
        counter.fetch_add(more, Relaxed);
    }
}

/// Counts a running scan until it is dropped.
#[derive(Debug)]
pub(crate) struct ActiveScan(Arc<StorageCounters>);

impl ActiveScan {
    pub(crate) fn new(counters: &Arc<StorageCounters>) -> Self {
        counters.scans.fetch_add(1, Relaxed);
        ActiveScan(Arc::clone(counters))
    }
}

impl Drop for ActiveScan {
    fn drop(&mut self) {
        self.0.scans.fetch_sub(1, Relaxed);
    }
}
