//! Audit events of changes: who changed the members, the settings, the buckets or the users.
//!
//! A change is recorded after it succeeded, with its parameters, by the node that executed it.
//!
//! Invariants:
//! * A parameter whose name is that of a secret is not recorded.
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
use super::request_context::PeerConnection;
use super::state::HttpState;

/// The largest size of recorded parameters, in bytes of the request's body.
const PARAMETERS_BYTES_MAX: usize = 4 << 10;
/// The path of server groups.
const GROUPS: &str = "/pools/default/serverGroups";
/// The path of buckets.
const BUCKETS: &str = "/pools/default/buckets";
/// The path of roles that administrators define.
const ROLES: &str = "/kedge/roles/";
/// The path of users and their groups.
const RBAC: &str = "/settings/rbac/";

/// Returns the event of a change of a bucket or its collections, whose path is `rest` below that of all buckets.
fn bucket_event(method: &Method, rest: &str) -> Option<EventKind> {
    let mut parts = rest.trim_start_matches('/').split('/');
    let (bucket, below, last) = (parts.next()?, parts.next(), parts.next());
    Some(match (method.as_str(), below, last) {
        ("POST", None, _) if bucket.is_empty() => EventKind::BucketCreated,
        ("POST", None, _) => EventKind::BucketModified,
        ("DELETE", None, _) => EventKind::BucketDeleted,
        ("POST", Some("controller"), Some("doFlush")) => EventKind::BucketFlushed,
        ("POST", Some("controller"), Some("resetVbucket")) => EventKind::BucketModified,
        ("POST", Some("controller"), _) => EventKind::CompactionCommand,
        // It changes nothing: it waits.
        ("POST", Some("scopes"), Some("@ensureManifest")) => return None,
        ("POST" | "PUT" | "PATCH" | "DELETE", Some("scopes"), _) => EventKind::CollectionsChanged,
        _ => return None,
    })
}

/// Returns the event of a change of users or groups, whose path is `rest` below that of all.
fn user_event(method: &Method, rest: &str) -> Option<EventKind> {
    let kind = rest.split('/').next()?;
    Some(match (method.as_str(), kind) {
        ("PUT" | "PATCH", "users") => EventKind::UserSet,
        ("DELETE", "users") => EventKind::UserDeleted,
        ("PUT" | "PATCH", "groups") => EventKind::UserGroupSet,
        ("DELETE", "groups") => EventKind::UserGroupDeleted,
        _ => return None,
    })
}

/// Returns the event of a change of the authorities of external users.
fn authority_event(method: &Method, path: &str) -> Option<EventKind> {
    match (method.as_str(), path) {
        ("POST" | "DELETE", "/settings/ldap") => Some(EventKind::LdapSettingsChanged),
        ("PUT" | "DELETE", "/settings/jwt") => Some(EventKind::JwtSettingsChanged),
        _ => None,
    }
}

/// Returns the event of a change; `None` if the request is none.
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
    if let Some(rest) = path.strip_prefix(BUCKETS) {
        return bucket_event(method, rest);
    }
    if let Some(rest) = path.strip_prefix(RBAC) {
        return user_event(method, rest);
    }
    if path.starts_with(ROLES) {
        return match *method {
            Method::PUT => Some(EventKind::RoleSet),
            Method::DELETE => Some(EventKind::RoleDeleted),
            _ => None,
        };
    }
    if let Some(kind) = authority_event(method, path) {
        return Some(kind);
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
        "/controller/changePassword" => EventKind::PasswordChanged,
        "/pools/default" => EventKind::ClusterSettingsChanged,
        "/controller/regenerateCertificate" => EventKind::CertificateRegenerated,
        "/settings/clientCertAuth" => EventKind::ClientCertAuthChanged,
        "/node/controller/loadTrustedCAs" => EventKind::AuthoritiesLoaded,
        "/node/controller/reloadCertificate" => EventKind::CertificateReloaded,
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

/// Parts of names of parameters that are secrets.
const SECRETS: [&str; 6] = [
    "password",
    "passphrase",
    "secret",
    "token",
    "privatekey",
    "bindpass",
];

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRETS.iter().any(|secret| name.contains(secret))
}

