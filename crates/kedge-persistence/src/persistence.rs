//! The component itself, and what it reports upwards.

use crate::applier::ApplierShard;
use crate::commit::Committer;
use crate::compaction::Compactions;
use crate::quarantine::Quarantine;
use crate::queues::WriteQueues;
use crate::reserve::Reserve;
use crate::stuck::Stuck;
use crate::truncation::TruncationPoint;
use kedge_bucket_core::{BucketCore, Component, Parker};
use kedge_log::{LogStats, SegmentPreallocator};
use kedge_sync::{
    RankedMutex,
    ranks::{BucketLogStats, CommitterRank},
};
use kedge_types::{Seqno, VbId};
use kedge_vbucket::VbState;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, Weak};

/// The receiver of what persistence reports. It is called by writers and appliers, once for each commit, under no
/// vBucket's lock.
pub trait PersistenceEvents: Send + Sync {
    /// Replicas have new seqnos to acknowledge, as their changes are durable. Takes them out of `acks`.
    fn persisted(&self, acks: &mut Vec<(VbId, Seqno)>);

    /// The file of a vBucket has more than before, or is another one.
    fn file_advanced(&self, vb: VbId);

    /// Changes were written to a file, so that documents may leave memory.
    fn memory_freed(&self);

    /// Writes are refused from now on, as the disk is full or refuses them.
    fn writes_refused(&self);

    /// Returns whether a reader waits for the file of `vb`, or of any vBucket, to advance.
    fn is_file_wanted(&self, vb: Option<VbId>) -> bool;

    /// Documents that a rollback changed could not be read back into memory.
    fn read_failed(&self, vb: VbId, error: &str);
}

/// The durability of a bucket: its log, its files, and everything that writes to them.
pub struct Persistence {
    pub(crate) core: Arc<BucketCore>,
    pub(crate) queues: Arc<WriteQueues>,
    events: OnceLock<Weak<dyn PersistenceEvents>>,
    pub(crate) committer: OnceLock<RankedMutex<CommitterRank, Committer>>,
    pub(crate) preallocator: OnceLock<SegmentPreallocator>,
    /// The task that makes log segments ready.
    pub(crate) segments: Parker,
    pub(crate) log_stats: RankedMutex<BucketLogStats, LogStats>,
    pub(crate) appliers: Box<[ApplierShard]>,
    pub(crate) truncation: TruncationPoint,
    pub(crate) compactions: Compactions,
    pub(crate) reserve: Reserve,
    pub(crate) quarantine: Quarantine,
    pub(crate) stuck: Stuck,
    /// Without a log: the marker that changes may be lost is not on disk yet. No file is written before it is.
    pub(crate) marker_is_due: AtomicBool,
    /// The state of each vBucket when the bucket was opened; `None` of one that did not exist.
    pub(crate) states_before: OnceLock<Box<[Option<VbState>]>>,
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
        let config = core.config();
        Self {
            queues,
            events: OnceLock::new(),
            committer: OnceLock::new(),
            preallocator: OnceLock::new(),
            segments: Parker::default(),
            log_stats: RankedMutex::default(),
            appliers: (0..config.shards())
                .map(|_| ApplierShard::default())
                .collect(),
            truncation: TruncationPoint::new(config.vbuckets),
            compactions: Compactions::new(&config),
            reserve: Reserve::default(),
            quarantine: Quarantine::default(),
            stuck: Stuck::default(),
            marker_is_due: AtomicBool::new(false),
            states_before: OnceLock::new(),
            core,
        }
    }

    /// Sets the receiver of events, once, before the bucket is loaded.
    pub fn set_events(&self, events: Weak<dyn PersistenceEvents>) {
        // Components are wired once.
        let _ = self.events.set(events);
    }

    /// Reports acknowledgements of replicas.
    pub(crate) fn report_persisted(&self, acks: &mut Vec<(VbId, Seqno)>) {
        if !acks.is_empty()
            && let Some(events) = self.events()
        {
            events.persisted(acks);
        }
    }

    /// Reports that the file of a vBucket has more than before, or is another one.
    pub(crate) fn report_file_advanced(&self, vb: VbId) {
        if let Some(events) = self.events() {
            events.file_advanced(vb);
        }
    }

    /// Reports that documents may leave memory.
    pub(crate) fn report_memory_freed(&self) {
        if let Some(events) = self.events() {
            events.memory_freed();
        }
    }

    /// Reports that writes are refused from now on.
    pub(crate) fn report_writes_refused(&self) {
        if let Some(events) = self.events() {
            events.writes_refused();
        }
    }

    /// Reports that documents could not be read.
    pub(crate) fn report_read_failed(&self, vb: VbId, error: &str) {
        if let Some(events) = self.events() {
            events.read_failed(vb, error);
        }
    }

    /// Returns whether a reader waits for the file of `vb`, or of any vBucket.
    pub(crate) fn is_file_wanted(&self, vb: Option<VbId>) -> bool {
        self.events()
            .is_some_and(|events| events.is_file_wanted(vb))
    }

    fn events(&self) -> Option<Arc<dyn PersistenceEvents>> {
        self.events.get().and_then(Weak::upgrade)
    }

    /// Returns the queues of the writers.
    #[must_use]
    pub fn queues(&self) -> &WriteQueues {
        &self.queues
    }

    /// Returns the state of a vBucket when the bucket was opened; `None` when neither log nor file had one.
    #[must_use]
    pub fn state_before(&self, vb: VbId) -> Option<VbState> {
        *self.states_before.get()?.get(vb.index())?
    }
}
