//! The config documents ("terse bucket map"), as the SDKs read them.
//!
//! Field names and shapes are those of Couchbase Server's REST interface, `GET /pools/default/b/BUCKET` and
//! `GET /pools/default/nodeServices`; GET_CLUSTER_CONFIG and NOT_MY_VBUCKET carry the same documents.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};

use crate::state::hex;
use crate::{BucketEntry, Chain, ClusterState, NodeList, Ports, Revision};

/// The features of a bucket, by the names of `bucketCapabilities`.
///
/// Clients enable whole features by these names, so the list has only features that work: an honest "feature not
/// available" of a client is better than the unknown-command status of a server.
pub const BUCKET_CAPABILITIES: &[&str] = &[
    "collections",
    "durableWrite",
    "tombstonedUserXAttrs",
    "xattr",
    "subdoc.AccessDeleted",
    "subdoc.BinaryXattr",
    "subdoc.DocumentMacroSupport",
    "subdoc.ReplaceBodyWithXattr",
    "subdoc.ReplicaRead",
    "subdoc.ReviveDocument",
    "preserveExpiry",
    "cbhello",
    "touch",
    "cccp",
    "nodesExt",
    "rangeScan",
    "dcp",
    "dcp.IgnorePurgedTombstones",
];

/// The services of a node, by the names of the REST interface's `nodes[].services`.
pub const NODE_SERVICES: &[&str] = &["kv"];

/// A config document, ready to send.
#[derive(Debug)]
pub struct ConfigDocument {
    /// The revision of the document, also inside it.
    pub revision: Revision,
    /// The document.
    pub json: Arc<[u8]>,
    /// The document in snappy's block format, for clients that negotiated it.
    pub snappy: Arc<[u8]>,
}

/// Returns an address without a port, in the form for clients: an IPv4 address mapped into IPv6 becomes plain IPv4.
#[must_use]
pub fn host_text(address: IpAddr) -> String {
    address.to_canonical().to_string()
}

/// Returns `host:port`; an IPv6 address gets brackets.
#[must_use]
pub fn socket_text(host: &str, port: u16) -> String {
    match host.parse::<IpAddr>() {
        Ok(address) => SocketAddr::new(address, port).to_string(),
        Err(_) => format!("{host}:{port}"),
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GlobalConfigJson<'a> {
    rev: i64,
    rev_epoch: i64,
    nodes_ext: Vec<NodeExtJson<'a>>,
    cluster_capabilities_ver: [u8; 2],
    cluster_capabilities: EmptyJson,
    cluster_name: &'a str,
    #[serde(rename = "clusterUUID")]
    cluster_uuid: &'a str,
    prod: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BucketConfigJson<'a> {
    rev: i64,
    rev_epoch: i64,
    name: &'a str,
    node_locator: &'static str,
    bucket_type: &'static str,
    uuid: String,
    uri: String,
    streaming_uri: String,
    bucket_capabilities_ver: &'static str,
    bucket_capabilities: &'static [&'static str],
    collections_manifest_uid: String,
    nodes: Vec<ConfigNode>,
    nodes_ext: Vec<NodeExtJson<'a>>,
    cluster_capabilities_ver: [u8; 2],
    cluster_capabilities: EmptyJson,
    cluster_name: &'a str,
    #[serde(rename = "clusterUUID")]
    cluster_uuid: &'a str,
    prod: &'static str,
    #[serde(rename = "vBucketServerMap")]
    map: ServerMap,
}

#[derive(Serialize)]
struct EmptyJson {}

#[derive(Serialize)]
struct ConfigNode {
    hostname: String,
    ports: DirectPortJson,
}

#[derive(Serialize)]
struct DirectPortJson {
    #[serde(skip_serializing_if = "is_none")]
    direct: u16,
    #[serde(rename = "httpsMgmt", skip_serializing_if = "is_none")]
    https_mgmt: u16,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NodeExtJson<'a> {
    services: ServicePorts,
    hostname: &'a str,
    #[serde(rename = "nodeUUID")]
    node_uuid: &'a str,
    server_group: &'a str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    this_node: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    alternate_addresses: Option<AlternateAddresses<'a>>,
}

#[derive(Serialize)]
struct AlternateAddresses<'a> {
    external: AlternateNetwork<'a>,
}

/// The addresses of a node in another network.
#[derive(Serialize)]
struct AlternateNetwork<'a> {
    hostname: &'a str,
    ports: ServicePorts,
}

