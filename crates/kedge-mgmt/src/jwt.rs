//! The issuers of tokens of external users: `/settings/jwt`. The users of a cluster have one document.

use axum::body::Body;
use axum::http::StatusCode;
use kedge_auth::{JwtSettings, Privilege};

use super::form;
use super::reply::{EarlyReply, Handled, done, ok};
use super::request_context::RequestContext;
use super::users::refusal;

/// `GET /settings/jwt`. It has public keys only.
pub(crate) async fn get(call: RequestContext) -> Handled {
    call.caller.require(Privilege::InspectUsers, None)?;
    let users = call.state.parts.users.read();
    ok(&users
        .jwt()
        .map(|it| JwtSettings::clone(it))
        .unwrap_or_default())
}

async fn store(call: &RequestContext, settings: Option<JwtSettings>) -> Result<(), EarlyReply> {
    call.blocking(move |state| {
        let users = &state.parts.users;
        users.change(|store| store.set_jwt(settings.clone()))
    })
    .await?
    .map_err(|error| refusal(&error))
}

/// `PUT /settings/jwt` with a document: replaces all settings.
pub(crate) async fn set(call: RequestContext, body: Body) -> Handled {
    call.caller.require(Privilege::Admin, None)?;
    let wrong = |why: String| EarlyReply::field_error(StatusCode::BAD_REQUEST, "_", why);
    let body = form::read(body).await?;
    let settings = serde_json::from_slice::<JwtSettings>(&body);
    let settings = settings.map_err(|error| wrong(error.to_string()))?;
    let users = call.state.parts.users.read();
    settings.check(users.custom_roles()).map_err(wrong)?;
    drop(users);
    store(&call, Some(settings.clone())).await?;
    ok(&settings)
}

/// `DELETE /settings/jwt`: no token is accepted any more.
pub(crate) async fn remove(call: RequestContext) -> Handled {
    call.caller.require(Privilege::Admin, None)?;
    store(&call, None).await?;
    done()
}
