//! The commands of the memcached text protocol (memcached doc/protocol.txt).
//!
//! Commands are executed like binary ones; keys are in the default collection, and the key determines the vBucket. A
//! bucket may park a command, as its write must be durable or its document is on disk. No other command of the
//! connection runs meanwhile, as replies have no opaque here.

mod classic;
mod context;
mod login;
mod look_ahead;
mod meta;
pub(crate) mod recache;
mod retrieval;
mod suspend;
#[cfg(test)]
mod tests;

pub(crate) use login::logged_in;
pub(crate) use meta::with_key as with_meta_key;
pub(crate) use retrieval::{continue_retrieval, on_part};
pub(crate) use suspend::resume;

use crate::session::{Halt, Session, SessionTurn};
use context::{TextCommandContext, TextOutcome, ended, timing_of};
use kedge_node::output::Output;
use kedge_protocol::text::{Parsed, TextCommand, TextLimits, reply};
use look_ahead::NextCommands;

/// Executes the commands at the front of `bytes`; see [`Session::on_bytes`].
pub(crate) fn on_bytes(
    session: &mut Session,
    turn: &mut SessionTurn<'_>,
    bytes: &[u8],
    out: &mut Output,
) -> (usize, Halt) {
    let limits = TextLimits {
        value_bytes_max: turn.shared.memcached.rules.item_bytes_max,
        ..TextLimits::default()
    };
    let mut next = NextCommands::new();
    let mut at = 0;
    loop {
        let (skipped, has_ended) = session.text.skip(bytes.len() - at);
        at += skipped;
        if !has_ended {
            return (at, Halt::NeedBytes(1));
        }
        let queued_max = turn.shared.limits.queued_bytes_max;
        if let Some(halt) = session.halt(turn, out.queued(), queued_max) {
            return (at, halt);
        }
        if !session.login.is_authenticated() {
            let (consumed, halt) = login::on_bytes(session, turn, &bytes[at..], out);
            at += consumed;
            if let Some(halt) = halt {
                return (at, halt);
            }
            continue;
        }
        match *next.parse(session, &bytes[at..], &limits) {
            Parsed::Incomplete { need } => return (at, Halt::NeedBytes(need)),
            Parsed::Invalid {
                reply,
                consumed,
                swallow,
                close,
            } => {
                out.buffer().extend_from_slice(reply);
                at += consumed;
                session.text.swallow(swallow);
                if close {
                    return (at, Halt::Close);
                }
            }
            Parsed::Command {
                ref command,
                consumed,
            } => {
                let bytes = &bytes[at..at + consumed];
                if turn.may_offload && session.is_long_text(command, bytes) {
                    return (at, Halt::Long(consumed));
                }
                at += consumed;
                if run(session, turn, command, bytes, out) == TextOutcome::Close {
                    return (at, Halt::Close);
                }
            }
        }
    }
}

/// Executes a command, which `bytes` consists of, and records its duration unless it was parked.
fn run(
    session: &mut Session,
    turn: &mut SessionTurn<'_>,
    command: &TextCommand<'_>,
    bytes: &[u8],
    out: &mut Output,
) -> TextOutcome {
    let start_ns = turn.last_ns;
    let mut exec = TextCommandContext {
        session,
        turn,
        out,
        bytes,
        start_ns,
    };
    let outcome = execute(&mut exec, command);
    if outcome == TextOutcome::Answered {
        ended(session, turn, timing_of(command), start_ns);
    }
    outcome
}

fn execute(exec: &mut TextCommandContext<'_, '_>, command: &TextCommand<'_>) -> TextOutcome {
    match command {
        TextCommand::Retrieve(command) => classic::retrieve(exec, command),
        TextCommand::Store(command) => classic::store(exec, command),
        TextCommand::Delete(command) => classic::delete(exec, command),
        TextCommand::Arithmetic(command) => classic::arithmetic(exec, command),
        TextCommand::Touch(command) => classic::touch(exec, command),
        TextCommand::FlushAll(command) => classic::flush_all(exec, command),
        TextCommand::Stats(command) => classic::stats(exec, command),
        TextCommand::Version => classic::version(exec),
        TextCommand::Verbosity(command) => classic::verbosity(exec, *command),
        TextCommand::Quit => TextOutcome::Close,
        TextCommand::MetaNoop => {
            exec.reply(reply::META_NOOP);
            TextOutcome::Answered
        }
        TextCommand::MetaGet(command) => meta::get::get(exec, command),
        TextCommand::MetaSet(command) => meta::set::set(exec, command),
        TextCommand::MetaDelete(command) => meta::delete::delete(exec, command),
        TextCommand::MetaArithmetic(command) => meta::arithmetic::arithmetic(exec, command),
        TextCommand::MetaDebug(command) => meta::debug::debug(exec, command),
    }
}
