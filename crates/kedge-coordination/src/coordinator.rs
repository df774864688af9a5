//! The trait, and what its methods return.

use std::fmt;
use std::time::Duration;

use crate::{CoordinationError, Revision, StorePosition, Transaction};

/// A coordination store: a small, consistent map of keys with a history, under one cluster's prefix.
///
/// Calls block the thread until there is a result, at most for `timeout`. They must not be made from within an async
/// runtime. An implementation serves any number of threads.
pub trait Coordinator: fmt::Debug + Send + Sync {
    /// Reads the keys that begin with `prefix`, at one revision. The result contains every change that was completed before
    /// the call.
    ///
    /// # Errors
    /// `Unreachable`, `NoPermission`, `WentBackwards`, or an error of the embedded store's file.
    fn read_prefix(&self, prefix: &str, timeout: Duration) -> Result<Snapshot, CoordinationError>;

    /// Reads all keys at one revision, as [`Coordinator::read_prefix`] does.
    ///
    /// # Errors
    /// Those of [`Coordinator::read_prefix`].
    fn read(&self, timeout: Duration) -> Result<Snapshot, CoordinationError> {
        self.read_prefix("", timeout)
    }

    /// Makes the changes of a transaction together if all its compares hold, and returns the revision of the store that
    /// has them. Deletions of missing keys alone change nothing, and the revision stays.
    ///
    /// # Errors
    /// `Conflict` if a compare does not hold, `OutcomeUnknown`, `Refused`, `Invalid`, and the errors of [`Coordinator::read`].
    fn transact(
        &self,
        transaction: &Transaction,
        timeout: Duration,
    ) -> Result<Revision, CoordinationError>;

    /// Watches the changes after a revision, which is usually that of a [`Snapshot`].
    ///
    /// # Errors
    /// `WentBackwards` if that was found before. A store that cannot be reached shows in [`Watch::next`].
    fn watch(&self, after: Revision) -> Result<Box<dyn Watch>, CoordinationError>;

    /// Returns the newest position that this handle has seen. Given to the next handle, it shows whether the store went
    /// backwards in between.
    fn seen(&self) -> Option<StorePosition>;
}

/// The changes of a store, in order.
pub trait Watch: fmt::Debug + Send {
    /// Returns the next event, or `None` if there is none within `timeout`. Nothing is skipped silently: a lost
    /// connection is made again, and the watch resumes after the last event that it returned.
    ///
    /// # Errors
    /// `Unreachable` if there is no connection to the store at the end of the timeout, or `NoPermission`. The watch may
    /// be continued: nothing is lost.
    fn next(&mut self, timeout: Duration) -> Result<Option<WatchEvent>, CoordinationError>;
}

/// An event of a [`Watch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// All changes of one revision. Revisions grow, and those that change no key of this prefix are left out.
    Changes {
        /// The revision.
        revision: Revision,
        /// The changes, no key twice.
        changes: Vec<Change>,
    },
    /// The changes that follow are not known. The watch is at its end, and returns this event again: the caller reads
    /// everything, and watches from the revision of what it has read.
    ReadAgain(ReadAgain),
}

/// The reason why everything has to be read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadAgain {
    /// The store does not have the history any more.
    Compacted,
    /// The store is another one, or its revision is smaller than one that was seen. The calls of the [`Coordinator`]
    /// fail, too.
    WentBackwards,
}

/// A change of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The key has this entry now.
    Put(Entry),
    /// The key was deleted.
    Delete(String),
}

impl Change {
    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Change::Put(entry) => &entry.key,
            Change::Delete(key) => key,
        }
    }
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key, without the prefix of the cluster.
    pub key: String,
    /// The value.
    pub value: Vec<u8>,
    /// The revision in which the key was created.
    pub create_revision: Revision,
    /// The revision in which the key was last changed.
    pub mod_revision: Revision,
}

/// Keys at one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The position of the store.
    pub position: StorePosition,
    /// The entries, by key in ascending order.
    pub entries: Vec<Entry>,
}

impl Snapshot {
    /// Returns the entry of a key.
    #[must_use]
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        let found = self
            .entries
            .binary_search_by(|entry| entry.key.as_str().cmp(key));
        found.ok().map(|at| &self.entries[at])
    }

    /// Returns the revision.
    #[must_use]
    pub const fn revision(&self) -> Revision {
        self.position.revision
    }
}
