//! Authentication of callers: Basic authentication (RFC 7617), tokens (RFC 6750), sessions of the console, client certificates, proofs of nodes; and privileges.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kedge_auth::{ExternalGrants, Privilege, ProofError, ProvenRequest, Roles, external_name};
use kedge_cluster::CLUSTER_USER;
use kedge_node::audit::{AuditEvent, EventKind};
use kedge_node::external::{ExternalLogin, ExternalRefusal, PasswordAttempt, TokenAttempt};
use kedge_node::password_checks::CheckTurn;
use kedge_tls::ServerTls;
use tokio::sync::oneshot;
use zeroize::Zeroizing;

use super::form;
use super::proofs;
use super::reply::EarlyReply;
use super::request_context::PeerConnection;
use super::session_login;
use super::sessions::Session;
use super::slots::ConnectionClass;
use super::state::{HttpState, MAP_BYTES_MAX};

/// An authenticated user.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) roles: Roles,
    /// The rights that an authority has shown of an external user.
    pub(crate) grants: Option<Arc<ExternalGrants>>,
    /// The name of the session in the audit log, for a request of the console.
    pub(crate) session: Option<Arc<str>>,
}

impl Caller {
    /// Returns the class of the caller's connection.
    fn standing(&self) -> ConnectionClass {
        if self.id == CLUSTER_USER {
            ConnectionClass::Node
        } else if self.roles.allows(Privilege::Settings, None) {
            ConnectionClass::Administrator
        } else {
            ConnectionClass::User
        }
    }

    /// Refuses the call unless the user has the privilege: in the bucket, or on the node as such.
    pub(crate) fn require(
        &self,
        privilege: Privilege,
        bucket: Option<&str>,
    ) -> Result<(), EarlyReply> {
        if self.roles.allows(privilege, bucket) {
            return Ok(());
        }
        let what = privilege.name();
        Err(EarlyReply::forbidden(&match bucket {
            Some(bucket) => format!("cluster.bucket[{bucket}].{what}"),
            None => format!("cluster.{what}"),
        }))
    }

    /// Refuses the call unless the user has the privilege in the scope or, without one, in the whole bucket.
    pub(crate) fn require_in(
        &self,
        privilege: Privilege,
        bucket: &str,
        scope: Option<&str>,
    ) -> Result<(), EarlyReply> {
        let Some(scope) = scope else {
            return self.require(privilege, Some(bucket));
        };
        if self.roles.allows_in(privilege, bucket, scope, None) {
            return Ok(());
        }
        let what = privilege.name();
        Err(EarlyReply::forbidden(&format!(
            "cluster.scope[{bucket}:{scope}].{what}"
        )))
    }
}

/// A password, which is overwritten when it is dropped.
pub(crate) type Password = Zeroizing<Vec<u8>>;

/// Returns user and password of the Authorization header, if it has that form.
fn credentials(headers: &HeaderMap) -> Option<(String, Password)> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, encoded) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let both = Zeroizing::new(STANDARD.decode(encoded.trim()).ok()?);
    let colon = both.iter().position(|byte| *byte == b':')?;
    let user = String::from_utf8(both[..colon].to_vec()).ok()?;
    Some((user, Zeroizing::new(both[colon + 1..].to_vec())))
}

/// Returns the token of the Authorization header, if it has one (RFC 6750 section 2.1).
fn bearer(headers: &HeaderMap) -> Option<Zeroizing<String>> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let is_bearer = scheme.eq_ignore_ascii_case("bearer");
    is_bearer.then(|| Zeroizing::new(token.trim().to_owned()))
}

/// The reason of a refusal in the audit log.
const TOO_SOON: &str = "too soon after wrong passwords";
const NO_CERTIFICATE: &str = "no certificate of a node";
/// The same, of a change that another site may have caused.
const NOT_OF_CONSOLE: &str = "a change in a session without the header of the console";

/// Paths that need no password: they show only whether the server listens, and whether it is ready.
pub(crate) const OPEN_PATHS: [&str; 2] = ["/", "/kedge/ready"];

/// The place of refusals of a request in the audit log.
pub(crate) struct Refusals {
    state: Arc<HttpState>,
    connection: PeerConnection,
    request: String,
}

impl Refusals {
    /// Creates the place for a request.
    pub(crate) fn of(
        state: &Arc<HttpState>,
        connection: &PeerConnection,
        method: &Method,
        path: &str,
    ) -> Self {
        Self {
            state: state.clone(),
            connection: connection.clone(),
            request: format!("{method} {path}"),
        }
    }

