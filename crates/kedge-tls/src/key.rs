//! Private keys.

use std::path::{Path, PathBuf};

use pkcs8::EncryptedPrivateKeyInfoRef;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use x509_parser::pem::Pem;
use zeroize::Zeroizing;

use crate::error::TlsError;
use crate::files;

/// The label of an encrypted key in PKCS#8.
const ENCRYPTED: &str = "-----BEGIN ENCRYPTED PRIVATE KEY-----";
/// The header of a key that is encrypted in the form from before PKCS#8.
const OLD_ENCRYPTION: &str = "Proc-Type: 4,ENCRYPTED";

/// The source of the passphrase of a private key.
#[derive(Clone, Default)]
pub enum Passphrase {
    /// There is none.
    #[default]
    None,
    /// The first line of a file.
    File(PathBuf),
    /// The text itself, from the environment.
    Text(Zeroizing<String>),
}

impl std::fmt::Debug for Passphrase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Text(_) => f.write_str("Text(..)"),
        }
    }
}

impl Passphrase {
    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            _ => None,
        }
    }

    fn read(&self) -> Result<Option<Zeroizing<Vec<u8>>>, TlsError> {
        match self {
            Self::None => Ok(None),
            Self::Text(text) => Ok(Some(Zeroizing::new(text.as_bytes().to_vec()))),
            Self::File(path) => {
                let content = Zeroizing::new(files::read(path)?);
                let line = content
                    .split(|byte| *byte == b'\n')
                    .next()
                    .unwrap_or_default();
                let line = line.strip_suffix(b"\r").unwrap_or(line);
                Ok(Some(Zeroizing::new(line.to_vec())))
            }
        }
    }
}

/// Reads the private key of a file: PKCS#8, PKCS#1, SEC1, or PKCS#8 encrypted with a passphrase.
pub(crate) fn read(
    path: &Path,
    passphrase: &Passphrase,
) -> Result<PrivateKeyDer<'static>, TlsError> {
    let content = Zeroizing::new(files::read(path)?);
    let text = String::from_utf8_lossy(&content);
    if text.contains(OLD_ENCRYPTION) {
        return Err(unusable(
            path,
            "it is encrypted in an old form; convert it with openssl pkcs8 -topk8",
        ));
    }
    if text.contains(ENCRYPTED) {
        return decrypt(path, &content, passphrase);
    }
    drop(Zeroizing::new(text.into_owned()));
    PrivateKeyDer::from_pem_slice(&content).map_err(|error| match error {
        rustls::pki_types::pem::Error::NoItemsFound => TlsError::Missing {
            path: path.to_owned(),
            missing: "private key",
        },
        error => TlsError::Pem {
            path: path.to_owned(),
            why: error.to_string(),
        },
    })
}

fn unusable(path: &Path, why: &str) -> TlsError {
    TlsError::Key {
        path: path.to_owned(),
        why: why.to_owned(),
    }
}

fn decrypt(
    path: &Path,
    pem: &[u8],
    passphrase: &Passphrase,
) -> Result<PrivateKeyDer<'static>, TlsError> {
    let Some(passphrase) = passphrase.read()? else {
        return Err(TlsError::PassphraseNeeded {
            path: path.to_owned(),
        });
    };
    let der = encrypted_der(path, pem)?;
    let key = EncryptedPrivateKeyInfoRef::try_from(der.as_slice())
        .map_err(|error| unusable(path, &format!("its encryption is unknown: {error}")))?;
    let decrypted = key.decrypt(&*passphrase).map_err(|error| match error {
        // A wrong passphrase leaves wrong padding or no key.
        pkcs8::Error::EncryptedPrivateKey(pkcs8::pkcs5::Error::DecryptFailed)
        | pkcs8::Error::Asn1(_) => TlsError::WrongPassphrase {
            path: path.to_owned(),
        },
        error => unusable(path, &error.to_string()),
    })?;
    let key = decrypted.as_bytes().to_vec();
    Ok(PrivateKeyDer::Pkcs8(key.into()))
}

/// Returns the bytes of the first encrypted key of a PEM file.
fn encrypted_der(path: &Path, pem: &[u8]) -> Result<Vec<u8>, TlsError> {
    for section in Pem::iter_from_buffer(pem) {
        let section = section.map_err(|error| TlsError::Pem {
            path: path.to_owned(),
            why: error.to_string(),
        })?;
        if section.label == "ENCRYPTED PRIVATE KEY" {
            return Ok(section.contents);
        }
    }
    Err(unusable(path, "its encryption is unknown"))
}
