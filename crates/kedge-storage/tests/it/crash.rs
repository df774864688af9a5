//! Power loss at every operation of a history of one vBucket, and of the recovery after it.

use kedge_disk::{Fault, SimDisk, seeds};
use kedge_storage::{Storage, StorageConfig, StorageError};
use kedge_vbucket::FileChange;

use crate::support::{
    Contents, VB, abort, audit, config, contents, document, documents, fill, keep, key, names,
    open, open_with, path_of, prepare, state, tombstone,
};

/// The state of a vBucket's file: none, or its documents and the UUID of its history.
type State = Option<(Contents, u64)>;

/// The state of a history at a power loss.
#[derive(Default)]
struct Done {
    /// The state after the last change that returned.
    now: State,
    /// The states of the change in progress.
    next: Vec<State>,
}

fn state_of(storage: &Storage) -> Result<State, StorageError> {
    let Some(contents) = contents(storage, VB)? else {
        return Ok(None);
    };
    let loaded = storage.load(VB)?.expect("it has a file");
    Ok(Some((contents, loaded.state.failover.uuid().get())))
}

impl Done {
    fn change(
        &mut self,
        next: State,
        change: impl FnOnce() -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        self.change_to(vec![next], change)
    }

    /// Changes the file through these states, to the last of them.
    fn change_to(
        &mut self,
        next: Vec<State>,
        change: impl FnOnce() -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        self.next = next;
        change()?;
        self.now = self.next.pop().expect("a state");
        self.next.clear();
        Ok(())
    }

    fn commit(
        &mut self,
        storage: &Storage,
        uuid: u64,
        items: &[FileChange],
    ) -> Result<(), StorageError> {
        let (mut next, _) = self.now.clone().unwrap_or_default();
        for apply in items {
            keep(&mut next, apply);
        }
        let high = items.last().expect("items").item().seqno().get();
        self.change(Some((next, uuid)), || {
            storage
                .commit(VB, items, &state(uuid, high), high)
                .map(drop)
        })
    }

    /// Writes commits that share their syncs.
    fn commit_together(
        &mut self,
        storage: &Storage,
        uuid: u64,
        batches: &[Vec<FileChange>],
    ) -> Result<(), StorageError> {
        let (mut contents, _) = self.now.clone().unwrap_or_default();
        let states = batches.iter().map(|items| {
            items.iter().for_each(|apply| keep(&mut contents, apply));
            Some((contents.clone(), uuid))
        });
        self.change_to(states.collect(), || {
            storage.commit_together(VB, 7, |commits| {
                for items in batches {
                    let high = items.last().expect("items").item().seqno().get();
                    commits.write(items, &state(uuid, high), &mut || {})?;
                }
                Ok(())
            })
        })
    }

    fn replace(&mut self, storage: &Storage, uuid: u64) -> Result<(), StorageError> {
        self.change(Some((Contents::new(), uuid)), || {
            storage.replace(VB, &state(uuid, 0), 1)
        })
    }

    fn remove(&mut self, storage: &Storage) -> Result<(), StorageError> {
        self.change(None, || storage.remove(VB))
    }

    /// Performs every operation on a file.
    fn run(&mut self, disk: &SimDisk, keep_files_open: bool) -> Result<(), StorageError> {
        let config = StorageConfig {
            keep_files_open,
            ..config(4)
        };
        let open = |disk| open_with(disk, &config);
        let storage = open(disk)?;
        self.commit(&storage, 1, &documents(1..=3))?;
        self.commit(&storage, 1, &documents(4..=40))?;
        let items = [
            prepare(41, &key(1), b"prepared"),
            tombstone(42, &key(2)),
            document(43, &key(3), &[7; 6000]),
        ];
        self.commit(&storage, 1, &items)?;
        drop(storage);
        let storage = open(disk)?;
        self.commit(&storage, 1, &[abort(44, &key(1), 41)])?;
        let together = [45..=60, 61..=61, 62..=95].map(documents);
        self.commit_together(&storage, 1, &together)?;
        self.replace(&storage, 2)?;
        self.commit(&storage, 2, &documents(1..=5))?;
        self.replace(&storage, 3)?;
        self.remove(&storage)?;
        self.commit(&storage, 4, &documents(1..=2))?;
        self.remove(&storage)?;
        self.replace(&storage, 5)?;
        self.replace(&storage, 6)?;
        self.commit_together(&storage, 6, &[3..=5, 6..=9].map(documents))?;
        self.remove(&storage)?;
        // As the beginning of a new file.
        self.commit_together(&storage, 6, &[3..=5, 6..=9].map(documents))?;
        drop(storage);
        let storage = open(disk)?;
        storage.make_durable(VB)?;
        self.commit(&storage, 6, &documents(10..=30))?;
        drop(storage);
        // The last commit is followed by its catalog entry, which may fail. The next start shows whether there is
        // power.
        open(disk).map(drop)
    }
}

/// Returns the history stopped at each of its operations.
fn stopped() -> impl Iterator<Item = (SimDisk, Done, String)> {
    let whole = SimDisk::new(0);
    Done::default().run(&whole, true).expect("no faults");
    let operations = whole.operations();
    assert!(operations > 60, "{operations} operations");
    (1..=2 * operations).map(move |number| {
        let step = number.div_ceil(2);
        let disk = SimDisk::new(step);
        disk.fail_operation(step, Fault::PowerLoss);
        let mut done = Done::default();
        let result = done.run(&disk, number % 2 == 0);
        result.expect_err("the power fails");
        (disk, done, format!("power lost at operation {step}"))
    })
}

