//! `get`, `gets`, `gat` and `gats` of documents that must come from the disk, or whose answer is long.
//!
//! Documents are answered in the order of the request. All that are not in memory are requested at once, as far as
//! there are slots for parked commands, so that a bucket can read them together. Documents in front of the first
//! missing one are answered at once; so an error of a later one may end a reply that has begun.
//!
//! A retrieval pauses while the output of its connection is above its limit, and at the end of the time slice: one line
//! may name the same document hundreds of thousands of times. It continues as a long answer to STAT does.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use kedge_bucket::{Completion, Outcome as BucketOutcome, Timing};
use kedge_node::output::Output;
use kedge_protocol::text::{Retrieve, reply};
use kedge_types::limits::UNORDERED_COMMANDS_MAX;
use kedge_types::{Cas, KeyBuffer, Status};

use super::classic::{is_durable, write_item};
use super::context::{READ_AND_CHANGE, TextCommandContext, TextOutcome, ended, target};
use super::look_ahead::request_documents;
use crate::commands::document;
use crate::next_documents::COMMANDS_AHEAD;
use crate::session::{
    ParkedRequest, ReplyKind, RequestTag, Retrieval, RetrievalState, RetrievedDocument, Rights,
    Session, SessionTurn,
};
use crate::text_status::write_status;

/// Begins a retrieval with a first document that a bucket parked; the retrieval continues with the other keys.
pub(super) fn begin<'k>(
    exec: &mut TextCommandContext<'_, '_>,
    command: &Retrieve<'_>,
    key: &[u8],
    rest: impl Iterator<Item = &'k [u8]>,
) -> TextOutcome {
    let mut retrieval = retrieval_of(exec, command, rest);
    retrieval.parts.push_back(RetrievedDocument {
        key: key.into(),
        found: park(exec.session, exec.turn, exec.start_ns),
    });
    go_on(exec.session, exec.turn, retrieval, exec.out, look)
}

/// Pauses a retrieval in front of a document.
pub(super) fn pause<'k>(
    exec: &mut TextCommandContext<'_, '_>,
    command: &Retrieve<'_>,
    key: &'k [u8],
    rest: impl Iterator<Item = &'k [u8]>,
) -> TextOutcome {
    let rest = std::iter::once(key).chain(rest);
    exec.session.text.retrieval = Some(retrieval_of(exec, command, rest));
    TextOutcome::Parked
}

fn retrieval_of<'k>(
    exec: &TextCommandContext<'_, '_>,
    command: &Retrieve<'_>,
    rest: impl Iterator<Item = &'k [u8]>,
) -> Box<Retrieval> {
    let touch = command.touch.map(kedge_protocol::text::Exptime::to_wire);
    // Two SyncWrites of the same document in one request would conflict.
    let one_by_one = touch.is_some() && is_durable(exec);
    Box::new(Retrieval {
        with_cas: command.with_cas,
        touch,
        window: if one_by_one {
            1
        } else {
            UNORDERED_COMMANDS_MAX
        },
        start_ns: exec.start_ns,
        parts: VecDeque::new(),
        rest: rest.map(Into::into).collect(),
        failed: None,
        needs_task: false,
    })
}

/// Number of documents between two readings of the clock.
const DOCUMENTS_PER_CLOCK_READING: usize = 64;

/// Returns true if a retrieval that has answered this number of documents in this turn has to pause.
#[inline]
pub(super) fn pauses(turn: &SessionTurn<'_>, out: &Output, answered: usize) -> bool {
    out.queued() > turn.shared.limits.queued_bytes_max
        || answered % DOCUMENTS_PER_CLOCK_READING == DOCUMENTS_PER_CLOCK_READING - 1
            && turn.is_over()
}

/// Continues a retrieval that has paused.
pub(crate) fn continue_retrieval(
    session: &mut Session,
    turn: &mut SessionTurn<'_>,
    out: &mut Output,
) {
    if let Some(retrieval) = session.text.retrieval.take() {
        go_on(session, turn, retrieval, out, look);
    }
}

fn park(session: &mut Session, turn: &mut SessionTurn<'_>, start_ns: u64) -> RetrievalState {
    let slot = session.in_flight.next_slot();
    let request = ParkedRequest {
        tag: RequestTag::of_text(start_ns),
        kind: ReplyKind::TextDocument,
    };
    session.park(turn, request, true);
    RetrievalState::Parked(slot)
}

/// Handles the completion of a document.
pub(crate) fn on_part(
    session: &mut Session,
    turn: &mut SessionTurn<'_>,
    slot: u8,
    completion: Completion,
    out: &mut Output,
) {
    if let Some(mut retrieval) = session.text.retrieval.take() {
        retrieval.arrived(slot, completion);
        go_on(session, turn, retrieval, out, look);
    }
}

