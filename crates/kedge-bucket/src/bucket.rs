//! The bucket itself: its parts, and how a step of a vBucket is accounted for.

use crate::applier::ApplierShard;
use crate::collections::Collections;
use crate::commit::{Committer, Dirty, DirtyList};
use crate::compaction::Compactions;
use crate::counters::{Counter, Counters, Totals};
use crate::dcp::Dcp;
use crate::dynamic::DynamicSettings;
use crate::fetch::Fetches;
use crate::flusher::Flushers;
use crate::instrumented::IoStatistics;
use crate::memory_queue::MemoryAdmissionQueue;
use crate::pager::Pager;
use crate::pending_state::PendingStateQueue;
use crate::quarantine::Quarantine;
use crate::quota::Quota;
use crate::reserve::Reserve;
use crate::scans::Scans;
use crate::settings::{BucketChange, BucketConfig};
use crate::stuck::Stuck;
use crate::tasks::Parker;
use crate::timings::{Timing, Timings};
use crate::truncation::TruncationPoint;
use crate::warmup::Warmup;
use crate::writer::Writer;
use kedge_disk::Disk;
use kedge_executor::{Executor, OwnerId};
use kedge_log::{LogStats, SegmentPreallocator};
use kedge_storage::Storage;
use kedge_types::{Cas, Clock, DocKey, Durability, DurabilityLevel, Now, Status, VbId, VbUuid};
use kedge_vbucket::{
    Completion, Cookie, Done, Persistence, RandomState, StepEffects, Topology, VBucket, VbSetup,
    VbState,
};
use parking_lot::{Mutex, RwLock};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Parts of all hash tables together: with few vBuckets each has many, so that no rehash takes long.
const TABLE_SHARDS: usize = 1_024;
/// Uuids have 48 bits, as some clients keep them in floating-point numbers.
const UUID_MASK: u64 = (1 << 48) - 1;

/// Where completions of parked commands go. Called by the bucket's tasks, or by a front-end thread inside
/// [`Bucket::request_flush`].
pub trait Completions: Send + Sync {
    /// Takes what is in `done`.
    fn complete(&self, done: &mut Vec<(Cookie, Completion)>);

    /// Whether a front-end thread reads documents of its commands itself: those of [`Bucket::take_fetches`].
    fn reads_for_itself(&self, thread: u16) -> bool {
        let _ = thread;
        false
    }
}

/// Who asks, and when.
#[derive(Clone, Copy, Debug)]
pub struct Ctx {
    /// The time.
    pub now: Now,
    /// Index of the front-end thread, whose stripe of the counters is used.
    pub thread: u16,
}

/// What all writes share.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    /// The vBucket.
    pub vb: VbId,
    /// The document.
    pub key: &'a DocKey,
    /// The version it must have; 0 for any.
    pub cas: Cas,
    /// The version it gets; 0 for the next of the vBucket's clock.
    pub new_cas: Cas,
    /// The level of a SyncWrite.
    pub durability: Option<Durability>,
    /// Keep the expiry of the document that is there.
    pub preserve_ttl: bool,
    /// Who is told when the write was parked.
    pub cookie: Cookie,
}

/// What recovery does about damage in the middle of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recovery {
    /// Refuse to open.
    #[default]
    Strict,
    /// Skip what is damaged, and say how much.
    Salvage,
}

