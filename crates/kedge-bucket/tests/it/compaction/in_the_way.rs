//! A compaction that has a file for its last few entries keeps no thread from settling the others.

use super::*;
use kedge_bucket::CompactionPace;
use kedge_disk::{DirLock, Disk, DiskError, File, SimDisk};
use parking_lot::{Condvar, Mutex};
use std::path::Path;
use std::sync::Arc;

/// A disk on which the copy of a compaction gets its name only when the gate is open.
#[derive(Debug)]
struct Gated {
    disk: SimDisk,
    is_open: Mutex<bool>,
    changed: Condvar,
}

impl Gated {
    fn open_gate(&self) {
        *self.is_open.lock() = true;
        self.changed.notify_all();
    }
}

impl Disk for Gated {
    fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        if from.extension().is_some_and(|end| end == "compact") {
            let mut is_open = self.is_open.lock();
            while !*is_open {
                self.changed.wait(&mut is_open);
            }
        }
        self.disk.rename(from, to)
    }

    fn open(&self, path: &Path) -> Result<Box<dyn File>, DiskError> {
        self.disk.open(path)
    }

    fn create(&self, path: &Path) -> Result<Box<dyn File>, DiskError> {
        self.disk.create(path)
    }

    fn remove(&self, path: &Path) -> Result<(), DiskError> {
        self.disk.remove(path)
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>, DiskError> {
        self.disk.list(dir)
    }

    fn create_dir_all(&self, dir: &Path) -> Result<(), DiskError> {
        self.disk.create_dir_all(dir)
    }

    fn remove_dir_all(&self, dir: &Path) -> Result<(), DiskError> {
        self.disk.remove_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> Result<(), DiskError> {
        self.disk.sync_dir(dir)
    }

    fn exists(&self, path: &Path) -> Result<bool, DiskError> {
        self.disk.exists(path)
    }

    fn len(&self, path: &Path) -> Result<u64, DiskError> {
        self.disk.len(path)
    }

    fn lock_dir(&self, dir: &Path) -> Result<DirLock, DiskError> {
        self.disk.lock_dir(dir)
    }

    fn free_bytes(&self, dir: &Path) -> Result<u64, DiskError> {
        self.disk.free_bytes(dir)
    }
}

#[test]
fn a_vbucket_in_the_way_goes_to_the_back_of_the_queue() {
    run(true);
    run(false);
}

fn run(commit_log: bool) {
    let sim_disk = SimDisk::new(1);
    let disk = Arc::new(Gated {
        disk: sim_disk.clone(),
        is_open: Mutex::new(false),
        changed: Condvar::new(),
    });
    let mut place = sim(&sim_disk);
    place.disk = disk.clone();
    place.config.settle_age_ms = 1;
    place.config.commit_log = commit_log;
    place.config.compaction.pace = CompactionPace::Off;
    place.config.compaction.fragmentation_percent = 100;
    let open = place.open();
    churn(&open, 3);
    let vb = VbId(1);
    let ticket = open.bucket.compact(&only(vb)).unwrap();
    until("the compaction has the file", || {
        let figures = open.bucket.compactions();
        let phase = figures
            .iter()
            .find_map(|one| one.figures)
            .map(|it| it.phase);
        phase == Some(kedge_bucket::CompactPhase::Finish)
    });
    let settled = |vb: VbId| {
        let figures = open.bucket.vbucket_figures(vb).unwrap();
        figures.settled_seqno == figures.high_seqno
    };
    for n in 0..KEYS {
        open.set(&format!("key-{n}"), b"new").unwrap();
    }
    if commit_log {
        open.bucket.sync().unwrap();
    }
    // Someone waits, too.
    for (cookie, vb) in all_vbuckets().enumerate() {
        let mut names = (0..).map(|n| format!("waits-{n}"));
        let name = names.find(|name| key(name).vbucket(4) == vb).unwrap();
        open.persist(&name, b"1", cookie as u64 + 1).unwrap();
        open.bucket.kick(false);
    }
    until("the others are settled", || {
        all_vbuckets().filter(|other| *other != vb).all(settled)
            && open.figure("ep_settle_put_off") > 2
    });
    assert!(!settled(vb) && ticket.report().is_none());
    // The log has it; without one it is the file that has to.
    assert_eq!(open.sink.get(u64::from(vb.get()) + 1).is_some(), commit_log);
    disk.open_gate();
    assert!(ticket.wait().is_complete());
    for cookie in 1..=4 {
        open.sink.wait(cookie).unwrap();
    }
    until("it is settled, too", || settled(vb));
    assert_eq!(open.figure("ep_settle_failures"), 0);
    open.bucket.shutdown();
    let again = place.open();
    assert_eq!(again.get("key-1").unwrap(), b"new");
    again.bucket.shutdown();
}
