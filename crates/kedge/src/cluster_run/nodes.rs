//! The processes of `cluster-run`.

use std::fs::OpenOptions;
use std::io::{self, BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;
use std::thread;

use kedge_cluster::MapNode;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::RunError;

/// The log of a node, in its data directory.
const LOG_FILE: &str = "kedge.log";

/// An event of the nodes.
pub(super) enum NodeEvent {
    /// The node with this number printed its `ready` line.
    Line(usize, String),
    /// The standard output of the node has ended, and the node ends too.
    Ended(usize),
    /// A signal asks the cluster to stop.
    Signal,
}

/// A node and its process.
pub(super) struct NodeProcess {
    pub(super) name: String,
    pub(super) log: PathBuf,
    /// True after the node printed its `ready` line.
    pub(super) ready: bool,
    child: Child,
    status: Option<ExitStatus>,
}

impl NodeProcess {
    /// Starts the node with that number; its events go to `events`.
    pub(super) fn start(
        entry: &MapNode,
        (data_dir, coordinator): (&Path, &str),
        flags: &[String],
        number: usize,
        events: &Sender<NodeEvent>,
    ) -> Result<Self, RunError> {
        let name = &entry.name;
        let failed = |source| RunError::Start {
            node: name.clone(),
            source,
        };
        let dir = data_dir.join(name);
        std::fs::create_dir_all(&dir).map_err(failed)?;
        let log = dir.join(LOG_FILE);
        let stderr = OpenOptions::new().create(true).append(true).open(&log);
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command
            .arg("serve")
            .args(flags)
            .arg("--data-dir")
            .arg(&dir)
            .args(["--coordinator", coordinator, "--node-name", name])
            .args(["--advertise", &entry.host])
            .args(ports("kv", entry.kv_port, entry.tls.kv))
            .args(ports("mgmt", entry.mgmt_port, entry.tls.mgmt))
            .arg("--stop-with-parent")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(stderr.map_err(failed)?)
            // A signal that a terminal sends to all of its processes must not reach a node twice.
            .process_group(0);
        let mut child = command.spawn().map_err(failed)?;
        let stdout = child.stdout.take();
        let node = Self {
            name: name.clone(),
            log,
            ready: false,
            child,
            status: None,
        };
        let events = events.clone();
        let read = move || {
            let lines = stdout
                .into_iter()
                .flat_map(|out| BufReader::new(out).lines());
            for line in lines.map_while(Result::ok) {
                if line.starts_with("ready ") && events.send(NodeEvent::Line(number, line)).is_err()
                {
                    return;
                }
            }
            // The receiver is gone when the command has ended.
            let _ = events.send(NodeEvent::Ended(number));
        };
        thread::Builder::new()
            .name(format!("kedge-out-{name}"))
            .spawn(read)
            .map_err(failed)?;
        Ok(node)
    }

    /// Returns the process id.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to the process, if it is running.
    pub(super) fn signal(&self, signal: Signal) {
        if self.status.is_none() {
            // The process may have ended by itself, and its exit status has not been collected.
            let _ = kill_process(Pid::from_child(&self.child), signal);
        }
    }

    /// Waits for the end of the process.
    pub(super) fn end(&mut self) -> io::Result<ExitStatus> {
        if let Some(status) = self.status {
            return Ok(status);
        }
        let status = self.child.wait()?;
        self.status = Some(status);
        Ok(status)
    }

    /// Returns whether the exit status of the process was collected.
    pub(super) fn has_ended(&self) -> bool {
        self.status.is_some()
    }
}

/// Returns the flags of the ports of a protocol. With a port without TLS, the one of TLS is any free one: that of the map may
/// change, and the `ready` line names it.
fn ports(protocol: &str, plain: u16, tls: u16) -> [String; 2] {
    match plain {
        0 => [
            format!("--{protocol}-port=off"),
            format!("--{protocol}-tls-port={tls}"),
        ],
        plain => [
            format!("--{protocol}-port={plain}"),
            format!("--{protocol}-tls-port=0"),
        ],
    }
}

/// Sends [`NodeEvent::Signal`] for each SIGTERM and SIGINT.
pub(super) fn watch_signals(events: Sender<NodeEvent>) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    thread::Builder::new()
        .name("kedge-signals".to_owned())
        .spawn(move || {
            for _ in signals.forever() {
                if events.send(NodeEvent::Signal).is_err() {
                    return;
                }
            }
        })?;
    Ok(())
}
