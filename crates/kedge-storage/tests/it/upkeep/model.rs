//! Random histories of commits, compactions, rollbacks, resets and reopens, compared with a list of maps.

use std::cell::RefCell;
use std::collections::BTreeSet;

use kedge_disk::{Rng, SimDisk, seeds};
use kedge_storage::{CompactRequest, RollbackOutcome, Storage, StorageConfig};
use kedge_types::{Seqno, VbUuid};
use kedge_vbucket::{FileChange, PersistedState};

use super::{DELETED, Hooks, high_seqno, names, purged};
use crate::support::{
    Contents, VB, abort, audit, config, contents, document, keep, key, open_with, prepare,
    tombstone,
};

/// A commit of the current file.
#[derive(Clone)]
struct Point {
    high: u64,
    contents: Contents,
    state: PersistedState,
    is_consistent: bool,
    pending: Vec<(u64, u64)>,
}

struct Model {
    rng: Rng,
    /// All possible targets of a rollback, the newest last.
    points: Vec<Point>,
    purge_seqno: Seqno,
    uuid: u64,
}

impl Model {
    fn new(seed: u64) -> Self {
        Model {
            rng: Rng::new(seed),
            points: Vec::new(),
            purge_seqno: Seqno(0),
            uuid: 1,
        }
    }

    fn newest(&self) -> Point {
        self.points.last().cloned().unwrap_or(Point {
            high: 0,
            contents: Contents::new(),
            state: crate::support::state(self.uuid, 0),
            is_consistent: true,
            pending: Vec::new(),
        })
    }

    /// Creates prepares and their ends, and documents under all kinds of keys.
    fn items(&mut self, now: &mut Point) -> Vec<FileChange> {
        let mut items = Vec::new();
        let mut keys = BTreeSet::new();
        for _ in 0..self.rng.below(30) {
            let number = self.rng.below(60);
            if !keys.insert(number) {
                continue;
            }
            now.high += 1 + self.rng.below(2);
            items.push(match self.rng.below(4) {
                0 => tombstone(now.high, &key(number)),
                _ => document(
                    now.high,
                    &key(number),
                    &vec![7; self.rng.below(300) as usize],
                ),
            });
        }
        if self.rng.below(2) == 0 && now.pending.len() < 3 {
            // Under a key without a pending prepare.
            let number = (100..).find(|number| now.pending.iter().all(|(key, _)| key != number));
            let number = number.expect("there are many");
            now.high += 1;
            items.push(prepare(now.high, &key(number), b"prepared"));
            now.state.prepared = Seqno(now.high);
            now.pending.push((number, now.high));
        } else if !now.pending.is_empty() {
            let (number, seqno) = now.pending.remove(0);
            now.high += 1;
            items.push(match self.rng.below(2) {
                0 => abort(now.high, &key(number), seqno),
                _ => document(now.high, &key(number), b"committed"),
            });
            now.state.completed = Seqno(seqno);
        }
        items
    }

    fn commit(&mut self, storage: &Storage) {
        let mut now = self.newest();
        let items = self.items(&mut now);
        let is_consistent = self.rng.below(4) > 0;
        now.is_consistent = is_consistent;
        now.state.visible = Seqno(now.high);
        now.state.snap_start = Seqno(now.high);
        now.state.snap_end = Seqno(now.high + u64::from(!is_consistent));
        // A file cannot have a highest seqno that none of its entries has.
        let done = storage.commit(VB, &items, &now.state, now.high);
        let done = done.expect("commit");
        items.iter().for_each(|item| keep(&mut now.contents, item));
        assert!(done.high_seqno <= Seqno(now.high));
        self.points.push(now);
    }

    fn request(&mut self) -> CompactRequest {
        let high = self.newest().high;
        CompactRequest {
            purge_before_unix_secs: DELETED + self.rng.below(2) as u32,
            purge_before_seqno: (self.rng.below(2) == 0).then(|| Seqno(self.rng.below(high + 1))),
            drop_deletes: self.rng.below(4) == 0,
            now_unix_secs: DELETED,
            sync_each_bytes: (self.rng.below(2) == 0).then_some(8 << 10),
        }
    }

