//! Encryption at rest of a bucket: the life of its data keys, and the data that is to be written again.
//!
//! The task `encryption_keys` makes the keyring follow the settings and the age of its keys. After a change of the keys it begins a new
//! log segment, has the older ones applied and truncated, and has the files compacted that are of another key. Then it removes the keys
//! that nothing needs.
//!
//! Invariants:
//! * A key is removed only after a search for data that needs it, which began after the key could be given to nobody: see
//!   [`kedge_encryption::Keyring::unleased`]. If the search fails, no key is removed.
//! * Errors leave the data as it is, and the task tries again.

use crate::applier::LogApplier;
use crate::commit::CommitLog;
use crate::compaction::Compactions;
use crate::shared::SharedState;
use kedge_bucket_core::{BucketChange, BucketCore, BucketError, BucketPhase, Component, TaskBody};
use kedge_encryption::{KeySet, Keyring};
use kedge_executor::Next;
use kedge_log::{SegmentKey, SegmentKeyUse, SegmentKeys};
use kedge_storage::{EncryptedFiles, FileEncryption};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The time between two looks at the age of the keys.
const PERIOD: Duration = Duration::from_secs(3_600);
/// The time between two looks while data waits to be written again. Its end wakes the task, too.
const PENDING: Duration = Duration::from_secs(1);
/// The time to the next attempt after an error, or while something needs keys that are to go.
const RETRY: Duration = Duration::from_secs(10);

/// The encryption of a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EncryptionStatus {
    /// `true` if new data is encrypted.
    pub is_enabled: bool,
    /// The name of the master key.
    pub master_key: Option<String>,
    /// The data keys, the oldest first; the last one is that of new data.
    pub keys: Vec<KeyStatus>,
    /// The files.
    pub files: EncryptedFiles,
    /// `true` if some segment of the log is in plain text.
    pub has_plain_log: bool,
    /// `true` if data waits to be written again with the newest key, or in plain text.
    pub is_pending: bool,
    /// The error of the last attempt to change the keys or to write data again.
    pub error: Option<String>,
}

/// A data key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyStatus {
    /// The UUID.
    pub id: String,
    /// The Unix time of its creation, in seconds.
    pub created_unix_secs: u64,
}

/// The keys of the log, which are those of the bucket.
#[derive(Debug)]
pub(crate) struct LogKeys(pub(crate) Arc<Keyring>);

impl SegmentKeys for LogKeys {
    fn active(&self) -> Option<SegmentKey> {
        self.0.keys().active().map(segment_key)
    }

    fn find(&self, id: &str) -> Option<SegmentKey> {
        self.0.keys().find(id).map(segment_key)
    }
}

fn segment_key(key: &Arc<kedge_encryption::DataKey>) -> SegmentKey {
    SegmentKey::new(key.id(), key.secret().clone())
}

/// The component of a bucket that manages its data keys.
pub struct DataEncryption {
    core: Arc<BucketCore>,
    shared: Arc<SharedState>,
    log: Arc<CommitLog>,
    applier: Arc<LogApplier>,
    compactions: Arc<Compactions>,
}

impl Component for DataEncryption {
    fn core(&self) -> &BucketCore {
        &self.core
    }
}

impl std::fmt::Debug for DataEncryption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DataEncryption")
            .field("bucket", &self.core.name())
            .finish_non_exhaustive()
    }
}

/// The work that a run of the task leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PendingWork {
    None,
    /// Data is to be written again.
    Data,
    /// Something still needs or holds keys that are to go.
    Keys,
}

/// The task.
#[derive(Debug, Default)]
pub(crate) struct EncryptionTask {
    /// The keys for which all files were examined, as far as they matter.
    examined: Option<(Option<String>, Vec<String>)>,
}

impl TaskBody<DataEncryption> for EncryptionTask {
    fn run(&mut self, encryption: &DataEncryption, _: Duration) -> Next {
        let Some(keyring) = encryption.core.setup.keyring.clone() else {
            return Next::Sleep;
        };
        if encryption.core.phase() != BucketPhase::Open {
            return Next::Snooze(PENDING);
        }
        let pending = encryption.step(self, &keyring);
        let error = pending.as_ref().err().map(ToString::to_string);
        let next = match &pending {
            Ok(PendingWork::Data) => PENDING,
            Ok(PendingWork::Keys) => RETRY,
            Ok(PendingWork::None) => PERIOD,
            Err(error) => {
                tracing::warn!(
                    bucket = encryption.core.name(),
                    %error,
                    "data could not be encrypted again: it stays readable, and the attempt is repeated"
                );
                RETRY
            }
        };
        encryption.shared.encryption.set_error(error);
        Next::Snooze(next)
    }
}

