//! A cluster of single processes whose whole traffic goes through proxies that record it.
//!
//! A node listens on an address of its own, and is known to the others and to clients by another one, where a proxy listens on
//! the same ports.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Instant, SystemTime};

use kedge::client::ClientConnection;
use kedge_bucket::BucketConfig;
use kedge_cluster::{CompatLevel, MapNode, SERVER_GROUP, TlsPorts};
use kedge_coordination::StoreAddress;
use kedge_coordinator::cluster::{create, first_map, new_uuid};
use kedge_tls::DevelopmentCa;
use serde_json::Value;

use crate::capture::Recorder;
use crate::cluster::store_in;
use crate::endpoint::{Endpoint, ToolOutput};
use crate::process::{LineProcess, PASSWORD, PATIENCE, USER, kedge};

/// A cluster of nodes behind proxies. Dropping it kills its nodes.
pub(crate) struct CapturedCluster {
    pub(crate) dir: tempfile::TempDir,
    ca: DevelopmentCa,
    pub(crate) recorder: Recorder,
    /// The ports of key-value and management of each node, with TLS or without it.
    ports: Vec<[u16; 2]>,
    nodes: Vec<LineProcess>,
    is_encrypted: bool,
}

/// Returns the address at which a node listens, and that by which it is known.
fn hosts(node: usize) -> [String; 2] {
    [1, 2].map(|net| format!("127.0.{net}.{}", node + 1))
}

impl CapturedCluster {
    /// Makes a cluster of that many nodes, whose processes do not run yet.
    pub(crate) fn new(nodes: usize, replicas: u8, is_encrypted: bool) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let ca = DevelopmentCa::ensure(&dir.path().join("tls"), SystemTime::now());
        let recorder = Recorder::default();
        let ports = |node| {
            let [own, known] = hosts(node);
            [(); 2].map(|()| recorder.open(&known, &own))
        };
        let cluster = Self {
            dir,
            ca: ca.expect("a CA"),
            ports: (0..nodes).map(ports).collect(),
            recorder,
            nodes: Vec::new(),
            is_encrypted,
        };
        let members: Vec<MapNode> = (0..nodes).map(|node| cluster.member(node)).collect();
        let bucket = BucketConfig::new("default", 32, 100 << 20);
        let map = first_map(members, replicas, Some(&bucket), CompatLevel::HIGHEST);
        let store = StoreAddress::from(&*cluster.dir.path().join("coordinator"));
        create(&store, &map.expect("a map")).expect("the store takes it");
        for node in 0..nodes {
            cluster.certify(node, &cluster.ca);
        }
        cluster
    }

    pub(crate) fn start(nodes: usize, replicas: u8, is_encrypted: bool) -> Self {
        let mut cluster = Self::new(nodes, replicas, is_encrypted);
        cluster.spawn_all();
        for node in 0..nodes {
            cluster.wait_ready(node);
        }
        let (code, _, why) = cluster.tool(0, &["auto-failover", "--disable"]);
        assert_eq!(code, Some(0), "{why}");
        cluster
    }

    /// Starts the processes of all nodes.
    pub(crate) fn spawn_all(&mut self) {
        for node in 0..self.ports.len() {
            let process = self.spawn(node);
            self.nodes.push(process);
        }
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

    fn node_dir(&self, node: usize) -> PathBuf {
        self.dir.path().join(format!("n_{node}"))
    }

    /// Gives a node a certificate of a CA.
    pub(crate) fn certify(&self, node: usize, ca: &DevelopmentCa) {
        let now = SystemTime::now();
        let issued = ca.issue_node(&self.node_dir(node), "node", &hosts(node), now);
        issued.expect("a certificate");
    }

    /// Returns the files of the certificate of a node and of its key.
    pub(crate) fn certificate(&self, node: usize) -> (PathBuf, PathBuf) {
        let dir = self.node_dir(node);
        (dir.join("tls.pem"), dir.join("tls-key.pem"))
    }

    fn log(&self, node: usize) -> PathBuf {
        self.dir.path().join(format!("n_{node}.log"))
    }

    fn spawn(&self, node: usize) -> LineProcess {
        let [listen, advertise] = hosts(node);
        let [kv, mgmt] = self.ports[node];
        let mut command = kedge(&["serve", "--user", USER, "--password", PASSWORD]);
        command
            .args(["--listen", &listen, "--advertise", &advertise])
            .args(["--node-name", &format!("n_{node}")])
            .args(["--coordinator", &store_in(self.dir.path())])
            .arg("--data-dir")
            .arg(self.node_dir(node));
        match self.is_encrypted {
            true => self.encrypt(&mut command, node),
            false => command
                .arg(format!("--kv-port={kv}"))
                .arg(format!("--mgmt-port={mgmt}")),
        };
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log(node));
        command.stderr(log.expect("a log"));
        LineProcess::spawn(&mut command)
    }

    fn encrypt<'a>(&self, command: &'a mut Command, node: usize) -> &'a mut Command {
        let [kv, mgmt] = self.ports[node];
        let (certificate, key) = self.certificate(node);
        command
            .args(["--kv-port=off", "--mgmt-port=off"])
            .arg(format!("--kv-tls-port={kv}"))
            .arg(format!("--mgmt-tls-port={mgmt}"))
            .arg("--tls-cert")
            .arg(certificate)
            .arg("--tls-key")
            .arg(key)
            .arg("--cluster-encryption=mutual_tls");
        // The others trust the same one, as it ends their chains.
        if node == 1 {
            command.arg("--cluster-ca").arg(self.ca.certificate());
        }
        command
    }

    /// Ends a node as `kill -9` does.
    pub(crate) fn kill(&mut self, node: usize) {
        self.nodes[node].kill();
    }

    /// Starts the process of a node again, and returns its `ready` line.
    pub(crate) fn restart(&mut self, node: usize) -> String {
        self.nodes[node] = self.spawn(node);
        self.wait_ready(node)
    }

    /// Waits for the `ready` line of a node, and returns it.
    pub(crate) fn wait_ready(&self, node: usize) -> String {
        self.nodes[node].line().unwrap_or_else(|error| {
            let log = std::fs::read_to_string(self.log(node));
            panic!("{error}: {}", log.unwrap_or_default())
        })
    }

    /// Waits until the log of a node has a text.
    pub(crate) fn wait_logged(&self, node: usize, text: &str) {
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

    pub(crate) fn endpoint(&self, node: usize) -> Endpoint<'_> {
        let [_, host] = hosts(node);
        let address = |port: u16| format!("{host}:{port}").parse().expect("an address");
        let [kv, mgmt] = self.ports[node];
        let ca: &Path = self.ca.certificate();
        Endpoint {
            kv: address(kv),
            mgmt: address(mgmt),
            ca: self.is_encrypted.then_some(ca),
        }
    }

    pub(crate) fn connect_to(&self, nodes: &[usize]) -> Vec<ClientConnection> {
        let nodes = nodes.iter();
        nodes.map(|node| self.endpoint(*node).connect()).collect()
    }

    /// `kedge cluster ...`, asked of one node.
    pub(crate) fn tool(&self, node: usize, words: &[&str]) -> ToolOutput {
        self.endpoint(node).tool(words)
    }

    /// Returns the secret of the cluster.
    pub(crate) fn secret(&self) -> String {
        let file = std::fs::read(self.node_dir(0).join("cluster-map.json"));
        let file: Value = serde_json::from_slice(&file.expect("a file")).expect("JSON");
        let secret = file["secret"]["secret"].as_str();
        secret.expect("a text").to_owned()
    }
}
