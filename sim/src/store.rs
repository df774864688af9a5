//! A model of the coordination store: the content that a quorum of its members agrees on.
//!
//! Invariants:
//! * Transactions take effect one after the other, at the moment of the call: the store is linearizable.
//! * The revision grows by one with each transaction that changes something.
//! * `history` has all changes of the revisions after `compacted`.

use kedge_coordination::{
    Change, Compare, Conflict, CoordinationError, Entry, Op, Revision, Snapshot, StorePosition,
    Transaction, WatchEvent,
};
use std::collections::{BTreeMap, VecDeque};

/// The content of a store. A clone is a backup.
#[derive(Clone, Debug)]
pub struct StoreModel {
    /// The identity, as etcd's cluster id.
    store: u64,
    revision: u64,
    keys: BTreeMap<String, Entry>,
    compacted: u64,
    history: VecDeque<(u64, Vec<Change>)>,
}

impl StoreModel {
    /// Creates an empty store, at revision 1.
    #[must_use]
    pub fn new(store: u64) -> Self {
        Self {
            store,
            revision: 1,
            keys: BTreeMap::new(),
            compacted: 0,
            history: VecDeque::new(),
        }
    }

    /// Returns the position.
    #[must_use]
    pub fn position(&self) -> StorePosition {
        StorePosition {
            store: self.store,
            revision: Revision(self.revision),
        }
    }

    /// Reads all keys.
    #[must_use]
    pub fn read(&self) -> Snapshot {
        Snapshot {
            position: self.position(),
            entries: self.keys.values().cloned().collect(),
        }
    }

    /// Returns the entry of a key.
    #[must_use]
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.keys.get(key)
    }

    /// Executes a transaction.
    ///
    /// # Errors
    /// `Invalid`, `Conflict`.
    pub fn transact(&mut self, transaction: &Transaction) -> Result<Revision, CoordinationError> {
        transaction.check()?;
        if !transaction.compares().iter().all(|it| self.holds(it)) {
            let keys = transaction.compared_keys().into_iter();
            let present = keys.map(|key| (key.to_owned(), self.keys.get(key).cloned()));
            return Err(CoordinationError::Conflict(Conflict {
                revision: Revision(self.revision),
                present: present.collect(),
            }));
        }
        let next = self.revision + 1;
        let ops = transaction.ops().iter();
        let changes: Vec<Change> = ops.filter_map(|op| self.apply(next, op)).collect();
        if !changes.is_empty() {
            self.revision = next;
            self.history.push_back((next, changes));
        }
        Ok(Revision(self.revision))
    }

    fn holds(&self, compare: &Compare) -> bool {
        let entry = self.keys.get(compare.key());
        match compare {
            Compare::Absent(_) => entry.is_none(),
            Compare::Unchanged(_, at) => entry.is_some_and(|it| it.mod_revision == *at),
            Compare::Value(_, value) => entry.is_some_and(|it| it.value == *value),
        }
    }

    fn apply(&mut self, revision: u64, op: &Op) -> Option<Change> {
        match op {
            Op::Put { key, value } => {
                let before = self.keys.get(key);
                let entry = Entry {
                    key: key.clone(),
                    value: value.clone(),
                    create_revision: before.map_or(Revision(revision), |it| it.create_revision),
                    mod_revision: Revision(revision),
                };
                self.keys.insert(key.clone(), entry.clone());
                Some(Change::Put(entry))
            }
            Op::Delete { key } => {
                let before = self.keys.remove(key);
                before.map(|_| Change::Delete(key.clone()))
            }
        }
    }

    /// Returns the changes of the revisions after `after`, up to and with `upto`, or `None` if the history begins later.
    #[must_use]
    pub fn changes(&self, after: Revision, upto: Revision) -> Option<Vec<WatchEvent>> {
        if after.0 < self.compacted {
            return None;
        }
        let wanted =
            |(revision, _): &&(u64, Vec<Change>)| (after.0 + 1..=upto.0).contains(revision);
        let event = |(revision, changes): &(u64, Vec<Change>)| WatchEvent::Changes {
            revision: Revision(*revision),
            changes: changes.clone(),
        };
        Some(self.history.iter().filter(wanted).map(event).collect())
    }

    /// Forgets the history up to and with a revision.
    pub fn compact(&mut self, upto: Revision) {
        self.compacted = self.compacted.max(upto.0.min(self.revision));
        let compacted = self.compacted;
        self.history.retain(|(revision, _)| *revision > compacted);
    }

    /// Removes all keys with a prefix from a backup: it was made before there were any. No watch hears of it.
    pub fn remove_prefix(&mut self, prefix: &str) {
        self.keys.retain(|key, _| !key.starts_with(prefix));
    }

    /// Gives a restored backup another identity.
    pub fn set_store(&mut self, store: u64) {
        self.store = store;
    }
}
