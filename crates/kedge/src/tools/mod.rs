//! The common parts of the operator's commands.

pub(crate) mod audit;
pub(crate) mod auto_failover;
pub(crate) mod bucket;
pub(crate) mod cert;
pub(crate) mod cluster;
pub(crate) mod collection;
pub(crate) mod compact;
pub(crate) mod confirm;
pub(crate) mod couchstore;
pub(crate) mod encryption;
pub(crate) mod import;
pub(crate) mod master_key;
pub(crate) mod server_groups;
pub(crate) mod set;
pub(crate) mod stats;
pub(crate) mod table;
pub(crate) mod tasks;
pub(crate) mod timings;
pub(crate) mod user;
pub(crate) mod vbucket;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use clap::Args;
use kedge_auth::Mechanism;
use kedge_tls::rustls::ClientConfig;
use kedge_tls::{ClientTls, TlsError, Trust};
use zeroize::Zeroizing;

use crate::client::{ClientConnection, ClientError, LoginCredentials, ManagementClient};
use crate::password;
use crate::target::{Scheme, ServerUrl, TargetError};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The server of a tool, and the credentials.
#[derive(Args, Clone)]
pub(crate) struct ServerArgs {
    /// couchbase://HOST:PORT/BUCKET; commands that use management also take http://HOST:PORT; with TLS: couchbases://
    /// and https://
    #[arg(short = 'U', long = "url", env = "KEDGE_URL", global = true)]
    #[arg(default_value = "couchbase://127.0.0.1:11210/default")]
    pub(crate) url: String,
    /// User to log in as
    #[arg(
        short,
        long,
        env = "KEDGE_USER",
        default_value = "Administrator",
        global = true
    )]
    pub(crate) user: String,
    /// Password of the user
    #[arg(
        short = 'P',
        long,
        env = "KEDGE_PASSWORD",
        default_value = "password",
        global = true
    )]
    #[arg(hide_env_values = true)]
    password: String,
    /// File whose first line is the password, so that no command line has it; - is standard input. It is stronger than
    /// --password
    #[arg(long, env = "KEDGE_PASSWORD_FILE", value_name = "FILE", global = true)]
    password_file: Option<PathBuf>,
    /// PEM file with the CAs of servers, for couchbases:// and https://
    #[arg(long = "ca", env = "KEDGE_CA", global = true)]
    pub(crate) server_ca: Option<PathBuf>,
    /// SHA-256 of the certificate of the server, instead of its CA
    #[arg(long, env = "KEDGE_TLS_FINGERPRINT", global = true)]
    #[arg(conflicts_with = "server_ca")]
    pub(crate) tls_fingerprint: Option<String>,
    /// PEM file with the own certificate, which logs in instead of a user and a password, for couchbases:// and https://
    #[arg(long = "cert", env = "KEDGE_CERT", value_name = "FILE", global = true)]
    #[arg(requires = "client_key")]
    pub(crate) client_cert: Option<PathBuf>,
    /// PEM file with the private key of --cert
    #[arg(long = "key", env = "KEDGE_KEY", value_name = "FILE", global = true)]
    #[arg(requires = "client_cert")]
    pub(crate) client_key: Option<PathBuf>,
}

impl fmt::Debug for ServerArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerArgs")
            .field("url", &self.url)
            .field("user", &self.user)
            .field("password_file", &self.password_file)
            .finish_non_exhaustive()
    }
}

