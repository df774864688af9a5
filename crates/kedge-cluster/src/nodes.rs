//! The nodes in the configs.

use crate::{ClusterMap, ClusterState, External, MapNode, Ports, SERVER_GROUP, TlsPorts};

/// One node, as clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    /// The host for clients; `None` for the host at which the client reached this node.
    pub host: Option<String>,
    /// The ports.
    pub ports: Ports,
    /// A uuid of 32 hexadecimal digits.
    pub uuid: String,
    /// The ports of TLS as the map has them.
    pub tls: TlsPorts,
    /// The address in another network.
    pub external: Option<External>,
    /// The server group.
    pub server_group: String,
}

impl NodeView {
    /// Returns the view of a node of the map.
    #[must_use]
    pub fn of(node: &MapNode) -> Self {
        Self {
            host: (!node.is_loopback()).then(|| node.host.clone()),
            ports: Ports {
                kv: node.kv_port,
                mgmt: node.mgmt_port,
                kv_tls: node.tls.kv,
                mgmt_tls: node.tls.mgmt,
            },
            tls: node.tls,
            uuid: node.uuid.clone(),
            external: node.external.clone(),
            server_group: node.server_group.clone(),
        }
    }

    /// Returns the host of the node for a client that reached this node at `reached`.
    #[must_use]
    pub fn host<'a>(&'a self, reached: &'a str) -> &'a str {
        self.host.as_deref().unwrap_or(reached)
    }
}

/// The serving nodes, in the order of all lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeList {
    /// The nodes.
    pub list: Vec<NodeView>,
    /// The index of this node; `None` if it is failed over.
    pub this: Option<usize>,
}

impl NodeList {
    /// Returns the list of a standalone node.
    #[must_use]
    pub fn alone(state: &ClusterState, ports: Ports) -> Self {
        Self {
            list: vec![NodeView {
                host: None,
                ports,
                tls: TlsPorts::default(),
                uuid: state.node_uuid.clone(),
                external: None,
                server_group: SERVER_GROUP.to_owned(),
            }],
            this: Some(0),
        }
    }

    /// Returns the nodes of the map that are not failed over. `ports` are those of this node, as it listens.
    pub(crate) fn of(map: &ClusterMap, me: Option<u16>, ports: Ports) -> Self {
        let members: Vec<u16> = map.members().collect();
        Self::in_order(&members, map, me, ports)
    }

    /// Returns the list of these nodes of the map.
    pub(crate) fn in_order(
        numbers: &[u16],
        map: &ClusterMap,
        me: Option<u16>,
        ports: Ports,
    ) -> Self {
        let view = |number: u16| {
            let view = NodeView::of(map.nodes.get(&number)?);
            Some(match Some(number) == me {
                true => NodeView { ports, ..view },
                false => view,
            })
        };
        Self {
            list: numbers.iter().copied().filter_map(view).collect(),
            this: numbers.iter().position(|number| Some(*number) == me),
        }
    }
}
