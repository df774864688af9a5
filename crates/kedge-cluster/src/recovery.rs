//! Recovery of nodes that were failed over: pure functions of the map and of the positions of the copies.
//!
//! With *delta* recovery a node keeps its data, and rolls back to where it separated from the others. With *full* recovery it
//! discards all copies first: as a member that joins nothing, it deletes its copies, as any member deletes those that no
//! chain gives it. Once it has reported that they are gone, it joins like a node with an empty disk.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::rebalance::resize_rebalance;
use crate::{ClusterError, ClusterMap, Feature, NodePositions, VbucketRole};

/// The treatment of the data of a node that is recovered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecoveryType {
    /// The node keeps it.
    Delta,
    /// The node discards it.
    Full,
}

/// Returns the map in which a failed-over node is back: it joins the chains that it had, and becomes the active of
/// vBuckets without an active. The map is not rebalanced: the other actives stay. A running rebalance spreads the buckets over the
/// node, too, unless it removes the node.
///
/// A node that is not failed over becomes the active of vBuckets that no node has any more, if its chains include them.
///
/// # Errors
/// `NoNode`; `NotFailed` when it is not failed over, and there is no such vBucket.
pub fn plan_recovery(map: &ClusterMap, node: u16) -> Result<ClusterMap, ClusterError> {
    recovered(map, node, RecoveryType::Delta)
}

/// Returns the map in which a failed-over node is back, and discards its copies before it joins the chains that it had.
///
/// # Errors
/// `NoNode`; `NotFailed` when it is not failed over; `Node` when it has the last copy of a vBucket; `NeedsLevel`.
pub fn plan_full_recovery(map: &ClusterMap, node: u16) -> Result<ClusterMap, ClusterError> {
    recovered(map, node, RecoveryType::Full)
}

fn recovered(
    map: &ClusterMap,
    node: u16,
    recovery: RecoveryType,
) -> Result<ClusterMap, ClusterError> {
    let mut next = map.next();
    next.recover_node(node, recovery)?;
    next.rebalance_over(node);
    next.let_join();
    resize_rebalance(map, &mut next);
    Ok(next)
}

/// Returns the map in which a failed-over node is to be recovered by the next rebalance; or not, with `None`. `None` if the
/// map says so already.
///
/// # Errors
/// `NoNode`, `NotFailed`, `NeedsLevel`.
pub fn plan_recovery_type(
    map: &ClusterMap,
    node: u16,
    recovery: Option<RecoveryType>,
) -> Result<Option<ClusterMap>, ClusterError> {
    let mut next = map.next();
    if !next.node_mut(node)?.failed {
        return Err(ClusterError::NotFailed(map.name(node).to_owned()));
    }
    match recovery {
        Some(recovery) => {
            map.require(Feature::ChosenRecovery)?;
            next.recovery.insert(node, recovery)
        }
        None => next.recovery.remove(&node),
    };
    Ok((next.recovery != map.recovery).then_some(next))
}

/// Returns the map in which nodes join that have discarded their copies, by their reports; `None` if there are none.
#[must_use]
pub fn plan_discarded(map: &ClusterMap, told: &BTreeMap<u16, NodePositions>) -> Option<ClusterMap> {
    let has_discarded = |node: &u16| {
        told.get(node)
            .is_some_and(|positions| !map.has_stray_copies(*node, positions))
    };
    let mut next = map.next();
    for node in map.discarding().filter(has_discarded) {
        next.recovery.remove(&node);
    }
    next.let_join();
    (next.recovery != map.recovery).then_some(next)
}

impl ClusterMap {
    /// Returns the members that discard their copies before they join.
    pub fn discarding(&self) -> impl Iterator<Item = u16> {
        let chosen = self.recovery.keys().copied();
        chosen.filter(|node| self.is_member(*node))
    }

    /// Returns whether a node discards its copies before it joins.
    #[must_use]
    pub fn discards(&self, node: u16) -> bool {
        self.discarding().any(|it| it == node)
    }

    /// Returns the chosen recovery of a failed-over node.
    #[must_use]
    pub fn recovery_type(&self, node: u16) -> Option<RecoveryType> {
        let chosen = self.recovery.get(&node).copied();
        chosen.filter(|_| !self.is_member(node))
    }

    /// Returns the failed-over nodes that the next rebalance recovers.
    pub(crate) fn to_recover(&self) -> Vec<(u16, RecoveryType)> {
        let chosen = self.recovery.iter().map(|(node, it)| (*node, *it));
        chosen.filter(|(node, _)| !self.is_member(*node)).collect()
    }

    /// Makes a failed-over node a member again. The nodes that join are to be computed afterwards.
    pub(crate) fn recover_node(
        &mut self,
        node: u16,
        recovery: RecoveryType,
    ) -> Result<(), ClusterError> {
        let had_failed = std::mem::replace(&mut self.node_mut(node)?.failed, false);
        if had_failed {
            self.joined.insert(node, self.revision.rev);
        }
        let mut leads = 0;
        for bucket in &mut self.buckets {
            let had_place = bucket
                .vacated
                .iter()
                .filter(|(_, nodes)| nodes.contains(&node));
            let vbuckets: Vec<u16> = had_place.map(|(vb, _)| *vb).collect();
            for vb in vbuckets {
                let chain = &mut bucket.chains[usize::from(vb)];
                // Where only replicas exist, a joining node with less data than theirs would not ask them.
                let may_lead = had_failed || chain.nodes().next().is_none();
                if may_lead && chain.active().is_none() {
                    chain.0[0] = Some(node);
                    bucket.trim_vacated(vb);
                    leads += 1;
                }
            }
        }
        if !had_failed && leads == 0 {
            return Err(ClusterError::NotFailed(self.name(node).to_owned()));
        }
        self.recovery.remove(&node);
        if recovery == RecoveryType::Full {
            self.require(Feature::ChosenRecovery)?;
            if leads > 0 {
                return Err(ClusterError::Node(format!(
                    "node \"{}\" has the last copies of {leads} vBuckets: recover it without discarding its data",
                    self.name(node)
                )));
            }
            self.recovery.insert(node, recovery);
        }
        Ok(())
    }

    /// Returns whether a node has data of vBuckets that no chain gives it.
    fn has_stray_copies(&self, node: u16, positions: &NodePositions) -> bool {
        self.buckets.iter().any(|bucket| {
            let Some(positions) = positions.get(&bucket.name) else {
                // It has not opened the bucket yet.
                return true;
            };
            (0_u16..).zip(positions).any(|(vb, position)| {
                let has_data = position.as_ref().is_some_and(|has| has.high_seqno > 0);
                has_data && bucket.role(vb, node) == VbucketRole::None
            })
        })
    }

    pub(crate) fn recovery_is_valid(&self) -> bool {
        let is_possible = |(node, recovery): (&u16, &RecoveryType)| {
            let node = self.nodes.get(node);
            node.is_some_and(|node| node.failed || *recovery == RecoveryType::Full)
        };
        self.recovery.iter().all(is_possible)
    }
}
