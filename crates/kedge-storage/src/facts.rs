//! What a file says of its vBucket beside the documents: its state, and the statistics of its collections. Couchstore
//! file format, section 3.4.
//!
//! Invariants:
//! * [`Facts`] are what the local documents say at the header that counts. They are replaced when a commit returned, and
//!   never changed on the way to it.
//! * All that is counted is counted from what a commit adds and replaces, so it is exact if it was exact in the file.

use std::collections::BTreeMap;

use kedge_couchstore::kv::{
    CollectionStats, FailoverEntry, LocalDocument, VBSTATE_NAME, VbStateDocument, VbStateKind,
};
use kedge_couchstore::{Change, Error as FileError, OldVersion, Snapshot};
use kedge_types::{CollectionId, Seqno, decode_leb128};
use kedge_vbucket::{FailoverTable, PersistedState, Settle, VbState};

use crate::StorageError;

/// What is in the local documents.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    pub(crate) document: VbStateDocument,
    pub(crate) collections: BTreeMap<CollectionId, CollectionStats>,
}

impl Facts {
    /// What the first file of a vBucket begins with.
    pub(crate) fn new() -> Self {
        Facts {
            document: VbStateDocument {
                // Every CAS that is given out here is a time.
                hlc_epoch: Some(Seqno(0)),
                ..VbStateDocument::new(VbStateKind::Active)
            },
            collections: BTreeMap::new(),
        }
    }

    /// What a file says.
    pub(crate) fn read(file: &Snapshot) -> Result<Self, StorageError> {
        let high_seqno = file.header().update_seqno();
        let mut document = None;
        let mut collections = BTreeMap::new();
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
                _ => {}
            }
        }
        let document = document.ok_or_else(|| StorageError::State {
            file: file.path().to_owned(),
            reason: format!("`{}` is missing", VBSTATE_NAME.escape_ascii()),
        })?;
        Ok(Facts {
            document,
            collections,
        })
    }

    /// What is to be known of a vBucket to go on where the file ends.
    pub(crate) fn state(&self, file: &Snapshot) -> Result<PersistedState, StorageError> {
        let unusable = |reason: &str| StorageError::State {
            file: file.path().to_owned(),
            reason: reason.to_owned(),
        };
        let document = &self.document;
        let table = document.failover_table.as_deref().unwrap_or_default();
        let entries = table
            .iter()
            .map(|entry| (entry.uuid, entry.start))
            .collect();
        let failover = FailoverTable::from_entries(entries)
            .ok_or_else(|| unusable("its failover table is missing, or not in order"))?;
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
            visible: document.max_visible_seqno,
            prepared: document.prepared_seqno,
            completed: document.completed_seqno,
            max_deleted_rev: document.max_deleted_seqno.get().into(),
            purge: file.header().purge_seqno(),
        })
    }

    /// What a commit with this state and these changes says.
    pub(crate) fn after(&self, state: &PersistedState, changes: &Changes) -> Self {
        let failover = state.failover.entries().iter();
        let old = &self.document;
        let mut after = Facts {
            document: VbStateDocument {
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
                might_contain_xattrs: old.might_contain_xattrs || changes.attributes,
                namespaces_supported: true,
                completed_seqno: state.completed,
                prepared_seqno: state.prepared,
                // A node that is alone has acknowledged what it has written.
                high_prepared_seqno: state.prepared,
                max_visible_seqno: state.visible,
                on_disk_prepares: old.on_disk_prepares.saturating_add_signed(changes.prepares),
                on_disk_prepare_bytes: old
                    .on_disk_prepare_bytes
                    .saturating_add_signed(changes.prepare_bytes),
                build: concat!("kedge ", env!("CARGO_PKG_VERSION")).to_owned(),
                failover_table: Some(
                    failover
                        .map(|&(uuid, start)| FailoverEntry { uuid, start })
                        .collect(),
                ),
                ..old.clone()
            },
            collections: self.collections.clone(),
        };
        for (&collection, change) in &changes.collections {
            let stats = after
                .collections
                .entry(collection)
                .or_insert(CollectionStats {
                    disk_bytes: Some(0),
                    ..CollectionStats::default()
                });
            stats.items = stats.items.saturating_add_signed(change.items);
            stats.high_seqno = stats.high_seqno.max(change.high_seqno);
            // Where old files do not say it, it cannot be known without reading all of them.
            stats.disk_bytes = stats
                .disk_bytes
                .map(|bytes| bytes.saturating_add_signed(change.disk_bytes));
        }
        after
    }

    /// The local documents of a commit that made these changes: names and contents.
    pub(crate) fn locals(&self, changes: &Changes) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut locals = vec![(VBSTATE_NAME.to_vec(), self.document.encode())];
        for collection in changes.collections.keys() {
            let stats = &self.collections[collection];
            let name = CollectionStats::name(*collection).into_bytes();
            locals.push((name, stats.encode()));
        }
        locals
    }
}

/// What a commit changes of the statistics.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    collections: BTreeMap<CollectionId, CollectionChange>,
    prepares: i64,
    prepare_bytes: i64,
    attributes: bool,
}

#[derive(Debug, Default)]
struct CollectionChange {
    items: i64,
    high_seqno: Seqno,
    disk_bytes: i64,
}

impl Changes {
    /// Counts one item of a commit. `key_bytes` and `meta_bytes` are those of its key and metadata in the file.
    pub(crate) fn add(
        &mut self,
        item: &Settle,
        change: &Change<'_>,
        key_bytes: usize,
        meta_bytes: usize,
    ) {
        let new_bytes = entry_bytes(change.disk_bytes, key_bytes, meta_bytes);
        let old_bytes =
            |old: &OldVersion<'_>| entry_bytes(old.disk_bytes(), key_bytes, old.rev_meta().len());
        let was_live = change.old.as_ref().is_some_and(|old| !old.is_deleted());
        let live = |is: bool| i64::from(is);
        let stored = item.item();
        self.attributes |= stored.datatype().contains(kedge_types::Datatype::XATTR);
        let collection = self
            .collections
            .entry(collection_of(stored.key()))
            .or_default();
        collection.high_seqno = collection.high_seqno.max(stored.seqno());
        collection.disk_bytes += new_bytes - change.old.as_ref().map_or(0, old_bytes);
        match item {
            Settle::Document(document) => {
                collection.items += live(!document.is_deleted()) - live(was_live);
            }
            Settle::Prepare(_) | Settle::Abort(_) => {
                let is_prepare = matches!(item, Settle::Prepare(_));
                self.prepares += live(is_prepare) - live(was_live);
                let replaced = change.old.as_ref().filter(|_| was_live);
                let (new, old) = (live(is_prepare) * new_bytes, replaced.map_or(0, old_bytes));
                self.prepare_bytes += new - old;
            }
        }
    }
}

/// What an entry counts in statistics of bytes: body, key and metadata.
fn entry_bytes(disk_bytes: u32, key_bytes: usize, meta_bytes: usize) -> i64 {
    i64::from(disk_bytes) + (key_bytes + meta_bytes) as i64
}

/// The collection of a stored key.
fn collection_of(key: &[u8]) -> CollectionId {
    CollectionId(decode_leb128(key).map_or(0, |(id, _)| id))
}
