//! Warmup: documents are loaded after a start while commands run.

use super::{POLICIES, noise, small, value};
use crate::lines::lines_of;
use crate::tools::*;
use kedge_bucket::{Bucket, Ctx, EvictionPolicy, WarmupBehavior};
use kedge_disk::{
    DiskCall, DiskError, DiskObserver, Fault, ObservedDisk, Operation, SimDisk, read_file,
    replace_file,
};
use kedge_executor::Pool;
use kedge_types::{Clock, Status, SystemClock};
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, Weak};

impl Open {
    fn warmup(&self, name: &str) -> String {
        let mut found = None;
        self.bucket.residency().warmup().stats(&mut |key, value| {
            if key == name {
                found = Some(value.to_owned());
            }
        });
        found.unwrap_or_else(|| panic!("no {name}"))
    }
}

fn filled(disk: &SimDisk, policy: EvictionPolicy, documents: u32) -> TestSite {
    let mut site = small(disk, policy, 1 << 30);
    site.config.memory.warmup_behavior = WarmupBehavior::Background;
    let open = site.open();
    for n in 0..documents {
        open.set(&format!("key-{n}"), &value(n)).unwrap();
    }
    open.set("gone", b"1").unwrap();
    open.bucket.persistence().apply().unwrap();
    let k = key("gone");
    done(open.bucket.documents().delete(open.ctx(), &write(&k))).unwrap();
    open.bucket.shutdown();
    site
}

#[test]
fn commands_run_during_warmup() {
    for policy in POLICIES {
        let site = filled(&SimDisk::new(1), policy, 1_000);
        let open = site.open();
        // Regardless of the progress of warmup.
        for n in (0..1_000).step_by(37) {
            assert_eq!(open.get(&format!("key-{n}")).unwrap(), value(n));
        }
        assert_eq!(open.get("gone"), Err(Status::KeyNotFound));
        assert_eq!(open.get("never"), Err(Status::KeyNotFound));
        until("the bucket is warm", || {
            !open.bucket.residency().warmup().is_warming()
        });
        assert_eq!(open.figure("curr_items"), 1_000);
        assert_eq!(open.figure("ep_num_non_resident"), 0);
        let fetched = open.fetched();
        for n in 0..1_000 {
            assert_eq!(open.get(&format!("key-{n}")).unwrap(), value(n));
        }
        assert_eq!(open.get("never"), Err(Status::KeyNotFound));
        assert_eq!(open.fetched(), fetched, "all of it is in memory");
        assert_eq!(open.warmup("ep_warmup_state"), "done");
        assert_eq!(open.warmup("ep_warmup_estimated_key_count"), "1000");
        open.bucket.shutdown();
    }
}

#[test]
fn warmup_reads_only_in_tasks_and_loses_nothing() {
    let mut site = filled(&SimDisk::new(2), EvictionPolicy::ValueOnly, 300);
    let (open, steps) = site.begin_by_hand();
    until("it is loaded", || {
        steps.run_one(Pool::Reader);
        !open.bucket.is_loading()
    });
    assert!(open.bucket.residency().warmup().is_warming());
    assert_eq!(open.figure("curr_items"), 300);
    assert_eq!(open.figure("ep_num_non_resident"), 300);
    // A document is written before it was loaded: there is only the new version of it.
    open.set("key-7", b"new").unwrap();
    steps.run();
    assert!(!open.bucket.residency().warmup().is_warming());
    assert_eq!(open.figure("curr_items"), 300);
    assert_eq!(open.figure("ep_num_non_resident"), 0);
    assert_eq!(open.get("key-7").unwrap(), b"new");
    assert_eq!(open.get("key-8").unwrap(), value(8));
    open.bucket.shutdown();
}