/// The reason why a tool failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ToolError {
    #[error(transparent)]
    ServerUrl(#[from] TargetError),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("TLS: {0}")]
    Tls(#[from] TlsError),
    #[error("{0}")]
    Usage(String),
}

impl ServerArgs {
    fn target(&self) -> Result<ServerUrl, ToolError> {
        Ok(ServerUrl::parse(&self.url)?)
    }

    /// Returns the TLS of a URL that asks for it.
    pub(crate) fn tls(&self, target: &ServerUrl) -> Result<Option<Arc<ClientConfig>>, ToolError> {
        let own = self.client_cert.clone().zip(self.client_key.clone());
        if !target.tls && own.is_some() {
            return Err(ToolError::Usage(format!(
                "{}: --cert needs TLS: couchbases:// or https://",
                self.url
            )));
        }
        if !target.tls {
            return Ok(None);
        }
        let trust = match (&self.server_ca, &self.tls_fingerprint) {
            (Some(ca), _) => Trust::Ca(vec![ca.clone()]),
            (None, Some(fingerprint)) => Trust::Fingerprint(fingerprint.clone()),
            (None, None) => {
                return Err(ToolError::Usage(format!(
                    "{}: TLS needs --ca FILE, or --tls-fingerprint with the SHA-256 that the server logs at its start",
                    self.url
                )));
            }
        };
        Ok(Some(ClientTls { trust, own }.config()?))
    }

    /// Returns the password.
    pub(crate) fn password(&self) -> Result<Zeroizing<String>, ToolError> {
        let Some(file) = &self.password_file else {
            return Ok(self.password.clone().into());
        };
        password::of_file_or_input(file, &self.user)
            .map_err(|error| ToolError::Usage(format!("{}: {error}", file.display())))
    }

    /// Returns the credentials; `None` if a certificate logs in.
    pub(crate) fn login(&self) -> Result<Option<LoginCredentials>, ToolError> {
        if self.client_cert.is_some() {
            return Ok(None);
        }
        Ok(Some(LoginCredentials {
            user: self.user.clone(),
            password: self.password()?.as_str().to_owned(),
            mechanism: Mechanism::ScramSha512,
        }))
    }

    /// Returns the bucket of the URL.
    pub(crate) fn bucket(&self) -> Result<String, ToolError> {
        Ok(self
            .target()?
            .bucket
            .unwrap_or_else(|| "default".to_owned()))
    }

    /// Returns a logged-in connection to the key-value port, with the URL's bucket.
    pub(crate) fn connect(&self) -> Result<ClientConnection, ToolError> {
        let target = self.target()?;
        if matches!(
            target.scheme,
            Some(Scheme::Http | Scheme::Redis | Scheme::Memcached)
        ) {
            return Err(ToolError::Usage(format!(
                "{}: this command needs couchbase://HOST:PORT/BUCKET",
                self.url
            )));
        }
        let port = target.port_or(Scheme::Couchbase);
        let bucket = self.bucket()?;
        let tls = self.tls(&target)?;
        let opened =
            ClientConnection::open_with(&target.host, port, CONNECT_TIMEOUT, tls.as_ref())?;
        Ok(opened.prepared_by(self.login()?.as_ref(), &bucket)?)
    }

    /// Returns the management of the server: at an http:// URL directly, otherwise at the address in the server's
    /// configuration.
    pub(crate) fn management(&self) -> Result<ManagementClient, ToolError> {
        let target = self.target()?;
        let tls = self.tls(&target)?;
        let port = match target.scheme {
            Some(Scheme::Http) => target.port_or(Scheme::Http),
            Some(Scheme::Redis | Scheme::Memcached) => {
                return Err(ToolError::Usage(format!(
                    "{}: this command needs couchbase://HOST:PORT or http://HOST:PORT",
                    self.url
                )));
            }
            Some(Scheme::Couchbase) | None => self.management_port(&target, tls.as_ref())?,
        };
        let client = match self.login()? {
            Some(login) => ManagementClient::new(&target.host, port, &login.user, &login.password),
            None => ManagementClient::new(&target.host, port, "", "").by_certificate(),
        };
        Ok(match tls {
            Some(config) => client.over_tls(config),
            None => client,
        })
    }

    fn management_port(
        &self,
        target: &ServerUrl,
        tls: Option<&Arc<ClientConfig>>,
    ) -> Result<u16, ToolError> {
        let port = target.port_or(Scheme::Couchbase);
        let mut connection = ClientConnection::open_with(&target.host, port, CONNECT_TIMEOUT, tls)?;
        connection.hello(&[])?;
        if let Some(login) = self.login()? {
            connection.login(&login)?;
        }
        let topology = connection.topology()?;
        let told = match tls {
            Some(_) => topology.mgmt_tls_port,
            None => topology.mgmt_port,
        };
        told.ok_or_else(|| {
            ToolError::Usage("the configuration of the server has no management port".to_owned())
        })
    }
}
