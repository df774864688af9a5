//! Power loss at every operation of a history, and of the open after it.

use kedge_couchstore::{CreateOptions, Error, Options, Snapshot, Version, Writer};
use kedge_disk::{Disk, Fault, Operation, SimDisk};
use kedge_types::Seqno;

use crate::support::{Doc, by_id, disk, open, path, save};

/// The state that a reader sees: documents, the local document, update seqno.
type State = (Vec<Doc>, Option<Vec<u8>>, u64);

/// The state of a history at a power loss.
#[derive(Default)]
struct Done {
    /// States whose commits returned, oldest first.
    committed: Vec<State>,
    /// The state of the commit in progress.
    in_flight: Option<State>,
}

fn state_of(snapshot: &Snapshot) -> State {
    snapshot.check(&mut |_| {}).expect("sound");
    let local = snapshot.local(b"_local/vbstate").expect("a local document");
    let docs = by_id(snapshot).expect("documents");
    (docs, local, snapshot.header().update_seqno().0)
}

struct History<'a> {
    disk: &'a SimDisk,
    done: &'a mut Done,
    docs: std::collections::BTreeMap<Vec<u8>, Doc>,
    seqno: u64,
}

impl History<'_> {
    fn commit(&mut self, writer: &mut Writer, docs: &[Doc]) -> Result<(), Error> {
        save(writer, docs)?;
        for doc in docs {
            self.docs.insert(doc.key.clone(), doc.clone());
            self.seqno = doc.seqno;
        }
        self.finish(writer)
    }

    fn finish(&mut self, writer: &mut Writer) -> Result<(), Error> {
        let local = self.seqno.to_string().into_bytes();
        writer.save_locals(&[(b"_local/vbstate", Some(&local))])?;
        let state = (
            self.docs.values().cloned().collect(),
            Some(local),
            self.seqno,
        );
        self.done.in_flight = Some(state.clone());
        writer.commit(self.seqno)?;
        self.done.in_flight = None;
        self.done.committed.push(state);
        Ok(())
    }

    fn docs(&self, count: u64, body_bytes: usize) -> Vec<Doc> {
        (1..=count)
            .map(|n| Doc {
                body: Some(vec![n as u8; body_bytes]),
                compress: false,
                ..Doc::new(
                    format!("k{}", (self.seqno * 7 + n * 11) % 90),
                    self.seqno + n,
                )
            })
            .collect::<Vec<_>>()
    }

    /// Performs every kind of operation on a file: small and large commits, local documents alone, reopens, a rollback,
    /// an early sync, and discarded changes.
    fn run(&mut self, version: Version) -> Result<(), Error> {
        let new = CreateOptions {
            version,
            encryption: None,
        };
        let mut writer = Writer::create(self.disk, path(), &new, &Options::default())?;
        self.disk.sync_dir(path().parent().expect("a directory"))?;
        for (count, body_bytes) in [(1, 10), (20, 300), (3, 4000), (40, 1500)] {
            let docs = self.docs(count, body_bytes);
            self.commit(&mut writer, &docs)?;
        }
        self.finish(&mut writer)?;
        drop(writer);
        let mut writer = Writer::open(self.disk, path(), &Options::default())?;
        let lost = self.docs(5, 100);
        save(&mut writer, &lost)?;
        writer.sync()?;
        writer.give_up();
        let docs = self.docs(30, 200);
        self.commit(&mut writer, &docs)?;
        let point = writer.rollback_point(Seqno(25))?.expect("there is one");
        writer.rewind(point.header())?;
        self.docs = by_id(&point)?
            .into_iter()
            .map(|doc| (doc.key.clone(), doc))
            .collect();
        self.seqno = point.header().update_seqno().0;
        self.finish(&mut writer)?;
        let mut writer = Writer::open(self.disk, path(), &Options::default())?;
        let docs = self.docs(12, 700);
        self.commit(&mut writer, &docs)
    }
}

fn run(disk: &SimDisk, version: Version, done: &mut Done) -> Result<(), Error> {
    let mut history = History {
        disk,
        done,
        docs: std::collections::BTreeMap::new(),
        seqno: 0,
    };
    history.run(version)
}

/// Returns the history stopped at each of its operations.
fn stopped(fault: Fault) -> impl Iterator<Item = (SimDisk, Done, String)> {
    [Version::V13, Version::V14]
        .into_iter()
        .flat_map(move |version| {
            let whole = disk(1);
            let before = whole.operations();
            run(&whole, version, &mut Done::default()).expect("nothing goes wrong");
            let operations = whole.operations();
            assert!(
                operations - before > 40,
                "the history does {operations} operations"
            );
            (before + 1..=operations).map(move |number| {
                let disk = disk(number);
                disk.fail_operation(number, fault);
                let mut done = Done::default();
                let result = run(&disk, version, &mut done);
                assert!(result.is_err(), "operation {number} failed");
                (disk, done, format!("{version:?}, operation {number}"))
            })
        })
}

