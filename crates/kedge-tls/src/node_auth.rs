//! TLS between the nodes of a cluster: the configuration of a node as a client of others, and the recognition of their
//! certificates.
//!
//! A node shows its certificate to servers that ask for one of its CA. It is one of a node if it says that it is for servers,
//! by `serverAuth` in the extended key usage: those of clients do not.
//!
//! Invariants:
//! * A certificate makes nobody a node: that needs the secret of the cluster, too. So a CA that signs the certificates of
//!   clients cannot make nodes.
//! * A certificate of a node makes nobody a user.
//! * The CA of the own chain is trusted only if it signed itself: certificates of a public CA make no nodes unless the operator
//!   says so.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::{ResolvesClientCert, Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    ClientConfig, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme,
    SupportedProtocolVersion,
};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

use crate::error::TlsError;
use crate::files;
use crate::provider::provider;

/// Sessions that a node remembers for its next connections to others.
const SESSIONS_MAX: usize = 256;

/// TLS between the nodes of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAuth {
    /// PEM files with the CAs that sign the certificates of nodes. Without one it is the CA that ends the chain of this
    /// node's certificate.
    pub ca: Vec<PathBuf>,
    /// True if a connection counts as one of a node only if it has shown a certificate of a node.
    pub is_mutual: bool,
}

/// The certificate of this node, and the way in which it reaches other nodes.
pub(crate) struct OwnIdentity<'a> {
    pub(crate) path: &'a Path,
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
    pub(crate) provider: Arc<CryptoProvider>,
    pub(crate) versions: &'static [&'static SupportedProtocolVersion],
}

impl NodeAuth {
    /// Returns the CAs of the certificates of nodes. `path` and `chain` are those of this node's certificate.
    pub(crate) fn roots(
        &self,
        path: &Path,
        chain: &[CertificateDer<'static>],
    ) -> Result<Arc<RootCertStore>, TlsError> {
        let roots = match self.ca.is_empty() {
            false => files::roots(&self.ca)?,
            true => own_root(path, chain)?,
        };
        Ok(Arc::new(roots))
    }

    /// Returns the configuration for connections to other nodes.
    pub(crate) fn client_config(
        &self,
        roots: Arc<RootCertStore>,
        own: OwnIdentity<'_>,
    ) -> Result<ClientConfig, TlsError> {
        if self.is_mutual && !uses(&own.chain[0]).as_client {
            return Err(TlsError::Certificate {
                path: own.path.to_owned(),
                why:
                    "its extended key usage lacks clientAuth, and mutual TLS between nodes needs it"
                        .to_owned(),
            });
        }
        let verifier =
            WebPkiServerVerifier::builder_with_provider(roots, own.provider.clone()).build();
        let verifier = verifier.map_err(|error| TlsError::NodeCa(error.to_string()))?;
        let identity = NodeIdentity::new(own.chain, own.key, &own.provider)?;
        let mut config = ClientConfig::builder_with_provider(own.provider)
            .with_protocol_versions(own.versions)?
            .with_webpki_verifier(verifier)
            .with_client_cert_resolver(Arc::new(identity));
        config.resumption = Resumption::in_memory_sessions(SESSIONS_MAX);
        Ok(config)
    }
}

/// Returns the verifier of certificates of nodes. `crl` are the files with revocation lists.
pub(crate) fn verifier(
    roots: Arc<RootCertStore>,
    crl: &[PathBuf],
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut builder = WebPkiClientVerifier::builder_with_provider(roots, provider());
    if !crl.is_empty() {
        // The lists may be those of other CAs only.
        builder = builder
            .with_crls(files::revocation_lists(crl)?)
            .only_check_end_entity_revocation()
            .allow_unknown_revocation_status();
    }
    let built = builder.build();
    let verifier = built.map_err(|error| TlsError::NodeCa(error.to_string()))?;
    Ok(verifier)
}

/// Returns the CA that ends the chain of this node's certificate, if that is one that signed itself. Public CAs hand out
/// chains that end with one which another CA signed: the next certificate may be of another one, and strangers have
/// certificates of it.
fn own_root(path: &Path, chain: &[CertificateDer<'static>]) -> Result<RootCertStore, TlsError> {
    let missing = || TlsError::NoNodeCa {
        path: path.to_owned(),
    };
    let [.., signed, last] = chain else {
        return Err(missing());
    };
    let (_, root) = X509Certificate::from_der(last).map_err(|_| missing())?;
    let (_, signed) = X509Certificate::from_der(signed).map_err(|_| missing())?;
    let name = root.subject().as_raw();
    let signed_both = root.issuer().as_raw() == name && signed.issuer().as_raw() == name;
    if !root.is_ca() || !signed_both {
        return Err(missing());
    }
    let mut roots = RootCertStore::empty();
    roots.add(last.clone())?;
    Ok(roots)
}

/// Returns whether a verified chain is one of a node: a certificate that a server can have, by a CA of nodes.
pub(crate) fn is_node(verifier: &dyn ClientCertVerifier, chain: &[CertificateDer<'_>]) -> bool {
    let [leaf, rest @ ..] = chain else {
        return false;
    };
    let verified = || verifier.verify_client_cert(leaf, rest, UnixTime::now());
    uses(leaf).as_server && verified().is_ok()
}

/// The uses that a certificate is for.
struct Uses {
    as_server: bool,
    as_client: bool,
}

/// Returns the uses of a certificate. One without the extension may be of a client, as it was before there were nodes.
fn uses(certificate: &CertificateDer<'_>) -> Uses {
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else {
        return Uses {
            as_server: false,
            as_client: false,
        };
    };
    match parsed.extended_key_usage() {
        Ok(Some(usage)) => Uses {
            as_server: usage.value.server_auth,
            as_client: usage.value.any || usage.value.client_auth,
        },
        Ok(None) => Uses {
            as_server: false,
            as_client: true,
        },
        Err(_) => Uses {
            as_server: false,
            as_client: false,
        },
    }
}

/// The certificate that a node shows to servers that ask for one of its CA.
struct NodeIdentity {
    certified: Arc<CertifiedKey>,
    /// The names of those that signed the certificates of the chain.
    issuers: Vec<Vec<u8>>,
    as_client: bool,
}

impl fmt::Debug for NodeIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeIdentity").finish_non_exhaustive()
    }
}

impl NodeIdentity {
    fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        provider: &CryptoProvider,
    ) -> Result<Self, TlsError> {
        let issuer = |certificate: &CertificateDer<'_>| {
            let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
            Some(parsed.issuer().as_raw().to_vec())
        };
        Ok(Self {
            issuers: chain.iter().filter_map(issuer).collect(),
            as_client: uses(&chain[0]).as_client,
            certified: Arc::new(CertifiedKey::from_der(chain, key, provider)?),
        })
    }
}

