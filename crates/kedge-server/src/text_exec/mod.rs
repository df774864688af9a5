//! The memcached text protocol: what its commands do (memcached doc/protocol.txt).
//!
//! A command is executed as the binary ones are; keys are in the default collection, and the vBucket follows from the
//! key. On a bucket whose writes must be durable a command may be parked: its bytes are kept, and parsed again to
//! compose the reply when it ends. No other command of the connection runs meanwhile, as replies have no names here.

mod classic;
mod marks;
mod meta;

use kedge_bucket::{Bucket, Completion, Item, Mutated, Timing, Write};
use kedge_protocol::binary::Opcode;
use kedge_protocol::text::{Parsed, TextCommand, TextLimits, parse, reply};
use kedge_types::{Cas, CollectionId, DocKey, Status, VbId};
use std::sync::Arc;

pub(crate) use marks::Marks;

use crate::output::Output;
use crate::session::{Flight, Halt, ReplyKind, Rights, Session, Turn};

/// What became of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// It was answered, or wanted no answer.
    Answered,
    /// It is in flight.
    Parked,
    /// The connection ends.
    Close,
}

/// A command being executed.
struct Exec<'e, 't> {
    session: &'e mut Session,
    turn: &'e mut Turn<'t>,
    out: &'e mut Output,
    /// The command as it came.
    bytes: &'e [u8],
}

/// A document that a command is about.
struct Target<'s> {
    bucket: &'s Arc<Bucket>,
    vb: VbId,
    key: DocKey,
    session: &'s Session,
}

impl Target<'_> {
    fn write(&self, cas: Cas) -> Write<'_> {
        Write {
            vb: self.vb,
            key: &self.key,
            cas,
            durability: None,
            preserve_ttl: false,
            cookie: self.session.id().cookie(self.session.flights.next_slot()),
        }
    }
}

/// The document that a command is about.
///
/// # Errors
/// `NoBucket`, `AccessDenied`, `Invalid` for a key that is none.
fn target<'s>(session: &'s Session, key: &[u8]) -> Result<Target<'s>, Status> {
    let needed = Rights::READ.and(Rights::WRITE);
    let bucket = session.bucket(needed).map_err(|failure| failure.status)?;
    let key = DocKey::new(CollectionId::DEFAULT, key).map_err(|_| Status::Invalid)?;
    Ok(Target {
        bucket,
        vb: key.vbucket(bucket.vbuckets()),
        key,
        session,
    })
}

impl Exec<'_, '_> {
    fn target(&self, key: &[u8]) -> Result<Target<'_>, Status> {
        target(self.session, key)
    }

    fn reply(&mut self, line: &[u8]) {
        self.out.buffer().extend_from_slice(line);
    }

    fn park(&mut self) -> Outcome {
        let flight = Flight {
            // No opcode of the binary protocol; a flight has one all the same.
            opcode: Opcode::Noop,
            opaque: 0,
            kind: ReplyKind::Text(self.bytes.into()),
            start_ns: self.turn.last_ns,
        };
        self.session.park(self.turn, flight, true);
        Outcome::Parked
    }
}

/// Executes the commands that `bytes` begin with; see [`Session::on_bytes`].
pub(crate) fn on_bytes(
    session: &mut Session,
    turn: &mut Turn<'_>,
    bytes: &[u8],
    out: &mut Output,
) -> (usize, Halt) {
    let limits = TextLimits::default();
    let mut at = 0;
    loop {
        if session.swallow > 0 {
            let skipped = session.swallow.min((bytes.len() - at) as u64);
            session.swallow -= skipped;
            at += skipped as usize;
            if session.swallow > 0 {
                return (at, Halt::NeedBytes(1));
            }
        }
        if session.is_held() {
            return (at, Halt::Parked);
        }
        if out.queued() > turn.shared.limits.queued_bytes_max {
            return (at, Halt::Full);
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
                session.swallow = swallow;
                if close {
                    return (at, Halt::Close);
                }
            }
            Parsed::Command { command, consumed } => {
                let bytes = &bytes[at..at + consumed];
                at += consumed;
                let mut exec = Exec {
                    session,
                    turn,
                    out,
                    bytes,
                };
                match execute(&mut exec, &command) {
                    Outcome::Answered => ended(session, turn, &command),
                    Outcome::Parked => {}
                    Outcome::Close => return (at, Halt::Close),
                }
            }
        }
    }
}

