//! How a bucket comes to life, and how it ends.

use crate::bucket::{Bucket, BucketSetup, LoadReport, Phase, Recovery, new_uuid, random_u64};
use crate::commit::Committer;
use crate::error::BucketError;
use crate::record;
use crate::tasks::WARMUP;
use kedge_disk::Disk;
use kedge_executor::{Context, Next, Task, TaskSpec};
use kedge_log::{Log, LogConfig, Lsn, Record, RecoveryMode};
use kedge_vbucket::Change;
use parking_lot::{Condvar, Mutex};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The folder of the log in a bucket's directory.
const LOG_DIR: &str = "log";

/// What became of loading, for who waits for it.
#[derive(Default)]
pub(crate) struct Loaded {
    outcome: Mutex<LoadOutcome>,
    changed: Condvar,
}

#[derive(Default)]
struct LoadOutcome {
    result: Option<Result<LoadReport, Option<BucketError>>>,
    /// Called once there is a result.
    listeners: Vec<Box<dyn FnOnce() + Send>>,
}

impl Loaded {
    /// The first result counts.
    fn set(&self, result: Result<LoadReport, BucketError>) {
        let listeners = {
            let mut outcome = self.outcome.lock();
            if outcome.result.is_some() {
                return;
            }
            outcome.result = Some(result.map_err(Some));
            std::mem::take(&mut outcome.listeners)
        };
        self.changed.notify_all();
        for listener in listeners {
            listener();
        }
    }

    fn listen(&self, listener: Box<dyn FnOnce() + Send>) {
        let mut outcome = self.outcome.lock();
        if outcome.result.is_none() {
            outcome.listeners.push(listener);
            return;
        }
        drop(outcome);
        listener();
    }

    fn wait(&self, name: &str) -> Result<LoadReport, BucketError> {
        let mut outcome = self.outcome.lock();
        loop {
            match &mut outcome.result {
                Some(Ok(report)) => return Ok(report.clone()),
                Some(Err(error)) => {
                    let gone = || BucketError::NotLoaded(name.to_owned());
                    return Err(error.take().unwrap_or_else(gone));
                }
                None => self.changed.wait(&mut outcome),
            }
        }
    }
}

/// The task that loads a bucket.
struct Warmup {
    bucket: Arc<Bucket>,
    uuid: [u8; 16],
}

impl Task for Warmup {
    fn run(&mut self, _: &Context<'_>) -> Next {
        self.bucket.load(self.uuid);
        Next::Done
    }
}

impl Drop for Warmup {
    fn drop(&mut self) {
        // It was cancelled before it ran, or panicked: nobody may wait for ever.
        let bucket = &self.bucket;
        bucket
            .loaded
            .set(Err(BucketError::NotLoaded(bucket.name().to_owned())));
        bucket.leave_loading(Phase::Failed);
    }
}

impl Bucket {
    /// Opens a bucket, or makes it if its directory is empty. Returns at once; documents are read from the log by a
    /// task, and until that is done commands get a temporary failure.
    ///
    /// # Errors
    /// [`BucketError::Config`], [`BucketError::Disk`] when the directory cannot be made, [`BucketError::Executor`].
    pub fn open(setup: BucketSetup) -> Result<Arc<Self>, BucketError> {
        let config_error = |why| BucketError::Config {
            name: setup.config.name.clone(),
            why,
        };
        setup.config.check().map_err(config_error)?;
        let uuid = setup
            .config
            .uuid_bytes()
            .ok_or_else(|| config_error("uuid".to_owned()))?;
        setup.disk.create_dir_all(&setup.dir.join(LOG_DIR))?;
        let executor = setup.executor.clone();
        let owner = executor.register(&format!("bucket:{}", setup.config.name))?;
        let bucket = Arc::new(Self::new(setup, owner, uuid));
        let spec = TaskSpec {
            description: "reads the documents from the log".into(),
            ..TaskSpec::new(&WARMUP, owner)
        };
        let warmup = Warmup {
            bucket: Arc::clone(&bucket),
            uuid,
        };
        if let Err(refused) = executor.schedule(spec, warmup) {
            executor.unregister(owner, true);
            return Err(refused.into());
        }
        Ok(bucket)
    }

    /// Waits until loading is done.
    ///
    /// # Errors
    /// Why it failed.
    pub fn wait_loaded(&self) -> Result<LoadReport, BucketError> {
        self.loaded.wait(self.name())
    }

    /// Calls `tell` once loading is done, or has failed: at once if it has by now, else from the task that loads.
    /// From then on [`Bucket::wait_loaded`] does not wait.
    pub fn when_loaded(&self, tell: impl FnOnce() + Send + 'static) {
        self.loaded.listen(Box::new(tell));
    }

