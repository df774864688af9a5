//! TLS of the key-value and memcached ports with the real binary, and clients of others.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::floods::raise_file_limit;
use crate::process::{PASSWORD, PATIENCE, Server, USER, kedge, run};

/// A server with TLS on free ports, whose certificate is one of its own CA.
pub(crate) fn start(dir: &Path, more: &[&str]) -> Server {
    let flags = [
        "--tls=auto",
        "--kv-tls-port=0",
        "--mgmt-tls-port=0",
        "--memcached-tls-port=0",
    ];
    Server::start(dir, &[&flags, more].concat())
}

/// `openssl s_client` to this port, with these flags and this input. Returns what it printed.
fn s_client(address: SocketAddr, ca: &Path, flags: &[&str], input: &[u8]) -> String {
    let mut client = Command::new("openssl")
        .args(["s_client", "-ign_eof", "-connect", &address.to_string()])
        .args(["-verify_return_error", "-CAfile"])
        .arg(ca)
        .args(flags)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("openssl is installed");
    let mut stdin = client.stdin.take().expect("it is piped");
    stdin.write_all(input).expect("it reads");
    drop(stdin);
    let done = client.wait_with_output().expect("it ends");
    format!(
        "{}{}",
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    )
}

#[test]
fn openssl_connects_with_both_versions() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = start(dir.path(), &[]);
    let ca = dir.path().join("tls-auto-ca.pem");
    let memcached = server.memcacheds.expect("it is served");
    for (flag, name) in [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")] {
        let shown = s_client(memcached, &ca, &[flag], b"version\r\nquit\r\n");
        assert!(shown.contains(name), "{shown}");
        assert!(shown.contains("Verify return code: 0 (ok)"), "{shown}");
        assert!(shown.contains("VERSION "), "{shown}");
    }
    let old = s_client(memcached, &ca, &["-tls1_1"], b"version\r\nquit\r\n");
    assert!(!old.contains("VERSION "), "{old}");
}

#[test]
fn load_runs_over_tls() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = start(dir.path(), &[]);
    let kvs = server.kvs.expect("it is served");
    let ca = dir.path().join("tls-auto-ca.pem");
    let url = format!("couchbases://{kvs}/default");
    for (size, pipeline) in [("50", "1"), ("100000", "8")] {
        let mut command = kedge(&["load", "-U", &url, "-u", USER, "-P", PASSWORD, "--json"]);
        command.arg("--ca").arg(&ca).args([
            "--num-items=50",
            "--num-threads=3",
            "--num-cycles=100",
            "--set-pct=50",
            "--min-size",
            size,
            "--max-size",
            size,
            "--pipeline",
            pipeline,
        ]);
        let (code, stdout, stderr) = run(&mut command);
        assert_eq!(code, Some(0), "{stdout}{stderr}");
        assert!(
            stdout.contains("\"errors\":0") || stdout.contains("\"errors\": 0"),
            "{stdout}"
        );
    }
}

/// The memory of a process that was its own at most, in KiB.
pub(crate) fn peak_kib(server: &Server) -> u64 {
    let path = format!("/proc/{}/status", server.pid());
    let status = std::fs::read_to_string(path).expect("the process runs");
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let words = line.and_then(|line| line.split_ascii_whitespace().nth(1));
    words.and_then(|word| word.parse().ok()).expect("a number")
}

/// Each stranger sends the beginning of a handshake message of 32 KiB, and no more. `KEDGE_FLOOD` says how many come.
#[test]
fn half_open_handshakes_take_bounded_memory_and_block_nobody() {
    let count: u64 =
        std::env::var("KEDGE_FLOOD").map_or(300, |text| text.parse().expect("a number"));
    raise_file_limit(count + 500);
    let dir = tempfile::tempdir().expect("a directory");
    let server = start(dir.path(), &["--unauthenticated-timeout=1h"]);
    let kvs = server.kvs.expect("it is served");
    let before = peak_kib(&server);
    let mut hello = vec![22, 3, 1, 0x3f, 0xff, 1, 0, 0x7f, 0];
    hello.resize(16_000, 0);
    let strangers: Vec<TcpStream> = (0..count)
        .map(|_| {
            let mut stranger = TcpStream::connect(kvs).expect("a connection");
            stranger.write_all(&hello).expect("the system takes it");
            stranger
        })
        .collect();
    // One that the server has not closed has been read as far as its memory allows, when a later one is served.
    let ca = dir.path().join("tls-auto-ca.pem");
    let began = Instant::now();
    let mut command = kedge(&["stats", "connections", "-u", USER, "-P", PASSWORD, "-U"]);
    command
        .arg(format!("couchbases://{kvs}/default"))
        .arg("--ca")
        .arg(&ca);
    let (code, stdout, stderr) = run(&mut command);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    assert!(stdout.contains("this:ssl"), "{stdout}");
    assert!(began.elapsed() < PATIENCE);
    // A quarter of the memory of requests, and the state of a handshake for each.
    let limit = before + (64 << 10) + count * 24;
    let peak = peak_kib(&server);
    assert!(peak < limit, "{peak} KiB, {before} before");
    drop(strangers);
}

#[test]
fn ports_without_tls_answer_clients_with_tls_with_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = start(dir.path(), &[]);
    // The other way round is in the tests of kedge-server.
    let mut client = TcpStream::connect(server.kv).expect("a connection");
    client
        .set_read_timeout(Some(PATIENCE))
        .expect("it is not zero");
    client
        .write_all(&[
            22, 3, 1, 0, 5, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ])
        .expect("it is open");
    let mut got = Vec::new();
    client.read_to_end(&mut got).expect("it ends");
    assert_eq!(got, b"");
}
