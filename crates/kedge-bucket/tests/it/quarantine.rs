//! vBuckets whose files cannot be read at the start.

use crate::tools::*;
use kedge_bucket::{Bucket, RecoveryMode, VbState};
use kedge_disk::{Disk, Fault, Operation, SimDisk, read_file, replace_file};
use kedge_log::Log;
use kedge_types::{Seqno, Status, VbId, VbUuid};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Returns the name of a document of this vBucket.
fn name(vb: VbId, what: &str) -> String {
    let mut names = (0..).map(|n| format!("{what}-{n}"));
    names.find(|name| key(name).vbucket(4) == vb).unwrap()
}

/// Creates a bucket with one document in each file and one more in the log, and kills it. Returns the path of the first file.
fn with_files_and_log(site: &TestSite, disk: &SimDisk) -> PathBuf {
    let open = site.open();
    for vb in all_vbuckets() {
        open.set(&name(vb, "applied"), b"1").unwrap();
    }
    open.bucket.persistence().apply().unwrap();
    for vb in all_vbuckets() {
        open.set(&name(vb, "logged"), b"2").unwrap();
    }
    open.bucket.persistence().sync().unwrap();
    open.bucket.shutdown_within(Duration::ZERO);
    let first = site.dir.join("0.couch.1");
    assert!(disk.exists(&first).unwrap());
    first
}

#[test]
fn vbucket_with_an_unreadable_file_is_quarantined_without_data_loss() {
    let wrecks: [fn(&SimDisk, &Path); 2] = [
        |disk, file| disk.make_unreadable(file, 4_100),
        |disk, file| {
            // Damages everything but the bytes that mark header blocks.
            for offset in (0..disk.len(file).unwrap()).filter(|offset| offset % 4_096 > 0) {
                disk.flip(file, offset, 0xff);
            }
        },
    ];
    for wreck in wrecks {
        let disk = SimDisk::new(13);
        let site = sim(&disk);
        let first = with_files_and_log(&site, &disk);
        let whole = read_file(&disk, &first).unwrap();
        wreck(&disk, &first);
        for _ in 0..2 {
            let open = site.open();
            assert_eq!(open.figure("ep_vb_quarantined"), 1);
            let refused = open.get(&name(VbId(0), "applied"));
            assert_eq!(refused, Err(Status::TemporaryFailure));
            let refused = open.set(&name(VbId(0), "new"), b"3").map(drop);
            assert_eq!(refused, Err(Status::TemporaryFailure));
            assert_eq!(
                open.bucket.flush_all(open.ctx()),
                Err(Status::TemporaryFailure)
            );
            for vb in all_vbuckets().skip(1) {
                for key in ["applied", "logged"] {
                    assert!(open.get(&name(vb, key)).is_ok(), "{vb} {key}");
                }
                open.set(&name(vb, "new"), b"3").unwrap();
            }
            open.bucket.persistence().apply().unwrap();
            open.bucket.shutdown();
        }
        // The file is restored.
        disk.remove(&first).unwrap();
        replace_file(&disk, &first, &whole).unwrap();
        let open = site.open();
        assert_eq!(open.figure("ep_vb_quarantined"), 0);
        for key in ["applied", "logged"] {
            assert!(open.get(&name(VbId(0), key)).is_ok(), "{key}");
        }
        open.bucket.shutdown();
    }
}

#[test]
fn log_is_not_abandoned_while_a_file_is_unreadable() {
    let disk = SimDisk::new(14);
    let mut site = sim(&disk);
    let first = with_files_and_log(&site, &disk);
    disk.make_unreadable(&first, 4_100);
    site.config.commit_log = false;
    let bucket = Bucket::open(site.setup(&Arc::new(Sink::default()))).unwrap();
    let why = bucket.wait_loaded().unwrap_err().to_string();
    bucket.shutdown();
    assert!(why.contains("could not be applied to the files"), "{why}");
    site.config.commit_log = true;
    let open = site.open();
    assert!(open.get(&name(VbId(1), "logged")).is_ok());
    open.bucket.shutdown();
}

const FIRST: VbId = VbId(0);