/// Checks the state after a crash: the last one whose commit returned, or the one in progress.
fn check(disk: &SimDisk, done: &Done, what: &str) -> Option<State> {
    let snapshot = match open(disk) {
        Ok(snapshot) => snapshot,
        // Before the first commit has returned there may be no file, or an empty one.
        Err(error) => {
            let none = error.is_not_found() || matches!(error, Error::NoHeader { .. });
            assert!(none && done.committed.is_empty(), "{what}: {error}");
            return None;
        }
    };
    let found = state_of(&snapshot);
    let empty = (Vec::new(), None, 0);
    let last = done.committed.last().unwrap_or(&empty);
    assert!(
        found == *last || Some(&found) == done.in_flight.as_ref(),
        "{what}: found {} documents at {}",
        found.0.len(),
        found.2
    );
    Some(found)
}

#[test]
fn power_loss_at_every_operation_leaves_the_last_commit() {
    for (disk, done, what) in stopped(Fault::PowerLoss) {
        for seed in 0..10 {
            let what = format!("{what}, seed {seed}");
            let disk = disk.fork();
            disk.crash(seed);
            let Some(found) = check(&disk, &done, &what) else {
                continue;
            };
            // The history continues, and neither this state nor the next is lost in another crash.
            let mut writer = Writer::open(&disk, path(), &Options::default())
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(state_of(&writer.snapshot()), found, "{what}");
            disk.crash(seed + 100);
            assert_eq!(state_of(&open(&disk).expect("open")), found, "{what}");
            writer = Writer::open(&disk, path(), &Options::default()).expect("open");
            let seqno = found.2 + 1;
            save(&mut writer, &[Doc::new("more", seqno)]).expect("save");
            writer.commit(1).expect("commit");
            drop(writer);
            disk.crash(seed + 200);
            let snapshot = open(&disk).unwrap_or_else(|error| panic!("{what}: {error}"));
            let again = state_of(&snapshot);
            assert_eq!(again.2, seqno, "{what}");
            assert!(again.0.iter().any(|doc| doc.key == b"more"), "{what}");
        }
    }
}

/// Asserts that the file has the same contents after each of several power failures.
fn assert_survives_power_failures(disk: &SimDisk, found: &State, what: &str) {
    // The creator of the file is responsible for its name.
    disk.sync_dir(path().parent().expect("a directory"))
        .expect("sync");
    for seed in 0..6 {
        let disk = disk.fork();
        disk.crash(seed);
        let snapshot = open(&disk).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(&state_of(&snapshot), found, "{what}, seed {seed}");
    }
}

#[test]
fn commit_found_by_a_writer_is_durable() {
    // A process is killed, or a sync fails, between the write of a header's type byte and its sync. The next process
    // finds the commit in the page cache and builds on it. Then the power fails.
    for (disk, done, what) in stopped(Fault::Io) {
        disk.kill_process();
        if check(&disk, &done, &what).is_none() {
            continue;
        }
        let writer = Writer::open(&disk, path(), &Options::default()).expect("open");
        let found = state_of(&writer.snapshot());
        drop(writer);
        assert_survives_power_failures(&disk, &found, &what);
    }
}

/// A disk without space for the rewrite of the header refused the writer before the sync: what readers had seen was lost
/// in a power failure.
#[test]
fn commit_found_by_readers_is_durable_when_a_full_disk_refuses_the_writer() {
    for (disk, done, what) in stopped(Fault::PowerLoss) {
        disk.kill_process();
        if check(&disk, &done, &what).is_none() {
            continue;
        }
        let found = state_of(&open(&disk).expect("open"));
        disk.fail_every(Operation::Write, Fault::NoSpace);
        let refused = Writer::open(&disk, path(), &Options::default());
        assert!(refused.expect_err("no space").is_no_space(), "{what}");
        assert_survives_power_failures(&disk, &found, &what);
    }
}

#[test]
fn power_loss_during_an_open_changes_nothing() {
    for (disk, done, what) in stopped(Fault::PowerLoss).step_by(3) {
        disk.crash(7);
        let Some(found) = check(&disk, &done, &what) else {
            continue;
        };
        let undisturbed = disk.fork();
        drop(Writer::open(&undisturbed, path(), &Options::default()).expect("open"));
        for step in 1..=undisturbed.operations() - disk.operations() {
            for seed in 0..4 {
                let disk = disk.fork();
                disk.fail_operation(disk.operations() + step, Fault::PowerLoss);
                drop(Writer::open(&disk, path(), &Options::default()));
                disk.crash(seed);
                let snapshot = open(&disk).unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_eq!(
                    state_of(&snapshot),
                    found,
                    "{what}, step {step}, seed {seed}"
                );
            }
        }
    }
}
