//! Clients with TLS and the real binary: their certificates, sessions that are resumed, connections that stay.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

use kedge::client::{ClientConnection, ManagementClient};
use kedge_tls::rustls::ClientConfig;
use kedge_tls::{ClientTls, Trust, Usage};
use rustix::process::Signal;

use crate::pki::{DAY, Https, LOGIN, Pki, fingerprint, metric, of_file};
use crate::process::{PASSWORD, PATIENCE, Server, USER, administrator, kedge, run, serve};

#[test]
fn client_certificates_name_users_until_they_are_revoked() {
    let pki = Pki::new();
    for name in [USER, "nobody"] {
        pki.make(name, Usage::Client, &[], SystemTime::now());
    }
    let other = Pki::new();
    other.make("stranger", Usage::Client, &[], SystemTime::now());
    for file in ["stranger.pem", "stranger-key.pem"] {
        std::fs::copy(other.path(file), pki.path(file)).expect("a copy");
    }
    let ca = format!("--client-ca={}", pki.path("ca.pem").display());
    let ask = |server: &Server, own: Option<&str>, login| {
        let mut https = Https::open(server, &pki.client(own), "127.0.0.1")?;
        https.get("/whoami", login)
    };
    let code = |reply: std::io::Result<(u16, String)>| reply.map(|(code, _)| code).ok();

    let server = pki.start(&["--client-certs=optional".to_owned(), ca.clone()]);
    let (status, body) = ask(&server, Some(USER), None).expect("a reply");
    assert!(status == 200 && body.contains(USER), "{body}");
    assert_eq!(code(ask(&server, Some("nobody"), None)), Some(401));
    assert_eq!(code(ask(&server, Some("nobody"), LOGIN)), Some(200));
    assert_eq!(
        code(ask(&server, Some(USER), Some((USER, "wrong")))),
        Some(401)
    );
    assert_eq!(code(ask(&server, None, None)), Some(401));
    assert_eq!(code(ask(&server, None, LOGIN)), Some(200));
    assert_eq!(code(ask(&server, Some("stranger"), LOGIN)), None);
    drop(server);

    let server = pki.start(&["--client-certs=mandatory".to_owned(), ca]);
    assert_eq!(code(ask(&server, Some(USER), None)), Some(200));
    assert_eq!(code(ask(&server, None, LOGIN)), None);
    let client = pki.client(Some(USER));
    let failed = "kedge_tls_handshake_failures_total{reason=\"no_client_certificate\"}";
    let deadline = Instant::now() + PATIENCE;
    while metric(&server, &client, failed) < 1.0 {
        assert!(Instant::now() < deadline, "the failure is not counted");
    }
}

#[test]
fn expired_and_revoked_client_certificates_are_refused() {
    let pki = Pki::new();
    let now = SystemTime::now();
    pki.make(USER, Usage::Client, &[], now);
    pki.make("expired", Usage::Client, &[], now - 20 * DAY);
    pki.revoke(&[]);
    let file = |flag: &str, name: &str| format!("--{flag}={}", pki.path(name).display());
    let server = pki.start(&[
        "--client-certs=mandatory".to_owned(),
        file("client-ca", "ca.pem"),
        file("client-crl", "crl.pem"),
    ]);
    // A client keeps its sessions, so that it would resume one.
    let client = pki.client(Some(USER));
    let ask = |client: &Arc<ClientConfig>| {
        let mut https = Https::open(&server, client, "127.0.0.1")?;
        https.get("/whoami", None)
    };
    assert_eq!(ask(&client).expect("a reply").0, 200);
    ask(&pki.client(Some("expired"))).expect_err("it is expired");
    let mut keep = Https::open(&server, &client, "127.0.0.1").expect("a handshake");
    assert_eq!(keep.get("/whoami", None).expect("a reply").0, 200);

    pki.revoke(&[USER]);
    server.signal(Signal::HUP);
    let deadline = Instant::now() + PATIENCE;
    while ask(&client).is_ok() {
        assert!(Instant::now() < deadline, "it is not revoked");
    }
    let (code, _) = keep.get("/whoami", None).expect("open connections stay");
    assert_eq!(code, 200);
    let (_, body) = keep.get("/metrics", None).expect("a reply");
    for reason in ["expired", "revoked"] {
        let none = format!("kedge_tls_handshake_failures_total{{reason=\"{reason}\"}} 0");
        assert!(!body.contains(&none), "{body}");
    }
}

/// Opens a connection to the key-value port with TLS.
fn open_kvs(server: &Server, client: &Arc<ClientConfig>) -> ClientConnection {
    let kvs = server.kvs.expect("it is served");
    let host = kvs.ip().to_string();
    let opened = ClientConnection::open_with(&host, kvs.port(), PATIENCE, Some(client));
    let ready = opened.and_then(|it| it.prepared(&administrator(), "default"));
    ready.expect("a connection")
}

