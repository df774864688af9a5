//! Users and roles: `/settings/rbac` and `/controller/changePassword`. Groups: [`super::groups`].

use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::Path;
use axum::http::StatusCode;
use kedge_auth::{
    AuthError, ExternalUser, Privilege, Role, Roles, User, UserChange, UserStore, external_id,
    external_name, roles_catalogue,
};
use kedge_cluster::CLUSTER_USER;
use kedge_node::iso_8601;
use kedge_node::users::UsersError;
use serde::Serialize;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::form::FormFields;
use super::reply::{EarlyReply, Handled, done, done_text, ok};
use super::request_context::RequestContext;

/// The domain of users whose passwords are stored here.
const LOCAL: &str = "local";
/// The domain of users whose passwords a directory checks.
const EXTERNAL: &str = "external";
/// The domain of the administrator of the settings.
const ADMIN: &str = "admin";

fn unix_secs() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Returns a role with its origins.
fn role_document(role: &Role, origins: &[Value]) -> Value {
    let mut document = serde_json::to_value(role).expect("a role is text");
    document["origins"] = origins.into();
    document
}

/// Returns all roles of a user with their origins.
fn role_documents(store: &UserStore, all: &Roles, own: &Roles, groups: &[&str]) -> Vec<Value> {
    let roles = all.iter().map(|role| {
        let own = own.iter().any(|own| own == role);
        let own = own.then(|| json!({ "type": "user" }));
        let groups = groups.iter().filter(|name| {
            let group = store.group(name);
            group.is_some_and(|group| group.roles().iter().any(|given| given == role))
        });
        let groups = groups.map(|name| json!({ "type": "group", "name": name }));
        role_document(role, &own.into_iter().chain(groups).collect::<Vec<_>>())
    });
    roles.collect()
}

fn document(store: &UserStore, user: &User, domain: &str) -> Value {
    let groups: Vec<&str> = user.groups().collect();
    json!({
        "id": user.id(),
        "domain": domain,
        "name": user.name(),
        "roles": role_documents(store, &store.roles_of(user.id()), user.roles(), &groups),
        "groups": groups,
        "external_groups": [],
        "password_change_date": iso_8601(user.password_change_date_s() * 1_000),
    })
}

/// Returns an external user. The groups of the directory are known only at a login.
fn external_document(store: &UserStore, id: &str, user: &ExternalUser) -> Value {
    let groups: Vec<&str> = user.groups().collect();
    json!({
        "id": id,
        "domain": EXTERNAL,
        "name": user.name(),
        "roles": role_documents(store, &store.roles_of(&external_id(id)), user.roles(), &groups),
        "groups": groups,
        "external_groups": [],
    })
}

fn external_documents(store: &UserStore) -> Vec<Value> {
    let users = store.external_users();
    users
        .map(|(id, user)| external_document(store, id, user))
        .collect()
}

fn unknown_user() -> EarlyReply {
    EarlyReply::json(StatusCode::NOT_FOUND, &json!("Unknown user."))
}

pub(super) fn refusal(error: &UsersError) -> EarlyReply {
    let field = match error {
        UsersError::Save(why) => return EarlyReply::failed("save the users", why),
        UsersError::Cluster(why) => return super::cluster::refusal(why),
        UsersError::Refused(AuthError::UnknownUser(_)) => return unknown_user(),
        UsersError::Refused(AuthError::Guarded) => {
            return EarlyReply::forbidden(&format!("cluster.{}", Privilege::Admin.name()));
        }
        UsersError::Refused(AuthError::NoRandomness | AuthError::NoMemoryForHash(_)) => {
            return EarlyReply::failed("change the users", error);
        }
        UsersError::Refused(AuthError::BadPassword(_)) | UsersError::WeakPassword(_) => "password",
        UsersError::UndefinedRoles { .. } => "roles",
        UsersError::Refused(AuthError::BadDisplayName(_)) => "name",
        UsersError::Refused(AuthError::BadDescription(_)) => "description",
        UsersError::Refused(AuthError::UnknownGroup(_) | AuthError::TooManyGroups) => "groups",
        UsersError::Refused(
            AuthError::UnknownRole(_) | AuthError::BadRole { .. } | AuthError::TooManyRoles,
        ) => "roles",
        _ => "_",
    };
    EarlyReply::field_error(StatusCode::BAD_REQUEST, field, error.to_string())
}

fn unknown_domain() -> EarlyReply {
    EarlyReply::text(StatusCode::NOT_FOUND, "Unknown domain.")
}

