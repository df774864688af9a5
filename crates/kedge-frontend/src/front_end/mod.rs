//! A front-end thread: one event loop, and the connections that stay with it.
//!
//! A turn of the loop: wait for sockets or messages; serve each connection with work, with one send each; read the
//! inbox; continue a few TLS handshakes; request a flush of the buckets in which commands were parked; read the inbox
//! again, since the flush may have completed commands on this very thread.

mod adaptive_polling;
mod limits;
mod messages;
mod reads;
mod schedule;
mod stop;
mod table;
#[cfg(test)]
mod tests;
mod turn_time;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kedge_auth::UserStore;
use kedge_bucket::Bucket;
use kedge_protocol::binary::ConnectionKind;
use kedge_sync::{RankedMutex, ranks::ReturnedSessions};
use mio::event::Event;
use mio::{Events, Poll, Token};

use crate::connection::{ConnectionAction, OutputPool, ThreadBuffers, TlsBuffers};
use crate::conversation::OffloadResult;
use crate::inbox::{FrontEndMessage, FrontEnds};
use crate::limits::RECEIVE_BUFFER_BYTES;
use crate::metrics::Metrics;
use crate::server_context::ServerContext;
use crate::session::SessionTurn;
use reads::{DocumentReads, RING};
use schedule::{Activity, ServeQueue};
use table::ConnectionTable;
use turn_time::TurnPart;

/// The token of the inbox's waker; connections have their slots.
pub(crate) const WAKER: Token = Token(usize::MAX);
/// Largest number of events of one poll.
const EVENTS: usize = 1_024;
/// Time after which reads are submitted again that the system did not take.
const READ_AGAIN: Duration = Duration::from_millis(1);

/// The reason why a connection is closed, for the log and the counters.
enum CloseReason {
    Ended,
    Malformed,
    TimedOut(&'static str),
}

/// The progress of the shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shutdown {
    /// Not begun.
    Running,
    /// Connections finish their commands.
    Draining,
    /// The thread ends at once.
    Aborting,
}

/// The state of the buckets and users that sessions have seen.
struct SeenConfiguration {
    registry_generation: u64,
    users: Arc<UserStore>,
}

impl SeenConfiguration {
    fn new(shared: &ServerContext) -> Self {
        Self {
            registry_generation: shared.registry.generation(),
            users: shared.users.read(),
        }
    }

    /// Takes note of the current state. Returns true if that is another one.
    fn update(&mut self, shared: &ServerContext) -> bool {
        let current = Self::new(shared);
        let is_same = current.registry_generation == self.registry_generation
            && Arc::ptr_eq(&current.users, &self.users);
        if !is_same {
            *self = current;
        }
        !is_same
    }
}

/// A front-end thread.
pub(crate) struct FrontEnd {
    thread: u16,
    poll: Poll,
    front_ends: Arc<FrontEnds>,
    shared: Arc<ServerContext>,
    connections: ConnectionTable,
    queue: ServeQueue,
    activity: Activity,
    messages: Vec<FrontEndMessage>,
    /// Sessions that tasks have given back.
    returned: Arc<RankedMutex<ReturnedSessions, Vec<OffloadResult>>>,
    flush_requests: Vec<Arc<Bucket>>,
    /// Reads of documents by this thread; `None` on systems without io_uring.
    reads: Option<DocumentReads>,
    receive: Box<[u8]>,
    outputs: OutputPool,
    tls: TlsBuffers,
    /// The next time to check time limits, nanoseconds of the monotonic clock.
    sweep_ns: Option<u64>,
    configuration: SeenConfiguration,
    shutdown: Shutdown,
}

impl FrontEnd {
    /// `reads`: the time to poll for the end of reads before a sleep, if the thread reads documents itself.
    pub(crate) fn new(
        thread: u16,
        poll: Poll,
        shared: Arc<ServerContext>,
        reads: Option<Duration>,
    ) -> Self {
        let reads = reads
            .map(|poll_time| DocumentReads::new(&poll, poll_time))
            .and_then(|reads| {
                reads
                    .inspect_err(|error| tracing::debug!(%error, "tasks read all documents"))
                    .ok()
            });
        let front_ends = shared.front_ends.clone();
        front_ends.set_reads(thread, reads.is_some());
        Self {
            thread,
            poll,
            reads,
            front_ends,
            connections: ConnectionTable::default(),
            queue: ServeQueue::default(),
            activity: Activity::new(),
            messages: Vec::new(),
            returned: Arc::default(),
            flush_requests: Vec::new(),
            receive: vec![0; RECEIVE_BUFFER_BYTES].into(),
            outputs: OutputPool::default(),
            tls: TlsBuffers::default(),
            sweep_ns: None,
            configuration: SeenConfiguration::new(&shared),
            shared,
            shutdown: Shutdown::Running,
        }
    }

