//! A socket and the session on it: receiving, letting the session execute, sending.
//!
//! The poll is edge-triggered, so what is known of the socket's readiness is kept here: it is readable until a receive
//! came back short, and writable until a send did.
//!
//! Bytes are received into a buffer that the connections of a thread share, and executed from there. Only the beginning
//! of a frame whose rest has not come is kept with the connection, so one that does nothing holds no buffer.

use std::io::{self, Read};
use std::time::Duration;

use kedge_node::output::Output;
use mio::net::TcpStream;

use crate::conversation::{OffloadOutcome, OffloadedSession, OffloadedWork, Returned};
use crate::inbox::Message;
use crate::limits::{Limits, RECEIVE_BUFFER_BYTES, SLOW_SENDER_PROGRESS_BYTES};
use crate::metrics::ThreadMetrics;
use crate::request_memory::{Asker, FREE_BYTES, Room};
use crate::session::{Flow, Halt, Session, SessionTurn};
use crate::shared::Shared;

/// So much a connection sends in a turn.
const STREAM_TURN_BYTES: usize = 1 << 20;

/// The next action of a front-end thread for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing until the socket is ready, or a parked command ends.
    Wait,
    /// Go on with it, but let others have their turn first.
    Again,
    /// Close it.
    Close,
    /// Give its loan to a task.
    Lend,
}

/// When something began that must not take for ever, nanoseconds of the monotonic clock.
#[derive(Clone, Copy, Debug)]
struct Slow {
    since_ns: u64,
    /// Bytes there were then.
    bytes: usize,
}

/// A connection of a front-end thread.
pub(crate) struct Connection {
    stream: TcpStream,
    pub(crate) session: Session,
    /// Received and not executed; from `tail_at` on.
    tail: Vec<u8>,
    tail_at: usize,
    pub(crate) out: Output,
    halt: Halt,
    readable: bool,
    writable: bool,
    /// The client sends no more, and that it does not is still to be received, behind its last bytes.
    ending: bool,
    /// The client sends no more.
    ended: bool,
    /// No request is read any more; the connection ends when what is in flight was answered.
    draining: bool,
    /// Already in the thread's list of those that want another go.
    pub(crate) queued_again: bool,
    /// The turn in which it was last handled.
    pub(crate) last_turn: u64,
    accepted_ns: u64,
    active_ns: u64,
    incomplete: Option<Slow>,
    /// Since when nothing was sent though there is something to send, nanoseconds of the monotonic clock.
    stalled_ns: Option<u64>,
    /// Something was sent since that was looked at.
    sent_some: bool,
    /// The session is with a task, and another stands in its place.
    away: bool,
    /// The session that a task is to be given.
    pub(crate) loan: Option<OffloadedSession>,
    /// Messages that came for the session while it was away.
    pub(crate) deferred: Vec<Message>,
    /// Memory for the request that is received, or executed by a task.
    room: Option<Room>,
    /// The request is not received further until there is room for it.
    waits_for_room: bool,
}

/// Per-thread buffers that a connection uses while it is handled.
pub(crate) struct ThreadBuffers<'l> {
    /// [`RECEIVE_BUFFER_BYTES`] long.
    pub(crate) receive: &'l mut [u8],
    /// Buffers of connections that have sent all.
    pub(crate) outputs: &'l mut OutputPool,
    pub(crate) metrics: &'l ThreadMetrics,
}

/// Output buffers that nobody uses. Only connections with something to send have one.
#[derive(Default)]
pub(crate) struct OutputPool(Vec<Output>);

impl OutputPool {
    /// Most that are kept.
    const KEPT_MAX: usize = 8;

    fn take(&mut self) -> Output {
        self.0.pop().unwrap_or_default()
    }

    /// Takes back a buffer that is empty.
    pub(crate) fn give(&mut self, mut output: Output) {
        if self.0.len() < Self::KEPT_MAX {
            output.recycle();
            self.0.push(output);
        }
    }
}

