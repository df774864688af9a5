//! What a vBucket begins with after a start.

use kedge_couchstore::kv::{PREPARE_PREFIX, SnapshotRange, split_prepare};
use kedge_couchstore::{Entry, Form, Snapshot};
use kedge_types::{Seqno, VbId};
use kedge_vbucket::{FileCollections, FileState, Item, PersistedState};

use crate::scan::understand;
use crate::{RecordKind, Revision, Storage, StorageError};

/// What a file says of its vBucket.
#[derive(Debug)]
pub struct Loaded {
    /// What the vBucket is.
    pub state: PersistedState,
    /// The highest seqno of the file.
    pub high_seqno: Seqno,
    /// Live committed documents.
    pub documents: u64,
    /// Tombstones, and aborts.
    pub tombstones: u64,
    /// SyncWrites that are neither committed nor aborted, in the order of seqnos.
    pub prepares: Vec<Item>,
    /// Those of them whose key has a newer document: they have ended, as nobody writes one before. The completed seqno is
    /// behind where a snapshot of another node's disk was not at its end.
    pub superseded: Vec<Seqno>,
    /// Its collections.
    pub collections: FileCollections,
    /// Which of the vBucket's files it is.
    pub revision: Revision,
}

impl Loaded {
    /// As what a vBucket begins from.
    #[must_use]
    pub fn into_file_state(self) -> FileState {
        FileState {
            state: self.state,
            high_seqno: self.high_seqno,
            documents: self.documents,
            collections: self.collections,
            prepares: {
                let is_open = |item: &Item| self.superseded.binary_search(&item.seqno()).is_err();
                self.prepares.into_iter().filter(is_open).collect()
            },
        }
    }
}

impl Storage {
    /// Reads what the vBucket's file says of it; `None` if there is no file.
    ///
    /// What it says may be in the kernel's memory only, see [`Storage::make_durable`].
    ///
    /// # Errors
    /// Damage; [`StorageError::State`] if the state is missing, has no failover table, or has a snapshot that the file
    /// is outside of; those of the disk.
    pub fn load(&self, vb: VbId) -> Result<Option<Loaded>, StorageError> {
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
                let body = file.body(&entry, Form::Plain)?;
                let record = understand(file.path(), entry, Some(body.unwrap_or_default()))?;
                prepares.extend(
                    record
                        .filter(|record| record.kind() == RecordKind::Prepare)
                        .and_then(|record| record.item()),
                );
            }
        }
        Ok(Some(Loaded {
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
            revision: guard.revision(),
        }))
    }
}

/// Whether the key of a prepare has a newer document.
fn is_superseded(file: &Snapshot, prepare: &Entry) -> Result<bool, StorageError> {
    let document = file.get(split_prepare(prepare.key()).1)?;
    Ok(document.is_some_and(|document| document.seqno() > prepare.seqno()))
}
