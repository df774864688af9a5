//! `kedge cluster-run`: all nodes of a cluster as processes of this machine.
//!
//! Each node is a `kedge serve` with a directory of its own below the data directory, which also has its log. Nothing
//! is restarted: the end of a node is reported, and the others go on. The nodes stop when this process ends, however it
//! ends.

mod development_tls;
mod layout;
mod nodes;

use std::io;
use std::net::IpAddr;
use std::num::NonZero;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus};
use std::sync::mpsc;
use std::thread::available_parallelism;

use clap::{Arg, ArgMatches, Command, value_parser};
use kedge_cluster::{ClusterError, MapNode, REPLICAS_MAX, Release};
use kedge_coordination::StoreAddress;
use kedge_tls::TlsError;
use kedge_types::limits::CLUSTER_NODES_MAX;
use rustix::process::Signal;

use self::development_tls::DevelopmentTls;
use self::layout::LayoutOptions;
use self::nodes::{NodeEvent, NodeProcess};
use crate::output;
use crate::serve::{bucket_config, coordinator};
use crate::settings::{self, Effective, MaybePort, Settings, SettingsError};

/// The coordination store in the data directory.
const STORE_DIR: &str = "coordinator";
/// Ports of the first node. The ports of the next nodes follow, two apart for key-value and one apart for management.
const KV_PORT: u16 = 12_000;
const MGMT_PORT: u16 = 9_000;
/// Settings that differ from node to node.
const OWN: &[&str] = &[
    "data_dir",
    "kv_port",
    "mgmt_port",
    "kv_tls_port",
    "mgmt_tls_port",
    "coordinator",
    "node_name",
    "advertise",
    "stop_with_parent",
];

