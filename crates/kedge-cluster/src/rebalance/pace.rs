//! The number of vBuckets that begin in a round of a rebalance.

use std::collections::BTreeSet;

use kedge_types::limits::SMALL_MOVES_TIMES_MAX;

use super::MoveLimits;
use crate::ClusterMap;

/// The pace of the rounds, for one executor of them.
///
/// Copies of small vBuckets end before the next round begins. A fixed number per round would then mean many rounds, each of
/// which costs all nodes and clients a map. So the number doubles after each round by which all earlier copies and takeovers
/// have ended, and halves after any other, down to the setting of the map: large vBuckets never exceed it.
#[derive(Debug)]
pub struct MovePace {
    times: usize,
}

impl Default for MovePace {
    fn default() -> Self {
        Self { times: 1 }
    }
}

impl MovePace {
    /// Returns the limits of the next round.
    #[must_use]
    pub fn limits(&self, map: &ClusterMap) -> MoveLimits {
        let limits = MoveLimits::of(map);
        MoveLimits {
            incoming: limits.incoming * self.times,
            outgoing: limits.outgoing * self.times,
            ..limits
        }
    }

    /// Records a round, which made the map `next` of `map`; the same map if it made none.
    pub fn note_round(&mut self, map: &ClusterMap, next: &ClusterMap) {
        let before = in_progress(map);
        let after = in_progress(next);
        let times = match !before.is_disjoint(&after) {
            true => self.times / 2,
            false if before.is_empty() => self.times,
            false => self.times * 2,
        };
        self.times = times.clamp(1, SMALL_MOVES_TIMES_MAX);
    }
}

/// A copy or a takeover in progress.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct MoveStep<'a> {
    bucket: &'a str,
    vb: u16,
    /// The nodes that get copies, or the one that takes over.
    to: Vec<u16>,
    is_takeover: bool,
}

fn in_progress(map: &ClusterMap) -> BTreeSet<MoveStep<'_>> {
    let mut steps = BTreeSet::new();
    for bucket in &map.buckets {
        let step = |vb: &u16, to, is_takeover| MoveStep {
            bucket: &bucket.name,
            vb: *vb,
            to,
            is_takeover,
        };
        let takeovers = bucket
            .moves
            .iter()
            .map(|(vb, pending)| step(vb, vec![pending.to], true));
        let copies = bucket.next.iter().filter(|(_, next)| !next.counts);
        let copies = copies.map(|(vb, next)| step(vb, next.chain.nodes().collect(), false));
        steps.extend(takeovers.chain(copies));
    }
    steps
}
