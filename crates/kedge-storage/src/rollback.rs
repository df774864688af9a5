//! Going back to an older commit of a vBucket's file (couchstore file format, section 7).
//!
//! Invariants:
//! * A rollback is one commit: its header has the trees of the older one, and the new history. A crash leaves the file
//!   as it was before, or that commit. Nothing is truncated.
//! * It only goes to where the file was at a consistent point: one at which a snapshot was complete. In between, the
//!   newest version of a document may not be there yet while the one before it is not there any more.

use std::ops::Bound;

use kedge_couchstore::kv::PREPARE_PREFIX;
use kedge_couchstore::{Form, Snapshot};
use kedge_types::{Seqno, VbId};
use kedge_vbucket::{Item, PersistedState};

use crate::maintenance::Alone;
use crate::scan::understand;
use crate::slot::WriteGuard;
use crate::vb_metadata::{Changes, VbMetadata};
use crate::{RecordKind, Storage, StorageError};

/// Keys that are looked up at once.
const KEYS: usize = 1024;

/// What became of a rollback.
#[derive(Debug)]
pub enum RollbackOutcome {
    /// Nothing: there is no commit to go back to, or more than half of what is there would go. The vBucket has to begin
    /// anew, see [`Storage::replace`].
    ResetNeeded,
    /// The file is as it was.
    RolledBack(RolledBack),
}

/// A rollback that was done.
#[derive(Debug)]
pub struct RolledBack {
    /// The highest seqno now: the one asked for, or one below it.
    pub seqno: Seqno,
    /// The committed documents that were changed since, each once. For the prepares see [`Storage::load`].
    pub changed: Vec<Reverted>,
}

/// A document that is again what it was.
#[derive(Debug)]
pub struct Reverted {
    /// Its stored key.
    pub key: Box<[u8]>,
    /// What it is again, document or tombstone; `None` if there was nothing under the key.
    pub old: Option<Item>,
}

/// A rollback that is about to be done. Until it is, or is dropped, the file is neither compacted nor replaced, so that the
/// commit to go back to stays.
#[derive(Debug)]
pub struct Rollback<'a> {
    storage: &'a Storage,
    vb: VbId,
    newest: Snapshot,
    point: Snapshot,
    metadata: VbMetadata,
    _alone: Alone<'a>,
}

impl Storage {
    /// Takes the file back to its newest consistent commit whose seqnos are not above `to`. `state` makes what the
    /// vBucket is from then on out of what it was then and the seqno that is reached: a new history begins there.
    /// Commits of the vBucket wait meanwhile; a compaction under way is stopped first.
    ///
    /// Memory: as much as the documents that were changed since then take as they were.
    ///
    /// # Errors
    /// Damage, or those of the disk. The file is what it was then, unless [`StorageError::is_fatal`].
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
        Ok(RollbackOutcome::RolledBack(RolledBack { seqno, changed }))
    }

    /// Looks for the newest consistent commit of the file whose seqnos are not above `to`. `None`: there is none, or more
    /// than half of what is there would go. A compaction under way is stopped first.
    ///
    /// # Errors
    /// Damage, or those of the disk.
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
    /// The highest seqno that stays.
    #[must_use]
    pub fn seqno(&self) -> Seqno {
        self.point.header().update_seqno()
    }

    /// The stored keys of the committed documents that were changed since, each once.
    ///
    /// # Errors
    /// Damage, or those of the disk.
    pub fn changed_keys(&self) -> Result<Vec<Box<[u8]>>, StorageError> {
        changed_keys(&self.newest, self.seqno())
    }

    /// Takes the file back, as [`Storage::rollback`] does.
    ///
    /// # Errors
    /// [`StorageError::Busy`] if the file has another commit since the rollback began; else as [`Storage::rollback`].
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
        // The statistics of collections are those of then, like the documents.
        let none = Changes::default();
        let metadata = self.metadata.after(&state, &none);
        metadata.save(&none, &mut writer)?;
        writer.set_purge_seqno(point.header().purge_seqno().max(state.purge));
        writer.commit(now_ns)?;
        writer.committed(metadata)
    }
}

/// Where to go back to, and what the file said there.
fn point(newest: &Snapshot, to: Seqno) -> Result<Option<(Snapshot, VbMetadata)>, StorageError> {
    for snapshot in newest.history() {
        let snapshot = snapshot?;
        let seqno = snapshot.header().update_seqno();
        if seqno > to {
            continue;
        }
        if seqno == Seqno(0) {
            // What a file begins with, before anything is known of its vBucket; or as good as that.
            return Ok(None);
        }
        let metadata = VbMetadata::read(&snapshot)?;
        if metadata.document.snap_end <= seqno {
            return Ok(Some((snapshot, metadata)));
        }
    }
    Ok(None)
}

/// The keys of committed documents with seqnos above `point`.
fn changed_keys(newest: &Snapshot, point: Seqno) -> Result<Vec<Box<[u8]>>, StorageError> {
    let mut keys: Vec<Box<[u8]>> = Vec::new();
    for entry in newest.scan_seqnos((Bound::Excluded(point), Bound::Unbounded))? {
        let entry = entry?;
        if entry.key().first() == Some(&PREPARE_PREFIX) {
            continue;
        }
        let key = entry.key().into();
        let record = understand(newest.path(), entry, None)?;
        if record.is_some_and(|record| record.kind() == RecordKind::Document) {
            keys.push(key);
        }
    }
    Ok(keys)
}

fn look_up(
    point: &Snapshot,
    keys: &[Box<[u8]>],
    changed: &mut Vec<Reverted>,
) -> Result<(), StorageError> {
    let old = point.get_many_documents(keys, Form::Plain)?;
    for (key, document) in keys.iter().zip(old) {
        let old = match document {
            Some(document) => {
                let value = document.body.unwrap_or_default();
                understand(point.path(), document.entry, Some(value))?
            }
            None => None,
        };
        changed.push(Reverted {
            key: key.clone(),
            old: old.and_then(|record| record.item()),
        });
    }
    Ok(())
}
