//! Starting and stopping the whole server.

mod system;

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use kedge_bucket::{Bucket, BucketConfig, RecoveryMode};
use kedge_cluster::Ports;
use kedge_coordinator::cluster::{ClusterNode, ClusterSetup, check_alone};
use kedge_coordinator::replication::Replicator;
use kedge_disk::Disk;
use kedge_encryption::MasterKeys;
use kedge_executor::{ExecutorConfig as PoolsConfig, ScheduleError};
use kedge_external::Authority;
use kedge_frontend::{
    Frontend, FrontendConfig, FrontendLimits, FrontendParts, FrontendSetup, Listeners,
    MemcachedGate, MemcachedRules, MemcachedService, Metrics,
};
use kedge_mgmt::{
    AllowedHosts, HttpHandle, HttpListeners, HttpParts, HttpState, ProofChecks, ServerStats,
};
use kedge_node::coordination::ClusterControl;
use kedge_node::password_checks::{LoginDelays, PasswordChecks};
use kedge_node::pools::TaskPools;
use kedge_node::registry::{BucketRegistry, RegistryError, RegistrySetup};
use kedge_node::users::Users;
use kedge_tls::ServerTls;
use kedge_types::SystemClock;

use crate::ServerError;
use system::{allowed_connections, bind, thread_count};

/// The service of plain memcached clients.
#[derive(Clone, Debug)]
pub struct MemcachedConfig {
    /// The address. Without [`MemcachedRules::login`] any client that reaches it may read and write.
    pub listen: IpAddr,
    /// The port; 0 for any free one.
    pub port: u16,
    /// The bucket that these clients see.
    pub bucket: String,
    /// Their permissions and limits.
    pub rules: MemcachedRules,
}

/// TLS and its ports.
#[derive(Clone, Debug)]
pub struct TlsConfig {
    /// The certificates.
    pub tls: ServerTls,
    /// The port of the binary protocol over TLS, if it is served; 0 for any free one.
    pub kv_port: Option<u16>,
    /// The port of management over HTTPS, if it is served; 0 for any free one.
    pub mgmt_port: Option<u16>,
    /// The port of plain memcached clients over TLS, if it is served and they are at all; 0 for any free one.
    pub memcached_port: Option<u16>,
}

/// The settings of the server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The address of the KV and management ports.
    pub listen: IpAddr,
    /// The port of the binary protocol, if it is served without TLS; 0 for any free one.
    pub kv_port: Option<u16>,
    /// The port of management over HTTP, if it is served; 0 for any free one.
    pub mgmt_port: Option<u16>,
    /// TLS, if it is served.
    pub tls: Option<TlsConfig>,
    /// The service of plain memcached clients, if it is enabled.
    pub memcached: Option<MemcachedConfig>,
    /// The data directory; this process has its lock.
    pub data_dir: PathBuf,
    /// The master key of encryption at rest, if there is one.
    pub master_keys: Option<MasterKeys>,
    /// Front-end threads; 0 is one per core.
    pub threads: u16,
    /// True if front-end threads read documents from the disk themselves, on systems with io_uring.
    pub front_end_reads: bool,
    /// Time for which front-end threads poll for the end of reads before they sleep; zero disables polling.
    pub front_end_spin: Duration,
    /// Threads of the task pools.
    pub pools: PoolsConfig,
    /// Limits of connections.
    pub limits: FrontendLimits,
    /// A bucket to create if none has its name.
    pub create: Option<BucketConfig>,
    /// Host names that requests to management may have, beside addresses, `localhost`, the machine's name and those of
    /// the cluster's nodes.
    pub http_allowed_hosts: Vec<String>,
    /// Default number of vBuckets of a bucket that management creates.
    pub vbuckets_default: u16,
    /// The delays after wrong passwords.
    pub login_delays: LoginDelays,
    /// The time without a request after which a session of the console ends.
    pub session_timeout: Duration,
    /// The reaction of recovery to damage in a log.
    pub recovery: RecoveryMode,
    /// This node's place in a cluster; `None`: it runs alone.
    pub cluster: Option<ClusterSetup>,
}

