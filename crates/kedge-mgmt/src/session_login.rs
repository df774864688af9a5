//! `POST /uilogin` and `POST /uilogout`: a session for a browser, whose cookie stands for the password.
//!
//! Other sites can make a browser send requests here, and it adds the cookie of a careless server. This one's is `SameSite=Strict`; besides,
//! [`super::hosts`] refuses what the browser says another site has caused, and a change needs a header that only a script of this server's own
//! pages can send. Scripts cannot read the cookie, and over TLS no other host can set it (RFC 6265bis, `__Host-`).

use std::sync::Arc;
use std::time::Instant;

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use axum::response::{IntoResponse, Response};
use kedge_auth::random_nonce;
use kedge_node::audit::{AuditEvent, EventKind};
use zeroize::Zeroizing;

use super::auth::{self, Refusals};
use super::form::{self, FormFields};
use super::reply::{EarlyReply, Handled, done};
use super::request_context::{PeerConnection, RequestContext};
use super::sessions::{LoginProof, Session, SessionOwner, Token};
use super::state::HttpState;

/// The path of the login, which needs none.
pub(crate) const LOGIN_PATH: &str = "/uilogin";
/// The header of the console's own requests, with the value `yes`.
pub(crate) const CONSOLE_HEADER: HeaderName = HeaderName::from_static("ns-server-ui");
/// The largest body of a login, in bytes: the longest name and password, with each byte escaped.
const LOGIN_BYTES_MAX: usize = 8 << 10;

/// Returns whether a request comes from the console: browsers add the header for no other site.
pub(crate) fn is_of_console(headers: &HeaderMap) -> bool {
    headers.get(CONSOLE_HEADER).is_some_and(|it| it == "yes")
}

/// Returns whether a request is a login by a form.
pub(crate) fn is_login(request: &Request) -> bool {
    *request.method() == Method::POST && request.uri().path() == LOGIN_PATH
}

/// Returns the name of the cookie. Cookies of all ports of a host are sent to each of them.
fn cookie_name(connection: &PeerConnection) -> String {
    let prefix = if connection.is_tls { "__Host-" } else { "" };
    format!("{prefix}ui-auth-{}", connection.local.port())
}

fn set_cookie(connection: &PeerConnection, token: &str, rest: &str) -> HeaderValue {
    let name = cookie_name(connection);
    let secure = if connection.is_tls { "; Secure" } else { "" };
    let text = Zeroizing::new(format!(
        "{name}={token}; Path=/; HttpOnly; SameSite=Strict{secure}{rest}"
    ));
    let mut value = HeaderValue::from_str(&text).expect("base64 and names are a header");
    value.set_sensitive(true);
    value
}

/// Returns the token of a request. A request with several has none: somebody else may have set one of them.
fn token(connection: &PeerConnection, headers: &HeaderMap) -> Option<Token> {
    let name = cookie_name(connection);
    let lines = headers.get_all(header::COOKIE).iter();
    let pairs = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(';'));
    let mut tokens = pairs.filter_map(|pair| {
        let (key, value) = pair.trim().split_once('=')?;
        (key == name).then_some(value)
    });
    let token = tokens.next()?;
    tokens
        .next()
        .is_none()
        .then(|| Token::new(token.to_owned()))
}

/// Returns the session of a request, if it has one.
pub(crate) fn session(
    state: &HttpState,
    connection: &PeerConnection,
    headers: &HeaderMap,
) -> Option<Session> {
    let token = token(connection, headers)?;
    let users = state.parts.users.read();
    state.sessions.find(&token, Instant::now(), &users).ok()
}

/// `POST /uilogin` with the fields `user` and `password`: begins a session, in place of the one that the browser had.
pub(crate) async fn log_in(
    state: &Arc<HttpState>,
    connection: &PeerConnection,
    request: Request,
) -> Response {
    match try_log_in(state, connection, request).await {
        Ok(reply) | Err(reply) => reply.into_response(),
    }
}

