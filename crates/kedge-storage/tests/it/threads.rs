//! Concurrent readers and writers: each reader sees one whole commit, and never an older one than before, unless the
//! file was replaced.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kedge_disk::SimDisk;
use kedge_storage::{Storage, StorageConfig};
use kedge_types::{Seqno, VbId};
use kedge_vbucket::FileChange;

use crate::support::{VB, config, dir, document, key, open_with, state};

const KEYS: u64 = 8;
/// Number of seqnos of the commits of one file.
const ROUNDS: u64 = 40;

/// All keys, with the number of the commit as their value.
fn round(base: u64, round: u64) -> Vec<FileChange> {
    let value = (base + round).to_be_bytes();
    (0..KEYS)
        .map(|n| document(round * KEYS + n + 1, &key(n), &value))
        .collect()
}

/// Returns the number of the commit that was read. All values have to be from the same one.
fn read(storage: &Storage, scan: bool) -> Option<u64> {
    let mut values: Vec<Vec<u8>> = if scan {
        let scan = storage.scan(VB, Seqno(1).., true).expect("a scan")?;
        scan.map(|record| record.expect("sound").value().expect("a value").to_vec())
            .collect()
    } else {
        let keys: Vec<Vec<u8>> = (0..KEYS).map(key).collect();
        let keys: Vec<&[u8]> = keys.iter().map(|key| &**key).collect();
        let found = storage.get_many(VB, &keys).expect("a look-up");
        found
            .into_iter()
            .flatten()
            .map(|item| item.value().to_vec())
            .collect()
    };
    let count = values.len() as u64;
    assert!(count == 0 || count == KEYS, "{count} of {KEYS} keys");
    values.dedup();
    assert!(values.len() <= 1, "values of {} commits", values.len());
    let value = values.pop()?;
    Some(u64::from_be_bytes(value.try_into().expect("a number")))
}

#[test]
fn readers_see_whole_commits_during_commits_and_replacements() {
    for config in [
        StorageConfig {
            max_open_files: 1,
            ..config(2)
        },
        StorageConfig {
            keep_files_open: false,
            ..config(2)
        },
        config(2),
    ] {
        let disk = SimDisk::new(1);
        let storage = Arc::new(open_with(&disk, &config).expect("open"));
        let done = AtomicBool::new(false);
        let committed = AtomicU64::new(0);
        let one = [document(1, b"\0k", b"v")];
        storage
            .commit(VbId(1), &one, &state(1, 1), 1)
            .expect("commit");
        std::thread::scope(|scope| {
            for reader in 0..2 {
                let (storage, done, committed) = (Arc::clone(&storage), &done, &committed);
                scope.spawn(move || {
                    let mut newest = 0;
                    let mut reads = 0_u64;
                    while !done.load(Ordering::Acquire) || reads == 0 {
                        let before = committed.load(Ordering::Acquire);
                        if let Some(found) = read(&storage, reads % 3 == reader) {
                            assert!(found >= newest, "{found} after {newest}");
                            assert!(found >= before, "{found}, but {before} was committed");
                            newest = found;
                        }
                        // The file of the other vBucket takes the only place in the list.
                        let other = storage.get_many(VbId(1), &[b"\0k"]);
                        assert!(other.expect("a look-up")[0].is_some());
                        reads += 1;
                    }
                });
            }
            for file in 0..6 {
                let base = file * ROUNDS + 1;
                for n in 0..ROUNDS {
                    let items = round(base, n);
                    let high = (n + 1) * KEYS;
                    storage
                        .commit(VB, &items, &state(file + 1, high), n)
                        .expect("commit");
                    committed.store(base + n, Ordering::Release);
                }
                storage
                    .replace(VB, &state(file + 2, 0), 1)
                    .expect("replace");
            }
            done.store(true, Ordering::Release);
        });
        let stats = storage.stats();
        assert_eq!(stats.handles, stats.kept_files);
    }
}

#[test]
fn commits_and_replacements_of_one_file_are_serialised() {
    let disk = SimDisk::new(3);
    let storage = open_with(&disk, &config(2)).expect("open");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (storage, done) = (&storage, &done);
            scope.spawn(move || {
                let mut newest = 0;
                for reads in 0_u64.. {
                    if done.load(Ordering::Acquire) {
                        break;
                    }
                    if let Some(found) = read(storage, reads % 2 == reader) {
                        assert!(found >= newest, "{found} after {newest}");
                        newest = found;
                    }
                }
            });
        }
        let committer = scope.spawn(|| {
            for n in 0..200 {
                let high = (n + 1) * KEYS;
                let committed = storage.commit(VB, &round(0, n), &state(1, high), n);
                assert_eq!(committed.expect("commit").high_seqno, Seqno(high));
            }
        });
        for n in 1.. {
            let last = committer.is_finished();
            storage.replace(VB, &state(n, 0), n).expect("replace");
            if last {
                break;
            }
        }
        done.store(true, Ordering::Release);
    });
    assert_eq!(
        read(&storage, true),
        None,
        "the last thing was a replacement"
    );
    let stats = storage.stats();
    assert_eq!((stats.commits, stats.failed_commits), (200, 0));
    assert_eq!(stats.handles, stats.kept_files);
}

#[test]
fn writers_of_one_file_are_serialised() {
    let disk = SimDisk::new(2);
    let storage = Storage::open(Arc::new(disk), dir(), &config(2)).expect("open");
    let next = AtomicU64::new(1);
    let turn = parking_lot::Mutex::new(());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    // Seqnos are issued in order; commits of other vBuckets run concurrently.
                    let turn = turn.lock();
                    let seqno = next.fetch_add(1, Ordering::Relaxed);
                    let items = [document(seqno, &key(seqno), b"v")];
                    storage
                        .commit(VB, &items, &state(1, seqno), 1)
                        .expect("commit");
                    drop(turn);
                    storage.load(VB).expect("load").expect("a file");
                    storage.replace(VbId(1), &state(1, 0), 1).expect("replace");
                    if seqno.is_multiple_of(3) {
                        storage.remove(VbId(1)).expect("remove");
                    }
                }
            });
        }
    });
    let loaded = storage.load(VB).expect("load").expect("a file");
    assert_eq!((loaded.documents, loaded.high_seqno), (200, Seqno(200)));
}
