//! The nodes that clients are told of.

use crate::{ClusterFile, ClusterMap, ClusterState, External, Ports};

/// One node, as clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    /// The host to tell clients; `None` is the one that they reached this node at.
    pub host: Option<String>,
    /// Where it listens.
    pub ports: Ports,
    /// 32 hexadecimal digits.
    pub uuid: String,
    /// Where it is reached from another network.
    pub external: Option<External>,
}

impl NodeView {
    /// The host to tell a client that reached this node at `reached`.
    #[must_use]
    pub fn host<'a>(&'a self, reached: &'a str) -> &'a str {
        self.host.as_deref().unwrap_or(reached)
    }
}

/// The nodes that serve, in the order of all lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nodes {
    /// The nodes.
    pub list: Vec<NodeView>,
    /// Which of them is this one; `None` when it was failed over.
    pub this: Option<usize>,
}

impl Nodes {
    /// A node that runs alone.
    #[must_use]
    pub fn alone(state: &ClusterState, ports: Ports) -> Self {
        Self {
            list: vec![NodeView {
                host: None,
                ports,
                uuid: state.node_uuid.clone(),
                external: None,
            }],
            this: Some(0),
        }
    }

    /// Those of the map that did not fail, at the addresses of the file. `ports` are where this node listens.
    pub(crate) fn of(map: &ClusterMap, file: &ClusterFile, me: u16, ports: Ports) -> Self {
        let view = |number: u16| {
            let at = usize::from(number);
            let (entry, node) = (file.nodes.get(at)?, map.nodes.get(at)?);
            let ports = if number == me {
                ports
            } else {
                Ports {
                    kv: entry.kv_port,
                    mgmt: entry.mgmt_port,
                }
            };
            Some(NodeView {
                host: (!entry.is_loopback()).then(|| entry.host.clone()),
                ports,
                uuid: node.uuid.clone(),
                external: entry.external.clone(),
            })
        };
        Self {
            list: map.members().filter_map(view).collect(),
            this: map.members().position(|number| number == me),
        }
    }
}
