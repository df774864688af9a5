//! Users, what is kept of their passwords, and their roles.
//!
//! Invariants:
//! * Every user has a valid name and one credential per SCRAM mechanism.
//! * The verified-password cache holds a user's present password or nothing: every change takes
//!   `&mut self` and replaces or forgets what is held of the user before it returns.

use std::collections::{BTreeMap, BTreeSet};

use subtle::Choice;
use zeroize::Zeroizing;

use crate::cache::VerifiedCache;
use crate::client::check_password;
use crate::credential::{Credential, Credentials, FallbackKey};
use crate::error::{Error, NameProblem};
use crate::group::Group;
use crate::hash::Hash;
use crate::limits::{
    DISPLAY_NAME_BYTES_MAX, ITERATIONS_DEFAULT, ITERATIONS_MAX, ITERATIONS_MIN, PASSWORD_BYTES_MAX,
    USER_NAME_BYTES_MAX, USERS_MAX,
};
use crate::privilege::Privilege;
use crate::random::random_bytes;
use crate::roles::Roles;

/// Characters that a user name must not hold, as in Couchbase's documentation of user names.
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
}

impl User {
    /// The name to log in with.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The name to show, which may be empty.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The user's own roles; see [`UserStore::roles_of`] for all.
    #[must_use]
    pub const fn roles(&self) -> &Roles {
        &self.roles
    }

    /// Names of the groups that the user is in.
    pub fn groups(&self) -> impl ExactSizeIterator<Item = &str> {
        self.groups.iter().map(String::as_str)
    }

    /// When the password was last set, in seconds since 1970 (UTC).
    #[must_use]
    pub const fn password_change_date_s(&self) -> u64 {
        self.password_change_date_s
    }
}

/// All users of a server.
///
/// Reading and verifying take `&self` and may run on many threads at once. A clone shares nothing,
/// so a store can be replaced as a whole as well as locked.
#[derive(Debug, Clone)]
pub struct UserStore {
    pub(crate) users: BTreeMap<String, User>,
    pub(crate) groups: BTreeMap<String, Group>,
    pub(crate) fallback_salt_key: FallbackKey,
    pub(crate) iterations: u32,
    pub(crate) verified: VerifiedCache,
}

impl UserStore {
    /// An empty store with a new fallback salt key and [`ITERATIONS_DEFAULT`].
    ///
    /// # Errors
    /// [`Error::NoRandomness`].
    pub fn new() -> Result<Self, Error> {
        Ok(Self {
            users: BTreeMap::new(),
            groups: BTreeMap::new(),
            fallback_salt_key: Zeroizing::new(random_bytes()?),
            iterations: ITERATIONS_DEFAULT,
            verified: VerifiedCache::new()?,
        })
    }

    /// PBKDF2 iterations of passwords that are set from now on.
    #[must_use]
    pub const fn iterations(&self) -> u32 {
        self.iterations
    }

    /// Sets the PBKDF2 iterations of passwords that are set from now on.
    ///
    /// Passwords that are already there keep theirs, and users that do not exist show the new count:
    /// set it before the first user, or set all passwords anew, lest the counts tell them apart.
    ///
    /// # Errors
    /// [`Error::BadIterations`] outside [`ITERATIONS_MIN`]`..=`[`ITERATIONS_MAX`].
    pub fn set_iterations(&mut self, iterations: u32) -> Result<(), Error> {
        if !(ITERATIONS_MIN..=ITERATIONS_MAX).contains(&iterations) {
            return Err(Error::BadIterations(iterations));
        }
        self.iterations = iterations;
        Ok(())
    }

    /// Adds a user with an empty display name. Costs three PBKDF2.
    ///
    /// `now_s` is the time in seconds since 1970 (UTC).
    ///
    /// # Errors
    /// [`Error::BadName`], [`Error::BadPassword`], [`Error::UserExists`], [`Error::TooManyUsers`],
    /// [`Error::NoRandomness`]. The store is unchanged then.
    pub fn add(&mut self, id: &str, password: &str, roles: Roles, now_s: u64) -> Result<(), Error> {
        check_name(id)?;
        check_password(password)?;
        if self.exists(id) {
            return Err(Error::UserExists(id.to_owned()));
        }
        if self.users.len() >= USERS_MAX {
            return Err(Error::TooManyUsers);
        }
        let user = User {
            id: id.to_owned(),
            name: String::new(),
            roles,
            groups: BTreeSet::new(),
            password_change_date_s: now_s,
            credentials: Credentials::derive(password.as_bytes(), self.iterations)?,
        };
        self.users.insert(id.to_owned(), user);
        self.remember(id, password);
        Ok(())
    }

    /// Sets a user's password. Costs three PBKDF2.
    ///
    /// `now_s` is the time in seconds since 1970 (UTC). Logins that are under way end with the
    /// password they began with.
    ///
    /// # Errors
    /// [`Error::UnknownUser`], [`Error::BadPassword`], [`Error::NoRandomness`]. The store is
    /// unchanged then.
    pub fn set_password(&mut self, id: &str, password: &str, now_s: u64) -> Result<(), Error> {
        check_password(password)?;
        let iterations = self.iterations;
        let user = self.user_mut(id)?;
        user.credentials = Credentials::derive(password.as_bytes(), iterations)?;
        user.password_change_date_s = now_s;
        self.remember(id, password);
        Ok(())
    }

