//! The state of an embedded store, as a value: keys and the newest changes.
//!
//! Invariants:
//! * the revision grows by one with each transaction that changes something;
//! * `history` has all changes of the revisions after `compacted`.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::{
    Change, Compare, Conflict, CoordinationError, Entry, Op, Revision, Transaction, WatchEvent,
};

/// The largest number of changes in the history.
pub(super) const HISTORY_CHANGES_MAX: usize = 1_000;
/// The largest sum of keys and values in the history, in bytes. Every change writes all of it, and nodes change their leases
/// all the time.
const HISTORY_BYTES_MAX: usize = 32 << 10;

/// Everything that the file has but its header.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct State {
    #[serde(skip)]
    pub(super) revision: u64,
    keys: BTreeMap<String, Stored>,
    compacted: u64,
    history: VecDeque<StoredChange>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    #[serde(with = "base64_bytes")]
    value: Vec<u8>,
    created: u64,
    modified: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredChange {
    revision: u64,
    key: String,
    /// `None` for a deletion.
    put: Option<Stored>,
}

impl State {
    /// Creates the state of a new store, at revision 1.
    pub(super) fn new() -> Self {
        State {
            revision: 1,
            ..State::default()
        }
    }

    /// Executes a transaction, which was checked.
    pub(super) fn transact(
        &mut self,
        transaction: &Transaction,
    ) -> Result<Revision, CoordinationError> {
        if !transaction.compares().iter().all(|it| self.holds(it)) {
            let keys = transaction.compared_keys().into_iter();
            let present = keys.map(|key| (key.to_owned(), self.entry(key))).collect();
            return Err(CoordinationError::Conflict(Conflict {
                revision: Revision(self.revision),
                present,
            }));
        }
        let next = self.revision + 1;
        for op in transaction.ops() {
            self.apply(next, op);
        }
        Ok(Revision(self.revision))
    }

    fn holds(&self, compare: &Compare) -> bool {
        let stored = self.keys.get(compare.key());
        match compare {
            Compare::Absent(_) => stored.is_none(),
            Compare::Unchanged(_, at) => stored.is_some_and(|it| it.modified == at.0),
            Compare::Value(_, value) => stored.is_some_and(|it| it.value == *value),
        }
    }

    fn apply(&mut self, revision: u64, op: &Op) {
        match op {
            Op::Put { key, value } => {
                let created = self.keys.get(key).map_or(revision, |it| it.created);
                let stored = Stored {
                    value: value.clone(),
                    created,
                    modified: revision,
                };
                self.keys.insert(key.clone(), stored.clone());
                self.note(revision, key, Some(stored));
            }
            Op::Delete { key } => {
                if self.keys.remove(key).is_some() {
                    self.note(revision, key, None);
                }
            }
        }
    }

    /// Adds a change to the history, and removes the oldest revisions where there are too many.
    fn note(&mut self, revision: u64, key: &str, put: Option<Stored>) {
        self.revision = revision;
        self.history.push_back(StoredChange {
            revision,
            key: key.to_owned(),
            put,
        });
        let bytes = |change: &StoredChange| {
            change.key.len() + change.put.as_ref().map_or(0, |it| it.value.len())
        };
        let mut sum: usize = self.history.iter().map(bytes).sum();
        while self.history.len() > HISTORY_CHANGES_MAX || sum > HISTORY_BYTES_MAX {
            let oldest = self.history.front().map_or(revision, |it| it.revision);
            if oldest == revision {
                break;
            }
            while let Some(change) = self.history.pop_front_if(|it| it.revision == oldest) {
                sum -= bytes(&change);
            }
            self.compacted = oldest;
        }
    }

    fn entry(&self, key: &str) -> Option<Entry> {
        self.keys.get(key).map(|stored| stored.entry(key))
    }

    /// Returns the entries of the keys that begin with `prefix`.
    pub(super) fn entries(&self, prefix: &str) -> Vec<Entry> {
        let keys = self.keys.iter();
        keys.filter(|(key, _)| key.starts_with(prefix))
            .map(|(key, it)| it.entry(key))
            .collect()
    }

    /// Returns the changes after a revision, or `None` if the history begins later.
    pub(super) fn events_after(&self, after: u64) -> Option<Vec<WatchEvent>> {
        if after < self.compacted {
            return None;
        }
        let mut events = Vec::new();
        let newer = self.history.iter().filter(|it| it.revision > after);
        for change in newer {
            let revision = Revision(change.revision);
            let made = match &change.put {
                Some(stored) => Change::Put(stored.entry(&change.key)),
                None => Change::Delete(change.key.clone()),
            };
            match events.last_mut() {
                Some(WatchEvent::Changes {
                    revision: last,
                    changes,
                }) if *last == revision => changes.push(made),
                _ => events.push(WatchEvent::Changes {
                    revision,
                    changes: vec![made],
                }),
            }
        }
        Some(events)
    }
}

impl Stored {
    fn entry(&self, key: &str) -> Entry {
        Entry {
            key: key.to_owned(),
            value: self.value.clone(),
            create_revision: Revision(self.created),
            mod_revision: Revision(self.modified),
        }
    }
}

/// Bytes as base64 text.
mod base64_bytes {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(from)?;
        STANDARD.decode(text).map_err(D::Error::custom)
    }
}
