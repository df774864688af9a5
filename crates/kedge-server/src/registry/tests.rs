//! Buckets whose tasks a test runs by hand.

use std::thread;

use kedge_bucket::{Completion, Cookie};
use kedge_disk::SimDisk;
use kedge_executor::Manual;
use kedge_types::SystemClock;

use super::*;

struct Nobody;

impl Completions for Nobody {
    fn complete(&self, done: &mut Vec<(Cookie, Completion)>) {
        done.clear();
    }
}

#[test]
fn a_flush_waits_until_the_bucket_is_loaded() {
    let (executor, manual) = Manual::new();
    let setup = RegistrySetup {
        disk: Arc::new(SimDisk::new(1)),
        data_dir: PathBuf::from("/data"),
        clock: Arc::new(SystemClock::new()),
        executor,
        completions: Arc::new(Nobody),
        threads: 1,
        recovery: Recovery::Strict,
        clustered: false,
        on_fatal: Arc::new(|why| panic!("{why}")),
    };
    let registry = BucketRegistry::open(setup, Ports { kv: 1, mgmt: 2 }).unwrap();
    let mut config = BucketConfig::new("b", 4, 64 << 20);
    config.flush_enabled = true;
    registry.create(config).unwrap();
    thread::scope(|scope| {
        let (begins, has_begun) = mpsc::channel();
        let registry = &registry;
        let flush = scope.spawn(move || {
            begins.send(()).unwrap();
            registry.flush("b")
        });
        has_begun.recv().unwrap();
        // sleep: what does not wait has its answer by now.
        thread::sleep(Duration::from_millis(20));
        while !flush.is_finished() {
            manual.run_ready();
            thread::yield_now();
        }
        flush.join().unwrap().unwrap();
    });
    registry.shutdown();
}