    fn put(&self, what: EventKind, user: &str, reason: &str) {
        self.state.parts.users.audit().put(&AuditEvent {
            peer: Some(self.connection.peer),
            local: Some(self.connection.local),
            request: &self.request,
            reason,
            ..AuditEvent::new(what, user)
        });
    }
}

/// The login that a request presents.
enum Presented {
    Password(String, Password),
    Token(Zeroizing<String>),
    Session(Session),
    Certificate(String),
}

/// Returns the login of a request, if it has any.
fn presented(
    state: &HttpState,
    connection: &PeerConnection,
    headers: &HeaderMap,
) -> Option<Presented> {
    if let Some(token) = bearer(headers) {
        return Some(Presented::Token(token));
    }
    // A password is stronger than a session or a certificate: a client can name another user for a request.
    if headers.contains_key(header::AUTHORIZATION) {
        return credentials(headers).map(|(id, password)| Presented::Password(id, password));
    }
    if let Some(session) = session_login::session(state, connection, headers) {
        return Some(Presented::Session(session));
    }
    let user = connection.certificate.user.as_ref()?;
    Some(Presented::Certificate(user.as_ref().to_owned()))
}

/// Passes a request on with its [`Caller`], or replies 401.
pub(crate) async fn authenticate(
    State(state): State<Arc<HttpState>>,
    mut request: Request,
    next: Next,
) -> Response {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    if is_read && OPEN_PATHS.contains(&request.uri().path()) {
        return next.run(request).await;
    }
    let Some(connection) = request.extensions().get::<PeerConnection>().cloned() else {
        return EarlyReply::unauthorized().into_response();
    };
    if let Some(proof) = proofs::credentials(request.headers()) {
        return authenticate_node(state, connection, &proof, request, next).await;
    }
    if session_login::is_login(&request) {
        return session_login::log_in(&state, &connection, request).await;
    }
    let is_of_console = session_login::is_of_console(request.headers());
    let refusals = Refusals::of(&state, &connection, request.method(), request.uri().path());
    let presented = presented(&state, &connection, request.headers());
    let caller = match presented {
        Some(Presented::Session(session)) if !is_read && !is_of_console => {
            let user = session.owner.user.as_str();
            refusals.put(EventKind::ManagementDenied, user, NOT_OF_CONSOLE);
            return EarlyReply::not_of_console().into_response();
        }
        Some(presented) => match prove(&refusals, presented).await {
            Ok(caller) => caller,
            Err(reply) => return reply.into_response(),
        },
        None => None,
    };
    let Some(caller) = caller else {
        // A challenge would make the browser ask for a password, in place of the console.
        let reply = match is_of_console {
            true => EarlyReply::without_session(),
            false => EarlyReply::unauthorized(),
        };
        return reply.into_response();
    };
    if let Err(reply) = stand(&connection, &caller) {
        return reply.into_response();
    }
    let id = caller.id.clone();
    request.extensions_mut().insert(caller);
    let response = next.run(request).await;
    if response.status() == StatusCode::FORBIDDEN {
        refusals.put(EventKind::ManagementDenied, &id, "");
    }
    response
}

/// Returns the user of a login; `None` if it proves none.
async fn prove(refusals: &Refusals, presented: Presented) -> Result<Option<Caller>, EarlyReply> {
    let state = &refusals.state;
    Ok(match presented {
        Presented::Password(id, password) => check(refusals, id, password).await?,
        Presented::Token(token) => check_token(refusals, token).await?,
        Presented::Session(session) => {
            let user = ProvenUser {
                id: session.owner.user.clone(),
                grants: session.owner.grants().cloned(),
            };
            caller(state, user).map(|caller| Caller {
                session: Some(session.id),
                ..caller
            })
        }
        Presented::Certificate(user) => {
            let caller = caller(state, ProvenUser::local(user.clone()));
            let is_node = user == CLUSTER_USER && !may_be_node(state, &refusals.connection);
            let caller = caller.filter(|_| !is_node);
            if caller.is_none() {
                refusals.put(EventKind::ManagementLoginFailed, &user, "");
            }
            caller
        }
    })
}

/// Gives a connection the class of its user.
pub(crate) fn stand(connection: &PeerConnection, caller: &Caller) -> Result<(), EarlyReply> {
    match connection.slot.stand(caller.standing()) {
        true => Ok(()),
        false => Err(EarlyReply::busy(
            "All connections of users are taken.",
            true,
        )),
    }
}

