//! Starting and stopping the whole server.

mod system;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kedge_auth::AuthFile;
use kedge_bucket::{BucketConfig, Recovery};
use kedge_cluster::Ports;
use kedge_coordinator::cluster::{ClusterNode, ClusterSetup, check_alone};
use kedge_coordinator::replication::Replicator;
use kedge_disk::Disk;
use kedge_executor::{Config as PoolsConfig, Refused};
use kedge_mgmt::{AllowedHosts, HttpHandle, HttpParts, HttpState};
use kedge_node::abort_on_panic;
use kedge_node::coordination::{ClusterControl, ReplicationLinks as _};
use kedge_node::inbox::Inbox;
use kedge_node::password_checks::PasswordChecks;
use kedge_node::pools::TaskPools;
use kedge_node::registry::{BucketRegistry, RegistryError, RegistrySetup};
use kedge_node::users::Users;
use kedge_types::SystemClock;
use kedge_types::limits::VALUE_BYTES_MAX;
use mio::{Poll, Waker};

use crate::ServerError;
use crate::acceptor::{Acceptor, Listener};
use crate::client_addresses::ClientAddresses;
use crate::commands::StatTimings;
use crate::dcp::DcpConnections;
use crate::delayed_flush::DelayedFlush;
use crate::front_end::{FrontEnd, WAKER};
use crate::inbox::{FrontEnds, Message, Port};
use crate::limits::Limits;
use crate::memcached_connections::MemcachedConnections;
use crate::metrics::Metrics;
use crate::newcomers::Newcomers;
use crate::request_memory::RequestMemory;
use crate::shared::Shared;
use crate::text_exec::RecacheStates;
use system::{allowed_connections, bind, mio_listener, thread_count};

/// How long threads that were told to end at once may take.
const ABORT_TIMEOUT: Duration = Duration::from_secs(1);

/// Where plain memcached clients are served, and what they may do.
#[derive(Clone, Debug)]
pub struct MemcachedConfig {
    /// The address. Without [`MemcachedRules::login`] whoever reaches it may read and write.
    pub listen: IpAddr,
    /// The port; 0 for any free one.
    pub port: u16,
    /// The bucket that these clients see.
    pub bucket: String,
    /// Limits of what they may do.
    pub rules: MemcachedRules,
}

/// Limits of what plain memcached clients may do.
#[derive(Clone, Debug)]
pub struct MemcachedRules {
    /// True if they have to log in first.
    pub login: bool,
    /// Users who may log in beside those of the server.
    pub auth_file: Option<Arc<AuthFile>>,
    /// True if they may empty the bucket, where the bucket allows it.
    pub flush_all: bool,
    /// Largest value that they may send, in bytes.
    pub item_bytes_max: usize,
}

impl Default for MemcachedRules {
    fn default() -> Self {
        Self {
            login: false,
            auth_file: None,
            flush_all: false,
            item_bytes_max: VALUE_BYTES_MAX,
        }
    }
}

/// What the server is to be.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The address of the KV and management ports.
    pub listen: IpAddr,
    /// The port of the binary protocol; 0 for any free one.
    pub kv_port: u16,
    /// The port of management over HTTP; 0 for any free one.
    pub mgmt_port: u16,
    /// Where plain memcached clients are served, if anywhere.
    pub memcached: Option<MemcachedConfig>,
    /// The data directory; this process has its lock.
    pub data_dir: PathBuf,
    /// Front-end threads; 0 is one per core.
    pub threads: u16,
    /// Whether they read documents from the disk themselves, where the system has io_uring.
    pub front_end_reads: bool,
    /// How long they look whether the disk has answered before they sleep; zero: not at all.
    pub front_end_spin: Duration,
    /// Threads of the task pools.
    pub pools: PoolsConfig,
    /// Limits of connections.
    pub limits: Limits,
    /// A bucket to make when there is none of that name.
    pub create: Option<BucketConfig>,
    /// Names that management may be called by, beside addresses, `localhost`, the machine's name and those of the cluster's
    /// nodes.
    pub http_allowed_hosts: Vec<String>,
    /// vBuckets of a bucket that management makes without saying how many.
    pub vbuckets_default: u16,
    /// What recovery does about damage in a log.
    pub recovery: Recovery,
    /// Which node of which cluster this is; `None`: it runs alone.
    pub cluster: Option<ClusterSetup>,
}

/// What the server works with.
#[derive(Clone)]
pub struct Services {
    /// The file system.
    pub disk: Arc<dyn Disk>,
    /// Where time comes from.
    pub clock: Arc<SystemClock>,
    /// Who may log in.
    pub users: Arc<Users>,
    /// Called with a sentence when a bucket cannot go on without risking what it acknowledged; should end the process.
    pub on_fatal: Arc<dyn Fn(&str) + Send + Sync>,
}

