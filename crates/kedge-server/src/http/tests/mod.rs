//! Management through real sockets, with real buckets.

mod buckets;
mod client;
mod cluster;
mod collections;
mod compaction;
mod documents;
mod figures;
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

use kedge_auth::{Roles, UserStore};
use kedge_bucket::{BucketConfig, Completion, Completions, Cookie, Recovery};
use kedge_cluster::Ports;
use kedge_disk::PosixDisk;
use kedge_executor::Executor;
use kedge_types::SystemClock;

use super::serve::start_with;
use super::{HEADER_TIMEOUT, HttpHandle, HttpParts, HttpState};
use crate::pools::TaskPools;
use crate::pools::tests::FEW_THREADS;
use crate::registry::{BucketRegistry, RegistrySetup};
use crate::users::Users;
use client::{Client, Reply};

const VBUCKETS: u16 = 4;
const KV_PORT: u16 = 11210;

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
    handle: Option<HttpHandle>,
    // Last, so that files go when nothing uses them any more.
    dir: tempfile::TempDir,
}

impl Server {
    fn start() -> Self {
        Self::start_with(HEADER_TIMEOUT)
    }

    fn start_with(header_timeout: Duration) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let pools = Arc::new(TaskPools::start(FEW_THREADS).unwrap());
        let setup = RegistrySetup {
            disk: Arc::new(PosixDisk),
            data_dir: dir.path().to_owned(),
            clock: Arc::new(SystemClock::new()),
            executor: pools.executor().clone(),
            owner: pools.owner(),
            completions: Arc::new(Nobody),
            threads: 1,
            recovery: Recovery::default(),
            clustered: false,
            on_fatal: Arc::new(|why| panic!("{why}")),
        };
        let ports = Ports {
            kv: KV_PORT,
            mgmt: address.port(),
        };
        let registry = Arc::new(BucketRegistry::open(setup, ports).unwrap());
        let bucket = registry
            .create(BucketConfig::new("default", VBUCKETS, 64 << 20))
            .unwrap();
        bucket.wait_loaded().unwrap();
        settle(pools.executor());
        let state = HttpState::new(parts(&registry, &pools, dir.path().to_owned()));
        let handle = start_with(listener, state, header_timeout).unwrap();
        Self {
            address,
            registry,
            pools,
            handle: Some(handle),
            dir,
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
fn settle(executor: &Executor) {
    let started = Instant::now();
    let is_at_rest = || {
        executor.tasks().iter().all(|task| {
            let looks_later = ["log_segment", "compaction_look"].contains(&task.kind);
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

fn parts(registry: &Arc<BucketRegistry>, pools: &Arc<TaskPools>, data_dir: PathBuf) -> HttpParts {
    let mut users = UserStore::new().unwrap();
    users
        .add("root", "secret", Roles::admin(), 1_700_000_000)
        .unwrap();
    let users = Users::new(users, Box::new(|_| Ok(())));
    users.name_administrator("root");
    HttpParts {
        buckets: registry.clone(),
        node: None,
        cluster: registry.cluster().clone(),
        users: Arc::new(users),
        stats: Box::new(|each| {
            each("curr_connections", "3");
            each("version", "text");
            for (stat, ..) in super::metrics::SERVER {
                if *stat != "curr_connections" {
                    each(stat, "1");
                }
            }
        }),
        pools: pools.clone(),
        data_dir,
        vbuckets_default: 16,
    }
}
