//! Installation of a file that was copied from another node as the file of an empty replica.
//!
//! ```text
//! apply all changes of the vBucket to its file
//! reset the vBucket                          from here on nothing is applied to its file
//! append the reset record and sync it        all earlier records of the vBucket are void
//! install the copy, which names the reset
//! take over the state of the file; warmup reads the documents
//! ```
//!
//! Invariants:
//! * The reset record is in the log before the file has its name. A start that finds the file without the record, or the
//!   record without the file, begins with the file or with an empty vBucket.
//! * The file names the reset, and keeps the name in later commits. So a start knows that all records of the vBucket up to
//!   the reset are older than the file, and those after it are newer ([`kedge_vbucket::FileState`]).
//! * If the file cannot be installed, the vBucket stays empty, as a reset leaves it.
//! * A concurrent reset or deletion of the vBucket takes precedence. The lock of its applier is held from the check until
//!   the installation, so that no file comes back after its removal.

use crate::applier::LogApplier;
use crate::kinds::FILE_INSTALL;
use crate::truncation::has_work;
use kedge_bucket_core::{BucketCore, BucketError, Component, Total, new_uuid, submit_change};
use kedge_storage::{CompleteCopy, FileCopy, LoadedFile};
use kedge_types::{Seqno, Status, VbId, VbUuid};
use kedge_vbucket::{PersistedState, VBucket, VbState};
use std::sync::Arc;

/// Returns whether the copy is still wanted. Called under the lock of the vBucket.
type IsWanted<'a> = &'a dyn Fn() -> bool;

/// A vBucket that waits for its file.
struct EmptyVbucket {
    /// The UUID of its reset.
    reset: VbUuid,
    history: u32,
    state: PersistedState,
}

/// The installations of a bucket's files.
pub struct FileInstalls {
    applier: Arc<LogApplier>,
}

impl Component for FileInstalls {
    fn core(&self) -> &BucketCore {
        &self.applier.core
    }
}

impl FileInstalls {
    pub(crate) fn new(applier: &Arc<LogApplier>) -> Self {
        Self {
            applier: Arc::clone(applier),
        }
    }

    /// Returns whether files can be installed in this bucket: it has a commit log, whose records say which file is newer.
    #[must_use]
    pub fn is_available(&self) -> bool {
        !self.applier.core.is_direct()
    }

    /// Begins a copy of a vBucket's file from another node.
    ///
    /// # Errors
    /// Errors of the disk; `NotLoaded`.
    pub fn begin_copy(&self, vb: VbId) -> Result<FileCopy, BucketError> {
        Ok(self.applier.core.storage()?.begin_copy(vb)?)
    }

    /// Installs a copy as the file of a replica that has no change. The vBucket has the seqnos of the file when this
    /// returns, and its documents are read when commands need them. Returns the high seqno.
    ///
    /// # Errors
    /// `NotSupported` without a commit log; `NotMyVbucket` if the vBucket is no replica; `TemporaryFailure` if it is not
    /// empty, `is_wanted` returns false, the copy is damaged, or the disk fails. The vBucket is empty then.
    pub fn install(
        &self,
        vb: VbId,
        copy: FileCopy,
        is_wanted: IsWanted<'_>,
    ) -> Result<Seqno, Status> {
        if !self.is_available() {
            return Err(Status::NotSupported);
        }
        let bytes = copy.bytes();
        let report = |error: &BucketError| {
            let what = "a copy of a file could not be installed: DCP sends its changes";
            self.applier.shared.report_disk_error(vb, error, what)
        };
        let complete = (self.applier.core.storage())
            .and_then(|storage| Ok(storage.complete_copy(copy)?))
            .map_err(|error| report(&error))?;
        let seqno = complete.high_seqno();
        let _guard = self.applier.core.hold_vbucket(vb)?;
        self.make_applied(vb).map_err(|error| report(&error))?;
        let empty = self.reset(vb, is_wanted)?;
        let history = empty.history;
        let installed = self.replace_file(vb, complete, empty);
        if installed != Ok(()) {
            self.give_up(vb, history);
        }
        installed?;
        self.applier.core.after_step();
        self.applier.shared.changed_files.on_changed(vb);
        self.applier.shared.events.file_advanced(vb);
        self.applier.writers.log.truncate();
        self.applier.core.totals.add(Total::FileCopies, 1);
        self.applier.core.totals.add(Total::FileCopyBytes, bytes);
        Ok(seqno)
    }

