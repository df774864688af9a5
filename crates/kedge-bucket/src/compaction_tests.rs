//! Compaction of a bucket whose documents are on disk only.

use crate::bucket::Bucket;
use crate::documents::Write;
use kedge_bucket_core::{BucketConfig, BucketSetup, CompactionRate, Completions, Ctx};
use kedge_disk::{Disk, SimDisk};
use kedge_executor::ManualExecutor;
use kedge_log::RecoveryMode;
use kedge_persistence::{CompactionReport, CompactionRequest};
use kedge_types::{Cas, Clock, Datatype, DocKey, ManualClock, Now, VbId};
use kedge_vbucket::{Completion, Cookie, Eviction, PageOut, StoreMode};
use std::sync::Arc;

struct NoCompletions;

impl Completions for NoCompletions {
    fn complete(&self, done: &mut Vec<(Cookie, Completion)>) {
        done.clear();
    }
}

struct ManualBucket {
    bucket: Arc<Bucket>,
    manual: ManualExecutor,
    clock: Arc<ManualClock>,
}

fn open() -> ManualBucket {
    let disk = SimDisk::new(1);
    disk.create_dir_all("/bucket".as_ref()).unwrap();
    let clock = Arc::new(ManualClock::new(Now {
        unix_ns: 1_700_000_000_000_000_000,
        mono_ns: 1_000_000_000,
    }));
    let (executor, manual) = ManualExecutor::new();
    let mut config = BucketConfig::new("test", 1, 1 << 30);
    config.compaction.throttle = CompactionRate::Off;
    let bucket = Bucket::open(BucketSetup {
        disk: Arc::new(disk),
        dir: "/bucket".into(),
        config,
        keyring: None,
        clock: clock.clone(),
        executor,
        completions: Arc::new(NoCompletions),
        threads: 1,
        recovery: RecoveryMode::Strict,
        topology: Some(kedge_vbucket::Topology::alone()),
        serving: Arc::default(),
        open_files_max: u32::MAX,
        compaction_reserve_bytes: 0,
        on_fatal: Arc::new(|why| panic!("{why}")),
    })
    .unwrap();
    manual.run_ready();
    bucket.wait_loaded().unwrap();
    ManualBucket {
        bucket,
        manual,
        clock,
    }
}

impl ManualBucket {
    fn set(&self, key: &DocKey, expiry: u32) {
        let ctx = Ctx {
            now: self.clock.now(),
            thread: 0,
        };
        let write = Write {
            vb: VbId(0),
            key,
            cas: Cas(0),
            durability: None,
            new_cas: Cas(0),
            preserve_ttl: false,
            cookie: Cookie(1),
        };
        let bucket = &self.bucket;
        bucket
            .documents()
            .store(
                ctx,
                &write,
                &crate::StoreArgs {
                    mode: StoreMode::Set,
                    value: b"value",
                    datatype: Datatype::RAW,
                    flags: 0,
                    expiry,
                },
            )
            .unwrap();
    }

    /// All that can leave memory does.
    fn evict(&self, eviction: Eviction) {
        let now = self.clock.now();
        let everything = PageOut {
            eviction,
            frequency_max: u8::MAX,
            bytes: usize::MAX,
            decay: false,
        };
        let mut vbucket = self.bucket.core.vbuckets[0].lock();
        self.bucket.core.measure(&mut vbucket, |vbucket| {
            for shard in 0..vbucket.table().shard_count() {
                vbucket.at(now).page_out(shard, &everything);
            }
        });
    }

    fn compact(&self) -> CompactionReport {
        let ticket = self
            .bucket
            .persistence
            .compactions()
            .compact(&CompactionRequest::default())
            .unwrap();
        self.manual.run_ready();
        ticket.wait()
    }
}

fn expired_on_disk(eviction: Eviction) {
    let opened = open();
    let key = |n: u32| DocKey::from_prefixed(format!("\0key-{n}").as_bytes()).unwrap();
    for n in 0..200 {
        opened.set(&key(n), if n < 150 { 100 } else { 0 });
    }
    opened.bucket.persistence.apply().unwrap();
    opened.evict(eviction);
    opened.clock.advance(101_000_000_000);
    // One is in memory again, and does not expire.
    opened.set(&key(0), 0);
    let report = opened.compact();
    assert_eq!((report.compacted, report.expired), (1, 149));
    let figures = opened.bucket.vbucket_figures(VbId(0)).unwrap();
    assert_eq!(figures.tombstones, 149);
    opened.bucket.persistence.apply().unwrap();
    let storage = opened.bucket.core.storage().unwrap();
    let file = storage.file_figures(VbId(0)).unwrap().unwrap();
    assert_eq!((file.live, file.deleted), (51, 149));
    assert_eq!(opened.compact().expired, 0);
    opened.bucket.shutdown();
}

#[test]
fn compaction_expires_documents_with_evicted_values() {
    expired_on_disk(Eviction::ValueOnly);
}

#[test]
fn compaction_expires_evicted_documents() {
    expired_on_disk(Eviction::Full);
}
