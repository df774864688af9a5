//! Power losses at every operation of an import, and its repetition.

use kedge_disk::{Fault, SimDisk};
use kedge_types::VbId;

use super::import::{all, from, golden, import, put};
use super::names;
use crate::support::{audit, open, path_of, state};

#[test]
fn power_loss_during_import_leaves_whole_vbuckets_and_a_repetition_completes_it() {
    let files = [
        ("0.couch.5", "s10_json"),
        ("1.couch.2", "s200_v11_legacycrc"),
        ("3.couch.1", "s10_json"),
    ];
    for seed in 0..4 {
        let base = SimDisk::new(seed);
        for (name, sample) in files {
            put(&base, name, &golden(&format!("{sample}.couch.1")));
        }
        let storage = open(&base).expect("open");
        // One of them exists and is empty.
        storage
            .commit(VbId(1), &[], &state(55, 0), 1)
            .expect("commit");
        drop(storage);
        let mut last = 0;
        for number in 1.. {
            let disk = base.fork();
            let storage = open(&disk).expect("open");
            disk.fail_operation(disk.operations() + number, Fault::PowerLoss);
            let done = import(&storage, &disk);
            drop(storage);
            disk.crash(seed * 1000 + number);
            let storage = open(&disk).expect("open");
            let mut whole = 0;
            for (vb, (name, _)) in [VbId(0), VbId(1), VbId(3)].into_iter().zip(files) {
                let Some(path) = path_of(&disk, vb) else {
                    continue;
                };
                let found = all(&disk, &path);
                audit(&disk, vb);
                if !found.is_empty() {
                    assert_eq!(found, all(&disk, &from().join(name)), "operation {number}");
                    whole += 1;
                }
            }
            if done.is_ok() {
                assert_eq!(whole, 3);
                assert_eq!(names(&disk).len(), 3);
                last = number;
                break;
            }
            let again = import(&storage, &disk).expect("import");
            let there = again.files.iter().filter(|file| file.was_there);
            assert_eq!(there.count(), whole);
            for (vb, (name, _)) in [VbId(0), VbId(1), VbId(3)].into_iter().zip(files) {
                let path = path_of(&disk, vb).expect("a file");
                assert_eq!(all(&disk, &path), all(&disk, &from().join(name)));
                audit(&disk, vb);
            }
            assert_eq!(names(&disk).len(), 3);
        }
        assert!(last > 15, "{last} operations");
    }
}
