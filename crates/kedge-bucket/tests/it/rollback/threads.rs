//! Rollbacks on threads of their own, concurrently with all other operations.

use super::{Documents, VB, documents, names};
use crate::tools::*;
use kedge_bucket::{CompactionRate, CompactionRequest, EvictionPolicy, VbState};
use kedge_disk::SimDisk;
use kedge_types::{Seqno, Status};
use std::sync::atomic::{AtomicBool, Ordering};

/// The size of a value in bytes.
const VALUE: usize = 2_000;

/// A guard that stops threads when it is dropped.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Rolls one vBucket back repeatedly, while others are written to, all files are compacted, and documents are evicted as soon
/// as possible and read again.
fn run_rollbacks(seed: u64, commit_log: bool, policy: EvictionPolicy) {
    let disk = SimDisk::new(seed);
    let mut site = sim(&disk);
    site.config.commit_log = commit_log;
    site.config.apply_max_lag_ms = 1;
    site.config.compaction.throttle = CompactionRate::Off;
    site.config.eviction_policy = policy;
    site.config.quota_bytes = 4 << 20;
    (
        site.config.memory.low_wat_percent,
        site.config.memory.high_wat_percent,
    ) = (1, 2);
    let names: Vec<String> = names().take(40).collect();
    let open = site.open();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // The threads must end when the test fails, so that the failure is reported.
        let _ends = StopOnDrop(&ended);
        scope.spawn(|| {
            let mut ticket = None;
            while !ended.load(Ordering::Relaxed) {
                // The changes are made one after the other.
                if ticket
                    .as_ref()
                    .is_none_or(|ticket: &kedge_bucket::CompactionTicket| ticket.report().is_some())
                {
                    ticket = open
                        .bucket
                        .persistence()
                        .compactions()
                        .compact(&CompactionRequest::default())
                        .ok();
                }
                std::thread::yield_now();
            }
        });
        scope.spawn(|| {
            let mut number = 0;
            while !ended.load(Ordering::Relaxed) {
                let other = (0..).map(|n| format!("other-{}", number + n));
                let mut other = other.filter(|name| key(name).vbucket(4) != VB);
                // Memory may be full of unapplied changes.
                let _ = open.set(&other.next().unwrap(), &[b'v'; VALUE]);
                number = (number + 1) % 1_000;
                std::thread::yield_now();
            }
        });
        scope.spawn(|| {
            let known = [
                Status::KeyNotFound,
                Status::NotMyVbucket,
                Status::TemporaryFailure,
            ];
            while !ended.load(Ordering::Relaxed) {
                for name in &names {
                    match open.get(name) {
                        Ok(value) => assert_eq!(value.len(), VALUE),
                        Err(status) => assert!(known.contains(&status), "{status:?}"),
                    }
                }
            }
        });
        let mut written: Vec<(Seqno, &String, Vec<u8>)> = Vec::new();
        let (mut back, mut exact, mut reset) = (0, 0, 0);
        for round in 0..60 {
            for name in names.iter().skip(round % 7).step_by(1 + round % 3) {
                let value = vec![round as u8; VALUE];
                written.push((set(&open, name, &value), name, value));
            }
            open.bucket.persistence().sync().unwrap();
            open.bucket.persistence().apply().unwrap();
            let Some(figures) = open.bucket.vbucket_figures(VB) else {
                panic!("it is there");
            };
            let wanted = figures.high_seqno;
            for name in names.iter().take(3) {
                set(&open, name, &[255; VALUE]);
            }
            open.bucket
                .states()
                .set_vbucket(VB, VbState::Replica)
                .unwrap();
            let reached = match open.bucket.persistence().rollbacks().rollback(VB, wanted) {
                Ok(done) if done.is_reset => {
                    reset += 1;
                    Seqno(0)
                }
                Ok(done) => {
                    back += 1;
                    exact += usize::from(done.seqno == wanted);
                    done.seqno
                }
                Err(status) => panic!("round {round}: {status:?}"),
            };
            // A compaction may leave one commit from before it, and the next one after the requested seqno.
            assert!(reached <= wanted, "round {round}: {reached:?}");
            written.retain(|(seqno, _, _)| *seqno <= reached);
            let model: Documents = (written.iter())
                .map(|(_, name, value)| ((*name).clone(), value.clone()))
                .collect();
            open.bucket
                .states()
                .set_vbucket(VB, VbState::Active)
                .unwrap();
            let found = documents(&open, &names);
            let differs = |name: &&String| found.get(*name) != model.get(*name);
            let wrong: Vec<_> = names.iter().filter(differs).collect();
            assert!(wrong.is_empty(), "round {round}: {wrong:?}");
        }
        assert!(back + reset == 60 && back > 0, "{back} {reset}");
        assert!(
            exact > back / 2,
            "{exact} of {back} went back as far as wanted"
        );
    });
    assert!(open.sink.fatal().is_empty());
    let before = documents(&open, &names);
    open.bucket.shutdown();
    let again = site.open();
    assert_eq!(documents(&again, &names), before);
    again.bucket.shutdown();
}

