//! Writers that remember what they wrote, and what may be there after the server was killed.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use kedge::client::{ClientConnection, StoredMutation};
use kedge_types::{Cas, DurabilityLevel, Status, VbId};

use crate::process::PATIENCE;
use crate::random::Random;

/// A state that a document may be in.
#[derive(Clone)]
struct State {
    /// `None` when there is no document.
    value: Option<Vec<u8>>,
    /// The server's reply; `None` if there was none.
    stored: Option<StoredMutation>,
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
            let name = value.split(|byte| *byte == b'|').next();
            let name = String::from_utf8_lossy(name.unwrap_or_default());
            format!("{name:?} in {} bytes", value.len())
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
    fn acknowledged(&mut self, stored: StoredMutation, persisted: bool) {
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

    /// Looks at what a server that runs gave: the last state that it acknowledged, or one that it left open after it.
    fn check_read(&self, key: &str, value: Option<&[u8]>) {
        let known = self.0.iter().rposition(|state| state.stored.is_some());
        let allowed = &self.0[known.unwrap_or(0)..];
        assert!(
            allowed.iter().any(|state| state.value.as_deref() == value),
            "{key}: read {}, allowed are {allowed:#?}",
            brief(value)
        );
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

/// The behaviour of a writer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Habits {
    /// Documents that it has.
    pub(crate) keys: u64,
    /// Longest value, in bytes.
    pub(crate) value_bytes_max: u64,
    /// One of so many commands is a read.
    pub(crate) one_read_in: Option<u64>,
    /// Statuses that a write may end with; what was refused did not happen, but for `SyncWriteAmbiguous`.
    pub(crate) passing: &'static [Status],
}

/// The writes of one writer, over all rounds.
#[derive(Debug)]
pub(crate) struct Writer {
    number: usize,
    habits: Habits,
    random: Random,
    counter: u64,
    histories: BTreeMap<String, History>,
    /// Highest seqno and CAS per vBucket that were acknowledged as persisted.
    persisted: BTreeMap<VbId, StoredMutation>,
    pub(crate) acknowledged: u64,
}

impl Writer {
    pub(crate) fn new(number: usize, habits: Habits, seed: u64) -> Self {
        let keys = (0..habits.keys).map(|key| format!("writer-{number}-{key}"));
        Self {
            number,
            habits,
            random: Random::new(seed),
            counter: 0,
            histories: keys.map(|key| (key, History::new())).collect(),
            persisted: BTreeMap::new(),
            acknowledged: 0,
        }
    }

    /// Writes, and reads, until the server is gone.
    pub(crate) fn write(
        &mut self,
        connection: &mut ClientConnection,
        stop: &AtomicBool,
        done: &AtomicU64,
    ) {
        while !stop.load(Ordering::Relaxed) {
            let key = format!(
                "writer-{}-{}",
                self.number,
                self.random.below(self.habits.keys)
            );
            let read = self.habits.one_read_in;
            if read.is_some_and(|one_in| self.random.below(one_in) == 0) {
                match connection.get(key.as_bytes()) {
                    Ok(found) => {
                        let value = found.map(|it| it.value);
                        self.histories[&key].check_read(&key, value.as_deref());
                    }
                    Err(error) if error.is_fatal() => return,
                    Err(error) if self.is_passing(error.status()) => {}
                    Err(error) => panic!("{key}: {error}"),
                }
                continue;
            }
            if !self.write_one(connection, &key, done) {
                return;
            }
        }
    }

    fn is_passing(&self, status: Option<Status>) -> bool {
        status.is_some_and(|status| self.habits.passing.contains(&status))
    }

    /// A write. False when the server is gone.
    fn write_one(
        &mut self,
        connection: &mut ClientConnection,
        key: &str,
        done: &AtomicU64,
    ) -> bool {
        let level = match self.random.below(8) {
            0 => None,
            1 => Some(DurabilityLevel::Majority),
            2..=4 => Some(DurabilityLevel::MajorityAndPersistOnActive),
            _ => Some(DurabilityLevel::PersistToMajority),
        };
        let history = self.histories.get_mut(key).expect("all keys have one");
        let result = if self.random.below(10) == 0 {
            history.asked(None);
            connection.delete(key.as_bytes(), level)
        } else {
            self.counter += 1;
            let mut value = format!("{}:{}|", self.number, self.counter).into_bytes();
            // Noise, as what can be compressed takes no room in the files.
            let padding = self.random.below(self.habits.value_bytes_max) as usize;
            value.extend(self.random.bytes(padding));
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
            Err(error) if error.is_fatal() => return false,
            Err(error) => match error.status() {
                Some(Status::KeyNotFound) => history.refused(),
                Some(Status::SyncWriteAmbiguous) if self.is_passing(error.status()) => {}
                status if self.is_passing(status) => {
                    let history = self.histories.get_mut(key).expect("all keys have one");
                    history.refused();
                }
                _ => panic!("{key}: {error}"),
            },
        }
        true
    }

    fn raise(&mut self, vb: VbId, stored: StoredMutation) {
        if let Some(before) = self.persisted.insert(vb, stored) {
            // A SyncWrite's commit has a seqno of its own, and need not be on disk when its prepare is. After a kill it
            // is made anew, in a branch that goes on behind what was.
            assert!(
                stored.seqno > before.seqno || stored.uuid != before.uuid,
                "{vb:?}: seqnos grow: {before:?} {stored:?}"
            );
            assert!(
                stored.cas > before.cas,
                "{vb:?}: CASes grow: {before:?} {stored:?}"
            );
        }
    }

    /// Looks at every document after a restart, and that what comes next is later than all that was.
    pub(crate) fn check(&mut self, connection: &mut ClientConnection) {
        for (key, history) in &mut self.histories {
            let document = connection.get(key.as_bytes()).expect("the server answers");
            let (value, cas) = document.map(|it| (it.value, it.cas)).unzip();
            history.check(key, value, cas);
        }
        let key = format!("writer-{}-0", self.number);
        let vb = VbId::of_key(key.as_bytes(), connection.vbuckets());
        let level = Some(DurabilityLevel::PersistToMajority);
        let deadline = Instant::now() + PATIENCE;
        let stored = loop {
            match connection.set(key.as_bytes(), b"checked", level) {
                Ok(stored) => break stored,
                Err(error) => assert!(
                    self.is_passing(error.status()) && Instant::now() < deadline,
                    "{key}: {error}"
                ),
            }
        };
        let history = self.histories.get_mut(&key).expect("all keys have one");
        history.asked(Some(b"checked".to_vec()));
        history.acknowledged(stored, true);
        self.raise(vb, stored);
    }
}

/// The published state of each vBucket: the uuid of its branch, and its persisted seqno.
#[derive(Debug, Default)]
pub(crate) struct Published(BTreeMap<String, (String, u64)>);

impl Published {
    pub(crate) fn read(connection: &mut ClientConnection) -> Self {
        let stats = statistics(connection, "vbucket-seqno");
        let uuids = stats
            .iter()
            .filter_map(|(name, uuid)| Some((name.strip_suffix(":uuid")?, uuid)));
        let of = |vb: &str| number(&stats, &format!("{vb}:last_persisted_seqno"));
        Self(
            uuids
                .map(|(vb, uuid)| (vb.to_owned(), (uuid.clone(), of(vb))))
                .collect(),
        )
    }

    /// After a restart: the branches are known, and nothing that was persisted in them was taken back.
    pub(crate) fn check(&self, connection: &mut ClientConnection) {
        let now = statistics(connection, "vbucket-seqno");
        let failovers = statistics(connection, "failovers");
        for (vb, (uuid, persisted)) in &self.0 {
            let high = number(&now, &format!("{vb}:high_seqno"));
            assert!(high >= *persisted, "{vb} has {high} after {persisted}");
            let branch = (0..number(&failovers, &format!("{vb}:num_entries")))
                .find(|at| failovers[&format!("{vb}:{at}:id")] == *uuid);
            let branch = branch.unwrap_or_else(|| panic!("{vb} does not know {uuid}"));
            if branch > 0 {
                let end = number(&failovers, &format!("{vb}:{}:seq", branch - 1));
                assert!(
                    end >= *persisted,
                    "{vb}: {uuid} ended at {end}, not {persisted}"
                );
            }
        }
    }
}

fn statistics(connection: &mut ClientConnection, group: &str) -> BTreeMap<String, String> {
    let stats = connection.stat(group).expect("statistics");
    stats.into_iter().collect()
}

fn number(stats: &BTreeMap<String, String>, name: &str) -> u64 {
    let text = stats.get(name).unwrap_or_else(|| panic!("no {name}"));
    text.parse().unwrap_or_else(|_| panic!("{name}: {text}"))
}
