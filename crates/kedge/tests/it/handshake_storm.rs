//! Hostile clients of the ports with TLS, and the clients that are served meanwhile.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use kedge_tls::rustls;
use kedge_tls::rustls::pki_types::ServerName;
use rustix::net::{AddressFamily, SocketType};

use crate::endpoint::Endpoint;
use crate::process::{PATIENCE, Server, wait_for};
use crate::tls_kv::{peak_kib, start};

/// The limit of handshakes of the test's server.
const HANDSHAKES_MAX: usize = 16;
/// Handshakes that the strangers leave incomplete at a time.
const LEFT_OPEN: usize = 4 * HANDSHAKES_MAX;
/// Clients that are served during the storm.
const CLIENTS: usize = 30;

/// Connects from an address that no other client has.
fn stranger(to: SocketAddr) -> TcpStream {
    let from = SocketAddr::from((Ipv4Addr::new(127, 0, 0, 9), 0));
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None);
    let socket = socket.expect("a socket");
    rustix::net::bind(&socket, &from).expect("an address");
    rustix::net::connect(&socket, &to).expect("a connection");
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).expect("a time");
    stream.set_nodelay(true).expect("a socket");
    stream
}

/// Returns the first message of a client.
fn hello(endpoint: &Endpoint<'_>) -> Vec<u8> {
    let config = endpoint.tls(None).expect("it has TLS");
    let name = ServerName::try_from("127.0.0.1").expect("a name");
    let mut client = rustls::ClientConnection::new(config, name).expect("a client");
    let mut hello = Vec::new();
    client.write_tls(&mut hello).expect("memory");
    hello
}

/// Returns a message of one record as records of a byte each.
fn in_single_bytes(record: &[u8]) -> Vec<u8> {
    let (head, body) = record.split_at(5);
    let records = body
        .iter()
        .flat_map(|byte| [head[0], head[1], head[2], 0, 1, *byte]);
    records.collect()
}

/// Comes again and again to a port, until `stop`. Errors are those of connections that the server has closed.
fn storm(to: SocketAddr, hello: &[u8], stop: &AtomicBool) {
    let mut left_open = VecDeque::new();
    let mut leave = |stream| {
        left_open.push_back(stream);
        if left_open.len() > LEFT_OPEN {
            left_open.pop_front();
        }
    };
    let fragments = in_single_bytes(hello);
    while !stop.load(Ordering::Relaxed) {
        // It is silent.
        leave(stranger(to));
        // It leaves in the middle of a message, and stays.
        let mut half = stranger(to);
        let _ = half.write_all(&hello[..hello.len() / 2]);
        leave(half);
        // The server has computed its part, and waits for the end.
        let mut first = stranger(to);
        let _ = first.write_all(hello);
        leave(first);
        // Each byte is a record, and comes by itself.
        let mut slow = stranger(to);
        for bytes in fragments.chunks(6) {
            let _ = slow.write_all(bytes);
        }
        drop(slow);
        let mut garbage = stranger(to);
        let _ = garbage.write_all(&[0x55; 20_000]);
        let _ = garbage.read_to_end(&mut Vec::new());
        // A message that claims to be longer than any may be.
        let mut large = stranger(to);
        let _ = large.write_all(&[22, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff]);
        let _ = large.write_all(&[0; 0x4000 - 4]);
        leave(large);
    }
}

fn value_of(metrics: &str, name: &str) -> u64 {
    let mut lines = metrics.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let value = value.unwrap_or_else(|| panic!("no {name}: {metrics}"));
    let (whole, _) = value.split_once('.').unwrap_or((value, ""));
    whole
        .parse()
        .unwrap_or_else(|_| panic!("{name} is {value}"))
}

/// Waits until metrics are as they should be.
fn wait_metrics(endpoint: &Endpoint<'_>, what: &str, are: impl Fn(&str) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let metrics = endpoint.metrics();
        if are(&metrics) {
            return;
        }
        assert!(Instant::now() < deadline, "{what}: {metrics}");
        thread::yield_now();
    }
}

const OPEN: &str = "kedge_tls_handshakes_open";
const REFUSED: &str = "kedge_tls_handshakes_refused_total";

fn failed(metrics: &str, reason: &str) -> u64 {
    let name = format!("kedge_tls_handshake_failures_total{{reason=\"{reason}\"}}");
    value_of(metrics, &name)
}

/// Returns the ports of a server that have TLS.
fn endpoint<'c>(server: &Server, ca: &'c Path) -> Endpoint<'c> {
    Endpoint {
        kv: server.kvs.expect("it is served"),
        mgmt: server.mgmts.expect("it is served"),
        ca: Some(ca),
    }
}

#[test]
fn clients_are_served_in_a_storm_of_hostile_handshakes() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = start(
        dir.path(),
        &[&format!("--tls-handshakes-max={HANDSHAKES_MAX}")],
    );
    let ca = dir.path().join("tls-auto-ca.pem");
    let endpoint = endpoint(&server, &ca);
    let mut before_it = endpoint.connect();
    let peak = peak_kib(&server);
    let hello = hello(&endpoint);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let (hello, stop) = (&hello, &stop);
        for to in [endpoint.kv, endpoint.mgmt] {
            scope.spawn(move || storm(to, hello, stop));
        }
        // A panic must not leave the strangers at work.
        let served = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_metrics(&endpoint, "the storm is there", |metrics| {
                value_of(metrics, OPEN) > 0 && value_of(metrics, REFUSED) > 0
            });
            for n in 0..CLIENTS {
                let key = format!("key-{n}");
                let mut client = endpoint.connect();
                client
                    .set(key.as_bytes(), b"x", None)
                    .expect("it is stored");
                let found = before_it.get(key.as_bytes()).expect("it is read");
                assert_eq!(found.expect("it exists").value, b"x");
                let open = value_of(&endpoint.metrics(), OPEN);
                assert!(open <= 2 * HANDSHAKES_MAX as u64, "{open}");
            }
            wait_metrics(&endpoint, "each kind is counted", |metrics| {
                failed(metrics, "not_tls") > 0 && failed(metrics, "closed") > 0
            });
        }));
        stop.store(true, Ordering::Relaxed);
        if let Err(panic) = served {
            std::panic::resume_unwind(panic);
        }
    });
    // The strangers are gone, and what they had is free.
    wait_metrics(&endpoint, "the handshakes are over", |metrics| {
        value_of(metrics, OPEN) == 0
    });
    let (limit, peak) = (peak + (64 << 10), peak_kib(&server));
    assert!(peak < limit, "{peak} KiB");
}

/// In TLS 1.2 a client may ask for another handshake on the same connection, which costs the server another signature.
#[test]
fn renegotiation_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = start(dir.path(), &[]);
    let ca = dir.path().join("tls-auto-ca.pem");
    let port = server.memcacheds.expect("it is served");
    let mut client = Command::new("openssl")
        .args(["s_client", "-tls1_2", "-connect", &port.to_string()])
        .arg("-CAfile")
        .arg(&ca)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("openssl is installed");
    // Open until it ends: the end of its input would end it, too.
    let mut stdin = client.stdin.take().expect("it is piped");
    stdin.write_all(b"R\n").expect("it reads");
    wait_for(&mut client);
    let output = client.wait_with_output().expect("it has ended");
    drop(stdin);
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).to_lowercase();
    assert!(text.contains("renegotiating"), "{text}");
    assert!(text.contains("no renegotiation"), "{text}");
    endpoint(&server, &ca).connect();
}
