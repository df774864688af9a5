//! Disks that fail and fill up: the error determines the reaction, committed data stays, and the same commit can be
//! repeated.

use kedge_disk::{Disk, Fault, Operation, Rng, SimDisk};
use kedge_storage::Storage;
use kedge_types::{Seqno, VbId};

use crate::support::{
    Contents, VB, audit, contents, document, documents, keep, key, open, path_of, prepare, state,
};

fn expected(batches: &[&[kedge_vbucket::FileChange]]) -> Contents {
    let mut contents = Contents::new();
    for apply in batches.iter().copied().flatten() {
        keep(&mut contents, apply);
    }
    contents
}

fn found(storage: &Storage) -> Contents {
    contents(storage, VB).expect("a scan").expect("a file")
}

/// Creates a bucket whose file has documents 1 to 20, and the next items, which replace some of them.
fn begun(
    disk: &SimDisk,
) -> (
    Storage,
    Vec<kedge_vbucket::FileChange>,
    Vec<kedge_vbucket::FileChange>,
) {
    let storage = open(disk).expect("open");
    let first = documents(1..=20);
    storage
        .commit(VB, &first, &state(1, 20), 1)
        .expect("commit");
    let mut more = vec![prepare(21, &key(1), b"p")];
    let mut rng = Rng::new(1);
    more.extend((22..=300).map(|seqno| {
        // A value that does not compress.
        let value: Vec<u8> = (0..100).map(|_| rng.next() as u8).collect();
        document(seqno, &key(seqno - 20), &value)
    }));
    (storage, first, more)
}

#[test]
fn full_disk_keeps_the_last_commit_and_recovers_with_space() {
    for room in [0, 100, 5000, 20_000] {
        let disk = SimDisk::new(1);
        let (storage, first, more) = begun(&disk);
        disk.set_capacity(Some(disk.used_bytes() + room));
        for _ in 0..3 {
            let error = storage
                .commit(VB, &more, &state(1, 300), 2)
                .expect_err("full");
            assert!(
                error.is_no_space() && !error.is_fatal() && !error.is_damage(),
                "{error}"
            );
            assert!(error.to_string().contains("0.couch.1"), "{error}");
            assert_eq!(found(&storage), expected(&[&first]));
            assert!(storage.make_durable(VB).is_ok());
        }
        let other = storage
            .commit(VbId(1), &first, &state(1, 20), 1)
            .expect_err("full");
        assert!(other.is_no_space(), "{other}");
        assert_eq!(path_of(&disk, VbId(1)), None, "nothing is left of it");
        let reset = storage.replace(VB, &state(2, 0), 1).expect_err("full");
        assert!(reset.is_no_space(), "{reset}");
        assert_eq!(found(&storage), expected(&[&first]));
        disk.set_capacity(None);
        storage
            .commit(VB, &more, &state(1, 300), 3)
            .expect("there is room");
        assert_eq!(found(&storage), expected(&[&first, &more]));
        audit(&disk, VB);
        assert_eq!(storage.stats().failed_commits, 5);
    }
}

/// Fails each operation of `commits` commits that share their syncs, and repeats the commits until they return.
fn fail_each(
    fault: Fault,
    commits: usize,
    mut check: impl FnMut(u64, &kedge_storage::StorageError),
) {
    let mut noted_at = Vec::new();
    for step in 1.. {
        assert!(step < 100, "a commit does not have as many operations");
        let disk = SimDisk::new(step);
        let (storage, first, more) = begun(&disk);
        let commit = |now_ns| {
            storage.commit_together(VB, now_ns, |together| {
                for items in more.chunks(more.len().div_ceil(commits)) {
                    let high = items.last().expect("items").item().seqno().get();
                    together.write(items, &state(1, high), &mut || {})?;
                }
                Ok(())
            })
        };
        let before = disk.operations();
        disk.fail_operation(before + step, fault);
        let result = commit(2);
        if disk.operations() < before + step {
            assert!(step > 4, "two writes and two syncs at least");
            result.expect("no fault");
            assert_eq!(noted_at.len(), 1, "{noted_at:?}");
            return;
        }
        let Err(error) = result else {
            // The catalog entry of the commit, after both of its syncs: an older entry is still valid.
            assert!(step > 4, "a commit needs what failed");
            assert_eq!(found(&storage), expected(&[&first, &more]), "at {step}");
            noted_at.push(step);
            continue;
        };
        check(step, &error);
        assert!(!error.is_damage());
        // A handle is not reused after an error.
        assert_eq!(storage.stats().handles, u64::from(error.is_no_space()));
        // The last commit that returned is valid, although the file may have another.
        assert_eq!(found(&storage), expected(&[&first]), "at {step}");
        let key = key(5);
        let item = storage.get_many(VB, &[&key]).expect("a look-up").remove(0);
        assert_eq!(item.expect("it is there").seqno(), Seqno(5));
        commit(3).expect("again");
        assert_eq!(found(&storage), expected(&[&first, &more]), "at {step}");
        audit(&disk, VB);
        drop(storage);
        disk.crash(step);
        assert_eq!(
            found(&open(&disk).expect("open")),
            expected(&[&first, &more])
        );
        audit(&disk, VB);
    }
}

