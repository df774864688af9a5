//! What was acknowledged as persisted is there after `kill -9`.
//!
//! Writers store and remove documents at the levels that wait for the disk, and some without waiting, while the
//! process is killed at a random moment; sometimes it is killed again while it recovers. After each restart every
//! document is one of the states that its history allows:
//! * the last state that was acknowledged as persisted, or
//! * one that was asked for after it: acknowledged from memory, or never answered.
//!
//! `KEDGE_CRASH_ROUNDS` is the number of kills (50), `KEDGE_CRASH_SEED` repeats a run's choices.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use kedge::client::{Connection, Stored};
use kedge_types::{Cas, DurabilityLevel, Status, VbId};

use crate::process::{Server, serve, wait_for};
use crate::random::Random;

const WRITERS: usize = 6;
const KEYS_PER_WRITER: u64 = 24;
const ROUNDS_DEFAULT: u64 = 50;

/// A state that a document may be in.
#[derive(Clone)]
struct State {
    /// `None` when there is no document.
    value: Option<Vec<u8>>,
    /// What the server said about it; `None` if it did not answer.
    stored: Option<Stored>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", brief(self.value.as_deref()), self.stored)
    }
}

/// A value without its padding.
fn brief(value: Option<&[u8]>) -> String {
    match value {
        None => "no document".to_owned(),
        Some(value) => {
            let text = String::from_utf8_lossy(value);
            format!("{:?} in {} bytes", text.trim_end_matches('.'), value.len())
        }
    }
}

/// The states that one document may be in after a crash: the last persisted one, and later ones.
#[derive(Clone, Debug)]
struct History(Vec<State>);

impl History {
    fn new() -> Self {
        Self(vec![State {
            value: None,
            stored: None,
        }])
    }

    /// Something was asked for and not answered.
    fn asked(&mut self, value: Option<Vec<u8>>) {
        self.0.push(State {
            value,
            stored: None,
        });
    }

    /// The last thing asked for was acknowledged.
    fn acknowledged(&mut self, stored: Stored, persisted: bool) {
        let mut last = self.0.pop().expect("it was asked for");
        last.stored = Some(stored);
        if persisted {
            self.0.clear();
        }
        self.0.push(last);
    }

    /// The last thing asked for was refused: it did not happen.
    fn refused(&mut self) {
        self.0.pop();
    }

    /// Looks at what is there after a restart, and goes on from it.
    fn check(&mut self, key: &str, value: Option<Vec<u8>>, cas: Option<Cas>) {
        let allowed = self.0.iter().rev().find(|state| state.value == value);
        let Some(state) = allowed else {
            panic!(
                "{key}: found {} with {cas:?}, allowed are {:#?}",
                brief(value.as_deref()),
                self.0
            );
        };
        if let (Some(stored), Some(cas)) = (state.stored, cas) {
            assert_eq!(stored.cas, cas, "{key}: the document's CAS changed");
        }
        // What a recovery brought back stays.
        *self = Self(vec![State {
            value,
            stored: state.stored,
        }]);
    }
}

/// What one writer did, over all rounds.
#[derive(Debug)]
struct Writer {
    number: usize,
    random: Random,
    counter: u64,
    histories: BTreeMap<String, History>,
    /// Highest seqno and CAS per vBucket that were acknowledged as persisted.
    persisted: BTreeMap<VbId, Stored>,
    acknowledged: u64,
}

impl Writer {
    fn new(number: usize, seed: u64) -> Self {
        let keys = (0..KEYS_PER_WRITER).map(|key| format!("writer-{number}-{key}"));
        Self {
            number,
            random: Random::new(seed),
            counter: 0,
            histories: keys.map(|key| (key, History::new())).collect(),
            persisted: BTreeMap::new(),
            acknowledged: 0,
        }
    }

