//! Starts `kedge cluster-run` for tests, kills nodes of it and fails them over.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

use tempfile::TempDir;

use crate::server::{BUCKET, PASSWORD, READY, USER, binary};

struct Node {
    name: String,
    pid: String,
    kv: String,
    mgmt: String,
}

/// Nodes n_0, n_1 and so on, on free ports, with one data directory for all.
pub struct Nodes {
    directory: TempDir,
    child: Child,
    nodes: Vec<Node>,
}

impl Nodes {
    /// A cluster in which all other nodes are replicas.
    pub fn start(count: usize) -> Self {
        let directory = tempfile::Builder::new()
            .prefix("kedge-test-")
            .tempdir()
            .unwrap();
        let log = std::fs::File::create(directory.path().join("stderr")).unwrap();
        let mut child = Command::new(binary())
            .arg("cluster-run")
            .args(["--nodes", &count.to_string()])
            .args(["--replicas", &(count - 1).to_string()])
            .args(["--kv-port", "0", "--mgmt-port", "0", "--vbuckets", "64"])
            .args(["--bucket", BUCKET, "--user", USER, "--password", PASSWORD])
            .arg("--data-dir")
            .arg(directory.path().join("data"))
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let stdout = child.stdout.take().unwrap();
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let mut started = Self {
            directory,
            child,
            nodes: Vec::new(),
        };
        loop {
            let line = receiver.recv_timeout(READY).unwrap_or_default();
            if line.starts_with("cluster ready ") {
                started.nodes.sort_by(|a, b| a.name.cmp(&b.name));
                return started;
            }
            let node = node(&line);
            started.nodes.push(node.unwrap_or_else(|| {
                let log = std::fs::read_to_string(started.directory.path().join("stderr"));
                panic!("the cluster did not become ready: {line:?}\n{log:?}")
            }));
        }
    }

    pub fn connection_string(&self) -> String {
        let hosts: Vec<String> = self
            .nodes
            .iter()
            .map(|node| format!("127.0.0.1:{}", node.kv))
            .collect();
        format!("couchbase://{}", hosts.join(","))
    }

    /// Kills a node and promotes its replicas; asks the first one.
    pub fn fail_over(&self, node: usize) {
        let kill = Command::new("kill")
            .args(["-KILL", &self.nodes[node].pid])
            .status();
        assert!(kill.unwrap().success());
        let mgmt = format!("http://127.0.0.1:{}", self.nodes[0].mgmt);
        let output = Command::new(binary())
            .args(["cluster", "failover", &format!("n_{node}"), "-U", &mgmt])
            .args(["-u", USER, "-P", PASSWORD])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        let _ = Command::new("kill")
            .arg(self.child.id().to_string())
            .status();
        let _ = self.child.wait();
    }
}

/// The node of a line `ready kv=HOST:PORT mgmt=HOST:PORT memcached=HOST:PORT node=NAME pid=PID`.
fn node(line: &str) -> Option<Node> {
    let line = line.strip_prefix("ready ")?;
    let field = |name: &str| {
        let word = line.split(' ').find_map(|word| word.strip_prefix(name))?;
        Some(word.rsplit(':').next()?.to_owned())
    };
    Some(Node {
        name: field("node=")?,
        pid: field("pid=")?,
        kv: field("kv=")?,
        mgmt: field("mgmt=")?,
    })
}
