//! Logins with a slow password check: SASL PLAIN.
//!
//! The node's queue of [`PasswordChecks`] runs the check, or a directory does for an external user; the front-end thread gets the
//! result as a message.

use std::net::IpAddr;
use std::sync::{Arc, Weak};

use kedge_auth::{
    LoginFailure, Mechanism, ServerSession, ServerStep, UserStore, plain_credentials, random_nonce,
};
use kedge_bucket::Cookie;
use kedge_node::external::{
    ExternalAuthority, ExternalLogin, ExternalRefusal, LoginDone, PasswordAttempt, TokenAttempt,
};
use kedge_node::password_checks::{CheckTurn, LoginGuard, PasswordChecks};
use kedge_node::users::Users;
use zeroize::Zeroizing;

use crate::cookie::ConnectionId;
use crate::inbox::{FrontEndMessage, FrontEnds, LoginResult};

/// Submits a login of SASL PLAIN; its result comes as a [`FrontEndMessage::LoggedIn`].
pub(crate) fn submit_login(checks: &PasswordChecks, job: LoginJob, front_ends: &Arc<FrontEnds>) {
    let job = match job.ask_authority(checks, front_ends) {
        Ok(()) => return,
        Err(job) => job,
    };
    let user = claimed_user(&job.message);
    let (address, front_ends) = (job.address, Arc::downgrade(front_ends));
    let guard = checks.guard().clone();
    let check = Box::new(move |turn| job.end(turn, &guard, &front_ends));
    checks.submit(address, &user, check);
}

/// The user that a message of PLAIN names (RFC 4616), for the fair order of checks, whether the message is valid or
/// not.
pub(crate) fn claimed_user(message: &[u8]) -> String {
    let user = message.split(|byte| *byte == 0).nth(1).unwrap_or_default();
    let user = &user[..user.len().min(kedge_auth::USER_NAME_BYTES_MAX)];
    String::from_utf8_lossy(user).into_owned()
}

/// A login whose password is to be checked.
pub(crate) struct LoginJob {
    pub(crate) cookie: Cookie,
    pub(crate) address: IpAddr,
    pub(crate) users: Arc<Users>,
    pub(crate) mechanism: Mechanism,
    pub(crate) message: Zeroizing<Vec<u8>>,
}

/// Returns the end of a login by PLAIN of an external user whose password was verified recently.
pub(crate) fn remembered(
    checks: &PasswordChecks,
    users: &UserStore,
    message: &[u8],
) -> Option<LoginResult> {
    let (user, password) = plain_credentials(message)?;
    let login = checks.remembered(users, user, password)?;
    Some(LoginResult::external(Mechanism::Plain, user, Ok(login)))
}

impl LoginResult {
    /// The step of a login of a user of the server.
    pub(crate) fn local(session: ServerSession, step: ServerStep) -> Self {
        Self {
            session,
            step,
            grants: None,
        }
    }

    /// The end of a login whose credentials an authority has checked.
    fn external(
        mechanism: Mechanism,
        user: &str,
        outcome: Result<ExternalLogin, LoginFailure>,
    ) -> Self {
        let (outcome, grants) = match outcome {
            Ok(login) => (Ok(login.id), Some(login.grants)),
            Err(failure) => (Err(failure), None),
        };
        let (session, step) = ServerSession::checked_elsewhere(mechanism, user, outcome);
        Self {
            session,
            step,
            grants,
        }
    }
}

/// A login by a token.
pub(crate) struct TokenJob<'t> {
    pub(crate) cookie: Cookie,
    pub(crate) address: IpAddr,
    pub(crate) token: &'t str,
}

/// Has the authority check a token; the result comes as a [`FrontEndMessage::LoggedIn`].
pub(crate) fn submit_token(
    authority: &dyn ExternalAuthority,
    job: &TokenJob<'_>,
    front_ends: &Arc<FrontEnds>,
) {
    let attempt = TokenAttempt {
        address: job.address,
        token: Zeroizing::new(job.token.to_owned()),
    };
    let done = sender(
        job.cookie,
        Mechanism::OauthBearer,
        String::new(),
        front_ends,
    );
    authority.check_token(attempt, done);
}

