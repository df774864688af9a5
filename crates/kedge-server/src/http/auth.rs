//! Who calls: Basic authentication (RFC 7617) and privileges.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kedge_auth::{Privilege, Roles};

use super::HttpState;
use super::reply::Reply;
use crate::audit::{Event, What};
use crate::tasks::AUTHENTICATION;

/// A user whose password was right.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) roles: Roles,
}

impl Caller {
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
    let (parts, wanted) = (state.clone(), request.uri().path().to_owned());
    let wanted = format!("{} {wanted}", request.method());
    let named = id.clone();
    let refused = move |what| {
        parts.parts.users.audit().put(&Event {
            request: &wanted,
            ..Event::new(what, &named)
        });
    };
    // A password that was not seen before costs milliseconds: not on the thread that all others wait for, and one at a
    // time, so that a flood of them takes one core at most.
    let turn = state.logins.clone().acquire_owned().await;
    let pools = state.parts.pools.clone();
    let caller = pools
        .executor()
        .submit_as(&AUTHENTICATION, pools.owner(), move || {
            let _turn = turn;
            let users = state.parts.users.read();
            if !users.verify_password(&id, &password) {
                return None;
            }
            let user = users.get(&id)?;
            Some(Caller {
                name: user.name().to_owned(),
                roles: users.roles_of(&id),
                id,
            })
        });
    match caller.await {
        Ok(Some(caller)) => {
            request.extensions_mut().insert(caller);
            let response = next.run(request).await;
            if response.status() == StatusCode::FORBIDDEN {
                refused(What::ManagementDenied);
            }
            response
        }
        Ok(None) => {
            refused(What::ManagementLoginFailed);
            Reply::unauthorized().into_response()
        }
        Err(error) => Reply::failed("check a password", &error).into_response(),
    }
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
