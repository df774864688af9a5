//! SASL_LIST_MECHS, SASL_AUTH, SASL_STEP.
//!
//! A login replaces the one before only at its end; a failed login leaves a connection of the KV port without a user.

use kedge_auth::{
    LoginFailure, Mechanism, ServerSession, ServerStep, UserStore, bearer_token, random_nonce,
};
use kedge_node::audit::{AuditEvent, EventKind};
use kedge_node::output::Output;
use kedge_protocol::binary::commands::{HeaderOnly, SaslStart};
use kedge_protocol::binary::{ConnectionKind, Response};
use kedge_types::{Datatype, Status};
use zeroize::Zeroizing;

use super::context::{CommandContext, CommandOutcome};
use crate::inbox::LoginResult;
use crate::login::{LoginJob, TokenJob, claimed_user, note, remembered, submit_token};
use crate::metrics::Metrics;
use crate::server_context::ServerContext;
use crate::session::{CommandFailure, Composer, ReplyKind, Session, SessionTurn};

/// The reason of a refusal in the audit log.
const TOO_SOON: &str = "too soon after wrong passwords";

/// Refuses the SASL commands of memcached clients while there are no users, as memcached without SASL does.
fn check_users(command: &CommandContext<'_, '_, '_>) -> Result<(), CommandFailure> {
    let shared = command.turn.shared;
    let nobody = shared.memcached.rules.auth_file.is_none() && shared.users.read().is_empty();
    if nobody && command.session.kind() == ConnectionKind::Memcached {
        return Err(Status::UnknownCommand.into());
    }
    Ok(())
}

pub(super) fn list(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    check_users(command)?;
    HeaderOnly::decode(command.request)?;
    let list = match accepts_tokens(command) {
        true => Mechanism::LIST_WITH_TOKENS,
        false => Mechanism::LIST,
    };
    command
        .composer
        .value(Datatype::RAW, list.as_bytes(), command.out);
    Ok(CommandOutcome::Replied)
}

/// Returns true if the client may log in by a token: it needs TLS, as who reads a token can use it.
fn accepts_tokens(command: &CommandContext<'_, '_, '_>) -> bool {
    command.session.is_tls() && command.turn.shared.users.read().accepts_tokens()
}

/// Logs in by a token (RFC 7628).
fn auth_by_token(
    command: &mut CommandContext<'_, '_, '_>,
    message: &[u8],
) -> Result<CommandOutcome, CommandFailure> {
    let shared = command.turn.shared;
    let token = bearer_token(message).filter(|_| accepts_tokens(command));
    let (Some(token), Some(authority)) = (token, shared.checks.external()) else {
        Metrics::count(&shared.metrics.auth_errors);
        let reason = "no token, or tokens are not accepted here";
        audit_login(command.session, shared, EventKind::LoginFailed, "", reason);
        return Err(Status::AuthError.into());
    };
    let job = TokenJob {
        cookie: command
            .session
            .id()
            .cookie(command.session.in_flight.next_slot()),
        address: command.session.peer.ip(),
        token,
    };
    submit_token(&**authority, &job, &shared.front_ends);
    Ok(command.park_as(ReplyKind::Login))
}

pub(super) fn auth(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    check_users(command)?;
    let start = SaslStart::decode(command.request)?;
    let shared = command.turn.shared;
    Metrics::count(&shared.metrics.auth_commands);
    command.session.login.take_exchange();
    if start.mechanism == Mechanism::OauthBearer.name().as_bytes() {
        return auth_by_token(command, start.message);
    }
    let Some(mechanism) = Mechanism::from_name(start.mechanism) else {
        Metrics::count(&shared.metrics.auth_errors);
        audit_login(
            command.session,
            shared,
            EventKind::LoginFailed,
            "",
            "unknown mechanism",
        );
        return Err(Status::AuthError.into());
    };
    let users = shared.users.read();
    let is_plain = mechanism == Mechanism::Plain;
    if is_plain && let Some(login) = remembered(&shared.checks, &users, start.message) {
        return answer_step(command, login);
    }
    if is_plain {
        check_plain_delay(command.session, shared, start.message)?;
    }
    if is_plain && let Some(user) = auth_file_user(command.session, shared, start.message) {
        log_in_of_auth_file(command.session, shared, user);
        command.composer.value(Datatype::RAW, b"", command.out);
        return Ok(CommandOutcome::Replied);
    }
    if is_plain && !is_verified(&users, start.message) {
        let message = Zeroizing::new(start.message.to_vec());
        submit_login(command.session, shared, mechanism, message);
        return Ok(command.park_as(ReplyKind::Login));
    }
    let (session, step) = ServerSession::start(&users, mechanism, start.message, random_nonce);
    if let ServerStep::Continue(_) = step {
        let user = session.claimed_user().unwrap_or_default();
        check_delay(command.session, shared, user)?;
    }
    answer_step(command, LoginResult::local(session, step))
}

