//! `/kedge/cluster`: communication between the nodes of a cluster, and commands of administrators.
//!
//! Nodes have the role admin; status, failover and recovery need `cluster_admin`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use kedge_auth::Privilege;
use kedge_cluster::{CLUSTER_USER, ClusterError, ClusterMap, FailoverAttempt, RecoveryType};
use kedge_node::coordination::{AppliedChange, ChangeError, ClusterControl, FailoverConsent};
use serde_json::{Value, json};

use super::auth::Caller;
use super::form::{self, FormFields};
use super::reply::{EarlyReply, Handled, done, ok, ok_bytes};
use super::request_context::RequestContext;
use super::state::{HttpState, MAP_BYTES_MAX};

/// The longest time that a request waits for a node to apply a map.
const WAIT_MAX: Duration = Duration::from_secs(30);

impl RequestContext {
    /// Returns the cluster control for other nodes and administrators; 404 on a standalone node.
    fn node(&self) -> Result<Arc<dyn ClusterControl>, EarlyReply> {
        self.node_for(Privilege::Admin)
    }

    /// Returns the cluster control for callers with the privilege.
    pub(crate) fn node_for(
        &self,
        privilege: Privilege,
    ) -> Result<Arc<dyn ClusterControl>, EarlyReply> {
        self.caller.require(privilege, None)?;
        self.state.parts.node.clone().ok_or_else(|| {
            EarlyReply::field_error(
                StatusCode::NOT_FOUND,
                "_",
                "this server is no node of a cluster",
            )
        })
    }
}

/// Returns the reply to a refused change of the cluster.
pub(crate) fn refusal(error: &ChangeError) -> EarlyReply {
    let said = |code, field| EarlyReply::field_error(code, field, error.to_string());
    match error {
        ChangeError::Map(ClusterError::Save(why)) => {
            EarlyReply::failed("save the cluster map", why)
        }
        ChangeError::Map(ClusterError::NoNode(_)) => said(StatusCode::NOT_FOUND, "_"),
        ChangeError::Manifest(why) => super::collections::refused(why),
        ChangeError::NoBucket => EarlyReply::no_such_resource(),
        ChangeError::Exists => EarlyReply::field_error(
            StatusCode::BAD_REQUEST,
            "name",
            "Bucket with given name already exists",
        ),
        ChangeError::Refused(_) => said(StatusCode::BAD_REQUEST, "_"),
        ChangeError::NotBegun
        | ChangeError::NoMember(_)
        | ChangeError::Store(_)
        | ChangeError::OutcomeUnknown(_)
        | ChangeError::WentBackwards(_)
        | ChangeError::Down(_) => said(StatusCode::SERVICE_UNAVAILABLE, "_"),
        ChangeError::Fields(errors) => {
            let errors = errors.iter().map(|it| (it.field, it.text.as_str()));
            let errors: BTreeMap<&str, &str> = errors.collect();
            EarlyReply::json(StatusCode::BAD_REQUEST, &json!({ "errors": errors }))
        }
        _ => said(StatusCode::CONFLICT, "_"),
    }
}

pub(crate) fn document(applied: &AppliedChange) -> Value {
    let missing = applied.missing.iter();
    json!({
        "revision": applied.revision,
        "promoted": applied.promoted,
        "moved": applied.moved,
        "moving": applied.moving,
        "losses": applied.losses.to_string(),
        "missing": missing.map(|(node, why)| json!({ "node": node, "why": why })).collect::<Vec<_>>(),
        "tookMs": u64::try_from(applied.took.as_millis()).unwrap_or(u64::MAX),
    })
}

/// Returns an error with the names of the others if only some nodes made a change.
pub(crate) fn complete(applied: &AppliedChange) -> Result<(), EarlyReply> {
    if applied.missing.is_empty() {
        return Ok(());
    }
    let missing = applied.missing.iter();
    let missing: Vec<String> = missing
        .map(|(node, why)| format!("{node}: {why}"))
        .collect();
    Err(EarlyReply::field_error(
        StatusCode::SERVICE_UNAVAILABLE,
        "_",
        format!(
            "it is done, but not by all nodes yet: {}",
            missing.join("; ")
        ),
    ))
}

