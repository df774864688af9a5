//! The selection of files for compaction, and what a compaction removes, step by step.

use super::*;
use kedge_bucket::{
    Bucket, BucketChange, CompactionChange, CompactionPool, CompactionRate, Timing,
};
use kedge_disk::SimDisk;
use kedge_executor::Pool;
use kedge_types::{Seqno, Status};
use std::sync::Arc;

fn change(compaction: CompactionChange) -> BucketChange {
    BucketChange {
        compaction,
        ..BucketChange::default()
    }
}

#[test]
fn fragmented_files_are_compacted_automatically() {
    let mut site = sim(&SimDisk::new(1));
    let (open, steps) = churned(&mut site, 60);
    let before = files(&site);
    assert!(before.iter().all(|(_, len)| *len > 2 << 20), "{before:?}");
    assert_eq!(open.figure("ep_compactions"), 0);
    steps.pass(SEC * 11);
    let after = files(&site);
    assert_eq!(names(&site), revision(2));
    assert!(after.iter().all(|(_, len)| *len < 200 << 10), "{after:?}");
    let sum = |files: &[(String, u64)]| files.iter().map(|(_, len)| len).sum::<u64>();
    assert_eq!(
        open.figure("ep_compaction_freed_bytes"),
        sum(&before) - sum(&after)
    );
    assert!(open.figure("ep_compaction_bytes") > sum(&after));
    for timing in [Timing::Compaction, Timing::CompactionLock] {
        let snapshot = open.bucket.timings().snapshot(timing.name()).unwrap();
        assert_eq!(snapshot.count, 4);
    }
    check(&open, 60);
    steps.pass(SEC * 3_600);
    assert_eq!(open.figure("ep_compactions"), 4, "once is enough");
    assert_eq!(open.figure("ep_compactions_running"), 0);
    check_reopened(&mut site, &open, 60);
}

#[test]
fn compaction_throttle_opens_when_garbage_outgrows_compactions() {
    let mut site = sim(&SimDisk::new(4));
    site.config.compaction.min_bytes = 64 << 10;
    let lowest = |open: &Open| open.figure("ep_compaction_bytes_per_sec_min");
    let (open, steps) = churned(&mut site, 60);
    let paced = CompactionChange {
        throttle: Some(CompactionRate::Auto),
        ..CompactionChange::default()
    };
    open.bucket.update(&change(paced)).unwrap();
    let usual = lowest(&open);
    assert!(usual > 0);
    // A requested compaction may have reasons other than garbage.
    let ticket = open
        .bucket
        .persistence()
        .compactions()
        .compact(&CompactionRequest::default())
        .unwrap();
    steps.run();
    assert_eq!(ticket.wait().compacted, 4);
    assert_eq!(lowest(&open), usual);
    churn(&open, 60);
    steps.pass(SEC * 11);
    assert_eq!(open.figure("ep_compactions"), 8);
    assert!(lowest(&open) > 10 * usual);
    churn(&open, 3);
    steps.pass(SEC * 11);
    assert_eq!(open.figure("ep_compactions"), 12);
    assert_eq!(lowest(&open), usual);
    open.bucket.shutdown();
}

#[test]
fn settings_decide_when_a_file_is_fragmented() {
    let mut site = sim(&SimDisk::new(2));
    site.config.compaction.fragmentation_percent = 100;
    let (open, steps) = churned(&mut site, 60);
    steps.pass(SEC * 11);
    assert_eq!(open.figure("ep_compactions"), 0, "100 % is never");
    let update = |compaction| {
        open.bucket.update(&change(compaction)).unwrap();
        steps.pass(SEC * 11);
        open.figure("ep_compactions")
    };
    let much = CompactionChange {
        fragmentation_percent: Some(50),
        min_bytes: Some(100 << 20),
        ..CompactionChange::default()
    };
    assert_eq!(update(much), 0, "it would not give back enough");
    let less = CompactionChange {
        min_bytes: Some(1 << 20),
        ..CompactionChange::default()
    };
    assert_eq!(update(less), 4, "files are looked at again");
    let wrong = CompactionChange {
        fragmentation_percent: Some(101),
        ..CompactionChange::default()
    };
    let why = open.bucket.update(&change(wrong)).unwrap_err();
    assert!(why.contains("compaction_fragmentation_percent"), "{why}");
    open.bucket.shutdown();
}

