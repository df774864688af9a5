//! The cluster file: the nodes and their addresses. It is written by hand, and is the same on all nodes.

use std::collections::BTreeSet;
use std::net::IpAddr;

use kedge_types::limits::{CHAIN_NODES_MAX, CLUSTER_NODES_MAX, NODE_NAME_BYTES_MAX};
use serde::{Deserialize, Serialize};

use crate::ClusterError;

/// The largest number of replicas of a vBucket: the places of a chain without that of the active.
pub const REPLICAS_MAX: u8 = CHAIN_NODES_MAX as u8 - 1;
/// The shortest secret, in bytes.
pub const SECRET_BYTES_MIN: usize = 16;
/// The user as which nodes log in to each other. Its password is the cluster's secret.
pub const CLUSTER_USER: &str = "kedge.cluster";

/// The nodes of a cluster. `docs/guides/cluster.md` describes the file, whose syntax is TOML.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterFile {
    /// A display name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The number of replicas of each vBucket, at most [`REPLICAS_MAX`]. A cluster has at most as many replicas as
    /// other nodes.
    #[serde(default = "one")]
    pub replicas: u8,
    /// The secret by which nodes authenticate to each other; at least [`SECRET_BYTES_MIN`] bytes. It gives full access
    /// to the cluster.
    pub secret: String,
    /// The nodes. The map numbers them in this order.
    pub nodes: Vec<ClusterFileNode>,
}

/// One node of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterFileNode {
    /// The name, in topologies and on the command line.
    pub name: String,
    /// The host at which the other nodes and the clients reach it. A loopback address means that all such nodes are on
    /// one machine: the config then contains the host at which the client reached the server.
    pub host: String,
    /// The port of the binary protocol.
    pub kv_port: u16,
    /// The port of management over HTTP.
    pub mgmt_port: u16,
    /// The address for clients of another network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<External>,
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

const fn one() -> u8 {
    1
}

impl ClusterFileNode {
    /// Returns whether the node has a loopback address.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        let address = self.host.parse::<IpAddr>();
        self.host == "localhost" || address.is_ok_and(|it| it.to_canonical().is_loopback())
    }
}

impl ClusterFile {
    /// Checks the file.
    ///
    /// # Errors
    /// `File`, with a sentence that names the error.
    pub fn check(&self) -> Result<(), ClusterError> {
        let wrong = |why: String| Err(ClusterError::File(why));
        if self.nodes.is_empty() || self.nodes.len() > CLUSTER_NODES_MAX {
            let count = self.nodes.len();
            return wrong(format!(
                "a cluster has 1 to {CLUSTER_NODES_MAX} nodes, not {count}"
            ));
        }
        if self.replicas > REPLICAS_MAX {
            return wrong(format!(
                "replicas is 0 to {REPLICAS_MAX}, not {}",
                self.replicas
            ));
        }
        if self.secret.len() < SECRET_BYTES_MIN {
            return wrong(format!("secret has at least {SECRET_BYTES_MIN} bytes"));
        }
        let (mut names, mut places) = (BTreeSet::new(), BTreeSet::new());
        for node in &self.nodes {
            let name = &node.name;
            let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"_-.".contains(&b);
            if name.is_empty() || name.len() > NODE_NAME_BYTES_MAX || !name.bytes().all(is_plain) {
                return wrong(format!(
                    "a node's name has 1 to {NODE_NAME_BYTES_MAX} of the characters A-Z, a-z, 0-9, _, - and ., not \"{name}\""
                ));
            }
            if !names.insert(name) {
                return wrong(format!("two nodes are called \"{name}\""));
            }
            if node.host.is_empty() || node.kv_port == 0 || node.mgmt_port == 0 {
                return wrong(format!("node \"{name}\" has no host, or a port of 0"));
            }
            for port in [node.kv_port, node.mgmt_port] {
                if !places.insert((&node.host, port)) {
                    let host = &node.host;
                    return wrong(format!("port {port} of {host} is given twice"));
                }
            }
        }
        Ok(())
    }

    /// Returns the number of the node with that name.
    ///
    /// # Errors
    /// `File`, with the existing names.
    pub fn index_of(&self, name: &str) -> Result<u16, ClusterError> {
        let found = self.nodes.iter().position(|node| node.name == name);
        let found = found.and_then(|at| u16::try_from(at).ok());
        found.ok_or_else(|| {
            let names: Vec<&str> = self.nodes.iter().map(|node| node.name.as_str()).collect();
            ClusterError::File(format!(
                "there is no node \"{name}\"; there are {}",
                names.join(", ")
            ))
        })
    }
}
