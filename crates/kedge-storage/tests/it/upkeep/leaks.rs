//! Thousands of files that are created, written to, compacted, rolled back and removed leave nothing behind.
//!
//! `KEDGE_CYCLES` sets their number.

use std::cell::Cell;

use kedge_disk::{Disk, Rng, SimDisk, seed};
use kedge_storage::{RollbackOutcome, StorageConfig};
use kedge_types::{Seqno, VbId};

use super::{Hooks, names, purge};
use crate::leaks::number_of_cycles;
use crate::support::{catalog_path, config, dir, documents, open_with, state, tombstone};

#[test]
fn compactions_and_rollbacks_leak_no_file_and_no_handle() {
    let mut rng = Rng::new(seed(3));
    for keep_files_open in [true, false] {
        let disk = SimDisk::new(1);
        let config = StorageConfig {
            keep_files_open,
            max_open_files: 2,
            ..config(4)
        };
        let storage = open_with(&disk, &config).expect("open");
        let (mut stopped, mut reset) = (0, 0);
        let cycles = number_of_cycles(5_000);
        for cycle in 0..cycles {
            let vb = VbId((cycle % 4) as u16);
            let commit = |first, last| {
                let items = documents(first..=last);
                storage.commit(vb, &items, &state(1, last), cycle)
            };
            commit(1, 20).expect("commit");
            storage
                .commit(vb, &[tombstone(21, b"\0gone")], &state(1, 21), cycle)
                .expect("commit");
            let scan = storage.scan(vb, .., false).expect("a scan");
            // Cancelled at any point, or not.
            let left = Cell::new(rng.below(8));
            let mut hooks = Hooks::on_stop(|| {
                left.set(left.get().saturating_sub(1));
                left.get() == 0
            });
            match storage.compact(vb, &purge(), &mut hooks) {
                Ok(_) => {}
                Err(error) if error.is_stopped() => stopped += 1,
                Err(error) => panic!("{error}"),
            }
            commit(22, 22 + rng.below(40)).expect("commit");
            let outcome = storage.rollback(vb, Seqno(21), cycle, |old, _| old.clone());
            match outcome.expect("roll back") {
                RollbackOutcome::RolledBack(done) => assert_eq!(done.seqno, Seqno(21)),
                RollbackOutcome::ResetNeeded => {
                    reset += 1;
                    storage.replace(vb, &state(2, 0), cycle).expect("replace");
                }
            }
            // Documents read before all this can still be read.
            assert_eq!(scan.expect("a file").count(), 21);
            storage.remove(vb).expect("remove");
        }
        let least = cycles / 25;
        assert!(stopped > least && reset > least, "{stopped} {reset}");
        let stats = storage.stats();
        assert_eq!(
            (stats.handles, stats.kept_files, stats.kept_bytes),
            (0, 0, 0)
        );
        assert_eq!((stats.scans, stats.files_left), (0, 0));
        assert_eq!(names(&disk), [""; 0]);
        assert_eq!(disk.used_bytes(), disk.len(&catalog_path()).expect("it"));
        assert!(disk.exists(dir()).expect("exists"));
    }
}
