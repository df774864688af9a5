//! The collections of a bucket: its vBuckets follow the manifest.
//!
//! Invariant: whoever changes the manifest walks over all vBuckets afterwards, and who makes a vBucket active looks at the
//! manifest under its lock; so no active vBucket is left behind.

use kedge_bucket_core::BucketCore;
use kedge_bucket_core::BucketPhase;
use kedge_sync::{RankedMutex, ranks::ManifestChanging};
use kedge_types::{Collection, CollectionId, Manifest, ManifestUid, ScopeId, Seqno, VbId};
use kedge_vbucket::{CollectionOps, OpenCollection, VBucket, VbState};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a vBucket has of a collection, or the active vBuckets of a bucket together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectionFigures {
    /// The collection.
    pub collection: CollectionId,
    /// The scope that it is in.
    pub scope: ScopeId,
    /// Live documents. May be too high until what was written over evicted ones is in the files.
    pub items: u64,
    /// Bytes in the files: values as stored, keys and metadata, tombstones and prepares too.
    pub disk_bytes: u64,
    /// The seqno of the event that opened it; of several vBuckets the lowest.
    pub start: Seqno,
    /// The highest last seqno that it has in any vBucket.
    pub high_seqno: Seqno,
    /// Commands since the start.
    pub ops: CollectionOps,
}

/// The scopes and collections of one vBucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VbCollections {
    /// The manifest that it has followed last.
    pub uid: ManifestUid,
    /// Everything up to this is on disk.
    pub persisted_seqno: Seqno,
    /// The scopes that are open, in the order of ids.
    pub scopes: Vec<ScopeId>,
    /// What it has of each collection that is open, in the order of ids.
    pub collections: Vec<CollectionFigures>,
}

impl CollectionFigures {
    fn of(open: &OpenCollection) -> Self {
        Self {
            collection: open.id,
            scope: open.scope,
            items: open.items,
            disk_bytes: 0,
            start: open.start,
            high_seqno: open.high_seqno,
            ops: open.ops,
        }
    }

    fn add(&mut self, other: &Self) {
        self.items += other.items;
        self.disk_bytes += other.disk_bytes;
        self.start = self.start.min(other.start);
        self.high_seqno = self.high_seqno.max(other.high_seqno);
        self.ops.reads += other.ops.reads;
        self.ops.writes += other.ops.writes;
        self.ops.deletes += other.ops.deletes;
    }
}

/// The scopes and collections of a bucket.
pub struct Collections {
    pub(crate) core: Arc<BucketCore>,
    /// Held while the manifest is changed, until all vBuckets follow it.
    changing: RankedMutex<ManifestChanging, ()>,
}

impl Collections {
    pub(crate) fn new(core: &Arc<BucketCore>) -> Self {
        Self {
            core: Arc::clone(core),
            changing: RankedMutex::default(),
        }
    }

    /// The manifest that the bucket follows.
    #[must_use]
    pub fn manifest(&self) -> Arc<Manifest> {
        self.core.manifest()
    }

    /// From now on the bucket follows `manifest`: keys are taken for the collections in it, and those that are not in it
    /// any more are gone at once. One whose uid is not above that of the bucket's is ignored. While the bucket is loading
    /// this is only noted: the vBuckets hear of it when it opens. Nobody waits for the disk.
    pub fn set_manifest(&self, manifest: Arc<Manifest>) {
        let _alone = self.changing.lock();
        if manifest.uid <= self.core.manifest().uid {
            return;
        }
        let has_ttl = |(_, it): (_, &Collection)| it.max_ttl.is_some();
        self.core
            .dynamic
            .set_collection_ttls(manifest.collections().any(has_ttl));
        self.core.set_manifest(manifest);
        self.tell_manifest();
    }

    /// Lets all active vBuckets hear of the manifest, if the bucket is open.
    pub(crate) fn tell_manifest(&self) {
        let manifest = self.core.manifest();
        for vbucket in &self.core.vbuckets {
            if self.core.phase() != BucketPhase::Open {
                return;
            }
            let now = self.core.setup.clock.now();
            let mut vbucket = vbucket.lock();
            if vbucket.state() != VbState::Active || vbucket.store().is_rewinding() {
                continue;
            }
            let ((), mut done) = self.core.account(now, &mut vbucket, |vbucket| {
                vbucket.follow_manifest(now, &manifest);
            });
            drop(vbucket);
            if !done.is_empty() {
                self.core.deliver(now, &mut done);
            }
        }
        self.core.after_step();
    }

    /// What the active vBuckets have of each collection, in the order of ids.
    #[must_use]
    pub fn figures(&self) -> Vec<CollectionFigures> {
        let mut found: BTreeMap<CollectionId, CollectionFigures> = BTreeMap::new();
        for vbucket in &self.core.vbuckets {
            let vbucket = vbucket.lock();
            if vbucket.state() != VbState::Active {
                continue;
            }
            for one in self.figures_of(&vbucket) {
                let figures = found.entry(one.collection).or_insert(CollectionFigures {
                    high_seqno: Seqno(0),
                    ..CollectionFigures::of(&OpenCollection::new(
                        one.collection,
                        one.scope,
                        one.start,
                    ))
                });
                figures.add(&one);
            }
        }
        found.into_values().collect()
    }

    /// Which scopes and collections are open in a vBucket, whatever its state is; `None` when there is none of this number.
    #[must_use]
    pub fn of_vbucket(&self, vb: VbId) -> Option<VbCollections> {
        let vbucket = self.core.vbuckets.get(vb.index())?.lock();
        if vbucket.is_deleted() {
            return None;
        }
        let mut scopes: Vec<ScopeId> = vbucket
            .collections()
            .scopes()
            .iter()
            .map(|open| open.id)
            .collect();
        scopes.sort_unstable();
        Some(VbCollections {
            uid: vbucket.collections().uid(),
            persisted_seqno: vbucket.persisted_seqno(),
            scopes,
            collections: self.figures_of(&vbucket),
        })
    }

    fn figures_of(&self, vbucket: &VBucket) -> Vec<CollectionFigures> {
        let on_disk = match vbucket.store().is_file_void() {
            true => BTreeMap::new(),
            false => self.disk_bytes(vbucket.id()),
        };
        let figures = |open: &OpenCollection| CollectionFigures {
            disk_bytes: on_disk.get(&open.id).copied().unwrap_or(0),
            ..CollectionFigures::of(open)
        };
        vbucket.collections().open().iter().map(figures).collect()
    }

    /// What a vBucket's file says of the sizes of its collections, as far as that is known without reading it.
    fn disk_bytes(&self, vb: VbId) -> BTreeMap<CollectionId, u64> {
        let storage = self.core.storage().ok();
        storage.map_or_else(BTreeMap::new, |storage| storage.collection_bytes(vb))
    }
}
