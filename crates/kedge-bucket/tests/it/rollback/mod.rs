//! Rollbacks of vBuckets to an earlier seqno.

mod collections;
mod crash;
mod model;
mod threads;

use crate::tools::*;
use kedge_bucket::{CompactionRequest, EvictionPolicy, MemoryChange, RollbackReport, VbState};
use kedge_disk::{Fault, Operation, SimDisk};
use kedge_types::{Seqno, Status, VbId, VbUuid};
use std::collections::BTreeMap;

/// The vBucket of the tests.
pub(crate) const VB: VbId = VbId(1);

pub(crate) fn names() -> impl Iterator<Item = String> {
    names_in(VB)
}

pub(crate) type Documents = BTreeMap<String, Vec<u8>>;

/// Returns the documents of an active vBucket among `names`.
pub(crate) fn documents(open: &Open, names: &[String]) -> Documents {
    let get = |name: &String| match open.get(name) {
        Ok(value) => Some((name.clone(), value)),
        Err(error) => {
            assert_eq!(error, Status::KeyNotFound, "{name}");
            None
        }
    };
    names.iter().filter_map(get).collect()
}

/// Returns the documents of a vBucket that is not active, by making it active for the time of the reads.
pub(crate) fn look(open: &Open, names: &[String]) -> Documents {
    open.bucket
        .states()
        .set_vbucket(VB, VbState::Active)
        .unwrap();
    documents(open, names)
}

/// Rolls the vBucket back as a replica.
pub(crate) fn roll_back(open: &Open, to: Seqno) -> Result<RollbackReport, Status> {
    open.bucket.states().set_vbucket(VB, VbState::Replica)?;
    open.bucket.persistence().rollbacks().rollback(VB, to)
}

pub(crate) fn failover(open: &Open) -> Vec<(VbUuid, Seqno)> {
    open.bucket.vbucket_figures(VB).unwrap().failover
}

fn back_to(seqno: Seqno) -> Result<RollbackReport, Status> {
    Ok(RollbackReport {
        seqno,
        is_reset: false,
    })
}

/// Makes three commits of the file. Returns the seqno and the documents after each.
pub(crate) fn history(open: &Open, names: &[String]) -> Vec<(Seqno, Documents)> {
    let mut history = Vec::new();
    let mut applied = || {
        open.bucket.persistence().apply().unwrap();
        let seqno = open.bucket.vbucket_figures(VB).unwrap().high_seqno;
        history.push((seqno, documents(open, names)));
    };
    for name in &names[..8] {
        open.set(name, &b"first".repeat(800)).unwrap();
    }
    applied();
    open.set(&names[0], &b"second".repeat(800)).unwrap();
    let k = key(&names[1]);
    open.bucket
        .documents()
        .delete(open.ctx(), &write(&k))
        .unwrap();
    open.set(&names[8], &b"second".repeat(800)).unwrap();
    applied();
    open.set(&names[1], &b"third".repeat(800)).unwrap();
    open.set(&names[2], &b"third".repeat(800)).unwrap();
    open.set(&names[9], &b"third".repeat(800)).unwrap();
    applied();
    history
}

fn site(seed: u64, commit_log: bool) -> (SimDisk, TestSite) {
    let disk = SimDisk::new(seed);
    let mut site = sim(&disk);
    site.config.commit_log = commit_log;
    (disk, site)
}

