//! External users: those whose credentials another authority checks, such as a directory.
//!
//! An external user has the id `^NAME` where a local one has its name, as in the original's frame of impersonation. The store
//! knows the roles that an administrator gave to the name; an authority adds [`ExternalGrants`] at each login.
//!
//! Invariants:
//! * A local user whose name an external one has, too, is the only one who can log in with a password: its password is never
//!   shown to a directory.
//! * No local user has a name that begins with `^`, so no local login ends as an external user.
//! * Rights are computed from the grants and the store when they are needed, as those of local users are: a change of a group
//!   holds at once for connections, too.

mod cache;
mod escape;
mod jwt;
mod ldap;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use self::cache::ExternalCache;
pub use self::escape::{escape_dn_value, escape_filter_value, normal_dn};
pub use self::jwt::{
    ClaimProblem, JWT_BYTES_MAX, JWT_ISSUERS_MAX, JwtAlgorithm, JwtIssuer, JwtRule, JwtSettings,
    login_of_claims,
};
pub use self::ldap::{
    LdapEncryption, LdapQuery, LdapScope, LdapSearch, LdapSettings, SettingProblem, UserDnMapping,
};
use crate::custom_role::CustomRoles;
use crate::error::{AuthError, UserNameProblem};
use crate::group::{Group, UserChange, guard, known_groups};
use crate::limits::{USER_NAME_BYTES_MAX, USERS_MAX};
use crate::names::check_unreserved;
use crate::privilege::Privileges;
use crate::roles::{Role, Roles};
use crate::store::{UserStore, check_display_name};

/// The first character of the id of an external user.
pub const EXTERNAL_PREFIX: char = '^';

/// Returns the id of the external user with this name.
#[must_use]
pub fn external_id(name: &str) -> String {
    format!("{EXTERNAL_PREFIX}{name}")
}

/// Returns the name of the external user with this id; `None` for a local user.
#[must_use]
pub fn external_name(id: &str) -> Option<&str> {
    id.strip_prefix(EXTERNAL_PREFIX)
}

/// The roles that an administrator gave to the name of an external user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExternalUser {
    pub(crate) name: String,
    pub(crate) roles: Roles,
    pub(crate) groups: BTreeSet<String>,
}

impl ExternalUser {
    /// Returns the display name, which may be empty.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the user's own roles; see [`UserStore::roles_of`] for all.
    #[must_use]
    pub const fn roles(&self) -> &Roles {
        &self.roles
    }

    /// Iterates over the names of the user's groups.
    pub fn groups(&self) -> impl ExactSizeIterator<Item = &str> {
        self.groups.iter().map(String::as_str)
    }
}

/// The rights of an external user that an authority has shown at a login.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExternalGrants {
    /// The groups of the directory, in [normal form](normal_dn).
    pub directory_groups: BTreeSet<String>,
    /// Local groups whose roles a token gives.
    pub groups: BTreeSet<String>,
    /// Roles that a token gives, in their text form: their definitions may change.
    pub roles: BTreeSet<String>,
    /// The end of the login, in seconds since 1970 (UTC).
    pub expires_at_s: Option<u64>,
}

/// Everything about external users: their roles, and the settings of the authorities.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ExternalUsers {
    pub(crate) users: BTreeMap<String, ExternalUser>,
    pub(crate) ldap: Option<Arc<LdapSettings>>,
    pub(crate) jwt: Option<Arc<JwtSettings>>,
}

impl ExternalUsers {
    pub(crate) fn is_empty(&self) -> bool {
        self.users.is_empty() && self.ldap.is_none() && self.jwt.is_none()
    }

    /// Removes a group from its members.
    pub(crate) fn forget_group(&mut self, group: &str) {
        for user in self.users.values_mut() {
            user.groups.remove(group);
        }
    }

    /// Returns the roles that a name has, with those of its groups.
    pub(crate) fn roles_of(&self, name: &str, groups: &BTreeMap<String, Group>) -> Roles {
        let Some(user) = self.users.get(name) else {
            return Roles::default();
        };
        let groups = user.groups.iter().filter_map(|group| groups.get(group));
        user.roles.joined(groups.map(Group::roles))
    }
}

