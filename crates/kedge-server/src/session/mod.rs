//! One connection's conversation: what was negotiated, who logged in, which bucket, what is in flight.
//!
//! A [`Session`] knows no socket. It is given the bytes that came and composes the replies into an [`Output`]; so it is
//! tested by value. Rules of order: see [`flights`].

mod compose;
#[cfg(test)]
mod counting;
mod failure;
mod flights;
mod following;
mod needs;
mod rights;
#[cfg(test)]
pub(crate) mod tests;
mod visibility;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use kedge_auth::{Part, ServerSession, UserStore};
use kedge_bucket::{Bucket, Completion, Cookie, Ctx};
use kedge_cluster::{Config, Revision};
use kedge_protocol::binary::{
    ConnectionKind, Feature, Features, FrameInfos, Magic, Opcode, Parse, Request, ServerDuration,
    parse_frame,
};
use kedge_types::{Datatype, Now, Status};

pub(crate) use compose::{Composer, inflated};
pub(crate) use failure::Failure;
pub(crate) use flights::{Flight, Flights, ReplyKind};
pub(crate) use rights::Rights;

use crate::commands::{self, Command, Done};
use crate::cookie::ConnectionId;
use crate::inbox::{Login, Port};
use crate::metrics::Metrics;
use crate::output::Output;
use crate::shared::Shared;
use crate::text_exec::{self, Retrieval};
use following::Following;

/// Where the server duration stands in a reply that has one: behind the header and the head of its frame info.
const DURATION_AT: usize = 25;

/// What a front-end thread lends to a session while it is handled.
pub(crate) struct Turn<'t> {
    pub(crate) shared: &'t Shared,
    pub(crate) thread: u16,
    /// The time when the turn began: what buckets are told.
    pub(crate) now: Now,
    /// When the command before this one ended, which is when this one begins; nanoseconds of the monotonic clock.
    pub(crate) last_ns: u64,
    /// Buckets in which a command was parked during the turn.
    pub(crate) kicks: &'t mut Vec<Arc<Bucket>>,
}

impl Turn<'_> {
    pub(crate) fn ctx(&self) -> Ctx {
        Ctx {
            now: self.now,
            thread: self.thread,
        }
    }

    fn kick(&mut self, bucket: &Arc<Bucket>) {
        if !self.kicks.iter().any(|known| Arc::ptr_eq(known, bucket)) {
            self.kicks.push(bucket.clone());
        }
    }
}

/// What a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
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
    /// What came is no request: the connection ends.
    Malformed,
}

/// What comes after a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// The next command.
    Next,
    /// This command must wait until others ended; it was not executed.
    Wait,
    /// The end of the connection.
    Close,
}

/// One connection's conversation.
pub(crate) struct Session {
    id: ConnectionId,
    dialect: Dialect,
    pub(crate) features: Features,
    pub(crate) local: IpAddr,
    pub(crate) peer: SocketAddr,
    /// Who logged in.
    pub(crate) user: Option<Box<str>>,
    /// A login under way.
    pub(crate) login: Option<Box<ServerSession>>,
    pub(crate) bucket: Option<Arc<Bucket>>,
    /// What the user may do with all of the bucket.
    pub(crate) rights: Rights,
    /// What else in parts of it.
    parts: Vec<Part>,
    pub(crate) flights: Flights,
    /// The newest cluster map of its bucket that the client was sent.
    pub(crate) map_sent: Option<Revision>,
    /// The newest whose version it was told.
    pub(crate) map_told: Option<Revision>,
    /// Bytes of a text value that are still to be skipped.
    pub(crate) swallow: u64,
    /// A retrieval of the text protocol that waits for documents.
    pub(crate) retrieval: Option<Box<Retrieval>>,
    /// What it does since DCP_OPEN.
    dcp: Following,
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
            local,
            peer,
            user: None,
            login: None,
            bucket: None,
            rights: Rights::NONE,
            parts: Vec::new(),
            flights: Flights::default(),
            map_sent: None,
            map_told: None,
            swallow: 0,
            retrieval: None,
            dcp: Following::Not,
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

    pub(crate) fn id(&self) -> ConnectionId {
        self.id
    }

    /// Whether commands on documents are allowed as far as logging in goes. The memcached port needs no login, as
    /// only the machine itself reaches it unless it was told otherwise.
    pub(crate) fn is_authenticated(&self) -> bool {
        self.user.is_some() || self.dialect != Dialect::Couchbase
    }

    /// What the next parked command is known by.
    #[inline]
    pub(crate) fn next_cookie(&self) -> Cookie {
        self.id.cookie(self.flights.next_slot())
    }

    /// Whether commands of this connection are being executed.
    pub(crate) fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// Whether nothing may start before a command in flight has ended.
    pub(crate) fn is_held(&self) -> bool {
        self.flights.hold_all(self.is_unordered())
    }