impl DataEncryption {
    pub(crate) fn new(
        shared: &Arc<SharedState>,
        log: &Arc<CommitLog>,
        applier: &Arc<LogApplier>,
        compactions: &Arc<Compactions>,
    ) -> Arc<Self> {
        Arc::new(Self {
            core: Arc::clone(&shared.core),
            shared: Arc::clone(shared),
            log: Arc::clone(log),
            applier: Arc::clone(applier),
            compactions: Arc::clone(compactions),
        })
    }

    /// Prepares a change of settings: new data is encrypted from now on if the change asks for it.
    ///
    /// # Errors
    /// A message that names the setting. The change is not allowed then.
    pub fn prepare(&self, change: &BucketChange) -> Result<(), String> {
        if change.encryption.enabled != Some(true) {
            return Ok(());
        }
        let Some(keyring) = &self.core.setup.keyring else {
            return Err(
                "encryption_at_rest needs the master key of the server, encryption_master_key"
                    .to_owned(),
            );
        };
        let enabled = keyring.enable(self.now_unix_secs());
        enabled.map_err(|error| format!("encryption_at_rest: {error}"))
    }

    /// Follows changed settings.
    pub fn on_config(&self) {
        self.shared.encryption.wake(&self.core);
    }

    /// Gives new data a new key, and has all data of older ones written again in the background.
    ///
    /// # Errors
    /// [`BucketError::Keyring`]. The keys are unchanged then.
    pub fn rotate(&self) -> Result<(), BucketError> {
        if let Some(keyring) = &self.core.setup.keyring {
            keyring.rotate(self.now_unix_secs(), true)?;
            self.shared.encryption.wake(&self.core);
        }
        Ok(())
    }

    /// Has the master key wrap the data keys again. After an error the task tries again.
    ///
    /// # Errors
    /// [`BucketError::Keyring`]. The keys are unchanged then.
    pub fn rewrap(&self) -> Result<(), BucketError> {
        let Some(keyring) = &self.core.setup.keyring else {
            return Ok(());
        };
        let rewrapped = keyring.rewrap();
        if rewrapped.is_err() {
            self.shared.encryption.wake(&self.core);
        }
        Ok(rewrapped?)
    }

