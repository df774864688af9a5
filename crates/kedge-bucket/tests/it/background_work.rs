//! Background work of a bucket, step by step: commits, timeouts, sweeps, log segments, loading.

use crate::tools::*;
use kedge_bucket::{
    Bucket, BucketError, CompactionRequest, Completion, Completions, Cookie, Outcome, VbState,
    WarmupBehavior, Write,
};
use kedge_disk::{Fault, Operation, SimDisk};
use kedge_executor::{Pool, TaskState};
use kedge_types::limits::TOMBSTONE_PURGE_AGE_SECS;
use kedge_types::{Durability, DurabilityLevel, Seqno, Status, VbId};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Returns the numbers of batches and records in the log.
fn logged(open: &Open) -> (u64, u64) {
    (open.figure("ep_log_batches"), open.figure("ep_log_records"))
}

#[test]
fn full_log_batch_is_followed_by_the_next_at_once() {
    let mut site = sim(&SimDisk::new(3));
    site.config.flusher_batch_max_items = 10;
    let (open, steps) = site.open_with_manual_tasks();
    steps.pass(SEC * 5);
    for n in 0..35 {
        open.set(&format!("key-{n}"), b"1").unwrap();
    }
    let vb = key("key-34").vbucket(4);
    let (bucket, ctx) = (&open.bucket, open.ctx());
    let waits = bucket.seqno_persistence(ctx, vb, Seqno(1), Cookie(1));
    assert_eq!(waits, Ok(Outcome::Parked));
    open.bucket.persistence().writers().request_flush(false);
    steps.run();
    assert_eq!(logged(&open), (4, 35));
    open.bucket.shutdown();
}

#[test]
fn end_marker_follows_the_last_batch_and_then_the_log_is_idle() {
    let disk = SimDisk::new(4);
    let (open, steps) = sim(&disk).open_with_manual_tasks();
    steps.pass(SEC * 5);
    open.set("key", b"1").unwrap();
    steps.pass(MS * 1_019);
    let before = disk.operations();
    steps.pass(MS * 2);
    assert!(disk.operations() > before, "the end marker");
    steps.pass(SEC * 10);
    assert_eq!(open.figure("ep_apply_commits"), 1);
    assert_idle(&disk, &open, &steps, "log_commit");
    open.bucket.shutdown();
}

#[test]
fn idle_bucket_runs_almost_no_tasks() {
    let (open, steps) = sim(&SimDisk::new(5)).open_with_manual_tasks();
    open.set("key", b"1").unwrap();
    steps.pass(SEC * 60);
    assert_eq!(steps.pass(SEC * 3_600), 6, "looks for old tombstones");
    let tasks = open.executor.tasks();
    let mut kinds: Vec<_> = tasks.iter().map(|task| task.kind).collect();
    kinds.sort_unstable();
    assert_eq!(
        kinds,
        [
            "access_scanner",
            "bg_fetch",
            "bg_fetch",
            "bg_fetch",
            "bg_fetch",
            "compaction_check",
            "dcp_cursors",
            "defragmenter",
            "dropped_sweep",
            "durability_timeout",
            "expiry_sweep",
            "item_compressor",
            "item_pager",
            "log_apply",
            "log_commit",
            "log_segment",
            "memory_admission",
            "range_scan",
            "range_scan"
        ]
    );
    assert!(tasks.iter().all(|task| task.owner == "bucket:test"));
    assert!(
        tasks
            .iter()
            .all(|task| matches!(task.state, TaskState::Snoozing(_)))
    );
    open.bucket.shutdown();
    assert_eq!(open.executor.tasks(), []);
}

#[test]
fn sync_write_is_ambiguous_when_its_timeout_expires() {
    let disk = SimDisk::new(8);
    let (open, steps) = sim(&disk).open_with_manual_tasks();
    steps.pass(SEC * 5);
    disk.set_capacity(Some(disk.used_bytes()));
    let key = key("slow");
    let write = Write {
        durability: Some(Durability {
            level: DurabilityLevel::PersistToMajority,
            timeout_ms: Some(50),
        }),
        cookie: Cookie(77),
        ..write(&key)
    };
    assert_eq!(
        open.store(&write, &vec![b'x'; 5 << 20]),
        Ok(Outcome::Parked)
    );
    open.bucket.persistence().writers().request_flush(false);
    steps.pass(MS * 49);
    assert!(open.sink.get(77).is_none());
    steps.pass(MS * 20);
    assert_eq!(open.sink.wait(77), Err(Status::SyncWriteAmbiguous));
    disk.set_capacity(None);
    open.bucket.shutdown();
}

