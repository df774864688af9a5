//! Parked commands, and their replies when they are completed.

use kedge_bucket::Completion;
use kedge_node::output::Output;
use kedge_types::Status;

use super::run::write_duration;
use crate::commands::{self, CommandOutcome};
use crate::inbox::LoginResult;
use crate::session::{
    CommandFailure, Composer, Flow, ParkedRequest, ReplyKind, RequestTag, Session, SessionTurn,
};
use crate::text_exec;

impl Session {
    /// Parks a command that a bucket or a password check will complete, under the cookie of the next slot.
    pub(crate) fn park(&mut self, turn: &mut SessionTurn<'_>, request: ParkedRequest, alone: bool) {
        self.in_flight.park(request, alone);
        if let Some(bucket) = &self.bucket {
            turn.request_flush(bucket);
        }
        // The time of the next command starts now, not when this one ends.
        turn.last_ns = turn.shared.clock.mono_ns();
    }

    /// Composes the reply of a parked command that ended. The caller then lets the session continue with waiting bytes.
    pub(crate) fn on_completion(
        &mut self,
        turn: &mut SessionTurn<'_>,
        slot: u8,
        completion: Completion,
        out: &mut Output,
    ) -> Flow {
        if commands::is_partial(&completion) {
            self.on_part(turn, slot, completion, out);
            return Flow::Next;
        }
        let Some(ParkedRequest { tag, kind }) = self.in_flight.take(slot) else {
            return Flow::Next;
        };
        let composer = tag.composer(&self.protocol);
        let begin = out.position();
        let result = match kind {
            ReplyKind::Text(suspended) => {
                text_exec::resume(self, turn, &suspended, tag.start_ns, completion, out);
                return Flow::Next;
            }
            ReplyKind::TextDocument => {
                text_exec::on_part(self, turn, slot, completion, out);
                return Flow::Next;
            }
            ReplyKind::Observe(observing) => {
                match commands::observed(self, turn, tag, observing, completion, out) {
                    Ok(CommandOutcome::Parked) => return Flow::Next,
                    other => other.map(drop),
                }
            }
            kind => commands::complete(&composer, &kind, completion, out),
        };
        self.answered(turn, tag, composer, result, begin, out)
    }

    /// Composes a part of the answer to a command that continues. Its server duration is the time since the request. If
    /// that fails, the command fails at its end.
    fn on_part(
        &mut self,
        turn: &mut SessionTurn<'_>,
        slot: u8,
        completion: Completion,
        out: &mut Output,
    ) {
        let Some(request) = self.in_flight.get_mut(slot) else {
            return;
        };
        let kind = std::mem::replace(&mut request.kind, ReplyKind::ScanFailed);
        let composer = request.tag.composer(&self.protocol);
        let begin = out.position();
        if commands::complete(&composer, &kind, completion, out).is_ok() {
            turn.last_ns = turn.shared.clock.mono_ns();
            let took_ns = turn.last_ns.saturating_sub(request.tag.start_ns);
            write_duration(took_ns, begin, out);
            request.kind = kind;
        }
    }

    /// Composes the reply of a parked login. `None`: the password was not checked.
    pub(crate) fn on_login(
        &mut self,
        turn: &mut SessionTurn<'_>,
        slot: u8,
        login: Option<LoginResult>,
        out: &mut Output,
    ) -> Flow {
        let Some(ParkedRequest { tag, .. }) = self.in_flight.take(slot) else {
            return Flow::Next;
        };
        if self.protocol.is_text() {
            text_exec::logged_in(self, turn, login, tag.start_ns, out);
            return Flow::Next;
        }
        let composer = tag.composer(&self.protocol);
        let begin = out.position();
        let result = match login {
            Some(login) => commands::logged_in(self, turn, &composer, login, out),
            None => Err(CommandFailure::new(
                Status::TemporaryFailure,
                "too many logins of this client wait for their turn",
            )),
        };
        self.answered(turn, tag, composer, result, begin, out)
    }

    fn answered(
        &mut self,
        turn: &mut SessionTurn<'_>,
        tag: RequestTag,
        composer: Composer,
        result: Result<(), CommandFailure>,
        begin: usize,
        out: &mut Output,
    ) -> Flow {
        let status = result
            .err()
            .map_or(Status::Success, |failure| failure.status);
        turn.shared.metrics.thread(turn.thread).replied(status);
        let flow = match result {
            Ok(()) => Flow::Next,
            Err(failure) => self.fail(turn.shared, &composer, failure, out),
        };
        turn.last_ns = turn.shared.clock.mono_ns();
        self.record_duration(turn, Some(tag.opcode), begin, tag.start_ns, out);
        flow
    }
}
