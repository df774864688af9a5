//! Hostile input closes its own connection at most: another client notices nothing, and memory stays bounded.
//!
//! `KEDGE_HOSTILE_ROUNDS` is the number of times that all input is sent, each with other random bytes (1);
//! `KEDGE_HOSTILE_SEED` repeats a run.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use kedge::client::ClientConnection;
use kedge_protocol::binary::{HEADER_BYTES, Opcode, RequestWriter};
use kedge_types::DurabilityLevel;

use crate::process::{PASSWORD, PATIENCE, Server, USER};
use crate::random::{Random, count_from_environment};

/// Resident memory that the attacks may cost, in bytes: buffers of connections that just ended, and what the
/// allocator keeps.
const GROWTH_BYTES_MAX: u64 = 160 << 20;
/// Longest time one request of the innocent client may take while others attack.
const INNOCENT_PATIENCE: Duration = Duration::from_secs(10);

fn rounds() -> u64 {
    count_from_environment("KEDGE_HOSTILE_ROUNDS", 1)
}

/// The port of an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Port {
    Kv,
    Memcached,
    Mgmt,
}

/// The fate of the attacker's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The server closes it, with or without an answer.
    Closed,
    /// It stays open, or closes: only the other connections matter.
    Any,
}

fn address(server: &Server, port: Port) -> SocketAddr {
    match port {
        Port::Kv => server.kv,
        Port::Memcached => server.memcached,
        Port::Mgmt => server.mgmt,
    }
}

fn open(server: &Server, port: Port) -> TcpStream {
    let stream = TcpStream::connect(address(server, port)).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

/// Reads to the end; panics when the server keeps the connection open.
fn expect_closed(stream: &mut TcpStream, what: &str) {
    let mut sink = vec![0; 64 << 10];
    loop {
        match stream.read(&mut sink) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return,
            Err(error) => panic!("{what}: the server does not close: {error}"),
        }
    }
}

/// A binary header with these fields and nothing else.
fn header(magic: u8, opcode: u8, key: u16, extras: u8, body: u32) -> Vec<u8> {
    let mut header = vec![magic, opcode];
    header.extend_from_slice(&key.to_be_bytes());
    header.extend_from_slice(&[extras, 0, 0, 0]);
    header.extend_from_slice(&body.to_be_bytes());
    header.resize(HEADER_BYTES, 0);
    header
}

/// Attacks that are one write: name, port, bytes, end.
fn attacks(random: &mut Random) -> Vec<(&'static str, Port, Vec<u8>, End)> {
    let mut list = vec![
        (
            "http on kv",
            Port::Kv,
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
            End::Closed,
        ),
        (
            "a body longer than allowed",
            Port::Kv,
            header(0x80, 1, 1, 8, u32::MAX),
            End::Closed,
        ),
        (
            "30 MiB before login",
            Port::Kv,
            header(0x80, 1, 1, 8, 30 << 20),
            End::Closed,
        ),
        (
            "key longer than the body",
            Port::Kv,
            header(0x80, 0, 300, 0, 10),
            End::Closed,
        ),
        (
            "extras longer than the body",
            Port::Kv,
            header(0x80, 1, 0, 200, 10),
            End::Closed,
        ),
        (
            "a reply instead of a request",
            Port::Kv,
            header(0x81, 0, 0, 0, 0),
            End::Closed,
        ),
        (
            "framing extras past the body",
            Port::Kv,
            header(0x08, 1, 0xff01, 8, 9),
            End::Closed,
        ),
        (
            "a header cut short",
            Port::Kv,
            header(0x80, 0, 1, 0, 1)[..10].to_vec(),
            End::Any,
        ),
        (
            "a body cut short",
            Port::Kv,
            header(0x80, 0x1f, 100, 0, 1000),
            End::Any,
        ),
        (
            "noops by the thousand",
            Port::Kv,
            header(0x80, 0x0a, 0, 0, 0).repeat(20_000),
            End::Any,
        ),
        (
            "a line without end",
            Port::Memcached,
            vec![b'g'; 4 << 20],
            End::Closed,
        ),
        (
            "a length beyond all bounds",
            Port::Memcached,
            b"set k 0 0 99999999999999\r\n".to_vec(),
            End::Any,
        ),
        (
            "a negative length",
            Port::Memcached,
            b"set k 0 0 -5\r\nabcde\r\nversion\r\n".to_vec(),
            End::Any,
        ),
        (
            "a value without its end",
            Port::Memcached,
            b"set k 0 0 3\r\nabcdefghij\r\nget k\r\n".to_vec(),
            End::Any,
        ),
        (
            "keys by the thousand",
            Port::Memcached,
            [b"get".to_vec(), b" k".repeat(50_000), b"\r\n".to_vec()].concat(),
            End::Any,
        ),
        (
            "a key too long",
            Port::Memcached,
            [b"get ".to_vec(), vec![b'k'; 300], b"\r\n".to_vec()].concat(),
            End::Any,
        ),
        (
            "meta flags of nonsense",
            Port::Memcached,
            b"mg k \xff \x00 T999999999999999999999\r\nms\r\nma k D-1 J\r\n".to_vec(),
            End::Any,
        ),
        (
            "unknown words",
            Port::Memcached,
            b"EHLO x\r\n".repeat(1000),
            End::Any,
        ),
        (
            "binary, too long",
            Port::Memcached,
            header(0x80, 1, 1, 8, u32::MAX),
            End::Closed,
        ),
        ("no http", Port::Mgmt, vec![0x80; 100], End::Closed),
        (
            "a header without end",
            Port::Mgmt,
            [b"GET / HTTP/1.1\r\nX: ".to_vec(), vec![b'x'; 1 << 20]].concat(),
            End::Closed,
        ),
        (
            "a body too long",
            Port::Mgmt,
            post("Content-Length: 99999999999\r\n", ""),
            End::Any,
        ),
        (
            "a chunk of nonsense",
            Port::Mgmt,
            post("Transfer-Encoding: chunked\r\n", "zzz\r\n"),
            End::Any,
        ),
        (
            "credentials of nonsense",
            Port::Mgmt,
            b"GET /pools HTTP/1.0\r\nAuthorization: Basic !!!\r\n\r\n".to_vec(),
            End::Closed,
        ),
        (
            "a path out of the tree",
            Port::Mgmt,
            b"GET /../../../etc/passwd HTTP/1.0\r\n\r\n".to_vec(),
            End::Closed,
        ),
    ];
    for _ in 0..20 {
        let len = random.below(4000) as usize;
        // The first byte of a frame, so that not all are refused by it.
        let kv = [vec![0x80], random.bytes(len)].concat();
        list.push(("random frames", Port::Kv, kv, End::Any));
        list.push(("random bytes", Port::Memcached, random.bytes(len), End::Any));
        list.push(("random bytes", Port::Mgmt, random.bytes(len), End::Any));
    }
    list
}