#[test]
fn warmup_leaves_documents_on_disk_that_do_not_fit_in_memory() {
    for policy in POLICIES {
        for behavior in [WarmupBehavior::Background, WarmupBehavior::Blocking] {
            let mut site = filled(&SimDisk::new(3), policy, 4_000);
            site.config.memory.warmup_behavior = behavior;
            // Keys take about 300 kB, values 2 MB.
            site.config.quota_bytes = 1 << 20;
            let open = site.open();
            until("the bucket is warm", || {
                !open.bucket.residency().warmup().is_warming()
            });
            assert_eq!(open.figure("curr_items"), 4_000);
            let resident = open.figure("vb_active_perc_mem_resident");
            assert!((5..60).contains(&resident), "{resident} %");
            assert!(open.figure("mem_used") <= 9 << 17);
            if policy == EvictionPolicy::ValueOnly {
                assert_eq!(open.warmup("ep_warmup_key_count"), "4000");
            }
            for n in 0..4_000 {
                assert_eq!(open.get(&format!("key-{n}")).unwrap(), value(n));
            }
            assert_eq!(open.get("gone"), Err(Status::KeyNotFound));
            let fetched = open.fetched();
            for n in 0..1_000 {
                assert_eq!(open.get(&format!("nothing-{n}")), Err(Status::KeyNotFound));
            }
            let looked = open.fetched() - fetched;
            assert!(looked < 100, "{looked} looks for what is not there");
            open.bucket.shutdown();
        }
    }
}

/// Creates a bucket of which a quarter fits in memory. Returns the frequently read documents.
fn with_hot(disk: &SimDisk, policy: EvictionPolicy) -> (TestSite, Vec<u32>) {
    let mut site = filled(disk, policy, 4_000);
    site.config.quota_bytes = 1 << 20;
    let open = site.open();
    until("the bucket is warm", || {
        !open.bucket.residency().warmup().is_warming()
    });
    let hot: Vec<u32> = (0..4_000).step_by(40).collect();
    for _ in 0..200 {
        for n in &hot {
            assert_eq!(open.get(&format!("key-{n}")).unwrap(), value(*n));
        }
    }
    open.bucket.shutdown();
    (site, hot)
}

/// Returns the number of these documents that must be fetched after a start.
fn count_fetches(site: &TestSite, of: &[u32]) -> u64 {
    let open = site.open();
    until("the bucket is warm", || {
        !open.bucket.residency().warmup().is_warming()
    });
    let before = open.fetched();
    for n in of {
        assert_eq!(open.get(&format!("key-{n}")).unwrap(), value(*n));
    }
    let fetched = open.fetched() - before;
    // The bucket ends without writing an access log of its own.
    open.bucket
        .update(&kedge_bucket::BucketChange {
            memory: kedge_bucket::MemoryChange {
                access_scanner_enabled: Some(false),
                ..Default::default()
            },
            ..Default::default()
        })
        .unwrap();
    open.bucket.shutdown();
    fetched
}

#[test]
fn warmup_loads_the_most_used_documents_first() {
    for policy in POLICIES {
        let disk = SimDisk::new(4);
        let (site, hot) = with_hot(&disk, policy);
        let log = Path::new("/data/bucket/access.log.0");
        assert!(site.disk.exists(log).unwrap());
        assert_eq!(count_fetches(&site, &hot), 0);
        // Damage only costs time.
        site.disk.open(log).unwrap().write_at(b"?", 1_000).unwrap();
        count_fetches(&site, &hot);
        site.disk.remove(log).unwrap();
        let cold = count_fetches(&site, &hot);
        assert!(cold > 30, "{cold} of 100: without it chance decides");
    }
}

#[test]
fn access_log_is_written_daily_unless_all_documents_are_in_memory() {
    let disk = SimDisk::new(5);
    let mut site = filled(&disk, EvictionPolicy::FullEviction, 1_000);
    site.config.quota_bytes = 200_000;
    site.config.memory.access_scanner_interval_secs = 3_600;
    let (open, steps) = site.open_with_manual_tasks();
    let log = Path::new("/data/bucket/access.log.0");
    let exists = || site.disk.exists(log).unwrap();
    if exists() {
        site.disk.remove(log).unwrap();
    }
    steps.pass(SEC * 3_500);
    assert!(!exists());
    steps.pass(SEC * 200);
    assert!(exists());
    let quota = kedge_bucket::BucketChange {
        quota_bytes: Some(1 << 30),
        ..Default::default()
    };
    open.bucket.update(&quota).unwrap();
    for n in 0..1_000 {
        let k = key(&format!("key-{n}"));
        let wanted = kedge_bucket::Read {
            cookie: kedge_bucket::Cookie(open.next_cookie()),
            ..read(&k)
        };
        open.bucket
            .documents()
            .get(open.ctx(), &wanted, |_| ())
            .unwrap();
    }
    steps.run();
    assert_eq!(open.figure("ep_num_non_resident"), 0);
    steps.pass(SEC * 3_600);
    assert!(!exists(), "it is of no use any more");
    open.bucket.shutdown();
}

