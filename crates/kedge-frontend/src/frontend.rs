//! All front-end threads and the thread that accepts connections, as one component of the server.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kedge_bucket::Completions;
use kedge_executor::ScheduleError;
use kedge_node::abort_on_panic;
use kedge_node::coordination::ReplicationLinks;
use kedge_node::inbox::Inbox;
use kedge_node::password_checks::PasswordChecks;
use kedge_node::pools::TaskPools;
use kedge_node::registry::BucketRegistry;
use kedge_node::users::Users;
use kedge_tls::ServerTls;
use kedge_types::SystemClock;
use mio::{Poll, Waker};

use crate::acceptor::{Acceptor, ListeningSocket, MemcachedGate};
use crate::client_addresses::ClientAddresses;
use crate::dcp::connections::DcpConnections;
use crate::delayed_flush::DelayedFlush;
use crate::front_end::{FrontEnd, WAKER};
use crate::inbox::{FrontEndMessage, FrontEnds, Port};
use crate::limits::FrontendLimits;
use crate::memcached_connections::MemcachedConnections;
use crate::memcached_rules::MemcachedRules;
use crate::memory_return::MemoryReturn;
use crate::metrics::Metrics;
use crate::open_handshakes::OpenHandshakes;
use crate::request_memory::RequestMemory;
use crate::server_context::{MemcachedContext, ServerContext};
use crate::stat_timings::StatTimings;
use crate::text_exec::recache::RecacheStates;
use crate::unauthenticated::UnauthenticatedConnections;

/// Longest wait for threads that end at once.
const ABORT_TIMEOUT: Duration = Duration::from_secs(1);

/// A part of the front end that the system refuses to start.
#[derive(Debug, thiserror::Error)]
#[error("cannot start {what}: {source}")]
pub struct StartError {
    /// The part.
    pub what: &'static str,
    /// The system's error.
    pub source: io::Error,
}

impl StartError {
    fn of(what: &'static str) -> impl Fn(io::Error) -> Self + Copy {
        move |source| Self { what, source }
    }
}

/// The service of plain memcached clients.
#[derive(Clone, Debug)]
pub struct MemcachedService {
    /// The address of the port.
    pub address: SocketAddr,
    /// The bucket that these clients see.
    pub bucket: String,
    /// Their permissions and limits.
    pub rules: MemcachedRules,
}

/// The settings of the front end.
#[derive(Clone, Debug)]
pub struct FrontendConfig {
    /// Limits of connections.
    pub limits: FrontendLimits,
    /// The time to poll for the end of reads before a sleep, if the front-end threads read documents from the disk
    /// themselves (io_uring). `None`: tasks read all documents.
    pub reads: Option<Duration>,
    /// The memcached port, if there is one.
    pub memcached: Option<MemcachedService>,
    /// TLS, if there are ports for it.
    pub tls: Option<ServerTls>,
}

/// The parts of the node that the front end works with.
#[derive(Clone)]
pub struct FrontendParts {
    /// The buckets.
    pub registry: Arc<BucketRegistry>,
    /// The users.
    pub users: Arc<Users>,
    /// The task pools.
    pub pools: Arc<TaskPools>,
    /// The replication links to other nodes.
    pub replication: Arc<dyn ReplicationLinks>,
    /// The queue of password checks, which do not run in the event loops.
    pub checks: Arc<PasswordChecks>,
    /// The clock.
    pub clock: Arc<SystemClock>,
    /// Returns the allocator's unused memory to the system.
    pub return_memory: fn(),
}

/// The listening sockets.
#[derive(Debug)]
pub struct Listeners {
    /// The binary protocol, if it is served without TLS.
    pub kv: Option<TcpListener>,
    /// The port of plain memcached clients, if they are served.
    pub memcached: Option<TcpListener>,
    /// The binary protocol over TLS, if it is served; [`FrontendConfig::tls`] is needed.
    pub kv_tls: Option<TcpListener>,
    /// The port of plain memcached clients over TLS, if it is served; as [`Self::kv_tls`].
    pub memcached_tls: Option<TcpListener>,
}

/// The inboxes of front-end threads that do not run yet.
pub struct FrontendSetup {
    polls: Vec<Poll>,
    front_ends: Arc<FrontEnds>,
}

impl std::fmt::Debug for FrontendSetup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FrontendSetup").finish_non_exhaustive()
    }
}

