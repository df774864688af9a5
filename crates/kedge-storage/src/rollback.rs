//! Going back to an older commit of a vBucket's file (couchstore file format, section 7).
//!
//! What must hold:
//! * A rollback is one commit: its header has the trees of the older one, and the new history. A crash leaves the file
//!   as it was before, or that commit. Nothing is truncated.
//! * It only goes to where the file was at a consistent point: one at which a snapshot was complete. In between, the
//!   newest version of a document may not be there yet while the one before it is not there any more.

use std::ops::Bound;

use kedge_couchstore::kv::PREPARE_PREFIX;
use kedge_couchstore::{Form, Snapshot};
use kedge_types::{Seqno, VbId};
use kedge_vbucket::{Item, PersistedState};

use crate::facts::{Changes, Facts};
use crate::scan::understand;
use crate::slot::WriteGuard;
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
        let _alone = self.slot(vb).maintenance().exclusive(&self.rests);
        let mut guard = self.writer(vb);
        let rolled_back = roll_back(&mut guard, to, now_ns, state);
        if let Err(error) = &rolled_back {
            guard.failed(error);
        }
        rolled_back
    }
}

fn roll_back(
    guard: &mut WriteGuard<'_>,
    to: Seqno,
    now_ns: u64,
    state: impl FnOnce(&PersistedState, Seqno) -> PersistedState,
) -> Result<RollbackOutcome, StorageError> {
    let Some(newest) = guard.newest()? else {
        return Ok(RollbackOutcome::ResetNeeded);
    };
    let newest = newest.into_snapshot();
    let Some((point, facts)) = point(&newest, to)? else {
        return Ok(RollbackOutcome::ResetNeeded);
    };
    let seqno = point.header().update_seqno();
    let above = (Bound::Excluded(seqno), Bound::Unbounded);
    if newest.count_seqnos(above)? > newest.count_seqnos(..)? / 2 {
        return Ok(RollbackOutcome::ResetNeeded);
    }
    let changed = changed_since(&newest, &point)?;
    let state = state(&facts.state(&point)?, seqno);

    let mut writer = guard.writer()?;
    writer.rewind(point.header())?;
    // The statistics of collections are those of then, like the documents.
    let none = Changes::default();
    let facts = facts.after(&state, &none);
    let locals = facts.locals(&none);
    let locals: Vec<_> = locals
        .iter()
        .map(|(name, value)| (&**name, Some(&**value)))
        .collect();
    writer.save_locals(&locals)?;
    writer.set_purge_seqno(point.header().purge_seqno().max(state.purge));
    writer.commit(now_ns)?;
    guard.committed(&writer, facts);
    Ok(RollbackOutcome::RolledBack(RolledBack { seqno, changed }))
}

/// Where to go back to, and what the file said there.
fn point(newest: &Snapshot, to: Seqno) -> Result<Option<(Snapshot, Facts)>, StorageError> {
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
        let facts = Facts::read(&snapshot)?;
        if facts.document.snap_end <= seqno {
            return Ok(Some((snapshot, facts)));
        }
    }
    Ok(None)
}

/// The committed documents with seqnos above those of `point`, and what they were there.
fn changed_since(newest: &Snapshot, point: &Snapshot) -> Result<Vec<Reverted>, StorageError> {
    let mut changed = Vec::new();
    let mut keys: Vec<Box<[u8]>> = Vec::new();
    let above = (
        Bound::Excluded(point.header().update_seqno()),
        Bound::Unbounded,
    );
    for entry in newest.scan_seqnos(above)? {
        let entry = entry?;
        if entry.key().first() == Some(&PREPARE_PREFIX) {
            continue;
        }
        let key = entry.key().into();
        let record = understand(newest.path(), entry, None)?;
        if record.is_some_and(|record| record.kind() == RecordKind::Document) {
            keys.push(key);
        }
        if keys.len() == KEYS {
            look_up(point, &mut keys, &mut changed)?;
        }
    }
    look_up(point, &mut keys, &mut changed)?;
    Ok(changed)
}

fn look_up(
    point: &Snapshot,
    keys: &mut Vec<Box<[u8]>>,
    changed: &mut Vec<Reverted>,
) -> Result<(), StorageError> {
    let old = point.get_many_documents(keys, Form::Plain)?;
    for (key, document) in keys.drain(..).zip(old) {
        let old = match document {
            Some(document) => {
                let value = document.body.unwrap_or_default();
                understand(point.path(), document.entry, Some(value))?
            }
            None => None,
        };
        changed.push(Reverted {
            key,
            old: old.and_then(|record| record.item()),
        });
    }
    Ok(())
}
