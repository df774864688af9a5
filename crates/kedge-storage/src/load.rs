//! The initial state of a vBucket after a start.

use kedge_couchstore::kv::{PREPARE_PREFIX, SnapshotRange, split_prepare};
use kedge_couchstore::{BodyForm, Entry, Snapshot};
use kedge_types::{Seqno, VbId, VbUuid};
use kedge_vbucket::{FileCollections, FileState, Item, PersistedState};

use crate::scan::decode_entry;
use crate::{FileRecordKind, FileRevision, Storage, StorageError};

/// The contents of a file that its vBucket starts from.
#[derive(Debug)]
pub struct LoadedFile {
    /// The state of the vBucket.
    pub state: PersistedState,
    /// The highest seqno of the file.
    pub high_seqno: Seqno,
    /// Number of live committed documents.
    pub documents: u64,
    /// Number of tombstones and aborts.
    pub tombstones: u64,
    /// SyncWrites that are neither committed nor aborted, in the order of seqnos.
    pub prepares: Vec<Item>,
    /// Seqnos of those whose key has a newer document. They are complete, because no document is written to a key with
    /// a pending prepare. The completed seqno does not cover them if a snapshot from another node's disk was
    /// incomplete.
    pub superseded: Vec<Seqno>,
    /// The collections.
    pub collections: FileCollections,
    /// The UUID of the reset that made place for the file, if it is a copy of another node's.
    pub installed: Option<VbUuid>,
    /// The revision of the file.
    pub revision: FileRevision,
}

impl LoadedFile {
    /// Returns the state from which a vBucket is created.
    #[must_use]
    pub fn into_file_state(self) -> FileState {
        FileState {
            state: self.state,
            high_seqno: self.high_seqno,
            documents: self.documents,
            collections: self.collections,
            installed: self.installed,
            prepares: {
                let is_open = |item: &Item| self.superseded.binary_search(&item.seqno()).is_err();
                self.prepares.into_iter().filter(is_open).collect()
            },
        }
    }
}

impl Storage {
    /// Loads the state of the vBucket's file. Returns `None` if there is no file.
    ///
    /// The state may be in the page cache only, see [`Storage::make_durable`].
    ///
    /// # Errors
    /// Damage of the file; [`StorageError::State`] if the state is missing, has no failover table, or has a snapshot
    /// without the file's highest seqno; disk errors.
    pub fn load(&self, vb: VbId) -> Result<Option<LoadedFile>, StorageError> {
        let mut guard = self.writer(vb);
        let Some(file) = self.reader(vb)? else {
            return Ok(None);
        };
        let header = file.header();
        let high_seqno = header.update_seqno();
        let metadata = guard.metadata()?;
        let mut state = metadata.state(&file)?;
        let mut document = metadata.document.clone();
        let collections = metadata.file_collections();
        let live_documents = metadata.live_documents();
        if document.check_snapshot(high_seqno) == SnapshotRange::Unusable {
            return Err(StorageError::State {
                file: file.path().to_owned(),
                reason: format!(
                    "its snapshot from {} to {} does not contain its highest seqno {high_seqno}",
                    document.snap_start, document.snap_end
                ),
            });
        }
        (state.snap_start, state.snap_end) = (document.snap_start, document.snap_end);
        let (mut prepares, mut superseded) = (Vec::new(), Vec::new());
        if state.completed < state.prepared {
            let first = Seqno(state.completed.get() + 1);
            for entry in file.scan_seqnos(first..=state.prepared)? {
                let entry = entry?;
                if entry.is_deleted() || entry.key().first() != Some(&PREPARE_PREFIX) {
                    continue;
                }
                if is_superseded(&file, &entry)? {
                    superseded.push(entry.seqno());
                }
                let body = file.body(&entry, BodyForm::Plain)?;
                let record = decode_entry(file.path(), entry, Some(body.unwrap_or_default()))?;
                prepares.extend(
                    record
                        .filter(|record| record.kind() == FileRecordKind::Prepare)
                        .and_then(|record| record.item()),
                );
            }
        }
        Ok(Some(LoadedFile {
            state,
            high_seqno,
            documents: live_documents.unwrap_or_else(|| {
                header
                    .live_count()
                    .saturating_sub(document.on_disk_prepares)
            }),
            collections,
            tombstones: header.deleted_count(),
            prepares,
            superseded,
            installed: document.installed,
            revision: guard.revision(),
        }))
    }
}

/// Returns `true` if the key of a prepare has a newer document.
fn is_superseded(file: &Snapshot, prepare: &Entry) -> Result<bool, StorageError> {
    let document = file.get(split_prepare(prepare.key()).1)?;
    Ok(document.is_some_and(|document| document.seqno() > prepare.seqno()))
}