/// Refuses a message of PLAIN as [`check_delay`] does, unless its password was verified before.
pub(crate) fn check_plain_delay(
    session: &Session,
    shared: &ServerContext,
    message: &[u8],
) -> Result<(), Status> {
    if is_verified(&shared.users.read(), message) {
        return Ok(());
    }
    check_delay(session, shared, &claimed_user(message))
}

/// Refuses an attempt that comes too soon after wrong passwords.
///
/// # Errors
/// `TemporaryFailure`, as for one that would wait too long.
fn check_delay(session: &Session, shared: &ServerContext, user: &str) -> Result<(), Status> {
    let refusal = shared.checks.guard().refusal(session.peer.ip(), user);
    if refusal.is_none() {
        return Ok(());
    }
    audit_login(session, shared, EventKind::LoginFailed, user, TOO_SOON);
    Err(Status::TemporaryFailure)
}

/// Returns true if a message of PLAIN (RFC 4616) has a password that was verified before, so that the login is fast.
fn is_verified(users: &UserStore, message: &[u8]) -> bool {
    let mut parts = message.split(|byte| *byte == 0).skip(1);
    let (Some(user), Some(password)) = (parts.next(), parts.next()) else {
        return false;
    };
    std::str::from_utf8(user).is_ok_and(|user| users.is_verified(user, password))
}

pub(super) fn step(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    check_users(command)?;
    let message = SaslStart::decode(command.request)?;
    let Some(mut session) = command.session.login.take_exchange() else {
        return Err(CommandFailure::new(
            Status::AuthError,
            "no login is under way",
        ));
    };
    // Many exchanges that began together must not be as many guesses.
    let user = session.claimed_user().unwrap_or_default();
    check_delay(command.session, command.turn.shared, user)?;
    let step = if Mechanism::from_name(message.mechanism) == Some(session.mechanism()) {
        session.step(message.message)
    } else {
        ServerStep::Failed
    };
    let session = *session;
    answer_step(command, LoginResult::local(session, step))
}

/// Answers a step of a login that needs no slow password check.
fn answer_step(
    command: &mut CommandContext<'_, '_, '_>,
    login: LoginResult,
) -> Result<CommandOutcome, CommandFailure> {
    let guard = command.turn.shared.checks.guard();
    note(guard, command.session.peer.ip(), &login);
    logged_in(
        command.session,
        command.turn,
        &command.composer,
        login,
        command.out,
    )?;
    Ok(CommandOutcome::Replied)
}

/// The user of the memcached port's `authfile`, if this message of SASL PLAIN has a correct password of one.
pub(crate) fn auth_file_user<'m>(
    session: &Session,
    shared: &ServerContext,
    message: &'m [u8],
) -> Option<&'m str> {
    let file = shared.memcached.rules.auth_file.as_ref()?;
    match session.kind() {
        ConnectionKind::Memcached => file.allows_plain(message),
        ConnectionKind::Couchbase => None,
    }
}

/// Logs a user of the `authfile` in.
pub(crate) fn log_in_of_auth_file(session: &mut Session, shared: &ServerContext, user: &str) {
    audit_login(session, shared, EventKind::LoggedIn, user, "");
    let guard = shared.checks.guard();
    guard.note(session.peer.ip(), user, true);
    session.login.log_in_of_auth_file(user);
    on_user_changed(session, shared);
}