impl ResolvesClientCert for NodeIdentity {
    fn resolve(
        &self,
        root_hint_subjects: &[&[u8]],
        _: &[SignatureScheme],
    ) -> Option<Arc<CertifiedKey>> {
        let is_wanted = |issuer: &Vec<u8>| root_hint_subjects.contains(&issuer.as_slice());
        // A server would refuse a certificate of another CA, and takes a login without one.
        let fits = root_hint_subjects.is_empty() || self.issuers.iter().any(is_wanted);
        (self.as_client && fits).then(|| self.certified.clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Accepts certificates of nodes and, if there is a verifier for them, those of clients.
#[derive(Debug)]
pub(crate) struct NodesAndClients {
    nodes: Arc<dyn ClientCertVerifier>,
    clients: Option<Arc<dyn ClientCertVerifier>>,
    hints: Vec<DistinguishedName>,
}

impl NodesAndClients {
    pub(crate) fn new(
        nodes: Arc<dyn ClientCertVerifier>,
        clients: Option<Arc<dyn ClientCertVerifier>>,
    ) -> Self {
        let mut hints = nodes.root_hint_subjects().to_vec();
        let of_clients = clients.iter().flat_map(|it| it.root_hint_subjects());
        for hint in of_clients {
            let is_known = |known: &DistinguishedName| known.as_ref() == hint.as_ref();
            if !hints.iter().any(is_known) {
                hints.push(hint.clone());
            }
        }
        Self {
            nodes,
            clients,
            hints,
        }
    }
}

impl ClientCertVerifier for NodesAndClients {
    fn client_auth_mandatory(&self) -> bool {
        let clients = self.clients.as_ref();
        clients.is_some_and(|clients| clients.client_auth_mandatory())
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let of_client = |clients: &Arc<dyn ClientCertVerifier>| {
            clients.verify_client_cert(end_entity, intermediates, now)
        };
        let of_node = || match uses(end_entity).as_server {
            true => Some(
                self.nodes
                    .verify_client_cert(end_entity, intermediates, now),
            ),
            false => None,
        };
        match (self.clients.as_ref().map(of_client), of_node) {
            (Some(Ok(verified)), _) => Ok(verified),
            (Some(Err(error)), of_node) => match of_node() {
                Some(Ok(verified)) => Ok(verified),
                _ => Err(error),
            },
            (None, of_node) => {
                of_node().unwrap_or(Err(rustls::CertificateError::InvalidPurpose.into()))
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, Error> {
        self.nodes.verify_tls12_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, Error> {
        self.nodes.verify_tls13_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.nodes.supported_verify_schemes()
    }
}