#[test]
fn garbage_of_an_earlier_process_is_compacted() {
    let mut site = sim(&SimDisk::new(3));
    let (open, _steps) = churned(&mut site, 60);
    open.bucket.shutdown();
    assert_eq!(names(&site), revision(1));
    let (again, steps) = site.open_with_manual_tasks();
    steps.pass(SEC * 11);
    assert_eq!(names(&site), revision(2));
    check(&again, 60);
    again.bucket.shutdown();
}

#[test]
fn files_are_compacted_without_a_commit_log() {
    let mut site = sim(&SimDisk::new(4));
    site.config.commit_log = false;
    let (open, steps) = site.open_with_manual_tasks();
    for round in 1..=60 {
        for n in 0..KEYS {
            open.set(&format!("key-{n}"), &noise(round * KEYS + n, 4_096))
                .unwrap();
        }
        open.bucket.persistence().sync().unwrap();
    }
    steps.pass(SEC * 11);
    assert_eq!(names(&site), revision(2));
    check(&open, 60);
    check_reopened(&mut site, &open, 60);
}

#[test]
fn compaction_requests_are_merged_and_each_gets_a_report() {
    let mut site = sim(&SimDisk::new(5));
    let (open, steps) = churned(&mut site, 3);
    let first = open
        .bucket
        .persistence()
        .compactions()
        .compact(&all())
        .unwrap();
    let second = open
        .bucket
        .persistence()
        .compactions()
        .compact(&only(VbId(3)))
        .unwrap();
    assert_eq!((first.report(), second.report()), (None, None));
    let progress = open.bucket.persistence().compactions().progress();
    assert_eq!(progress.iter().filter(|it| it.is_running).count(), 1);
    assert_eq!(progress.len(), 4);
    assert_eq!(open.figure("ep_compactions_queued"), 3);
    steps.run();
    let report = first.report().unwrap();
    assert_eq!((report.compacted, report.is_complete()), (4, true));
    assert!(report.bytes_after < report.bytes_before / 2);
    assert_eq!(second.wait().compacted, 1);
    assert_eq!(open.figure("ep_compactions"), 4);
    assert_eq!(open.bucket.persistence().compactions().progress(), []);
    assert_eq!(
        open.bucket
            .persistence()
            .compactions()
            .compact(&only(VbId(4)))
            .unwrap_err(),
        Status::NotMyVbucket
    );
    check(&open, 3);
    open.bucket.shutdown();
    let after = open
        .bucket
        .persistence()
        .compactions()
        .compact(&all())
        .unwrap_err();
    assert_eq!(after, Status::TemporaryFailure);
}

#[test]
fn compaction_skips_a_vbucket_without_a_file() {
    let mut site = sim(&SimDisk::new(6));
    let steps = site.manual_tasks();
    let bucket = Bucket::open(site.setup(&Arc::new(Sink::default()))).unwrap();
    assert_eq!(
        bucket
            .persistence()
            .compactions()
            .compact(&all())
            .unwrap_err(),
        Status::TemporaryFailure,
        "it is loading"
    );
    steps.run();
    let ticket = bucket.persistence().compactions().compact(&all()).unwrap();
    steps.run();
    assert_eq!(ticket.wait().without_file, 4);
    bucket.shutdown();
}

