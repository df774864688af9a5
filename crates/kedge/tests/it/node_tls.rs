//! TLS between the nodes of a cluster of real processes, whose whole traffic goes through proxies that record it.
//!
//! A node listens on an address of its own, and is known to the others and to clients by another one, where a proxy listens on
//! the same ports.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Instant, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kedge::client::{ClientConnection, LoginCredentials, ManagementClient};
use kedge_auth::Mechanism;
use kedge_bucket::BucketConfig;
use kedge_cluster::{CLUSTER_USER, CompatLevel, MapNode, SERVER_GROUP, TlsPorts};
use kedge_coordination::StoreAddress;
use kedge_coordinator::cluster::{create, first_map, new_uuid};
use kedge_tls::rustls::ClientConfig;
use kedge_tls::{ClientTls, DevelopmentCa, Request, Trust, Usage, issue};
use kedge_types::Status;
use serde_json::Value;

use crate::cluster::{Cluster, LEVELS, is_whole, put_durably, store_in, value_of};
use crate::process::{self, PASSWORD, PATIENCE, USER, administrator, kedge, run};

/// The bytes of one direction of a connection.
type Recording = Arc<Mutex<Vec<u8>>>;

/// The recordings of all connections through the proxies.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<Recording>>>);

impl Recorder {
    /// Forwards all connections of a listener, until the process ends.
    fn forward(&self, listener: TcpListener, to: SocketAddr) {
        let recorder = self.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if let Ok(server) = TcpStream::connect(to) {
                    recorder.join(&client, &server);
                }
            }
        });
    }

    fn join(&self, client: &TcpStream, server: &TcpStream) {
        for (from, to) in [(client, server), (server, client)] {
            let recording = Recording::default();
            self.0.lock().expect("no panic").push(recording.clone());
            from.set_nodelay(true).expect("a socket");
            let clone = |socket: &TcpStream| socket.try_clone().expect("a descriptor");
            let (from, to) = (clone(from), clone(to));
            thread::spawn(move || copy(from, to, &recording));
        }
    }

    fn all(&self) -> Vec<Vec<u8>> {
        let all = self.0.lock().expect("no panic");
        let bytes = all.iter().map(|it| it.lock().expect("no panic").clone());
        bytes.collect()
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, recording: &Mutex<Vec<u8>>) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let bytes = &buffer[..count];
        recording.lock().expect("no panic").extend_from_slice(bytes);
        if to.write_all(bytes).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}

/// A process of a node. Dropping it kills it.
struct NodeProcess {
    child: Child,
    lines: Receiver<String>,
}

