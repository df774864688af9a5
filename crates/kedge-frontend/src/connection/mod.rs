//! A socket and the session on it: receiving, letting the session execute, sending.
//!
//! Bytes are received into a buffer that the connections of a thread share, and executed from there. Only the beginning
//! of a frame whose rest has not come is kept with the connection, so an idle one holds no buffer.

mod byte_queue;
mod grant;
mod offload;
mod socket;
mod timers;
mod tls;

use std::io;

use kedge_node::output::Output;
use kedge_tls::FailureReason;
use mio::net::TcpStream;

use crate::certificate_login::log_in_by_certificate;
use crate::conversation::{OffloadOutcome, OffloadResult, OffloadedSession, OffloadedWork};
use crate::limits::{FrontendLimits, RECEIVE_BUFFER_BYTES};
use crate::metrics::{Metrics, ThreadMetrics};
use crate::open_handshakes::OpenHandshake;
use crate::request_memory::{ClientClass, MemoryGrant};
use crate::server_context::ServerContext;
use crate::session::{Flow, Halt, Session, SessionTurn};
use byte_queue::ByteQueue;
use grant::RequestGrant;
use offload::Offload;
pub(crate) use socket::ClientSocket;
use socket::SocketTurn;
use timers::{ConnectionTimers, TimedState};
pub(crate) use tls::TlsBuffers;

/// Bytes of a long text line that are received before the line is parsed again.
const LINE_PIECE_BYTES: usize = 64 << 10;
/// The number of bytes that a connection sends in a turn, at most.
const STREAM_TURN_BYTES: usize = 1 << 20;

/// The next action of a front-end thread for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionAction {
    /// Wait until the socket is ready, or a parked command ends.
    Wait,
    /// Serve it again when the other connections have had their turn.
    Again,
    /// Close it.
    Close,
    /// Give its session to a task.
    Offload,
}

/// A connection of a front-end thread.
pub(crate) struct FrontEndConnection {
    socket: ClientSocket,
    pub(crate) session: Session,
    unexecuted: ByteQueue,
    pub(crate) out: Output,
    halt: Halt,
    /// True if no request is read any more; the connection ends when those in flight are answered.
    is_draining: bool,
    /// True if it is in a list of the thread and will be served.
    pub(crate) is_scheduled: bool,
    /// The turn in which it was last served.
    pub(crate) last_turn: u64,
    timers: ConnectionTimers,
    pub(crate) offload: Offload,
    grant: RequestGrant,
    /// The entry among the TLS handshakes that are not complete.
    pub(crate) handshake: Option<OpenHandshake>,
}

/// Per-thread buffers that a connection uses while it is handled.
pub(crate) struct ThreadBuffers<'l> {
    /// [`RECEIVE_BUFFER_BYTES`] long.
    pub(crate) receive: &'l mut [u8],
    /// Output buffers that no connection uses.
    pub(crate) outputs: &'l mut OutputPool,
    pub(crate) tls: &'l mut TlsBuffers,
    pub(crate) metrics: &'l ThreadMetrics,
}

/// Output buffers that no connection uses. Only connections with unsent output have one.
#[derive(Default)]
pub(crate) struct OutputPool(Vec<Output>);

impl OutputPool {
    /// The largest number of buffers kept.
    const KEPT_MAX: usize = 8;

    fn take(&mut self) -> Output {
        self.0.pop().unwrap_or_default()
    }

    /// Takes back an empty buffer.
    pub(crate) fn give(&mut self, mut output: Output) {
        if self.0.len() < Self::KEPT_MAX {
            output.recycle();
            self.0.push(output);
        }
    }
}

impl FrontEndConnection {
    pub(crate) fn new(socket: ClientSocket, session: Session, now_ns: u64) -> Self {
        Self {
            socket,
            session,
            unexecuted: ByteQueue::default(),
            out: Output::default(),
            halt: Halt::NeedBytes(1),
            is_draining: false,
            is_scheduled: false,
            last_turn: 0,
            timers: ConnectionTimers::new(now_ns),
            offload: Offload::default(),
            grant: RequestGrant::default(),
            handshake: None,
        }
    }