/// The ports of the services of a node. It lists only served ones: a client dials every service in a config.
#[derive(Default, Serialize)]
struct ServicePorts {
    #[serde(skip_serializing_if = "is_none")]
    mgmt: u16,
    #[serde(rename = "mgmtSSL", skip_serializing_if = "is_none")]
    mgmt_tls: u16,
    #[serde(skip_serializing_if = "is_none")]
    kv: u16,
    #[serde(rename = "kvSSL", skip_serializing_if = "is_none")]
    kv_tls: u16,
}

impl ServicePorts {
    /// Returns the ports of a node, of which only some serve documents.
    fn of(ports: Ports, with_kv: bool) -> Self {
        let all = Self {
            mgmt: ports.mgmt,
            mgmt_tls: ports.mgmt_tls,
            kv: ports.kv,
            kv_tls: ports.kv_tls,
        };
        match with_kv {
            true => all,
            false => Self {
                kv: 0,
                kv_tls: 0,
                ..all
            },
        }
    }
}

/// Returns whether a node does not have that port.
fn is_none(port: &u16) -> bool {
    *port == 0
}

/// The nodes of a config. A node whose bucket is not there yet would refuse a client, which comes back after seconds.
#[derive(Debug)]
pub(crate) struct BucketNodes {
    /// The members, those with copies of the bucket first.
    pub(crate) nodes: NodeList,
    /// The number of members with copies.
    pub(crate) servers: usize,
}

impl BucketNodes {
    /// Returns the nodes of a bucket that is on all of them.
    pub(crate) fn all(nodes: NodeList) -> Self {
        let servers = nodes.list.len();
        Self { nodes, servers }
    }

    fn servers(&self) -> &[crate::NodeView] {
        self.nodes.list.get(..self.servers).unwrap_or_default()
    }
}

/// The `vBucketServerMap`, which the REST interface's bucket document contains too.
///
/// `numReplicas` is the number of replicas in the chains, not the configured one: with a larger number clients would
/// wait for replicas that do not exist, and refuse durability levels that the nodes support.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerMap {
    hash_algorithm: &'static str,
    num_replicas: usize,
    server_list: Vec<String>,
    #[serde(rename = "vBucketMap")]
    map: ServerChains,
}

impl ServerMap {
    /// Creates the map for a client that reached this node at `host`.
    pub(crate) fn new(chains: ServerChains, nodes: &BucketNodes, host: &str) -> Self {
        let server = |node: &crate::NodeView| socket_text(node.host(host), node.ports.kv_listed());
        Self {
            hash_algorithm: "CRC",
            num_replicas: chains.replicas(),
            server_list: nodes.servers().iter().map(server).collect(),
            map: chains,
        }
    }
}

/// Chains in the form for clients: indexes into the list of servers, -1 for none.
#[derive(Clone, Debug)]
pub(crate) enum ServerChains {
    /// The first server has all vBuckets, this many.
    First(u16),
    /// Individual chains.
    Each(Arc<[Vec<i16>]>),
}

impl ServerChains {
    /// Converts the chains of a map; `servers` are the nodes of the list of servers, in its order.
    pub(crate) fn of(chains: &[Chain], servers: &[u16]) -> Self {
        let server = |node: &Option<u16>| {
            let at = servers.iter().position(|member| Some(*member) == *node);
            at.and_then(|at| i16::try_from(at).ok()).unwrap_or(-1)
        };
        // All have the same length for clients, also while vBuckets get other numbers of replicas one after the other.
        let places = chains.iter().map(|chain| chain.0.len()).min().unwrap_or(0);
        let each = chains
            .iter()
            .map(|chain| chain.0.iter().take(places).map(server).collect());
        Self::Each(each.collect())
    }

    /// Returns whether the chain of a vBucket has a server and others.
    pub(crate) fn has_others_than(&self, server: usize, vb: u16) -> bool {
        let Self::Each(chains) = self else {
            return false;
        };
        let chain = chains.get(usize::from(vb)).map_or(&[][..], |chain| chain);
        let is_it = |place: i16| usize::try_from(place) == Ok(server);
        let others = |place: &i16| *place >= 0 && !is_it(*place);
        chain.iter().any(|place| is_it(*place)) && chain.iter().any(others)
    }

