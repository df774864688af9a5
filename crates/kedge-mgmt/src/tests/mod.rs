//! Management through real sockets, with real buckets.

mod buckets;
mod client;
mod cluster;
mod collections;
mod compaction;
mod console_sessions;
mod custom_roles;
mod documents;
mod figures;
mod floods;
mod node_requests;
mod ready;
mod rights;
mod settings;
mod sockets;
mod streams;
mod threads;
mod users;
mod whole_manifest;

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kedge_auth::{HashCost, Roles, UserStore};
use kedge_bucket::{BucketConfig, Completion, Completions, Cookie, RecoveryMode};
use kedge_cluster::{CLUSTER_USER, Ports};
use kedge_disk::PosixDisk;
use kedge_executor::Executor;
use kedge_node::password_checks::PasswordChecks;
use kedge_node::pools::{ONE_THREAD_EACH, TaskPools};
use kedge_node::registry::{BucketRegistry, RegistrySetup};
use kedge_node::users::Users;
use kedge_types::SystemClock;

use super::serve::{ConnectionTimeouts, start_with};
use super::{
    AllowedHosts, HEADER_TIMEOUT, HttpHandle, HttpListeners, HttpParts, HttpState, ProofChecks,
};
use client::{Client, Reply};

const VBUCKETS: u16 = 4;
const KV_PORT: u16 = 11210;
/// The secret of the cluster on servers that have the user of nodes.
const NODE_SECRET: &str = "the-secret-of-the-cluster";

struct Nobody;

impl Completions for Nobody {
    fn complete(&self, done: &mut Vec<(Cookie, Completion)>) {
        done.clear();
    }
}

/// A server with the bucket "default" and the user root, whose password is "secret".
struct Server {
    address: SocketAddr,
    registry: Arc<BucketRegistry>,
    pools: Arc<TaskPools>,
    checks: Arc<PasswordChecks>,
    handle: Option<HttpHandle>,
    // Last, so that files go when nothing uses them any more.
    dir: tempfile::TempDir,
}

impl Server {
    fn start() -> Self {
        Self::start_timed(ConnectionTimeouts::default())
    }

    fn start_timed(times: ConnectionTimeouts) -> Self {
        Self::start_with(times, root())
    }

    fn start_for(users: UserStore) -> Self {
        Self::start_with(ConnectionTimeouts::default(), users)
    }

    fn start_with_passwords_of(chars: usize) -> Self {
        let users = Users::new(root(), Box::new(|_| Ok(())));
        Self::start_as(
            ConnectionTimeouts::default(),
            users.with_password_length_min(chars),
        )
    }

    fn start_with(times: ConnectionTimeouts, users: UserStore) -> Self {
        Self::start_as(times, Users::new(users, Box::new(|_| Ok(()))))
    }

    fn start_as(times: ConnectionTimeouts, users: Users) -> Self {
        Self::start_checked(times, users, |checks| checks)
    }

    fn start_checked(
        times: ConnectionTimeouts,
        users: Users,
        equip: impl FnOnce(PasswordChecks) -> PasswordChecks,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let pools = Arc::new(TaskPools::start(ONE_THREAD_EACH).unwrap());
        let setup = RegistrySetup {
            disk: Arc::new(PosixDisk),
            data_dir: dir.path().to_owned(),
            master_keys: None,
            clock: Arc::new(SystemClock::new()),
            executor: pools.executor().clone(),
            owner: pools.owner(),
            completions: Arc::new(Nobody),
            serving: Arc::default(),
            threads: 1,
            recovery: RecoveryMode::default(),
            clustered: false,
            on_fatal: Arc::new(|why| panic!("{why}")),
        };
        let ports = Ports::plain(KV_PORT, address.port());
        let registry = Arc::new(BucketRegistry::open(setup, ports).unwrap());
        let bucket = registry
            .create(BucketConfig::new("default", VBUCKETS, 64 << 20))
            .unwrap();
        bucket.wait_loaded().unwrap();
        apply(pools.executor());
        let checks = Arc::new(equip(PasswordChecks::start(&pools).unwrap()));
        users.name_administrator("root");
        let is_node = users.read().exists(CLUSTER_USER);
        let proofs = is_node.then(|| ProofChecks::new("n_0", NODE_SECRET).unwrap());
        let parts = HttpParts {
            users: Arc::new(users),
            proofs,
            ..parts(&registry, &pools, dir.path().to_owned())
        };
        let state = HttpState::new(parts, checks.clone());
        let handle = start_with(plain(listener), state, times).unwrap();
        Self {
            address,
            registry,
            pools,
            checks,
            handle: Some(handle),
            dir,
        }
    }

    /// Waits until so many passwords wait to be verified.
    fn wait_for_checks(&self, count: usize) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.checks.waiting() < count {
            assert!(Instant::now() < deadline, "{} wait", self.checks.waiting());
            std::thread::yield_now();
        }
    }

    /// A new connection that logs in as root with each request.
    fn connect(&self) -> Client {
        self.connect_as("root", "secret")
    }

    fn connect_as(&self, user: &str, password: &str) -> Client {
        Client::connect(self.address, Some((user, password)))
    }

    fn get(&self, path: &str) -> Reply {
        self.connect().request("GET", path, "")
    }

    fn post(&self, path: &str, form: &str) -> Reply {
        self.connect().request("POST", path, form)
    }
}

/// Waits until the task that loaded the bucket is gone and counted, and every thread is at rest.
fn apply(executor: &Executor) {
    let started = Instant::now();
    let is_at_rest = || {
        executor.tasks().iter().all(|task| {
            let looks_later = ["log_segment", "compaction_check"].contains(&task.kind);
            task.kind != "warmup" && (task.runs > 0 || looks_later)
        }) && executor
            .pools()
            .iter()
            .all(|pool| pool.idle == pool.threads)
    };
    while !is_at_rest() {
        assert!(started.elapsed() < Duration::from_secs(20), "tasks run");
        std::thread::yield_now();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.handle.take());
        self.registry.shutdown();
        self.pools.executor().shutdown();
    }
}

fn plain(listener: TcpListener) -> HttpListeners {
    HttpListeners {
        plain: Some(listener),
        tls: None,
    }
}

fn root() -> UserStore {
    let mut users = UserStore::new().unwrap();
    users.set_hash_cost(HashCost::new(64, 1).unwrap());
    users
        .add("root", "secret", Roles::admin(), 1_700_000_000)
        .unwrap();
    users
}

fn parts(registry: &Arc<BucketRegistry>, pools: &Arc<TaskPools>, data_dir: PathBuf) -> HttpParts {
    HttpParts {
        buckets: registry.clone(),
        node: None,
        cluster: registry.cluster().clone(),
        users: Arc::new(Users::new(root(), Box::new(|_| Ok(())))),
        stats: {
            let registry = registry.clone();
            Box::new(move |each| {
                each("curr_connections", "3");
                each("version", "text");
                registry.stats(each);
                for (stat, ..) in super::metrics::SERVER {
                    let is_known = ["curr_connections", "unserved_directories"].contains(stat);
                    if !is_known && !stat.starts_with("master_key_") {
                        each(stat, "1");
                    }
                }
            })
        },
        pools: pools.clone(),
        data_dir,
        hosts: AllowedHosts::new(["kedge.example".to_owned()]),
        tls: None,
        proofs: None,
        vbuckets_default: 16,
        session_timeout: Duration::from_secs(600),
    }
}
