//! Audit events of cluster commands: who changed the members, the rebalance, the settings or the server groups of a cluster.
//!
//! A command is recorded after it succeeded, with its parameters, by the node that executed it.
//!
//! Invariants:
//! * A parameter whose name contains `pass` is not recorded.
//! * The size of the recorded parameters is bounded.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use kedge_node::audit::{AuditEvent, EventKind};
use serde_json::{Map, Value};

use super::auth::Caller;
use super::form::{self, FormFields};
use super::state::HttpState;

/// The largest size of recorded parameters, in bytes of the request's body.
const PARAMETERS_BYTES_MAX: usize = 4 << 10;
/// The path of server groups.
const GROUPS: &str = "/pools/default/serverGroups";

/// Returns the event of a command; `None` if the request is none.
fn event(method: &Method, path: &str, form: &FormFields) -> Option<EventKind> {
    if let Some(group) = path.strip_prefix(GROUPS) {
        return match *method {
            Method::POST if group.ends_with("/addNode") => Some(EventKind::NodeAdded),
            Method::POST => Some(EventKind::GroupAdded),
            Method::PUT => Some(EventKind::GroupUpdated),
            Method::DELETE => Some(EventKind::GroupDeleted),
            _ => None,
        };
    }
    if path == "/settings/ldap" && matches!(*method, Method::POST | Method::DELETE) {
        return Some(EventKind::LdapSettingsChanged);
    }
    if path == "/settings/jwt" && matches!(*method, Method::PUT | Method::DELETE) {
        return Some(EventKind::JwtSettingsChanged);
    }
    if *method != Method::POST {
        return None;
    }
    Some(match path {
        "/controller/addNode" | "/controller/addNodeV2" | "/kedge/cluster/add" => {
            EventKind::NodeAdded
        }
        "/controller/ejectNode" | "/kedge/cluster/remove" => EventKind::NodeRemoved,
        "/controller/failOver"
        | "/controller/startFailover"
        | "/controller/startGracefulFailover"
        | "/controller/reFailOver"
        | "/kedge/cluster/failover" => EventKind::FailedOver,
        "/controller/setRecoveryType" | "/controller/reAddNode" | "/kedge/cluster/recover" => {
            EventKind::RecoveryEntered
        }
        "/controller/rebalance" | "/kedge/cluster/rebalance" => EventKind::RebalanceStarted,
        "/controller/stopRebalance" | "/kedge/cluster/rebalance/stop" => {
            EventKind::RebalanceStopped
        }
        "/kedge/cluster/drain" => EventKind::NodeDrained,
        "/kedge/cluster/group" => EventKind::GroupUpdated,
        "/settings/autoFailover" if form.get("enabled") == Some("false") => {
            EventKind::AutoFailoverDisabled
        }
        "/settings/autoFailover" => EventKind::AutoFailoverEnabled,
        "/settings/autoFailover/resetCount" => EventKind::AutoFailoverCountReset,
        "/pools/default/settings/memcached/global" => EventKind::ClusterCommand,
        "/settings/passwordPolicy" => EventKind::PasswordPolicyChanged,
        "/settings/rebalance" => EventKind::RebalanceSettingsChanged,
        "/kedge/cluster/move" | "/kedge/cluster/balance" | "/kedge/cluster/level" => {
            EventKind::ClusterCommand
        }
        _ => return None,
    })
}

/// Returns the parameters of a body: the fields of a form, those that occur several times joined by commas, or a JSON document.
fn parameters(body: &[u8], form: &FormFields) -> Map<String, Value> {
    if body.len() > PARAMETERS_BYTES_MAX {
        return Map::from_iter([("bytes".to_owned(), body.len().into())]);
    }
    if let Ok(Value::Object(mut document)) = serde_json::from_slice(body) {
        document.retain(|name, _| !is_secret(name));
        return document;
    }
    let mut parameters = Map::new();
    for (name, text) in form.fields().filter(|(name, _)| !is_secret(name)) {
        let value = match parameters.get(name).and_then(Value::as_str) {
            Some(before) => format!("{before},{text}"),
            None => text.to_owned(),
        };
        parameters.insert(name.to_owned(), value.into());
    }
    parameters
}

fn is_secret(name: &str) -> bool {
    name.to_ascii_lowercase().contains("pass")
}

/// Passes a request on, and records it if it is a cluster command that succeeded.
pub(crate) async fn record(
    State(state): State<Arc<HttpState>>,
    request: Request,
    next: Next,
) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    // Only bodies of commands are read: maps of other nodes may be larger.
    let is_command = event(&method, &path, &FormFields::default()).is_some();
    let caller = request.extensions().get::<Caller>().cloned();
    let audit = state.parts.users.audit();
    let Some(caller) = caller.filter(|_| audit.is_on() && is_command) else {
        return next.run(request).await;
    };
    let (head, body) = request.into_parts();
    let body = match form::read(body).await {
        Ok(body) => body,
        Err(reply) => return reply.into_response(),
    };
    let form = FormFields::parse(&body);
    let kind = event(&method, &path, &form);
    let parameters = kind.map(|_| parameters(&body, &form));
    let response = next.run(Request::from_parts(head, Body::from(body))).await;
    if let Some(kind) = kind.filter(|_| response.status().is_success()) {
        audit.put(&AuditEvent {
            request: &format!("{method} {path}"),
            parameters: parameters.as_ref(),
            ..AuditEvent::new(kind, &caller.id)
        });
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cluster_command_has_an_event() {
        let of =
            |method, path, form: &str| event(&method, path, &FormFields::parse(form.as_bytes()));
        let post = |path, form| of(Method::POST, path, form);
        for (path, form, expected) in [
            ("/controller/addNode", "", EventKind::NodeAdded),
            (
                "/pools/default/serverGroups/g/addNode",
                "",
                EventKind::NodeAdded,
            ),
            ("/pools/default/serverGroups", "", EventKind::GroupAdded),
            ("/kedge/cluster/failover", "", EventKind::FailedOver),
            (
                "/settings/autoFailover",
                "enabled=true",
                EventKind::AutoFailoverEnabled,
            ),
            (
                "/settings/autoFailover",
                "enabled=false",
                EventKind::AutoFailoverDisabled,
            ),
        ] {
            assert_eq!(post(path, form), Some(expected), "{path} {form}");
            assert_eq!(of(Method::GET, path, form), None, "{path}");
        }
        // What nodes tell each other is no command.
        assert_eq!(post("/kedge/cluster/promise", ""), None);
    }

    #[test]
    fn parameters_have_no_passwords_and_a_limit() {
        let of = |body: &str| {
            let body = body.as_bytes();
            Value::Object(parameters(body, &FormFields::parse(body))).to_string()
        };
        assert_eq!(
            of("otpNode=a&otpNode=b&password=x&newPassword=y&bindPass=z&allowUnsafe=true"),
            r#"{"allowUnsafe":"true","otpNode":"a,b"}"#
        );
        assert_eq!(of(r#"{"password":"x","groups":[]}"#), r#"{"groups":[]}"#);
        assert_eq!(of(&"x".repeat(5_000)), r#"{"bytes":5000}"#);
    }
}