    fn is_unordered(&self) -> bool {
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

    /// What the client was sent was of another bucket.
    pub(crate) fn forget_maps(&mut self) {
        self.map_sent = None;
        self.map_told = None;
    }

    /// Works out what the user may do with the bucket that is selected now.
    pub(crate) fn work_out_rights(&mut self, shared: &Shared, users: &UserStore) {
        let bucket = self.bucket.as_deref().map(Bucket::name);
        let is_memcacheds = bucket.is_none() || bucket == shared.memcached_bucket.as_deref();
        self.rights = match &self.user {
            _ if self.dialect != Dialect::Couchbase && is_memcacheds => Rights::ALL,
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

    /// Executes the commands that `bytes` begin with. Returns how many bytes they took, and why it stopped.
    pub(crate) fn on_bytes(
        &mut self,
        turn: &mut Turn<'_>,
        bytes: &[u8],
        out: &mut Output,
    ) -> (usize, Halt) {
        if self.dialect == Dialect::Undecided {
            self.dialect = match bytes.first() {
                None => return (0, Halt::NeedBytes(1)),
                Some(&first) if first == Magic::ClientRequest.wire() => Dialect::MemcachedBinary,
                Some(_) => Dialect::MemcachedText,
            };
        }
        if self.dialect == Dialect::MemcachedText {
            return text_exec::on_bytes(self, turn, bytes, out);
        }
        let mut at = 0;
        loop {
            if self.is_dcp() {
                let (consumed, halt) = self.on_dcp_bytes(turn, &bytes[at..], out);
                return (at + consumed, halt);
            }
            if self.is_held() {
                return (at, Halt::Parked);
            }
            if out.queued() > turn.shared.limits.queued_bytes_max {
                return (at, Halt::Full);
            }
            match parse_frame(&bytes[at..], self.body_bytes_max(turn.shared)) {
                Parse::Incomplete { need } => return (at, Halt::NeedBytes(need)),
                Parse::Fatal(error) => {
                    tracing::debug!(peer = %self.peer, %error, "closing a connection");
                    return (at, Halt::Malformed);
                }
                // Nothing that the server asks needs an answer.
                Parse::ServerResponse { consumed, .. } => at += consumed,
                Parse::Frame { request, consumed } => match self.execute(turn, &request, out) {
                    Flow::Next => at += consumed,
                    Flow::Wait => return (at, Halt::Parked),
                    Flow::Close => return (at + consumed, Halt::Close),
                },
            }
        }
    }

    fn body_bytes_max(&self, shared: &Shared) -> usize {
        if self.is_authenticated() {
            shared.limits.body_bytes_max
        } else {
            shared.limits.unauthenticated_body_bytes_max
        }
    }

    fn execute(&mut self, turn: &mut Turn<'_>, request: &Request<'_>, out: &mut Output) -> Flow {
        let opcode = Opcode::from_wire(request.opcode, self.kind());
        let composer = Composer {
            number: request.opcode,
            opaque: request.opaque,
            opcode,
            kind: self.kind(),
            features: self.features,
        };
        let begin = out.position();
        let (status, flow) = match self.run(turn, request, opcode, composer, out) {
            Ok(Ran::Wait) => return Flow::Wait,
            Ok(Ran::Done(Done::Parked)) => return Flow::Next,
            Ok(Ran::Done(Done::Replied)) => (Status::Success, Flow::Next),
            Ok(Ran::Done(Done::Close)) => (Status::Success, Flow::Close),
            Err(failure) => (
                failure.status,
                self.fail(turn.shared, &composer, failure, out),
            ),
        };
        turn.shared.metrics.thread(turn.thread).replied(status);
        let start_ns = turn.last_ns;
        turn.last_ns = turn.shared.clock.mono_ns();
        self.took(turn, opcode, begin, start_ns, out);
        flow
    }

    fn run(
        &mut self,
        turn: &mut Turn<'_>,
        request: &Request<'_>,
        opcode: Option<Opcode>,
        composer: Composer,
        out: &mut Output,
    ) -> Result<Ran, Failure> {
        let Some(opcode) = opcode else {
            return Err(Opcode::unsupported_status(request.opcode).into());
        };
        let infos = if request.framing.is_empty() {
            FrameInfos::default()
        } else {
            let infos = FrameInfos::parse(request.framing)?;
            infos.check_opcode(opcode)?;
            infos
        };
        if !self.flights.is_empty() {
            if matches!(opcode, Opcode::Hello | Opcode::SelectBucket) {
                return Err(Failure::new(
                    Status::Invalid,
                    "not while other commands of the connection are being executed",
                ));
            }
            if infos.barrier || !opcode.is_reorderable() {
                return Ok(Ran::Wait);
            }
        }
        let mut command = Command {
            session: self,
            turn,
            out,
            request,
            composer,
            opcode,
            infos,
        };
        command.check_first()?;
        commands::dispatch(&mut command).map(Ran::Done)
    }

    /// A command was answered: its time is told in the reply and counted in the histograms.
    fn took(
        &self,
        turn: &Turn<'_>,
        opcode: Option<Opcode>,
        begin: usize,
        start_ns: u64,
        out: &mut Output,
    ) {
        let us = turn.last_ns.saturating_sub(start_ns) / 1_000;
        if let Some(reply) = out.buffer().get_mut(begin..)
            && reply.first() == Some(&Magic::AltClientResponse.wire())
        {
            let encoded = ServerDuration::encode(us).to_be_bytes();
            reply[DURATION_AT..DURATION_AT + 2].copy_from_slice(&encoded);
        }
        turn.shared.metrics.thread(turn.thread).command();
        if let (Some(bucket), Some(timing)) = (&self.bucket, opcode.and_then(commands::timing_of)) {
            bucket.timings().record_us(turn.thread, timing, us);
        }
    }

    /// Parks the command that a bucket, or the login thread, was given under the cookie of the next slot.
    pub(crate) fn park(&mut self, turn: &mut Turn<'_>, flight: Flight, alone: bool) {
        self.flights.park(flight, alone);
        if let Some(bucket) = &self.bucket {
            turn.kick(bucket);
        }
        // The next command begins now, not when this one ends.
        turn.last_ns = turn.shared.clock.mono_ns();
    }

    /// A parked command ended. The caller then lets the session go on with the bytes that wait.
    pub(crate) fn on_completion(
        &mut self,
        turn: &mut Turn<'_>,
        slot: u8,
        completion: Completion,
        out: &mut Output,
    ) -> Flow {
        if commands::is_partial(&completion) {
            self.on_part(slot, completion, out);
            return Flow::Next;
        }
        let Some(flight) = self.flights.take(slot) else {
            return Flow::Next;
        };
        let Flight {
            opcode,
            opaque,
            start_ns,
            kind,
        } = flight;
        let ended = Ended {
            opcode,
            opaque,
            start_ns,
        };
        let composer = self.composer_of(ended);
        let begin = out.position();
        let result = match kind {
            ReplyKind::Text(suspended) => {
                text_exec::resume(self, turn, &suspended, start_ns, completion, out);
                return Flow::Next;
            }
            ReplyKind::Part => {
                text_exec::on_part(self, turn, slot, completion, out);
                return Flow::Next;
            }
            ReplyKind::Observe(observing) => {
                match commands::observed(self, turn, ended, observing, completion, out) {
                    Ok(Done::Parked) => return Flow::Next,
                    other => other.map(drop),
                }
            }
            kind => commands::complete(&composer, &kind, completion, out),
        };
        self.answered(turn, ended, composer, result, begin, out)
    }

    /// A part of the answer to a command that goes on. If it cannot be told, the command fails in the end.
    fn on_part(&mut self, slot: u8, completion: Completion, out: &mut Output) {
        let Some(flight) = self.flights.get_mut(slot) else {
            return;
        };
        let kind = std::mem::replace(&mut flight.kind, ReplyKind::ScanFailed);
        let ended = Ended {
            opcode: flight.opcode,
            opaque: flight.opaque,
            start_ns: flight.start_ns,
        };
        let composer = self.composer_of(ended);
        if commands::complete(&composer, &kind, completion, out).is_ok()
            && let Some(flight) = self.flights.get_mut(slot)
        {
            flight.kind = kind;
        }
    }

    /// A login that was parked ended.
    pub(crate) fn on_login(
        &mut self,
        turn: &mut Turn<'_>,
        slot: u8,
        login: Login,
        out: &mut Output,
    ) -> Flow {
        let Some(flight) = self.flights.take(slot) else {
            return Flow::Next;
        };
        let ended = Ended {
            opcode: flight.opcode,
            opaque: flight.opaque,
            start_ns: flight.start_ns,
        };
        let composer = self.composer_of(ended);
        let begin = out.position();
        let result = commands::logged_in(self, turn, &composer, login, out);
        self.answered(turn, ended, composer, result, begin, out)
    }

    pub(crate) fn composer_of(&self, ended: Ended) -> Composer {
        Composer {
            number: ended.opcode.wire(),
            opaque: ended.opaque,
            opcode: Some(ended.opcode),
            kind: self.kind(),
            features: self.features,
        }
    }

    fn answered(
        &mut self,
        turn: &mut Turn<'_>,
        ended: Ended,
        composer: Composer,
        result: Result<(), Failure>,
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
        self.took(turn, Some(ended.opcode), begin, ended.start_ns, out);
        flow
    }

    /// Tells the client of the current cluster map, if it asked for that and has an older one.
    pub(crate) fn push_map(&mut self, shared: &Shared, out: &mut Output) {
        commands::push_map(self, shared, out);
    }

    /// Counts a failed login.
    pub(crate) fn login_failed(&mut self, metrics: &Metrics) {
        Metrics::count(&metrics.auth_errors);
        self.login = None;
    }
}

/// What is known of a parked command that ended, beside how it is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) opcode: Opcode,
    pub(crate) opaque: u32,
    pub(crate) start_ns: u64,
}

/// What became of a command that was not refused.
enum Ran {
    /// It must wait for others and was not executed.
    Wait,
    Done(Done),
}
