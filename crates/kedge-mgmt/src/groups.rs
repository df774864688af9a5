//! Groups of users: `/settings/rbac/groups`.

use axum::extract::Path;
use axum::http::StatusCode;
use kedge_auth::{AuthError, Group, GroupChange, Privilege};
use kedge_node::users::UsersError;
use serde_json::{Value, json};

use super::form::FormFields;
use super::reply::{EarlyReply, Handled, done_text, ok};
use super::request_context::RequestContext;
use super::users::{refusal, roles_of};

fn document(name: &str, group: &Group) -> Value {
    let mut document = json!({
        "id": name,
        "description": group.description(),
        "roles": group.roles(),
    });
    // Clients distinguish a missing description from an empty one.
    if !group.ldap_group_ref().is_empty() {
        document["ldap_group_ref"] = group.ldap_group_ref().into();
    }
    document
}

fn unknown_group() -> EarlyReply {
    EarlyReply::json(StatusCode::NOT_FOUND, &json!("Unknown group."))
}

/// `GET /settings/rbac/groups`.
pub(crate) async fn list(call: RequestContext) -> Handled {
    call.caller.require(Privilege::InspectUsers, None)?;
    let users = call.state.parts.users.read();
    let groups = users.groups().map(|(name, group)| document(name, group));
    ok(&groups.collect::<Vec<_>>())
}

/// `GET /settings/rbac/groups/GROUP`.
pub(crate) async fn get(call: RequestContext, Path(name): Path<String>) -> Handled {
    call.caller.require(Privilege::InspectUsers, None)?;
    let users = call.state.parts.users.read();
    let group = users.group(&name).ok_or_else(unknown_group)?;
    ok(&document(&name, group))
}

/// Returns the change of a group that a form requests.
fn change_of(call: &RequestContext, form: &FormFields) -> Result<GroupChange, EarlyReply> {
    let text = |field| form.get(field).map(str::to_owned);
    Ok(GroupChange {
        description: text("description"),
        roles: roles_of(call, form, "group")?,
        ldap_group_ref: text("ldap_group_ref"),
    })
}

async fn change(call: &RequestContext, name: String, change: GroupChange) -> Handled {
    let by = call.caller.roles.privileges(None);
    call.blocking(move |state| {
        let users = &state.parts.users;
        users.change(|store| store.set_group(&name, &change, by))
    })
    .await?
    .map_err(|error| refusal(&error))?;
    done_text()
}

/// `PUT /settings/rbac/groups/GROUP`: creates or replaces a group; missing fields become empty.
pub(crate) async fn put(
    call: RequestContext,
    Path(name): Path<String>,
    form: FormFields,
) -> Handled {
    call.caller.require(Privilege::Users, None)?;
    let given = change_of(&call, &form)?;
    let whole = GroupChange {
        description: Some(given.description.unwrap_or_default()),
        roles: Some(given.roles.unwrap_or_default()),
        ldap_group_ref: Some(given.ldap_group_ref.unwrap_or_default()),
    };
    change(&call, name, whole).await
}

/// `PATCH /settings/rbac/groups/GROUP`: creates a group, or changes the given fields of one.
pub(crate) async fn patch(
    call: RequestContext,
    Path(name): Path<String>,
    form: FormFields,
) -> Handled {
    call.caller.require(Privilege::Users, None)?;
    let given = change_of(&call, &form)?;
    change(&call, name, given).await
}

/// `DELETE /settings/rbac/groups/GROUP`: also removes the group from its users.
pub(crate) async fn remove(call: RequestContext, Path(name): Path<String>) -> Handled {
    call.caller.require(Privilege::Users, None)?;
    let by = call.caller.roles.privileges(None);
    let removed = call.blocking(move |state| {
        let users = &state.parts.users;
        users.change(|store| store.remove_group(&name, by))
    });
    removed.await?.map_err(|error| match error {
        UsersError::Refused(AuthError::UnknownGroup(_)) => unknown_group(),
        error => refusal(&error),
    })?;
    done_text()
}
