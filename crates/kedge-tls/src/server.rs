//! The configuration of a server's ports, which can be reloaded.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use arc_swap::ArcSwap;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::ServerSessionMemoryCache;
use rustls::server::danger::ClientCertVerifier;
use rustls::{ClientConfig, CommonState, InconsistentKeys, ServerConfig};
use serde::Serialize;

use crate::certificate::{CertificateInfo, pem};
use crate::client_auth::{ClientAuth, ClientCerts};
use crate::client_demand::ClientDemand;
use crate::error::{NameError, TlsError};
use crate::key::Passphrase;
use crate::metrics::TlsMetrics;
use crate::node_auth::{self, NodeAuth, NodesAndClients, OwnIdentity};
use crate::provider::{self, MinVersion, provider_with};
use crate::{auto, files, key, names};

/// Sessions that a server remembers for clients of TLS 1.2 without tickets.
const SESSIONS_MAX: usize = 4096;

/// The settings of TLS.
#[derive(Clone, Debug, Default)]
pub struct TlsOptions {
    /// The PEM file with the certificate and those of intermediate CAs.
    pub certificate: PathBuf,
    /// The PEM file with the private key.
    pub key: PathBuf,
    /// The passphrase of the private key.
    pub passphrase: Passphrase,
    /// The lowest version that a client may use.
    pub min_version: MinVersion,
    /// The names of cipher suites; empty for all.
    pub cipher_suites: Vec<String>,
    /// True if the order of the server's cipher suites counts, false for the client's.
    pub honor_cipher_order: bool,
    /// Client certificates.
    pub client_auth: ClientAuth,
    /// TLS between the nodes of the cluster, if they use it.
    pub nodes: Option<NodeAuth>,
    /// The file in which the demand for client certificates is kept that management sets.
    pub demand_file: Option<PathBuf>,
    /// The directory and the names of a certificate of the server's own CA, which the server renews; `certificate` and
    /// `key` are its files.
    pub auto: Option<(PathBuf, Vec<String>)>,
}

/// TLS of a server. A clone is cheap and shares everything.
#[derive(Clone)]
pub struct ServerTls(Arc<Shared>);

struct Shared {
    options: TlsOptions,
    current: ArcSwap<Current>,
    /// One reload at a time, so that the last one wins.
    reloading: Mutex<ReloadState>,
    metrics: TlsMetrics,
}

/// The input of a reload beside the settings.
struct ReloadState {
    /// The files as the last one saw them.
    seen: Vec<FileState>,
    /// The demand for client certificates.
    auth: ClientAuth,
}

struct Current {
    config: Arc<ServerConfig>,
    certificate: CertificateInfo,
    /// The certificate of the server itself.
    leaf: CertificateDer<'static>,
    /// The last certificate that clients receive: that of the CA, if the file has it.
    last: CertificateDer<'static>,
    auth: ClientAuth,
    nodes: Option<CurrentNodes>,
}

/// TLS between nodes.
struct CurrentNodes {
    /// The configuration of this node as a client of others.
    client: Arc<ClientConfig>,
    /// The verifier of the certificates of others.
    verifier: Arc<dyn ClientCertVerifier>,
}

impl PartialEq for ServerTls {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ServerTls {}

/// The state of a file by which a change is noticed.
type FileState = (PathBuf, Option<(SystemTime, u64)>);

/// The state of TLS, for management.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TlsStatus {
    /// The subject of the certificate.
    pub subject: String,
    /// The subject of its CA.
    pub issuer: String,
    /// The begin of its validity, in seconds since 1970.
    pub not_before: i64,
    /// The end of its validity, in seconds since 1970.
    pub not_after: i64,
    /// The SHA-256 of the certificate.
    pub fingerprint: String,
    /// The names that it is for.
    pub names: Vec<String>,
    /// `disable`, `enable` or `mandatory`.
    pub client_certificates: &'static str,
}

impl std::fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerTls")
            .field("options", &self.0.options)
            .finish_non_exhaustive()
    }
}

