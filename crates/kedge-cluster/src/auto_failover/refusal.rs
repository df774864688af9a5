//! The reasons why nodes that are down are not failed over.

use std::fmt;

use crate::FailoverLosses;
use crate::RebalanceKind;

/// The reason why nodes that are down are not failed over automatically.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The settings disable it.
    Disabled,
    /// Another node is the orchestrator, or none is yet.
    NotOrchestrator,
    /// This node does not reach the coordination store.
    StoreUnreachable,
    /// The store was restored from a backup, and these members have not renewed their leases and applied the map since.
    StoreRestored(Vec<String>),
    /// The nodes that are down are in several server groups: the network between the groups may have failed.
    SeveralGroups(Vec<String>),
    /// All members of the cluster are down.
    LastNode,
    /// The count has reached the maximum.
    MaximumReached(u32),
    /// An operation is in progress that must not be aborted.
    Operation(RebalanceKind),
    /// Acknowledged SyncWrites could be lost, or the last copy of a vBucket.
    WouldLose(FailoverLosses),
    /// SyncWrites would become impossible, and the settings forbid that.
    DurabilityMajority,
    /// These nodes do not reach the store, and serve by the promises of the others.
    Promised(Vec<String>),
    /// The nodes that are down have no active vBuckets: a failover would only take their places in the chains.
    NoActives,
    /// The failover was begun and did not succeed; it is tried again.
    Failed(String),
}

impl Refusal {
    /// Returns the name of the reason in metrics and in the status.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Refusal::Disabled => "disabled",
            Refusal::NotOrchestrator => "not_orchestrator",
            Refusal::StoreUnreachable => "store_unreachable",
            Refusal::StoreRestored(_) => "store_restored",
            Refusal::SeveralGroups(_) => "several_groups",
            Refusal::LastNode => "last_node",
            Refusal::MaximumReached(_) => "maximum_reached",
            Refusal::Operation(_) => "operation_in_progress",
            Refusal::WouldLose(_) => "would_lose",
            Refusal::DurabilityMajority => "durability_majority",
            Refusal::Promised(_) => "promised",
            Refusal::NoActives => "no_actives",
            Refusal::Failed(_) => "failed",
        }
    }

    /// Returns the names of all reasons.
    #[must_use]
    pub const fn names() -> [&'static str; 13] {
        [
            "disabled",
            "not_orchestrator",
            "store_unreachable",
            "store_restored",
            "several_groups",
            "last_node",
            "maximum_reached",
            "operation_in_progress",
            "would_lose",
            "durability_majority",
            "promised",
            "no_actives",
            "failed",
        ]
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Disabled => f.write_str("automatic failover is disabled"),
            Refusal::NotOrchestrator => f.write_str("this node is not the orchestrator"),
            Refusal::StoreUnreachable => {
                f.write_str("the orchestrator does not reach the coordination store")
            }
            Refusal::StoreRestored(members) => write!(
                f,
                "the coordination store was restored, and these nodes have not renewed their leases and applied the map \
                 since: {}",
                members.join(", ")
            ),
            Refusal::SeveralGroups(groups) => write!(
                f,
                "nodes of several server groups are down ({}); fail them over by hand if they are lost",
                groups.join(", ")
            ),
            Refusal::LastNode => f.write_str("no node would be left"),
            Refusal::MaximumReached(max) => write!(
                f,
                "the count of failovers has reached its maximum of {max}; reset the count when the reason is found"
            ),
            Refusal::Operation(operation) => {
                write!(f, "a {operation} is in progress and must not be aborted")
            }
            Refusal::WouldLose(losses) => losses.fmt(f),
            Refusal::DurabilityMajority => {
                f.write_str("SyncWrites would become impossible, which the settings forbid")
            }
            Refusal::Promised(nodes) => write!(
                f,
                "the other nodes have promised {} not to fail it over while it does not reach the coordination store",
                nodes.join(", ")
            ),
            Refusal::NoActives => f.write_str(
                "the nodes have no active vBuckets, as after a drain; fail them over by hand if they do not come back",
            ),
            Refusal::Failed(why) => write!(f, "the failover did not succeed: {why}"),
        }
    }
}
