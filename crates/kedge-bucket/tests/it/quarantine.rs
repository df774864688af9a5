//! vBuckets whose files cannot be read at the start.

use crate::tools::*;
use kedge_bucket::{Bucket, RecoveryMode, VbState};
use kedge_disk::{Disk, Fault, Operation, SimDisk, read_file, replace_file};
use kedge_log::Log;
use kedge_types::{Seqno, Status, VbId, VbUuid};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The name of a document of this vBucket.
fn name(vb: VbId, what: &str) -> String {
    let mut names = (0..).map(|n| format!("{what}-{n}"));
    names.find(|name| key(name).vbucket(4) == vb).unwrap()
}

/// A bucket with one document in each file and one more in the log, killed; and the first file.
fn with_files_and_log(place: &Place, disk: &SimDisk) -> PathBuf {
    let open = place.open();
    for vb in all_vbuckets() {
        open.set(&name(vb, "applied"), b"1").unwrap();
    }
    open.bucket.persistence().apply().unwrap();
    for vb in all_vbuckets() {
        open.set(&name(vb, "logged"), b"2").unwrap();
    }
    open.bucket.persistence().sync().unwrap();
    open.bucket.shutdown_within(Duration::ZERO);
    let first = place.dir.join("0.couch.1");
    assert!(disk.exists(&first).unwrap());
    first
}

