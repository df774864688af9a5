//! A log that cannot be written, descriptors that run out, a log that is damaged: on the real process.

use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use kedge_types::{DurabilityLevel, Status};
use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};

use crate::process::{PATIENCE, Server, clean_environment, run, serve};

const PERSIST: Option<DurabilityLevel> = Some(DurabilityLevel::PersistToMajority);
/// The exit code of a process that cannot go on without risking acknowledged writes.
const EXIT_IO: i32 = 74;

/// The command, begun by a shell that sets limits first.
pub(crate) fn limited(limits: &str, command: &Command) -> Command {
    let mut shell = Command::new("sh");
    clean_environment(&mut shell)
        .args(["-c", &format!("{limits}; exec \"$0\" \"$@\"")])
        .arg(command.get_program())
        .args(command.get_args());
    shell
}

#[test]
fn failed_log_write_ends_the_process_without_loss() {
    let dir = tempfile::tempdir().expect("a directory");
    let command = limited("trap '' XFSZ", &serve(dir.path(), &[]));
    let server = Server::spawn(command).expect("a server");
    let mut connection = server.connect();
    // The log has its first segment of 1 MiB, and no byte may be written behind the first half of it any more.
    limit_files(&server, Some(512 << 10));
    let value = vec![b'v'; 64 << 10];
    let mut acknowledged = 0;
    while acknowledged < 1000
        && connection
            .set(key(acknowledged).as_bytes(), &value, PERSIST)
            .is_ok()
    {
        acknowledged += 1;
    }
    assert!(
        (2..1000).contains(&acknowledged),
        "{acknowledged} writes fit"
    );
    let (status, stderr) = server.wait();
    assert_eq!(status.code(), Some(EXIT_IO), "{stderr}");
    assert!(stderr.contains("cannot go on safely"), "{stderr}");
    let again = Server::start(dir.path(), &[]);
    let mut connection = again.connect();
    for n in 0..acknowledged {
        let found = connection.get(key(n).as_bytes()).expect("an answer");
        assert_eq!(found.expect("it was acknowledged").value, value);
    }
}

/// Limits how long files of the process may be.
fn limit_files(server: &Server, bytes: Option<u64>) {
    let pid = Pid::from_raw(server.pid().cast_signed());
    let new = Rlimit {
        current: bytes,
        maximum: None,
    };
    prlimit(pid, Resource::Fsize, new).expect("the process is ours");
}

/// A segment that the system refuses to give ended the process, as every error of the log did that was not a full disk.
#[test]
fn writes_fail_while_no_log_segment_can_be_created() {
    let dir = tempfile::tempdir().expect("a directory");
    let command = limited("trap '' XFSZ", &serve(dir.path(), &[]));
    let server = Server::spawn(command).expect("a server");
    let mut connection = server.connect();
    connection.set(b"before", b"1", PERSIST).expect("a write");
    // The first segment has 1 MiB, the next ones are longer.
    limit_files(&server, Some(1 << 20));
    let value = vec![b'v'; 64 << 10];
    let deadline = Instant::now() + PATIENCE;
    let refused = loop {
        assert!(Instant::now() < deadline, "no write is refused");
        if let Err(refused) = connection.set(b"large", &value, None) {
            break refused;
        }
    };
    assert_eq!(refused.status(), Some(Status::TemporaryFailure));
    assert!(connection.get(b"before").expect("an answer").is_some());
    limit_files(&server, None);
    while let Err(refused) = connection.set(b"after", b"1", PERSIST) {
        assert_eq!(refused.status(), Some(Status::TemporaryFailure));
        assert!(Instant::now() < deadline, "writes are refused for ever");
        // sleep: what is refused is asked for again.
        thread::sleep(Duration::from_millis(20));
    }
    server.signal(Signal::TERM);
    let (status, stderr) = server.wait();
    assert_eq!(status.code(), Some(0), "{stderr}");
    assert!(stderr.contains("the log cannot be written to"), "{stderr}");
}

fn key(n: u32) -> String {
    format!("key-{n}")
}

#[test]
fn descriptor_exhaustion_does_not_affect_open_connections() {
    let dir = tempfile::tempdir().expect("a directory");
    let command = limited("ulimit -n 80", &serve(dir.path(), &[]));
    let server = Server::spawn(command).expect("a server");
    let mut before = server.connect();
    let crowd: Vec<_> = (0..200)
        .filter_map(|_| TcpStream::connect(server.kv).ok())
        .collect();
    assert!(
        crowd.len() > 100,
        "the system takes connections: {}",
        crowd.len()
    );
    for n in 0..50 {
        before
            .set(key(n).as_bytes(), b"x", PERSIST)
            .expect("a write");
    }
    drop(crowd);
    let deadline = Instant::now() + PATIENCE;
    let mut after = loop {
        match server.try_connect() {
            Ok(connection) => break connection,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        // sleep: a connection that is refused is tried again.
        thread::sleep(Duration::from_millis(20));
    };
    assert!(after.get(b"key-1").expect("an answer").is_some());
    server.signal(Signal::TERM);
    assert_eq!(server.wait().0.code(), Some(0));
}

#[test]
fn damaged_log_is_refused_and_salvaged_on_demand() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(dir.path(), &["--apply-max-lag=1h"]);
    let mut connection = server.connect();
    for n in 0..40 {
        connection
            .set(key(n).as_bytes(), &[b'v'; 600], PERSIST)
            .expect("a write");
    }
    // A shutdown would bring the documents into their files, and the log would not matter.
    server.signal(Signal::KILL);
    server.wait();
    let segment = first_segment(dir.path());
    let file = std::fs::File::options()
        .write(true)
        .open(&segment)
        .expect("the segment");
    file.write_all_at(&[0xff; 64], 4_096 + 5_000)
        .expect("the damage");
    let (code, stdout, stderr) = run(&mut serve(dir.path(), &[]));
    assert_eq!((code, stdout.as_str()), (Some(1), ""), "{stderr}");
    let name = segment.file_name().expect("a name").to_string_lossy();
    assert!(
        stderr.contains(&*name) && stderr.contains("at byte"),
        "{stderr}"
    );
    let salvaged = Server::start(dir.path(), &["--recover", "salvage"]);
    let mut connection = salvaged.connect();
    let there = (0..40).filter(|n| {
        connection
            .get(key(*n).as_bytes())
            .expect("an answer")
            .is_some()
    });
    let there: Vec<u32> = there.collect();
    assert!(
        (20..40).contains(&there.len()) && there.contains(&39),
        "{there:?}"
    );
    salvaged.signal(Signal::TERM);
    salvaged.wait();
    let strict = Server::start(dir.path(), &[]);
    assert!(
        strict
            .connect()
            .get(key(39).as_bytes())
            .expect("an answer")
            .is_some()
    );
}

fn first_segment(data_dir: &Path) -> PathBuf {
    let log = data_dir.join("buckets/default/log");
    let names = std::fs::read_dir(log).expect("the log's directory");
    let mut segments: Vec<PathBuf> = names
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "log"))
        .collect();
    segments.sort();
    segments.swap_remove(0)
}
