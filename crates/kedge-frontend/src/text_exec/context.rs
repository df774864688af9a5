//! The context of a text command in execution, and its outcome.

use crate::session::{
    ParkedRequest, ReplyKind, RequestTag, Rights, Session, SessionTurn, SuspendedCommand, TextStep,
};
use crate::text_status::write_status;
use kedge_bucket::{Bucket, Meta, Outcome as BucketOutcome, Read, Timing, Write};
use kedge_node::output::Output;
use kedge_protocol::text::{TextCommand, TextStoreMode};
use kedge_types::{Cas, CollectionId, DocKey, KeyBuffer, Status, VbId};
use std::sync::Arc;

/// The outcome of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::text_exec) enum TextOutcome {
    /// It was answered, or needed no answer.
    Answered,
    /// The command is in flight.
    Parked,
    /// The connection ends.
    Close,
}

/// The context of a command in execution.
pub(in crate::text_exec) struct TextCommandContext<'e, 't> {
    pub(in crate::text_exec) session: &'e mut Session,
    pub(in crate::text_exec) turn: &'e mut SessionTurn<'t>,
    pub(in crate::text_exec) out: &'e mut Output,
    /// The bytes of the command.
    pub(in crate::text_exec) bytes: &'e [u8],
    /// Its start, nanoseconds of the monotonic clock.
    pub(in crate::text_exec) start_ns: u64,
}

/// The document of a command.
pub(in crate::text_exec) struct TextTarget<'s> {
    pub(in crate::text_exec) bucket: &'s Arc<Bucket>,
    pub(in crate::text_exec) vb: VbId,
    pub(in crate::text_exec) key: &'s DocKey,
    pub(in crate::text_exec) session: &'s Session,
}

impl TextTarget<'_> {
    pub(in crate::text_exec) fn read(&self) -> Read<'_> {
        Read {
            vb: self.vb,
            key: self.key,
            cookie: self.session.next_cookie(),
        }
    }

    pub(in crate::text_exec) fn write(&self, cas: Cas) -> Write<'_> {
        Write {
            vb: self.vb,
            key: self.key,
            cas,
            durability: None,
            new_cas: Cas(0),
            preserve_ttl: false,
            cookie: self.session.next_cookie(),
        }
    }
}

/// The rights of commands that read and change a document.
pub(in crate::text_exec) const READ_AND_CHANGE: Rights = Rights::READ.and(Rights::UPSERT);

/// The rights of a store.
pub(in crate::text_exec) const fn rights_of(mode: TextStoreMode) -> Rights {
    match mode {
        TextStoreMode::Add => Rights::INSERT,
        TextStoreMode::Set
        | TextStoreMode::Replace
        | TextStoreMode::Append
        | TextStoreMode::Prepend => Rights::UPSERT,
    }
}

/// The document of a command that needs these rights, whose key is made in `buffer`.
///
/// # Errors
/// `NoBucket`, `AccessDenied`, `Invalid` for a malformed key.
pub(in crate::text_exec) fn target<'s>(
    session: &'s Session,
    needed: Rights,
    key: &[u8],
    buffer: &'s mut KeyBuffer,
) -> Result<TextTarget<'s>, Status> {
    let bucket = session.bucket(needed).map_err(|failure| failure.status)?;
    let key = buffer
        .put(CollectionId::DEFAULT, key)
        .map_err(|_| Status::Invalid)?;
    Ok(TextTarget {
        bucket,
        vb: key.vbucket(bucket.vbuckets()),
        key,
        session,
    })
}

impl TextCommandContext<'_, '_> {
    pub(in crate::text_exec) fn target<'s>(
        &'s self,
        needed: Rights,
        key: &[u8],
        buffer: &'s mut KeyBuffer,
    ) -> Result<TextTarget<'s>, Status> {
        target(self.session, needed, key, buffer)
    }

    pub(in crate::text_exec) fn reply(&mut self, line: &[u8]) {
        self.out.buffer().extend_from_slice(line);
    }

    /// The metadata of the document that will be written, or was.
    pub(in crate::text_exec) fn look(&self, key: &[u8]) -> Result<BucketOutcome<Meta>, Status> {
        let mut buffer = KeyBuffer::EMPTY;
        let target = self.target(Rights::UPSERT, key, &mut buffer)?;
        target
            .bucket
            .documents()
            .get_meta(self.turn.ctx(), &target.read())
    }

    /// Continues with the result of a step, now or when it is completed.
    pub(in crate::text_exec) fn then<T>(
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
    pub(in crate::text_exec) fn fail(&mut self, status: Status) -> TextOutcome {
        write_status(self.out, status);
        TextOutcome::Answered
    }

    pub(in crate::text_exec) fn park(&mut self, step: TextStep) -> TextOutcome {
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

/// Records the duration of an answered command.
pub(in crate::text_exec) fn ended(
    session: &Session,
    turn: &mut SessionTurn<'_>,
    timing: Option<Timing>,
    start_ns: u64,
) {
    turn.last_ns = turn.shared.clock.mono_ns();
    turn.took("text", turn.last_ns.saturating_sub(start_ns));
    turn.shared.metrics.thread(turn.thread).command();
    let us = turn.last_ns.saturating_sub(start_ns) / 1_000;
    if let (Some(bucket), Some(timing)) = (&session.bucket, timing) {
        bucket.timings().record_us(turn.thread, timing, us);
    }
}

pub(in crate::text_exec) const fn timing_of(command: &TextCommand<'_>) -> Option<Timing> {
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