/// A running server. Dropping it without [`Server::stop`] leaves its threads running.
pub struct Server {
    kv: SocketAddr,
    mgmt: SocketAddr,
    memcached: Option<SocketAddr>,
    registry: Arc<BucketRegistry>,
    /// This node as one of a cluster, and its thread.
    node: Option<(Arc<ClusterNode>, JoinHandle<()>)>,
    metrics: Arc<Metrics>,
    pools: Arc<TaskPools>,
    replicator: Arc<Replicator>,
    front_ends: Arc<FrontEnds>,
    acceptor: Acceptor,
    http: HttpHandle,
    threads: Vec<JoinHandle<()>>,
    /// A message for each front-end thread that ended.
    ended: Receiver<()>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("kv", &self.kv)
            .field("mgmt", &self.mgmt)
            .field("memcached", &self.memcached)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// Binds the ports, opens the buckets and starts the threads. Returns when clients can connect; buckets may still
    /// be loading, and answer temporary failures until they are done ([`Server::wait_loaded`]).
    ///
    /// # Errors
    /// `Listen`, `Config`, `Registry`, `Start`; no task runs then.
    pub fn start(config: ServerConfig, services: Services) -> Result<Self, ServerError> {
        let pools = TaskPools::start(config.pools).map_err(|source| ServerError::Start {
            what: "the task pools",
            source,
        })?;
        let pools = Arc::new(pools);
        let executor = pools.executor().clone();
        Self::start_on(pools, config, services).inspect_err(|_| executor.shutdown())
    }

    fn start_on(
        pools: Arc<TaskPools>,
        mut config: ServerConfig,
        services: Services,
    ) -> Result<Self, ServerError> {
        let threads = thread_count(config.threads)?;
        let kv = bind(SocketAddr::new(config.listen, config.kv_port))?;
        let mgmt = bind(SocketAddr::new(config.listen, config.mgmt_port))?;
        let memcached = match &config.memcached {
            Some(memcached) => Some(bind(SocketAddr::new(memcached.listen, memcached.port))?),
            None => None,
        };
        config.limits.connections_max = allowed_connections(config.limits.connections_max);
        let (polls, front_ends) = make_inboxes(threads)?;
        let addresses = (
            kv.1,
            mgmt.1,
            memcached.as_ref().map(|(_, address)| *address),
        );
        let ports = Ports {
            kv: kv.1.port(),
            mgmt: mgmt.1.port(),
        };
        let registry = open_registry(&config, &services, &pools, &front_ends, threads, ports)?;
        let metrics = Arc::new(Metrics::new(threads));
        if config.cluster.is_some() {
            config.limits.connections_for_nodes = config.limits.kept_for_nodes();
        }
        metrics.set_connections_max(u64::from(config.limits.connections_max));
        let replicator = Replicator::new(&registry, &services.clock);
        let replicator = replicator.map_err(|source| ServerError::Start {
            what: "the replication's thread",
            source,
        })?;
        let replicator = Arc::new(replicator);
        let hosts = system::names(config.cluster.as_ref());
        let hosts = AllowedHosts::new(hosts.chain(std::mem::take(&mut config.http_allowed_hosts)));
        let node = match config.cluster.take() {
            Some(setup) => Some(ClusterNode::open(
                setup,
                services.disk.clone(),
                &config.data_dir,
                registry.clone(),
                replicator.clone(),
                config.create.take(),
            )?),
            None => None,
        };
        let dcp = Arc::new(DcpConnections::new(front_ends.clone()));
        let request_memory = RequestMemory::new(config.limits.request_memory_max);
        let request_memory = Arc::new(request_memory);
        let parts = HttpParts {
            buckets: registry.clone(),
            cluster: registry.cluster().clone(),
            node: node.clone().map(|node| node as Arc<dyn ClusterControl>),
            users: services.users.clone(),
            stats: {
                let (counts, dcp) = (metrics.clone(), dcp.clone());
                let (replicator, requests) = (replicator.clone(), request_memory.clone());
                let registry = registry.clone();
                Box::new(move |each| {
                    counts.stats(each);
                    requests.stats(each);
                    dcp.stats(each);
                    replicator.stats(each);
                    registry.stats(each);
                })
            },
            pools: pools.clone(),
            data_dir: config.data_dir.clone(),
            hosts,
            vbuckets_default: config.vbuckets_default,
        };
        let no_task = |what| {
            move |refused| ServerError::Start {
                what,
                source: std::io::Error::other::<Refused>(refused),
            }
        };
        let checks = PasswordChecks::start(&pools).map_err(no_task("the task of logins"))?;
        let checks = Arc::new(checks);
        let http = start_http(mgmt.0, HttpState::new(parts, checks.clone()))?;
        let delayed_flush = DelayedFlush::start(&pools, &services.clock)
            .map_err(no_task("the task of delayed flushes"))?;
        let audit = services.users.audit();
        audit
            .write_by(&pools)
            .map_err(no_task("the task of the audit log"))?;
        let newcomers = Arc::new(Newcomers::default());
        let shared = Arc::new(Shared {
            registry: registry.clone(),
            users: services.users.clone(),
            limits: config.limits.clone(),
            request_memory,
            metrics: metrics.clone(),
            pools: pools.clone(),
            front_ends: front_ends.clone(),
            dcp,
            replication: replicator.clone(),
            clock: services.clock,
            memcached_bucket: config
                .memcached
                .as_ref()
                .map(|memcached| memcached.bucket.clone()),
            memcached_rules: config
                .memcached
                .as_ref()
                .map(|memcached| memcached.rules.clone())
                .unwrap_or_default(),
            memcached_connections: Arc::new(MemcachedConnections::new(addresses.2)),
            delayed_flush,
            checks,
            recache_states: RecacheStates::default(),
            client_addresses: ClientAddresses::default(),
            newcomers: newcomers.clone(),
            stat_timings: StatTimings::default(),
        });
        let (end, ended) = channel();
        let reads = config.front_end_reads.then_some(config.front_end_spin);
        let threads_running = start_front_ends(polls, &front_ends, &shared, reads, &end)?;
        let mut listeners = vec![Listener {
            socket: mio_listener(kv.0)?,
            port: Port::Kv,
        }];
        if let Some((socket, _)) = memcached {
            listeners.push(Listener {
                socket: mio_listener(socket)?,
                port: Port::Memcached,
            });
        }
        let limits = config.limits;
        let acceptor = Acceptor::start(
            listeners,
            front_ends.clone(),
            threads,
            limits,
            metrics.clone(),
            newcomers,
        )?;
        let node = match node {
            Some(node) => {
                let thread = node.start().map_err(|source| ServerError::Start {
                    what: "a thread of the cluster",
                    source,
                })?;
                Some((node, thread))
            }
            None => None,
        };
        let opener = acceptor.opener();
        let memcached_bucket = config.memcached.as_ref().map(|it| it.bucket.as_str());
        match (&node, memcached_bucket.and_then(|name| registry.get(name))) {
            (Some((node, _)), _) => node.when_ready(move || opener.open()),
            (None, Some(bucket)) => bucket.when_loaded(move || opener.open()),
            // Whoever connects hears that there is none.
            (None, None) => opener.open(),
        }
        Ok(Self {
            node,
            kv: addresses.0,
            mgmt: addresses.1,
            memcached: addresses.2,
            registry,
            metrics,
            pools,
            replicator,
            front_ends,
            acceptor,
            http,
            threads: threads_running,
            ended,
        })
    }

