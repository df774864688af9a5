//! Opening and loading of a bucket.

use crate::bucket::Bucket;
use crate::tasks::WARMUP;
use kedge_bucket_core::{BucketError, BucketPhase, BucketSetup};
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
        // The task was cancelled before it ran, or panicked. Waiting threads must get a result.
        let bucket = &self.bucket;
        bucket
            .loaded
            .set(Err(BucketError::NotLoaded(bucket.core.name().to_owned())));
        bucket.core.leave_loading(BucketPhase::Failed);
    }
}

impl Bucket {
    /// Opens a bucket, or creates it if its directory is empty. The function returns at once. Tasks load the documents from
    /// the files and the log; until they are done, commands fail with a temporary failure.
    ///
    /// # Errors
    /// [`BucketError::Config`]; [`BucketError::Disk`] if the directory cannot be created; [`BucketError::Executor`].
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
            description: "loads the documents from the files and the log".into(),
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

    /// Waits until the bucket is loaded.
    ///
    /// # Errors
    /// The error that made loading fail.
    pub fn wait_loaded(&self) -> Result<LoadReport, BucketError> {
        self.loaded.wait(self.core.name())
    }

    /// Calls `listener` when loading has ended or failed: at once if it has already, otherwise on the thread that loads. From
    /// then on [`Bucket::wait_loaded`] does not block.
    pub fn when_loaded(&self, listener: impl FnOnce() + Send + 'static) {
        self.loaded.listen(Box::new(listener));
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
                    self.states.demote_actives();
                }
                self.core.leave_loading(BucketPhase::Open);
                self.collections.apply_manifest();
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
                    tracing::error!(bucket = self.core.name(), %error, "the bucket could not be loaded");
                } else {
                    // The bucket was shut down during loading.
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

    /// Starts the tasks that run while the bucket is open.
    pub(crate) fn begin_tasks(self: &Arc<Self>) -> Result<(), BucketError> {
        self.persistence.start_writers()?;
        self.residency.begin_tasks()?;
        self.core.begin_timeouts()?;
        self.scans.begin_tasks()?;
        self.dcp.begin_tasks()?;
        self.persistence.start_maintenance()
    }
}
