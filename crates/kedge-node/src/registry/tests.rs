//! Buckets whose tasks a test runs by hand.

use std::thread;

use kedge_bucket::{Completion, Cookie};
use kedge_disk::SimDisk;
use kedge_executor::ManualExecutor;
use kedge_types::SystemClock;

use super::*;

struct Nobody;

impl Completions for Nobody {
    fn complete(&self, done: &mut Vec<(Cookie, Completion)>) {
        done.clear();
    }
}

#[test]
fn flush_waits_until_the_bucket_is_loaded() {
    let (executor, manual) = ManualExecutor::new();
    let owner = executor.register("server").unwrap();
    let setup = RegistrySetup {
        disk: Arc::new(SimDisk::new(1)),
        data_dir: PathBuf::from("/data"),
        master_keys: None,
        clock: Arc::new(SystemClock::new()),
        executor,
        owner,
        completions: Arc::new(Nobody),
        serving: Arc::default(),
        threads: 1,
        recovery: RecoveryMode::Strict,
        clustered: false,
        on_fatal: Arc::new(|why| panic!("{why}")),
    };
    let registry = BucketRegistry::open(setup, Ports::plain(1, 2)).unwrap();
    let mut config = BucketConfig::new("b", 4, 64 << 20);
    config.flush_enabled = true;
    let bucket = registry.create(config).unwrap();
    let holders = Arc::strong_count(&bucket);
    thread::scope(|scope| {
        // Several: if they do not wait, the first has its answer before the last has the bucket.
        let flushes: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| registry.flush("b")))
            .collect();
        let ended = || flushes.iter().filter(|flush| flush.is_finished()).count();
        while Arc::strong_count(&bucket) + ended() < holders + flushes.len() {
            thread::yield_now();
        }
        while ended() < flushes.len() {
            manual.run_ready();
            thread::yield_now();
        }
        for flush in flushes {
            flush.join().unwrap().unwrap();
        }
    });
    registry.shutdown();
}