/// The parts of the process that the server works with.
#[derive(Clone)]
pub struct ServerEnvironment {
    /// The file system.
    pub disk: Arc<dyn Disk>,
    /// The source of time.
    pub clock: Arc<SystemClock>,
    /// The users.
    pub users: Arc<Users>,
    /// Called with a message when a bucket cannot continue without a risk for acknowledged writes; should end the
    /// process.
    pub on_fatal: Arc<dyn Fn(&str) + Send + Sync>,
    /// Returns the allocator's unused memory to the system. It may take a while, and does nothing for an allocator that
    /// returns memory by itself.
    pub return_memory: fn(),
}

/// A running server. Dropping it without [`Server::stop`] leaves its threads running.
pub struct Server {
    addresses: Addresses,
    registry: Arc<BucketRegistry>,
    /// This node as one of a cluster, and its thread.
    node: Option<(Arc<ClusterNode>, JoinHandle<()>)>,
    pools: Arc<TaskPools>,
    replicator: Arc<Replicator>,
    frontend: Frontend,
    http: HttpHandle,
    tls: Option<ServerTls>,
    external: Arc<Authority>,
}

/// The addresses of the listening sockets, with real ports.
#[derive(Clone, Copy, Debug)]
struct Addresses {
    kv: Option<SocketAddr>,
    mgmt: Option<SocketAddr>,
    kv_tls: Option<SocketAddr>,
    mgmt_tls: Option<SocketAddr>,
    memcached: Option<SocketAddr>,
    memcached_tls: Option<SocketAddr>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("addresses", &self.addresses)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// Binds the ports, opens the buckets and starts the threads. Returns when clients can connect. Buckets may still
    /// be loading, and answer temporary failures until they are loaded ([`Server::wait_loaded`]).
    ///
    /// # Errors
    /// `Listen`, `Config`, `Registry`, `Start`; no task runs then.
    pub fn start(
        config: ServerConfig,
        environment: ServerEnvironment,
    ) -> Result<Self, ServerError> {
        let pools = TaskPools::start(config.pools).map_err(no_start("the task pools"))?;
        let pools = Arc::new(pools);
        let executor = pools.executor().clone();
        Self::start_on(pools, config, environment).inspect_err(|_| executor.shutdown())
    }

    fn start_on(
        pools: Arc<TaskPools>,
        mut config: ServerConfig,
        environment: ServerEnvironment,
    ) -> Result<Self, ServerError> {
        let threads = thread_count(config.threads)?;
        let sockets = Sockets::bind(&config)?;
        let addresses = sockets.addresses;
        let tls = config.tls.take().map(|it| it.tls);
        config.limits.connections_max = allowed_connections(config.limits.connections_max);
        if config.cluster.is_some() {
            config.limits.connections_for_nodes = config.limits.kept_for_nodes();
        }
        let setup = FrontendSetup::new(threads)?;
        let registry = open_registry(&config, &environment, &pools, &setup, threads, addresses)?;
        let replicator = Replicator::new(&registry, &environment.clock);
        let replicator = Arc::new(replicator.map_err(no_start("the replication's thread"))?);
        let (hosts, proofs) = (allowed_hosts(&mut config), proofs(&config)?);
        let outer = (&environment, addresses);
        let node = open_node(&mut config, &registry, &replicator, outer)?;
        let (checks, external) = start_checks(&config, &environment, &pools)?;
        let parts = FrontendParts {
            registry: registry.clone(),
            users: environment.users,
            pools: pools.clone(),
            replication: replicator.clone(),
            checks: Arc::new(checks),
            clock: environment.clock,
            return_memory: environment.return_memory,
        };
        let of_frontend = frontend_config(&config, addresses, &tls);
        let mut frontend = Frontend::new(setup, of_frontend, parts.clone())?;
        let management = HttpParts {
            buckets: registry.clone(),
            cluster: registry.cluster().clone(),
            node: node.clone().map(|node| node as Arc<dyn ClusterControl>),
            users: parts.users.clone(),
            stats: statistics(&frontend, &parts),
            pools: pools.clone(),
            data_dir: config.data_dir,
            hosts,
            tls: tls.clone(),
            proofs,
            vbuckets_default: config.vbuckets_default,
            session_timeout: config.session_timeout,
        };
        let listeners = HttpListeners {
            plain: sockets.mgmt,
            tls: sockets.mgmt_tls.zip(tls.clone()),
        };
        let http = kedge_mgmt::start(listeners, HttpState::new(management, parts.checks))
            .map_err(no_start("the management thread"))?;
        let audit = parts.users.audit().write_by(&pools);
        audit.map_err(no_task("the task of the audit log"))?;
        let opener = frontend.start(sockets.clients)?;
        let node = node.map(start_node).transpose()?;
        let memcached = config.memcached.and_then(|it| registry.get(&it.bucket));
        open_memcached_when_ready(opener, node.as_ref().map(|(node, _)| node), memcached);
        Ok(Self {
            addresses,
            registry,
            node,
            pools,
            replicator,
            frontend,
            http,
            tls,
            external,
        })
    }