#[test]
fn reloads_drop_no_connection_under_load() {
    const RELOADS: usize = 5;
    let pki = Pki::new();
    let server = pki.start(&[]);
    let client = pki.client(None);
    let open = || open_kvs(&server, &client);
    let is_over = AtomicBool::new(false);
    let served: Vec<AtomicU64> = (0..4).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for count in &served {
            let (mut connection, is_over) = (open(), &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    let found = connection.get(b"key").expect("the connection stays");
                    assert_eq!(found, None);
                    count.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let mut management = Https::open(&server, &client, "127.0.0.1").expect("a handshake");
        for _ in 0..RELOADS {
            pki.make("node", Usage::Node, &["127.0.0.1"], SystemTime::now());
            let path = "/node/controller/reloadCertificate";
            let (code, body) = management.send("POST", path, LOGIN).expect("a reply");
            assert_eq!(code, 200, "{body}");
            assert_eq!(
                fingerprint(&server, &client),
                of_file(&pki.path("node.pem"))
            );
            // Each connection is served under the new files.
            let before: Vec<u64> = served.iter().map(|it| it.load(Ordering::SeqCst)).collect();
            let deadline = Instant::now() + PATIENCE;
            for (count, before) in served.iter().zip(before) {
                while count.load(Ordering::SeqCst) < before + 2 {
                    assert!(Instant::now() < deadline, "a connection is not served");
                    std::thread::yield_now();
                }
            }
        }
        is_over.store(true, Ordering::SeqCst);
    });
    let reloads = metric(
        &server,
        &client,
        "kedge_tls_reloads_total{result=\"loaded\"}",
    );
    assert_eq!(reloads as usize, RELOADS);
}

#[test]
fn sessions_of_the_key_value_port_are_resumed() {
    let pki = Pki::new();
    let server = pki.start(&[]);
    let client = pki.client(None);
    let open = || open_kvs(&server, &client);
    let http = ManagementClient::new("127.0.0.1", server.mgmt.port(), USER, PASSWORD);
    let resumed =
        || http.json("/kedge/stats").expect("a reply")["server"]["tls_handshakes_resumed"].clone();
    let _first = open();
    assert_eq!(resumed(), "0");
    let _second = open();
    assert_eq!(resumed(), "1");
}

