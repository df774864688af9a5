//! Handshakes between a server and clients in memory, with certificates in files.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rcgen::{
    CertificateParams, CertificateRevocationListParams, Issuer, KeyIdMethod, KeyPair,
    RevokedCertParams, SerialNumber,
};
use rustls::pki_types::ServerName;
use rustls::{CertificateError, ClientConfig, ClientConnection, HandshakeKind, ServerConnection};
use zeroize::Zeroizing;

use super::*;
use crate::client::{ClientTls, Trust};
use crate::issue::{Issued, Request, Usage, issue, new_authority};
use crate::metrics::FailureReason;
use crate::names::{NameRule, NameRules, NameSource};

const DAY: Duration = Duration::from_secs(86_400);

/// A directory with a CA, and the certificate of a node that it signed.
pub(super) struct World {
    pub(super) dir: tempfile::TempDir,
    ca: Issued,
}

impl World {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let ca = new_authority("Test CA", 30, SystemTime::now()).unwrap();
        ca.write(dir.path(), "ca").unwrap();
        let world = Self { dir, ca };
        world.node("node", SystemTime::now());
        world
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(super) fn issue(
        &self,
        usage: Usage,
        common_name: &str,
        names: &[&str],
        now: SystemTime,
    ) -> Issued {
        let request = Request {
            usage,
            common_name: common_name.to_owned(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            days: 10,
        };
        issue((&self.ca.certificate, &self.ca.key), &request, now).unwrap()
    }

    pub(super) fn node(&self, file: &str, now: SystemTime) {
        let issued = self.issue(Usage::Node, "db1", &["localhost", "127.0.0.1"], now);
        issued.write(self.dir.path(), file).unwrap();
    }

    pub(super) fn client(&self, common_name: &str) -> (PathBuf, PathBuf) {
        let issued = self.issue(Usage::Client, common_name, &[], SystemTime::now());
        issued
            .write(self.dir.path(), &format!("client-{common_name}"))
            .unwrap()
    }

    pub(super) fn options(&self) -> TlsOptions {
        TlsOptions {
            certificate: self.path("node.pem"),
            key: self.path("node-key.pem"),
            ..TlsOptions::default()
        }
    }

    fn with_clients(&self, mode: ClientCerts) -> TlsOptions {
        let mut options = self.options();
        options.client_auth.mode = mode;
        options.client_auth.ca = vec![self.path("ca.pem")];
        options
    }

    pub(super) fn trusting(&self, own: Option<(PathBuf, PathBuf)>) -> Arc<ClientConfig> {
        let trust = Trust::Ca(vec![self.path("ca.pem")]);
        ClientTls { trust, own }.config().unwrap()
    }
}

pub(super) fn open(options: TlsOptions) -> Result<ServerTls, TlsError> {
    ServerTls::open(options, SystemTime::now())
}

/// Runs a handshake; an error is that of the side that found it.
pub(super) fn handshake(
    server: &ServerTls,
    client: Arc<ClientConfig>,
    name: &str,
) -> Result<(ServerConnection, ClientConnection), rustls::Error> {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(client, name)?;
    let mut server = ServerConnection::new(server.config())?;
    for _ in 0..8 {
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            server.read_tls(&mut rest).unwrap();
            server.process_new_packets()?;
        }
        bytes.clear();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
            client.process_new_packets()?;
        }
    }
    assert!(!client.is_handshaking() && !server.is_handshaking());
    Ok((server, client))
}

pub(super) fn run_openssl(dir: &Path, arguments: &str) {
    let mut command = Command::new("openssl");
    command.args(arguments.split(' ')).current_dir(dir);
    let output = command.stdin(Stdio::null()).output().expect("openssl");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "openssl {arguments}: {errors}");
}

#[test]
fn client_that_trusts_the_ca_connects_and_others_do_not() {
    let world = World::new();
    let server = open(world.options()).unwrap();
    for name in ["localhost", "127.0.0.1"] {
        handshake(&server, world.trusting(None), name).unwrap();
    }
    let error = handshake(&server, world.trusting(None), "other.example").unwrap_err();
    let is_name = matches!(
        error,
        rustls::Error::InvalidCertificate(CertificateError::NotValidForNameContext { .. })
    );
    assert!(is_name, "{error:?}");

    let other = World::new();
    let error = handshake(&server, other.trusting(None), "localhost").unwrap_err();
    assert_eq!(
        FailureReason::of(&error),
        FailureReason::BadCertificate,
        "{error:?}"
    );

    let pinned = |fingerprint| ClientTls {
        trust: Trust::Fingerprint(fingerprint),
        own: None,
    };
    let right = pinned(server.fingerprint()).config().unwrap();
    handshake(&server, right, "other.example").unwrap();
    let wrong = pinned("00".repeat(32)).config().unwrap();
    handshake(&server, wrong, "localhost").unwrap_err();
}