/// Answers documents that are there, requests further ones, and ends the retrieval when none is left.
fn go_on(
    session: &mut Session,
    turn: &mut SessionTurn<'_>,
    mut retrieval: Box<Retrieval>,
    out: &mut Output,
    mut look: impl FnMut(
        &mut Session,
        &mut SessionTurn<'_>,
        &Retrieval,
        &[u8],
    ) -> Result<RetrievalState, Status>,
) -> TextOutcome {
    retrieval.needs_task = false;
    let mut answered = 0;
    loop {
        retrieval.answer(out);
        let full = retrieval.parts.len() >= retrieval.window || !session.in_flight.has_room();
        if full || pauses(turn, out, answered) {
            break;
        }
        if answered % COMMANDS_AHEAD == 0 && retrieval.rest.len() > 1 {
            request_documents(session, retrieval.rest.iter().map(|key| &key[..]));
        }
        answered += 1;
        let Some(key) = retrieval.rest.pop_front() else {
            break;
        };
        if turn.may_offload && session.is_long_retrieval(&key, retrieval.touch.is_some()) {
            retrieval.needs_task = true;
            retrieval.rest.push_front(key);
            break;
        }
        match look(session, turn, &retrieval, &key) {
            Ok(found) => retrieval.parts.push_back(RetrievedDocument { key, found }),
            Err(status) => retrieval.failed = Some(status),
        }
    }
    if !retrieval.parts.is_empty() || !retrieval.rest.is_empty() {
        session.text.retrieval = Some(retrieval);
        return TextOutcome::Parked;
    }
    match retrieval.failed {
        None => out.buffer().extend_from_slice(reply::END),
        Some(status) => write_status(out, status),
    }
    let timing = match retrieval.touch {
        Some(_) => Timing::Touch,
        None => Timing::Get,
    };
    ended(session, turn, Some(timing), retrieval.start_ns);
    TextOutcome::Parked
}

fn look(
    session: &mut Session,
    turn: &mut SessionTurn<'_>,
    retrieval: &Retrieval,
    key: &[u8],
) -> Result<RetrievalState, Status> {
    let ctx = turn.ctx();
    let mut buffer = KeyBuffer::EMPTY;
    let needed = match retrieval.touch {
        None => Rights::READ,
        Some(_) => READ_AND_CHANGE,
    };
    let target = target(session, needed, key, &mut buffer)?;
    let result = match retrieval.touch {
        None => target
            .bucket
            .documents()
            .get(ctx, &target.read(), |document| {
                RetrievalState::Document(document.item.clone(), document.cas)
            }),
        Some(expiry) => {
            let write = target.write(Cas(0));
            target
                .bucket
                .documents()
                .get_and_touch(ctx, &write, expiry, |document| {
                    RetrievalState::Document(document.item.clone(), document.cas)
                })
        }
    };
    match result {
        Ok(BucketOutcome::Done(found)) => Ok(found),
        Ok(BucketOutcome::Parked) => Ok(park(session, turn, retrieval.start_ns)),
        Err(Status::KeyNotFound) => Ok(RetrievalState::Missing),
        Err(status) => Err(status),
    }
}

impl Retrieval {
    fn arrived(&mut self, slot: u8, completion: Completion) {
        let waits = |part: &&mut RetrievedDocument| matches!(part.found, RetrievalState::Parked(known) if known == slot);
        let Some(part) = self.parts.iter_mut().find(waits) else {
            return;
        };
        part.found = match document(completion) {
            Ok((item, cas)) => RetrievalState::Document(item, cas),
            Err(status) => {
                if status != Status::KeyNotFound {
                    self.failed = Some(status);
                }
                RetrievalState::Missing
            }
        };
    }

    /// Answers the first documents that are there. After a failure none is answered or requested any more; those that
    /// were requested are waited for, as their slots are taken until then.
    fn answer(&mut self, out: &mut Output) {
        while self.failed.is_none()
            && let Some(RetrievedDocument {
                found: RetrievalState::Document(..) | RetrievalState::Missing,
                ..
            }) = self.parts.front()
        {
            let Some(RetrievedDocument { key, found }) = self.parts.pop_front() else {
                break;
            };
            if let RetrievalState::Document(item, cas) = found
                && let Err(status) = write_item(out, &key, &item, cas, self.with_cas)
            {
                self.failed = Some(status);
            }
        }
        if self.failed.is_some() {
            self.rest.clear();
            self.parts
                .retain(|part| matches!(part.found, RetrievalState::Parked(_)));
        }
    }
}
