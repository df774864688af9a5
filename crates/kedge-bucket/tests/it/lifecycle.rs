//! Opening, closing, flushing and dropping of buckets.

use crate::tools::*;
use kedge_bucket::{
    Bucket, BucketChange, BucketConfig, BucketError, BucketSetup, CompactionRequest, Completion,
    Cookie, Outcome, Read, RecoveryMode, WarmupBehavior, Write,
};
use kedge_disk::{Fault, PosixDisk, SimDisk};
use kedge_executor::Pool;
use kedge_types::{Seqno, Status, VbId};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn commands_fail_temporarily_while_loading() {
    let site = sim(&SimDisk::new(3));
    let sink = Arc::new(Sink::default());
    let bucket = Bucket::open(site.setup(&sink)).unwrap();
    let open = site.opened(bucket, sink);
    // In either case the status is one of the two, and never `NotMyVbucket`.
    match open.get("a") {
        Err(Status::TemporaryFailure | Status::KeyNotFound) => {}
        other => panic!("{other:?}"),
    }
    open.bucket.wait_loaded().unwrap();
    assert_eq!(open.get("a"), Err(Status::KeyNotFound));
    open.bucket.shutdown();
}

#[test]
fn missing_vbucket_is_reported_as_not_my_vbucket() {
    let open = sim(&SimDisk::new(4)).open();
    let key = key("a");
    let result = open.bucket.documents().get(
        open.ctx(),
        &Read {
            vb: VbId(4),
            ..read(&key)
        },
        |_| (),
    );
    assert_eq!(result, Err(Status::NotMyVbucket));
    open.bucket.shutdown();
}

#[test]
fn flush_survives_a_crash_and_recycles_the_log() {
    let disk = SimDisk::new(5);
    let site = sim(&disk);
    let open = site.open();
    let value = vec![b'v'; 100_000];
    for n in 0..60 {
        open.set(&format!("key-{n}"), &value).unwrap();
        open.bucket.persistence().sync().unwrap();
    }
    let before = open.figure("ep_log_bytes");
    assert!(before > 6_000_000, "{before}");
    open.bucket.flush_all(open.ctx()).unwrap();
    assert_eq!(open.get("key-1"), Err(Status::KeyNotFound));
    assert!(
        open.figure("ep_log_bytes") < before / 2,
        "segments were given back"
    );
    assert!(open.figure("mem_used") < 100_000);
    open.set("after", b"1").unwrap();
    open.bucket.persistence().sync().unwrap();
    disk.crash(9);
    let again = site.open();
    assert_eq!(again.bucket.wait_loaded().unwrap().documents, 1);
    assert_eq!(again.get("after").unwrap(), b"1");
    again
        .bucket
        .update(&BucketChange {
            flush_enabled: Some(false),
            ..BucketChange::default()
        })
        .unwrap();
    assert_eq!(
        again.bucket.flush_all(again.ctx()),
        Err(Status::NotSupported)
    );
    again.bucket.shutdown();
    open.bucket.shutdown();
}

/// Bug: the UUID of a vBucket's first branch is derived from that of the bucket. After a crash before anything of the vBucket
/// was durable, the next process used the same seqnos of the same branch again. A client that had seen the lost change was told
/// that it was persisted; a DCP consumer that had it resumed after it, and missed what was written instead.
#[test]
fn restart_after_a_crash_does_not_reuse_a_branch_without_persisted_changes() {
    for commit_log in [true, false] {
        let disk = SimDisk::new(17);
        let mut site = sim(&disk);
        site.config.commit_log = commit_log;
        let (open, _steps) = site.open_with_manual_tasks();
        let lost = open.set("key", b"lost").unwrap();
        // The power fails before anything of the change is written.
        disk.fail_after(0, Fault::PowerLoss);
        site.disk.create_dir_all(Path::new("/off")).unwrap_err();
        open.bucket.shutdown();
        disk.crash(1);
        // This vBucket is not written to.
        for clean in [true, false] {
            let (again, _steps) = site.open_with_manual_tasks();
            if clean {
                again.bucket.shutdown();
            } else {
                disk.crash(2);
            }
            site.executor.shutdown();
        }
        let (again, _steps) = site.open_with_manual_tasks();
        assert_eq!(again.get("key"), Err(Status::KeyNotFound));
        let other = again.set("other", b"1").unwrap();
        assert_ne!(other.uuid, lost.uuid, "{commit_log}");
        let vb = key("key").vbucket(4);
        let table = again.bucket.failover_table(again.ctx(), vb).unwrap();
        assert_eq!(table.ended_at(lost.uuid), Some(Seqno(0)), "{commit_log}");
        again.bucket.shutdown();
    }
}

