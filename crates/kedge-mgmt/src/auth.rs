//! Who calls: Basic authentication (RFC 7617) and privileges.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kedge_auth::{Privilege, Roles};
use kedge_cluster::CLUSTER_USER;
use kedge_node::audit::{Event, EventKind};
use kedge_node::password_checks::CheckTurn;
use tokio::sync::oneshot;

use super::call::Arrival;
use super::places::Standing;
use super::reply::Reply;
use super::state::HttpState;

/// A user whose password was right.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) roles: Roles,
}

impl Caller {
    /// Whose connection it is that it comes on.
    fn standing(&self) -> Standing {
        if self.id == CLUSTER_USER {
            Standing::Node
        } else if self.roles.allows(Privilege::Settings, None) {
            Standing::Administrator
        } else {
            Standing::User
        }
    }

    /// Refuses unless the user may do that: in the bucket, or to the node as such.
    pub(crate) fn require(&self, privilege: Privilege, bucket: Option<&str>) -> Result<(), Reply> {
        if self.roles.allows(privilege, bucket) {
            return Ok(());
        }
        let what = privilege.name();
        Err(Reply::forbidden(&match bucket {
            Some(bucket) => format!("cluster.bucket[{bucket}].{what}"),
            None => format!("cluster.{what}"),
        }))
    }

    /// Refuses unless the user may do that in the scope or, without one, in the whole bucket.
    pub(crate) fn require_in(
        &self,
        privilege: Privilege,
        bucket: &str,
        scope: Option<&str>,
    ) -> Result<(), Reply> {
        let Some(scope) = scope else {
            return self.require(privilege, Some(bucket));
        };
        if self.roles.allows_in(privilege, bucket, scope, None) {
            return Ok(());
        }
        let what = privilege.name();
        Err(Reply::forbidden(&format!(
            "cluster.scope[{bucket}:{scope}].{what}"
        )))
    }
}

/// User and password of the Authorization header, when it has that form.
fn credentials(headers: &HeaderMap) -> Option<(String, Vec<u8>)> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, encoded) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let mut user = STANDARD.decode(encoded.trim()).ok()?;
    let colon = user.iter().position(|byte| *byte == b':')?;
    let password = user.split_off(colon + 1);
    user.pop();
    Some((String::from_utf8(user).ok()?, password))
}

/// Lets a request through with its [`Caller`], or answers 401. `GET /` is open: it says only that someone listens.
pub(crate) async fn authenticate(
    State(state): State<Arc<HttpState>>,
    mut request: Request,
    next: Next,
) -> Response {
    let open =
        request.uri().path() == "/" && matches!(*request.method(), Method::GET | Method::HEAD);
    if open {
        return next.run(request).await;
    }
    let Some((id, password)) = credentials(request.headers()) else {
        return Reply::unauthorized().into_response();
    };
    let Some(place) = request
        .extensions()
        .get::<Arrival>()
        .map(|it| it.place.clone())
    else {
        return Reply::unauthorized().into_response();
    };
    let (parts, wanted) = (state.clone(), request.uri().path().to_owned());
    let wanted = format!("{} {wanted}", request.method());
    let named = id.clone();
    let refused = move |what| {
        parts.parts.users.audit().put(&Event {
            request: &wanted,
            ..Event::new(what, &named)
        });
    };
    let caller = match verify(&state, place.from(), &id, password).await {
        Ok(true) => caller(&state, id),
        Ok(false) => None,
        Err(reply) => return reply.into_response(),
    };
    let Some(caller) = caller else {
        refused(EventKind::ManagementLoginFailed);
        return Reply::unauthorized().into_response();
    };
    if !place.stand(caller.standing()) {
        return Reply::busy("All connections of users are taken.", true).into_response();
    }
    request.extensions_mut().insert(caller);
    let response = next.run(request).await;
    if response.status() == StatusCode::FORBIDDEN {
        refused(EventKind::ManagementDenied);
    }
    response
}

/// Returns whether a password is right. One that was not seen before costs milliseconds, and waits for its turn.
async fn verify(
    state: &HttpState,
    from: IpAddr,
    id: &str,
    password: Vec<u8>,
) -> Result<bool, Reply> {
    let users = state.parts.users.read();
    if users.is_verified(id, &password) {
        return Ok(true);
    }
    let (tell, told) = oneshot::channel();
    let name = id.to_owned();
    let check = move |turn: CheckTurn| {
        // Who has gone meanwhile costs nobody's time.
        let is_due = turn == CheckTurn::Come && !tell.is_closed();
        // The other end may have gone by now.
        let _ = tell.send(is_due.then(|| users.verify_password(&name, &password)));
    };
    state.checks.submit(from, id, Box::new(check));
    match told.await {
        Ok(Some(is_right)) => Ok(is_right),
        Ok(None) | Err(_) => Err(Reply::busy(
            "Too many passwords wait to be verified.",
            false,
        )),
    }
}

/// A user whose password was right, unless it has gone meanwhile.
fn caller(state: &HttpState, id: String) -> Option<Caller> {
    let users = state.parts.users.read();
    let user = users.get(&id)?;
    Some(Caller {
        name: user.name().to_owned(),
        roles: users.roles_of(&id),
        id,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn basic_credentials() {
        let both =
            |user: &str, password: &str| Some((user.to_owned(), password.as_bytes().to_vec()));
        // (header, what it says); the first is the example of RFC 7617 section 2.
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
