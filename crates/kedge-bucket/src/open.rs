//! How a bucket comes to life.

use crate::bucket::Bucket;
use crate::tasks::WARMUP;
use kedge_bucket_core::BucketError;
use kedge_bucket_core::{BucketPhase, BucketSetup};
use kedge_executor::{Next, Task, TaskContext, TaskSpec};
use kedge_persistence::{LoadReport, must_keep_log};
use kedge_sync::{RankedMutex, ranks::Vbucket};
use kedge_vbucket::VBucket;
use std::sync::Arc;

/// The task that loads a bucket.
struct LoadTask {
    bucket: Arc<Bucket>,
    uuid: [u8; 16],
}

impl Task for LoadTask {
    fn run(&mut self, _: &TaskContext<'_>) -> Next {
        self.bucket.load(self.uuid);
        Next::Done
    }
}

impl Drop for LoadTask {
    fn drop(&mut self) {
        // It was cancelled before it ran, or panicked: nobody may wait for ever.
        let bucket = &self.bucket;
        bucket
            .loaded
            .set(Err(BucketError::NotLoaded(bucket.core.name().to_owned())));
        bucket.core.leave_loading(BucketPhase::Failed);
    }
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
        let commit_log = setup.config.commit_log || must_keep_log(&setup)?;
        let executor = setup.executor.clone();
        let owner = executor.register(&format!("bucket:{}", setup.config.name))?;
        let bucket = Self::new(setup, owner, uuid, commit_log);
        let spec = TaskSpec {
            description: "reads the documents from the files and the log".into(),
            ..TaskSpec::new(&WARMUP, owner)
        };
        let warmup = LoadTask {
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
        self.loaded.wait(self.core.name())
    }

    /// Calls `tell` once loading is done, or has failed: at once if it has by now, else from the task that loads.
    /// From then on [`Bucket::wait_loaded`] does not wait.
    pub fn when_loaded(&self, tell: impl FnOnce() + Send + 'static) {
        self.loaded.listen(Box::new(tell));
    }

    fn load(self: &Arc<Self>, uuid: [u8; 16]) {
        let before = self.core.setup.clock.now();
        let load = || {
            let report = self.persistence.recover(uuid)?;
            self.residency.warmup().load_documents()?;
            self.begin_tasks()?;
            Ok(LoadReport {
                documents: self.count_documents(),
                took_us: (self.core.setup.clock.now().mono_ns - before.mono_ns) / 1_000,
                ..report
            })
        };
        let mut result = load();
        match &result {
            Ok(report) => {
                if self.core.setup.topology.is_none() {
                    self.states.await_assignment();
                }
                self.core.leave_loading(BucketPhase::Open);
                self.collections.tell_manifest();
                self.states.on_durability_config();
                self.residency.warmup().begin();
                tracing::info!(
                    bucket = self.core.name(),
                    documents = report.documents,
                    records = report.records,
                    ms = report.took_us / 1_000,
                    clean = report.clean,
                    "the bucket is loaded"
                );
            }
            Err(error) => {
                if self.core.leave_loading(BucketPhase::Failed) {
                    tracing::error!(bucket = self.core.name(), %error, "the bucket cannot be loaded");
                } else {
                    // It was shut down meanwhile, wherever loading noticed that.
                    result = Err(BucketError::NotLoaded(self.core.name().to_owned()));
                }
            }
        }
        self.loaded.set(result);
    }

    fn count_documents(&self) -> u64 {
        let documents =
            |vbucket: &RankedMutex<Vbucket, VBucket>| vbucket.lock().documents().count() as u64;
        self.core.vbuckets.iter().map(documents).sum()
    }
}
