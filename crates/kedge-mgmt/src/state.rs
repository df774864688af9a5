//! The state that all requests share, and the limits of connections.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kedge_cluster::{ClusterView, Revision};
use kedge_node::coordination::ClusterControl;
use kedge_node::password_checks::PasswordChecks;
use kedge_node::pools::TaskPools;
use kedge_node::users::Users;
use kedge_tls::ServerTls;
use kedge_types::limits::MGMT_UNAUTHENTICATED_MS_MAX;
use tokio::sync::{Semaphore, watch};

use crate::backend::Buckets;
use crate::hosts::AllowedHosts;
use crate::proofs::ProofChecks;
use crate::ready::Readiness;
use crate::sessions::Sessions;
use crate::slots::ConnectionSlots;

/// Largest body of a request, in bytes.
pub const BODY_BYTES_MAX: usize = 1 << 20;
/// Largest map in a request of another node, in bytes: many buckets with many vBuckets each.
pub(crate) const MAP_BYTES_MAX: usize = 64 << 20;
/// Largest header of a request, in bytes.
pub const HEADER_BYTES_MAX: usize = 32 << 10;
/// Timeout of the next request's header, which also ends idle connections.
pub const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of a request's body.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of requests in flight when the server stops.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// The time within which a connection must present a right password.
pub const UNAUTHENTICATED_TIMEOUT: Duration = Duration::from_millis(MGMT_UNAUTHENTICATED_MS_MAX);
/// The number of requests of people that may block at a time; those of other nodes have threads left.
pub(crate) const PEOPLE_MAX: usize = 12;

/// Calls its argument with the name and value of each statistic of the server as a whole.
pub type ServerStats = Box<dyn Fn(&mut dyn FnMut(&str, &str)) + Send + Sync>;

/// The parts of the node that management shows and changes.
pub struct HttpParts {
    /// The buckets.
    pub buckets: Arc<dyn Buckets>,
    /// The cluster map.
    pub cluster: Arc<ClusterView>,
    /// The cluster control, on a node of a cluster.
    pub node: Option<Arc<dyn ClusterControl>>,
    /// The users.
    pub users: Arc<Users>,
    /// Statistics of the server as a whole.
    pub stats: ServerStats,
    /// The task pools, to show and to change them.
    pub pools: Arc<TaskPools>,
    /// The data directory, to show its free space.
    pub data_dir: PathBuf,
    /// The allowed names of the server.
    pub hosts: AllowedHosts,
    /// TLS, if it is served.
    pub tls: Option<ServerTls>,
    /// The check of requests of other nodes, on a node of a cluster.
    pub proofs: Option<ProofChecks>,
    /// vBuckets of a bucket that is created without `numVBuckets`.
    pub vbuckets_default: u16,
    /// The time without a request after which a session of the console ends.
    pub session_timeout: Duration,
}

/// [`HttpParts`] with the state of the running server.
pub struct HttpState {
    pub(crate) parts: HttpParts,
    pub(crate) started: Instant,
    /// The newest revision; streams send a document whenever it changes.
    pub(crate) revisions: watch::Sender<Revision>,
    /// Becomes true when the server stops; streams end.
    pub(crate) stopping: watch::Sender<bool>,
    /// Verifies passwords.
    pub(crate) checks: Arc<PasswordChecks>,
    /// The semaphore of blocking requests of people.
    pub(crate) people: Arc<Semaphore>,
    /// The connection slots.
    pub(crate) slots: Arc<ConnectionSlots>,
    /// The progress of the start, for probes.
    pub(crate) readiness: Readiness,
    /// The sessions of the console.
    pub(crate) sessions: Sessions,
}

impl std::fmt::Debug for HttpState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpState").finish_non_exhaustive()
    }
}

impl HttpState {
    /// Creates the state of one server. It subscribes to changes of the cluster.
    #[must_use]
    pub fn new(parts: HttpParts, checks: Arc<PasswordChecks>) -> Self {
        let sessions = Sessions::new(parts.session_timeout);
        let (revisions, _) = watch::channel(parts.cluster.revision());
        let newest = revisions.clone();
        parts.cluster.subscribe(move |change| {
            // Changes may be reported out of order.
            newest.send_if_modified(|known| {
                let newer = change.revision > *known;
                *known = change.revision.max(*known);
                newer
            });
        });
        Self {
            parts,
            started: Instant::now(),
            revisions,
            stopping: watch::Sender::new(false),
            checks,
            people: Arc::new(Semaphore::new(PEOPLE_MAX)),
            slots: Arc::default(),
            readiness: Readiness::default(),
            sessions,
        }
    }

    /// Calls `each` with the name and value of each statistic of the server as a whole.
    pub(crate) fn server_stats(&self, each: &mut dyn FnMut(&str, &str)) {
        (self.parts.stats)(each);
        self.slots.stats(each);
        let sessions = self.sessions.count(Instant::now());
        each("mgmt_sessions", &sessions.to_string());
    }

    /// Waits until the server stops.
    pub(crate) fn stopped(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut stopping = self.stopping.subscribe();
        async move {
            // The sender is dropped with the server: that is a stop too.
            let _ = stopping.wait_for(|stopping| *stopping).await;
        }
    }
}