/// Has the authority check a token.
async fn check_token(
    refusals: &Refusals,
    token: Zeroizing<String>,
) -> Result<Option<Caller>, EarlyReply> {
    let Refusals {
        state, connection, ..
    } = refusals;
    let Some(authority) = state.checks.external() else {
        return Ok(None);
    };
    let (tell, told) = oneshot::channel();
    let address = connection.slot.from();
    let attempt = TokenAttempt { address, token };
    authority.check_token(attempt, Box::new(|outcome| drop(tell.send(outcome))));
    match told.await.unwrap_or(Err(ExternalRefusal::Unavailable)) {
        Ok(login) => Ok(caller(state, ProvenUser::external(login))),
        Err(refusal @ (ExternalRefusal::BadToken | ExternalRefusal::NoRoles)) => {
            refusals.put(EventKind::ManagementLoginFailed, "", &refusal.to_string());
            Ok(None)
        }
        Err(refusal) => Err(EarlyReply::busy(&format!("{refusal}."), false)),
    }
}

/// Returns the user whose password this is; `None`, which is recorded, if it is wrong.
pub(crate) async fn check(
    refusals: &Refusals,
    id: String,
    password: Password,
) -> Result<Option<Caller>, EarlyReply> {
    let Refusals {
        state, connection, ..
    } = refusals;
    let from = connection.slot.from();
    let failed = |reason: &str| refusals.put(EventKind::ManagementLoginFailed, &id, reason);
    if id == CLUSTER_USER && !may_be_node(state, connection) {
        failed(NO_CERTIFICATE);
        return Ok(None);
    }
    let remembered = {
        let users = state.parts.users.read();
        state.checks.remembered(&users, &id, &password)
    };
    let proven = if let Some(login) = remembered {
        Some(ProvenUser::external(login))
    } else if let Some(wait) = too_soon(state, from, &id, &password) {
        failed(TOO_SOON);
        return Err(EarlyReply::too_soon(wait));
    } else {
        verify(state, from, id.clone(), password).await?
    };
    let caller = proven.and_then(|proven| caller(state, proven));
    if caller.is_none() {
        failed("");
    }
    Ok(caller)
}

/// Returns the time for which the caller has to wait, if the request comes too soon after wrong passwords. A password that was
/// verified before is never too soon.
fn too_soon(state: &HttpState, from: IpAddr, id: &str, password: &[u8]) -> Option<Duration> {
    if state.parts.users.read().is_verified(id, password) {
        return None;
    }
    state.checks.guard().refusal(from, id)
}

/// A user that has proven to be itself.
struct ProvenUser {
    id: String,
    /// The rights that an authority has shown of an external user.
    grants: Option<Arc<ExternalGrants>>,
}

impl ProvenUser {
    fn local(id: String) -> Self {
        Self { id, grants: None }
    }

    fn external(login: ExternalLogin) -> Self {
        Self {
            id: login.id,
            grants: Some(login.grants),
        }
    }
}

/// Returns the user if the password is right. One that was not verified before costs milliseconds, and waits in a queue.
async fn verify(
    state: &HttpState,
    from: IpAddr,
    id: String,
    password: Password,
) -> Result<Option<ProvenUser>, EarlyReply> {
    let users = state.parts.users.read();
    if state.checks.authority_of(&users, &id).is_some() {
        drop(users);
        return verify_elsewhere(state, from, id, password).await;
    }
    let is_right = verify_here(state, from, &id, password).await?;
    Ok(is_right.then(|| ProvenUser::local(id)))
}

/// Has the authority of an external user check its password.
async fn verify_elsewhere(
    state: &HttpState,
    address: IpAddr,
    user: String,
    password: Password,
) -> Result<Option<ProvenUser>, EarlyReply> {
    let Some(authority) = state.checks.external() else {
        return Ok(None);
    };
    let (tell, told) = oneshot::channel();
    let attempt = PasswordAttempt {
        address,
        user,
        password,
    };
    // The caller may be gone by then.
    authority.check(attempt, Box::new(|outcome| drop(tell.send(outcome))));
    match told.await.unwrap_or(Err(ExternalRefusal::Unavailable)) {
        Ok(login) => Ok(Some(ProvenUser::external(login))),
        Err(ExternalRefusal::BadCredentials | ExternalRefusal::NoRoles) => Ok(None),
        Err(refusal) => Err(EarlyReply::busy(&format!("{refusal}."), false)),
    }
}

