//! The conversation of a session with its client: from bytes to commands, and from completions to replies.
//!
//! [`crate::session`] has the state of a session; here are the functions that need the commands, too.

mod look_ahead;
mod offload;
mod parked;
mod run;

use kedge_node::output::Output;
use kedge_protocol::binary::{Parse, parse_frame};

pub(crate) use offload::{OffloadOutcome, OffloadResult, OffloadedSession, OffloadedWork};

use crate::server_context::ServerContext;
use crate::session::{Flow, Halt, Session, SessionTurn};
use crate::{commands, text_exec};

impl Session {
    /// Executes the commands at the front of `bytes`. Returns the number of executed bytes, and the reason to stop.
    pub(crate) fn on_bytes(
        &mut self,
        turn: &mut SessionTurn<'_>,
        bytes: &[u8],
        out: &mut Output,
    ) -> (usize, Halt) {
        if !self.protocol.detect(bytes) {
            return (0, Halt::NeedBytes(1));
        }
        if self.protocol.is_text() {
            return text_exec::on_bytes(self, turn, bytes, out);
        }
        let mut at = 0;
        let mut requested = 0;
        loop {
            if self.dcp.is_dcp() {
                let (consumed, halt) = self.on_dcp_bytes(turn, &bytes[at..], out);
                return (at + consumed, halt);
            }
            let queued_max = turn.shared.limits.queued_bytes_max;
            if let Some(halt) = self.halt(turn, out.queued(), queued_max) {
                return (at, halt);
            }
            if requested == 0 {
                requested = self.look_ahead(&bytes[at..], self.body_bytes_max(turn.shared));
            }
            requested = requested.saturating_sub(1);
            match parse_frame(&bytes[at..], self.body_bytes_max(turn.shared)) {
                Parse::Incomplete { need } => return (at, Halt::NeedBytes(need)),
                Parse::Fatal(error) => {
                    tracing::debug!(peer = %self.peer, %error, "closing a connection");
                    return (at, Halt::Malformed);
                }
                // The server sends no request whose response it needs.
                Parse::ServerResponse { consumed, .. } => at += consumed,
                Parse::Frame { request, consumed }
                    if turn.may_offload && self.is_long(&request) =>
                {
                    return (at, Halt::Long(consumed));
                }
                Parse::Frame { request, consumed } => match self.execute(turn, &request, out) {
                    Flow::Next => at += consumed,
                    Flow::Wait => return (at, Halt::Parked),
                    Flow::Close => return (at + consumed, Halt::Close),
                },
            }
        }
    }

    fn body_bytes_max(&self, shared: &ServerContext) -> usize {
        if self.login.is_authenticated() {
            shared.limits.body_bytes_max
        } else {
            shared.limits.unauthenticated_body_bytes_max
        }
    }

    /// Continues the answer that has begun, while the output has room and the time slice lasts.
    pub(crate) fn continue_answer(&mut self, turn: &mut SessionTurn<'_>, out: &mut Output) {
        turn.shared.metrics.thread(turn.thread).continued();
        if self.stat.is_active() {
            self.continue_stat(turn, out);
        } else {
            text_exec::continue_retrieval(self, turn, out);
        }
    }

    /// Notifies the client of the current cluster map, if it negotiated that and knows only an older one.
    pub(crate) fn push_map(&mut self, shared: &ServerContext, out: &mut Output) {
        commands::push_map(self, shared, out);
    }
}