/// The reason why the cluster does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
enum RunError {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error("cannot start node {node}: {source}")]
    Start { node: String, source: io::Error },
    #[error("TLS: {0}")]
    Tls(#[from] TlsError),
    #[error("{0}")]
    Usage(String),
    #[error("node {node} did not start ({status}); its log is {}", log.display())]
    NodeEnded {
        node: String,
        status: ExitStatus,
        log: PathBuf,
    },
    #[error("{0}")]
    Signals(#[from] io::Error),
}

/// Returns the command line: the command's own arguments, and all settings, which each node gets.
pub(crate) fn command() -> Command {
    let nodes = i64::try_from(CLUSTER_NODES_MAX).unwrap_or(i64::MAX);
    let command = Command::new("cluster-run")
        .about("Run all nodes of a cluster on this machine")
        .long_about(
            "Run all nodes of a cluster on this machine, as processes of their own. All settings of serve are handed \
             on to them, but --data-dir holds a directory for each node and, without --coordinator, the coordination \
             store; --kv-port (12000) is the first node's, the next ones' are 2 apart, and --mgmt-port (9000) likewise, 1 apart. Ports of 0, and those of TLS, are any \
             free ones; with --kv-port off or --mgmt-port off these are those of TLS. With --tls auto the nodes get certificates of a CA in the data directory, \
             tls/ca.pem, and reach each other by TLS (--cluster-encryption mutual_tls). Without --threads the nodes share the cores. The same directory later gives the same cluster.",
        )
        .arg(
            Arg::new("nodes")
                .long("nodes")
                .value_parser(value_parser!(u16).range(1..=nodes))
                .help("Number of nodes, when the cluster is made [default: 2]"),
        )
        .arg(
            Arg::new("replicas")
                .long("replicas")
                .value_parser(value_parser!(u8).range(0..=i64::from(REPLICAS_MAX)))
                .help("Replicas of each vBucket, when the cluster is made [default: 1]"),
        );
    settings::arguments(command)
}

/// Runs the cluster until a signal stops it, or its last node ends.
pub(crate) fn run(matches: &ArgMatches, release: Release) -> ExitCode {
    match cluster_run(matches, release) {
        Ok(code) => code,
        Err(error) => {
            output::complain(format_args!("kedge cluster-run: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn cluster_run(matches: &ArgMatches, release: Release) -> Result<ExitCode, RunError> {
    let effective = Effective::new(matches, |name| std::env::var_os(name))?;
    if effective.is_given("node_name") {
        let why = "--node-name is for a single node: kedge serve";
        return Err(RunError::Usage(why.to_owned()));
    }
    let settings = &effective.settings;
    let given = |name, own: MaybePort| own.port().filter(|_| effective.is_given(name));
    let wanted = LayoutOptions {
        nodes: matches.get_one("nodes").copied(),
        replicas: matches.get_one("replicas").copied(),
        kv_port: given("kv_port", settings.kv_port),
        mgmt_port: given("mgmt_port", settings.mgmt_port),
        kv_is_tls: settings.kv_port == MaybePort::Off,
        mgmt_is_tls: settings.mgmt_port == MaybePort::Off,
        host: reached_at(settings),
        bucket: (!settings.bucket.is_empty()).then(|| bucket_config(settings)),
        level: release.levels.highest,
    };
    let dir = settings.data_dir.join(STORE_DIR);
    let (store, url) = match coordinator(settings)? {
        Some(store) => (store, settings.coordinator.clone()),
        None => (
            StoreAddress::from(&*dir),
            format!("embedded:{}", dir.display()),
        ),
    };
    let nodes = layout::prepare(&store, &settings.data_dir, &wanted)?;
    if let MaybePort::At(1..) = settings.memcached_port
        && effective.is_given("memcached_port")
        && nodes.len() > 1
    {
        let why = "the nodes cannot share --memcached-port: give 0 for any free port each, or off";
        return Err(RunError::Usage(why.to_owned()));
    }
    let (events, inbox) = mpsc::channel();
    nodes::watch_signals(events.clone())?;
    let mut flags = settings::given_flags(matches, OWN);
    if !effective.is_given("threads") {
        let cores = available_parallelism().map_or(1, NonZero::get);
        flags.extend([
            "--threads".to_owned(),
            share(cores, nodes.len()).to_string(),
        ]);
    }
    let tls = DevelopmentTls::ensure(&effective)?;
    let mut running = Vec::new();
    for entry in &nodes {
        let mut flags = flags.clone();
        if let Some(tls) = &tls {
            flags.extend(tls.flags(entry)?);
        }
        let place = (settings.data_dir.as_path(), &*url);
        let node = NodeProcess::start(entry, place, &flags, running.len(), &events);
        match node {
            Ok(node) => running.push(node),
            Err(error) => {
                stop_all(&mut running, Signal::TERM);
                return Err(error);
            }
        }
    }
    supervise(&nodes, &mut running, &inbox)
}

/// Waits for events of the nodes.
fn supervise(
    nodes: &[MapNode],
    running: &mut [NodeProcess],
    inbox: &mpsc::Receiver<NodeEvent>,
) -> Result<ExitCode, RunError> {
    let mut ready = 0;
    let mut stopping = false;
    let mut failed = false;
    // The channel never closes: the thread that waits for signals has a sender.
    while let Ok(event) = inbox.recv() {
        match event {
            NodeEvent::Line(at, line) => {
                let node = &mut running[at];
                output::print(&format!("{line} node={} pid={}\n", node.name, node.pid()))?;
                node.ready = true;
                ready += 1;
                if ready == running.len() {
                    output::print(&ready_line(nodes))?;
                }
            }
            NodeEvent::Ended(at) => {
                let node = &mut running[at];
                let status = node.end()?;
                failed |= !status.success();
                if !stopping && !node.ready {
                    let error = RunError::NodeEnded {
                        node: node.name.clone(),
                        status,
                        log: node.log.clone(),
                    };
                    stop_all(running, Signal::TERM);
                    return Err(error);
                }
                if !stopping {
                    failed = true;
                    let log = node.log.display();
                    output::complain(format_args!(
                        "kedge cluster-run: node {} ended ({status}); the others go on; its log is {log}",
                        node.name
                    ));
                }
                if running.iter().all(NodeProcess::has_ended) {
                    break;
                }
            }
            NodeEvent::Signal => {
                let signal = if stopping { Signal::KILL } else { Signal::TERM };
                stopping = true;
                for node in running.iter() {
                    node.signal(signal);
                }
            }
        }
    }
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Returns the number of front-end threads of each of `nodes` nodes that share `cores` cores: more threads would only
/// wait for a core.
fn share(cores: usize, nodes: usize) -> usize {
    (cores / nodes.max(1)).max(1)
}

/// Stops all nodes and waits for them.
fn stop_all(running: &mut [NodeProcess], signal: Signal) {
    for node in running.iter() {
        node.signal(signal);
    }
    for node in running.iter_mut() {
        // A failed wait cannot be handled.
        let _ = node.end();
    }
}

/// Returns the host at which nodes reach each other: the given one, the address that they listen on, or loopback if they
/// listen on all addresses.
fn reached_at(settings: &Settings) -> String {
    if !settings.advertise.is_empty() {
        return settings.advertise.clone();
    }
    match settings.listen {
        IpAddr::V4(address) if address.is_unspecified() => "127.0.0.1".to_owned(),
        IpAddr::V6(address) if address.is_unspecified() => "::1".to_owned(),
        address => address.to_string(),
    }
}

fn ready_line(nodes: &[MapNode]) -> String {
    let places = nodes.iter().map(|node| {
        let host = if node.host.contains(':') {
            format!("[{}]", node.host)
        } else {
            node.host.clone()
        };
        format!("{host}:{}", node.kv_port.max(node.tls.kv))
    });
    let places: Vec<String> = places.collect();
    format!("cluster ready kv={}\n", places.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn front_end_threads_are_shared_between_nodes() {
        let shares =
            [(1, 1), (2, 2), (2, 3), (8, 3), (16, 2)].map(|(cores, nodes)| share(cores, nodes));
        assert_eq!(shares, [1, 1, 1, 2, 8]);
    }
}
