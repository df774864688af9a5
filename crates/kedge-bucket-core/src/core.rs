//! The vBuckets of a bucket, and the single entry point for a step of one of them.

use crate::counters::{BucketTotals, CommandCounters};
use crate::dynamic::DynamicSettings;
use crate::error::BucketError;
use crate::instrumented::IoStatistics;
use crate::parker::Parker;
use crate::phase::{BucketPhase, RequiredRole};
use crate::quota::Quota;
use crate::random::{first_uuid, random_u64};
use crate::settings::BucketConfig;
use crate::setup::BucketSetup;
use crate::timings::{Timing, Timings};
use kedge_executor::OwnerId;
use kedge_storage::{FileFigures, Storage};
use kedge_sync::{
    RankedMutex, RankedMutexGuard, RankedRwLock,
    ranks::{BucketSettings, CollectionsManifest, Vbucket, VbucketChanging},
};
use kedge_types::{DurabilityLevel, Manifest, Now, Status, VbId};
use kedge_vbucket::{
    CompletedCommand, Completion, PersistenceMode, RandomState, StepEffects, VBucket, VbSetup,
    VbState,
};
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The receiver of the effects of steps. It is called for every write, so it keeps no component alive and holds none: an
/// event reaches a queue, or wakes a task.
pub trait CoreEvents: Send + Sync {
    /// A step had effects. The lock of its vBucket is held. The account of memory includes the step.
    fn on_step(&self, core: &BucketCore, vb: VbId, effects: &StepEffects);

    /// A vBucket has changes that are not durable yet. Its lock is held.
    fn on_dirty(&self, core: &BucketCore, vb: VbId, since_ns: u64);

    /// A step has ended; its vBucket's lock is not held any more.
    fn after_step(&self, core: &BucketCore);

    /// A vBucket may have another state, or another history. Its lock is not held.
    fn on_change(&self, core: &BucketCore, vb: VbId);

    /// The bucket has failed.
    fn on_failed(&self, core: &BucketCore);
}

/// The parts of a bucket that all its components share.
pub struct BucketCore {
    /// The environment.
    pub setup: BucketSetup,
    /// The owner of the bucket's tasks.
    pub owner: OwnerId,
    /// The vBuckets.
    pub vbuckets: Box<[RankedMutex<Vbucket, VBucket>]>,
    /// Settings that every write reads.
    pub dynamic: DynamicSettings,
    /// The account of memory.
    pub quota: Quota,
    /// Counts of commands.
    pub counters: CommandCounters,
    /// Counts of the bucket's own work.
    pub totals: BucketTotals,
    /// Histograms.
    pub timings: Arc<Timings>,
    /// Figures of the bucket's disk.
    pub io_stats: Arc<IoStatistics>,
    /// Parked commands that were not completed yet.
    pub parked: AtomicI64,
    /// The task that ends parked commands whose time is up.
    pub timeouts: Parker,
    /// The files of the vBuckets, from the beginning of loading on.
    pub storage: OnceLock<Storage>,
    changing: Box<[RankedMutex<VbucketChanging, ()>]>,
    manifest: RankedRwLock<CollectionsManifest, Arc<Manifest>>,
    config: RankedRwLock<BucketSettings, Arc<BucketConfig>>,
    commit_log: bool,
    phase: AtomicU8,
    random: AtomicU64,
    events: OnceLock<Box<dyn CoreEvents>>,
}

impl std::fmt::Debug for BucketCore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BucketCore")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}

impl BucketCore {
    /// Returns the core of a bucket that has not been loaded. `commit_log` is true if the bucket has a log; one whose
    /// settings ask for none may have to keep its log for now.
    #[must_use]
    pub fn new(setup: BucketSetup, owner: OwnerId, uuid: [u8; 16], commit_log: bool) -> Self {
        let vbuckets = setup.config.vbuckets;
        let hasher = RandomState::default();
        let topology = setup.topology.clone();
        let vbucket = |id| {
            let id = VbId(id);
            VBucket::new(VbSetup {
                id,
                uuid: first_uuid(uuid, id),
                shards: 1,
                hasher: hasher.clone(),
                persistence: if commit_log {
                    PersistenceMode::LogThenFile
                } else {
                    PersistenceMode::Direct
                },
                topology: topology.clone(),
            })
        };
        let timings = Arc::new(Timings::new(setup.threads));
        Self {
            vbuckets: (0..vbuckets)
                .map(|id| RankedMutex::new(vbucket(id)))
                .collect(),
            dynamic: DynamicSettings::new(&setup.config),
            quota: Quota::new(setup.config.quota_bytes, &setup.config.memory),
            counters: CommandCounters::new(setup.threads),
            totals: BucketTotals::default(),
            io_stats: Arc::new(IoStatistics::new(Arc::clone(&timings))),
            timings,
            parked: AtomicI64::new(0),
            timeouts: Parker::default(),
            storage: OnceLock::new(),
            changing: (0..vbuckets).map(|_| RankedMutex::default()).collect(),
            manifest: RankedRwLock::default(),
            config: RankedRwLock::new(Arc::new(setup.config.clone())),
            commit_log,
            phase: AtomicU8::new(BucketPhase::Loading as u8),
            random: AtomicU64::new(random_u64()),
            events: OnceLock::new(),
            owner,
            setup,
        }
    }