#[test]
fn refused_calls_keep_the_old_access_log() {
    let disk = SimDisk::new(7);
    let mut site = filled(&disk, EvictionPolicy::FullEviction, 1_000);
    site.config.quota_bytes = 200_000;
    let (open, steps) = site.open_with_manual_tasks();
    let log = Path::new("/data/bucket/access.log.0");
    let write = || {
        open.bucket.residency().write_access_log();
        steps.run();
        read_file(&disk, log).unwrap()
    };
    for call in [Operation::Create, Operation::Write, Operation::Rename] {
        // Full, no descriptors, not allowed, read-only, device.
        for number in [28, 122, 24, 23, 13, 1, 30, 5] {
            replace_file(&disk, log, b"the old one").unwrap();
            disk.fail_every(call, Fault::Os(number));
            assert_eq!(write(), b"the old one", "{call}, error number {number}");
            disk.clear_faults();
            assert!(open.sink.fatal().is_empty(), "{:?}", open.sink.fatal());
            assert_ne!(write(), b"the old one", "{call}, error number {number}");
        }
    }
    open.bucket.shutdown();
}

/// Returns the statistics of the group `warmup` about files that were read in part.
fn failures(open: &Open) -> (String, String) {
    until("the bucket is warm", || {
        !open.bucket.residency().warmup().is_warming()
    });
    (
        open.warmup("ep_warmup_failures"),
        open.warmup("ep_warmup_cold_vbuckets"),
    )
}

#[test]
fn warmup_of_a_partly_unreadable_file_loads_the_readable_documents() {
    for policy in POLICIES {
        for behavior in [WarmupBehavior::Background, WarmupBehavior::Blocking] {
            let disk = SimDisk::new(6);
            let mut site = small(&disk, policy, 1 << 30);
            site.config.memory.warmup_behavior = behavior;
            let open = site.open();
            let names: Vec<String> = (0..400).map(|n| format!("key-{n}")).collect();
            let of_first = |name: &&String| key(name).vbucket(4) == kedge_types::VbId(0);
            for name in &names {
                open.set(name, &noise(600)).unwrap();
            }
            open.bucket.shutdown();
            let file = Path::new("/data/bucket/0.couch.1");
            // Document bodies precede tree nodes and headers.
            disk.make_unreadable(file, 20_000);
            let open = site.open();
            assert_eq!(failures(&open), ("1".to_owned(), "1".to_owned()));
            assert_eq!(open.figure("curr_items"), 400);
            let broken: Vec<&String> = names
                .iter()
                .filter(|name| match open.get(name) {
                    Ok(found) => {
                        assert_eq!(found, noise(600), "{name}");
                        false
                    }
                    Err(_) => true,
                })
                .collect();
            assert!((1..5).contains(&broken.len()), "{broken:?}");
            assert!(broken.iter().all(of_first), "{broken:?}");
            assert_eq!(open.get("no such key"), Err(Status::KeyNotFound));
            // The documents can be written and then read.
            open.set(broken[0], b"new").unwrap();
            assert_eq!(open.get(broken[0]).unwrap(), b"new");
            open.bucket.persistence().apply().unwrap();
            assert_eq!(open.figure("curr_items"), 400);
            open.bucket.shutdown();
            // The other parts are intact, and new writes are in an intact part.
            let open = site.open();
            assert_eq!(open.get(broken[0]).unwrap(), b"new");
            let broken_now = names.iter().filter(|name| open.get(name).is_err()).count();
            assert_eq!(broken_now, broken.len() - 1);
            open.bucket.shutdown();
        }
    }
}

#[test]
fn warmup_is_complete_after_all_documents_were_read() {
    let mut site = filled(&SimDisk::new(7), EvictionPolicy::ValueOnly, 300);
    let (open, steps) = site.begin_by_hand();
    let bucket = &open.bucket;
    let thread = || {
        let mut found = Vec::new();
        bucket.stats(&mut |name, text| {
            if name == "ep_warmup_thread" {
                found.push(text.to_owned());
            }
        });
        found
    };
    assert_eq!(thread(), ["running"]);
    while bucket.is_loading() {
        steps.run_one(Pool::Reader);
    }
    assert_eq!(thread(), ["running"], "commands run, but it is not warm");
    steps.run();
    assert_eq!(thread(), ["complete"]);
    bucket.shutdown();
}

