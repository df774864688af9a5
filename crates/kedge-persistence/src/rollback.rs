//! Rollback of a vBucket to an earlier seqno.
//!
//! ```text
//! apply all changes of the vBucket to its file
//! find the commit to roll back to            from here on the file is neither compacted nor replaced
//! roll back memory                           from here on no change of the vBucket is applied
//! append the rollback record and sync it
//! roll back the file
//! take over the state of the file, and read the changed documents
//! ```
//!
//! If that commit does not exist any more, or most of the vBucket would be removed, the vBucket is reset to empty
//! instead.
//!
//! Invariants:
//! * The rollback record is in the log before the file is rolled back, and stays there until the file is durable. A
//!   start completes a rollback that a crash interrupted. Earlier records of the vBucket are void.
//! * After the record, no error leaves the vBucket between two histories: if the file cannot be rolled back, the
//!   vBucket is reset.
//! * What the vBucket has acknowledged and loses is in the record and in the file: until it has received that again, it
//!   does not count as a copy ([`kedge_vbucket::CatchUpPoint`]).
//! * A concurrent reset or deletion of the vBucket takes precedence: the vBucket has another history then.

use crate::applier::LogApplier;
use crate::kinds::ROLLBACK;
use crate::truncation::has_work;
use kedge_bucket_core::{
    BucketCore, BucketError, BucketPhase, Component, EvictionPolicy, Total, new_uuid, submit_change,
};
use kedge_storage::{FileRecord, Rollback, StorageError};
use kedge_types::{Seqno, Status, VbId};
use kedge_vbucket::{Item, PersistedState, VBucket, VbState};
use std::sync::Arc;

/// The maximum number of attempts while replication continues to write to the vBucket.
const ATTEMPTS_MAX: u32 = 100;
/// The number of documents that are read at once.
const READ_CHUNK: usize = 64;
/// The number of keys that are added to the filter at once.
const FILTER_CHUNK: usize = 1_024;

/// The result of a rollback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RollbackReport {
    /// The last remaining seqno: the requested one, or an earlier one.
    pub seqno: Seqno,
    /// True if the vBucket was reset to empty.
    pub is_reset: bool,
}

/// The result of the rollback of memory.
enum MemoryRollback<'a> {
    /// The vBucket had no change after the seqno.
    NotNeeded(Seqno),
    /// The vBucket was reset, as its file has no commit to roll back to.
    Reset,
    File(Box<FileRollback<'a>>),
}

/// A vBucket whose memory is rolled back and whose file is not.
struct FileRollback<'a> {
    rollback: Rollback<'a>,
    /// Keys of documents that the rollback may restore to an earlier version.
    changed: Vec<Box<[u8]>>,
    history: u32,
    /// True if warmup of the vBucket was complete.
    was_warm: bool,
}

/// Returns whether the rollback is still wanted. Called under the lock of the vBucket.
type IsWanted<'a> = &'a dyn Fn() -> bool;

/// The reasons for which an attempt to roll back ended.
enum RollbackError {
    /// The vBucket was written to meanwhile.
    Retry,
    Status(Status),
    Bucket(BucketError),
}

impl From<Status> for RollbackError {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

impl From<BucketError> for RollbackError {
    fn from(error: BucketError) -> Self {
        Self::Bucket(error)
    }
}

impl From<StorageError> for RollbackError {
    fn from(error: StorageError) -> Self {
        Self::Bucket(error.into())
    }
}

/// The rollbacks of a bucket's vBuckets.
pub struct Rollbacks {
    applier: Arc<LogApplier>,
}

impl Component for Rollbacks {
    fn core(&self) -> &BucketCore {
        &self.applier.core
    }
}

impl Rollbacks {
    pub(crate) fn new(applier: &Arc<LogApplier>) -> Self {
        Self {
            applier: Arc::clone(applier),
        }
    }