#[test]
fn demand_for_certificates_is_changed_and_stays_over_a_restart() {
    let pki = Pki::new();
    pki.make(USER, Usage::Client, &[], SystemTime::now());
    let ca = [format!("--client-ca={}", pki.path("ca.pem").display())];
    let server = pki.start(&ca);
    let path = "/settings/clientCertAuth";
    let (anyone, own) = (pki.client(None), pki.client(Some(USER)));
    let connect = |server: &Server, client| Https::open(server, client, "127.0.0.1");
    let mut management = connect(&server, &anyone).expect("a handshake");
    let mut post = |body: &str| management.post(path, LOGIN, body).expect("a reply");
    let mandatory =
        r#"{"state":"mandatory","prefixes":[{"path":"subject.cn","prefix":"","delimiter":""}]}"#;
    assert_eq!(post(mandatory).0, 202);
    assert_eq!(post(mandatory).0, 200);
    let (code, text) = post(r#"{"state":"hybrid","prefixes":[]}"#);
    assert!(code == 400 && text.contains("hybrid"), "{text}");
    let refused = |server: &Server| {
        let mut https = connect(server, &anyone)?;
        https.get("/whoami", LOGIN)
    };
    refused(&server).expect_err("it has no certificate");
    let ask = |server: &Server| {
        let mut https = connect(server, &own).expect("a handshake");
        https.get(path, None).expect("a reply")
    };
    assert_eq!(ask(&server), (200, mandatory.to_owned()));
    server.signal(Signal::TERM);
    assert!(server.wait().0.success());

    let server = pki.start(&ca);
    refused(&server).expect_err("it has no certificate");
    assert_eq!(ask(&server), (200, mandatory.to_owned()));
    server.signal(Signal::TERM);
    assert!(server.wait().0.success());

    // Without a CA there is nothing to demand, and the server says so.
    let refusal = Server::spawn(pki.command(&[]))
        .map(drop)
        .expect_err("no CA");
    assert!(
        refusal.contains("client certificates need a file"),
        "{refusal}"
    );
    std::fs::remove_file(pki.data().join("client-cert-auth.json")).expect("it is there");
    let server = pki.start(&[]);
    assert_eq!(refused(&server).expect("a reply").0, 200);
}

#[test]
fn commands_log_in_with_a_certificate() {
    let pki = Pki::new();
    pki.make(USER, Usage::Client, &[], SystemTime::now());
    let ca = pki.path("ca.pem").display().to_string();
    let server = pki.start(&[
        "--client-certs=mandatory".to_owned(),
        format!("--client-ca={ca}"),
    ]);
    let file = |name: &str| pki.path(name).display().to_string();
    let (cert, key) = (
        file(&format!("{USER}.pem")),
        file(&format!("{USER}-key.pem")),
    );
    let kvs = server.kvs.expect("it is served");
    let mgmts = server.mgmts.expect("it is served");
    let couchbases = format!("couchbases://{kvs}/default");
    let ask = |words: &[&str], more: &[&str]| {
        let mut command = kedge(words);
        let (code, output, errors) = run(command.args(["--ca", &ca]).args(more));
        (code == Some(0), output + &errors)
    };
    let own = ["--cert", &cert, "--key", &key];
    for words in [
        ["stats", "connections", "-U", &couchbases].as_slice(),
        &["bucket", "list", "-U", &couchbases],
        &["bucket", "list", "-U", &format!("https://{mgmts}")],
        &[
            "load",
            "-U",
            &couchbases,
            "--num-cycles=100",
            "--num-items=10",
        ],
    ] {
        let (succeeded, text) = ask(words, &own);
        assert!(succeeded, "{words:?}: {text}");
    }
    let list = ["bucket", "list", "-U", &couchbases];
    let (succeeded, text) = ask(&list, &["-u", USER, "-P", PASSWORD]);
    assert!(!succeeded, "{text}");
    let (succeeded, text) = ask(&list, &own[..2]);
    assert!(!succeeded && text.contains("--key"), "{text}");
    let plain = format!("couchbase://{}/default", server.kv);
    let (succeeded, text) = ask(&["bucket", "list", "-U", &plain], &own);
    assert!(!succeeded && text.contains("--cert needs TLS"), "{text}");
}

#[test]
fn sessions_are_resumed() {
    let pki = Pki::new();
    let server = pki.start(&[]);
    let client = pki.client(None);
    let resumed = "kedge_tls_handshakes_total{kind=\"resumed\"}";
    // The tickets of TLS 1.3 come after the handshake, with the reply.
    let before = metric(&server, &client, resumed);
    let deadline = Instant::now() + PATIENCE;
    while metric(&server, &client, resumed) <= before {
        assert!(Instant::now() < deadline, "no session is resumed");
    }
    let expiry = metric(&server, &client, "kedge_tls_certificate_expiry_seconds");
    assert!(
        (9.0 * 86_400.0..=10.0 * 86_400.0).contains(&expiry),
        "{expiry}"
    );
}

#[test]
fn kedge_cert_makes_what_the_server_accepts() {
    let above = tempfile::tempdir().expect("a directory");
    // It does not exist yet.
    let dir = above.path().join("pki");
    let place = dir.display().to_string();
    let mode = |path: &Path| {
        let permissions = path.metadata().expect("a file").permissions();
        std::os::unix::fs::PermissionsExt::mode(&permissions) & 0o777
    };
    let cert = |arguments: &[&str]| {
        let mut command = kedge(&["cert"]);
        command.args(arguments);
        let (code, output, errors) = run(&mut command);
        (code == Some(0), output + &errors)
    };
    assert!(cert(&["ca", "--dir", &place]).0);
    assert_eq!(mode(&dir), 0o700);
    let (succeeded, text) = cert(&["node", "db1", "--host", "127.0.0.1", "--dir", &place]);
    assert!(succeeded, "{text}");
    let (succeeded, text) = cert(&["node", "db1", "--dir", &place]);
    assert!(!succeeded && text.contains("give --force"), "{text}");
    assert!(cert(&["client", USER, "--san", "ada@example.com", "--dir", &place]).0);
    let (succeeded, text) = cert(&["show", &format!("{place}/{USER}.pem")]);
    assert!(succeeded && text.contains("ada@example.com"), "{text}");
    for file in ["ca-key.pem", "db1-key.pem"] {
        assert_eq!(mode(&dir.join(file)), 0o600, "{file}");
    }
    let flags = [
        format!("--tls-cert={place}/db1.pem"),
        format!("--tls-key={place}/db1-key.pem"),
        format!("--client-ca={place}/ca.pem"),
        "--client-certs=mandatory".to_owned(),
        "--kv-tls-port=0".to_owned(),
        "--mgmt-tls-port=0".to_owned(),
    ];
    let mut command = serve(&dir.join("data"), &[]);
    command.args(flags);
    let server = Server::spawn(command).expect("it starts");
    let own = ["", "-key"].map(|part| dir.join(format!("{USER}{part}.pem")));
    let [chain, key] = own;
    let trust = Trust::Ca(vec![dir.join("ca.pem")]);
    let own = Some((chain, key));
    let client = ClientTls { trust, own }
        .config()
        .expect("the files are valid");
    let mut https = Https::open(&server, &client, "127.0.0.1").expect("a handshake");
    assert_eq!(https.get("/whoami", None).expect("a reply").0, 200);
}