fn execute(exec: &mut Exec<'_, '_>, command: &TextCommand<'_>) -> Outcome {
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
        TextCommand::Quit => Outcome::Close,
        TextCommand::MetaNoop => {
            exec.reply(reply::META_NOOP);
            Outcome::Answered
        }
        TextCommand::MetaGet(command) => meta::get(exec, command),
        TextCommand::MetaSet(command) => meta::set(exec, command),
        TextCommand::MetaDelete(command) => meta::delete(exec, command),
        TextCommand::MetaArithmetic(command) => meta::arithmetic(exec, command),
        TextCommand::MetaDebug(command) => meta::debug(exec, command),
    }
}

/// A command was answered: its time is counted.
fn ended(session: &Session, turn: &mut Turn<'_>, command: &TextCommand<'_>) {
    let start_ns = turn.last_ns;
    turn.last_ns = turn.shared.clock.mono_ns();
    turn.shared.metrics.thread(turn.thread).command();
    let us = turn.last_ns.saturating_sub(start_ns) / 1_000;
    if let (Some(bucket), Some(timing)) = (&session.bucket, timing_of(command)) {
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

/// What a parked write came to.
#[derive(Clone, Copy)]
struct Written<'w> {
    mutated: Mutated,
    /// The document, unless it was deleted.
    item: Option<&'w Item>,
}

/// Composes the reply of a parked command from its bytes.
pub(crate) fn on_completion(
    session: &mut Session,
    turn: &mut Turn<'_>,
    bytes: &[u8],
    completion: Completion,
    out: &mut Output,
) {
    // The same bytes give the same command, which was whole.
    let Parsed::Command { command, .. } = parse(bytes, &TextLimits::default()) else {
        return;
    };
    let Completion::SyncWrite { result, item } = completion else {
        return;
    };
    let result = result.map(|mutated| Written {
        mutated,
        item: item.as_ref(),
    });
    let mut exec = Exec {
        session,
        turn,
        out,
        bytes,
    };
    match &command {
        TextCommand::Retrieve(command) => classic::retrieved(&mut exec, command, result),
        TextCommand::Store(command) => classic::stored(&mut exec, command, result.map(drop)),
        TextCommand::Delete(command) => classic::deleted(&mut exec, command, result.map(drop)),
        TextCommand::Touch(command) => classic::touched(&mut exec, command, result.map(drop)),
        TextCommand::Arithmetic(command) => {
            let number = result.and_then(|written| number(written.item));
            classic::counted(&mut exec, command, number);
        }
        TextCommand::MetaGet(command) => meta::got(&mut exec, command, result),
        TextCommand::MetaSet(command) => {
            meta::is_set(&mut exec, command, result.map(|written| written.mutated));
        }
        TextCommand::MetaDelete(command) => {
            meta::deleted(&mut exec, command, result.map(|written| written.mutated));
        }
        TextCommand::MetaArithmetic(command) => {
            let counted = result.and_then(|written| Ok((written.mutated, number(written.item)?)));
            meta::counted(&mut exec, command, counted);
        }
        _ => {}
    }
    ended(session, turn, &command);
}

/// The number that a counter's document holds.
fn number(item: Option<&Item>) -> Result<u64, Status> {
    let item = item.ok_or(Status::Internal)?;
    std::str::from_utf8(item.value())
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or(Status::Internal)
}

/// Appends what a client is told of a status that its command has no word for.
fn write_status(out: &mut Output, status: Status) {
    let out = out.buffer();
    match status {
        Status::TooBig => out.extend_from_slice(reply::TOO_LARGE),
        Status::NoMemory => out.extend_from_slice(reply::OUT_OF_MEMORY),
        Status::DeltaBadValue => out.extend_from_slice(reply::NON_NUMERIC),
        Status::Invalid => out.extend_from_slice(reply::BAD_FORMAT),
        Status::Locked => reply::write_server_error(out, "the document is locked"),
        Status::NoBucket => reply::write_server_error(out, "there is no bucket"),
        Status::TemporaryFailure => reply::write_server_error(out, "temporary failure"),
        Status::SyncWriteInProgress => {
            reply::write_server_error(out, "another durable write of the document is in progress");
        }
        Status::SyncWriteAmbiguous => {
            reply::write_server_error(out, "the outcome of the durable write is not known");
        }
        other => reply::write_server_error(out, other.name()),
    }
}
