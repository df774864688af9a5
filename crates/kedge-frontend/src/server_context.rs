//! The parts of the server that all front-end threads share.

use std::sync::Arc;

use kedge_cluster::ClusterView;
use kedge_node::coordination::ReplicationLinks;
use kedge_node::password_checks::PasswordChecks;
use kedge_node::pools::TaskPools;
use kedge_node::registry::BucketRegistry;
use kedge_node::users::Users;
use kedge_tls::{FailureReason, ServerTls};
use kedge_types::{Clock, Now, SystemClock};

use crate::client_addresses::ClientAddresses;
use crate::dcp::connections::DcpConnections;
use crate::delayed_flush::DelayedFlush;
use crate::inbox::FrontEnds;
use crate::limits::FrontendLimits;
use crate::memcached_connections::MemcachedConnections;
use crate::memcached_rules::MemcachedRules;
use crate::metrics::Metrics;
use crate::open_handshakes::OpenHandshakes;
use crate::request_memory::RequestMemory;
use crate::stat_timings::StatTimings;
use crate::text_exec::recache::RecacheStates;
use crate::unauthenticated::UnauthenticatedConnections;

/// The parts of the server that all front-end threads share.
pub(crate) struct ServerContext {
    pub(crate) registry: Arc<BucketRegistry>,
    pub(crate) users: Arc<Users>,
    pub(crate) limits: FrontendLimits,
    /// TLS of connections to the TLS ports, if there are any.
    pub(crate) tls: Option<ServerTls>,
    pub(crate) request_memory: Arc<RequestMemory>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) pools: Arc<TaskPools>,
    pub(crate) front_ends: Arc<FrontEnds>,
    pub(crate) dcp: Arc<DcpConnections>,
    pub(crate) replication: Arc<dyn ReplicationLinks>,
    pub(crate) clock: Arc<SystemClock>,
    pub(crate) memcached: MemcachedContext,
    pub(crate) delayed_flush: DelayedFlush,
    pub(crate) checks: Arc<PasswordChecks>,
    /// The recache state of documents, for meta commands.
    pub(crate) recache_states: RecacheStates,
    pub(crate) client_addresses: ClientAddresses,
    /// Connections without a login.
    pub(crate) unauthenticated: Arc<UnauthenticatedConnections>,
    /// TLS handshakes that are not complete.
    pub(crate) handshakes: Arc<OpenHandshakes>,
    pub(crate) stat_timings: StatTimings,
    /// Returns the allocator's unused memory to the system: that of the calling thread and that of none.
    pub(crate) return_memory: fn(),
}

/// The service of the memcached port.
#[derive(Default)]
pub(crate) struct MemcachedContext {
    /// The bucket that its clients see.
    pub(crate) bucket: Option<String>,
    /// The permissions and limits of its clients.
    pub(crate) rules: MemcachedRules,
    pub(crate) connections: Arc<MemcachedConnections>,
}

impl ServerContext {
    pub(crate) fn cluster(&self) -> &ClusterView {
        self.registry.cluster()
    }

    pub(crate) fn now(&self) -> Now {
        self.clock.now()
    }

    /// Calls `each` with the counters of handshakes: those of the front end, and, if TLS is served, of all ports.
    pub(crate) fn tls_stats(&self, each: &mut dyn FnMut(&str, &str)) {
        self.handshakes.stats(each);
        let Some(tls) = &self.tls else {
            return;
        };
        let metrics = tls.metrics();
        each("tls_handshakes_full", &metrics.full().to_string());
        each("tls_handshakes_resumed", &metrics.resumed().to_string());
        for reason in FailureReason::ALL {
            let name = format!("tls_handshakes_failed_{}", reason.label());
            each(&name, &metrics.failures(reason).to_string());
        }
    }
}
