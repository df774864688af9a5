//! The settings of a key in a server that speaks KMIP.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kedge_encryption::MasterKeyDetail;
use kedge_tls::rustls::ClientConfig;
use kedge_tls::{ClientTls, Passphrase, TlsError, Trust};

use crate::http::split_host;
use crate::options::{Options, TIMEOUT};

/// The port that is registered for KMIP.
const PORT: u16 = 5_696;
const APPROACH: &str = "encryptionApproach";
const GET: &str = "useGet";
const ENCRYPT: &str = "useEncryptDecrypt";
const OPTIONS: [&str; 6] = [
    "certPath",
    "keyPath",
    "keyPassphraseFile",
    "caPath",
    APPROACH,
    TIMEOUT,
];
/// Largest length of the id of a key.
const KEY_BYTES_MAX: usize = 1_024;

/// A key in a server that speaks KMIP, and the way to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KmipSource {
    host: String,
    port: u16,
    key: String,
    options: Options,
    timeout: Duration,
}

impl KmipSource {
    /// Reads `HOST[:PORT]/KEY?OPTION=VALUE&...`. The key is its unique identifier.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let (place, options) = text.split_once('?').unwrap_or((text, ""));
        let is_odd = |c: char| c.is_whitespace() || c.is_control();
        let parts = place.split_once('/').filter(|(_, key)| {
            !key.is_empty() && key.len() <= KEY_BYTES_MAX && !key.contains(is_odd)
        });
        let address = parts.and_then(|(address, _)| split_host(address));
        let (Some((_, key)), Some((host, port))) = (parts, address) else {
            return Err("expected kmip:HOST[:PORT]/KEY?certPath=FILE&keyPath=FILE".to_owned());
        };
        let options = Options::read(options, &OPTIONS)?;
        for name in ["certPath", "keyPath"] {
            if options.text(name).is_none() {
                return Err(format!(
                    "kmip: needs certPath and keyPath, the files of the client's certificate; {name} is missing"
                ));
            }
        }
        if ![GET, ENCRYPT].contains(&options.text(APPROACH).unwrap_or(ENCRYPT)) {
            return Err(format!("{APPROACH} is {ENCRYPT} or {GET}"));
        }
        Ok(Self {
            host: host.to_owned(),
            port: port.unwrap_or(PORT),
            key: key.to_owned(),
            timeout: options.timeout()?,
            options,
        })
    }

    /// Returns the unique identifier of the key.
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    pub(super) fn address(&self) -> (&str, u16) {
        (&self.host, self.port)
    }

    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns whether the key itself is got, so that this process encrypts with it.
    pub(crate) fn is_get(&self) -> bool {
        self.options.text(APPROACH) == Some(GET)
    }

    /// Returns the place of the key, without options.
    pub(super) fn place(&self) -> String {
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        format!("kmip:{host}:{}/{}", self.port, self.key)
    }

    /// Loads the files of TLS.
    pub(super) fn tls(&self) -> Result<Arc<ClientConfig>, TlsError> {
        let path = |name: &str| self.options.text(name).map(PathBuf::from);
        let trust = match path("caPath") {
            Some(path) => Trust::Ca(vec![path]),
            None => Trust::System,
        };
        let passphrase = path("keyPassphraseFile").map_or(Passphrase::None, Passphrase::File);
        let own = path("certPath").zip(path("keyPath"));
        ClientTls { trust, own }.config_with(&passphrase)
    }

    /// Returns the options that are texts.
    pub(super) fn texts(&self) -> impl Iterator<Item = (&'static str, MasterKeyDetail)> + '_ {
        let approach = self.options.text(APPROACH).unwrap_or(ENCRYPT);
        let approach = (APPROACH, MasterKeyDetail::Text(approach.to_owned()));
        let paths = OPTIONS
            .into_iter()
            .filter(|name| ![APPROACH, TIMEOUT].contains(name));
        let paths = paths.filter_map(|name| {
            let text = self.options.text(name)?;
            Some((name, MasterKeyDetail::Text(text.to_owned())))
        });
        std::iter::once(approach).chain(paths)
    }
}

impl fmt::Display for KmipSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.place(), self.options.show())
    }
}
