//! What other threads tell a front-end thread: new connections, commands that ended, changes of the cluster, the end.

use kedge_bucket::{Completion, Cookie};
use kedge_executor::{Next, TaskContext, TaskSpec};
use kedge_node::abort_on_panic;
use mio::{Interest, Token};

use super::{ConnectionSlot, FrontEnd, Gone};
use crate::connection::Connection;
use crate::conversation::{OffloadedWork, Returned};
use crate::cookie::ConnectionId;
use crate::inbox::{Accepted, Login, Message, Port};
use crate::session::{Flow, Session, SessionTurn};
use crate::tasks::LONG_COMMAND;

impl FrontEnd {
    pub(super) fn read_inbox(&mut self, turn: &mut SessionTurn<'_>) {
        let mut messages = std::mem::take(&mut self.messages);
        self.front_ends.inbox(self.thread).take(&mut messages);
        for message in messages.drain(..) {
            let began_ns = turn.shared.clock.mono_ns();
            match message {
                Message::Connection(accepted) => self.welcome(*accepted, turn),
                Message::Completed(cookie, completion) => self.completed(cookie, completion, turn),
                Message::LoggedIn(cookie, login) => {
                    self.logged_in(cookie, login.map(|login| *login), turn);
                }
                Message::SessionReturned => {
                    let returned = std::mem::take(&mut *self.returned.lock());
                    for returned in returned {
                        self.returned(returned, turn);
                    }
                }
                Message::Room(id, room) => match self.find_connection(id) {
                    Some(slot) => {
                        self.connections[slot].connection.take_room(room);
                        self.tell(slot);
                    }
                    None => turn.shared.request_memory.give_back(room, &self.front_ends),
                },
                Message::StreamsReady(id) => {
                    if let Some(slot) = self.find_connection(id) {
                        self.connections[slot].connection.session.on_streams_ready();
                        self.tell(slot);
                    }
                }
                Message::End(id) => {
                    if let Some(slot) = self.find_connection(id) {
                        self.close(slot, &Gone::Ended);
                    }
                }
                Message::Evict(id) => self.evict(id),
                Message::ClusterChanged => self.push_maps(turn),
                Message::Stop => self.stop(),
                Message::Abort => self.aborting = true,
            }
            self.check_time(turn, began_ns, "a message of another thread", None);
        }
        self.messages = messages;
        let told = std::mem::take(&mut self.told);
        for &slot in &told {
            if let Some(entry) = self.connections.get_mut(slot)
                && entry.connection.queued_again
            {
                entry.connection.queued_again = false;
                self.serve(slot, turn);
            }
        }
        if self.told.is_empty() {
            self.told = told;
            self.told.clear();
        }
    }

    /// Closes a connection to make room for others.
    fn evict(&mut self, id: ConnectionId) {
        if let Some(slot) = self.find_connection(id) {
            let session = &self.connections[slot].connection.session;
            if session.newcomer.is_some() {
                tracing::debug!(peer = %session.peer, "closing a connection without a login to make room for another");
                self.close(slot, &Gone::Ended);
            }
        }
    }

    /// Serves the connection when the inbox was read, once for all that it was told.
    pub(super) fn tell(&mut self, slot: usize) {
        if let Some(entry) = self.connections.get_mut(slot)
            && !entry.connection.queued_again
        {
            entry.connection.queued_again = true;
            self.told.push(slot);
        }
    }

    fn welcome(&mut self, accepted: Accepted, turn: &mut SessionTurn<'_>) {
        let metrics = &turn.shared.metrics;
        if self.stopping {
            metrics.closed(accepted.port == Port::Memcached);
            return;
        }
        let Accepted {
            mut stream,
            port,
            peer,
            local,
        } = accepted;
        let entry = self.connections.vacant_entry();
        let slot = entry.key();
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
        turn.shared
            .client_addresses
            .connected(peer.ip(), turn.now.unix_secs());
        self.generation = self.generation.wrapping_add(1);
        let id = ConnectionId::new(self.thread, slot, self.generation);
        let mut session = Session::new(id, port, local, peer, turn.shared);
        session.note_login(&turn.shared.newcomers);
        let connection = Connection::new(stream, session, turn.now.mono_ns);
        entry.insert(ConnectionSlot {
            generation: id.generation,
            connection,
        });
        metrics
            .thread(self.thread)
            .set_connections(self.connections.len());
        // The client may have sent something before the socket was registered.
        self.tell(slot);
    }