impl FrontendSetup {
    /// Creates the inboxes of `threads` threads.
    ///
    /// # Errors
    /// The system's error about a poll or a wake-up.
    pub fn new(threads: u16) -> Result<Self, StartError> {
        let failed = StartError::of("a front-end thread");
        let mut polls = Vec::new();
        let mut inboxes = Vec::new();
        for _ in 0..threads {
            let poll = Poll::new().map_err(failed)?;
            let waker = Waker::new(poll.registry(), WAKER).map_err(failed)?;
            inboxes.push(Inbox::new(waker));
            polls.push(poll);
        }
        let front_ends = Arc::new(FrontEnds::new(inboxes));
        Ok(Self { polls, front_ends })
    }

    /// The receiver of the completions of parked commands.
    #[must_use]
    pub fn completions(&self) -> Arc<dyn Completions> {
        self.front_ends.clone()
    }
}

/// The front end of a server.
pub struct Frontend {
    shared: Arc<ServerContext>,
    /// The polls of threads that do not run yet.
    polls: Vec<Poll>,
    reads: Option<Duration>,
    threads: Vec<JoinHandle<()>>,
    acceptor: Option<Acceptor>,
    /// A message for each front-end thread that ended.
    ended: Receiver<()>,
    end: Sender<()>,
}

impl std::fmt::Debug for Frontend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Frontend").finish_non_exhaustive()
    }
}

impl Frontend {
    /// Creates the front end and its tasks. No thread runs yet. Its threads follow changes of the cluster.
    ///
    /// # Errors
    /// A task is refused, as the executor has ended.
    pub fn new(
        setup: FrontendSetup,
        config: FrontendConfig,
        parts: FrontendParts,
    ) -> Result<Self, StartError> {
        let FrontendSetup { polls, front_ends } = setup;
        let threads = u16::try_from(polls.len()).expect("the limit of threads is lower");
        let metrics = Arc::new(Metrics::new(threads));
        metrics.set_connections_max(u64::from(config.limits.connections_max));
        let delayed_flush = DelayedFlush::start(&parts.pools, &parts.clock).map_err(|refused| {
            StartError::of("the task of delayed flushes")(io::Error::other::<ScheduleError>(
                refused,
            ))
        })?;
        let request_memory = Arc::new(RequestMemory::new(config.limits.request_memory_max));
        let memory_return =
            MemoryReturn::start(&parts.pools, request_memory.clone(), parts.return_memory)
                .map_err(|refused| {
                    StartError::of("the task that returns memory")(io::Error::other(refused))
                })?;
        request_memory.set_memory_return(memory_return);
        let changed = front_ends.clone();
        parts
            .registry
            .cluster()
            .subscribe(move |_| changed.send_all(|| FrontEndMessage::ClusterChanged));
        let (address, bucket, rules) = match config.memcached {
            Some(it) => (Some(it.address), Some(it.bucket), it.rules),
            None => (None, None, MemcachedRules::default()),
        };
        let handshakes = Arc::new(OpenHandshakes::new(config.limits.tls_handshakes_max));
        let shared = Arc::new(ServerContext {
            registry: parts.registry,
            users: parts.users,
            request_memory,
            limits: config.limits,
            metrics,
            pools: parts.pools,
            dcp: Arc::new(DcpConnections::new(front_ends.clone())),
            front_ends,
            replication: parts.replication,
            clock: parts.clock,
            memcached: MemcachedContext {
                bucket,
                rules,
                connections: Arc::new(MemcachedConnections::new(address)),
            },
            tls: config.tls,
            delayed_flush,
            checks: parts.checks,
            recache_states: RecacheStates::default(),
            client_addresses: ClientAddresses::default(),
            unauthenticated: Arc::new(UnauthenticatedConnections::default()),
            handshakes,
            stat_timings: StatTimings::default(),
            return_memory: parts.return_memory,
        });
        let (end, ended) = channel();
        Ok(Self {
            shared,
            polls,
            reads: config.reads,
            threads: Vec::new(),
            acceptor: None,
            ended,
            end,
        })
    }

