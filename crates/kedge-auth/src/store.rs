//! Users, the credentials of their passwords, and their roles.
//!
//! Invariants:
//! * Every user has a valid name and one credential per SCRAM mechanism.
//! * The verified-password cache has a user's present password or nothing: every change takes `&mut self`, and replaces
//!   or forgets the user's entry before it returns.

use std::collections::{BTreeMap, BTreeSet};

use subtle::Choice;
use zeroize::Zeroizing;

use crate::audit_settings::AuditSettings;
use crate::cache::VerifiedCache;
use crate::client::check_password;
use crate::credential::{Credential, Credentials, FallbackKey};
use crate::custom_role::CustomRoles;
use crate::error::{AuthError, UserNameProblem};
use crate::external::{EXTERNAL_PREFIX, ExternalUsers};
use crate::group::Group;
use crate::hash::Hash;
use crate::limits::{
    DISPLAY_NAME_BYTES_MAX, ITERATIONS_DEFAULT, ITERATIONS_MAX, ITERATIONS_MIN, PASSWORD_BYTES_MAX,
    USER_NAME_BYTES_MAX, USERS_MAX,
};
use crate::names::check_text;
use crate::password_hash::{HashCost, PasswordHash};
use crate::policy::PasswordPolicy;
use crate::privilege::Privilege;
use crate::random::random_bytes;
use crate::roles::Roles;
use crate::shared::UsersRevision;

/// Characters that a user name must not contain, as in Couchbase's documentation of user names.
const FORBIDDEN_IN_NAMES: &str = "()<>@,;:\\\"/[]?={}";

/// One user.
#[derive(Debug, Clone)]
pub struct User {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) roles: Roles,
    pub(crate) groups: BTreeSet<String>,
    pub(crate) password_change_date_s: u64,
    pub(crate) credentials: Credentials,
    /// The hash against which the password itself is checked; `None` for a password that was set by an earlier release or
    /// on another node, until it is proven here.
    pub(crate) password_hash: Option<PasswordHash>,
}

impl User {
    /// Returns the login name.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

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

    /// Returns the time of the last change of the password, in seconds since 1970 (UTC).
    #[must_use]
    pub const fn password_change_date_s(&self) -> u64 {
        self.password_change_date_s
    }

    /// Returns bytes that are others for each password that is set, even for the same one.
    #[must_use]
    pub fn password_mark(&self) -> &[u8] {
        &self.credentials.sha512.salt
    }
}

/// All users of a server.
///
/// Reads and verifications take `&self` and may run on many threads at once. A clone shares nothing, so a store can be
/// replaced as a whole as well as locked.
#[derive(Debug, Clone)]
pub struct UserStore {
    pub(crate) users: BTreeMap<String, User>,
    pub(crate) groups: BTreeMap<String, Group>,
    pub(crate) custom_roles: CustomRoles,
    pub(crate) external: ExternalUsers,
    pub(crate) fallback_salt_key: FallbackKey,
    pub(crate) iterations: u32,
    /// The policy of passwords, once one was set.
    pub(crate) password_policy: Option<PasswordPolicy>,
    /// The settings of the audit log, once some were made.
    pub(crate) audit: Option<AuditSettings>,
    /// The cluster that shares these users.
    pub(crate) shared: Option<UsersRevision>,
    /// The cost of new password hashes. A setting of the server, and not stored.
    pub(crate) hash_cost: HashCost,
    pub(crate) verified: VerifiedCache,
}

/// A hash of a password that a login has proven, for a user that has none of the present cost.
#[derive(Debug, Clone)]
pub struct HashUpgrade {
    id: String,
    /// The salt of the credential that the password fits: another password has another one.
    salt: Vec<u8>,
    hash: PasswordHash,
}

impl HashUpgrade {
    /// Returns the user's name.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }
}

impl UserStore {
    /// Creates an empty store with a new fallback salt key, [`ITERATIONS_DEFAULT`] and [`HashCost::DEFAULT`].
    ///
    /// # Errors
    /// [`AuthError::NoRandomness`].
    pub fn new() -> Result<Self, AuthError> {
        Ok(Self {
            users: BTreeMap::new(),
            groups: BTreeMap::new(),
            custom_roles: CustomRoles::new(),
            external: ExternalUsers::default(),
            fallback_salt_key: Zeroizing::new(random_bytes()?),
            iterations: ITERATIONS_DEFAULT,
            password_policy: None,
            audit: None,
            shared: None,
            hash_cost: HashCost::DEFAULT,
            verified: VerifiedCache::new()?,
        })
    }