/// Passes a request on, and records it if it is a change that succeeded.
pub(crate) async fn record(
    State(state): State<Arc<HttpState>>,
    request: Request,
    next: Next,
) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    // Only bodies of commands are read: maps of other nodes may be larger.
    let is_command = event(&method, &path, &FormFields::default()).is_some();
    let caller = request.extensions().get::<Caller>().cloned();
    let connection = request.extensions().get::<PeerConnection>().cloned();
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
            peer: connection.as_ref().map(|it| it.peer),
            local: connection.as_ref().map(|it| it.local),
            session: caller.session.as_deref().unwrap_or_default(),
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
    fn each_change_has_an_event() {
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
        for (method, path, expected) in [
            (
                Method::POST,
                "/pools/default/buckets",
                Some(EventKind::BucketCreated),
            ),
            (
                Method::POST,
                "/pools/default/buckets/b",
                Some(EventKind::BucketModified),
            ),
            (
                Method::DELETE,
                "/pools/default/buckets/b",
                Some(EventKind::BucketDeleted),
            ),
            (
                Method::POST,
                "/pools/default/buckets/b/controller/doFlush",
                Some(EventKind::BucketFlushed),
            ),
            (
                Method::POST,
                "/pools/default/buckets/b/controller/compactBucket",
                Some(EventKind::CompactionCommand),
            ),
            (
                Method::DELETE,
                "/pools/default/buckets/b/scopes/s/collections/c",
                Some(EventKind::CollectionsChanged),
            ),
            (
                Method::POST,
                "/pools/default/buckets/b/scopes/@ensureManifest/1",
                None,
            ),
            (Method::GET, "/pools/default/buckets/b", None),
            (
                Method::PUT,
                "/settings/rbac/users/local/u",
                Some(EventKind::UserSet),
            ),
            (
                Method::DELETE,
                "/settings/rbac/users/local/u",
                Some(EventKind::UserDeleted),
            ),
            (
                Method::PATCH,
                "/settings/rbac/groups/g",
                Some(EventKind::UserGroupSet),
            ),
            (
                Method::DELETE,
                "/settings/rbac/groups/g",
                Some(EventKind::UserGroupDeleted),
            ),
            (Method::GET, "/settings/rbac/users", None),
            (Method::PUT, "/kedge/roles/r", Some(EventKind::RoleSet)),
            (
                Method::DELETE,
                "/kedge/roles/r",
                Some(EventKind::RoleDeleted),
            ),
            (
                Method::POST,
                "/controller/changePassword",
                Some(EventKind::PasswordChanged),
            ),
            (
                Method::POST,
                "/settings/clientCertAuth",
                Some(EventKind::ClientCertAuthChanged),
            ),
            (
                Method::POST,
                "/node/controller/loadTrustedCAs",
                Some(EventKind::AuthoritiesLoaded),
            ),
            (
                Method::POST,
                "/node/controller/reloadCertificate",
                Some(EventKind::CertificateReloaded),
            ),
            (
                Method::PUT,
                "/settings/jwt",
                Some(EventKind::JwtSettingsChanged),
            ),
            // That of a session is recorded where it is made.
            (Method::POST, "/uilogout", None),
        ] {
            assert_eq!(of(method.clone(), path, ""), expected, "{method} {path}");
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
        assert_eq!(
            of("privateKeyPassphrase=x&bindPass=y&clientSecret=z&port=1"),
            r#"{"port":"1"}"#
        );
        assert_eq!(of(r#"{"password":"x","groups":[]}"#), r#"{"groups":[]}"#);
        assert_eq!(of(&"x".repeat(5_000)), r#"{"bytes":5000}"#);
    }
}