    /// Rolls a vBucket that is not active back to `to`, or to the newest earlier seqno that its file can be rolled back
    /// to, and starts a new branch there. If there is no such seqno, or most of the vBucket would be removed, the
    /// vBucket is reset. The rollback is durable when this returns. It reads all documents that were changed since.
    ///
    /// # Errors
    /// `NotMyVbucket` if the vBucket does not exist or is active; `TemporaryFailure` while the bucket is loading, if
    /// its file could not be read, if it was changed concurrently, or if the disk fails. In the last two cases the
    /// vBucket may have been reset.
    pub fn rollback(&self, vb: VbId, to: Seqno) -> Result<RollbackReport, Status> {
        self.rollback_if(vb, to, &|| true)
    }

    /// The same as [`Rollbacks::rollback`], but returns `TemporaryFailure` if `is_wanted` returns false immediately
    /// before memory is rolled back.
    fn rollback_if(
        &self,
        vb: VbId,
        to: Seqno,
        is_wanted: IsWanted<'_>,
    ) -> Result<RollbackReport, Status> {
        let _guard = self.applier.core.hold_vbucket(vb)?;
        for _ in 0..ATTEMPTS_MAX {
            match self.try_rollback(vb, to, is_wanted) {
                Ok(done) => return Ok(done),
                Err(RollbackError::Retry) => {}
                Err(RollbackError::Status(status)) => return Err(status),
                Err(RollbackError::Bucket(error)) => {
                    return Err(self.applier.shared.report_disk_error(
                        vb,
                        &error,
                        "the vBucket could not be rolled back",
                    ));
                }
            }
        }
        Err(Status::TemporaryFailure)
    }

    /// Runs [`Rollbacks::rollback`] in a task, which calls `done` with the result. The rollback is skipped if
    /// `is_wanted` returns false: the vBucket may follow another active by then, which is not on the branch to be left
    /// and has received acknowledgements of the vBucket.
    pub fn submit(
        self: &Arc<Self>,
        vb: VbId,
        to: Seqno,
        is_wanted: impl Fn() -> bool + Send + 'static,
        done: impl FnOnce(Result<RollbackReport, Status>) + Send + 'static,
    ) {
        let work = move |rollbacks: &Self| rollbacks.rollback_if(vb, to, &is_wanted);
        submit_change(self, &ROLLBACK, work, done);
    }

    fn try_rollback(
        &self,
        vb: VbId,
        to: Seqno,
        is_wanted: IsWanted<'_>,
    ) -> Result<RollbackReport, RollbackError> {
        let mut high = Seqno(0);
        self.applier.core.change_vbucket(vb, |vbucket| {
            high = vbucket.high_seqno();
            check_rollback_allowed(vbucket, is_wanted)
        })?;
        let seqno = match self.apply_and_roll_back_memory(vb, to, is_wanted)? {
            MemoryRollback::NotNeeded(seqno) => {
                return Ok(RollbackReport {
                    seqno,
                    is_reset: false,
                });
            }
            MemoryRollback::Reset => None,
            MemoryRollback::File(file) => {
                let (seqno, history) = (file.rollback.seqno(), file.history);
                match self.roll_back_file(vb, *file) {
                    Ok(()) => Some(seqno),
                    Err(RollbackError::Bucket(error)) if error.is_passing() => {
                        self.applier.shared.report_disk_error(
                            vb,
                            &error,
                            "the vBucket's file could not be rolled back: the vBucket is reset",
                        );
                        self.reset_after_failure(vb, history)?;
                        None
                    }
                    Err(failure) => return Err(failure),
                }
            }
        };
        if seqno.is_none() {
            self.applier.writers.sync()?;
            self.applier.apply_vbucket(vb);
            self.applier.core.totals.add(Total::RollbackResets, 1);
        }
        self.applier.core.totals.add(Total::Rollbacks, 1);
        let reached = seqno.unwrap_or_default();
        tracing::info!(
            bucket = self.applier.core.name(),
            vbucket = %vb,
            from = high.get(),
            wanted = to.get(),
            reached = reached.get(),
            "the vBucket was rolled back"
        );
        Ok(RollbackReport {
            seqno: reached,
            is_reset: seqno.is_none(),
        })
    }

