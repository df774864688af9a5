//! Errors.

use std::io;
use std::path::PathBuf;

/// The reason why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read or written.
    #[error("cannot {operation} {}: {source}", path.display())]
    File {
        /// The operation: `read`, `write`, `create`, `remove`.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A file is not valid PEM, or something in it cannot be parsed.
    #[error("{} is not a valid PEM file: {why}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// A file lacks what it is for.
    #[error("{} has no {missing}", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// The missing object: `certificate`, `private key`.
        missing: &'static str,
    },
    /// The authorities of a service's certificate cannot be used.
    #[error("the authorities of certificates cannot be used: {0}")]
    Authorities(String),
    /// A certificate cannot be parsed.
    #[error("a certificate in {} cannot be used: {why}", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The certificate is expired.
    #[error("the certificate {subject} in {} expired at {not_after}; give a newer one", path.display())]
    Expired {
        /// The file.
        path: PathBuf,
        /// Its subject.
        subject: String,
        /// The end of its validity.
        not_after: String,
    },
    /// The validity of the certificate has not begun.
    #[error(
        "the certificate {subject} in {} is not valid before {not_before}; check the clock of this machine",
        path.display()
    )]
    NotYetValid {
        /// The file.
        path: PathBuf,
        /// Its subject.
        subject: String,
        /// The begin of its validity.
        not_before: String,
    },
    /// The private key does not belong to the certificate.
    #[error("the private key in {} does not fit the certificate in {}", key.display(), certificate.display())]
    KeyMismatch {
        /// The file of the key.
        key: PathBuf,
        /// The file of the certificate.
        certificate: PathBuf,
    },
    /// The private key is of an unknown kind or damaged.
    #[error("the private key in {} cannot be used: {why}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The private key is encrypted, and no passphrase is given.
    #[error(
        "the private key in {} is encrypted; give its passphrase in a file or in KEDGE_TLS_KEY_PASSPHRASE",
        path.display()
    )]
    PassphraseNeeded {
        /// The file.
        path: PathBuf,
    },
    /// The passphrase does not decrypt the private key.
    #[error("the passphrase does not decrypt the private key in {}", path.display())]
    WrongPassphrase {
        /// The file.
        path: PathBuf,
    },
    /// Client certificates are asked for without a CA that signs them.
    #[error("client certificates need a file with the CAs that sign them")]
    NoClientCa,
    /// The CAs or revocation lists of client certificates cannot be used.
    #[error("the CAs and revocation lists of client certificates cannot be used: {0}")]
    ClientAuth(String),
    /// The file with the demand for client certificates that management has set cannot be used.
    #[error("{} is not what management wrote: {why}; remove it to use the settings", path.display())]
    ClientDemand {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The CAs of the nodes of the cluster cannot be used.
    #[error("the CAs of the cluster's nodes cannot be used: {0}")]
    NodeCa(String),
    /// The CAs of the nodes of the cluster are not given, and the chain of this node's certificate does not have one.
    #[error(
        "{} does not end with the CA that signed the certificate: give the CAs of the nodes' certificates in cluster_ca",
        path.display()
    )]
    NoNodeCa {
        /// The file.
        path: PathBuf,
    },
    /// A cipher suite is unknown.
    #[error("unknown cipher suite {name}; known are {known}")]
    UnknownCipherSuite {
        /// The name as given.
        name: String,
        /// The names of all suites.
        known: String,
    },
    /// No cipher suite is left for the versions that may be used.
    #[error("none of the cipher suites is one of TLS 1.3, which is the minimum version")]
    NoCipherSuite,
    /// The fingerprint of a server is not in the form of SHA-256.
    #[error("a fingerprint is 32 bytes in hexadecimal, with or without colons")]
    BadFingerprint,
    /// A certificate cannot be made.
    #[error("cannot make a certificate: {0}")]
    Issue(#[from] rcgen::Error),
    /// The TLS library refuses the configuration.
    #[error("TLS cannot be set up: {0}")]
    Library(#[from] rustls::Error),
}

/// The reason why a client certificate gives no user name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The certificate cannot be parsed.
    #[error("the client certificate cannot be parsed")]
    Malformed,
    /// No name of the certificate matches a rule.
    #[error("no name in the client certificate matches the rules of user names")]
    NoMatch,
    /// The first matching name is not one that a user can have.
    #[error(
        "the name in the client certificate has characters that no user name has, or is too long"
    )]
    Invalid,
}
