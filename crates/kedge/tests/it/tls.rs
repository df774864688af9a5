//! TLS with the real binary: certificates that are wrong, made, replaced; ports and their documents.

use std::net::TcpStream;
use std::process::Command;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use kedge_tls::rustls::ClientConfig;
use kedge_tls::{ClientTls, Trust, Usage};
use rustix::process::Signal;

use crate::cluster::Cluster;
use crate::pki::{DAY, Https, LOGIN, Pki, fingerprint, metric, of_file};
use crate::process::{PASSWORD, PATIENCE, Server, USER, kedge, run};

#[test]
fn certificate_of_tls_auto_serves_kedges_commands_and_stays_over_restarts() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    let flags = ["--tls=auto", "--kv-tls-port=0", "--mgmt-tls-port=0"];
    let server = Server::start(&data, &flags);
    let fingerprint = of_file(&data.join("tls-auto.pem"));
    let file = data.join("tls-auto-ca.pem");
    let url = format!("https://{}", server.mgmts.expect("it serves TLS"));
    let file = file.display().to_string();
    let list = |trust: &[&str]| {
        let mut command = kedge(&["bucket", "list", "-U", &url, "-u", USER, "-P", PASSWORD]);
        command.args(trust);
        let (code, output, errors) = run(&mut command);
        (code == Some(0), output + &errors)
    };
    for trust in [["--ca", &file], ["--tls-fingerprint", &fingerprint]] {
        let (succeeded, text) = list(&trust);
        assert!(succeeded && text.contains("default"), "{text}");
    }
    let (succeeded, text) = list(&["--tls-fingerprint", &"00".repeat(32)]);
    assert!(!succeeded && text.contains("cannot connect"), "{text}");
    let (succeeded, text) = list(&[]);
    assert!(!succeeded && text.contains("TLS needs --ca FILE"), "{text}");

    server.signal(Signal::TERM);
    let (status, log) = server.wait();
    assert!(status.success());
    assert!(log.contains(&fingerprint), "{log}");
    let server = Server::start(&data, &flags);
    assert_eq!(of_file(&data.join("tls-auto.pem")), fingerprint);
    drop(server);

    // A new certificate is one of the same CA, so clients need no change.
    std::fs::remove_file(data.join("tls-auto.pem")).expect("it is there");
    let server = Server::start(&data, &flags);
    assert_ne!(of_file(&data.join("tls-auto.pem")), fingerprint);
    let url = format!("https://{}", server.mgmts.expect("it serves TLS"));
    let mut command = kedge(&["bucket", "list", "-U", &url, "-u", USER, "-P", PASSWORD]);
    let (code, output, errors) = run(command.args(["--ca", &file]));
    assert_eq!(code, Some(0), "{output}{errors}");
}

#[test]
fn new_ca_of_tls_auto_replaces_the_old_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let flags = ["--tls=auto", "--kv-tls-port=0", "--mgmt-tls-port=0"];
    let server = Server::start(dir.path(), &flags);
    let ca = dir.path().join("tls-auto-ca.pem");
    let trusting = || {
        let trust = Trust::Ca(vec![ca.clone()]);
        ClientTls { trust, own: None }.config().expect("a CA")
    };
    let text = || std::fs::read_to_string(&ca).expect("a file");
    let (old, before) = (trusting(), text());
    let mut https = Https::open(&server, &old, "127.0.0.1").expect("a handshake");
    let (code, body) = https
        .get("/pools/default/certificate", LOGIN)
        .expect("a reply");
    assert_eq!((code, &body), (200, &before));
    let path = "/controller/regenerateCertificate";
    let (code, body) = https.send("POST", path, LOGIN).expect("a reply");
    assert_eq!((code, &body), (200, &text()));
    assert_ne!(body, before);
    Https::open(&server, &old, "127.0.0.1")
        .map(drop)
        .expect_err("it is of the new CA");
    drop(Https::open(&server, &trusting(), "127.0.0.1").expect("a handshake"));
    drop(server);

    // Certificates of files belong to the operator.
    let pki = Pki::new();
    let server = pki.start(&[
        "--client-certs=optional".to_owned(),
        format!("--client-ca={}", pki.path("ca.pem").display()),
    ]);
    let mut https = Https::open(&server, &pki.client(None), "127.0.0.1").expect("a handshake");
    let (code, body) = https.send("POST", path, LOGIN).expect("a reply");
    assert!(code == 400 && body.contains("--tls auto"), "{body}");
    let path = "/pools/default/trustedCAs/0";
    let (code, body) = https.send("DELETE", path, LOGIN).expect("a reply");
    assert!(code == 400 && body.contains("ca.pem"), "{body}");
    let path = "/pools/default/trustedCAs/1";
    let (code, _) = https.send("DELETE", path, LOGIN).expect("a reply");
    assert_eq!(code, 404);
}

