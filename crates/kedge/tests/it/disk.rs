//! Full disks and damaged files, on the real process and the real disk.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, thread};

use kedge_faulty_disk::in_namespaces;
use kedge_types::{DurabilityLevel, VbId};
use rustix::process::Signal;

use crate::cluster::{Cluster, put_durably, value_of};
use crate::process::{
    PASSWORD, PATIENCE, Server, USER, clean_environment, kedge, mount, run, serve,
};

const PERSIST: Option<DurabilityLevel> = Some(DurabilityLevel::PersistToMajority);

/// Runs a tool on the server.
fn tool(server: &Server, args: &[&str]) -> (Option<i32>, String, String) {
    let url = format!("http://{}", server.mgmt);
    let access = ["-U", &url, "-u", USER, "-P", PASSWORD];
    run(kedge(args).args(access))
}

/// A server whose standard error was a file on a full disk ended: the logger reported that it could not write a line with
/// a macro that panics when it cannot write one.
#[test]
fn server_keeps_running_when_log_lines_cannot_be_written() {
    let dir = tempfile::tempdir().expect("a directory");
    let command = serve(dir.path(), &["--log-level=debug"]);
    let mut into_full = Command::new("sh");
    clean_environment(&mut into_full).args(["-c", "exec \"$@\" 2>/dev/full", "sh"]);
    into_full
        .arg(command.get_program())
        .args(command.get_args());
    let server = Server::spawn(into_full).expect("it starts");
    let mut connection = server.connect();
    connection
        .set(b"key", b"value", PERSIST)
        .expect("it is stored");
    server.signal(Signal::TERM);
    let (status, _) = server.wait();
    assert_eq!(status.code(), Some(0));
}

fn value(round: u8) -> Vec<u8> {
    vec![b'a' + round; 2_000]
}

fn key(n: u32) -> Vec<u8> {
    format!("key-{n}").into_bytes()
}

/// Writes files of which two thirds are garbage.
fn write_garbage(data_dir: &Path) {
    for round in 0..3 {
        // Each stop brings them into the files, where they make those of the round before garbage.
        let server = Server::start(data_dir, &["--compaction-min-bytes=1GiB"]);
        let mut connection = server.connect();
        for n in 0..1_000 {
            connection
                .set(&key(n), &value(round), None)
                .expect("a write");
        }
        server.signal(Signal::TERM);
        assert_eq!(server.wait().0.code(), Some(0));
    }
}

/// Fills a disk with a file, which it returns.
fn fill(disk: &Path) -> PathBuf {
    let ballast = disk.join("ballast");
    // It ends with an error: the disk is full then.
    fs::write(&ballast, vec![0; 512 << 20]).expect_err("the disk is smaller");
    ballast
}

/// Starts a server on a full disk, and reads from it.
fn start_on_full_disk(data_dir: &Path) -> Server {
    let server = Server::start(data_dir, &[]);
    let mut connection = server.connect();
    for n in [0, 500, 999] {
        let found = connection.get(&key(n)).expect("an answer");
        assert_eq!(found.expect("the document").value, value(2));
    }
    server
}

/// Compacts a bucket on a full disk, and writes to it. Returns the log of the server.
fn compact_on_full_disk(server: Server, data_dir: &Path) -> String {
    let before = fs::metadata(data_dir.join("buckets/default/0.couch.1"));
    let (code, stdout, stderr) = tool(&server, &["compact", "default", "--wait"]);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    let name = data_dir.join("buckets/default/0.couch.2");
    let after = fs::metadata(name).expect("a new file");
    assert!(after.len() * 2 < before.expect("the file").len());
    server
        .connect()
        .set(b"new", b"1", PERSIST)
        .expect("there is room");
    server.signal(Signal::TERM);
    let (status, log) = server.wait();
    assert_eq!(status.code(), Some(0), "{log}");
    let server = Server::start(data_dir, &[]);
    let found = server.connect().get(b"new").expect("an answer");
    assert!(found.is_some());
    log
}

/// A full disk prevented the start: "cannot save the cluster state". This one was never large enough for a reserve.
#[test]
fn server_starts_on_a_full_disk_and_compaction_frees_space() {
    if !in_namespaces("disk::server_starts_on_a_full_disk_and_compaction_frees_space") {
        return;
    }
    let disk = tempfile::tempdir().expect("a directory");
    mount(disk.path(), 32);
    let data_dir = disk.path().join("data");
    write_garbage(&data_dir);
    let ballast = fill(disk.path());
    let server = start_on_full_disk(&data_dir);
    // A compaction needs room for one new file.
    let len = fs::metadata(&ballast).expect("the ballast").len();
    let file = fs::File::options().write(true).open(&ballast);
    file.expect("the ballast")
        .set_len(len - (512 << 10))
        .expect("some room");
    compact_on_full_disk(server, &data_dir);
}

