//! The config documents ("terse bucket map"), as the SDKs read them.
//!
//! Field names and shapes are those of Couchbase Server's REST interface, `GET /pools/default/b/BUCKET` and
//! `GET /pools/default/nodeServices`; the same documents travel in GET_CLUSTER_CONFIG and NOT_MY_VBUCKET.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};

use crate::state::hex;
use crate::{BucketEntry, ClusterState, Ports, Revision, SERVER_GROUP};

/// What a bucket can do, by the names of `bucketCapabilities`.
///
/// Clients gate whole features on these names, so a name appears here only when the feature works: an honest
/// "feature not available" of a client is better than the unknown-command status of a server.
pub const BUCKET_CAPABILITIES: &[&str] = &[
    "collections",
    "durableWrite",
    "couchapi",
    "preserveExpiry",
    "cbhello",
    "touch",
    "cccp",
    "nodesExt",
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
    nodes_ext: [NodeExt<'a>; 1],
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
    nodes: [Node; 1],
    nodes_ext: [NodeExt<'a>; 1],
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
    this_node: bool,
}

/// Only what is served: a client dials every service that it is told of.
#[derive(Serialize)]
struct Services {
    mgmt: u16,
    kv: u16,
}

/// The `vBucketServerMap`, also part of the REST interface's bucket document.
///
/// One node can keep no replica, whatever the bucket asks for: `numReplicas` is 0 and every chain is `[0]`. With the
/// bucket's own number clients would wait for replicas, and refuse durability levels that a majority of one gives.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerMap {
    hash_algorithm: &'static str,
    num_replicas: u8,
    server_list: [String; 1],
    #[serde(rename = "vBucketMap")]
    map: Chains,
}

impl ServerMap {
    /// The map of a bucket with that many vBuckets, all on the node that is reached at `host`.
    #[must_use]
    pub fn new(vbuckets: u16, host: &str, ports: Ports) -> Self {
        Self {
            hash_algorithm: "CRC",
            num_replicas: 0,
            server_list: [socket_text(host, ports.kv)],
            map: Chains(vbuckets),
        }
    }
}

/// `[[0],[0],...]`: the first server holds every vBucket.
#[derive(Debug)]
struct Chains(u16);

impl Serialize for Chains {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut chains = serializer.serialize_seq(Some(usize::from(self.0)))?;
        for _ in 0..self.0 {
            chains.serialize_element(&[0_u8])?;
        }
        chains.end()
    }
}

fn node_ext<'a>(state: &'a ClusterState, ports: Ports, host: &'a str) -> NodeExt<'a> {
    NodeExt {
        services: Services {
            mgmt: ports.mgmt,
            kv: ports.kv,
        },
        hostname: host,
        node_uuid: &state.node_uuid,
        server_group: SERVER_GROUP,
        this_node: true,
    }
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
pub(crate) fn global(state: &ClusterState, revision: Revision, ports: Ports, host: &str) -> Config {
    finish(
        revision,
        &Global {
            rev: revision.rev,
            rev_epoch: revision.epoch,
            nodes_ext: [node_ext(state, ports, host)],
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
    ports: Ports,
    bucket: &BucketEntry,
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
            nodes: [Node {
                hostname: socket_text(host, ports.mgmt),
                ports: DirectPort { direct: ports.kv },
            }],
            nodes_ext: [node_ext(state, ports, host)],
            cluster_capabilities_ver: [1, 0],
            cluster_capabilities: Empty {},
            cluster_name: &state.cluster_name,
            cluster_uuid: &state.cluster_uuid,
            prod: "server",
            map: ServerMap::new(bucket.vbuckets, host, ports),
        },
    )
}

/// A bucket's name as part of a path: `%` is the only character of a bucket name that a path cannot hold.
fn path_text(name: &str) -> String {
    name.replace('%', "%25")
}
