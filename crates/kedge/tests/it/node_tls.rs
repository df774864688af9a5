//! TLS between the nodes of a cluster of real processes, seen from outside.

use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kedge::client::{ClientConnection, LoginCredentials};
use kedge_auth::Mechanism;
use kedge_cluster::CLUSTER_USER;
use kedge_tls::{DevelopmentCa, Request, Usage, issue};
use kedge_types::Status;
use serde_json::Value;

use crate::capture::{check_records, has};
use crate::captured_cluster::CapturedCluster;
use crate::cluster::{Cluster, LEVELS, is_whole, put_durably, value_of};
use crate::process::{PASSWORD, PATIENCE, USER};

fn key(n: usize) -> String {
    format!("key-of-the-capture-{n}")
}

const VALUE: &str = "value-of-the-capture";

fn write(cluster: &CapturedCluster, nodes: &[usize], keys: std::ops::Range<usize>) {
    let mut connections = cluster.connect_to(nodes);
    for n in keys {
        put_durably(&mut connections, &key(n), VALUE, LEVELS[n % 3]);
    }
}

fn check_documents(cluster: &CapturedCluster, nodes: &[usize], count: usize) {
    let mut connections = cluster.connect_to(nodes);
    for n in 0..count {
        let value = value_of(&mut connections, &key(n));
        assert_eq!(value.as_deref(), Some(VALUE), "{n}");
    }
}

/// The words that no capture of encrypted traffic has.
fn words(cluster: &CapturedCluster) -> Vec<String> {
    let secret = cluster.secret();
    let login = STANDARD.encode(format!("{CLUSTER_USER}:{secret}"));
    let plain = ["HTTP/1.", "vBucketServerMap", "kedge", "default", "Basic "];
    let given = [
        VALUE,
        "key-of-the-capture",
        USER,
        PASSWORD,
        CLUSTER_USER,
        &secret,
        &login,
    ];
    let all = plain.iter().chain(&given);
    all.map(|word| (*word).to_owned()).collect()
}

#[test]
fn nodes_without_plain_ports_replicate_fail_over_and_rebalance_and_send_no_plain_byte() {
    let mut cluster = CapturedCluster::start(3, 1, true);
    assert_eq!(cluster.endpoint(1).status()["encryption"], "mutual_tls");
    write(&cluster, &[0, 1, 2], 0..60);
    cluster.kill(2);
    let deadline = Instant::now() + PATIENCE;
    // Refused until the node has found out for itself.
    while cluster.tool(0, &["failover", "n_2"]).0 != Some(0) {
        assert!(Instant::now() < deadline, "it is not failed over");
    }
    check_documents(&cluster, &[0, 1], 60);
    let ready = cluster.restart(2);
    assert!(ready.starts_with("ready kv=off mgmt=off "), "{ready}");
    let (code, _, why) = cluster.tool(0, &["recover", "n_2"]);
    assert_eq!(code, Some(0), "{why}");
    let (code, _, why) = cluster.tool(1, &["rebalance", "--wait"]);
    assert_eq!(code, Some(0), "{why}");
    let first = cluster.endpoint(0);
    first.wait_status("all copies are there", is_whole);
    write(&cluster, &[0, 1, 2], 60..120);
    check_documents(&cluster, &[0, 1, 2], 120);
    let metrics = cluster.endpoint(0).metrics();
    let mode = "kedge_cluster_encryption{mode=\"mutual_tls\"} 1\n";
    assert!(metrics.contains(mode), "{metrics}");

    let words = words(&cluster);
    let capture = cluster.recorder.all();
    let bytes: usize = capture.iter().map(Vec::len).sum();
    assert!(capture.len() > 100 && bytes > 100_000, "{bytes} bytes");
    for stream in &capture {
        check_records(stream);
        for word in &words {
            assert!(!has(stream, word), "{word} is sent");
        }
    }
}

/// The proof that a capture sees what nodes send: without encryption it has all but the secret.
#[test]
fn nodes_without_tls_do_not_send_the_secret_either() {
    let cluster = CapturedCluster::start(3, 1, false);
    assert_eq!(cluster.endpoint(1).status()["encryption"], "off");
    write(&cluster, &[0, 1, 2], 0..30);
    let metrics = cluster.endpoint(0).metrics();
    let refused = "kedge_mgmt_node_proofs_total{result=\"refused\"} 0\n";
    assert!(metrics.contains(refused), "{metrics}");
    let capture = cluster.recorder.all();
    let sent = |word: &str| capture.iter().any(|stream| has(stream, word));
    for word in [
        VALUE,
        "key-of-the-capture",
        "HTTP/1.",
        "vBucketServerMap",
        "GET /kedge/cluster/node",
        "Kedge-HMAC-SHA256",
        CLUSTER_USER,
        USER,
    ] {
        assert!(sent(word), "{word} is not sent");
    }
    let secret = cluster.secret();
    let login = STANDARD.encode(format!("{CLUSTER_USER}:{secret}"));
    assert!(!sent(&secret) && !sent(&login), "the secret is sent");
}