impl ServerTls {
    /// Loads all files.
    ///
    /// # Errors
    /// All but those of issuing and of clients.
    pub fn open(options: TlsOptions, now: SystemTime) -> Result<Self, TlsError> {
        let seen = states(&options);
        let demand = options.demand_file.as_deref().map(ClientDemand::of_file);
        let auth = match demand.transpose()?.flatten() {
            Some(demand) => {
                tracing::info!(
                    ?demand,
                    "client certificates are as management has set them"
                );
                demand.applied_to(&options.client_auth)
            }
            None => options.client_auth.clone(),
        };
        let current = load(&options, &auth, now)?;
        Ok(Self(Arc::new(Shared {
            options,
            current: ArcSwap::from_pointee(current),
            reloading: Mutex::new(ReloadState { seen, auth }),
            metrics: TlsMetrics::default(),
        })))
    }

    /// The configuration for a new connection. A reload replaces it; open connections keep theirs.
    #[must_use]
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0.current.load().config)
    }

    /// The configuration for a new connection to another node of the cluster; `None` if nodes do not use TLS.
    #[must_use]
    pub fn node_config(&self) -> Option<Arc<ClientConfig>> {
        let current = self.0.current.load();
        current.nodes.as_ref().map(|nodes| nodes.client.clone())
    }

    /// Returns whether a connection counts as one of a node only if it has shown a certificate of a node.
    #[must_use]
    pub fn requires_node_certificates(&self) -> bool {
        let nodes = self.0.options.nodes.as_ref();
        nodes.is_some_and(|nodes| nodes.is_mutual)
    }

    /// Returns the encryption between nodes: `off`, `tls` or `mutual_tls`.
    #[must_use]
    pub fn node_encryption(&self) -> &'static str {
        match &self.0.options.nodes {
            None => "off",
            Some(nodes) if nodes.is_mutual => "mutual_tls",
            Some(_) => "tls",
        }
    }

    /// Returns whether the peer has shown a certificate of a node of the cluster, after the handshake.
    #[must_use]
    pub fn is_node(&self, session: &CommonState) -> bool {
        let current = self.0.current.load();
        let verifier = current.nodes.as_ref().map(|nodes| &*nodes.verifier);
        let chain = session.peer_certificates();
        verifier
            .zip(chain)
            .is_some_and(|(verifier, chain)| node_auth::is_node(verifier, chain))
    }

    /// The demand for a certificate.
    #[must_use]
    pub fn client_certs(&self) -> ClientCerts {
        self.0.current.load().auth.mode
    }

    /// The demand for client certificates, with the rules of user names.
    #[must_use]
    pub fn demand(&self) -> ClientDemand {
        ClientDemand::of(&self.0.current.load().auth)
    }

    /// Demands certificates of new connections in another way, also after a restart. Returns false if nothing has changed.
    ///
    /// # Errors
    /// As those of [`ServerTls::open`]; the demand from before stays.
    pub fn set_demand(&self, demand: &ClientDemand, now: SystemTime) -> Result<bool, TlsError> {
        let mut state = self.lock();
        if *demand == ClientDemand::of(&state.auth) {
            return Ok(false);
        }
        let auth = demand.applied_to(&state.auth);
        let loaded = load(&self.0.options, &auth, now)?;
        if let Some(path) = &self.0.options.demand_file {
            demand.write(path)?;
        }
        state.auth = auth;
        self.0.current.store(Arc::new(loaded));
        tracing::info!(?demand, "another demand for client certificates");
        Ok(true)
    }

    fn lock(&self) -> MutexGuard<'_, ReloadState> {
        let locked = self.0.reloading.lock();
        locked.unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the user name of the client's certificate, after the handshake. `None` if it has none, or none was asked
    /// for, or it is one of a node.
    ///
    /// # Errors
    /// The certificate is valid, but names no user.
    pub fn user_of(&self, session: &CommonState) -> Result<Option<String>, NameError> {
        let current = self.0.current.load();
        let auth = &current.auth;
        if auth.mode == ClientCerts::Off {
            return Ok(None);
        }
        let Some([leaf, ..]) = session.peer_certificates() else {
            return Ok(None);
        };
        if self.is_node(session) {
            return Ok(None);
        }
        names::user_name(leaf, &auth.names).map(Some)
    }

    /// Reads all files again. The old configuration stays if one cannot be used.
    ///
    /// # Errors
    /// As those of [`ServerTls::open`].
    pub fn reload(&self) -> Result<(), TlsError> {
        self.reload_at(SystemTime::now())
    }

    /// Reads all files again, at that time.
    ///
    /// # Errors
    /// As those of [`ServerTls::open`].
    pub fn reload_at(&self, now: SystemTime) -> Result<(), TlsError> {
        let mut state = self.lock();
        // Before the files are read: one that changes meanwhile has changed again.
        state.seen = states(&self.0.options);
        self.replace(&state.auth, now)
    }

    /// Reads all files again if one of them has changed. Returns whether the configuration was replaced.
    ///
    /// # Errors
    /// As those of [`ServerTls::open`]. The same content is not tried again.
    pub fn reload_if_changed(&self, now: SystemTime) -> Result<bool, TlsError> {
        let mut state = self.lock();
        if let Some((dir, names)) = &self.0.options.auto {
            auto::ensure(dir, names, now)?;
        }
        let seen = states(&self.0.options);
        if state.seen == seen {
            return Ok(false);
        }
        state.seen = seen;
        self.replace(&state.auth, now).map(|()| true)
    }

    /// Makes a new CA and a certificate, and uses them for new connections. Returns false if the files are not those of
    /// `--tls auto`, and nothing has changed. Clients have to trust the new CA.
    ///
    /// # Errors
    /// As those of [`ServerTls::open`], `Issue`.
    pub fn regenerate(&self, now: SystemTime) -> Result<bool, TlsError> {
        let Some((dir, names)) = &self.0.options.auto else {
            return Ok(false);
        };
        let mut state = self.lock();
        auto::renew(dir, names, now)?;
        state.seen = states(&self.0.options);
        self.replace(&state.auth, now).map(|()| true)
    }

    fn replace(&self, auth: &ClientAuth, now: SystemTime) -> Result<(), TlsError> {
        let loaded = load(&self.0.options, auth, now);
        self.0.metrics.reload(loaded.is_ok());
        self.0.current.store(Arc::new(loaded?));
        let status = self.status();
        tracing::info!(
            subject = status.subject,
            fingerprint = status.fingerprint,
            "the TLS certificates are loaded again"
        );
        Ok(())
    }

    /// The SHA-256 of the certificate, in hexadecimal with colons.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        self.0.current.load().certificate.fingerprint.clone()
    }

    /// The last certificate that clients receive, in PEM: that of the CA, if the file of the certificate has it.
    #[must_use]
    pub fn authority_pem(&self) -> String {
        pem(&self.0.current.load().last)
    }

    /// The certificate in PEM, without those of CAs.
    #[must_use]
    pub fn certificate_pem(&self) -> String {
        pem(&self.0.current.load().leaf)
    }

    /// Seconds until the certificate expires; negative afterwards.
    #[must_use]
    pub fn expires_in(&self, now: SystemTime) -> i64 {
        self.0.current.load().certificate.expires_in(now)
    }

    /// The counters of handshakes.
    #[must_use]
    pub fn metrics(&self) -> &TlsMetrics {
        &self.0.metrics
    }

    /// The settings.
    #[must_use]
    pub fn options(&self) -> &TlsOptions {
        &self.0.options
    }

    /// The state for management.
    #[must_use]
    pub fn status(&self) -> TlsStatus {
        let certificate = self.0.current.load().certificate.clone();
        TlsStatus {
            subject: certificate.subject,
            issuer: certificate.issuer,
            not_before: certificate.not_before,
            not_after: certificate.not_after,
            fingerprint: certificate.fingerprint,
            names: certificate.names,
            client_certificates: match self.client_certs() {
                ClientCerts::Off => "disable",
                ClientCerts::Optional => "enable",
                ClientCerts::Mandatory => "mandatory",
            },
        }
    }
}

