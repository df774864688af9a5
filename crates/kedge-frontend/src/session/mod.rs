//! One connection's conversation: what was negotiated, who logged in, which bucket, what is in flight.
//!
//! A [`Session`] knows no socket. `conversation` gives it the bytes that came and composes the replies; so it is tested by
//! value. Rules of order: see [`in_flight`].

mod answer;
mod compose;
#[cfg(test)]
mod counting;
mod dcp_state;
mod failure;
mod in_flight;
mod parked_state;
mod rights;
#[cfg(test)]
pub(crate) mod tests;
mod turn;
mod visibility;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use kedge_auth::{Part, ServerSession, UserStore};
use kedge_bucket::{Bucket, Cookie};
use kedge_cluster::{CLUSTER_USER, Config, Revision};
use kedge_protocol::binary::{ConnectionKind, Feature, Features, Opcode};
use kedge_types::Datatype;

pub(crate) use answer::{AnswerForm, StatAnswer};
pub(crate) use compose::{Composer, copies_long, inflated};
pub(crate) use failure::Failure;
pub(crate) use in_flight::{InFlightRequest, InFlightRequests, ReplyKind};
pub(crate) use parked_state::{
    Changing, Looking, Observing, Retrieval, RetrievalState, RetrievedDocument, Suspended, TextStep,
};
pub(crate) use rights::Rights;
pub(crate) use turn::SessionTurn;

use crate::cookie::ConnectionId;
use crate::histogram::Style;
use crate::inbox::Port;
use crate::memcached_connections::ConnectionListing;
use crate::metrics::{ClientPlace, Metrics};
use crate::newcomers::{Newcomer, Newcomers};
use crate::shared::Shared;
use dcp_state::DcpState;

/// The dialect of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Binary, with Couchbase's extensions, on the KV port.
    Couchbase,
    /// The memcached port, before its first byte.
    Undecided,
    /// Binary on the memcached port.
    MemcachedBinary,
    /// Text on the memcached port.
    MemcachedText,
}

/// Why a session took no more bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Halt {
    /// The next frame is not all there: it has this many bytes, as far as is known.
    NeedBytes(usize),
    /// A command in flight must end first.
    Parked,
    /// Replies must be sent first.
    Full,
    /// The connection ends when its replies are sent.
    Close,
    /// The bytes are no request: the connection ends.
    Malformed,
    /// Other connections are to have their turn first.
    Slice,
    /// The next request has so many bytes, and a task is to execute it.
    Long(usize),
}

/// The action after a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// The next command.
    Next,
    /// This command must wait until others ended; it was not executed.
    Wait,
    /// The end of the connection.
    Close,
}

/// A parked command that ended, without the kind of its reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) opcode: Opcode,
    pub(crate) opaque: u32,
    pub(crate) start_ns: u64,
}

/// One connection's conversation.
pub(crate) struct Session {
    id: ConnectionId,
    pub(crate) dialect: Dialect,
    pub(crate) features: Features,
    /// The form of histograms that the client reads, by the name that it gave itself.
    pub(crate) histograms: Style,
    pub(crate) local: IpAddr,
    pub(crate) peer: SocketAddr,
    /// The user that logged in.
    pub(crate) user: Option<Box<str>>,
    /// True if it logged in as a user of the memcached port's `authfile`.
    pub(crate) of_auth_file: bool,
    /// True if it has to log in first.
    needs_login: bool,
    /// Its place in the list of the memcached port's connections.
    listed: Option<ConnectionListing>,
    /// Its place among connections that have not logged in, while it is one.
    pub(crate) newcomer: Option<Newcomer>,
    /// Its place among the clients that logged in.
    place: Option<ClientPlace>,
    /// A login under way.
    pub(crate) login: Option<Box<ServerSession>>,
    pub(crate) bucket: Option<Arc<Bucket>>,
    /// The privileges of the user in all of the bucket.
    pub(crate) rights: Rights,
    /// The privileges beyond that, in parts of it.
    parts: Vec<Part>,
    pub(crate) in_flight: InFlightRequests,
    /// The newest cluster map of its bucket that the client was sent.
    pub(crate) map_sent: Option<Revision>,
    /// The newest whose version it was told.
    pub(crate) map_told: Option<Revision>,
    /// Bytes of a text value that are still to be skipped.
    pub(crate) swallow: u64,
    /// A retrieval of the text protocol that waits for documents.
    pub(crate) retrieval: Option<Box<Retrieval>>,
    /// An answer to STAT of which a part is still to be made.
    pub(crate) telling: Option<Box<StatAnswer>>,
    /// The state since DCP_OPEN.
    dcp: DcpState,
}

impl Session {
    pub(crate) fn new(
        id: ConnectionId,
        port: Port,
        local: IpAddr,
        peer: SocketAddr,
        shared: &Shared,
    ) -> Self {
        let mut session = Self {
            id,
            dialect: match port {
                Port::Kv => Dialect::Couchbase,
                Port::Memcached => Dialect::Undecided,
            },
            features: Features::NONE,
            histograms: Style::Json,
            local,
            peer,
            user: None,
            of_auth_file: false,
            needs_login: port == Port::Kv || shared.memcached_rules.login,
            listed: (port == Port::Memcached).then(|| shared.memcached_connections.add(peer)),
            newcomer: None,
            place: None,
            login: None,
            bucket: None,
            rights: Rights::NONE,
            parts: Vec::new(),
            in_flight: InFlightRequests::default(),
            map_sent: None,
            map_told: None,
            swallow: 0,
            retrieval: None,
            telling: None,
            dcp: DcpState::Not,
        };
        session.refresh(shared);
        session
    }

