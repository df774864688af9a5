//! Server groups: `GET`, `POST` and `PUT /pools/default/serverGroups`, and `PUT` and `DELETE` of one of them, as in the
//! original. The URI of a group has its name.

use std::collections::{BTreeMap, BTreeSet};

use axum::body::Bytes;
use axum::extract::Path;
use axum::http::StatusCode;
use kedge_auth::Privilege;
use kedge_cluster::{ClusterError, GroupChange, GroupError};
use kedge_node::coordination::ChangeError;
use serde::Deserialize;
use serde_json::{Value, json};

use super::cluster::refusal;
use super::form::FormFields;
use super::node_names::node_of_otp_name;
use super::pools::composer;
use super::reply::{EarlyReply, Handled, ok};
use super::request_context::RequestContext;

/// The path of all groups.
const GROUPS: &str = "/pools/default/serverGroups";

/// Returns the URI of a group.
fn uri(name: &str) -> String {
    let path: String = form_urlencoded::byte_serialize(name.as_bytes()).collect();
    // A plus sign is a blank in forms only.
    format!("{GROUPS}/{}", path.replace('+', "%20"))
}

/// Returns the reply to a refused change.
fn refused(error: &ChangeError) -> EarlyReply {
    let ChangeError::Map(ClusterError::Group(why)) = error else {
        return refusal(error);
    };
    let text = why.to_string();
    match why {
        GroupError::Unknown => EarlyReply::json(StatusCode::NOT_FOUND, &json!([])),
        GroupError::Stale => EarlyReply::json(StatusCode::CONFLICT, &json!([])),
        GroupError::Rebalancing => EarlyReply::text(StatusCode::SERVICE_UNAVAILABLE, text),
        GroupError::Exists | GroupError::Name => bad_field("name", &text),
        _ => bad_field("_", &text),
    }
}

fn bad_field(field: &str, why: &str) -> EarlyReply {
    EarlyReply::json(StatusCode::BAD_REQUEST, &json!({ field: why }))
}

/// Makes a change, which needs the privilege of settings.
pub(crate) async fn change(call: &RequestContext, change: GroupChange) -> Result<(), EarlyReply> {
    let node = call.node_for(Privilege::Settings)?;
    let made = call.blocking(move |_| node.change_groups(&change)).await?;
    made.map(drop).map_err(|error| refused(&error))
}

fn name_of(form: &FormFields) -> Result<String, EarlyReply> {
    let name = form.get("name").map(str::to_owned);
    name.ok_or_else(|| bad_field("name", "is missing"))
}

/// `GET`: all groups with their nodes.
pub(crate) async fn list(call: RequestContext) -> Handled {
    call.caller.require(Privilege::Access, None)?;
    let cluster = call.state.parts.cluster.snapshot();
    let map = call.state.parts.node.as_ref().and_then(|node| node.map());
    let names = map.iter().flat_map(|map| map.groups());
    let mut groups: BTreeMap<String, Vec<Value>> =
        names.map(|name| (name.to_owned(), Vec::new())).collect();
    for node in composer(&call, &cluster).all_nodes(false) {
        let group = node["serverGroup"].as_str().unwrap_or("").to_owned();
        groups.entry(group).or_default().push(node);
    }
    let groups = groups.into_iter().map(|(name, nodes)| {
        let uri = uri(&name);
        json!({ "name": name, "uri": uri, "addNodeURI": format!("{uri}/addNode"), "nodes": nodes })
    });
    ok(&json!({
        "groups": groups.collect::<Vec<_>>(),
        "uri": format!("{GROUPS}?rev={}", cluster.revision().rev),
    }))
}

/// `POST` with `name`: a new group.
pub(crate) async fn add(call: RequestContext, form: FormFields) -> Handled {
    call.caller.require(Privilege::Settings, None)?;
    change(&call, GroupChange::Add(name_of(&form)?)).await?;
    ok(&json!([]))
}

/// `PUT /GROUP` with `name`: another name.
pub(crate) async fn rename(
    call: RequestContext,
    Path(from): Path<String>,
    form: FormFields,
) -> Handled {
    call.caller.require(Privilege::Settings, None)?;
    let to = name_of(&form)?;
    change(&call, GroupChange::Rename { from, to }).await?;
    ok(&json!([]))
}

/// `DELETE /GROUP`: the group has no nodes.
pub(crate) async fn remove(call: RequestContext, Path(group): Path<String>) -> Handled {
    change(&call, GroupChange::Delete(group)).await?;
    ok(&json!([]))
}

/// `POST /kedge/cluster/group` with `node`, a name, and `group`: the group of one node.
pub(crate) async fn move_node(call: RequestContext, form: FormFields) -> Handled {
    let node = call.node_for(Privilege::Settings)?;
    let map = node.map().ok_or_else(|| refusal(&ChangeError::NotBegun))?;
    let name = form.get("node").unwrap_or_default();
    let node = map.node(name).map_err(|error| refusal(&error.into()))?;
    let to = form.get("group").unwrap_or_default().to_owned();
    change(&call, GroupChange::Move { node, to }).await?;
    ok(&json!([]))
}

/// The body of an assignment.
#[derive(Deserialize)]
struct WantedGroups {
    groups: Vec<WantedGroup>,
}

#[derive(Deserialize)]
struct WantedGroup {
    uri: String,
    nodes: Vec<WantedNode>,
}

#[derive(Deserialize)]
struct WantedNode {
    #[serde(rename = "otpNode")]
    otp_node: String,
}

/// `PUT ?rev=REV` with a document: the group of each node. All groups and nodes are given, each once.
pub(crate) async fn assign(call: RequestContext, body: Bytes) -> Handled {
    let node = call.node_for(Privilege::Settings)?;
    let map = node.map().ok_or_else(|| refusal(&ChangeError::NotBegun))?;
    let wanted: WantedGroups = serde_json::from_slice(&body)
        .map_err(|error| bad_field("_", &format!("the document is malformed: {error}")))?;
    let rev = match call.query.get("rev").map(str::parse) {
        None => None,
        Some(Ok(rev)) => Some(rev),
        Some(Err(_)) => return Err(bad_field("rev", "is no number")),
    };
    let incomplete = || refused(&ChangeError::Map(GroupError::Incomplete.into()));
    let (mut nodes, mut groups) = (BTreeMap::new(), BTreeSet::new());
    let known: BTreeMap<String, &str> = map.groups().into_iter().map(|it| (uri(it), it)).collect();
    for group in wanted.groups {
        let name = *known.get(&group.uri).ok_or_else(incomplete)?;
        if !groups.insert(name.to_owned()) {
            return Err(incomplete());
        }
        for member in group.nodes {
            let number = node_of_otp_name(&map, &member.otp_node).ok_or_else(incomplete)?;
            if nodes.insert(number, name.to_owned()).is_some() {
                return Err(incomplete());
            }
        }
    }
    change(&call, GroupChange::Assign { rev, nodes, groups }).await?;
    ok(&json!([]))
}
