//! A vBucket goes back to an earlier seqno.
//!
//! ```text
//! all that it has goes into its file
//! the commit to go back to is found                  from here on the file is neither compacted nor replaced
//! memory goes back                                   from here on nothing of it is applied
//! the log has the record, synced
//! the file goes back
//! memory takes over what the file has, and what changed is read
//! ```
//!
//! If there is no such commit any more, or most of the vBucket would go, it begins anew instead, empty.
//!
//! Invariants:
//! * The log has the record before the file goes back, and keeps it until the file has: a crash in between is finished at
//!   the start. What the log has of the vBucket in front of it is void.
//! * From the record on, nothing can go wrong that leaves the vBucket between two histories: where the file cannot follow,
//!   the vBucket is reset.
//! * What reset or deleted the vBucket meanwhile counts: its history is another then.

use crate::applier::LogApplier;
use crate::kinds::ROLLBACK;
use crate::shared::SharedState;
use crate::truncation::has_work;
use crate::writers::Writers;
use kedge_bucket_core::EvictionPolicy;
use kedge_bucket_core::Phase;
use kedge_bucket_core::new_uuid;
use kedge_bucket_core::{BucketCore, BucketError, Component};
use kedge_bucket_core::{Total, submit_change};
use kedge_storage::{Record, Rollback, StorageError};
use kedge_types::{Seqno, Status, VbId};
use kedge_vbucket::{Item, PersistedState, VBucket, VbState};
use std::sync::Arc;

/// So often writes of a replication that goes on may come between before it is given up.
const ATTEMPTS_MAX: u32 = 100;
/// Documents that are read at once.
const READ_CHUNK: usize = 64;
/// Keys that go into a filter at once.
const FILTER_CHUNK: usize = 1_024;

/// What came of a rollback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RollbackReport {
    /// The last seqno that stayed: the one asked for, or one below it.
    pub seqno: Seqno,
    /// The vBucket began anew: nothing stayed.
    pub is_reset: bool,
}

/// A rollback that has changed memory.
enum MemoryRollback<'a> {
    /// There was nothing behind the seqno.
    NotNeeded(Seqno),
    /// There is nothing to go back to: the vBucket was reset.
    Reset,
    File(Box<FileRollback<'a>>),
}

/// The file has to follow.
struct FileRollback<'a> {
    rollback: Rollback<'a>,
    /// Documents that may be older ones again.
    changed: Vec<Box<[u8]>>,
    history: u32,
    /// Everything was in memory that is to be.
    was_warm: bool,
}

/// Whether a rollback is wanted. Asked under the vBucket's lock.
type IsWanted<'a> = &'a dyn Fn() -> bool;

/// Why a rollback did not go on.
enum RollbackError {
    /// Something was written meanwhile.
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
    core: Arc<BucketCore>,
    shared: Arc<SharedState>,
    writers: Arc<Writers>,
    applier: Arc<LogApplier>,
}

impl Component for Rollbacks {
    fn core(&self) -> &BucketCore {
        &self.core
    }
}

impl Rollbacks {
    pub(crate) fn new(applier: &Arc<LogApplier>) -> Self {
        Self {
            core: Arc::clone(&applier.core),
            shared: Arc::clone(&applier.shared),
            writers: Arc::clone(&applier.writers),
            applier: Arc::clone(applier),
        }
    }

    /// Takes a vBucket that is not active back to `to`, or to the newest seqno below it that its file can go back to, and
    /// begins a new branch there. If there is none, or most of it would go, it is reset. Durable when this returns; takes
    /// as long as reading what changed since.
    ///
    /// # Errors
    /// `NotMyVbucket` when there is none of this number, or it is active; `TemporaryFailure` while loading, when its file
    /// could not be read, when something else has changed it meanwhile, or the disk does not let it. It may have been
    /// reset then.
    pub fn rollback(&self, vb: VbId, to: Seqno) -> Result<RollbackReport, Status> {
        self.rollback_if(vb, to, &|| true)
    }

