//! The CA of `kedge cluster-run --tls auto`, and the certificates of its nodes.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::certificate::CertificateInfo;
use crate::error::TlsError;
use crate::files;
use crate::issue::{Issued, Request, Usage, issue, new_authority};

/// The name of the files of the CA.
const NAME: &str = "ca";
/// Validity of a new CA.
const CA_DAYS: u32 = 3650;
/// Validity of a new certificate: the longest that strict clients accept.
const DAYS: u32 = 825;

/// A CA in a directory, for development.
#[derive(Debug)]
pub struct DevelopmentCa {
    certificate: PathBuf,
    pem: Issued,
}

impl DevelopmentCa {
    /// Reads the CA of a directory. Makes one if there is none, or it does not outlive the certificates that it signs.
    ///
    /// # Errors
    /// `File`, `Pem`, `Missing`, `Certificate`, `Issue`.
    pub fn ensure(dir: &Path, now: SystemTime) -> Result<Self, TlsError> {
        let certificate = dir.join(format!("{NAME}.pem"));
        let key = dir.join(format!("{NAME}-key.pem"));
        let text = |path: &Path| {
            let bytes = files::read(path)?;
            Ok::<_, TlsError>(String::from_utf8_lossy(&bytes).into_owned())
        };
        if certificate.exists() && key.exists() && outlives(&certificate, now)? {
            let pem = Issued {
                certificate: text(&certificate)?,
                key: text(&key)?,
            };
            return Ok(Self { certificate, pem });
        }
        let pem = new_authority("Kedge development CA", CA_DAYS, now)?;
        files::create_dir(dir)?;
        pem.write(dir, NAME)?;
        Ok(Self { certificate, pem })
    }

    /// Returns the file with the certificate of the CA.
    #[must_use]
    pub fn certificate(&self) -> &Path {
        &self.certificate
    }

    /// Makes a new certificate for a node with these names, behind which is the CA. Returns its files: `tls.pem` and
    /// `tls-key.pem` in `dir`.
    ///
    /// # Errors
    /// `File`, `Issue`.
    pub fn issue_node(
        &self,
        dir: &Path,
        node: &str,
        names: &[String],
        now: SystemTime,
    ) -> Result<(PathBuf, PathBuf), TlsError> {
        let request = Request {
            usage: Usage::Node,
            common_name: node.to_owned(),
            names: names.to_vec(),
            days: DAYS,
        };
        files::create_dir(dir)?;
        let ca = (&*self.pem.certificate, &*self.pem.key);
        let chain = issue(ca, &request, now)?.with_authority(ca.0);
        chain.write(dir, "tls")
    }
}

/// Returns whether a CA is valid for longer than a certificate that it signs now.
fn outlives(path: &Path, now: SystemTime) -> Result<bool, TlsError> {
    let end = now + Duration::from_secs(u64::from(DAYS) * 86_400);
    let found = CertificateInfo::of_file(path)?;
    Ok(found
        .first()
        .is_some_and(|it| it.check_valid(path, end).is_ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn development_ca_is_kept_until_it_is_too_old() {
        let dir = tempfile::tempdir().unwrap();
        let (ca_dir, now) = (dir.path().join("tls"), SystemTime::now());
        let first = DevelopmentCa::ensure(&ca_dir, now).unwrap();
        let same = DevelopmentCa::ensure(&ca_dir, now).unwrap();
        assert_eq!(first.pem.certificate, same.pem.certificate);
        let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
        let (certificate, key) = same.issue_node(dir.path(), "n_0", &names, now).unwrap();
        assert!(key.exists() && certificate == dir.path().join("tls.pem"));
        let found = CertificateInfo::of_file(&certificate).unwrap();
        assert_eq!(found[0].names, names);
        assert_eq!(found[0].issuer, "CN=Kedge development CA");
        assert!(found.len() == 2 && found[1].is_ca);
        let later = now + Duration::from_secs(3000 * 86_400);
        let next = DevelopmentCa::ensure(&ca_dir, later).unwrap();
        assert_ne!(first.pem.certificate, next.pem.certificate);
    }
}