    /// Returns the policy of passwords; `None` if none was set.
    #[must_use]
    pub const fn password_policy(&self) -> Option<&PasswordPolicy> {
        self.password_policy.as_ref()
    }

    /// Sets the policy of passwords that are set from now on.
    pub fn set_password_policy(&mut self, policy: PasswordPolicy) {
        self.password_policy = Some(policy);
    }

    /// Returns the settings of the audit log; `None` if none were made.
    #[must_use]
    pub const fn audit_settings(&self) -> Option<&AuditSettings> {
        self.audit.as_ref()
    }

    /// Sets the settings of the audit log.
    pub fn set_audit_settings(&mut self, settings: AuditSettings) {
        self.audit = Some(settings);
    }

    /// Returns whether there is anything external: users, or settings of a directory or of tokens.
    #[must_use]
    pub fn has_external(&self) -> bool {
        !self.external.is_empty()
    }

    /// Returns the PBKDF2 iterations of passwords that are set from now on.
    #[must_use]
    pub const fn iterations(&self) -> u32 {
        self.iterations
    }

    /// Sets the PBKDF2 iterations of passwords that are set from now on.
    ///
    /// Existing passwords keep their count, and missing users show the new one: set it before the first user, or set
    /// all passwords again, lest the counts distinguish them.
    ///
    /// # Errors
    /// [`AuthError::BadIterations`] outside [`ITERATIONS_MIN`]`..=`[`ITERATIONS_MAX`].
    pub fn set_iterations(&mut self, iterations: u32) -> Result<(), AuthError> {
        if !(ITERATIONS_MIN..=ITERATIONS_MAX).contains(&iterations) {
            return Err(AuthError::BadIterations(iterations));
        }
        self.iterations = iterations;
        Ok(())
    }

    /// Returns the cost of password hashes that are computed from now on.
    #[must_use]
    pub const fn hash_cost(&self) -> HashCost {
        self.hash_cost
    }

    /// Sets the cost of password hashes that are computed from now on. Existing ones are replaced at the users' next logins:
    /// see [`Self::hash_upgrade`].
    pub fn set_hash_cost(&mut self, cost: HashCost) {
        self.hash_cost = cost;
    }

    /// Adds a user with an empty display name. Costs three PBKDF2 and one argon2id.
    ///
    /// `now_s` is the time in seconds since 1970 (UTC).
    ///
    /// # Errors
    /// [`AuthError::BadName`], [`AuthError::BadPassword`], [`AuthError::UserExists`], [`AuthError::TooManyUsers`],
    /// [`AuthError::NoRandomness`], [`AuthError::NoMemoryForHash`]. After an error the store is unchanged.
    pub fn add(
        &mut self,
        id: &str,
        password: &str,
        roles: Roles,
        now_s: u64,
    ) -> Result<(), AuthError> {
        check_name(id)?;
        if id.starts_with(EXTERNAL_PREFIX) {
            return Err(AuthError::BadName(UserNameProblem::Forbidden(
                EXTERNAL_PREFIX,
            )));
        }
        check_password(password)?;
        if self.exists(id) {
            return Err(AuthError::UserExists(id.to_owned()));
        }
        if self.users.len() >= USERS_MAX {
            return Err(AuthError::TooManyUsers);
        }
        let user = User {
            id: id.to_owned(),
            name: String::new(),
            roles: roles.resolved(&self.custom_roles)?,
            groups: BTreeSet::new(),
            password_change_date_s: now_s,
            credentials: Credentials::derive(password.as_bytes(), self.iterations)?,
            password_hash: Some(PasswordHash::derive(password.as_bytes(), self.hash_cost)?),
        };
        self.users.insert(id.to_owned(), user);
        self.remember(id, password);
        Ok(())
    }

