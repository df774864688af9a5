//! Elections: a recipe on transactions and leases.
//!
//! The key of an election exists while someone holds the office, with the holder's name as its value and the holder's
//! lease. The revision in which the key was created is the holder's fencing token: later holders have larger ones.

use std::time::Duration;

use crate::{Compare, CoordinationError, Coordinator, Entry, LeaseId, Revision, Transaction};

/// An election for one office, such as the orchestrator of a cluster.
#[derive(Clone, Debug)]
pub struct Election {
    key: String,
}

/// The result of a candidacy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Candidacy {
    /// The candidate holds the office.
    Elected(Leadership),
    /// Someone else does; a watch shows when the key is deleted.
    Held(Entry),
}

/// The proof that a candidate was elected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leadership {
    key: String,
    /// The fencing token: the revision in which the office was taken.
    pub token: Revision,
}

impl Election {
    /// Creates an election whose office is this key.
    pub fn new(key: impl Into<String>) -> Self {
        Election { key: key.into() }
    }

    /// Stands for the office, for as long as `lease` lives. A candidate that holds it already by the same lease is
    /// elected, so that a call with an unknown outcome can be repeated.
    ///
    /// # Errors
    /// The errors of [`Coordinator::transact`] other than `Conflict`.
    pub fn stand(
        &self,
        coordinator: &dyn Coordinator,
        name: &str,
        lease: LeaseId,
        timeout: Duration,
    ) -> Result<Candidacy, CoordinationError> {
        let transaction = Transaction::new()
            .when(Compare::Absent(self.key.clone()))
            .put_leased(&self.key, name, lease);
        let held = match coordinator.transact(&transaction, timeout) {
            Ok(token) => return Ok(Candidacy::Elected(self.leadership(token))),
            Err(CoordinationError::Conflict(conflict)) => conflict.entry(&self.key).cloned(),
            Err(error) => return Err(error),
        };
        let held = held.ok_or_else(|| {
            CoordinationError::Damaged(format!("{} exists and has no entry", self.key))
        })?;
        if held.lease == Some(lease) {
            return Ok(Candidacy::Elected(self.leadership(held.create_revision)));
        }
        Ok(Candidacy::Held(held))
    }

    fn leadership(&self, token: Revision) -> Leadership {
        Leadership {
            key: self.key.clone(),
            token,
        }
    }
}

impl Leadership {
    /// Returns the condition that this holder is still in office. Every change that a holder makes has it.
    #[must_use]
    pub fn guard(&self) -> Compare {
        Compare::CreatedAt(self.key.clone(), self.token)
    }

    /// Gives up the office.
    ///
    /// # Errors
    /// `Conflict` if it is held no longer, and the other errors of [`Coordinator::transact`].
    pub fn resign(
        self,
        coordinator: &dyn Coordinator,
        timeout: Duration,
    ) -> Result<(), CoordinationError> {
        let transaction = Transaction::new().when(self.guard()).delete(&self.key);
        coordinator.transact(&transaction, timeout).map(|_| ())
    }
}
