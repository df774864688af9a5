//! Concurrent commits, compactions, gets and scans on a real disk.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;

use kedge_disk::{PosixDisk, Rng, seed};
use kedge_storage::{CompactRequest, FileRecordKind, Storage, StorageConfig};
use kedge_types::Seqno;
use kedge_vbucket::FileChange;

use super::{Hooks, keep_all};
use crate::support::{Contents, VB, contents, document, keep, key, state, tombstone};

const KEYS: u64 = 400;
const COMMITS: u64 = 150;

/// The state that the threads share.
struct World {
    storage: Storage,
    /// For each key, a lower bound of its seqno.
    committed: Vec<AtomicU64>,
    high: AtomicU64,
    is_over: AtomicBool,
}

impl World {
    fn commits(&self, seed: u64) -> Contents {
        let mut rng = Rng::new(seed);
        let mut model = Contents::new();
        let mut high = 0;
        for _ in 0..COMMITS {
            let mut numbers: Vec<u64> = (0..1 + rng.below(60)).map(|_| rng.below(KEYS)).collect();
            numbers.sort_unstable();
            numbers.dedup();
            let items: Vec<FileChange> = numbers
                .iter()
                .map(|number| {
                    high += 1;
                    let value = format!("{number} {high} {}", "x".repeat(rng.below(500) as usize));
                    match rng.below(5) {
                        0 => tombstone(high, &key(*number)),
                        _ => document(high, &key(*number), value.as_bytes()),
                    }
                })
                .collect();
            self.storage
                .commit(VB, &items, &state(1, high), high)
                .expect("commit");
            for (number, item) in numbers.iter().zip(&items) {
                let seqno = item.item().seqno().get();
                self.committed[*number as usize].store(seqno, SeqCst);
                keep(&mut model, item);
            }
            self.high.store(high, SeqCst);
        }
        self.is_over.store(true, SeqCst);
        model
    }

    fn compactions(&self) -> u64 {
        let mut done = 0;
        while !self.is_over.load(SeqCst) {
            let compacted = self.storage.compact(VB, &keep_all(), &mut Hooks::default());
            done += u64::from(compacted.expect("compact").is_some());
        }
        done
    }

    fn gets(&self, seed: u64) {
        let mut rng = Rng::new(seed);
        while !self.is_over.load(SeqCst) {
            let numbers: Vec<u64> = (0..10).map(|_| rng.below(KEYS)).collect();
            let at_least: Vec<u64> = numbers
                .iter()
                .map(|number| self.committed[*number as usize].load(SeqCst))
                .collect();
            let keys: Vec<Vec<u8>> = numbers.iter().map(|number| key(*number)).collect();
            let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            let found = self.storage.get_many(VB, &keys).expect("get");
            for ((number, at_least), item) in numbers.iter().zip(at_least).zip(found) {
                let seqno = item.as_ref().map_or(0, |item| item.seqno().get());
                assert!(seqno >= at_least, "{seqno} {at_least}");
                if let Some(item) = item.filter(|item| !item.is_deleted()) {
                    let start = format!("{number} {seqno} ");
                    assert!(item.value().starts_with(start.as_bytes()));
                }
            }
        }
    }

    fn scans(&self) {
        while !self.is_over.load(SeqCst) {
            let at_least = self.high.load(SeqCst);
            let Some(scan) = self.storage.scan(VB, .., true).expect("a scan") else {
                continue;
            };
            assert!(scan.high_seqno() >= Seqno(at_least));
            let (high, mut last) = (scan.high_seqno(), Seqno(0));
            for record in scan {
                let record = record.expect("a document");
                assert_eq!(record.kind(), FileRecordKind::Document);
                assert!(record.meta().seqno > last && record.meta().seqno <= high);
                last = record.meta().seqno;
            }
            assert_eq!(last, high, "nothing of the last commit is missing");
        }
    }
}

/// Returns the number of handles of this process on files in a directory.
fn handles(dir: &Path) -> usize {
    let handles = std::fs::read_dir("/proc/self/fd").expect("a list of handles");
    handles
        .filter_map(|handle| std::fs::read_link(handle.ok()?.path()).ok())
        .filter(|path| path.starts_with(dir) && !path.ends_with("vbuckets.catalog"))
        .count()
}

fn run(keep_files_open: bool) {
    let seed = seed(900);
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().canonicalize().expect("a path");
    let config = StorageConfig {
        keep_files_open,
        ..StorageConfig::new(4)
    };
    let world = World {
        storage: Storage::open(Arc::new(PosixDisk), &path, &config).expect("open"),
        committed: (0..KEYS).map(|_| AtomicU64::new(0)).collect(),
        high: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
    };
    let (model, compactions) = thread::scope(|scope| {
        let commits = scope.spawn(|| world.commits(seed));
        let compactions = scope.spawn(|| world.compactions());
        scope.spawn(|| world.gets(seed + 1));
        scope.spawn(|| world.scans());
        let model = commits.join();
        // In any case the other threads have to end.
        world.is_over.store(true, SeqCst);
        (
            model.expect("commits"),
            compactions.join().expect("compactions"),
        )
    });
    assert!(compactions > 0);
    let last = CompactRequest {
        drop_deletes: true,
        ..keep_all()
    };
    let found = contents(&world.storage, VB)
        .expect("a scan")
        .expect("a file");
    assert_eq!(found, model);
    world
        .storage
        .compact(VB, &last, &mut Hooks::default())
        .expect("compact");
    crate::support::audit_in(&PosixDisk, &path, VB);
    let stats = world.storage.stats();
    assert_eq!(
        handles(&path),
        usize::from(keep_files_open && stats.kept_files > 0)
    );
    assert_eq!(stats.handles as usize, handles(&path));
    drop(world);
    assert_eq!(handles(&path), 0);
    let left: Vec<_> = std::fs::read_dir(&path).expect("a directory").collect();
    assert_eq!(left.len(), 2, "the catalog, and {left:?}");
}

#[test]
fn concurrent_operations_with_files_kept_open() {
    run(true);
}

#[test]
fn concurrent_operations_with_files_opened_each_time() {
    run(false);
}
