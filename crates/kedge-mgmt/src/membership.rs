//! The original's requests for members: `POST /controller/addNode`, `ejectNode`, `failOver`, `startGracefulFailover`,
//! `setRecoveryType` and others.
//!
//! A node to add waits with the same coordination store, and is found by its management address. It is a member at once,
//! without vBuckets until a rebalance; the original shows such a node as `inactiveAdded`.

use std::sync::Arc;

use axum::extract::Path;
use axum::http::StatusCode;
use kedge_auth::Privilege;
use kedge_cluster::{
    ClusterError, ClusterMap, GroupChange, MapNode, NodeRecord, RecoveryType, socket_text,
};
use kedge_node::coordination::{AppliedChange, ChangeError, ClusterControl, FailoverConsent};
use serde_json::json;

use super::cluster::refusal;
use super::form::FormFields;
use super::node_names::{Membership, node_of_otp_name, otp_name};
use super::reply::{EarlyReply, Handled, done, ok};
use super::request_context::RequestContext;
use super::server_groups;

/// The port of management over TLS that the original's tools assume.
const DEFAULT_TLS_PORT: u16 = 18091;

fn refused(why: impl Into<String>) -> EarlyReply {
    EarlyReply::text(StatusCode::BAD_REQUEST, why)
}

/// Returns the reply to a refused change, as text.
fn text_refusal(error: &ChangeError) -> EarlyReply {
    let code = match error {
        ChangeError::Map(ClusterError::WouldLose(_)) => StatusCode::GATEWAY_TIMEOUT,
        ChangeError::NotBegun
        | ChangeError::Store(_)
        | ChangeError::OutcomeUnknown(_)
        | ChangeError::Raced
        | ChangeError::WentBackwards(_)
        | ChangeError::Down(_) => StatusCode::SERVICE_UNAVAILABLE,
        ChangeError::Map(ClusterError::Save(_)) => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::BAD_REQUEST,
    };
    EarlyReply::text(code, error.to_string())
}

/// The cluster control, the map, and the nodes that a request names.
struct NamedNodes {
    node: Arc<dyn ClusterControl>,
    map: Arc<ClusterMap>,
    numbers: Vec<u16>,
}

impl NamedNodes {
    /// Finds the nodes of the fields `otpNode`, of which there must be at least one.
    fn of(call: &RequestContext, form: &FormFields) -> Result<Self, EarlyReply> {
        let node = call.node_for(Privilege::Settings)?;
        let map = node.map().ok_or_else(|| refusal(&ChangeError::NotBegun))?;
        let names = form.fields().filter(|(field, _)| *field == "otpNode");
        let number = |(_, name): (&str, &str)| {
            node_of_otp_name(&map, name)
                .ok_or_else(|| refused(format!("Unknown server given: {name}")))
        };
        let numbers: Vec<u16> = names.map(number).collect::<Result<_, _>>()?;
        if numbers.is_empty() {
            return Err(refused("No server specified."));
        }
        Ok(Self { node, map, numbers })
    }

    fn names(&self) -> Vec<String> {
        let name = |number: &u16| self.map.name(*number).to_owned();
        self.numbers.iter().map(name).collect()
    }

    fn require_active(&self) -> Result<(), EarlyReply> {
        let mut inactive = self.numbers.iter().filter(|it| !self.map.is_member(**it));
        match inactive.next() {
            None => Ok(()),
            Some(number) => Err(refused(format!(
                "Inactive server given: {} was failed over already",
                self.map.name(*number)
            ))),
        }
    }
}

/// Makes changes for one node after the other.
async fn for_each(
    call: &RequestContext,
    nodes: NamedNodes,
    change: impl Fn(&dyn ClusterControl, &str) -> Result<AppliedChange, ChangeError> + Send + 'static,
) -> Handled {
    let names = nodes.names();
    let made = call.blocking(move |_| {
        let mut names = names.iter();
        names.try_for_each(|name| change(&*nodes.node, name).map(drop))
    });
    made.await?.map_err(|error| text_refusal(&error))?;
    done()
}

/// `POST /controller/failOver` and `startFailover` with `otpNode`, once for each, and `allowUnsafe=true` to accept losses. It
/// waits until the nodes are failed over.
pub(crate) async fn fail_over(call: RequestContext, form: FormFields) -> Handled {
    let nodes = NamedNodes::of(&call, &form)?;
    nodes.require_active()?;
    let accepts = FailoverConsent {
        alive: true,
        losses: form.get("allowUnsafe") == Some("true"),
    };
    for_each(&call, nodes, move |node, name| {
        node.fail_over(name, accepts)
    })
    .await
}