#[test]
fn cancelled_compaction_request_does_not_run() {
    let mut site = sim(&SimDisk::new(7));
    let (open, steps) = churned(&mut site, 3);
    let ticket = open
        .bucket
        .persistence()
        .compactions()
        .compact(&all())
        .unwrap();
    assert_eq!(
        open.bucket
            .persistence()
            .compactions()
            .cancel(Some(&[VbId(2)])),
        Ok(1)
    );
    assert_eq!(
        open.bucket
            .persistence()
            .compactions()
            .cancel(Some(&[VbId(2)])),
        Ok(0)
    );
    assert_eq!(open.bucket.persistence().compactions().cancel(None), Ok(3));
    assert_eq!(
        open.bucket
            .persistence()
            .compactions()
            .cancel(Some(&[VbId(9)])),
        Err(Status::NotMyVbucket)
    );
    steps.run();
    let report = ticket.report().unwrap();
    assert_eq!((report.cancelled, report.is_complete()), (4, false));
    assert_eq!(names(&site), revision(1));
    let again = compact(&open, &steps, &only(VbId(2)));
    assert_eq!(again.compacted, 1, "it may be asked for again");
    open.bucket.shutdown();
}

#[test]
fn shutdown_reports_to_waiters_of_compactions() {
    let mut site = sim(&SimDisk::new(8));
    let (open, _steps) = churned(&mut site, 3);
    let ticket = open
        .bucket
        .persistence()
        .compactions()
        .compact(&all())
        .unwrap();
    open.bucket.shutdown();
    assert_eq!(ticket.wait().cancelled, 4);
    assert_eq!(open.executor.tasks(), []);
    assert_eq!(names(&site), revision(1));
}

/// Returns the kind and pool of the due compactions.
fn due(open: &Open) -> Vec<(&'static str, Pool)> {
    let tasks = open.executor.tasks().into_iter();
    let tasks = tasks.filter(|task| task.description.starts_with("compacts"));
    tasks.map(|task| (task.kind, task.pool)).collect()
}

#[test]
fn compaction_pool_and_concurrency_follow_the_settings_at_runtime() {
    let mut site = sim(&SimDisk::new(9));
    site.config.compaction.pool = CompactionPool::Writer;
    site.config.compaction.max_concurrent = 2;
    let (open, steps) = churned(&mut site, 3);
    let ticket = open
        .bucket
        .persistence()
        .compactions()
        .compact(&all())
        .unwrap();
    assert_eq!(due(&open), [("compaction_on_writer", Pool::Writer); 2]);
    let other = CompactionChange {
        pool: Some(CompactionPool::Auxio),
        max_concurrent: Some(3),
        ..CompactionChange::default()
    };
    open.bucket.update(&change(other)).unwrap();
    let mut pools: Vec<_> = due(&open).into_iter().map(|(_, pool)| pool).collect();
    pools.sort_by_key(|pool| *pool == Pool::AuxIo);
    assert_eq!(pools, [Pool::Writer, Pool::Writer, Pool::AuxIo]);
    steps.run();
    assert_eq!(ticket.wait().compacted, 4);
    assert_eq!(due(&open), []);
    open.bucket.shutdown();
}

fn purge_seqno(open: &Open, vb: VbId) -> Seqno {
    open.bucket.vbucket_figures(vb).unwrap().purge_seqno
}