/// An earlier process has reserved the space, when the disk had eight times as much.
#[test]
fn compaction_on_a_full_disk_uses_the_reserve_of_an_earlier_process() {
    if !in_namespaces("disk::compaction_on_a_full_disk_uses_the_reserve_of_an_earlier_process") {
        return;
    }
    let disk = tempfile::tempdir().expect("a directory");
    mount(disk.path(), 256);
    let data_dir = disk.path().join("data");
    write_garbage(&data_dir);
    let reserve = data_dir.join("buckets/default/compaction.reserve");
    let reserved = || fs::metadata(&reserve).map_or(0, |file| file.blocks() * 512);
    let server = Server::start(&data_dir, &["--compaction-min-bytes=1GiB"]);
    let deadline = Instant::now() + PATIENCE;
    while reserved() < 16 << 20 {
        assert!(Instant::now() < deadline, "{} bytes reserved", reserved());
        // sleep: the task of another process, which sends no event
        thread::sleep(Duration::from_millis(50));
    }
    server.signal(Signal::TERM);
    assert_eq!(server.wait().0.code(), Some(0));
    fill(disk.path());
    let server = start_on_full_disk(&data_dir);
    let log = compact_on_full_disk(server, &data_dir);
    assert!(log.contains("the compaction reserve is freed"), "{log}");
    assert!(!reserve.exists());
}

/// A node of a cluster has a map instead of the state of a server that is alone.
#[test]
fn nodes_of_a_cluster_start_on_a_full_disk() {
    if !in_namespaces("disk::nodes_of_a_cluster_start_on_a_full_disk") {
        return;
    }
    let disk = tempfile::tempdir().expect("a directory");
    mount(disk.path(), 96);
    let dir = disk.path().join("cluster");
    let cluster = Cluster::start(&dir, &["--nodes=2"]);
    let mut connections = [cluster.connect(0), cluster.connect(1)];
    for n in 0..20 {
        put_durably(
            &mut connections,
            &format!("key-{n}"),
            "1",
            DurabilityLevel::Majority,
        );
    }
    let map = cluster.map(0);
    drop(connections);
    assert_eq!(cluster.stop(), Some(0));
    let ballast = fill(disk.path());

    let cluster = Cluster::start(&dir, &[]);
    for field in ["uuid", "rev", "vBucketServerMap"] {
        assert_eq!(cluster.map(1)[field], map[field], "{field}");
    }
    let mut connections = [cluster.connect(0), cluster.connect(1)];
    for n in 0..20 {
        let value = value_of(&mut connections, &format!("key-{n}"));
        assert_eq!(value.as_deref(), Some("1"), "key-{n}");
    }
    fs::remove_file(ballast).expect("the ballast goes");
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut stored = connections
            .iter_mut()
            .map(|connection| connection.set(b"after", b"2", PERSIST));
        if stored.any(|stored| stored.is_ok()) {
            break;
        }
        assert!(Instant::now() < deadline, "writes do not recover");
        thread::yield_now();
    }
    drop(connections);
    assert_eq!(cluster.stop(), Some(0));
}

/// Damages the root of the tree by id in a couchstore file, see `docs/reference/formats/couchstore.md`.
fn damage_root_by_id(path: &Path) {
    let mut bytes = fs::read(path).expect("the file");
    let blocks = (0..bytes.len()).step_by(4_096);
    let header = blocks.rev().find(|at| bytes[*at] == 1).expect("a header");
    let body = &bytes[header + 9..];
    let fixed = match body[0] {
        ..13 => 25,
        13 => 33,
        14.. => 39,
    };
    let by_seqno_bytes = usize::from(u16::from_be_bytes([body[19], body[20]]));
    let root = &body[fixed + by_seqno_bytes..][..6];
    let root = root.iter().fold(0, |at, byte| at << 8 | usize::from(*byte));
    // Behind its length and its checksum; the first byte of a block is none of its own.
    let at = (root + 9..).find(|at| at % 4_096 > 0).expect("a byte");
    bytes[at] ^= 0xff;
    fs::write(path, bytes).expect("the damage");
}

/// With a damaged root of the tree by id writes stayed in the log for ever, a reset was refused without a word about what
/// helps, and a server that could not close the bucket cleanly ended with exit code 0.
#[test]
fn damaged_tree_prevents_a_clean_shutdown_until_compaction_repairs_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(dir.path(), &[]);
    server.connect().set(b"key", b"1", None).expect("a write");
    server.signal(Signal::TERM);
    assert_eq!(server.wait().0.code(), Some(0));
    let vb = VbId::of_key(b"key", 64).to_string();
    let file = dir.path().join(format!("buckets/default/{vb}.couch.1"));
    damage_root_by_id(&file);

    let server = Server::start(dir.path(), &[]);
    server
        .connect()
        .set(b"key", b"2", PERSIST)
        .expect("a write");
    let repair = format!("kedge compact default --vb {vb} --wait");
    let (code, _, stderr) = tool(&server, &["vbucket", "reset", &vb, "default"]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains(&repair), "{stderr}");
    server.signal(Signal::TERM);
    let (status, stderr) = server.wait();
    assert_eq!(status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("not closed cleanly: bucket default"),
        "{stderr}"
    );
    assert!(stderr.contains(&repair), "{stderr}");
    assert!(stderr.contains(&*file.to_string_lossy()), "{stderr}");

    let server = Server::start(dir.path(), &[]);
    let (code, stdout, stderr) = tool(&server, &["compact", "default", "--vb", &vb, "--wait"]);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    server.signal(Signal::TERM);
    let (status, stderr) = server.wait();
    assert_eq!(status.code(), Some(0), "{stderr}");
    let server = Server::start(dir.path(), &[]);
    let found = server.connect().get(b"key").expect("an answer");
    assert_eq!(found.expect("the document").value, b"2");
}
