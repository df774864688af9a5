//! Rollback of a vBucket's file to an older commit (couchstore file format, section 7).
//!
//! Invariants:
//! * A rollback is one commit: its header has the trees of the older one, and the new history. A crash leaves the file
//!   either as before or with that commit. Nothing is truncated.
//! * The target is a consistent commit, at which a snapshot was complete. At others the newest version of a document
//!   may be missing although the one before it is gone already.

use std::ops::Bound;

use kedge_couchstore::kv::PREPARE_PREFIX;
use kedge_couchstore::{BodyForm, Snapshot};
use kedge_types::{Seqno, VbId};
use kedge_vbucket::{Item, PersistedState};

use crate::maintenance::ExclusiveGuard;
use crate::scan::decode_entry;
use crate::slot::WriteGuard;
use crate::vb_metadata::{MetadataChanges, VbMetadata};
use crate::{FileRecordKind, Storage, StorageError};

/// Number of keys that are looked up at once.
const KEYS: usize = 1024;

/// The outcome of a rollback.
#[derive(Debug)]
pub enum RollbackOutcome {
    /// There is no commit to roll back to, or more than half of the mutations would be lost. The vBucket has to be
    /// reset, see [`Storage::replace`].
    ResetNeeded,
    /// The file has been rolled back.
    RolledBack(RollbackResult),
}

/// The result of a rollback.
#[derive(Debug)]
pub struct RollbackResult {
    /// The highest seqno after it: the requested one or a lower one.
    pub seqno: Seqno,
    /// The committed documents that were changed since, each once. [`Storage::load`] returns the prepares.
    pub changed: Vec<RevertedDocument>,
}

/// A document that the rollback restored.
#[derive(Debug)]
pub struct RevertedDocument {
    /// Its stored key.
    pub key: Box<[u8]>,
    /// The restored document or tombstone; `None` if the key had neither.
    pub old: Option<Item>,
}

/// A prepared rollback. Until it is finished or dropped, the file is neither compacted nor replaced, so that the target
/// commit stays.
#[derive(Debug)]
pub struct Rollback<'a> {
    storage: &'a Storage,
    vb: VbId,
    newest: Snapshot,
    point: Snapshot,
    metadata: VbMetadata,
    _alone: ExclusiveGuard<'a>,
}

impl Storage {
    /// Rolls the file back to its newest consistent commit whose seqnos are at most `to`. `state` computes the new
    /// state from the one at that commit and its seqno; a new branch of the history begins there. Commits of the
    /// vBucket wait; a running compaction is stopped first.
    ///
    /// Memory: the size of the restored documents.
    ///
    /// # Errors
    /// Damage of the file, and disk errors. The file is unchanged then, unless [`StorageError::is_fatal`].
    pub fn rollback(
        &self,
        vb: VbId,
        to: Seqno,
        now_ns: u64,
        state: impl FnOnce(&PersistedState, Seqno) -> PersistedState,
    ) -> Result<RollbackOutcome, StorageError> {
        let Some(rollback) = self.begin_rollback(vb, to)? else {
            return Ok(RollbackOutcome::ResetNeeded);
        };
        let seqno = rollback.seqno();
        let mut changed = Vec::new();
        for keys in rollback.changed_keys()?.chunks(KEYS) {
            look_up(&rollback.point, keys, &mut changed)?;
        }
        rollback.finish(now_ns, state)?;
        Ok(RollbackOutcome::RolledBack(RollbackResult {
            seqno,
            changed,
        }))
    }

    /// Finds the newest consistent commit of the file whose seqnos are at most `to`. Returns `None` if there is none,
    /// or if more than half of the mutations would be lost. A running compaction is stopped first.
    ///
    /// # Errors
    /// Damage of the file, and disk errors.
    pub fn begin_rollback(
        &self,
        vb: VbId,
        to: Seqno,
    ) -> Result<Option<Rollback<'_>>, StorageError> {
        let alone = self.slot(vb).maintenance().exclusive(&self.pauses);
        let Some(newest) = self.reader(vb)? else {
            return Ok(None);
        };
        let newest = newest.into_snapshot();
        let Some((point, metadata)) = point(&newest, to)? else {
            return Ok(None);
        };
        let above = (
            Bound::Excluded(point.header().update_seqno()),
            Bound::Unbounded,
        );
        let goes_most = newest.count_seqnos(above)? > newest.count_seqnos(..)? / 2;
        Ok((!goes_most).then_some(Rollback {
            storage: self,
            vb,
            newest,
            point,
            metadata,
            _alone: alone,
        }))
    }
}

