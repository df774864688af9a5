//! How far a copy of a vBucket has come, and which of several copies has the most.

use serde::{Deserialize, Serialize};

/// How far one node's copy of a vBucket has come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Its last seqno.
    pub high_seqno: u64,
    /// All up to this seqno is on its disk.
    pub persisted_seqno: u64,
    /// The last prepare that the node has acknowledged, or could acknowledge: what a SyncWrite was promised.
    pub high_prepared: u64,
    /// Whether it stands at the end of a snapshot. In the middle of one it is no state that the active ever had.
    pub consistent: bool,
    /// Its failover table: (uuid, seqno at which that branch began), newest first.
    pub history: Vec<(u64, u64)>,
}

/// What a copy has of a branch. Greater has more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Standing {
    /// Acknowledged prepares first: nothing that a client was promised may be lost.
    pub high_prepared: u64,
    /// Then what is consistent,
    pub consistent: bool,
    /// then all else,
    pub high_seqno: u64,
    /// and at last who need not be rolled back.
    pub undivided: bool,
}

impl Position {
    /// What it has of the branch that `history` tells of. What it has beyond the point at which both parted does not
    /// count.
    #[must_use]
    pub fn on(&self, history: &[(u64, u64)]) -> Standing {
        let parted = self.history.iter().find_map(|(uuid, _)| {
            let at = history.iter().position(|(known, _)| known == uuid)?;
            // That branch ended where the next newer one began.
            Some(at.checked_sub(1).map_or(u64::MAX, |newer| history[newer].1))
        });
        let parted = parted.unwrap_or(0);
        Standing {
            high_prepared: self.high_prepared.min(parted),
            consistent: self.consistent,
            high_seqno: self.high_seqno.min(parted),
            undivided: self.high_seqno <= parted,
        }
    }
}

/// The history of the newest branch among these copies: the one that most of the others' branches lead to.
#[must_use]
pub fn newest_branch<'a>(positions: &[&'a Position]) -> &'a [(u64, u64)] {
    let newest = positions.iter().max_by_key(|candidate| {
        let leads_here = |other: &&&Position| {
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
