//! Transactions: changes that are made together, if nothing has changed that they are based on.

use std::collections::BTreeSet;

use crate::{CoordinationError, Revision};

/// The longest key, in bytes, without the prefix of the cluster.
pub const KEY_BYTES_MAX: usize = 512;
/// The largest number of compares, and of changes, of a transaction: etcd's default.
pub const TRANSACTION_OPS_MAX: usize = 128;
/// The largest sum of keys and values of a transaction, in bytes: less than the 1.5 MiB that etcd takes by default.
pub const TRANSACTION_BYTES_MAX: usize = 1 << 20;

/// A condition of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compare {
    /// The key exists, and was last changed in this revision.
    Unchanged(String, Revision),
    /// The key does not exist.
    Absent(String),
    /// The key exists, and has this value.
    Value(String, Vec<u8>),
}

impl Compare {
    /// Returns the condition that a key was last changed in this revision; with `None` that it does not exist.
    #[must_use]
    pub fn since(key: impl Into<String>, revision: Option<Revision>) -> Self {
        let key = key.into();
        match revision {
            Some(revision) => Compare::Unchanged(key, revision),
            None => Compare::Absent(key),
        }
    }

    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Compare::Unchanged(key, _) | Compare::Absent(key) | Compare::Value(key, _) => key,
        }
    }
}

/// A change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Sets the value of a key.
    Put {
        /// The key.
        key: String,
        /// The new value.
        value: Vec<u8>,
    },
    /// Deletes a key, if it exists.
    Delete {
        /// The key.
        key: String,
    },
}

impl Op {
    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Op::Put { key, .. } | Op::Delete { key } => key,
        }
    }

    fn value_bytes(&self) -> usize {
        match self {
            Op::Put { value, .. } => value.len(),
            Op::Delete { .. } => 0,
        }
    }
}

/// Compares, and the changes that are made together if all of them hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    compares: Vec<Compare>,
    ops: Vec<Op>,
}

impl Transaction {
    /// Creates an empty transaction.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a condition.
    #[must_use]
    pub fn when(mut self, compare: Compare) -> Self {
        self.compares.push(compare);
        self
    }

    /// Adds a change: sets the value of a key.
    #[must_use]
    pub fn put(self, key: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        self.with(Op::Put {
            key: key.into(),
            value: value.into(),
        })
    }

    /// Adds a change of a key that was read: sets its value, on the condition that the key is unchanged since
    /// `based_on`, or does not exist with `None`.
    #[must_use]
    pub fn replace(
        self,
        key: impl Into<String>,
        based_on: Option<Revision>,
        value: impl Into<Vec<u8>>,
    ) -> Self {
        let key = key.into();
        let unchanged = Compare::since(key.clone(), based_on);
        self.when(unchanged).put(key, value)
    }

    /// Adds a change: deletes a key.
    #[must_use]
    pub fn delete(self, key: impl Into<String>) -> Self {
        self.with(Op::Delete { key: key.into() })
    }

    fn with(mut self, op: Op) -> Self {
        self.ops.push(op);
        self
    }

    /// Adds the compares and changes of another transaction.
    #[must_use]
    pub fn and(mut self, other: Transaction) -> Self {
        self.compares.extend(other.compares);
        self.ops.extend(other.ops);
        self
    }

    /// Returns the conditions.
    #[must_use]
    pub fn compares(&self) -> &[Compare] {
        &self.compares
    }

    /// Returns the changes.
    #[must_use]
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// Returns the compared keys, each once.
    #[must_use]
    pub fn compared_keys(&self) -> BTreeSet<&str> {
        self.compares.iter().map(Compare::key).collect()
    }

    /// Checks the limits, and that no key is changed twice. Every implementation does it first.
    ///
    /// # Errors
    /// `Invalid`, with the reason.
    pub fn check(&self) -> Result<(), CoordinationError> {
        let invalid = |why: String| Err(CoordinationError::Invalid(why));
        let (compares, ops) = (self.compares.len(), self.ops.len());
        if compares.max(ops) > TRANSACTION_OPS_MAX {
            return invalid(format!(
                "a transaction has at most {TRANSACTION_OPS_MAX} compares and changes, not {compares} and {ops}"
            ));
        }
        let keys = self.compares.iter().map(Compare::key);
        for key in keys.chain(self.ops.iter().map(Op::key)) {
            if key.is_empty() || key.len() > KEY_BYTES_MAX {
                let len = key.len();
                return invalid(format!("a key has 1 to {KEY_BYTES_MAX} bytes, not {len}"));
            }
        }
        let bytes = |op: &Op| op.key().len() + op.value_bytes();
        let bytes: usize = self.ops.iter().map(bytes).sum();
        if bytes > TRANSACTION_BYTES_MAX {
            return invalid(format!(
                "a transaction has at most {TRANSACTION_BYTES_MAX} bytes, not {bytes}"
            ));
        }
        let mut changed = BTreeSet::new();
        match self.ops.iter().find(|op| !changed.insert(op.key())) {
            Some(op) => invalid(format!("a transaction changes {} twice", op.key())),
            None => Ok(()),
        }
    }
}