/// Bug: the log ended with the record of the clean shutdown until something was appended. A crash before that was taken for a
/// clean shutdown, and the next process used the same seqnos of the same branch again.
#[test]
fn crash_before_the_first_commit_is_not_taken_for_a_clean_shutdown() {
    let mut branched = 0;
    // The start may find the disk full at any of its operations.
    for full_at in 0..12 {
        let disk = SimDisk::new(18);
        let mut site = sim(&disk);
        let (open, _steps) = site.open_with_manual_tasks();
        let kept = open.set("key", b"kept").unwrap();
        open.bucket.shutdown();
        disk.fail_operation(disk.operations() + full_at, Fault::NoSpace);
        let steps = site.manual_tasks();
        let sink = Arc::new(Sink::default());
        let bucket = Bucket::open(site.setup(&sink)).unwrap();
        steps.run();
        let Ok(report) = bucket.wait_loaded() else {
            assert!(full_at > 0);
            bucket.shutdown();
            continue;
        };
        branched += u32::from(!report.clean);
        let again = site.opened(bucket, sink);
        let lost = again.set("key", b"lost").unwrap();
        assert_eq!(lost.uuid == kept.uuid, report.clean);
        // The power fails before anything of the change is written.
        disk.clear_faults();
        disk.fail_after(0, Fault::PowerLoss);
        site.disk.create_dir_all(Path::new("/off")).unwrap_err();
        again.bucket.shutdown();
        disk.crash(1);
        let (last, _steps) = site.open_with_manual_tasks();
        assert_eq!(last.get("key").unwrap(), b"kept", "{full_at}");
        let other = last.set("key", b"other").unwrap();
        assert_eq!(other.seqno, lost.seqno, "{full_at}");
        assert_ne!(other.uuid, lost.uuid, "{full_at}");
        last.bucket.shutdown();
    }
    assert_eq!(branched, 1, "there was no room for the record");
}

#[test]
fn destruction_leaves_no_files() {
    let disk = SimDisk::new(6);
    let mut site = sim(&disk);
    site.executor = executor();
    let open = site.open();
    open.set("a", b"1").unwrap();
    open.destroy();
    assert!(!site.disk.exists(&site.dir).unwrap());
    let kinds = open.executor.kinds();
    let removal = kinds
        .iter()
        .find(|info| info.kind.name() == "bucket_deletion");
    let removal = removal.expect("a task removed the directory");
    let ran = (removal.kind.pool(), removal.run_time.count);
    assert_eq!(ran, (Pool::AuxIo, 1));
    let fresh = site.open();
    assert_eq!(fresh.get("a"), Err(Status::KeyNotFound));
    fresh.bucket.shutdown();
}

