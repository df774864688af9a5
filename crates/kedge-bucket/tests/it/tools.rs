//! Shared helpers of the tests.

use kedge_bucket::{
    Bucket, BucketConfig, BucketSetup, CompactionRate, Completion, Completions, Cookie, Ctx,
    Mutated, Outcome, Read, RecoveryMode, ServingGate, StoreMode, Topology, WarmupBehavior, Write,
};
use kedge_disk::{Disk, DiskCall, DiskError, DiskObserver, Operation, SimDisk};
use kedge_encryption::Keyring;
use kedge_executor::{Executor, ExecutorConfig, ManualExecutor, Pool, ThreadCount};
use kedge_types::{
    Cas, Clock, CollectionId, Datatype, DocKey, Durability, DurabilityLevel, ManualClock, Now,
    Seqno, Status, SystemClock, VbId, VbUuid,
};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// The deadline of waits. It is generous: a test that reaches it has failed.
const DEADLINE: Duration = Duration::from_secs(60);

/// A collector of completions and fatal errors.
#[derive(Debug, Default)]
pub(crate) struct Sink {
    done: Mutex<HashMap<u64, Completion>>,
    fatal: Mutex<Vec<String>>,
    changed: Condvar,
    /// True if the test itself reads documents for the commands of its thread.
    pub(crate) reads: AtomicBool,
}

impl Completions for Sink {
    fn reads_for_itself(&self, _: u16) -> bool {
        self.reads.load(Ordering::SeqCst)
    }

    fn complete(&self, done: &mut Vec<(Cookie, Completion)>) {
        let mut all = self.done.lock().unwrap();
        for (cookie, completion) in done.drain(..) {
            let before = all.insert(cookie.0, completion);
            assert!(before.is_none(), "cookie {} was completed twice", cookie.0);
        }
        self.changed.notify_all();
    }
}

impl Sink {
    /// Waits for a SyncWrite and returns its result.
    pub(crate) fn wait(&self, cookie: u64) -> Result<Mutated, Status> {
        match self.wait_any(cookie) {
            Completion::SyncWrite { result, .. } => result,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn wait_any(&self, cookie: u64) -> Completion {
        let started = Instant::now();
        let mut all = self.done.lock().unwrap();
        loop {
            if let Some(completion) = all.get(&cookie) {
                return completion.clone();
            }
            assert!(
                started.elapsed() < DEADLINE,
                "cookie {cookie} was never completed"
            );
            all = self
                .changed
                .wait_timeout(all, Duration::from_millis(100))
                .unwrap()
                .0;
        }
    }

    /// Discards the completions received so far.
    pub(crate) fn forget(&self) {
        self.done.lock().unwrap().clear();
    }

    pub(crate) fn get(&self, cookie: u64) -> Option<Completion> {
        self.done.lock().unwrap().get(&cookie).cloned()
    }

    pub(crate) fn fatal(&self) -> Vec<String> {
        self.fatal.lock().unwrap().clone()
    }
}

/// Waits until `what` returns true.
pub(crate) fn until(why: &str, mut what: impl FnMut() -> bool) {
    let started = Instant::now();
    while !what() {
        assert!(started.elapsed() < DEADLINE, "{why}");
        std::thread::yield_now();
    }
}

/// The disk, directory and settings with which a test opens a bucket, once or several times.
pub(crate) struct TestSite {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
    pub(crate) config: BucketConfig,
    /// The data keys.
    pub(crate) keyring: Option<Arc<Keyring>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) executor: Executor,
    /// The replication topology of SyncWrites.
    pub(crate) topology: Option<Topology>,
    /// The gate of the node.
    pub(crate) serving: Arc<ServingGate>,
    /// The number of bytes that are reserved for compactions.
    pub(crate) reserve_bytes: u64,
}

/// Returns the shared executor of tests that do not run tasks themselves.
fn shared_executor() -> Executor {
    static EXECUTOR: OnceLock<Executor> = OnceLock::new();
    EXECUTOR.get_or_init(executor).clone()
}

/// Creates an executor with two threads in each pool.
pub(crate) fn executor() -> Executor {
    let threads = ThreadCount::Fixed(2);
    let config = ExecutorConfig {
        reader: threads,
        writer: threads,
        auxio: threads,
        nonio: threads,
        ..ExecutorConfig::default()
    };
    Executor::new(config).unwrap()
}

pub(crate) fn sim(disk: &SimDisk) -> TestSite {
    let disk = Arc::new(disk.clone());
    let dir = PathBuf::from("/data/bucket");
    disk.create_dir_all(&dir).unwrap();
    let mut config = BucketConfig::new("test", 4, 1 << 30);
    config.apply_max_lag_ms = 10_000;
    config.uuid = "00112233445566778899aabbccddeeff".to_owned();
    config.flush_enabled = true;
    config.num_shards = 1;
    config.memory.warmup_behavior = WarmupBehavior::Blocking;
    TestSite {
        disk,
        dir,
        config,
        keyring: None,
        clock: Arc::new(SystemClock::new()),
        executor: shared_executor(),
        topology: Some(Topology::alone()),
        serving: Arc::default(),
        reserve_bytes: 0,
    }
}

/// The clock and the tasks of buckets that a test drives step by step.
pub(crate) struct Steps {
    clock: Arc<ManualClock>,
    manual: ManualExecutor,
}

impl Steps {
    /// Runs all due tasks. Returns the number of runs.
    pub(crate) fn run(&self) -> usize {
        self.manual.run_ready()
    }

