//! An observation of the cluster at one time.

use std::time::Duration;

use super::{AutoFailoverSettings, NodeHealth};
use crate::RebalanceKind;

/// The lease of a member as this node has seen it. Times are of this node's clock, from any origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseSeen {
    /// The record exists.
    Held {
        /// The time at which its last renewal was seen, or at which it was first read.
        renewed: Duration,
        /// The time at which the lease has certainly ended, if it is not renewed.
        ends: Duration,
    },
    /// There is no record, and no lease may exist after `ends`.
    Absent {
        /// The time at which this was seen first.
        since: Duration,
        /// The time at which no lease exists any more.
        ends: Duration,
    },
}

impl LeaseSeen {
    /// Returns the time at which the lease has certainly ended, if it is not renewed.
    #[must_use]
    pub fn ends(&self) -> Duration {
        match self {
            LeaseSeen::Held { ends, .. } | LeaseSeen::Absent { ends, .. } => *ends,
        }
    }

    /// Returns the time at which the node was last seen to live.
    pub(super) fn last_seen(&self) -> Duration {
        match self {
            LeaseSeen::Held { renewed, .. } => *renewed,
            LeaseSeen::Absent { since, .. } => *since,
        }
    }
}

/// A member of the cluster: a node of the map that is not failed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberObservation {
    /// The number.
    pub node: u16,
    /// The name.
    pub name: String,
    /// The server group.
    pub group: String,
    /// The lease.
    pub lease: LeaseSeen,
    /// The health, by its last lease record.
    pub health: NodeHealth,
    /// True if it has applied the current map.
    pub applied: bool,
    /// True if it has active vBuckets, or takes some over.
    pub leads: bool,
}

/// The cluster as a node sees it at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterObservation {
    /// The number of this node.
    pub me: u16,
    /// True if this node is the orchestrator.
    pub is_orchestrator: bool,
    /// True if the coordination store has answered since the last observation that had false.
    pub store_reached: bool,
    /// The settings.
    pub settings: AutoFailoverSettings,
    /// The rebalance in progress. A failover aborts it.
    pub operation: Option<RebalanceKind>,
    /// The members.
    pub members: Vec<MemberObservation>,
}