/// Sets watermarks that are far apart. Returns the memory use when it is filled up to the low one, minus at most 256
/// documents of 512 bytes, which are read at a time.
fn set_distant_watermarks(site: &mut TestSite) -> RangeInclusive<u64> {
    site.config.quota_bytes = 4 << 20;
    site.config.memory.low_wat_percent = 40;
    site.config.memory.high_wat_percent = 80;
    let low = site.config.quota_bytes * 40 / 100;
    low - 256 * 600..=low
}

#[test]
fn warmup_loads_documents_up_to_the_low_watermark() {
    for policy in POLICIES {
        for behavior in [WarmupBehavior::Background, WarmupBehavior::Blocking] {
            // Keys take about 900 kB, values 6 MB.
            let mut site = filled(&SimDisk::new(8), policy, 12_000);
            let about_low = set_distant_watermarks(&mut site);
            site.config.memory.warmup_behavior = behavior;
            let (open, steps) = site.begin_by_hand();
            for _ in 0..1_000 {
                steps.pass(MS * 5);
            }
            assert!(!open.bucket.residency().warmup().is_warming());
            let used = open.figure("mem_used");
            assert!(about_low.contains(&used), "{policy:?}: {used}");
            assert_eq!(open.figure("ep_num_pager_runs"), 0);
            open.bucket.shutdown();
        }
    }
}

#[test]
fn item_pager_evicts_from_the_high_to_the_low_watermark() {
    for policy in POLICIES {
        let mut site = small(&SimDisk::new(9), policy, 0);
        let about_low = set_distant_watermarks(&mut site);
        let (open, steps) = site.open_with_manual_tasks();
        let mut names = (0..).map(|n| format!("key-{n}"));
        let mut fill = |upto| {
            while open.figure("mem_used") <= upto {
                open.set(&names.next().unwrap(), &[b'v'; 500]).unwrap();
                open.bucket.persistence().apply().unwrap();
            }
        };
        let high = open.figure("ep_mem_high_wat");
        fill(high - 10_000);
        steps.run();
        assert_eq!(open.figure("ep_num_pager_runs"), 0);
        fill(high);
        steps.run();
        let used = open.figure("mem_used");
        assert!(about_low.contains(&used), "{policy:?}: {used}");
        open.bucket.shutdown();
    }
}

/// An observer that reads a document whenever the disk is read.
#[derive(Debug, Default)]
struct ReadOnDiskAccess {
    bucket: OnceLock<Weak<Bucket>>,
    answers: Mutex<Vec<Result<(), Status>>>,
}

impl DiskObserver for ReadOnDiskAccess {
    fn around<R>(
        &self,
        asked: &DiskCall<'_>,
        run: impl FnOnce() -> Result<R, DiskError>,
    ) -> Result<R, DiskError> {
        if let Some(bucket) = self.bucket.get().and_then(Weak::upgrade)
            && asked.operation == Operation::Read
        {
            let now = SystemClock::new().now();
            let answer =
                bucket
                    .documents()
                    .get(Ctx { now, thread: 0 }, &read(&key("key-7")), |_| ());
            self.answers.lock().unwrap().push(answer.map(|_| ()));
        }
        run()
    }
}

#[test]
fn blocking_warmup_delays_commands_until_all_documents_are_in_memory() {
    for policy in POLICIES {
        let mut site = filled(&SimDisk::new(10), policy, 1_000);
        site.config.memory.warmup_behavior = WarmupBehavior::Blocking;
        let asks = Arc::new(ReadOnDiskAccess::default());
        site.disk = Arc::new(ObservedDisk::new(site.disk, Arc::clone(&asks)));
        let (open, steps) = site.begin_by_hand();
        assert!(asks.bucket.set(Arc::downgrade(&open.bucket)).is_ok());
        while open.bucket.is_loading() {
            assert_eq!(open.get("key-7"), Err(Status::TemporaryFailure));
            assert!(steps.run_one(Pool::Reader));
        }
        let answers = asks.answers.lock().unwrap().clone();
        assert!(answers.len() > 20, "{}", answers.len());
        assert!(
            answers
                .iter()
                .all(|it| *it == Err(Status::TemporaryFailure))
        );
        assert!(!open.bucket.residency().warmup().is_warming());
        let figures = ["ep_warmup_value_count", "ep_num_non_resident"];
        assert_eq!(figures.map(|name| open.figure(name)), [1_000, 0]);
        assert_eq!(open.get("key-7").unwrap(), value(7));
        open.bucket.shutdown();
    }
}

