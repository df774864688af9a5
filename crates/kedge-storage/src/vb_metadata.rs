//! The metadata of a file about its vBucket: its state, and the statistics of its collections. Couchstore file format,
//! section 3.4.
//!
//! Invariants:
//! * [`VbMetadata`] has the contents of the local documents at the current header. It is replaced after a commit has
//!   returned, and never changed before.
//! * Counts are computed from the changes of each commit, so they are exact if those in the file were.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kedge_couchstore::kv::{
    CatchUpEntry, CheckpointKind, CollectionStats, FailoverEntry, LocalDocument, VBSTATE_NAME,
    VbStateDocument, VbStateKind, split_prepare,
};
use kedge_couchstore::{Error as FileError, Mutation, SavedChange, Snapshot, Writer};
use kedge_types::{CollectionId, Datatype, Seqno, decode_leb128};
use kedge_vbucket::{
    CatchUpPoint, FailoverTable, FileChange, FileCollections, OpenCollection, OpenScope,
    PersistedState, SnapshotKind, SystemEvent, SystemEventKind, VbState, is_system_key,
};

use crate::StorageError;
use crate::codec::event_in;
use crate::manifest::FileManifest;

/// The contents of the local documents.
#[derive(Debug, Clone)]
pub(crate) struct VbMetadata {
    pub(crate) document: VbStateDocument,
    pub(crate) collections: BTreeMap<CollectionId, CollectionStats>,
    /// `None` if there never was a system event.
    pub(crate) manifest: Option<Arc<FileManifest>>,
}

impl VbMetadata {
    /// Creates the metadata of the first file of a vBucket.
    pub(crate) fn new() -> Self {
        VbMetadata {
            document: VbStateDocument {
                // Every CAS issued here is a time.
                hlc_epoch: Some(Seqno(0)),
                ..VbStateDocument::new(VbStateKind::Active)
            },
            collections: BTreeMap::new(),
            manifest: None,
        }
    }

    /// Reads the metadata of a file.
    pub(crate) fn read(file: &Snapshot) -> Result<Self, StorageError> {
        let high_seqno = file.header().update_seqno();
        let mut document = None;
        let mut collections = BTreeMap::new();
        let mut manifest = FileManifest::default();
        let mut has_manifest = false;
        for local in file.locals()? {
            let (name, value) = local?;
            let known = LocalDocument::decode(&name, &value, high_seqno);
            match known.map_err(|reason| FileError::Local {
                file: file.path().to_owned(),
                name: name.escape_ascii().to_string(),
                reason,
            })? {
                Some(LocalDocument::VbState(state)) => document = Some(*state),
                Some(LocalDocument::Stats(collection, stats)) => {
                    collections.insert(collection, stats);
                }
                Some(other) => has_manifest |= manifest.read(&other),
                None => {}
            }
        }
        let document = document.ok_or_else(|| StorageError::State {
            file: file.path().to_owned(),
            reason: format!("`{}` is missing", VBSTATE_NAME.escape_ascii()),
        })?;
        Ok(VbMetadata {
            document,
            collections,
            manifest: has_manifest.then(|| Arc::new(manifest)),
        })
    }

    /// Returns the state from which the vBucket continues.
    pub(crate) fn state(&self, file: &Snapshot) -> Result<PersistedState, StorageError> {
        let unusable = |reason: &str| StorageError::State {
            file: file.path().to_owned(),
            reason: reason.to_owned(),
        };
        let document = &self.document;
        let table = document.failover_table.as_deref().unwrap_or_default();
        let failover = failover_table(table)
            .ok_or_else(|| unusable("its failover table is missing, or not in order"))?;
        let catch_up = document.catch_up.as_ref();
        let catch_up = catch_up.map(|entry| {
            let failover = failover_table(&entry.failover_table);
            let failover = failover.ok_or_else(|| unusable("`catch_up` has no failover table"))?;
            Ok::<_, StorageError>(CatchUpPoint::new(entry.seqno, failover))
        });
        Ok(PersistedState {
            state: match document.state {
                VbStateKind::Active => VbState::Active,
                VbStateKind::Replica => VbState::Replica,
                VbStateKind::Pending => VbState::Pending,
                VbStateKind::Dead => VbState::Dead,
            },
            failover,
            max_cas: document.max_cas,
            snap_start: document.snap_start,
            snap_end: document.snap_end,
            snap_kind: match document.checkpoint {
                CheckpointKind::Memory => SnapshotKind::Memory,
                CheckpointKind::Disk | CheckpointKind::InitialDisk => SnapshotKind::Disk,
            },
            visible: document.max_visible_seqno,
            prepared: document.prepared_seqno,
            completed: document.completed_seqno,
            max_deleted_rev: document.max_deleted_seqno.get().into(),
            purge: file.header().purge_seqno(),
            may_have_xattrs: document.might_contain_xattrs,
            catch_up: catch_up.transpose()?,
        })
    }