/// `POST /controller/startGracefulFailover` with `otpNode`, once for each. It goes on afterwards.
pub(crate) async fn start_graceful_failover(call: RequestContext, form: FormFields) -> Handled {
    let nodes = NamedNodes::of(&call, &form)?;
    nodes.require_active()?;
    let names = nodes.names();
    let begun = call.blocking(move |_| nodes.node.drain(&names, true));
    begun.await?.map_err(|error| text_refusal(&error))?;
    done()
}

/// `POST /controller/setRecoveryType` with `otpNode` and `recoveryType`, `delta` or `full`. The next rebalance recovers the
/// node.
pub(crate) async fn set_recovery_type(call: RequestContext, form: FormFields) -> Handled {
    call.caller.require(Privilege::Settings, None)?;
    let wrong =
        |field: &str, why: &str| EarlyReply::json(StatusCode::BAD_REQUEST, &json!({ field: why }));
    let recovery = match form.get("recoveryType") {
        Some("delta") => RecoveryType::Delta,
        Some("full") => RecoveryType::Full,
        _ => {
            return Err(wrong(
                "recoveryType",
                "recovery type must be either 'delta' or 'full'",
            ));
        }
    };
    let nodes = NamedNodes::of(&call, &form)
        .map_err(|_| wrong("otpNode", "invalid node name or node can't be recovered"))?;
    if nodes.numbers.iter().any(|it| nodes.map.is_member(*it)) {
        return Err(wrong(
            "otpNode",
            "invalid node name or node can't be recovered",
        ));
    }
    for_each(&call, nodes, move |node, name| {
        node.set_recovery_type(name, Some(recovery))
    })
    .await?;
    ok(&json!([]))
}

/// `POST /controller/reAddNode` with `otpNode`: full recovery by the next rebalance.
pub(crate) async fn re_add(call: RequestContext, form: FormFields) -> Handled {
    let nodes = NamedNodes::of(&call, &form)?;
    let recovery = Some(RecoveryType::Full);
    for_each(&call, nodes, move |node, name| {
        node.set_recovery_type(name, recovery)
    })
    .await
}

/// `POST /controller/reFailOver` with `otpNode`: the next rebalance does not recover the node, but removes it.
pub(crate) async fn re_fail_over(call: RequestContext, form: FormFields) -> Handled {
    let nodes = NamedNodes::of(&call, &form)?;
    for_each(&call, nodes, |node, name| {
        node.set_recovery_type(name, None)
    })
    .await
}

/// `POST /controller/ejectNode` with `otpNode`: removes a node that was failed over, or has no vBuckets yet.
pub(crate) async fn eject(call: RequestContext, form: FormFields) -> Handled {
    let nodes = NamedNodes::of(&call, &form)?;
    let is_active = |number: &u16| Membership::name(&nodes.map, *number) == "active";
    if nodes.numbers.iter().any(is_active) {
        return Err(refused("Cannot remove active server."));
    }
    for_each(&call, nodes, |node, name| node.remove_node(name)).await
}

/// The management address of a node to add.
#[derive(Debug, PartialEq, Eq)]
struct AddressToAdd<'a> {
    host: &'a str,
    port: Option<u16>,
}

impl<'a> AddressToAdd<'a> {
    /// Takes `[SCHEME://]HOST[:PORT]` apart.
    fn parse(text: &'a str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !host.ends_with(':') && port.parse::<u16>().is_ok() => {
                (host, port.parse().ok())
            }
            _ => (rest, None),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let is_valid = !host.is_empty() && matches!(scheme, "" | "http" | "https");
        // Records have no port of TLS.
        let port = port.filter(|port| scheme != "https" && *port != DEFAULT_TLS_PORT);
        is_valid.then_some(Self { host, port })
    }

    /// Returns whether a node with this host and management port has the address.
    fn is_of(&self, host: &str, mgmt_port: u16) -> bool {
        let is_loopback = |host: &str| {
            host == "localhost"
                || host
                    .parse::<std::net::IpAddr>()
                    .is_ok_and(|it| it.to_canonical().is_loopback())
        };
        let is_same =
            host.eq_ignore_ascii_case(self.host) || (is_loopback(host) && is_loopback(self.host));
        is_same && self.port.is_none_or(|port| port == mgmt_port)
    }
}

fn list_refusal(why: &str) -> EarlyReply {
    EarlyReply::json(StatusCode::BAD_REQUEST, &json!([why]))
}

