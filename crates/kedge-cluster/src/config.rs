//! The config documents ("terse bucket map"), as the SDKs read them.
//!
//! Field names and shapes are those of Couchbase Server's REST interface, `GET /pools/default/b/BUCKET` and
//! `GET /pools/default/nodeServices`; the same documents travel in GET_CLUSTER_CONFIG and NOT_MY_VBUCKET.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};

use crate::state::hex;
use crate::{BucketEntry, Chain, ClusterState, Nodes, Revision, SERVER_GROUP};

/// What a bucket can do, by the names of `bucketCapabilities`.
///
/// Clients gate whole features on these names, so a name appears here only when the feature works: an honest
/// "feature not available" of a client is better than the unknown-command status of a server.
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

/// A config document, ready to be sent.
#[derive(Debug)]
pub struct Config {
    /// The document's version, also inside it.
    pub revision: Revision,
    /// The document.
    pub json: Arc<[u8]>,
    /// The document in snappy's block format, for clients that negotiated it.
    pub snappy: Arc<[u8]>,
}

/// An address without a port, as clients are told it: an IPv4 address mapped into IPv6 becomes plain IPv4.
#[must_use]
pub fn host_text(address: IpAddr) -> String {
    address.to_canonical().to_string()
}

/// `host:port`; an IPv6 address gets its brackets.
#[must_use]
pub fn socket_text(host: &str, port: u16) -> String {
    match host.parse::<IpAddr>() {
        Ok(address) => SocketAddr::new(address, port).to_string(),
        Err(_) => format!("{host}:{port}"),
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Global<'a> {
    rev: i64,
    rev_epoch: i64,
    nodes_ext: Vec<NodeExt<'a>>,
    cluster_capabilities_ver: [u8; 2],
    cluster_capabilities: Empty,
    cluster_name: &'a str,
    #[serde(rename = "clusterUUID")]
    cluster_uuid: &'a str,
    prod: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OfBucket<'a> {
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
    nodes: Vec<Node>,
    nodes_ext: Vec<NodeExt<'a>>,
    cluster_capabilities_ver: [u8; 2],
    cluster_capabilities: Empty,
    cluster_name: &'a str,
    #[serde(rename = "clusterUUID")]
    cluster_uuid: &'a str,
    prod: &'static str,
    #[serde(rename = "vBucketServerMap")]
    map: ServerMap,
}

#[derive(Serialize)]
struct Empty {}

#[derive(Serialize)]
struct Node {
    hostname: String,
    ports: DirectPort,
}

#[derive(Serialize)]
struct DirectPort {
    direct: u16,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NodeExt<'a> {
    services: Services,
    hostname: &'a str,
    #[serde(rename = "nodeUUID")]
    node_uuid: &'a str,
    server_group: &'static str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    this_node: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    alternate_addresses: Option<Alternate<'a>>,
}

#[derive(Serialize)]
struct Alternate<'a> {
    external: Elsewhere<'a>,
}

/// Where a node is in another network.
#[derive(Serialize)]
struct Elsewhere<'a> {
    hostname: &'a str,
    ports: Services,
}

/// Only what is served: a client dials every service that it is told of.
#[derive(Serialize)]
struct Services {
    mgmt: u16,
    kv: u16,
}

/// The `vBucketServerMap`, also part of the REST interface's bucket document.
///
/// `numReplicas` is how many replicas the chains have, whatever the bucket asks for: with a larger number clients
/// would wait for replicas that cannot be, and refuse durability levels that the nodes give.
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
    /// The map for a client that reached this node at `host`.
    pub(crate) fn new(chains: ServerChains, nodes: &Nodes, host: &str) -> Self {
        let server = |node: &crate::NodeView| socket_text(node.host(host), node.ports.kv);
        Self {
            hash_algorithm: "CRC",
            num_replicas: chains.replicas(),
            server_list: nodes.list.iter().map(server).collect(),
            map: chains,
        }
    }
}

