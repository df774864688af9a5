//! Making certificates: a CA for development, certificates of nodes and clients.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType,
};

use crate::error::TlsError;
use crate::files;

/// The time by which the validity begins before now, for peers whose clocks are behind.
const CLOCK_SKEW: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);

/// The use of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// A node: it serves clients, and is a client of other nodes.
    Node,
    /// A client.
    Client,
}

/// The content of a certificate to make.
#[derive(Clone, Debug)]
pub struct Request {
    /// Its use.
    pub usage: Usage,
    /// The common name: the name of a node, the user name of a client.
    pub common_name: String,
    /// Alternative names: addresses, mail addresses (with `@`), URIs (with `:`), DNS names.
    pub names: Vec<String>,
    /// The days of its validity.
    pub days: u32,
}

/// A certificate and its private key, both in PEM.
pub struct Issued {
    /// The certificate.
    pub certificate: String,
    /// The private key in PKCS#8, not encrypted.
    pub key: String,
}

impl std::fmt::Debug for Issued {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Issued").finish_non_exhaustive()
    }
}

impl Issued {
    /// Returns the certificate as a chain that ends with the CA, which is given in PEM.
    #[must_use]
    pub fn with_authority(self, ca: &str) -> Self {
        Self {
            certificate: self.certificate + ca,
            key: self.key,
        }
    }

    /// Writes `NAME.pem` and `NAME-key.pem` into a directory, for their owner only, and returns their paths. The key is
    /// written first. A directory that is missing is created, for its owner only.
    ///
    /// # Errors
    /// `File`.
    pub fn write(&self, dir: &Path, name: &str) -> Result<(PathBuf, PathBuf), TlsError> {
        let certificate = dir.join(format!("{name}.pem"));
        let key = dir.join(format!("{name}-key.pem"));
        files::create_dir(dir)?;
        files::write_private(&key, &self.key)?;
        files::write_private(&certificate, &self.certificate)?;
        Ok((certificate, key))
    }
}

/// Makes a CA.
///
/// # Errors
/// `Issue`.
pub fn new_authority(common_name: &str, days: u32, now: SystemTime) -> Result<Issued, TlsError> {
    authority(common_name, days, now, BasicConstraints::Unconstrained)
}

/// Makes a CA that signs no other CA.
pub(crate) fn new_auto_authority(
    common_name: &str,
    days: u32,
    now: SystemTime,
) -> Result<Issued, TlsError> {
    authority(common_name, days, now, BasicConstraints::Constrained(0))
}

fn authority(
    common_name: &str,
    days: u32,
    now: SystemTime,
    below: BasicConstraints,
) -> Result<Issued, TlsError> {
    let mut params = params(common_name, days, now);
    params.is_ca = IsCa::Ca(below);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    let key = KeyPair::generate()?;
    Ok(Issued {
        certificate: params.self_signed(&key)?.pem(),
        key: key.serialize_pem(),
    })
}

/// Makes a certificate that is signed by a CA, whose certificate and key are given in PEM.
///
/// # Errors
/// `Issue`.
pub fn issue(ca: (&str, &str), request: &Request, now: SystemTime) -> Result<Issued, TlsError> {
    let issuer = Issuer::from_ca_cert_pem(ca.0, KeyPair::from_pem(ca.1)?)?;
    let mut params = leaf(request, now)?;
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &issuer)?;
    Ok(Issued {
        certificate: certificate.pem(),
        key: key.serialize_pem(),
    })
}

fn leaf(request: &Request, now: SystemTime) -> Result<CertificateParams, TlsError> {
    let mut params = params(&request.common_name, request.days, now);
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = match request.usage {
        Usage::Node => vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ],
        Usage::Client => vec![ExtendedKeyUsagePurpose::ClientAuth],
    };
    let names: Result<_, TlsError> = request.names.iter().map(|name| alternative(name)).collect();
    params.subject_alt_names = names?;
    Ok(params)
}

fn params(common_name: &str, days: u32, now: SystemTime) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, common_name);
    params.not_before = (now - CLOCK_SKEW).into();
    params.not_after = (now + DAY * days).into();
    params
}

fn alternative(name: &str) -> Result<SanType, TlsError> {
    if let Ok(address) = name.parse::<IpAddr>() {
        return Ok(SanType::IpAddress(address));
    }
    Ok(if name.contains(':') {
        SanType::URI(name.try_into()?)
    } else if name.contains('@') {
        SanType::Rfc822Name(name.try_into()?)
    } else {
        SanType::DnsName(name.try_into()?)
    })
}
