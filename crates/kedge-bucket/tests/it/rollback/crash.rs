//! Power loss at each disk operation of a rollback or a deletion.

use super::{Documents, VB, documents, history, look, names, roll_back};
use crate::tools::*;
use kedge_bucket::VbState;
use kedge_disk::{Fault, SimDisk};
use kedge_types::{Seqno, Status};

/// The cookie of the SyncWrite.
const DURABLE_COOKIE: u64 = 1 << 32;

/// Returns the high seqno of the vBucket, and the seqno that it must reach again.
fn position(open: &Open) -> (Seqno, Option<Seqno>) {
    let all = open.bucket.states().positions().unwrap();
    let position = all.into_iter().find(|it| it.vb == VB).unwrap();
    (position.high_seqno, position.catch_up_to)
}

/// Makes a SyncWrite, which the vBucket has acknowledged when it becomes a replica.
fn write_durably(open: &Open, steps: &Steps) {
    let name = names().nth(10).unwrap();
    open.persist(&name, b"durable", DURABLE_COOKIE).unwrap();
    open.bucket.persistence().writers().request_flush(false);
    steps.run();
    open.sink.wait(DURABLE_COOKIE).unwrap();
    open.bucket.persistence().apply().unwrap();
}

/// Runs `change` with a power loss at each of its operations, and `after` on the bucket that is recovered. The last
/// argument of `after` says whether `change` had completed. The last write before it is a SyncWrite.
fn at_each_operation(
    commit_log: bool,
    change: impl Fn(&Open, &[(Seqno, Documents)]) -> bool,
    after: impl Fn(&Open, &[(Seqno, Documents)], &[String], bool),
) {
    let names: Vec<String> = names().take(10).collect();
    let seeds = if commit_log { 1..4 } else { 11..14 };
    for seed in seeds {
        for number in 1.. {
            let disk = SimDisk::new(seed);
            let mut site = sim(&disk);
            site.config.commit_log = commit_log;
            site.config.keep_files_open = seed % 2 == 0;
            let (open, steps) = site.open_with_manual_tasks();
            let history = history(&open, &names);
            write_durably(&open, &steps);
            open.bucket
                .states()
                .set_vbucket(VB, VbState::Replica)
                .unwrap();
            disk.fail_operation(disk.operations() + number, Fault::PowerLoss);
            let done = change(&open, &history);
            let has_power = site.disk.exists(&site.dir).is_ok();
            // A start that is interrupted leads to the same state.
            for cut in [Some(seed + number % 5), None] {
                disk.crash(seed * 1_000 + number);
                site.executor.shutdown();
                let steps = site.manual_tasks();
                let sink = std::sync::Arc::new(Sink::default());
                if let Some(cut) = cut {
                    disk.fail_operation(disk.operations() + cut, Fault::PowerLoss);
                }
                let opened = kedge_bucket::Bucket::open(site.setup(&sink));
                let loaded = opened.and_then(|bucket| {
                    steps.run();
                    bucket.wait_loaded().map(|_| bucket)
                });
                match (loaded, cut) {
                    (_, Some(_)) => {}
                    (Ok(bucket), None) => {
                        let open = site.opened(bucket, sink);
                        after(&open, &history, &names, done);
                        open.bucket.shutdown();
                    }
                    (Err(error), None) => panic!("seed {seed}, operation {number}: {error}"),
                }
            }
            if has_power {
                assert!(done && number > 4, "it took {number} operations");
                break;
            }
        }
    }
}

#[test]
fn rollback_is_atomic_under_power_loss_at_each_operation() {
    for commit_log in [true, false] {
        at_each_operation(
            commit_log,
            |open, history| {
                open.bucket
                    .persistence()
                    .rollbacks()
                    .rollback(VB, history[1].0)
                    .is_ok()
            },
            |open, history, names, done| {
                assert_eq!(open.bucket.vbucket_state(VB), Ok(VbState::Replica));
                let (high, catch_up_to) = position(open);
                assert_eq!(catch_up_to.is_some(), high == history[1].0);
                let found = look(open, names);
                if done {
                    assert_eq!(found, history[1].1);
                }
                assert!(
                    found == history[1].1 || found == history[2].1,
                    "neither before nor after: {found:?}"
                );
                // The rollback can be repeated, and the vBucket can be used.
                let again = roll_back(open, history[1].0).unwrap();
                assert!(!again.is_reset);
                assert_eq!(look(open, names), history[1].1);
                open.set(&names[9], b"new").unwrap();
                open.bucket.persistence().apply().unwrap();
                assert_eq!(open.get(&names[9]).unwrap(), b"new");
            },
        );
    }
}

#[test]
fn resetting_rollback_is_atomic_under_power_loss_at_each_operation() {
    for commit_log in [true, false] {
        at_each_operation(
            commit_log,
            |open, _| {
                open.bucket
                    .persistence()
                    .rollbacks()
                    .rollback(VB, Seqno(1))
                    .is_ok()
            },
            |open, history, names, done| {
                assert_eq!(open.bucket.vbucket_state(VB), Ok(VbState::Replica));
                let (high, catch_up_to) = position(open);
                assert_eq!(catch_up_to.is_some(), high == Seqno(0));
                let found = look(open, names);
                let is_old = !done && found == history[2].1;
                assert!(found.is_empty() || is_old, "{found:?}");
            },
        );
    }
}

#[test]
fn vbucket_deletion_and_recreation_are_atomic_under_power_loss_at_each_operation() {
    for commit_log in [true, false] {
        at_each_operation(
            commit_log,
            |open, _| open.bucket.states().delete_vbucket(VB).is_ok(),
            |open, history, names, done| {
                let state = open.bucket.vbucket_state(VB);
                if !done && state.is_ok() {
                    assert_eq!(look(open, names), history[2].1);
                    open.bucket.states().delete_vbucket(VB).unwrap();
                }
                assert_eq!(open.get(&names[0]), Err(Status::NotMyVbucket));
                open.bucket
                    .states()
                    .set_vbucket(VB, VbState::Active)
                    .unwrap();
                assert_eq!(documents(open, names), Documents::new());
                open.set(&names[0], b"new").unwrap();
                open.bucket.persistence().apply().unwrap();
                assert_eq!(documents(open, names).len(), 1);
            },
        );
        at_each_operation(
            commit_log,
            |open, _| {
                let deleted = open.bucket.states().delete_vbucket(VB);
                let made =
                    deleted.and_then(|()| open.bucket.states().set_vbucket(VB, VbState::Pending));
                made.and_then(|()| {
                    open.bucket
                        .persistence()
                        .apply()
                        .map_err(|_| Status::Internal)
                })
                .is_ok()
            },
            |open, history, names, done| {
                let state = open.bucket.vbucket_state(VB);
                if done {
                    assert_eq!(state, Ok(VbState::Pending));
                }
                match state {
                    Ok(VbState::Pending) => assert_eq!(look(open, names), Documents::new()),
                    Ok(VbState::Replica) => assert_eq!(look(open, names), history[2].1),
                    other => assert_eq!(other, Err(Status::NotMyVbucket)),
                }
            },
        );
    }
}