/// The stored form of an external user.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExternalUserDoc {
    id: String,
    name: String,
    roles: Vec<String>,
    groups: Vec<String>,
}

impl ExternalUserDoc {
    pub(crate) fn of(id: &str, user: &ExternalUser) -> Self {
        Self {
            id: id.to_owned(),
            name: user.name.clone(),
            roles: user.roles.iter().map(ToString::to_string).collect(),
            groups: user.groups.iter().cloned().collect(),
        }
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    fn read(
        self,
        groups: &BTreeMap<String, Group>,
        custom: &CustomRoles,
    ) -> Result<(String, ExternalUser), AuthError> {
        check_external_name(&self.id)?;
        check_display_name(&self.name)?;
        let roles = self.roles.iter().map(|role| Role::parse(role, custom));
        let user = ExternalUser {
            name: self.name,
            roles: Roles::new(roles.collect::<Result<Vec<_>, AuthError>>()?)?,
            groups: known_groups(groups, &self.groups)?,
        };
        Ok((self.id, user))
    }
}

/// Reads the stored form of external users.
pub(crate) fn read_users(
    docs: Vec<ExternalUserDoc>,
    groups: &BTreeMap<String, Group>,
    custom: &CustomRoles,
) -> Result<BTreeMap<String, ExternalUser>, AuthError> {
    if docs.len() > USERS_MAX {
        return Err(AuthError::TooManyUsers);
    }
    let users = docs.into_iter().map(|doc| doc.read(groups, custom));
    users.collect()
}

impl UserStore {
    /// Returns the external user with this name, if an administrator gave roles to it.
    #[must_use]
    pub fn external_user(&self, name: &str) -> Option<&ExternalUser> {
        self.external.users.get(name)
    }

    /// Iterates over the external users with their names, in order of the names.
    pub fn external_users(&self) -> impl ExactSizeIterator<Item = (&str, &ExternalUser)> {
        let users = self.external.users.iter();
        users.map(|(name, user)| (&**name, user))
    }

    /// Creates or changes an external user; see [`UserStore::set_user`] for `by`. A password is ignored.
    ///
    /// # Errors
    /// [`AuthError::BadName`], [`AuthError::ReservedName`], [`AuthError::BadDisplayName`], [`AuthError::TooManyUsers`],
    /// [`AuthError::UnknownGroup`], [`AuthError::TooManyGroups`], [`AuthError::Guarded`]. After an error the store may be partly
    /// changed.
    pub fn set_external_user(
        &mut self,
        name: &str,
        change: &UserChange,
        by: Privileges,
    ) -> Result<(), AuthError> {
        check_external_name(name)?;
        check_unreserved(name)?;
        guard_external(self, name, by)?;
        let groups = match &change.groups {
            Some(groups) => Some(known_groups(&self.groups, groups)?),
            None => None,
        };
        let roles = change.roles.clone();
        let roles = roles.map(|roles| roles.resolved(&self.custom_roles));
        let roles = roles.transpose()?;
        let users = &mut self.external.users;
        if users.len() >= USERS_MAX && !users.contains_key(name) {
            return Err(AuthError::TooManyUsers);
        }
        let user = users.entry(name.to_owned()).or_default();
        if let Some(display) = &change.name {
            check_display_name(display)?;
            user.name.clone_from(display);
        }
        if let Some(roles) = roles {
            user.roles = roles;
        }
        if let Some(groups) = groups {
            user.groups = groups;
        }
        guard_external(self, name, by)
    }

    /// Removes the roles of an external user; see [`UserStore::set_user`] for `by`.
    ///
    /// # Errors
    /// [`AuthError::UnknownUser`], [`AuthError::Guarded`].
    pub fn remove_external_user(&mut self, name: &str, by: Privileges) -> Result<(), AuthError> {
        guard_external(self, name, by)?;
        let removed = self.external.users.remove(name);
        removed
            .map(drop)
            .ok_or_else(|| AuthError::UnknownUser(name.to_owned()))
    }

    /// Returns the settings of the directory; `None` if none were made.
    #[must_use]
    pub fn ldap(&self) -> Option<&Arc<LdapSettings>> {
        self.external.ldap.as_ref()
    }