impl Rollback<'_> {
    /// Returns the highest seqno after the rollback.
    #[must_use]
    pub fn seqno(&self) -> Seqno {
        self.point.header().update_seqno()
    }

    /// Returns the stored keys of the committed documents that were changed since, each once.
    ///
    /// # Errors
    /// Damage of the file, and disk errors.
    pub fn changed_keys(&self) -> Result<Vec<Box<[u8]>>, StorageError> {
        changed_keys(&self.newest, self.seqno())
    }

    /// Rolls the file back, as [`Storage::rollback`] does.
    ///
    /// # Errors
    /// [`StorageError::Busy`] if the file has another commit since the rollback was prepared, and the errors of
    /// [`Storage::rollback`].
    pub fn finish(
        self,
        now_ns: u64,
        state: impl FnOnce(&PersistedState, Seqno) -> PersistedState,
    ) -> Result<(), StorageError> {
        let mut guard = self.storage.writer(self.vb);
        let done = self.commit(&mut guard, now_ns, state);
        if let Err(error) = &done {
            guard.failed(error);
        }
        done
    }

    fn commit(
        &self,
        guard: &mut WriteGuard<'_>,
        now_ns: u64,
        state: impl FnOnce(&PersistedState, Seqno) -> PersistedState,
    ) -> Result<(), StorageError> {
        let point = &self.point;
        let newest = guard.newest()?;
        if newest.is_none_or(|newest| newest.header() != self.newest.header()) {
            return Err(StorageError::Busy { vb: self.vb });
        }
        let state = state(&self.metadata.state(point)?, self.seqno());
        let mut writer = guard.writer()?;
        writer.rewind(point.header())?;
        // The statistics of collections are those of the target, like the documents.
        let none = MetadataChanges::default();
        let metadata = self.metadata.after(&state, &none);
        metadata.save(&none, &mut writer)?;
        writer.set_purge_seqno(point.header().purge_seqno().max(state.purge));
        writer.commit(now_ns)?;
        writer.committed(metadata)
    }
}

/// Returns the target of a rollback, and the metadata of the file there.
fn point(newest: &Snapshot, to: Seqno) -> Result<Option<(Snapshot, VbMetadata)>, StorageError> {
    for snapshot in newest.history() {
        let snapshot = snapshot?;
        let seqno = snapshot.header().update_seqno();
        if seqno > to {
            continue;
        }
        if seqno == Seqno(0) {
            // The initial state of a file without a vBucket state, or an equivalent of it.
            return Ok(None);
        }
        let metadata = VbMetadata::read(&snapshot)?;
        if metadata.document.snap_end <= seqno {
            return Ok(Some((snapshot, metadata)));
        }
    }
    Ok(None)
}

/// Returns the keys of committed documents with seqnos above `point`.
fn changed_keys(newest: &Snapshot, point: Seqno) -> Result<Vec<Box<[u8]>>, StorageError> {
    let mut keys: Vec<Box<[u8]>> = Vec::new();
    for entry in newest.scan_seqnos((Bound::Excluded(point), Bound::Unbounded))? {
        let entry = entry?;
        if entry.key().first() == Some(&PREPARE_PREFIX) {
            continue;
        }
        let key = entry.key().into();
        let record = decode_entry(newest.path(), entry, None)?;
        if record.is_some_and(|record| record.kind() == FileRecordKind::Document) {
            keys.push(key);
        }
    }
    Ok(keys)
}

fn look_up(
    point: &Snapshot,
    keys: &[Box<[u8]>],
    changed: &mut Vec<RevertedDocument>,
) -> Result<(), StorageError> {
    let old = point.get_many_documents(keys, BodyForm::Plain)?;
    for (key, document) in keys.iter().zip(old) {
        let old = match document {
            Some(document) => {
                let value = document.body.unwrap_or_default();
                decode_entry(point.path(), document.entry, Some(value))?
            }
            None => None,
        };
        changed.push(RevertedDocument {
            key: key.clone(),
            old: old.and_then(|record| record.item()),
        });
    }
    Ok(())
}