/// Creates a bucket with an unreadable first file, with a log or without.
fn with_damage(disk: &SimDisk, commit_log: bool) -> (TestSite, PathBuf) {
    let mut site = sim(disk);
    let first = with_files_and_log(&site, disk);
    if !commit_log {
        site.config.commit_log = false;
        let open = site.open();
        open.bucket.shutdown();
    }
    let first = if disk.exists(&first).unwrap() {
        first
    } else {
        site.dir.join("0.couch.2")
    };
    disk.make_unreadable(&first, 4_100);
    (site, first)
}

fn branches(open: &Open) -> Vec<(VbUuid, Seqno)> {
    open.bucket.failover_log(open.ctx(), FIRST).unwrap()
}

/// Checks the first vBucket after its reset, in a history that begins with `uuid`.
fn check_reset(open: &Open, uuid: VbUuid, commit_log: bool) {
    assert_eq!(open.figure("ep_vb_quarantined"), 0);
    for (key, value) in [("applied", b"1"), ("logged", b"2")] {
        // The log has not recycled anything yet; without a log there is only what the file had.
        let expected = if commit_log {
            Ok(value.to_vec())
        } else {
            Err(Status::KeyNotFound)
        };
        assert_eq!(open.get(&name(FIRST, key)), expected, "{key}");
    }
    assert_eq!(branches(open).last(), Some(&(uuid, Seqno(0))));
    for vb in all_vbuckets().skip(1) {
        for key in ["applied", "logged"] {
            assert!(open.get(&name(vb, key)).is_ok(), "{vb} {key}");
        }
    }
}

#[test]
fn reset_vbucket_is_served_from_the_log_in_a_new_history() {
    for commit_log in [true, false] {
        let disk = SimDisk::new(15);
        let (site, first) = with_damage(&disk, commit_log);
        let open = site.open();
        let reset = |vb| open.bucket.persistence().reset_vbucket(open.ctx(), vb);
        assert_eq!(reset(VbId(1)), Err(Status::Invalid), "it is well");
        assert_eq!(reset(VbId(4)), Err(Status::NotMyVbucket));
        let done = reset(FIRST).unwrap();
        assert_eq!(done.documents, if commit_log { 2 } else { 0 });
        let damaged = PathBuf::from(format!("{}.damaged", first.display()));
        assert_eq!(done.file.as_deref(), Some(&*damaged));
        assert!(!disk.exists(&first).unwrap() && disk.exists(&damaged).unwrap());
        check_reset(&open, done.uuid, commit_log);
        assert_eq!(open.figure("ep_vb_resets"), 1);
        assert_eq!(reset(FIRST), Err(Status::Invalid), "it is served");
        open.set(&name(FIRST, "new"), b"3").unwrap();
        open.bucket.persistence().apply().unwrap();
        assert_eq!(open.figure("ep_log_needed_bytes"), 0, "the log is let go");
        let before = branches(&open);
        open.bucket.shutdown();
        let again = site.open();
        assert_eq!(again.get(&name(FIRST, "new")).unwrap(), b"3");
        check_reset(&again, done.uuid, commit_log);
        assert_eq!(branches(&again), before);
        let used = again.figure("mem_used");
        again.bucket.flush_all(again.ctx()).unwrap();
        assert!(
            again.figure("mem_used") < used,
            "what is counted was counted"
        );
        again.bucket.shutdown();
    }
}