    fn replicas(&self) -> usize {
        match self {
            Self::First(_) => 0,
            Self::Each(chains) => chains.first().map_or(0, |chain| chain.len().max(1) - 1),
        }
    }
}

impl Serialize for ServerChains {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::First(vbuckets) => {
                let mut chains = serializer.serialize_seq(Some(usize::from(*vbuckets)))?;
                for _ in 0..*vbuckets {
                    chains.serialize_element(&[0_u8])?;
                }
                chains.end()
            }
            Self::Each(chains) => chains.serialize(serializer),
        }
    }
}

/// Returns the nodes of a config. The first ones, `with_kv` of them, serve documents.
fn nodes_ext<'a>(nodes: &'a NodeList, with_kv: usize, host: &'a str) -> Vec<NodeExtJson<'a>> {
    let of = |(at, node): (usize, &'a crate::NodeView)| NodeExtJson {
        services: ServicePorts::of(node.ports, at < with_kv),
        hostname: node.host(host),
        node_uuid: &node.uuid,
        server_group: &node.server_group,
        this_node: nodes.this == Some(at),
        alternate_addresses: node.external.as_ref().map(|external| AlternateAddresses {
            external: AlternateNetwork {
                hostname: &external.host,
                ports: ServicePorts::of(external.ports(node.ports, node.tls), at < with_kv),
            },
        }),
    };
    nodes.list.iter().enumerate().map(of).collect()
}

fn finish(revision: Revision, document: &impl Serialize) -> ConfigDocument {
    let json = serde_json::to_vec(document).expect("strings and numbers always serialise");
    let snappy = snap::raw::Encoder::new()
        .compress_vec(&json)
        .expect("a config is far below snappy's limit of 4 GiB");
    ConfigDocument {
        revision,
        json: json.into(),
        snappy: snappy.into(),
    }
}

/// Creates the config of the cluster, for connections without a bucket. It must not have a name, a uuid or a node
/// locator: clients would take it for the config of a bucket.
pub(crate) fn global(
    state: &ClusterState,
    revision: Revision,
    nodes: &NodeList,
    host: &str,
) -> ConfigDocument {
    finish(
        revision,
        &GlobalConfigJson {
            rev: revision.rev,
            rev_epoch: revision.epoch,
            nodes_ext: nodes_ext(nodes, nodes.list.len(), host),
            cluster_capabilities_ver: [1, 0],
            cluster_capabilities: EmptyJson {},
            cluster_name: &state.cluster_name,
            cluster_uuid: &state.cluster_uuid,
            prod: "server",
        },
    )
}

/// Creates the config of one bucket.
pub(crate) fn of_bucket(
    state: &ClusterState,
    revision: Revision,
    nodes: &BucketNodes,
    bucket: &BucketEntry,
    chains: &ServerChains,
    host: &str,
) -> ConfigDocument {
    let uuid = hex(&bucket.uuid);
    let name = path_text(&bucket.name);
    finish(
        revision,
        &BucketConfigJson {
            rev: revision.rev,
            rev_epoch: revision.epoch,
            name: &bucket.name,
            node_locator: "vbucket",
            bucket_type: "membase",
            uri: format!("/pools/default/buckets/{name}?bucket_uuid={uuid}"),
            streaming_uri: format!("/pools/default/bucketsStreaming/{name}?bucket_uuid={uuid}"),
            uuid,
            bucket_capabilities_ver: "",
            bucket_capabilities: BUCKET_CAPABILITIES,
            collections_manifest_uid: format!("{:x}", bucket.manifest_uid),
            nodes: nodes
                .servers()
                .iter()
                .map(|node| ConfigNode {
                    hostname: socket_text(node.host(host), node.ports.mgmt_listed()),
                    ports: DirectPortJson {
                        direct: node.ports.kv,
                        https_mgmt: node.ports.mgmt_tls,
                    },
                })
                .collect(),
            nodes_ext: nodes_ext(&nodes.nodes, nodes.servers, host),
            cluster_capabilities_ver: [1, 0],
            cluster_capabilities: EmptyJson {},
            cluster_name: &state.cluster_name,
            cluster_uuid: &state.cluster_uuid,
            prod: "server",
            map: ServerMap::new(chains.clone(), nodes, host),
        },
    )
}

/// Returns a bucket's name as part of a path: `%` is the only character of a bucket name that a path cannot contain.
fn path_text(name: &str) -> String {
    name.replace('%', "%25")
}