#[test]
fn rollback_restores_the_newest_commit_at_or_below_its_seqno() {
    let names: Vec<String> = names().take(10).collect();
    for commit_log in [true, false] {
        for (back, to) in [(0, 2), (1, 1), (2, 1), (3, 1), (4, 0)] {
            let (disk, site) = site(1, commit_log);
            let open = site.open();
            let history = history(&open, &names);
            let high = history[2].0;
            let before = failover(&open);
            let wanted = Seqno(high.get() - back);
            let (reached, expected) = &history[to];
            assert_eq!(roll_back(&open, wanted), back_to(*reached), "{back}");
            let figures = open.bucket.vbucket_figures(VB).unwrap();
            assert_eq!(
                (figures.high_seqno, figures.persisted_seqno),
                (*reached, *reached)
            );
            assert_eq!((figures.applied_seqno, figures.unapplied), (*reached, 0));
            assert_eq!(figures.documents, expected.len(), "as soon as it is done");
            let file = open.bucket.file_figures(VB).unwrap().unwrap();
            assert_eq!(file.high_seqno, *reached);
            let rollbacks = u64::from(back > 0);
            assert_eq!(open.figure("ep_rollback_count"), rollbacks);
            if back > 0 {
                assert_eq!(figures.failover[0].1, *reached, "a branch begins there");
                assert_ne!(figures.failover[0].0, before[0].0);
            }
            assert_eq!(look(&open, &names), *expected);
            let mutated = open.set(&names[9], b"goes on").unwrap();
            assert_eq!(mutated.seqno, Seqno(reached.get() + 1));
            open.bucket.persistence().sync().unwrap();
            let mut expected = expected.clone();
            expected.insert(names[9].clone(), b"goes on".to_vec());
            let branches = failover(&open);
            disk.crash(back);
            open.bucket.shutdown();
            let again = site.open();
            assert_eq!(documents(&again, &names), expected);
            assert!(failover(&again).ends_with(&branches));
            again.bucket.shutdown();
        }
    }
}

#[test]
fn rollback_without_a_usable_commit_resets_the_vbucket() {
    let names: Vec<String> = names().take(10).collect();
    for commit_log in [true, false] {
        for compacted in [true, false] {
            let (disk, site) = site(2, commit_log);
            let open = site.open();
            let history = history(&open, &names);
            let before = failover(&open);
            let to = if compacted {
                // Compaction removes the older commits.
                let ticket = open
                    .bucket
                    .persistence()
                    .compactions()
                    .compact(&CompactionRequest::default())
                    .unwrap();
                assert!(ticket.wait().is_complete());
                history[1].0
            } else {
                // A rollback would remove most of the documents.
                Seqno(1)
            };
            let done = roll_back(&open, to).unwrap();
            assert!(done.is_reset && done.seqno == Seqno(0));
            let figures = open.bucket.vbucket_figures(VB).unwrap();
            assert_eq!((figures.documents, figures.high_seqno), (0, Seqno(0)));
            assert!(
                before
                    .iter()
                    .all(|(uuid, _)| *uuid != figures.failover[0].0)
            );
            assert_eq!(open.figure("ep_rollback_resets"), 1);
            disk.crash(1);
            open.bucket.shutdown();
            let again = site.open();
            assert_eq!(again.bucket.vbucket_state(VB), Ok(VbState::Replica));
            assert_eq!(look(&again, &names), Documents::new());
            again.bucket.shutdown();
        }
    }
}

#[test]
fn rollback_of_an_active_or_missing_vbucket_is_rejected() {
    let (_, site) = site(3, true);
    let open = site.open();
    let refused = Err(Status::NotMyVbucket);
    assert_eq!(
        open.bucket.persistence().rollbacks().rollback(VB, Seqno(0)),
        refused
    );
    assert_eq!(
        open.bucket
            .persistence()
            .rollbacks()
            .rollback(VbId(4), Seqno(0)),
        refused
    );
    open.bucket.states().delete_vbucket(VB).unwrap();
    assert_eq!(
        open.bucket.persistence().rollbacks().rollback(VB, Seqno(0)),
        refused
    );
    open.bucket.shutdown();
    let ended = open.bucket.persistence().rollbacks().rollback(VB, Seqno(0));
    assert_eq!(ended, Err(Status::TemporaryFailure));
}

#[test]
fn rollback_task_reports_completion_and_shutdown() {
    let disk = SimDisk::new(4);
    let (open, steps) = sim(&disk).open_with_manual_tasks();
    let names: Vec<String> = names().take(10).collect();
    let history = history(&open, &names);
    open.bucket
        .states()
        .set_vbucket(VB, VbState::Replica)
        .unwrap();
    let (told, hears) = std::sync::mpsc::channel();
    let tell = told.clone();
    open.bucket.persistence().rollbacks().submit(
        VB,
        history[1].0,
        || true,
        move |done| tell.send(done).unwrap(),
    );
    hears.try_recv().unwrap_err();
    steps.run();
    assert_eq!(hears.try_recv().unwrap(), back_to(history[1].0));
    assert_eq!(look(&open, &names), history[1].1);
    open.bucket
        .states()
        .set_vbucket(VB, VbState::Replica)
        .unwrap();
    open.bucket.persistence().rollbacks().submit(
        VB,
        history[0].0,
        || true,
        move |done| told.send(done).unwrap(),
    );
    open.bucket.shutdown();
    assert_eq!(hears.try_recv().unwrap(), Err(Status::TemporaryFailure));
}

