//! The collections and scopes that are open in a vBucket.
//!
//! A key is valid only while its collection is open. After a drop, no command reaches its documents; they are removed
//! from memory and from the file later. Collection ids are never reused, so leftovers of a dropped collection are
//! harmless.
//!
//! Invariants:
//! * The entries are ordered by id. There are few, mostly one, so a lookup costs next to nothing.
//! * `items` counts the documents in the hash table and those on disk only, as [`crate::HashTable::documents`] and the
//!   residency do together. It may be too high at the same moments.

use crate::system_event::{SystemEvent, SystemEventKind};
use kedge_types::{
    CollectionId, DocKey, Manifest, ManifestUid, ScopeId, Seqno, Status, decode_leb128,
};

/// A collection that is open in a vBucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenCollection {
    /// The collection id.
    pub id: CollectionId,
    /// The scope of the collection.
    pub scope: ScopeId,
    /// The seqno of the event that created it, or 0 for the default collection of a new vBucket.
    pub start: Seqno,
    /// The high seqno of the collection.
    pub high_seqno: Seqno,
    /// The seqno of the last event that changed its settings, or 0 if it is unknown or there was none.
    pub modified: Seqno,
    /// The number of live documents.
    pub items: u64,
    /// The maximum time to live in seconds. `None` selects the setting of the bucket, `Some(0)` no limit.
    pub max_ttl: Option<u32>,
    /// True if the history of documents is retained.
    pub history: bool,
    /// Counts of operations since the start.
    pub ops: CollectionOps,
}

/// Counts of operations on the documents of a collection since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectionOps {
    /// The number of reads.
    pub reads: u64,
    /// The number of stores.
    pub writes: u64,
    /// The number of deletions.
    pub deletes: u64,
}

/// A scope that is open in a vBucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenScope {
    /// The scope id.
    pub id: ScopeId,
    /// The seqno of the event that created it, or 0 for the default scope of a new vBucket.
    pub start: Seqno,
}

/// The collections of a vBucket in its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileCollections {
    /// The uid of the manifest.
    pub uid: ManifestUid,
    /// The open collections with the statistics of the file, in any order.
    pub open: Vec<OpenCollection>,
    /// The open scopes, in any order.
    pub scopes: Vec<OpenScope>,
}

impl Default for FileCollections {
    fn default() -> Self {
        let OpenCollections { uid, open, scopes } = OpenCollections::new();
        Self { uid, open, scopes }
    }
}

impl OpenCollection {
    /// Returns an empty collection that was created at `start`.
    #[must_use]
    pub fn new(id: CollectionId, scope: ScopeId, start: Seqno) -> Self {
        Self {
            id,
            scope,
            start,
            high_seqno: start,
            modified: Seqno(0),
            items: 0,
            max_ttl: None,
            history: false,
            ops: CollectionOps::default(),
        }
    }
}

/// The collections and scopes that are open in a vBucket, ordered by collection id.
#[derive(Clone, Debug)]
pub struct OpenCollections {
    pub(crate) uid: ManifestUid,
    open: Vec<OpenCollection>,
    /// The scopes, in any order.
    scopes: Vec<OpenScope>,
}

impl OpenCollections {
    /// Returns the collections of a new vBucket: the default one.
    pub(crate) fn new() -> Self {
        let default = OpenCollection::new(CollectionId::DEFAULT, ScopeId(0), Seqno(0));
        Self {
            uid: ManifestUid(0),
            open: vec![default],
            scopes: vec![OpenScope {
                id: ScopeId(0),
                start: Seqno(0),
            }],
        }
    }

    /// Returns the uid of the last manifest that was applied.
    #[must_use]
    pub fn uid(&self) -> ManifestUid {
        self.uid
    }

    /// Returns the open collections, ordered by id.
    #[must_use]
    pub fn open(&self) -> &[OpenCollection] {
        &self.open
    }

    /// Returns the open scopes, in any order.
    #[must_use]
    pub fn scopes(&self) -> &[OpenScope] {
        &self.scopes
    }

    fn at(&self, id: CollectionId) -> Result<usize, usize> {
        match self.open.first() {
            Some(first) if first.id == id => Ok(0),
            _ => self.open.binary_search_by_key(&id, |open| open.id),
        }
    }

    /// Returns the collection of a stored key.
    fn of_key(&mut self, key: &[u8]) -> Option<&mut OpenCollection> {
        self.get_mut(collection_of(key))
    }

    fn get_mut(&mut self, id: CollectionId) -> Option<&mut OpenCollection> {
        let at = self.at(id).ok()?;
        self.open.get_mut(at)
    }

    /// Records that a document or tombstone replaced a live document (`was_live`) or none in the hash table.
    pub(crate) fn on_put(&mut self, id: CollectionId, seqno: Seqno, is_live: bool, was_live: bool) {
        if let Some(open) = self.get_mut(id) {
            open.high_seqno = open.high_seqno.max(seqno);
            open.items = (open.items + u64::from(is_live)).saturating_sub(u64::from(was_live));
        }
    }