#[test]
fn failed_commits_can_be_repeated() {
    for commits in [1, 3] {
        fail_each(Fault::Io, commits, |_, error| {
            assert!(!error.is_no_space());
            let text = error.to_string();
            assert!(text.contains("0.couch.1"), "{text}");
            assert_eq!(error.is_fatal(), text.contains("sync"), "{text}");
        });
        fail_each(Fault::NoSpace, commits, |_, error| {
            assert!(error.is_no_space() != error.is_fatal(), "{error}");
        });
    }
}

#[test]
fn failed_sync_is_always_fatal() {
    let disk = SimDisk::new(3);
    let (storage, _, more) = begun(&disk);
    disk.fail_next(Operation::Sync, Fault::Io);
    assert!(
        storage
            .commit(VB, &more, &state(1, 300), 2)
            .expect_err("it failed")
            .is_fatal()
    );
    for change in [
        |storage: &Storage| storage.replace(VB, &state(2, 0), 1),
        |storage: &Storage| storage.remove(VB),
        |storage: &Storage| {
            storage
                .commit(VbId(2), &documents(1..=2), &state(1, 2), 1)
                .map(drop)
        },
    ] {
        disk.fail_next(Operation::SyncDir, Fault::Io);
        let error = change(&storage).expect_err("it failed");
        assert!(error.is_fatal(), "{error}");
    }
}

#[test]
fn damaged_file_does_not_affect_other_vbuckets() {
    let disk = SimDisk::new(4);
    let (storage, first, more) = begun(&disk);
    storage
        .commit(VbId(1), &first, &state(1, 20), 1)
        .expect("commit");
    drop(storage);
    let path = path_of(&disk, VB).expect("a file");
    // The header of the commit.
    disk.flip(&path, 4096 + 30, 1);
    let storage = open(&disk).expect("no file is opened yet");
    for error in [
        storage.load(VB).map(drop).expect_err("it is damaged"),
        storage
            .get_many(VB, &[b"\0k"])
            .map(drop)
            .expect_err("it is damaged"),
        storage
            .commit(VB, &more, &state(1, 300), 2)
            .map(drop)
            .expect_err("it is damaged"),
        storage.make_durable(VB).expect_err("it is damaged"),
    ] {
        assert!(error.is_damage() && !error.is_fatal(), "{error}");
        let text = error.to_string();
        assert!(
            text.contains("0.couch.1") && text.contains("byte 4096"),
            "{text}"
        );
    }
    assert_eq!(
        storage
            .load(VbId(1))
            .expect("sound")
            .expect("a file")
            .documents,
        20
    );
    storage
        .commit(VbId(1), &more, &state(1, 300), 2)
        .expect("commit");
    // A sound file can replace it.
    storage.replace(VB, &state(2, 0), 1).expect("replace");
    storage
        .commit(VB, &first, &state(2, 20), 2)
        .expect("commit");
    audit(&disk, VB);
}

#[test]
fn damage_is_reported_with_file_and_offset() {
    let disk = SimDisk::new(5);
    let (storage, ..) = begun(&disk);
    let path = path_of(&disk, VB).expect("a file");
    disk.make_unreadable(&path, 0);
    let key = key(1);
    let error = storage
        .get_many(VB, &[&key])
        .expect_err("it cannot be read");
    assert!(!error.is_damage() && !error.is_fatal(), "{error}");
    assert!(error.to_string().contains("0.couch.1 at byte"), "{error}");
    let mut scan = storage
        .scan(VB, .., true)
        .expect("the tree is elsewhere")
        .expect("a file");
    assert!(scan.next().expect("an error").is_err());
    assert!(scan.next().is_none());
}

#[test]
fn file_without_a_valid_state_is_rejected() {
    let disk = SimDisk::new(6);
    let (storage, first, _) = begun(&disk);
    drop(storage);
    let path = path_of(&disk, VB).expect("a file");
    disk.remove(&path).expect("remove");
    let options = kedge_couchstore::Options::default();
    let create = kedge_couchstore::CreateOptions::default();
    let mut writer =
        kedge_couchstore::Writer::create(&disk, &path, &create, &options).expect("create");
    writer.commit(1).expect("commit");
    let storage = open(&disk).expect("open");
    for _ in 0..2 {
        let error = storage.load(VB).map(drop).expect_err("it has no state");
        assert!(error.is_damage(), "{error}");
        assert!(error.to_string().contains("_local/vbstate"), "{error}");
        let error = storage
            .commit(VB, &first, &state(1, 20), 1)
            .expect_err("it has no state");
        assert!(error.is_damage(), "{error}");
    }
    for (json, reason) in [
        (
            r#"{"max_deleted_seqno":"0","snap_start":"0","snap_end":"0","max_cas":"0","state":"active"}"#,
            "failover table",
        ),
        (
            r#"{"max_deleted_seqno":"0","snap_start":"5","snap_end":"6","max_cas":"0","state":"replica",
                "failover_table":[{"id":1,"seq":0}]}"#,
            "snapshot from 5 to 6",
        ),
    ] {
        let local = (&b"_local/vbstate"[..], Some(json.as_bytes()));
        writer.save_locals(&[local]).expect("save");
        writer.commit(2).expect("commit");
        let error = open(&disk)
            .expect("open")
            .load(VB)
            .map(drop)
            .expect_err("unusable");
        assert!(error.to_string().contains(reason), "{error}");
    }
}
