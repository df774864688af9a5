//! External users: the interface to the authority that checks their credentials.
//!
//! The checks of a directory take network round trips. They run on a thread of the authority, and their callers get the outcome by a
//! call on that thread: neither an event loop nor the queue of local password checks waits for a directory.

use std::net::IpAddr;
use std::sync::Arc;

use kedge_auth::{ExternalGrants, LdapSettings};
use thiserror::Error;
use zeroize::Zeroizing;

/// A verified login of an external user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalLogin {
    /// The id: see [`kedge_auth::external_id`].
    pub id: String,
    /// The rights that the authority has shown.
    pub grants: Arc<ExternalGrants>,
}

/// The reason why there is no login.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ExternalRefusal {
    /// The user does not exist or the password is wrong.
    #[error("unknown user or wrong password")]
    BadCredentials,
    /// The token is not valid.
    #[error("the token is not valid")]
    BadToken,
    /// The password is right, and the user has no role.
    #[error("the external user has no role")]
    NoRoles,
    /// Wrong passwords came before, so this one was not checked.
    #[error("too soon after wrong passwords")]
    TooSoon,
    /// Too many logins wait.
    #[error("too many logins of external users wait")]
    Busy,
    /// The authority does not answer, or its answer cannot be used.
    #[error("the authority of external users does not answer")]
    Unavailable,
}

/// A password of an external user that is to be checked.
pub struct PasswordAttempt {
    /// The address of the client.
    pub address: IpAddr,
    /// The name of the user.
    pub user: String,
    /// The password.
    pub password: Zeroizing<Vec<u8>>,
}

/// A token of an external user that is to be checked.
pub struct TokenAttempt {
    /// The address of the client.
    pub address: IpAddr,
    /// The token.
    pub token: Zeroizing<String>,
}

/// The receiver of the outcome of a check; called once.
pub type LoginDone = Box<dyn FnOnce(Result<ExternalLogin, ExternalRefusal>) + Send>;

/// A trial of settings.
pub enum LdapTrial {
    /// Connects to every host, and binds as the entry of the settings.
    Connectivity,
    /// Checks the password of a user.
    Authentication {
        /// The name of the user.
        user: String,
        /// The password.
        password: Zeroizing<Vec<u8>>,
    },
    /// Looks up the groups of a user.
    Groups {
        /// The name of the user.
        user: String,
    },
}

/// The receiver of the outcome of a trial: names of groups, if groups were asked for, or the reason of a failure. Called once.
pub type TrialDone = Box<dyn FnOnce(Result<Vec<String>, String>) + Send>;

/// The authority of external users.
pub trait ExternalAuthority: Send + Sync {
    /// Returns a login that was verified recently with this password. Costs one HMAC.
    fn remembered(&self, user: &str, password: &[u8]) -> Option<ExternalLogin>;

    /// Checks a password, and takes note of the outcome for the delays after wrong ones. Returns at once; `done` may be called before
    /// that.
    fn check(&self, attempt: PasswordAttempt, done: LoginDone);

    /// Checks a token. Returns at once; `done` may be called before that.
    fn check_token(&self, attempt: TokenAttempt, done: LoginDone);

    /// Tries settings that need not be those in use. Returns at once.
    fn try_settings(&self, settings: LdapSettings, trial: LdapTrial, done: TrialDone);

    /// Calls `each` with the name and value of each statistic.
    fn stats(&self, each: &mut dyn FnMut(&str, &str));
}
