//! Nodes whose disk hangs, is slow or fails, on a real file system: they live and renew their leases, and are failed over
//! without a lost SyncWrite.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use kedge_faulty_disk::{Call, Effect, Fault, FaultyDisk, in_namespaces};
use kedge_types::DurabilityLevel;
use rustix::io::Errno;

use crate::cluster::{Cluster, is_whole, value_of};
use crate::process::{PASSWORD, PATIENCE, connect_to};

/// The node with the faulty disk.
const FAULTY: usize = 1;
/// The number of SyncWrites that the faulty node has acknowledged before the fault.
const BEFORE: usize = 20;

/// Starts a cluster of three nodes with two replicas, which fails nodes over whose disk is in trouble for 5 s.
fn start(dir: &Path) -> Cluster {
    let more = ["--nodes=3", "--replicas=2", "--apply-max-lag=10ms"];
    let cluster = Cluster::start(dir, &more);
    let settings = [
        ("enabled", "true"),
        ("timeout", "10"),
        ("maxCount", "1"),
        ("failoverOnDataDiskIssues[enabled]", "true"),
        ("failoverOnDataDiskIssues[timePeriod]", "5"),
        ("failoverOnDataDiskNonResponsiveness[enabled]", "true"),
        ("failoverOnDataDiskNonResponsiveness[timePeriod]", "5"),
    ];
    let http = cluster.http(0);
    let set = http.expect("POST", "/settings/autoFailover", &settings);
    set.expect("settings");
    cluster.wait_status(0, "all nodes have leases of that time", |status| {
        let nodes = status["nodes"].as_array().into_iter().flatten();
        let has_time = |ms: &serde_json::Value| *ms == 10_000;
        nodes.map(|node| &node["lease"]["timeMs"]).all(has_time)
            && status["autoFailover"]["enabled"] == true
    });
    cluster
}

/// Writes documents to the vBuckets of a node until `stop`, at a level that needs its disk. Notes the acknowledged ones.
fn write(
    (node, address): (usize, SocketAddr),
    stop: &AtomicBool,
    acknowledged: &Mutex<Vec<String>>,
) {
    let mut numbers = 0_u32..;
    while !stop.load(Ordering::Relaxed) {
        let Ok(mut connection) = connect_to(address, PASSWORD) else {
            thread::yield_now();
            continue;
        };
        connection.set_durability_timeout(Some(5_000));
        for number in &mut numbers {
            let key = format!("{node}-{number}");
            let level = Some(DurabilityLevel::PersistToMajority);
            match connection.set(key.as_bytes(), key.as_bytes(), level) {
                Ok(_) => acknowledged.lock().expect("no panic").push(key),
                Err(error) if error.is_fatal() => break,
                // Another node has the vBucket, or the write is refused or ambiguous.
                Err(_) => {}
            }
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
    }
}

/// Makes the disk of a node faulty, and checks that the node is failed over for that reason and comes back.
fn fails_over(fault: Fault, why: &str) {
    let [dir, below] = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    let faulty_dir = dir.path().join(format!("n_{FAULTY}"));
    std::fs::create_dir(&faulty_dir).expect("a directory");
    let disk = FaultyDisk::mount(below.path(), &faulty_dir);
    let cluster = start(dir.path());
    let stop = AtomicBool::new(false);
    let acknowledged: [Mutex<Vec<String>>; 3] = Default::default();
    let count = |node: usize| acknowledged[node].lock().expect("no panic").len();
    thread::scope(|scope| {
        for node in 0..3 {
            let (address, stop, acknowledged) = (cluster.kv(node), &stop, &acknowledged[node]);
            scope.spawn(move || write((node, address), stop, acknowledged));
        }
        // A panic ends the threads, too.
        let _stop = StopAtEnd(&stop);
        let deadline = Instant::now() + PATIENCE;
        while count(FAULTY) < BEFORE {
            assert!(Instant::now() < deadline, "{} writes", count(FAULTY));
            thread::yield_now();
        }
        let faulty = disk.fault(fault);
        cluster.wait_status(0, "the node is failed over", |status| {
            status["nodes"][FAULTY]["failedOver"] == true
        });
        assert!(disk.faulty_calls() > 0);
        let after: [usize; 3] = std::array::from_fn(count);
        // The others go on.
        let deadline = Instant::now() + PATIENCE;
        while count(0) < after[0] + BEFORE || count(2) < after[2] + BEFORE {
            assert!(Instant::now() < deadline, "the others do not go on");
            thread::yield_now();
        }
        drop(faulty);
    });
    // The node itself would have kept its lease.
    let log = |node| std::fs::read_to_string(dir.path().join(format!("n_{node}/kedge.log")));
    let logs: String = [0, 2]
        .into_iter()
        .filter_map(|node| log(node).ok())
        .collect();
    let mut lines = logs.lines();
    let line = lines
        .find(|line| line.contains("the lease is taken from a node that is to be failed over"));
    let line = line.unwrap_or_else(|| panic!("{logs}"));
    assert!(line.contains(why) && line.contains("n_1"), "{line}");

    let all: Vec<String> = acknowledged
        .into_iter()
        .flat_map(|it| it.into_inner().expect("no panic"))
        .collect();
    let mut connections = [cluster.connect(0), cluster.connect(2)];
    for key in &all {
        assert_eq!(value_of(&mut connections, key).as_ref(), Some(key));
    }
    // The process has lived through it.
    let (code, _, stderr) = cluster.tool(0, &["recover", "n_1"]);
    assert_eq!(code, Some(0), "{stderr}");
    cluster.wait_status(0, "all copies are there again", is_whole);
}

/// Ends the writes.
struct StopAtEnd<'s>(&'s AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The lines of the log are written by all threads.
fn is_data(path: &Path) -> bool {
    !path.ends_with("kedge.log")
}

fn is_vbucket_file(path: &Path) -> bool {
    path.to_string_lossy().contains(".couch.")
}

#[test]
fn node_with_a_hung_disk_is_failed_over() {
    if !in_namespaces("failing_disks::node_with_a_hung_disk_is_failed_over") {
        return;
    }
    let fault = Fault {
        calls: Call::ALL,
        concerns: is_data,
        effect: Effect::Hang,
    };
    fails_over(fault, "its disk hangs");
}

#[test]
fn node_with_a_slow_disk_is_failed_over() {
    if !in_namespaces("failing_disks::node_with_a_slow_disk_is_failed_over") {
        return;
    }
    let fault = Fault {
        calls: Call::ALL,
        concerns: is_data,
        effect: Effect::Delay(Duration::from_millis(1_500)),
    };
    fails_over(fault, "its disk is slow");
}

/// A failed sync, or a failed write of the log, ends the process.
#[test]
fn node_whose_files_take_no_writes_is_failed_over() {
    if !in_namespaces("failing_disks::node_whose_files_take_no_writes_is_failed_over") {
        return;
    }
    let fault = Fault {
        calls: &[Call::Write],
        concerns: is_vbucket_file,
        effect: Effect::Fail(Errno::IO),
    };
    fails_over(fault, "its disk fails");
}
