//! The certificate of `--tls auto`: it signs itself, and lies in the data directory.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::certificate::CertificateInfo;
use crate::error::TlsError;
use crate::issue::{Request, Usage, self_signed_node};
use crate::{files, issue};

/// The name of the files in the data directory.
const NAME: &str = "tls-auto";
/// Validity of a new certificate: the longest that strict clients accept.
const DAYS: u32 = 825;
/// The time before its end at which a certificate is replaced.
const RENEW_BEFORE: Duration = Duration::from_secs(86_400);

/// Returns the files of the certificate and its key. Makes them if they are missing, or expired, or expire within a day;
/// a certificate that is valid stays, whatever its names are.
///
/// # Errors
/// `File`, `Issue`.
pub fn ensure(
    dir: &Path,
    names: &[String],
    now: SystemTime,
) -> Result<(PathBuf, PathBuf), TlsError> {
    let certificate = dir.join(format!("{NAME}.pem"));
    let key = dir.join(format!("{NAME}-key.pem"));
    if key.exists() && is_good(&certificate, now) {
        return Ok((certificate, key));
    }
    let request = Request {
        usage: Usage::Node,
        common_name: names.first().cloned().unwrap_or_else(|| "kedge".to_owned()),
        names: names.to_vec(),
        days: DAYS,
    };
    let issued: issue::Issued = self_signed_node(&request, now)?;
    files::create_dir(dir)?;
    issued.write(dir, NAME)
}

/// Returns whether the certificate of a file stays valid for a while.
fn is_good(path: &Path, now: SystemTime) -> bool {
    let Ok(found) = CertificateInfo::of_file(path) else {
        return false;
    };
    let first = found.first();
    first.is_some_and(|it| {
        it.check_valid(path, now).is_ok() && it.check_valid(path, now + RENEW_BEFORE).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fingerprint(path: &Path) -> String {
        CertificateInfo::of_file(path).unwrap()[0]
            .fingerprint
            .clone()
    }

    #[test]
    fn self_signed_certificate_is_kept_until_it_expires() {
        let dir = tempfile::tempdir().unwrap();
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let now = SystemTime::now();
        let (certificate, key) = ensure(dir.path(), &names, now).unwrap();
        let first = fingerprint(&certificate);
        assert_eq!(
            CertificateInfo::of_file(&certificate).unwrap()[0].names,
            names
        );
        let mode = std::os::unix::fs::PermissionsExt::mode(&key.metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);

        let days = |days: u32| now + Duration::from_secs(86_400) * days;
        ensure(dir.path(), &[], days(DAYS - 2)).unwrap();
        assert_eq!(fingerprint(&certificate), first);
        ensure(dir.path(), &names, days(DAYS)).unwrap();
        let second = fingerprint(&certificate);
        assert_ne!(second, first);

        std::fs::remove_file(&key).unwrap();
        ensure(dir.path(), &names, days(DAYS)).unwrap();
        assert_ne!(
            fingerprint(&certificate),
            second,
            "a certificate without its key is useless"
        );
    }
}
