//! The nodes of the map, their numbers and addresses, and changes of them: pure functions of the map.
//!
//! An added node is a member without vBuckets: every bucket stays spread over the nodes that it had.
//!
//! Invariants:
//! * A number belongs to one node for ever: it is not reused after the node was removed.
//! * No two nodes have the same name or uuid.

use std::collections::BTreeSet;
use std::net::IpAddr;

use kedge_types::limits::{CLUSTER_NODES_MAX, NODE_NAME_BYTES_MAX, SERVER_GROUP_BYTES_MAX};
use serde::{Deserialize, Serialize};

use crate::{Chain, ClusterError, ClusterMap, Feature, MapBucket, Ports, VbucketRole};

/// A node of the map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MapNode {
    /// The name, in topologies and on the command line.
    pub name: String,
    /// A uuid of 32 hexadecimal digits.
    pub uuid: String,
    /// The host at which the other nodes and the clients reach it. A loopback address means that all such nodes are on
    /// one machine: the config then contains the host at which the client reached the server.
    pub host: String,
    /// The port of the binary protocol; 0 if the node serves it over TLS only.
    pub kv_port: u16,
    /// The port of management over HTTP; 0 if the node serves it over TLS only.
    pub mgmt_port: u16,
    /// The ports of TLS. A map whose level does not have [`Feature::TlsPorts`] has none.
    #[serde(default, skip_serializing_if = "TlsPorts::is_none")]
    pub tls: TlsPorts,
    /// The address for clients of another network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<External>,
    /// The server group: nodes of one group may fail together.
    pub server_group: String,
    /// True if the node is failed over, and has no vBuckets until it is recovered.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
}

/// The address of a node in another network, for clients that ask for the network `external`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct External {
    /// The host in that network.
    pub host: String,
    /// The port of the binary protocol in that network; the node's own if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_port: Option<u16>,
    /// The port of management in that network; the node's own if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mgmt_port: Option<u16>,
}

/// The ports of a node that use TLS: 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsPorts {
    /// The port of the binary protocol.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub kv: u16,
    /// The port of management over HTTPS.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub mgmt: u16,
    /// The port of the binary protocol in the other network; the node's own if it is 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub external_kv: u16,
    /// The port of management in the other network; the node's own if it is 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub external_mgmt: u16,
}

impl TlsPorts {
    fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the ports, or none if not all nodes that follow a map can read them.
    fn readable_in(self, map: &ClusterMap) -> Self {
        match map.has(Feature::TlsPorts) {
            true => self,
            false => Self::default(),
        }
    }
}

fn is_zero(port: &u16) -> bool {
    *port == 0
}

impl External {
    /// Returns the ports of a node in this network, which are its own unless they are given.
    #[must_use]
    pub(crate) fn ports(&self, own: Ports, tls: TlsPorts) -> Ports {
        let or = |given: u16, own: u16| match own {
            // The node does not serve it.
            0 => 0,
            own if given == 0 => own,
            _ => given,
        };
        Ports {
            kv: or(self.kv_port.unwrap_or(0), own.kv),
            mgmt: or(self.mgmt_port.unwrap_or(0), own.mgmt),
            kv_tls: or(tls.external_kv, own.kv_tls),
            mgmt_tls: or(tls.external_mgmt, own.mgmt_tls),
        }
    }
}

impl MapNode {
    /// Returns whether the node has a loopback address.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        let address = self.host.parse::<IpAddr>();
        self.host == "localhost" || address.is_ok_and(|it| it.to_canonical().is_loopback())
    }

    /// Checks the fields, each by itself.
    fn check(&self) -> Result<(), String> {
        check_node_name(&self.name)?;
        let (name, group) = (&self.name, &self.server_group);
        let is_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if self.uuid.len() != 32 || !self.uuid.bytes().all(is_hex) {
            return Err(format!(
                "the uuid of node \"{name}\" has 32 hexadecimal digits, not \"{}\"",
                self.uuid
            ));
        }
        let kv = self.kv_port.max(self.tls.kv);
        let mgmt = self.mgmt_port.max(self.tls.mgmt);
        check_address(name, &self.host, kv, mgmt)?;
        if group.is_empty() || group.len() > SERVER_GROUP_BYTES_MAX {
            return Err(format!(
                "the server group of node \"{name}\" has 1 to {SERVER_GROUP_BYTES_MAX} bytes, not \"{group}\""
            ));
        }
        Ok(())
    }
}