#[test]
fn keys_of_all_forms_are_read() {
    let world = World::new();
    let dir = world.dir.path();
    for command in [
        "genrsa -traditional -out pkcs1.key 2048",
        "ecparam -name prime256v1 -genkey -noout -out sec1.key",
        "genpkey -algorithm ed25519 -out pkcs8.key",
        "pkcs8 -topk8 -in sec1.key -out encrypted.key -passout pass:secret",
        "pkcs8 -topk8 -in pkcs1.key -out scrypt.key -scrypt -passout pass:secret",
    ] {
        run_openssl(dir, command);
    }
    std::fs::write(world.path("passphrase"), "secret\n").unwrap();
    for (key, from) in [
        ("pkcs1.key", "pkcs1.key"),
        ("sec1.key", "sec1.key"),
        ("pkcs8.key", "pkcs8.key"),
        ("encrypted.key", "sec1.key"),
        ("scrypt.key", "pkcs1.key"),
    ] {
        let request = "req -x509 -days 2 -subj /CN=db1 -addext subjectAltName=DNS:localhost -out own.pem -key ";
        run_openssl(dir, &format!("{request}{from}"));
        let options = TlsOptions {
            certificate: world.path("own.pem"),
            key: world.path(key),
            passphrase: Passphrase::File(world.path("passphrase")),
            ..TlsOptions::default()
        };
        let server = open(options).unwrap_or_else(|error| panic!("{key}: {error}"));
        let trust = Trust::Fingerprint(server.fingerprint());
        let client = ClientTls { trust, own: None }.config().unwrap();
        handshake(&server, client, "localhost").unwrap();
    }
    let mut options = world.options();
    options.key = world.path("encrypted.key");
    let error = open(options.clone()).unwrap_err();
    assert!(
        matches!(error, TlsError::PassphraseNeeded { .. }),
        "{error}"
    );
    options.passphrase = Passphrase::Text(Zeroizing::new("the wrong one".to_owned()));
    let error = open(options.clone()).unwrap_err();
    assert!(
        !format!("{error} {options:?}").contains("the wrong one"),
        "{error}"
    );
    assert!(matches!(error, TlsError::WrongPassphrase { .. }), "{error}");
    options.passphrase = Passphrase::Text(Zeroizing::new("secret".to_owned()));
    // It is decrypted, and is that of another certificate.
    let error = open(options).unwrap_err();
    assert!(matches!(error, TlsError::KeyMismatch { .. }), "{error}");
}

#[test]
fn wrong_files_are_named() {
    let world = World::new();
    let open_with = |change: &dyn Fn(&mut TlsOptions)| {
        let mut options = world.options();
        change(&mut options);
        open(options).unwrap_err().to_string()
    };
    let missing = open_with(&|it| it.certificate = world.path("none.pem"));
    assert!(
        missing.starts_with("cannot read ") && missing.contains("none.pem"),
        "{missing}"
    );
    let error = open_with(&|it| it.certificate = world.path("node-key.pem"));
    assert!(
        error.ends_with("node-key.pem has no certificate"),
        "{error}"
    );
    let error = open_with(&|it| it.key = world.path("node.pem"));
    assert!(error.ends_with("node.pem has no private key"), "{error}");
    let error = open_with(&|it| it.key = world.path("ca-key.pem"));
    assert!(
        error.contains("ca-key.pem does not fit the certificate in "),
        "{error}"
    );
    std::fs::write(
        world.path("half.pem"),
        "-----BEGIN CERTIFICATE-----\nAAAA\n",
    )
    .unwrap();
    let error = open_with(&|it| it.certificate = world.path("half.pem"));
    assert!(
        error.contains("half.pem is not a valid PEM file"),
        "{error}"
    );
    let error = open_with(&|it| it.client_auth.mode = ClientCerts::Optional);
    assert!(error.contains("client certificates need a file"), "{error}");
}

