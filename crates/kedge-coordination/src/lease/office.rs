//! An office that one node holds, such as the orchestrator's, for as long as its process has its lease.
//!
//! The key of the office names its holder. The revision in which it was taken is the holder's token: every change of the
//! holder compares the key with it, so that no change is made by one who was replaced. Time only decides when another one
//! may try; what makes it safe is the compare.

use serde::{Deserialize, Serialize};

use crate::{Compare, Entry, Revision, Transaction};

/// The version of the record's format.
const VERSION: u32 = 1;

/// An office, for one candidate.
#[derive(Clone, Debug)]
pub struct Office {
    key: String,
    me: OfficeHolder,
}

/// The holder of an office: the value of its key, as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfficeHolder {
    version: u32,
    /// The name of the node.
    pub node: String,
    /// The UUID of the process.
    pub process: String,
}

/// The next step of a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OfficeStep {
    /// It is in office.
    Hold {
        /// The revision in which it took the office.
        token: Revision,
    },
    /// It tries to take the office by this transaction. Afterwards it looks at the key again, whatever the outcome was.
    Take(Transaction),
    /// Another one is in office.
    Wait(OfficeHolder),
}

impl Office {
    /// Creates an office whose key this is, for a process of a node.
    pub fn new(
        key: impl Into<String>,
        node: impl Into<String>,
        process: impl Into<String>,
    ) -> Self {
        Office {
            key: key.into(),
            me: OfficeHolder {
                version: VERSION,
                node: node.into(),
                process: process.into(),
            },
        }
    }

    /// Returns what to do, by the entry of the office that was seen last. `end_of` returns the condition under which a
    /// holder has no lease any more, see [`super::LeaseObserver::end_of`].
    pub fn step(
        &self,
        entry: Option<&Entry>,
        end_of: impl FnOnce(&OfficeHolder) -> Option<Compare>,
    ) -> OfficeStep {
        let Some(entry) = entry else {
            let free = Compare::Absent(self.key.clone());
            return OfficeStep::Take(self.take(Transaction::new().when(free)));
        };
        let unchanged = Compare::Unchanged(self.key.clone(), entry.mod_revision);
        let Some(holder) = OfficeHolder::parse(&entry.value) else {
            return OfficeStep::Take(self.take(Transaction::new().when(unchanged)));
        };
        if holder.process == self.me.process {
            let token = entry.mod_revision;
            return OfficeStep::Hold { token };
        }
        match end_of(&holder) {
            Some(ended) => {
                let guarded = Transaction::new().when(unchanged).when(ended);
                OfficeStep::Take(self.take(guarded))
            }
            None => OfficeStep::Wait(holder),
        }
    }

    fn take(&self, guarded: Transaction) -> Transaction {
        // A struct of texts has a JSON text.
        let value = serde_json::to_vec(&self.me).unwrap_or_default();
        guarded.put(&self.key, value)
    }

    /// Returns the condition that the holder with this token is still in office. Every change that it makes has it.
    #[must_use]
    pub fn guard(&self, token: Revision) -> Compare {
        Compare::Unchanged(self.key.clone(), token)
    }
}

impl OfficeHolder {
    /// Parses the value of an office's key.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Self> {
        serde_json::from_slice(value).ok()
    }
}
