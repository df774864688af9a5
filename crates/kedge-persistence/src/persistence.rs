//! The component of a bucket that makes changes durable. It wires the components of this crate.

use crate::applier::LogApplier;
use crate::commit::CommitLog;
use crate::compaction::Compactions;
use crate::encryption::DataEncryption;
use crate::events::PersistenceEvents;
use crate::flusher::FileFlusher;
use crate::install::FileInstalls;
use crate::quarantine::Quarantine;
use crate::queues::WriteQueues;
use crate::rollback::Rollbacks;
use crate::shared::SharedState;
use crate::writers::Writers;
use kedge_bucket_core::{BucketCore, BucketError, Component};
use kedge_types::{Status, VbId};
use kedge_vbucket::VbState;
use std::sync::{Arc, OnceLock, Weak};

/// The durability of a bucket: its log, its files, and the components that write to them.
pub struct Persistence {
    pub(crate) core: Arc<BucketCore>,
    pub(crate) shared: Arc<SharedState>,
    pub(crate) writers: Arc<Writers>,
    pub(crate) applier: Arc<LogApplier>,
    pub(crate) compactions: Arc<Compactions>,
    pub(crate) rollbacks: Arc<Rollbacks>,
    pub(crate) installs: Arc<FileInstalls>,
    pub(crate) encryption: Arc<DataEncryption>,
    pub(crate) quarantine: Quarantine,
    /// The state of each vBucket when the bucket was opened, or `None` for a vBucket that did not exist.
    pub(crate) states_at_open: OnceLock<Box<[Option<VbState>]>>,
}

impl std::fmt::Debug for Persistence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Persistence")
            .field("bucket", &self.core.name())
            .finish_non_exhaustive()
    }
}

impl Component for Persistence {
    fn core(&self) -> &BucketCore {
        &self.core
    }
}

impl Persistence {
    /// Returns the component of a bucket that has not been loaded.
    #[must_use]
    pub fn new(core: Arc<BucketCore>, queues: Arc<WriteQueues>) -> Self {
        let shared = Arc::new(SharedState::new(Arc::clone(&core), queues));
        let writers = Arc::new(Writers {
            core: Arc::clone(&core),
            shared: Arc::clone(&shared),
            log: Arc::new(CommitLog::new(&shared)),
            flusher: Arc::new(FileFlusher::new(&shared)),
        });
        let applier = Arc::new(LogApplier::new(&writers));
        let compactions = Compactions::new(&shared, &applier);
        Self {
            encryption: DataEncryption::new(&shared, &writers.log, &applier, &compactions),
            compactions,
            rollbacks: Arc::new(Rollbacks::new(&applier)),
            installs: Arc::new(FileInstalls::new(&applier)),
            quarantine: Quarantine::new(&shared),
            states_at_open: OnceLock::new(),
            core,
            shared,
            writers,
            applier,
        }
    }

    /// Sets the receiver of events, once, before the bucket is loaded.
    pub fn set_events(&self, events: Weak<dyn PersistenceEvents>) {
        self.shared.events.set(events);
    }

    /// Returns the writers.
    #[must_use]
    pub fn writers(&self) -> &Writers {
        &self.writers
    }

    /// Returns the log applier.
    #[must_use]
    pub fn applier(&self) -> &LogApplier {
        &self.applier
    }

    /// Returns the compactions.
    #[must_use]
    pub fn compactions(&self) -> &Compactions {
        &self.compactions
    }

    /// Returns the rollbacks.
    #[must_use]
    pub fn rollbacks(&self) -> &Arc<Rollbacks> {
        &self.rollbacks
    }

    /// Returns the installations of files that were copied from other nodes.
    #[must_use]
    pub fn installs(&self) -> &Arc<FileInstalls> {
        &self.installs
    }

    /// Returns the encryption at rest.
    #[must_use]
    pub fn encryption(&self) -> &DataEncryption {
        &self.encryption
    }

    /// Returns the queues of the writers.
    #[must_use]
    pub fn queues(&self) -> &WriteQueues {
        &self.shared.queues
    }

    /// Makes all changes so far durable, and returns when they are.
    ///
    /// # Errors
    /// Errors of the log, or of the files in a bucket without a log.
    pub fn sync(&self) -> Result<(), BucketError> {
        self.writers.sync()
    }

    /// Applies all changes so far to the vBuckets' files, and returns when they are written.
    ///
    /// # Errors
    /// Errors of the log and of the files.
    pub fn apply(&self) -> Result<(), BucketError> {
        self.sync()?;
        self.applier.apply_all(|| false)
    }

    /// Logs a disk error with the message `what`, and returns the status for the client. An error that is not transient
    /// fails the bucket.
    pub fn report_disk_error(&self, vb: VbId, error: &BucketError, what: &str) -> Status {
        self.shared.report_disk_error(vb, error, what)
    }

    /// Returns whether the vBucket's file could not be read at the start.
    #[must_use]
    pub fn is_quarantined(&self, vb: VbId) -> bool {
        self.shared.is_quarantined(vb)
    }

    /// Returns the number of quarantined vBuckets.
    #[must_use]
    pub fn count_quarantined(&self) -> u64 {
        self.shared.count_quarantined()
    }

    /// Wakes the appliers if a change of the log's or the memory's limits requires it.
    pub fn update_apply_pressure(&self) {
        self.shared.apply_queues.update_apply_pressure();
    }

    /// Returns the state of a vBucket when the bucket was opened, or `None` if neither the log nor a file had one.
    #[must_use]
    pub fn state_at_open(&self, vb: VbId) -> Option<VbState> {
        *self.states_at_open.get()?.get(vb.index())?
    }
}
