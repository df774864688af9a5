//! A server for one test, on a simulated disk or a real one.

use std::net::{IpAddr, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kedge_auth::Roles;
use kedge_bucket::{BucketConfig, RecoveryMode};
use kedge_disk::{Disk, PosixDisk, SimDisk};
use kedge_executor::{ExecutorConfig, ThreadCount};
use kedge_frontend::{FrontendLimits, MemcachedRules};
use kedge_node::password_checks::LoginDelays;
use kedge_node::users::Users;
use kedge_server::{
    MemcachedConfig, Server, ServerConfig, ServerEnvironment, ServerError, TlsConfig,
};
use kedge_tls::ClientCerts;
use kedge_types::SystemClock;
use tempfile::TempDir;

use crate::client::{Client, Text};
use crate::tls_client as tls;

pub(crate) const USER: &str = "app";
pub(crate) const PASSWORD: &str = "password";
/// Many servers run at a time.
pub(crate) const FEW_THREADS: ExecutorConfig = ExecutorConfig {
    reader: ThreadCount::Fixed(1),
    writer: ThreadCount::Fixed(1),
    auxio: ThreadCount::Fixed(1),
    nonio: ThreadCount::Fixed(1),
    auxio_nice: 0,
};
const LOOPBACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

/// A running server, stopped when it is dropped.
pub(crate) struct Kedge {
    server: Option<Server>,
    pub(crate) users: Arc<Users>,
    /// The data directory, removed after the server.
    _real_dir: Option<TempDir>,
}

/// The settings of a server for tests.
pub(crate) struct Setup {
    pub(crate) limits: FrontendLimits,
    pub(crate) threads: u16,
    pub(crate) bucket: BucketConfig,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) data_dir: PathBuf,
    pub(crate) real_dir: Option<TempDir>,
    pub(crate) memcached: MemcachedRules,
    /// True if there are users at all.
    pub(crate) has_users: bool,
    /// Names of the server in HTTP.
    pub(crate) http_allowed_hosts: Vec<String>,
    /// Client certificates on the ports with TLS; `None`: there are no such ports.
    pub(crate) tls: Option<ClientCerts>,
    /// The delays after wrong passwords.
    pub(crate) login_delays: LoginDelays,
}

impl Setup {
    /// True for the system's disk.
    pub(crate) fn on_a_real_disk(self) -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self {
            disk: Arc::new(PosixDisk),
            data_dir: dir.path().to_owned(),
            real_dir: Some(dir),
            ..self
        }
    }
}

impl Default for Setup {
    fn default() -> Self {
        let mut bucket = BucketConfig::new("default", 16, 256 << 20);
        bucket.flush_enabled = true;
        Self {
            limits: FrontendLimits::default(),
            threads: 1,
            bucket,
            disk: Arc::new(SimDisk::new(1)),
            data_dir: PathBuf::from("/data"),
            real_dir: None,
            memcached: MemcachedRules {
                flush_all: true,
                ..MemcachedRules::default()
            },
            has_users: true,
            http_allowed_hosts: Vec::new(),
            tls: tls::is_default().then_some(ClientCerts::Off),
            login_delays: LoginDelays::NONE,
        }
    }
}

/// Users are created once, as password hashes take time.
fn user_store() -> kedge_auth::UserStore {
    static STORE: OnceLock<kedge_auth::UserStore> = OnceLock::new();
    let make = || {
        let mut store = kedge_auth::UserStore::new().unwrap();
        store.set_iterations(kedge_auth::ITERATIONS_MIN).unwrap();
        let users = [
            (USER, "bucket_full_access[*]"),
            ("root", "admin"),
            ("reader", "data_reader[default]"),
            ("writer", "data_writer[default]"),
            (kedge_cluster::CLUSTER_USER, "admin"),
        ];
        for (user, roles) in users {
            store
                .add(user, PASSWORD, roles.parse::<Roles>().unwrap(), 1)
                .unwrap();
        }
        store
    };
    STORE.get_or_init(make).clone()
}

impl Kedge {
    /// A default server: one front-end thread, one bucket "default" that is loaded.
    pub(crate) fn start() -> Self {
        Self::with(Setup::default())
    }

