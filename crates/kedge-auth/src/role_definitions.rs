//! The roles of a store that administrators have defined.
//!
//! Invariants:
//! * A role that a user, a group or a rule for tokens has stays, and so does its extent. Its privileges may change: users have the new ones at once.
//! * Only a full administrator defines roles.

use std::sync::Arc;

use crate::custom_role::{CustomRole, CustomRoles};
use crate::error::AuthError;
use crate::limits::CUSTOM_ROLES_MAX;
use crate::privilege::{Privilege, Privileges};
use crate::roles::Roles;
use crate::store::UserStore;

impl UserStore {
    /// Returns the defined roles.
    #[must_use]
    pub const fn custom_roles(&self) -> &CustomRoles {
        &self.custom_roles
    }

    /// Defines a role, or changes its definition; see [`Self::set_user`] for `by`.
    ///
    /// # Errors
    /// [`AuthError::Guarded`] for anyone but a full administrator, [`AuthError::TooManyCustomRoles`];
    /// [`AuthError::RoleInUse`] for another extent of a role that a user or group has.
    pub fn set_custom_role(&mut self, role: CustomRole, by: Privileges) -> Result<(), AuthError> {
        guard(by)?;
        match self.custom_roles.get(&role.name) {
            None if self.custom_roles.len() >= CUSTOM_ROLES_MAX => {
                return Err(AuthError::TooManyCustomRoles);
            }
            Some(before) if before.extent != role.extent => check_unused(self, &role.name)?,
            _ => {}
        }
        let role = Arc::new(role);
        self.custom_roles.insert(role.name.clone(), role.clone());
        for roles in all_roles_mut(self) {
            roles.redefine(&role);
        }
        Ok(())
    }

    /// Removes a defined role; see [`Self::set_user`] for `by`.
    ///
    /// # Errors
    /// [`AuthError::Guarded`], [`AuthError::UnknownRole`]; [`AuthError::RoleInUse`] if a user or group has it.
    pub fn remove_custom_role(&mut self, name: &str, by: Privileges) -> Result<(), AuthError> {
        guard(by)?;
        if !self.custom_roles.contains_key(name) {
            return Err(AuthError::UnknownRole(name.to_owned()));
        }
        check_unused(self, name)?;
        self.custom_roles.remove(name);
        Ok(())
    }
}

/// Iterates over the own roles of all users and groups.
fn all_roles_mut(store: &mut UserStore) -> impl Iterator<Item = &mut Roles> {
    let users = store.users.values_mut().map(|user| &mut user.roles);
    let external = store.external.users.values_mut();
    let external = external.map(|user| &mut user.roles);
    let groups = store.groups.values_mut().map(|group| &mut group.roles);
    users.chain(external).chain(groups)
}

/// Checks that no user, no group and no rule for tokens has a role.
fn check_unused(store: &UserStore, name: &str) -> Result<(), AuthError> {
    let has = |roles: &Roles| roles.iter().any(|role| role.name() == name);
    let user = store.users.values().find(|user| has(&user.roles));
    let user = user.map(|user| format!("user {:?}", user.id));
    let mut externals = store.external.users.iter();
    let external = externals.find(|(_, user)| has(user.roles()));
    let user = user.or_else(|| external.map(|(name, _)| format!("external user {name:?}")));
    let mut groups = store.groups.iter();
    let mut group = || groups.find(|(_, group)| has(&group.roles));
    let by = user.or_else(|| group().map(|(name, _)| format!("group {name:?}")));
    let jwt = store.external.jwt.as_deref();
    let issuer = || jwt?.issuer_with_role(name, &store.custom_roles);
    match by.or_else(|| issuer().map(|issuer| format!("a rule for tokens of {issuer:?}"))) {
        None => Ok(()),
        Some(by) => Err(AuthError::RoleInUse {
            role: name.to_owned(),
            by,
        }),
    }
}

fn guard(by: Privileges) -> Result<(), AuthError> {
    match by.allow(Privileges::of(&[Privilege::Admin])) {
        true => Ok(()),
        false => Err(AuthError::Guarded),
    }
}