impl NodeProcess {
    fn spawn(mut command: Command, log: &Path) -> Self {
        let log = File::options().create(true).append(true).open(log);
        command.stderr(log.expect("a log"));
        let mut child = command.spawn().expect("the command starts");
        let stdout = child.stdout.take().expect("stdout is piped");
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Self { child, lines }
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A cluster of nodes behind proxies.
struct World {
    dir: tempfile::TempDir,
    ca: DevelopmentCa,
    recorder: Recorder,
    /// The ports of key-value and management of each node, with TLS or without it.
    ports: Vec<[u16; 2]>,
    nodes: Vec<NodeProcess>,
    is_encrypted: bool,
}

/// Returns the address at which a node listens, and that by which it is known.
fn hosts(node: usize) -> [String; 2] {
    [1, 2].map(|net| format!("127.0.{net}.{}", node + 1))
}

impl World {
    /// Makes a cluster of that many nodes, whose processes do not run yet.
    fn new(nodes: usize, replicas: u8, is_encrypted: bool) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let ca = DevelopmentCa::ensure(&dir.path().join("tls"), SystemTime::now());
        let recorder = Recorder::default();
        let mut world = Self {
            dir,
            ca: ca.expect("a CA"),
            ports: (0..nodes).map(|node| open(&recorder, node)).collect(),
            recorder,
            nodes: Vec::new(),
            is_encrypted,
        };
        let members: Vec<MapNode> = (0..nodes).map(|node| world.member(node)).collect();
        let bucket = BucketConfig::new("default", 32, 100 << 20);
        let map = first_map(members, replicas, Some(&bucket), CompatLevel::HIGHEST);
        let store = StoreAddress::from(&*world.dir.path().join("coordinator"));
        create(&store, &map.expect("a map")).expect("the store takes it");
        for node in 0..nodes {
            world.certify(node);
        }
        world.nodes.reserve(nodes);
        world
    }

    fn start(nodes: usize, replicas: u8, is_encrypted: bool) -> Self {
        let mut world = Self::new(nodes, replicas, is_encrypted);
        for node in 0..nodes {
            let process = world.spawn(node);
            world.nodes.push(process);
        }
        for node in 0..nodes {
            world.wait_ready(node);
        }
        let (code, _, why) = world.tool(0, &["auto-failover", "--disable"]);
        assert_eq!(code, Some(0), "{why}");
        world
    }

    fn member(&self, node: usize) -> MapNode {
        let [_, host] = hosts(node);
        let [kv, mgmt] = self.ports[node];
        let (kv_port, mgmt_port, tls) = match self.is_encrypted {
            false => (kv, mgmt, TlsPorts::default()),
            true => {
                let tls = TlsPorts {
                    kv,
                    mgmt,
                    ..TlsPorts::default()
                };
                (0, 0, tls)
            }
        };
        MapNode {
            name: format!("n_{node}"),
            uuid: new_uuid(),
            host,
            kv_port,
            mgmt_port,
            tls,
            external: None,
            server_group: SERVER_GROUP.to_owned(),
            failed: false,
        }
    }

    fn certify(&self, node: usize) {
        let dir = self.dir.path().join(format!("n_{node}"));
        let issued = self
            .ca
            .issue_node(&dir, "node", &hosts(node), SystemTime::now());
        issued.expect("a certificate");
    }

    fn log(&self, node: usize) -> PathBuf {
        self.dir.path().join(format!("n_{node}.log"))
    }

    fn spawn(&self, node: usize) -> NodeProcess {
        let dir = self.dir.path().join(format!("n_{node}"));
        let [listen, advertise] = hosts(node);
        let [kv, mgmt] = self.ports[node];
        let mut command = kedge(&["serve", "--user", USER, "--password", PASSWORD]);
        command
            .args(["--listen", &listen, "--advertise", &advertise])
            .args(["--node-name", &format!("n_{node}")])
            .args(["--coordinator", &store_in(self.dir.path())])
            .arg("--data-dir")
            .arg(&dir);
        match self.is_encrypted {
            true => command
                .args(["--kv-port=off", "--mgmt-port=off"])
                .arg(format!("--kv-tls-port={kv}"))
                .arg(format!("--mgmt-tls-port={mgmt}"))
                .arg("--tls-cert")
                .arg(dir.join("tls.pem"))
                .arg("--tls-key")
                .arg(dir.join("tls-key.pem"))
                .arg("--cluster-ca")
                .arg(self.ca.certificate())
                .arg("--cluster-encryption=mutual_tls"),
            false => command
                .arg(format!("--kv-port={kv}"))
                .arg(format!("--mgmt-port={mgmt}")),
        };
        NodeProcess::spawn(command, &self.log(node))
    }

    /// Waits for the `ready` line of a node, and returns it.
    fn wait_ready(&self, node: usize) -> String {
        let line = self.nodes[node].lines.recv_timeout(PATIENCE);
        line.unwrap_or_else(|error| {
            let log = std::fs::read_to_string(self.log(node));
            panic!("{error}: {}", log.unwrap_or_default())
        })
    }

    /// Waits until the log of a node has a text.
    fn wait_logged(&self, node: usize, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let log = std::fs::read_to_string(self.log(node)).expect("a log");
            if log.contains(text) {
                return;
            }
            assert!(Instant::now() < deadline, "no {text}: {log}");
            thread::yield_now();
        }
    }

    /// TLS of a client that trusts the CA.
    fn tls(&self, own: Option<(PathBuf, PathBuf)>) -> Option<Arc<ClientConfig>> {
        let trust = Trust::Ca(vec![self.ca.certificate().to_owned()]);
        let config = ClientTls { trust, own }.config();
        self.is_encrypted.then(|| config.expect("the CA is valid"))
    }

    fn connect(&self, node: usize) -> ClientConnection {
        let [_, host] = hosts(node);
        let [kv, _] = self.ports[node];
        let tls = self.tls(None);
        let open = ClientConnection::open_with(&host, kv, PATIENCE, tls.as_ref());
        let open = open.expect("a connection");
        open.prepared(&administrator(), "default").expect("a login")
    }

    fn http(&self, node: usize) -> ManagementClient {
        self.http_as(node, (USER, PASSWORD), None)
    }

    /// A client of management with this password, and perhaps a certificate.
    fn http_as(
        &self,
        node: usize,
        (user, password): (&str, &str),
        own: Option<(PathBuf, PathBuf)>,
    ) -> ManagementClient {
        let [_, host] = hosts(node);
        let [_, mgmt] = self.ports[node];
        let client = ManagementClient::new(&host, mgmt, user, password);
        match self.tls(own) {
            Some(tls) => client.over_tls(tls),
            None => client,
        }
    }

