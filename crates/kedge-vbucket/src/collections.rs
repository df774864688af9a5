//! Which collections are open in a vBucket, and what it has of each.
//!
//! A key is of use only while its collection is open here. What was dropped is gone for every command at once; its
//! documents leave memory and file later. Ids are never used again, so nobody meets what is left of an older collection.
//!
//! Invariants:
//! * The entries are in the order of their ids. There are few, and mostly one: looking one up costs next to nothing.
//! * `items` follows the hash table as [`crate::HashTable::documents`] and what is on disk only do together; it may be too
//!   high in the same moments.

use crate::vbucket::{VBucket, VbState};
use kedge_types::{
    CollectionId, DocKey, Manifest, ManifestUid, Now, ScopeId, Seqno, Status, decode_leb128,
};

/// What a vBucket has of a collection that is open in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenCollection {
    /// Its id.
    pub id: CollectionId,
    /// The scope that it is in.
    pub scope: ScopeId,
    /// The seqno of the event that opened it; 0 for the default collection of a new vBucket.
    pub start: Seqno,
    /// The last seqno of a change in it.
    pub high_seqno: Seqno,
    /// Live documents.
    pub items: u64,
    /// Seconds that its documents live at most; `None`: as the bucket says, `Some(0)`: for ever.
    pub max_ttl: Option<u32>,
    /// Whether the history of its documents is asked for.
    pub history: bool,
    /// Commands since the start.
    pub ops: CollectionOps,
}

/// How often the documents of a collection were asked for since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectionOps {
    /// Documents that were read.
    pub reads: u64,
    /// Documents that were stored.
    pub writes: u64,
    /// Documents that were deleted.
    pub deletes: u64,
}

impl OpenCollection {
    pub(crate) fn new(id: CollectionId, scope: ScopeId, start: Seqno) -> Self {
        Self {
            id,
            scope,
            start,
            high_seqno: start,
            items: 0,
            max_ttl: None,
            history: false,
            ops: CollectionOps::default(),
        }
    }
}

/// What is open in a vBucket.
#[derive(Clone, Debug)]
pub(crate) struct Collections {
    uid: ManifestUid,
    open: Vec<OpenCollection>,
}

impl Collections {
    /// What a new vBucket has: the default collection.
    pub(crate) fn new() -> Self {
        let default = OpenCollection::new(CollectionId::DEFAULT, ScopeId(0), Seqno(0));
        Self {
            uid: ManifestUid(0),
            open: vec![default],
        }
    }

    pub(crate) fn uid(&self) -> ManifestUid {
        self.uid
    }

    pub(crate) fn open(&self) -> &[OpenCollection] {
        &self.open
    }

    fn at(&self, id: CollectionId) -> Result<usize, usize> {
        match self.open.first() {
            Some(first) if first.id == id => Ok(0),
            _ => self.open.binary_search_by_key(&id, |open| open.id),
        }
    }

    /// The collection of a stored key.
    fn of_key(&mut self, key: &[u8]) -> Option<&mut OpenCollection> {
        self.get_mut(collection_of(key))
    }

    fn get_mut(&mut self, id: CollectionId) -> Option<&mut OpenCollection> {
        let at = self.at(id).ok()?;
        self.open.get_mut(at)
    }

    /// A document or tombstone took the place of `old` in the hash table.
    pub(crate) fn on_put(&mut self, id: CollectionId, seqno: Seqno, is_live: bool, was_live: bool) {
        if let Some(open) = self.get_mut(id) {
            open.high_seqno = open.high_seqno.max(seqno);
            open.items = (open.items + u64::from(is_live)).saturating_sub(u64::from(was_live));
        }
    }

    /// A prepare or abort of this key stands at `seqno`.
    pub(crate) fn on_seqno(&mut self, key: &[u8], seqno: Seqno) {
        if let Some(open) = self.of_key(key) {
            open.high_seqno = open.high_seqno.max(seqno);
        }
    }

    /// What was written over was a live document on disk, which is counted here too.
    pub(crate) fn on_known(&mut self, key: &[u8]) {
        if let Some(open) = self.of_key(key) {
            open.items = open.items.saturating_sub(1);
        }
    }

    pub(crate) fn count(&mut self, key: &[u8], of: impl FnOnce(&mut CollectionOps) -> &mut u64) {
        if let Some(open) = self.of_key(key) {
            *of(&mut open.ops) += 1;
        }
    }

    /// Whether the collection of a key is open.
    pub(crate) fn check(&self, key: &DocKey) -> Result<(), Status> {
        match self.at(key.collection()) {
            Ok(_) => Ok(()),
            Err(_) => Err(Status::UnknownCollection),
        }
    }

    /// Opens and closes what `manifest` says.
    pub(crate) fn follow(&mut self, manifest: &Manifest, at: Seqno) {
        self.open
            .retain(|open| manifest.collection(open.id).is_some());
        for (scope, collection) in manifest.collections() {
            let index = match self.at(collection.id) {
                Ok(index) => index,
                Err(index) => {
                    let new = OpenCollection::new(collection.id, scope.id, at);
                    self.open.insert(index, new);
                    index
                }
            };
            self.open[index].max_ttl = collection.max_ttl;
            self.open[index].history = collection.history;
        }
        self.uid = manifest.uid;
    }
}

/// The collection of a stored key.
pub(crate) fn collection_of(key: &[u8]) -> CollectionId {
    match key.first() {
        Some(0) | None => CollectionId::DEFAULT,
        _ => CollectionId(decode_leb128(key).map_or(0, |(id, _)| id)),
    }
}

impl VBucket {
    /// What is open in it, in the order of ids.
    #[must_use]
    pub fn collections(&self) -> &[OpenCollection] {
        self.collections.open()
    }

    /// The manifest that it has followed last.
    #[must_use]
    pub fn manifest_uid(&self) -> ManifestUid {
        self.collections.uid()
    }

    /// Follows `manifest`, unless it knows a newer one. Only an active vBucket decides about that.
    pub fn follow_manifest(&mut self, _now: Now, manifest: &Manifest) {
        if self.state != VbState::Active || manifest.uid < self.collections.uid() {
            return;
        }
        self.collections.follow(manifest, self.high_seqno);
    }
}
