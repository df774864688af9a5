//! Groups of users: `/settings/rbac/groups`.

use axum::extract::Path;
use axum::http::StatusCode;
use kedge_auth::{Error, Group, GroupChange, Privilege};
use serde_json::{Value, json};

use super::call::Call;
use super::form::Form;
use super::reply::{Handled, Reply, done_text, ok};
use super::users::{refusal, roles_of};
use crate::users::UsersError;

fn document(name: &str, group: &Group) -> Value {
    let mut document = json!({
        "id": name,
        "description": group.description(),
        "roles": group.roles(),
    });
    // Clients tell a group without one from a group whose one is empty.
    if !group.ldap_group_ref().is_empty() {
        document["ldap_group_ref"] = group.ldap_group_ref().into();
    }
    document
}

fn unknown_group() -> Reply {
    Reply::json(StatusCode::NOT_FOUND, &json!("Unknown group."))
}

/// `GET /settings/rbac/groups`.
pub(crate) async fn list(call: Call) -> Handled {
    call.caller.require(Privilege::InspectUsers, None)?;
    let users = call.state.parts.users.read();
    let groups = users.groups().map(|(name, group)| document(name, group));
    ok(&groups.collect::<Vec<_>>())
}

/// `GET /settings/rbac/groups/GROUP`.
pub(crate) async fn get(call: Call, Path(name): Path<String>) -> Handled {
    call.caller.require(Privilege::InspectUsers, None)?;
    let users = call.state.parts.users.read();
    let group = users.group(&name).ok_or_else(unknown_group)?;
    ok(&document(&name, group))
}

/// `PUT /settings/rbac/groups/GROUP`: makes or changes a group.
pub(crate) async fn put(call: Call, Path(name): Path<String>, form: Form) -> Handled {
    call.caller.require(Privilege::Users, None)?;
    let text = |field| form.get(field).map(str::to_owned);
    let change = GroupChange {
        description: text("description"),
        roles: roles_of(&form)?,
        ldap_group_ref: text("ldap_group_ref"),
    };
    let by = call.caller.roles.privileges(None);
    call.blocking(move |state| {
        let users = &state.parts.users;
        users.change(|store| store.set_group(&name, &change, by))
    })
    .await?
    .map_err(|error| refusal(&error))?;
    done_text()
}

/// `DELETE /settings/rbac/groups/GROUP`: its users are in it no more.
pub(crate) async fn remove(call: Call, Path(name): Path<String>) -> Handled {
    call.caller.require(Privilege::Users, None)?;
    let by = call.caller.roles.privileges(None);
    let removed = call.blocking(move |state| {
        let users = &state.parts.users;
        users.change(|store| store.remove_group(&name, by))
    });
    removed.await?.map_err(|error| match error {
        UsersError::Refused(Error::UnknownGroup(_)) => unknown_group(),
        error => refusal(&error),
    })?;
    done_text()
}