    pub(crate) fn with(setup: Setup) -> Self {
        let kedge = Self::begin(setup);
        kedge.server().wait_loaded().unwrap();
        kedge
    }

    /// A server whose bucket may still be loading.
    pub(crate) fn begin(setup: Setup) -> Self {
        Self::try_begin(setup).unwrap()
    }

    /// As [`Kedge::begin`], for a server that may not start.
    pub(crate) fn try_begin(setup: Setup) -> Result<Self, ServerError> {
        setup.disk.create_dir_all(&setup.data_dir).unwrap();
        let store = if setup.has_users {
            user_store()
        } else {
            kedge_auth::UserStore::new().unwrap()
        };
        let users = Arc::new(Users::new(store, Box::new(|_| Ok(()))));
        let config = ServerConfig {
            listen: LOOPBACK,
            kv_port: Some(0),
            mgmt_port: Some(0),
            tls: setup.tls.map(|client_certs| TlsConfig {
                tls: tls::server(client_certs),
                kv_port: Some(0),
                mgmt_port: None,
                memcached_port: Some(0),
            }),
            memcached: Some(MemcachedConfig {
                listen: LOOPBACK,
                port: 0,
                bucket: setup.bucket.name.clone(),
                rules: setup.memcached,
            }),
            data_dir: setup.data_dir,
            master_keys: None,
            threads: setup.threads,
            front_end_reads: true,
            front_end_spin: Duration::from_micros(200),
            pools: FEW_THREADS,
            limits: setup.limits,
            create: Some(setup.bucket),
            http_allowed_hosts: setup.http_allowed_hosts,
            vbuckets_default: 16,
            login_delays: setup.login_delays,
            session_timeout: Duration::from_secs(600),
            recovery: RecoveryMode::Strict,
            cluster: None,
        };
        let environment = ServerEnvironment {
            disk: setup.disk,
            clock: Arc::new(SystemClock::new()),
            users: users.clone(),
            on_fatal: Arc::new(|why| panic!("{why}")),
            return_memory: || {},
        };
        let server = Server::start(config, environment)?;
        Ok(Self {
            server: Some(server),
            users,
            _real_dir: setup.real_dir,
        })
    }

    pub(crate) fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    /// A connection to the KV port without HELLO and login.
    pub(crate) fn connect(&self) -> Client {
        if tls::is_default() && self.server().kv_tls_addr().is_some() {
            return self.connect_tls(None);
        }
        Client::connect(self.server().kv_addr().unwrap())
    }

    /// A connection to the KV port over TLS, with a certificate for a user if there is one.
    pub(crate) fn connect_tls(&self, user: Option<&str>) -> Client {
        Client::over(tls::connect(self.server().kv_tls_addr().unwrap(), user))
    }

    /// A connection with login and bucket, without features.
    pub(crate) fn bare(&self) -> Client {
        let mut client = self.connect();
        client.log_in(USER, PASSWORD);
        client.select("default");
        client
    }

    /// A connection like that of an SDK: features, login, bucket.
    pub(crate) fn client(&self) -> Client {
        let mut client = self.connect();
        client.hello(crate::client::SDK_FEATURES);
        client.log_in(USER, PASSWORD);
        client.select("default");
        client
    }

    /// A connection to the memcached port for the binary protocol.
    pub(crate) fn memcached(&self) -> Client {
        Client::over(self.memcached_stream())
    }

    /// A connection to the memcached port for the text protocol.
    pub(crate) fn text(&self) -> Text {
        Text::over(self.memcached_stream())
    }

    fn memcached_stream(&self) -> TcpStream {
        match self.server().memcached_tls_addr() {
            Some(address) if tls::is_default() => tls::connect(address, None),
            _ => TcpStream::connect(self.server().memcached_addr().unwrap()).unwrap(),
        }
    }

    /// Stops it.
    pub(crate) fn stop(mut self) {
        self.server
            .take()
            .unwrap()
            .stop(Duration::from_secs(10))
            .unwrap();
    }
}

impl Drop for Kedge {
    fn drop(&mut self) {
        if let Some(server) = self.server.take()
            && !std::thread::panicking()
        {
            server.stop(Duration::from_secs(10)).unwrap();
        }
    }
}