    /// Runs the event loop until the shutdown has ended.
    pub(crate) fn run(mut self) {
        let mut events = Events::with_capacity(EVENTS);
        // Cloned once: threads that change the same reference count in every turn would slow each other down.
        let shared = self.shared.clone();
        while !self.is_over() {
            self.wait(&mut events);
            self.front_ends.inbox(self.thread).awake();
            self.take_turn(&shared, &events);
        }
        for connection in self.connections.drain() {
            let kind = connection.session.kind();
            self.shared
                .metrics
                .closed(kind == ConnectionKind::Memcached);
        }
        self.shared.metrics.thread(self.thread).set_connections(0);
    }

    fn is_over(&self) -> bool {
        match self.shutdown {
            Shutdown::Running => false,
            Shutdown::Draining => self.connections.is_empty(),
            Shutdown::Aborting => true,
        }
    }

    /// The timeout of the poll: zero while there is work.
    fn timeout(&self) -> Option<Duration> {
        if !self.queue.is_idle() || !self.front_ends.inbox(self.thread).may_sleep() {
            return Some(Duration::ZERO);
        }
        let now_ns = self.shared.clock.mono_ns();
        let until = |at: u64| Duration::from_nanos(at.saturating_sub(now_ns));
        let has_unsubmitted = self
            .reads
            .as_ref()
            .is_some_and(DocumentReads::has_unsubmitted);
        let again = has_unsubmitted.then_some(READ_AGAIN);
        self.sweep_ns.map(until).into_iter().chain(again).min()
    }

    /// Waits for events, messages or a timer.
    fn wait(&mut self, events: &mut Events) {
        let timeout = self.timeout();
        let reads = self.reads.as_mut().filter(|reads| reads.is_active());
        let Some(reads) = reads.filter(|_| timeout != Some(Duration::ZERO)) else {
            poll(&mut self.poll, events, timeout);
            return;
        };
        let began = Instant::now();
        if let Some(poll_time) = reads.polling.poll_time() {
            while began.elapsed() < poll_time {
                poll(&mut self.poll, events, Some(Duration::ZERO));
                if !events.is_empty() {
                    self.shared.metrics.thread(self.thread).spun();
                    reads.polling.record(began.elapsed());
                    return;
                }
                std::thread::yield_now();
            }
        }
        poll(&mut self.poll, events, timeout);
        reads.polling.record(began.elapsed());
    }

    fn take_turn(&mut self, shared: &ServerContext, events: &Events) {
        let mut flush_requests = std::mem::take(&mut self.flush_requests);
        let now = shared.now();
        let mut turn = SessionTurn {
            shared,
            thread: self.thread,
            now,
            last_ns: now.mono_ns,
            until_ns: u64::MAX,
            longest: None,
            may_offload: true,
            flush_requests: &mut flush_requests,
        };
        self.activity.begin_turn();
        shared.metrics.thread(self.thread).turn();
        if self.refresh_if_changed(shared) {
            let part = TurnPart::of_thread("a change of buckets or users");
            self.check_time(&mut turn, now.mono_ns, part);
        }
        let deferred = self.queue.begin_turn();
        if deferred > 0 {
            shared.handshakes.defer(deferred);
        }
        let again = self.queue.take_next_turn();
        if let Some(reads) = &mut self.reads {
            reads.submit_and_complete();
        }
        let of_sockets = |event: &&Event| ![WAKER, RING].contains(&event.token());
        for event in events.iter().filter(of_sockets) {
            self.on_event(event, &mut turn);
        }
        for slot in again {
            self.serve_scheduled(slot, &mut turn);
        }
        self.read_inbox(&mut turn);
        self.serve_handshakes(&mut turn);
        self.commit(&mut turn);
        if self.sweep_ns.is_some_and(|at| at <= turn.last_ns) {
            self.sweep(&mut turn);
        }
        if self.shutdown == Shutdown::Draining {
            self.drain_streams(&mut turn);
        }
        flush_requests.clear();
        self.flush_requests = flush_requests;
    }

    fn on_event(&mut self, event: &Event, turn: &mut SessionTurn<'_>) {
        let slot = event.token().0;
        let Some(connection) = self.connections.get_mut(slot) else {
            return;
        };
        // The next receive returns the error.
        let at_end = event.is_read_closed() || event.is_error();
        connection.on_ready(event.is_readable(), event.is_writable(), at_end);
        self.serve(slot, turn);
    }

    /// Serves a connection of the queue, unless it is gone.
    fn serve_scheduled(&mut self, slot: usize, turn: &mut SessionTurn<'_>) {
        if let Some(connection) = self.connections.get_mut(slot)
            && connection.is_scheduled
        {
            connection.is_scheduled = false;
            self.serve(slot, turn);
        }
    }

    /// Continues handshakes, as many as the turn has time for.
    fn serve_handshakes(&mut self, turn: &mut SessionTurn<'_>) {
        while let Some(slot) = self.queue.next_handshake() {
            if let Some(connection) = self.connections.get_mut(slot)
                && connection.is_scheduled
            {
                connection.is_scheduled = false;
                self.serve_now(slot, turn);
            }
        }
    }

