//! Groups, which give their roles to their members, and changes of users and groups by an administrator.
//!
//! Invariants:
//! * A user's groups exist: the removal of a group removes it from its users.
//! * A user's rights are computed from the user and the groups when they are needed; nothing is copied.
//! * Only a full administrator changes users and groups that can grant rights to others.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use zeroize::Zeroizing;

use crate::error::AuthError;
use crate::external::external_name;
use crate::limits::{DISPLAY_NAME_BYTES_MAX, GROUPS_MAX, GROUPS_PER_USER_MAX};
use crate::names::{check_group_name, check_text, check_unreserved};
use crate::privilege::{Privilege, Privileges};
use crate::roles::Roles;
use crate::store::{User, UserStore};

/// Named roles that users can share.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Group {
    pub(crate) description: String,
    pub(crate) roles: Roles,
    pub(crate) ldap_group_ref: String,
}

impl Group {
    /// Returns the description; may be empty.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Returns the roles of the members.
    #[must_use]
    pub const fn roles(&self) -> &Roles {
        &self.roles
    }

    /// Returns the name of the group of a directory that this group stands for: see [`UserStore::roles_of_login`].
    #[must_use]
    pub fn ldap_group_ref(&self) -> &str {
        &self.ldap_group_ref
    }
}

/// A change of a user. A field that is `None` stays, or has its default for a new user.
#[derive(Clone, Default)]
pub struct UserChange {
    /// The password.
    pub password: Option<Zeroizing<String>>,
    /// The display name.
    pub name: Option<String>,
    /// The user's own roles.
    pub roles: Option<Roles>,
    /// Names of the groups that the user is in.
    pub groups: Option<Vec<String>>,
}

impl fmt::Debug for UserChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserChange")
            .field("name", &self.name)
            .field("roles", &self.roles)
            .field("groups", &self.groups)
            .finish_non_exhaustive()
    }
}

/// A change of a group. A field that is `None` stays, or is empty for a new group.
#[derive(Debug, Clone, Default)]
pub struct GroupChange {
    /// The description.
    pub description: Option<String>,
    /// The roles of the members.
    pub roles: Option<Roles>,
    /// The group of a directory that this group stands for.
    pub ldap_group_ref: Option<String>,
}

impl UserStore {
    /// Returns the group with this name.
    #[must_use]
    pub fn group(&self, name: &str) -> Option<&Group> {
        self.groups.get(name)
    }

    /// Iterates over all groups with their names, in order of the names.
    pub fn groups(&self) -> impl ExactSizeIterator<Item = (&str, &Group)> {
        self.groups.iter().map(|(name, group)| (&**name, group))
    }

    /// Returns the user's roles: the user's own ones, and those of the groups. Empty for a user that does not exist. For an
    /// external user, these are the ones that an administrator gave to its name.
    #[must_use]
    pub fn roles_of(&self, id: &str) -> Roles {
        if let Some(name) = external_name(id) {
            return self.external.roles_of(name, &self.groups);
        }
        self.get(id)
            .map(|user| all_roles(self, user))
            .unwrap_or_default()
    }

    /// Creates or changes a user, whose name must not be reserved. A new user needs a password. Costs three PBKDF2 and one
    /// argon2id if a password is given.
    ///
    /// `by` are the privileges on the node of the maker of the change; `now_s` is in seconds since 1970 (UTC).
    ///
    /// # Errors
    /// [`AuthError::BadName`], [`AuthError::ReservedName`], [`AuthError::BadPassword`], [`AuthError::BadDisplayName`],
    /// [`AuthError::TooManyUsers`], [`AuthError::UnknownGroup`], [`AuthError::TooManyGroups`], [`AuthError::NoRandomness`];
    /// [`AuthError::Guarded`] when someone other than a full administrator grants, changes or revokes rights to grant
    /// rights. After an error the store may be partly changed: it is a copy that the caller discards.
    pub fn set_user(
        &mut self,
        id: &str,
        change: &UserChange,
        by: Privileges,
        now_s: u64,
    ) -> Result<(), AuthError> {
        check_unreserved(id)?;
        guard_user(self, id, by)?;
        let groups = match &change.groups {
            Some(groups) => Some(known_groups(&self.groups, groups)?),
            None => None,
        };
        if self.exists(id) {
            if let Some(password) = &change.password {
                self.set_password(id, password, now_s)?;
            }
        } else {
            // Without a password this rejects the empty one, by name.
            let password = change.password.as_ref();
            let password = password.map(|text| text.as_str()).unwrap_or_default();
            self.add(id, password, Roles::default(), now_s)?;
        }
        if let Some(name) = &change.name {
            self.set_display_name(id, name)?;
        }
        if let Some(roles) = &change.roles {
            self.set_roles(id, roles.clone())?;
        }
        if let Some(groups) = groups {
            self.user_mut(id)?.groups = groups;
        }
        guard_user(self, id, by)
    }

