//! Groups, which give their roles to the users in them, and changes of users and groups as a manager makes them.
//!
//! Invariants:
//! * A user is in groups that exist: who removes a group takes its users out of it.
//! * What a user may do is worked out from the user and the groups at that moment; nothing is copied.
//! * Who is no full administrator changes nothing about those that can give rights to others.

use std::collections::BTreeSet;

use crate::error::{Error, NameProblem};
use crate::limits::{
    DISPLAY_NAME_BYTES_MAX, GROUPS_MAX, GROUPS_PER_USER_MAX, RESERVED_PREFIX, USER_NAME_BYTES_MAX,
};
use crate::privilege::{Privilege, Privileges};
use crate::roles::Roles;
use crate::store::{User, UserStore, check_text};

/// Roles under a name, which users can share.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Group {
    pub(crate) description: String,
    pub(crate) roles: Roles,
    pub(crate) ldap_group_ref: String,
}

impl Group {
    /// What it is for, in words; may be empty.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.description
    }

    /// What its users may do.
    #[must_use]
    pub const fn roles(&self) -> &Roles {
        &self.roles
    }

    /// The group of a directory that it stands for. It is kept and shown; nothing asks a directory.
    #[must_use]
    pub fn ldap_group_ref(&self) -> &str {
        &self.ldap_group_ref
    }
}

/// What is to become of a user; what is `None` stays, or has its default for a new user.
#[derive(Debug, Clone, Default)]
pub struct UserChange {
    /// The password.
    pub password: Option<String>,
    /// The name to show.
    pub name: Option<String>,
    /// The user's own roles.
    pub roles: Option<Roles>,
    /// Names of the groups that the user is in.
    pub groups: Option<Vec<String>>,
}

/// What is to become of a group; what is `None` stays, or is empty for a new group.
#[derive(Debug, Clone, Default)]
pub struct GroupChange {
    /// What it is for, in words.
    pub description: Option<String>,
    /// What its users may do.
    pub roles: Option<Roles>,
    /// The group of a directory that it stands for.
    pub ldap_group_ref: Option<String>,
}

impl UserStore {
    /// The group of this name.
    #[must_use]
    pub fn group(&self, name: &str) -> Option<&Group> {
        self.groups.get(name)
    }

    /// All groups with their names, in order of those.
    pub fn groups(&self) -> impl ExactSizeIterator<Item = (&str, &Group)> {
        self.groups.iter().map(|(name, group)| (&**name, group))
    }

    /// The user's roles: own ones, and those of the groups. Empty for a user that does not exist.
    #[must_use]
    pub fn roles_of(&self, id: &str) -> Roles {
        self.get(id)
            .map(|user| self.all_roles(user))
            .unwrap_or_default()
    }

    fn all_roles(&self, user: &User) -> Roles {
        let groups = user.groups.iter().filter_map(|name| self.groups.get(name));
        user.roles.joined(groups.map(Group::roles))
    }

