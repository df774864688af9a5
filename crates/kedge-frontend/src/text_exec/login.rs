//! Login in the text protocol, as in memcached with an `authfile` (memcached doc/protocol.txt, "Authentication"): the
//! first command is a `set` of any key whose value is `user password`.

use kedge_auth::{Mechanism, ServerStep};
use kedge_bucket::Timing;
use kedge_node::output::Output;
use kedge_protocol::text::limits::{LINE_BYTES_MAX, LOGIN_VALUE_BYTES_MAX};
use kedge_protocol::text::{
    Parsed, TextCommand, TextLimits, TextStore, TextStoreMode, parse, reply,
};
use kedge_types::Status;
use zeroize::Zeroizing;

use super::context::{TextOutcome, ended};
use crate::commands::{
    auth_file_user, check_plain_delay, log_in_of_auth_file, submit_login, take_login,
};
use crate::inbox::LoginResult;
use crate::login::remembered;
use crate::metrics::Metrics;
use crate::session::{Halt, ParkedRequest, ReplyKind, RequestTag, Session, SessionTurn};
use crate::text_status::write_status;

const UNAUTHENTICATED: &str = "unauthenticated";
const BAD_TOKEN: &str = "bad authentication token format";
const TOO_LONG: &str = "auth token too long";
const FAILED: &str = "authentication failure";

/// Limits of commands before the login.
const LIMITS: TextLimits = TextLimits {
    line_bytes_max: LINE_BYTES_MAX,
    retrieval_line_bytes_max: LINE_BYTES_MAX,
    value_bytes_max: LOGIN_VALUE_BYTES_MAX,
};

/// Handles the next command of a client that has to log in first. Returns the number of its bytes, and the reason to
/// stop, if there is one.
pub(super) fn on_bytes(
    session: &mut Session,
    turn: &mut SessionTurn<'_>,
    bytes: &[u8],
    out: &mut Output,
) -> (usize, Option<Halt>) {
    match parse(bytes, &LIMITS) {
        Parsed::Incomplete { need } => (0, Some(Halt::NeedBytes(need))),
        Parsed::Invalid {
            consumed,
            swallow,
            close,
            ..
        } => {
            // A client without a login must not make the server read a large value.
            let too_long = swallow > LOGIN_VALUE_BYTES_MAX as u64;
            let text = if too_long { TOO_LONG } else { UNAUTHENTICATED };
            reply::write_client_error(out.buffer(), text);
            session.text.swallow(swallow);
            (consumed, (close || too_long).then_some(Halt::Close))
        }
        Parsed::Command { command, consumed } => match command {
            TextCommand::Quit => (consumed, Some(Halt::Close)),
            TextCommand::Store(TextStore {
                mode: TextStoreMode::Set,
                cas: None,
                value,
                ..
            }) => match log_in(session, turn, value, out) {
                TextOutcome::Parked => (consumed, Some(Halt::Parked)),
                _ => (consumed, None),
            },
            _ => {
                reply::write_client_error(out.buffer(), UNAUTHENTICATED);
                (consumed, None)
            }
        },
    }
}

/// Checks `user password`: at once against the `authfile`, and by the queue of password checks against the server's
/// users.
fn log_in(
    session: &mut Session,
    turn: &mut SessionTurn<'_>,
    value: &[u8],
    out: &mut Output,
) -> TextOutcome {
    let shared = turn.shared;
    let start_ns = turn.last_ns;
    Metrics::count(&shared.metrics.auth_commands);
    let Some(space) = value.iter().position(|&byte| byte == b' ') else {
        reply::write_client_error(out.buffer(), BAD_TOKEN);
        return TextOutcome::Answered;
    };
    let (user, password) = (&value[..space], &value[space + 1..]);
    let message = Zeroizing::new([b"\0", user, b"\0", password].concat());
    if let Some(login) = remembered(&shared.checks, &shared.users.read(), &message) {
        logged_in(session, turn, Some(login), start_ns, out);
        return TextOutcome::Answered;
    }
    if let Err(status) = check_plain_delay(session, shared, &message) {
        write_status(out, status);
        ended(session, turn, None::<Timing>, start_ns);
        return TextOutcome::Answered;
    }
    if let Some(user) = auth_file_user(session, shared, &message) {
        log_in_of_auth_file(session, shared, user);
        out.buffer().extend_from_slice(reply::STORED);
        ended(session, turn, None::<Timing>, start_ns);
        return TextOutcome::Answered;
    }
    submit_login(session, shared, Mechanism::Plain, message);
    let request = ParkedRequest {
        tag: RequestTag::of_text(start_ns),
        kind: ReplyKind::Login,
    };
    session.park(turn, request, true);
    TextOutcome::Parked
}

/// Answers a login whose password was checked. `None`: it was not, as too many wait.
pub(crate) fn logged_in(
    session: &mut Session,
    turn: &mut SessionTurn<'_>,
    login: Option<LoginResult>,
    start_ns: u64,
    out: &mut Output,
) {
    let taken = match login {
        Some(login) => take_login(session, turn, login),
        None => Err(Status::TemporaryFailure),
    };
    match taken {
        Ok(ServerStep::Done { .. }) => out.buffer().extend_from_slice(reply::STORED),
        Ok(_) | Err(Status::AuthError) => reply::write_client_error(out.buffer(), FAILED),
        Err(status) => write_status(out, status),
    }
    ended(session, turn, None::<Timing>, start_ns);
}