impl Connection {
    pub(crate) fn new(stream: TcpStream, session: Session, now_ns: u64) -> Self {
        Self {
            stream,
            session,
            tail: Vec::new(),
            tail_at: 0,
            out: Output::default(),
            halt: Halt::NeedBytes(1),
            readable: true,
            writable: true,
            ending: false,
            ended: false,
            draining: false,
            queued_again: false,
            last_turn: 0,
            accepted_ns: now_ns,
            active_ns: now_ns,
            incomplete: None,
            stalled_ns: None,
            sent_some: false,
            away: false,
            loan: None,
            deferred: Vec::new(),
            room: None,
            waits_for_room: false,
        }
    }

    pub(crate) fn stream_mut(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// The poll says that the socket is ready.
    pub(crate) fn on_ready(&mut self, readable: bool, writable: bool, ending: bool) {
        self.readable |= readable || ending;
        self.writable |= writable;
        self.ending |= ending;
    }

    /// Takes no more requests. Those in flight are still answered.
    pub(crate) fn drain(&mut self) {
        self.draining = true;
    }

    /// A buffer to compose into, before something is composed outside of [`Self::serve`].
    pub(crate) fn borrow_output(&mut self, outputs: &mut OutputPool) {
        if self.out.is_bare() {
            self.out = outputs.take();
        }
    }

    /// Makes all the progress that is to be made: execute what was received, receive more, send.
    pub(crate) fn serve(
        &mut self,
        turn: &mut SessionTurn<'_>,
        lent: &mut ThreadBuffers<'_>,
    ) -> Verdict {
        self.active_ns = turn.now.mono_ns;
        if self.away {
            return Verdict::Wait;
        }
        turn.begin_slice();
        self.borrow_output(lent.outputs);
        if self.session.is_dcp() && !self.session.on_time(turn, &mut self.out) {
            return Verdict::Close;
        }
        let again = match self.execute(turn, lent) {
            Ok(again) => again,
            Err(error) => return self.lost(&error),
        };
        if self.away {
            return Verdict::Lend;
        }
        if self.tail.is_empty() {
            self.give_room_back(turn.shared);
        }
        if self.session.is_over() {
            return Verdict::Close;
        }
        let again = match self.stream(turn, lent.metrics) {
            Ok(more) => again | more,
            Err(error) => return self.lost(&error),
        };
        self.watch(turn.now.mono_ns);
        if self.out.is_empty() {
            lent.outputs.give(std::mem::take(&mut self.out));
            if self.is_over() {
                return Verdict::Close;
            }
        }
        if again { Verdict::Again } else { Verdict::Wait }
    }

    /// Whether nothing more will come of it.
    fn is_over(&self) -> bool {
        match self.halt {
            Halt::Close | Halt::Malformed => true,
            _ => (self.ended || self.draining) && self.session.in_flight() == 0,
        }
    }

    /// Returns whether the session is with a task.
    pub(crate) fn is_away(&self) -> bool {
        self.away
    }

    /// Lends the session, and its output, for work that takes long.
    pub(crate) fn lend(&mut self, work: OffloadedWork, turn: &SessionTurn<'_>) {
        turn.shared.metrics.thread(turn.thread).left_to_task();
        let stand_in = self.session.stand_in(turn.shared);
        self.away = true;
        self.loan = Some(OffloadedSession {
            session: std::mem::replace(&mut self.session, stand_in),
            out: std::mem::take(&mut self.out),
            work,
            start_ns: turn.last_ns,
        });
    }

    /// Lends the session for the next request, of this length.
    fn lend_request(&mut self, len: usize, turn: &SessionTurn<'_>) {
        let request = if self.tail_at == 0 && self.tail.len() == len {
            std::mem::take(&mut self.tail)
        } else {
            self.tail[self.tail_at..self.tail_at + len].to_vec()
        };
        self.tail_at += len;
        if self.tail_at >= self.tail.len() {
            self.tail = Vec::new();
            self.tail_at = 0;
        }
        self.incomplete = None;
        self.lend(OffloadedWork::Request(request), turn);
    }

    /// The session is back. False when the connection is to end.
    pub(crate) fn take_back(&mut self, returned: Returned) -> bool {
        self.away = false;
        self.session = returned.session;
        self.out = returned.out;
        match returned.worked {
            OffloadOutcome::Request(mut request, executed, halt) => {
                if executed < request.len() {
                    request.drain(..executed);
                    request.extend_from_slice(&self.tail[self.tail_at..]);
                    self.tail = request;
                    self.tail_at = 0;
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

    fn lost(&mut self, error: &io::Error) -> Verdict {
        tracing::debug!(peer = %self.session.peer, %error, "a connection was lost");
        Verdict::Close
    }

    /// Executes and receives until there is nothing to do, or others are to have their turn: then true.
    fn execute(
        &mut self,
        turn: &mut SessionTurn<'_>,
        lent: &mut ThreadBuffers<'_>,
    ) -> io::Result<bool> {
        let mut received = 0;
        loop {
            if self.draining {
                return Ok(false);
            }
            self.execute_tail(turn);
            match self.halt {
                Halt::Close | Halt::Malformed | Halt::Parked => return Ok(false),
                Halt::Slice => return Ok(true),
                Halt::Long(len) => {
                    self.send(lent.metrics)?;
                    self.lend_request(len, turn);
                    return Ok(false);
                }
                Halt::Full => {
                    self.send(lent.metrics)?;
                    if !self.out.is_empty() {
                        return Ok(self.writable);
                    }
                    // All was sent; go on with what was received.
                    self.out.recycle();
                    self.halt = Halt::NeedBytes(1);
                }
                Halt::NeedBytes(need) => {
                    if !self.readable || self.ended {
                        return Ok(false);
                    }
                    if !self.may_receive(need, turn.shared) {
                        return Ok(false);
                    }
                    if received >= RECEIVE_BUFFER_BYTES || turn.was_over() {
                        return Ok(true);
                    }
                    received += self.receive(need, turn, lent)?;
                }
            }
        }
    }

    fn asker(&self) -> Asker {
        match self.session.user {
            Some(_) => Asker::User,
            None => Asker::Anonymous,
        }
    }

    /// Returns whether a request of this length may be received further. If there is no room for it the connection waits until it
    /// is told of some.
    fn may_receive(&mut self, need: usize, shared: &Shared) -> bool {
        if need <= FREE_BYTES {
            self.give_room_back(shared);
            return true;
        }
        if self.room.is_some_and(|room| room.bytes() >= need) {
            return true;
        }
        if self.waits_for_room {
            return false;
        }
        // Lines become longer while they come, and are not to ask for each byte.
        let bytes = match need {
            ..=RECEIVE_BUFFER_BYTES => need.next_power_of_two(),
            _ => need,
        };
        self.give_room_back(shared);
        let memory = &shared.request_memory;
        self.room = memory.ask(self.session.id(), self.asker(), bytes);
        self.waits_for_room = self.room.is_none();
        self.room.is_some()
    }

    /// There is room for the request that waits.
    pub(crate) fn take_room(&mut self, room: Room) {
        self.waits_for_room = false;
        self.room = Some(room);
    }

    fn give_room_back(&mut self, shared: &Shared) {
        if let Some(room) = self.room.take() {
            shared.request_memory.give_back(room, &shared.front_ends);
        }
    }

    /// The connection ends: it neither has room any more nor waits for some.
    pub(crate) fn leave_room(&mut self, shared: &Shared) {
        self.tail = Vec::new();
        self.give_room_back(shared);
        if std::mem::take(&mut self.waits_for_room) {
            let id = self.session.id();
            shared.request_memory.forget(id, &shared.front_ends);
        }
    }

    /// Executes what is kept, unless it is known to be too little.
    fn execute_tail(&mut self, turn: &mut SessionTurn<'_>) {
        let waiting = self.tail.len() - self.tail_at;
        let enough = match self.halt {
            Halt::NeedBytes(need) => waiting >= need,
            Halt::Parked | Halt::Slice => true,
            Halt::Full | Halt::Close | Halt::Malformed | Halt::Long(_) => false,
        };
        if waiting == 0 || !enough {
            let goes_on =
                self.halt == Halt::Slice || (self.halt == Halt::Parked && !self.session.is_held());
            if goes_on {
                self.halt = Halt::NeedBytes(1);
            }
            return;
        }
        let (consumed, halt) =
            self.session
                .on_bytes(turn, &self.tail[self.tail_at..], &mut self.out);
        self.halt = halt;
        self.tail_at += consumed;
        if consumed > 0 {
            self.incomplete = None;
        }
        if self.tail_at == self.tail.len() {
            self.tail = Vec::new();
            self.tail_at = 0;
        }
    }

    /// Receives once; `need` is the length of the frame that is incomplete. Returns how many bytes came.
    fn receive(
        &mut self,
        need: usize,
        turn: &mut SessionTurn<'_>,
        lent: &mut ThreadBuffers<'_>,
    ) -> io::Result<usize> {
        let kept = self.tail.len() - self.tail_at;
        if need > RECEIVE_BUFFER_BYTES {
            return self.receive_large(need, lent.metrics);
        }
        assert!(
            kept < RECEIVE_BUFFER_BYTES,
            "what is kept is less than the frame that is incomplete"
        );
        let is_scarce = turn.shared.request_memory.is_scarce(self.asker());
        let space = match self.room {
            None if is_scarce => FREE_BYTES.min(RECEIVE_BUFFER_BYTES - kept),
            _ => RECEIVE_BUFFER_BYTES - kept,
        };
        let count = match self.stream.read(&mut lent.receive[kept..kept + space]) {
            Ok(0) => {
                self.ended = true;
                return Ok(0);
            }
            Ok(count) => count,
            Err(error) => return self.not_now(error),
        };
        lent.metrics.read(count);
        // Commands begin when they are here.
        turn.last_ns = turn.shared.clock.mono_ns();
        // Less than there was room for: the socket is empty, and the poll tells of what comes. It does not tell again
        // of the end when it has told of it.
        self.readable = count == space || self.ending;
        lent.receive[..kept].copy_from_slice(&self.tail[self.tail_at..]);
        let filled = &lent.receive[..kept + count];
        self.tail_at = 0;
        let (consumed, halt) = self.session.on_bytes(turn, filled, &mut self.out);
        self.halt = halt;
        if consumed > 0 {
            self.incomplete = None;
        }
        self.tail = filled[consumed..].to_vec();
        Ok(count)
    }

    /// Receives the rest of a frame that does not fit the shared buffer, into memory of its own.
    fn receive_large(&mut self, need: usize, metrics: &ThreadMetrics) -> io::Result<usize> {
        if self.tail_at > 0 {
            self.tail.drain(..self.tail_at);
            self.tail_at = 0;
        }
        let before = self.tail.len();
        let rest = need - before;
        // There is room for all of it; memory that nothing was written to costs nothing.
        self.tail.reserve_exact(rest);
        let limit = rest.min(RECEIVE_BUFFER_BYTES);
        let result = (&mut self.stream)
            .take(limit as u64)
            .read_to_end(&mut self.tail);
        let count = self.tail.len() - before;
        metrics.read(count);
        match result {
            Ok(_) if count < limit => {
                self.ended = true;
                Ok(count)
            }
            Ok(_) => Ok(count),
            Err(error) => self.not_now(error).map(|_| count),
        }
    }

    fn not_now(&mut self, error: io::Error) -> io::Result<usize> {
        match error.kind() {
            io::ErrorKind::WouldBlock => {
                self.readable = false;
                Ok(0)
            }
            // The socket is still readable: it is tried again.
            io::ErrorKind::Interrupted => Ok(0),
            _ => Err(error),
        }
    }

    /// Sends as much as the socket takes, and no more than others can wait for: it is still writable then.
    fn send(&mut self, metrics: &ThreadMetrics) -> io::Result<()> {
        let mut sent = 0;
        while self.writable && !self.out.is_empty() && sent < STREAM_TURN_BYTES {
            match self.out.write_to(&mut self.stream) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    metrics.wrote(count);
                    self.sent_some = true;
                    sent += count;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends, and lets the streams of a DCP connection, or a long answer, fill the output as long as the socket takes it.
    /// True when others are to have their turn before that goes on.
    fn stream(&mut self, turn: &mut SessionTurn<'_>, metrics: &ThreadMetrics) -> io::Result<bool> {
        let mut ends = matches!(self.halt, Halt::Close | Halt::Malformed) || self.draining;
        let mut sent = 0;
        loop {
            if self.session.is_telling() {
                self.session.go_on_telling(turn, &mut self.out);
                // Commands that came behind it are held no more.
                ends |= !self.session.is_telling();
            } else if !ends {
                self.session.fill(turn, &mut self.out);
            }
            sent += self.out.queued();
            self.send(metrics)?;
            let has_more = !self.out.is_empty() && self.writable;
            if ends {
                let goes_on = self.halt == Halt::Parked && !self.session.is_held();
                return Ok(has_more || goes_on);
            }
            if !self.out.is_empty() || !self.session.has_ready() {
                return Ok(has_more);
            }
            self.out.recycle();
            if sent >= STREAM_TURN_BYTES || turn.is_over() {
                return Ok(true);
            }
        }
    }

    /// Takes note of what must not stay as it is for ever.
    fn watch(&mut self, now_ns: u64) {
        let sent_some = std::mem::take(&mut self.sent_some);
        if self.out.is_empty() {
            self.stalled_ns = None;
        } else if sent_some || self.stalled_ns.is_none() {
            self.stalled_ns = Some(now_ns);
        }
        let kept = self.tail.len() - self.tail_at;
        if kept == 0 || self.waits_for_room || !matches!(self.halt, Halt::NeedBytes(_)) {
            self.incomplete = None;
        } else {
            let progress = self
                .incomplete
                .is_none_or(|slow| kept >= slow.bytes + SLOW_SENDER_PROGRESS_BYTES);
            if progress {
                self.incomplete = Some(Slow {
                    since_ns: now_ns,
                    bytes: kept,
                });
            }
        }
    }

    /// When a limit of time is met unless something happens, and which one; nanoseconds of the monotonic clock.
    pub(crate) fn deadline(&self, limits: &Limits) -> Option<(u64, &'static str)> {
        if self.away {
            return None;
        }
        let after =
            |since_ns: u64, limit: Duration| since_ns.saturating_add(limit.as_nanos() as u64);
        let mut nearest: Option<(u64, &'static str)> = None;
        let mut consider = |at: u64, what| {
            if nearest.is_none_or(|(nearest, _)| at < nearest) {
                nearest = Some((at, what));
            }
        };
        // Its password waits for the server, not the other way round.
        let is_checked = self.session.in_flight() > 0;
        if !self.session.is_authenticated() && !is_checked {
            consider(
                after(self.accepted_ns, limits.unauthenticated),
                "did not log in",
            );
        }
        if let Some(slow) = self.incomplete {
            consider(after(slow.since_ns, limits.slow_sender), "sends too slowly");
        }
        if let Some(since_ns) = self.stalled_ns {
            consider(
                after(since_ns, limits.send_stall),
                "does not read its replies",
            );
        }
        let busy =
            self.session.in_flight() > 0 || self.session.is_dcp() || self.stalled_ns.is_some();
        let busy = busy || self.waits_for_room;
        if !limits.idle.is_zero() && !busy {
            consider(after(self.active_ns, limits.idle), "is idle");
        }
        nearest
    }

    /// Whether it ended because what came was no request.
    pub(crate) fn is_malformed(&self) -> bool {
        self.halt == Halt::Malformed
    }
}
