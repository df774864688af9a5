//! Limits of connections: settings of the server, with their defaults.

use std::time::Duration;

use kedge_types::limits::{FRAME_BODY_BYTES_MAX, KV_KEPT_FOR_NODES};

/// Most front-end threads; a cookie has ten bits for the thread.
pub const THREADS_MAX: u16 = 256;
/// Most connections of one front-end thread; a cookie has twenty bits for the connection.
pub const CONNECTIONS_PER_THREAD_MAX: u32 = 1 << 20;
/// Values larger than this are sent from where they lie, in bytes. Below it a copy is cheaper than another segment.
pub const COPY_VALUE_BYTES_MAX: usize = 16 << 10;
/// Bytes that one front-end thread receives in one go.
pub const RECEIVE_BUFFER_BYTES: usize = 256 << 10;
/// A sender that adds this many bytes to its unfinished frame is not slow; its time starts again.
pub const SLOW_SENDER_PROGRESS_BYTES: usize = 64 << 10;

/// Largest size in bytes of the incomplete records and handshake messages of one TLS connection. The certificates of a
/// client fit in; a connection that sends a longer message is closed.
pub const TLS_INCOMPLETE_BYTES_MAX: usize = 32 << 10;
/// TLS handshakes that a front-end thread continues in one turn, after it has served the other connections. A step of a
/// handshake takes as long as many requests.
pub const HANDSHAKES_PER_TURN: usize = 4;
/// Largest size in bytes of the received records that one TLS connection keeps, which count as memory of its request.
pub const TLS_BYTES_MAX: usize = 96 << 10;

/// Limits of connections. `docs/reference/limits.md` describes the client's view of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrontendLimits {
    /// Most connections at a time, all ports of this protocol together. One more is accepted and closed at once.
    /// Lowered at start-up to what the limit of open files allows.
    pub connections_max: u32,
    /// Most connections on the memcached port, whose clients need not log in; 0 is half of them.
    pub memcached_connections_max: u32,
    /// Connections of the memcached port from one address, of IPv6 from one /64, that are evicted for other addresses
    /// only while they are idle; 0 is half of those of the port.
    pub memcached_connections_per_address: u32,
    /// Time without a request after which a connection of the memcached port is idle and may be evicted.
    pub memcached_evict_after: Duration,
    /// Connections that clients leave free for other nodes of the cluster. 0 on a single node.
    pub connections_for_nodes: u32,
    /// Most TLS handshakes at a time that are not complete, of all ports together; 0 for no limit.
    pub tls_handshakes_max: u32,
    /// Time in which a connection of the KV port has to log in.
    pub unauthenticated: Duration,
    /// Time after which an idle connection is closed; zero is never.
    pub idle: Duration,
    /// Time in which a frame has to be complete; it starts again with every [`SLOW_SENDER_PROGRESS_BYTES`].
    pub slow_sender: Duration,
    /// Longest time that replies wait for a client that does not read them.
    pub send_stall: Duration,
    /// Bytes of replies queued for one connection above which its requests are not read; one reply more may be queued.
    pub queued_bytes_max: usize,
    /// Bytes that the requests of all connections may take together while they are received and executed; those of
    /// clients that did not log in a quarter of it. Requests up to 4 KiB are not counted.
    pub request_memory_max: usize,
    /// Largest frame body, in bytes, before the client logged in.
    pub unauthenticated_body_bytes_max: usize,
    /// Largest frame body, in bytes.
    pub body_bytes_max: usize,
    /// Longest time that a consumer of DCP may leave a NOOP without an answer.
    pub dcp_idle: Duration,
    /// Longest time that the buffer of a consumer of DCP may be full without an acknowledgement.
    pub dcp_stuck: Duration,
    /// Idle time after which TCP sends a keepalive probe.
    pub keepalive_idle: Duration,
    /// Time between two keepalive probes.
    pub keepalive_interval: Duration,
    /// Number of keepalive probes without an answer after which the connection is closed.
    pub keepalive_probes: u32,
}

impl Default for FrontendLimits {
    fn default() -> Self {
        Self {
            connections_max: 60_000,
            memcached_connections_max: 0,
            memcached_connections_per_address: 0,
            memcached_evict_after: Duration::from_secs(10),
            connections_for_nodes: 0,
            tls_handshakes_max: 1_024,
            unauthenticated: Duration::from_secs(5),
            idle: Duration::ZERO,
            slow_sender: Duration::from_secs(30),
            send_stall: Duration::from_secs(60),
            queued_bytes_max: 1 << 20,
            request_memory_max: 256 << 20,
            unauthenticated_body_bytes_max: 64 << 10,
            body_bytes_max: FRAME_BODY_BYTES_MAX,
            dcp_idle: Duration::from_secs(360),
            dcp_stuck: Duration::from_secs(720),
            keepalive_idle: Duration::from_secs(360),
            keepalive_interval: Duration::from_secs(10),
            keepalive_probes: 3,
        }
    }
}

impl FrontendLimits {
    /// Most connections of the memcached port at a time.
    #[must_use]
    pub fn memcached_share(&self) -> u32 {
        match self.memcached_connections_max {
            0 => self.connections_max.div_ceil(2),
            some => some.min(self.connections_max),
        }
    }

    /// Connections of the memcached port from one address that are evicted for other addresses only while they are idle.
    #[must_use]
    pub fn memcached_share_of_address(&self) -> u32 {
        match self.memcached_connections_per_address {
            0 => self.memcached_share().div_ceil(2),
            some => some,
        }
    }

    /// Most connections of clients, whether they logged in or need not, at a time.
    #[must_use]
    pub fn clients_max(&self) -> u32 {
        self.connections_max
            .saturating_sub(self.connections_for_nodes)
    }

    /// [`Self::connections_for_nodes`] of a node of a cluster.
    #[must_use]
    pub fn kept_for_nodes(&self) -> u32 {
        KV_KEPT_FOR_NODES.min(self.connections_max / 4)
    }
}

/// Smallest [`FrontendLimits::request_memory_max`], in bytes: the largest request of a client that did not log in fits into its
/// quarter.
pub const REQUEST_MEMORY_MIN: usize = 128 << 20;

const _: () = assert!(REQUEST_MEMORY_MIN / 4 > FRAME_BODY_BYTES_MAX + TLS_BYTES_MAX);
const _: () = assert!(COPY_VALUE_BYTES_MAX < RECEIVE_BUFFER_BYTES);
const _: () = assert!(SLOW_SENDER_PROGRESS_BYTES <= RECEIVE_BUFFER_BYTES);