    /// The slot of the connection that a cookie names, if that is still there.
    fn find(&mut self, cookie: Cookie) -> Option<(usize, u8)> {
        let (id, command) = ConnectionId::of(cookie);
        Some((self.find_connection(id)?, command))
    }

    fn find_connection(&self, id: ConnectionId) -> Option<usize> {
        let slot = id.slot as usize;
        let entry = self.connections.get(slot)?;
        (entry.generation == id.generation).then_some(slot)
    }

    fn completed(&mut self, cookie: Cookie, completion: Completion, turn: &mut SessionTurn<'_>) {
        if let Some((slot, command)) = self.find(cookie) {
            let connection = &mut self.connections[slot].connection;
            if connection.is_away() {
                let later = Message::Completed(cookie, completion);
                return connection.deferred.push(later);
            }
            if connection.session.ends_long(command, &completion) {
                connection.lend(OffloadedWork::Completion(command, completion), turn);
                return self.send_off(slot);
            }
            self.answer(slot, |connection| {
                connection
                    .session
                    .on_completion(turn, command, completion, &mut connection.out)
            });
        }
    }

    fn logged_in(&mut self, cookie: Cookie, login: Option<Login>, turn: &mut SessionTurn<'_>) {
        if let Some((slot, command)) = self.find(cookie) {
            let connection = &mut self.connections[slot].connection;
            if connection.is_away() {
                let later = Message::LoggedIn(cookie, login.map(Box::new));
                return connection.deferred.push(later);
            }
            self.answer(slot, |connection| {
                connection
                    .session
                    .on_login(turn, command, login, &mut connection.out)
            });
        }
    }

    /// A session is back from a task: what came for it meanwhile follows.
    fn returned(&mut self, mut returned: Returned, turn: &mut SessionTurn<'_>) {
        for bucket in returned.flush_requests.drain(..) {
            turn.request_flush(&bucket);
        }
        let Some(slot) = self.find_connection(returned.id) else {
            return;
        };
        let connection = &mut self.connections[slot].connection;
        let goes_on = connection.take_back(returned);
        connection.session.refresh(turn.shared);
        if !goes_on || connection.session.is_over() {
            return self.close(slot, &Gone::Ended);
        }
        connection
            .session
            .push_map(turn.shared, &mut connection.out);
        for message in std::mem::take(&mut connection.deferred) {
            match message {
                Message::Completed(cookie, completion) => self.completed(cookie, completion, turn),
                Message::LoggedIn(cookie, login) => {
                    self.logged_in(cookie, login.map(|login| *login), turn);
                }
                _ => {}
            }
        }
        self.tell(slot);
    }

    /// Gives a connection's loan to a task.
    pub(super) fn send_off(&mut self, slot: usize) {
        let mut loan = self.connections[slot].connection.loan.take();
        let pools = self.shared.pools.clone();
        let (thread, front_ends) = (self.thread, self.front_ends.clone());
        let queue = self.returned.clone();
        let shared = self.shared.clone();
        let task = move |_: &TaskContext<'_>| {
            abort_on_panic(|| {
                if let Some(loan) = loan.take() {
                    let returned = loan.run(&shared);
                    queue.lock().push(returned);
                    front_ends.send(thread, Message::SessionReturned);
                }
            });
            Next::Done
        };
        let spec = TaskSpec::new(&LONG_COMMAND, pools.owner());
        if pools.executor().schedule(spec, task).is_err() {
            // The server ends.
            self.close(slot, &Gone::Ended);
        }
    }

    fn answer(&mut self, slot: usize, compose: impl FnOnce(&mut Connection) -> Flow) {
        let connection = &mut self.connections[slot].connection;
        connection.borrow_output(&mut self.outputs);
        if compose(connection) == Flow::Close {
            self.close(slot, &Gone::Ended);
        } else {
            self.tell(slot);
        }
    }

    fn push_maps(&mut self, turn: &mut SessionTurn<'_>) {
        self.refresh_if_changed(turn.shared);
        let mut pushed = Vec::new();
        for (slot, entry) in &mut self.connections {
            let connection = &mut entry.connection;
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
        pushed.into_iter().for_each(|slot| self.tell(slot));
    }
}
