//! The implementation of cryptography, versions and cipher suites.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::server::ProducesTickets;
use rustls::{SupportedCipherSuite, SupportedProtocolVersion, version};

use crate::error::TlsError;

/// The lowest version of TLS that a client may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MinVersion {
    /// TLS 1.2.
    #[default]
    Tls12,
    /// TLS 1.3.
    Tls13,
}

impl MinVersion {
    pub(crate) fn versions(self) -> &'static [&'static SupportedProtocolVersion] {
        static FROM_12: [&SupportedProtocolVersion; 2] = [&version::TLS13, &version::TLS12];
        static FROM_13: [&SupportedProtocolVersion; 1] = [&version::TLS13];
        match self {
            Self::Tls12 => &FROM_12,
            Self::Tls13 => &FROM_13,
        }
    }
}

/// This file is the only one that names the provider; docs/decisions/0064-tls-provider.md has the reasons.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Returns the keys of session tickets, which rotate every few hours.
pub(crate) fn ticketer() -> Result<Arc<dyn ProducesTickets>, rustls::Error> {
    rustls::crypto::ring::Ticketer::new()
}

/// Returns the provider with the suites of that names only; all suites if there are no names.
pub(crate) fn provider_with(
    suites: &[String],
    min: MinVersion,
) -> Result<Arc<CryptoProvider>, TlsError> {
    let mut provider = rustls::crypto::ring::default_provider();
    if suites.is_empty() {
        return Ok(Arc::new(provider));
    }
    let all = std::mem::take(&mut provider.cipher_suites);
    for name in suites {
        let found = all
            .iter()
            .find(|suite| name_of(suite).eq_ignore_ascii_case(&standard(name)));
        let suite = found.ok_or_else(|| TlsError::UnknownCipherSuite {
            name: name.clone(),
            known: all.iter().map(name_of).collect::<Vec<_>>().join(", "),
        })?;
        if !provider.cipher_suites.contains(suite) {
            provider.cipher_suites.push(*suite);
        }
    }
    let is_left = |suite: &SupportedCipherSuite| suite.tls13().is_some();
    if min == MinVersion::Tls13 && !provider.cipher_suites.iter().any(is_left) {
        return Err(TlsError::NoCipherSuite);
    }
    Ok(Arc::new(provider))
}

/// The names of all cipher suites, as the registry of IANA has them, those of TLS 1.3 first.
#[must_use]
pub fn cipher_suite_names() -> Vec<String> {
    provider().cipher_suites.iter().map(name_of).collect()
}

fn name_of(suite: &SupportedCipherSuite) -> String {
    standard(suite.suite().as_str().unwrap_or_default())
}

/// rustls writes `TLS13_AES_128_GCM_SHA256` for `TLS_AES_128_GCM_SHA256`.
fn standard(name: &str) -> String {
    name.replacen("TLS13_", "TLS_", 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(of: &[&str]) -> Vec<String> {
        of.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn cipher_suites_have_their_registered_names() {
        let all = cipher_suite_names();
        for name in [
            "TLS_AES_128_GCM_SHA256",
            "TLS_AES_256_GCM_SHA384",
            "TLS_CHACHA20_POLY1305_SHA256",
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        ] {
            assert!(all.iter().any(|it| it == name), "{name}: {all:?}");
        }
    }

    #[test]
    fn chosen_suites_keep_their_order_and_unknown_ones_are_named() {
        let chosen = names(&[
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
            "tls_aes_256_gcm_sha384",
        ]);
        let provider = provider_with(&chosen, MinVersion::Tls12).unwrap();
        let left: Vec<String> = provider.cipher_suites.iter().map(name_of).collect();
        assert_eq!(
            left,
            [
                "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
                "TLS_AES_256_GCM_SHA384"
            ]
        );
        let error = provider_with(&names(&["RC4"]), MinVersion::Tls12).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("unknown cipher suite RC4; known are TLS_"),
            "{error}"
        );
        let only_1_2 = names(&["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"]);
        let error = provider_with(&only_1_2, MinVersion::Tls13).unwrap_err();
        assert!(matches!(error, TlsError::NoCipherSuite), "{error}");
    }
}