/// `GET /settings/rbac/users`: without the administrator of the settings, as clients compare the list with the users
/// that they created.
pub(crate) async fn list(call: RequestContext) -> Handled {
    let mut documents = documents_of(&call, LOCAL)?;
    documents.extend(external_documents(&call.state.parts.users.read()));
    ok(&documents)
}

fn documents_of(call: &RequestContext, domain: &str) -> Result<Vec<Value>, EarlyReply> {
    call.caller.require(Privilege::InspectUsers, None)?;
    let all = &call.state.parts.users;
    let users = all.read();
    // Nodes log in as a user of their own, which nobody manages.
    let people = users.list().filter(|user| user.id() != CLUSTER_USER);
    let wanted = people.filter(|user| all.is_built_in(&users, user.id()) == (domain == ADMIN));
    Ok(wanted.map(|user| document(&users, user, domain)).collect())
}

/// `GET /settings/rbac/users/DOMAIN`; the domain `admin`, which is Kedge's own, has the administrator of the settings.
pub(crate) async fn list_domain(call: RequestContext, Path(domain): Path<String>) -> Handled {
    call.caller.require(Privilege::InspectUsers, None)?;
    match domain.as_str() {
        EXTERNAL => ok(&external_documents(&call.state.parts.users.read())),
        LOCAL | ADMIN => ok(&documents_of(&call, &domain)?),
        _ => Err(unknown_domain()),
    }
}

/// `GET /settings/rbac/users/DOMAIN/USER`.
pub(crate) async fn get(
    call: RequestContext,
    Path((domain, id)): Path<(String, String)>,
) -> Handled {
    call.caller.require(Privilege::InspectUsers, None)?;
    let users = call.state.parts.users.read();
    if domain == EXTERNAL {
        let user = users.external_user(&id).ok_or_else(unknown_user)?;
        return ok(&external_document(&users, &id, user));
    }
    match users.get(&id) {
        Some(user) if domain == LOCAL && id != CLUSTER_USER => ok(&document(&users, user, LOCAL)),
        _ => Err(unknown_user()),
    }
}

/// Returns the roles of a form, if it has any. The named buckets must exist.
pub(super) fn roles_of(
    call: &RequestContext,
    form: &FormFields,
    whom: &'static str,
) -> Result<Option<Roles>, EarlyReply> {
    let Some(text) = form.get("roles") else {
        return Ok(None);
    };
    let undefined = |roles| refusal(&UsersError::UndefinedRoles { whom, roles });
    let parsed = Roles::parse(text, call.state.parts.users.read().custom_roles());
    let roles: Roles = parsed.map_err(|error| match error {
        AuthError::UnknownRole(role) => undefined(vec![role]),
        error => refusal(&error.into()),
    })?;
    let missing = roles.iter().filter(|role| !is_defined(call, role));
    let missing: Vec<String> = missing.map(ToString::to_string).collect();
    match missing.is_empty() {
        true => Ok(Some(roles)),
        false => Err(undefined(missing)),
    }
}

/// Returns whether the bucket, scope and collection of a role exist.
fn is_defined(call: &RequestContext, role: &Role) -> bool {
    let is_given = |name: &Option<&str>| name.is_some_and(|name| name != "*");
    let Some(bucket) = Some(role.bucket()).filter(is_given).flatten() else {
        return true;
    };
    let Some(manifest) = call.buckets().manifest(bucket) else {
        return false;
    };
    let Some(scope) = Some(role.scope()).filter(is_given).flatten() else {
        return true;
    };
    let Some(scope) = manifest.scopes.iter().find(|known| known.name == scope) else {
        return false;
    };
    let Some(collection) = Some(role.collection()).filter(is_given).flatten() else {
        return true;
    };
    let mut collections = scope.collections.iter();
    collections.any(|known| known.name == collection)
}

/// Returns the change of a user that a form requests.
fn change_of(call: &RequestContext, form: &FormFields) -> Result<UserChange, EarlyReply> {
    let groups = form.get("groups").map(|groups| {
        let names = groups.split(',').map(str::trim);
        let names = names.filter(|name| !name.is_empty());
        names.map(str::to_owned).collect()
    });
    // Unchanged: blanks are part of a password.
    let password = form
        .raw("password")
        .map(|text| Zeroizing::new(text.to_owned()));
    if let Some(password) = &password {
        let checked = call.state.parts.users.check_password(password);
        checked.map_err(|error| refusal(&error))?;
    }
    Ok(UserChange {
        password,
        name: form.get("name").map(str::to_owned),
        roles: roles_of(call, form, "user")?,
        groups,
    })
}