#[test]
fn seqno_persistence_completes_when_the_seqno_is_persisted() {
    let open = sim(&SimDisk::new(7)).open();
    let key = key("a");
    let vb = key.vbucket(4);
    open.set("a", b"1").unwrap();
    let outcome = open
        .bucket
        .seqno_persistence(open.ctx(), vb, Seqno(1), Cookie(3))
        .unwrap();
    if outcome == Outcome::Parked {
        open.bucket.persistence().writers().request_flush(false);
        assert!(matches!(
            open.sink.wait_any(3),
            Completion::Persisted(Ok(()))
        ));
    }
    let far = open
        .bucket
        .seqno_persistence(open.ctx(), vb, Seqno(99), Cookie(4))
        .unwrap();
    assert_eq!(far, Outcome::Parked);
    open.bucket.shutdown();
    assert!(matches!(
        open.sink.wait_any(4),
        Completion::Persisted(Err(Status::TemporaryFailure))
    ));
}

#[test]
fn invalid_settings_are_rejected_by_name() {
    let mut site = sim(&SimDisk::new(8));
    site.config.vbuckets = 0;
    let refused = Bucket::open(site.setup(&Arc::new(Sink::default()))).unwrap_err();
    assert!(
        matches!(&refused, BucketError::Config { why, .. } if why.contains("vbuckets")),
        "{refused}"
    );
    let text = serde_json::to_string(&BucketConfig::new("b", 16, 1 << 20)).unwrap();
    let back: BucketConfig = serde_json::from_str(&text).unwrap();
    assert_eq!((back.vbuckets, back.flush_enabled), (16, false));
    let unknown = text.replacen("\"name\"", "\"nmae\"", 1);
    assert!(
        serde_json::from_str::<BucketConfig>(&unknown)
            .unwrap_err()
            .to_string()
            .contains("nmae")
    );
}

#[test]
fn bucket_on_a_real_disk_stores_documents_of_every_size() {
    let dir = tempfile::tempdir().unwrap();
    let mut site = sim(&SimDisk::new(10));
    site.disk = Arc::new(PosixDisk);
    site.dir = dir.path().join("bucket");
    let open = site.open();
    let sizes = [0, 1, 100, 4_095, 4_096, 100_000, 3 << 20, 20 << 20];
    for size in sizes {
        open.set(&format!("size-{size}"), &vec![b'x'; size])
            .unwrap();
    }
    assert_eq!(
        open.set("too-large", &vec![b'x'; (20 << 20) + 1]),
        Err(Status::TooBig)
    );
    open.bucket.persistence().sync().unwrap();
    open.bucket.shutdown();
    let again = site.open();
    for size in sizes {
        assert_eq!(again.get(&format!("size-{size}")).unwrap().len(), size);
    }
    again.bucket.shutdown();
}

#[test]
fn bucket_accepts_1_to_65535_vbuckets() {
    for (seed, vbuckets) in [(21, 1), (22, u16::MAX)] {
        let mut site = sim(&SimDisk::new(seed));
        site.config.vbuckets = vbuckets;
        let last = VbId(vbuckets - 1);
        let k = key("k");
        let open = site.open();
        assert_eq!(open.bucket.vbuckets(), vbuckets);
        let in_last = Write {
            vb: last,
            ..write(&k)
        };
        assert!(matches!(open.store(&in_last, b"1"), Ok(Outcome::Done(_))));
        let nowhere = Read {
            vb: VbId(u16::MAX),
            ..read(&k)
        };
        let beyond = open.bucket.documents().get(open.ctx(), &nowhere, |_| ());
        assert_eq!(beyond, Err(Status::NotMyVbucket));
        open.bucket.shutdown();
        let again = site.open();
        let found = again.bucket.documents().get(
            again.ctx(),
            &Read {
                vb: last,
                ..read(&k)
            },
            |document| document.item.value().to_vec(),
        );
        assert_eq!(done(found).unwrap(), b"1");
        again.bucket.shutdown();
    }
}

