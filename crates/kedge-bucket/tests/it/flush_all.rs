//! Flushes of a bucket by a task.

mod model;

use crate::scans::{all, continue_scan, create};
use crate::tools::*;
use kedge_bucket::{
    BucketChange, CompactionRequest, ScanEnd, ScanFound, ScanLimits, ScanRequirements,
};
use kedge_disk::SimDisk;
use kedge_executor::Pool;
use kedge_types::{Seqno, Status, VbId, VbUuid};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

type FlushResult = Arc<Mutex<Option<Result<(), Status>>>>;

/// Begins a flush. Returns the receiver of its result.
fn begin(open: &Open) -> (Result<(), Status>, FlushResult) {
    let told = FlushResult::default();
    let tell = Arc::clone(&told);
    let begun = open.bucket.begin_flush_all(open.ctx(), move |result| {
        *tell.lock().unwrap() = Some(result);
    });
    (begun, told)
}

#[test]
fn flush_runs_on_auxio_and_is_durable_when_reported() {
    for commit_log in [true, false] {
        let disk = SimDisk::new(1);
        let mut site = sim(&disk);
        site.config.commit_log = commit_log;
        let (open, steps) = site.open_with_manual_tasks();
        for n in 0..50 {
            open.set(&format!("key-{n}"), b"1").unwrap();
        }
        open.bucket.persistence().apply().unwrap();
        steps.run();
        let before = disk.operations();
        let (begun, told) = begin(&open);
        assert_eq!(begun, Ok(()));
        // The caller continues with other work.
        assert_eq!(disk.operations(), before);
        assert_eq!(open.get("key-1").unwrap(), b"1");
        assert_eq!(*told.lock().unwrap(), None);
        let tasks = open.executor.tasks();
        let task = tasks.iter().find(|task| task.kind == "bucket_flush");
        assert_eq!(task.unwrap().pool, Pool::AuxIo);
        while told.lock().unwrap().is_none() {
            assert!(steps.run_one(Pool::AuxIo));
        }
        assert_eq!(*told.lock().unwrap(), Some(Ok(())));
        assert_eq!(open.get("key-1"), Err(Status::KeyNotFound));
        disk.crash(2);
        let (again, _steps) = site.open_with_manual_tasks();
        assert_eq!(again.bucket.wait_loaded().unwrap().documents, 0);
        again.bucket.shutdown();
        open.bucket.shutdown();
    }
}

#[test]
fn disabled_flush_is_rejected_at_once() {
    let (open, steps) = sim(&SimDisk::new(3)).open_with_manual_tasks();
    open.set("key", b"1").unwrap();
    let change = BucketChange {
        flush_enabled: Some(false),
        ..BucketChange::default()
    };
    open.bucket.update(&change).unwrap();
    let (begun, told) = begin(&open);
    assert_eq!(begun, Err(Status::NotSupported));
    steps.run();
    assert_eq!(*told.lock().unwrap(), None);
    assert_eq!(open.get("key").unwrap(), b"1");
    open.bucket.shutdown();
}

#[test]
fn waiting_flush_fails_when_the_bucket_shuts_down() {
    let (open, _steps) = sim(&SimDisk::new(4)).open_with_manual_tasks();
    let (begun, told) = begin(&open);
    assert_eq!(begun, Ok(()));
    open.bucket.shutdown();
    assert_eq!(*told.lock().unwrap(), Some(Err(Status::TemporaryFailure)));
}

