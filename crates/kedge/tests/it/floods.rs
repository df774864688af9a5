//! Clusters amid strangers who take all they can get.
//!
//! `KEDGE_FLOOD` says how many come at a time; `make test-long` has many more.

use std::net::{SocketAddr, TcpStream};

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::cluster::{Cluster, put};

fn flood() -> usize {
    let given = std::env::var("KEDGE_FLOOD").ok();
    given.map_or(300, |text| text.parse().expect("a number"))
}

/// Raises this process's limit of open files, of which each connection is one.
pub(crate) fn raise_file_limit(needed: u64) {
    let mut limit = getrlimit(Resource::Nofile);
    let maximum = limit.maximum.unwrap_or(u64::MAX);
    assert!(
        maximum >= needed,
        "the test needs {needed} open files, and the hard limit is {maximum}: raise it with ulimit -Hn, or lower KEDGE_FLOOD"
    );
    if limit.current.is_some_and(|current| current < needed) {
        limit.current = Some(needed);
        setrlimit(Resource::Nofile, limit).expect("a limit below the maximum");
    }
}

fn idle(to: SocketAddr) -> Vec<TcpStream> {
    let connect = |_| TcpStream::connect(to).expect("a connection");
    (0..flood()).map(connect).collect()
}

/// 256 connections that said nothing took all that a management port had: nodes, which use the same port, did not get through
/// to each other, and one that was restarted never became ready.
#[test]
fn idle_strangers_do_not_block_replication_connections() {
    // Four times the strangers, and the rest of the test.
    raise_file_limit(flood() as u64 * 4 + 500);
    let dir = tempfile::tempdir().expect("a directory");
    let mut cluster = Cluster::start(dir.path(), &["--nodes=3", "--replicas=1"]);
    let mut idle: Vec<TcpStream> = (0..3).flat_map(|node| idle(cluster.mgmt(node))).collect();
    cluster.kill(2);
    let back = cluster.serve(dir.path(), 2);
    cluster.nodes[2].kv = back.kv;
    idle.extend(self::idle(cluster.mgmt(2)));
    for node in 0..3 {
        cluster.wait_status(node, "all are there", |status| {
            let nodes = status["nodes"].as_array().expect("nodes");
            nodes.iter().all(|node| node["up"] == true)
                && status["buckets"][0]["missingCopies"] == 0
        });
    }
    let (code, _, why) = cluster.tool(1, &["status"]);
    assert_eq!(code, Some(0), "{why}");
    let mut connections: Vec<_> = (0..3).map(|node| cluster.connect(node)).collect();
    for n in 0..30 {
        put(&mut connections, &format!("key-{n}"), "x");
    }
}