    /// Sets a user's own password, as [`UserStore::set_password`] does.
    ///
    /// # Errors
    /// [`AuthError::ReservedName`], and those of [`UserStore::set_password`].
    pub fn set_own_password(
        &mut self,
        id: &str,
        password: &str,
        now_s: u64,
    ) -> Result<(), AuthError> {
        check_unreserved(id)?;
        self.set_password(id, password, now_s)
    }

    /// Removes a user as [`UserStore::remove`] does; see [`Self::set_user`] for `by`.
    ///
    /// # Errors
    /// [`AuthError::ReservedName`], [`AuthError::UnknownUser`], [`AuthError::Guarded`].
    pub fn remove_user(&mut self, id: &str, by: Privileges) -> Result<(), AuthError> {
        check_unreserved(id)?;
        guard_user(self, id, by)?;
        self.remove(id)
    }

    /// Creates or changes a group; see [`Self::set_user`] for `by`.
    ///
    /// # Errors
    /// [`AuthError::BadGroupName`], [`AuthError::ReservedName`], [`AuthError::BadDescription`], [`AuthError::TooManyGroups`],
    /// [`AuthError::Guarded`]. After an error the store may be partly changed.
    pub fn set_group(
        &mut self,
        name: &str,
        change: &GroupChange,
        by: Privileges,
    ) -> Result<(), AuthError> {
        check_group_name(name)?;
        check_unreserved(name)?;
        guard_group(self, name, by)?;
        for text in [&change.description, &change.ldap_group_ref]
            .into_iter()
            .flatten()
        {
            check_text(text, DISPLAY_NAME_BYTES_MAX).map_err(AuthError::BadDescription)?;
        }
        if self.groups.len() >= GROUPS_MAX && !self.groups.contains_key(name) {
            return Err(AuthError::TooManyGroups);
        }
        let roles = change.roles.clone();
        let roles = roles.map(|roles| roles.resolved(&self.custom_roles));
        let roles = roles.transpose()?;
        let group = self.groups.entry(name.to_owned()).or_default();
        if let Some(description) = &change.description {
            group.description.clone_from(description);
        }
        if let Some(roles) = roles {
            group.roles = roles;
        }
        if let Some(reference) = &change.ldap_group_ref {
            group.ldap_group_ref.clone_from(reference);
        }
        guard_group(self, name, by)
    }

    /// Removes a group, also from its users.
    ///
    /// # Errors
    /// [`AuthError::UnknownGroup`], [`AuthError::Guarded`].
    pub fn remove_group(&mut self, name: &str, by: Privileges) -> Result<(), AuthError> {
        guard_group(self, name, by)?;
        let removed = self.groups.remove(name);
        removed.ok_or_else(|| AuthError::UnknownGroup(name.to_owned()))?;
        for user in self.users.values_mut() {
            user.groups.remove(name);
        }
        self.external.forget_group(name);
        Ok(())
    }
}

/// Checks the group names of one user.
pub(crate) fn known_groups(
    groups: &BTreeMap<String, Group>,
    names: &[String],
) -> Result<BTreeSet<String>, AuthError> {
    if let Some(unknown) = names.iter().find(|name| !groups.contains_key(*name)) {
        return Err(AuthError::UnknownGroup(unknown.clone()));
    }
    let names: BTreeSet<String> = names.iter().cloned().collect();
    if names.len() > GROUPS_PER_USER_MAX {
        return Err(AuthError::TooManyGroups);
    }
    Ok(names)
}

fn guard_user(store: &UserStore, id: &str, by: Privileges) -> Result<(), AuthError> {
    guard(&store.roles_of(id), by)
}

fn guard_group(store: &UserStore, name: &str, by: Privileges) -> Result<(), AuthError> {
    match store.groups.get(name) {
        Some(group) => guard(&group.roles, by),
        None => Ok(()),
    }
}

fn all_roles(store: &UserStore, user: &User) -> Roles {
    let groups = user.groups.iter().filter_map(|name| store.groups.get(name));
    user.roles.joined(groups.map(Group::roles))
}

pub(crate) fn guard(roles: &Roles, by: Privileges) -> Result<(), AuthError> {
    if roles.are_guarded() && !by.allow(Privileges::of(&[Privilege::Admin])) {
        return Err(AuthError::Guarded);
    }
    Ok(())
}
