//! `kedge serve`: the server as a process.
//!
//! The order of a start: settings, signals, the directory's lock, users, server, and when the documents are loaded the
//! line `ready ...` on standard output. Nothing slow happens before the ports are open.

mod administrator;
mod allocator;
mod bucket;
mod cluster;
pub(crate) mod encryption;
mod memcached;
mod signals;
mod start_pages;
mod tls;

pub(crate) use bucket::config as bucket_config;
pub(crate) use cluster::coordinator;
pub(crate) use tls::names as tls_names;

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Weak};
use std::time::Duration;

use clap::ArgMatches;
use kedge_auth::{AuditSettings, HashCost};
use kedge_bucket::{Bucket, RecoveryMode};
use kedge_cluster::{ClusterError, Release};
use kedge_coordinator::cluster::ClusterSetup;
use kedge_disk::{Disk, DiskError, PosixDisk};
use kedge_encryption::{Keyring, KeyringError, MasterKeyError};
use kedge_executor::ExecutorConfig as PoolsConfig;
use kedge_frontend::FrontendLimits;
use kedge_node::audit::{Audit, AuditConfig};
use kedge_node::password_checks::LoginDelays;
use kedge_node::registry::{BucketRegistry, RegistryError};
use kedge_node::users::{Users, UsersError};
use kedge_server::{
    MemcachedConfig, Server, ServerConfig, ServerEnvironment, ServerError, TlsConfig,
};
use kedge_tls::{ServerTls, TlsError};
use kedge_types::SystemClock;
use rustix::thread::disable_transparent_huge_pages;
use tracing_subscriber::EnvFilter;

use crate::settings::{Effective, LogLevel, Recover, Settings, SettingsError};
use crate::{output, permissions};

/// The exit code after a failed sync, when the content of the disk is unknown (`EX_IOERR` of sysexits.h).
const EXIT_IO: i32 = 74;
const USERS_FILE: &str = "users.json";
/// The time from the start of the server until the pages of the binary that only the start needed are unmapped.
const UNMAP_AFTER: Duration = Duration::from_secs(2);
/// The timeout of a wait that nothing but an event ends.
const FOREVER: Duration = Duration::MAX;