#[test]
fn expired_certificate_is_refused_and_the_old_one_stays_after_a_reload() {
    let world = World::new();
    let now = SystemTime::now();
    let server = open(world.options()).unwrap();
    let fingerprint = server.fingerprint();
    let error = ServerTls::open(world.options(), now + 11 * DAY).unwrap_err();
    assert!(matches!(error, TlsError::Expired { .. }), "{error}");
    assert!(error.to_string().contains("CN=db1"), "{error}");
    let error = ServerTls::open(world.options(), now - DAY).unwrap_err();
    assert!(matches!(error, TlsError::NotYetValid { .. }), "{error}");

    world.node("node", now - 20 * DAY);
    let error = server.reload().unwrap_err();
    assert!(matches!(error, TlsError::Expired { .. }), "{error}");
    assert_eq!(server.fingerprint(), fingerprint);
    handshake(&server, world.trusting(None), "localhost").unwrap();

    world.node("node", now);
    server.reload().unwrap();
    assert_ne!(server.fingerprint(), fingerprint);
    assert_eq!(server.metrics().reloads(), (1, 1));
    handshake(&server, world.trusting(None), "localhost").unwrap();
}

#[test]
fn changed_files_are_loaded_once() {
    let world = World::new();
    let now = SystemTime::now();
    let server = open(world.options()).unwrap();
    assert!(!server.reload_if_changed(now).unwrap());
    world.node("node", now);
    let file = std::fs::File::open(world.path("node.pem")).unwrap();
    file.set_modified(now + DAY).unwrap();
    assert!(server.reload_if_changed(now).unwrap());
    assert!(!server.reload_if_changed(now).unwrap());
    std::fs::remove_file(world.path("node-key.pem")).unwrap();
    server.reload_if_changed(now).unwrap_err();
    assert!(
        !server.reload_if_changed(now).unwrap(),
        "an error is reported once"
    );
}

#[test]
fn client_certificates_are_off_optional_or_mandatory() {
    let world = World::new();
    let alice = world.trusting(Some(world.client("alice")));
    let nobody = world.trusting(None);
    let stranger = {
        let other = World::new();
        let (chain, key) = other.client("alice");
        let copy = |from: &Path, to: &str| {
            std::fs::copy(from, world.path(to)).unwrap();
            world.path(to)
        };
        world.trusting(Some((copy(&chain, "s.pem"), copy(&key, "s-key.pem"))))
    };
    let user = |server: &ServerTls, client: &Arc<ClientConfig>| {
        handshake(server, Arc::clone(client), "localhost")
            .map(|(connection, _)| server.user_of(&connection).unwrap())
    };
    let server = open(world.options()).unwrap();
    assert_eq!(user(&server, &alice).unwrap(), None);

    let server = open(world.with_clients(ClientCerts::Optional)).unwrap();
    assert_eq!(user(&server, &alice).unwrap(), Some("alice".to_owned()));
    assert_eq!(user(&server, &nobody).unwrap(), None);
    let error = user(&server, &stranger).unwrap_err();
    assert_eq!(
        FailureReason::of(&error),
        FailureReason::BadCertificate,
        "{error:?}"
    );

    let server = open(world.with_clients(ClientCerts::Mandatory)).unwrap();
    assert_eq!(user(&server, &alice).unwrap(), Some("alice".to_owned()));
    let error = user(&server, &nobody).unwrap_err();
    assert_eq!(
        FailureReason::of(&error),
        FailureReason::NoClientCertificate,
        "{error:?}"
    );
    user(&server, &stranger).unwrap_err();
}

#[test]
fn certificate_that_matches_no_rule_names_no_user() {
    let world = World::new();
    let mut options = world.with_clients(ClientCerts::Optional);
    let rule = NameRule {
        path: NameSource::SubjectCn,
        prefix: "kedge:".to_owned(),
        delimiter: String::new(),
    };
    options.client_auth.names = NameRules::new(vec![rule]).unwrap();
    let server = open(options).unwrap();
    let client = world.trusting(Some(world.client("alice")));
    let (connection, _) = handshake(&server, client, "localhost").unwrap();
    assert_eq!(server.user_of(&connection), Err(NameError::NoMatch));
}