    /// Sets the settings of the directory, or removes them.
    pub fn set_ldap(&mut self, settings: Option<LdapSettings>) {
        self.external.ldap = settings.map(Arc::new);
    }

    /// Returns the settings of tokens; `None` if none were made.
    #[must_use]
    pub fn jwt(&self) -> Option<&Arc<JwtSettings>> {
        self.external.jwt.as_ref()
    }

    /// Sets the settings of tokens, or removes them.
    ///
    /// # Errors
    /// Those of [`Roles::parse`] for the roles of a rule.
    pub fn set_jwt(&mut self, settings: Option<JwtSettings>) -> Result<(), AuthError> {
        if let Some(settings) = &settings {
            settings.check_roles(&self.custom_roles)?;
        }
        self.external.jwt = settings.map(Arc::new);
        Ok(())
    }

    /// Returns whether tokens are accepted.
    #[must_use]
    pub fn accepts_tokens(&self) -> bool {
        self.external.jwt.as_ref().is_some_and(|jwt| jwt.enabled)
    }

    /// Returns whether a directory checks the password of this name: it is no local user's, and may be an external one's.
    #[must_use]
    pub fn asks_directory(&self, name: &str) -> bool {
        let is_on = |ldap: &Arc<LdapSettings>| ldap.authentication_enabled;
        self.external.ldap.as_ref().is_some_and(is_on)
            && !self.exists(name)
            && check_external_name(name).is_ok()
            && check_unreserved(name).is_ok()
    }

    /// Returns the roles of a user who logged in with these grants: those of [`UserStore::roles_of`], those that a token gives, and
    /// those of the groups that stand for the user's groups in the directory.
    #[must_use]
    pub fn roles_of_login(&self, id: &str, grants: Option<&ExternalGrants>) -> Roles {
        let roles = self.roles_of(id);
        let Some(grants) = grants else {
            return roles;
        };
        // A token gives nothing any more when tokens are not accepted.
        if grants.expires_at_s.is_some() && !self.accepts_tokens() {
            return Roles::default();
        }
        let named = grants
            .groups
            .iter()
            .filter_map(|name| self.groups.get(name));
        // A role that was removed in the meantime gives nothing.
        let own = grants.roles.iter();
        let own: Vec<Roles> = own
            .filter_map(|text| Roles::parse(text, &self.custom_roles).ok())
            .collect();
        let roles = roles.joined(named.map(Group::roles).chain(&own));
        let is_on = |ldap: &Arc<LdapSettings>| ldap.authorization_enabled;
        if !self.external.ldap.as_ref().is_some_and(is_on) {
            return roles;
        }
        let groups = self.groups.values().filter(|group| {
            let reference = group.ldap_group_ref();
            !reference.is_empty() && grants.directory_groups.contains(&normal_dn(reference))
        });
        roles.joined(groups.map(Group::roles))
    }

    /// Returns the names of the groups that stand for groups of the directory among these grants.
    pub fn groups_of_grants<'s>(
        &'s self,
        grants: &'s ExternalGrants,
    ) -> impl Iterator<Item = &'s str> {
        let groups = self.groups().filter(|(_, group)| {
            let reference = group.ldap_group_ref();
            !reference.is_empty() && grants.directory_groups.contains(&normal_dn(reference))
        });
        groups.map(|(name, _)| name)
    }
}

fn guard_external(store: &UserStore, name: &str, by: Privileges) -> Result<(), AuthError> {
    guard(&store.external.roles_of(name, &store.groups), by)
}

/// Checks the name of an external user: authorities have other rules than local users, so only what would confuse readers of logs
/// is refused.
fn check_external_name(name: &str) -> Result<(), AuthError> {
    let problem = if name.is_empty() {
        UserNameProblem::Empty
    } else if name.len() > USER_NAME_BYTES_MAX {
        UserNameProblem::TooLong(USER_NAME_BYTES_MAX)
    } else if let Some(control) = name.chars().find(|c| c.is_control()) {
        UserNameProblem::Forbidden(control)
    } else if name.starts_with(EXTERNAL_PREFIX) {
        UserNameProblem::Forbidden(EXTERNAL_PREFIX)
    } else {
        return Ok(());
    };
    Err(AuthError::BadName(problem))
}
