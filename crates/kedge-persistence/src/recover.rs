//! Recovery of a bucket: from the vBuckets' files, then from the log.
//!
//! Each vBucket starts with the state of its file. The log's records that the file lacks are replayed on top of it.
//! Resets and rollbacks that were interrupted are completed in the files. Warmup reads the documents from the files
//! later.
//!
//! Invariants:
//! * Nothing is removed before its replacement is durable. Recovery after a crash during recovery has the same result.
//! * A vBucket whose file cannot be read is quarantined, see `quarantine`. The other vBuckets are recovered.
//! * After a kill of the previous process, contents of the files may be only in the page cache. The whole log is
//!   retained until all files are durable. A bucket without a log does not open before that, except on a disk that has
//!   no space for it (file systems with copy on write need space to overwrite). All its files are synced then as they
//!   are, because clients see their seqnos as persisted, and its writes wait until the files are durable. Only a header
//!   that an earlier process failed to sync, which is fatal there, could then still be lost in a power failure.

use crate::commit::Committer;
use crate::encryption::LogKeys;
use crate::kinds::MAKE_DURABLE;
use crate::load_report::LoadReport;
use crate::persistence::Persistence;
use crate::record;
use crate::shutdown_marker::ShutdownMarker;
use crate::truncation::{LoggedRecords, has_work};
use kedge_bucket_core::{
    BucketError, BucketPhase, BucketSetup, InstrumentedDisk, new_uuid, random_u64, share_out,
};
use kedge_log::{Log, LogConfig, LogRecord};
use kedge_storage::{RollbackOutcome, Storage, StorageConfig};
use kedge_sync::{RankedMutex, ranks::Vbucket};
use kedge_types::VbId;
use kedge_vbucket::{FileState, PersistedState, ReplayError, Rewind, VBucket, VbState};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// The directory of the log in a bucket's directory.
pub const LOG_DIR: &str = "log";

/// The number of segments of a log of maximum length.
const SEGMENTS_PER_LOG: u64 = 4;
/// The quota divided by the maximum memory for B-tree nodes of open files, which is not part of the quota.
const QUOTA_PER_NODES: u64 = 8;
/// The minimum memory for the nodes of each file, however small the quota is.
const FILE_CACHE_BYTES_MIN: u64 = 16 << 10;
/// The maximum memory of an open file apart from its nodes.
const OPEN_FILE_BYTES: u64 = 1 << 10;
/// The minimum size of a segment, however short the log is to be.
const SEGMENT_BYTES_MIN: u64 = 64 << 10;

/// The log after replay, and the report of it.
struct ReplayedLog {
    log: Log,
    report: LoadReport,
}

impl Persistence {
    /// Recovers the vBuckets from the files and the log. Documents that are only in files are not read.
    ///
    /// # Errors
    /// Errors of the files and the log; [`BucketError::NotLoaded`] if the bucket is shut down meanwhile.
    pub fn recover(self: &Arc<Self>, uuid: [u8; 16]) -> Result<LoadReport, BucketError> {
        let storage = Storage::open_with_catalog_on(
            &*self.core.setup.disk,
            InstrumentedDisk::over(&self.core.setup.disk, &self.core.io_stats, true),
            &self.core.setup.dir,
            &self.storage_config(),
        )?;
        if storage.was_catalog_damaged() {
            tracing::warn!(
                bucket = self.core.name(),
                "the catalog of the vBuckets' files was damaged and is rebuilt: missing files are not detected"
            );
        }
        // A bucket is loaded once.
        let _ = self.core.storage.set(storage);
        let files = self.load_files()?;
        let marker = ShutdownMarker::read(&*self.core.setup.disk, &self.core.setup.dir)?;
        if self.core.is_direct() {
            return self.recover_direct(uuid, marker, files);
        }
        let (report, committer) = self.recover_logged(uuid, marker, files)?;
        self.writers.log.set_committer(committer);
        Ok(report)
    }

