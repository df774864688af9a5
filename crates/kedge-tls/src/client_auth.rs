//! Client certificates: whether they are asked for, and who signs them.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use serde::{Deserialize, Serialize};

use crate::error::TlsError;
use crate::files;
use crate::names::NameRules;
use crate::provider::provider;

/// The demand for certificates of clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClientCerts {
    /// Clients are not asked.
    #[default]
    #[serde(rename = "disable")]
    Off,
    /// Clients may have one; those without log in with a password.
    #[serde(rename = "enable")]
    Optional,
    /// Clients without a valid certificate are refused.
    #[serde(rename = "mandatory")]
    Mandatory,
}

/// The settings of client certificates.
#[derive(Clone, Debug, Default)]
pub struct ClientAuth {
    /// The demand for a certificate.
    pub mode: ClientCerts,
    /// PEM files with the CAs that sign client certificates.
    pub ca: Vec<PathBuf>,
    /// PEM files with revocation lists. If there is one, each client certificate needs a current list of its CA.
    pub crl: Vec<PathBuf>,
    /// The rules by which a certificate names a user.
    pub names: NameRules,
}

impl ClientAuth {
    /// Loads the CAs and lists. `None`: clients are not asked for a certificate.
    pub(crate) fn verifier(&self) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsError> {
        if self.mode == ClientCerts::Off {
            return Ok(None);
        }
        if self.ca.is_empty() {
            return Err(TlsError::NoClientCa);
        }
        let roots = Arc::new(files::roots(&self.ca)?);
        let mut builder = WebPkiClientVerifier::builder_with_provider(roots, provider());
        if !self.crl.is_empty() {
            let lists = files::revocation_lists(&self.crl)?;
            builder = builder
                .with_crls(lists)
                .only_check_end_entity_revocation()
                .enforce_revocation_expiration();
        }
        if self.mode == ClientCerts::Optional {
            builder = builder.allow_unauthenticated();
        }
        let built = builder.build();
        let verifier = built.map_err(|error| TlsError::ClientAuth(error.to_string()))?;
        Ok(Some(verifier))
    }
}