    /// Returns the metadata after a commit with this state and these changes.
    pub(crate) fn after(&self, state: &PersistedState, changes: &MetadataChanges) -> Self {
        let mut after = VbMetadata {
            document: self.document_after(state, changes),
            collections: self.collections.clone(),
            manifest: self.manifest.clone(),
        };
        if !changes.events.is_empty() {
            let mut manifest = self.manifest.as_deref().cloned().unwrap_or_default();
            for (seqno, event) in &changes.events {
                manifest.apply(event, *seqno);
            }
            after.manifest = Some(Arc::new(manifest));
        }
        after.count(changes);
        for (seqno, event) in &changes.events {
            after.follow(*seqno, event);
        }
        after
    }

    /// Returns the vBucket state document after a commit with this state and these changes.
    fn document_after(&self, state: &PersistedState, changes: &MetadataChanges) -> VbStateDocument {
        let catch_up = state.catch_up.as_ref().map(|point| CatchUpEntry {
            failover_table: failover_entries(&point.failover),
            seqno: point.seqno,
        });
        let old = &self.document;
        VbStateDocument {
            state: match state.state {
                VbState::Active => VbStateKind::Active,
                VbState::Replica => VbStateKind::Replica,
                VbState::Pending => VbStateKind::Pending,
                VbState::Dead => VbStateKind::Dead,
            },
            max_deleted_seqno: Seqno(state.max_deleted_rev.get()),
            snap_start: state.snap_start,
            snap_end: state.snap_end,
            max_cas: state.max_cas,
            has_max_cas: true,
            might_contain_xattrs: old.might_contain_xattrs
                || state.may_have_xattrs
                || changes.attributes,
            namespaces_supported: true,
            completed_seqno: state.completed,
            prepared_seqno: state.prepared,
            // Every written prepare is acknowledged; those of a snapshot from disk at its end.
            high_prepared_seqno: match state.snap_kind {
                SnapshotKind::Memory => state.prepared,
                SnapshotKind::Disk => old.high_prepared_seqno,
            },
            checkpoint: match state.snap_kind {
                SnapshotKind::Memory => CheckpointKind::Memory,
                SnapshotKind::Disk => CheckpointKind::Disk,
            },
            max_visible_seqno: state.visible,
            on_disk_prepares: old.on_disk_prepares.saturating_add_signed(changes.prepares),
            on_disk_prepare_bytes: old
                .on_disk_prepare_bytes
                .saturating_add_signed(changes.prepare_bytes),
            build: concat!("kedge ", env!("CARGO_PKG_VERSION")).to_owned(),
            failover_table: Some(failover_entries(&state.failover)),
            catch_up,
            ..old.clone()
        }
    }

    /// Adds the changes of a commit to the statistics of the collections.
    fn count(&mut self, changes: &MetadataChanges) {
        for (&collection, change) in &changes.collections {
            if self.is_dropped(collection) {
                continue;
            }
            let stats = self.collections.entry(collection);
            let stats = stats.or_insert(CollectionStats {
                disk_bytes: Some(0),
                ..CollectionStats::default()
            });
            stats.items = stats.items.saturating_add_signed(change.items);
            stats.high_seqno = stats.high_seqno.max(change.high_seqno);
            // If an old file lacks the figure, it stays unknown without a scan of the whole file.
            stats.disk_bytes = stats
                .disk_bytes
                .map(|bytes| bytes.saturating_add_signed(change.disk_bytes));
        }
    }

    /// Creates and removes the statistics of a collection with the collection.
    fn follow(&mut self, seqno: Seqno, event: &SystemEvent) {
        match event.kind {
            SystemEventKind::CollectionCreated => {
                let stats = self.collections.entry(event.collection);
                let stats = stats.or_insert(CollectionStats {
                    disk_bytes: Some(0),
                    ..CollectionStats::default()
                });
                stats.high_seqno = stats.high_seqno.max(seqno);
            }
            SystemEventKind::CollectionDropped => {
                self.collections.remove(&event.collection);
            }
            _ => {}
        }
    }

    fn is_dropped(&self, collection: CollectionId) -> bool {
        (self.manifest.as_deref()).is_some_and(|manifest| manifest.is_dropped(collection))
    }

    /// Returns the collections of the file.
    pub(crate) fn file_collections(&self) -> FileCollections {
        let default = FileManifest::default();
        let manifest = self.manifest.as_deref().unwrap_or(&default);
        let open = |open: &kedge_couchstore::kv::StoredCollection| {
            let stats = self.collections.get(&open.collection).copied();
            let stats = stats.unwrap_or_default();
            OpenCollection {
                max_ttl: open.max_ttl,
                history: open.history,
                items: stats.items,
                high_seqno: stats.high_seqno.max(open.start),
                ..OpenCollection::new(open.collection, open.scope, open.start)
            }
        };
        FileCollections {
            uid: manifest.uid,
            open: manifest.open.iter().map(open).collect(),
            scopes: (manifest.scopes.iter())
                .map(|open| OpenScope {
                    id: open.scope,
                    start: open.start,
                })
                .collect(),
        }
    }

