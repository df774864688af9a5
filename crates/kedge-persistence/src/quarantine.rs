//! vBuckets whose files cannot be read at the start, and how they are served again without them.
//!
//! Such a vBucket is quarantined: it answers nothing, its file stays as it is, and the log is kept from its first record on.
//! What the log has of it is replayed beside it, for when someone gives the file up.
//!
//! Invariants:
//! * Nothing of a vBucket that is quarantined is written, and nothing of its part of the log is given back.
//! * A file is put away before its vBucket is served without it. The name that it has then says at the next start that
//!   what is found of the vBucket is a new history; until there is a file of that, the log is.

use crate::persistence::Persistence;
use crate::record;
use crate::shared::SharedState;
use crate::truncation::LoggedRecords;
use kedge_bucket_core::Ctx;
use kedge_bucket_core::Phase;
use kedge_bucket_core::Total;
use kedge_bucket_core::new_uuid;
use kedge_bucket_core::{BucketCore, BucketError};
use kedge_log::LogRecord;
use kedge_storage::{Storage, StorageError};
use kedge_sync::{RankedMutex, ranks::QuarantineLogged};
use kedge_types::{Status, VbId, VbUuid};
use kedge_vbucket::{Persistence as PersistenceMode, RandomState, VBucket, VbSetup};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// What is known of vBuckets without their files.
pub(crate) struct Quarantine {
    core: Arc<BucketCore>,
    shared: Arc<SharedState>,
    /// Of those that are quarantined: what the log had.
    replayed: RankedMutex<QuarantineLogged, BTreeMap<VbId, VBucket>>,
    /// Those whose files were given up before the start, and that have no others yet.
    abandoned: OnceLock<BTreeSet<VbId>>,
}

impl Quarantine {
    pub(crate) fn new(shared: &Arc<SharedState>) -> Self {
        Self {
            core: Arc::clone(&shared.core),
            shared: Arc::clone(shared),
            replayed: RankedMutex::default(),
            abandoned: OnceLock::new(),
        }
    }

    pub(crate) fn add(&self, vb: VbId, error: &StorageError) {
        tracing::error!(
            bucket = self.core.name(),
            vbucket = %vb,
            %error,
            "the vBucket is quarantined: its commands get a temporary failure, the others are served"
        );
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

    /// The log has a record of a vBucket that is quarantined.
    pub(crate) fn replay(&self, vb: VbId, record: &LogRecord<'_>) {
        self.shared
            .truncation
            .retention(vb)
            .note_record(LoggedRecords {
                lsn: record.lsn,
                is_reset: false,
            });
        let mut replayed = self.replayed.lock();
        // What cannot be understood stays in the log.
        if let Some(vbucket) = replayed.get_mut(&vb)
            && let Ok(Some(change)) = record::parse(record.kind, vb, record.payload)
        {
            vbucket.recovery().replay_without_file(change);
            self.core.quota.add(&vbucket.take_effects().memory);
        }
    }

    pub(crate) fn load_abandoned(&self, storage: &Storage) -> Result<(), BucketError> {
        // Loading happens once.
        let _ = self.abandoned.set(storage.given_up()?);
        Ok(())
    }

    /// Whether the vBucket's file was given up before the start, and there is no other yet.
    pub(crate) fn is_abandoned(&self, vb: VbId) -> bool {
        self.abandoned.get().is_some_and(|all| all.contains(&vb))
    }
}

/// What became of a vBucket that was reset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VbReset {
    /// The name that the file has now; `None` if it was not there any more.
    pub file: Option<PathBuf>,
    /// Documents that the log had, and that are served again.
    pub documents: u64,
    /// The history that begins.
    pub uuid: VbUuid,
}

impl Persistence {
    /// Gives up the file of a vBucket that was quarantined: it is put away under another name, and the vBucket is served
    /// again with what the log has of it. That is a new history. It is on disk when this returns.
    ///
    /// # Errors
    /// `NotMyVbucket`; `Invalid` if the vBucket is not quarantined; `TemporaryFailure` while loading, when the disk
    /// refuses, or while someone else does the same.
    pub fn reset_vbucket(&self, ctx: Ctx, vb: VbId) -> Result<VbReset, Status> {
        if self.core.phase() != Phase::Open {
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
            .and_then(|files| Ok(files.put_away(vb)?));
        let mut guard = vbucket.lock();
        let file = match moved {
            Ok(file) if self.core.phase() == Phase::Open => file,
            other => {
                drop(guard);
                self.quarantine.replayed.lock().insert(vb, replayed);
                return Err(self.fail_reset(vb, other.err()));
            }
        };
        let uuid = new_uuid();
        // Nobody waits for a vBucket that answers nothing.
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
            "the vBucket's file was given up: it has what the log had, and all else is missing"
        );
        self.writers.sync().map_err(|error| {
            tracing::error!(bucket = self.core.name(), vbucket = %vb, %error, "the reset is not on disk yet");
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
            tracing::error!(bucket = self.core.name(), vbucket = %vb, %error, "the vBucket's file cannot be put away");
            if !error.is_passing() {
                self.core.fail(&error.to_string());
            }
        }
        Status::TemporaryFailure
    }
}