/// Returns whether a local user's password is right.
async fn verify_here(
    state: &HttpState,
    from: IpAddr,
    id: &str,
    password: Password,
) -> Result<bool, EarlyReply> {
    let users = state.parts.users.clone();
    if users.read().is_verified(id, &password) {
        return Ok(true);
    }
    let (tell, told) = oneshot::channel();
    let name = id.to_owned();
    let guard = state.checks.guard().clone();
    let check = move |turn: CheckTurn| {
        // A caller that is gone costs no processor time.
        let is_due = turn == CheckTurn::Come && !tell.is_closed();
        // Wrong ones may have been verified while this one waited.
        let is_due = is_due && guard.refusal(from, &name).is_none();
        let is_right = is_due.then(|| users.verify_password(&name, &password));
        if let Some(is_right) = is_right {
            guard.note(from, &name, is_right);
        }
        // The receiver may be gone by now.
        let _ = tell.send(is_right);
    };
    state.checks.submit(from, id, Box::new(check));
    match told.await {
        Ok(Some(is_right)) => Ok(is_right),
        Ok(None) | Err(_) => Err(EarlyReply::busy(
            "Too many passwords wait to be verified.",
            false,
        )),
    }
}

/// Returns the authenticated user, unless it was removed in the meantime.
fn caller(state: &HttpState, user: ProvenUser) -> Option<Caller> {
    let users = state.parts.users.read();
    let name = match external_name(&user.id) {
        Some(name) => users.external_user(name).map(|it| it.name().to_owned()),
        None => Some(users.get(&user.id)?.name().to_owned()),
    };
    Some(Caller {
        name: name.unwrap_or_default(),
        roles: users.roles_of_login(&user.id, user.grants.as_deref()),
        session: None,
        grants: user.grants,
        id: user.id,
    })
}

/// Returns whether a connection may be one of a node, as far as its certificate goes.
fn may_be_node(state: &HttpState, connection: &PeerConnection) -> bool {
    let tls = state.parts.tls.as_ref();
    let is_required = tls.is_some_and(ServerTls::requires_node_certificates);
    !is_required || connection.certificate.is_of_node
}

/// Passes a request of a node with a proof on, or replies 401, with a nonce if that is what was missing.
async fn authenticate_node(
    state: Arc<HttpState>,
    connection: PeerConnection,
    credentials: &str,
    request: Request,
    next: Next,
) -> Response {
    let Some(checks) = &state.parts.proofs else {
        return EarlyReply::unauthorized().into_response();
    };
    let refusals = Refusals::of(&state, &connection, request.method(), request.uri().path());
    let content_type = request.headers().get(header::CONTENT_TYPE);
    let path = request.uri().path_and_query();
    let proven = ProvenRequest {
        method: request.method().as_str(),
        path: path.map_or("/", |path| path.as_str()),
        content_type: content_type.map_or("", |it| it.to_str().unwrap_or_default()),
    };
    let refused = |reason: &str| {
        refusals.put(EventKind::ManagementLoginFailed, CLUSTER_USER, reason);
        EarlyReply::unauthorized().into_response()
    };
    let digest = match checks.check(credentials, &proven) {
        Ok(digest) => digest,
        Err(ProofError::Nonce) => {
            return checks.with_nonce(EarlyReply::unauthorized().into_response());
        }
        Err(error) => return refused(&error.to_string()),
    };
    if !may_be_node(&state, &connection) {
        return refused(NO_CERTIFICATE);
    }
    let Some(caller) = caller(&state, ProvenUser::local(CLUSTER_USER.to_owned())) else {
        return refused("");
    };
    if !connection.slot.stand(caller.standing()) {
        return EarlyReply::busy("All connections of nodes are taken.", true).into_response();
    }
    let (parts, body) = request.into_parts();
    let body = match form::read_within(body, MAP_BYTES_MAX).await {
        Ok(body) => body,
        Err(reply) => return reply.into_response(),
    };
    if !digest.fits(&body) {
        return refused("another body than the proven one");
    }
    let mut request = Request::from_parts(parts, Body::from(body));
    request.extensions_mut().insert(caller);
    checks.with_nonce(next.run(request).await)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn basic_credentials() {
        let both = |user: &str, password: &str| {
            Some((user.to_owned(), Password::new(password.as_bytes().to_vec())))
        };
        // (header, its content); the first is the example of RFC 7617 section 2.
        for (value, expected) in [
            (
                "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==",
                both("Aladdin", "open sesame"),
            ),
            ("basic YTpiOmM=", both("a", "b:c")),
            ("Basic Og==", both("", "")),
            ("Basic YQ==", None),
            ("Basic ****", None),
            ("Basic", None),
            ("Bearer YTpi", None),
            ("", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
            assert_eq!(credentials(&headers), expected, "{value:?}");
        }
        assert_eq!(credentials(&HeaderMap::new()), None);
    }
}