    /// Where the binary protocol is served; a real port.
    #[must_use]
    pub fn kv_addr(&self) -> SocketAddr {
        self.kv
    }

    /// Where management is served; a real port.
    #[must_use]
    pub fn mgmt_addr(&self) -> SocketAddr {
        self.mgmt
    }

    /// Where plain memcached clients are served, if they are; a real port.
    #[must_use]
    pub fn memcached_addr(&self) -> Option<SocketAddr> {
        self.memcached
    }

    /// The buckets.
    #[must_use]
    pub fn registry(&self) -> &Arc<BucketRegistry> {
        &self.registry
    }

    /// This node as one of a cluster, if it is.
    #[must_use]
    pub fn node(&self) -> Option<&Arc<ClusterNode>> {
        self.node.as_ref().map(|(node, _)| node)
    }

    /// The server's own counts.
    #[must_use]
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// The task pools.
    #[must_use]
    pub fn pools(&self) -> &Arc<TaskPools> {
        &self.pools
    }

    /// Makes vBuckets follow those of other nodes.
    #[must_use]
    pub fn replicator(&self) -> &Arc<Replicator> {
        &self.replicator
    }

    /// Waits until every bucket that exists now is loaded.
    ///
    /// # Errors
    /// `Load` for the first one that cannot be.
    pub fn wait_loaded(&self) -> Result<(), ServerError> {
        for bucket in self.registry.list() {
            bucket.wait_loaded().map_err(|source| ServerError::Load {
                name: bucket.name().to_owned(),
                source,
            })?;
        }
        Ok(())
    }