/// Stores a document, and retries while memory is full.
fn set(open: &Open, name: &str, value: &[u8]) -> Seqno {
    let mut seqno = Seqno(0);
    until("there is room", || match open.set(name, value) {
        Ok(mutated) => {
            seqno = mutated.seqno;
            true
        }
        Err(status) => {
            assert_eq!(status, Status::TemporaryFailure);
            false
        }
    });
    seqno
}

#[test]
fn rollbacks_run_concurrently_with_compactions_evictions_reads_and_writes() {
    run_rollbacks(1, true, EvictionPolicy::ValueOnly);
    run_rollbacks(2, true, EvictionPolicy::FullEviction);
    run_rollbacks(3, false, EvictionPolicy::FullEviction);
}

#[test]
fn rollback_runs_concurrently_with_shutdown() {
    let names: Vec<String> = names().take(20).collect();
    let mut rolled_back = 0;
    for seed in 0..60 {
        let disk = SimDisk::new(seed);
        let mut site = sim(&disk);
        site.config.commit_log = !seed.is_multiple_of(3);
        let open = site.open();
        for name in &names {
            open.set(name, b"stays").unwrap();
        }
        open.bucket.persistence().apply().unwrap();
        let kept = open.bucket.vbucket_figures(VB).unwrap().high_seqno;
        for name in &names[..5] {
            open.set(name, b"goes").unwrap();
        }
        open.bucket
            .states()
            .set_vbucket(VB, VbState::Replica)
            .unwrap();
        let (told, hears) = std::sync::mpsc::channel();
        open.bucket.persistence().rollbacks().submit(
            VB,
            kept,
            || true,
            move |done| {
                // The test may have failed.
                let _ = told.send(done);
            },
        );
        if seed.is_multiple_of(2) {
            std::thread::yield_now();
        }
        open.bucket.shutdown();
        let done = hears.recv().expect("it hears of the end");
        assert!(open.sink.fatal().is_empty(), "{:?}", open.sink.fatal());
        let again = site.open();
        let found = super::look(&again, &names);
        let goes = found.values().filter(|value| **value == b"goes").count();
        match done {
            Ok(_) => assert_eq!(goes, 0),
            Err(status) => {
                assert_eq!(status, Status::TemporaryFailure);
                assert!(goes == 0 || goes == 5, "{goes}");
            }
        }
        assert_eq!(found.len(), names.len());
        rolled_back += u32::from(goes == 0);
        again.bucket.shutdown();
    }
    eprintln!("{rolled_back} of 60 were rolled back");
}

#[test]
fn deletion_or_flush_during_a_rollback_wins() {
    for commit_log in [true, false] {
        let disk = SimDisk::new(3);
        let mut site = sim(&disk);
        site.config.commit_log = commit_log;
        site.config.apply_max_lag_ms = 1;
        let names: Vec<String> = names().take(20).collect();
        let open = site.open();
        for round in 0..80 {
            open.bucket
                .states()
                .set_vbucket(VB, VbState::Active)
                .unwrap();
            for name in &names {
                open.set(name, b"1").unwrap();
            }
            open.bucket.persistence().apply().unwrap();
            let kept = open.bucket.vbucket_figures(VB).unwrap().high_seqno;
            for name in &names[..5] {
                open.set(name, b"2").unwrap();
            }
            open.bucket.persistence().apply().unwrap();
            open.bucket
                .states()
                .set_vbucket(VB, VbState::Replica)
                .unwrap();
            let rolled_back = std::thread::scope(|scope| {
                let rolling =
                    scope.spawn(|| open.bucket.persistence().rollbacks().rollback(VB, kept));
                if round % 2 == 0 {
                    open.bucket.states().delete_vbucket(VB).unwrap();
                } else {
                    open.bucket.flush_all(open.ctx()).unwrap();
                }
                rolling.join().unwrap()
            });
            if let Err(status) = rolled_back {
                let known = [Status::TemporaryFailure, Status::NotMyVbucket];
                assert!(known.contains(&status), "{status:?}");
            }
            assert!(open.sink.fatal().is_empty());
            if round % 2 == 0 {
                assert_eq!(open.bucket.vbucket_state(VB), Err(Status::NotMyVbucket));
            } else {
                let figures = open.bucket.vbucket_figures(VB).unwrap();
                assert_eq!((figures.documents, figures.high_seqno), (0, Seqno(0)));
            }
        }
        open.bucket.shutdown();
        let again = site.open();
        assert_eq!(again.bucket.vbucket_figures(VB).unwrap().documents, 0);
        again.bucket.shutdown();
    }
}