    /// Applies all changes of the vBucket to its file, and rolls memory back before another change can be written.
    fn apply_and_roll_back_memory(
        &self,
        vb: VbId,
        to: Seqno,
        is_wanted: IsWanted<'_>,
    ) -> Result<MemoryRollback<'_>, RollbackError> {
        if self.applier.core.is_direct() {
            return self
                .applier
                .writers
                .flusher
                .with_flushed(vb, || self.roll_back_memory(vb, to, is_wanted));
        }
        self.applier.writers.sync()?;
        let mut applier = self.applier.hold_applier(vb);
        self.applier.apply_to_end(&mut applier, vb)?;
        self.roll_back_memory(vb, to, is_wanted)
    }

    fn roll_back_memory(
        &self,
        vb: VbId,
        to: Seqno,
        is_wanted: IsWanted<'_>,
    ) -> Result<MemoryRollback<'_>, RollbackError> {
        let rollback = self.applier.core.storage()?.begin_rollback(vb, to)?;
        let changed = match &rollback {
            Some(rollback) => rollback.changed_keys()?,
            None => Vec::new(),
        };
        let mut result = Err(RollbackError::Retry);
        self.applier.core.change_vbucket(vb, |vbucket| {
            check_rollback_allowed(vbucket, is_wanted)?;
            if vbucket.changes().queued() > 0 || has_work(vbucket) {
                return Ok(());
            }
            if vbucket.high_seqno() <= to {
                result = Ok(MemoryRollback::NotNeeded(vbucket.high_seqno()));
                return Ok(());
            }
            let was_warm = vbucket.documents().is_warm();
            result = Ok(match rollback {
                None => {
                    vbucket.recovery().reset_for_rollback(new_uuid());
                    MemoryRollback::Reset
                }
                Some(rollback) => {
                    vbucket.rollback(rollback.seqno(), new_uuid());
                    MemoryRollback::File(Box::new(FileRollback {
                        rollback,
                        changed,
                        history: vbucket.history_id(),
                        was_warm,
                    }))
                }
            });
            Ok(())
        })?;
        result
    }

    /// Logs the rollback, rolls back the file, and takes over its state into memory.
    fn roll_back_file(&self, vb: VbId, file: FileRollback<'_>) -> Result<(), RollbackError> {
        if !self.applier.core.is_direct() {
            self.applier.writers.sync()?;
        }
        let state = {
            let vbucket = self.applier.core.vbuckets[vb.index()].lock();
            check_history(&vbucket, file.history)?;
            vbucket.store().persisted_state()
        };
        let now_ns = self.applier.core.setup.clock.now().unix_ns;
        file.rollback.finish(now_ns, |then, _| PersistedState {
            state: state.state,
            failover: state.failover,
            // No CAS is assigned twice.
            max_cas: then.max_cas.max(state.max_cas),
            catch_up: state.catch_up,
            ..then.clone()
        })?;
        let loaded = self.applier.core.storage()?.load(vb)?;
        let base = loaded.map(kedge_storage::LoadedFile::into_file_state);
        let base = base.ok_or_else(|| BucketError::NotApplied {
            bucket: self.applier.core.name().to_owned(),
            why: None,
        })?;
        let mut vbucket = self.applier.core.vbuckets[vb.index()].lock();
        check_history(&vbucket, file.history)?;
        let now = self.applier.core.setup.clock.now();
        let (rewound, _) = self.applier.core.account(now, &mut vbucket, |vbucket| {
            vbucket.recovery().rewound(&base)
        });
        rewound.map_err(|source| BucketError::Replay { vb, source })?;
        if !has_work(&vbucket) {
            self.applier.shared.truncation.retention(vb).forget_queued();
        }
        drop(vbucket);
        self.applier.core.after_step();
        self.applier.shared.changed_files.on_changed(vb);
        self.applier.shared.events.file_advanced(vb);
        if !self.applier.core.is_direct() {
            self.applier.writers.log.truncate();
        }
        let complete = self.reload_changed(vb, file.history, &file.changed) && file.was_warm;
        let mut vbucket = self.applier.core.vbuckets[vb.index()].lock();
        self.applier.core.measure(&mut vbucket, |vbucket| {
            vbucket.store_mut().warmed(file.history, complete);
        });
        let is_partial = vbucket.documents().residency().on_disk_only > 0;
        drop(vbucket);
        if is_partial && self.applier.core.config().eviction_policy == EvictionPolicy::FullEviction
        {
            self.rebuild_filter(vb, file.history);
        }
        Ok(())
    }

    /// Rebuilds the filter of the keys in the file, because the rollback invalidates it. Without a filter, commands
    /// look up keys in the file.
    fn rebuild_filter(&self, vb: VbId, history: u32) {
        let scan = self.applier.core.storage().and_then(|storage| {
            let mut vbucket = self.applier.core.vbuckets[vb.index()].lock();
            self.applier.core.measure(&mut vbucket, |vbucket| {
                vbucket.documents_mut().begin_filter();
            });
            drop(vbucket);
            Ok(storage.scan(vb, .., false)?)
        });
        let Ok(Some(mut scan)) = scan else {
            return;
        };
        loop {
            let records: Result<Vec<_>, _> = scan.by_ref().take(FILTER_CHUNK).collect();
            let Ok(records) = records else {
                return;
            };
            let mut vbucket = self.applier.core.vbuckets[vb.index()].lock();
            if vbucket.history_id() != history || self.applier.core.phase() != BucketPhase::Open {
                return;
            }
            self.applier.core.measure(&mut vbucket, |vbucket| {
                if records.is_empty() {
                    vbucket.documents_mut().finish_filter();
                } else {
                    vbucket
                        .documents_mut()
                        .add_to_filter(records.iter().map(FileRecord::key));
                }
            });
            if records.is_empty() {
                return;
            }
        }
    }

    /// Reads the changed documents into memory, as far as there is space. Returns whether memory has all of them.
    fn reload_changed(&self, vb: VbId, history: u32, changed: &[Box<[u8]>]) -> bool {
        let keeps_keys = self.applier.core.config().eviction_policy == EvictionPolicy::ValueOnly;
        let mut complete = true;
        for keys in changed.chunks(READ_CHUNK) {
            let keys: Vec<&[u8]> = keys.iter().map(|key| &**key).collect();
            let found: Result<Vec<_>, BucketError> = self
                .applier
                .core
                .storage()
                .and_then(|storage| Ok(storage.get_many(vb, &keys)?));
            let found = match found {
                Ok(found) => found,
                // Commands that read these documents report the error.
                Err(error) => {
                    self.applier
                        .shared
                        .events
                        .read_failed(vb, &error.to_string());
                    return false;
                }
            };
            let found: Vec<Item> = found.into_iter().flatten().collect();
            let bytes: usize = found.iter().map(Item::heap_bytes).sum();
            let has_room = self.applier.core.quota.below_low() > bytes as u64;
            let mut vbucket = self.applier.core.vbuckets[vb.index()].lock();
            self.applier.core.measure(&mut vbucket, |vbucket| {
                for item in found {
                    if has_room {
                        vbucket.store_mut().warm(history, item);
                    } else if keeps_keys && self.applier.core.quota.room_for_keys() > 0 {
                        vbucket
                            .store_mut()
                            .warm_without_value(history, &item.meta(), item.key());
                    } else {
                        complete = false;
                    }
                }
            });
        }
        complete
    }

    /// Resets a vBucket whose memory was rolled back and whose file could not be.
    fn reset_after_failure(&self, vb: VbId, history: u32) -> Result<(), Status> {
        self.applier.core.change_vbucket(vb, |vbucket| {
            if vbucket.history_id() != history {
                return Err(Status::TemporaryFailure);
            }
            vbucket.recovery().reset_for_rollback(new_uuid());
            Ok(())
        })
    }
}

fn check_rollback_allowed(vbucket: &mut VBucket, is_wanted: IsWanted<'_>) -> Result<(), Status> {
    if vbucket.is_deleted() || vbucket.state() == VbState::Active {
        return Err(Status::NotMyVbucket);
    }
    if vbucket.store().is_rewinding() || !is_wanted() {
        return Err(Status::TemporaryFailure);
    }
    Ok(())
}

fn check_history(vbucket: &VBucket, history: u32) -> Result<(), Status> {
    if vbucket.history_id() == history {
        Ok(())
    } else {
        Err(Status::TemporaryFailure)
    }
}