    /// Accepts nothing more, answers what is in flight for as long as `deadline` allows, and then makes everything
    /// durable and ends.
    ///
    /// # Errors
    /// `Deadline` when threads did not end. The buckets are synced and closed all the same. `Unclean` when that did not
    /// work.
    pub fn stop(self, deadline: Duration) -> Result<(), ServerError> {
        self.acceptor.stop();
        self.replicator.stop();
        self.front_ends.send_all(|| Message::Stop);
        let mut left = wait_for(&self.ended, self.threads.len(), deadline);
        if left > 0 {
            tracing::warn!(
                threads = left,
                "connections are closed with commands in flight"
            );
            self.front_ends.send_all(|| Message::Abort);
            left = wait_for(&self.ended, left, ABORT_TIMEOUT);
        }
        self.http.stop();
        if let Some((node, thread)) = self.node {
            node.stop();
            // A panic in there was reported when it happened.
            let _ = thread.join();
        }
        self.registry.shutdown();
        let unclean = self.registry.unclean();
        self.pools.executor().shutdown();
        if left > 0 {
            return Err(ServerError::Deadline(left));
        }
        for thread in self.threads {
            // A panic ends the process, so there is none to hear of.
            let _ = thread.join();
        }
        if !unclean.is_empty() {
            return Err(ServerError::Unclean(unclean));
        }
        Ok(())
    }
}

/// Waits until `count` threads ended; returns how many did not in time.
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

fn make_inboxes(threads: u16) -> Result<(Vec<Poll>, Arc<FrontEnds>), ServerError> {
    let failed = |source| ServerError::Start {
        what: "a front-end thread",
        source,
    };
    let mut polls = Vec::new();
    let mut inboxes = Vec::new();
    for _ in 0..threads {
        let poll = Poll::new().map_err(failed)?;
        inboxes.push(Inbox::new(
            Waker::new(poll.registry(), WAKER).map_err(failed)?,
        ));
        polls.push(poll);
    }
    Ok((polls, Arc::new(FrontEnds::new(inboxes))))
}

fn open_registry(
    config: &ServerConfig,
    services: &Services,
    pools: &TaskPools,
    front_ends: &Arc<FrontEnds>,
    threads: u16,
    ports: Ports,
) -> Result<Arc<BucketRegistry>, ServerError> {
    let setup = RegistrySetup {
        disk: services.disk.clone(),
        data_dir: config.data_dir.clone(),
        clock: services.clock.clone(),
        executor: pools.executor().clone(),
        owner: pools.owner(),
        completions: front_ends.clone(),
        threads,
        recovery: config.recovery,
        clustered: config.cluster.is_some(),
        on_fatal: services.on_fatal.clone(),
    };
    if config.cluster.is_none() {
        check_alone(&*services.disk, &config.data_dir)?;
    }
    let registry = BucketRegistry::open(setup, ports)?;
    if let Some(bucket) = config.create.as_ref().filter(|_| config.cluster.is_none())
        && registry.get(&bucket.name).is_none()
    {
        match registry.create(bucket.clone()) {
            // The others are served, and who manages the server can order what is to become of it.
            Err(RegistryError::Unserved(error)) => {
                let (bucket, remedy) = (&bucket.name, &error.remedy);
                tracing::error!(
                    bucket,
                    remedy,
                    "the bucket of the settings is not made: its directory is not served"
                );
            }
            // The other buckets are served.
            Err(error) if error.is_no_space() => {
                tracing::error!(bucket = bucket.name, %error, "the disk is full: the bucket could not be made");
            }
            created => drop(created?),
        }
    }
    let changed = front_ends.clone();
    registry
        .cluster()
        .subscribe(move |_| changed.send_all(|| Message::ClusterChanged));
    Ok(Arc::new(registry))
}

fn start_http(
    listener: std::net::TcpListener,
    state: HttpState,
) -> Result<HttpHandle, ServerError> {
    kedge_mgmt::start(listener, state).map_err(|source| ServerError::Start {
        what: "the management thread",
        source,
    })
}

fn start_front_ends(
    polls: Vec<Poll>,
    front_ends: &Arc<FrontEnds>,
    shared: &Arc<Shared>,
    reads: Option<Duration>,
    end: &Sender<()>,
) -> Result<Vec<JoinHandle<()>>, ServerError> {
    let mut threads = Vec::new();
    for (thread, poll) in (0_u16..).zip(polls) {
        let (front_ends, shared, end) = (front_ends.clone(), shared.clone(), end.clone());
        let spawned = std::thread::Builder::new()
            .name(format!("kedge-fe-{thread}"))
            .spawn(move || {
                abort_on_panic(|| FrontEnd::new(thread, poll, front_ends, shared, reads).run());
                // Nobody listens any more when the deadline has passed.
                let _ = end.send(());
            });
        let failed = |source| ServerError::Start {
            what: "a front-end thread",
            source,
        };
        threads.push(spawned.map_err(failed)?);
    }
    Ok(threads)
}
