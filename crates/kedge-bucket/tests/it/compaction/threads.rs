//! Compactions on threads: what stops them, and what goes on beside them.

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

/// A bucket whose compactions rest for as long as the test lasts, unless something ends that.
fn resting(disk: &SimDisk) -> Place {
    let mut place = sim(disk);
    place.config.compaction.throttle = CompactionRate::BytesPerSec(1);
    place.config.compaction.fragmentation_percent = 100;
    place
}

/// Waits until so many compactions have begun and rest.
fn until_resting(open: &Open, compactions: usize) {
    until("compactions rest", || {
        let all = open.bucket.persistence().compactions().progress();
        let has_begun = |it: &&_| matches!(it, kedge_bucket::CompactionProgress { figures: Some(figures), .. } if figures.file_bytes > 0);
        all.iter().filter(has_begun).count() == compactions
            && open.figure("ep_compaction_paused_ms") > 0
    });
}

/// Asks for compactions on a bucket with garbage. One has begun, and rests.
fn begun(place: &Place, request: &CompactionRequest) -> (Open, CompactionTicket) {
    let open = place.open();
    churn(&open, 3);
    let ticket = open
        .bucket
        .persistence()
        .compactions()
        .compact(request)
        .unwrap();
    until_resting(&open, 1);
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
fn a_compaction_that_is_cancelled_ends_at_once_and_leaves_nothing() {
    let place = resting(&SimDisk::new(1));
    let (open, ticket) = begun(&place, &only(VbId(1)));
    assert!(names(&place).iter().any(|name| name.ends_with(".compact")));
    assert_eq!(open.bucket.persistence().compactions().cancel(None), Ok(1));
    assert_eq!(wait(&ticket).cancelled, 1);
    assert_eq!(names(&place), revision(1));
    assert_eq!(open.figure("ep_compaction_aborted"), 1);
    open.bucket.shutdown();
}

#[test]
fn a_shutdown_does_not_wait_for_compactions() {
    let place = resting(&SimDisk::new(2));
    let (open, ticket) = begun(&place, &all());
    open.bucket.shutdown();
    assert_eq!(ticket.report().unwrap().cancelled, 4);
    assert_eq!(names(&place), revision(1));
    let again = place.open();
    check(&again, 3);
    again.bucket.shutdown();
}

#[test]
fn nor_does_the_end_of_the_bucket_with_all_its_files() {
    let mut place = resting(&SimDisk::new(10));
    place.executor = executor();
    let (open, ticket) = begun(&place, &all());
    open.destroy();
    assert_eq!(ticket.report().unwrap().cancelled, 4);
    assert_eq!(place.executor.tasks(), []);
    assert!(!place.disk.exists(&place.dir).unwrap());
    place.executor.shutdown();
}

#[test]
fn a_bucket_that_cannot_go_on_ends_compactions() {
    let disk = SimDisk::new(9);
    let place = resting(&disk);
    let (open, ticket) = begun(&place, &only(VbId(1)));
    disk.fail_next(Operation::Sync, Fault::Io);
    open.persist("key", b"1", 1).unwrap();
    open.bucket.persistence().writers().request_flush(false);
    assert_eq!(wait(&ticket).cancelled, 1);
    until("the failure is told", || open.sink.fatal().len() == 1);
    assert_eq!(names(&place), revision(1));
    open.bucket.shutdown();
}

#[test]
fn whoever_asks_during_a_compaction_gets_another_one() {
    let place = resting(&SimDisk::new(3));
    let (open, first) = begun(&place, &only(VbId(1)));
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
    assert!(file_of(&place, VbId(1)).ends_with("1.couch.3"));
    open.bucket.shutdown();
}

#[test]
fn a_flush_stops_compactions_and_the_new_files_are_compacted_later() {
    let place = resting(&SimDisk::new(4));
    let (open, ticket) = begun(&place, &all());
    open.bucket.flush_all(open.ctx()).unwrap();
    open.set("after", b"1").unwrap();
    open.bucket.persistence().apply().unwrap();
    hurry(&open);
    assert_eq!(wait(&ticket).compacted, 4);
    // The flush made the second revision. A file of before that was compacted, too, would make it four.
    assert_eq!(names(&place), revision(3));
    assert_eq!(open.get("after").unwrap(), b"1");
    assert_eq!(open.get("key-1"), Err(Status::KeyNotFound));
    open.bucket.shutdown();
    let again = place.open();
    assert_eq!(again.figure("curr_items"), 1);
    again.bucket.shutdown();
}

#[test]
fn as_many_run_as_the_settings_say() {
    let mut place = resting(&SimDisk::new(5));
    place.executor = executor();
    place.config.compaction.max_concurrent = 1;
    let (open, ticket) = begun(&place, &all());
    assert_eq!(open.figure("ep_compactions_running"), 1);
    assert_eq!(open.figure("ep_compactions_queued"), 3);
    set(
        &open,
        CompactionChange {
            max_concurrent: Some(2),
            ..CompactionChange::default()
        },
    );
    until_resting(&open, 2);
    assert_eq!(open.figure("ep_compactions_queued"), 2);
    // Commits go on beside them.
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
    /// Writes to keys of its own, until told to stop, and gives what they hold then.
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

    /// Compacts everything again and again.
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
    let mut place = sim(&SimDisk::new(seed));
    let config = &mut place.config;
    config.commit_log = commit_log;
    config.apply_max_lag_ms = 5;
    config.flusher_batch_max_items = 20;
    config.num_shards = 2;
    config.compaction.pool = pool;
    config.compaction.max_concurrent = 2;
    config.compaction.throttle = CompactionRate::BytesPerSec(64 << 20);
    let load = Load {
        open: place.open(),
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
    let left = names(&place);
    assert_eq!(left.len(), 4, "{left:?}");
    if commit_log {
        // The files have everything.
        kedge_log::Log::remove(&*place.disk, &place.dir.join("log")).unwrap();
    }
    let again = place.open();
    holds(&again, &expected);
    again.bucket.shutdown();
}

#[test]
fn nothing_is_lost_under_load_with_a_log() {
    under_load(6, true, CompactionPool::Auxio);
}

#[test]
fn nothing_is_lost_under_load_without_a_log() {
    under_load(7, false, CompactionPool::Auxio);
}

#[test]
fn nothing_is_lost_under_load_on_the_threads_that_commit() {
    under_load(8, true, CompactionPool::Writer);
}