/// The connection has another user, or none.
pub(crate) fn on_user_changed(session: &mut Session, shared: &ServerContext) {
    session.update_login_list(shared);
    session.refresh(shared);
}

/// Writes a login to the audit log.
pub(crate) fn audit_login(
    session: &Session,
    shared: &ServerContext,
    what: EventKind,
    user: &str,
    reason: &str,
) {
    shared.users.audit().put(&AuditEvent {
        peer: Some(session.peer),
        local: Some(session.local),
        reason,
        ..AuditEvent::new(what, user)
    });
}

/// Submits a login to the queue of password checks. It completes the connection's next slot, even if the password is
/// not checked, as too many wait.
pub(crate) fn submit_login(
    session: &Session,
    shared: &ServerContext,
    mechanism: Mechanism,
    message: Zeroizing<Vec<u8>>,
) {
    let job = LoginJob {
        cookie: session.id().cookie(session.in_flight.next_slot()),
        address: session.peer.ip(),
        users: shared.users.clone(),
        mechanism,
        message,
    };
    crate::login::submit_login(&shared.checks, job, &shared.front_ends);
}

/// Takes the result of a step of a login. After the last step the session belongs to the user.
///
/// # Errors
/// `AuthError` without a reason: an unknown user must look like a wrong password. `TemporaryFailure` if a directory does not answer.
pub(crate) fn take_login(
    session: &mut Session,
    turn: &mut SessionTurn<'_>,
    login: LoginResult,
) -> Result<ServerStep, Status> {
    match &login.step {
        ServerStep::Continue(_) => session.login.continue_exchange(login.session),
        ServerStep::Done { user, .. } => {
            session.login.take_exchange();
            if !session.login.has_certificate_for(user, turn.shared) {
                return Err(refuse_node(session, turn.shared, user));
            }
            let kind = session.kind();
            if !session.login.take_client_slot(turn.shared, user, kind) {
                return Err(Status::TemporaryFailure);
            }
            audit_login(session, turn.shared, EventKind::LoggedIn, user, "");
            session.login.log_in(user, login.grants.clone());
            session.login.end_with_token(turn.shared.now());
            on_user_changed(session, turn.shared);
        }
        ServerStep::Failed => {
            let why = login.session.failure();
            let user = login.session.claimed_user().unwrap_or_default();
            tracing::info!(peer = %session.peer, user, reason = ?why, "a login failed");
            let reason = why.map_or_else(String::new, |why| format!("{why:?}"));
            audit_login(session, turn.shared, EventKind::LoginFailed, user, &reason);
            Metrics::count(&turn.shared.metrics.auth_errors);
            session.login.log_out();
            on_user_changed(session, turn.shared);
            return Err(match why {
                // It says nothing about the password.
                Some(LoginFailure::Unavailable) => Status::TemporaryFailure,
                _ => Status::AuthError,
            });
        }
    }
    Ok(login.step)
}

/// Refuses a node that has shown no certificate of a node.
fn refuse_node(session: &mut Session, shared: &ServerContext, user: &str) -> Status {
    let reason = "no certificate of a node";
    tracing::warn!(peer = %session.peer, reason, "a login of another node failed");
    audit_login(session, shared, EventKind::LoginFailed, user, reason);
    Metrics::count(&shared.metrics.auth_errors);
    session.login.log_out();
    on_user_changed(session, shared);
    Status::AuthError
}

/// Answers a step of a login.
///
/// # Errors
/// As [`take_login`].
pub(crate) fn logged_in(
    session: &mut Session,
    turn: &mut SessionTurn<'_>,
    composer: &Composer,
    login: LoginResult,
    out: &mut Output,
) -> Result<(), CommandFailure> {
    match take_login(session, turn, login)? {
        ServerStep::Continue(challenge) => {
            let response = composer.response(Status::AuthContinue);
            Response {
                value: &challenge,
                ..response
            }
            .write(out.buffer());
        }
        ServerStep::Done { payload, .. } => composer.value(Datatype::RAW, &payload, out),
        ServerStep::Failed => return Err(Status::AuthError.into()),
    }
    Ok(())
}