    /// Sets the receiver of events, once, before any step.
    pub fn set_events(&self, events: Box<dyn CoreEvents>) {
        // Components are wired once.
        let _ = self.events.set(events);
    }

    /// Returns the bucket's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.setup.config.name
    }

    /// Returns the settings as they are now.
    #[must_use]
    pub fn config(&self) -> Arc<BucketConfig> {
        self.config.read().clone()
    }

    /// Changes the settings; `change` derives the new ones from the old ones.
    ///
    /// # Errors
    /// Those of `change`; nothing was changed then.
    pub fn update_config<E>(
        &self,
        change: impl FnOnce(&BucketConfig) -> Result<BucketConfig, E>,
    ) -> Result<Arc<BucketConfig>, E> {
        let mut config = self.config.write();
        let changed = Arc::new(change(&config)?);
        self.quota.set_limit(changed.quota_bytes, &changed.memory);
        self.dynamic.set(&changed);
        *config = Arc::clone(&changed);
        Ok(changed)
    }

    /// Returns the number of vBuckets.
    #[must_use]
    pub fn vbucket_count(&self) -> u16 {
        self.setup.config.vbuckets
    }

    /// Calls `look` with a vBucket. Returns `None` if there is none of this number.
    pub fn look<R>(&self, vb: VbId, look: impl FnOnce(&VBucket) -> R) -> Option<R> {
        let vbucket = self.vbuckets.get(vb.index())?.lock();
        (!vbucket.is_deleted()).then(|| look(&vbucket))
    }

    /// Returns the number of shards of each vBucket's hash table, in the order of vBuckets. Each is locked for a moment.
    pub fn table_shards(&self) -> impl Iterator<Item = usize> {
        let vbuckets = self.vbuckets.iter();
        vbuckets.map(|vbucket| vbucket.lock().table().shard_count())
    }

    /// Returns whether the bucket has no log: changes are written to the files of vBuckets at once.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        !self.commit_log
    }

    /// Returns the bucket's files.
    ///
    /// # Errors
    /// [`BucketError::NotLoaded`] before loading has begun.
    pub fn storage(&self) -> Result<&Storage, BucketError> {
        self.storage
            .get()
            .ok_or_else(|| BucketError::NotLoaded(self.name().to_owned()))
    }

    /// Returns the figures of a vBucket's file; `None` while it has none. A file that was not used since the start is
    /// opened for it. Of a file that a flush has made void only the length counts, until another file replaces it.
    ///
    /// # Errors
    /// `NotLoaded` at the beginning of loading; those of storage.
    pub fn file_figures(&self, vb: VbId) -> Result<Option<FileFigures>, BucketError> {
        let figures = self.storage()?.file_figures(vb)?;
        let vbucket = self.vbuckets.get(vb.index());
        let is_void = vbucket.is_some_and(|vbucket| vbucket.lock().store().is_file_void());
        Ok(figures.map(|figures| match is_void {
            true => figures.without_content(),
            false => figures,
        }))
    }

    /// Returns the phase.
    #[must_use]
    pub fn phase(&self) -> BucketPhase {
        BucketPhase::from_number(self.phase.load(Ordering::Acquire))
    }

    /// Ends loading. Returns false when the bucket was shut down meanwhile: it stays so.
    pub fn leave_loading(&self, to: BucketPhase) -> bool {
        let (loading, to) = (BucketPhase::Loading as u8, to as u8);
        self.phase
            .compare_exchange(loading, to, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Shuts the bucket down. Returns the phase that it was in.
    pub fn close(&self) -> BucketPhase {
        let before = self.phase.swap(BucketPhase::Closed as u8, Ordering::AcqRel);
        BucketPhase::from_number(before)
    }

    /// Ends the bucket, as it cannot go on without risking what it acknowledged.
    pub fn fail(&self, why: &str) {
        let before = self.phase.swap(BucketPhase::Failed as u8, Ordering::AcqRel);
        if before != BucketPhase::Failed as u8 {
            tracing::error!(bucket = self.name(), why, "the bucket cannot go on");
            if let Some(events) = self.events.get() {
                events.on_failed(self);
            }
            (self.setup.on_fatal)(why);
        }
    }

    /// Returns whether the bucket was shut down, or cannot go on.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self.phase(), BucketPhase::Closed | BucketPhase::Failed)
    }

    /// Returns whether documents are still being read from the log; commands get a temporary failure until that is done.
    #[must_use]
    pub fn is_loading(&self) -> bool {
        self.phase() == BucketPhase::Loading
    }

    /// Checks that the bucket is still loading.
    ///
    /// # Errors
    /// [`BucketError::NotLoaded`]: it is being shut down, and nothing waits for the rest.
    pub fn check_loading(&self) -> Result<(), BucketError> {
        if self.is_loading() {
            Ok(())
        } else {
            Err(BucketError::NotLoaded(self.name().to_owned()))
        }
    }

    /// Runs one step of an active vBucket and accounts for it.
    ///
    /// # Errors
    /// As [`BucketCore::step_as`].
    pub fn step<R>(
        &self,
        now: Now,
        vb: VbId,
        step: impl FnOnce(&mut VBucket) -> R,
    ) -> Result<R, Status> {
        self.step_as(now, vb, RequiredRole::Active, step)
    }

    /// Runs one step of a vBucket that plays this role, and accounts for it.
    ///
    /// # Errors
    /// `NotMyVbucket`, also for an active vBucket that this node does not serve at `now`; `TemporaryFailure` unless the bucket
    /// is open, when the vBucket is quarantined, or is being rolled back.
    pub fn step_as<R>(
        &self,
        now: Now,
        vb: VbId,
        role: RequiredRole,
        step: impl FnOnce(&mut VBucket) -> R,
    ) -> Result<R, Status> {
        if self.phase() != BucketPhase::Open {
            return Err(Status::TemporaryFailure);
        }
        let vbucket = self.vbuckets.get(vb.index()).ok_or(Status::NotMyVbucket)?;
        let mut guard = vbucket.lock();
        if !role.is_of(&guard) {
            // It has not moved: a client that asked elsewhere would do so for ever.
            return Err(if guard.is_quarantined() {
                Status::TemporaryFailure
            } else {
                Status::NotMyVbucket
            });
        }
        if guard.store().is_rewinding() {
            return Err(Status::TemporaryFailure);
        }
        self.check_served(now, &guard, role)?;
        let result = step(&mut guard);
        let Some(effects) = guard.take_effects() else {
            return Ok(result);
        };
        let mut done = self.pass_on(vb, effects, || now);
        drop(guard);
        self.after_step();
        if !done.is_empty() {
            self.deliver(now, &mut done);
        }
        Ok(result)
    }

    /// Checks that the node still serves a vBucket for an operation of a client. The caller holds its lock until the
    /// operation has read or changed it.
    ///
    /// # Errors
    /// `NotMyVbucket` if the vBucket is active and the time of the node's lease is over at `now`.
    #[inline]
    pub fn check_served(
        &self,
        now: Now,
        vbucket: &VBucket,
        role: RequiredRole,
    ) -> Result<(), Status> {
        let is_served = self.setup.serving.is_open(now.mono_ns)
            || role == RequiredRole::Followed
            || vbucket.state() != VbState::Active;
        if is_served {
            Ok(())
        } else {
            Err(Status::NotMyVbucket)
        }
    }

    /// Waits for the steps that run now. Steps that begin later see what was stored in [`BucketSetup::serving`] before.
    pub fn await_steps(&self) {
        for vbucket in &self.vbuckets {
            drop(vbucket.lock());
        }
    }

    /// Reports the end of steps: to be called when no vBucket is locked.
    pub fn after_step(&self) {
        if let Some(events) = self.events.get() {
            events.after_step(self);
        }
    }

    /// Runs a step under the lock that the caller holds, and passes its effects on. Completions are handed back, to be
    /// delivered without the lock.
    pub fn account<R>(
        &self,
        now: Now,
        vbucket: &mut VBucket,
        step: impl FnOnce(&mut VBucket) -> R,
    ) -> (R, Vec<CompletedCommand>) {
        let result = step(vbucket);
        let done = self.pass_on(
            vbucket.id(),
            vbucket.take_effects().unwrap_or_default(),
            || now,
        );
        (result, done)
    }

    /// [`BucketCore::account`] for a step that queues no changes, and so needs no time.
    pub fn measure<R>(
        &self,
        vbucket: &mut VBucket,
        step: impl FnOnce(&mut VBucket) -> R,
    ) -> (R, Vec<CompletedCommand>) {
        let result = step(vbucket);
        let now = || self.setup.clock.now();
        let done = self.pass_on(
            vbucket.id(),
            vbucket.take_effects().unwrap_or_default(),
            now,
        );
        (result, done)
    }

    /// Passes the effects of a step on to the components, but for its completions.
    fn pass_on(
        &self,
        vb: VbId,
        effects: StepEffects,
        now: impl FnOnce() -> Now,
    ) -> Vec<CompletedCommand> {
        self.quota.add(&effects.memory);
        if let Some(events) = self.events.get() {
            events.on_step(self, vb, &effects);
            if effects.newly_dirty {
                events.on_dirty(self, vb, now().mono_ns);
            }
        }
        effects.completions
    }

    /// Runs a step of a vBucket in whatever state it is.
    ///
    /// # Errors
    /// Those of the step; `NotMyVbucket`; `TemporaryFailure` unless the bucket is open, and when the vBucket is quarantined.
    pub fn change_vbucket<R>(
        &self,
        vb: VbId,
        step: impl FnOnce(&mut VBucket) -> Result<R, Status>,
    ) -> Result<R, Status> {
        let vbucket = self.vbuckets.get(vb.index()).ok_or(Status::NotMyVbucket)?;
        if self.phase() != BucketPhase::Open {
            return Err(Status::TemporaryFailure);
        }
        let now = self.setup.clock.now();
        let mut vbucket = vbucket.lock();
        if vbucket.is_quarantined() {
            return Err(Status::TemporaryFailure);
        }
        let (result, mut done) = self.account(now, &mut vbucket, |vbucket| {
            let result = step(vbucket);
            // A vBucket that has become active may be behind.
            if vbucket.state() == VbState::Active {
                vbucket.follow_manifest(now, &self.manifest());
            }
            result
        });
        drop(vbucket);
        self.after_step();
        if !done.is_empty() {
            self.deliver(now, &mut done);
        }
        if let Some(events) = self.events.get() {
            events.on_change(self, vb);
        }
        result
    }

    /// Takes the right to change the state of a vBucket, or to roll it back.
    ///
    /// # Errors
    /// `NotMyVbucket`.
    pub fn hold_vbucket(
        &self,
        vb: VbId,
    ) -> Result<RankedMutexGuard<'_, VbucketChanging, ()>, Status> {
        let changing = self.changing.get(vb.index()).ok_or(Status::NotMyVbucket)?;
        Ok(RankedMutex::lock(changing))
    }

    /// Returns the manifest that the active vBuckets follow.
    #[must_use]
    pub fn manifest(&self) -> Arc<Manifest> {
        self.manifest.read().clone()
    }

    /// Sets the manifest. The caller has the active vBuckets follow it.
    pub fn set_manifest(&self, manifest: Arc<Manifest>) {
        *self.manifest.write() = manifest;
    }

    /// Hands completions to the commands that wait for them. SyncWrites that were committed after the end of the node's lease are
    /// ambiguous: a node that was promoted may not have them.
    pub fn deliver(&self, now: Now, done: &mut Vec<CompletedCommand>) {
        // The present time, not that of the step: replicas may have acknowledged later than that.
        let serves = self.setup.serving.is_open(self.setup.clock.now().mono_ns);
        let mut completions = Vec::with_capacity(done.len());
        for CompletedCommand {
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
            let completion = match committed {
                Some(_) if !serves => Completion::SyncWrite {
                    result: Err(Status::SyncWriteAmbiguous),
                    item: None,
                },
                _ => completion,
            };
            completions.push((cookie, completion));
        }
        self.parked
            .fetch_sub(completions.len() as i64, Ordering::Relaxed);
        self.setup.completions.complete(&mut completions);
    }

    /// Makes the task of `parker` run, if it is parked. Cheap if it is not.
    pub fn wake_parked(&self, parker: &Parker) {
        if let Some(task) = parker.unpark() {
            self.setup.executor.wake(task);
        }
    }

    /// Returns a random number, which is good enough to select documents.
    pub fn next_random(&self) -> u64 {
        // SplitMix64 (Steele, Lea, Flood 2014).
        let mut z = self
            .random
            .fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Returns the histogram of SyncWrites of a level.
#[must_use]
pub fn sync_write_timing(level: DurabilityLevel) -> Timing {
    match level {
        DurabilityLevel::Majority => Timing::SyncWriteMajority,
        DurabilityLevel::MajorityAndPersistOnActive => Timing::SyncWriteMajorityAndPersistToActive,
        DurabilityLevel::PersistToMajority => Timing::SyncWritePersistToMajority,
    }
}
