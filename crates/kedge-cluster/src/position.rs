//! The position of a copy of a vBucket, and the choice of the most advanced one.

use serde::{Deserialize, Serialize};

/// The position of one node's copy of a vBucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyPosition {
    /// The last seqno.
    pub high_seqno: u64,
    /// The last seqno that is on disk with all before it.
    pub persisted_seqno: u64,
    /// The last prepare that the node has acknowledged, or could acknowledge: the promise of a SyncWrite.
    pub high_prepared: u64,
    /// True at the end of a snapshot. In the middle of one, the copy is in a state that the active never had.
    pub consistent: bool,
    /// The seqno that the copy must reach again since a rollback. Until then it lacks data that the node has acknowledged,
    /// and counts as lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catch_up_to: Option<u64>,
    /// True if clients are served from the copy. The release before does not say so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub active: bool,
    /// The failover table: (uuid, seqno at which that branch began), newest first.
    pub history: Vec<(u64, u64)>,
}

/// The rank of a copy on a branch. A greater one has more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CopyRank {
    /// The acknowledged prepares come first: no promise to a client may be lost.
    pub high_prepared: u64,
    /// Then consistent copies,
    pub consistent: bool,
    /// then everything else,
    pub high_seqno: u64,
    /// and last copies that need no rollback.
    pub undivided: bool,
}

impl CopyPosition {
    /// Returns the rank on the branch of `history`. Data beyond the point of divergence does not count.
    #[must_use]
    pub fn on(&self, history: &[(u64, u64)]) -> CopyRank {
        // A branch ended at the start of the next newer one.
        let end =
            |of: &[(u64, u64)], at: usize| at.checked_sub(1).map_or(u64::MAX, |newer| of[newer].1);
        let mut branches = self.history.iter().enumerate();
        let parted = branches.find_map(|(at, (uuid, _))| {
            let other = history.iter().position(|(known, _)| known == uuid)?;
            Some(end(&self.history, at).min(end(history, other)))
        });
        let parted = parted.unwrap_or(0);
        CopyRank {
            high_prepared: self.high_prepared.min(parted),
            consistent: self.consistent,
            high_seqno: self.high_seqno.min(parted),
            undivided: self.high_seqno <= parted,
        }
    }
}

/// Returns the history of the newest branch among these copies: the one to which most of the others' branches lead.
#[must_use]
pub fn newest_branch<'a>(positions: &[&'a CopyPosition]) -> &'a [(u64, u64)] {
    let newest = positions.iter().max_by_key(|candidate| {
        let leads_here = |other: &&&CopyPosition| {
            let tip = other.history.first().map(|(uuid, _)| uuid);
            tip.is_some_and(|tip| candidate.history.iter().any(|(uuid, _)| uuid == tip))
        };
        (
            positions.iter().filter(leads_here).count(),
            candidate.history.first().map_or(0, |(_, began)| *began),
            candidate.high_seqno,
        )
    });
    newest.map_or(&[], |position| &position.history)
}
