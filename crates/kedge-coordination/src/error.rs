//! The errors of this crate.

use kedge_disk::DiskError;

use crate::Entry;
use crate::position::{Revision, StorePosition};

/// The reason why a call of a [`crate::Coordinator`] failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CoordinationError {
    /// The store did not answer in time, or cannot be reached. Nothing was changed.
    #[error("the coordination store cannot be reached: {0}")]
    Unreachable(String),
    /// The connection was lost, or the time was over, after a change was sent. The change was made, or will be made, or
    /// never: the caller has to read.
    #[error("the coordination store may have made the change or not: {0}")]
    OutcomeUnknown(String),
    /// A compare of the transaction failed, and nothing was changed.
    #[error("another change came first: {}", .0.describe())]
    Conflict(Conflict),
    /// The store does not know the user, or the user may not do that under this prefix.
    #[error("the coordination store does not permit it: {0}")]
    NoPermission(String),
    /// The store is another one, or has an older state than this process has seen. Every later call fails with this error
    /// as well. Continuing takes a decision, and then a new [`crate::Coordinator`].
    #[error(
        "the coordination store went backwards, as after the restore of a backup: {seen} was seen, now there is {found}"
    )]
    WentBackwards {
        /// The newest position that was seen.
        seen: StorePosition,
        /// The position of the store now.
        found: StorePosition,
    },
    /// The store refuses the change, and will refuse it again: its storage is full, or a limit is exceeded.
    #[error("the coordination store refuses: {0}")]
    Refused(String),
    /// The arguments are not valid.
    #[error("{0}")]
    Invalid(String),
    /// An operation on the embedded store's directory failed. Nothing was changed.
    #[error("the coordination store: {0}")]
    Disk(#[from] DiskError),
    /// A file of the embedded store, or an answer of etcd, is not what it should be.
    #[error("the coordination store is damaged: {0}")]
    Damaged(String),
}

/// The present values of the keys that a transaction compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The revision at which these were the values.
    pub revision: Revision,
    /// The compared keys, and their entries if they exist.
    pub present: Vec<(String, Option<Entry>)>,
}

impl Conflict {
    /// Returns the entry of a compared key; `None` if it does not exist or was not compared.
    #[must_use]
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        let found = self.present.iter().find(|(name, _)| name == key);
        found.and_then(|(_, entry)| entry.as_ref())
    }

    fn describe(&self) -> String {
        let keys: Vec<String> = self
            .present
            .iter()
            .map(|(key, entry)| match entry {
                Some(entry) => format!("{key} has revision {}", entry.mod_revision),
                None => format!("{key} does not exist"),
            })
            .collect();
        keys.join(", ")
    }
}
