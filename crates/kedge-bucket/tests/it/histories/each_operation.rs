//! A script with everything that a bucket writes, interrupted by a power loss at each of its disk operations in turn. The
//! recovery may be interrupted too.
//!
//! `KEDGE_SEED` runs one seed, `KEDGE_SEEDS` that many. Every fourth has no log.

use super::*;
use kedge_disk::{Disk, DiskCall, DiskError, DiskObserver, ObservedDisk, Operation};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::path::Path;

/// The current part of the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Start,
    Commit,
    FileChange,
    Compaction,
    RollBack,
    Reset,
    Deletion,
    Making,
    Flush,
    Stop,
}

const PARTS: [Part; 10] = [
    Part::Start,
    Part::Commit,
    Part::FileChange,
    Part::Compaction,
    Part::RollBack,
    Part::Reset,
    Part::Deletion,
    Part::Making,
    Part::Flush,
    Part::Stop,
];

/// The operations that at least one power loss must hit.
const OPERATIONS: [Operation; 6] = [
    Operation::Create,
    Operation::Write,
    Operation::Sync,
    Operation::Rename,
    Operation::Remove,
    Operation::SyncDir,
];

/// A recorder of the operation at which the power fails.
#[derive(Debug)]
struct IoStatistics {
    disk: SimDisk,
    first: Mutex<Option<Operation>>,
}

impl DiskObserver for IoStatistics {
    fn around<R>(
        &self,
        asked: &DiskCall<'_>,
        run: impl FnOnce() -> Result<R, DiskError>,
    ) -> Result<R, DiskError> {
        let done = run();
        if done.is_err() && self.disk.exists(Path::new("/")).is_err() {
            self.first.lock().get_or_insert(asked.operation);
        }
        done
    }
}

/// A bucket that runs the script.
struct Scripted {
    history: History,
    part: Part,
    watch: Arc<IoStatistics>,
}

impl Scripted {
    fn new(seed: u64) -> Self {
        let mut history = History::new(seed);
        let watch = Arc::new(IoStatistics {
            disk: history.disk.clone(),
            first: Mutex::default(),
        });
        let below = Arc::clone(&history.site.disk);
        history.site.disk = Arc::new(ObservedDisk::new(below, Arc::clone(&watch)));
        // One shard, so that tasks run in a fixed order.
        history.site.config.num_shards = 1;
        history.longest = 30;
        Self {
            history,
            part: Part::Start,
            watch,
        }
    }

    /// Runs a part of the script. Returns `None` if the power failed in it.
    fn part(
        &mut self,
        open: &Open,
        part: Part,
        run: impl FnOnce(&mut History) -> Option<()>,
    ) -> Option<()> {
        self.part = part;
        let ran = run(&mut self.history);
        self.history.check_completions(open);
        self.history.publish(open);
        let goes_on = open.sink.fatal().is_empty() && !self.history.has_no_power();
        assert!(ran.is_some() || !goes_on, "{part:?}");
        goes_on.then_some(())
    }

    /// Writes to a vBucket, and waits until one of the writes is durable.
    fn commit(&mut self, open: &Open, steps: &Steps, vb: u16, from: usize) -> Option<()> {
        self.part(open, Part::Commit, |history| {
            let mut names = names_of(VbId(vb)).skip(from);
            let mut next = || names.next().expect("a key");
            history.set(open, next());
            history.delete(open, next());
            history.persist(open, next());
            open.bucket
                .persistence()
                .writers()
                .request_flush(history.version.is_multiple_of(2));
            steps.run();
            history.check_completions(open);
            history.waiting.is_empty().then_some(())
        })
    }

    fn apply(&mut self, open: &Open) -> Option<()> {
        self.part(open, Part::FileChange, |history| {
            history.apply(open);
            Some(())
        })
    }

    fn compact(&mut self, open: &Open, steps: &Steps, drop_deletes: bool) -> Option<()> {
        self.part(open, Part::Compaction, |_| {
            let request = CompactionRequest {
                drop_deletes,
                ..CompactionRequest::default()
            };
            let ticket = open
                .bucket
                .persistence()
                .compactions()
                .compact(&request)
                .ok()?;
            steps.run();
            let report = ticket.report()?;
            (report.is_complete() && report.compacted > 0).then_some(())
        })
    }

    fn roll_back(&mut self, open: &Open, vb: VbId, by: u64, resets: bool) -> Option<()> {
        let part = if resets { Part::Reset } else { Part::RollBack };
        self.part(open, part, |history| {
            let back = history.roll_back(open, vb, by)?;
            assert_eq!(back.is_reset, resets, "{back:?}");
            Some(())
        })
    }

    fn delete_or_make(&mut self, open: &Open, part: Part, vb: VbId) -> Option<()> {
        self.part(open, part, |history| {
            history.delete_or_make(open, vb);
            Some(())
        })
    }