#[test]
fn timeouts_are_checked_only_while_commands_are_parked() {
    let (open, steps) = sim(&SimDisk::new(9)).open_with_manual_tasks();
    steps.pass(SEC * 5);
    let begun = open.runs("durability_timeout").unwrap();
    assert_eq!(begun, 1, "it found nothing to do");
    let vb = key("a").vbucket(4);
    let wait = |cookie| {
        open.bucket
            .seqno_persistence(open.ctx(), vb, Seqno(99), Cookie(cookie))
    };
    assert_eq!(wait(1), Ok(Outcome::Parked));
    steps.pass(SEC * 10);
    assert_eq!(
        open.runs("durability_timeout"),
        Some(begun + 500),
        "every 20 ms"
    );
    assert_eq!(wait(2), Ok(Outcome::Parked));
    steps.pass(SEC * 20);
    let refused = |cookie| match open.sink.get(cookie) {
        Some(Completion::Persisted(result)) => Some(result),
        _ => None,
    };
    assert_eq!(refused(1), Some(Err(Status::TemporaryFailure)));
    assert_eq!(refused(2), None);
    steps.pass(SEC * 11);
    assert_eq!(refused(2), Some(Err(Status::TemporaryFailure)));
    let runs = open.runs("durability_timeout");
    steps.pass(SEC * 600);
    assert_eq!(open.runs("durability_timeout"), runs);
    open.bucket.shutdown();
}

#[test]
fn command_completed_at_once_causes_at_most_one_timeout_check() {
    let (open, steps) = sim(&SimDisk::new(10)).open_with_manual_tasks();
    steps.pass(SEC * 5);
    let runs = open.runs("durability_timeout").unwrap();
    for n in 1..=100 {
        open.persist("key", b"1", n).unwrap();
        open.bucket.persistence().writers().request_flush(true);
        assert!(open.sink.wait(n).is_ok());
    }
    steps.pass(SEC);
    assert_eq!(open.runs("durability_timeout"), Some(runs + 1));
    open.bucket.shutdown();
}

fn touch(open: &Open, name: &str, expiry: u32) {
    let key = key(name);
    let touched = open
        .bucket
        .documents()
        .touch(open.ctx(), &write(&key), expiry);
    assert!(matches!(touched, Ok(Outcome::Done(_))));
}

#[test]
fn expiry_sweep_removes_unread_documents_within_a_minute_of_their_expiry() {
    let (open, steps) = sim(&SimDisk::new(11)).open_with_manual_tasks();
    for n in 0..200 {
        open.set(&format!("key-{n}"), b"1").unwrap();
    }
    steps.pass(SEC * 700);
    let idle = open.runs("expiry_sweep").unwrap();
    assert!(idle <= 3, "nothing has an expiry: {idle} runs");
    for n in 0..100 {
        touch(&open, &format!("key-{n}"), 100);
    }
    steps.pass(SEC * 99);
    assert_eq!(open.figure("vb_active_expired"), 0);
    steps.pass(SEC * 31);
    let half_way = open.figure("vb_active_expired");
    assert!(
        (20..80).contains(&half_way),
        "the work is spread: {half_way} of 100 after half a minute"
    );
    steps.pass(SEC * 31);
    assert_eq!(open.figure("vb_active_expired"), 100);
    assert_eq!(open.figure("curr_items"), 100);
    // No other document will expire.
    steps.pass(SEC * 120);
    let runs = open.runs("expiry_sweep").unwrap();
    steps.pass(SEC * 400);
    assert!(open.runs("expiry_sweep").unwrap() - runs <= 1);
    open.bucket.shutdown();
}

