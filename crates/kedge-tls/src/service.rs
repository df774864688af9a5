//! TLS to services outside of the cluster, such as a directory of users.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use crate::error::TlsError;
use crate::provider::{MinVersion, provider};

/// The reason for which a service is trusted.
#[derive(Clone, Copy, Debug)]
pub enum ServiceTrust<'t> {
    /// Its certificate is signed by an authority of the operating system, and for its name.
    System,
    /// Its certificate is signed by an authority of this PEM text, and for its name.
    Pem(&'t str),
    /// None: whoever answers is trusted.
    Unchecked,
}

/// Returns the configuration of connections to a service.
///
/// # Errors
/// `Authorities` if the text has no certificate, or the system none; `Library`.
pub fn service_config(trust: &ServiceTrust<'_>) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = provider();
    let verifier: Arc<dyn ServerCertVerifier> = match trust {
        ServiceTrust::System => system_verifier(&provider)?,
        ServiceTrust::Pem(text) => checked(roots_of(text)?, &provider)?,
        ServiceTrust::Unchecked => Arc::new(Unchecked(provider.clone())),
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(MinVersion::Tls12.versions())?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Returns the check of certificates by the authorities of the operating system.
pub(crate) fn system_verifier(
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, TlsError> {
    checked(system_roots()?, provider)
}

fn checked(
    roots: RootCertStore,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, TlsError> {
    let roots = Arc::new(roots);
    let built = WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build();
    built
        .map(|verifier| verifier as Arc<dyn ServerCertVerifier>)
        .map_err(|error| TlsError::Authorities(error.to_string()))
}

fn roots_of(text: &str) -> Result<RootCertStore, TlsError> {
    let failed = |why: &dyn std::fmt::Display| TlsError::Authorities(why.to_string());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(text.as_bytes()) {
        let certificate = certificate.map_err(|error| failed(&error))?;
        roots.add(certificate).map_err(|error| failed(&error))?;
    }
    match roots.is_empty() {
        true => Err(failed(&"the text has no certificate")),
        false => Ok(roots),
    }
}

fn system_roots() -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    // Systems have authorities that the library cannot parse; the others count.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    match roots.is_empty() {
        true => Err(TlsError::Authorities("the system has none".to_owned())),
        false => Ok(roots),
    }
}

/// Accepts any certificate. The handshake proves that the server has its key.
#[derive(Debug)]
struct Unchecked(Arc<CryptoProvider>);

impl ServerCertVerifier for Unchecked {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_without_a_certificate_is_refused() {
        for text in [
            "",
            "x",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        ] {
            let refused = service_config(&ServiceTrust::Pem(text));
            assert!(
                matches!(refused, Err(TlsError::Authorities(_))),
                "{text}: {refused:?}"
            );
        }
        assert!(service_config(&ServiceTrust::Unchecked).is_ok());
    }
}
