//! Users and roles: `/settings/rbac` and `/controller/changePassword`.

use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::Path;
use axum::http::StatusCode;
use kedge_auth::{Error, Privilege, Roles, User, UserStore, roles_catalogue};
use serde_json::{Value, json};

use super::call::Call;
use super::form::Form;
use super::reply::{Handled, Reply, done, done_text, ok};
use crate::users::UsersError;

/// The domain of users whose passwords are kept here; `external` ones would be known elsewhere.
const LOCAL: &str = "local";

fn unix_secs() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Seconds since 1970 as ISO 8601 with milliseconds, in UTC.
fn iso_8601(unix_secs: u64) -> String {
    // Days to a date as in Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", civil_from_days: the year
    // begins in March, so that the leap day comes last.
    let days = unix_secs / 86_400 + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let secs = unix_secs % 86_400;
    let (hour, minute, second) = (secs / 3_600, secs / 60 % 60, secs % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.000Z")
}

fn document(user: &User) -> Value {
    let roles = user.roles().iter().map(|role| {
        let mut role = serde_json::to_value(role).expect("a role is text");
        role["origins"] = json!([{ "type": "user" }]);
        role
    });
    json!({
        "id": user.id(),
        "domain": LOCAL,
        "name": user.name(),
        "roles": roles.collect::<Vec<_>>(),
        "groups": [],
        "external_groups": [],
        "password_change_date": iso_8601(user.password_change_date_s()),
    })
}

fn unknown_user() -> Reply {
    Reply::json(StatusCode::NOT_FOUND, &json!("Unknown user."))
}

fn unknown_group() -> Reply {
    Reply::json(StatusCode::NOT_FOUND, &json!("Unknown group."))
}

fn refusal(error: &UsersError) -> Reply {
    let field = match error {
        UsersError::Save(why) => return Reply::failed("save the users", why),
        UsersError::Refused(Error::UnknownUser(_)) => return unknown_user(),
        UsersError::Refused(Error::NoRandomness) => {
            return Reply::failed("change the users", error);
        }
        UsersError::Refused(Error::BadPassword(_)) => "password",
        UsersError::Refused(Error::BadDisplayName(_)) => "name",
        UsersError::Refused(
            Error::UnknownRole(_) | Error::BadRole { .. } | Error::TooManyRoles,
        ) => "roles",
        _ => "_",
    };
    Reply::field_error(StatusCode::BAD_REQUEST, field, error.to_string())
}

fn local_only(domain: &str) -> Result<(), Reply> {
    match domain {
        LOCAL => Ok(()),
        "external" => Err(Reply::field_error(
            StatusCode::BAD_REQUEST,
            "_",
            "External users are not supported",
        )),
        _ => Err(Reply::text(StatusCode::NOT_FOUND, "Unknown domain.")),
    }
}

/// `GET /settings/rbac/users`.
pub(crate) async fn list(call: Call) -> Handled {
    call.caller.require(Privilege::Inspect, None)?;
    let users = call.state.parts.users.read();
    ok(&users.list().map(document).collect::<Vec<_>>())
}

/// `GET /settings/rbac/users/DOMAIN`.
pub(crate) async fn list_domain(call: Call, Path(domain): Path<String>) -> Handled {
    call.caller.require(Privilege::Inspect, None)?;
    if domain == "external" {
        return ok(&json!([]));
    }
    local_only(&domain)?;
    list(call).await
}

/// `GET /settings/rbac/users/DOMAIN/USER`.
pub(crate) async fn get(call: Call, Path((domain, id)): Path<(String, String)>) -> Handled {
    call.caller.require(Privilege::Inspect, None)?;
    let users = call.state.parts.users.read();
    match users.get(&id) {
        Some(user) if domain == LOCAL => ok(&document(user)),
        _ => Err(unknown_user()),
    }
}

/// What a form wants of a user; what is `None` stays, or has its default for a new user.
struct Wish {
    password: Option<String>,
    name: Option<String>,
    roles: Option<String>,
}

impl Wish {
    fn apply(&self, store: &mut UserStore, id: &str) -> Result<(), Error> {
        let roles = self.roles.as_deref().map(str::parse::<Roles>).transpose()?;
        let password = self.password.as_deref();
        if !store.exists(id) {
            // Without a password this refuses the empty one, by name.
            store.add(
                id,
                password.unwrap_or_default(),
                roles.unwrap_or_default(),
                unix_secs(),
            )?;
        } else {
            if let Some(password) = password {
                store.set_password(id, password, unix_secs())?;
            }
            if let Some(roles) = roles {
                store.set_roles(id, roles)?;
            }
        }
        match &self.name {
            Some(name) => store.set_display_name(id, name),
            None => Ok(()),
        }
    }
}

/// `PUT /settings/rbac/users/local/USER`: makes or changes a user.
pub(crate) async fn put(
    call: Call,
    Path((domain, id)): Path<(String, String)>,
    form: Form,
) -> Handled {
    call.caller.require(Privilege::Admin, None)?;
    local_only(&domain)?;
    if form.get("groups").is_some_and(|groups| !groups.is_empty()) {
        let text = "Groups are not supported";
        return Err(Reply::field_error(StatusCode::BAD_REQUEST, "groups", text));
    }
    let wish = Wish {
        // As it was given: blanks are part of a password.
        password: form.raw("password").map(str::to_owned),
        name: form.get("name").map(str::to_owned),
        roles: form.get("roles").map(str::to_owned),
    };
    call.blocking(move |state| state.parts.users.change(|store| wish.apply(store, &id)))
        .await?
        .map_err(|error| refusal(&error))?;
    done_text()
}

/// `DELETE /settings/rbac/users/local/USER`.
pub(crate) async fn remove(call: Call, Path((domain, id)): Path<(String, String)>) -> Handled {
    call.caller.require(Privilege::Admin, None)?;
    if domain != LOCAL {
        return Err(unknown_user());
    }
    call.blocking(move |state| state.parts.users.change(|store| store.remove(&id)))
        .await?
        .map_err(|error| refusal(&error))?;
    done_text()
}

/// `POST /controller/changePassword`: the caller's own.
pub(crate) async fn change_password(call: Call, form: Form) -> Handled {
    let id = call.caller.id.clone();
    let password = form.raw("password").unwrap_or_default().to_owned();
    call.blocking(move |state| {
        let users = &state.parts.users;
        users.change(|store| store.set_password(&id, &password, unix_secs()))
    })
    .await?
    .map_err(|error| refusal(&error))?;
    done()
}

/// `GET /settings/rbac/roles`.
pub(crate) async fn roles(call: Call) -> Handled {
    call.caller.require(Privilege::Inspect, None)?;
    ok(&roles_catalogue())
}

/// `GET /settings/rbac/groups`: users have roles of their own, there are no groups.
pub(crate) async fn groups(call: Call) -> Handled {
    call.caller.require(Privilege::Inspect, None)?;
    ok(&json!([]))
}

/// Anything about one group.
pub(crate) async fn group(call: Call) -> Handled {
    call.caller.require(Privilege::Inspect, None)?;
    Err(unknown_group())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        for (secs, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199, "2024-02-29T23:59:59.000Z"),
            (1_709_251_200, "2024-03-01T00:00:00.000Z"),
            (1_735_689_599, "2024-12-31T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(iso_8601(secs), expected);
        }
    }
}
