//! Handling of messages to a front-end thread: new connections, completions, changes of the cluster, the shutdown.

use kedge_bucket::{Completion, Cookie};
use kedge_executor::{Next, TaskContext, TaskSpec};
use kedge_node::abort_on_panic;
use mio::{Interest, Token};

use super::turn_time::TurnPart;
use super::{CloseReason, FrontEnd, Shutdown};
use crate::connection::{ClientSocket, FrontEndConnection};
use crate::conversation::{OffloadResult, OffloadedWork};
use crate::cookie::ConnectionId;
use crate::inbox::{AcceptedConnection, EvictionReason, FrontEndMessage, LoginResult, Port};
use crate::server_context::ServerContext;
use crate::session::{Flow, Session, SessionTurn};
use crate::tasks::LONG_COMMAND;

impl FrontEnd {
    pub(super) fn read_inbox(&mut self, turn: &mut SessionTurn<'_>) {
        let mut messages = std::mem::take(&mut self.messages);
        self.front_ends.inbox(self.thread).take(&mut messages);
        for message in messages.drain(..) {
            let began_ns = turn.last_ns;
            match message {
                FrontEndMessage::Connection(accepted) => self.accept(*accepted, turn),
                FrontEndMessage::Completed(cookie, completion) => {
                    self.completed(cookie, completion, turn);
                }
                FrontEndMessage::LoggedIn(cookie, login) => {
                    self.logged_in(cookie, login.map(|login| *login), turn);
                }
                FrontEndMessage::SessionReturned => {
                    let returned = std::mem::take(&mut *self.returned.lock());
                    for returned in returned {
                        self.returned(returned, turn);
                    }
                }
                FrontEndMessage::MemoryGranted(id, grant) => match self.connections.by_id(id) {
                    Some((slot, connection)) => {
                        connection.on_granted(grant);
                        self.queue.serve_after_messages(slot, connection);
                    }
                    None => turn.shared.request_memory.release(grant, &self.front_ends),
                },
                FrontEndMessage::StreamsReady(id) => {
                    if let Some((slot, connection)) = self.connections.by_id(id) {
                        connection.session.dcp.on_streams_ready();
                        self.queue.serve_after_messages(slot, connection);
                    }
                }
                FrontEndMessage::End(id) => {
                    if let Some(slot) = self.connections.find(id) {
                        self.close(slot, &CloseReason::Ended);
                    }
                }
                FrontEndMessage::Evict(id, reason) => self.evict(id, reason),
                FrontEndMessage::ClusterChanged => self.push_maps(turn),
                FrontEndMessage::ReturnMemory => self.return_memory(turn.shared),
                FrontEndMessage::Stop => self.stop(),
                FrontEndMessage::Abort => self.shutdown = Shutdown::Aborting,
            }
            let part = TurnPart::of_thread("a message of another thread");
            self.check_time(turn, began_ns, part);
        }
        self.messages = messages;
        let slots = self.queue.take_after_messages();
        for &slot in &slots {
            self.serve_scheduled(slot, turn);
        }
        self.queue.reuse(slots);
    }

    /// Returns unused memory of this thread. The first one makes the threads of the pools do the same.
    fn return_memory(&self, shared: &ServerContext) {
        (shared.return_memory)();
        if self.thread == 0 {
            shared
                .pools
                .executor()
                .on_idle_threads(shared.return_memory);
        }
    }

    /// Closes a connection to make room for another.
    fn evict(&mut self, id: ConnectionId, reason: EvictionReason) {
        let Some((slot, connection)) = self.connections.by_id(id) else {
            return;
        };
        let peer = connection.session.peer;
        match reason {
            EvictionReason::NoLogin if !connection.session.login.is_in_list() => return,
            EvictionReason::Handshake if !connection.is_handshaking() => return,
            EvictionReason::Handshake => {
                tracing::debug!(%peer, "closing a connection during its TLS handshake, as there are too many");
            }
            EvictionReason::NoLogin => {
                tracing::debug!(%peer, "closing a connection without a login to make room for another");
            }
            EvictionReason::LeastRecentlyUsed => {
                tracing::debug!(
                    %peer,
                    "closing the least recently used memcached connection of an address to make room for another"
                );
            }
        }
        self.close(slot, &CloseReason::Ended);
    }

    /// Serves the connection when the inbox was read, once for all messages to it.
    pub(super) fn serve_after_messages(&mut self, slot: usize) {
        if let Some(connection) = self.connections.get_mut(slot) {
            self.queue.serve_after_messages(slot, connection);
        }
    }