#[test]
fn compaction_purges_old_tombstones_and_advances_the_purge_seqno() {
    let mut site = sim(&SimDisk::new(10));
    let (open, steps) = site.open_with_manual_tasks();
    let vb = key("old").vbucket(4);
    let in_vb = |n: &u32| key(&format!("key-{n}")).vbucket(4) == vb;
    let young = format!("key-{}", (0..).find(in_vb).unwrap());
    for name in ["old", &young, "stays"] {
        open.set(name, b"1").unwrap();
    }
    let old_seqno = open.delete("old").seqno;
    steps.jump(SEC * 2 * 24 * 3_600);
    let young_seqno = open.delete(&young).seqno;
    open.bucket.persistence().apply().unwrap();
    let purged = || compact(&open, &steps, &only(vb)).tombstones;
    assert_eq!(purged(), 0);
    steps.jump(SEC * 25 * 3_600);
    // The last entry of a file is always kept.
    open.set(&young, b"2").unwrap();
    let last_seqno = open.delete(&young).seqno;
    open.bucket.persistence().apply().unwrap();
    assert_eq!(purged(), 1);
    assert_eq!(purge_seqno(&open, vb), old_seqno);
    assert!(young_seqno > old_seqno && last_seqno > young_seqno);
    open.bucket.shutdown();
    let (again, _steps) = site.open_with_manual_tasks();
    assert_eq!(purge_seqno(&again, vb), old_seqno);
    let meta = |name: &str| {
        let key = key(name);
        done(again.bucket.documents().get_meta(again.ctx(), &read(&key)))
    };
    assert_eq!(meta("old"), Err(Status::KeyNotFound));
    assert!(meta(&young).unwrap().deleted);
    again.bucket.shutdown();
}

#[test]
fn compaction_drops_all_tombstones_on_request() {
    let mut site = sim(&SimDisk::new(11));
    let (open, steps) = site.open_with_manual_tasks();
    let mut tombstones = Vec::new();
    for n in 0..20 {
        let name = format!("key-{n}");
        open.set(&name, b"1").unwrap();
        if key(&name).vbucket(4) == VbId(0) {
            tombstones.push(open.delete(&name).seqno);
        }
    }
    assert!(tombstones.len() > 3, "{tombstones:?}");
    open.bucket.persistence().apply().unwrap();
    let purged = |request| compact(&open, &steps, &request).tombstones;
    let of_now = CompactionRequest {
        purge_before_secs: Some(open.ctx().now.unix_secs() as u32 + 1),
        ..only(VbId(0))
    };
    let up_to = CompactionRequest {
        purge_before_seqno: Some(tombstones[1]),
        ..of_now.clone()
    };
    assert_eq!(purged(only(VbId(0))), 0);
    assert_eq!(purged(up_to), 2);
    assert_eq!(purge_seqno(&open, VbId(0)), tombstones[1]);
    assert_eq!(purged(of_now), tombstones.len() as u64 - 3);
    open.set("key-0", b"2").unwrap();
    let dropped = CompactionRequest {
        drop_deletes: true,
        ..all()
    };
    assert_eq!(purged(dropped), 0, "the last entry of a file is kept");
    assert_eq!(open.get("key-0").unwrap(), b"2");
    open.bucket.shutdown();
}

#[test]
fn compaction_deletes_expired_documents() {
    let mut site = sim(&SimDisk::new(12));
    let (open, steps) = site.open_with_manual_tasks();
    for n in 0..200 {
        let name = format!("key-{n}");
        open.set(&name, b"1").unwrap();
        if n < 150 {
            let key = key(&name);
            open.bucket
                .documents()
                .touch(open.ctx(), &write(&key), 100)
                .unwrap();
        }
    }
    open.bucket.persistence().apply().unwrap();
    // One of the documents lives longer than the file says.
    let kept = key("key-0");
    open.bucket
        .documents()
        .touch(open.ctx(), &write(&kept), 1_000)
        .unwrap();
    steps.jump(SEC * 101);
    let report = compact(&open, &steps, &all());
    assert_eq!((report.compacted, report.expired), (4, 149));
    assert_eq!(open.figure("ep_expired_compactor"), 149);
    assert_eq!(open.figure("vb_active_expired"), 149);
    assert_eq!(open.figure("curr_items"), 51);
    assert_eq!(open.figure("vb_active_tombstones"), 149);
    assert_eq!(compact(&open, &steps, &all()).expired, 0);
    open.bucket.persistence().apply().unwrap();
    open.bucket.shutdown();
    let (again, _steps) = site.open_with_manual_tasks();
    assert_eq!(again.figure("curr_items"), 51);
    assert_eq!(again.figure("vb_active_tombstones"), 149);
    again.bucket.shutdown();
}
