//! vBuckets whose files accept no changes, because the part to be changed is damaged.
//!
//! Such a vBucket is served: its documents are in memory, or in readable parts of the file. Until the file is rebuilt,
//! its changes are durable in the log, or with `commit_log = false` only in memory. The log retains the records of
//! these changes.

use kedge_bucket_core::{BucketCore, BucketError};
use kedge_sync::{RankedMutex, ranks::StuckFiles as StuckFilesRank};
use kedge_types::VbId;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The vBuckets whose files rejected the last changes because of damage.
pub(crate) struct StuckFiles {
    core: Arc<BucketCore>,
    vbuckets: RankedMutex<StuckFilesRank, BTreeSet<VbId>>,
    /// The number of vBuckets. It spares writers of intact files the lock.
    count: AtomicUsize,
}

impl StuckFiles {
    pub(crate) fn new(core: Arc<BucketCore>) -> Self {
        Self {
            core,
            vbuckets: RankedMutex::default(),
            count: AtomicUsize::new(0),
        }
    }

    /// Adds a vBucket. Returns whether it is new.
    fn add(&self, vb: VbId) -> bool {
        let mut vbuckets = self.vbuckets.lock();
        let is_new = vbuckets.insert(vb);
        self.count.store(vbuckets.len(), Ordering::Relaxed);
        is_new
    }

    /// Removes a vBucket. Returns whether it was present.
    fn discard(&self, vb: VbId) -> bool {
        if self.count() == 0 {
            return false;
        }
        let mut vbuckets = self.vbuckets.lock();
        let was_there = vbuckets.remove(&vb);
        self.count.store(vbuckets.len(), Ordering::Relaxed);
        was_there
    }

    /// Returns the number of vBuckets.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Adds a vBucket whose changes could not be written, and logs that. Returns false, without a log message, if
    /// damage is not the cause.
    pub(crate) fn note(&self, vb: VbId, error: &BucketError) -> bool {
        let BucketError::Storage(storage) = error else {
            return false;
        };
        if !storage.is_unreadable() {
            return false;
        }
        if self.add(vb) {
            let (name, location) = (self.core.name(), self.location_of_changes());
            tracing::error!(
                bucket = name,
                vbucket = %vb,
                %error,
                "the vBucket's file is damaged and accepts no changes: they stay {location}; \
                 rebuild the file with: kedge compact {name} --vb {vb} --wait"
            );
        }
        true
    }

    /// Returns a description of the place of changes that no file has.
    fn location_of_changes(&self) -> &'static str {
        if self.core.is_direct() {
            "in memory and are lost when the server stops"
        } else {
            "in the log, which cannot be truncated"
        }
    }

    /// Removes a vBucket whose changes were written to its file.
    pub(crate) fn remove(&self, vb: VbId) {
        if self.discard(vb) {
            tracing::info!(
                bucket = self.core.name(),
                vbucket = %vb,
                "the vBucket's file accepts changes again"
            );
        }
    }
}