/// Parses the log lines of a stage: the number of loaded documents, of `expected` estimated ones.
fn reads_of(lines: &[String], stage: &str, expected: u64) -> Vec<u64> {
    let of_stage = |line: &&String| line.contains(&format!("stage={stage:?}"));
    let lines: Vec<&String> = lines.iter().filter(of_stage).collect();
    assert!(lines[0].contains("documents are being read into memory"));
    let reads = lines[1..].iter().map(|line| {
        let of = |name: &str| -> u64 {
            let (_, rest) = line.split_once(&format!(" {name}=")).unwrap();
            rest.split(' ').next().unwrap().parse().unwrap()
        };
        let (read, all) = (of("read"), of("of"));
        assert_eq!((all, of("percent")), (expected, read * 100 / all), "{line}");
        read
    });
    reads.collect()
}

#[test]
fn warmup_logs_its_progress() {
    let mut site = small(&SimDisk::new(11), EvictionPolicy::ValueOnly, 4 << 20);
    site.config.memory.warmup_behavior = WarmupBehavior::Background;
    let open = site.open();
    // All documents fit, which is known only after they were read.
    for n in 0..4_000 {
        open.set(&format!("key-{n}"), &noise(500)).unwrap();
    }
    open.bucket.shutdown();
    let (open, steps) = site.begin_ticking(SEC);
    while open.bucket.is_loading() {
        assert!(steps.run_one(Pool::Reader));
    }
    let seen = || {
        let counts = ["key", "value"].map(|of| open.figure(&format!("ep_warmup_{of}_count")));
        (open.warmup("ep_warmup_state"), counts)
    };
    let mut all = vec![seen()];
    let lines = lines_of(|| {
        for _ in 0..1_000 {
            steps.run_one(Pool::AuxIo);
            all.push(seen());
        }
    });
    all.dedup();
    assert_eq!(open.figure("ep_warmup_estimated_key_count"), 4_000);
    let of_state = |state: &str| -> Vec<[u64; 2]> {
        let of_it = all.iter().filter(|(of, _)| of == state);
        of_it.map(|(_, counts)| *counts).collect()
    };
    let mut states: Vec<&str> = all.iter().map(|(state, _)| &**state).collect();
    states.dedup();
    assert_eq!(
        states,
        ["initialize", "loading keys", "loading data", "done"]
    );
    let keys = of_state("loading keys");
    assert!(keys.len() > 5 && keys.is_sorted(), "{keys:?}");
    assert!(keys.iter().all(|[_, values]| *values == 0), "{keys:?}");
    let data = of_state("loading data");
    assert!(data.len() > 5 && data.is_sorted(), "{data:?}");
    assert!(data.iter().all(|[keys, _]| *keys == 4_000), "{data:?}");
    assert_eq!(of_state("done"), [[4_000, 4_000]]);
    for (stage, steps) in [("loading keys", keys.len()), ("loading data", data.len())] {
        let reads = reads_of(&lines, stage, 4_000);
        assert!(reads.is_sorted() && reads[0] > 0 && reads[reads.len() - 1] > 2_000);
        assert!(
            reads.len() < steps * 3 / 4,
            "not after each step: {reads:?}"
        );
    }
    open.bucket.shutdown();
}

#[test]
fn warmup_logs_the_progress_of_the_access_log() {
    let (mut site, _) = with_hot(&SimDisk::new(12), EvictionPolicy::ValueOnly);
    let (open, steps) = site.begin_ticking(SEC);
    while open.bucket.is_loading() {
        assert!(steps.run_one(Pool::Reader));
    }
    let lines = lines_of(|| {
        for _ in 0..1_000 {
            steps.run_one(Pool::AuxIo);
        }
    });
    let loaded: u64 = open.warmup("ep_warmup_access_log").parse().unwrap();
    let mut of_stage = lines
        .iter()
        .filter(|line| line.contains("loading access log"));
    let planned = of_stage.find_map(|line| line.split_once(" of="));
    let planned = planned.and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
    let planned: u64 = planned.unwrap();
    // The last ones may not fit: the hash tables grow in steps.
    assert!(
        loaded <= planned && loaded > planned * 9 / 10,
        "{loaded} of {planned}"
    );
    let reads = reads_of(&lines, "loading access log", planned);
    assert!(reads.is_sorted() && reads.len() > 2 && reads[0] > 0);
    open.bucket.shutdown();
}