    /// Replaces a user's own roles.
    ///
    /// # Errors
    /// [`Error::UnknownUser`].
    pub fn set_roles(&mut self, id: &str, roles: Roles) -> Result<(), Error> {
        self.user_mut(id)?.roles = roles;
        Ok(())
    }

    /// Sets the name to show; an empty one is allowed.
    ///
    /// # Errors
    /// [`Error::UnknownUser`]; [`Error::BadDisplayName`] if it is longer than
    /// [`DISPLAY_NAME_BYTES_MAX`] or holds control characters.
    pub fn set_display_name(&mut self, id: &str, name: &str) -> Result<(), Error> {
        check_display_name(name)?;
        self.user_mut(id)?.name = name.to_owned();
        Ok(())
    }

    /// Removes a user.
    ///
    /// # Errors
    /// [`Error::UnknownUser`].
    pub fn remove(&mut self, id: &str) -> Result<(), Error> {
        self.users
            .remove(id)
            .ok_or_else(|| Error::UnknownUser(id.to_owned()))?;
        self.verified.forget(id);
        Ok(())
    }

    /// The user of this name.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<&User> {
        self.users.get(id)
    }

    /// Whether there is a user of this name.
    #[must_use]
    pub fn exists(&self, id: &str) -> bool {
        self.users.contains_key(id)
    }

    /// All users, ordered by name.
    pub fn list(&self) -> impl ExactSizeIterator<Item = &User> {
        self.users.values()
    }

    /// Number of users.
    #[must_use]
    pub fn len(&self) -> usize {
        self.users.len()
    }

    /// Whether there is no user at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// Whether a user exists and may do something; see [`Roles::allows`].
    #[must_use]
    pub fn allows(&self, id: &str, privilege: Privilege, bucket: Option<&str>) -> bool {
        self.roles_of(id).allows(privilege, bucket)
    }

    /// Whether this is the user's password.
    ///
    /// Costs one PBKDF2 (milliseconds: not for an event loop that others wait for), whether or not
    /// the user exists, unless just this password was verified before.
    #[must_use]
    pub fn verify_password(&self, id: &str, password: &[u8]) -> bool {
        if password.len() > PASSWORD_BYTES_MAX {
            return false;
        }
        let tag = self.verified.tag(id, password);
        if self.verified.holds(id, &tag) {
            return true;
        }
        let (user_known, credential) = self.credential_or_fallback(id, Hash::Sha512);
        let verified = bool::from(credential.fits_password(password) & user_known);
        if verified {
            self.verified.insert(id, tag);
        }
        verified
    }

    /// Returns whether just this password of the user was verified or set before, so that [`Self::verify_password`] would be
    /// quick. Costs one HMAC.
    ///
    /// False says nothing about the password.
    #[must_use]
    pub fn is_verified(&self, id: &str, password: &[u8]) -> bool {
        password.len() <= PASSWORD_BYTES_MAX
            && self.verified.holds(id, &self.verified.tag(id, password))
    }

    /// Takes over which passwords were verified in the store that this one is a changed copy of. Users whose passwords
    /// were changed are left out.
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

    /// A user's credential, or what stands in for it. The caller must refuse the latter at the end,
    /// and only there.
    pub(crate) fn credential_or_fallback(&self, id: &str, hash: Hash) -> (Choice, Credential) {
        // Made in either case: the time must not tell.
        let fallback = Credential::fallback(hash, &self.fallback_salt_key, id, self.iterations);
        match self.users.get(id) {
            Some(user) => (Choice::from(1), user.credentials.for_hash(hash).clone()),
            None => (Choice::from(0), fallback),
        }
    }

    pub(crate) fn user_mut(&mut self, id: &str) -> Result<&mut User, Error> {
        self.users
            .get_mut(id)
            .ok_or_else(|| Error::UnknownUser(id.to_owned()))
    }
}

pub(crate) fn check_name(id: &str) -> Result<(), Error> {
    let forbidden = |c: char| c.is_control() || FORBIDDEN_IN_NAMES.contains(c);
    if id.is_empty() {
        return Err(Error::BadName(NameProblem::Empty));
    }
    if id.len() > USER_NAME_BYTES_MAX {
        return Err(Error::BadName(NameProblem::TooLong(USER_NAME_BYTES_MAX)));
    }
    id.chars()
        .find(|&c| forbidden(c))
        .map_or(Ok(()), |c| Err(Error::BadName(NameProblem::Forbidden(c))))
}

pub(crate) fn check_display_name(name: &str) -> Result<(), Error> {
    check_text(name, DISPLAY_NAME_BYTES_MAX).map_err(Error::BadDisplayName)
}

/// Text to show: of any characters but those that control terminals.
pub(crate) fn check_text(text: &str, bytes_max: usize) -> Result<(), NameProblem> {
    if text.len() > bytes_max {
        return Err(NameProblem::TooLong(bytes_max));
    }
    let control = text.chars().find(|c| c.is_control());
    control.map_or(Ok(()), |c| Err(NameProblem::Forbidden(c)))
}