/// What a bucket is opened with.
#[derive(Clone)]
pub struct BucketSetup {
    /// The file system.
    pub disk: Arc<dyn Disk>,
    /// The bucket's own directory.
    pub dir: PathBuf,
    /// Its settings.
    pub config: BucketConfig,
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// Runs what the bucket does by itself. Its tasks belong to an owner `bucket:NAME`.
    pub executor: Executor,
    /// Where completions go.
    pub completions: Arc<dyn Completions>,
    /// Number of front-end threads, whose [`Ctx::thread`] is below it.
    pub threads: u16,
    /// What recovery does about damage.
    pub recovery: Recovery,
    /// Which nodes have to acknowledge the SyncWrites of a vBucket until it is told: [`Topology::alone`] for a bucket that
    /// is on this node only. `None` where there are others: an active commits nothing before it is told, and what was
    /// active before a start is pending until it is.
    pub topology: Option<Topology>,
    /// Most files of vBuckets that the process can afford to keep open, whatever the settings say.
    pub open_files_max: u32,
    /// Bytes of the disk that are kept for compactions on a full disk; 0 for none.
    pub compaction_reserve_bytes: u64,
    /// Called once when the bucket cannot go on without risking what it acknowledged (a sync failed, say). The
    /// process should end.
    pub on_fatal: Arc<dyn Fn(&str) + Send + Sync>,
}

/// What loading found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// Records read.
    pub records: u64,
    /// Bytes of the log.
    pub bytes: u64,
    /// Documents there are.
    pub documents: u64,
    /// Whether there was nothing yet, neither log nor files.
    pub is_new: bool,
    /// Whether the last shutdown was clean.
    pub clean: bool,
    /// Damaged places that salvage skipped.
    pub skipped: u64,
    /// How long it took, in microseconds.
    pub took_us: u64,
}

/// What a command needs a vBucket to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The one that clients write to.
    Active,
    /// A copy.
    Replica,
    /// Either, or about to be.
    Any,
}

