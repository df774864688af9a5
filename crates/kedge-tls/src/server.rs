//! The configuration of a server's ports, which can be reloaded.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use arc_swap::ArcSwap;
use rustls::pki_types::CertificateDer;
use rustls::server::ServerSessionMemoryCache;
use rustls::{CommonState, InconsistentKeys, ServerConfig};
use serde::Serialize;

use crate::certificate::{CertificateInfo, pem};
use crate::client_auth::{ClientAuth, ClientCerts};
use crate::client_demand::ClientDemand;
use crate::error::{NameError, TlsError};
use crate::key::Passphrase;
use crate::metrics::TlsMetrics;
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
    /// The last certificate that clients receive: that of the CA, if the file has it.
    last: CertificateDer<'static>,
    auth: ClientAuth,
}

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
    /// for.
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
    let lists = auth.ca.iter().chain(&auth.crl).map(PathBuf::as_path);
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
    let last = chain[chain.len() - 1].clone();
    let private = key::read(&options.key, &options.passphrase)?;
    let provider = provider_with(&options.cipher_suites, options.min_version)?;
    let builder = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(options.min_version.versions())?;
    let builder = match auth.verifier()? {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let built = builder.with_single_cert(chain, private);
    let mut config = built.map_err(|error| match error {
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
    })?;
    config.ignore_client_order = options.honor_cipher_order;
    // Their keys are new with each load: a session is not resumed by clients that the new files would refuse.
    config.ticketer = provider::ticketer()?;
    config.session_storage = ServerSessionMemoryCache::new(SESSIONS_MAX);
    Ok(Current {
        config: Arc::new(config),
        certificate,
        last,
        auth: auth.clone(),
    })
}

#[cfg(test)]
mod tests;
