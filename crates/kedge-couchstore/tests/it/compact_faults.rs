//! Compactions on disks that lose power, fail and fill up: the source stays intact, and a target is complete or
//! removed.

use std::path::{Path, PathBuf};

use kedge_couchstore::compact::{CompactionSettings, KeepAll, remove_leftovers};
use kedge_couchstore::{Error, Options, Snapshot, Writer};
use kedge_disk::{Disk, Fault, Rng, SimDisk, seed};

use crate::compact::{compact, content, history, target, tiny};
use crate::support::{create, disk, disk_with, golden, open, path, save};

const DIR: &str = "/data";

fn compacted() -> PathBuf {
    Path::new(DIR).join("0.couch.2")
}

/// Creates a disk with a durable source.
fn start(seed: u64) -> (SimDisk, Writer) {
    let disk = disk(seed);
    let mut writer = create(&disk);
    history(&mut writer, 3);
    disk.sync_dir(Path::new(DIR)).expect("sync");
    (disk, writer)
}

/// Performs a whole compaction like a bucket, with one catch-up round after further commits, and the rename.
/// `committed` is set once the source has further commits.
fn run(disk: &SimDisk, writer: &mut Writer, committed: &mut bool) -> Result<(), Error> {
    let settings = CompactionSettings {
        sync_each_bytes: 4096,
        ..tiny()
    };
    let mut compaction = compact(disk, &writer.snapshot(), &settings, &mut KeepAll)?;
    let next = crate::support::Doc::new("key-00001", writer.update_seqno().0 + 1);
    save(writer, &[next])?;
    writer.commit(7)?;
    *committed = true;
    let newest = writer.snapshot();
    compaction.catch_up(&newest, &mut KeepAll)?;
    compaction.finish()?;
    disk.rename(target(), &compacted())?;
    disk.sync_dir(Path::new(DIR))?;
    disk.remove(path())?;
    disk.sync_dir(Path::new(DIR))?;
    Ok(())
}

/// Returns the file that an open after a restart uses: the one with the highest revision.
fn survivor(disk: &SimDisk) -> Snapshot {
    remove_leftovers(disk, Path::new(DIR)).expect("clean");
    let names = disk.list(Path::new(DIR)).expect("list");
    for name in &names {
        assert!(
            ["0.couch.1", "0.couch.2"].contains(&&**name),
            "{name} is left"
        );
    }
    let newest = names.last().expect("a file");
    let path = Path::new(DIR).join(newest);
    Snapshot::open(disk, &path, &Options::default()).expect("it opens")
}

#[test]
fn power_loss_during_compaction_leaves_a_complete_file() {
    let (disk, writer) = start(1);
    let before = content(&writer.snapshot());
    drop(writer);
    let undisturbed = |disk: &SimDisk| {
        let mut writer = Writer::open(disk, path(), &Options::default()).expect("open");
        run(disk, &mut writer, &mut false).expect("nothing fails");
        content(&survivor(disk))
    };
    let later = undisturbed(&disk.fork());
    assert_ne!(later, before);
    let mut found = [0; 4];
    for step in 1.. {
        let disk = disk.fork();
        let mut writer = Writer::open(&disk, path(), &Options::default()).expect("open");
        disk.fail_operation(disk.operations() + step, Fault::PowerLoss);
        let mut committed = false;
        let result = run(&disk, &mut writer, &mut committed);
        for seed in 0..3 {
            let disk = disk.fork();
            disk.crash(seed);
            let snapshot = survivor(&disk);
            let content = content(&snapshot);
            let is_later = content == later;
            // Commits of the source are never lost, and no target without them replaces it.
            assert!(is_later || (content == before && !committed), "step {step}");
            let is_compacted = snapshot.path() == compacted();
            assert!(is_later || !is_compacted, "step {step}");
            found[usize::from(is_later) * 2 + usize::from(is_compacted)] += 1;
        }
        if result.is_ok() {
            assert!(step > 60, "{step} operations");
            assert!(found[0] > 0 && found[2] > 0 && found[3] > 0, "{found:?}");
            return;
        }
    }
}

