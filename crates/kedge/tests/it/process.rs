//! A server process of a test.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use kedge::client::{ClientConnection, ClientError, LoginCredentials};
use kedge_auth::Mechanism;
use serde_json::Value;

/// Longest wait for something that is due at once: the machine may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const USER: &str = "Administrator";
pub(crate) const PASSWORD: &str = "secret-of-the-test";

/// A process whose standard output is read line by line. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct LineProcess {
    pub(crate) child: Child,
    lines: Mutex<Receiver<String>>,
}

impl LineProcess {
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let mut child = command.spawn().expect("the command starts");
        let stdout = child.stdout.take().expect("stdout is piped");
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Self {
            child,
            lines: Mutex::new(lines),
        }
    }

    /// Waits for the next line, at most [`PATIENCE`].
    pub(crate) fn line(&self) -> Result<String, RecvTimeoutError> {
        self.lines.lock().expect("no panic").recv_timeout(PATIENCE)
    }

    /// Ends it as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for LineProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A running server. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Server {
    process: LineProcess,
    stderr: Option<JoinHandle<String>>,
    pub(crate) kv: SocketAddr,
    pub(crate) mgmt: SocketAddr,
    pub(crate) memcached: SocketAddr,
    /// The key-value protocol over TLS, if it is served.
    pub(crate) kvs: Option<SocketAddr>,
    /// Plain memcached over TLS, if it is served.
    pub(crate) memcacheds: Option<SocketAddr>,
    /// Management over HTTPS, if it is served.
    pub(crate) mgmts: Option<SocketAddr>,
}

/// Reads a status again and again until it is as expected.
pub(crate) fn wait_status(
    what: &str,
    read: impl Fn() -> Value,
    is: impl Fn(&Value) -> bool,
) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let status = read();
        if is(&status) {
            return status;
        }
        assert!(Instant::now() < deadline, "{what}: {status}");
        thread::yield_now();
    }
}

/// `kedge` with these arguments, its output piped.
pub(crate) fn kedge(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kedge"));
    clean_environment(&mut command).args(args);
    command
}

/// Removes variables of the test's own environment that would count as settings.
pub(crate) fn clean_environment(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("KEDGE_") {
            command.env_remove(name);
        }
    }
    command.env_remove("RUST_LOG");
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
}

/// `kedge serve` on any free ports.
pub(crate) fn serve(dir: &Path, more: &[&str]) -> Command {
    let mut command = kedge(&["serve", "--data-dir"]);
    command
        .arg(dir)
        .args(["--kv-port=0", "--mgmt-port=0", "--memcached-port=0"]);
    command
        .args(["--user", USER, "--password", PASSWORD, "--vbuckets=64"])
        .args(more);
    command
}

impl Server {
    /// Starts a server and waits for its `ready` line.
    pub(crate) fn start(dir: &Path, more: &[&str]) -> Self {
        Self::spawn(serve(dir, more))
            .unwrap_or_else(|error| panic!("the server did not start: {error}"))
    }

