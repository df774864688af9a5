//! Documents of the coordination store, beside the map: the cluster's secret, and records of nodes.

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::members::MapNode;
use crate::state::hex;
use crate::{ClusterError, External, LevelRange, Release, TlsPorts, document};

/// The version of both documents.
const VERSION: u32 = 1;
/// The shortest secret, in bytes.
const SECRET_BYTES_MIN: usize = 16;
/// The user as which nodes log in to each other. Its password is the cluster's secret.
pub const CLUSTER_USER: &str = "kedge.cluster";

/// Returns a uuid in the form of the map.
#[must_use]
pub fn uuid_text(random: [u8; 16]) -> String {
    hex(&random)
}

/// The secret with which nodes log in to each other. It gives full access to the cluster. It is overwritten when it is dropped.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterSecret {
    version: u32,
    secret: Zeroizing<String>,
}

impl std::fmt::Debug for ClusterSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterSecret").finish_non_exhaustive()
    }
}

impl ClusterSecret {
    /// Creates a secret from random bytes.
    #[must_use]
    pub fn new(random: [u8; 24]) -> Self {
        Self {
            version: VERSION,
            secret: hex(&random).into(),
        }
    }

    /// Reads a document that [`Self::to_json`] wrote.
    ///
    /// # Errors
    /// `Damaged`, `Version`; `Map` for a secret that is too short.
    pub fn from_json(json: &[u8]) -> Result<Self, ClusterError> {
        let read: Self = document::read(json, VERSION)?;
        if read.secret.len() < SECRET_BYTES_MIN {
            return Err(ClusterError::Map(format!(
                "the secret has at least {SECRET_BYTES_MIN} bytes"
            )));
        }
        Ok(read)
    }

    /// Encodes the document.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings and numbers always serialise")
    }

    /// Returns the secret.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.secret
    }
}

/// The record of a node, which the node writes at its start. Nodes of other releases read it, whatever the level in force: a newer
/// release may add fields, which are ignored here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    version: u32,
    /// A uuid of 32 hexadecimal digits.
    pub uuid: String,
    /// The host at which the other nodes and the clients reach it.
    pub host: String,
    /// The port of the binary protocol; 0 if the node serves it over TLS only.
    pub kv_port: u16,
    /// The port of management over HTTP; 0 if the node serves it over TLS only.
    pub mgmt_port: u16,
    /// The ports of TLS; a node of an older release has none.
    #[serde(default)]
    pub tls: TlsPorts,
    /// The address for clients of another network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<External>,
    /// The server group.
    pub server_group: String,
    /// The release of the node's software.
    pub release: String,
    /// The compatibility levels that it supports.
    #[serde(flatten)]
    pub levels: LevelRange,
    /// True if it has a master key of encryption at rest; a node of an older release says nothing.
    #[serde(default)]
    pub has_master_key: bool,
}

impl NodeRecord {
    /// Creates the record of a node without a master key.
    #[must_use]
    pub fn new(node: &MapNode, release: Release) -> Self {
        Self {
            version: VERSION,
            uuid: node.uuid.clone(),
            host: node.host.clone(),
            kv_port: node.kv_port,
            mgmt_port: node.mgmt_port,
            tls: node.tls,
            external: node.external.clone(),
            server_group: node.server_group.clone(),
            release: release.version.to_owned(),
            levels: release.levels,
            has_master_key: false,
        }
    }

    /// Sets whether the node has a master key.
    #[must_use]
    pub fn with_master_key(self, has_master_key: bool) -> Self {
        Self {
            has_master_key,
            ..self
        }
    }

    /// Returns the node as an entry of the map.
    #[must_use]
    pub fn to_node(&self, name: &str) -> MapNode {
        MapNode {
            name: name.to_owned(),
            uuid: self.uuid.clone(),
            host: self.host.clone(),
            kv_port: self.kv_port,
            mgmt_port: self.mgmt_port,
            tls: self.tls,
            external: self.external.clone(),
            server_group: self.server_group.clone(),
            failed: false,
        }
    }

    /// Reads a document that [`Self::to_json`] wrote.
    ///
    /// # Errors
    /// `Damaged`, `Version`.
    pub fn from_json(json: &[u8]) -> Result<Self, ClusterError> {
        document::read(json, VERSION)
    }

    /// Encodes the document.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings and numbers always serialise")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_and_secrets_are_read_as_they_were_written() {
        let record = NodeRecord {
            version: VERSION,
            uuid: uuid_text([7; 16]),
            host: "10.0.0.1".to_owned(),
            kv_port: 1,
            mgmt_port: 2,
            tls: TlsPorts {
                kv: 3,
                ..TlsPorts::default()
            },
            external: None,
            server_group: "rack 1".to_owned(),
            release: Release::CURRENT.version.to_owned(),
            levels: Release::CURRENT.levels,
            has_master_key: true,
        };
        let read = NodeRecord::from_json(&record.to_json()).expect("it is valid");
        assert_eq!(read, record);
        let node = record.to_node("n_0");
        let again = NodeRecord::new(&node, Release::CURRENT).with_master_key(true);
        assert_eq!(again, record);
        let secret = ClusterSecret::new([1; 24]);
        let read = ClusterSecret::from_json(&secret.to_json()).expect("it is valid");
        assert_eq!(read, secret);
        assert!(!format!("{secret:?}").contains(secret.text()));
        ClusterSecret::from_json(br#"{"version":1,"secret":"short"}"#).expect_err("it is short");
        NodeRecord::from_json(br#"{"version":9}"#).expect_err("another version");
    }
}
