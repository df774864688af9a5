//! The server: opens the buckets, starts the front end, management and the cluster, and stops them in order.
//!
//! # Example
//!
//! A server with all of its files in memory, and a memcached client:
//!
//! ```
//! use std::io::{BufRead, BufReader, Write};
//! use std::net::{IpAddr, Ipv4Addr, TcpStream};
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use kedge_auth::UserStore;
//! use kedge_bucket::{BucketConfig, RecoveryMode};
//! use kedge_disk::{Disk, SimDisk};
//! use kedge_frontend::{FrontendLimits, MemcachedRules};
//! use kedge_node::password_checks::LoginDelays;
//! use kedge_node::users::Users;
//! use kedge_server::{MemcachedConfig, Server, ServerConfig, ServerEnvironment};
//! use kedge_types::SystemClock;
//!
//! let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
//! let config = ServerConfig {
//!     listen: loopback,
//!     kv_port: Some(0),
//!     mgmt_port: Some(0),
//!     tls: None,
//!     memcached: Some(MemcachedConfig {
//!         listen: loopback,
//!         port: 0,
//!         bucket: "default".to_owned(),
//!         rules: MemcachedRules::default(),
//!     }),
//!     data_dir: "/data".into(),
//!     master_keys: None,
//!     threads: 1,
//!     front_end_reads: false,
//!     front_end_spin: Duration::ZERO,
//!     pools: kedge_executor::ExecutorConfig::default(),
//!     limits: FrontendLimits::default(),
//!     create: Some(BucketConfig::new("default", 16, 64 << 20)),
//!     http_allowed_hosts: Vec::new(),
//!     vbuckets_default: 16,
//!     login_delays: LoginDelays::NONE,
//!     session_timeout: Duration::from_secs(600),
//!     recovery: RecoveryMode::Strict,
//!     cluster: None,
//! };
//! let disk = Arc::new(SimDisk::new(1));
//! disk.create_dir_all(&config.data_dir)?;
//! let users = Users::new(UserStore::new()?, Box::new(|_| Ok(())));
//! let environment = ServerEnvironment {
//!     disk,
//!     clock: Arc::new(SystemClock::new()),
//!     users: Arc::new(users),
//!     on_fatal: Arc::new(|reason| panic!("{reason}")),
//!     return_memory: || {},
//! };
//! let server = Server::start(config, environment)?;
//! server.wait_loaded()?;
//!
//! let mut client = TcpStream::connect(server.memcached_addr().expect("it is served"))?;
//! client.write_all(b"set hello 0 0 5\r\nworld\r\nget hello\r\n")?;
//! let lines: Vec<String> = BufReader::new(client).lines().take(4).collect::<Result<_, _>>()?;
//! assert_eq!(lines, ["STORED", "VALUE hello 0 5", "world", "END"]);
//! server.stop(Duration::from_secs(5))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod server;

pub use error::ServerError;
pub use server::{MemcachedConfig, Server, ServerConfig, ServerEnvironment, TlsConfig};
