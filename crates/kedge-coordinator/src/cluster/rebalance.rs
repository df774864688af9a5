//! Beginning and stopping a rebalance, a drain or a graceful failover. Its steps are those of [`super::replicas`], which follow from the map.

use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

use kedge_cluster::{
    ClusterError, ClusterMap, DrainRequest, RebalanceRequest, begin_drain, begin_rebalance,
    plan_moves_per_node, stop_rebalance,
};
use kedge_node::coordination::{AppliedChange, ChangeError};

use super::{ClusterNode, new_uuid};

/// Begins a rebalance of all buckets over all nodes. Those of these names are removed at its end.
///
/// # Errors
/// [`ChangeError`].
pub(super) fn start(node: &ClusterNode, remove: &[String]) -> Result<AppliedChange, ChangeError> {
    let applied = begin(node, |map| {
        let remove = remove.iter().map(|name| map.node(name));
        let request = RebalanceRequest {
            id: new_uuid(),
            now_ms: now_ms(),
            servers: map.numbers(),
            remove: remove.collect::<Result<BTreeSet<u16>, _>>()?,
        };
        begin_rebalance(map, request)
    })?;
    tracing::info!(rev = applied.revision.rev, ?remove, "a rebalance begins");
    Ok(applied)
}

/// Begins to move the actives of nodes to their replicas. With `fails_over`, the nodes are failed over at the end.
///
/// # Errors
/// [`ChangeError`].
pub(super) fn drain(
    node: &ClusterNode,
    names: &[String],
    fails_over: bool,
) -> Result<AppliedChange, ChangeError> {
    let applied = begin(node, |map| {
        let nodes = names.iter().map(|name| map.node(name));
        let request = DrainRequest {
            id: new_uuid(),
            now_ms: now_ms(),
            nodes: nodes.collect::<Result<BTreeSet<u16>, _>>()?,
            fails_over,
        };
        begin_drain(map, request)
    })?;
    tracing::info!(rev = applied.revision.rev, nodes = ?names, fails_over, "a drain begins");
    Ok(applied)
}

/// Stops the running rebalance of any kind, if there is one.
///
/// # Errors
/// [`ChangeError`].
pub(super) fn stop(node: &ClusterNode) -> Result<AppliedChange, ChangeError> {
    let applied = node.change_map(|map| Ok(stop_rebalance(map)))?;
    tracing::info!(rev = applied.revision.rev, "the rebalance is stopped");
    Ok(applied)
}

/// Limits the vBuckets that a node sends, and receives, at the same time.
///
/// # Errors
/// [`ChangeError`].
pub(super) fn limit_moves(node: &ClusterNode, per_node: u8) -> Result<AppliedChange, ChangeError> {
    let applied = node.change_map(|map| Ok(plan_moves_per_node(map, per_node)?))?;
    tracing::info!(rev = applied.revision.rev, per_node, "moves are limited");
    Ok(applied)
}

/// Makes the map that `plan` returns, if all nodes respond.
fn begin(
    node: &ClusterNode,
    plan: impl Fn(&ClusterMap) -> Result<ClusterMap, ClusterError>,
) -> Result<AppliedChange, ChangeError> {
    node.change_map(|map| {
        let next = plan(map)?;
        // Nodes that it recovers, too.
        node.peers.require_all(&next)?;
        Ok(Some(next))
    })
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}