    fn status(&self, node: usize) -> Value {
        let status = self.http(node).json("/kedge/cluster/status");
        status.expect("a status")
    }

    fn wait_status(&self, node: usize, what: &str, is: impl Fn(&Value) -> bool) {
        process::wait_status(what, || self.status(node), is);
    }

    /// `kedge cluster ...`, asked of one node.
    fn tool(&self, node: usize, words: &[&str]) -> (Option<i32>, String, String) {
        let [_, host] = hosts(node);
        let [_, mgmt] = self.ports[node];
        let mut command = kedge(&["cluster"]);
        command.args(words).args(["-u", USER, "-P", PASSWORD, "-U"]);
        match self.is_encrypted {
            true => command
                .arg(format!("https://{host}:{mgmt}"))
                .arg("--ca")
                .arg(self.ca.certificate()),
            false => command.arg(format!("http://{host}:{mgmt}")),
        };
        run(&mut command)
    }

    /// Returns the secret of the cluster.
    fn secret(&self) -> String {
        let file = std::fs::read(self.dir.path().join("n_0/cluster-map.json"));
        let file: Value = serde_json::from_slice(&file.expect("a file")).expect("JSON");
        let secret = file["secret"]["secret"].as_str();
        secret.expect("a text").to_owned()
    }
}

/// Opens the proxies of a node, and returns their ports, which are free at the node's own address.
fn open(recorder: &Recorder, node: usize) -> [u16; 2] {
    let [own, known] = hosts(node);
    [(); 2].map(|()| {
        loop {
            let listener = TcpListener::bind((&*known, 0)).expect("a port");
            let port = listener.local_addr().expect("an address").port();
            if TcpListener::bind((&*own, port)).is_err() {
                continue;
            }
            let to = format!("{own}:{port}").parse().expect("an address");
            recorder.forward(listener, to);
            return port;
        }
    })
}

fn key(n: usize) -> String {
    format!("key-of-the-capture-{n}")
}

const VALUE: &str = "value-of-the-capture";

fn write(world: &World, nodes: &[usize], keys: std::ops::Range<usize>) {
    let mut connections: Vec<ClientConnection> =
        nodes.iter().map(|node| world.connect(*node)).collect();
    for n in keys {
        put_durably(&mut connections, &key(n), VALUE, LEVELS[n % 3]);
    }
}

fn check_documents(world: &World, nodes: &[usize], count: usize) {
    let mut connections: Vec<ClientConnection> =
        nodes.iter().map(|node| world.connect(*node)).collect();
    for n in 0..count {
        let value = value_of(&mut connections, &key(n));
        assert_eq!(value.as_deref(), Some(VALUE), "{n}");
    }
}

fn has(bytes: &[u8], word: &str) -> bool {
    bytes.windows(word.len()).any(|it| it == word.as_bytes())
}

/// Checks that bytes are records of TLS 1.3 and nothing else: without encryption only the first message of each side.
fn check_records(stream: &[u8]) {
    let mut rest = stream;
    // A connection may end within a record.
    while let [kind, 3, minor, high, low, body @ ..] = rest {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        assert!((20..=23).contains(kind), "record of type {kind}");
        assert!(
            [1, 3].contains(minor) && length <= (16 << 10) + 256,
            "{minor} {length}"
        );
        let is_hello = body.first().is_none_or(|kind| [1, 2].contains(kind));
        assert!(
            *kind != 22 || is_hello,
            "a message of the handshake is not encrypted"
        );
        rest = body.get(length..).unwrap_or_default();
    }
    assert!(rest.len() < 5, "{:02x?}", &rest[..5]);
}