    fn compact(&mut self, storage: &Storage) {
        let request = self.request();
        let mut start = self.newest();
        let is_busy = self.rng.below(2) == 0;
        let before = start.contents.clone();
        start.contents = purged(&before, &request, start.state.completed.get());
        let gone = before.iter().filter(|(place, kept)| {
            kept.meta.deleted.is_some()
                && kept.kind != kedge_storage::FileRecordKind::Prepare
                && !start.contents.contains_key(place)
        });
        let purge_seqno = gone.map(|(_, kept)| kept.meta.seqno).max();
        self.points = vec![start];
        let model = RefCell::new((self, false));
        let mut hooks = Hooks::on_bytes(|_| {
            let (model, done) = &mut *model.borrow_mut();
            // Once, so that the commits of the new file are known.
            if is_busy && !std::mem::replace(done, true) {
                model.commit(storage);
            }
        });
        let done = storage.compact(VB, &request, &mut hooks);
        let done = done.expect("compact").expect("a file");
        drop(hooks);
        let (model, _) = model.into_inner();
        model.purge_seqno = model.purge_seqno.max(purge_seqno.unwrap_or_default());
        assert_eq!(done.purge_seqno, model.purge_seqno);
    }

    fn roll_back(&mut self, storage: &Storage) {
        let newest = self.newest();
        let to = match self.rng.below(4) {
            0 => self.rng.below(newest.high + 2),
            _ => newest.high.saturating_sub(self.rng.below(60)),
        };
        self.uuid += 1;
        let uuid = VbUuid(self.uuid);
        let reached = |point: &Point| high_seqno_of_file(point);
        let expected = self
            .points
            .iter()
            .rev()
            .find(|point| reached(point) <= to && (point.is_consistent || reached(point) == 0));
        let expected = expected.filter(|point| {
            let seqno = Seqno(reached(point));
            let all = newest.contents.len();
            let undone = newest
                .contents
                .values()
                .filter(|kept| kept.meta.seqno > seqno)
                .count();
            reached(point) > 0 && undone <= all / 2
        });
        let outcome = storage.rollback(VB, Seqno(to), 1, |old, seqno| {
            let mut new = old.clone();
            new.failover.begin(uuid, seqno);
            (new.snap_start, new.snap_end) = (seqno, seqno);
            new
        });
        match (outcome.expect("roll back"), expected) {
            (RollbackOutcome::ResetNeeded, None) => {}
            (RollbackOutcome::RolledBack(done), Some(point)) => {
                let mut point = point.clone();
                point.high = reached(&point);
                assert_eq!(done.seqno, Seqno(point.high));
                point.state.failover.begin(uuid, done.seqno);
                point.is_consistent = true;
                for changed in &done.changed {
                    let kept = point.contents.get(&(changed.key.to_vec(), true));
                    let old = changed.old.as_ref().map(|item| item.meta());
                    assert_eq!(old, kept.map(|kept| kept.meta));
                }
                let changed = newest
                    .contents
                    .iter()
                    .filter(|((_, committed), kept)| *committed && kept.meta.seqno > done.seqno);
                assert_eq!(done.changed.len(), changed.count());
                // Older ones can still be reached after this one; newer ones cannot.
                self.points.retain(|older| reached(older) <= point.high);
                self.points.push(point);
            }
            (outcome, expected) => {
                panic!("{outcome:?} and {:?}", expected.map(|point| point.high));
            }
        }
    }

    fn reset(&mut self, storage: &Storage) {
        self.uuid += 1;
        let state = crate::support::state(self.uuid, 0);
        storage.replace(VB, &state, 1).expect("replace");
        self.purge_seqno = Seqno(0);
        self.points.clear();
    }

    fn check(&self, storage: &Storage, disk: &SimDisk) {
        let found = contents(storage, VB).expect("a scan").expect("a file");
        let newest = self.newest();
        assert_eq!(found, newest.contents);
        audit(disk, VB);
        assert_eq!(names(disk).len(), 1);
        let figures = storage.file_figures(VB).expect("figures").expect("a file");
        assert_eq!(figures.purge_seqno, self.purge_seqno);
    }
}

/// Returns the seqno in the header of a point's commit.
fn high_seqno_of_file(point: &Point) -> u64 {
    point.high.min(high_seqno(&point.contents).get())
}

fn random(config: &StorageConfig, seed: u64) {
    eprintln!("seed {seed}");
    let disk = SimDisk::new(seed);
    let mut model = Model::new(seed);
    let mut storage = open_with(&disk, config).expect("open");
    model.commit(&storage);
    for _ in 0..60 {
        match model.rng.below(12) {
            0..6 => model.commit(&storage),
            6..8 => model.compact(&storage),
            8..10 => model.roll_back(&storage),
            10 => {
                drop(storage);
                storage = open_with(&disk, config).expect("open");
            }
            _ if model.rng.below(3) == 0 => {
                model.reset(&storage);
                model.commit(&storage);
            }
            _ => {}
        }
        model.check(&storage, &disk);
    }
}

#[test]
fn maintenance_agrees_with_the_model() {
    for seed in seeds(700, 40) {
        random(&config(4), seed);
        let closed = StorageConfig {
            keep_files_open: false,
            ..config(4)
        };
        random(&closed, seed + 1_000_000);
    }
}
