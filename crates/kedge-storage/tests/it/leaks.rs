//! Thousands of files that come and go leave nothing behind.
//!
//! `KEDGE_CYCLES` sets their number.

use std::sync::Arc;

use kedge_disk::{Disk, PosixDisk, Rng, SimDisk, seed};
use kedge_storage::{Storage, StorageConfig};
use kedge_types::VbId;

use crate::support::{catalog_path, config, dir, documents, fill, key, names, state};

const VBUCKETS: u16 = 16;

/// Returns `KEDGE_CYCLES` of the environment, or `few`.
pub(crate) fn number_of_cycles(few: u64) -> u64 {
    let asked = std::env::var("KEDGE_CYCLES").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(few)
}

/// Creates, commits, reads, scans, replaces and removes, repeatedly.
fn cycles(storage: &Storage, cycles: u64, rng: &mut Rng) {
    for cycle in 0..cycles {
        let vb = VbId((cycle % u64::from(VBUCKETS)) as u16);
        fill(storage, vb, 1..=3, cycle);
        fill(storage, vb, 4..=5, cycle);
        let keys = [key(2), key(9)];
        let wanted: Vec<&[u8]> = keys.iter().map(|key| &**key).collect();
        let found = storage.get_many(vb, &wanted).expect("a look-up");
        assert!(found[0].is_some() && found[1].is_none());
        let scan = storage
            .scan(vb, .., rng.below(2) == 0)
            .expect("a scan")
            .expect("a file");
        match rng.below(3) {
            0 => assert_eq!(scan.count(), 5),
            1 => drop(scan),
            _ => {
                storage.replace(vb, &state(2, 0), cycle).expect("replace");
                storage
                    .commit(vb, &documents(1..=1), &state(2, 1), cycle)
                    .expect("commit");
                assert_eq!(scan.count(), 5);
            }
        }
        storage.remove(vb).expect("remove");
    }
}

#[test]
fn many_files_leak_no_file_and_no_handle() {
    let mut rng = Rng::new(seed(1));
    for (keep_files_open, max_open_files) in [(true, 3), (false, 3), (true, 100)] {
        let disk = SimDisk::new(1);
        let config = StorageConfig {
            keep_files_open,
            max_open_files,
            ..config(VBUCKETS)
        };
        let storage = Storage::open(Arc::new(disk.clone()), dir(), &config).expect("open");
        cycles(&storage, number_of_cycles(3400), &mut rng);
        let stats = storage.stats();
        assert_eq!(
            (stats.handles, stats.kept_files, stats.kept_bytes),
            (0, 0, 0)
        );
        assert_eq!(
            (stats.scans, stats.files_left, stats.failed_commits),
            (0, 0, 0)
        );
        assert_eq!(names(&disk), [""; 0]);
        assert_eq!(disk.used_bytes(), disk.len(&catalog_path()).expect("it"));
    }
}

/// Returns the number of descriptors of this process that are open on files below `dir`.
fn descriptors(dir: &std::path::Path) -> usize {
    let entries = std::fs::read_dir("/proc/self/fd").expect("descriptors");
    let links = entries.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    links.filter(|link| link.starts_with(dir)).count()
}

#[test]
#[cfg(target_os = "linux")]
fn many_files_leak_no_descriptor() {
    let temporary = tempfile::tempdir().expect("a directory");
    let dir = temporary.path().canonicalize().expect("a path");
    let config = StorageConfig {
        max_open_files: 3,
        ..config(VBUCKETS)
    };
    let storage = Storage::open(Arc::new(PosixDisk), &dir, &config).expect("open");
    cycles(&storage, 60, &mut Rng::new(1));
    // That of the catalog.
    assert_eq!(descriptors(&dir), 1);
    for vb in (0..VBUCKETS).map(VbId) {
        for seqno in 1..=2 {
            let items = documents(seqno..=seqno);
            storage
                .commit(vb, &items, &state(1, seqno), 1)
                .expect("commit");
        }
    }
    assert_eq!(descriptors(&dir), 4);
    assert_eq!(storage.stats().handles, 3);
    drop(storage);
    assert_eq!(descriptors(&dir), 0);
    let names = PosixDisk.list(&dir).expect("a directory");
    assert_eq!(names.len(), 1 + usize::from(VBUCKETS));
}
