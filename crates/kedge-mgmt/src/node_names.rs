//! Nodes in the original's words: their names, memberships and recoveries.

use kedge_cluster::{ClusterMap, MapNode, RecoveryType};

/// Returns the name of a node in the original's form, for a client that reached this node at `host`.
pub(crate) fn otp_name(number: u16, node: &MapNode, host: &str) -> String {
    let host = if node.is_loopback() { host } else { &node.host };
    format!("ns_{}@{host}", u32::from(number) + 1)
}

/// Returns the number of the node with this name in the original's form.
pub(crate) fn node_of_otp_name(map: &ClusterMap, name: &str) -> Option<u16> {
    let (number, host) = name.strip_prefix("ns_")?.split_once('@')?;
    let number: u16 = number.parse().ok()?;
    let number = number.checked_sub(1)?;
    let node = map.nodes.get(&number)?;
    // Nodes of one machine have whatever name the client reached them by.
    let is_it = node.is_loopback() || node.host.eq_ignore_ascii_case(host);
    is_it.then_some(number)
}

/// A node as a member of the cluster, in the original's words.
pub(crate) struct Membership {
    pub(crate) otp_name: String,
    pub(crate) membership: &'static str,
    pub(crate) recovery: &'static str,
}

impl Membership {
    /// Returns that of a node of the map.
    pub(crate) fn of(map: &ClusterMap, number: u16, node: &MapNode, host: &str) -> Self {
        Self {
            otp_name: otp_name(number, node, host),
            membership: Self::name(map, number),
            recovery: recovery_name(map, number),
        }
    }

    /// Returns the membership of a node.
    pub(crate) fn name(map: &ClusterMap, number: u16) -> &'static str {
        let has_place = |bucket: &kedge_cluster::MapBucket| bucket.servers.contains(&number);
        if !map.is_member(number) {
            "inactiveFailed"
        } else if !map.buckets.is_empty() && !map.buckets.iter().any(has_place) {
            "inactiveAdded"
        } else {
            "active"
        }
    }

    /// Returns that of a standalone node.
    pub(crate) fn alone(host: &str) -> Self {
        Self {
            otp_name: format!("ns_1@{host}"),
            membership: "active",
            recovery: "none",
        }
    }
}

/// Returns the chosen recovery of a node in the original's words.
fn recovery_name(map: &ClusterMap, number: u16) -> &'static str {
    match map.recovery_type(number) {
        Some(RecoveryType::Delta) => "delta",
        Some(RecoveryType::Full) => "full",
        None => "none",
    }
}