#[test]
fn damaged_log_is_rejected_with_its_position_and_salvaged_on_request() {
    let disk = SimDisk::new(23);
    let site = sim(&disk);
    let open = site.open();
    for n in 1..=20 {
        open.persist(&format!("key-{n}"), &[b'v'; 600], n).unwrap();
        open.bucket.persistence().writers().request_flush(true);
        open.sink.wait(n).unwrap();
        open.bucket.persistence().sync().unwrap();
    }
    // Changes that are in the files need not be salvaged.
    open.bucket.shutdown_within(Duration::ZERO);
    let log = site.dir.join("log");
    let segment = site
        .disk
        .list(&log)
        .unwrap()
        .into_iter()
        .find(|name| name.ends_with(".log"));
    let path = log.join(segment.unwrap());
    // After the header page, in the records of the first few documents.
    for offset in [4_096 + 900, 4_096 + 2_500] {
        disk.flip(&path, offset, 0x55);
    }
    let sink = Arc::new(Sink::default());
    let refused = Bucket::open(site.setup(&sink)).unwrap();
    let why = refused.wait_loaded().unwrap_err().to_string();
    assert!(
        why.contains(".log at byte") && why.contains("expected"),
        "{why}"
    );
    refused.shutdown();
    let salvage = BucketSetup {
        recovery: RecoveryMode::Salvage,
        ..site.setup(&sink)
    };
    let open = site.opened(Bucket::open(salvage).unwrap(), sink);
    let report = open.bucket.wait_loaded().unwrap();
    assert!(
        report.skipped > 0 && (10..20).contains(&report.documents),
        "{report:?}"
    );
    assert_eq!(open.get("key-20").unwrap(), [b'v'; 600]);
    open.set("after", b"1").unwrap();
    open.bucket.shutdown();
    let again = site.open();
    assert_eq!(
        again.get("after").unwrap(),
        b"1",
        "strict again: what was skipped is known"
    );
    again.bucket.shutdown();
}

#[test]
fn destruction_under_load_leaves_no_tasks() {
    let mut site = sim(&SimDisk::new(24));
    site.executor = executor();
    for round in 0..10 {
        let open = site.open();
        let refused = std::sync::atomic::AtomicU32::new(0);
        std::thread::scope(|scope| {
            for thread in 0..3_u64 {
                let (open, refused) = (&open, &refused);
                scope.spawn(move || {
                    let mut cookie = thread * 1_000_000;
                    loop {
                        cookie += 1;
                        if open.persist(&format!("{cookie}"), b"1", cookie).is_err() {
                            break;
                        }
                        open.bucket
                            .persistence()
                            .writers()
                            .request_flush(cookie.is_multiple_of(3));
                    }
                    refused.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                });
            }
            until("writes are taken", || {
                open.figure("curr_items") > 50 * round
            });
            open.destroy();
            assert_eq!(site.executor.tasks(), [], "round {round}");
        });
        assert_eq!(refused.into_inner(), 3);
        assert!(!site.disk.exists(&site.dir).unwrap());
    }
    site.executor.shutdown();
}