fn post(headers: &str, body: &str) -> Vec<u8> {
    let login = "Basic QWRtaW5pc3RyYXRvcjpzZWNyZXQtb2YtdGhlLXRlc3Q=";
    format!(
        "POST /pools/default/buckets HTTP/1.1\r\nHost: x\r\nAuthorization: {login}\r\n{headers}\r\n{body}"
    )
    .into_bytes()
}

/// A client that goes on with its work; it panics when anything is not as it should be.
fn innocent(connection: &mut ClientConnection, stop: &AtomicBool) -> u64 {
    connection
        .set_answer_timeout(INNOCENT_PATIENCE)
        .expect("a timeout");
    let mut done = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        let key = format!("innocent-{}", done % 100);
        let value = done.to_string();
        let level = done
            .is_multiple_of(10)
            .then_some(DurabilityLevel::PersistToMajority);
        connection
            .set(key.as_bytes(), value.as_bytes(), level)
            .expect("a write");
        let found = connection
            .get(key.as_bytes())
            .expect("a read")
            .expect("a document");
        assert_eq!(found.value, value.as_bytes());
        done += 1;
    }
    done
}

/// Runs `attack` while an innocent client works.
fn beside_innocent(server: &Server, attack: impl FnOnce()) {
    let mut connection = server.connect();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let innocent = scope.spawn(|| innocent(&mut connection, &stop));
        // Stops the innocent client also when the attack panics, so that the panic is what is reported.
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let stopper = Stop(&stop);
        attack();
        drop(stopper);
        let done = innocent
            .join()
            .expect("the innocent client noticed something");
        assert!(done > 0, "the innocent client was at work");
    });
}

#[test]
fn garbage_closes_only_its_own_connection() {
    let mut random = Random::from_environment("KEDGE_HOSTILE_SEED");
    let dir = tempfile::tempdir().expect("a directory");
    let limits = ["--slow-sender-timeout=1s", "--unauthenticated-timeout=1s"];
    let mut server = Server::start(dir.path(), &limits);
    let before = server.resident_bytes();
    beside_innocent(&server, || {
        let all = (0..rounds()).flat_map(|_| attacks(&mut random));
        for (what, port, bytes, end) in all {
            let mut stream = open(&server, port);
            // A server that closes at once makes the write fail.
            let _ = stream.write_all(&bytes);
            match end {
                End::Closed => expect_closed(&mut stream, what),
                End::Any => {
                    let _ = stream.shutdown(Shutdown::Write);
                    expect_closed(&mut stream, what);
                }
            }
        }
    });
    assert!(server.is_alive());
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < GROWTH_BYTES_MAX, "{grown} bytes more");
}

