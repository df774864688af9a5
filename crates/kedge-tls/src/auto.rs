//! The certificate of `--tls auto`, and the CA that signs it: both lie in the data directory.
//!
//! Clients trust the CA, so a certificate that is renewed needs no change of theirs. The CA signs for this directory only:
//! no CA below it, and a key that stays here.
//!
//! Invariant: `tls-auto.pem` ends with the CA that signed it. If that is not the CA of the directory, because writing
//! stopped in between or the file is from a version without a CA, the certificate is issued again.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::certificate::CertificateInfo;
use crate::error::TlsError;
use crate::files;
use crate::issue::{Request, Usage, issue, new_auto_authority};

/// The name of the files of the certificate in the data directory.
const NAME: &str = "tls-auto";
/// The name of the files of the CA.
const CA_NAME: &str = "tls-auto-ca";
/// Validity of a new certificate: the longest that strict clients accept.
const DAYS: u32 = 825;
/// Validity of a new CA.
const CA_DAYS: u32 = 3650;
/// The time before its end at which a certificate is replaced. A CA has to outlast the certificate.
const RENEW_BEFORE: Duration = Duration::from_secs(86_400);
const CA_RENEW_BEFORE: Duration = RENEW_BEFORE.saturating_mul(DAYS + 1);

const _: () = assert!(CA_DAYS > DAYS + 1);

/// The files of `--tls auto`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AutoFiles {
    /// The certificate, and behind it the CA.
    pub certificate: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
    /// The CA, for clients.
    pub ca: PathBuf,
    /// The private key of the CA.
    ca_key: PathBuf,
}

impl AutoFiles {
    /// The files in a directory.
    #[must_use]
    pub fn of(dir: &Path) -> Self {
        let file = |name: &str, end: &str| dir.join(format!("{name}{end}.pem"));
        Self {
            certificate: file(NAME, ""),
            key: file(NAME, "-key"),
            ca: file(CA_NAME, ""),
            ca_key: file(CA_NAME, "-key"),
        }
    }
}

/// Returns the files of the certificate, which are made if they are missing, or expired, or expire within a day. A
/// certificate that is valid stays, whatever its names are; the CA stays as long as it outlasts a new certificate.
///
/// # Errors
/// `File`, `Issue`.
pub fn ensure(dir: &Path, names: &[String], now: SystemTime) -> Result<AutoFiles, TlsError> {
    let found = AutoFiles::of(dir);
    if found.key.exists() && is_current(&found, now) {
        return Ok(found);
    }
    if found.certificate.exists() && !found.ca.exists() {
        tracing::warn!(
            ca = %found.ca.display(),
            "the certificate of --tls auto signs itself; it is replaced by one of a CA, which clients have to trust"
        );
    }
    let has_authority = found.ca_key.exists() && is_good(&found.ca, now, CA_RENEW_BEFORE);
    if !has_authority {
        let name = names.iter().find(|name| is_of_machine(name));
        let name = name.map_or("this server", String::as_str);
        let made = new_auto_authority(&format!("Kedge CA of {name}"), CA_DAYS, now)?;
        made.write(dir, CA_NAME)?;
    }
    let request = Request {
        usage: Usage::Node,
        common_name: names.first().cloned().unwrap_or_else(|| "kedge".to_owned()),
        names: names.to_vec(),
        days: DAYS,
    };
    let (ca, ca_key) = (files::text(&found.ca)?, files::text(&found.ca_key)?);
    let chain = issue((&ca, &ca_key), &request, now)?.with_authority(&ca);
    // A key must not meet the certificate of another one, if the process ends between the two files.
    files::remove(&found.certificate)?;
    chain.write(dir, NAME)?;
    Ok(found)
}

/// Makes a new CA and a certificate, although those from before are valid. Clients have to trust the new CA.
///
/// # Errors
/// `File`, `Issue`.
pub(crate) fn renew(dir: &Path, names: &[String], now: SystemTime) -> Result<AutoFiles, TlsError> {
    let found = AutoFiles::of(dir);
    // The file without which the CA is not used any more goes first.
    files::remove(&found.ca_key)?;
    files::remove(&found.certificate)?;
    ensure(dir, names, now)
}

/// Returns whether a name of the certificate says which machine it is: not one that every machine has.
fn is_of_machine(name: &str) -> bool {
    !matches!(name, "localhost" | "127.0.0.1" | "::1")
}

