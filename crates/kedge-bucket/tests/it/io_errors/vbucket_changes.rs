//! The deletion and the rollback of a vBucket, of which one disk call fails.

use super::nth_call::{FAULTS, FailedCall, NthCall};
use crate::rollback::{Documents, VB, history, names};
use crate::tools::*;
use kedge_bucket::{CompactionRequest, RollbackReport, VbState};
use kedge_disk::{Disk, Fault, Operation, SimDisk};
use kedge_types::{Seqno, Status, VbId};
use std::sync::Arc;

const OTHER: VbId = VbId(2);

/// A bucket whose vBucket has three commits in its file, and a document in another vBucket.
struct Prepared {
    disk: SimDisk,
    site: TestSite,
    calls: Arc<NthCall>,
    open: Open,
    steps: Steps,
    names: Vec<String>,
    other: String,
    history: Vec<(Seqno, Documents)>,
}

fn prepare(has_log: bool) -> Prepared {
    let disk = SimDisk::new(3);
    let mut site = sim(&disk);
    site.config.commit_log = has_log;
    let calls = NthCall::install(&mut site, &disk);
    let (open, steps) = site.open_with_manual_tasks();
    let names: Vec<String> = names().take(10).collect();
    let other = names_in(OTHER).next().unwrap();
    open.set(&other, b"other").unwrap();
    let history = history(&open, &names);
    Prepared {
        disk,
        site,
        calls,
        open,
        steps,
        names,
        other,
        history,
    }
}

impl Prepared {
    /// Checks the fatal errors, which name the file. Returns whether there is one.
    fn check_fatal(&self, failed: &FailedCall, fault: Fault, what: &str) -> bool {
        let fatal = self.open.sink.fatal();
        assert_eq!(
            !fatal.is_empty(),
            failed.is_fatal(fault),
            "{what}: {fatal:?}"
        );
        for why in &fatal[..fatal.len().min(1)] {
            let path = failed.path.display().to_string();
            assert!(why.contains(&path), "{what}: {why}");
        }
        !fatal.is_empty()
    }

    /// Checks that the rest of the bucket takes reads and writes.
    fn check_others(&self, what: &str) {
        assert_eq!(self.open.get(&self.other).unwrap(), b"other", "{what}");
        self.open
            .set(&self.other, b"other")
            .unwrap_or_else(|error| panic!("{what}: {error:?}"));
        for figure in ["ep_disk_full", "ep_disk_refuses", "ep_vb_quarantined"] {
            assert_eq!(self.open.figure(figure), 0, "{what}: {figure}");
        }
    }

    /// Opens the bucket again after a power failure.
    fn reopen_after_crash(&mut self, what: &str) -> (Open, Steps) {
        self.open.bucket.shutdown();
        self.disk.crash(5);
        let (again, steps) = self.site.open_with_manual_tasks();
        assert_eq!(again.get(&self.other).unwrap(), b"other", "{what}");
        (again, steps)
    }
}

/// Makes the vBucket active, and returns its documents.
fn look(open: &Open, steps: &Steps, names: &[String]) -> Documents {
    let states = open.bucket.states();
    states.set_vbucket(VB, VbState::Active).unwrap();
    let get = |name: &String| match open.get_by_hand(steps, name) {
        Ok(value) => Some((name.clone(), value)),
        Err(error) => {
            assert_eq!(error, Status::KeyNotFound, "{name}");
            None
        }
    };
    names.iter().filter_map(get).collect()
}

fn files(disk: &SimDisk, site: &TestSite) -> Vec<String> {
    let names = disk.list(&site.dir).unwrap();
    let prefix = format!("{}.couch.", VB.get());
    names
        .into_iter()
        .filter(|name| name.starts_with(&prefix))
        .collect()
}

