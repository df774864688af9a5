//! Reading PEM files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustls::RootCertStore;
use rustls::pki_types::pem::{Error as PemError, PemObject as _};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};

use crate::error::TlsError;

/// Largest PEM file: bundles of all public CAs have about 250 KiB.
const FILE_BYTES_MAX: u64 = 16 << 20;

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let failed = |source| TlsError::File {
        operation: "read",
        path: path.to_owned(),
        source,
    };
    let bytes = fs::metadata(path).map_err(failed)?.len();
    if bytes > FILE_BYTES_MAX {
        let why = format!("it has {bytes} bytes, and {FILE_BYTES_MAX} are the most");
        return Err(failed(io::Error::other(why)));
    }
    fs::read(path).map_err(failed)
}

/// Returns the text of a file.
pub(crate) fn text(path: &Path) -> Result<String, TlsError> {
    String::from_utf8(read(path)?).map_err(|error| TlsError::Pem {
        path: path.to_owned(),
        why: error.to_string(),
    })
}

/// Creates a directory that only its owner may enter, unless it exists.
pub(crate) fn create_dir(path: &Path) -> Result<(), TlsError> {
    use std::os::unix::fs::DirBuilderExt as _;

    let mut builder = fs::DirBuilder::new();
    let created = builder.recursive(true).mode(0o700).create(path);
    created.map_err(|source| TlsError::File {
        operation: "create",
        path: path.to_owned(),
        source,
    })
}

/// Removes a file, if it exists.
pub(crate) fn remove(path: &Path) -> Result<(), TlsError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(TlsError::File {
            operation: "remove",
            path: path.to_owned(),
            source,
        }),
        _ => Ok(()),
    }
}

/// Writes a file that only its owner may read, with another name first, so that readers see all of it or none.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<(), TlsError> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;

    let failed = |source| TlsError::File {
        operation: "write",
        path: path.to_owned(),
        source,
    };
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let temporary = path.with_file_name(name);
    let _ = fs::remove_file(&temporary);
    let mut options = fs::OpenOptions::new();
    let opened = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary);
    let mut file = opened.map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    fs::rename(&temporary, path).map_err(failed)
}

fn bad_pem(path: &Path, error: &PemError) -> TlsError {
    TlsError::Pem {
        path: path.to_owned(),
        why: error.to_string(),
    }
}

/// Returns the certificates of a file, at least one.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    certificates_in(path, &read(path)?)
}

/// Returns the certificates of the bytes of a file, at least one.
pub(crate) fn certificates_in(
    path: &Path,
    bytes: &[u8],
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
    let all = all.map_err(|error| bad_pem(path, &error))?;
    if all.is_empty() {
        return Err(TlsError::Missing {
            path: path.to_owned(),
            missing: "certificate",
        });
    }
    Ok(all)
}

/// Returns the CAs of all files.
pub(crate) fn roots(paths: &[PathBuf]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for path in paths {
        for certificate in certificates(path)? {
            roots
                .add(certificate)
                .map_err(|error| TlsError::Certificate {
                    path: path.clone(),
                    why: error.to_string(),
                })?;
        }
    }
    Ok(roots)
}

/// Returns the revocation lists of all files.
pub(crate) fn revocation_lists(
    paths: &[PathBuf],
) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let mut lists = Vec::new();
    for path in paths {
        let before = lists.len();
        for list in CertificateRevocationListDer::pem_slice_iter(&read(path)?) {
            lists.push(list.map_err(|error| bad_pem(path, &error))?);
        }
        if lists.len() == before {
            return Err(TlsError::Missing {
                path: path.clone(),
                missing: "revocation list",
            });
        }
    }
    Ok(lists)
}