    /// Ends loading. False when the bucket was shut down meanwhile: it stays so.
    fn leave_loading(&self, to: Phase) -> bool {
        let (loading, to) = (Phase::Loading as u8, to as u8);
        self.phase
            .compare_exchange(loading, to, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    fn load(self: &Arc<Self>, uuid: [u8; 16]) {
        let before = self.setup.clock.now();
        let result = self.replay(uuid).and_then(|(report, committer)| {
            *self.log_stats.lock() = committer.log.stats();
            // Loading happens once.
            let _ = self.preparer.set(committer.log.preparer());
            let _ = self.committer.set(Mutex::new(committer));
            self.begin_tasks()?;
            let took_us = (self.setup.clock.now().mono_ns - before.mono_ns) / 1_000;
            Ok(LoadReport { took_us, ..report })
        });
        match &result {
            Ok(report) => {
                self.leave_loading(Phase::Open);
                tracing::info!(
                    bucket = self.name(),
                    documents = report.documents,
                    records = report.records,
                    ms = report.took_us / 1_000,
                    clean = report.clean,
                    "the bucket is loaded"
                );
            }
            Err(error) => {
                if self.leave_loading(Phase::Failed) {
                    tracing::error!(bucket = self.name(), %error, "the bucket cannot be loaded");
                }
            }
        }
        self.loaded.set(result);
    }

    fn replay(&self, uuid: [u8; 16]) -> Result<(LoadReport, Committer), BucketError> {
        let mode = match self.setup.recovery {
            Recovery::Strict => RecoveryMode::Strict,
            Recovery::Salvage => RecoveryMode::Salvage,
        };
        let config = LogConfig {
            salt: random_u64(),
            ..LogConfig::default()
        };
        let mut resets = vec![Lsn(0); self.vbuckets.len()].into_boxed_slice();
        let mut clean = true;
        let (log, report) = Log::open(
            Arc::clone(&self.setup.disk),
            &self.log_dir(),
            uuid,
            config,
            mode,
            &mut |record: Record<'_>| {
                clean = record.kind == record::KIND_CLEAN;
                self.replay_record(&record, &mut resets)
            },
        )?;
        // Damage that was accepted, now or by an earlier salvage, may have taken prepares and left their commits.
        let salvaged = report.skipped_places > 0;
        let documents = self.finish_replay(clean, salvaged)?;
        let report = LoadReport {
            records: report.records,
            bytes: report.bytes,
            documents,
            clean,
            skipped: report.skipped_places,
            took_us: 0,
        };
        Ok((report, Committer::new(log, resets)))
    }

    fn replay_record(&self, record: &Record<'_>, resets: &mut [Lsn]) -> Result<(), BucketError> {
        if self.phase() != Phase::Loading {
            // The bucket is being shut down: nobody waits for the rest.
            return Err(BucketError::NotLoaded(self.name().to_owned()));
        }
        let vb = record.vb;
        let Some(change) = record::parse(record.kind, vb, record.payload)? else {
            return Ok(());
        };
        let why = "it names a vBucket that the bucket does not have";
        let vbucket = self
            .vbuckets
            .get(vb.index())
            .ok_or(BucketError::Record { vb, why })?;
        if matches!(change, Change::Reset(_)) {
            resets[vb.index()] = record.lsn;
        }
        vbucket
            .lock()
            .replay(change)
            .map_err(|source| BucketError::Replay { vb, source })
    }

    fn finish_replay(&self, clean: bool, salvaged: bool) -> Result<u64, BucketError> {
        let now = self.setup.clock.now();
        let mut documents = 0;
        for vbucket in &self.vbuckets {
            let mut vbucket = vbucket.lock();
            let vb = vbucket.id();
            // What replay put there was not accounted for.
            self.quota
                .add(vbucket.bytes() as i64, vbucket.checkpoint_bytes() as i64);
            if salvaged {
                vbucket.forgive_orphan();
            }
            let branch = (!clean).then(new_uuid);
            let (result, _) =
                self.account(now, &mut vbucket, |vbucket| vbucket.finish_replay(branch));
            result.map_err(|source| BucketError::Replay { vb, source })?;
            documents += vbucket.documents() as u64;
        }
        Ok(documents)
    }

    fn log_dir(&self) -> PathBuf {
        self.setup.dir.join(LOG_DIR)
    }

    /// Ends the bucket: what was written is made durable, who still waits is answered, its tasks end. Loading is cut
    /// short. Harmless when called twice.
    pub fn shutdown(&self) {
        let before = self.phase.swap(Phase::Closed as u8, Ordering::AcqRel);
        if before == Phase::Closed as u8 {
            return;
        }
        if let Some(preparer) = self.preparer.get() {
            preparer.stop();
        }
        self.setup.executor.unregister(self.owner, true);
        if before != Phase::Failed as u8
            && let Err(error) = self.close_log()
        {
            tracing::error!(bucket = self.name(), %error, "the log could not be closed cleanly");
        }
        self.answer_all();
    }

    /// Writes what is left and the mark of a clean end. Nothing to do when loading did not come to its end.
    fn close_log(&self) -> Result<(), BucketError> {
        let Some(committer) = self.committer.get() else {
            return Ok(());
        };
        let mut committer = committer.lock();
        self.commit_all(&mut committer)?;
        committer.close().map_err(BucketError::from)
    }

    fn answer_all(&self) {
        let now = self.setup.clock.now();
        for vbucket in &self.vbuckets {
            let (_, mut done) = {
                let mut vbucket = vbucket.lock();
                self.account(now, &mut vbucket, kedge_vbucket::VBucket::on_shutdown)
            };
            if !done.is_empty() {
                self.deliver(now, &mut done);
            }
        }
    }

    /// Ends the bucket and removes its directory.
    ///
    /// # Errors
    /// What the disk says; a part of the directory may be gone then.
    pub fn destroy(&self) -> Result<(), BucketError> {
        self.shutdown();
        remove_dir(&*self.setup.disk, &self.setup.dir)
    }
}

fn remove_dir(disk: &dyn Disk, dir: &Path) -> Result<(), BucketError> {
    disk.remove_dir_all(dir)?;
    if let Some(parent) = dir.parent() {
        disk.sync_dir(parent)?;
    }
    Ok(())
}