    pub(crate) fn clock(&self) -> Arc<ManualClock> {
        Arc::clone(&self.clock)
    }

    /// Advances the clock without waking tasks.
    pub(crate) fn jump(&self, time: Duration) {
        self.clock.advance(time.as_nanos() as u64);
    }

    /// Runs one task of a pool, if one is due.
    pub(crate) fn run_one(&self, pool: Pool) -> bool {
        self.manual.run_one(pool)
    }

    /// Advances the clock by `time` in steps of a millisecond, or a thousandth of `time`, and runs due tasks. Returns the number of runs.
    pub(crate) fn pass(&self, time: Duration) -> usize {
        let step = (time / 1_000).max(Duration::from_millis(1));
        let mut left = time;
        let mut runs = self.run();
        while left > Duration::ZERO {
            let step = step.min(left);
            self.clock.advance(step.as_nanos() as u64);
            runs += self.manual.advance(step);
            left -= step;
        }
        runs
    }
}

/// A clock that advances by a fixed time whenever it is read.
struct TickingClock(ManualClock, Duration);

impl Clock for TickingClock {
    fn now(&self) -> Now {
        self.0.advance(self.1.as_nanos() as u64);
        self.0.now()
    }
}

/// An observer of disk operations that advances the clock. Tasks notice it when they read the clock.
#[derive(Debug)]
pub(crate) struct SlowSyncs {
    clock: Arc<ManualClock>,
    pub(crate) sync_ns: AtomicU64,
    pub(crate) read_ns: AtomicU64,
    pub(crate) write_ns: AtomicU64,
}

impl SlowSyncs {
    /// Creates an observer for which a sync takes `sync_ns` nanoseconds, and reads and writes take no time.
    pub(crate) fn new(steps: &Steps, sync_ns: u64) -> Arc<Self> {
        Arc::new(Self {
            clock: steps.clock(),
            sync_ns: AtomicU64::new(sync_ns),
            read_ns: AtomicU64::new(0),
            write_ns: AtomicU64::new(0),
        })
    }
}

impl DiskObserver for SlowSyncs {
    fn around<R>(
        &self,
        asked: &DiskCall<'_>,
        run: impl FnOnce() -> Result<R, DiskError>,
    ) -> Result<R, DiskError> {
        let ns = match asked.operation {
            Operation::Sync => self.sync_ns.load(Ordering::Relaxed),
            Operation::Read => self.read_ns.load(Ordering::Relaxed),
            Operation::Write => self.write_ns.load(Ordering::Relaxed),
            _ => 0,
        };
        self.clock.advance(ns);
        run()
    }
}

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SEC: Duration = Duration::from_secs(1);

/// An open bucket and its sink.
pub(crate) struct Open {
    pub(crate) bucket: Arc<Bucket>,
    pub(crate) sink: Arc<Sink>,
    pub(crate) executor: Executor,
    clock: Arc<dyn Clock>,
    /// The next cookie for writes whose cookie does not matter, above those that tests choose.
    cookies: AtomicU64,
}

impl TestSite {
    pub(crate) fn setup(&self, sink: &Arc<Sink>) -> BucketSetup {
        let fatal = Arc::clone(sink);
        BucketSetup {
            disk: Arc::clone(&self.disk),
            dir: self.dir.clone(),
            config: self.config.clone(),
            keyring: self.keyring.clone(),
            clock: Arc::clone(&self.clock),
            executor: self.executor.clone(),
            completions: Arc::clone(sink) as Arc<dyn Completions>,
            threads: 2,
            recovery: RecoveryMode::Strict,
            topology: self.topology.clone(),
            serving: Arc::clone(&self.serving),
            open_files_max: u32::MAX,
            compaction_reserve_bytes: self.reserve_bytes,
            on_fatal: Arc::new(move |why| fatal.fatal.lock().unwrap().push(why.to_owned())),
        }
    }