    /// Returns `true` if new data is encrypted.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        let keyring = self.core.setup.keyring.as_ref();
        keyring.is_some_and(|keyring| keyring.keys().active().is_some())
    }

    /// Returns the keys and the state of the data.
    #[must_use]
    pub fn status(&self) -> EncryptionStatus {
        let Some(keyring) = &self.core.setup.keyring else {
            return EncryptionStatus::default();
        };
        let keys = keyring.keys();
        let files = self
            .core
            .storage
            .get()
            .map(|files| FileEncryption::of(files).counts());
        let files = files.unwrap_or_default();
        let log = self.seen_log_keys();
        let key_status = |key: &Arc<kedge_encryption::DataKey>| KeyStatus {
            id: key.id().to_owned(),
            created_unix_secs: key.created_unix_secs(),
        };
        EncryptionStatus {
            is_enabled: keys.active().is_some(),
            master_key: Some(keyring.master_name().to_owned()),
            keys: keys.iter().map(key_status).collect(),
            has_plain_log: log.has_plain_segments,
            is_pending: files.replaced > 0 || is_log_old(&keys, &log),
            files,
            error: self.shared.encryption.error(),
        }
    }

    /// Returns the names of the keys that data of the bucket needs now, and `unencrypted` if some is in plain text.
    #[must_use]
    pub fn key_ids(&self) -> BTreeSet<String> {
        let log = self.seen_log_keys();
        let files = self
            .core
            .storage
            .get()
            .map(|files| FileEncryption::of(files).vbucket_keys());
        let files = files.unwrap_or_default();
        let is_plain = log.has_plain_segments || files.contains(&None);
        let mut ids = log.key_ids;
        ids.extend(files.into_iter().flatten());
        ids.extend(is_plain.then(|| "unencrypted".to_owned()));
        ids
    }

    fn now_unix_secs(&self) -> u64 {
        self.core.setup.clock.now().unix_secs()
    }

    /// Returns the keys of the log.
    fn log_keys(&self) -> SegmentKeyUse {
        let committer = self.log.committer.get();
        let keys = committer.map_or_else(SegmentKeyUse::default, |it| it.lock().log.key_use());
        self.shared.encryption.note_log_keys(&keys);
        keys
    }

    /// Returns the keys of the log without waiting for a commit, as they were at the last look if one is being made.
    fn seen_log_keys(&self) -> SegmentKeyUse {
        let committer = self.log.committer.get().and_then(|it| it.try_lock());
        let keys = match committer {
            Some(committer) => Some(committer.log.key_use()),
            None => self.shared.encryption.last_log_keys(),
        };
        keys.unwrap_or_else(|| self.log_keys())
    }

    /// Does what is due.
    fn step(
        &self,
        task: &mut EncryptionTask,
        keyring: &Keyring,
    ) -> Result<PendingWork, BucketError> {
        self.follow_settings(keyring)?;
        let keys = keyring.keys();
        self.renew_log(&keys)?;
        let storage = self.core.storage()?;
        let important = (
            keys.active().map(|key| key.id().to_owned()),
            keys.iter()
                .map(|key| key.id().to_owned())
                .filter(|id| keys.replaces(Some(id)))
                .collect(),
        );
        if task.examined.as_ref() != Some(&important) {
            self.compactions.examine_all();
            self.shared.events.key_changed();
            task.examined = Some(important);
        }
        let is_log_old = is_log_old(&keys, &self.log_keys());
        let is_pending = FileEncryption::of(storage).counts().replaced > 0 || is_log_old;
        // An older set would lease its keys.
        drop(keys);
        self.remove_unused(keyring)?;
        let keys = keyring.keys();
        let has_old = keys.iter().any(|key| keys.replaces(Some(key.id())));
        // At the end: nothing else needs the master key.
        keyring.retry_rewrap()?;
        Ok(match (is_pending, has_old) {
            (true, _) => PendingWork::Data,
            (false, true) => PendingWork::Keys,
            (false, false) => PendingWork::None,
        })
    }

    fn follow_settings(&self, keyring: &Keyring) -> Result<(), BucketError> {
        let (config, now) = (self.core.config(), self.now_unix_secs());
        let config = &config.encryption;
        match config.enabled {
            true => keyring.enable(now)?,
            false => keyring.disable()?,
        }
        let created = keyring.keys().active().map(|key| key.created_unix_secs());
        let interval = config.rotation_interval_secs;
        if interval > 0 && created.is_some_and(|created| created + interval <= now) {
            keyring.rotate(now, false)?;
            tracing::info!(
                bucket = self.core.name(),
                "new data is encrypted with a new key"
            );
        }
        if config.key_lifetime_secs > 0 {
            keyring.retire_before(now.saturating_sub(config.key_lifetime_secs))?;
        }
        Ok(())
    }

    /// Begins a new log segment if the current one is of another key, and has old ones truncated.
    fn renew_log(&self, keys: &KeySet) -> Result<(), BucketError> {
        let Some(committer) = self.log.committer.get() else {
            return Ok(());
        };
        {
            let mut committer = committer.lock();
            match committer.log.use_active_key() {
                Ok(true) => self.log.on_log_appended(&committer),
                Ok(false) => {}
                Err(error) => {
                    let error = BucketError::from(error);
                    // The log goes on with the former key after errors that may pass. A failed sync ends the process, as after
                    // any other write.
                    if !error.is_no_space() && !error.is_passing() {
                        self.core.fail(&error.to_string());
                    }
                    return Err(error);
                }
            }
            if !is_log_old(keys, &committer.log.key_use()) {
                return Ok(());
            }
        }
        self.applier
            .apply_all(|| self.core.phase() != BucketPhase::Open)?;
        self.log.truncate_with(&mut committer.lock());
        Ok(())
    }

    /// Removes the keys that nothing needs.
    fn remove_unused(&self, keyring: &Keyring) -> Result<(), BucketError> {
        let mut unused = keyring.unleased();
        if unused.is_empty() {
            return Ok(());
        }
        let log = self.log_keys();
        unused.retain(|id| !log.key_ids.contains(id));
        let unused = FileEncryption::of(self.core.storage()?).unused_keys(unused)?;
        if unused.is_empty() {
            return Ok(());
        }
        keyring.remove(&unused)?;
        tracing::info!(
            bucket = self.core.name(),
            keys = unused.join(","),
            "no data needs these keys any more: they are removed"
        );
        Ok(())
    }
}

/// Returns whether segments of the log are to go: those of retired keys, and plain ones beside an active key, or encrypted ones without.
fn is_log_old(keys: &KeySet, log: &SegmentKeyUse) -> bool {
    let ids = log.key_ids.iter().map(|id| Some(id.as_str()));
    let plain = log.has_plain_segments.then_some(None);
    ids.chain(plain).any(|id| keys.replaces(id))
}