/// Bug: without a log, writes failed for ever after a deletion on a full disk, as the deletion counts as no change.
#[test]
fn each_failing_call_of_a_vbucket_deletion_has_its_documented_outcome() {
    for (has_log, fault) in [true, false]
        .iter()
        .flat_map(|log| FAULTS.map(|fault| (*log, fault)))
    {
        for number in 0.. {
            let mut at = prepare(has_log);
            // An older file is left by a compaction, so that two have to be removed.
            at.disk.fail_next(Operation::Remove, Fault::Io);
            let request = CompactionRequest {
                vbuckets: Some(vec![VB]),
                ..CompactionRequest::default()
            };
            let compactions = at.open.bucket.persistence().compactions();
            compactions.compact(&request).unwrap();
            at.steps.pass(SEC);
            assert_eq!(files(&at.disk, &at.site).len(), 2);

            at.calls.fail_after(number, fault);
            let deleted = at.open.bucket.states().delete_vbucket(VB);
            let has_met_it = at.calls.has_failed();
            at.steps.pass(SEC * 30);
            let Some(failed) = at.calls.failed() else {
                assert!(number > 8, "it took {number} calls");
                break;
            };
            let what = format!("{failed:?}, {fault:?}, log: {has_log}");
            let missing = Err(Status::NotMyVbucket);
            assert_eq!(at.open.bucket.vbucket_state(VB), missing, "{what}");
            let is_fatal = at.check_fatal(&failed, fault, &what);
            if !is_fatal {
                // The log has the deletion before the files are removed.
                let is_durable = !has_met_it || (has_log && !failed.is_in_log());
                assert_eq!(deleted.is_ok(), is_durable, "{what}: {deleted:?}");
                at.check_others(&what);
                // Whatever could not be removed is removed later.
                let left = files(&at.disk, &at.site);
                assert_eq!(left, [""; 0], "{what}");
            }
            let (again, steps) = at.reopen_after_crash(&what);
            match again.bucket.vbucket_state(VB) {
                Ok(_) => {
                    assert!(is_fatal && deleted.is_err(), "{what}: it is back");
                    assert_eq!(look(&again, &steps, &at.names), at.history[2].1, "{what}");
                }
                found => {
                    assert_eq!(found, missing, "{what}");
                    assert_eq!(look(&again, &steps, &at.names), Documents::new(), "{what}");
                }
            }
            again.bucket.shutdown();
        }
    }
}

#[test]
fn each_failing_call_of_a_rollback_has_its_documented_outcome() {
    for (has_log, fault) in [true, false]
        .iter()
        .flat_map(|log| FAULTS.map(|fault| (*log, fault)))
    {
        let mut unchanged = 0;
        let mut reset = 0;
        for number in 0.. {
            let mut at = prepare(has_log);
            let states = at.open.bucket.states();
            states.set_vbucket(VB, VbState::Replica).unwrap();
            at.open.bucket.persistence().apply().unwrap();
            let to = at.history[1].0;
            at.calls.fail_after(number, fault);
            let done = at.open.bucket.persistence().rollbacks().rollback(VB, to);
            let Some(failed) = at.calls.failed() else {
                assert!(number > 8, "it took {number} calls");
                break;
            };
            at.steps.pass(SEC * 30);
            let what = format!("{failed:?}, {fault:?}, log: {has_log}");
            let [_, (_, target), (_, before)] = &at.history[..] else {
                panic!("three commits");
            };
            if at.check_fatal(&failed, fault, &what) {
                assert_eq!(done, Err(Status::TemporaryFailure), "{what}");
                let (target, before) = (target.clone(), before.clone());
                let names = at.names.clone();
                let (again, steps) = at.reopen_after_crash(&what);
                let found = look(&again, &steps, &names);
                assert!(found == target || found == before, "{what}: {found:?}");
                again.bucket.shutdown();
                continue;
            }
            at.check_others(&what);
            let found = look(&at.open, &at.steps, &at.names);
            match done {
                Ok(RollbackReport { is_reset: true, .. }) => {
                    assert_eq!(found, Documents::new(), "{what}");
                    reset += 1;
                }
                Ok(report) => {
                    assert_eq!((report.seqno, &found), (to, target), "{what}");
                }
                Err(status) => {
                    assert_eq!(status, Status::TemporaryFailure, "{what}");
                    assert!(found.is_empty() || found == *before, "{what}: {found:?}");
                    unchanged += u64::from(!found.is_empty());
                    reset += u64::from(found.is_empty());
                }
            }
            let names = at.names.clone();
            let (again, steps) = at.reopen_after_crash(&what);
            assert_eq!(look(&again, &steps, &names), found, "{what}: after a start");
            again.bucket.shutdown();
        }
        assert!(unchanged > 0 && reset > 0, "{unchanged}, {reset}");
    }
}