#[test]
fn old_tombstones_are_purged_from_memory_without_expiries() {
    let (open, steps) = sim(&SimDisk::new(12)).open_with_manual_tasks();
    open.set("key", b"1").unwrap();
    let key = key("key");
    open.bucket
        .documents()
        .delete(open.ctx(), &write(&key))
        .unwrap();
    let age = Duration::from_secs(TOMBSTONE_PURGE_AGE_SECS);
    steps.pass(age - SEC);
    assert_eq!(open.figure("vb_active_tombstones"), 1);
    // The purge checks every ten minutes, and takes that long for a round.
    steps.pass(SEC * 1_000);
    assert_eq!(open.figure("vb_active_tombstones"), 0);
    open.bucket.shutdown();
}

fn spares(site: &TestSite) -> usize {
    let names = site.disk.list(&site.dir.join("log")).unwrap();
    names.iter().filter(|name| name.contains("spare")).count()
}

#[test]
fn next_log_segment_is_preallocated_in_time() {
    let mut site = sim(&SimDisk::new(13));
    let (open, steps) = site.open_with_manual_tasks();
    steps.pass(SEC * 5);
    let looks = open.runs("log_segment").unwrap();
    assert_eq!((looks, spares(&site)), (1, 0), "an idle log stays small");
    open.set("a", &vec![b'x'; 400_000]).unwrap();
    steps.pass(MS * 21);
    assert_eq!(spares(&site), 0, "not in one go");
    steps.pass(MS * 250);
    assert_eq!(spares(&site), 1, "the commit asked for it");
    steps.pass(SEC);
    let looks = open.runs("log_segment").unwrap();
    steps.pass(SEC * 600);
    assert_eq!(
        open.runs("log_segment"),
        Some(looks),
        "and it assert_idle again"
    );
    open.bucket.shutdown();
}

#[test]
fn failed_segment_preallocation_is_retried() {
    let disk = SimDisk::new(14);
    let mut site = sim(&disk);
    let (open, steps) = site.open_with_manual_tasks();
    steps.pass(SEC * 5);
    open.set("a", &vec![b'x'; 400_000]).unwrap();
    open.bucket.persistence().sync().unwrap();
    disk.fail_next(Operation::Write, Fault::NoSpace);
    steps.run();
    steps.pass(MS * 900);
    assert_eq!(spares(&site), 0);
    steps.pass(MS * 350);
    assert_eq!(spares(&site), 1);
    open.bucket.shutdown();
}

#[test]
fn load_listeners_are_called_when_loading_ends() {
    let mut site = sim(&SimDisk::new(15));
    let (open, steps) = site.begin_by_hand();
    let bucket = &open.bucket;
    let told = Arc::new(AtomicU32::new(0));
    let listen = || {
        let told = Arc::clone(&told);
        bucket.when_loaded(move || {
            told.fetch_add(1, Ordering::Relaxed);
        });
    };
    listen();
    assert!(bucket.is_loading());
    assert_eq!(open.get("key"), Err(Status::TemporaryFailure));
    assert_eq!(told.load(Ordering::Relaxed), 0);
    steps.run();
    assert_eq!(told.load(Ordering::Relaxed), 1);
    listen();
    assert_eq!(told.load(Ordering::Relaxed), 2, "it is loaded by now");
    assert!(bucket.wait_loaded().is_ok() && !bucket.is_loading());
    bucket.shutdown();
}

/// Interrupts loading before it begins. The contents of the disk do not change.
#[test]
fn bucket_can_shut_down_before_it_is_loaded() {
    let disk = SimDisk::new(16);
    let mut site = sim(&disk);
    let (open, _steps) = site.open_with_manual_tasks();
    open.set("key", b"1").unwrap();
    open.bucket.shutdown();
    let _steps = site.manual_tasks();
    let sink = Arc::new(Sink::default());
    let bucket = Bucket::open(site.setup(&sink)).unwrap();
    let before = disk.operations();
    bucket.shutdown();
    assert_eq!(disk.operations(), before);
    assert!(matches!(
        bucket.wait_loaded(),
        Err(BucketError::NotLoaded(_))
    ));
    assert_eq!(site.executor.tasks(), []);
    let (open, _steps) = site.open_with_manual_tasks();
    assert!(open.bucket.wait_loaded().unwrap().clean);
    assert_eq!(open.get("key").unwrap(), b"1");
    open.bucket.shutdown();
}