    /// The counts of the front end.
    #[must_use]
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.shared.metrics
    }

    /// A handle on the statistics of the front end.
    #[must_use]
    pub fn statistics(&self) -> FrontendStatistics {
        FrontendStatistics(self.shared.clone())
    }

    /// Starts the threads, and accepts connections of the KV port. Those of the memcached port wait for the
    /// [`MemcachedGate`].
    ///
    /// # Errors
    /// The system's error about a thread or a socket.
    pub fn start(&mut self, listeners: Listeners) -> Result<MemcachedGate, StartError> {
        let failed = StartError::of("a front-end thread");
        let mut number = 0;
        for poll in std::mem::take(&mut self.polls) {
            self.threads
                .push(self.start_thread(number, poll).map_err(failed)?);
            number += 1;
        }
        let failed = StartError::of("a listening socket");
        let all = listening(listeners).map_err(failed)?;
        if self.shared.tls.is_none() && all.iter().any(|listener| listener.is_tls) {
            let missing = io::Error::new(io::ErrorKind::InvalidInput, "TLS is not configured");
            return Err(failed(missing));
        }
        let acceptor = Acceptor::start(all, &self.shared, number)
            .map_err(StartError::of("the accepting thread"))?;
        let opener = acceptor.opener();
        self.acceptor = Some(acceptor);
        Ok(opener)
    }

    fn start_thread(&self, thread: u16, poll: Poll) -> io::Result<JoinHandle<()>> {
        let (shared, reads, end) = (self.shared.clone(), self.reads, self.end.clone());
        std::thread::Builder::new()
            .name(format!("kedge-fe-{thread}"))
            .spawn(move || {
                shared.front_ends.watch_waits(thread);
                abort_on_panic(|| FrontEnd::new(thread, poll, shared, reads).run());
                // The receiver is gone when the deadline has passed.
                let _ = end.send(());
            })
    }

    /// Closes the listening sockets. The system refuses connections from now on.
    pub fn stop_accepting(&mut self) {
        if let Some(acceptor) = self.acceptor.take() {
            acceptor.stop();
        }
    }

    /// Answers requests in flight until `deadline`, and ends the threads. Returns the number of threads that did not
    /// end.
    pub fn stop(&mut self, deadline: Duration) -> usize {
        self.stop_accepting();
        self.shared.front_ends.send_all(|| FrontEndMessage::Stop);
        let mut left = wait_for(&self.ended, self.threads.len(), deadline);
        if left > 0 {
            tracing::warn!(
                threads = left,
                "connections are closed with commands in flight"
            );
            self.shared.front_ends.send_all(|| FrontEndMessage::Abort);
            left = wait_for(&self.ended, left, ABORT_TIMEOUT);
        }
        left
    }

    /// Joins the threads that have ended.
    pub fn join(self) {
        for thread in self.threads {
            // A panic ends the process, so there is none to report.
            let _ = thread.join();
        }
    }
}

/// The sockets, as the accepting thread takes them.
fn listening(listeners: Listeners) -> io::Result<Vec<ListeningSocket>> {
    let all = [
        (listeners.kv, Port::Kv, false),
        (listeners.memcached, Port::Memcached, false),
        (listeners.kv_tls, Port::Kv, true),
        (listeners.memcached_tls, Port::Memcached, true),
    ];
    let mut sockets = Vec::new();
    for (socket, port, is_tls) in all {
        if let Some(socket) = socket {
            socket.set_nonblocking(true)?;
            sockets.push(ListeningSocket {
                socket: mio::net::TcpListener::from_std(socket),
                port,
                is_tls,
            });
        }
    }
    Ok(sockets)
}

/// The statistics of a front end.
#[derive(Clone)]
pub struct FrontendStatistics(Arc<ServerContext>);

impl std::fmt::Debug for FrontendStatistics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FrontendStatistics").finish_non_exhaustive()
    }
}

impl FrontendStatistics {
    /// Calls `each` with the name and value of each statistic.
    pub fn stats(&self, each: &mut dyn FnMut(&str, &str)) {
        self.0.metrics.stats(each);
        self.0.tls_stats(each);
        self.0.checks.guard().stats(each);
        self.0.request_memory.stats(each);
        self.0.dcp.stats(each);
    }
}

/// Waits until `count` threads have ended. Returns the number of those that did not in time.
fn wait_for(ended: &Receiver<()>, count: usize, time: Duration) -> usize {
    let end = Instant::now() + time;
    for seen in 0..count {
        if ended
            .recv_timeout(end.saturating_duration_since(Instant::now()))
            .is_err()
        {
            return count - seen;
        }
    }
    0
}
