//! TLS of clients: the commands of Kedge.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

use crate::certificate::fingerprint_of;
use crate::error::TlsError;
use crate::files;
use crate::key::{self, Passphrase};
use crate::provider::{MinVersion, provider};
use crate::service::system_verifier;

/// The reason for which a client trusts a server.
#[derive(Clone, Debug)]
pub enum Trust {
    /// Its certificate is signed by a CA of these files, and for its name.
    Ca(Vec<PathBuf>),
    /// Its certificate is signed by an authority of the operating system, and for its name.
    System,
    /// Its certificate has this SHA-256, whatever its name and validity.
    Fingerprint(String),
}

/// The settings of a client.
#[derive(Clone, Debug)]
pub struct ClientTls {
    /// The reason for which it trusts a server.
    pub trust: Trust,
    /// Its own certificate chain and private key.
    pub own: Option<(PathBuf, PathBuf)>,
}

impl ClientTls {
    /// Loads the files.
    ///
    /// # Errors
    /// `File`, `Pem`, `Missing`, `Certificate`, `Key`, `BadFingerprint`, `Library`.
    pub fn config(&self) -> Result<Arc<ClientConfig>, TlsError> {
        self.config_with(&Passphrase::None)
    }

    /// Loads the files. The private key is encrypted with the passphrase.
    ///
    /// # Errors
    /// `File`, `Pem`, `Missing`, `Certificate`, `Key`, `Authorities`, `BadFingerprint`, `Library`.
    pub fn config_with(&self, passphrase: &Passphrase) -> Result<Arc<ClientConfig>, TlsError> {
        let provider = provider();
        let verifier: Arc<dyn ServerCertVerifier> = match &self.trust {
            Trust::Ca(paths) => {
                let roots = Arc::new(files::roots(paths)?);
                let built =
                    WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build();
                built.map_err(|error| TlsError::ClientAuth(error.to_string()))?
            }
            Trust::System => system_verifier(&provider)?,
            Trust::Fingerprint(text) => Arc::new(Pinned {
                fingerprint: normal(text)?,
                provider: provider.clone(),
            }),
        };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(MinVersion::Tls12.versions())?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut config = match &self.own {
            Some((chain, private)) => {
                let private = key::read(private, passphrase)?;
                builder.with_client_auth_cert(files::certificates(chain)?, private)?
            }
            None => builder.with_no_client_auth(),
        };
        config.resumption = Resumption::in_memory_sessions(64);
        Ok(Arc::new(config))
    }
}

/// Returns a fingerprint in the form of [`fingerprint_of`].
fn normal(text: &str) -> Result<String, TlsError> {
    let digits: String = text.chars().filter(|c| *c != ':').collect();
    let is_hex = digits.len() == 64 && digits.chars().all(|c| c.is_ascii_hexdigit());
    if !is_hex {
        return Err(TlsError::BadFingerprint);
    }
    let digits = digits.to_ascii_uppercase();
    let pairs: Vec<&str> = (0..32).map(|at| &digits[2 * at..2 * at + 2]).collect();
    Ok(pairs.join(":"))
}

/// Accepts the one certificate with that fingerprint. The handshake proves that the server has its key.
#[derive(Debug)]
struct Pinned {
    fingerprint: String,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match fingerprint_of(end_entity) == self.fingerprint {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_read_with_and_without_colons() {
        let expected = vec!["AB"; 32].join(":");
        assert_eq!(normal(&"ab".repeat(32)).unwrap(), expected);
        assert_eq!(normal(&expected).unwrap(), expected);
        for wrong in [
            "",
            "ab",
            &"zz".repeat(32),
            &"ab".repeat(33),
            &"é".repeat(32),
        ] {
            assert!(
                matches!(normal(wrong), Err(TlsError::BadFingerprint)),
                "{wrong}"
            );
        }
    }
}