    /// Records a prepare or abort of this key at `seqno`.
    pub(crate) fn on_seqno(&mut self, key: &[u8], seqno: Seqno) {
        if let Some(open) = self.of_key(key) {
            open.high_seqno = open.high_seqno.max(seqno);
        }
    }

    /// Records that a document replaced a live one on disk, which is also counted here.
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

    /// Checks that the collection of a key is open.
    ///
    /// # Errors
    /// `UnknownCollection`.
    pub fn check(&self, key: &DocKey) -> Result<(), Status> {
        match self.at(key.collection()) {
            Ok(_) => Ok(()),
            Err(_) => Err(Status::UnknownCollection),
        }
    }

    /// Returns the collections of a file.
    pub(crate) fn from_file(file: &FileCollections) -> Self {
        let mut open = file.open.clone();
        open.sort_unstable_by_key(|open| open.id);
        Self {
            uid: file.uid,
            open,
            scopes: file.scopes.clone(),
        }
    }

    pub(crate) fn items_of(&self, id: CollectionId) -> u64 {
        self.at(id).map_or(0, |at| self.open[at].items)
    }

    pub(crate) fn is_open(&self, id: CollectionId) -> bool {
        self.at(id).is_ok()
    }

    /// Returns whether the collection of a stored key is not open, so the key is of no further use.
    pub(crate) fn is_of_dropped(&self, key: &[u8]) -> bool {
        !self.is_open(collection_of(key))
    }

    /// Returns the events that lead to `manifest`, in order: drops, then creations.
    pub(crate) fn differences(&self, manifest: &Manifest) -> Vec<SystemEvent> {
        let event = |kind, scope| SystemEvent {
            kind,
            uid: manifest.uid,
            scope,
            collection: CollectionId::DEFAULT,
            name: String::new(),
            max_ttl: None,
            history: false,
            start: Seqno(0),
        };
        let mut events = Vec::new();
        for open in &self.open {
            if manifest.collection(open.id).is_none() {
                events.push(SystemEvent {
                    collection: open.id,
                    start: open.start,
                    ..event(SystemEventKind::CollectionDropped, open.scope)
                });
            }
        }
        for open in &self.scopes {
            if manifest.scope(open.id).is_none() {
                events.push(event(SystemEventKind::ScopeDropped, open.id));
            }
        }
        for scope in &manifest.scopes {
            if self.scopes.iter().all(|open| open.id != scope.id) {
                events.push(SystemEvent {
                    name: scope.name.clone(),
                    ..event(SystemEventKind::ScopeCreated, scope.id)
                });
            }
        }
        for (scope, collection) in manifest.collections() {
            let kind = match self.at(collection.id) {
                Err(_) => SystemEventKind::CollectionCreated,
                Ok(at) => {
                    let open = &self.open[at];
                    if (open.max_ttl, open.history) == (collection.max_ttl, collection.history) {
                        continue;
                    }
                    SystemEventKind::CollectionModified
                }
            };
            events.push(SystemEvent {
                collection: collection.id,
                name: collection.name.clone(),
                max_ttl: collection.max_ttl,
                history: collection.history,
                ..event(kind, scope.id)
            });
        }
        events
    }

    /// Applies an event. Returns the seqno of the event with the same key that it replaces, or 0 if there is none.
    pub(crate) fn apply(&mut self, event: &SystemEvent, seqno: Seqno) -> Seqno {
        self.uid = self.uid.max(event.uid);
        match event.kind {
            SystemEventKind::CollectionCreated | SystemEventKind::CollectionModified => {
                self.apply_settings(event, seqno)
            }
            SystemEventKind::CollectionDropped => match self.at(event.collection) {
                Ok(at) => self.open.remove(at).start,
                Err(_) => Seqno(0),
            },
            SystemEventKind::ScopeCreated => {
                let old = self.forget_scope(event.scope);
                self.scopes.push(OpenScope {
                    id: event.scope,
                    start: seqno,
                });
                old
            }
            SystemEventKind::ScopeDropped => self.forget_scope(event.scope),
        }
    }

    fn apply_settings(&mut self, event: &SystemEvent, seqno: Seqno) -> Seqno {
        let is_new = event.kind == SystemEventKind::CollectionCreated;
        let at = self.at(event.collection).unwrap_or_else(|at| {
            let new = OpenCollection::new(event.collection, event.scope, seqno);
            self.open.insert(at, new);
            at
        });
        let open = &mut self.open[at];
        open.max_ttl = event.max_ttl;
        open.history = event.history;
        open.high_seqno = open.high_seqno.max(seqno);
        if !is_new {
            return std::mem::replace(&mut open.modified, seqno);
        }
        match std::mem::replace(&mut open.start, seqno) {
            start if start == seqno => Seqno(0),
            old => old,
        }
    }

    fn forget_scope(&mut self, id: ScopeId) -> Seqno {
        match self.scopes.iter().position(|open| open.id == id) {
            Some(at) => self.scopes.remove(at).start,
            None => Seqno(0),
        }
    }
}

/// Returns the collection of a stored key.
pub(crate) fn collection_of(key: &[u8]) -> CollectionId {
    match key.first() {
        Some(0) | None => CollectionId::DEFAULT,
        _ => CollectionId(decode_leb128(key).map_or(0, |(id, _)| id)),
    }
}
