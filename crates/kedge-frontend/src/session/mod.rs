//! The session of one connection: its protocol, its user, its bucket, and its commands in flight.
//!
//! A [`Session`] knows no socket. `conversation` gives it the bytes that were received and composes the replies, so that
//! tests need no socket either. The order of replies: see [`in_flight`].

mod answer;
mod client_map;
mod compose;
#[cfg(test)]
mod counting;
mod dcp_state;
mod failure;
mod in_flight;
mod login_state;
mod negotiated;
mod parked_state;
mod privileges;
mod rights;
#[cfg(test)]
pub(crate) mod tests;
mod turn;

use std::net::SocketAddr;
use std::sync::Arc;

use kedge_auth::UserStore;
use kedge_bucket::{Bucket, Cookie};
use kedge_protocol::binary::ConnectionKind;

pub(crate) use answer::{StatAnswer, StatFormat, StatInProgress};
pub(crate) use client_map::ClientMap;
pub(crate) use compose::{Composer, copies_long, inflated};
pub(crate) use dcp_state::DcpState;
pub(crate) use failure::CommandFailure;
pub(crate) use in_flight::{InFlightRequests, ParkedRequest, ReplyKind, RequestTag};
pub(crate) use login_state::LoginState;
pub(crate) use negotiated::NegotiatedProtocol;
pub(crate) use parked_state::{
    PendingLookup, PendingObserve, PendingSubdocMutation, Retrieval, RetrievalState,
    RetrievedDocument, SuspendedCommand, TextState, TextStep,
};
pub(crate) use privileges::EffectivePrivileges;
pub(crate) use rights::Rights;
pub(crate) use turn::SessionTurn;

use crate::cookie::ConnectionId;
use crate::inbox::Port;
use crate::memcached_connections::ConnectionListing;
use crate::metrics::{Metrics, OpenTls};
use crate::server_context::ServerContext;

/// The reason why a session executes no more bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Halt {
    /// The next frame is incomplete: it has this many bytes, as far as is known.
    NeedBytes(usize),
    /// A command in flight must end first.
    Parked,
    /// Replies must be sent first.
    Full,
    /// The connection ends when its replies are sent.
    Close,
    /// The bytes are no valid request: the connection ends.
    Malformed,
    /// The time slice of the connection is over.
    Slice,
    /// The next request, of this length, is to be offloaded to a task.
    Long(usize),
}

/// The action after a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Continue with the next command.
    Next,
    /// The command was not executed, as it has to wait for others.
    Wait,
    /// Close the connection.
    Close,
}

/// The session of one connection.
pub(crate) struct Session {
    id: ConnectionId,
    /// The address of the server that the client connected to.
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
    /// The entry in the list of the memcached port's connections. A stand-in shares it.
    listed: Option<Arc<ConnectionListing>>,
    pub(crate) protocol: NegotiatedProtocol,
    pub(crate) login: LoginState,
    /// The selected bucket.
    pub(crate) bucket: Option<Arc<Bucket>>,
    /// True if the selected bucket was dropped.
    pub(crate) lost_bucket: bool,
    /// The privileges of the user in the selected bucket.
    pub(crate) privileges: EffectivePrivileges,
    pub(crate) map: ClientMap,
    pub(crate) in_flight: InFlightRequests,
    /// The state of the text protocol between two calls.
    pub(crate) text: TextState,
    /// The answer to STAT in progress.
    pub(crate) stat: StatInProgress,
    /// The state since DCP_OPEN.
    pub(crate) dcp: DcpState,
    /// The entry in the count of TLS connections, if it is one.
    tls: Option<OpenTls>,
}

impl Session {
    pub(crate) fn new(
        id: ConnectionId,
        port: Port,
        local: SocketAddr,
        peer: SocketAddr,
        shared: &ServerContext,
    ) -> Self {
        let needs_login = port == Port::Kv || shared.memcached.rules.login;
        let mut session = Self {
            id,
            local,
            peer,
            listed: None,
            protocol: NegotiatedProtocol::new(port),
            login: LoginState::new(needs_login),
            bucket: None,
            lost_bucket: false,
            privileges: EffectivePrivileges::default(),
            map: ClientMap::default(),
            in_flight: InFlightRequests::default(),
            text: TextState::default(),
            stat: StatInProgress::default(),
            dcp: DcpState::default(),
            tls: None,
        };
        session.refresh(shared);
        session
    }

    #[inline]
    pub(crate) fn kind(&self) -> ConnectionKind {
        self.protocol.kind()
    }

    pub(crate) fn id(&self) -> ConnectionId {
        self.id
    }

    /// The number in the list of the memcached port's connections.
    pub(crate) fn memcached_connection_id(&self) -> Option<u64> {
        self.listed.as_deref().map(ConnectionListing::id)
    }

    /// Counts the new connection as one with TLS.
    pub(crate) fn set_tls(&mut self, metrics: &Arc<Metrics>) {
        self.tls = Some(OpenTls::count(metrics));
    }