#[test]
fn node_with_a_certificate_of_another_ca_is_refused() {
    let mut cluster = CapturedCluster::new(2, 0, true);
    let elsewhere = tempfile::tempdir().expect("a directory");
    let other = DevelopmentCa::ensure(elsewhere.path(), SystemTime::now()).expect("a CA");
    cluster.certify(1, &other);
    cluster.spawn_all();
    cluster.wait_ready(0);
    cluster.wait_logged(0, "invalid peer certificate");
    // It trusts the CA of the other node, and is refused by it.
    cluster.wait_logged(1, "received fatal alert");
    let status = cluster.endpoint(0).status();
    let up = |node: usize| status["nodes"][node]["up"].as_bool();
    assert_eq!((up(0), up(1)), (Some(true), Some(false)), "{status}");
}

/// Returns the result of a login as a node, by key-value and by management.
fn log_in_as_node(
    cluster: &CapturedCluster,
    own: Option<(PathBuf, PathBuf)>,
) -> (Option<Status>, u16) {
    let secret = cluster.secret();
    let endpoint = cluster.endpoint(0);
    let login = LoginCredentials {
        user: CLUSTER_USER.to_owned(),
        password: secret.clone(),
        mechanism: Mechanism::ScramSha512,
    };
    let result = endpoint.open(own.clone()).login(&login);
    let status = result.map_or_else(|error| error.status(), |()| Some(Status::Success));
    let http = endpoint.http_as((CLUSTER_USER, &secret), own);
    let reply = http.send("GET", "/whoami", &[]).expect("a reply");
    (status, reply.code)
}

#[test]
fn secret_alone_makes_no_node_where_certificates_are_required() {
    let cluster = CapturedCluster::start(1, 0, true);
    let refused = (Some(Status::AuthError), 401);
    assert_eq!(log_in_as_node(&cluster, None), refused);
    let (endpoint, node) = (cluster.endpoint(0), cluster.certificate(0));
    let accepted = (Some(Status::Success), 200);
    assert_eq!(log_in_as_node(&cluster, Some(node.clone())), accepted);
    // A certificate alone makes nobody a node.
    let whoami = endpoint.http_as(("nobody", ""), Some(node));
    let reply = whoami.send("GET", "/whoami", &[]).expect("a reply");
    assert_eq!(reply.code, 401);
    // A certificate of a client, by the same CA: the handshake refuses it.
    let text = |name: &str| {
        let path = cluster.dir.path().join("tls").join(name);
        std::fs::read_to_string(path).expect("a file")
    };
    let request = Request {
        usage: Usage::Client,
        common_name: CLUSTER_USER.to_owned(),
        names: Vec::new(),
        days: 2,
    };
    let ca = (text("ca.pem"), text("ca-key.pem"));
    let issued = issue((&ca.0, &ca.1), &request, SystemTime::now()).expect("a certificate");
    let client = issued.write(cluster.dir.path(), "client").expect("files");
    let http = endpoint.http_as((CLUSTER_USER, &cluster.secret()), Some(client));
    http.send("GET", "/whoami", &[])
        .expect_err("no certificate of a node");
}

#[test]
fn cluster_run_with_tls_auto_encrypts_between_its_nodes() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(dir.path(), &["--nodes=3", "--replicas=1", "--tls=auto"]);
    cluster.wait_status(0, "all nodes reach each other", |status| {
        let nodes = status["nodes"].as_array().expect("nodes");
        let is_up = |node: &Value| node["up"] == true && node["mgmtTlsPort"] != 0;
        status["encryption"] == "mutual_tls" && nodes.iter().all(is_up) && is_whole(status)
    });
    let mut connections: Vec<ClientConnection> = (0..3).map(|node| cluster.connect(node)).collect();
    for n in 0..30 {
        put_durably(&mut connections, &key(n), VALUE, LEVELS[n % 3]);
    }
    let metrics = cluster.endpoint(1).metrics();
    let accepted = metrics
        .lines()
        .find_map(|line| line.strip_prefix("kedge_mgmt_node_proofs_total{result=\"accepted\"} "));
    let accepted: u64 = accepted.expect("a metric").parse().expect("a number");
    assert!(accepted > 0);
    assert!(dir.path().join("tls/ca.pem").exists());
    check_certificates(dir.path(), &cluster);
}

/// Checks that any node has the certificates of all nodes.
fn check_certificates(dir: &Path, cluster: &Cluster) {
    let text = |node: usize| {
        let file = dir.join(format!("n_{node}/tls.pem"));
        std::fs::read_to_string(file).expect("a file")
    };
    let json = |path: &str| cluster.http(1).json(path).expect("a reply");
    let all = json("/pools/default/certificates");
    assert_eq!(all.as_array().map(Vec::len), Some(3), "{all}");
    for node in 0..3 {
        let (entry, name) = (&all[node], cluster.mgmt(node).to_string());
        assert_eq!(entry["node"], name);
        assert_eq!(entry["subject"], format!("CN=n_{node}"));
        assert_eq!(entry["type"], "uploaded");
        let pem = entry["pem"].as_str().expect("a text");
        assert!(text(node).starts_with(pem), "{pem}");
        let expires = entry["expires"].as_str().expect("a text");
        assert!(expires.ends_with(".000Z"), "{expires}");
        let one = json(&format!("/pools/default/certificate/node/{name}"));
        assert_eq!(one, *entry);
    }
    let unknown = "/pools/default/certificate/node/127.0.0.1:1";
    let reply = cluster.http(1).send("GET", unknown, &[]);
    assert_eq!(reply.expect("a reply").code, 404);
}
