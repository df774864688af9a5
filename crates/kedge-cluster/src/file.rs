//! The cluster file: the nodes of a new cluster and their addresses. It is written by hand, and is the same on all
//! nodes.

use std::collections::BTreeSet;

use kedge_types::limits::{CHAIN_NODES_MAX, CLUSTER_NODES_MAX};
use serde::{Deserialize, Serialize};

use crate::members::{check_address, check_node_name};
use crate::{ClusterError, External};

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
    /// The nodes. The first map numbers them in this order.
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

const fn one() -> u8 {
    1
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
            check_node_name(name).map_err(ClusterError::File)?;
            if !names.insert(name) {
                return wrong(format!("two nodes are called \"{name}\""));
            }
            check_address(name, &node.host, node.kv_port, node.mgmt_port)
                .map_err(ClusterError::File)?;
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