async fn change(
    call: &RequestContext,
    (domain, id): (&'static str, String),
    change: UserChange,
) -> Handled {
    let by = call.caller.roles.privileges(None);
    call.blocking(move |state| {
        let users = &state.parts.users;
        users.change(|store| match domain {
            EXTERNAL => store.set_external_user(&id, &change, by),
            _ => store.set_user(&id, &change, by, unix_secs()),
        })
    })
    .await?
    .map_err(|error| refusal(&error))?;
    done_text()
}

/// Returns the domain of a path in which users are changed.
fn changeable(domain: &str) -> Result<&'static str, EarlyReply> {
    match domain {
        LOCAL => Ok(LOCAL),
        EXTERNAL => Ok(EXTERNAL),
        _ => Err(unknown_domain()),
    }
}

/// Refuses a password of an external user, which is the directory's.
fn check_domain(domain: &str, change: &UserChange) -> Result<(), EarlyReply> {
    if domain == EXTERNAL && change.password.is_some() {
        return Err(EarlyReply::field_error(
            StatusCode::BAD_REQUEST,
            "password",
            "The password of an external user is not stored here",
        ));
    }
    Ok(())
}

/// `PUT /settings/rbac/users/DOMAIN/USER`: creates or replaces a user, except the password if none is given; missing
/// fields become empty.
pub(crate) async fn put(
    call: RequestContext,
    Path((domain, id)): Path<(String, String)>,
    form: FormFields,
) -> Handled {
    call.caller.require(Privilege::Users, None)?;
    let domain = changeable(&domain)?;
    let given = change_of(&call, &form)?;
    check_domain(domain, &given)?;
    let whole = UserChange {
        password: given.password,
        name: Some(given.name.unwrap_or_default()),
        roles: Some(given.roles.unwrap_or_default()),
        groups: Some(given.groups.unwrap_or_default()),
    };
    change(&call, (domain, id), whole).await
}

/// `PATCH /settings/rbac/users/DOMAIN/USER`: changes the given fields of an existing user.
pub(crate) async fn patch(
    call: RequestContext,
    Path((domain, id)): Path<(String, String)>,
    form: FormFields,
) -> Handled {
    call.caller.require(Privilege::Users, None)?;
    let domain = changeable(&domain)?;
    let users = call.state.parts.users.read();
    let exists = match domain {
        EXTERNAL => users.external_user(&id).is_some(),
        _ => users.exists(&id),
    };
    if !exists {
        return Err(unknown_user());
    }
    let given = change_of(&call, &form)?;
    check_domain(domain, &given)?;
    change(&call, (domain, id), given).await
}

/// `DELETE /settings/rbac/users/DOMAIN/USER`.
pub(crate) async fn remove(
    call: RequestContext,
    Path((domain, id)): Path<(String, String)>,
) -> Handled {
    call.caller.require(Privilege::Users, None)?;
    let domain = changeable(&domain).map_err(|_| unknown_user())?;
    let by = call.caller.roles.privileges(None);
    call.blocking(move |state| {
        let users = &state.parts.users;
        users.change(|store| match domain {
            EXTERNAL => store.remove_external_user(&id, by),
            _ => store.remove_user(&id, by),
        })
    })
    .await?
    .map_err(|error| refusal(&error))?;
    done_text()
}

/// `POST /controller/changePassword`: the caller's own password.
pub(crate) async fn change_password(call: RequestContext, form: FormFields) -> Handled {
    let id = call.caller.id.clone();
    if external_name(&id).is_some() {
        return Err(EarlyReply::text(
            StatusCode::FORBIDDEN,
            "The password of an external user is not stored here.",
        ));
    }
    let password = form.raw("password").unwrap_or_default();
    let password = Zeroizing::new(password.to_owned());
    let checked = call.state.parts.users.check_password(&password);
    checked.map_err(|error| refusal(&error))?;
    call.blocking(move |state| {
        let users = &state.parts.users;
        users.change(|store| store.set_own_password(&id, &password, unix_secs()))
    })
    .await?
    .map_err(|error| refusal(&error))?;
    done()
}

/// `GET /settings/rbac/roles`: the roles of the catalogue, and those that administrators have defined.
pub(crate) async fn roles(call: RequestContext) -> Handled {
    call.caller.require(Privilege::InspectUsers, None)?;
    let users = call.state.parts.users.read();
    let catalogue = roles_catalogue().into_iter().map(to_value);
    let defined = users
        .custom_roles()
        .values()
        .map(|role| to_value(role.info()));
    ok(&catalogue.chain(defined).collect::<Vec<_>>())
}

fn to_value(role: impl Serialize) -> Value {
    serde_json::to_value(role).expect("text becomes JSON")
}