    pub(crate) fn open(&self) -> Open {
        let sink = Arc::new(Sink::default());
        let bucket = Bucket::open(self.setup(&sink)).unwrap();
        bucket.wait_loaded().unwrap();
        self.opened(bucket, sink)
    }

    pub(crate) fn opened(&self, bucket: Arc<Bucket>, sink: Arc<Sink>) -> Open {
        Open {
            bucket,
            sink,
            executor: self.executor.clone(),
            clock: Arc::clone(&self.clock),
            cookies: AtomicU64::new(1 << 32),
        }
    }

    /// Switches to a manual clock and manually run tasks.
    pub(crate) fn manual_tasks(&mut self) -> Steps {
        let clock = Arc::new(ManualClock::new(Now {
            unix_ns: 1_700_000_000_000_000_000,
            mono_ns: 1_000_000_000,
        }));
        let (executor, manual) = ManualExecutor::new();
        // A pause of a compaction would block the thread that runs the test.
        self.config.compaction.throttle = CompactionRate::Off;
        self.clock = clock.clone();
        self.executor = executor;
        Steps { clock, manual }
    }

    /// Opens a bucket with manually run tasks, and does not wait until it is loaded.
    pub(crate) fn begin_by_hand(&mut self) -> (Open, Steps) {
        let steps = self.manual_tasks();
        (self.begin(), steps)
    }

    /// As `begin_by_hand`, but the clock advances whenever the bucket reads it, so that each run does only a part of its work.
    pub(crate) fn begin_ticking(&mut self, by: Duration) -> (Open, Steps) {
        let steps = self.manual_tasks();
        self.clock = Arc::new(TickingClock(ManualClock::new(self.clock.now()), by));
        (self.begin(), steps)
    }

    fn begin(&self) -> Open {
        let sink = Arc::new(Sink::default());
        let bucket = Bucket::open(self.setup(&sink)).unwrap();
        self.opened(bucket, sink)
    }

    /// Opens a bucket with manually run tasks, see [`TestSite::open`].
    pub(crate) fn open_with_manual_tasks(&mut self) -> (Open, Steps) {
        let (open, steps) = self.begin_by_hand();
        steps.run();
        open.bucket.wait_loaded().unwrap();
        (open, steps)
    }
}

pub(crate) fn key(name: &str) -> DocKey {
    DocKey::new(CollectionId::DEFAULT, name.as_bytes()).unwrap()
}

/// Returns the result of a command that was not parked.
pub(crate) fn done<T>(outcome: Result<Outcome<T>, Status>) -> Result<T, Status> {
    match outcome? {
        Outcome::Done(done) => Ok(done),
        Outcome::Parked => panic!("parked"),
    }
}

pub(crate) fn read(key: &DocKey) -> Read<'_> {
    Read {
        vb: key.vbucket(4),
        key,
        cookie: Cookie(0),
    }
}

pub(crate) fn write(key: &DocKey) -> Write<'_> {
    Write {
        vb: key.vbucket(4),
        key,
        cas: Cas(0),
        durability: None,
        new_cas: Cas(0),
        preserve_ttl: false,
        cookie: Cookie(0),
    }
}

impl Open {
    pub(crate) fn ctx(&self) -> Ctx {
        Ctx {
            now: self.clock.now(),
            thread: 0,
        }
    }

    pub(crate) fn set(&self, name: &str, value: &[u8]) -> Result<Mutated, Status> {
        let key = key(name);
        let cookie = self.next_cookie();
        let write = Write {
            cookie: Cookie(cookie),
            ..write(&key)
        };
        match self.store(&write, value)? {
            Outcome::Done(mutated) => Ok(mutated),
            // The write succeeded; its response is delayed because persistence is behind.
            Outcome::Parked => {
                self.bucket.persistence().writers().request_flush(false);
                self.sink.wait(cookie)
            }
        }
    }

    pub(crate) fn store(
        &self,
        write: &Write<'_>,
        value: &[u8],
    ) -> Result<Outcome<Mutated>, Status> {
        self.bucket.documents().store(
            self.ctx(),
            write,
            &kedge_bucket::StoreArgs {
                mode: StoreMode::Set,
                value,
                datatype: Datatype::RAW,
                flags: 0,
                expiry: 0,
            },
        )
    }