#[test]
fn every_opcode_survives_garbage() {
    let mut random = Random::from_environment("KEDGE_HOSTILE_SEED");
    let dir = tempfile::tempdir().expect("a directory");
    let mut server = Server::start(dir.path(), &[]);
    beside_innocent(&server, || {
        let all = (0..rounds()).flat_map(|_| 0..=u8::MAX);
        for opcode in all {
            // What ends the connection, or what only the sender of a login or a choice may follow.
            let ends = [Opcode::Quit.wire(), Opcode::Quitq.wire()];
            if ends.contains(&opcode) {
                continue;
            }
            let mut connection = server.connect().into_stream().expect("nothing is unread");
            connection
                .set_read_timeout(Some(PATIENCE))
                .expect("a timeout");
            let mut out = Vec::new();
            for _ in 0..8 {
                let (extras, key, value) = (
                    random.below(40) as u8,
                    random.below(300) as u16,
                    random.below(200) as u32,
                );
                let body = u32::from(extras) + u32::from(key) + value;
                out.extend_from_slice(&header(0x80, opcode, key, extras, body));
                out.extend_from_slice(&random.bytes(body as usize));
            }
            let mut writer = RequestWriter::new(Opcode::Noop);
            writer.opaque = 0xdead_beef;
            writer.write(&[], &[], &[], &mut out);
            connection.write_all(&out).expect("a write");
            // A server that closes instead is in its right, one that hangs is not.
            let mut seen = Vec::new();
            let mut buffer = [0; 4096];
            while !seen.windows(4).any(|four| four == [0xde, 0xad, 0xbe, 0xef]) {
                match connection.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(read) => seen.extend_from_slice(&buffer[..read]),
                    Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
                    Err(error) => panic!("opcode {opcode:#x}: no answer: {error}"),
                }
            }
        }
    });
    assert!(server.is_alive());
}

#[test]
fn slow_and_silent_clients_are_closed() {
    let dir = tempfile::tempdir().expect("a directory");
    let limits = [
        "--slow-sender-timeout=1s",
        "--unauthenticated-timeout=2s",
        "--send-timeout=1s",
    ];
    let mut server = Server::start(dir.path(), &limits);
    let before = server.resident_bytes();
    // Larger than what the kernel's buffers take in.
    let mut writer = server.connect();
    let large = vec![b'x'; 4 << 20];
    writer.set(b"large", &large, None).expect("a write");
    let vbuckets = writer.vbuckets();
    beside_innocent(&server, || {
        let mut silent = open(&server, Port::Kv);
        let mut slow = open(&server, Port::Memcached);
        slow.write_all(&header(0x80, 1, 10, 8, 1000))
            .expect("a write");
        let mut deaf = server.connect().into_stream().expect("nothing is unread");
        let mut out = Vec::new();
        let mut get = RequestWriter::new(Opcode::Get);
        get.vb = kedge_types::VbId::of_key(b"large", vbuckets);
        for _ in 0..200 {
            get.write(&[], b"large", &[], &mut out);
        }
        deaf.write_all(&out).expect("a write");
        expect_closed(&mut silent, "a client that does not log in");
        expect_closed(&mut slow, "a client that does not finish its request");
        // The innocent client and the observer are left.
        wait_for_connections(&mut writer, 2);
        drop(deaf);
    });
    assert!(server.is_alive());
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(
        grown < GROWTH_BYTES_MAX,
        "{grown} bytes more: replies nobody reads are queued"
    );
}

/// Waits until the server has no more than `count` connections. A client that does not read does not hear of
/// the end of its own: it comes behind what it did not read.
fn wait_for_connections(observer: &mut ClientConnection, count: u64) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let stats = observer.stat("").expect("statistics");
        let current = stats.iter().find(|(name, _)| name == "curr_connections");
        let current: u64 = current
            .expect("curr_connections")
            .1
            .parse()
            .expect("a number");
        if current <= count {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "a client that does not read is not closed"
        );
        thread::yield_now();
    }
}

#[test]
fn idle_connections_use_little_memory() {
    const CONNECTIONS: usize = 400;
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(dir.path(), &[]);
    let before = server.resident_bytes();
    let mut streams: Vec<TcpStream> = (0..CONNECTIONS)
        .map(|_| open(&server, Port::Memcached))
        .collect();
    for stream in &mut streams {
        stream.write_all(b"version\r\n").expect("a write");
        let mut answer = [0; 8];
        stream.read_exact(&mut answer).expect("an answer");
        assert_eq!(&answer, b"VERSION ");
    }
    let each = server.resident_bytes().saturating_sub(before) / CONNECTIONS as u64;
    assert!(each < 16 << 10, "{each} bytes for an idle connection");
    let mut connection = server.connect();
    assert!(connection.get(b"anything").expect("an answer").is_none());
}

#[test]
fn hostile_test_client_logs_in() {
    use base64::Engine as _;
    let login = base64::engine::general_purpose::STANDARD.encode(format!("{USER}:{PASSWORD}"));
    let request = String::from_utf8(post("", "")).expect("text");
    assert!(request.contains(&format!("Basic {login}\r\n")), "{login}");
}