struct PanickingCompletions;

impl Completions for PanickingCompletions {
    fn complete(&self, _: &mut Vec<(Cookie, Completion)>) {
        panic!("as the test wants it");
    }
}

#[test]
fn panic_of_a_task_fails_the_bucket() {
    let mut site = sim(&SimDisk::new(17));
    let steps = site.manual_tasks();
    let sink = Arc::new(Sink::default());
    let setup = kedge_bucket::BucketSetup {
        completions: Arc::new(PanickingCompletions),
        ..site.setup(&sink)
    };
    let open = site.opened(Bucket::open(setup).unwrap(), Arc::clone(&sink));
    steps.run();
    open.persist("key", b"1", 1).unwrap();
    open.bucket.persistence().writers().request_flush(false);
    steps.run();
    assert_eq!(sink.fatal(), ["the task log_commit panicked"]);
    assert_eq!(open.set("key", b"2"), Err(Status::TemporaryFailure));
    assert_eq!(open.runs("log_commit"), None);
    open.bucket.shutdown();
    assert_eq!(open.executor.tasks(), []);
}

#[test]
fn open_fails_on_an_executor_that_has_shut_down() {
    let mut site = sim(&SimDisk::new(18));
    site.manual_tasks();
    site.executor.shutdown();
    let refused = Bucket::open(site.setup(&Arc::new(Sink::default())));
    assert!(matches!(refused, Err(BucketError::Executor(_))));
    assert!(site.disk.exists(Path::new("/data/bucket")).unwrap());
}

#[test]
fn each_task_kind_runs_in_its_pool() {
    let mut site = sim(&SimDisk::new(19));
    site.config.memory.warmup_behavior = WarmupBehavior::Background;
    let (open, _steps) = site.open_with_manual_tasks();
    open.set("key", b"1").unwrap();
    open.bucket.shutdown();
    let (open, steps) = site.begin_by_hand();
    assert_eq!(open.pools("warmup"), [Pool::Reader]);
    while open.bucket.is_loading() {
        steps.run_one(Pool::Reader);
    }
    assert_eq!(open.pools("warmup_documents"), [Pool::AuxIo; 4]);
    for (kinds, pool) in [
        (&["log_commit", "log_apply"][..], Pool::Writer),
        (&["bg_fetch", "range_scan"], Pool::Reader),
        (
            &["access_scanner", "compaction_check", "log_segment"],
            Pool::AuxIo,
        ),
        (
            &["durability_timeout", "expiry_sweep", "item_pager"],
            Pool::NonIo,
        ),
    ] {
        for kind in kinds {
            let pools = open.pools(kind);
            assert!(!pools.is_empty(), "{kind}");
            assert!(pools.iter().all(|of| *of == pool), "{kind}: {pools:?}");
        }
    }
    steps.run();
    let [vb, other] = [VbId(0), VbId(1)];
    let (told, hears) = mpsc::channel();
    let tell = told.clone();
    open.bucket
        .states()
        .set_vbucket(vb, VbState::Replica)
        .unwrap();
    open.bucket.persistence().rollbacks().submit(
        vb,
        Seqno(0),
        || true,
        move |done| tell.send(done.is_ok()).unwrap(),
    );
    assert_eq!(open.pools("rollback"), [Pool::AuxIo]);
    open.bucket
        .states()
        .begin_delete_vbucket(other, move |done| told.send(done.is_ok()).unwrap())
        .unwrap();
    assert_eq!(open.pools("vbucket_deletion"), [Pool::AuxIo]);
    open.bucket
        .persistence()
        .compactions()
        .compact(&CompactionRequest::default())
        .unwrap();
    assert_eq!(open.pools("compaction"), [Pool::AuxIo]);
    steps.run();
    assert_eq!(hears.iter().collect::<Vec<_>>(), [true; 2]);
    for kind in ["warmup", "warmup_documents", "rollback", "vbucket_deletion"] {
        assert_eq!(open.pools(kind), [], "{kind} is done");
    }
    open.bucket.shutdown();
}