/// Returns the receiver of an authority's outcome, which sends it to the thread of the connection.
fn sender(
    cookie: Cookie,
    mechanism: Mechanism,
    user: String,
    front_ends: &Arc<FrontEnds>,
) -> LoginDone {
    let front_ends = Arc::downgrade(front_ends);
    Box::new(move |outcome: Result<ExternalLogin, ExternalRefusal>| {
        let Some(front_ends) = front_ends.upgrade() else {
            return;
        };
        let outcome = match outcome {
            Ok(login) => Some(Ok(login)),
            Err(refusal) => failure_of(refusal).map(Err),
        };
        let login = outcome.map(|it| Box::new(LoginResult::external(mechanism, &user, it)));
        let thread = ConnectionId::of(cookie).0.thread;
        front_ends.send(thread, FrontEndMessage::LoggedIn(cookie, login));
    })
}

/// Returns the failure of a login, or `None` if the credentials were not checked and have to be sent again later.
fn failure_of(refusal: ExternalRefusal) -> Option<LoginFailure> {
    match refusal {
        ExternalRefusal::BadCredentials => Some(LoginFailure::BadCredentials),
        ExternalRefusal::BadToken => Some(LoginFailure::BadToken),
        ExternalRefusal::NoRoles => Some(LoginFailure::NoRoles),
        ExternalRefusal::Unavailable => Some(LoginFailure::Unavailable),
        ExternalRefusal::TooSoon | ExternalRefusal::Busy => None,
    }
}

impl LoginJob {
    /// Has the authority of an external user check the password; returns the job if the user is none.
    fn ask_authority(
        self,
        checks: &PasswordChecks,
        front_ends: &Arc<FrontEnds>,
    ) -> Result<(), Self> {
        let Some((user, password)) = plain_credentials(&self.message) else {
            return Err(self);
        };
        let Some(authority) = checks.authority_of(&self.users.read(), user) else {
            return Err(self);
        };
        let attempt = PasswordAttempt {
            address: self.address,
            user: user.to_owned(),
            password: Zeroizing::new(password.to_vec()),
        };
        let done = sender(self.cookie, self.mechanism, user.to_owned(), front_ends);
        authority.check(attempt, done);
        Ok(())
    }

    fn end(self, turn: CheckTurn, guard: &LoginGuard, front_ends: &Weak<FrontEnds>) {
        let Some(front_ends) = front_ends.upgrade() else {
            return;
        };
        let login = match turn {
            CheckTurn::Come => self.check(guard).map(Box::new),
            CheckTurn::Never => None,
        };
        let thread = ConnectionId::of(self.cookie).0.thread;
        front_ends.send(thread, FrontEndMessage::LoggedIn(self.cookie, login));
    }

    /// Checks the password; `None` if wrong ones were sent while it waited, and it has to be sent again later.
    fn check(&self, guard: &LoginGuard) -> Option<LoginResult> {
        if guard
            .refusal(self.address, &claimed_user(&self.message))
            .is_some()
        {
            return None;
        }
        let users = self.users.read();
        let (session, step) =
            ServerSession::start(&users, self.mechanism, &self.message, random_nonce);
        if matches!(step, ServerStep::Done { .. })
            && let Some((user, password)) = plain_credentials(&self.message)
        {
            self.users.prove(&users, user, password);
        }
        let login = LoginResult::local(session, step);
        note(guard, self.address, &login);
        Some(login)
    }
}

/// Takes note of the outcome of a login, if this step ends it.
pub(crate) fn note(guard: &LoginGuard, address: IpAddr, login: &LoginResult) {
    let user = login.session.claimed_user().unwrap_or_default();
    match (&login.step, login.session.failure()) {
        (ServerStep::Done { .. }, _) => guard.note(address, user, true),
        (ServerStep::Failed, Some(LoginFailure::BadCredentials)) => {
            guard.note(address, user, false);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_of_a_plain_message() {
        for (message, user) in [
            (&b"\0ada\0lovelace"[..], "ada"),
            (b"bob\0ada\0lovelace", "ada"),
            (b"\0\0", ""),
            (b"ada", ""),
            (b"", ""),
            (b"\0a\xff\0", "a\u{fffd}"),
        ] {
            assert_eq!(claimed_user(message), user, "{message:?}");
        }
        let long = [b"\0".as_slice(), &[b'x'; 4_000], b"\0y"].concat();
        assert_eq!(claimed_user(&long).len(), kedge_auth::USER_NAME_BYTES_MAX);
    }
}