    /// Returns true if the connection has TLS.
    pub(crate) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Lists the new connection by its port and login.
    pub(crate) fn enter_lists(&mut self, shared: &ServerContext, now_ns: u64) {
        if self.kind() == ConnectionKind::Memcached {
            let listing = shared.memcached.connections.add(self.peer, self.id, now_ns);
            listing.set_evictable(self.login.is_authenticated());
            self.listed = Some(Arc::new(listing));
        }
        self.update_login_list(shared);
    }

    /// This session with the entry in the list of another, which it stands in for.
    pub(crate) fn with_listing_of(self, other: &Self) -> Self {
        Self {
            listed: other.listed.clone(),
            ..self
        }
    }

    /// Publishes the time of the last request, `None` while one is in progress, for the choice of the connection to evict.
    #[inline]
    pub(crate) fn publish_activity(&self, last_request_ns: Option<u64>, now_ns: u64) {
        if let Some(listed) = &self.listed {
            listed.publish(last_request_ns, now_ns);
        }
    }

    /// The cookie of the next parked command.
    #[inline]
    pub(crate) fn next_cookie(&self) -> Cookie {
        self.id.cookie(self.in_flight.next_slot())
    }

    /// The number of commands in execution.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.len() + usize::from(self.has_long_answer())
    }

    /// Returns true if no command may start before one in flight has ended.
    pub(crate) fn is_blocked(&self) -> bool {
        self.has_long_answer() || self.in_flight.blocks_all(self.protocol.is_unordered())
    }

    /// Returns true if an answer has begun that continues when the output has room: to STAT, or a retrieval of the text
    /// protocol.
    #[inline]
    pub(crate) fn has_long_answer(&self) -> bool {
        self.stat.is_active() || (self.text.retrieval.is_some() && self.in_flight.is_empty())
    }

    /// Returns true if a task is to continue the answer.
    pub(crate) fn answer_needs_task(&self) -> bool {
        let retrieval = self.text.retrieval.as_ref();
        self.has_long_answer() && retrieval.is_some_and(|retrieval| retrieval.needs_task)
    }

    /// The reason not to start the next command now, if there is one. `queued_max` limits the unsent output.
    #[inline]
    pub(crate) fn halt(
        &self,
        turn: &SessionTurn<'_>,
        queued: usize,
        queued_max: usize,
    ) -> Option<Halt> {
        if self.is_blocked() {
            Some(Halt::Parked)
        } else if queued > queued_max {
            Some(Halt::Full)
        } else if turn.was_over() {
            Some(Halt::Slice)
        } else {
            None
        }
    }

    /// Follows a change of the buckets or users: forgets a bucket that was dropped, and computes the privileges anew.
    pub(crate) fn refresh(&mut self, shared: &ServerContext) {
        if let Some(bucket) = &self.bucket {
            let current = shared.registry.get(bucket.name());
            if !current.is_some_and(|current| Arc::ptr_eq(&current, bucket)) {
                self.bucket = None;
                self.lost_bucket = true;
                self.map = ClientMap::default();
                self.stat.cancel();
            }
        }
        if self.bucket.is_none() && self.kind() == ConnectionKind::Memcached {
            let name = shared.memcached.bucket.as_deref();
            self.bucket = name.and_then(|name| shared.registry.get(name));
        }
        let before = std::mem::take(&mut self.privileges);
        self.update_privileges(shared, &shared.users.read());
        if self.bucket.is_none() || !self.privileges.keep_streams(&before) {
            self.dcp.end();
        }
    }

    /// Selects a bucket, or none.
    pub(crate) fn select_bucket(
        &mut self,
        bucket: Option<Arc<Bucket>>,
        shared: &ServerContext,
        users: &UserStore,
    ) {
        self.bucket = bucket;
        self.lost_bucket = false;
        self.map = ClientMap::default();
        self.update_privileges(shared, users);
    }

    fn update_privileges(&mut self, shared: &ServerContext, users: &UserStore) {
        let bucket = self.bucket.as_deref().map(Bucket::name);
        let is_memcacheds = bucket.is_none() || bucket == shared.memcached.bucket.as_deref();
        let is_guest = self.kind() == ConnectionKind::Memcached && self.login.is_memcached_guest();
        let roles = self.login.roles(users);
        self.privileges =
            EffectivePrivileges::compute(roles.as_ref(), bucket, is_memcacheds && is_guest);
    }

    /// Lists the connection as its login requires.
    pub(crate) fn update_login_list(&mut self, shared: &ServerContext) {
        let (from, port) = (self.peer.ip(), self.protocol.port());
        let has_changed = self
            .login
            .update_list(&shared.unauthenticated, from, port, self.id);
        if has_changed && let Some(listed) = &self.listed {
            listed.set_evictable(self.login.is_authenticated());
        }
    }
}