/// The words that no capture of encrypted traffic has.
fn words(world: &World) -> Vec<String> {
    let secret = world.secret();
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
    let mut world = World::start(3, 1, true);
    assert_eq!(world.status(1)["encryption"], "mutual_tls");
    write(&world, &[0, 1, 2], 0..60);
    world.nodes[2].kill();
    let deadline = Instant::now() + PATIENCE;
    // Refused until the node has found out for itself.
    while world.tool(0, &["failover", "n_2"]).0 != Some(0) {
        assert!(Instant::now() < deadline, "it is not failed over");
    }
    check_documents(&world, &[0, 1], 60);
    world.nodes[2] = world.spawn(2);
    let ready = world.wait_ready(2);
    assert!(ready.starts_with("ready kv=off mgmt=off "), "{ready}");
    let (code, _, why) = world.tool(0, &["recover", "n_2"]);
    assert_eq!(code, Some(0), "{why}");
    let (code, _, why) = world.tool(1, &["rebalance", "--wait"]);
    assert_eq!(code, Some(0), "{why}");
    world.wait_status(0, "all copies are there", is_whole);
    write(&world, &[0, 1, 2], 60..120);
    check_documents(&world, &[0, 1, 2], 120);
    let metrics = world.http(0).send("GET", "/metrics", &[]).expect("a reply");
    let metrics = String::from_utf8(metrics.body).expect("text");
    let mode = "kedge_cluster_encryption{mode=\"mutual_tls\"} 1\n";
    assert!(metrics.contains(mode), "{metrics}");

    let words = words(&world);
    let capture = world.recorder.all();
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
    let world = World::start(3, 1, false);
    assert_eq!(world.status(1)["encryption"], "off");
    write(&world, &[0, 1, 2], 0..30);
    let metrics = world.http(0).send("GET", "/metrics", &[]).expect("a reply");
    let metrics = String::from_utf8(metrics.body).expect("text");
    let refused = "kedge_mgmt_node_proofs_total{result=\"refused\"} 0\n";
    assert!(metrics.contains(refused), "{metrics}");
    let capture = world.recorder.all();
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
    let secret = world.secret();
    let login = STANDARD.encode(format!("{CLUSTER_USER}:{secret}"));
    assert!(!sent(&secret) && !sent(&login), "the secret is sent");
}

#[test]
fn node_with_a_certificate_of_another_ca_is_refused() {
    let mut world = World::new(2, 0, true);
    let elsewhere = tempfile::tempdir().expect("a directory");
    let now = SystemTime::now();
    let other = DevelopmentCa::ensure(elsewhere.path(), now).expect("a CA");
    let dir = world.dir.path().join("n_1");
    let issued = other.issue_node(&dir, "node", &hosts(1), now);
    issued.expect("a certificate");
    for node in 0..2 {
        let process = world.spawn(node);
        world.nodes.push(process);
    }
    world.wait_ready(0);
    world.wait_logged(0, "invalid peer certificate");
    // It trusts the CA, and is refused by the other node.
    world.wait_logged(1, "received fatal alert");
    let status = world.status(0);
    let up = |node: usize| status["nodes"][node]["up"].as_bool();
    assert_eq!((up(0), up(1)), (Some(true), Some(false)), "{status}");
}

/// Returns the result of a login as a node, by key-value and by management.
fn log_in_as_node(world: &World, own: Option<(PathBuf, PathBuf)>) -> (Option<Status>, u16) {
    let secret = world.secret();
    let [_, host] = hosts(0);
    let [kv, _] = world.ports[0];
    let tls = world.tls(own.clone());
    let login = LoginCredentials {
        user: CLUSTER_USER.to_owned(),
        password: secret.clone(),
        mechanism: Mechanism::ScramSha512,
    };
    let open = ClientConnection::open_with(&host, kv, PATIENCE, tls.as_ref());
    let result = open.expect("a connection").login(&login);
    let status = result.map_or_else(|error| error.status(), |()| Some(Status::Success));
    let http = world.http_as(0, (CLUSTER_USER, &secret), own);
    let reply = http.send("GET", "/whoami", &[]).expect("a reply");
    (status, reply.code)
}

#[test]
fn secret_alone_makes_no_node_where_certificates_are_required() {
    let world = World::start(1, 0, true);
    let refused = (Some(Status::AuthError), 401);
    assert_eq!(log_in_as_node(&world, None), refused);
    let dir = world.dir.path().join("n_0");
    let node = (dir.join("tls.pem"), dir.join("tls-key.pem"));
    let accepted = (Some(Status::Success), 200);
    assert_eq!(log_in_as_node(&world, Some(node.clone())), accepted);
    // A certificate alone makes nobody a node.
    let whoami = world.http_as(0, ("nobody", ""), Some(node));
    let reply = whoami.send("GET", "/whoami", &[]).expect("a reply");
    assert_eq!(reply.code, 401);
    // A certificate of a client, by the same CA: the handshake refuses it.
    let text = |name: &str| {
        let path = world.dir.path().join("tls").join(name);
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
    let client = issued.write(world.dir.path(), "client").expect("files");
    let http = world.http_as(0, (CLUSTER_USER, &world.secret()), Some(client));
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
    let metrics = cluster.http(1).send("GET", "/metrics", &[]);
    let metrics = String::from_utf8(metrics.expect("a reply").body).expect("text");
    let accepted = metrics
        .lines()
        .find_map(|line| line.strip_prefix("kedge_mgmt_node_proofs_total{result=\"accepted\"} "));
    let accepted: u64 = accepted.expect("a metric").parse().expect("a number");
    assert!(accepted > 0);
    assert!(dir.path().join("tls/ca.pem").exists());
}