    /// Sets a user's password. Costs three PBKDF2 and one argon2id.
    ///
    /// `now_s` is the time in seconds since 1970 (UTC). Logins in progress end with the password with which they began.
    ///
    /// # Errors
    /// [`AuthError::UnknownUser`], [`AuthError::BadPassword`], [`AuthError::NoRandomness`], [`AuthError::NoMemoryForHash`]. After
    /// an error the store is unchanged.
    pub fn set_password(&mut self, id: &str, password: &str, now_s: u64) -> Result<(), AuthError> {
        check_password(password)?;
        let (iterations, cost) = (self.iterations, self.hash_cost);
        let user = self.user_mut(id)?;
        let credentials = Credentials::derive(password.as_bytes(), iterations)?;
        user.password_hash = Some(PasswordHash::derive(password.as_bytes(), cost)?);
        user.credentials = credentials;
        user.password_change_date_s = now_s;
        self.remember(id, password);
        Ok(())
    }

    /// Replaces a user's own roles.
    ///
    /// # Errors
    /// [`AuthError::UnknownUser`]; [`AuthError::UnknownRole`] for a defined role that is not any more.
    pub fn set_roles(&mut self, id: &str, roles: Roles) -> Result<(), AuthError> {
        let roles = roles.resolved(&self.custom_roles)?;
        self.user_mut(id)?.roles = roles;
        Ok(())
    }

    /// Sets the display name; it may be empty.
    ///
    /// # Errors
    /// [`AuthError::UnknownUser`]; [`AuthError::BadDisplayName`] if it is longer than [`DISPLAY_NAME_BYTES_MAX`] or contains
    /// control characters.
    pub fn set_display_name(&mut self, id: &str, name: &str) -> Result<(), AuthError> {
        check_display_name(name)?;
        self.user_mut(id)?.name = name.to_owned();
        Ok(())
    }

    /// Removes a user.
    ///
    /// # Errors
    /// [`AuthError::UnknownUser`].
    pub fn remove(&mut self, id: &str) -> Result<(), AuthError> {
        self.users
            .remove(id)
            .ok_or_else(|| AuthError::UnknownUser(id.to_owned()))?;
        self.verified.forget(id);
        Ok(())
    }