/// Bug: a compaction between a flush and its application copied a void file, and reported to the vBucket the tombstones that it
/// had purged. The new history then had a purge seqno above its high seqno, so that each client with an older seqno was rolled
/// back to zero.
#[test]
fn compaction_after_a_flush_does_not_advance_the_purge_seqno() {
    let mut site = sim(&SimDisk::new(5));
    let (open, steps) = site.open_with_manual_tasks();
    let names: Vec<String> = names_in(VbId(0)).take(50).collect();
    for name in &names {
        open.set(name, b"1").unwrap();
        let key = key(name);
        done(open.bucket.documents().delete(open.ctx(), &write(&key))).unwrap();
    }
    open.bucket.persistence().apply().unwrap();
    open.bucket.flush_all(open.ctx()).unwrap();
    let request = CompactionRequest {
        vbuckets: Some(vec![VbId(0)]),
        drop_deletes: true,
        ..CompactionRequest::default()
    };
    let ticket = open
        .bucket
        .persistence()
        .compactions()
        .compact(&request)
        .unwrap();
    open.set(&names[0], b"2").unwrap();
    steps.pass(SEC * 60);
    assert!(ticket.wait().is_complete());
    let figures = open.bucket.vbucket_figures(VbId(0)).unwrap();
    let seqnos = (figures.purge_seqno, figures.applied_seqno);
    assert_eq!(seqnos, (Seqno(0), Seqno(1)));
    let file = open.bucket.file_figures(VbId(0)).unwrap().unwrap();
    assert_eq!(
        (file.purge_seqno, file.live, file.deleted),
        (Seqno(0), 1, 0)
    );
    open.bucket.shutdown();
}

/// Returns the result of a range scan whose client knows the branch and high seqno; `None` if the vBucket was flushed meanwhile.
fn rounds_seen(open: &Open, vb: VbId, uuid: VbUuid, seqno: Seqno) -> Option<Vec<String>> {
    let mut request = all();
    request.requirements = Some(ScanRequirements {
        uuid,
        seqno,
        seqno_exists: false,
        timeout_ms: Some(30_000),
    });
    let is_flushed = [
        Status::VbUuidNotEqual,
        Status::NotMyVbucket,
        Status::KeyNotFound,
    ];
    let made = create(open, vb, &request);
    let part = made.and_then(|id| continue_scan(open, vb, &id, ScanLimits::default()));
    match part {
        Ok(part) => {
            assert_eq!(part.end, Some(ScanEnd::Complete));
            let ScanFound::Documents { items, .. } = part.found else {
                panic!("keys only");
            };
            let value = |item: &kedge_bucket::Item| item.value().escape_ascii().to_string();
            Some(items.iter().map(value).collect())
        }
        Err(status) => {
            assert!(is_flushed.contains(&status), "{status:?}");
            None
        }
    }
}

#[test]
fn range_scans_during_flushes_return_documents_of_their_branch_only() {
    const ROUNDS: usize = 60;
    let vb = VbId(0);
    let names: Vec<String> = names_in(vb).take(40).collect();
    for commit_log in [true, false] {
        let mut site = sim(&SimDisk::new(6));
        site.config.commit_log = commit_log;
        site.config.apply_max_lag_ms = 1;
        let open = site.open();
        let figures = || open.bucket.vbucket_figures(vb).unwrap();
        let is_over = AtomicBool::new(false);
        let branches = Mutex::new(HashMap::new());
        let mut seen = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    open.bucket.flush_all(open.ctx()).unwrap();
                    let branch = figures().failover[0].0;
                    branches.lock().unwrap().insert(branch, round.to_string());
                    for name in &names {
                        open.set(name, round.to_string().as_bytes()).unwrap();
                    }
                    if round % 3 == 0 {
                        open.bucket.persistence().apply().unwrap();
                    }
                }
                is_over.store(true, Ordering::SeqCst);
            });
            while !is_over.load(Ordering::SeqCst) {
                let known = figures();
                let branch = known.failover[0].0;
                if let Some(rounds) = rounds_seen(&open, vb, branch, known.high_seqno) {
                    seen.push((branch, known.high_seqno, rounds));
                }
            }
        });
        let branches = branches.into_inner().unwrap();
        for (branch, high, rounds) in &seen {
            let round = branches.get(branch).expect("each flush has one");
            assert!(
                rounds.iter().all(|seen| seen == round),
                "{round}: {rounds:?}"
            );
            assert!(rounds.len() as u64 >= high.get(), "{high}: {rounds:?}");
        }
        // At least the last one.
        let known = figures();
        let last = rounds_seen(&open, vb, known.failover[0].0, known.high_seqno);
        assert_eq!(last.map(|rounds| rounds.len()), Some(names.len()));
        assert_eq!(open.sink.fatal(), [""; 0]);
        open.bucket.shutdown();
    }
}
