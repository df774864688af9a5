//! Rollbacks beside everything else, on threads of their own.

use super::{Documents, VB, documents, names};
use crate::tools::*;
use kedge_bucket::{CompactionPace, CompactionRequest, VbState};
use kedge_disk::SimDisk;
use kedge_types::{Seqno, Status};
use std::sync::atomic::{AtomicBool, Ordering};

/// Rolls one vBucket back over and over, while another is written to and all files are compacted, and while `beside` runs.
fn over_and_over(seed: u64, commit_log: bool, beside: impl Fn(&Open) + Sync) {
    let disk = SimDisk::new(seed);
    let mut place = sim(&disk);
    place.config.commit_log = commit_log;
    place.config.settle_age_ms = 1;
    place.config.compaction.pace = CompactionPace::Off;
    let names: Vec<String> = names().take(40).collect();
    let open = place.open();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut ticket = None;
            while !ended.load(Ordering::Relaxed) {
                beside(&open);
                // One after the other.
                if ticket
                    .as_ref()
                    .is_none_or(|ticket: &kedge_bucket::CompactionTicket| ticket.report().is_some())
                {
                    ticket = open.bucket.compact(&CompactionRequest::default()).ok();
                }
                std::thread::yield_now();
            }
        });
        scope.spawn(|| {
            let mut number = 0;
            while !ended.load(Ordering::Relaxed) {
                let other = (0..).map(|n| format!("other-{}", number + n));
                let mut other = other.filter(|name| key(name).vbucket(4) != VB);
                open.set(&other.next().unwrap(), b"value").unwrap();
                number = (number + 1) % 1_000;
                std::thread::yield_now();
            }
        });
        let mut model = Documents::new();
        let (mut back, mut reset) = (0, 0);
        for round in 0..60 {
            let round_value = format!("{round}").into_bytes();
            for name in names.iter().skip(round % 7).step_by(1 + round % 3) {
                if open.set(name, &round_value).is_ok() {
                    model.insert(name.clone(), round_value.clone());
                }
            }
            open.bucket.sync().unwrap();
            open.bucket.settle().unwrap();
            let Some(figures) = open.bucket.vbucket_figures(VB) else {
                panic!("it is there");
            };
            let kept = (figures.high_seqno, model.clone());
            for name in names.iter().take(3) {
                open.set(name, b"goes").unwrap();
            }
            open.bucket.set_vbucket(VB, VbState::Replica).unwrap();
            let done = open.bucket.rollback(VB, kept.0);
            match done {
                Ok(done) if done.is_reset => {
                    model.clear();
                    reset += 1;
                }
                Ok(done) => {
                    assert_eq!(done.seqno, kept.0, "round {round}");
                    back += 1;
                }
                Err(status) => panic!("round {round}: {status:?}"),
            }
            open.bucket.set_vbucket(VB, VbState::Active).unwrap();
            assert_eq!(documents(&open, &names), model, "round {round}");
        }
        ended.store(true, Ordering::Relaxed);
        assert!(back + reset == 60 && back > 0, "{back} {reset}");
    });
    assert!(open.sink.fatal().is_empty());
    let before = documents(&open, &names);
    open.bucket.shutdown();
    let again = place.open();
    assert_eq!(documents(&again, &names), before);
    again.bucket.shutdown();
}

#[test]
fn beside_compactions_and_writers() {
    over_and_over(1, true, |_| ());
    over_and_over(2, false, |_| ());
}

#[test]
fn a_deletion_or_a_flush_meanwhile_counts() {
    for commit_log in [true, false] {
        let disk = SimDisk::new(3);
        let mut place = sim(&disk);
        place.config.commit_log = commit_log;
        place.config.settle_age_ms = 1;
        let names: Vec<String> = names().take(20).collect();
        let open = place.open();
        for round in 0..80 {
            open.bucket.set_vbucket(VB, VbState::Active).unwrap();
            for name in &names {
                open.set(name, b"1").unwrap();
            }
            open.bucket.settle().unwrap();
            let kept = open.bucket.vbucket_figures(VB).unwrap().high_seqno;
            for name in &names[..5] {
                open.set(name, b"2").unwrap();
            }
            open.bucket.settle().unwrap();
            open.bucket.set_vbucket(VB, VbState::Replica).unwrap();
            let rolled_back = std::thread::scope(|scope| {
                let rolling = scope.spawn(|| open.bucket.rollback(VB, kept));
                if round % 2 == 0 {
                    open.bucket.delete_vbucket(VB).unwrap();
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
        let again = place.open();
        assert_eq!(again.bucket.vbucket_figures(VB).unwrap().documents, 0);
        again.bucket.shutdown();
    }
}