#[test]
fn a_vbucket_whose_file_cannot_be_read_is_quarantined_and_nothing_of_it_is_lost() {
    let wrecks: [fn(&SimDisk, &Path); 2] = [
        |disk, file| disk.make_unreadable(file, 4_100),
        |disk, file| {
            // But the bytes that say which blocks are headers.
            for offset in (0..disk.len(file).unwrap()).filter(|offset| offset % 4_096 > 0) {
                disk.flip(file, offset, 0xff);
            }
        },
    ];
    for wreck in wrecks {
        let disk = SimDisk::new(13);
        let place = sim(&disk);
        let first = with_files_and_log(&place, &disk);
        let whole = read_file(&disk, &first).unwrap();
        wreck(&disk, &first);
        for _ in 0..2 {
            let open = place.open();
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
        // The file is brought back.
        disk.remove(&first).unwrap();
        replace_file(&disk, &first, &whole).unwrap();
        let open = place.open();
        assert_eq!(open.figure("ep_vb_quarantined"), 0);
        for key in ["applied", "logged"] {
            assert!(open.get(&name(VbId(0), key)).is_ok(), "{key}");
        }
        open.bucket.shutdown();
    }
}

#[test]
fn a_log_is_not_given_up_for_a_file_that_cannot_be_read() {
    let disk = SimDisk::new(14);
    let mut place = sim(&disk);
    let first = with_files_and_log(&place, &disk);
    disk.make_unreadable(&first, 4_100);
    place.config.commit_log = false;
    let bucket = Bucket::open(place.setup(&Arc::new(Sink::default()))).unwrap();
    let why = bucket.wait_loaded().unwrap_err().to_string();
    bucket.shutdown();
    assert!(why.contains("could not be applied to the files"), "{why}");
    place.config.commit_log = true;
    let open = place.open();
    assert!(open.get(&name(VbId(1), "logged")).is_ok());
    open.bucket.shutdown();
}

const FIRST: VbId = VbId(0);

/// A bucket with an unreadable first file, and a log or none.
fn with_damage(disk: &SimDisk, commit_log: bool) -> (Place, PathBuf) {
    let mut place = sim(disk);
    let first = with_files_and_log(&place, disk);
    if !commit_log {
        place.config.commit_log = false;
        let open = place.open();
        open.bucket.shutdown();
    }
    let first = if disk.exists(&first).unwrap() {
        first
    } else {
        place.dir.join("0.couch.2")
    };
    disk.make_unreadable(&first, 4_100);
    (place, first)
}

fn branches(open: &Open) -> Vec<(VbUuid, Seqno)> {
    open.bucket.failover_log(open.ctx(), FIRST).unwrap()
}

/// What is to be there of the first vBucket after its reset, in a history that begins with `uuid`.
fn check_reset(open: &Open, uuid: VbUuid, commit_log: bool) {
    assert_eq!(open.figure("ep_vb_quarantined"), 0);
    for (key, value) in [("applied", b"1"), ("logged", b"2")] {
        // The log has not given anything back yet; without one there is only what the file had.
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
fn a_vbucket_without_its_file_is_served_with_what_the_log_has_in_a_history_of_its_own() {
    for commit_log in [true, false] {
        let disk = SimDisk::new(15);
        let (place, first) = with_damage(&disk, commit_log);
        let open = place.open();
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
        let again = place.open();
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
fn a_reset_is_whole_or_did_not_happen_whenever_the_power_fails() {
    for commit_log in [true, false] {
        let mut outcomes = [0; 2];
        for nth in 1.. {
            let disk = SimDisk::new(nth);
            let (place, first) = with_damage(&disk, commit_log);
            let open = place.open();
            let at = disk.operations() + nth;
            disk.fail_operation(at, Fault::PowerLoss);
            let reset = open.bucket.persistence().reset_vbucket(open.ctx(), FIRST);
            let failed = disk.operations() >= at;
            disk.crash(nth);
            open.bucket.shutdown();
            assert!(failed || reset.is_ok());
            let again = place.open();
            if again.figure("ep_vb_quarantined") == 1 {
                assert!(reset.is_err(), "it was done");
                assert!(disk.exists(&first).unwrap());
                outcomes[0] += 1;
            } else {
                let began = branches(&again).last().unwrap().0;
                if let Ok(done) = &reset {
                    // Until the new file is there, each start begins a history.
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
fn a_file_that_cannot_be_put_away_stays_and_the_reset_may_be_tried_again() {
    let disk = SimDisk::new(16);
    let (place, first) = with_damage(&disk, true);
    let open = place.open();
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
fn what_was_given_up_can_be_deleted_and_made_anew() {
    for commit_log in [true, false] {
        let disk = SimDisk::new(21);
        let (place, _) = with_damage(&disk, commit_log);
        let open = place.open();
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
        let again = place.open();
        assert_eq!(again.bucket.vbucket_state(vb), Err(Status::NotMyVbucket));
        again
            .bucket
            .states()
            .set_vbucket(vb, VbState::Active)
            .unwrap();
        disk.crash(2);
        again.bucket.shutdown();
        let last = place.open();
        let figures = last.bucket.vbucket_figures(vb).unwrap();
        assert_eq!((figures.state, figures.documents), (VbState::Active, 0));
        last.set(&name(vb, "new"), b"1").unwrap();
        last.bucket.persistence().apply().unwrap();
        last.bucket.shutdown();
        let after = place.open();
        assert_eq!(after.get(&name(vb, "new")).unwrap(), b"1");
        after.bucket.shutdown();
    }
}

#[test]
fn what_was_deleted_stays_so_when_its_file_cannot_be_read_any_more() {
    let disk = SimDisk::new(22);
    let place = sim(&disk);
    let first = with_files_and_log(&place, &disk);
    let open = place.open();
    let vb = VbId(0);
    // The log has it, and the file is in nobody's way.
    disk.fail_next(Operation::Create, Fault::NoSpace);
    open.bucket.states().delete_vbucket(vb).unwrap();
    open.bucket.shutdown_within(Duration::ZERO);
    assert!(disk.exists(&first).unwrap());
    disk.make_unreadable(&first, 4_100);
    let again = place.open();
    assert_eq!(again.figure("ep_vb_quarantined"), 1);
    again
        .bucket
        .persistence()
        .reset_vbucket(again.ctx(), vb)
        .unwrap();
    assert_eq!(again.bucket.vbucket_state(vb), Err(Status::NotMyVbucket));
    again.bucket.persistence().apply().unwrap();
    again.bucket.shutdown();
    Log::remove(&*place.disk, &place.dir.join("log")).unwrap();
    let last = place.open();
    assert_eq!(last.bucket.vbucket_state(vb), Err(Status::NotMyVbucket));
    last.bucket.shutdown();
}

/// Why a bucket does not load.
fn refusal(place: &Place, recovery: RecoveryMode) -> Option<String> {
    let mut setup = place.setup(&Arc::new(Sink::default()));
    setup.recovery = recovery;
    let bucket = Bucket::open(setup).unwrap();
    let why = bucket.wait_loaded().err().map(|error| error.to_string());
    bucket.shutdown_within(Duration::ZERO);
    why
}

#[test]
fn a_missing_or_cut_file_sets_its_vbucket_aside_with_and_without_a_log() {
    // A removed file was served as an empty vBucket, and of a file that was cut, without a log, an older commit.
    for (commit_log, is_cut) in [(true, false), (true, true), (false, false), (false, true)] {
        let disk = SimDisk::new(31);
        let mut place = sim(&disk);
        let first = with_files_and_log(&place, &disk);
        let before = disk.len(&first).unwrap();
        place.config.commit_log = commit_log;
        let open = place.open();
        open.set(&name(FIRST, "more"), b"3").unwrap();
        open.bucket.persistence().apply().unwrap();
        open.bucket.persistence().sync().unwrap();
        // As after kill -9, half of the time.
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
            let open = place.open();
            assert_eq!(open.figure("ep_vb_quarantined"), 1);
            let refused = open.get(&name(FIRST, "applied"));
            assert_eq!(refused, Err(Status::TemporaryFailure));
            assert!(open.get(&name(VbId(1), "applied")).is_ok());
            open.bucket.shutdown();
        }
        let open = place.open();
        let done = open
            .bucket
            .persistence()
            .reset_vbucket(open.ctx(), FIRST)
            .unwrap();
        assert_eq!(done.file.is_some(), is_cut);
        assert_eq!(open.figure("ep_vb_quarantined"), 0);
        open.set(&name(FIRST, "new"), b"4").unwrap();
        open.bucket.shutdown_within(Duration::ZERO);
        let open = place.open();
        assert_eq!(open.figure("ep_vb_quarantined"), 0);
        assert_eq!(open.get(&name(FIRST, "new")).unwrap(), b"4");
        open.bucket.shutdown();
    }
}

#[test]
fn a_missing_segment_or_log_stops_the_start_unless_it_is_to_be_skipped() {
    // The only segment of a log was removed, and what it had was gone without a word.
    for whole_directory in [true, false] {
        let disk = SimDisk::new(32);
        let place = sim(&disk);
        with_files_and_log(&place, &disk);
        let log = place.dir.join("log");
        if whole_directory {
            disk.remove_dir_all(&log).unwrap();
        } else {
            for name in disk.list(&log).unwrap() {
                disk.remove(&log.join(name)).unwrap();
            }
        }
        for commit_log in [true, false] {
            let mut place = sim(&disk);
            place.config.commit_log = commit_log;
            let why = refusal(&place, RecoveryMode::Strict).expect("it is not whole");
            assert!(why.contains("00000000000000000001.log"), "{why}");
            assert!(why.contains("--recover salvage"), "{why}");
        }
        assert_eq!(refusal(&place, RecoveryMode::Salvage), None);
        let open = place.open();
        for vb in all_vbuckets() {
            assert!(open.get(&name(vb, "applied")).is_ok());
            assert_eq!(open.get(&name(vb, "logged")), Err(Status::KeyNotFound));
        }
        open.bucket.shutdown();
    }
}
