//! vBuckets whose files take no changes, because what is to be changed in them is damaged.
//!
//! Such a vBucket is served: its documents are in memory, or in parts of the file that can be read. Its changes are
//! durable in the log, or with `commit_log = false` in memory only, until the file is written anew. The log cannot give
//! back what these need.

use kedge_bucket_core::{BucketCore, BucketError};
use kedge_sync::{RankedMutex, ranks::StuckFiles as StuckFilesRank};
use kedge_types::VbId;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The vBuckets whose files took no changes when that was tried last.
pub(crate) struct StuckFiles {
    core: Arc<BucketCore>,
    vbuckets: RankedMutex<StuckFilesRank, BTreeSet<VbId>>,
    /// How many there are, so that who writes into a sound file need not look.
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

    /// Returns whether it was not known.
    fn add(&self, vb: VbId) -> bool {
        let mut vbuckets = self.vbuckets.lock();
        let is_new = vbuckets.insert(vb);
        self.count.store(vbuckets.len(), Ordering::Relaxed);
        is_new
    }

    /// Returns whether it was one.
    fn discard(&self, vb: VbId) -> bool {
        if self.count() == 0 {
            return false;
        }
        let mut vbuckets = self.vbuckets.lock();
        let was_there = vbuckets.remove(&vb);
        self.count.store(vbuckets.len(), Ordering::Relaxed);
        was_there
    }

    /// How many vBuckets there are.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Changes of a vBucket could not be written into its file. False if that is not because of damage, and was not said.
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
                "the vBucket's file is damaged and takes no changes: they stay {location}; \
                 rebuild the file with: kedge compact {name} --vb {vb} --wait"
            );
        }
        true
    }

    /// Where changes are that no file has.
    fn location_of_changes(&self) -> &'static str {
        if self.core.is_direct() {
            "in memory, and are lost if the server stops"
        } else {
            "in the log, which grows"
        }
    }

    /// Changes of a vBucket were written into its file.
    pub(crate) fn remove(&self, vb: VbId) {
        if self.discard(vb) {
            tracing::info!(
                bucket = self.core.name(),
                vbucket = %vb,
                "the vBucket's file takes changes again"
            );
        }
    }
}
