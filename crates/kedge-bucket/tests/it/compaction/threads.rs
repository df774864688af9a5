//! Compactions on threads: events that stop them, and concurrent work.

use super::*;
use kedge_bucket::{
    BucketChange, CompactionChange, CompactionPool, CompactionRate, CompactionTicket,
};
use kedge_disk::{Fault, Operation, SimDisk};
use kedge_types::Status;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(60);

/// Returns a bucket whose compactions pause for as long as the test lasts, unless something ends the pause.
fn paused_compactions(disk: &SimDisk) -> TestSite {
    let mut site = sim(disk);
    site.config.compaction.throttle = CompactionRate::BytesPerSec(1);
    site.config.compaction.fragmentation_percent = 100;
    site
}

/// Waits until the given number of compactions have begun and are paused.
fn wait_until_paused(open: &Open, compactions: usize) {
    until("compactions rest", || {
        let all = open.bucket.persistence().compactions().progress();
        let has_begun = |it: &&_| matches!(it, kedge_bucket::CompactionProgress { figures: Some(figures), .. } if figures.file_bytes > 0);
        all.iter().filter(has_begun).count() == compactions
            && open.figure("ep_compaction_paused_ms") > 0
    });
}

/// Requests compactions of a bucket with garbage. Returns when one of them is paused.
fn begun(site: &TestSite, request: &CompactionRequest) -> (Open, CompactionTicket) {
    let open = site.open();
    churn(&open, 3);
    let ticket = open
        .bucket
        .persistence()
        .compactions()
        .compact(request)
        .unwrap();
    wait_until_paused(&open, 1);
    (open, ticket)
}

fn set(open: &Open, compaction: CompactionChange) {
    let change = BucketChange {
        compaction,
        ..BucketChange::default()
    };
    open.bucket.update(&change).unwrap();
}

fn hurry(open: &Open) {
    set(
        open,
        CompactionChange {
            throttle: Some(CompactionRate::Off),
            ..CompactionChange::default()
        },
    );
}

fn wait(ticket: &CompactionTicket) -> CompactionReport {
    ticket.wait_for(DEADLINE).expect("it ends")
}

#[test]
fn cancelled_compaction_ends_at_once_and_leaves_no_file() {
    let site = paused_compactions(&SimDisk::new(1));
    let (open, ticket) = begun(&site, &only(VbId(1)));
    assert!(names(&site).iter().any(|name| name.ends_with(".compact")));
    assert_eq!(open.bucket.persistence().compactions().cancel(None), Ok(1));
    assert_eq!(wait(&ticket).cancelled, 1);
    assert_eq!(names(&site), revision(1));
    assert_eq!(open.figure("ep_compaction_aborted"), 1);
    open.bucket.shutdown();
}

#[test]
fn shutdown_does_not_wait_for_compactions() {
    let site = paused_compactions(&SimDisk::new(2));
    let (open, ticket) = begun(&site, &all());
    open.bucket.shutdown();
    assert_eq!(ticket.report().unwrap().cancelled, 4);
    assert_eq!(names(&site), revision(1));
    let again = site.open();
    check(&again, 3);
    again.bucket.shutdown();
}

#[test]
fn destruction_does_not_wait_for_compactions() {
    let mut site = paused_compactions(&SimDisk::new(10));
    site.executor = executor();
    let (open, ticket) = begun(&site, &all());
    open.destroy();
    assert_eq!(ticket.report().unwrap().cancelled, 4);
    assert_eq!(site.executor.tasks(), []);
    assert!(!site.disk.exists(&site.dir).unwrap());
    site.executor.shutdown();
}

#[test]
fn failed_bucket_ends_its_compactions() {
    let disk = SimDisk::new(9);
    let site = paused_compactions(&disk);
    let (open, ticket) = begun(&site, &only(VbId(1)));
    disk.fail_next(Operation::Sync, Fault::Io);
    open.persist("key", b"1", 1).unwrap();
    open.bucket.persistence().writers().request_flush(false);
    assert_eq!(wait(&ticket).cancelled, 1);
    until("the failure is told", || open.sink.fatal().len() == 1);
    assert_eq!(names(&site), revision(1));
    open.bucket.shutdown();
}

#[test]
fn request_during_a_compaction_starts_another_compaction() {
    let site = paused_compactions(&SimDisk::new(3));
    let (open, first) = begun(&site, &only(VbId(1)));
    let second = open
        .bucket
        .persistence()
        .compactions()
        .compact(&only(VbId(1)))
        .unwrap();
    let third = open
        .bucket
        .persistence()
        .compactions()
        .compact(&only(VbId(1)))
        .unwrap();
    assert_eq!(open.bucket.persistence().compactions().progress().len(), 1);
    hurry(&open);
    for ticket in [first, second, third] {
        assert_eq!(wait(&ticket).compacted, 1);
    }
    assert_eq!(open.figure("ep_compactions"), 2);
    assert!(file_of(&site, VbId(1)).ends_with("1.couch.3"));
    open.bucket.shutdown();
}

#[test]
fn flush_cancels_compactions_and_new_files_are_compacted_later() {
    let site = paused_compactions(&SimDisk::new(4));
    let (open, ticket) = begun(&site, &all());
    open.bucket.flush_all(open.ctx()).unwrap();
    open.set("after", b"1").unwrap();
    open.bucket.persistence().apply().unwrap();
    hurry(&open);
    assert_eq!(wait(&ticket).compacted, 4);
    // The flush made the second revision. A compacted file from before it would have the fourth.
    assert_eq!(names(&site), revision(3));
    assert_eq!(open.get("after").unwrap(), b"1");
    assert_eq!(open.get("key-1"), Err(Status::KeyNotFound));
    open.bucket.shutdown();
    let again = site.open();
    assert_eq!(again.figure("curr_items"), 1);
    again.bucket.shutdown();
}