    fn storage_config(&self) -> StorageConfig {
        let config = &self.core.setup.config;
        let defaults = StorageConfig::new(config.vbuckets);
        // Cached nodes save reads, but must not take memory that documents could use.
        let vbuckets = u64::from(config.vbuckets.max(1));
        let nodes_bytes = (config.quota_bytes / QUOTA_PER_NODES)
            .max(vbuckets * FILE_CACHE_BYTES_MIN)
            .min(defaults.open_files_bytes_max);
        // All files may be open with all their nodes.
        let file_bytes = (nodes_bytes / vbuckets - OPEN_FILE_BYTES) as usize;
        StorageConfig {
            open_files_bytes_max: nodes_bytes,
            file_cache_bytes_max: file_bytes.min(defaults.file_cache_bytes_max),
            keep_files_open: config.keep_files_open,
            keyring: self.core.setup.keyring.clone(),
            max_open_files: config.max_open_files.min(self.core.setup.open_files_max) as usize,
            ..defaults
        }
    }

    /// Starts each vBucket with the state of its file. Returns the number of files.
    fn load_files(self: &Arc<Self>) -> Result<usize, BucketError> {
        self.quarantine.load_abandoned(self.core.storage()?)?;
        let found = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&found);
        self.for_each_vbucket(move |persistence, vb| {
            let loaded = match persistence.core.storage()?.load(vb) {
                Ok(Some(loaded)) => loaded,
                Ok(None) => {
                    if persistence.core.storage()?.is_deleted(vb) {
                        persistence.core.vbuckets[vb.index()]
                            .lock()
                            .recovery()
                            .begin_deleted();
                    }
                    return Ok(());
                }
                Err(error) if error.is_unreadable() => {
                    count.fetch_add(1, Ordering::Relaxed);
                    persistence.quarantine.add(vb, &error);
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            };
            count.fetch_add(1, Ordering::Relaxed);
            let mut vbucket = persistence.core.vbuckets[vb.index()].lock();
            vbucket
                .recovery()
                .begin_from(loaded.into_file_state())
                .map_err(|source| BucketError::Replay { vb, source })
        })?;
        Ok(found.load(Ordering::Relaxed))
    }

    /// Runs `work` for all vBuckets, on several threads. The first error ends it.
    fn for_each_vbucket(
        self: &Arc<Self>,
        work: impl Fn(&Self, VbId) -> Result<(), BucketError> + Send + Sync + 'static,
    ) -> Result<(), BucketError> {
        let count = self.core.vbuckets.len();
        share_out(self, count, move |persistence, index| {
            work(persistence, VbId(index as u16))
        })
    }

    /// Recovers a bucket whose settings say that it has no log. A log that still exists is applied to the files first.
    fn recover_direct(
        self: &Arc<Self>,
        uuid: [u8; 16],
        marker: Option<ShutdownMarker>,
        files: usize,
    ) -> Result<LoadReport, BucketError> {
        let (disk, dir) = (&*self.core.setup.disk, &self.core.setup.dir);
        let mut report = LoadReport {
            clean: marker == Some(ShutdownMarker::Clean) || (marker.is_none() && files == 0),
            is_new: marker.is_none() && files == 0,
            ..LoadReport::default()
        };
        if marker.is_some() || !Log::is_there(disk, &self.log_dir())? {
            // Without the marker, changes could be lost unnoticed, so clients must not resume on the old branches.
            report.clean &= self.begin_direct()?;
            self.finish_replay(&report)?;
            self.make_durable_or_defer()?;
        } else {
            let replay = self.replay(uuid, report.clean)?;
            report = replay.report;
            self.finish_replay(&report)?;
            self.applier
                .apply_all(|| self.core.phase() != BucketPhase::Loading)?;
            self.core.check_loading()?;
            // The log is removed only after all its records are in the files.
            let is_left = |vbucket: &RankedMutex<Vbucket, VBucket>| {
                let vbucket = vbucket.lock();
                has_work(&vbucket) || vbucket.is_quarantined()
            };
            if self.core.vbuckets.iter().any(is_left) {
                return Err(BucketError::NotApplied {
                    bucket: self.core.name().to_owned(),
                    why: self.quarantine.first_error(),
                });
            }
            self.make_durable()?;
            // From now on the files are authoritative, and the log is void.
            ShutdownMarker::Open.write(disk, dir)?;
        }
        self.remove_log()?;
        Ok(report)
    }

