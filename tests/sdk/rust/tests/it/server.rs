//! Starts, stops and kills a Kedge server for tests.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use tempfile::TempDir;

pub const USER: &str = "Administrator";
pub const PASSWORD: &str = "password";
pub const BUCKET: &str = "default";

pub const READY: Duration = Duration::from_secs(60);

/// A server with a data directory of its own; its ports stay the same when it is started again.
pub struct Server {
    directory: TempDir,
    ports: [u16; 3],
    /// The port of the key-value protocol over TLS, if it is served.
    tls_port: Option<u16>,
    flags: Vec<String>,
    child: Option<Child>,
}

/// `target/release/kedge` of this repository unless KEDGE_BIN names another one.
pub fn binary() -> PathBuf {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../target/release/kedge");
    let path = std::env::var_os("KEDGE_BIN").map_or(built, PathBuf::from);
    assert!(
        path.is_file(),
        "{} is missing: run `cargo build --release -p kedge`, or set KEDGE_BIN",
        path.display()
    );
    path
}

impl Server {
    pub fn start() -> Self {
        Self::with(Vec::new())
    }

    /// Starts a server with more flags.
    pub fn with(flags: Vec<String>) -> Self {
        let directory = tempfile::Builder::new()
            .prefix("kedge-test-")
            .tempdir()
            .unwrap();
        let mut server = Self {
            directory,
            ports: [0; 3],
            tls_port: None,
            flags,
            child: None,
        };
        server.start_again();
        server
    }

    /// Starts the server on the ports and the data of its last run.
    pub fn start_again(&mut self) {
        let data = self.directory.path().join("data");
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.directory.path().join("stderr"))
            .unwrap();
        let [kv, mgmt, memcached] = self.ports.map(|port| port.to_string());
        let mut child = Command::new(binary())
            .arg("serve")
            .args([
                "--kv-port",
                &kv,
                "--mgmt-port",
                &mgmt,
                "--memcached-port",
                &memcached,
            ])
            .args(["--listen", "127.0.0.1", "--bucket", BUCKET])
            .args(["--user", USER, "--password", PASSWORD])
            .arg("--data-dir")
            .arg(data)
            .args(&self.flags)
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let stdout = child.stdout.take().unwrap();
        self.child = Some(child);
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            let _ = BufReader::new(stdout).read_line(&mut line);
            let _ = sender.send(line);
        });
        let line = receiver.recv_timeout(READY).unwrap_or_default();
        self.ports = ports(&line)
            .unwrap_or_else(|| panic!("the server did not become ready: {line:?}\n{}", self.log()));
        let tls = line.split(' ').find_map(|word| word.strip_prefix("kvs="));
        let tls = tls.and_then(|address| address.rsplit_once(':'));
        self.tls_port = tls.and_then(|(_, port)| port.trim().parse().ok());
    }

    /// The file with the CA that the server makes with `--tls=auto`.
    pub fn auto_ca(&self) -> PathBuf {
        self.directory.path().join("data/tls-auto-ca.pem")
    }

    pub fn connection_string(&self) -> String {
        if let Some(port) = self.tls_port {
            return format!("couchbases://127.0.0.1:{port}");
        }
        format!("couchbase://127.0.0.1:{}", self.ports[0])
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("stderr")).unwrap_or_default()
    }

    /// SIGTERM; returns whether the server exited with 0.
    pub fn terminate(&mut self) -> bool {
        let mut child = self.child.take().unwrap();
        let sent = Command::new("kill")
            .arg(child.id().to_string())
            .status()
            .unwrap();
        assert!(sent.success());
        child.wait().unwrap().success()
    }

    /// SIGKILL: no goodbye, nothing is flushed.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The ports of `ready kv=HOST:PORT mgmt=HOST:PORT memcached=HOST:PORT`.
fn ports(line: &str) -> Option<[u16; 3]> {
    let mut fields = line.trim().strip_prefix("ready ")?.split(' ');
    let mut port = |name: &str| -> Option<u16> {
        let (label, address) = fields.next()?.split_once('=')?;
        (label == name).then_some(())?;
        address.rsplit_once(':')?.1.parse().ok()
    };
    Some([port("kv")?, port("mgmt")?, port("memcached")?])
}
