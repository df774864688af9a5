//! The certificates of all nodes: `/pools/default/certificates` and `/pools/default/certificate/node/NODE`.
//!
//! A node asks the others for theirs. Those that do not serve TLS, do not answer, or have a release that does not say it are left out,
//! as the original leaves out nodes of earlier versions.

use std::time::SystemTime;

use axum::extract::Path;
use axum::http::StatusCode;
use kedge_auth::Privilege;
use kedge_cluster::ClusterSnapshot;
use kedge_node::iso_8601;
use kedge_tls::ServerTls;
use serde_json::{Value, json};

use super::nodes::{hostnames, position};
use super::reply::{EarlyReply, Handled, ok};
use super::request_context::RequestContext;

/// The path at which a node describes its own certificate.
const OWN: &str = "/kedge/tls";

/// Returns the document of this node's certificate: that of `/kedge/tls`.
pub(crate) fn own(tls: &ServerTls) -> Value {
    let mut status = serde_json::to_value(tls.status()).unwrap_or_default();
    status["expiresInSeconds"] = tls.expires_in(SystemTime::now()).into();
    status["type"] = match tls.options().auto {
        Some(_) => "generated".into(),
        None => "uploaded".into(),
    };
    status["pem"] = tls.certificate_pem().into();
    status
}

/// Returns the entry of a node in the original's form; `None` if its document has no certificate.
fn entry(hostname: &str, document: &Value) -> Option<Value> {
    let not_after = document.get("notAfter")?.as_i64()?;
    let expires_ms = u64::try_from(not_after).ok()?.saturating_mul(1_000);
    Some(json!({
        "node": hostname,
        "subject": document.get("subject")?,
        "expires": iso_8601(expires_ms),
        "type": document.get("type")?,
        "pem": document.get("pem")?,
        "warnings": [],
    }))
}

impl RequestContext {
    /// Returns the document of the certificate of the node at an index of the map, which is asked if it is another one.
    /// `None` if it serves no TLS, or does not answer.
    async fn certificate_at(
        &self,
        cluster: &ClusterSnapshot,
        at: usize,
    ) -> Result<Option<Value>, EarlyReply> {
        if cluster.nodes().this == Some(at) {
            return Ok(self.state.parts.tls.as_ref().map(own));
        }
        let uuid = cluster.nodes().list[at].uuid.clone();
        self.blocking(move |state| {
            let this = state.parts.node.as_ref()?;
            this.ask(&uuid, OWN).ok()
        })
        .await
    }
}

/// `GET /pools/default/certificates`.
pub(crate) async fn all(call: RequestContext) -> Handled {
    call.caller.require(Privilege::Inspect, None)?;
    let cluster = call.state.parts.cluster.snapshot();
    let mut entries = Vec::new();
    for (at, hostname) in hostnames(&cluster, &call.host).iter().enumerate() {
        let document = call.certificate_at(&cluster, at).await?;
        entries.extend(document.and_then(|document| entry(hostname, &document)));
    }
    ok(&entries)
}

/// `GET /pools/default/certificate/node/NODE`. NODE is a host, with the port of management or without it.
pub(crate) async fn of_node(call: RequestContext, Path(node): Path<String>) -> Handled {
    call.caller.require(Privilege::Inspect, None)?;
    let cluster = call.state.parts.cluster.snapshot();
    let hostnames = hostnames(&cluster, &call.host);
    let at = position(&hostnames, &node).or_else(|| {
        let is_host = |name: &String| name.rsplit_once(':').is_some_and(|(host, _)| host == node);
        hostnames.iter().position(is_host)
    });
    let at = at.ok_or_else(EarlyReply::no_such_resource)?;
    let document = call.certificate_at(&cluster, at).await?;
    let entry = document.and_then(|document| entry(&hostnames[at], &document));
    let entry = entry.ok_or_else(|| {
        let why = format!("node {node} does not serve TLS, or does not answer.");
        EarlyReply::text(StatusCode::NOT_FOUND, why)
    })?;
    ok(&entry)
}