    /// Makes or changes a user, whose name is not reserved. A new one needs a password. Costs three PBKDF2 when a password is given.
    ///
    /// `by` is what who makes the change may do to the node; `now_s` seconds since 1970 (UTC).
    ///
    /// # Errors
    /// [`Error::BadName`], [`Error::ReservedName`], [`Error::BadPassword`], [`Error::BadDisplayName`],
    /// [`Error::TooManyUsers`], [`Error::UnknownGroup`], [`Error::TooManyGroups`], [`Error::NoRandomness`]; [`Error::Guarded`] when who is no
    /// full administrator gives, changes or takes rights to give rights. The store may be changed in part then: it is
    /// a copy that is thrown away.
    pub fn set_user(
        &mut self,
        id: &str,
        change: &UserChange,
        by: Privileges,
        now_s: u64,
    ) -> Result<(), Error> {
        check_unreserved(id)?;
        self.guard_user(id, by)?;
        let groups = match &change.groups {
            Some(groups) => Some(self.known_groups(groups)?),
            None => None,
        };
        if self.exists(id) {
            if let Some(password) = &change.password {
                self.set_password(id, password, now_s)?;
            }
        } else {
            // Without a password this refuses the empty one, by name.
            let password = change.password.as_deref().unwrap_or_default();
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
        self.guard_user(id, by)
    }

    /// [`UserStore::set_password`] by the user itself.
    ///
    /// # Errors
    /// [`Error::ReservedName`], and those of [`UserStore::set_password`].
    pub fn set_own_password(&mut self, id: &str, password: &str, now_s: u64) -> Result<(), Error> {
        check_unreserved(id)?;
        self.set_password(id, password, now_s)
    }

    /// [`UserStore::remove`] by someone who may do `by` to the node.
    ///
    /// # Errors
    /// [`Error::ReservedName`], [`Error::UnknownUser`], [`Error::Guarded`].
    pub fn remove_user(&mut self, id: &str, by: Privileges) -> Result<(), Error> {
        check_unreserved(id)?;
        self.guard_user(id, by)?;
        self.remove(id)
    }

    /// Makes or changes a group; see [`Self::set_user`] for `by`.
    ///
    /// # Errors
    /// [`Error::BadGroupName`], [`Error::ReservedName`], [`Error::BadDescription`], [`Error::TooManyGroups`], [`Error::Guarded`]. The store may
    /// be changed in part then.
    pub fn set_group(
        &mut self,
        name: &str,
        change: &GroupChange,
        by: Privileges,
    ) -> Result<(), Error> {
        check_group_name(name)?;
        check_unreserved(name)?;
        self.guard_group(name, by)?;
        for text in [&change.description, &change.ldap_group_ref]
            .into_iter()
            .flatten()
        {
            check_text(text, DISPLAY_NAME_BYTES_MAX).map_err(Error::BadDescription)?;
        }
        if self.groups.len() >= GROUPS_MAX && !self.groups.contains_key(name) {
            return Err(Error::TooManyGroups);
        }
        let group = self.groups.entry(name.to_owned()).or_default();
        if let Some(description) = &change.description {
            group.description.clone_from(description);
        }
        if let Some(roles) = &change.roles {
            group.roles.clone_from(roles);
        }
        if let Some(reference) = &change.ldap_group_ref {
            group.ldap_group_ref.clone_from(reference);
        }
        self.guard_group(name, by)
    }

    /// Removes a group, and takes its users out of it.
    ///
    /// # Errors
    /// [`Error::UnknownGroup`], [`Error::Guarded`].
    pub fn remove_group(&mut self, name: &str, by: Privileges) -> Result<(), Error> {
        self.guard_group(name, by)?;
        let removed = self.groups.remove(name);
        removed.ok_or_else(|| Error::UnknownGroup(name.to_owned()))?;
        for user in self.users.values_mut() {
            user.groups.remove(name);
        }
        Ok(())
    }

    /// The names of groups of one user, checked.
    pub(crate) fn known_groups(&self, names: &[String]) -> Result<BTreeSet<String>, Error> {
        if let Some(unknown) = names.iter().find(|name| !self.groups.contains_key(*name)) {
            return Err(Error::UnknownGroup(unknown.clone()));
        }
        let names: BTreeSet<String> = names.iter().cloned().collect();
        if names.len() > GROUPS_PER_USER_MAX {
            return Err(Error::TooManyGroups);
        }
        Ok(names)
    }

    fn guard_user(&self, id: &str, by: Privileges) -> Result<(), Error> {
        guard(&self.roles_of(id), by)
    }

    fn guard_group(&self, name: &str, by: Privileges) -> Result<(), Error> {
        match self.groups.get(name) {
            Some(group) => guard(&group.roles, by),
            None => Ok(()),
        }
    }
}

/// Returns whether a name of a user or group is the server's own, as that by which nodes of a cluster log in to each other: nobody
/// makes, changes or removes these.
#[must_use]
pub fn is_reserved(name: &str) -> bool {
    name.starts_with(RESERVED_PREFIX)
}

fn check_unreserved(name: &str) -> Result<(), Error> {
    match is_reserved(name) {
        true => Err(Error::ReservedName(name.to_owned())),
        false => Ok(()),
    }
}

fn guard(roles: &Roles, by: Privileges) -> Result<(), Error> {
    if roles.are_guarded() && !by.allow(Privileges::of(&[Privilege::Admin])) {
        return Err(Error::Guarded);
    }
    Ok(())
}

/// Group names are letters, digits, `-`, `_` and `.`, beginning with a letter or digit.
pub(crate) fn check_group_name(name: &str) -> Result<(), Error> {
    let bad = |problem| Err(Error::BadGroupName(problem));
    let Some(first) = name.chars().next() else {
        return bad(NameProblem::Empty);
    };
    if name.len() > USER_NAME_BYTES_MAX {
        return bad(NameProblem::TooLong(USER_NAME_BYTES_MAX));
    }
    if !first.is_alphanumeric() {
        return bad(NameProblem::Forbidden(first));
    }
    let is_fine = |c: char| c.is_alphanumeric() || "-_.".contains(c);
    match name.chars().find(|&c| !is_fine(c)) {
        Some(c) => bad(NameProblem::Forbidden(c)),
        None => Ok(()),
    }
}