#[test]
fn reset_of_a_quarantined_vbucket_is_atomic_under_power_loss() {
    for commit_log in [true, false] {
        let mut outcomes = [0; 2];
        for nth in 1.. {
            let disk = SimDisk::new(nth);
            let (site, first) = with_damage(&disk, commit_log);
            let open = site.open();
            let at = disk.operations() + nth;
            disk.fail_operation(at, Fault::PowerLoss);
            let reset = open.bucket.persistence().reset_vbucket(open.ctx(), FIRST);
            let failed = disk.operations() >= at;
            disk.crash(nth);
            open.bucket.shutdown();
            assert!(failed || reset.is_ok());
            let again = site.open();
            if again.figure("ep_vb_quarantined") == 1 {
                assert!(reset.is_err(), "it was done");
                assert!(disk.exists(&first).unwrap());
                outcomes[0] += 1;
            } else {
                let began = branches(&again).last().unwrap().0;
                if let Ok(done) = &reset {
                    // Until the new file exists, each start begins a new history.
                    assert_eq!(done.documents, if commit_log { 2 } else { 0 });
                }
                check_reset(&again, began, commit_log);
                assert_ne!(
                    again
                        .bucket
                        .vbucket_figures(VbId(1))
                        .unwrap()
                        .failover
                        .last()
                        .map(|it| it.0),
                    Some(began)
                );
                outcomes[1] += 1;
            }
            again.set(&name(VbId(1), "after"), b"5").unwrap();
            again.bucket.shutdown();
            if !failed {
                break;
            }
        }
        assert!(outcomes[0] > 0 && outcomes[1] > 1, "{outcomes:?}");
    }
}

#[test]
fn reset_that_cannot_rename_the_file_keeps_it_and_can_be_retried() {
    let disk = SimDisk::new(16);
    let (site, first) = with_damage(&disk, true);
    let open = site.open();
    disk.fail_next(Operation::Rename, Fault::Io);
    let refused = open.bucket.persistence().reset_vbucket(open.ctx(), FIRST);
    assert_eq!(refused, Err(Status::TemporaryFailure));
    assert!(disk.exists(&first).unwrap());
    assert_eq!(open.figure("ep_vb_quarantined"), 1);
    let done = open
        .bucket
        .persistence()
        .reset_vbucket(open.ctx(), FIRST)
        .unwrap();
    check_reset(&open, done.uuid, true);
    open.bucket.shutdown();
}

#[test]
fn reset_vbucket_can_be_deleted_and_created_again() {
    for commit_log in [true, false] {
        let disk = SimDisk::new(21);
        let (site, _) = with_damage(&disk, commit_log);
        let open = site.open();
        let vb = VbId(0);
        let refused = Err(Status::TemporaryFailure);
        assert_eq!(open.bucket.states().delete_vbucket(vb), refused);
        assert_eq!(
            open.bucket.states().set_vbucket(vb, VbState::Replica),
            refused
        );
        open.bucket
            .persistence()
            .reset_vbucket(open.ctx(), vb)
            .unwrap();
        open.bucket.states().delete_vbucket(vb).unwrap();
        disk.crash(1);
        open.bucket.shutdown();
        let again = site.open();
        assert_eq!(again.bucket.vbucket_state(vb), Err(Status::NotMyVbucket));
        again
            .bucket
            .states()
            .set_vbucket(vb, VbState::Active)
            .unwrap();
        disk.crash(2);
        again.bucket.shutdown();
        let last = site.open();
        let figures = last.bucket.vbucket_figures(vb).unwrap();
        assert_eq!((figures.state, figures.documents), (VbState::Active, 0));
        last.set(&name(vb, "new"), b"1").unwrap();
        last.bucket.persistence().apply().unwrap();
        last.bucket.shutdown();
        let after = site.open();
        assert_eq!(after.get(&name(vb, "new")).unwrap(), b"1");
        after.bucket.shutdown();
    }
}

#[test]
fn deleted_vbucket_with_an_unreadable_file_stays_deleted() {
    let disk = SimDisk::new(22);
    let site = sim(&disk);
    let first = with_files_and_log(&site, &disk);
    let open = site.open();
    let vb = VbId(0);
    // The log has the deletion, and the file is ignored.
    disk.fail_next(Operation::Create, Fault::NoSpace);
    open.bucket.states().delete_vbucket(vb).unwrap();
    open.bucket.shutdown_within(Duration::ZERO);
    assert!(disk.exists(&first).unwrap());
    disk.make_unreadable(&first, 4_100);
    let again = site.open();
    assert_eq!(again.figure("ep_vb_quarantined"), 1);
    again
        .bucket
        .persistence()
        .reset_vbucket(again.ctx(), vb)
        .unwrap();
    assert_eq!(again.bucket.vbucket_state(vb), Err(Status::NotMyVbucket));
    again.bucket.persistence().apply().unwrap();
    again.bucket.shutdown();
    Log::remove(&*site.disk, &site.dir.join("log")).unwrap();
    let last = site.open();
    assert_eq!(last.bucket.vbucket_state(vb), Err(Status::NotMyVbucket));
    last.bucket.shutdown();
}