    /// Runs the script. Returns `None` if the power failed.
    fn script(&mut self, open: &Open, steps: &Steps) -> Option<()> {
        // These writes have no waiters.
        self.part(open, Part::Commit, |history| {
            for name in key_names() {
                history.set(open, name);
            }
            steps.pass(SEC / 20);
            history.sync(open);
            Some(())
        })?;
        // Tasks execute this in parts.
        self.part(open, Part::FileChange, |_| {
            steps.pass(SEC * 2);
            Some(())
        })?;
        self.commit(open, steps, 0, 0)?;
        self.apply(open)?;
        self.compact(open, steps, false)?;
        // A commit of the file as the target of a rollback, and changes to undo; the last one is in no file yet.
        self.commit(open, steps, 1, 0)?;
        self.apply(open)?;
        self.commit(open, steps, 1, 2)?;
        self.roll_back(open, VbId(1), 3, false)?;
        self.commit(open, steps, 1, 1)?;
        self.delete_or_make(open, Part::Deletion, VbId(2))?;
        self.commit(open, steps, 0, 2)?;
        self.delete_or_make(open, Part::Making, VbId(2))?;
        self.part(open, Part::Commit, |history| {
            names_of(VbId(2)).for_each(|name| history.persist(open, name));
            open.bucket.persistence().writers().request_flush(true);
            steps.run();
            Some(())
        })?;
        self.commit(open, steps, 3, 0)?;
        self.roll_back(open, VbId(3), 1_000, true)?;
        self.part(open, Part::Commit, |history| {
            names_of(VbId(3)).for_each(|name| history.set(open, name));
            Some(())
        })?;
        self.compact(open, steps, true)?;
        self.part(open, Part::Flush, |history| {
            history.flush(open);
            Some(())
        })?;
        self.part(open, Part::Commit, |history| {
            key_names().for_each(|name| history.set(open, name));
            Some(())
        })?;
        self.commit(open, steps, 0, 1)?;
        self.part(open, Part::Stop, |history| {
            open.bucket.shutdown();
            if !history.has_no_power() {
                history.all_durable();
            }
            Some(())
        })
    }

    /// Returns whether the script ran to its end.
    fn run(&mut self) -> bool {
        let Some((open, steps)) = self.history.open() else {
            return false;
        };
        self.history.check(&open, "the start");
        self.script(&open, &steps).is_some()
    }

    /// Starts the next process, in which the power may fail again.
    fn start_again(&mut self, seed: u64, fails_after: Option<u64>) -> Option<(Open, Steps)> {
        self.history.disk.crash(seed);
        self.history.site.executor.shutdown();
        if let Some(operations) = fails_after {
            let at = self.history.disk.operations() + operations;
            self.history.disk.fail_operation(at, Fault::PowerLoss);
        }
        self.history.open()
    }

    /// Checks that the contents are correct and durable, and that the bucket can be used.
    fn check(&mut self, number: u64) {
        let when = format!("operation {number}, {:?}", self.part);
        let seed = self.history.seed * 100_000 + number;
        if number.is_multiple_of(2)
            && let Some((open, _)) = self.start_again(seed, Some(1 + number / 2 % 24))
        {
            self.history.check(&open, &format!("{when}, once"));
        }
        let (open, steps) = self.start_again(seed + 1, None).expect("there is power");
        self.history.check(&open, &when);
        self.history.publish(&open);
        let vb = VbId((number % 4) as u16);
        if open.bucket.vbucket_state(vb).is_err() {
            let made = self.delete_or_make(&open, Part::Making, vb);
            made.expect("there is power");
        }
        let commit = self.part(&open, Part::Commit, |history| {
            names_of(vb).for_each(|name| history.set(&open, name));
            history.sync(&open);
            Some(())
        });
        commit.expect("there is power");
        drop((open, steps));
        let (open, _steps) = self.start_again(seed + 2, None).expect("there is power");
        self.history.check(&open, &format!("{when}, afterwards"));
        open.bucket.shutdown();
        self.history.site.executor.shutdown();
    }
}

fn names_of(vb: VbId) -> impl Iterator<Item = String> {
    key_names().filter(move |name| key(name).vbucket(4) == vb)
}

/// Runs the script with a power loss at each operation, until the script has fewer operations.
fn run(seed: u64) {
    eprintln!("seed {seed}");
    let (mut parts, mut operations) = (BTreeSet::new(), Vec::new());
    for number in 1.. {
        let mut scripted = Scripted::new(seed);
        let disk = scripted.history.disk.clone();
        disk.fail_operation(disk.operations() + number, Fault::PowerLoss);
        let ended = scripted.run();
        if !scripted.history.has_no_power() {
            assert!(ended, "seed {seed}: {:?}", scripted.part);
            scripted.check(number);
            break;
        }
        parts.insert(scripted.part);
        operations.extend(*scripted.watch.first.lock());
        scripted.check(number);
    }
    assert!(parts.iter().eq(&PARTS), "seed {seed}: {parts:?}");
    for operation in OPERATIONS {
        assert!(operations.contains(&operation), "seed {seed}: {operation}");
    }
}

#[test]
fn power_loss_at_each_operation_of_a_script_loses_no_acknowledged_write() {
    for seed in seeds(4) {
        run(seed);
    }
}
