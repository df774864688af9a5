//! The administrator of the server, and the password.

use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use kedge_auth::{AuthError, Privilege, RESERVED_PREFIX, Roles, UserStore};
use kedge_node::users::{Users, UsersError};

use super::ServeError;
use crate::settings::{DEFAULT_PASSWORD, Effective, Settings};

/// The action for the user of the settings.
#[derive(Debug, PartialEq, Eq)]
enum Action {
    Nothing,
    Add,
    SetPassword,
    Refuse,
}

/// The state of the data directory and of the settings.
#[derive(Clone, Copy, Debug)]
struct Situation {
    /// True if there is no user at all.
    first_start: bool,
    user_exists: bool,
    user_given: bool,
    password_given: bool,
    password_right: bool,
}

const fn decide(it: Situation) -> Action {
    match it {
        Situation {
            first_start: true, ..
        } => Action::Add,
        Situation {
            user_exists: true,
            password_given: true,
            password_right: false,
            ..
        } => Action::SetPassword,
        Situation {
            user_exists: true, ..
        } => Action::Nothing,
        // The default user may have been removed on purpose.
        Situation {
            user_given: false,
            password_given: false,
            ..
        } => Action::Nothing,
        Situation {
            password_given: true,
            ..
        } => Action::Add,
        // A new administrator with the well-known default password is surely not intended.
        Situation {
            password_given: false,
            ..
        } => Action::Refuse,
    }
}

/// Creates the administrator on the first start; later, makes only explicitly requested changes.
pub(super) fn ensure(users: &Users, effective: &Effective) -> Result<(), ServeError> {
    let Settings { user, password, .. } = &effective.settings;
    users.name_administrator(user);
    let store = users.read();
    let password_given = effective.is_given("password");
    let user_exists = store.exists(user);
    if kedge_auth::is_reserved(user) {
        return Err(ServeError::Administrator(format!(
            "the user name \"{user}\" is reserved: names that begin with \"{RESERVED_PREFIX}\" are the server's own; choose another \
             with --user"
        )));
    }
    let action = decide(Situation {
        first_start: store.is_empty(),
        user_exists,
        user_given: effective.is_given("user"),
        password_given,
        password_right: password_given
            && user_exists
            && users.verify_password(user, password.as_bytes()),
    });
    drop(store);
    if matches!(action, Action::Add | Action::SetPassword) {
        let checked = users.check_password(password);
        checked.map_err(|error| ServeError::Administrator(error.to_string()))?;
    }
    match action {
        Action::Nothing => Ok(()),
        Action::Refuse => Err(ServeError::Administrator(format!(
            "there is no user \"{user}\" yet; give --password too, to make it"
        ))),
        Action::Add => {
            let add = |store: &mut UserStore| store.add(user, password, Roles::admin(), now_s());
            if change(users, user, add)? {
                tracing::info!(user, "created the administrator");
            }
            Ok(())
        }
        Action::SetPassword => {
            let set = |store: &mut UserStore| store.set_password(user, password, now_s());
            if change(users, user, set)? {
                tracing::warn!(
                    user,
                    "replaced the stored password by the one given at this start"
                );
            }
            Ok(())
        }
    }
}

/// Changes the administrator, in the cluster if the node follows its users. False if the cluster does not make the change: the
/// node serves with the users that it has.
fn change(
    users: &Users,
    user: &str,
    change: impl FnMut(&mut UserStore) -> Result<(), AuthError>,
) -> Result<bool, ServeError> {
    if users.read().shared().is_none() {
        users.change_at_start(change)?;
        return Ok(true);
    }
    match users.change(change) {
        Ok(()) => Ok(true),
        Err(UsersError::Cluster(error)) => {
            tracing::warn!(
                user, %error,
                "the password given at this start is not that of the cluster, and is not used"
            );
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}

/// Refuses a reachable address while an administrator has the default password.
pub(super) fn check_exposure(users: &Users, settings: &Settings) -> Result<(), ServeError> {
    check_exposure_at(settings.listen, users)
}

/// Checks the address of one port as [`check_exposure`] does.
pub(super) fn check_exposure_at(listen: IpAddr, users: &Users) -> Result<(), ServeError> {
    if listen.to_canonical().is_loopback() {
        return Ok(());
    }
    let store = users.read();
    let weak = store.list().find(|user| {
        store.allows(user.id(), Privilege::Admin, None)
            && store.verify_password(user.id(), DEFAULT_PASSWORD.as_bytes())
    });
    match weak {
        None => Ok(()),
        Some(user) => Err(ServeError::DefaultPassword {
            listen,
            user: user.id().to_owned(),
        }),
    }
}

pub(super) fn now_s() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn administrator_action_is_defined_for_every_situation() {
        // first start, user exists, user given, password given, password right
        for (flags, action) in [
            ("fnnnn", Action::Add),
            ("f--p-", Action::Add),
            ("-e---", Action::Nothing),
            ("-eu--", Action::Nothing),
            ("-e-pr", Action::Nothing),
            ("-e-p-", Action::SetPassword),
            ("-eup-", Action::SetPassword),
            ("-----", Action::Nothing),
            ("--u--", Action::Refuse),
            ("---p-", Action::Add),
            ("--up-", Action::Add),
        ] {
            let has = |letter| flags.contains(letter);
            let situation = Situation {
                first_start: has('f'),
                user_exists: has('e'),
                user_given: has('u'),
                password_given: has('p'),
                password_right: has('r'),
            };
            assert_eq!(decide(situation), action, "{flags}");
        }
    }
}
