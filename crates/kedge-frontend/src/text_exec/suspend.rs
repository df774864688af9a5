//! Resumption of parked commands of the text protocol.
//!
//! A command consists of a few steps on one document, each of which a bucket may park. The bytes of the command and the
//! parked step are kept. When the step is completed, the bytes are parsed again, and the command continues with the
//! result of the step. No step runs twice. Retrievals, which may name many documents, are in `retrieval`.

use crate::session::TextStep;
use kedge_bucket::Completion;
use kedge_node::output::Output;
use kedge_protocol::text::{Parsed, TextCommand, TextLimits, parse};

use super::context::{TextCommandContext, TextOutcome, ended, timing_of};
use super::{classic, meta};
use crate::commands::{counter, document, meta_of, mutation, status_of};
use crate::session::{Session, SessionTurn, SuspendedCommand};

/// Resumes a command whose step was completed.
pub(crate) fn resume(
    session: &mut Session,
    turn: &mut SessionTurn<'_>,
    suspended: &SuspendedCommand,
    start_ns: u64,
    completion: Completion,
    out: &mut Output,
) {
    let SuspendedCommand { bytes, step } = suspended;
    // The bytes were a complete command before.
    let Parsed::Command { command, .. } = parse(bytes, &TextLimits::default()) else {
        return;
    };
    let mut exec = TextCommandContext {
        session,
        turn,
        out,
        bytes,
        start_ns,
    };
    if go_on(&mut exec, &command, *step, completion) != TextOutcome::Parked {
        ended(session, turn, timing_of(&command), start_ns);
    }
}

fn go_on(
    exec: &mut TextCommandContext<'_, '_>,
    command: &TextCommand<'_>,
    step: TextStep,
    completion: Completion,
) -> TextOutcome {
    let mutated = |completion| mutation(completion).map(|(mutated, _)| mutated);
    let access = |completion| document(completion).map(meta::DocumentAccess::from);
    match command {
        TextCommand::Store(command) => match step {
            TextStep::ReadMeta => classic::on_meta(exec, command, meta_of(completion)),
            _ => classic::stored(exec, command, mutated(completion).map(drop)),
        },
        TextCommand::Delete(command) => {
            classic::deleted(exec, command, mutated(completion).map(drop))
        }
        TextCommand::Touch(command) => {
            classic::touched(exec, command, mutated(completion).map(drop))
        }
        TextCommand::Arithmetic(command) => {
            let number = counter(completion).map(|(_, number)| number);
            classic::counted(exec, command, number)
        }
        TextCommand::MetaGet(command) => match step {
            TextStep::Vivify => meta::get::on_created(exec, command, mutated(completion)),
            _ => meta::get::got(exec, command, access(completion)),
        },
        TextCommand::MetaSet(command) => match step {
            TextStep::ReadMeta => meta::set::on_meta(exec, command, meta_of(completion)),
            TextStep::Main => meta::set::written(exec, command, mutated(completion)),
            TextStep::Stale(before) => {
                meta::set::stale_stored(exec, command, before, mutated(completion))
            }
            TextStep::ReadLength(mutated) => {
                meta::set::measured(exec, command, mutated, access(completion))
            }
            _ => meta::set::is_set(exec, command, mutated(completion)),
        },
        TextCommand::MetaDelete(command) => match step {
            TextStep::ReadMeta => meta::delete::on_access(exec, command, access(completion)),
            _ => meta::delete::deleted(exec, command, mutated(completion)),
        },
        TextCommand::MetaArithmetic(command) => match step {
            TextStep::SetExpiry(before, number) => {
                let expired = mutated(completion);
                meta::arithmetic::expired(exec, command, expired.unwrap_or(before), number)
            }
            TextStep::ReadCounterMeta(mutated, number) => meta::arithmetic::on_counter_meta(
                exec,
                command,
                mutated,
                number,
                meta_of(completion),
            ),
            _ => meta::arithmetic::changed(exec, command, counter(completion)),
        },
        TextCommand::FlushAll(command) => classic::flushed(exec, command, status_of(completion)),
        TextCommand::MetaDebug(command) => meta::debug::seen(exec, command, access(completion)),
        // The others are never parked.
        _ => TextOutcome::Answered,
    }
}
