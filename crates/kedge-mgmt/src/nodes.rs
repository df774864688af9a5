//! `/pools/default/buckets/BUCKET/nodes`: the nodes that have a bucket, and the figures of each.

use axum::extract::Path;
use axum::http::StatusCode;
use kedge_auth::Privilege;
use kedge_cluster::{ClusterSnapshot, socket_text};
use serde_json::{Value, json};

use super::buckets::samples;
use super::documents::path_text;
use super::reply::{EarlyReply, Handled, ok};
use super::request_context::RequestContext;

/// Returns the names of all nodes, `HOST:PORT` of their management, in the order of the map.
pub(crate) fn hostnames(cluster: &ClusterSnapshot, host: &str) -> Vec<String> {
    let nodes = cluster.nodes().list.iter();
    nodes
        .map(|node| socket_text(node.host(host), node.ports.mgmt_listed()))
        .collect()
}

/// Returns the index of the node with that name.
pub(crate) fn position(hostnames: &[String], name: &str) -> Option<usize> {
    let mut names = hostnames.iter();
    names.position(|known| known.eq_ignore_ascii_case(name))
}

fn entry(bucket: &str, hostname: &str) -> Value {
    let node = form_urlencoded::byte_serialize(hostname.as_bytes()).collect::<String>();
    let uri = format!("/pools/default/buckets/{}/nodes/{node}", path_text(bucket));
    json!({
        "hostname": hostname,
        "stats": { "uri": format!("{uri}/stats") },
        "uri": uri,
    })
}

/// `GET .../nodes`.
pub(crate) async fn list(call: RequestContext, Path(bucket): Path<String>) -> Handled {
    call.bucket(&bucket, Privilege::Access)?;
    let cluster = call.state.parts.cluster.snapshot();
    let hostnames = hostnames(&cluster, &call.host);
    let servers = hostnames.iter().map(|hostname| entry(&bucket, hostname));
    ok(&json!({ "servers": servers.collect::<Vec<_>>() }))
}

impl RequestContext {
    /// Returns the index in the map of the node with that name.
    fn node_named(&self, cluster: &ClusterSnapshot, name: &str) -> Result<usize, EarlyReply> {
        let hostnames = hostnames(cluster, &self.host);
        position(&hostnames, name).ok_or_else(EarlyReply::no_such_resource)
    }
}

/// `GET .../nodes/NODE`.
pub(crate) async fn get(
    call: RequestContext,
    Path((bucket, node)): Path<(String, String)>,
) -> Handled {
    call.bucket(&bucket, Privilege::Access)?;
    let cluster = call.state.parts.cluster.snapshot();
    call.node_named(&cluster, &node)?;
    let mut document = entry(&bucket, &node);
    document["bucketName"] = bucket.into();
    ok(&document)
}

/// `GET .../nodes/NODE/stats`: the bucket's current figures on that node, which is asked if it is another one.
pub(crate) async fn stats(
    call: RequestContext,
    Path((bucket, node)): Path<(String, String)>,
) -> Handled {
    call.bucket(&bucket, Privilege::Stats)?;
    let cluster = call.state.parts.cluster.snapshot();
    let at = call.node_named(&cluster, &node)?;
    let mut document = if cluster.nodes().this == Some(at) {
        samples(&call, &bucket)?
    } else {
        let uuid = cluster.nodes().list[at].uuid.clone();
        let path = format!("/pools/default/buckets/{}/stats", path_text(&bucket));
        let asked = call.blocking(move |state| {
            let this = state.parts.node.as_ref()?;
            Some(this.ask(&uuid, &path))
        });
        let told = asked.await?.ok_or_else(EarlyReply::no_such_resource)?;
        told.map_err(|why| {
            let text = format!("node {node} did not give its figures: {why}");
            EarlyReply::field_error(StatusCode::SERVICE_UNAVAILABLE, "_", text)
        })?
    };
    document["hostname"] = node.into();
    ok(&document)
}
