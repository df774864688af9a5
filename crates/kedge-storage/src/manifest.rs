//! The collections of a vBucket in its file: four local documents that follow the system events of the commits.
//! Couchstore file format, section 3.4.
//!
//! Invariants:
//! * A file without any event has none of the documents. It has the default collection only.
//! * The commit with an event rewrites them, so they are right at every header.
//! * A dropped collection stays in the list of dropped collections until a compaction has removed its documents.

use kedge_couchstore::kv::{
    CommittedManifest, DROPPED_COLLECTIONS_NAME, DroppedCollection, DroppedCollections,
    LocalDocument, MANIFEST_NAME, OPEN_COLLECTIONS_NAME, OPEN_SCOPES_NAME, Scopes,
    StoredCollection as FileCollection, StoredCollections, StoredScope as FileScope,
};
use kedge_types::{Collection, CollectionId, Manifest, ManifestUid, Scope, ScopeId, Seqno};
use kedge_vbucket::{SystemEvent, SystemEventKind};

/// The collections and scopes in the local documents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileManifest {
    pub(crate) uid: ManifestUid,
    pub(crate) open: Vec<FileCollection>,
    pub(crate) scopes: Vec<FileScope>,
    pub(crate) dropped: Vec<DroppedCollection>,
}

impl Default for FileManifest {
    fn default() -> Self {
        let name = || "_default".to_owned();
        Self {
            uid: ManifestUid(0),
            open: vec![FileCollection {
                collection: CollectionId::DEFAULT,
                name: name(),
                ..FileCollection::default()
            }],
            scopes: vec![FileScope {
                start: Seqno(0),
                scope: ScopeId(0),
                name: name(),
            }],
            dropped: Vec::new(),
        }
    }
}

impl FileManifest {
    /// Reads a local document. Returns `false` if it is not one of them.
    pub(crate) fn read(&mut self, local: &LocalDocument) -> bool {
        match local {
            LocalDocument::Manifest(manifest) => self.uid = manifest.uid,
            LocalDocument::OpenCollections(open) => self.open.clone_from(&open.entries),
            LocalDocument::Scopes(scopes) => self.scopes.clone_from(&scopes.entries),
            LocalDocument::DroppedCollections(dropped) => {
                self.dropped.clone_from(&dropped.entries);
            }
            _ => return false,
        }
        true
    }

    /// Returns the manifest of the vBucket, with scopes and collections ordered by id.
    pub(crate) fn manifest(&self) -> Manifest {
        let collections_of = |scope: ScopeId| {
            let open = self.open.iter().filter(|open| open.scope == scope);
            let mut collections: Vec<Collection> = open
                .map(|open| Collection {
                    id: open.collection,
                    name: open.name.clone(),
                    max_ttl: open.max_ttl,
                    history: open.history,
                })
                .collect();
            collections.sort_unstable_by_key(|collection| collection.id);
            collections
        };
        let mut scopes: Vec<Scope> = self
            .scopes
            .iter()
            .map(|open| Scope {
                id: open.scope,
                name: open.name.clone(),
                collections: collections_of(open.scope),
            })
            .collect();
        scopes.sort_unstable_by_key(|scope| scope.id);
        Manifest {
            uid: self.uid,
            scopes,
        }
    }

    /// Applies an event that is written at `seqno`.
    pub(crate) fn apply(&mut self, event: &SystemEvent, seqno: Seqno) {
        self.uid = self.uid.max(event.uid);
        match event.kind {
            SystemEventKind::CollectionCreated | SystemEventKind::CollectionModified => {
                self.apply_settings(event, seqno);
            }
            SystemEventKind::CollectionDropped => {
                let at = self
                    .open
                    .iter()
                    .position(|open| open.collection == event.collection);
                let start = at.map_or(event.start, |at| self.open.remove(at).start);
                self.dropped.push(DroppedCollection {
                    start,
                    end: seqno,
                    collection: event.collection,
                });
            }
            SystemEventKind::ScopeCreated => {
                self.scopes.retain(|open| open.scope != event.scope);
                self.scopes.push(FileScope {
                    start: seqno,
                    scope: event.scope,
                    name: event.name.clone(),
                });
            }
            SystemEventKind::ScopeDropped => self.scopes.retain(|open| open.scope != event.scope),
        }
    }

    fn apply_settings(&mut self, event: &SystemEvent, seqno: Seqno) {
        let is_new = event.kind == SystemEventKind::CollectionCreated;
        let known = self
            .open
            .iter_mut()
            .find(|open| open.collection == event.collection);
        if let Some(open) = known {
            open.start = if is_new { seqno } else { open.start };
            open.max_ttl = event.max_ttl;
            open.history = event.history;
            return;
        }
        self.open.push(FileCollection {
            start: seqno,
            scope: event.scope,
            collection: event.collection,
            max_ttl: event.max_ttl,
            name: event.name.clone(),
            history: event.history,
            ..FileCollection::default()
        });
    }

    /// Returns `true` if a collection was dropped and not recreated.
    pub(crate) fn is_dropped(&self, id: CollectionId) -> bool {
        let is_it = |dropped: &DroppedCollection| dropped.collection == id;
        self.dropped.iter().any(is_it) && self.open.iter().all(|open| open.collection != id)
    }

    /// Returns the names and contents of the local documents.
    pub(crate) fn locals(&self) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let manifest = CommittedManifest { uid: self.uid }.encode();
        let open = StoredCollections {
            entries: self.open.clone(),
        };
        let scopes = Scopes {
            entries: self.scopes.clone(),
        };
        let dropped = DroppedCollections {
            entries: self.dropped.clone(),
        };
        let dropped = (!self.dropped.is_empty()).then(|| dropped.encode());
        let mut locals = vec![
            (MANIFEST_NAME.to_vec(), Some(manifest)),
            (OPEN_COLLECTIONS_NAME.to_vec(), Some(open.encode())),
            (OPEN_SCOPES_NAME.to_vec(), Some(scopes.encode())),
        ];
        if dropped.is_some() {
            locals.push((DROPPED_COLLECTIONS_NAME.to_vec(), dropped));
        }
        locals
    }
}
