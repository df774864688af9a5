//! Nodes that wait to be added, and the chosen recoveries of those that are failed over.

use std::collections::BTreeMap;

use kedge_cluster::{NodeRecord, RecoveryType, plan_recovery_type};
use kedge_node::coordination::{AppliedChange, ChangeError};

use super::ClusterNode;

/// Chooses the recovery of a failed-over node by the next rebalance.
///
/// # Errors
/// [`ChangeError`].
pub(super) fn set_recovery_type(
    node: &ClusterNode,
    name: &str,
    recovery: Option<RecoveryType>,
) -> Result<AppliedChange, ChangeError> {
    node.change_map(|map| Ok(plan_recovery_type(map, map.node(name)?, recovery)?))
}

/// Returns the records of the nodes that wait to be added, by name.
///
/// # Errors
/// `NotBegun`, `Store`.
pub(super) fn waiting(node: &ClusterNode) -> Result<BTreeMap<String, NodeRecord>, ChangeError> {
    let map = node.followed.map().ok_or(ChangeError::NotBegun)?;
    let mut records = node.store.read_records()?;
    records.retain(|name, _| map.node(name).is_err());
    Ok(records)
}
