//! Figures: of one file, and of all that is done to files.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use kedge_types::Seqno;

use crate::{Revision, metered};

/// What one vBucket's file is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileFigures {
    /// Which of the vBucket's files it is.
    pub revision: Revision,
    /// Its length, in bytes.
    pub file_bytes: u64,
    /// What of it the last commit reaches: bodies and nodes, in bytes. A compaction leaves about as much.
    pub data_bytes: u64,
    /// The highest seqno.
    pub high_seqno: Seqno,
    /// The highest seqno of a tombstone that was purged.
    pub purge_seqno: Seqno,
    /// Documents and prepares.
    pub live: u64,
    /// Tombstones and aborts.
    pub deleted: u64,
}

impl FileFigures {
    /// The figures of the same file if nothing in it counts any more.
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

    /// Part of the file that nothing refers to, in percent.
    #[must_use]
    pub fn fragmentation_percent(&self) -> u8 {
        let needless = self.file_bytes.saturating_sub(self.data_bytes);
        let percent = u128::from(needless) * 100 / u128::from(self.file_bytes.max(1));
        percent as u8
    }
}

/// What was done to the files of a bucket since they were opened, and what is open now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StorageStats {
    /// Commits that returned.
    pub commits: u64,
    /// Documents, tombstones, prepares and aborts in them.
    pub committed_items: u64,
    /// Commits and other changes of files that failed.
    pub failed_commits: u64,
    /// Times that a file was needed and open.
    pub hits: u64,
    /// Times that a file was needed and not open.
    pub misses: u64,
    /// Files that were closed as too many were open.
    pub evictions: u64,
    /// Files that stay open.
    pub kept_files: u64,
    /// Memory that these take, in bytes.
    pub kept_bytes: u64,
    /// Handles of files now, those in use included.
    pub handles: u64,
    /// Scans under way.
    pub scans: u64,
    /// Handles that were ever opened.
    pub opened: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Syncs of files.
    pub syncs: u64,
    /// Syncs of the directory.
    pub directory_syncs: u64,
    /// Files that were replaced and could not be removed.
    pub files_left: u64,
}

impl StorageStats {
    pub(crate) fn new(
        counters: &Counters,
        done: &metered::Counters,
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

/// What is counted of files.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) commits: AtomicU64,
    pub(crate) committed_items: AtomicU64,
    pub(crate) failed_commits: AtomicU64,
    pub(crate) hits: AtomicU64,
    pub(crate) misses: AtomicU64,
    pub(crate) evictions: AtomicU64,
    pub(crate) files_left: AtomicU64,
    scans: AtomicU64,
}

impl Counters {
    pub(crate) fn count(counter: &AtomicU64) {
        Self::add(counter, 1);
    }

    pub(crate) fn add(counter: &AtomicU64, more: u64) {
        counter.fetch_add(more, Relaxed);
    }
}

/// A scan under way, as long as this lives.
#[derive(Debug)]
pub(crate) struct CountedScan(Arc<Counters>);

impl CountedScan {
    pub(crate) fn new(counters: &Arc<Counters>) -> Self {
        counters.scans.fetch_add(1, Relaxed);
        CountedScan(Arc::clone(counters))
    }
}

impl Drop for CountedScan {
    fn drop(&mut self) {
        self.0.scans.fetch_sub(1, Relaxed);
    }
}
