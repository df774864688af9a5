//! Quarantine of vBuckets whose files cannot be read at the start, and the reset that serves them again.
//!
//! A quarantined vBucket accepts no command, its file stays unchanged, and the log is retained from its first record
//! on. The records are replayed into a separate vBucket, which is served if an administrator abandons the file.
//!
//! Invariants:
//! * Nothing of a quarantined vBucket is written, and no log segment with one of its records is removed.
//! * The file is renamed before the vBucket is served without it. At the next start the new name shows that the records
//!   of the vBucket belong to a new history. The log has all of that history until its first file exists.

use crate::persistence::Persistence;
use crate::record;
use crate::shared::SharedState;
use crate::truncation::LoggedRecords;
use kedge_bucket_core::{BucketCore, BucketError, BucketPhase, Ctx, Total, new_uuid};
use kedge_log::LogRecord;
use kedge_storage::{Storage, StorageError};
use kedge_sync::{RankedMutex, ranks::QuarantineLogged};
use kedge_types::{Status, VbId, VbUuid};
use kedge_vbucket::{PersistenceMode, RandomState, VBucket, VbSetup};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// The state of vBuckets that are recovered without their files.
pub(crate) struct Quarantine {
    core: Arc<BucketCore>,
    shared: Arc<SharedState>,
    /// The contents of the log for each quarantined vBucket.
    replayed: RankedMutex<QuarantineLogged, BTreeMap<VbId, VBucket>>,
    /// vBuckets whose files were abandoned before the start and that have no new file yet.
    abandoned: OnceLock<BTreeSet<VbId>>,
    /// The error of the first file that could not be read.
    first_error: OnceLock<String>,
}

impl Quarantine {
    pub(crate) fn new(shared: &Arc<SharedState>) -> Self {
        Self {
            core: Arc::clone(&shared.core),
            shared: Arc::clone(shared),
            replayed: RankedMutex::default(),
            abandoned: OnceLock::new(),
            first_error: OnceLock::new(),
        }
    }

    /// Returns the error of the first file that could not be read.
    pub(crate) fn first_error(&self) -> Option<String> {
        self.first_error.get().cloned()
    }

    pub(crate) fn add(&self, vb: VbId, error: &StorageError) {
        tracing::error!(
            bucket = self.core.name(),
            vbucket = %vb,
            %error,
            "the vBucket is quarantined: its commands return a temporary failure; the other vBuckets are served"
        );
        self.first_error.get_or_init(|| error.to_string());
        let replayed = VBucket::new(VbSetup {
            id: vb,
            uuid: new_uuid(),
            shards: 1,
            hasher: RandomState::default(),
            persistence: if self.core.is_direct() {
                PersistenceMode::Direct
            } else {
                PersistenceMode::LogThenFile
            },
            topology: self.core.setup.topology.clone(),
        });
        self.replayed.lock().insert(vb, replayed);
        self.core.vbuckets[vb.index()].lock().quarantine();
    }

    /// Replays a record of a quarantined vBucket.
    pub(crate) fn replay(&self, vb: VbId, record: &LogRecord<'_>) {
        self.shared
            .truncation
            .retention(vb)
            .note_record(LoggedRecords {
                lsn: record.lsn,
                is_reset: false,
            });
        let mut replayed = self.replayed.lock();
        // A record that cannot be parsed stays in the log.
        if let Some(vbucket) = replayed.get_mut(&vb)
            && let Ok(Some(change)) = record::parse(record.kind, vb, record.payload)
        {
            vbucket.recovery().replay_without_file(change);
            self.core
                .quota
                .add(&vbucket.take_effects().unwrap_or_default().memory);
        }
    }

    pub(crate) fn load_abandoned(&self, storage: &Storage) -> Result<(), BucketError> {
        // A bucket is loaded once.
        let _ = self.abandoned.set(storage.quarantined()?);
        Ok(())
    }

    /// Returns whether the vBucket's file was abandoned before the start and it has no new file yet.
    pub(crate) fn is_abandoned(&self, vb: VbId) -> bool {
        self.abandoned.get().is_some_and(|all| all.contains(&vb))
    }
}

/// The result of the reset of a quarantined vBucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VbReset {
    /// The path of the renamed file, or `None` if the file did not exist any more.
    pub file: Option<PathBuf>,
    /// The number of documents that were recovered from the log.
    pub documents: u64,
    /// The UUID of the new history.
    pub uuid: VbUuid,
}

impl Persistence {
    /// Abandons the file of a quarantined vBucket: renames it, and serves the vBucket with the contents of the log, in
    /// a new history. The reset is durable when this returns.
    ///
    /// # Errors
    /// `NotMyVbucket` if the bucket has no such vBucket; `Invalid` if the vBucket is not quarantined;
    /// `TemporaryFailure` while the bucket is loading, if the disk fails, or during another reset of the vBucket.
    pub fn reset_vbucket(&self, ctx: Ctx, vb: VbId) -> Result<VbReset, Status> {
        if self.core.phase() != BucketPhase::Open {
            return Err(Status::TemporaryFailure);
        }
        let vbucket = self
            .core
            .vbuckets
            .get(vb.index())
            .ok_or(Status::NotMyVbucket)?;
        if !vbucket.lock().is_quarantined() {
            return Err(Status::Invalid);
        }
        let replayed = self.quarantine.replayed.lock().remove(&vb);
        let replayed = replayed.ok_or(Status::TemporaryFailure)?;
        let moved = self
            .core
            .storage()
            .and_then(|files| Ok(files.quarantine(vb)?));
        let mut guard = vbucket.lock();
        let file = match moved {
            Ok(file) if self.core.phase() == BucketPhase::Open => file,
            other => {
                drop(guard);
                self.quarantine.replayed.lock().insert(vb, replayed);
                return Err(self.fail_reset(vb, other.err()));
            }
        };
        let uuid = new_uuid();
        // A quarantined vBucket accepts no command, so no command waits for it.
        self.core.account(ctx.now, &mut guard, |vbucket| {
            vbucket.replace_with(replayed);
            vbucket.recovery().give_up_file(uuid);
        });
        if !self.core.is_direct() {
            self.shared
                .apply_queues
                .queue_replayed(&guard, ctx.now.mono_ns);
        }
        let documents = guard.documents().count() as u64;
        drop(guard);
        self.core.totals.add(Total::VbResets, 1);
        tracing::warn!(
            bucket = self.core.name(),
            vbucket = %vb,
            documents,
            ?file,
            "the vBucket's file was abandoned: the vBucket has only the documents of the log"
        );
        self.writers.sync().map_err(|error| {
            tracing::error!(
                bucket = self.core.name(),
                vbucket = %vb,
                %error,
                "the reset of the vBucket is not durable yet"
            );
            Status::TemporaryFailure
        })?;
        Ok(VbReset {
            file,
            documents,
            uuid,
        })
    }

    fn fail_reset(&self, vb: VbId, error: Option<BucketError>) -> Status {
        if let Some(error) = error {
            tracing::error!(
                bucket = self.core.name(),
                vbucket = %vb,
                %error,
                "the vBucket's file could not be renamed"
            );
            if !error.is_passing() {
                self.core.fail(&error.to_string());
            }
        }
        Status::TemporaryFailure
    }
}