#[test]
fn failed_operation_ends_the_compaction_and_leaves_nothing() {
    let (disk, writer) = start(2);
    drop(writer);
    for fault in [Fault::Io, Fault::NoSpace] {
        for step in 1.. {
            let disk = disk.fork();
            let writer = Writer::open(&disk, path(), &Options::default()).expect("open");
            let source = writer.snapshot();
            let before = content(&source);
            disk.fail_operation(disk.operations() + step, fault);
            let settings = CompactionSettings {
                sync_each_bytes: 4096,
                ..tiny()
            };
            let result = compact(&disk, &source, &settings, &mut KeepAll);
            let names = disk.list(Path::new(DIR)).expect("list");
            assert_eq!(content(&source), before);
            let Err(error) = result else {
                assert!(step > 50, "{step} operations");
                assert_eq!(names, ["0.couch.1", "0.couch.1.compact"]);
                break;
            };
            let is_right = match fault {
                Fault::NoSpace => error.is_no_space() || error.is_sync_failure(),
                _ => matches!(error, Error::Io(_) | Error::SyncFailed(_)),
            };
            assert!(is_right, "{error}");
            // The removal of a temporary file may be the failed operation.
            remove_leftovers(&disk, Path::new(DIR)).expect("clean");
            assert!(
                names.len() == 1 || error.to_string().contains("remove"),
                "{names:?}"
            );
            assert_eq!(disk.list(Path::new(DIR)).expect("list"), ["0.couch.1"]);
        }
    }
}

#[test]
fn full_disk_ends_the_compaction_and_frees_its_space() {
    let (disk, writer) = start(3);
    let source = writer.snapshot();
    let used = disk.used_bytes();
    for room in (0..).step_by(9000) {
        disk.set_capacity(Some(used + room));
        match compact(&disk, &source, &tiny(), &mut KeepAll) {
            Ok(compaction) => {
                assert!(room > 100_000);
                compaction.finish().expect("finish");
                break;
            }
            Err(error) => assert!(error.is_no_space(), "{error}"),
        }
        assert_eq!(disk.used_bytes(), used);
    }
    // The source can continue as before.
    disk.set_capacity(None);
    let mut writer = writer;
    history(&mut writer, 1);
}

#[test]
fn unreadable_source_ends_the_compaction() {
    let (disk, writer) = start(4);
    let bytes = disk.len(path()).expect("a length");
    let mut failed = 0;
    for at in (0..bytes).step_by(2048) {
        let disk = disk.fork();
        let source = Snapshot::open(&disk, path(), &Options::default()).expect("open");
        disk.make_unreadable(path(), at);
        match compact(&disk, &source, &tiny(), &mut KeepAll) {
            Ok(compaction) => drop(compaction),
            Err(error) => {
                assert!(matches!(error, Error::Io(_)), "{error}");
                failed += 1;
            }
        }
        assert_eq!(disk.list(Path::new(DIR)).expect("list"), ["0.couch.1"]);
    }
    assert!(failed > 20, "{failed}");
    drop(writer);
}

#[test]
fn damaged_source_causes_an_error_or_a_correct_copy() {
    let mut rng = Rng::new(seed(5));
    for name in [
        "s10_json.couch.1",
        "s1k_10commits_compacted.couch.2",
        "s200_v11_legacycrc.couch.1",
        "s200_v13.couch.1",
    ] {
        let bytes = golden(name);
        let right = content(&open(&disk_with(&bytes)).expect("open"));
        let (mut errors, mut copies) = (0, 0);
        for _ in 0..300 {
            let mut damaged = bytes.clone();
            let at = rng.below(bytes.len() as u64) as usize;
            damaged[at] ^= 1 << rng.below(8);
            let disk = disk_with(&damaged);
            let Ok(source) = open(&disk) else {
                continue;
            };
            match compact(&disk, &source, &tiny(), &mut KeepAll) {
                Ok(compaction) => {
                    compaction.finish().expect("finish");
                    let copy = Snapshot::open(&disk, target(), &Options::default()).expect("open");
                    // The source's tree by key is not read, and not needed.
                    let mut content = content(&copy);
                    if source.header().update_seqno() != right.update_seqno {
                        continue;
                    }
                    content.timestamp_ns = right.timestamp_ns;
                    assert_eq!(content, right, "{name} with byte {at} damaged");
                    copies += 1;
                }
                Err(error) => {
                    assert!(error.is_damage(), "{error}");
                    assert!(!disk.exists(target()).expect("exists"));
                    errors += 1;
                }
            }
        }
        assert!(errors > 50 && copies > 0, "{name}: {errors}, {copies}");
    }
}