    /// Serves a connection, or lets it wait for its share of the turn while its TLS handshake is not complete.
    fn serve(&mut self, slot: usize, turn: &mut SessionTurn<'_>) {
        match self.connections.get_mut(slot) {
            Some(connection) if connection.is_handshaking() => {
                self.queue.serve_handshake(slot, connection);
            }
            _ => self.serve_now(slot, turn),
        }
    }

    fn serve_now(&mut self, slot: usize, turn: &mut SessionTurn<'_>) {
        let Some(connection) = self.connections.get_mut(slot) else {
            return;
        };
        self.activity.on_served(slot, connection);
        let mut buffers = ThreadBuffers {
            receive: &mut self.receive,
            outputs: &mut self.outputs,
            tls: &mut self.tls,
            metrics: turn.shared.metrics.thread(self.thread),
        };
        let began_ns = turn.last_ns;
        let action = connection.serve(turn, &mut buffers);
        let (command, _) = turn.longest.unwrap_or(("none", 0));
        let peer = Some(connection.session.peer);
        self.check_time(turn, began_ns, TurnPart { command, peer });
        let Some(connection) = self.connections.get_mut(slot) else {
            return;
        };
        connection.publish_activity(turn.now.mono_ns);
        match action {
            ConnectionAction::Wait => {}
            ConnectionAction::Offload => return self.offload(slot),
            ConnectionAction::Again => self.queue.serve_next_turn(slot, connection),
            ConnectionAction::Close => {
                let reason = if connection.is_malformed() {
                    CloseReason::Malformed
                } else {
                    CloseReason::Ended
                };
                return self.close(slot, &reason);
            }
        }
        let deadline = connection.deadline(&turn.shared.limits);
        let timer = connection.session.dcp.timer_ns();
        self.sweep_at(deadline.map(|(at, _)| at), turn.now.mono_ns);
        self.sweep_at(timer, turn.now.mono_ns);
    }

    fn close(&mut self, slot: usize, reason: &CloseReason) {
        let Some(mut connection) = self.connections.remove(slot) else {
            return;
        };
        connection.end_socket(&self.shared);
        connection.release_memory(&self.shared);
        let metrics = &self.shared.metrics;
        match reason {
            CloseReason::Ended => {}
            CloseReason::Malformed => Metrics::count(&metrics.malformed),
            CloseReason::TimedOut(what) => {
                Metrics::count(&metrics.timed_out);
                tracing::debug!(peer = %connection.session.peer, "closing a connection that {what}");
            }
        }
        // Closing the socket removes it from the poll in any case.
        let registry = self.poll.registry();
        let _ = registry.deregister(connection.stream_mut());
        let session = &mut connection.session;
        metrics.closed(session.kind() == ConnectionKind::Memcached);
        session.login.leave_list(&self.shared.unauthenticated);
        self.shared.client_addresses.disconnected(session.peer.ip());
        metrics
            .thread(self.thread)
            .set_connections(self.connections.len());
    }

    /// Reads the clock, and checks the time of a part of the turn that began at `began_ns`.
    fn check_time(&self, turn: &mut SessionTurn<'_>, began_ns: u64, part: TurnPart) {
        turn.last_ns = turn.shared.clock.mono_ns();
        part.check(&turn.shared.metrics, self.thread, began_ns, turn.last_ns);
    }

    /// Requests flushes of the buckets with newly parked commands, and handles the completions.
    fn commit(&mut self, turn: &mut SessionTurn<'_>) {
        let is_solo = self.activity.end_turn();
        let lead = is_solo && self.queue.is_idle();
        while !turn.flush_requests.is_empty() {
            let began_ns = turn.last_ns;
            for bucket in turn.flush_requests.drain(..) {
                if let Some(reads) = &mut self.reads {
                    reads.take(self.thread, &bucket);
                }
                bucket.persistence().writers().request_flush(lead);
            }
            if let Some(reads) = &mut self.reads {
                reads.submit_and_complete();
            }
            if lead {
                // The sync by this thread: no other connection waits.
                turn.last_ns = turn.shared.clock.mono_ns();
            } else {
                self.check_time(turn, began_ns, TurnPart::of_thread("requests of flushes"));
            }
            self.read_inbox(turn);
        }
    }

    /// Lets all sessions follow a change of the buckets or users. Returns true if there was one.
    fn refresh_if_changed(&mut self, shared: &ServerContext) -> bool {
        if !self.configuration.update(shared) {
            return false;
        }
        let mut over = Vec::new();
        for (slot, connection) in self.connections.iter_mut() {
            connection.session.refresh(shared);
            if connection.session.dcp.has_ended() {
                over.push(slot);
            }
        }
        over.into_iter()
            .for_each(|slot| self.close(slot, &CloseReason::Ended));
        true
    }
}

fn poll(poll: &mut Poll, events: &mut Events, timeout: Option<Duration>) {
    if let Err(error) = poll.poll(events, timeout)
        && error.kind() != io::ErrorKind::Interrupted
    {
        // A thread without a poll can serve nothing.
        panic!("the poll of a front-end thread failed: {error}");
    }
}