    /// As [`Rollbacks::rollback`], unless nobody wants it any more at the moment in which memory would go back; then
    /// `TemporaryFailure`.
    fn rollback_if(
        &self,
        vb: VbId,
        to: Seqno,
        is_wanted: IsWanted<'_>,
    ) -> Result<RollbackReport, Status> {
        let _alone = self.core.hold_vbucket(vb)?;
        for _ in 0..ATTEMPTS_MAX {
            match self.try_rollback(vb, to, is_wanted) {
                Ok(done) => return Ok(done),
                Err(RollbackError::Retry) => {}
                Err(RollbackError::Status(status)) => return Err(status),
                Err(RollbackError::Bucket(error)) => {
                    return Err(self.shared.report_disk_error(
                        vb,
                        &error,
                        "it cannot be rolled back now",
                    ));
                }
            }
        }
        Err(Status::TemporaryFailure)
    }

    /// As [`Rollbacks::rollback`], by a task; `done` hears of the end. Nothing happens when `still` says that nobody waits for
    /// that any more: what the vBucket is about to follow meanwhile may not be on the branch that it was to leave, and has
    /// heard what the vBucket acknowledges.
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
        self.core.change_vbucket(vb, |vbucket| {
            high = vbucket.high_seqno();
            may_roll_back(vbucket, is_wanted)
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
                        self.shared.report_disk_error(
                            vb,
                            &error,
                            "its file cannot go back: it begins anew",
                        );
                        self.reset_after_failure(vb, history)?;
                        None
                    }
                    Err(failure) => return Err(failure),
                }
            }
        };
        if seqno.is_none() {
            self.writers.sync()?;
            self.applier.apply_vbucket(vb);
            self.core.totals.add(Total::RollbackResets, 1);
        }
        self.core.totals.add(Total::Rollbacks, 1);
        let reached = seqno.unwrap_or_default();
        tracing::info!(
            bucket = self.core.name(),
            vbucket = %vb,
            from = high.get(),
            wanted = to.get(),
            reached = reached.get(),
            "a vBucket was rolled back"
        );
        Ok(RollbackReport {
            seqno: reached,
            is_reset: seqno.is_none(),
        })
    }

    /// Brings all of the vBucket into its file, and takes memory back before anything else can be written.
    fn apply_and_roll_back_memory(
        &self,
        vb: VbId,
        to: Seqno,
        is_wanted: IsWanted<'_>,
    ) -> Result<MemoryRollback<'_>, RollbackError> {
        if self.core.is_direct() {
            return self
                .writers
                .flusher
                .with_flushed(vb, || self.roll_back_memory(vb, to, is_wanted));
        }
        self.writers.sync()?;
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
        let rollback = self.core.storage()?.begin_rollback(vb, to)?;
        let changed = match &rollback {
            Some(rollback) => rollback.changed_keys()?,
            None => Vec::new(),
        };
        let mut result = Err(RollbackError::Retry);
        self.core.change_vbucket(vb, |vbucket| {
            may_roll_back(vbucket, is_wanted)?;
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
                    vbucket.reset(new_uuid());
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

    /// The record goes into the log, the file goes back, and memory takes over what it has.
    fn roll_back_file(&self, vb: VbId, file: FileRollback<'_>) -> Result<(), RollbackError> {
        if !self.core.is_direct() {
            self.writers.sync()?;
        }
        let state = {
            let vbucket = self.core.vbuckets[vb.index()].lock();
            check_history(&vbucket, file.history)?;
            vbucket.store().persisted_state()
        };
        let now_ns = self.core.setup.clock.now().unix_ns;
        file.rollback.finish(now_ns, |then, _| PersistedState {
            state: state.state,
            failover: state.failover,
            // No CAS is given out twice.
            max_cas: then.max_cas.max(state.max_cas),
            ..then.clone()
        })?;
        let loaded = self.core.storage()?.load(vb)?;
        let base = loaded.map(kedge_storage::Loaded::into_file_state);
        let base = base.ok_or_else(|| BucketError::NotApplied(self.core.name().to_owned()))?;
        let mut vbucket = self.core.vbuckets[vb.index()].lock();
        check_history(&vbucket, file.history)?;
        let now = self.core.setup.clock.now();
        let (rewound, _) = self.core.account(now, &mut vbucket, |vbucket| {
            vbucket.recovery().rewound(&base)
        });
        rewound.map_err(|source| BucketError::Replay { vb, source })?;
        if !has_work(&vbucket) {
            self.shared.truncation.retention(vb).forget_queued();
        }
        drop(vbucket);
        self.core.after_step();
        self.shared.changed_files.on_changed(vb);
        self.shared.events.file_advanced(vb);
        if !self.core.is_direct() {
            self.writers.log.truncate();
        }
        let complete = self.reload_changed(vb, file.history, &file.changed) && file.was_warm;
        let mut vbucket = self.core.vbuckets[vb.index()].lock();
        self.core.measure(&mut vbucket, |vbucket| {
            vbucket.store_mut().warmed(file.history, complete);
        });
        let is_partial = vbucket.documents().residency().on_disk_only > 0;
        drop(vbucket);
        if is_partial && self.core.config().eviction_policy == EvictionPolicy::FullEviction {
            self.rebuild_filter(vb, file.history);
        }
        Ok(())
    }

    /// Makes a filter of the keys that the file has, as the one that there was is void. Without one, commands look into the
    /// file.
    fn rebuild_filter(&self, vb: VbId, history: u32) {
        let scan = self.core.storage().and_then(|storage| {
            let mut vbucket = self.core.vbuckets[vb.index()].lock();
            self.core.measure(&mut vbucket, |vbucket| {
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
            let mut vbucket = self.core.vbuckets[vb.index()].lock();
            if vbucket.history_id() != history || self.core.phase() != Phase::Open {
                return;
            }
            self.core.measure(&mut vbucket, |vbucket| {
                if records.is_empty() {
                    vbucket.documents_mut().finish_filter();
                } else {
                    vbucket
                        .documents_mut()
                        .add_to_filter(records.iter().map(Record::key));
                }
            });
            if records.is_empty() {
                return;
            }
        }
    }

    /// Reads documents that were changed since into memory, as far as there is room. Whether memory knows all of them.
    fn reload_changed(&self, vb: VbId, history: u32, changed: &[Box<[u8]>]) -> bool {
        let keeps_keys = self.core.config().eviction_policy == EvictionPolicy::ValueOnly;
        let mut complete = true;
        for keys in changed.chunks(READ_CHUNK) {
            let keys: Vec<&[u8]> = keys.iter().map(|key| &**key).collect();
            let found: Result<Vec<_>, BucketError> = self
                .core
                .storage()
                .and_then(|storage| Ok(storage.get_many(vb, &keys)?));
            let found = match found {
                Ok(found) => found,
                // Commands find out what is wrong, if they ask for these.
                Err(error) => {
                    self.shared.events.read_failed(vb, &error.to_string());
                    return false;
                }
            };
            let found: Vec<Item> = found.into_iter().flatten().collect();
            let bytes: usize = found.iter().map(Item::heap_bytes).sum();
            let has_room = self.core.quota.below_low() > bytes as u64;
            let mut vbucket = self.core.vbuckets[vb.index()].lock();
            self.core.measure(&mut vbucket, |vbucket| {
                for item in found {
                    if has_room {
                        vbucket.store_mut().warm(history, item);
                    } else if keeps_keys && self.core.quota.room_for_keys() > 0 {
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

    /// The vBucket gave up one history, and its file does not follow.
    fn reset_after_failure(&self, vb: VbId, history: u32) -> Result<(), Status> {
        self.core.change_vbucket(vb, |vbucket| {
            if vbucket.history_id() != history {
                return Err(Status::TemporaryFailure);
            }
            vbucket.reset(new_uuid());
            Ok(())
        })
    }
}

fn may_roll_back(vbucket: &mut VBucket, is_wanted: IsWanted<'_>) -> Result<(), Status> {
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