    /// Starts a command and waits for its `ready` line; the error is what it said instead.
    pub(crate) fn spawn(mut command: Command) -> Result<Self, String> {
        let mut process = LineProcess::spawn(&mut command);
        let mut stderr = process.child.stderr.take().expect("stderr is piped");
        let stderr = thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            text
        });
        let line = process.line();
        let address = |name: &str| {
            let line = line.as_ref().ok()?;
            let word = line
                .strip_prefix("ready ")?
                .split(' ')
                .find_map(|it| it.strip_prefix(name));
            word?.parse().ok()
        };
        let (kv, mgmt, memcached) = (address("kv="), address("mgmt="), address("memcached="));
        if let (Some(kv), Some(mgmt), Some(memcached)) = (kv, mgmt, memcached) {
            return Ok(Self {
                process,
                stderr: Some(stderr),
                kv,
                mgmt,
                memcached,
                kvs: address("kvs="),
                memcacheds: address("memcacheds="),
                mgmts: address("mgmts="),
            });
        }
        process.kill();
        let status = process.child.wait();
        Err(format!(
            "{line:?}, {status:?}: {}",
            stderr.join().unwrap_or_default()
        ))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.child.id()
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.process.child);
        rustix::process::kill_process(pid, signal).expect("the process is ours");
    }

    /// Kills it as `kill -9` does.
    pub(crate) fn kill(mut self) {
        let child = &mut self.process.child;
        child.kill().expect("the process is ours");
        child.wait().expect("the process is ours");
    }

    /// Waits for its end, at most [`PATIENCE`]. Returns how it ended and what it wrote to standard error.
    pub(crate) fn wait(mut self) -> (ExitStatus, String) {
        let status = wait_for(&mut self.process.child);
        let stderr = self.stderr.take().expect("the end is waited for once");
        (status, stderr.join().expect("reading does not panic"))
    }

    /// Returns whether the process is running.
    pub(crate) fn is_alive(&mut self) -> bool {
        let ended = self.process.child.try_wait();
        ended.expect("the process is ours").is_none()
    }

    /// Resident memory in bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let line = self.status("VmRSS");
        let kib: u64 = line.trim_end_matches(" kB").parse().expect("a number");
        kib << 10
    }

    /// Returns a field of the process's `proc_pid_status(5)`.
    pub(crate) fn status(&self, name: &str) -> String {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()));
        let status = status.expect("the process runs");
        let mut lines = status.lines().filter_map(|line| line.split_once(':'));
        let found = lines.find(|(found, _)| *found == name);
        found.expect(name).1.trim().to_owned()
    }

    /// A logged-in connection with the bucket `default`.
    pub(crate) fn connect(&self) -> ClientConnection {
        self.try_connect().expect("a connection")
    }

    /// The same, for a server that may be gone.
    pub(crate) fn try_connect(&self) -> Result<ClientConnection, ClientError> {
        connect_to(self.kv, PASSWORD)
    }
}

/// The administrator that servers of tests have. PLAIN, as a debug build takes its time with SCRAM.
pub(crate) fn administrator() -> LoginCredentials {
    LoginCredentials {
        user: USER.to_owned(),
        password: PASSWORD.to_owned(),
        mechanism: Mechanism::Plain,
    }
}

/// A logged-in connection with the bucket `default`.
pub(crate) fn connect_to(kv: SocketAddr, password: &str) -> Result<ClientConnection, ClientError> {
    let login = LoginCredentials {
        password: password.to_owned(),
        ..administrator()
    };
    ClientConnection::ready(&kv.ip().to_string(), kv.port(), &login, "default", PATIENCE)
}

/// Names of the threads of a process, as `top -H` shows them.
pub(crate) fn threads_of(pid: u32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the process runs");
    // A thread may end while it is looked at.
    let names = tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .map(|name| name.trim().to_owned());
    names.collect()
}

/// Returns whether all threads of a process were stopped by a signal.
pub(crate) fn has_stopped(pid: u32) -> bool {
    let mut tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the process runs");
    tasks.all(|task| {
        let path = task.expect("a thread").path().join("stat");
        let stat = std::fs::read_to_string(path).unwrap_or_default();
        // The state follows the name, which may have parentheses of its own (proc_pid_stat(5)).
        stat.rsplit_once(')')
            .is_some_and(|(_, rest)| rest.starts_with(" T"))
    })
}

/// Mounts an empty file system of that many MiB on a directory.
pub(crate) fn mount(dir: &Path, mib: u32) {
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", &format!("size={mib}m"), "tmpfs"]);
    let (code, _, stderr) = run(mount.arg(dir));
    assert_eq!(code, Some(0), "{stderr}");
}

/// Waits for the end of a process.
pub(crate) fn wait_for(child: &mut Child) -> ExitStatus {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().expect("the process is ours") {
            return status;
        }
        assert!(Instant::now() < deadline, "the process does not end");
        // sleep: the standard library has no wait with a deadline
        thread::sleep(Duration::from_millis(2));
    }
}

/// Runs a command to its end: exit code, standard output, standard error.
pub(crate) fn run(command: &mut Command) -> (Option<i32>, String, String) {
    let output = command.output().expect("the command starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}