/// Finds the waiting node with an address.
fn waiting_node(
    map: &ClusterMap,
    waiting: &std::collections::BTreeMap<String, NodeRecord>,
    address: &AddressToAdd<'_>,
    text: &str,
) -> Result<String, EarlyReply> {
    let found = waiting.iter();
    let found = found.filter(|(_, record)| address.is_of(&record.host, record.mgmt_port));
    let found: Vec<&String> = found.map(|(name, _)| name).collect();
    match found[..] {
        [name] => Ok(name.clone()),
        [] => {
            let is_it = |node: &MapNode| address.is_of(&node.host, node.mgmt_port);
            if let Some(node) = map.nodes.values().find(|node| is_it(node)) {
                return Err(list_refusal(&format!(
                    "Prepare join failed. Node is already part of cluster: \"{}\"",
                    node.name
                )));
            }
            let places = waiting.iter().map(|(name, record)| {
                format!("{name} at {}", socket_text(&record.host, record.mgmt_port))
            });
            let places: Vec<String> = places.collect();
            let places = match places.is_empty() {
                true => "none waits".to_owned(),
                false => format!("these wait: {}", places.join(", ")),
            };
            Err(list_refusal(&format!(
                "Prepare join failed. No node waits to be added at {text}; {places}. Start it with this cluster's \
                 --coordinator"
            )))
        }
        _ => Err(list_refusal(&format!(
            "Prepare join failed. Several nodes wait to be added at {text}: name the port of management without TLS"
        ))),
    }
}

/// `POST /controller/addNode` and `addNodeV2` with `hostname`. `user` and `password` are not used: whoever can use the
/// cluster's coordination store may wait there.
pub(crate) async fn add(call: RequestContext, form: FormFields) -> Handled {
    add_to(call, form, None).await
}

/// `POST /pools/default/serverGroups/GROUP/addNode`. The node gets the group, whatever it was started with.
pub(crate) async fn add_to_group(
    call: RequestContext,
    Path(group): Path<String>,
    form: FormFields,
) -> Handled {
    add_to(call, form, Some(group)).await
}

async fn add_to(call: RequestContext, form: FormFields, group: Option<String>) -> Handled {
    let node = call.node_for(Privilege::Settings)?;
    let Some(text) = form.get("hostname").map(str::to_owned) else {
        return Err(list_refusal("Missing field \"hostname\""));
    };
    if form
        .get("services")
        .is_some_and(|services| !services.is_empty() && services != "kv")
    {
        return Err(list_refusal("Only the service kv exists"));
    }
    let reading = node.clone();
    let waiting = call.blocking(move |_| reading.waiting_nodes()).await?;
    let waiting = waiting.map_err(|error| refusal(&error))?;
    let map = node.map().ok_or_else(|| refusal(&ChangeError::NotBegun))?;
    let name = {
        let Some(address) = AddressToAdd::parse(&text) else {
            return Err(list_refusal(&format!("Invalid hostname: {text}")));
        };
        waiting_node(&map, &waiting, &address, &text)?
    };
    if let Some(group) = group
        .as_deref()
        .filter(|group| !map.groups().contains(group))
    {
        return Err(EarlyReply::text(
            StatusCode::NOT_FOUND,
            format!("There is no server group \"{group}\""),
        ));
    }
    let (adding, added) = (node.clone(), name.clone());
    let done = call.blocking(move |_| adding.add_node(&added)).await?;
    done.map_err(|error| list_refusal(&error.to_string()))?;
    let map = node.map().ok_or_else(|| refusal(&ChangeError::NotBegun))?;
    let number = map.node(&name).map_err(|error| refusal(&error.into()))?;
    if let Some(to) = group {
        server_groups::change(&call, GroupChange::Move { node: number, to }).await?;
    }
    let name = otp_name(number, &map.nodes[&number], &call.host);
    ok(&json!({ "otpNode": name }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_nodes_to_add_are_taken_apart() {
        let parse = |text| AddressToAdd::parse(text).map(|it| (it.host, it.port));
        assert_eq!(parse("10.0.0.2:9001"), Some(("10.0.0.2", Some(9001))));
        assert_eq!(parse("http://db2:8091"), Some(("db2", Some(8091))));
        assert_eq!(parse("https://db2:18091"), Some(("db2", None)));
        assert_eq!(parse("db2:18091"), Some(("db2", None)));
        assert_eq!(parse("db2"), Some(("db2", None)));
        assert_eq!(parse("[::1]:9001"), Some(("::1", Some(9001))));
        assert_eq!(parse("ftp://db2"), None);
        assert_eq!(parse(":8091"), None);
    }

    #[test]
    fn addresses_match_by_host_and_port() {
        let is_of =
            |text, host, port| AddressToAdd::parse(text).is_some_and(|it| it.is_of(host, port));
        assert!(is_of("localhost:9001", "127.0.0.1", 9001));
        assert!(!is_of("localhost:9001", "127.0.0.1", 9002));
        assert!(is_of("https://DB2", "db2", 9002));
        assert!(!is_of("db3:9002", "db2", 9002));
    }
}
