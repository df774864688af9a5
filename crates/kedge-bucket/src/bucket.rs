//! The facade of a bucket, which wires its components.

use crate::collections::BucketCollections;
use crate::dcp::Dcp;
use crate::documents::DocumentCommands;
use crate::file_copies::FileCopies;
use crate::file_readers::FileReaders;
use crate::load_status::LoadStatus;
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
    pub(crate) documents: DocumentCommands,
    pub(crate) collections: BucketCollections,
    pub(crate) states: Arc<VbStates>,
    pub(crate) files: Arc<FileReaders>,
    pub(crate) dcp: Arc<Dcp>,
    pub(crate) scans: Arc<RangeScanner>,
    pub(crate) copies: Arc<FileCopies>,
    pub(crate) loaded: LoadStatus,
    /// The reason why the shutdown was not clean.
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
    /// Creates a bucket that has not been loaded. `commit_log` is true if the bucket uses a log; that may be so although the
    /// setting is off.
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
            documents: DocumentCommands::new(&core, &signals.queues, &residency),
            collections: BucketCollections::new(&core),
            scans: Arc::new(RangeScanner::new(&core, &residency, &files)),
            copies: Arc::new(FileCopies::new(&files, &residency)),
            dcp,
            files,
            states,
            persistence,
            residency,
            signals,
            loaded: LoadStatus::default(),
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

    /// Returns the persistence component: the log and the files.
    #[must_use]
    pub fn persistence(&self) -> &Arc<Persistence> {
        &self.persistence
    }

    /// Returns the residency component: the memory quota, evictions and background fetches.
    #[must_use]
    pub fn residency(&self) -> &Arc<Residency> {
        &self.residency
    }

    /// Returns the component that executes commands on documents.
    #[must_use]
    pub fn documents(&self) -> &DocumentCommands {
        &self.documents
    }

    /// Returns the scopes and collections.
    #[must_use]
    pub fn collections(&self) -> &BucketCollections {
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

    /// Returns the copies of vBuckets' files between nodes.
    #[must_use]
    pub fn copies(&self) -> &Arc<FileCopies> {
        &self.copies
    }

    /// Returns the bucket's range scans.
    #[must_use]
    pub fn scans(&self) -> &Arc<RangeScanner> {
        &self.scans
    }

    /// Returns the name of the bucket.
    #[must_use]
    pub fn name(&self) -> &str {
        self.core.name()
    }

    /// Returns the current settings.
    #[must_use]
    pub fn config(&self) -> Arc<BucketConfig> {
        self.core.config()
    }

    /// Returns the number of vBuckets.
    #[must_use]
    pub fn vbuckets(&self) -> u16 {
        self.core.vbucket_count()
    }

    /// Changes settings. The caller persists them.
    ///
    /// # Errors
    /// A message that names the invalid setting. No setting has been changed then.
    pub fn update(&self, change: &BucketChange) -> Result<Arc<BucketConfig>, String> {
        let encryption = self.persistence.encryption();
        encryption.prepare(change)?;
        let changed = self.core.update_config(|config| {
            let changed = change.apply(config);
            changed.check().map(|()| changed)
        })?;
        self.residency.on_config();
        self.signals.streams.wake_receivers_if_room(&self.core);
        self.persistence
            .compactions()
            .on_config(&changed.compaction);
        self.states.on_durability_config();
        encryption.on_config();
        Ok(changed)
    }

    /// Returns whether the bucket is loading. Commands fail with a temporary failure until it is loaded.
    #[must_use]
    pub fn is_loading(&self) -> bool {
        self.core.is_loading()
    }

    /// Waits for the steps of vBuckets that run now. Steps that begin later see how [`crate::ServingGate`] was set before.
    pub fn await_steps(&self) {
        self.core.await_steps();
    }

    /// Returns the statistics of a vBucket's file; `None` if there is no file.
    ///
    /// # Errors
    /// `NotLoaded` at the beginning of loading; errors of storage.
    pub fn file_figures(&self, vb: VbId) -> Result<Option<FileFigures>, BucketError> {
        self.core.file_figures(vb)
    }

    /// Returns the histograms of durations.
    #[must_use]
    pub fn timings(&self) -> &Timings {
        &self.core.timings
    }

    /// Returns the sum of a counter over all threads.
    #[must_use]
    pub fn counter(&self, counter: Counter) -> u64 {
        self.core.counters.sum(counter)
    }

    /// Resets counters and histograms to 0.
    pub fn reset_stats(&self) {
        self.core.counters.reset();
        self.core.totals.reset();
        self.core.timings.reset();
        self.residency.reset_stats();
    }
}