#[test]
fn number_of_concurrent_compactions_follows_the_settings() {
    let mut site = paused_compactions(&SimDisk::new(5));
    site.executor = executor();
    site.config.compaction.max_concurrent = 1;
    let (open, ticket) = begun(&site, &all());
    assert_eq!(open.figure("ep_compactions_running"), 1);
    assert_eq!(open.figure("ep_compactions_queued"), 3);
    set(
        &open,
        CompactionChange {
            max_concurrent: Some(2),
            ..CompactionChange::default()
        },
    );
    wait_until_paused(&open, 2);
    assert_eq!(open.figure("ep_compactions_queued"), 2);
    // Commits continue concurrently.
    churn(&open, 5);
    hurry(&open);
    assert_eq!(wait(&ticket).compacted, 4);
    check(&open, 5);
    open.bucket.shutdown();
}

struct Load {
    open: Open,
    stop: AtomicBool,
    writes: AtomicU64,
}

impl Load {
    /// Writes to its own keys until it is stopped, and returns their last values.
    fn write(&self, thread: u64) -> BTreeMap<String, Vec<u8>> {
        let mut documents = BTreeMap::new();
        let mut cookie = thread << 20;
        let mut n = thread;
        while !self.stop.load(Ordering::Relaxed) {
            n = n.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let name = format!("key-{thread}-{}", (n >> 40) % 60);
            match (n >> 33) % 10 {
                0 => {
                    let key = key(&name);
                    let deleted = self
                        .open
                        .bucket
                        .documents()
                        .delete(self.open.ctx(), &write(&key));
                    assert_eq!(deleted.is_ok(), documents.remove(&name).is_some());
                }
                1 | 2 => {
                    cookie += 1;
                    let value = noise(n, 700);
                    self.open.persist(&name, &value, cookie).unwrap();
                    self.open
                        .bucket
                        .persistence()
                        .writers()
                        .request_flush(false);
                    self.open.sink.wait(cookie).unwrap();
                    documents.insert(name, value);
                }
                _ => {
                    let value = noise(n, 1 + (n >> 50) as usize % 2_000);
                    self.open.set(&name, &value).unwrap();
                    documents.insert(name, value);
                }
            }
            self.writes.fetch_add(1, Ordering::Relaxed);
        }
        documents
    }

    /// Compacts all files repeatedly.
    fn compact(&self) {
        while !self.stop.load(Ordering::Relaxed) {
            let compactions = self.open.figure("ep_compactions");
            let request = CompactionRequest {
                drop_deletes: compactions.is_multiple_of(3),
                ..all()
            };
            let ticket = self
                .open
                .bucket
                .persistence()
                .compactions()
                .compact(&request)
                .unwrap();
            assert!(wait(&ticket).is_complete());
            if compactions > 60 && self.writes.load(Ordering::Relaxed) > 5_000 {
                self.stop.store(true, Ordering::Relaxed);
            }
        }
    }
}

fn holds(open: &Open, expected: &BTreeMap<String, Vec<u8>>) {
    let found = |name: &String| open.get(name);
    let wrong: Vec<_> = expected
        .iter()
        .filter(|(name, value)| found(name).as_ref() != Ok(*value))
        .map(|(name, _)| (name, found(name).map(|value| value.len())))
        .collect();
    assert!(
        wrong.is_empty(),
        "{} of {}: {wrong:?}",
        wrong.len(),
        expected.len()
    );
    assert_eq!(open.figure("curr_items"), expected.len() as u64);
}

fn under_load(seed: u64, commit_log: bool, pool: CompactionPool) {
    let mut site = sim(&SimDisk::new(seed));
    let config = &mut site.config;
    config.commit_log = commit_log;
    config.apply_max_lag_ms = 5;
    config.flusher_batch_max_items = 20;
    config.num_shards = 2;
    config.compaction.pool = pool;
    config.compaction.max_concurrent = 2;
    config.compaction.throttle = CompactionRate::BytesPerSec(64 << 20);
    let load = Load {
        open: site.open(),
        stop: AtomicBool::new(false),
        writes: AtomicU64::new(0),
    };
    let expected: BTreeMap<_, _> = std::thread::scope(|scope| {
        let writers: Vec<_> = (1..=3)
            .map(|thread| {
                scope.spawn({
                    let load = &load;
                    move || load.write(thread)
                })
            })
            .collect();
        scope.spawn(|| load.compact());
        let documents = writers.into_iter().map(|writer| writer.join().unwrap());
        documents.flatten().collect()
    });
    let open = load.open;
    assert!(open.sink.fatal().is_empty(), "{:?}", open.sink.fatal());
    holds(&open, &expected);
    open.bucket.persistence().apply().unwrap();
    open.bucket.shutdown();
    let left = names(&site);
    assert_eq!(left.len(), 4, "{left:?}");
    if commit_log {
        // The files have everything.
        kedge_log::Log::remove(&*site.disk, &site.dir.join("log")).unwrap();
    }
    let again = site.open();
    holds(&again, &expected);
    again.bucket.shutdown();
}

#[test]
fn compaction_under_load_loses_nothing_with_a_log() {
    under_load(6, true, CompactionPool::Auxio);
}

#[test]
fn compaction_under_load_loses_nothing_without_a_log() {
    under_load(7, false, CompactionPool::Auxio);
}

#[test]
fn compaction_under_load_loses_nothing_on_writer_threads() {
    under_load(8, true, CompactionPool::Writer);
}