#[test]
fn client_refuses_a_server_of_another_ca_and_another_name() {
    let pki = Pki::new();
    let server = pki.start(&[]);
    let reason = |config: &Arc<ClientConfig>, host: &str| {
        let refused = Https::open(&server, config, host).map(drop);
        refused.expect_err("it is not trusted").to_string()
    };
    let error = reason(&Pki::new().client(None), "127.0.0.1");
    assert!(error.contains("invalid peer certificate"), "{error}");
    let error = reason(&pki.client(None), "db1.example.com");
    assert!(error.contains("not valid for name"), "{error}");
    let refusals = "kedge_tls_handshake_failures_total{reason=\"refused_by_client\"}";
    let client = pki.client(None);
    let deadline = Instant::now() + PATIENCE;
    while metric(&server, &client, refusals) < 2.0 {
        assert!(Instant::now() < deadline, "the refusals are not counted");
    }
}

#[test]
fn unusable_files_prevent_the_start_with_the_reason() {
    let pki = Pki::new();
    let refusal = |command| {
        Server::spawn(command)
            .map(drop)
            .expect_err("it must not start")
    };
    pki.make(
        "node",
        Usage::Node,
        &["127.0.0.1"],
        SystemTime::now() - 20 * DAY,
    );
    let error = refusal(pki.command(&[]));
    assert!(
        error.contains("CN=node") && error.contains("expired at"),
        "{error}"
    );
    pki.make("node", Usage::Node, &["127.0.0.1"], SystemTime::now());
    let key = format!("--tls-key={}", pki.path("ca-key.pem").display());
    let error = refusal(pki.command(&[key]));
    assert!(error.contains("does not fit the certificate"), "{error}");
    let error = refusal(pki.command(&["--client-certs=mandatory".to_owned()]));
    assert!(error.contains("client certificates need a file"), "{error}");
    let error = refusal(pki.command(&["--tls-cipher-suites=RC4".to_owned()]));
    assert!(error.contains("unknown cipher suite RC4"), "{error}");
    drop(pki.start(&[]));
}

#[test]
fn passphrase_comes_from_a_file_or_the_environment() {
    let pki = Pki::new();
    let mut convert = Command::new("openssl");
    convert.args([
        "pkcs8",
        "-topk8",
        "-in",
        "node-key.pem",
        "-out",
        "encrypted.pem",
    ]);
    convert
        .args(["-passout", "pass:of the key"])
        .current_dir(pki.dir.path());
    assert!(convert.status().expect("openssl runs").success());
    std::fs::write(pki.path("passphrase"), "of the key\n").expect("a file");
    let key = format!("--tls-key={}", pki.path("encrypted.pem").display());
    let file = format!(
        "--tls-key-passphrase-file={}",
        pki.path("passphrase").display()
    );
    drop(pki.start(&[key.clone(), file]));
    let with = |passphrase| {
        let mut command = pki.command(std::slice::from_ref(&key));
        command.env("KEDGE_TLS_KEY_PASSPHRASE", passphrase);
        Server::spawn(command).map(drop)
    };
    with("of the key").expect("it is right");
    let error = with("of another key").expect_err("it is wrong");
    assert!(error.contains("the passphrase does not decrypt"), "{error}");
    assert!(!error.contains("of another key"), "{error}");
}

