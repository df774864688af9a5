//! The collections of a bucket: the manifest, its application to the vBuckets, and statistics.
//!
//! Invariant: every active vBucket applies the current manifest. A change of the manifest visits all vBuckets afterwards,
//! and a vBucket that becomes active reads the manifest under its lock.

use kedge_bucket_core::{BucketCore, BucketPhase};
use kedge_sync::{RankedMutex, ranks::ManifestChanging};
use kedge_types::{Collection, CollectionId, Manifest, ManifestUid, ScopeId, Seqno, VbId};
use kedge_vbucket::{CollectionOps, OpenCollection, VBucket, VbState};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Statistics of a collection in one vBucket, or in all active vBuckets of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectionFigures {
    /// The collection.
    pub collection: CollectionId,
    /// The scope of the collection.
    pub scope: ScopeId,
    /// The number of live documents. It may be too high until writes to evicted documents have been applied to the files.
    pub items: u64,
    /// The size in the files in bytes: stored values, keys and metadata, including those of tombstones and prepares.
    pub disk_bytes: u64,
    /// The seqno of the event that created the collection; the lowest one of several vBuckets.
    pub start: Seqno,
    /// The high seqno of the collection; the highest one of several vBuckets.
    pub high_seqno: Seqno,
    /// The number of operations since the start.
    pub ops: CollectionOps,
}

/// The scopes and collections of one vBucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VbCollections {
    /// The UID of the last manifest that the vBucket has applied.
    pub uid: ManifestUid,
    /// The persisted seqno.
    pub persisted_seqno: Seqno,
    /// The open scopes, ordered by id.
    pub scopes: Vec<ScopeId>,
    /// The statistics of the open collections, ordered by id.
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
pub struct BucketCollections {
    pub(crate) core: Arc<BucketCore>,
    /// The lock that is held during a change of the manifest, until all vBuckets have applied it.
    changing: RankedMutex<ManifestChanging, ()>,
}

impl BucketCollections {
    pub(crate) fn new(core: &Arc<BucketCore>) -> Self {
        Self {
            core: Arc::clone(core),
            changing: RankedMutex::default(),
        }
    }

    /// Returns the current manifest.
    #[must_use]
    pub fn manifest(&self) -> Arc<Manifest> {
        self.core.manifest()
    }

    /// Sets the manifest. Keys of its collections are accepted, and collections that it no longer contains are dropped at
    /// once. A manifest whose UID is not higher than the current one is ignored. If the bucket is loading, the vBuckets apply
    /// the manifest when the bucket opens. The function does not wait for the disk.
    pub fn set_manifest(&self, manifest: Arc<Manifest>) {
        let _guard = self.changing.lock();
        if manifest.uid <= self.core.manifest().uid {
            return;
        }
        let has_ttl = |(_, it): (_, &Collection)| it.max_ttl.is_some();
        self.core
            .dynamic
            .set_collection_ttls(manifest.collections().any(has_ttl));
        self.core.set_manifest(manifest);
        self.apply_manifest();
    }

    /// Applies the manifest to all active vBuckets, if the bucket is open.
    pub(crate) fn apply_manifest(&self) {
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

    /// Returns the statistics of each collection in the active vBuckets, ordered by id.
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

    /// Returns the open scopes and collections of a vBucket in any state; `None` if the vBucket does not exist.
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

    /// Returns the sizes of the collections in a vBucket's file, as far as they are known without reading the file.
    fn disk_bytes(&self, vb: VbId) -> BTreeMap<CollectionId, u64> {
        let storage = self.core.storage().ok();
        storage.map_or_else(BTreeMap::new, |storage| storage.collection_bytes(vb))
    }
}