    /// The address of the binary protocol, with the real port, if it is served without TLS.
    #[must_use]
    pub fn kv_addr(&self) -> Option<SocketAddr> {
        self.addresses.kv
    }

    /// The address of management, with the real port, if it is served without TLS.
    #[must_use]
    pub fn mgmt_addr(&self) -> Option<SocketAddr> {
        self.addresses.mgmt
    }

    /// The address of the binary protocol over TLS, with the real port, if it is served.
    #[must_use]
    pub fn kv_tls_addr(&self) -> Option<SocketAddr> {
        self.addresses.kv_tls
    }

    /// The address of management over TLS, with the real port, if it is served.
    #[must_use]
    pub fn mgmt_tls_addr(&self) -> Option<SocketAddr> {
        self.addresses.mgmt_tls
    }

    /// The address of the memcached port, if it is enabled, with the real port.
    #[must_use]
    pub fn memcached_addr(&self) -> Option<SocketAddr> {
        self.addresses.memcached
    }

    /// The address of the memcached port over TLS, with the real port, if it is enabled.
    #[must_use]
    pub fn memcached_tls_addr(&self) -> Option<SocketAddr> {
        self.addresses.memcached_tls
    }

    /// TLS, if it is served.
    #[must_use]
    pub fn tls(&self) -> Option<&ServerTls> {
        self.tls.as_ref()
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

    /// The counters of the server.
    #[must_use]
    pub fn metrics(&self) -> &Arc<Metrics> {
        self.frontend.metrics()
    }

    /// The task pools.
    #[must_use]
    pub fn pools(&self) -> &Arc<TaskPools> {
        &self.pools
    }

    /// The replicator, which replicates vBuckets of other nodes.
    #[must_use]
    pub fn replicator(&self) -> &Arc<Replicator> {
        &self.replicator
    }

    /// Waits until all current buckets are loaded.
    ///
    /// # Errors
    /// `Load` for the first bucket that cannot be loaded.
    pub fn wait_loaded(&self) -> Result<(), ServerError> {
        for bucket in self.registry.list() {
            bucket.wait_loaded().map_err(|source| ServerError::Load {
                name: bucket.name().to_owned(),
                source,
            })?;
        }
        Ok(())
    }

    /// Accepts no more connections, answers requests in flight until `deadline`, then syncs the buckets and ends.
    ///
    /// # Errors
    /// `Deadline` if threads did not end; the buckets are synced and closed nevertheless. `Unclean` if that failed.
    pub fn stop(mut self, deadline: Duration) -> Result<(), ServerError> {
        self.frontend.stop_accepting();
        self.replicator.stop();
        let left = self.frontend.stop(deadline);
        self.http.stop();
        self.external.stop();
        if let Some((node, thread)) = self.node {
            node.stop();
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
        self.registry.shutdown();
        let unclean = self.registry.unclean();
        self.pools.executor().shutdown();
        if left > 0 {
            return Err(ServerError::Deadline(left));
        }
        self.frontend.join();
        if !unclean.is_empty() {
            return Err(ServerError::Unclean(unclean));
        }
        Ok(())
    }
}

fn no_start(what: &'static str) -> impl Fn(io::Error) -> ServerError {
    move |source| ServerError::Start { what, source }
}

fn no_task(what: &'static str) -> impl Fn(ScheduleError) -> ServerError {
    move |refused| no_start(what)(io::Error::other(refused))
}

/// The listening sockets of the server.
struct Sockets {
    clients: Listeners,
    mgmt: Option<TcpListener>,
    mgmt_tls: Option<TcpListener>,
    addresses: Addresses,
}

impl Sockets {
    fn bind(config: &ServerConfig) -> Result<Self, ServerError> {
        let at = |ip: IpAddr, port: Option<u16>| {
            let bound = port
                .map(|port| bind(SocketAddr::new(ip, port)))
                .transpose()?;
            Ok::<_, ServerError>(bound.unzip())
        };
        let tls = config.tls.as_ref();
        let (kv, kv_address) = at(config.listen, config.kv_port)?;
        let (mgmt, mgmt_address) = at(config.listen, config.mgmt_port)?;
        let (kv_tls, kv_tls_address) = at(config.listen, tls.and_then(|it| it.kv_port))?;
        let (mgmt_tls, mgmt_tls_address) = at(config.listen, tls.and_then(|it| it.mgmt_port))?;
        let (memcached, memcached_address) = match &config.memcached {
            Some(it) => at(it.listen, Some(it.port))?,
            None => (None, None),
        };
        let (memcached_tls, memcached_tls_address) = match &config.memcached {
            Some(it) => at(it.listen, tls.and_then(|it| it.memcached_port))?,
            None => (None, None),
        };
        Ok(Self {
            clients: Listeners {
                kv,
                memcached,
                kv_tls,
                memcached_tls,
            },
            mgmt,
            mgmt_tls,
            addresses: Addresses {
                kv: kv_address,
                mgmt: mgmt_address,
                kv_tls: kv_tls_address,
                mgmt_tls: mgmt_tls_address,
                memcached: memcached_address,
                memcached_tls: memcached_tls_address,
            },
        })
    }
}

impl Addresses {
    fn ports(&self) -> Ports {
        let port = |address: Option<SocketAddr>| address.map_or(0, |it| it.port());
        Ports {
            kv: port(self.kv),
            mgmt: port(self.mgmt),
            kv_tls: port(self.kv_tls),
            mgmt_tls: port(self.mgmt_tls),
        }
    }
}

/// The check of requests of other nodes; `None` if the node runs alone.
fn proofs(config: &ServerConfig) -> Result<Option<ProofChecks>, ServerError> {
    let Some(setup) = &config.cluster else {
        return Ok(None);
    };
    let proofs = ProofChecks::new(setup.name(), setup.secret());
    let started = proofs.map_err(|error| no_start("management")(io::Error::other(error)))?;
    Ok(Some(started))
}

/// The hosts by which requests of management may name the server.
fn allowed_hosts(config: &mut ServerConfig) -> AllowedHosts {
    let names = system::names(config.cluster.as_ref());
    AllowedHosts::new(names.chain(std::mem::take(&mut config.http_allowed_hosts)))
}

/// The node as one of its cluster; `None` if it runs alone.
fn open_node(
    config: &mut ServerConfig,
    registry: &Arc<BucketRegistry>,
    replicator: &Arc<Replicator>,
    (environment, addresses): (&ServerEnvironment, Addresses),
) -> Result<Option<Arc<ClusterNode>>, ServerError> {
    let Some(setup) = config.cluster.take() else {
        return Ok(None);
    };
    let node = ClusterNode::open(
        setup,
        registry.clone(),
        replicator.clone(),
        environment.users.clone(),
        (config.create.as_ref(), addresses.ports()),
    )?;
    Ok(Some(node))
}

fn frontend_config(
    config: &ServerConfig,
    addresses: Addresses,
    tls: &Option<ServerTls>,
) -> FrontendConfig {
    let memcached = config.memcached.as_ref().zip(addresses.memcached);
    FrontendConfig {
        limits: config.limits.clone(),
        reads: config.front_end_reads.then_some(config.front_end_spin),
        memcached: memcached.map(|(it, address)| MemcachedService {
            address,
            bucket: it.bucket.clone(),
            rules: it.rules.clone(),
        }),
        tls: tls.clone(),
    }
}

/// Opens the ports of plain memcached clients when their bucket is loaded, or at once without one: clients learn that it does not
/// exist then.
fn open_memcached_when_ready(
    gate: MemcachedGate,
    node: Option<&Arc<ClusterNode>>,
    bucket: Option<Arc<Bucket>>,
) {
    match (node, bucket) {
        (Some(node), _) => node.when_ready(move || gate.open()),
        (None, Some(bucket)) => bucket.when_loaded(move || gate.open()),
        (None, None) => gate.open(),
    }
}

fn start_node(node: Arc<ClusterNode>) -> Result<(Arc<ClusterNode>, JoinHandle<()>), ServerError> {
    let thread = node.start().map_err(no_start("a thread of the cluster"))?;
    Ok((node, thread))
}

/// Starts the tasks that verify passwords and save their hashes, and creates the authority of external users.
fn start_checks(
    config: &ServerConfig,
    environment: &ServerEnvironment,
    pools: &TaskPools,
) -> Result<(PasswordChecks, Arc<Authority>), ServerError> {
    let hashes = environment.users.save_hashes_by(pools);
    hashes.map_err(no_task("the task of password hashes"))?;
    let checks = PasswordChecks::start(pools).map_err(no_task("the task of logins"))?;
    let checks = checks
        .with_delays(config.login_delays, environment.clock.clone())
        .with_memory_return(environment.return_memory);
    let (users, clock) = (environment.users.clone(), environment.clock.clone());
    let external = Authority::new(users, checks.guard().clone(), clock);
    let external =
        external.map_err(|error| no_start("logins of external users")(io::Error::other(error)))?;
    let external = Arc::new(external);
    Ok((checks.with_external(external.clone()), external))
}

/// The statistics of the server as a whole.
fn statistics(frontend: &Frontend, parts: &FrontendParts) -> ServerStats {
    let of_clients = frontend.statistics();
    let external = parts.checks.external().cloned();
    let (replication, registry) = (parts.replication.clone(), parts.registry.clone());
    Box::new(move |each| {
        of_clients.stats(each);
        if let Some(external) = &external {
            external.stats(each);
        }
        replication.stats(each);
        registry.stats(each);
    })
}

fn open_registry(
    config: &ServerConfig,
    environment: &ServerEnvironment,
    pools: &TaskPools,
    frontend: &FrontendSetup,
    threads: u16,
    addresses: Addresses,
) -> Result<Arc<BucketRegistry>, ServerError> {
    let setup = RegistrySetup {
        disk: environment.disk.clone(),
        data_dir: config.data_dir.clone(),
        master_keys: config.master_keys.clone(),
        clock: environment.clock.clone(),
        executor: pools.executor().clone(),
        owner: pools.owner(),
        completions: frontend.completions(),
        serving: Arc::default(),
        threads,
        recovery: config.recovery,
        clustered: config.cluster.is_some(),
        on_fatal: environment.on_fatal.clone(),
    };
    if config.cluster.is_none() {
        check_alone(&*environment.disk, &config.data_dir)?;
    }
    let registry = BucketRegistry::open(setup, addresses.ports())?;
    if let Some(bucket) = config.create.as_ref().filter(|_| config.cluster.is_none())
        && registry.get(&bucket.name).is_none()
    {
        match registry.create(bucket.clone()) {
            // The other buckets are served, and an administrator can decide about this one.
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
    Ok(Arc::new(registry))
}
