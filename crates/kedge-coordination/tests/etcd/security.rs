//! Certificates and users.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kedge_coordination::etcd::{EtcdConfig, EtcdUser};
use kedge_coordination::{CoordinationError, Coordinator, Transaction};
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

use crate::contract::{LONG, next_changes, put, value};
use crate::servers::{Release, Servers};
use crate::{admin, open};

/// An authority whose certificate is in `ca.pem` of a directory.
fn authority(dir: &Path) -> Issuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let certificate = params.self_signed(&key).expect("a certificate");
    fs::write(dir.join("ca.pem"), certificate.pem()).expect("written");
    Issuer::new(params, key)
}

/// A certificate and its key, as files.
fn issue(issuer: &Issuer<'static, KeyPair>, dir: &Path, name: &str) -> (PathBuf, PathBuf) {
    let names = vec!["etcd.test".to_owned(), "127.0.0.1".to_owned()];
    let mut params = CertificateParams::new(names).expect("valid names");
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    let key = KeyPair::generate().expect("a key");
    let certificate = params.signed_by(&key, issuer).expect("a certificate");
    let paths = ["pem", "key"].map(|kind| dir.join(format!("{name}.{kind}")));
    fs::write(&paths[0], certificate.pem()).expect("written");
    fs::write(&paths[1], key.serialize_pem()).expect("written");
    let [certificate, key] = paths;
    (certificate, key)
}

fn assert_unreachable(config: EtcdConfig) {
    let error = open(config, None).read(Duration::from_secs(1));
    let error = error.expect_err("the certificates do not fit");
    assert!(
        matches!(error, CoordinationError::Unreachable(_)),
        "{error}"
    );
}

pub(crate) fn connections_use_certificates(release: Release) {
    let dir = tempfile::tempdir().expect("a directory");
    let other_dir = tempfile::tempdir().expect("a directory");
    let issuer = authority(dir.path());
    let other = authority(other_dir.path());
    let server = issue(&issuer, dir.path(), "server");
    let client = issue(&issuer, dir.path(), "client");
    let stranger = issue(&other, other_dir.path(), "stranger");
    let ca = dir.path().join("ca.pem");
    let options = vec![
        format!("--cert-file={}", server.0.display()),
        format!("--key-file={}", server.1.display()),
        format!("--trusted-ca-file={}", ca.display()),
        "--client-cert-auth".to_owned(),
    ];
    let servers = Servers::start_tls(release, dir, options);
    let plain = servers.config();
    let address = |ca: &Path, identity: &(PathBuf, PathBuf), more: &str| {
        let (certificate, key) = (identity.0.display(), identity.1.display());
        let host = servers.members[0].address();
        let ca = ca.display();
        let url = format!("etcd://{host}/kedge/test?ca={ca}&cert={certificate}&key={key}{more}");
        url.parse::<EtcdConfig>().expect("a valid address")
    };
    for more in ["", "&server-name=etcd.test"] {
        let store = open(address(&ca, &client, more), None);
        let revision = put(&store, "a", "1");
        let mut watch = store.watch(revision).expect("watched");
        let next = put(&store, "a", "2");
        assert_eq!(next_changes(&mut *watch).0, next);
    }
    assert_unreachable(plain);
    assert_unreachable(address(&ca, &client, "&server-name=other.test"));
    assert_unreachable(address(&ca, &stranger, ""));
    assert_unreachable(address(&other_dir.path().join("ca.pem"), &client, ""));
    let error = open(address(Path::new("/none"), &client, ""), None).read(LONG);
    let error = error.expect_err("there is no such file");
    assert!(matches!(error, CoordinationError::Invalid(_)), "{error}");
}

fn with_user(servers: &Servers, password: &str) -> EtcdConfig {
    let file = servers.dir.path().join(format!("password-{password}"));
    fs::write(&file, format!("{password}\n")).expect("written");
    let mut config = servers.config();
    config.user = Some(EtcdUser {
        name: "kedge".to_owned(),
        password_file: file,
    });
    config
}

pub(crate) fn users_have_permissions(release: Release) {
    let servers = Servers::start(release, 1);
    admin::enable_users(&servers);
    let store = open(with_user(&servers, "secret"), None);
    let revision = put(&store, "a", "1");
    let mut watch = store.watch(revision).expect("watched");
    let next = put(&store, "b", "2");
    assert_eq!(next_changes(&mut *watch).0, next);

    let mut elsewhere = with_user(&servers, "secret");
    elsewhere.prefix = "kedge/other".to_owned();
    for config in [elsewhere, with_user(&servers, "wrong"), servers.config()] {
        let stranger = open(config, None);
        let mut watch = stranger.watch(revision).expect("not known yet");
        let change = Transaction::new().put("a", "3");
        let errors = [
            stranger.read(LONG).map(|_| ()),
            stranger.transact(&change, LONG).map(|_| ()),
        ];
        for error in errors {
            let error = error.expect_err("it is not permitted");
            assert!(
                matches!(error, CoordinationError::NoPermission(_)),
                "{error}"
            );
        }
        let error = loop {
            match watch.next(Duration::from_millis(100)) {
                Ok(None) => {}
                other => break other.expect_err("it is not permitted"),
            }
        };
        assert!(
            matches!(error, CoordinationError::NoPermission(_)),
            "{error}"
        );
    }
    assert_eq!(value(&store, "a").as_deref(), Some(&b"1"[..]));
}

/// etcd forgets its tokens when it is restarted, and five minutes after their last use.
pub(crate) fn expired_tokens_are_replaced(release: Release) {
    let mut servers = Servers::start(release, 1);
    admin::enable_users(&servers);
    let store = open(with_user(&servers, "secret"), None);
    let revision = put(&store, "a", "1");
    let mut watch = store.watch(revision).expect("watched");
    servers.kill(0);
    servers.start_member(0);
    let next = loop {
        match store.transact(&Transaction::new().put("a", "2"), LONG) {
            Ok(revision) => break revision,
            Err(CoordinationError::Unreachable(_) | CoordinationError::OutcomeUnknown(_)) => {}
            Err(error) => panic!("{error}"),
        }
    };
    loop {
        match watch.next(LONG) {
            Ok(Some(event)) => {
                let text = format!("{event:?}");
                assert!(
                    text.contains(&format!("{next:?}")) || text.contains("key: \"a\""),
                    "{text}"
                );
                break;
            }
            Ok(None) | Err(CoordinationError::Unreachable(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}