#[test]
fn shutdown_during_loading_loses_nothing() {
    let mut site = sim(&SimDisk::new(25));
    site.executor = executor();
    let open = site.open();
    for n in 0..20_000 {
        open.set(&format!("key-{n}"), b"1").unwrap();
    }
    open.bucket.shutdown();
    for _ in 0..20 {
        let bucket = Bucket::open(site.setup(&Arc::new(Sink::default()))).unwrap();
        bucket.shutdown();
        assert_eq!(site.executor.tasks(), []);
        // Whichever comes first, all waiters get a result.
        match bucket.wait_loaded() {
            Ok(report) => assert_eq!(report.documents, 20_000),
            Err(BucketError::NotLoaded(_)) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
    let again = site.open();
    assert_eq!(again.figure("curr_items"), 20_000);
    again.bucket.shutdown();
    site.executor.shutdown();
}

/// All long operations are in progress or about to start: documents are read after a start, others are evicted, and
/// compactions and clients wait.
#[test]
fn destruction_during_work_completes_all_commands_and_leaves_no_files() {
    let mut site = sim(&SimDisk::new(26));
    site.config.memory.warmup_behavior = WarmupBehavior::Background;
    let open = site.open();
    for n in 0..4_000 {
        open.set(&format!("key-{n}"), &[b'v'; 500]).unwrap();
    }
    open.bucket.shutdown();
    let (open, steps) = site.begin_ticking(MS);
    let bucket = &open.bucket;
    while bucket.is_loading() {
        assert!(steps.run_one(Pool::Reader));
    }
    while open.figure("ep_warmup_value_count") == 0 {
        assert!(steps.run_one(Pool::AuxIo));
    }
    let ticket = bucket
        .persistence()
        .compactions()
        .compact(&CompactionRequest::default())
        .unwrap();
    let change = BucketChange {
        quota_bytes: Some(1 << 17),
        ..BucketChange::default()
    };
    bucket.update(&change).unwrap();
    let has_begun = (0..100).any(|_| {
        steps.run_one(Pool::NonIo);
        open.figure("ep_num_value_ejects") > 0
    });
    assert!(has_begun, "documents leave memory");
    // This document is read last.
    let k = key(&names_in(VbId(3)).next().unwrap());
    let wanted = Read {
        cookie: Cookie(1),
        ..read(&k)
    };
    assert_eq!(
        bucket.documents().get(open.ctx(), &wanted, |_| ()),
        Ok(Outcome::Parked)
    );
    let far = bucket.seqno_persistence(open.ctx(), VbId(0), Seqno(1 << 40), Cookie(2));
    assert_eq!(far, Ok(Outcome::Parked));
    assert!(bucket.residency().warmup().is_warming() && open.figure("ep_num_non_resident") > 0);
    assert!(open.figure("mem_used") > open.figure("ep_mem_high_wat"));
    assert_eq!(ticket.report(), None);
    open.destroy();
    assert_eq!(ticket.report().map(|report| report.cancelled), Some(4));
    let refused = Status::TemporaryFailure;
    assert!(
        matches!(open.sink.get(1), Some(Completion::Read { result: Err(it) }) if it == refused)
    );
    assert!(matches!(open.sink.get(2), Some(Completion::Persisted(Err(it))) if it == refused));
    assert_eq!(open.executor.tasks(), []);
    assert!(!site.disk.exists(&site.dir).unwrap());
    assert_eq!(steps.run(), 0);
}

/// Bug: a shutdown with a thousand small documents took two seconds, because it applied each to its vBucket's file, and every
/// file needs syncs of its own. All changes were already in the log, which the next start reads within milliseconds.
#[test]
fn shutdown_does_not_apply_a_short_log_of_many_vbuckets() {
    for (documents, applies) in [(400, false), (20, true)] {
        let disk = SimDisk::new(33);
        let mut site = sim(&disk);
        site.config.vbuckets = 256;
        let key = |n: u32| key(&format!("key-{n}"));
        let (open, _steps) = site.open_with_manual_tasks();
        for n in 0..documents {
            let key = key(n);
            let write = Write {
                vb: key.vbucket(256),
                ..write(&key)
            };
            assert!(open.store(&write, b"value").is_ok());
        }
        open.bucket.persistence().sync().unwrap();
        let before = disk.operations();
        open.bucket.shutdown();
        assert_eq!(open.bucket.unclean(), None);
        let operations = disk.operations() - before;
        assert_eq!(operations > 40, applies, "{operations} operations");
        assert_eq!(open.figure("ep_apply_commits") > 0, applies);
        disk.crash(1);
        let (again, _steps) = site.open_with_manual_tasks();
        let report = again.bucket.wait_loaded().unwrap();
        assert!(report.clean);
        for n in 0..documents {
            let key = key(n);
            let wanted = Read {
                vb: key.vbucket(256),
                ..read(&key)
            };
            let found = done(
                again
                    .bucket
                    .documents()
                    .get(again.ctx(), &wanted, |found| found.item.value().to_vec()),
            );
            assert_eq!(found.unwrap(), b"value");
        }
        again.bucket.shutdown();
    }
}