    /// Writes the marker of an open bucket, as changes may be lost in a crash from now on. Returns false if a transient
    /// error, such as a full disk, postpones that to the first commit.
    fn begin_direct(&self) -> Result<bool, BucketError> {
        self.shared.marker_is_due.store(true, Ordering::Release);
        match self.writers.flusher.write_due_marker() {
            Err(error) if error.is_passing() => {
                tracing::warn!(
                    bucket = self.core.name(),
                    %error,
                    "the marker of an open bucket could not be written: writes wait until it is"
                );
                Ok(false)
            }
            written => written.map(|()| true),
        }
    }

    /// Makes the contents of the files durable. Files for which a full disk has no space are synced as they are; the
    /// first commit completes that, like the marker.
    fn make_durable_or_defer(self: &Arc<Self>) -> Result<(), BucketError> {
        let refused = Arc::new(OnceLock::new());
        let first_refusal = Arc::clone(&refused);
        self.for_each_vbucket(move |persistence, vb| {
            match persistence.make_file_durable(vb) {
                // The other files need their syncs too: the bucket opens.
                Err(error) if error.is_no_space() => {
                    first_refusal.get_or_init(|| error.to_string());
                    Ok(())
                }
                done => done,
            }
        })?;
        if let Some(error) = refused.get() {
            tracing::warn!(
                bucket = self.core.name(),
                error,
                "files of the previous process could not be rewritten: writes wait until they are"
            );
            self.shared.marker_is_due.store(true, Ordering::Release);
        }
        Ok(())
    }

    fn recover_logged(
        self: &Arc<Self>,
        uuid: [u8; 16],
        marker: Option<ShutdownMarker>,
        files: usize,
    ) -> Result<(LoadReport, Committer), BucketError> {
        if marker.is_some() {
            // The previous start had no log, so an older log is void.
            self.make_durable()?;
            self.remove_log()?;
            ShutdownMarker::remove(&*self.core.setup.disk, &self.core.setup.dir)?;
        }
        let clean = marker == Some(ShutdownMarker::Clean) || (marker.is_none() && files == 0);
        let ReplayedLog { log, mut report } = self.replay(uuid, clean)?;
        let ends_clean = report.clean && !report.is_new;
        report.is_new &= marker.is_none() && files == 0;
        if !report.clean && files > 0 {
            self.shared.truncation.hold(log.first_lsn());
        }
        let mut committer = Committer::new(log);
        if ends_clean {
            match committer.reopen() {
                // Without the record, a later crash would look clean, so clients must not resume on the old branches.
                Err(error) if error.is_passing() => report.clean = false,
                reopened => reopened?,
            }
        }
        self.finish_replay(&report)?;
        Ok((report, committer))
    }

    /// Syncs the contents of the files.
    pub(crate) fn make_durable(self: &Arc<Self>) -> Result<(), BucketError> {
        self.for_each_vbucket(Self::make_file_durable)
    }

    /// Makes the contents of the vBucket's file durable.
    fn make_file_durable(&self, vb: VbId) -> Result<(), BucketError> {
        if !self.shared.is_quarantined(vb) {
            self.core.storage()?.make_durable(vb)?;
        }
        Ok(())
    }

    /// Syncs the files of the previous process in a task, so that the log need not be retained for them.
    pub(crate) fn make_durable_in_background(self: &Arc<Self>) {
        if !self.shared.truncation.is_held() {
            return;
        }
        let persistence = Arc::clone(self);
        let work = move || {
            let storage = persistence.core.storage()?;
            for index in 0..persistence.core.vbucket_count() {
                if persistence.core.phase() == BucketPhase::Closed {
                    return Ok(());
                }
                if !persistence.shared.is_quarantined(VbId(index)) {
                    storage.make_durable(VbId(index))?;
                }
            }
            persistence.shared.truncation.release_hold();
            persistence.writers.log.truncate();
            Ok::<(), BucketError>(())
        };
        let persistence = Arc::clone(self);
        let report_result = move || match work() {
            Ok(()) => {}
            Err(error) if error.is_passing() => {
                tracing::error!(
                    bucket = persistence.core.name(),
                    %error,
                    "a file of the previous process could not be synced: the log is retained until the next start"
                );
            }
            Err(error) => persistence.core.fail(&error.to_string()),
        };
        // Refused during shutdown. The next start repeats it.
        drop(
            self.core
                .setup
                .executor
                .submit_as(&MAKE_DURABLE, self.core.owner, report_result),
        );
    }