    pub(crate) fn delete(&self, name: &str) -> Mutated {
        let key = key(name);
        done(self.bucket.documents().delete(self.ctx(), &write(&key))).unwrap()
    }

    /// Begins a SyncWrite that requires persistence.
    pub(crate) fn persist(&self, name: &str, value: &[u8], cookie: u64) -> Result<(), Status> {
        let key = key(name);
        let durability = Some(Durability {
            level: DurabilityLevel::PersistToMajority,
            timeout_ms: None,
        });
        let write = Write {
            durability,
            cookie: Cookie(cookie),
            ..write(&key)
        };
        let outcome = self.store(&write, value)?;
        assert_eq!(outcome, Outcome::Parked);
        Ok(())
    }

    /// Returns the value of a document, which is read from disk if necessary.
    pub(crate) fn get(&self, name: &str) -> Result<Vec<u8>, Status> {
        self.get_with(name, || ())
    }

    /// The same as [`Open::get`] for a bucket with manually run tasks.
    pub(crate) fn get_by_hand(&self, steps: &Steps, name: &str) -> Result<Vec<u8>, Status> {
        self.get_with(name, || {
            steps.run();
        })
    }

    /// Returns the value of a document. `run` is called if the command waits.
    fn get_with(&self, name: &str, run: impl FnOnce()) -> Result<Vec<u8>, Status> {
        let key = key(name);
        let cookie = self.next_cookie();
        let wanted = Read {
            cookie: Cookie(cookie),
            ..read(&key)
        };
        let outcome = self
            .bucket
            .documents()
            .get(self.ctx(), &wanted, |document| {
                document.item.value().to_vec()
            })?;
        match outcome {
            Outcome::Done(value) => Ok(value),
            Outcome::Parked => {
                run();
                match self.sink.wait_any(cookie) {
                    Completion::Read { result } => result.map(|(item, _)| item.value().to_vec()),
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    /// Returns a cookie that no test chooses.
    pub(crate) fn next_cookie(&self) -> u64 {
        self.cookies.fetch_add(1, Ordering::Relaxed)
    }

    /// Destroys the bucket, and waits until its tasks and the removal have ended.
    pub(crate) fn destroy(&self) {
        let owner = self.executor.register("server").unwrap();
        self.bucket.destroy(owner).unwrap();
        self.executor.unregister(owner, false);
    }

    /// Returns the pools of the tasks of a kind.
    pub(crate) fn pools(&self, kind: &str) -> Vec<Pool> {
        let tasks = self.executor.tasks().into_iter();
        let of_kind = tasks.filter(|task| task.kind == kind);
        of_kind.map(|task| task.pool).collect()
    }

    /// Returns the number of runs of the tasks of a kind; `None` if there is no such task.
    pub(crate) fn runs(&self, kind: &str) -> Option<u32> {
        let tasks = self.executor.tasks();
        tasks
            .iter()
            .find(|task| task.kind == kind)
            .map(|task| task.runs)
    }

    pub(crate) fn figure(&self, name: &str) -> u64 {
        let figures = self.bucket.figures();
        figures
            .iter()
            .find(|(known, _)| *known == name)
            .unwrap_or_else(|| panic!("no {name}"))
            .1
    }
}

pub(crate) fn later(ctx: Ctx, secs: u64) -> Ctx {
    let ns = secs * 1_000_000_000;
    Ctx {
        now: Now {
            unix_ns: ctx.now.unix_ns + ns,
            mono_ns: ctx.now.mono_ns + ns,
        },
        ..ctx
    }
}

/// Returns keys of a vBucket.
pub(crate) fn names_in(vb: VbId) -> impl Iterator<Item = String> {
    let names = (0..).map(|n| format!("key-{n}"));
    names.filter(move |name| key(name).vbucket(4) == vb)
}

pub(crate) fn all_vbuckets() -> impl Iterator<Item = VbId> {
    (0..4).map(VbId)
}

/// Returns the failover tables of all vBuckets.
pub(crate) fn branches(open: &Open) -> Vec<Vec<(VbUuid, Seqno)>> {
    let log = |vb| open.bucket.failover_log(open.ctx(), vb).unwrap();
    all_vbuckets().map(log).collect()
}

/// Asserts that neither the disk nor the tasks of a kind do anything for an hour.
pub(crate) fn assert_idle(disk: &SimDisk, open: &Open, steps: &Steps, kind: &str) {
    let (operations, runs) = (disk.operations(), open.runs(kind));
    steps.pass(SEC * 3_600);
    assert_eq!((disk.operations(), open.runs(kind)), (operations, runs));
}
