//! Transactions of changes whose outcomes are not known.
//!
//! Invariant: the error of a change that is given up says whether one of its transactions may still be made. If it may, the fences
//! of a failover are not lifted. They end by time: SyncWrites that a node commits after its lease are ambiguous then, too.

use kedge_cluster::ClusterMap;
use kedge_coordination::Revision;
use kedge_node::coordination::ChangeError;

use super::store::StoredMap;

/// The last transaction of a change that got no answer, if there is one.
#[derive(Debug, Default)]
pub(super) struct SentChange(Option<(ClusterMap, Revision)>);

impl SentChange {
    /// Notes a transaction that replaces the map of that revision of the store.
    pub(super) fn note(&mut self, next: ClusterMap, based_on: Revision) {
        self.0 = Some((next, based_on));
    }

    /// Returns whether the transaction has made the map that was read from the store since.
    pub(super) fn has_made(&mut self, stored: &StoredMap) -> bool {
        // Its compare fails for ever once the store has another map.
        let open = self.0.take_if(|(_, based_on)| *based_on != stored.revision);
        open.is_some_and(|(sent, _)| sent == stored.map)
    }

    /// Returns the error of the change that was given up.
    pub(super) fn given_up(&self, error: ChangeError) -> ChangeError {
        match self.0 {
            Some(_) => ChangeError::OutcomeUnknown(error.to_string()),
            None => error,
        }
    }
}

/// Returns whether the store may still make a change that ended with this error.
pub(super) fn may_be_made(error: &ChangeError) -> bool {
    matches!(error, ChangeError::OutcomeUnknown(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::testing::map;

    fn stored(map: &ClusterMap, revision: u64) -> StoredMap {
        StoredMap {
            map: map.clone(),
            revision: Revision(revision),
        }
    }

    /// The failover of a node whose transaction got no answer was given up, as the store did not answer a read either. The
    /// replicas followed the node again, and acknowledged SyncWrites to it, before the store made the failover.
    #[test]
    fn change_without_an_answer_is_open_until_the_store_has_another_map() {
        let (before, next) = (map(&["n_0", "n_1"]), map(&["n_0"]));
        let mut sent = SentChange::default();
        let raced = |sent: &SentChange| {
            let error = sent.given_up(ChangeError::Raced);
            matches!(error, ChangeError::Raced) && !may_be_made(&error)
        };
        assert!(raced(&sent), "nothing was sent");
        sent.note(next.clone(), Revision(7));
        assert!(!sent.has_made(&stored(&before, 7)));
        assert!(
            may_be_made(&sent.given_up(ChangeError::Raced)),
            "it may still come"
        );
        assert!(sent.has_made(&stored(&next, 8)));
        sent.note(next, Revision(7));
        assert!(
            !sent.has_made(&stored(&before, 9)),
            "another change came first"
        );
        assert!(raced(&sent), "it can be made no more");
    }
}