    /// Runs [`FileInstalls::install`] in a task, which calls `done` with the result.
    pub fn submit(
        self: &Arc<Self>,
        vb: VbId,
        copy: FileCopy,
        is_wanted: impl Fn() -> bool + Send + 'static,
        done: impl FnOnce(Result<Seqno, Status>) + Send + 'static,
    ) {
        let work = move |installs: &Self| installs.install(vb, copy, &is_wanted);
        submit_change(self, &FILE_INSTALL, work, done);
    }

    fn make_applied(&self, vb: VbId) -> Result<(), BucketError> {
        self.applier.writers.sync()?;
        let mut applier = self.applier.hold_applier(vb);
        self.applier.apply_to_end(&mut applier, vb)
    }

    /// Makes place for the file: resets the vBucket, which is empty.
    fn reset(&self, vb: VbId, is_wanted: IsWanted<'_>) -> Result<EmptyVbucket, Status> {
        let reset = new_uuid();
        self.applier.core.change_vbucket(vb, |vbucket| {
            check_is_empty_replica(vbucket)?;
            if !is_wanted() {
                return Err(Status::TemporaryFailure);
            }
            vbucket.recovery().reset_for_file(reset);
            Ok(EmptyVbucket {
                reset,
                history: vbucket.history_id(),
                state: vbucket.store().persisted_state(),
            })
        })
    }

    /// Logs the reset, replaces the file, and takes over its state into memory.
    fn replace_file(
        &self,
        vb: VbId,
        copy: CompleteCopy,
        empty: EmptyVbucket,
    ) -> Result<(), Status> {
        let report = |error: &BucketError| {
            let what = "a copy of a file could not be installed: the vBucket stays empty";
            self.applier.shared.report_disk_error(vb, error, what)
        };
        self.applier
            .writers
            .sync()
            .map_err(|error| report(&error))?;
        let _applier = self.applier.hold_applier(vb);
        check_history(
            &self.applier.core.vbuckets[vb.index()].lock(),
            empty.history,
        )?;
        let now = self.applier.core.setup.clock.now();
        let history = empty.history;
        let loaded = self.applier.core.storage().and_then(|storage| {
            let state = |source: &PersistedState| PersistedState {
                state: empty.state.state,
                catch_up: empty.state.catch_up,
                // No CAS is assigned twice.
                max_cas: source.max_cas.max(empty.state.max_cas),
                ..source.clone()
            };
            storage.install_copy(vb, copy, empty.reset, now.unix_ns, state)?;
            Ok(storage.load(vb)?.map(LoadedFile::into_file_state))
        });
        let base = loaded.map_err(|error| report(&error))?;
        let base = base.ok_or(Status::TemporaryFailure)?;
        let mut vbucket = self.applier.core.vbuckets[vb.index()].lock();
        check_history(&vbucket, history)?;
        let (taken, _) = self.applier.core.account(now, &mut vbucket, |vbucket| {
            let taken = vbucket.recovery().install(&base);
            if taken.is_err() {
                vbucket.recovery().reset_for_rollback(new_uuid());
            }
            taken
        });
        if !has_work(&vbucket) {
            self.applier.shared.truncation.retention(vb).forget_queued();
        }
        drop(vbucket);
        taken.map_err(|error| {
            tracing::error!(bucket = self.applier.core.name(), vbucket = %vb, %error, "the prepares of a file of another node are inconsistent");
            Status::TemporaryFailure
        })
    }

    /// Leaves the vBucket empty. Its file follows.
    fn give_up(&self, vb: VbId, history: u32) {
        let mut vbucket = self.applier.core.vbuckets[vb.index()].lock();
        if vbucket.history_id() == history {
            vbucket.recovery().give_up_copy();
        }
        drop(vbucket);
        self.applier.apply_vbucket(vb);
    }
}

fn check_is_empty_replica(vbucket: &VBucket) -> Result<(), Status> {
    if vbucket.is_deleted() || vbucket.state() != VbState::Replica {
        return Err(Status::NotMyVbucket);
    }
    let is_empty = vbucket.high_seqno() == Seqno(0)
        && vbucket.changes().queued() == 0
        && !vbucket.is_streaming()
        && !has_work(vbucket);
    if is_empty {
        Ok(())
    } else {
        Err(Status::TemporaryFailure)
    }
}

fn check_history(vbucket: &VBucket, history: u32) -> Result<(), Status> {
    if vbucket.history_id() == history {
        Ok(())
    } else {
        Err(Status::TemporaryFailure)
    }
}
