//! How a bucket comes to life.

use crate::bucket::{Bucket, BucketSetup, LoadReport, Phase};
use crate::error::BucketError;
use crate::shutdown_marker::ShutdownMarker;
use crate::tasks::WARMUP;
use kedge_executor::{Context, Next, Task, TaskSpec};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The folder of the log in a bucket's directory.
pub const LOG_DIR: &str = "log";

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

/// Returns whether a bucket that is to have no log has to keep the one it has: all that is in there goes into the files first, and
/// the disk may have no room for that.
fn keeps_log(setup: &BucketSetup) -> Result<bool, BucketError> {
    let (disk, log_dir) = (&*setup.disk, setup.dir.join(LOG_DIR));
    if ShutdownMarker::read(disk, &setup.dir)?.is_some() || !disk.exists(&log_dir)? {
        return Ok(false);
    }
    let mut log_bytes = 0;
    for name in disk.list(&log_dir)? {
        log_bytes += disk.len(&log_dir.join(name))?;
    }
    let free_bytes = disk.free_bytes(&setup.dir)?;
    let keeps = free_bytes < log_bytes;
    if keeps {
        tracing::warn!(
            bucket = setup.config.name,
            free_bytes,
            log_bytes,
            "commit_log stays on: the disk has no room to bring the log into the files; it is switched off by the first \
             start that has"
        );
    }
    Ok(keeps)
}

impl Bucket {
    /// Opens a bucket, or makes it if its directory is empty. Returns at once; documents are read from the files and
    /// the log by tasks, and until that is done commands get a temporary failure.
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
        setup.disk.create_dir_all(&setup.dir)?;
        let commit_log = setup.config.commit_log || keeps_log(&setup)?;
        let executor = setup.executor.clone();
        let owner = executor.register(&format!("bucket:{}", setup.config.name))?;
        let bucket = Arc::new(Self::new(setup, owner, uuid, commit_log));
        let spec = TaskSpec {
            description: "reads the documents from the files and the log".into(),
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
        let mut result = self.recover(uuid).and_then(|(report, committer)| {
            if let Some(committer) = committer {
                self.on_log_grown(&committer);
                // Loading happens once.
                let _ = self.preallocator.set(committer.log.preallocator());
                let _ = self.committer.set(Mutex::new(committer));
            }
            self.begin_tasks()?;
            let took_us = (self.setup.clock.now().mono_ns - before.mono_ns) / 1_000;
            Ok(LoadReport { took_us, ..report })
        });
        match &result {
            Ok(report) => {
                if self.setup.topology.is_none() {
                    self.await_assignment();
                }
                self.leave_loading(Phase::Open);
                self.tell_manifest();
                self.on_durability_config();
                self.begin_warmup();
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
                } else {
                    // It was shut down meanwhile, wherever loading noticed that.
                    result = Err(BucketError::NotLoaded(self.name().to_owned()));
                }
            }
        }
        self.loaded.set(result);
    }
}