    fn accept(&mut self, accepted: AcceptedConnection, turn: &mut SessionTurn<'_>) {
        let metrics = &turn.shared.metrics;
        if self.shutdown != Shutdown::Running {
            metrics.closed(accepted.port == Port::Memcached);
            return;
        }
        let AcceptedConnection {
            mut stream,
            port,
            mut handshake,
            peer,
            local,
        } = accepted;
        let slot = self.connections.next_slot();
        let interest = Interest::READABLE | Interest::WRITABLE;
        if let Err(error) = self
            .poll
            .registry()
            .register(&mut stream, Token(slot), interest)
        {
            tracing::warn!(%peer, %error, "a connection cannot be polled");
            metrics.closed(port == Port::Memcached);
            return;
        }
        let tls = turn.shared.tls.as_ref().filter(|_| handshake.is_some());
        let socket = match tls {
            Some(tls) => ClientSocket::with_tls(stream, tls.config()),
            None => Ok(ClientSocket::plain(stream)),
        };
        let socket = match socket {
            Ok(socket) => socket,
            Err(error) => {
                tracing::warn!(%peer, %error, "TLS cannot be used for a connection");
                metrics.closed(port == Port::Memcached);
                return;
            }
        };
        turn.shared
            .client_addresses
            .connected(peer.ip(), turn.now.unix_secs());
        let id = self.connections.next_id(self.thread);
        let mut session = Session::new(id, port, local, peer, turn.shared);
        if let Some(handshake) = &mut handshake {
            session.set_tls(metrics);
            handshake.enter(peer.ip(), port, id);
        }
        session.enter_lists(turn.shared, turn.now.mono_ns);
        let mut connection = FrontEndConnection::new(socket, session, turn.now.mono_ns);
        connection.handshake = handshake;
        self.connections.insert(id, connection);
        metrics
            .thread(self.thread)
            .set_connections(self.connections.len());
        // The client may have sent something before the socket was registered.
        self.serve_after_messages(slot);
    }

    fn completed(&mut self, cookie: Cookie, completion: Completion, turn: &mut SessionTurn<'_>) {
        let (id, command) = ConnectionId::of(cookie);
        let Some((slot, connection)) = self.connections.by_id(id) else {
            return;
        };
        if connection.offload.is_away() {
            let later = FrontEndMessage::Completed(cookie, completion);
            return connection.offload.defer(later);
        }
        if connection.session.ends_long(command, &completion) {
            connection.offload(OffloadedWork::Completion(command, completion), turn);
            return self.offload(slot);
        }
        self.answer(slot, |connection| {
            connection
                .session
                .on_completion(turn, command, completion, &mut connection.out)
        });
    }

    fn logged_in(
        &mut self,
        cookie: Cookie,
        login: Option<LoginResult>,
        turn: &mut SessionTurn<'_>,
    ) {
        let (id, command) = ConnectionId::of(cookie);
        let Some((slot, connection)) = self.connections.by_id(id) else {
            return;
        };
        if connection.offload.is_away() {
            let later = FrontEndMessage::LoggedIn(cookie, login.map(Box::new));
            return connection.offload.defer(later);
        }
        self.answer(slot, |connection| {
            connection
                .session
                .on_login(turn, command, login, &mut connection.out)
        });
    }

    /// Takes a session back from a task, and handles the messages that came meanwhile.
    fn returned(&mut self, mut returned: OffloadResult, turn: &mut SessionTurn<'_>) {
        for bucket in returned.flush_requests.drain(..) {
            turn.request_flush(&bucket);
        }
        let Some((slot, connection)) = self.connections.by_id(returned.id) else {
            return;
        };
        let goes_on = connection.take_back(returned);
        connection.session.refresh(turn.shared);
        if !goes_on || connection.session.dcp.has_ended() {
            return self.close(slot, &CloseReason::Ended);
        }
        connection
            .session
            .push_map(turn.shared, &mut connection.out);
        for message in connection.offload.take_deferred() {
            match message {
                FrontEndMessage::Completed(cookie, completion) => {
                    self.completed(cookie, completion, turn);
                }
                FrontEndMessage::LoggedIn(cookie, login) => {
                    self.logged_in(cookie, login.map(|login| *login), turn);
                }
                _ => {}
            }
        }
        self.serve_after_messages(slot);
    }

    /// Gives the session of a connection to a task.
    pub(super) fn offload(&mut self, slot: usize) {
        let connection = self.connections.get_mut(slot);
        let mut session = connection.and_then(|connection| connection.offload.take_outgoing());
        let pools = self.shared.pools.clone();
        let (thread, front_ends) = (self.thread, self.front_ends.clone());
        let queue = self.returned.clone();
        let shared = self.shared.clone();
        let task = move |_: &TaskContext<'_>| {
            abort_on_panic(|| {
                if let Some(session) = session.take() {
                    let returned = session.run(&shared);
                    queue.lock().push(returned);
                    front_ends.send(thread, FrontEndMessage::SessionReturned);
                }
            });
            Next::Done
        };
        let spec = TaskSpec::new(&LONG_COMMAND, pools.owner());
        if pools.executor().schedule(spec, task).is_err() {
            // The server ends.
            self.close(slot, &CloseReason::Ended);
        }
    }

    fn answer(&mut self, slot: usize, compose: impl FnOnce(&mut FrontEndConnection) -> Flow) {
        let Some(connection) = self.connections.get_mut(slot) else {
            return;
        };
        connection.borrow_output(&mut self.outputs);
        if compose(connection) == Flow::Close {
            self.close(slot, &CloseReason::Ended);
        } else {
            self.queue.serve_after_messages(slot, connection);
        }
    }

    fn push_maps(&mut self, turn: &mut SessionTurn<'_>) {
        self.refresh_if_changed(turn.shared);
        let mut pushed = Vec::new();
        for (slot, connection) in self.connections.iter_mut() {
            connection.borrow_output(&mut self.outputs);
            connection
                .session
                .push_map(turn.shared, &mut connection.out);
            if connection.out.is_empty() {
                self.outputs.give(std::mem::take(&mut connection.out));
            } else {
                pushed.push(slot);
            }
        }
        pushed
            .into_iter()
            .for_each(|slot| self.serve_after_messages(slot));
    }
}
