//! SASL_LIST_MECHS, SASL_AUTH, SASL_STEP.
//!
//! A login replaces the one before only when it succeeds or fails at its end; a failed one leaves the connection of
//! the KV port without any.

use kedge_auth::{Mechanism, ServerSession, Step, random_nonce};
use kedge_protocol::binary::Response;
use kedge_protocol::binary::commands::{HeaderOnly, SaslStart};
use kedge_types::{Datatype, Status};
use zeroize::Zeroizing;

use super::{Command, Done};
use crate::audit::{Event, What};
use crate::inbox::Login;
use crate::login::LoginJob;
use crate::metrics::Metrics;
use crate::output::Output;
use crate::session::{Composer, Failure, ReplyKind, Session, Turn};
use crate::shared::Shared;

pub(super) fn list(command: &mut Command<'_, '_, '_>) -> Result<Done, Failure> {
    HeaderOnly::decode(command.request)?;
    command
        .composer
        .value(Datatype::RAW, Mechanism::LIST.as_bytes(), command.out);
    Ok(Done::Replied)
}

pub(super) fn auth(command: &mut Command<'_, '_, '_>) -> Result<Done, Failure> {
    let start = SaslStart::decode(command.request)?;
    let shared = command.turn.shared;
    Metrics::count(&shared.metrics.auth_commands);
    command.session.login = None;
    let Some(mechanism) = Mechanism::from_name(start.mechanism) else {
        command.session.login_failed(&shared.metrics);
        audit(
            command.session,
            shared,
            What::LoginFailed,
            "",
            "unknown mechanism",
        );
        return Err(Status::AuthError.into());
    };
    let users = shared.users.read();
    if mechanism == Mechanism::Plain {
        let cookie = command
            .session
            .id()
            .cookie(command.session.flights.next_slot());
        let message = Zeroizing::new(start.message.to_vec());
        shared.logins.submit(LoginJob {
            cookie,
            users,
            mechanism,
            message,
        })?;
        return Ok(command.park_as(ReplyKind::Login));
    }
    let (session, step) = ServerSession::start(&users, mechanism, start.message, random_nonce);
    let login = Login { session, step };
    logged_in(
        command.session,
        command.turn,
        &command.composer,
        login,
        command.out,
    )?;
    Ok(Done::Replied)
}

pub(super) fn step(command: &mut Command<'_, '_, '_>) -> Result<Done, Failure> {
    let message = SaslStart::decode(command.request)?;
    let Some(mut session) = command.session.login.take() else {
        return Err(Failure::new(Status::AuthError, "no login is under way"));
    };
    let step = if Mechanism::from_name(message.mechanism) == Some(session.mechanism()) {
        session.step(message.message)
    } else {
        Step::Failed
    };
    let login = Login {
        session: *session,
        step,
    };
    logged_in(
        command.session,
        command.turn,
        &command.composer,
        login,
        command.out,
    )?;
    Ok(Done::Replied)
}

fn audit(session: &Session, shared: &Shared, what: What, user: &str, reason: &str) {
    shared.users.audit().put(&Event {
        peer: Some(session.peer),
        reason,
        ..Event::new(what, user)
    });
}

/// One step of a login was worked out.
///
/// # Errors
/// `AuthError`, without saying why: an unknown user must look like a wrong password.
pub(crate) fn logged_in(
    session: &mut Session,
    turn: &mut Turn<'_>,
    composer: &Composer,
    login: Login,
    out: &mut Output,
) -> Result<(), Failure> {
    match login.step {
        Step::Continue(challenge) => {
            session.login = Some(Box::new(login.session));
            let response = composer.response(Status::AuthContinue);
            Response {
                value: &challenge,
                ..response
            }
            .write(out.buffer());
        }
        Step::Done { user, payload } => {
            session.login = None;
            audit(session, turn.shared, What::LoggedIn, &user, "");
            session.user = Some(user.into());
            session.refresh(turn.shared);
            composer.value(Datatype::RAW, &payload, out);
        }
        Step::Failed => {
            let why = login.session.failure();
            let user = login.session.claimed_user().unwrap_or_default();
            tracing::info!(peer = %session.peer, user, reason = ?why, "a login failed");
            let reason = why.map_or_else(String::new, |why| format!("{why:?}"));
            audit(session, turn.shared, What::LoginFailed, user, &reason);
            session.login_failed(&turn.shared.metrics);
            session.user = None;
            session.refresh(turn.shared);
            return Err(Status::AuthError.into());
        }
    }
    Ok(())
}