async fn try_log_in(
    state: &Arc<HttpState>,
    connection: &PeerConnection,
    request: Request,
) -> Handled {
    let (head, body) = request.into_parts();
    let body = form::read_within(body, LOGIN_BYTES_MAX).await?;
    let form = FormFields::parse(&body);
    let user = form.raw("user").unwrap_or_default().to_owned();
    let password = form.raw("password").unwrap_or_default();
    let password = Zeroizing::new(password.as_bytes().to_vec());
    // Before the password is checked: one that is set meanwhile ends the session.
    let users = state.parts.users.read();
    let mark = users.get(&user).map(|user| user.password_mark().to_vec());
    let directory = users.ldap().cloned();
    drop(users);
    let refusals = Refusals::of(state, connection, &Method::POST, LOGIN_PATH);
    let checked = auth::check(&refusals, user, password).await?;
    let caller = checked.ok_or_else(EarlyReply::without_session)?;
    auth::stand(connection, &caller)?;
    let proof = match (&caller.grants, mark, directory) {
        (None, Some(mark), _) => LoginProof::Password(mark),
        (Some(grants), _, Some(settings)) => LoginProof::Directory(settings, grants.clone()),
        // The user was made, or the directory set, while the password was checked.
        _ => return Err(EarlyReply::without_session()),
    };
    if let Some(before) = token(connection, &head.headers) {
        state.sessions.end(&before);
    }
    let random = || random_nonce().map_err(|why| EarlyReply::failed("begin a session", &why));
    let (token, id) = (Token::new(random()?), random()?);
    let cookie = set_cookie(connection, &token, "");
    let owner = SessionOwner {
        user: caller.id.clone(),
        proof,
    };
    state.sessions.begin(token, &id, owner, Instant::now());
    state.parts.users.audit().put(&AuditEvent {
        peer: Some(connection.peer),
        local: Some(connection.local),
        session: &id,
        ..AuditEvent::new(EventKind::ManagementLoggedIn, &caller.id)
    });
    Ok(done()?.with(header::SET_COOKIE, cookie))
}

/// `POST /uilogout`: ends the session of the request, and removes the cookie.
pub(crate) async fn log_out(call: RequestContext, headers: HeaderMap) -> Handled {
    let connection = &call.connection;
    if let Some(token) = token(connection, &headers) {
        call.state.sessions.end(&token);
    }
    if let Some(session) = &call.caller.session {
        call.state.parts.users.audit().put(&AuditEvent {
            peer: Some(connection.peer),
            local: Some(connection.local),
            session,
            ..AuditEvent::new(EventKind::ManagementLoggedOut, &call.caller.id)
        });
    }
    let cookie = set_cookie(connection, "", "; Max-Age=0");
    Ok(done()?.with(header::SET_COOKIE, cookie))
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::request_context::ShownCertificate;
    use crate::slots::ConnectionSlots;

    fn connection(is_tls: bool) -> PeerConnection {
        let slots: Arc<ConnectionSlots> = Arc::default();
        let address: IpAddr = [127, 0, 0, 1].into();
        PeerConnection {
            local: (address, 18_091).into(),
            slot: Arc::new(slots.admit(address)),
            certificate: ShownCertificate::default(),
            peer: (address, 9).into(),
            is_tls,
        }
    }

    #[test]
    fn cookie_over_tls_is_never_sent_without_it() {
        let text = |is_tls| {
            let value = set_cookie(&connection(is_tls), "token", "");
            assert!(value.is_sensitive(), "no debug text has it");
            value.to_str().unwrap().to_owned()
        };
        assert_eq!(
            text(false),
            "ui-auth-18091=token; Path=/; HttpOnly; SameSite=Strict"
        );
        assert_eq!(
            text(true),
            "__Host-ui-auth-18091=token; Path=/; HttpOnly; SameSite=Strict; Secure"
        );
        // A cookie that was set without TLS, perhaps by somebody on the way, is not taken over TLS.
        let mut headers = HeaderMap::new();
        let plain = HeaderValue::from_static("ui-auth-18091=token");
        headers.insert(header::COOKIE, plain);
        let found = |is_tls| token(&connection(is_tls), &headers).is_some();
        assert!(found(false) && !found(true));
    }

    #[test]
    fn cookies_of_other_ports_and_several_of_one_name_are_no_token() {
        let mut headers = HeaderMap::new();
        for (line, expected) in [
            ("a=b", None),
            ("ui-auth-8091=other; ui-auth-18091=own=; x", Some("own=")),
            ("ui-auth-18091", None),
            ("ui-auth-18091=a; ui-auth-18091=a", None),
        ] {
            headers.insert(header::COOKIE, HeaderValue::from_static(line));
            let found = token(&connection(false), &headers);
            assert_eq!(found.as_ref().map(|it| it.as_str()), expected, "{line}");
        }
    }
}