/// The connection of a replica ended while its rollback waited for the disk. The next stream, perhaps of another active, may
/// resume at the position of the vBucket, and gets its acknowledgements.
#[test]
fn abandoned_rollback_changes_nothing_and_streams_do_not_resume_before_a_rollback() {
    let disk = SimDisk::new(4);
    let (open, steps) = sim(&disk).open_with_manual_tasks();
    let names: Vec<String> = names().take(10).collect();
    let history = history(&open, &names);
    open.bucket
        .states()
        .set_vbucket(VB, VbState::Replica)
        .unwrap();
    let before = open.bucket.dcp().resume_point(VB).unwrap();
    let roll_back_to = |wanted: bool| {
        let (told, hears) = std::sync::mpsc::channel();
        let done = move |done| told.send(done).unwrap();
        open.bucket
            .persistence()
            .rollbacks()
            .submit(VB, history[1].0, move || wanted, done);
        steps.run();
        hears.try_recv().unwrap()
    };
    assert_eq!(roll_back_to(false), Err(Status::TemporaryFailure));
    assert_eq!(open.bucket.dcp().resume_point(VB), Ok(before));
    assert_eq!(roll_back_to(true), back_to(history[1].0));
    let failover = kedge_bucket::FailoverTable::new(VbUuid(5));
    let begin = |from| {
        open.bucket
            .dcp()
            .begin_passive_stream(VB, &from, failover.clone())
    };
    let refused = begin(before).map_err(kedge_bucket::ApplyError::status);
    assert_eq!(refused, Err(Status::TemporaryFailure));
    assert_eq!(begin(open.bucket.dcp().resume_point(VB).unwrap()), Ok(()));
    assert_eq!(look(&open, &names), history[1].1);
    open.bucket.shutdown();
}

#[test]
fn rollback_restores_evicted_documents() {
    let names: Vec<String> = names().take(10).collect();
    for policy in [EvictionPolicy::ValueOnly, EvictionPolicy::FullEviction] {
        let disk = SimDisk::new(5);
        let mut site = sim(&disk);
        site.config.eviction_policy = policy;
        let (open, steps) = site.open_with_manual_tasks();
        // A task reads the documents, so the test starts the read and then runs the task.
        let get = |name: &String| {
            let k = key(name);
            let cookie = open.next_cookie();
            let wanted = kedge_bucket::Read {
                cookie: kedge_bucket::Cookie(cookie),
                ..read(&k)
            };
            let found = open
                .bucket
                .documents()
                .get(open.ctx(), &wanted, |found| found.item.value().to_vec());
            match found {
                Ok(kedge_bucket::Outcome::Done(value)) => Some(value),
                Ok(kedge_bucket::Outcome::Parked) => {
                    steps.run();
                    match open.sink.wait_any(cookie) {
                        kedge_bucket::Completion::Read { result } => {
                            result.ok().map(|(item, _)| item.value().to_vec())
                        }
                        other => panic!("{other:?}"),
                    }
                }
                Err(error) => {
                    assert_eq!(error, Status::KeyNotFound);
                    None
                }
            }
        };
        let history = history(&open, &names);
        // Evicts everything.
        let none = kedge_bucket::BucketChange {
            quota_bytes: Some(1 << 20),
            memory: MemoryChange {
                high_wat_percent: Some(2),
                low_wat_percent: Some(1),
                ..MemoryChange::default()
            },
            ..kedge_bucket::BucketChange::default()
        };
        open.bucket.update(&none).unwrap();
        steps.pass(SEC * 60);
        let ejects = open.figure("ep_num_value_ejects") + open.figure("ep_num_item_ejects");
        assert!(ejects > 0, "{policy:?}");
        let (reached, expected) = &history[1];
        assert_eq!(roll_back(&open, *reached), back_to(*reached));
        assert_eq!(
            open.bucket.vbucket_figures(VB).unwrap().documents,
            expected.len()
        );
        open.bucket
            .states()
            .set_vbucket(VB, VbState::Active)
            .unwrap();
        let looks = || open.figure("ep_bg_num_samples");
        let before = looks();
        let missing: Vec<String> = super::rollback::names().skip(10).take(100).collect();
        assert!(missing.iter().all(|name| get(name).is_none()));
        assert!(
            looks() - before < 10,
            "a filter says of nearly all that they are not there"
        );
        for name in &names {
            assert_eq!(get(name), expected.get(name).cloned(), "{name} {policy:?}");
        }
        open.bucket.shutdown();
    }
}

