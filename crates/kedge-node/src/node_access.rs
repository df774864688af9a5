//! The way in which this node reaches the other nodes of its cluster.
//!
//! A request to the management of another node proves the cluster's secret ([`kedge_auth::NodeProofs`]). Below the level
//! of [`Feature::NodeProofs`] it sends the secret, as releases without proofs do.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kedge_cluster::{ClusterMap, Feature, TlsPorts};
use kedge_tls::ServerTls;
use kedge_tls::rustls::ClientConfig;
use zeroize::Zeroizing;

use crate::http_client::HttpClient;

/// The secret of the cluster, and TLS between its nodes.
pub struct NodeAccess {
    secret: Zeroizing<String>,
    /// TLS, if this node uses it to reach others.
    tls: Option<ServerTls>,
    /// True if all nodes check proofs.
    proves: AtomicBool,
}

impl fmt::Debug for NodeAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeAccess")
            .field("tls", &self.tls)
            .field("proves", &self.proves())
            .finish_non_exhaustive()
    }
}

impl NodeAccess {
    /// Creates the access with the secret. `tls` is that of this node, if nodes use it among themselves.
    #[must_use]
    pub fn new(secret: &str, tls: Option<ServerTls>) -> Self {
        Self {
            secret: secret.to_owned().into(),
            tls,
            proves: AtomicBool::new(false),
        }
    }

    /// Follows the level of a map.
    pub fn follow_level(&self, map: &ClusterMap) {
        let has_proofs = map.has(Feature::NodeProofs);
        // The level never goes down.
        self.proves.fetch_or(has_proofs, Ordering::SeqCst);
    }

    /// Returns whether requests prove the secret. Otherwise they send it.
    #[must_use]
    pub fn proves(&self) -> bool {
        self.proves.load(Ordering::SeqCst)
    }

    /// Returns the secret.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.secret
    }

    /// Returns TLS, if this node uses it to reach others.
    #[must_use]
    pub fn tls(&self) -> Option<&ServerTls> {
        self.tls.as_ref()
    }

    /// Returns the encryption of connections to other nodes: `off`, `tls` or `mutual_tls`.
    #[must_use]
    pub fn encryption(&self) -> &'static str {
        self.tls.as_ref().map_or("off", ServerTls::node_encryption)
    }

    /// Returns the configuration of the next connection to another node; `None` without TLS.
    pub(crate) fn tls_config(&self) -> Option<Arc<ClientConfig>> {
        self.tls.as_ref()?.node_config()
    }

    /// Returns the port of the binary protocol at which another node is reached; 0 if it has none.
    #[must_use]
    pub fn kv_port(&self, plain: u16, tls: TlsPorts) -> u16 {
        if self.tls.is_some() { tls.kv } else { plain }
    }

    /// Returns the port of management at which another node is reached; 0 if it has none.
    #[must_use]
    pub fn mgmt_port(&self, plain: u16, tls: TlsPorts) -> u16 {
        if self.tls.is_some() { tls.mgmt } else { plain }
    }

    /// Returns a client of the management of the node with that name.
    #[must_use]
    pub fn client(self: &Arc<Self>, node: &str, host: &str, port: u16) -> HttpClient {
        HttpClient::of_node(self.clone(), node, host, port)
    }
}
