//! New copies from files, with nodes that are killed while they copy.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Instant;

use kedge::client::ClientConnection;

use crate::cluster::{Cluster, is_whole, value_of};
use crate::cluster_store::another;
use crate::process::{PASSWORD, PATIENCE, Server, connect_to};
use crate::rebalance::counts;

const DOCUMENTS: usize = 3_000;
/// Files are copied as slowly as this, so that a node can be killed meanwhile.
const SETTINGS: [&str; 3] = [
    "--file-copy-min-bytes=1",
    "--apply-max-lag=10ms",
    "--compaction-throttle=4MiB",
];

fn value(number: usize) -> String {
    format!("{number:08}").repeat(400)
}

fn new_node(dir: &Path) -> Command {
    let mut command = another(dir, "n_2", &dir.join("n_2"));
    command.args(SETTINGS);
    command
}

pub(crate) fn figure(connection: &mut ClientConnection, name: &str) -> u64 {
    let all = connection.stat("").expect("statistics");
    let found = all.iter().find(|(known, _)| known == name);
    let found = found.unwrap_or_else(|| panic!("no {name}"));
    found.1.parse().expect("a number")
}

pub(crate) fn wait_for_figure(server: &Server, name: &str, is: impl Fn(u64) -> bool) -> u64 {
    let deadline = Instant::now() + PATIENCE;
    loop {
        // There may be no bucket yet.
        let found = server.try_connect().ok().and_then(|mut connection| {
            let all = connection.stat("").ok()?;
            let found = all.iter().find(|(known, _)| known == name)?;
            found.1.parse().ok()
        });
        if let Some(found) = found.filter(|found| is(*found)) {
            return found;
        }
        assert!(Instant::now() < deadline, "{name}: {found:?}");
        thread::yield_now();
    }
}

#[test]
fn node_that_is_killed_while_it_copies_files_gets_all_documents() {
    let dir = tempfile::tempdir().expect("a directory");
    let settings = ["--nodes=2", "--replicas=1"].iter().chain(&SETTINGS);
    let cluster = Cluster::start(dir.path(), &settings.copied().collect::<Vec<_>>());
    let mut connections = [cluster.connect(0), cluster.connect(1)];
    for number in 0..DOCUMENTS {
        let key = format!("document-{number}");
        let stored = connections.iter_mut().any(|connection| {
            let stored = connection.set(key.as_bytes(), value(number).as_bytes(), None);
            stored.is_ok()
        });
        assert!(stored, "{key}");
    }
    let deadline = Instant::now() + PATIENCE;
    while connections
        .iter_mut()
        .any(|connection| figure(connection, "ep_unapplied_items") > 0)
    {
        assert!(Instant::now() < deadline, "the files do not get all");
        thread::yield_now();
    }
    let mut server = thread::scope(|scope| {
        let starting = scope.spawn(|| Server::spawn(new_node(dir.path())));
        while cluster.tool(0, &["add", "n_2"]).0 != Some(0) {
            assert!(!starting.is_finished(), "it waits");
        }
        starting.join().expect("no panic").expect("it is ready")
    });
    let (code, _, why) = cluster.tool(0, &["rebalance"]);
    assert_eq!(code, Some(0), "{why}");
    // In the first file, at its end or in the next one, and later.
    for bytes in [1, 200_000, 700_000] {
        wait_for_figure(&server, "replication_file_bytes", |found| found >= bytes);
        server.kill();
        server = Server::spawn(new_node(dir.path())).expect("it starts again");
    }
    let files = wait_for_figure(&server, "replication_files", |files| files > 0);
    cluster.wait_status(0, "all nodes have their share", |status| {
        let even = counts(status).iter().all(|it| (21..=22).contains(&it.0));
        is_whole(status) && counts(status).len() == 3 && even
    });
    assert!(files > 0);
    cluster.kill(0);
    let deadline = Instant::now() + PATIENCE;
    // It is refused while the others take the node for alive.
    while cluster.tool(1, &["failover", "n_0"]).0 != Some(0) {
        assert!(Instant::now() < deadline, "it is not failed over");
    }
    let connect = |address| connect_to(address, PASSWORD).expect("a connection");
    let mut connections = vec![connect(cluster.kv(1)), connect(server.kv)];
    for number in 0..DOCUMENTS {
        let found = value_of(&mut connections, &format!("document-{number}"));
        assert!(found == Some(value(number)), "document-{number}");
    }
    assert_eq!(figure(&mut connections[1], "ep_file_copy_failures"), 0);
}