    pub(crate) fn kind(&self) -> ConnectionKind {
        match self.dialect {
            Dialect::Couchbase => ConnectionKind::Couchbase,
            _ => ConnectionKind::Memcached,
        }
    }

    /// The port that it came in on.
    pub(crate) fn port(&self) -> Port {
        match self.dialect {
            Dialect::Couchbase => Port::Kv,
            _ => Port::Memcached,
        }
    }

    pub(crate) fn id(&self) -> ConnectionId {
        self.id
    }

    /// Returns whether commands on documents are allowed as far as logging in goes. The memcached port needs no login unless
    /// it was told otherwise, as only the machine itself reaches it then.
    pub(crate) fn is_authenticated(&self) -> bool {
        self.user.is_some() || !self.needs_login
    }

    /// Its number in the list of the memcached port's connections.
    pub(crate) fn listed_as(&self) -> Option<u64> {
        self.listed.as_ref().map(ConnectionListing::id)
    }

    pub(crate) fn speaks_text(&self) -> bool {
        self.dialect == Dialect::MemcachedText
    }

    /// Lists it among the connections that have not logged in, or takes it off, as it is now.
    pub(crate) fn note_login(&mut self, newcomers: &Newcomers) {
        match self.newcomer {
            Some(newcomer) if self.is_authenticated() => {
                newcomers.leave(newcomer);
                self.newcomer = None;
            }
            None if !self.is_authenticated() => {
                self.newcomer = Some(newcomers.enter(self.peer.ip(), self.id));
            }
            _ => {}
        }
    }

    /// Takes a place among the clients for a user that logs in; other nodes have places of their own. False when there is none.
    pub(crate) fn take_place(&mut self, shared: &Shared, user: &str) -> bool {
        let is_client = user != CLUSTER_USER && self.kind() == ConnectionKind::Couchbase;
        if !is_client {
            self.place = None;
        } else if self.place.is_none() {
            self.place = ClientPlace::take(&shared.metrics, shared.limits.clients_max());
            return self.place.is_some();
        }
        true
    }

    /// The cookie of the next parked command.
    #[inline]
    pub(crate) fn next_cookie(&self) -> Cookie {
        self.id.cookie(self.in_flight.next_slot())
    }

    /// Whether commands of this connection are being executed.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.len() + usize::from(self.is_telling())
    }

    /// Whether nothing may start before a command in flight has ended.
    pub(crate) fn is_held(&self) -> bool {
        self.is_telling() || self.in_flight.hold_all(self.is_unordered())
    }

    pub(crate) fn is_unordered(&self) -> bool {
        self.features.contains(Feature::UnorderedExecution)
    }

    /// Looks again at the buckets and users, which changed: a bucket that was dropped is let go of, and what the user
    /// may do is worked out anew.
    pub(crate) fn refresh(&mut self, shared: &Shared) {
        if let Some(bucket) = &self.bucket {
            let current = shared.registry.get(bucket.name());
            if !current.is_some_and(|current| Arc::ptr_eq(&current, bucket)) {
                self.bucket = None;
                self.forget_maps();
                self.stop_telling();
            }
        }
        if self.bucket.is_none() && self.dialect != Dialect::Couchbase {
            let name = shared.memcached_bucket.as_deref();
            self.bucket = name.and_then(|name| shared.registry.get(name));
        }
        let parts = std::mem::take(&mut self.parts);
        self.work_out_rights(shared, &shared.users.read());
        // What follows parts of a bucket was allowed to as the parts were.
        let may_follow = self.rights.allow(Rights::STREAM)
            || (self.may_somewhere(Rights::STREAM) && self.parts == parts);
        if self.bucket.is_none() || !may_follow {
            self.stop_following();
        }
    }

    /// Forgets the maps that the client was sent: they were of another bucket.
    pub(crate) fn forget_maps(&mut self) {
        self.map_sent = None;
        self.map_told = None;
    }

    /// Works out what the user may do with the bucket that is selected now.
    pub(crate) fn work_out_rights(&mut self, shared: &Shared, users: &UserStore) {
        let bucket = self.bucket.as_deref().map(Bucket::name);
        let is_memcacheds = bucket.is_none() || bucket == shared.memcached_bucket.as_deref();
        self.rights = match &self.user {
            user if is_memcacheds && self.is_guest() => {
                let own = user.as_deref().map(|user| Rights::of(users, user, bucket));
                Rights::MEMCACHED.and(own.unwrap_or(Rights::NONE))
            }
            Some(user) => Rights::of(users, user, bucket),
            None => Rights::NONE,
        };
        self.parts = match (&self.user, bucket) {
            (Some(user), Some(bucket)) if self.rights != Rights::ALL => {
                users.roles_of(user).parts(bucket)
            }
            _ => Vec::new(),
        };
    }

    /// Returns whether it may do what anyone may do on the memcached port, whoever it is.
    fn is_guest(&self) -> bool {
        self.dialect != Dialect::Couchbase && (!self.needs_login || self.of_auth_file)
    }

    /// The bytes of a cluster map as this client takes them.
    pub(crate) fn map_bytes<'c>(&self, config: &'c Config) -> (&'c [u8], Datatype) {
        let json = self.features.contains(Feature::Json);
        let datatype = if json { Datatype::JSON } else { Datatype::RAW };
        if self.features.contains(Feature::SnappyEverywhere) {
            (&config.snappy, datatype.union(Datatype::SNAPPY))
        } else {
            (&config.json, datatype)
        }
    }

    /// Counts a failed login.
    pub(crate) fn login_failed(&mut self, metrics: &Metrics) {
        Metrics::count(&metrics.auth_errors);
        self.login = None;
    }
}