/// Opens after a crash and checks that the file has the state before or after the change in progress.
fn check_found(disk: &SimDisk, done: &Done, context: &str) {
    let storage = open(disk).unwrap_or_else(|error| panic!("{context}: {error}"));
    let found = state_of(&storage).unwrap_or_else(|error| panic!("{context}: {error}"));
    let is_one = found == done.now || done.next.contains(&found);
    assert!(is_one, "{context}: found {found:?}");
    audit(disk, VB);
    let files = names(disk);
    assert_eq!(
        files.len(),
        usize::from(found.is_some()),
        "{context}: {files:?}"
    );
    // The history continues.
    let (mut next, uuid) = found.unwrap_or_default();
    let items = documents(100..=110);
    items.iter().for_each(|apply| keep(&mut next, apply));
    let committed = storage.commit(VB, &items, &state(uuid.max(1), 110), 9);
    committed.unwrap_or_else(|error| panic!("{context}: {error}"));
    drop(storage);
    disk.crash(77);
    let storage = open(disk).expect("open");
    let (found, _) = state_of(&storage).expect("sound").expect("a file");
    assert_eq!(found, next, "{context}");
}

#[test]
fn crash_leaves_the_old_or_the_new_state() {
    for (disk, done, context) in stopped() {
        for seed in seeds(0, 6) {
            let disk = disk.fork();
            disk.crash(seed);
            check_found(&disk, &done, &format!("{context}, seed {seed}"));
        }
    }
}

#[test]
fn killed_process_leaves_the_old_or_the_new_state() {
    for (disk, done, context) in stopped() {
        disk.kill_process();
        let storage = open(&disk).expect("open");
        let found = state_of(&storage).expect("sound");
        // The state that the next process saw and made durable stays, whatever happens then.
        storage.make_durable(VB).expect("sync");
        drop(storage);
        for seed in seeds(0, 4) {
            let disk = disk.fork();
            disk.crash(seed);
            let storage = open(&disk).expect("open");
            assert_eq!(
                state_of(&storage).expect("sound"),
                found,
                "{context}, seed {seed}"
            );
        }
        check_found(&disk, &done, &context);
    }
}

#[test]
fn crash_during_the_removal_of_obsolete_files_does_no_harm() {
    for (disk, done, context) in stopped() {
        disk.crash(1);
        for step in 1.. {
            let disk = disk.fork();
            let before = disk.operations();
            disk.fail_operation(before + step, Fault::PowerLoss);
            if open(&disk).is_ok() {
                assert!(disk.operations() < before + step);
                break;
            }
            disk.crash(step);
            check_found(&disk, &done, &format!("{context}, again at {step}"));
        }
    }
}

#[test]
fn removed_file_stays_removed_despite_older_revisions() {
    let disk = SimDisk::new(1);
    let storage = open(&disk).expect("open");
    fill(&storage, VB, 1..=3, 1);
    disk.fail_next(kedge_disk::Operation::Remove, Fault::Io);
    storage.replace(VB, &state(2, 0), 2).expect("replace");
    assert_eq!(storage.stats().files_left, 1);
    storage.remove(VB).expect("remove");
    for seed in 0..10 {
        let disk = disk.fork();
        disk.crash(seed);
        assert_eq!(path_of(&disk, VB), None);
    }
}

/// Runs `change` on a copy of `base`, with a power loss at its operation `number`. Returns the state at the next start,
/// and whether `change` returned.
fn cut_off(
    base: &SimDisk,
    number: u64,
    change: impl FnOnce(&Storage) -> Result<(), StorageError>,
) -> (SimDisk, bool) {
    let disk = base.fork();
    let storage = open(&disk).expect("open");
    disk.fail_operation(disk.operations() + number, Fault::PowerLoss);
    let done = change(&storage).is_ok();
    drop(storage);
    disk.crash(number);
    // The next start is cut off somewhere, too.
    disk.fail_operation(disk.operations() + 1 + number % 4, Fault::PowerLoss);
    let _ = open(&disk);
    disk.crash(number + 1);
    (disk, done)
}

#[test]
fn deletion_is_atomic_and_a_recreated_vbucket_is_never_the_old_one() {
    for has_file in [true, false] {
        let base = SimDisk::new(1);
        let storage = open(&base).expect("open");
        if has_file {
            let committed = storage.commit(VB, &documents(1..=3), &state(1, 3), 1);
            committed.expect("commit");
        }
        let before = state_of(&storage).expect("a state");
        drop(storage);
        for number in 1.. {
            let (disk, done) = cut_off(&base, number, |storage| storage.delete(VB));
            let storage = open(&disk).expect("open");
            let found = state_of(&storage).expect("a state");
            if storage.is_deleted(VB) {
                assert_eq!(found, None);
            } else {
                assert!(!done && found == before, "operation {number}");
            }
            storage.delete(VB).expect("delete");
            storage.delete(VB).expect("it is deleted already");
            assert_eq!(names(&disk).len(), 1, "a mark, and nothing else");
            drop(storage);
            if number > 10 {
                assert!(done, "it took {number} operations");
                break;
            }
        }
        let storage = open(&base).expect("open");
        storage.delete(VB).expect("delete");
        drop(storage);
        for number in 1.. {
            let new = documents(1..=1);
            let (disk, done) = cut_off(&base, number, |storage| {
                storage.commit(VB, &new, &state(2, 1), 1).map(drop)
            });
            let storage = open(&disk).expect("open");
            match state_of(&storage).expect("a state") {
                None => assert!(!done && storage.is_deleted(VB), "operation {number}"),
                Some((_, uuid)) => {
                    assert!(uuid == 2 && !storage.is_deleted(VB));
                    assert_eq!(names(&disk).len(), 1, "the mark is gone");
                }
            }
            storage
                .replace(VB, &state(3, 0), 1)
                .expect("it goes on in any case");
            drop(storage);
            if number > 20 {
                assert!(done, "it took {number} operations");
                break;
            }
        }
    }
}
