//! Revocation lists, which `openssl ca` makes.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The least that `openssl ca` needs to revoke certificates.
const CONFIGURATION: &str = "\
[ca]
default_ca = own
[own]
database = index.txt
crlnumber = crlnumber
certificate = ca.pem
private_key = ca-key.pem
default_md = sha256
default_crl_days = 5
";

/// Writes the list of a CA, given by its certificate and key in PEM, with these revoked certificates.
pub(crate) fn write(path: &Path, (certificate, key): (&str, &str), revoked: &[PathBuf]) {
    let dir = tempfile::tempdir().expect("a directory");
    for (name, text) in [
        ("openssl.cnf", CONFIGURATION),
        ("index.txt", ""),
        ("crlnumber", "01\n"),
        ("ca.pem", certificate),
        ("ca-key.pem", key),
    ] {
        std::fs::write(dir.path().join(name), text).expect("a file");
    }
    let openssl = |arguments: &[&std::ffi::OsStr]| {
        let mut command = Command::new("openssl");
        command.args(["ca", "-config", "openssl.cnf", "-batch"]);
        let output = command.args(arguments).current_dir(dir.path()).output();
        let output = output.expect("openssl runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {errors}");
    };
    for file in revoked {
        openssl(&["-revoke".as_ref(), file.as_os_str()]);
    }
    openssl(&["-gencrl".as_ref(), "-out".as_ref(), path.as_os_str()]);
}