/// Returns the error with which a bucket fails to load.
fn refusal(site: &TestSite, recovery: RecoveryMode) -> Option<String> {
    let mut setup = site.setup(&Arc::new(Sink::default()));
    setup.recovery = recovery;
    let bucket = Bucket::open(setup).unwrap();
    let why = bucket.wait_loaded().err().map(|error| error.to_string());
    bucket.shutdown_within(Duration::ZERO);
    why
}

#[test]
fn vbucket_with_a_missing_or_truncated_file_is_quarantined() {
    // Bug: a missing file was served as an empty vBucket, and a truncated one, without a log, at an older commit.
    for (commit_log, is_cut) in [(true, false), (true, true), (false, false), (false, true)] {
        let disk = SimDisk::new(31);
        let mut site = sim(&disk);
        let first = with_files_and_log(&site, &disk);
        let before = disk.len(&first).unwrap();
        site.config.commit_log = commit_log;
        let open = site.open();
        open.set(&name(FIRST, "more"), b"3").unwrap();
        open.bucket.persistence().apply().unwrap();
        open.bucket.persistence().sync().unwrap();
        // As after kill -9, in half of the cases.
        if is_cut {
            open.bucket.shutdown_within(Duration::ZERO);
        } else {
            open.bucket.shutdown();
        }
        if is_cut {
            let file = disk.open(&first).unwrap();
            assert!(file.len().unwrap() > before);
            file.set_len(before).unwrap();
            file.sync_all().unwrap();
        } else {
            disk.remove(&first).unwrap();
        }
        for _ in 0..2 {
            let open = site.open();
            assert_eq!(open.figure("ep_vb_quarantined"), 1);
            let refused = open.get(&name(FIRST, "applied"));
            assert_eq!(refused, Err(Status::TemporaryFailure));
            assert!(open.get(&name(VbId(1), "applied")).is_ok());
            open.bucket.shutdown();
        }
        let open = site.open();
        let done = open
            .bucket
            .persistence()
            .reset_vbucket(open.ctx(), FIRST)
            .unwrap();
        assert_eq!(done.file.is_some(), is_cut);
        assert_eq!(open.figure("ep_vb_quarantined"), 0);
        open.set(&name(FIRST, "new"), b"4").unwrap();
        open.bucket.shutdown_within(Duration::ZERO);
        let open = site.open();
        assert_eq!(open.figure("ep_vb_quarantined"), 0);
        assert_eq!(open.get(&name(FIRST, "new")).unwrap(), b"4");
        open.bucket.shutdown();
    }
}

#[test]
fn missing_log_segment_or_log_fails_the_start_unless_recovery_skips_it() {
    // Bug: the only segment of a log was missing, and its contents were lost silently.
    for whole_directory in [true, false] {
        let disk = SimDisk::new(32);
        let site = sim(&disk);
        with_files_and_log(&site, &disk);
        let log = site.dir.join("log");
        if whole_directory {
            disk.remove_dir_all(&log).unwrap();
        } else {
            for name in disk.list(&log).unwrap() {
                disk.remove(&log.join(name)).unwrap();
            }
        }
        for commit_log in [true, false] {
            let mut site = sim(&disk);
            site.config.commit_log = commit_log;
            let why = refusal(&site, RecoveryMode::Strict).expect("it is not whole");
            assert!(why.contains("00000000000000000001.log"), "{why}");
            assert!(why.contains("--recover salvage"), "{why}");
        }
        assert_eq!(refusal(&site, RecoveryMode::Salvage), None);
        let open = site.open();
        for vb in all_vbuckets() {
            assert!(open.get(&name(vb, "applied")).is_ok());
            assert_eq!(open.get(&name(vb, "logged")), Err(Status::KeyNotFound));
        }
        open.bucket.shutdown();
    }
}