    /// Writes until the server is gone.
    fn write(&mut self, connection: &mut Connection, stop: &AtomicBool, done: &AtomicU64) {
        while !stop.load(Ordering::Relaxed) {
            let key = format!(
                "writer-{}-{}",
                self.number,
                self.random.below(KEYS_PER_WRITER)
            );
            let level = match self.random.below(8) {
                0 => None,
                1 => Some(DurabilityLevel::Majority),
                2..=4 => Some(DurabilityLevel::MajorityAndPersistOnActive),
                _ => Some(DurabilityLevel::PersistToMajority),
            };
            let history = self.histories.get_mut(&key).expect("all keys have one");
            let result = if self.random.below(10) == 0 {
                history.asked(None);
                connection.delete(key.as_bytes(), level)
            } else {
                self.counter += 1;
                let mut value = format!("{}:{}:", self.number, self.counter).into_bytes();
                let padding = self.random.below(2000) as usize;
                value.resize(value.len() + padding, b'.');
                history.asked(Some(value.clone()));
                connection.set(key.as_bytes(), &value, level)
            };
            match result {
                Ok(stored) => {
                    let persisted = level.is_some_and(DurabilityLevel::needs_persistence);
                    history.acknowledged(stored, persisted);
                    self.acknowledged += 1;
                    done.fetch_add(1, Ordering::Relaxed);
                    if persisted {
                        let vb = VbId::of_key(key.as_bytes(), connection.vbuckets());
                        self.raise(vb, stored);
                    }
                }
                Err(error) if error.status() == Some(Status::KeyNotFound) => history.refused(),
                Err(error) if error.is_fatal() => return,
                Err(error) => panic!("{key}: {error}"),
            }
        }
    }

    fn raise(&mut self, vb: VbId, stored: Stored) {
        if let Some(before) = self.persisted.insert(vb, stored) {
            assert!(
                stored.seqno > before.seqno,
                "{vb:?}: seqnos grow: {before:?} {stored:?}"
            );
            assert!(
                stored.cas > before.cas,
                "{vb:?}: CASes grow: {before:?} {stored:?}"
            );
        }
    }

    /// Looks at every document after a restart, and that what comes next is later than all that was.
    fn check(&mut self, connection: &mut Connection) {
        for (key, history) in &mut self.histories {
            let document = connection.get(key.as_bytes()).expect("the server answers");
            let (value, cas) = document.map(|it| (it.value, it.cas)).unzip();
            history.check(key, value, cas);
        }
        let key = format!("writer-{}-0", self.number);
        let vb = VbId::of_key(key.as_bytes(), connection.vbuckets());
        let history = self.histories.get_mut(&key).expect("all keys have one");
        history.asked(Some(b"checked".to_vec()));
        let level = Some(DurabilityLevel::PersistToMajority);
        let stored = connection
            .set(key.as_bytes(), b"checked", level)
            .expect("the server answers");
        history.acknowledged(stored, true);
        self.raise(vb, stored);
    }
}

/// Starts a server and kills it while it recovers.
fn kill_in_recovery(dir: &Path, after: Duration) {
    let mut command = serve(dir, &[]);
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    // sleep: the moment of the kill is what the test varies
    thread::sleep(after);
    child.kill().expect("the process is ours");
    wait_for(&mut child);
}

#[test]
fn what_was_persisted_survives_kill_9() {
    let mut random = Random::from_environment("KEDGE_CRASH_SEED");
    let rounds = std::env::var("KEDGE_CRASH_ROUNDS")
        .ok()
        .and_then(|text| text.parse().ok());
    let rounds: u64 = rounds.unwrap_or(ROUNDS_DEFAULT);
    let dir = tempfile::tempdir().expect("a directory");
    let mut writers: Vec<Writer> = (0..WRITERS)
        .map(|number| Writer::new(number, random.next()))
        .collect();

    for round in 0..rounds {
        if random.below(4) == 0 {
            kill_in_recovery(dir.path(), Duration::from_micros(random.below(30_000)));
        }
        let server = Server::start(dir.path(), &[]);
        let mut connection = server.connect();
        for writer in &mut writers {
            writer.check(&mut connection);
        }
        let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            for writer in &mut writers {
                let mut connection = server.connect();
                let (stop, done) = (&stop, &done);
                scope.spawn(move || writer.write(&mut connection, stop, done));
            }
            // sleep: the moment of the kill is what the test varies
            thread::sleep(Duration::from_micros(20_000 + random.below(330_000)));
            server.kill();
            stop.store(true, Ordering::Relaxed);
        });
        eprintln!(
            "round {round}: {} acknowledged",
            done.load(Ordering::Relaxed)
        );
    }

    let server = Server::start(dir.path(), &[]);
    let mut connection = server.connect();
    for writer in &mut writers {
        writer.check(&mut connection);
    }
    let acknowledged: u64 = writers.iter().map(|writer| writer.acknowledged).sum();
    eprintln!("{rounds} rounds, {acknowledged} writes acknowledged");
    assert!(acknowledged > rounds, "the writers were at work");
}
