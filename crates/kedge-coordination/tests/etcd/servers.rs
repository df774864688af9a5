//! Members of etcd as processes with ports of their own.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use kedge_coordination::Coordinator as _;
use kedge_coordination::etcd::EtcdConfig;
use kedge_faulty_disk::FaultyDisk;
use rustix::process::{Pid, Signal, kill_process};

use crate::contract::LONG;

/// A release of etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Release {
    /// The one that Debian installs, which is 3.4 in Debian 12.
    Debian,
    /// The one that `tests/etcd/go.mod` names.
    Current,
}

impl Release {
    /// The path of a program: of Debian's the one of the `PATH`.
    fn program(self, debian: &str, current: &str) -> PathBuf {
        let found = match self {
            Release::Debian => {
                let path = std::env::var_os("PATH").unwrap_or_default();
                let mut files = std::env::split_paths(&path).map(|dir| dir.join(debian));
                files.find(|file| file.exists())
            }
            Release::Current => {
                let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
                Some(root.join(".cache/etcd").join(current)).filter(|file| file.exists())
            }
        };
        found.unwrap_or_else(|| {
            panic!("{debian} of {self:?} is missing: run tests/run prepare etcd")
        })
    }

    pub(crate) fn etcdctl(self) -> Command {
        let mut command = Command::new(self.program("etcdctl", "etcdctl"));
        command.env("ETCDCTL_API", "3");
        command
    }

    /// The tool that restores snapshots.
    pub(crate) fn restorer(self) -> Command {
        let mut command = Command::new(self.program("etcdctl", "etcdutl"));
        command.env("ETCDCTL_API", "3");
        command
    }
}

/// Runs a command to its end, which has to be a good one.
pub(crate) fn run(command: &mut Command) {
    let output = command.output().expect("the program starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {text}");
}

/// A cluster of etcd.
pub(crate) struct Servers {
    pub(crate) release: Release,
    pub(crate) members: Vec<Member>,
    /// Options of all members, such as those for TLS.
    options: Vec<String>,
    scheme: &'static str,
    pub(crate) dir: tempfile::TempDir,
}

/// A member, running or not.
pub(crate) struct Member {
    process: Option<Child>,
    pub(crate) client_port: u16,
    peer_port: u16,
    pub(crate) data: PathBuf,
}

impl Servers {
    /// Starts members, and waits until the store can be read.
    pub(crate) fn start(release: Release, members: usize) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let mut servers = Servers::new(release, members, dir);
        servers.start_all();
        let store = crate::open(servers.config(), None);
        store.read(LONG).expect("etcd answers");
        servers
    }

    /// Starts members whose data is on disks that can be made slow.
    pub(crate) fn start_on_disks(release: Release, members: usize) -> (Self, Vec<FaultyDisk>) {
        let mut servers = Servers::new(release, members, tempfile::tempdir().expect("a directory"));
        let mounted = servers.members.iter().enumerate().map(|(n, member)| {
            let below = servers.dir.path().join(format!("below{n}"));
            for dir in [&below, &member.data] {
                fs::create_dir(dir).expect("a directory");
            }
            FaultyDisk::mount(&below, &member.data)
        });
        let disks = mounted.collect();
        servers.start_all();
        let store = crate::open(servers.config(), None);
        store.read(LONG).expect("etcd answers");
        (servers, disks)
    }

    /// Starts a member whose clients use TLS, with these options.
    pub(crate) fn start_tls(
        release: Release,
        dir: tempfile::TempDir,
        options: Vec<String>,
    ) -> Self {
        let mut servers = Servers::new(release, 1, dir);
        servers.options = options;
        servers.scheme = "https";
        servers.start_all();
        servers
    }

    fn new(release: Release, members: usize, dir: tempfile::TempDir) -> Self {
        let ports = free_ports(2 * members);
        let members = (0..members).map(|n| Member {
            process: None,
            client_port: ports[2 * n],
            peer_port: ports[2 * n + 1],
            data: dir.path().join(format!("data{n}")),
        });
        Servers {
            release,
            members: members.collect(),
            options: Vec::new(),
            scheme: "http",
            dir,
        }
    }

    fn start_all(&mut self) {
        for n in 0..self.members.len() {
            self.start_member(n);
        }
    }

    pub(crate) fn start_member(&mut self, n: usize) {
        let member = &self.members[n];
        let client = format!("{}://127.0.0.1:{}", self.scheme, member.client_port);
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.dir.path().join(format!("log{n}")))
            .expect("a log");
        let process = Command::new(self.release.program("etcd", "server"))
            .arg(format!("--name=m{n}"))
            .arg(format!("--data-dir={}", member.data.display()))
            .arg(format!("--listen-client-urls={client}"))
            .arg(format!("--advertise-client-urls={client}"))
            .arg(format!("--listen-peer-urls={}", member.peer_url()))
            .arg(format!(
                "--initial-advertise-peer-urls={}",
                member.peer_url()
            ))
            .arg(format!("--initial-cluster={}", self.initial_cluster()))
            .args(["--heartbeat-interval=50", "--election-timeout=500"])
            .args(["--log-level=warn", "--logger=zap"])
            .args(&self.options)
            // etcd 3.4 starts on ARM with this only.
            .env("ETCD_UNSUPPORTED_ARCH", "arm64")
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("etcd starts");
        self.members[n].process = Some(process);
    }

    pub(crate) fn initial_cluster(&self) -> String {
        let members = self.members.iter().enumerate();
        let members: Vec<String> = members
            .map(|(n, member)| format!("m{n}={}", member.peer_url()))
            .collect();
        members.join(",")
    }

    /// Kills a member.
    pub(crate) fn kill(&mut self, n: usize) {
        if let Some(mut process) = self.members[n].process.take() {
            process.kill().expect("it can be killed");
            process.wait().expect("it ends");
        }
    }

    /// Stops the time of a member, or lets it go on.
    pub(crate) fn signal(&self, n: usize, signal: Signal) {
        let process = self.members[n].process.as_ref().expect("it runs");
        let id = i32::try_from(process.id()).expect("a process id");
        let id = Pid::from_raw(id).expect("not zero");
        kill_process(id, signal).expect("it is our child");
    }

    /// The configuration of a client that knows all members.
    pub(crate) fn config(&self) -> EtcdConfig {
        let all: Vec<usize> = (0..self.members.len()).collect();
        self.config_of(&all)
    }

    /// The configuration of a client that knows some members.
    pub(crate) fn config_of(&self, members: &[usize]) -> EtcdConfig {
        let hosts = members.iter();
        let hosts: Vec<String> = hosts.map(|n| self.members[*n].address()).collect();
        let url = format!("etcd://{}/kedge/test", hosts.join(","));
        url.parse().expect("a valid address")
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for n in 0..self.members.len() {
            self.kill(n);
        }
        if std::thread::panicking() {
            for n in 0..self.members.len() {
                let log = fs::read_to_string(self.dir.path().join(format!("log{n}")));
                eprintln!("member {n}:\n{}", log.unwrap_or_default());
            }
        }
    }
}

impl Member {
    pub(crate) fn peer_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.peer_port)
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.client_port)
    }
}

/// Ports that were free a moment ago.
pub(crate) fn free_ports(count: usize) -> Vec<u16> {
    let listeners: Vec<TcpListener> = (0..count)
        .map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port"))
        .collect();
    let ports = listeners.iter();
    ports
        .map(|it| it.local_addr().expect("it is bound").port())
        .collect()
}