/// Chains as clients read them: places in the list of servers, -1 for none.
#[derive(Clone, Debug)]
pub(crate) enum ServerChains {
    /// The first server holds so many vBuckets, all there are.
    First(u16),
    /// Any.
    Each(Arc<[Vec<i16>]>),
}

impl ServerChains {
    /// Those of a map; `members` are the nodes of the list of servers, in its order.
    pub(crate) fn of(chains: &[Chain], members: &[u16]) -> Self {
        let server = |node: &Option<u16>| {
            let at = members.iter().position(|member| Some(*member) == *node);
            at.and_then(|at| i16::try_from(at).ok()).unwrap_or(-1)
        };
        let each = chains
            .iter()
            .map(|chain| chain.0.iter().map(server).collect());
        Self::Each(each.collect())
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

fn nodes_ext<'a>(nodes: &'a Nodes, host: &'a str) -> Vec<NodeExt<'a>> {
    let of = |(at, node): (usize, &'a crate::NodeView)| NodeExt {
        services: Services {
            mgmt: node.ports.mgmt,
            kv: node.ports.kv,
        },
        hostname: node.host(host),
        node_uuid: &node.uuid,
        server_group: SERVER_GROUP,
        this_node: nodes.this == Some(at),
        alternate_addresses: node.external.as_ref().map(|external| Alternate {
            external: Elsewhere {
                hostname: &external.host,
                ports: Services {
                    mgmt: external.mgmt_port.unwrap_or(node.ports.mgmt),
                    kv: external.kv_port.unwrap_or(node.ports.kv),
                },
            },
        }),
    };
    nodes.list.iter().enumerate().map(of).collect()
}

fn finish(revision: Revision, document: &impl Serialize) -> Config {
    let json = serde_json::to_vec(document).expect("strings and numbers always serialise");
    let snappy = snap::raw::Encoder::new()
        .compress_vec(&json)
        .expect("a config is far below snappy's limit of 4 GiB");
    Config {
        revision,
        json: json.into(),
        snappy: snappy.into(),
    }
}

/// The config of the cluster, for connections without a bucket. It must not have a name, a uuid or a node locator:
/// those make clients take it for a bucket's.
pub(crate) fn global(
    state: &ClusterState,
    revision: Revision,
    nodes: &Nodes,
    host: &str,
) -> Config {
    finish(
        revision,
        &Global {
            rev: revision.rev,
            rev_epoch: revision.epoch,
            nodes_ext: nodes_ext(nodes, host),
            cluster_capabilities_ver: [1, 0],
            cluster_capabilities: Empty {},
            cluster_name: &state.cluster_name,
            cluster_uuid: &state.cluster_uuid,
            prod: "server",
        },
    )
}

/// The config of one bucket.
pub(crate) fn of_bucket(
    state: &ClusterState,
    revision: Revision,
    nodes: &Nodes,
    bucket: &BucketEntry,
    chains: &ServerChains,
    host: &str,
) -> Config {
    let uuid = hex(&bucket.uuid);
    let name = path_text(&bucket.name);
    finish(
        revision,
        &OfBucket {
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
                .list
                .iter()
                .map(|node| Node {
                    hostname: socket_text(node.host(host), node.ports.mgmt),
                    ports: DirectPort {
                        direct: node.ports.kv,
                    },
                })
                .collect(),
            nodes_ext: nodes_ext(nodes, host),
            cluster_capabilities_ver: [1, 0],
            cluster_capabilities: Empty {},
            cluster_name: &state.cluster_name,
            cluster_uuid: &state.cluster_uuid,
            prod: "server",
            map: ServerMap::new(chains.clone(), nodes, host),
        },
    )
}

/// A bucket's name as part of a path: `%` is the only character of a bucket name that a path cannot hold.
fn path_text(name: &str) -> String {
    name.replace('%', "%25")
}