/// Returns how long a request waits for this node.
fn wait_of(call: &RequestContext) -> Duration {
    let wait_ms = call.query.get("wait_ms").and_then(|text| text.parse().ok());
    Duration::from_millis(wait_ms.unwrap_or(0)).min(WAIT_MAX)
}

/// `GET /kedge/cluster/node`. With `users` and `wait_ms`, the reply is sent when this node follows users of that revision or
/// newer ones, or after that time.
pub(crate) async fn about(call: RequestContext) -> Handled {
    let node = call.node()?;
    if let Some(revision) = call.query.get("users") {
        let wrong =
            || EarlyReply::field_error(StatusCode::BAD_REQUEST, "users", "must be a revision");
        let revision: u64 = revision.parse().map_err(|_| wrong())?;
        let mut followed = call.state.parts.users.followed();
        let is_newer = followed.wait_for(|it| *it >= revision);
        // The caller sees from the reply whether the wait was long enough.
        let _ = tokio::time::timeout(wait_of(&call), is_newer).await;
    }
    ok(&node.report())
}

/// `GET /kedge/cluster/map`.
pub(crate) async fn map(call: RequestContext) -> Handled {
    let map = call
        .node()?
        .map()
        .ok_or_else(EarlyReply::no_such_resource)?;
    ok_bytes(map.to_json().into())
}

/// `PUT /kedge/cluster/map`: another node has put a map into the coordination store. The reply is sent when this node has applied it,
/// or a newer one, or after `wait_ms`.
pub(crate) async fn give(call: RequestContext, body: Body) -> Handled {
    let node = call.node()?;
    let bytes = form::read_within(body, MAP_BYTES_MAX).await?;
    let bad = |error: ClusterError| {
        EarlyReply::field_error(StatusCode::BAD_REQUEST, "_", error.to_string())
    };
    let map = ClusterMap::from_json(&bytes).map_err(bad)?;
    let revision = map.revision;
    let adopting = node.clone();
    call.blocking(move |_| adopting.adopt(map))
        .await?
        .map_err(bad)?;
    let mut applied = node.applied();
    // The caller sees from the reply whether the wait was long enough.
    let _ =
        tokio::time::timeout(wait_of(&call), applied.wait_for(|it| *it >= Some(revision))).await;
    ok(&node.report())
}

/// `GET /kedge/cluster/positions`: the positions of this node's copies.
pub(crate) async fn positions(call: RequestContext) -> Handled {
    let node = call.node()?;
    let positions = call.blocking(move |_| node.positions()).await?;
    let positions = positions
        .map_err(|why| EarlyReply::field_error(StatusCode::SERVICE_UNAVAILABLE, "_", why))?;
    ok(&positions)
}

/// `POST /kedge/cluster/fence`: fences a node that is about to be failed over by an `attempt`, so that it is not followed;
/// `DELETE` lifts the fences of the attempt. Earlier releases give none, which is 0.
pub(crate) async fn fence(call: RequestContext, method: Method) -> Handled {
    let node = call.node()?;
    let attempt = call.query.get("attempt").map(|text| text.parse());
    let attempt = attempt.transpose().map_err(|_| {
        EarlyReply::field_error(StatusCode::BAD_REQUEST, "attempt", "must be a number")
    })?;
    let attempt = FailoverAttempt(attempt.unwrap_or_default());
    if method == Method::DELETE {
        node.lift_fences(attempt);
        return done();
    }
    let name = name(&call.query)?;
    let map = node.map().ok_or_else(EarlyReply::no_such_resource)?;
    let other = map.node(&name).map_err(|error| refusal(&error.into()))?;
    let fence = move || {
        node.fence(other, attempt)?;
        node.positions()
    };
    let positions = call.blocking(move |_| fence()).await?;
    let positions = positions
        .map_err(|why| EarlyReply::field_error(StatusCode::SERVICE_UNAVAILABLE, "_", why))?;
    ok(&positions)
}

