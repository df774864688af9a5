//! What a file says of its vBucket beside the documents: its state, and the statistics of its collections. Couchstore
//! file format, section 3.4.
//!
//! Invariants:
//! * [`Facts`] are what the local documents say at the header that counts. They are replaced when a commit returned, and
//!   never changed on the way to it.
//! * All that is counted is counted from what a commit adds and replaces, so it is exact if it was exact in the file.

use std::collections::BTreeMap;

use kedge_couchstore::kv::{
    CheckpointKind, CollectionStats, FailoverEntry, LocalDocument, VBSTATE_NAME, VbStateDocument,
    VbStateKind, split_prepare,
};
use kedge_couchstore::{Change, Error as FileError, Mutation, Snapshot};
use kedge_types::{CollectionId, Seqno, decode_leb128};
use kedge_vbucket::{FailoverTable, PersistedState, SnapshotKind, VbState};

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
                might_contain_xattrs: old.might_contain_xattrs
                    || state.may_have_xattrs
                    || changes.attributes,
                namespaces_supported: true,
                completed_seqno: state.completed,
                prepared_seqno: state.prepared,
                // What is written is acknowledged; of a snapshot from a disk, at its end.
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
    /// Nothing is changed yet; `attributes`: whether a value to come has extended attributes.
    pub(crate) fn new(attributes: bool) -> Self {
        Changes {
            attributes,
            ..Changes::default()
        }
    }

    /// Counts one mutation of a commit. It is called in the order of keys, in which items lie anywhere in memory, so it
    /// looks at nothing but what the writer has just looked at.
    pub(crate) fn add(&mut self, mutation: &Mutation<'_>, change: &Change<'_>) {
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

/// The collection of a stored key.
fn collection_of(key: &[u8]) -> CollectionId {
    CollectionId(decode_leb128(key).map_or(0, |(id, _)| id))
}