#[test]
fn rollback_accounts_for_memory() {
    let names: Vec<String> = names().take(10).collect();
    let (_, site) = site(6, true);
    let open = site.open();
    let empty = open.figure("mem_used");
    let history = history(&open, &names);
    for (reached, _) in history.iter().rev().skip(1) {
        assert_eq!(roll_back(&open, *reached), back_to(*reached));
        let vbuckets: u64 = all_vbuckets()
            .map(|vb| open.bucket.vbucket_figures(vb).unwrap().bytes as u64)
            .sum();
        assert_eq!(open.figure("mem_used"), vbuckets);
    }
    open.bucket.states().delete_vbucket(VB).unwrap();
    assert!(open.figure("mem_used") <= empty);
    open.bucket.shutdown();
}

#[test]
fn rollback_on_a_full_disk_changes_nothing_or_resets_the_vbucket() {
    let names: Vec<String> = names().take(10).collect();
    for commit_log in [true, false] {
        let mut resets = 0;
        for number in 1.. {
            let (disk, mut site) = site(7, commit_log);
            let (open, steps) = site.open_with_manual_tasks();
            let history = history(&open, &names);
            open.bucket
                .states()
                .set_vbucket(VB, VbState::Replica)
                .unwrap();
            open.bucket.persistence().apply().unwrap();
            let before = disk.operations();
            disk.fail_operation(before + number, Fault::NoSpace);
            let done = open
                .bucket
                .persistence()
                .rollbacks()
                .rollback(VB, history[1].0);
            if disk.operations() < before + number {
                assert!(done.is_ok() && number > 4, "it took {number} operations");
                break;
            }
            steps.pass(SEC * 30);
            if !open.sink.fatal().is_empty() {
                // A sync of the rollback, or of a later operation, failed.
                open.bucket.shutdown();
                disk.crash(number);
                let (again, _steps) = site.open_with_manual_tasks();
                let found = look(&again, &names);
                match done {
                    Ok(done) if done.is_reset => assert!(found.is_empty()),
                    Ok(_) => assert_eq!(found, history[1].1),
                    Err(_) => assert!(found == history[1].1 || found == history[2].1),
                }
                again.bucket.shutdown();
                continue;
            }
            let found = look(&open, &names);
            match done {
                Ok(done) if done.is_reset => {
                    assert_eq!(found, Documents::new());
                    resets += 1;
                }
                Ok(done) => assert_eq!((done.seqno, &found), (history[1].0, &history[1].1)),
                Err(status) => {
                    assert_eq!(status, Status::TemporaryFailure);
                    assert!(found.is_empty() || found == history[2].1, "{found:?}");
                }
            }
            open.bucket.shutdown();
            let (again, _steps) = site.open_with_manual_tasks();
            assert_eq!(look(&again, &names), found);
            again.bucket.shutdown();
        }
        assert!(resets > 0);
    }
}

#[test]
fn failed_sync_during_a_rollback_ends_the_process() {
    let names: Vec<String> = names().take(10).collect();
    let (disk, site) = site(8, false);
    let open = site.open();
    let history = history(&open, &names);
    open.bucket
        .states()
        .set_vbucket(VB, VbState::Replica)
        .unwrap();
    disk.fail_next(Operation::Sync, Fault::Io);
    let done = open
        .bucket
        .persistence()
        .rollbacks()
        .rollback(VB, history[1].0);
    assert_eq!(done, Err(Status::TemporaryFailure));
    assert_eq!(open.sink.fatal().len(), 1);
    open.bucket.shutdown();
    disk.crash(1);
    let again = site.open();
    let found = look(&again, &names);
    assert!(found == history[1].1 || found == history[2].1, "{found:?}");
    again.bucket.shutdown();
}