impl Role {
    pub(crate) fn is_of(self, vbucket: &VBucket) -> bool {
        match self {
            Self::Active => vbucket.state() == VbState::Active,
            Self::Replica => vbucket.state() == VbState::Replica,
            Self::Any => vbucket.state() != VbState::Dead && !vbucket.is_deleted(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    Loading = 0,
    Open = 1,
    Closed = 2,
    Failed = 3,
}

/// A bucket. Share it as `Arc<Bucket>`.
pub struct Bucket {
    pub(crate) setup: BucketSetup,
    /// Whom its tasks belong to.
    pub(crate) owner: OwnerId,
    pub(crate) config: RwLock<Arc<BucketConfig>>,
    pub(crate) reserve: Reserve,
    pub(crate) collections: Collections,
    pub(crate) vbuckets: Box<[Mutex<VBucket>]>,
    /// Who gives a vBucket a state, or rolls it back, holds its lock.
    pub(crate) changing: Box<[Mutex<()>]>,
    /// Parts of each vBucket's hash table.
    pub(crate) table_shards: usize,
    pub(crate) dynamic: DynamicSettings,
    pub(crate) quota: Quota,
    pub(crate) counters: Counters,
    pub(crate) timings: Arc<Timings>,
    pub(crate) io_stats: Arc<IoStatistics>,
    pub(crate) totals: Totals,
    /// One for the log; without a log one for each part of the vBuckets.
    pub(crate) writers: Box<[Writer]>,
    pub(crate) dirty: DirtyList,
    pub(crate) committer: OnceLock<Mutex<Committer>>,
    /// Without a log.
    pub(crate) flushers: Option<Flushers>,
    pub(crate) appliers: Box<[ApplierShard]>,
    pub(crate) truncation: TruncationPoint,
    pub(crate) compactions: Compactions,
    pub(crate) fetches: Fetches,
    pub(crate) memory_queue: MemoryAdmissionQueue,
    pub(crate) pending_state: PendingStateQueue,
    pub(crate) dcp: Dcp,
    pub(crate) scans: Scans,
    pub(crate) pager: Pager,
    pub(crate) warmup: Warmup,
    pub(crate) storage: OnceLock<Storage>,
    pub(crate) quarantine: Quarantine,
    pub(crate) stuck: Stuck,
    /// Why the end was not clean.
    pub(crate) unclean: OnceLock<String>,
    pub(crate) preallocator: OnceLock<SegmentPreallocator>,
    /// The tasks that rest while there is nothing for them to do.
    pub(crate) timeouts: Parker,
    pub(crate) sweeper: Parker,
    pub(crate) access_scanner: Parker,
    pub(crate) compressor: Parker,
    pub(crate) segments: Parker,
    pub(crate) phase: AtomicU8,
    /// Without a log: the mark that changes may be lost is not on disk yet. No file is written before it is.
    pub(crate) marker_is_due: AtomicBool,
    /// Parked commands that were not completed yet.
    pub(crate) parked: AtomicI64,
    pub(crate) random: AtomicU64,
    pub(crate) loaded: crate::loaded::Loaded,
    /// What each vBucket was when the bucket was opened; `None` of one that there was not.
    pub(crate) states_before: OnceLock<Box<[Option<VbState>]>>,
    pub(crate) log_stats: Mutex<LogStats>,
}

impl std::fmt::Debug for Bucket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bucket")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}

impl Bucket {
    /// `commit_log`: whether it has a log, which a bucket that is to have none may have to keep for now.
    pub(crate) fn new(
        setup: BucketSetup,
        owner: OwnerId,
        uuid: [u8; 16],
        commit_log: bool,
    ) -> Self {
        let vbuckets = setup.config.vbuckets;
        let shards = (TABLE_SHARDS / usize::from(vbuckets).max(1)).max(1);
        let shards = shards.next_power_of_two();
        let hasher = RandomState::default();
        let parts = setup.config.shards();
        let topology = setup.topology.clone();
        let vbucket = |id| {
            let id = VbId(id);
            VBucket::new(VbSetup {
                id,
                uuid: first_uuid(uuid, id),
                shards,
                hasher: hasher.clone(),
                persistence: if commit_log {
                    Persistence::LogThenFile
                } else {
                    Persistence::Direct
                },
                topology: topology.clone(),
            })
        };
        let timings = Arc::new(Timings::new(setup.threads));
        Self {
            vbuckets: (0..vbuckets).map(|id| Mutex::new(vbucket(id))).collect(),
            changing: (0..vbuckets).map(|_| Mutex::default()).collect(),
            table_shards: shards,
            dynamic: DynamicSettings::new(&setup.config),
            quota: Quota::new(setup.config.quota_bytes, &setup.config.memory),
            collections: Collections::default(),
            counters: Counters::new(setup.threads),
            io_stats: Arc::new(IoStatistics::new(Arc::clone(&timings))),
            timings,
            totals: Totals::default(),
            writers: (0..if commit_log { 1 } else { parts })
                .map(|_| Writer::default())
                .collect(),
            dirty: DirtyList::default(),
            committer: OnceLock::new(),
            flushers: (!commit_log).then(|| Flushers::new(parts, vbuckets)),
            appliers: (0..parts).map(|_| ApplierShard::default()).collect(),
            truncation: TruncationPoint::new(vbuckets),
            compactions: Compactions::new(&setup.config),
            fetches: Fetches::new(vbuckets, setup.threads),
            memory_queue: MemoryAdmissionQueue::default(),
            pending_state: PendingStateQueue::default(),
            dcp: Dcp::new(vbuckets),
            scans: Scans::new(vbuckets),
            pager: Pager::default(),
            warmup: Warmup::default(),
            storage: OnceLock::new(),
            quarantine: Quarantine::default(),
            stuck: Stuck::default(),
            unclean: OnceLock::new(),
            preallocator: OnceLock::new(),
            timeouts: Parker::default(),
            sweeper: Parker::default(),
            access_scanner: Parker::default(),
            compressor: Parker::default(),
            segments: Parker::default(),
            phase: AtomicU8::new(Phase::Loading as u8),
            marker_is_due: AtomicBool::new(false),
            parked: AtomicI64::new(0),
            random: AtomicU64::new(random_u64()),
            loaded: crate::loaded::Loaded::default(),
            states_before: OnceLock::new(),
            log_stats: Mutex::default(),
            reserve: Reserve::default(),
            config: RwLock::new(Arc::new(setup.config.clone())),
            owner,
            setup,
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.setup.config.name
    }

    /// Its settings as they are now.
    #[must_use]
    pub fn config(&self) -> Arc<BucketConfig> {
        self.config.read().clone()
    }

    /// Number of its vBuckets.
    #[must_use]
    pub fn vbuckets(&self) -> u16 {
        self.setup.config.vbuckets
    }

    /// Changes settings. The caller keeps them on disk.
    ///
    /// # Errors
    /// A sentence that names the setting that makes no sense; nothing was changed then.
    pub fn update(&self, change: &BucketChange) -> Result<Arc<BucketConfig>, String> {
        let mut config = self.config.write();
        let changed = Arc::new(change.apply(&config));
        changed.check()?;
        self.quota.set_limit(changed.quota_bytes, &changed.memory);
        self.on_memory();
        self.dynamic.set(&changed);
        *config = changed.clone();
        drop(config);
        self.on_compaction_config(&changed.compaction);
        self.on_scanner_config();
        self.on_compression_config();
        self.on_durability_config();
        Ok(changed)
    }

    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Loading,
            1 => Phase::Open,
            2 => Phase::Closed,
            _ => Phase::Failed,
        }
    }

    /// Returns whether the bucket was shut down, or cannot go on.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.phase(), Phase::Closed | Phase::Failed)
    }

    /// Whether documents are still being read from the log; commands get a temporary failure until that is done.
    #[must_use]
    pub fn is_loading(&self) -> bool {
        self.phase() == Phase::Loading
    }

    /// Runs one step of an active vBucket and accounts for what it did.
    pub(crate) fn step<R>(
        &self,
        now: Now,
        vb: VbId,
        step: impl FnOnce(&mut VBucket) -> R,
    ) -> Result<R, Status> {
        self.step_as(now, vb, Role::Active, step)
    }

    /// Runs one step of a vBucket that plays this role, and accounts for what it did.
    pub(crate) fn step_as<R>(
        &self,
        now: Now,
        vb: VbId,
        role: Role,
        step: impl FnOnce(&mut VBucket) -> R,
    ) -> Result<R, Status> {
        if self.phase() != Phase::Open {
            return Err(Status::TemporaryFailure);
        }
        let vbucket = self.vbuckets.get(vb.index()).ok_or(Status::NotMyVbucket)?;
        let mut guard = vbucket.lock();
        if !role.is_of(&guard) {
            // It has not moved: whoever asks elsewhere would ask for ever.
            return Err(if guard.is_quarantined() {
                Status::TemporaryFailure
            } else {
                Status::NotMyVbucket
            });
        }
        if guard.is_rewinding() {
            return Err(Status::TemporaryFailure);
        }
        let (result, mut done) = self.account(now, &mut guard, step);
        drop(guard);
        self.tell_streams();
        if !done.is_empty() {
            self.deliver(now, &mut done);
        }
        Ok(result)
    }

    /// Runs a step under the lock that the caller holds and passes its effects on. The completions are handed back, to be
    /// delivered without the lock.
    pub(crate) fn account<R>(
        &self,
        now: Now,
        vbucket: &mut VBucket,
        step: impl FnOnce(&mut VBucket) -> R,
    ) -> (R, Vec<Done>) {
        let result = step(vbucket);
        let done = self.pass_on(vbucket.id(), vbucket.take_effects(), || now);
        (result, done)
    }

    /// [`Self::account`] for a step that queues no changes, and so needs no time.
    pub(crate) fn measure<R>(
        &self,
        vbucket: &mut VBucket,
        step: impl FnOnce(&mut VBucket) -> R,
    ) -> (R, Vec<Done>) {
        let result = step(vbucket);
        let now = || self.setup.clock.now();
        let done = self.pass_on(vbucket.id(), vbucket.take_effects(), now);
        (result, done)
    }

    /// Passes the effects of a step on to the parts of the bucket that they concern, but for its completions.
    fn pass_on(&self, vb: VbId, effects: StepEffects, now: impl FnOnce() -> Now) -> Vec<Done> {
        self.quota.add(&effects.memory);
        if effects.memory.cursors != 0 {
            self.on_cursor_memory();
        }
        self.note_news(vb, effects.news);
        if effects.wants_sweep {
            self.on_sweep_wanted();
        }
        if effects.has_dropped_documents {
            self.on_dropped_documents();
        }
        if effects.has_values_to_compress {
            self.on_values_to_compress();
        }
        self.on_memory();
        if effects.newly_dirty {
            self.on_newly_dirty(vb, now().mono_ns);
        }
        effects.completions
    }

    /// Changes of a vBucket wait for the log, or for the file where there is none.
    fn on_newly_dirty(&self, vb: VbId, since_ns: u64) {
        let lane = if let Some(flushers) = &self.flushers {
            flushers.push(vb, since_ns)
        } else {
            self.dirty.push(Dirty { vb, since_ns });
            0
        };
        self.on_dirty(lane);
    }

    /// Hands completions to who waits for them.
    pub(crate) fn deliver(&self, now: Now, done: &mut Vec<Done>) {
        let mut completions = Vec::with_capacity(done.len());
        for Done {
            cookie,
            completion,
            committed,
            began_ns,
        } in done.drain(..)
        {
            if let Some(level) = committed {
                let us = now.mono_ns.saturating_sub(began_ns) / 1_000;
                self.timings
                    .record_us(u16::MAX, sync_write_timing(level), us);
            }
            completions.push((cookie, completion));
        }
        self.parked
            .fetch_sub(completions.len() as i64, Ordering::Relaxed);
        self.setup.completions.complete(&mut completions);
    }

    /// The histograms.
    #[must_use]
    pub fn timings(&self) -> &Timings {
        &self.timings
    }

    /// A count over all threads.
    #[must_use]
    pub fn counter(&self, counter: Counter) -> u64 {
        self.counters.sum(counter)
    }

    /// Sets counts and histograms to 0.
    pub fn reset_stats(&self) {
        self.counters.reset();
        self.totals.reset();
        self.timings.reset();
        self.reset_evicted();
    }

    pub(crate) fn next_random(&self) -> u64 {
        // SplitMix64 (Steele, Lea, Flood 2014): enough to pick documents at random.
        let mut z = self
            .random
            .fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

pub(crate) fn sync_write_timing(level: DurabilityLevel) -> Timing {
    match level {
        DurabilityLevel::Majority => Timing::SyncWriteMajority,
        DurabilityLevel::MajorityAndPersistOnActive => Timing::SyncWriteMajorityAndPersistToActive,
        DurabilityLevel::PersistToMajority => Timing::SyncWritePersistToMajority,
    }
}

/// The uuid of a vBucket's first branch follows from the bucket's: so an empty bucket needs no record in its log, as long
/// as it is stopped cleanly.
fn first_uuid(bucket: [u8; 16], vb: VbId) -> VbUuid {
    let (high, low) = bucket.split_at(8);
    let word = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().expect("8 bytes"));
    let mixed = (word(high) ^ u64::from(vb.get()).wrapping_mul(0x9e37_79b9_7f4a_7c15))
        .wrapping_mul(0xbf58_476d_1ce4_e5b9)
        ^ word(low);
    uuid(mixed)
}

/// A uuid for a branch that begins now.
pub(crate) fn new_uuid() -> VbUuid {
    uuid(random_u64())
}

fn uuid(number: u64) -> VbUuid {
    VbUuid(((number ^ (number >> 32)) & UUID_MASK).max(1))
}

pub(crate) fn random_u64() -> u64 {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).expect("the system has random bytes");
    u64::from_ne_bytes(bytes)
}