    fn remove_log(&self) -> Result<(), BucketError> {
        Ok(Log::remove(&*self.core.setup.disk, &self.log_dir())?)
    }

    /// Reads the log. `clean` states whether the last shutdown was clean if there is no log.
    fn replay(&self, uuid: [u8; 16], clean: bool) -> Result<ReplayedLog, BucketError> {
        let mode = self.core.setup.recovery;
        let config = LogConfig {
            salt: random_u64(),
            keys: match &self.core.setup.keyring {
                Some(keyring) => Arc::new(LogKeys(Arc::clone(keyring))),
                None => LogConfig::default().keys,
            },
            // The log is truncated by whole segments.
            segment_bytes: (self.core.setup.config.log_bytes_max / SEGMENTS_PER_LOG)
                .clamp(SEGMENT_BYTES_MIN, LogConfig::default().segment_bytes),
            ..LogConfig::default()
        };
        let mut is_last_clean = false;
        let (log, report) = Log::open(
            InstrumentedDisk::over(&self.core.setup.disk, &self.core.io_stats, false),
            &self.log_dir(),
            uuid,
            config,
            mode,
            &mut |record: LogRecord<'_>| {
                is_last_clean = record.kind == record::KIND_CLEAN;
                self.replay_record(&record)
            },
        )?;
        if report.is_catalog_damaged {
            tracing::warn!(
                bucket = self.core.name(),
                "the catalog of the log was damaged and is rebuilt: missing segments are not detected"
            );
        }
        let report = LoadReport {
            records: report.records,
            bytes: report.bytes,
            documents: 0,
            is_new: report.is_new,
            clean: is_last_clean || (report.is_new && clean),
            skipped: report.skipped_places,
            took_us: 0,
        };
        Ok(ReplayedLog { log, report })
    }

    fn replay_record(&self, record: &LogRecord<'_>) -> Result<(), BucketError> {
        self.core.check_loading()?;
        let vb = record.vb;
        let why = "it names a vBucket that the bucket does not have";
        let vbucket = self
            .core
            .vbuckets
            .get(vb.index())
            .ok_or(BucketError::Record { vb, why })?;
        let mut vbucket = vbucket.lock();
        if vbucket.is_quarantined() {
            drop(vbucket);
            self.quarantine.replay(vb, record);
            return Ok(());
        }
        // Most records whose changes are in the file are skipped without parsing.
        let in_file = |seqno| seqno <= vbucket.applied_seqno();
        if record::seqno(record.kind, record.payload).is_some_and(in_file) {
            return Ok(());
        }
        let Some(change) = record::parse(record.kind, vb, record.payload)? else {
            return Ok(());
        };
        let replay_error = |source| BucketError::Replay { vb, source };
        let is_reset = change.begins_history();
        if self.quarantine.is_abandoned(vb) {
            vbucket.recovery().replay_without_file(change);
        } else {
            vbucket.recovery().replay(change).map_err(replay_error)?;
        }
        let logged = LoggedRecords {
            lsn: record.lsn,
            is_reset,
        };
        self.shared
            .truncation
            .retention(vb)
            .note_replayed(&vbucket, logged);
        Ok(())
    }

    fn finish_replay(&self, report: &LoadReport) -> Result<(), BucketError> {
        let now = self.core.setup.clock.now();
        // Damage that this salvage or an earlier one accepted may have removed prepares and left their commits.
        let salvaged = report.skipped > 0;
        let mut states_at_open = vec![None; self.core.vbuckets.len()];
        for (index, vbucket) in self.core.vbuckets.iter().enumerate() {
            let vb = VbId(index as u16);
            if self.shared.is_quarantined(vb) {
                continue;
            }
            let (rewind, state) = {
                let vbucket = vbucket.lock();
                (vbucket.needs_rewind().cloned(), vbucket.state())
            };
            states_at_open[index] = existed_before(&vbucket.lock(), report).then_some(state);
            let rewound = rewind.map(|rewind| self.rewind_file(vb, &rewind, state));
            let rewound = rewound.transpose()?;
            let mut vbucket = vbucket.lock();
            if let Some(base) = rewound {
                let begin_result = vbucket.recovery().begin_from(base);
                begin_result.map_err(|source| BucketError::Replay { vb, source })?;
            }
            if salvaged {
                vbucket.recovery().forgive_orphan();
            }
            // In a cluster, a branch starts when the map makes the vBucket active, after it has fetched the newer
            // changes of its replicas.
            let branch = (!report.clean && self.core.setup.topology.is_some()).then(new_uuid);
            let is_abandoned = self.quarantine.is_abandoned(vb);
            let (result, _) = self.core.account(now, &mut vbucket, |vbucket| {
                if is_abandoned {
                    vbucket.recovery().give_up_file(new_uuid());
                    return Ok(());
                }
                vbucket.recovery().finish(branch)?;
                if self.core.setup.topology.is_none() {
                    vbucket.wait_for_role();
                    if report.is_new {
                        vbucket.note_unwritten();
                    }
                }
                Ok(())
            });
            result.map_err(|source| BucketError::Replay { vb, source })?;
            self.shared
                .apply_queues
                .queue_replayed(&vbucket, now.mono_ns);
        }
        // A bucket is loaded once.
        let _ = self.states_at_open.set(states_at_open.into());
        Ok(())
    }

    /// Rolls back a file whose rollback record was logged before a crash, and returns the resulting state of the file.
    fn rewind_file(
        &self,
        vb: VbId,
        rewind: &Rewind,
        state: VbState,
    ) -> Result<FileState, BucketError> {
        let storage = self.core.storage()?;
        let now_ns = self.core.setup.clock.now().unix_ns;
        let outcome = storage.rollback(vb, rewind.to, now_ns, |then, _| PersistedState {
            state,
            failover: rewind.branch.failover.clone(),
            catch_up: rewind.branch.catch_up.clone(),
            ..then.clone()
        })?;
        let loaded = match outcome {
            RollbackOutcome::RolledBack(to) if to.seqno == rewind.to => storage.load(vb)?,
            _ => None,
        };
        // A rollback is logged only with a seqno that the file can be rolled back to.
        let source = ReplayError::NotRewound { to: rewind.to };
        let base = loaded.map(kedge_storage::LoadedFile::into_file_state);
        base.ok_or(BucketError::Replay { vb, source })
    }

    fn log_dir(&self) -> PathBuf {
        self.core.setup.dir.join(LOG_DIR)
    }
}

/// Returns whether the vBucket existed before this start.
fn existed_before(vbucket: &VBucket, report: &LoadReport) -> bool {
    !report.is_new && !vbucket.is_deleted()
}

/// Returns whether a bucket whose settings say that it has no log must keep its existing log, because the disk has no
/// space to apply the log to the files.
///
/// # Errors
/// Errors of the disk.
pub fn must_keep_log(setup: &BucketSetup) -> Result<bool, BucketError> {
    let (disk, log_dir) = (&*setup.disk, setup.dir.join(LOG_DIR));
    if ShutdownMarker::read(disk, &setup.dir)?.is_some() || !disk.exists(&log_dir)? {
        return Ok(false);
    }
    let mut log_bytes = 0;
    for name in disk.list(&log_dir)? {
        log_bytes += disk.len(&log_dir.join(name))?;
    }
    let free_bytes = disk.free_bytes(&setup.dir)?;
    let must_keep = free_bytes < log_bytes;
    if must_keep {
        tracing::warn!(
            bucket = setup.config.name,
            free_bytes,
            log_bytes,
            "commit_log stays on: the disk has no space to apply the log to the files; the first start with enough \
             space switches it off"
        );
    }
    Ok(must_keep)
}
