//! The commands of the memcached text protocol (memcached doc/protocol.txt).
//!
//! Commands are executed like binary ones; keys are in the default collection, and the key determines the vBucket. A
//! bucket may park a command, as its write must be durable or its document is on disk. No other command of the
//! connection runs meanwhile, as replies have no opaque here.

mod classic;
mod login;
mod meta;
pub(crate) mod recache;
mod retrieval;
mod suspend;
#[cfg(test)]
mod tests;

use crate::session::TextStep;
use kedge_bucket::{Bucket, Meta, Outcome as BucketOutcome, Read, Timing, Write};
use kedge_node::output::Output;
use kedge_protocol::text::{Parsed, TextCommand, TextLimits, parse, reply};
use kedge_types::{Cas, CollectionId, DocKey, Status, VbId};
use std::sync::Arc;

pub(crate) use login::logged_in;
pub(crate) use meta::with_key as with_meta_key;
pub(crate) use retrieval::on_part;
pub(crate) use suspend::resume;

use crate::session::{
    Halt, ParkedRequest, ReplyKind, RequestTag, Rights, Session, SessionTurn, SuspendedCommand,
};
use crate::text_status::write_status;

/// The outcome of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TextOutcome {
    /// It was answered, or needed no answer.
    Answered,
    /// The command is in flight.
    Parked,
    /// The connection ends.
    Close,
}

/// The context of a command in execution.
struct TextCommandContext<'e, 't> {
    session: &'e mut Session,
    turn: &'e mut SessionTurn<'t>,
    out: &'e mut Output,
    /// The bytes of the command.
    bytes: &'e [u8],
    /// Its start, nanoseconds of the monotonic clock.
    start_ns: u64,
}

/// The document of a command.
struct TextTarget<'s> {
    bucket: &'s Arc<Bucket>,
    vb: VbId,
    key: DocKey,
    session: &'s Session,
}

impl TextTarget<'_> {
    fn read(&self) -> Read<'_> {
        Read {
            vb: self.vb,
            key: &self.key,
            cookie: self.session.next_cookie(),
        }
    }

    fn write(&self, cas: Cas) -> Write<'_> {
        Write {
            vb: self.vb,
            key: &self.key,
            cas,
            durability: None,
            new_cas: Cas(0),
            preserve_ttl: false,
            cookie: self.session.next_cookie(),
        }
    }
}

/// The document of a command.
///
/// # Errors
/// `NoBucket`, `AccessDenied`, `Invalid` for a malformed key.
fn target<'s>(session: &'s Session, key: &[u8]) -> Result<TextTarget<'s>, Status> {
    let needed = Rights::READ.and(Rights::WRITE);
    let bucket = session.bucket(needed).map_err(|failure| failure.status)?;
    let key = DocKey::new(CollectionId::DEFAULT, key).map_err(|_| Status::Invalid)?;
    Ok(TextTarget {
        bucket,
        vb: key.vbucket(bucket.vbuckets()),
        key,
        session,
    })
}

impl TextCommandContext<'_, '_> {
    fn target(&self, key: &[u8]) -> Result<TextTarget<'_>, Status> {
        target(self.session, key)
    }

    fn reply(&mut self, line: &[u8]) {
        self.out.buffer().extend_from_slice(line);
    }

    /// The metadata of the document that will be written.
    fn look(&self, key: &[u8]) -> Result<BucketOutcome<Meta>, Status> {
        let target = self.target(key)?;
        target
            .bucket
            .documents()
            .get_meta(self.turn.ctx(), &target.read())
    }

    /// Continues with the result of a step, now or when it is completed.
    fn then<T>(
        &mut self,
        step: TextStep,
        result: Result<BucketOutcome<T>, Status>,
        then: impl FnOnce(&mut Self, Result<T, Status>) -> TextOutcome,
    ) -> TextOutcome {
        match result {
            Ok(BucketOutcome::Parked) => self.park(step),
            Ok(BucketOutcome::Done(done)) => then(self, Ok(done)),
            Err(status) => then(self, Err(status)),
        }
    }

    /// Answers with a status that the command has no reply of its own for.
    fn fail(&mut self, status: Status) -> TextOutcome {
        write_status(self.out, status);
        TextOutcome::Answered
    }

    fn park(&mut self, step: TextStep) -> TextOutcome {
        let request = ParkedRequest {
            tag: RequestTag::of_text(self.start_ns),
            kind: ReplyKind::Text(Box::new(SuspendedCommand {
                bytes: self.bytes.into(),
                step,
            })),
        };
        self.session.park(self.turn, request, true);
        TextOutcome::Parked
    }
}

/// Executes the commands at the front of `bytes`; see [`Session::on_bytes`].
pub(crate) fn on_bytes(
    session: &mut Session,
    turn: &mut SessionTurn<'_>,
    bytes: &[u8],
    out: &mut Output,
) -> (usize, Halt) {
    let limits = TextLimits {
        value_bytes_max: turn.shared.memcached_rules.item_bytes_max,
        ..TextLimits::default()
    };
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
        match parse(&bytes[at..], &limits) {
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
            Parsed::Command { command, consumed }
                if turn.may_offload
                    && session.is_long_text(&command, &bytes[at..at + consumed]) =>
            {
                return (at, Halt::Long(consumed));
            }
            Parsed::Command { command, consumed } => {
                let bytes = &bytes[at..at + consumed];
                at += consumed;
                if run(session, turn, &command, bytes, out) == TextOutcome::Close {
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

/// Records the duration of an answered command.
fn ended(session: &Session, turn: &mut SessionTurn<'_>, timing: Option<Timing>, start_ns: u64) {
    turn.last_ns = turn.shared.clock.mono_ns();
    turn.took("text", turn.last_ns.saturating_sub(start_ns));
    turn.shared.metrics.thread(turn.thread).command();
    let us = turn.last_ns.saturating_sub(start_ns) / 1_000;
    if let (Some(bucket), Some(timing)) = (&session.bucket, timing) {
        bucket.timings().record_us(turn.thread, timing, us);
    }
}

const fn timing_of(command: &TextCommand<'_>) -> Option<Timing> {
    Some(match command {
        TextCommand::Retrieve(retrieve) if retrieve.touch.is_some() => Timing::Touch,
        TextCommand::Retrieve(_) | TextCommand::MetaGet(_) => Timing::Get,
        TextCommand::Store(_) | TextCommand::MetaSet(_) => Timing::Set,
        TextCommand::Delete(_) | TextCommand::MetaDelete(_) => Timing::Delete,
        TextCommand::Arithmetic(_) | TextCommand::MetaArithmetic(_) => Timing::Arithmetic,
        TextCommand::Touch(_) => Timing::Touch,
        TextCommand::MetaDebug(_) => Timing::GetMeta,
        TextCommand::Stats(_) => Timing::Stat,
        _ => return None,
    })
}