    pub(crate) fn stream_mut(&mut self) -> &mut TcpStream {
        self.socket.stream_mut()
    }

    /// Returns true if the TLS handshake is not complete.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.socket.tls().is_some_and(|tls| tls.is_handshaking())
    }

    /// The poll has reported that the socket is ready.
    pub(crate) fn on_ready(&mut self, readable: bool, writable: bool, at_end: bool) {
        self.socket.on_ready(readable, writable, at_end);
    }

    /// Takes no more requests. Those in flight are still answered.
    pub(crate) fn drain(&mut self) {
        self.is_draining = true;
    }

    /// Takes an output buffer, before a reply is composed outside of [`Self::serve`].
    pub(crate) fn borrow_output(&mut self, outputs: &mut OutputPool) {
        if self.out.is_bare() {
            self.out = outputs.take();
        }
    }

    /// Makes all possible progress: executes what was received, receives more, sends.
    pub(crate) fn serve(
        &mut self,
        turn: &mut SessionTurn<'_>,
        buffers: &mut ThreadBuffers<'_>,
    ) -> ConnectionAction {
        self.timers.on_served(turn.now.mono_ns);
        if self.offload.is_away() {
            return ConnectionAction::Wait;
        }
        turn.begin_slice();
        self.borrow_output(buffers.outputs);
        if self.session.answer_needs_task() && self.has_room(turn.shared) {
            self.offload(OffloadedWork::Answer, turn);
            return ConnectionAction::Offload;
        }
        let session = &mut self.session;
        if session.dcp.is_dcp() && !session.dcp.on_time(session.peer, turn, &mut self.out) {
            return ConnectionAction::Close;
        }
        let again = match self.execute(turn, buffers) {
            Ok(again) => again,
            Err(error) => return self.on_error(&error),
        };
        if self.offload.is_away() {
            return ConnectionAction::Offload;
        }
        if self.unexecuted.is_empty() && self.socket.held_bytes() == 0 {
            self.grant.release(turn.shared);
        }
        if self.session.dcp.has_ended() {
            return ConnectionAction::Close;
        }
        let again = match self.stream(turn, buffers) {
            Ok(more) => again | more,
            Err(error) => return self.on_error(&error),
        };
        self.update_timers(turn.now.mono_ns);
        if self.out.is_empty() {
            buffers.outputs.give(std::mem::take(&mut self.out));
            if self.is_over() && !self.socket.has_unsent() {
                return ConnectionAction::Close;
            }
        }
        if again {
            ConnectionAction::Again
        } else {
            ConnectionAction::Wait
        }
    }

    /// Returns true if an answer may continue.
    fn has_room(&self, shared: &ServerContext) -> bool {
        self.out.queued() <= shared.limits.queued_bytes_max
    }

    /// Returns true if output waits for the socket.
    fn has_output(&self) -> bool {
        !self.out.is_empty() || self.socket.has_unsent()
    }

    /// Returns true if neither requests nor replies will follow.
    fn is_over(&self) -> bool {
        match self.halt {
            Halt::Close | Halt::Malformed => true,
            _ => (self.socket.is_at_end() || self.is_draining) && self.session.in_flight() == 0,
        }
    }

    /// Offloads the session and its output to a task, for work that takes long.
    pub(crate) fn offload(&mut self, work: OffloadedWork, turn: &SessionTurn<'_>) {
        turn.shared.metrics.thread(turn.thread).offloaded();
        let stand_in = self.session.stand_in(turn.shared);
        self.offload.begin(OffloadedSession {
            session: std::mem::replace(&mut self.session, stand_in),
            out: std::mem::take(&mut self.out),
            work,
            start_ns: turn.last_ns,
        });
    }

    /// Offloads the session for the next request, of this length.
    fn offload_request(&mut self, len: usize, turn: &SessionTurn<'_>) {
        let request = self.unexecuted.take(len);
        self.timers.on_frame();
        self.offload(OffloadedWork::Request(request), turn);
    }

    /// Takes the session back from a task. Returns false when the connection is to end.
    pub(crate) fn take_back(&mut self, returned: OffloadResult) -> bool {
        self.offload.end();
        self.session = returned.session;
        self.out = returned.out;
        match returned.outcome {
            OffloadOutcome::Request(mut request, executed, halt) => {
                if executed < request.len() {
                    request.drain(..executed);
                    self.unexecuted.put_back(request);
                }
                self.halt = match halt {
                    Halt::NeedBytes(_) => Halt::Slice,
                    other => other,
                };
                true
            }
            OffloadOutcome::Completion(flow) => flow != Flow::Close,
        }
    }

    fn on_error(&mut self, error: &io::Error) -> ConnectionAction {
        let peer = self.session.peer;
        match self.tls_failure() {
            Some(FailureReason::NotTls) => {
                tracing::debug!(%peer, %error, "a client without TLS connected to a TLS port");
            }
            Some(reason) => {
                tracing::debug!(%peer, reason = reason.label(), %error, "a TLS handshake failed");
            }
            None => tracing::debug!(%peer, %error, "a connection was lost"),
        }
        ConnectionAction::Close
    }

    /// Executes and receives until nothing is left, or until other connections are to have their turn. Returns true in the
    /// latter case.
    fn execute(
        &mut self,
        turn: &mut SessionTurn<'_>,
        buffers: &mut ThreadBuffers<'_>,
    ) -> io::Result<bool> {
        let mut received = 0;
        loop {
            if self.is_draining {
                return Ok(false);
            }
            self.execute_unexecuted(turn);
            match self.halt {
                Halt::Close | Halt::Malformed | Halt::Parked => return Ok(false),
                Halt::Slice => return Ok(true),
                Halt::Long(len) => {
                    self.send(buffers)?;
                    self.offload_request(len, turn);
                    return Ok(false);
                }
                Halt::Full => {
                    self.send(buffers)?;
                    if !self.out.is_empty() {
                        return Ok(self.socket.is_writable());
                    }
                    // All was sent, so the bytes that were received are executed next.
                    self.out.recycle();
                    self.halt = Halt::NeedBytes(1);
                }
                Halt::NeedBytes(need) => {
                    let need = self.receive_target(need);
                    if !self.socket.is_readable() || !self.may_receive(need, turn.shared) {
                        return Ok(false);
                    }
                    if received >= RECEIVE_BUFFER_BYTES || turn.was_over() {
                        return Ok(true);
                    }
                    received += self.receive(need, turn, buffers)?;
                }
            }
        }
    }

    /// Bytes to receive in total until the next request is parsed again. The length of a text line is not known before
    /// its end: a long one, which does not fit into the shared buffer, is received in pieces and not byte by byte.
    fn receive_target(&self, need: usize) -> usize {
        if need > RECEIVE_BUFFER_BYTES && self.session.protocol.is_text() {
            need.max(self.unexecuted.len() + LINE_PIECE_BYTES)
        } else {
            need
        }
    }

    fn client_class(&self) -> ClientClass {
        match self.session.login.user() {
            Some(_) => ClientClass::User,
            None => ClientClass::Anonymous,
        }
    }

    fn may_receive(&mut self, need: usize, shared: &ServerContext) -> bool {
        let (id, class) = (self.session.id(), self.client_class());
        let need = self.socket.memory_need(need);
        self.grant.may_receive(need, id, class, shared)
    }

    /// Request memory was granted to the request that waits for it.
    pub(crate) fn on_granted(&mut self, grant: MemoryGrant) {
        self.grant.on_granted(grant);
    }

    /// Gives the memory of requests back, as the connection ends.
    pub(crate) fn release_memory(&mut self, shared: &ServerContext) {
        self.unexecuted.clear();
        self.grant.end(self.session.id(), shared);
    }

    /// Executes the bytes that were received before, unless it is known that more are needed.
    fn execute_unexecuted(&mut self, turn: &mut SessionTurn<'_>) {
        let waiting = self.unexecuted.len();
        let enough = match self.halt {
            Halt::NeedBytes(need) => waiting >= need,
            Halt::Parked | Halt::Slice => true,
            Halt::Full | Halt::Close | Halt::Malformed | Halt::Long(_) => false,
        };
        if waiting == 0 || !enough {
            let goes_on = self.halt == Halt::Slice
                || (self.halt == Halt::Parked && !self.session.is_blocked());
            if goes_on {
                self.halt = Halt::NeedBytes(1);
            }
            return;
        }
        let (consumed, halt) =
            self.session
                .on_bytes(turn, self.unexecuted.as_slice(), &mut self.out);
        self.halt = halt;
        if consumed > 0 {
            self.timers.on_frame();
        }
        self.unexecuted.consume(consumed);
    }

    /// Receives once; `need` is the length of the incomplete frame. Returns the number of bytes.
    fn receive(
        &mut self,
        need: usize,
        turn: &mut SessionTurn<'_>,
        buffers: &mut ThreadBuffers<'_>,
    ) -> io::Result<usize> {
        let kept = self.unexecuted.len();
        if need > RECEIVE_BUFFER_BYTES {
            return self.receive_large(need, turn, buffers);
        }
        assert!(
            kept < RECEIVE_BUFFER_BYTES,
            "the kept bytes are fewer than those of the incomplete frame"
        );
        let room = RECEIVE_BUFFER_BYTES - kept;
        let space = self
            .grant
            .receive_max(room, self.client_class(), turn.shared);
        let free = &mut buffers.receive[kept..kept + space];
        let mut aids = SocketTurn {
            metrics: buffers.metrics,
            tls: buffers.tls,
            is_over: &|| turn.is_over(),
        };
        let count = self.socket.receive(free, &mut aids)?;
        // The time of the first command starts now. With TLS, time has passed even if no byte of a request came.
        if count > 0 || self.socket.tls().is_some() {
            turn.last_ns = turn.shared.clock.mono_ns();
        }
        if self.socket.take_handshake() {
            self.on_handshake(turn.shared)?;
        }
        if count == 0 {
            return Ok(0);
        }
        buffers.receive[..kept].copy_from_slice(self.unexecuted.as_slice());
        let filled = &buffers.receive[..kept + count];
        let (consumed, halt) = self.session.on_bytes(turn, filled, &mut self.out);
        self.halt = halt;
        if consumed > 0 {
            self.timers.on_frame();
        }
        self.unexecuted.set(&filled[consumed..]);
        Ok(count)
    }

    /// Receives the rest of a frame that does not fit into the shared buffer, into memory of its own.
    fn receive_large(
        &mut self,
        need: usize,
        turn: &mut SessionTurn<'_>,
        buffers: &mut ThreadBuffers<'_>,
    ) -> io::Result<usize> {
        let buffer = self.unexecuted.reserve(need);
        let max = (need - buffer.len()).min(RECEIVE_BUFFER_BYTES);
        let mut aids = SocketTurn {
            metrics: buffers.metrics,
            tls: buffers.tls,
            is_over: &|| turn.is_over(),
        };
        let count = self.socket.receive_into(buffer, max, &mut aids)?;
        if self.socket.tls().is_some() {
            turn.last_ns = turn.shared.clock.mono_ns();
        }
        Ok(count)
    }

    /// The TLS handshake is complete: the client is logged in if its certificate names a user.
    fn on_handshake(&mut self, shared: &ServerContext) -> io::Result<()> {
        let (Some(session), Some(server)) = (self.socket.tls(), &shared.tls) else {
            return Ok(());
        };
        self.handshake = None;
        let login = log_in_by_certificate(&mut self.session, shared, session.state());
        let metrics = server.metrics();
        match login {
            Ok(()) => metrics.handshake(session.is_resumed()),
            Err(_) => metrics.failure(FailureReason::NoUserName),
        }
        login.map_err(io::Error::other)
    }

    /// The reason for which the TLS handshake failed, or would if the connection ended now.
    fn tls_failure(&self) -> Option<FailureReason> {
        let tls = self.socket.tls()?;
        let closed = tls.is_handshaking().then_some(FailureReason::Closed);
        tls.failure().or(closed)
    }

    /// Ends the session of the socket, and counts the way in which it ended.
    pub(crate) fn end_socket(&mut self, shared: &ServerContext) {
        self.socket.close();
        if let (Some(reason), Some(server)) = (self.tls_failure(), &shared.tls) {
            server.metrics().failure(reason);
        }
        if self.socket.tls().is_some_and(|tls| tls.is_truncated()) {
            Metrics::count(&shared.metrics.tls_truncated);
            tracing::debug!(
                peer = %self.session.peer,
                "a client ended its TLS connection without close_notify"
            );
        }
    }

    /// Sends as much as the socket takes, but no more than other connections can wait for.
    fn send(&mut self, buffers: &mut ThreadBuffers<'_>) -> io::Result<()> {
        let mut aids = SocketTurn {
            metrics: buffers.metrics,
            tls: buffers.tls,
            is_over: &|| false,
        };
        let sent = self
            .socket
            .send(&mut self.out, STREAM_TURN_BYTES, &mut aids)?;
        if sent > 0 {
            self.timers.on_sent();
        }
        Ok(())
    }

    /// Sends, and lets DCP streams or a long answer fill the output while the socket takes it. Returns true when other
    /// connections are to have their turn before that continues.
    fn stream(
        &mut self,
        turn: &mut SessionTurn<'_>,
        buffers: &mut ThreadBuffers<'_>,
    ) -> io::Result<bool> {
        let mut ends = matches!(self.halt, Halt::Close | Halt::Malformed) || self.is_draining;
        let mut sent = 0;
        loop {
            if self.session.has_long_answer() {
                self.session.continue_answer(turn, &mut self.out);
                // Commands that came behind it may start now.
                ends |= !self.session.has_long_answer();
            } else if !ends {
                self.session.dcp.fill(turn, &mut self.out);
            }
            sent += self.out.queued();
            self.send(buffers)?;
            let has_more = self.has_output() && self.socket.is_writable();
            if ends {
                let goes_on = self.halt == Halt::Parked && !self.session.is_blocked();
                // Also at the shutdown, an answer that has begun is completed.
                let continues = self.out.is_empty() && self.session.has_long_answer();
                return Ok(has_more || goes_on || continues);
            }
            if self.session.answer_needs_task() {
                return Ok(has_more || self.has_room(turn.shared));
            }
            let has_ready = self.session.has_long_answer() || self.session.dcp.has_ready();
            if !self.out.is_empty() || !has_ready {
                return Ok(has_more);
            }
            self.out.recycle();
            if sent >= STREAM_TURN_BYTES || turn.is_over() {
                return Ok(true);
            }
        }
    }

    fn update_timers(&mut self, now_ns: u64) {
        let received = self.unexecuted.len() + self.socket.held_bytes();
        let is_incomplete =
            received > 0 && !self.grant.is_waiting() && matches!(self.halt, Halt::NeedBytes(_));
        let incomplete = is_incomplete.then_some(received);
        self.timers.update(now_ns, self.has_output(), incomplete);
    }

    /// The nearest deadline, nanoseconds of the monotonic clock, and the reason to close the connection then.
    pub(crate) fn deadline(&self, limits: &FrontendLimits) -> Option<(u64, &'static str)> {
        if self.offload.is_away() {
            return None;
        }
        let state = TimedState {
            // A client whose password is being checked waits for the server.
            needs_login: !self.session.login.is_authenticated() && self.session.in_flight() == 0,
            is_handshaking: self.is_handshaking(),
            is_busy: self.is_busy(),
        };
        self.timers.deadline(limits, state)
    }

    /// Returns true if the connection waits for the server, or for DCP streams.
    fn is_busy(&self) -> bool {
        self.session.in_flight() > 0 || self.session.dcp.is_dcp() || self.grant.is_waiting()
    }

    /// Publishes the time of the last request, for the choice of the connection to evict.
    pub(crate) fn publish_activity(&self, now_ns: u64) {
        let is_busy = self.offload.is_away() || self.has_output() || self.is_busy();
        let last_request_ns = self.timers.last_request_ns();
        self.session
            .publish_activity((!is_busy).then_some(last_request_ns), now_ns);
    }

    /// Returns true if it ended because the received bytes were no request.
    pub(crate) fn is_malformed(&self) -> bool {
        self.halt == Halt::Malformed
    }
}
