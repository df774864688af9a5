//! The state of the cluster that survives a restart.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::{ClusterError, document};

const VERSION: u32 = 1;

/// The identity of the cluster and of this node, and the last published revision. A small JSON document; the caller
/// decides where it is saved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterState {
    version: u32,
    /// A uuid of 32 hexadecimal digits.
    pub cluster_uuid: String,
    /// A display name; may be empty.
    pub cluster_name: String,
    /// A uuid of 32 hexadecimal digits.
    pub node_uuid: String,
    /// The last revision of the configs.
    pub rev: i64,
}

impl ClusterState {
    /// Creates the state of a new cluster. `random` becomes the two uuids.
    #[must_use]
    pub fn new(random: [u8; 32]) -> Self {
        let (cluster, node) = random.split_at(16);
        Self {
            version: VERSION,
            cluster_uuid: hex(cluster),
            cluster_name: String::new(),
            node_uuid: hex(node),
            rev: 0,
        }
    }

    /// Reads a state that [`Self::to_json`] wrote.
    ///
    /// # Errors
    /// `Damaged` when it is not such a document, `Version` when a newer Kedge wrote it.
    pub fn from_json(json: &[u8]) -> Result<Self, ClusterError> {
        document::read(json, VERSION)
    }

    /// Encodes the document to save.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec_pretty(self).expect("strings and numbers always serialise")
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
