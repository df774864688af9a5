//! Rebalance: pure functions of the map and of the positions of the copies.
//!
//! A rebalance, and a change of the number of replicas, is a number of steps for single vBuckets:
//! 1. The target chain of a vBucket is in the map as its [`NextChain`]. Its new nodes follow the active without
//!    counting: no config lists them, no SyncWrite waits for them, and no failover chooses them.
//! 2. Once they have everything that the active had, the target chain counts: a SyncWrite needs a majority of both
//!    chains.
//! 3. Once they have everything that the active had by then, the target chain replaces the chain. If it has another
//!    active, that node takes the vBucket over first, see [`crate::plan_move`]. Takeovers by one node begin together, because
//!    each ends with a change of the map: as many as may move to a node, or all whose copies have begun.
//! 4. Nodes that are no longer in a chain delete their copies.
//!
//! Invariants:
//! * Everything that a majority of an old chain has acknowledged is on the disks of all nodes of the new chain before
//!   that counts alone.
//! * The steps follow from the map alone. Another orchestrator continues them, and may choose other target chains for
//!   vBuckets that have not begun: each finished step has made the rest cheaper by its own cost.
//! * A failover cancels the steps of the vBuckets whose active or target chain it changes.

mod catch_up;
mod drain;
mod flow;
mod pace;
mod placement;
mod record;
mod steps;

use serde::{Deserialize, Serialize};

pub(crate) use steps::resize_rebalance;

pub use catch_up::CatchUp;
pub use drain::{DrainRequest, begin_drain};
pub use pace::MovePace;
pub use placement::{PlacementNode, even_actives, target_chains};
pub use record::{RebalanceKind, RebalanceProgress, RebalanceRecord, RebalanceState};
pub use steps::{
    MoveLimits, RebalanceLeft, RebalanceRequest, begin_rebalance, plan_moves_per_node, plan_round,
    plan_steps, rebalance_left, stop_rebalance,
};

use crate::{Chain, MapBucket, PendingMove};

/// The target chain of a vBucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NextChain {
    /// The chain; its active may be another node than the present one.
    pub chain: Chain,
    /// True if a SyncWrite needs a majority of this chain too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub counts: bool,
}

impl MapBucket {
    /// Returns whether a vBucket has a move, a target chain or joining nodes.
    pub(crate) fn is_in_progress(&self, vb: u16) -> bool {
        let has_steps = self.moves.contains_key(&vb) || self.next.contains_key(&vb);
        has_steps || self.joining.contains_key(&vb)
    }

    /// Replaces the chain of a vBucket by its target chain. Does nothing if it has none.
    pub(crate) fn replace_chain(&mut self, vb: u16) {
        if let Some(next) = self.next.remove(&vb) {
            self.chains[usize::from(vb)] = next.chain;
            self.trim_vacated(vb);
        }
    }

    pub(crate) fn next_is_valid(&self, is_member: impl Fn(u16) -> bool) -> bool {
        self.next.iter().all(|(vb, next)| {
            let chain = self.chains.get(usize::from(*vb));
            let is_led = chain.is_some_and(|chain| chain.active().is_some());
            let is_whole = next.chain.active().is_some() && next.chain.is_valid(&is_member);
            let moves_there = self.moves.get(vb).is_none_or(|&PendingMove { to, .. }| {
                next.counts
                    && next.chain.active() == Some(to)
                    && Some(to) != chain.and_then(Chain::active)
            });
            is_led && is_whole && moves_there && !self.joining.contains_key(vb)
        })
    }
}