    /// Returns the number of live documents in open collections; `None` if it is unknown, because there never was
    /// another collection.
    pub(crate) fn live_documents(&self) -> Option<u64> {
        self.manifest.as_deref()?;
        Some(self.collections.values().map(|stats| stats.items).sum())
    }

    /// Adds the local documents of a commit with these changes to it.
    pub(crate) fn save(
        &self,
        changes: &MetadataChanges,
        writer: &mut Writer,
    ) -> Result<(), StorageError> {
        let locals = self.locals(changes);
        let locals: Vec<_> = locals
            .iter()
            .map(|(name, value)| (&**name, value.as_deref()))
            .collect();
        Ok(writer.save_locals(&locals)?)
    }

    /// Returns the names and contents of the local documents of a commit with these changes.
    fn locals(&self, changes: &MetadataChanges) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let mut locals = vec![(VBSTATE_NAME.to_vec(), Some(self.document.encode()))];
        let of_events = changes.events.iter().map(|(_, event)| event);
        let of_events = of_events.filter(|event| !event.kind.is_of_scope());
        let mut touched: BTreeSet<CollectionId> = changes.collections.keys().copied().collect();
        touched.extend(of_events.map(|event| event.collection));
        for collection in touched {
            let stats = self.collections.get(&collection);
            let name = CollectionStats::name(collection).into_bytes();
            locals.push((name, stats.map(CollectionStats::encode)));
        }
        if let (Some(manifest), false) = (&self.manifest, changes.events.is_empty()) {
            locals.extend(manifest.locals());
        }
        locals
    }
}

/// The changes of a commit to the statistics.
#[derive(Debug, Default)]
pub(crate) struct MetadataChanges {
    collections: BTreeMap<CollectionId, CollectionChange>,
    prepares: i64,
    prepare_bytes: i64,
    attributes: bool,
    /// System events in the order of seqnos.
    events: Vec<(Seqno, SystemEvent)>,
}

#[derive(Debug, Default)]
struct CollectionChange {
    items: i64,
    high_seqno: Seqno,
    disk_bytes: i64,
}

impl MetadataChanges {
    /// Creates the changes of a commit with these items. Those that are not system events are added one by one.
    pub(crate) fn new(items: &[FileChange]) -> Self {
        let has_attributes = |apply: &FileChange| apply.item().datatype().contains(Datatype::XATTR);
        let mut events: Vec<_> = items
            .iter()
            .filter_map(|apply| Some((apply.item().seqno(), event_in(apply)?)))
            .collect();
        events.sort_unstable_by_key(|(seqno, _)| *seqno);
        MetadataChanges {
            attributes: items.iter().any(has_attributes),
            events,
            ..MetadataChanges::default()
        }
    }

    /// Counts one mutation of a commit. It is called in key order, in which items are scattered in memory, so it reads
    /// only data that the writer has just read.
    pub(crate) fn add(&mut self, mutation: &Mutation<'_>, change: &SavedChange<'_>) {
        if is_system_key(mutation.key) {
            return;
        }
        let (is_prepared, key) = split_prepare(mutation.key);
        let bytes = |disk_bytes: u32, meta: &[u8]| {
            i64::from(disk_bytes) + (mutation.key.len() + meta.len()) as i64
        };
        let new_bytes = bytes(change.disk_bytes, mutation.rev_meta);
        let old = change.old.as_ref();
        let old_bytes = old.map_or(0, |old| bytes(old.disk_bytes(), old.rev_meta()));
        let is_live = i64::from(!mutation.deleted);
        let was_live = i64::from(old.is_some_and(|old| !old.is_deleted()));
        let collection = self.collections.entry(collection_of(key)).or_default();
        collection.high_seqno = collection.high_seqno.max(mutation.seqno);
        collection.disk_bytes += new_bytes - old_bytes;
        if is_prepared {
            self.prepares += is_live - was_live;
            self.prepare_bytes += is_live * new_bytes - was_live * old_bytes;
        } else {
            collection.items += is_live - was_live;
        }
    }
}

fn failover_table(entries: &[FailoverEntry]) -> Option<FailoverTable> {
    let entries = entries.iter().map(|entry| (entry.uuid, entry.start));
    FailoverTable::from_entries(entries.collect())
}

fn failover_entries(table: &FailoverTable) -> Vec<FailoverEntry> {
    let entries = table.entries().iter();
    let entries = entries.map(|&(uuid, start)| FailoverEntry { uuid, start });
    entries.collect()
}

/// Returns the collection of a stored key.
fn collection_of(key: &[u8]) -> CollectionId {
    CollectionId(decode_leb128(key).map_or(0, |(id, _)| id))
}