    /// Returns the user with this name.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<&User> {
        self.users.get(id)
    }

    /// Returns whether a user with this name exists.
    #[must_use]
    pub fn exists(&self, id: &str) -> bool {
        self.users.contains_key(id)
    }

    /// Iterates over all users, ordered by name.
    pub fn list(&self) -> impl ExactSizeIterator<Item = &User> {
        self.users.values()
    }

    /// Returns the number of users.
    #[must_use]
    pub fn len(&self) -> usize {
        self.users.len()
    }

    /// Returns whether there is no user.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// Returns whether a user exists and has a privilege; see [`Roles::allows`].
    #[must_use]
    pub fn allows(&self, id: &str, privilege: Privilege, bucket: Option<&str>) -> bool {
        self.roles_of(id).allows(privilege, bucket)
    }

    /// Returns whether this is the user's password.
    ///
    /// Costs one argon2id (tens of milliseconds: too long for an event loop with other connections), whether or not the user
    /// exists, unless this password was verified before. While any user has no argon2id hash, it costs one PBKDF2 more,
    /// so that the duration does not distinguish these users.
    #[must_use]
    pub fn verify_password(&self, id: &str, password: &[u8]) -> bool {
        if password.len() > PASSWORD_BYTES_MAX {
            return false;
        }
        let tag = self.verified.tag(id, password);
        if self.verified.holds(id, &tag) {
            return true;
        }
        let verified = bool::from(self.fits_password(id, password));
        if verified {
            self.verified.insert(id, tag);
        }
        verified
    }

    fn fits_password(&self, id: &str, password: &[u8]) -> Choice {
        let fallback = PasswordHash::fallback(&self.fallback_salt_key, id, self.hash_cost);
        let own = self
            .users
            .get(id)
            .and_then(|user| user.password_hash.as_ref());
        let fits_hash = own.unwrap_or(&fallback).fits_password(password);
        let (user_known, credential) = self.credential_or_fallback(id, Hash::Sha512);
        let all_hashed = self.users.values().all(|user| user.password_hash.is_some());
        if all_hashed {
            return fits_hash & user_known;
        }
        let fits_keys = credential.fits_password(password);
        match own {
            Some(_) => fits_hash & user_known,
            None => fits_keys & user_known,
        }
    }

    /// Returns the hash of a password that was verified, if the user has none of the present cost. Costs one argon2id then.
    #[must_use]
    pub fn hash_upgrade(&self, id: &str, password: &[u8]) -> Option<HashUpgrade> {
        let user = self.users.get(id)?;
        let hash = user.password_hash.as_ref();
        if hash.is_some_and(|hash| hash.cost() == self.hash_cost) {
            return None;
        }
        // Without memory or randomness it is tried again at a later login.
        let hash = PasswordHash::derive(password, self.hash_cost).ok()?;
        Some(HashUpgrade {
            id: id.to_owned(),
            salt: user.credentials.sha512.salt.clone(),
            hash,
        })
    }

    /// Sets the hash of an upgrade. Returns false if the user was removed or has another password by now.
    pub fn apply_upgrade(&mut self, upgrade: HashUpgrade) -> bool {
        let user = self.users.get_mut(&upgrade.id);
        let user = user.filter(|user| user.credentials.sha512.salt == upgrade.salt);
        user.is_some_and(|user| {
            user.password_hash = Some(upgrade.hash);
            true
        })
    }

    /// Takes over the hash cost, and the hashes of users who have none and the same password, from the store that this one
    /// replaces. The users that a cluster shares come without hashes.
    pub fn keep_hashes(&mut self, before: &Self) {
        self.hash_cost = before.hash_cost;
        for (id, user) in &mut self.users {
            let known = before.users.get(id);
            if let Some(known) = known.filter(|_| user.password_hash.is_none())
                && known.credentials.sha512.salt == user.credentials.sha512.salt
            {
                user.password_hash.clone_from(&known.password_hash);
            }
        }
    }

    /// Returns whether this password of the user was verified or set before, so that [`Self::verify_password`] would be
    /// quick. Costs one HMAC.
    ///
    /// A false result says nothing about the password.
    #[must_use]
    pub fn is_verified(&self, id: &str, password: &[u8]) -> bool {
        password.len() <= PASSWORD_BYTES_MAX
            && self.verified.holds(id, &self.verified.tag(id, password))
    }

    /// Takes over the verified passwords of the store of which this one is a changed copy. Users whose passwords were
    /// changed are left out.
    pub fn keep_verified(&self, before: &Self) {
        self.verified.take_over(&before.verified, |id| {
            let salt = |store: &Self| {
                let user = store.users.get(id);
                user.map(|user| user.credentials.sha512.salt.clone())
            };
            // Each password that is set has a salt of its own.
            let now = salt(self);
            now.is_some() && now == salt(before)
        });
    }

    fn remember(&self, id: &str, password: &str) {
        let tag = self.verified.tag(id, password.as_bytes());
        self.verified.insert(id, tag);
    }

    /// Returns a user's credential, or a replacement for a missing user. The caller must refuse the latter at the end,
    /// and only there.
    pub(crate) fn credential_or_fallback(&self, id: &str, hash: Hash) -> (Choice, Credential) {
        // Made in either case, so that the duration reveals nothing.
        let fallback = Credential::fallback(hash, &self.fallback_salt_key, id, self.iterations);
        // Such a name is that of an external user. An earlier release may have stored a local one.
        let user = self
            .users
            .get(id)
            .filter(|_| !id.starts_with(EXTERNAL_PREFIX));
        match user {
            Some(user) => (Choice::from(1), user.credentials.for_hash(hash).clone()),
            None => (Choice::from(0), fallback),
        }
    }

    pub(crate) fn user_mut(&mut self, id: &str) -> Result<&mut User, AuthError> {
        self.users
            .get_mut(id)
            .ok_or_else(|| AuthError::UnknownUser(id.to_owned()))
    }
}

/// Returns whether a user can have this name.
#[must_use]
pub fn is_user_name(id: &str) -> bool {
    check_name(id).is_ok()
}

pub(crate) fn check_name(id: &str) -> Result<(), AuthError> {
    let forbidden = |c: char| c.is_control() || FORBIDDEN_IN_NAMES.contains(c);
    if id.is_empty() {
        return Err(AuthError::BadName(UserNameProblem::Empty));
    }
    if id.len() > USER_NAME_BYTES_MAX {
        return Err(AuthError::BadName(UserNameProblem::TooLong(
            USER_NAME_BYTES_MAX,
        )));
    }
    id.chars().find(|&c| forbidden(c)).map_or(Ok(()), |c| {
        Err(AuthError::BadName(UserNameProblem::Forbidden(c)))
    })
}

pub(crate) fn check_display_name(name: &str) -> Result<(), AuthError> {
    check_text(name, DISPLAY_NAME_BYTES_MAX).map_err(AuthError::BadDisplayName)
}
