//! `/pools` and the paths below it, except buckets.

use axum::body::Bytes;
use axum::http::StatusCode;
use kedge_auth::Privilege;
use serde_json::json;

use super::documents::DocumentComposer;
use super::form::FormFields;
use super::reply::{EarlyReply, Handled, done, ok, ok_bytes, ok_typed};
use super::request_context::RequestContext;
use super::stream;

/// Longest name of a cluster, in bytes.
const CLUSTER_NAME_BYTES_MAX: usize = 256;

/// Shows that the server listens.
pub(crate) async fn ping() -> Handled {
    ok_typed("text/plain; charset=utf-8", "Kedge\n".to_owned())
}

/// `GET /whoami`.
pub(crate) async fn whoami(call: RequestContext) -> Handled {
    let caller = &call.caller;
    let (id, domain) = match kedge_auth::external_name(&caller.id) {
        Some(name) => (name, "external"),
        None => (caller.id.as_str(), "local"),
    };
    ok(&json!({
        "id": id,
        "domain": domain,
        "name": caller.name,
        "roles": caller.roles,
    }))
}

pub(crate) async fn pools(call: RequestContext) -> Handled {
    let admin = call.caller.roles.allows(Privilege::Admin, None);
    let inspects = call.caller.roles.allows(Privilege::Inspect, None);
    let cluster = call.state.parts.cluster.snapshot();
    ok(&composer(&call, &cluster).pools(admin, inspects && !admin))
}

/// Returns the composer of documents for a request.
pub(crate) fn composer<'a>(
    call: &'a RequestContext,
    cluster: &'a kedge_cluster::ClusterSnapshot,
) -> DocumentComposer<'a> {
    DocumentComposer {
        state: &call.state,
        cluster,
        host: &call.host,
    }
}

pub(crate) async fn default_pool(call: RequestContext) -> Handled {
    call.caller.require(Privilege::Access, None)?;
    let cluster = call.state.parts.cluster.snapshot();
    ok(&composer(&call, &cluster).cluster())
}

/// `POST /pools/default`: the cluster's name. Memory quotas belong to the buckets.
pub(crate) async fn rename(call: RequestContext, form: FormFields) -> Handled {
    call.caller.require(Privilege::Settings, None)?;
    let Some(name) = form.get("clusterName").map(str::to_owned) else {
        return Err(EarlyReply::field_error(
            StatusCode::BAD_REQUEST,
            "_",
            "clusterName is the only setting of the cluster",
        ));
    };
    if name.len() > CLUSTER_NAME_BYTES_MAX || name.chars().any(char::is_control) {
        let text =
            format!("must be at most {CLUSTER_NAME_BYTES_MAX} bytes without control characters");
        return Err(EarlyReply::field_error(
            StatusCode::BAD_REQUEST,
            "clusterName",
            text,
        ));
    }
    if let Some(node) = call.state.parts.node.clone() {
        super::buckets::in_cluster(&call, move || node.rename(&name)).await?;
    } else {
        call.blocking(move |state| state.parts.cluster.set_cluster_name(&name))
            .await?
            .map_err(|error| EarlyReply::failed("rename the cluster", &error))?;
    }
    done()
}

pub(crate) async fn nodes(call: RequestContext) -> Handled {
    call.caller.require(Privilege::Access, None)?;
    let cluster = call.state.parts.cluster.snapshot();
    let loading = call.buckets().list().iter().any(|bucket| bucket.loading);
    ok(&json!({ "name": "default", "nodes": composer(&call, &cluster).all_nodes(loading) }))
}

pub(crate) async fn node_services(call: RequestContext) -> Handled {
    call.caller.require(Privilege::Access, None)?;
    let config = call.state.parts.cluster.global_config(&call.host);
    ok_bytes(Bytes::from_owner(config.json.clone()))
}

pub(crate) async fn node_services_streaming(call: RequestContext) -> Handled {
    call.caller.require(Privilege::Access, None)?;
    let host = call.host.clone();
    stream::documents(&call.state, move |state| {
        let config = state.parts.cluster.global_config(&host);
        Some(Bytes::from_owner(config.json.clone()))
    })
}

pub(crate) async fn terse_cluster_info(call: RequestContext) -> Handled {
    call.caller.require(Privilege::Access, None)?;
    let cluster = call.state.parts.cluster.snapshot();
    ok(&composer(&call, &cluster).terse_cluster())
}