/// `POST /kedge/cluster/promise`: a node that does not reach the coordination store asks the node `by` not to fail it over for
/// `ms`. `known` is the last revision of its lease that it knows.
pub(crate) async fn promise(call: RequestContext) -> Handled {
    let (node, name) = (call.node()?, name(&call.query)?);
    let wrong = |field, why| EarlyReply::field_error(StatusCode::BAD_REQUEST, field, why);
    let ms = call.query.get("ms").and_then(|text| text.parse().ok());
    let ms = ms.ok_or_else(|| wrong("ms", "must be a time in milliseconds"))?;
    let known = call.query.get("known").and_then(|text| text.parse().ok());
    let known = known.ok_or_else(|| wrong("known", "must be a revision"))?;
    if call.query.get("by") != Some(&node.report().node) {
        return Err(wrong("by", "must be the name of this node"));
    }
    // Without a wait: a caller that gets no promise in time stops serving.
    let promised = node.promise(&name, Duration::from_millis(ms), known);
    promised.map_err(|error| refusal(&error))?;
    done()
}

/// `POST /kedge/cluster/release`: a process that starts as `node` asks for the end of the lease of the process before, which may
/// run on another machine.
pub(crate) async fn release(call: RequestContext) -> Handled {
    let (node, name) = (call.node()?, name(&call.query)?);
    let released = call.blocking(move |_| node.release_lease(&name)).await?;
    released.map_err(|error| refusal(&error))?;
    done()
}

/// `GET /kedge/cluster/figures`: this node's part of the status.
pub(crate) async fn figures(call: RequestContext) -> Handled {
    let node = call.node()?;
    ok(&call.blocking(move |_| node.figures()).await?)
}

/// `GET /kedge/cluster/status`.
pub(crate) async fn status(call: RequestContext) -> Handled {
    let node = call.node_for(Privilege::Settings)?;
    let status = call.blocking(move |_| node.status()).await?;
    ok(&status.ok_or_else(|| refusal(&ChangeError::NotBegun))?)
}

fn name(form: &FormFields) -> Result<String, EarlyReply> {
    let missing =
        || EarlyReply::field_error(StatusCode::BAD_REQUEST, "node", "must be a node's name");
    form.get("node").map(str::to_owned).ok_or_else(missing)
}

/// `POST /kedge/cluster/failover` with `node`, and `force=true` to accept losses.
pub(crate) async fn fail_over(call: RequestContext, form: FormFields) -> Handled {
    let (node, name) = (call.node_for(Privilege::Settings)?, name(&form)?);
    let force = matches!(form.get("force"), Some("true" | "1"));
    let accepts = FailoverConsent {
        alive: force,
        losses: force,
    };
    let applied = call
        .blocking(move |_| node.fail_over(&name, accepts))
        .await?;
    ok(&document(&applied.map_err(|error| refusal(&error))?))
}

/// `POST /kedge/cluster/recover` with `node`, and `full=true` to discard its data.
pub(crate) async fn recover(call: RequestContext, form: FormFields) -> Handled {
    let (node, name) = (call.node_for(Privilege::Settings)?, name(&form)?);
    let recovery = match form.get("full") {
        Some("true" | "1") => RecoveryType::Full,
        _ => RecoveryType::Delta,
    };
    let applied = call
        .blocking(move |_| node.recover(&name, recovery))
        .await?;
    ok(&document(&applied.map_err(|error| refusal(&error))?))
}

/// `POST /kedge/cluster/add` with `node`.
pub(crate) async fn add(call: RequestContext, form: FormFields) -> Handled {
    let (node, name) = (call.node_for(Privilege::Settings)?, name(&form)?);
    let applied = call.blocking(move |_| node.add_node(&name)).await?;
    ok(&document(&applied.map_err(|error| refusal(&error))?))
}

/// `POST /kedge/cluster/remove` with `node`.
pub(crate) async fn remove(call: RequestContext, form: FormFields) -> Handled {
    let (node, name) = (call.node_for(Privilege::Settings)?, name(&form)?);
    let applied = call.blocking(move |_| node.remove_node(&name)).await?;
    ok(&document(&applied.map_err(|error| refusal(&error))?))
}

