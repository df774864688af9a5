//! The description of a certificate: its names, its issuer and its time.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateDer;
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;
use x509_parser::time::ASN1Time;

use crate::error::TlsError;

/// The content of a certificate that people and documents need.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificateInfo {
    /// The subject, such as `CN=db1`.
    pub subject: String,
    /// The subject of the CA that signed it.
    pub issuer: String,
    /// The begin of its validity, in seconds since 1970.
    pub not_before: i64,
    /// The end of its validity, in seconds since 1970.
    pub not_after: i64,
    /// The SHA-256 of its bytes, in hexadecimal with colons.
    pub fingerprint: String,
    /// DNS names, addresses, URIs and mail addresses that it is for.
    pub names: Vec<String>,
    /// True if it may sign others.
    pub is_ca: bool,
}

impl CertificateInfo {
    /// Parses a certificate.
    ///
    /// # Errors
    /// The reason why it cannot be parsed.
    pub fn parse(der: &[u8]) -> Result<Self, String> {
        let (_, parsed) = X509Certificate::from_der(der).map_err(|error| error.to_string())?;
        let names = match parsed.subject_alternative_name() {
            Ok(Some(names)) => names.value.general_names.iter().filter_map(shown).collect(),
            _ => Vec::new(),
        };
        Ok(Self {
            subject: parsed.subject().to_string(),
            issuer: parsed.issuer().to_string(),
            not_before: parsed.validity().not_before.timestamp(),
            not_after: parsed.validity().not_after.timestamp(),
            fingerprint: fingerprint_of(der),
            names,
            is_ca: parsed.is_ca(),
        })
    }

    /// Parses the certificates of a PEM file.
    ///
    /// # Errors
    /// `File`, `Pem`, `Missing`, `Certificate`.
    pub fn of_file(path: &Path) -> Result<Vec<Self>, TlsError> {
        let all = crate::files::certificates(path)?;
        all.iter().map(|der| Self::of_der(path, der)).collect()
    }

    pub(crate) fn of_der(path: &Path, der: &CertificateDer<'_>) -> Result<Self, TlsError> {
        Self::parse(der).map_err(|why| TlsError::Certificate {
            path: path.to_owned(),
            why,
        })
    }

    /// Seconds from a time until the certificate expires; negative afterwards.
    #[must_use]
    pub fn expires_in(&self, now: SystemTime) -> i64 {
        self.not_after.saturating_sub(seconds(now))
    }

    /// Checks that a certificate of a file is valid at a time.
    pub(crate) fn check_valid(&self, path: &Path, now: SystemTime) -> Result<(), TlsError> {
        let now = seconds(now);
        let (path, subject) = (path.to_owned(), self.subject.clone());
        if now > self.not_after {
            let not_after = time_text(self.not_after);
            return Err(TlsError::Expired {
                path,
                subject,
                not_after,
            });
        }
        if now < self.not_before {
            let not_before = time_text(self.not_before);
            return Err(TlsError::NotYetValid {
                path,
                subject,
                not_before,
            });
        }
        Ok(())
    }

    /// The begin and end of its validity as text.
    #[must_use]
    pub fn validity_text(&self) -> (String, String) {
        (time_text(self.not_before), time_text(self.not_after))
    }
}

/// Returns the SHA-256 of a certificate's bytes, in hexadecimal with colons, as `openssl x509 -fingerprint` has it.
#[must_use]
pub fn fingerprint_of(der: &[u8]) -> String {
    let hex: Vec<String> = Sha256::digest(der)
        .iter()
        .map(|byte| format!("{byte:02X}"))
        .collect();
    hex.join(":")
}

/// Returns a certificate in PEM.
pub(crate) fn pem(der: &[u8]) -> String {
    let base64 = STANDARD.encode(der);
    let mut text = "-----BEGIN CERTIFICATE-----\n".to_owned();
    // RFC 7468 section 2: lines of 64 characters.
    for line in base64.as_bytes().chunks(64) {
        text.extend(line.iter().map(|byte| char::from(*byte)));
        text.push('\n');
    }
    text + "-----END CERTIFICATE-----\n"
}

fn shown(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(text) | GeneralName::URI(text) | GeneralName::RFC822Name(text) => {
            Some((*text).to_owned())
        }
        GeneralName::IPAddress(bytes) => match **bytes {
            [a, b, c, d] => Some(std::net::Ipv4Addr::new(a, b, c, d).to_string()),
            _ => <[u8; 16]>::try_from(*bytes)
                .ok()
                .map(|bytes| std::net::Ipv6Addr::from(bytes).to_string()),
        },
        _ => None,
    }
}

fn seconds(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// Returns a time such as `Nov 27 14:48:40 2026 +00:00`.
fn time_text(seconds: i64) -> String {
    ASN1Time::from_timestamp(seconds).map_or_else(|_| seconds.to_string(), |time| time.to_string())
}