#[test]
fn files_are_loaded_again_and_open_connections_stay() {
    let pki = Pki::new();
    let server = pki.start(&[]);
    let client = pki.client(None);
    let mut open = Https::open(&server, &client, "127.0.0.1").expect("a handshake");
    assert_eq!(open.get("/pools", LOGIN).expect("a reply").0, 200);
    let first = fingerprint(&server, &client);
    assert_eq!(first, of_file(&pki.path("node.pem")));

    // SIGHUP.
    pki.make("node", Usage::Node, &["127.0.0.1"], SystemTime::now());
    let second = of_file(&pki.path("node.pem"));
    server.signal(Signal::HUP);
    let deadline = Instant::now() + PATIENCE;
    while fingerprint(&server, &client) != second {
        assert!(Instant::now() < deadline, "the new certificate is not used");
    }
    // A request; one that is refused changes nothing.
    let reload = "/node/controller/reloadCertificate";
    pki.make(
        "node",
        Usage::Node,
        &["127.0.0.1"],
        SystemTime::now() - 20 * DAY,
    );
    let (code, body) = open.send("POST", reload, LOGIN).expect("a reply");
    assert!(code == 400 && body.contains("expired at"), "{code} {body}");
    assert_eq!(fingerprint(&server, &client), second);
    pki.make("node", Usage::Node, &["127.0.0.1"], SystemTime::now());
    let (code, body) = open.send("POST", reload, LOGIN).expect("a reply");
    assert_eq!((code, body.as_str()), (200, r#"{"warnings":[]}"#));
    let third = of_file(&pki.path("node.pem"));
    assert_eq!(fingerprint(&server, &client), third);
    // By itself.
    pki.make("node", Usage::Node, &["127.0.0.1"], SystemTime::now());
    let fourth = of_file(&pki.path("node.pem"));
    let deadline = Instant::now() + PATIENCE;
    while fingerprint(&server, &client) != fourth {
        assert!(Instant::now() < deadline, "the change is not noticed");
        std::thread::yield_now();
    }
    assert_eq!(open.get("/pools", LOGIN).expect("it stays open").0, 200);
}

#[test]
fn files_are_followed_without_a_port_of_management_with_tls() {
    let pki = Pki::new();
    let server = pki.start(&["--mgmt-tls-port=off".to_owned()]);
    assert!(server.mgmts.is_none() && server.kvs.is_some());
    let http =
        kedge::client::ManagementClient::new("127.0.0.1", server.mgmt.port(), USER, PASSWORD);
    let current = || {
        let status = http.json("/kedge/tls").expect("a reply");
        status["fingerprint"].as_str().expect("a text").to_owned()
    };
    assert_eq!(current(), of_file(&pki.path("node.pem")));
    pki.make("node", Usage::Node, &["127.0.0.1"], SystemTime::now());
    let second = of_file(&pki.path("node.pem"));
    let deadline = Instant::now() + PATIENCE;
    while current() != second {
        assert!(Instant::now() < deadline, "the change is not noticed");
        std::thread::yield_now();
    }
}

#[test]
fn sighup_does_not_end_a_server_without_tls() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(dir.path(), &[]);
    server.signal(Signal::HUP);
    server.signal(Signal::TERM);
    let (status, log) = server.wait();
    assert!(status.success(), "{status:?}: {log}");
}

#[test]
fn documents_name_the_ports_of_tls_only_if_they_are_served() {
    let pki = Pki::new();
    let server = pki.start(&[]);
    let port = server.mgmts.expect("it serves TLS").port();
    let client = pki.client(None);
    let mut https = Https::open(&server, &client, "127.0.0.1").expect("a handshake");
    let (_, body) = https
        .get("/pools/default/nodeServices", LOGIN)
        .expect("a reply");
    let services: serde_json::Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(services["nodesExt"][0]["services"]["mgmtSSL"], port);
    let (_, body) = https.get("/pools/default", LOGIN).expect("a reply");
    let pool: serde_json::Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(pool["nodes"][0]["ports"]["httpsMgmt"], port);
    drop(server);
    let server = Server::start(&pki.data(), &[]);
    assert!(server.mgmts.is_none());
    let http =
        kedge::client::ManagementClient::new("127.0.0.1", server.mgmt.port(), USER, PASSWORD);
    let services = http.json("/pools/default/nodeServices").expect("services");
    assert!(services["nodesExt"][0]["services"].get("mgmtSSL").is_none());
}

#[test]
fn map_of_a_cluster_has_the_ports_of_tls_of_all_nodes() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(dir.path(), &["--nodes=2", "--replicas=1", "--tls=auto"]);
    let client = cluster.http(0);
    let deadline = Instant::now() + PATIENCE;
    // Each node puts its ports into the map after its start.
    let ports = loop {
        let services = client
            .json("/pools/default/nodeServices")
            .expect("services");
        let nodes = services["nodesExt"].as_array().expect("nodes").clone();
        let of = |name: &str| -> Option<Vec<u64>> {
            let ports = nodes.iter().map(|node| node["services"][name].as_u64());
            ports.collect()
        };
        if let (Some(kv), Some(mgmt)) = (of("kvSSL"), of("mgmtSSL")) {
            break [kv, mgmt].concat();
        }
        assert!(Instant::now() < deadline, "{services}");
    };
    assert_eq!(ports.len(), 4);
    for port in ports {
        let port = u16::try_from(port).expect("a port");
        TcpStream::connect(("127.0.0.1", port)).expect("the port is open");
    }
}
