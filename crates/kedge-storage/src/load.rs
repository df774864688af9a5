//! What a vBucket begins with after a start.

use kedge_couchstore::Form;
use kedge_couchstore::kv::{PREPARE_PREFIX, SnapshotRange};
use kedge_types::{Seqno, VbId};
use kedge_vbucket::{Base, Item, PersistedState};

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
    /// Which of the vBucket's files it is.
    pub revision: Revision,
}

impl Loaded {
    /// As what a vBucket begins from.
    #[must_use]
    pub fn into_base(self) -> Base {
        Base {
            state: self.state,
            high_seqno: self.high_seqno,
            documents: self.documents,
            prepares: self.prepares,
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
        let facts = guard.facts()?;
        let mut state = facts.state(&file)?;
        let mut document = facts.document.clone();
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
        let mut prepares = Vec::new();
        if state.completed < state.prepared {
            let first = Seqno(state.completed.get() + 1);
            for entry in file.scan_seqnos(first..=state.prepared)? {
                let entry = entry?;
                if entry.is_deleted() || entry.key().first() != Some(&PREPARE_PREFIX) {
                    continue;
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
            documents: header
                .live_count()
                .saturating_sub(document.on_disk_prepares),
            tombstones: header.deleted_count(),
            prepares,
            revision: guard.revision(),
        }))
    }
}