/// Returns whether the certificate stays valid for a while, and is one of the CA.
fn is_current(found: &AutoFiles, now: SystemTime) -> bool {
    let last = |path: &Path| {
        let all = CertificateInfo::of_file(path).ok()?;
        Some((all.len(), all.last()?.fingerprint.clone()))
    };
    let (chain, ca) = (last(&found.certificate), last(&found.ca));
    let is_of_ca = chain.zip(ca).is_some_and(|(chain, ca)| chain == (2, ca.1));
    is_of_ca
        && is_good(&found.certificate, now, RENEW_BEFORE)
        && is_good(&found.ca, now, RENEW_BEFORE)
}

/// Returns whether the first certificate of a file is valid, now and after that time.
fn is_good(path: &Path, now: SystemTime, after: Duration) -> bool {
    let Ok(found) = CertificateInfo::of_file(path) else {
        return false;
    };
    let first = found.first();
    first.is_some_and(|it| {
        it.check_valid(path, now).is_ok() && it.check_valid(path, now + after).is_ok()
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

    fn names() -> Vec<String> {
        ["localhost", "127.0.0.1", "db1"].map(str::to_owned).into()
    }

    fn days(now: SystemTime, days: u32) -> SystemTime {
        now + Duration::from_secs(86_400) * days
    }

    #[test]
    fn certificate_is_kept_until_it_expires_and_its_ca_longer() {
        let dir = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let made = ensure(dir.path(), &names(), now).unwrap();
        let (first, ca) = (fingerprint(&made.certificate), fingerprint(&made.ca));
        let chain = CertificateInfo::of_file(&made.certificate).unwrap();
        assert_eq!(chain[0].names, names());
        assert!(!chain[0].is_ca && chain[1].is_ca);
        assert_eq!(chain[1].fingerprint, ca);
        assert_eq!(chain[1].subject, "CN=Kedge CA of db1");
        for key in [&made.key, &made.ca_key] {
            let mode = key.metadata().unwrap().permissions();
            let mode = std::os::unix::fs::PermissionsExt::mode(&mode);
            assert_eq!(mode & 0o777, 0o600);
        }

        ensure(dir.path(), &[], days(now, DAYS - 2)).unwrap();
        assert_eq!(fingerprint(&made.certificate), first);
        ensure(dir.path(), &names(), days(now, DAYS)).unwrap();
        let second = fingerprint(&made.certificate);
        assert_ne!(second, first);
        assert_eq!(fingerprint(&made.ca), ca, "clients need no other CA");

        // A certificate of this CA would outlast it.
        let late = days(now, CA_DAYS - DAYS);
        ensure(dir.path(), &names(), late).unwrap();
        assert_ne!(fingerprint(&made.ca), ca);
        let chain = CertificateInfo::of_file(&made.certificate).unwrap();
        assert_eq!(chain[1].fingerprint, fingerprint(&made.ca));
    }

    #[test]
    fn files_that_do_not_fit_together_are_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let made = ensure(dir.path(), &names(), now).unwrap();
        let check = |damage: &dyn Fn(&AutoFiles), expected: (bool, bool), what: &str| {
            let before = (fingerprint(&made.certificate), fingerprint(&made.ca));
            damage(&made);
            ensure(dir.path(), &names(), now).unwrap();
            let chain = CertificateInfo::of_file(&made.certificate).unwrap();
            assert_eq!(chain[1].fingerprint, fingerprint(&made.ca), "{what}");
            let is_new = fingerprint(&made.certificate) != before.0;
            let has_new_ca = fingerprint(&made.ca) != before.1;
            assert_eq!((is_new, has_new_ca), expected, "{what}");
        };
        let remove = |path: &Path| std::fs::remove_file(path).unwrap();
        check(&|_| {}, (false, false), "nothing");
        check(&|it| remove(&it.certificate), (true, false), "certificate");
        check(&|it| remove(&it.key), (true, false), "key");
        // The certificate is still one that clients of the CA trust.
        check(&|it| remove(&it.ca_key), (false, false), "key of the CA");
        check(
            &|it| {
                let other = new_auto_authority("another", CA_DAYS, now).unwrap();
                other.write(dir.path(), CA_NAME).unwrap();
                assert!(it.ca_key.exists());
            },
            (true, true),
            "another CA",
        );
        let ca = fingerprint(&made.ca);
        renew(dir.path(), &names(), now).unwrap();
        assert_ne!(fingerprint(&made.ca), ca);
    }

    /// A directory from before there was a CA: the certificate signs itself, and some clients do not take it for a CA.
    #[test]
    fn certificate_without_a_ca_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let made = AutoFiles::of(dir.path());
        let old = new_auto_authority("old", 10, now).unwrap();
        old.write(dir.path(), NAME).unwrap();
        let before = fingerprint(&made.certificate);
        ensure(dir.path(), &names(), now).unwrap();
        assert_ne!(fingerprint(&made.certificate), before);
        assert!(made.ca.exists());
    }
}
