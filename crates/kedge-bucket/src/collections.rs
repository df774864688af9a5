//! The collections of a bucket: its vBuckets follow the manifest.
//!
//! Invariant: whoever changes the manifest walks over all vBuckets afterwards, and who makes a vBucket active looks at the
//! manifest under its lock; so no active vBucket is left behind.

use crate::bucket::{Bucket, Phase};
use kedge_types::{CollectionId, Manifest, Seqno};
use kedge_vbucket::{CollectionOps, VbState};
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The manifest that a bucket follows.
#[derive(Debug, Default)]
pub(crate) struct Collections {
    manifest: RwLock<Arc<Manifest>>,
    /// Who changes it holds this until all vBuckets have heard of it.
    changing: Mutex<()>,
}

/// What the active vBuckets of a bucket have of a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectionFigures {
    /// The collection.
    pub collection: CollectionId,
    /// Live documents. May be too high until what was written over evicted ones is in the files.
    pub items: u64,
    /// Bytes in the files: values as stored, keys and metadata, tombstones and prepares too.
    pub disk_bytes: u64,
    /// The highest last seqno that it has in any vBucket.
    pub high_seqno: Seqno,
    /// Commands since the start.
    pub ops: CollectionOps,
}

impl Bucket {
    /// The manifest that the bucket follows.
    #[must_use]
    pub fn manifest(&self) -> Arc<Manifest> {
        Arc::clone(&self.collections.manifest.read())
    }

    /// From now on the bucket follows `manifest`: keys are taken for the collections in it, and those that are not in it
    /// any more are gone at once. One whose uid is not above that of the bucket's is ignored. While the bucket is loading
    /// this is only noted: the vBuckets hear of it when it opens. Nobody waits for the disk.
    pub fn set_manifest(&self, manifest: Arc<Manifest>) {
        let _alone = self.collections.changing.lock();
        if manifest.uid <= self.collections.manifest.read().uid {
            return;
        }
        *self.collections.manifest.write() = manifest;
        self.tell_manifest();
    }

    /// Lets all active vBuckets hear of the manifest, if the bucket is open.
    pub(crate) fn tell_manifest(&self) {
        let manifest = self.manifest();
        for vbucket in &self.vbuckets {
            if self.phase() != Phase::Open {
                return;
            }
            let now = self.setup.clock.now();
            let mut vbucket = vbucket.lock();
            if vbucket.state() != VbState::Active || vbucket.is_rewinding() {
                continue;
            }
            let ((), mut done) = self.account(now, &mut vbucket, |vbucket| {
                vbucket.follow_manifest(now, &manifest);
            });
            drop(vbucket);
            if !done.is_empty() {
                self.deliver(now, &mut done);
            }
        }
        self.tell_streams();
    }

    /// What the active vBuckets have of each collection, in the order of ids.
    #[must_use]
    pub fn collection_figures(&self) -> Vec<CollectionFigures> {
        let mut found: BTreeMap<CollectionId, CollectionFigures> = BTreeMap::new();
        for vbucket in &self.vbuckets {
            let vbucket = vbucket.lock();
            if vbucket.state() != VbState::Active {
                continue;
            }
            for open in vbucket.collections() {
                let figures = found.entry(open.id).or_insert(CollectionFigures {
                    collection: open.id,
                    items: 0,
                    disk_bytes: 0,
                    high_seqno: Seqno(0),
                    ops: CollectionOps::default(),
                });
                figures.items += open.items;
                figures.high_seqno = figures.high_seqno.max(open.high_seqno);
                figures.ops.reads += open.ops.reads;
                figures.ops.writes += open.ops.writes;
                figures.ops.deletes += open.ops.deletes;
            }
        }
        found.into_values().collect()
    }
}