/// The reason why the server does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
enum ServeError {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error("cannot use the data directory {}: {source}", path.display())]
    DataDir { path: PathBuf, source: DiskError },
    #[error(
        "the data directory {} is in use by another process; stop that one, or give --data-dir",
        path.display()
    )]
    InUse { path: PathBuf },
    #[error(transparent)]
    Users(#[from] UsersError),
    #[error("{0}")]
    Administrator(String),
    #[error(
        "refusing to listen on {listen}: \"{user}\" has the well-known default password; \
         give another with --password or KEDGE_PASSWORD"
    )]
    DefaultPassword { listen: IpAddr, user: String },
    #[error(
        "refusing to open the memcached port on {listen}: whoever reaches it could read and write all documents of its \
         bucket without a login; give --memcached-login or --memcached-auth-file FILE, or --memcached-open if that is wanted"
    )]
    OpenMemcached { listen: IpAddr },
    #[error("cannot use the users of the memcached port in {}: {why}", path.display())]
    AuthFile { path: PathBuf, why: String },
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error(transparent)]
    Bucket(#[from] RegistryError),
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error("TLS: {0}")]
    Tls(#[from] TlsError),
    #[error("encryption at rest: {0}")]
    MasterKey(#[from] MasterKeyError),
    #[error("encryption at rest: {0}")]
    Keyring(#[from] KeyringError),
    #[error("{0}")]
    Load(String),
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// An event for the main thread.
enum ServeEvent {
    /// A bucket has loaded its documents, or failed to load them.
    Loaded(Weak<Bucket>),
    /// This node has applied the map of its cluster.
    Clustered,
    /// A signal asks the server to stop; carries the signal's name.
    Stop(&'static str),
    /// A signal asks for a reload of the files of TLS.
    Reload,
}

/// Runs the server until a signal stops it.
pub(crate) fn run(matches: &ArgMatches, release: Release) -> ExitCode {
    let result = Effective::new(matches, |name| std::env::var_os(name))
        .map_err(ServeError::from)
        .and_then(|effective| {
            start_logging(effective.settings.log_level);
            serve(&effective, release)
        });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::complain(format_args!("kedge serve: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn serve(effective: &Effective, release: Release) -> Result<(), ServeError> {
    let settings = &effective.settings;
    if settings.stop_with_parent {
        signals::stop_with_parent();
    }
    if !settings.core_dumps
        && let Err(error) = permissions::forbid_core_dumps()
    {
        tracing::warn!(%error, "core dumps could not be turned off; they have documents and secrets");
    }
    // The kernel makes room for a huge page while the thread that touches it waits, and all other threads that need
    // memory: for up to 20 ms when files fill the memory. If the system has no huge pages, nothing is lost.
    let _ = disable_transparent_huge_pages(true);
    let (events, inbox) = mpsc::channel();
    signals::watch(events.clone())?;

    let disk: Arc<dyn Disk> = Arc::new(PosixDisk);
    // Held until the end: its owner is the only writer here.
    let _lock = lock(&*disk, &settings.data_dir)?;
    let users = Users::open(Arc::clone(&disk), settings.data_dir.join(USERS_FILE))?;
    let users = users.with_password_length_min(settings.password_length_min.into());
    let users = users.with_hash_cost(hash_cost(settings));
    let master_keys = encryption::master_keys(settings)?;
    let keyring = encryption::node_keyring(&disk, settings, master_keys.as_ref())?;
    let users = Arc::new(users.audited(audit(&disk, settings, keyring)?));
    let tls = tls::config(settings)?;
    let nodes = tls.as_ref().map(|it| it.tls.clone());
    let cluster = cluster::prepare(effective, &disk, (release, nodes))?;
    if let Some(cluster) = &cluster {
        cluster.share_users(&users);
    }
    administrator::ensure(&users, effective)?;
    administrator::check_exposure(&users, settings)?;
    let memcached = memcached::config(effective, cluster.is_some(), &users)?;
    if let Some(cluster) = &cluster {
        cluster::ensure_user(&users, cluster)?;
    }

    bucket::apply_given(&*disk, effective)?;
    let audited = Arc::clone(&users);
    let environment = ServerEnvironment {
        disk,
        clock: Arc::new(SystemClock::new()),
        users,
        on_fatal: Arc::new(|why| {
            output::complain(format_args!("kedge serve: cannot go on safely: {why}"));
            // At once: nothing may be written, or answered, after this.
            signal_hook::low_level::exit(EXIT_IO);
        }),
        return_memory: allocator::return_memory,
    };
    let server = Server::start(
        ServerConfig {
            master_keys,
            ..server_config(effective, cluster, (memcached, tls))
        },
        environment,
    )?;
    let loading = announce(&server, events);
    if loading == 0 {
        output::print(&ready_line(&server))?;
    }
    let timeout = settings.shutdown_timeout;
    run_until_stopped(server, &inbox, loading, &audited, timeout)
}

/// Waits for a signal and stops the server then. Prints the line `ready` when the last of the `loading` buckets is
/// done.
fn run_until_stopped(
    server: Server,
    inbox: &Receiver<ServeEvent>,
    mut loading: usize,
    audited: &Users,
    shutdown_timeout: Duration,
) -> Result<(), ServeError> {
    let mut timeout = UNMAP_AFTER;
    loop {
        match inbox.recv_timeout(timeout) {
            Ok(event @ (ServeEvent::Loaded(_) | ServeEvent::Clustered)) => {
                if let ServeEvent::Loaded(bucket) = event
                    && let Err(error) = check_loaded(server.registry(), &bucket)
                {
                    // The other buckets are closed cleanly; the error of this one is reported.
                    let _ = server.stop(shutdown_timeout);
                    return Err(error);
                }
                loading -= 1;
                if loading == 0 {
                    output::print(&ready_line(&server))?;
                }
            }
            Ok(ServeEvent::Reload) => reload_tls(&server),
            Ok(ServeEvent::Stop(signal)) => {
                tracing::info!(signal, "stopping");
                let stopped = server.stop(shutdown_timeout);
                audited.audit().finish();
                stopped?;
                tracing::info!("stopped");
                return Ok(());
            }
            Err(RecvTimeoutError::Timeout) => {
                start_pages::unmap();
                timeout = FOREVER;
            }
            // The thread that waits for signals never ends.
            Err(RecvTimeoutError::Disconnected) => unreachable!("signals are always watched"),
        }
    }
}

/// Loads the files of TLS again, if there are any.
fn reload_tls(server: &Server) {
    match server.tls().map(ServerTls::reload) {
        None => tracing::info!("SIGHUP: there are no files to load again"),
        Some(Ok(())) => {}
        Some(Err(error)) => tracing::error!(
            %error,
            "the TLS files cannot be loaded again; connections go on with the ones from before"
        ),
    }
}

/// Returns the cost of password hashes. The settings were checked.
fn hash_cost(settings: &Settings) -> HashCost {
    let memory_kib = u32::try_from(settings.password_hash_memory.0 >> 10).unwrap_or(u32::MAX);
    HashCost::new(memory_kib, settings.password_hash_passes).unwrap_or_default()
}

/// Opens the audit log, which records events if it is enabled.
fn audit(
    disk: &Arc<dyn Disk>,
    settings: &Settings,
    keyring: Option<Arc<Keyring>>,
) -> io::Result<Audit> {
    let interval = settings.audit_log_interval.as_secs();
    let config = AuditConfig {
        dir: settings.data_dir.clone(),
        files_max: settings.audit_log_files,
        settings: AuditSettings {
            enabled: settings.audit_log,
            rotate_interval_s: u32::try_from(interval).unwrap_or(u32::MAX),
            rotate_bytes: settings.audit_log_bytes_max.0,
            prune_age_s: 0,
            disabled: BTreeSet::new(),
            disabled_users: BTreeSet::new(),
        },
        keyring,
    };
    Audit::open(Arc::clone(disk), config)
}

fn lock(disk: &dyn Disk, path: &Path) -> Result<kedge_disk::DirLock, ServeError> {
    let unusable = |source| ServeError::DataDir {
        path: path.to_owned(),
        source,
    };
    disk.create_dir_all(path).map_err(unusable)?;
    match permissions::close_to_others(path) {
        Ok(None) => {}
        Ok(Some(mode)) => tracing::warn!(
            data_dir = %path.display(),
            mode = format!("{mode:04o}"),
            "other users of this machine could enter the data directory; its mode is 0700 now"
        ),
        Err(error) => tracing::warn!(
            data_dir = %path.display(),
            %error,
            "cannot make the data directory private: give it to the user who runs the server, with mode 0700"
        ),
    }
    disk.lock_dir(path).map_err(|error| {
        if error.is_locked() {
            ServeError::InUse {
                path: path.to_owned(),
            }
        } else {
            unusable(error)
        }
    })
}

fn server_config(
    effective: &Effective,
    cluster: Option<ClusterSetup>,
    (memcached, tls): (Option<MemcachedConfig>, Option<TlsConfig>),
) -> ServerConfig {
    let settings = &effective.settings;
    ServerConfig {
        listen: settings.listen,
        kv_port: settings.kv_port.port(),
        mgmt_port: settings.mgmt_port.port(),
        tls,
        memcached,
        data_dir: settings.data_dir.clone(),
        master_keys: None,
        threads: settings.threads,
        front_end_reads: settings.front_end_reads,
        front_end_spin: Duration::from_micros(settings.front_end_spin_us.into()),
        pools: PoolsConfig {
            reader: settings.num_reader_threads.0,
            writer: settings.num_writer_threads.0,
            auxio: settings.num_auxio_threads.0,
            nonio: settings.num_nonio_threads.0,
            ..PoolsConfig::default()
        },
        limits: FrontendLimits {
            connections_max: settings.connections_max,
            memcached_connections_max: settings.memcached_connections_max,
            memcached_connections_per_address: settings.memcached_connections_per_address,
            memcached_evict_after: settings.memcached_evict_after,
            tls_handshakes_max: settings.tls_handshakes_max,
            unauthenticated: settings.unauthenticated_timeout,
            idle: settings.idle_timeout,
            slow_sender: settings.slow_sender_timeout,
            send_stall: settings.send_timeout,
            dcp_idle: settings.dcp_idle_timeout,
            dcp_stuck: settings.dcp_stuck_timeout,
            request_memory_max: usize::try_from(settings.request_memory_max.0)
                .unwrap_or(usize::MAX),
            queued_bytes_max: usize::try_from(settings.queued_bytes_max.0).unwrap_or(usize::MAX),
            ..FrontendLimits::default()
        },
        create: (!settings.bucket.is_empty()).then(|| bucket::config(settings)),
        http_allowed_hosts: settings.http_allowed_hosts.0.clone(),
        vbuckets_default: settings.vbuckets,
        login_delays: LoginDelays::up_to(settings.login_delay_max),
        session_timeout: settings.session_timeout,
        recovery: match settings.recover {
            Recover::Strict => RecoveryMode::Strict,
            Recover::Salvage => RecoveryMode::Salvage,
        },
        cluster,
    }
}

/// Sends an event for each bucket as soon as it is loaded and, on a node of a cluster, one when the node has applied
/// the map. Returns the number of events.
fn announce(server: &Server, events: Sender<ServeEvent>) -> usize {
    let buckets = announce_loaded(server.registry(), &events);
    let Some(node) = server.node() else {
        return buckets;
    };
    node.when_ready(move || {
        // The receiver is gone when the server is stopping.
        let _ = events.send(ServeEvent::Clustered);
    });
    buckets + 1
}

/// Sends [`ServeEvent::Loaded`] for each bucket as soon as it is loaded, and returns the number of buckets.
fn announce_loaded(registry: &BucketRegistry, events: &Sender<ServeEvent>) -> usize {
    let buckets = registry.list();
    for bucket in &buckets {
        // A bucket that is dropped before it is loaded must not be kept alive.
        let (told, events) = (Arc::downgrade(bucket), events.clone());
        bucket.when_loaded(move || {
            // The receiver is gone when the server is stopping.
            let _ = events.send(ServeEvent::Loaded(told));
        });
    }
    buckets.len()
}

/// Checks that a bucket loaded successfully. A bucket that was dropped in the meantime is ignored.
fn check_loaded(registry: &BucketRegistry, bucket: &Weak<Bucket>) -> Result<(), ServeError> {
    let Some(bucket) = bucket.upgrade() else {
        return Ok(());
    };
    let current = registry.get(bucket.name());
    if !current.is_some_and(|current| Arc::ptr_eq(&current, &bucket)) {
        return Ok(());
    }
    bucket.wait_loaded().map(|_| ()).map_err(|error| {
        let name = bucket.name();
        ServeError::Load(format!("bucket \"{name}\" cannot be loaded: {error}"))
    })
}

fn ready_line(server: &Server) -> String {
    let shown = |address: Option<SocketAddr>| match address {
        Some(address) => address.to_string(),
        None => "off".to_owned(),
    };
    let mut line = format!(
        "ready kv={} mgmt={} memcached={}",
        shown(server.kv_addr()),
        shown(server.mgmt_addr()),
        shown(server.memcached_addr())
    );
    if server.tls().is_some() {
        let (kv, mgmt) = (server.kv_tls_addr(), server.mgmt_tls_addr());
        line += &format!(" kvs={} mgmts={}", shown(kv), shown(mgmt));
        if let Some(memcached) = server.memcached_tls_addr() {
            line += &format!(" memcacheds={memcached}");
        }
    }
    line + "\n"
}

fn start_logging(level: LogLevel) {
    let level = match level {
        LogLevel::Error => "error",
        LogLevel::Warn => "warn",
        LogLevel::Info => "info",
        LogLevel::Debug => "debug",
        LogLevel::Trace => "trace",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        // A line that cannot be written, for example because standard error is a file on a full disk, is lost. A report
        // on standard error would panic.
        .log_internal_errors(false)
        .init();
}

#[cfg(test)]
mod tests {
    use super::*;
    use kedge_disk::{DiskCall, DiskObserver, ObservedDisk, Operation, SimDisk};
    use std::sync::Mutex;

    /// The call that a disk refuses, and the error number.
    #[derive(Debug, Default)]
    struct Refused(Mutex<Option<(Operation, i32)>>);

    impl DiskObserver for Refused {
        fn around<R>(
            &self,
            asked: &DiskCall<'_>,
            run: impl FnOnce() -> Result<R, DiskError>,
        ) -> Result<R, DiskError> {
            match *self.0.lock().unwrap() {
                Some((operation, error)) if operation == asked.operation => {
                    let path = asked.path.expect("a directory");
                    let error = io::Error::from_raw_os_error(error);
                    Err(DiskError::new(operation, path, error))
                }
                _ => run(),
            }
        }
    }

    /// The row "lock, directories" of `docs/reference/io-errors.md`.
    #[test]
    fn refused_call_for_the_data_directory_fails_the_start_and_names_it() {
        let path = Path::new("/missing/data");
        for operation in [Operation::CreateDir, Operation::Lock] {
            // Full, no descriptors, not allowed, device.
            for number in [28, 122, 24, 23, 13, 1, 30, 5] {
                let what = format!("{operation}, error number {number}");
                let disk = Arc::new(SimDisk::new(1));
                let disk: ObservedDisk<Refused> = ObservedDisk::new(disk, Arc::default());
                let refused = disk.observer();
                *refused.0.lock().unwrap() = Some((operation, number));
                let error = lock(&disk, path).expect_err(&what);
                assert!(matches!(error, ServeError::DataDir { .. }), "{what}");
                let error = error.to_string();
                let start = "cannot use the data directory /missing/data: ";
                assert!(error.starts_with(start), "{what}: {error}");
                *refused.0.lock().unwrap() = None;
                let held = lock(&disk, path).expect(&what);
                let second = lock(&disk, path).expect_err(&what);
                assert!(matches!(second, ServeError::InUse { .. }), "{second}");
                drop(held);
                drop(lock(&disk, path).expect(&what));
            }
        }
    }
}
