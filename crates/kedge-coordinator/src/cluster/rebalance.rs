//! Beginning and stopping a rebalance. Its steps are those of [`super::replicas`], which follow from the map.

use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

use kedge_cluster::{RebalanceRequest, begin_rebalance, stop_rebalance};
use kedge_node::coordination::{AppliedChange, ChangeError};

use super::{ClusterNode, new_uuid};

/// Begins a rebalance of all buckets over all nodes. Those of these names are removed at its end.
///
/// # Errors
/// [`ChangeError`].
pub(super) fn start(node: &ClusterNode, remove: &[String]) -> Result<AppliedChange, ChangeError> {
    let applied = node.change(|map| {
        let remove = remove.iter().map(|name| map.node(name));
        let request = RebalanceRequest {
            id: new_uuid(),
            now_ms: now_ms(),
            servers: map.numbers(),
            remove: remove.collect::<Result<BTreeSet<u16>, _>>()?,
        };
        *map = begin_rebalance(map, request)?;
        Ok(())
    })?;
    tracing::info!(rev = applied.revision.rev, ?remove, "a rebalance begins");
    Ok(applied)
}

/// Stops the running rebalance, if there is one.
///
/// # Errors
/// [`ChangeError`].
pub(super) fn stop(node: &ClusterNode) -> Result<AppliedChange, ChangeError> {
    let applied = node.change_map(|map| Ok(stop_rebalance(map)))?;
    tracing::info!(rev = applied.revision.rev, "the rebalance is stopped");
    Ok(applied)
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}