/// `POST /kedge/cluster/level` with `hold`, true or false: holds the compatibility level, or no longer.
pub(crate) async fn level(call: RequestContext, form: FormFields) -> Handled {
    let node = call.node_for(Privilege::Settings)?;
    let is_held = match form.get("hold") {
        Some("true" | "1") => true,
        Some("false" | "0") => false,
        _ => {
            let why = "must be true or false";
            return Err(EarlyReply::field_error(
                StatusCode::BAD_REQUEST,
                "hold",
                why,
            ));
        }
    };
    let applied = call.blocking(move |_| node.hold_level(is_held)).await?;
    ok(&document(&applied.map_err(|error| refusal(&error))?))
}

/// `POST /kedge/cluster/move` with `bucket`, `vbucket` and `node`.
pub(crate) async fn move_vbucket(call: RequestContext, form: FormFields) -> Handled {
    let (node, name) = (call.node_for(Privilege::Settings)?, name(&form)?);
    let wrong = |field, why| EarlyReply::field_error(StatusCode::BAD_REQUEST, field, why);
    let bucket = form.get("bucket").map(str::to_owned);
    let bucket = bucket.ok_or_else(|| wrong("bucket", "must be a bucket's name"))?;
    let vb = form.get("vbucket").and_then(|text| text.parse().ok());
    let vb: u16 = vb.ok_or_else(|| wrong("vbucket", "must be a vBucket's number"))?;
    let applied = call.blocking(move |_| node.move_vbucket(&bucket, vb, &name));
    ok(&document(&applied.await?.map_err(|error| refusal(&error))?))
}

/// `POST /kedge/cluster/balance`.
pub(crate) async fn balance(call: RequestContext) -> Handled {
    let node = call.node_for(Privilege::Settings)?;
    let applied = call.blocking(move |_| node.balance()).await?;
    ok(&document(&applied.map_err(|error| refusal(&error))?))
}

/// Executes a request on all nodes of the cluster if each of them has to do it: a flush.
pub(crate) async fn everywhere(
    State(state): State<Arc<HttpState>>,
    request: Request,
    next: Next,
) -> Response {
    let is_node = |caller: &Caller| caller.id == CLUSTER_USER;
    let from_node = request.extensions().get::<Caller>().is_some_and(is_node);
    let path = request.uri().path().to_owned();
    let Some(node) = state.parts.node.clone() else {
        return next.run(request).await;
    };
    if from_node || *request.method() != Method::POST || !path.ends_with("/controller/doFlush") {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    let bytes: Bytes = match form::read(body).await {
        Ok(bytes) => bytes,
        Err(reply) => return reply.into_response(),
    };
    let asked = node.clone();
    let all = blocking(&state, move || match asked.map() {
        Some(map) => asked.require_all(&map),
        None => Err(ChangeError::NotBegun),
    });
    if let Err(reply) = all.await {
        return reply.into_response();
    }
    let method = parts.method.to_string();
    let content_type = parts.headers.get(header::CONTENT_TYPE);
    let content_type = content_type
        .and_then(|it| it.to_str().ok())
        .unwrap_or("")
        .to_owned();
    let response = next
        .run(Request::from_parts(parts, Body::from(bytes.clone())))
        .await;
    if !response.status().is_success() {
        return response;
    }
    match blocking(&state, move || {
        node.repeat(&method, &path, &content_type, &bytes)
    })
    .await
    {
        Ok(()) => response,
        Err(reply) => reply.into_response(),
    }
}

/// Runs work that waits for other nodes on a thread where it delays nobody.
async fn blocking(
    state: &HttpState,
    work: impl FnOnce() -> Result<(), ChangeError> + Send + 'static,
) -> Result<(), EarlyReply> {
    let turn = state.people.clone().acquire_owned().await.ok();
    let done = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        work()
    });
    let done = done.await;
    done.map_err(|error| EarlyReply::failed("finish the request", &error))?
        .map_err(|error| refusal(&error))
}
