//! A compaction that locks a file for its last entries does not block the application of other vBuckets.

use super::*;
use kedge_bucket::CompactionRate;
use kedge_disk::{DiskCall, DiskError, DiskObserver, ObservedDisk, Operation, SimDisk};
use parking_lot::{Condvar, Mutex};
use std::path::Path;
use std::sync::Arc;

/// A gate that stops a compaction before it renames its copy.
#[derive(Debug, Default)]
struct Gate {
    is_open: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    fn open(&self) {
        *self.is_open.lock() = true;
        self.changed.notify_all();
    }
}

impl DiskObserver for Gate {
    fn around<R>(
        &self,
        asked: &DiskCall<'_>,
        run: impl FnOnce() -> Result<R, DiskError>,
    ) -> Result<R, DiskError> {
        let extension = asked.path.and_then(Path::extension);
        if asked.operation == Operation::Rename && extension.is_some_and(|end| end == "compact") {
            let mut is_open = self.is_open.lock();
            self.changed.wait_while(&mut is_open, |is_open| !*is_open);
        }
        run()
    }
}

#[test]
fn vbucket_blocked_by_a_compaction_moves_to_the_end_of_the_queue() {
    run(true);
    run(false);
}

fn run(commit_log: bool) {
    let gate = Arc::new(Gate::default());
    let mut site = sim(&SimDisk::new(1));
    site.disk = Arc::new(ObservedDisk::new(site.disk, Arc::clone(&gate)));
    site.config.apply_max_lag_ms = 1;
    site.config.commit_log = commit_log;
    site.config.compaction.throttle = CompactionRate::Off;
    site.config.compaction.fragmentation_percent = 100;
    let open = site.open();
    churn(&open, 3);
    let vb = VbId(1);
    let ticket = open
        .bucket
        .persistence()
        .compactions()
        .compact(&only(vb))
        .unwrap();
    until("the compaction has the file", || {
        let figures = open.bucket.persistence().compactions().progress();
        let phase = figures
            .iter()
            .find_map(|one| one.figures)
            .map(|it| it.phase);
        phase == Some(kedge_bucket::CompactPhase::Finish)
    });
    let applied = |vb: VbId| {
        let figures = open.bucket.vbucket_figures(vb).unwrap();
        figures.applied_seqno == figures.high_seqno
    };
    for n in 0..KEYS {
        open.set(&format!("key-{n}"), b"new").unwrap();
    }
    if commit_log {
        open.bucket.persistence().sync().unwrap();
    }
    // There is a waiter, too.
    for (cookie, vb) in all_vbuckets().enumerate() {
        let mut names = (0..).map(|n| format!("waits-{n}"));
        let name = names.find(|name| key(name).vbucket(4) == vb).unwrap();
        open.persist(&name, b"1", cookie as u64 + 1).unwrap();
        open.bucket.persistence().writers().request_flush(false);
    }
    until("the others are applied", || {
        all_vbuckets().filter(|other| *other != vb).all(applied)
            && open.figure("ep_apply_deferrals") > 2
    });
    assert!(!applied(vb) && ticket.report().is_none());
    // The log has the change; without a log, the file must have it.
    assert_eq!(open.sink.get(u64::from(vb.get()) + 1).is_some(), commit_log);
    gate.open();
    assert!(ticket.wait().is_complete());
    for cookie in 1..=4 {
        open.sink.wait(cookie).unwrap();
    }
    until("it is applied, too", || applied(vb));
    assert_eq!(open.figure("ep_apply_failures"), 0);
    open.bucket.shutdown();
    let again = site.open();
    assert_eq!(again.get("key-1").unwrap(), b"new");
    again.bucket.shutdown();
}
