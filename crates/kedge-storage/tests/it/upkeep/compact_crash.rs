//! Power losses at every operation of compactions with commits in between.

use std::cell::{Cell, RefCell};

use kedge_disk::{Fault, Rng, SimDisk, seeds};
use kedge_storage::{Storage, StorageError};
use kedge_types::Seqno;

use super::{Hooks, names, purge, purged};
use crate::support::{
    Contents, VB, abort, audit, contents, document, keep, key, open, prepare, state, tombstone,
};
use kedge_vbucket::FileChange;

/// The committed items, as far as is known.
struct History {
    rng: RefCell<Rng>,
    /// The contents that the file must have, without purging.
    done: RefCell<Contents>,
    /// The contents after a commit that did not return.
    attempted: RefCell<Option<Contents>>,
    high: Cell<u64>,
    /// A pending prepare: its key and seqno.
    pending: Cell<Option<(u64, u64)>>,
    completed: Cell<u64>,
}

impl History {
    fn new(seed: u64) -> Self {
        History {
            rng: RefCell::new(Rng::new(seed)),
            done: RefCell::default(),
            attempted: RefCell::default(),
            high: Cell::new(0),
            pending: Cell::default(),
            completed: Cell::default(),
        }
    }

    fn batch(&self) -> Vec<FileChange> {
        let mut rng = self.rng.borrow_mut();
        let mut items = Vec::new();
        let mut high = self.high.get();
        let mut next = || {
            high += 1;
            high
        };
        for number in 0..1 + rng.below(20) {
            // Each key once.
            let key = key(number * 5 + rng.below(5));
            items.push(match rng.below(3) {
                0 => tombstone(next(), &key),
                _ => document(next(), &key, &vec![7; rng.below(900) as usize]),
            });
        }
        match self.pending.take() {
            Some((number, seqno)) => {
                items.push(match rng.below(2) {
                    0 => abort(next(), &key(number), seqno),
                    _ => document(next(), &key(number), b"committed"),
                });
                self.completed.set(seqno);
            }
            None if rng.below(2) == 0 => {
                let (number, seqno) = (1000 + rng.below(3), next());
                items.push(prepare(seqno, &key(number), b"prepared"));
                self.pending.set(Some((number, seqno)));
            }
            None => {}
        }
        self.high.set(high);
        items
    }

    fn commit(&self, storage: &Storage) -> Result<(), StorageError> {
        let items = self.batch();
        let mut now = state(1, self.high.get());
        now.completed = Seqno(self.completed.get());
        now.prepared = self
            .pending
            .get()
            .map_or(now.completed, |(_, seqno)| Seqno(seqno));
        let mut after = self.done.borrow().clone();
        items.iter().for_each(|item| keep(&mut after, item));
        *self.attempted.borrow_mut() = Some(after.clone());
        storage.commit(VB, &items, &now, self.high.get())?;
        *self.done.borrow_mut() = after;
        *self.attempted.borrow_mut() = None;
        Ok(())
    }

    /// Runs the script. Any error ends it.
    fn run(&self, storage: &Storage) -> Result<(), StorageError> {
        for _ in 0..4 {
            self.commit(storage)?;
        }
        for _ in 0..2 {
            let failed = Cell::new(None);
            let mut hooks = Hooks::on_bytes(|_| {
                let is_due = self.rng.borrow_mut().below(3) > 0;
                if is_due && let Err(error) = self.commit(storage) {
                    failed.set(Some(error));
                }
            });
            storage.compact(VB, &purge(), &mut hooks)?;
            drop(hooks);
            if let Some(error) = failed.take() {
                return Err(error);
            }
            self.commit(storage)?;
        }
        Ok(())
    }

    /// Returns `true` if a file has the expected contents, apart from purged entries.
    fn explains(&self, expected: &Contents, found: &Contents, purge_seqno: Seqno) -> bool {
        let left = purged(expected, &purge(), self.completed.get());
        let has_left = left
            .iter()
            .all(|(place, kept)| found.get(place) == Some(kept));
        let all_are_known = found
            .iter()
            .all(|(place, kept)| expected.get(place) == Some(kept));
        // A reader of changes has to learn of every tombstone that is missing.
        let told = expected.iter().all(|(place, kept)| {
            kept.meta.deleted.is_none()
                || kept.kind == kedge_storage::FileRecordKind::Prepare
                || found.contains_key(place)
                || kept.meta.seqno <= purge_seqno
        });
        has_left && all_are_known && told
    }
}

/// Checks that the contents after a crash are the acknowledged ones, or those of one commit more.
fn check(history: &History, disk: &SimDisk, at: &str) {
    let storage = open(disk).expect("open");
    let found = contents(&storage, VB).expect("a scan").unwrap_or_default();
    let figures = storage.file_figures(VB).expect("figures");
    let purge_seqno = figures.map_or(Seqno(0), |figures| figures.purge_seqno);
    let attempted = history.attempted.borrow();
    let candidates = [Some(&*history.done.borrow()), attempted.as_ref()]
        .into_iter()
        .flatten()
        .any(|expected| history.explains(expected, &found, purge_seqno));
    assert!(candidates, "{at}: the file has something else");
    audit(disk, VB);
    assert!(names(disk).len() <= 1, "{at}: {:?}", names(disk));
    // All of it is durable, and further items can be added and compacted.
    if figures.is_some() {
        let compacted = storage.compact(VB, &purge(), &mut Hooks::default());
        compacted.expect("compact");
        assert_eq!(names(disk).len(), 1);
        audit(disk, VB);
    }
}

#[test]
fn power_loss_during_compaction_leaves_one_complete_file() {
    for seed in seeds(500, 6) {
        eprintln!("seed {seed}");
        let disk = SimDisk::new(seed);
        let history = History::new(seed);
        let storage = open(&disk).expect("open");
        history.run(&storage).expect("no fault");
        drop(storage);
        let operations = disk.operations();
        check(&history, &disk, "without a fault");
        for number in 1..=operations {
            let disk = SimDisk::new(seed);
            let history = History::new(seed);
            disk.fail_operation(number, Fault::PowerLoss);
            // The first operation creates the directory.
            if let Ok(storage) = open(&disk) {
                let is_note = history.run(&storage).is_ok();
                assert!(!is_note || number == operations, "the power fails");
            }
            disk.crash(seed * 10_000 + number);
            check(&history, &disk, &format!("seed {seed}, operation {number}"));
        }
    }
}