/// Writes a revocation list of the CA with these certificates.
fn revoke(world: &World, files: &[&Path], now: SystemTime) {
    let serial = |path: &&Path| {
        let der = files::certificates(path).unwrap().remove(0);
        let parsed = x509_parser::parse_x509_certificate(&der).unwrap().1;
        RevokedCertParams {
            serial_number: SerialNumber::from_slice(parsed.raw_serial()),
            revocation_time: (now - DAY).into(),
            reason_code: None,
            invalidity_date: None,
        }
    };
    let params = CertificateRevocationListParams {
        this_update: (now - DAY).into(),
        next_update: (now + DAY).into(),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: files.iter().map(serial).collect(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    let key = KeyPair::from_pem(&world.ca.key).unwrap();
    let issuer = Issuer::from_ca_cert_pem(&world.ca.certificate, key).unwrap();
    let list = params.signed_by(&issuer).unwrap().pem().unwrap();
    std::fs::write(world.path("crl.pem"), list).unwrap();
}

#[test]
fn revoked_client_is_refused_after_a_reload_even_if_it_resumes() {
    let world = World::new();
    let now = SystemTime::now();
    let (chain, key) = world.client("alice");
    let alice = world.trusting(Some((chain.clone(), key)));
    let bob = world.trusting(Some(world.client("bob")));
    revoke(&world, &[], now);
    let mut options = world.with_clients(ClientCerts::Mandatory);
    options.client_auth.crl = vec![world.path("crl.pem")];
    let server = open(options).unwrap();
    handshake(&server, Arc::clone(&alice), "localhost").unwrap();
    let (connection, _) = handshake(&server, Arc::clone(&alice), "localhost").unwrap();
    assert_eq!(connection.handshake_kind(), Some(HandshakeKind::Resumed));

    revoke(&world, &[&chain], now);
    server.reload().unwrap();
    let error = handshake(&server, alice, "localhost").unwrap_err();
    assert_eq!(
        FailureReason::of(&error),
        FailureReason::Revoked,
        "{error:?}"
    );
    handshake(&server, bob, "localhost").unwrap();

    // An old list does not say who was revoked since.
    revoke(&world, &[], now - 9 * DAY);
    server.reload().unwrap();
    handshake(
        &server,
        world.trusting(Some(world.client("carol"))),
        "localhost",
    )
    .unwrap_err();
}

#[test]
fn sessions_are_resumed_with_both_versions() {
    let world = World::new();
    let server = open(world.with_clients(ClientCerts::Optional)).unwrap();
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let (chain, key) = world.client("alice");
        let key = key::read(&key, &Passphrase::None).unwrap();
        let roots = files::roots(&[world.path("ca.pem")]).unwrap();
        let client = ClientConfig::builder_with_provider(provider::provider())
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(files::certificates(&chain).unwrap(), key)
            .unwrap();
        let client = Arc::new(client);
        let (first, _) = handshake(&server, Arc::clone(&client), "localhost").unwrap();
        assert_ne!(first.handshake_kind(), Some(HandshakeKind::Resumed));
        let (second, _) = handshake(&server, client, "localhost").unwrap();
        assert_eq!(
            second.handshake_kind(),
            Some(HandshakeKind::Resumed),
            "{version:?}"
        );
        assert_eq!(second.protocol_version(), Some(version.version));
        assert_eq!(server.user_of(&second), Ok(Some("alice".to_owned())));
    }
}

#[test]
fn minimum_version_refuses_older_clients() {
    let world = World::new();
    let mut options = world.options();
    options.min_version = MinVersion::Tls13;
    let server = open(options).unwrap();
    let roots = files::roots(&[world.path("ca.pem")]).unwrap();
    let old = ClientConfig::builder_with_provider(provider::provider())
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let error = handshake(&server, Arc::new(old), "localhost").unwrap_err();
    assert_eq!(
        FailureReason::of(&error),
        FailureReason::Incompatible,
        "{error:?}"
    );
    handshake(&server, world.trusting(None), "localhost").unwrap();
}

#[test]
fn chain_with_an_intermediate_ca_is_sent_whole() {
    let world = World::new();
    let now = SystemTime::now();
    let middle_key = KeyPair::generate().unwrap();
    let root = Issuer::from_ca_cert_pem(
        &world.ca.certificate,
        KeyPair::from_pem(&world.ca.key).unwrap(),
    )
    .unwrap();
    let mut params = CertificateParams::default();
    params.not_before = (now - DAY).into();
    params.not_after = (now + DAY).into();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let middle = params.signed_by(&middle_key, &root).unwrap().pem();
    let request = Request {
        usage: Usage::Node,
        common_name: "db1".to_owned(),
        names: vec!["localhost".to_owned()],
        days: 1,
    };
    let leaf = issue((&middle, &middle_key.serialize_pem()), &request, now).unwrap();
    std::fs::write(world.path("node.pem"), leaf.certificate.clone() + &middle).unwrap();
    std::fs::write(world.path("node-key.pem"), &leaf.key).unwrap();
    let server = open(world.options()).unwrap();
    handshake(&server, world.trusting(None), "localhost").unwrap();

    std::fs::write(world.path("node.pem"), &leaf.certificate).unwrap();
    server.reload().unwrap();
    handshake(&server, world.trusting(None), "localhost").unwrap_err();
}