/// The files of the settings.
fn paths(options: &TlsOptions) -> impl Iterator<Item = &Path> {
    let auth = &options.client_auth;
    let own = [options.certificate.as_path(), options.key.as_path()];
    let of_nodes = options.nodes.iter().flat_map(|nodes| &nodes.ca);
    let lists = auth.ca.iter().chain(&auth.crl).chain(of_nodes);
    let lists = lists.map(PathBuf::as_path);
    own.into_iter()
        .chain(options.passphrase.file())
        .chain(lists)
}

fn states(options: &TlsOptions) -> Vec<FileState> {
    let state = |path: &Path| {
        let metadata = std::fs::metadata(path).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    };
    paths(options)
        .map(|path| (path.to_owned(), state(path)))
        .collect()
}

fn load(options: &TlsOptions, auth: &ClientAuth, now: SystemTime) -> Result<Current, TlsError> {
    let chain = files::certificates(&options.certificate)?;
    let certificate = CertificateInfo::of_der(&options.certificate, &chain[0])?;
    certificate.check_valid(&options.certificate, now)?;
    let (leaf, last) = (chain[0].clone(), chain[chain.len() - 1].clone());
    let private = key::read(&options.key, &options.passphrase)?;
    let provider = provider_with(&options.cipher_suites, options.min_version)?;
    let versions = options.min_version.versions();
    let nodes = load_nodes(options, &chain, &private, &provider)?;
    let verifier = match (&nodes, auth.verifier()?) {
        (Some(nodes), clients) if clients.is_some() || nodes.are_asked => {
            let both = NodesAndClients::new(nodes.current.verifier.clone(), clients);
            Some(Arc::new(both) as Arc<dyn ClientCertVerifier>)
        }
        (_, clients) => clients,
    };
    let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(versions)?;
    let builder = match verifier {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let built = builder.with_single_cert(chain, private);
    let mut config = built.map_err(|error| refused(options, error))?;
    config.ignore_client_order = options.honor_cipher_order;
    // Their keys are new with each load: a session is not resumed by clients that the new files would refuse.
    config.ticketer = provider::ticketer()?;
    config.session_storage = ServerSessionMemoryCache::new(SESSIONS_MAX);
    Ok(Current {
        config: Arc::new(config),
        certificate,
        leaf,
        last,
        auth: auth.clone(),
        nodes: nodes.map(|nodes| nodes.current),
    })
}

/// TLS between nodes, as it was loaded.
struct LoadedNodes {
    current: CurrentNodes,
    /// True if certificates of nodes are asked for, even if those of clients are not.
    are_asked: bool,
}

fn load_nodes(
    options: &TlsOptions,
    chain: &[CertificateDer<'static>],
    private: &PrivateKeyDer<'static>,
    provider: &Arc<CryptoProvider>,
) -> Result<Option<LoadedNodes>, TlsError> {
    let Some(nodes) = &options.nodes else {
        return Ok(None);
    };
    let roots = nodes.roots(&options.certificate, chain)?;
    let own = OwnIdentity {
        path: &options.certificate,
        chain: chain.to_vec(),
        key: private.clone_key(),
        provider: provider.clone(),
        versions: options.min_version.versions(),
    };
    let client = nodes.client_config(roots.clone(), own);
    let client = client.map_err(|error| match error {
        TlsError::Library(error) => refused(options, error),
        error => error,
    })?;
    Ok(Some(LoadedNodes {
        current: CurrentNodes {
            client: Arc::new(client),
            verifier: node_auth::verifier(roots, &options.client_auth.crl)?,
        },
        are_asked: nodes.is_mutual,
    }))
}

/// Names the file for which the library refuses the certificate or its key.
fn refused(options: &TlsOptions, error: rustls::Error) -> TlsError {
    match error {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => TlsError::KeyMismatch {
            key: options.key.clone(),
            certificate: options.certificate.clone(),
        },
        rustls::Error::General(why) => TlsError::Key {
            path: options.key.clone(),
            why,
        },
        rustls::Error::InvalidCertificate(why) => TlsError::Certificate {
            path: options.certificate.clone(),
            why: why.to_string(),
        },
        error => TlsError::Library(error),
    }
}

#[cfg(test)]
mod node_tests;
#[cfg(test)]
mod tests;
