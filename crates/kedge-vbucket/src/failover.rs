//! The failover table of a vBucket.

use kedge_types::limits::FAILOVER_ENTRIES_MAX;
use kedge_types::{Seqno, VbUuid};

/// The failover table: vBucket UUIDs with the seqnos at which their branches began, newest first. It is never empty and
/// has at most [`FAILOVER_ENTRIES_MAX`] entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailoverTable {
    entries: Vec<(VbUuid, Seqno)>,
}

impl FailoverTable {
    /// Returns the table of a new vBucket.
    #[must_use]
    pub fn new(uuid: VbUuid) -> Self {
        Self {
            entries: vec![(uuid, Seqno(0))],
        }
    }

    /// Creates a table from its entries. Returns `None` if it is empty, or if a seqno is below that of an older entry.
    #[must_use]
    pub fn from_entries(entries: Vec<(VbUuid, Seqno)>) -> Option<Self> {
        let ordered = entries.windows(2).all(|pair| pair[0].1 >= pair[1].1);
        (!entries.is_empty() && ordered).then_some(Self { entries })
    }

    /// Starts a new branch at `seqno`. Entries that began later are removed, because their branch is abandoned.
    pub fn begin(&mut self, uuid: VbUuid, seqno: Seqno) {
        self.entries.retain(|(_, began)| *began <= seqno);
        self.entries.insert(0, (uuid, seqno));
        self.entries.truncate(FAILOVER_ENTRIES_MAX);
    }

    /// Returns the UUID of the current branch.
    #[must_use]
    pub fn uuid(&self) -> VbUuid {
        self.entries[0].0
    }

    /// Returns the entries, newest first.
    #[must_use]
    pub fn entries(&self) -> &[(VbUuid, Seqno)] {
        &self.entries
    }

    /// Returns the seqno at which the branch `uuid` ended, which is the start of the next newer branch. Returns `None`
    /// if `uuid` is unknown or the newest.
    #[must_use]
    pub fn ended_at(&self, uuid: VbUuid) -> Option<Seqno> {
        let index = self.entries.iter().position(|(known, _)| *known == uuid)?;
        index.checked_sub(1).map(|newer| self.entries[newer].1)
    }

    /// Returns the last seqno at which both histories are the same, `Seqno(u64::MAX)` if the newest branches are, or 0 if
    /// no branch is.
    pub(crate) fn shared_with(&self, other: &Self) -> Seqno {
        let shared = |(uuid, _): &(VbUuid, Seqno)| {
            let mut known = other.entries.iter();
            known.any(|(other, _)| other == uuid).then_some(*uuid)
        };
        let Some(uuid) = self.entries.iter().find_map(shared) else {
            return Seqno(0);
        };
        let ends = [self.ended_at(uuid), other.ended_at(uuid)];
        let first = ends.into_iter().flatten().min();
        first.unwrap_or(Seqno(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_branch_removes_abandoned_branches() {
        let mut table = FailoverTable::new(VbUuid(1));
        table.begin(VbUuid(2), Seqno(10));
        table.begin(VbUuid(3), Seqno(20));
        assert_eq!(table.ended_at(VbUuid(1)), Some(Seqno(10)));
        assert_eq!(table.ended_at(VbUuid(3)), None);
        table.begin(VbUuid(4), Seqno(15));
        assert_eq!(
            table.entries(),
            [
                (VbUuid(4), Seqno(15)),
                (VbUuid(2), Seqno(10)),
                (VbUuid(1), Seqno(0))
            ]
        );
        for n in 0..100 {
            table.begin(VbUuid(100 + n), Seqno(100 + n));
        }
        assert_eq!(table.entries().len(), FAILOVER_ENTRIES_MAX);
        assert_eq!(table.uuid(), VbUuid(199));
    }

    #[test]
    fn histories_are_shared_until_the_first_one_leaves_a_common_branch() {
        let table = |entries: &[(u64, u64)]| {
            let entries = entries.iter().map(|(uuid, at)| (VbUuid(*uuid), Seqno(*at)));
            FailoverTable::from_entries(entries.collect()).unwrap()
        };
        let old = table(&[(2, 30), (1, 0)]);
        let shared = |entries: &[(u64, u64)]| {
            let other = table(entries);
            assert_eq!(old.shared_with(&other), other.shared_with(&old));
            old.shared_with(&other).get()
        };
        assert_eq!(shared(&[(2, 30), (1, 0)]), u64::MAX);
        assert_eq!(shared(&[(3, 40), (2, 30), (1, 0)]), 40);
        assert_eq!(shared(&[(3, 20), (1, 0)]), 20);
        assert_eq!(shared(&[(3, 50), (1, 0)]), 30);
        assert_eq!(shared(&[(1, 0)]), 30);
        assert_eq!(shared(&[(4, 0)]), 0);
    }

    #[test]
    fn failover_table_entries_are_validated() {
        assert_eq!(FailoverTable::from_entries(vec![]), None);
        let wrong = vec![(VbUuid(1), Seqno(1)), (VbUuid(2), Seqno(2))];
        assert_eq!(FailoverTable::from_entries(wrong), None);
    }
}
