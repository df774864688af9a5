//! The facade of a bucket: it wires the components, and passes commands on to them.

use crate::collections::Collections;
use crate::dcp::Dcp;
use crate::documents::Documents;
use crate::file_readers::FileReaders;
use crate::loaded::Loaded;
use crate::scans::RangeScanner;
use crate::vbuckets::VbStates;
use crate::wiring::{Signals, StepEvents};
use kedge_bucket_core::{
    BucketChange, BucketConfig, BucketCore, BucketError, BucketSetup, Component, Counter,
    DiskWriters, Timings,
};
use kedge_executor::OwnerId;
use kedge_persistence::{Persistence, PersistenceEvents, WriteQueues};
use kedge_residency::{Residency, ResidencyEvents};
use kedge_storage::FileFigures;
use kedge_types::VbId;
use std::sync::{Arc, OnceLock, Weak};

/// A bucket. Share it as `Arc<Bucket>`.
pub struct Bucket {
    pub(crate) core: Arc<BucketCore>,
    pub(crate) persistence: Arc<Persistence>,
    pub(crate) residency: Arc<Residency>,
    pub(crate) signals: Arc<Signals>,
    pub(crate) documents: Documents,
    pub(crate) collections: Collections,
    pub(crate) states: Arc<VbStates>,
    pub(crate) files: Arc<FileReaders>,
    pub(crate) dcp: Arc<Dcp>,
    pub(crate) scans: Arc<RangeScanner>,
    pub(crate) loaded: Loaded,
    /// The reason for which the end was not clean.
    pub(crate) unclean: OnceLock<String>,
}

impl std::fmt::Debug for Bucket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bucket")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}

impl Component for Bucket {
    fn core(&self) -> &BucketCore {
        &self.core
    }
}

impl Bucket {
    /// Returns a bucket that has not been loaded. `commit_log`: whether it has a log, which a bucket that is to have none
    /// may have to keep for now.
    pub(crate) fn new(
        setup: BucketSetup,
        owner: OwnerId,
        uuid: [u8; 16],
        commit_log: bool,
    ) -> Arc<Self> {
        let vbuckets = setup.config.vbuckets;
        let queues = Arc::new(WriteQueues::new(&setup.config, commit_log));
        let core = Arc::new(BucketCore::new(setup, owner, uuid, commit_log));
        let signals = Arc::new(Signals::new(Arc::clone(&queues), vbuckets));
        core.set_events(Box::new(StepEvents(Arc::clone(&signals))));
        let writers = Arc::clone(&queues) as Arc<dyn DiskWriters>;
        let memory = Arc::clone(&signals.memory);
        let residency = Arc::new(Residency::new(Arc::clone(&core), memory, &writers));
        let persistence = Arc::new(Persistence::new(Arc::clone(&core), queues));
        let states = Arc::new(VbStates {
            core: Arc::clone(&core),
            persistence: Arc::clone(&persistence),
        });
        let files = Arc::new(FileReaders::new(&core, &persistence));
        let dcp = Arc::new(Dcp {
            core: Arc::clone(&core),
            persistence: Arc::clone(&persistence),
            residency: Arc::clone(&residency),
            states: Arc::clone(&states),
            files: Arc::clone(&files),
            signals: Arc::clone(&signals.streams),
        });
        let bucket = Arc::new(Self {
            documents: Documents::new(&core, &signals.queues, &residency),
            collections: Collections::new(&core),
            scans: Arc::new(RangeScanner::new(&core, &residency, &files)),
            dcp,
            files,
            states,
            persistence,
            residency,
            signals,
            loaded: Loaded::default(),
            unclean: OnceLock::new(),
            core,
        });
        bucket.signals.set_bucket(&bucket);
        let events: Weak<dyn PersistenceEvents> = Arc::downgrade(&bucket) as _;
        bucket.persistence.set_events(events);
        let events: Weak<dyn ResidencyEvents> = Arc::downgrade(&bucket) as _;
        bucket.residency.set_events(events);
        bucket
    }

    /// Returns the durability of the bucket: its log and its files.
    #[must_use]
    pub fn persistence(&self) -> &Arc<Persistence> {
        &self.persistence
    }

    /// Returns the memory of the bucket.
    #[must_use]
    pub fn residency(&self) -> &Arc<Residency> {
        &self.residency
    }

    /// Returns the commands on documents.
    #[must_use]
    pub fn documents(&self) -> &Documents {
        &self.documents
    }

    /// Returns the scopes and collections.
    #[must_use]
    pub fn collections(&self) -> &Collections {
        &self.collections
    }

    /// Returns the states of the bucket's vBuckets.
    #[must_use]
    pub fn states(&self) -> &Arc<VbStates> {
        &self.states
    }

    /// Returns the bucket's DCP streams.
    #[must_use]
    pub fn dcp(&self) -> &Arc<Dcp> {
        &self.dcp
    }

    /// Returns the bucket's range scans.
    #[must_use]
    pub fn scans(&self) -> &Arc<RangeScanner> {
        &self.scans
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.core.name()
    }

    /// Its settings as they are now.
    #[must_use]
    pub fn config(&self) -> Arc<BucketConfig> {
        self.core.config()
    }

    /// Number of its vBuckets.
    #[must_use]
    pub fn vbuckets(&self) -> u16 {
        self.core.vbucket_count()
    }

    /// Changes settings. The caller keeps them on disk.
    ///
    /// # Errors
    /// A sentence that names the setting that makes no sense; nothing was changed then.
    pub fn update(&self, change: &BucketChange) -> Result<Arc<BucketConfig>, String> {
        let changed = self.core.update_config(|config| {
            let changed = change.apply(config);
            changed.check().map(|()| changed)
        })?;
        self.residency.on_config();
        self.signals.streams.look_for_receivers(&self.core);
        self.persistence
            .compactions()
            .on_config(&changed.compaction);
        self.states.on_durability_config();
        Ok(changed)
    }

    /// Returns whether documents are still being read from the log; commands get a temporary failure until that is done.
    #[must_use]
    pub fn is_loading(&self) -> bool {
        self.core.is_loading()
    }

    /// Returns the figures of a vBucket's file; `None` while it has none.
    ///
    /// # Errors
    /// `NotLoaded` at the beginning of loading; those of storage.
    pub fn file_figures(&self, vb: VbId) -> Result<Option<FileFigures>, BucketError> {
        self.core.file_figures(vb)
    }

    /// The histograms.
    #[must_use]
    pub fn timings(&self) -> &Timings {
        &self.core.timings
    }

    /// A count over all threads.
    #[must_use]
    pub fn counter(&self, counter: Counter) -> u64 {
        self.core.counters.sum(counter)
    }

    /// Sets counts and histograms to 0.
    pub fn reset_stats(&self) {
        self.core.counters.reset();
        self.core.totals.reset();
        self.core.timings.reset();
        self.residency.reset_stats();
    }
}
