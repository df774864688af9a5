//! Roles that administrators define: `/kedge/roles`. The original has none. Users and groups get them as they get other roles, and
//! `/settings/rbac/roles` lists them with these.

use axum::extract::Path;
use axum::http::StatusCode;
use kedge_auth::{AuthError, CustomRole, Privilege, RoleExtent};
use kedge_node::users::UsersError;
use serde_json::{Value, json};

use super::form::FormFields;
use super::reply::{EarlyReply, Handled, done_text, ok};
use super::request_context::RequestContext;
use super::users::refusal;

fn document(role: &CustomRole) -> Value {
    json!({
        "name": role.name(),
        "description": role.description(),
        "scope": role.extent().name(),
        "privileges": role.privileges().collect::<Vec<_>>(),
    })
}

fn unknown_role() -> EarlyReply {
    EarlyReply::json(StatusCode::NOT_FOUND, &json!("Unknown role."))
}

/// `GET /kedge/roles`.
pub(crate) async fn list(call: RequestContext) -> Handled {
    call.caller.require(Privilege::InspectUsers, None)?;
    let users = call.state.parts.users.read();
    let roles = users.custom_roles().values();
    ok(&roles.map(|role| document(role)).collect::<Vec<_>>())
}

/// `GET /kedge/roles/ROLE`.
pub(crate) async fn get(call: RequestContext, Path(name): Path<String>) -> Handled {
    call.caller.require(Privilege::InspectUsers, None)?;
    let users = call.state.parts.users.read();
    let role = users.custom_roles().get(&name).ok_or_else(unknown_role)?;
    ok(&document(role))
}

/// Returns the role of a form: `privileges`, separated by commas, `scope` (`collection` if it is absent) and `description`.
fn role_of(name: &str, form: &FormFields) -> Result<CustomRole, EarlyReply> {
    let bad = |field: &str, why: String| {
        Err(EarlyReply::field_error(StatusCode::BAD_REQUEST, field, why))
    };
    let extent = form.get("scope").unwrap_or(RoleExtent::Collection.name());
    let Some(extent) = RoleExtent::with_name(extent) else {
        let why = "The value must be one of the following: [cluster,bucket,scope,collection]";
        return bad("scope", why.to_owned());
    };
    let Some(privileges) = form.get("privileges") else {
        return bad("privileges", "The value must be supplied".to_owned());
    };
    let privileges = privileges.split(',').map(str::trim);
    let privileges = privileges.filter(|name| !name.is_empty());
    let description = form.get("description").unwrap_or_default();
    CustomRole::new(name, description, extent, privileges).or_else(|error| {
        let field = match error {
            AuthError::BadDescription(_) => "description",
            AuthError::BadRoleDefinition(_) => "privileges",
            _ => "_",
        };
        bad(field, error.to_string())
    })
}

/// `PUT /kedge/roles/ROLE`: defines a role, or replaces its definition. Users who have the role have the new privileges at once.
pub(crate) async fn put(
    call: RequestContext,
    Path(name): Path<String>,
    form: FormFields,
) -> Handled {
    call.caller.require(Privilege::Admin, None)?;
    let role = role_of(&name, &form)?;
    let by = call.caller.roles.privileges(None);
    call.blocking(move |state| {
        let users = &state.parts.users;
        users.change(|store| store.set_custom_role(role.clone(), by))
    })
    .await?
    .map_err(|error| refusal(&error))?;
    done_text()
}

/// `DELETE /kedge/roles/ROLE`: removes a role that no user and no group has.
pub(crate) async fn remove(call: RequestContext, Path(name): Path<String>) -> Handled {
    call.caller.require(Privilege::Admin, None)?;
    let by = call.caller.roles.privileges(None);
    let removed = call.blocking(move |state| {
        let users = &state.parts.users;
        users.change(|store| store.remove_custom_role(&name, by))
    });
    removed.await?.map_err(|error| match error {
        UsersError::Refused(AuthError::UnknownRole(_)) => unknown_role(),
        error => refusal(&error),
    })?;
    done_text()
}