/// Checks the name of a node.
///
/// # Errors
/// The form that it must have.
pub fn check_node_name(name: &str) -> Result<(), String> {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"_-.".contains(&b);
    if name.is_empty() || name.len() > NODE_NAME_BYTES_MAX || !name.bytes().all(is_plain) {
        return Err(format!(
            "a node's name has 1 to {NODE_NAME_BYTES_MAX} of the characters A-Z, a-z, 0-9, _, - and ., not \"{name}\""
        ));
    }
    Ok(())
}

/// Checks the address of a node. The ports are any of a protocol: without TLS or with it.
pub(crate) fn check_address(
    name: &str,
    host: &str,
    kv_port: u16,
    mgmt_port: u16,
) -> Result<(), String> {
    if host.is_empty() || kv_port == 0 || mgmt_port == 0 {
        return Err(format!("node \"{name}\" has no host, or a port of 0"));
    }
    Ok(())
}

impl ClusterMap {
    /// Returns the node's number.
    ///
    /// # Errors
    /// `NoNode`.
    pub fn node(&self, name: &str) -> Result<u16, ClusterError> {
        let found = self.nodes.iter().find(|(_, node)| node.name == name);
        let number = found.map(|(number, _)| *number);
        number.ok_or_else(|| ClusterError::NoNode(name.to_owned()))
    }

    /// Returns the name of a node; empty for an unknown number.
    #[must_use]
    pub fn name(&self, node: u16) -> &str {
        self.nodes.get(&node).map_or("", |it| &it.name)
    }

    /// Returns the numbers of all nodes.
    #[must_use]
    pub fn numbers(&self) -> Vec<u16> {
        self.nodes.keys().copied().collect()
    }

    /// Returns the nodes that are not failed over.
    pub fn members(&self) -> impl Iterator<Item = u16> {
        let members = self.nodes.iter().filter(|(_, node)| !node.failed);
        members.map(|(number, _)| *number)
    }

    /// Returns whether the map has the node, and it is not failed over.
    #[must_use]
    pub fn is_member(&self, node: u16) -> bool {
        self.nodes.get(&node).is_some_and(|node| !node.failed)
    }

    /// Returns whether a node is a member, and was one in the map of that `rev` and in all since.
    #[must_use]
    pub fn is_member_since(&self, node: u16, rev: i64) -> bool {
        let joined = self.joined.get(&node).copied();
        self.is_member(node) && joined.is_none_or(|joined| joined <= rev)
    }

    /// Returns the nodes that have active vBuckets, or take some over.
    #[must_use]
    pub fn leaders(&self) -> BTreeSet<u16> {
        let of_bucket = |bucket: &'_ MapBucket| -> BTreeSet<u16> {
            let actives = bucket.chains.iter().filter_map(Chain::active);
            actives
                .chain(bucket.moves.values().map(|pending| pending.to))
                .collect()
        };
        self.buckets.iter().flat_map(of_bucket).collect()
    }

    /// Returns whether a node is a member from this map on.
    #[must_use]
    pub fn begins_membership(&self) -> bool {
        self.joined.values().any(|rev| *rev == self.revision.rev)
    }

    pub(crate) fn node_mut(&mut self, node: u16) -> Result<&mut MapNode, ClusterError> {
        let found = self.nodes.get_mut(&node);
        found.ok_or_else(|| ClusterError::NoNode(node.to_string()))
    }

    /// Gives a node the next number.
    pub(crate) fn enter(&mut self, node: MapNode) {
        self.nodes.insert(self.next_node, node);
        self.next_node += 1;
    }

    pub(crate) fn check_nodes(&self) -> Result<(), String> {
        let count = self.nodes.len();
        if count == 0 || count > CLUSTER_NODES_MAX {
            return Err(format!(
                "a cluster has 1 to {CLUSTER_NODES_MAX} nodes, not {count}"
            ));
        }
        let (mut names, mut uuids) = (BTreeSet::new(), BTreeSet::new());
        for (number, node) in &self.nodes {
            node.check()?;
            let (name, next) = (&node.name, self.next_node);
            if *number >= next {
                return Err(format!(
                    "node \"{name}\" has the number {number}, and the next node gets {next}"
                ));
            }
            if !names.insert(name) {
                return Err(format!("two nodes are called \"{name}\""));
            }
            if !uuids.insert(&node.uuid) {
                let uuid = &node.uuid;
                return Err(format!("two nodes have the uuid {uuid}"));
            }
        }
        if self.members().next().is_none() {
            return Err("all nodes are failed over".to_owned());
        }
        Ok(())
    }
}

/// Returns the map with another node, which has no vBuckets yet and is not failed over.
///
/// # Errors
/// `Node` when a field is invalid, another node has the name or uuid, or no more nodes are possible.
pub fn plan_add_node(map: &ClusterMap, node: MapNode) -> Result<ClusterMap, ClusterError> {
    if map.next_node == u16::MAX {
        return Err(ClusterError::Node(
            "all numbers of nodes are used".to_owned(),
        ));
    }
    let mut next = map.next();
    next.enter(MapNode {
        failed: false,
        tls: node.tls.readable_in(map),
        ..node
    });
    next.joined.insert(map.next_node, next.revision.rev);
    next.check_nodes().map_err(ClusterError::Node)?;
    Ok(next)
}

/// Returns the `rev` of the map that made a node a member; 0 if it was one in the first map.
#[must_use]
pub fn joined_rev(map: &ClusterMap, node: u16) -> i64 {
    map.joined.get(&node).copied().unwrap_or_default()
}

/// Returns the map without a node. The buckets that were spread over it are spread over the other ones: its empty
/// places are meant for these.
///
/// # Errors
/// `NoNode`; `Node` with the reason, when the node has vBuckets, or a bucket would have no node.
pub fn plan_remove_node(map: &ClusterMap, node: u16) -> Result<ClusterMap, ClusterError> {
    let mut next = map.next();
    next.remove_node(node)?;
    if let Some(record) = &mut next.rebalance {
        record.forget(node);
    }
    next.let_join();
    Ok(next)
}

impl ClusterMap {
    /// Removes a node.
    pub(crate) fn remove_node(&mut self, node: u16) -> Result<(), ClusterError> {
        let Some(removed) = self.nodes.remove(&node) else {
            return Err(ClusterError::NoNode(node.to_string()));
        };
        self.joined.remove(&node);
        let refused = |why: String| {
            let name = &removed.name;
            let why = format!("node \"{name}\" cannot be removed: {why}");
            Err(ClusterError::Node(why))
        };
        for bucket in &mut self.buckets {
            let (name, count) = (bucket.name.clone(), bucket.copies_on(node));
            if count > 0 {
                return refused(format!(
                    "it has copies of {count} vBuckets of bucket \"{name}\""
                ));
            }
            bucket.forget(node);
            if bucket.servers.is_empty() {
                return refused(format!("bucket \"{name}\" is on no other node"));
            }
        }
        self.recovery.remove(&node);
        self.groups.forget(node);
        match self.check_nodes() {
            Err(why) => refused(why),
            Ok(()) => Ok(()),
        }
    }
}

/// Returns the map in which a node, found by its name, has these addresses and this server group, unless management gave it
/// another one; `None` if it has them.
///
/// # Errors
/// `NoNode`; `Node` when a field is invalid, or the node has another uuid.
pub fn plan_node_change(
    map: &ClusterMap,
    node: &MapNode,
) -> Result<Option<ClusterMap>, ClusterError> {
    let number = map.node(&node.name)?;
    let mut next = map.next();
    let known = next.node_mut(number)?;
    if known.uuid != node.uuid {
        return Err(ClusterError::Node(format!(
            "node \"{}\" of the cluster has the uuid {}, not {}: that is another node of the same name",
            node.name, known.uuid, node.uuid
        )));
    }
    let server_group = match map.groups.has_assigned(number) {
        true => known.server_group.clone(),
        false => node.server_group.clone(),
    };
    *known = MapNode {
        failed: known.failed,
        server_group,
        tls: node.tls.readable_in(map),
        ..node.clone()
    };
    known.check().map_err(ClusterError::Node)?;
    Ok((next.nodes != map.nodes).then_some(next))
}

impl MapBucket {
    /// Returns the number of vBuckets of which a node has a copy, or follows to get one.
    fn copies_on(&self, node: u16) -> usize {
        let vbuckets = (0_u16..).zip(&self.chains).map(|(vb, _)| vb);
        let has_one = |vb: &u16| self.role(*vb, node) != VbucketRole::None;
        vbuckets.filter(has_one).count()
    }
}
