//! Shutdowns while a long answer of the text protocol is sent in pieces.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use kedge::client::ClientConnection;
use kedge_protocol::binary::{Feature, Opcode, RequestWriter};
use kedge_types::{Datatype, DurabilityLevel};
use rustix::process::Signal;

use crate::process::{PATIENCE, Server, administrator};

const DOCUMENT_BYTES: usize = 10 << 10;
/// Large enough that a task sends the document, because it has to inflate it.
const LARGE_DOCUMENT_BYTES: usize = 1 << 20;
/// The answer is received up to here before the shutdown begins.
const RECEIVED_FIRST: usize = 1 << 20;

/// A retrieval of many documents, whose answer is far longer than what the buffers of the sockets hold.
struct LongRetrieval {
    stream: TcpStream,
    answer: Vec<u8>,
}

impl LongRetrieval {
    /// Sends the request, followed by another command, and receives the beginning of the answer.
    fn begin(server: &Server) -> Self {
        let (mut request, mut answer) = (b"get".to_vec(), Vec::new());
        for number in 0..6_000 {
            let (key, length) = if number % 200 == 199 {
                ("large", LARGE_DOCUMENT_BYTES)
            } else {
                ("small", DOCUMENT_BYTES)
            };
            request.extend_from_slice(format!(" {key}").as_bytes());
            answer.extend_from_slice(format!("VALUE {key} 0 {length}\r\n").as_bytes());
            answer.resize(answer.len() + length, b'x');
            answer.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(b"\r\nmn\r\n");
        answer.extend_from_slice(b"END\r\n");
        let mut stream = TcpStream::connect(server.memcached).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        stream.write_all(&request).expect("the request is sent");
        let mut begin = vec![0; RECEIVED_FIRST];
        stream.read_exact(&mut begin).expect("the beginning");
        assert_same(&begin, &answer[..RECEIVED_FIRST]);
        Self { stream, answer }
    }

    /// Receives until the server closes the connection. Returns all that it sent after the beginning.
    fn receive_rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        let ends = self.stream.read_to_end(&mut rest);
        ends.expect("the server closes the connection in order");
        rest
    }
}

/// Asserts without printing megabytes.
fn assert_same(found: &[u8], expected: &[u8]) {
    let differs = found.iter().zip(expected).position(|(a, b)| a != b);
    assert_eq!(differs, None, "the first byte that differs");
    assert_eq!(found.len(), expected.len());
}

/// Returns `LARGE_DOCUMENT_BYTES` bytes `x`, compressed: a literal, and copies of it.
fn snappy() -> Vec<u8> {
    const PIECE: usize = 64;
    let mut bytes = Vec::new();
    let mut length = LARGE_DOCUMENT_BYTES;
    while length >= 0x80 {
        bytes.push(length as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    // A literal of 64 bytes; its length minus one follows in one byte.
    bytes.extend_from_slice(&[60 << 2, PIECE as u8 - 1]);
    bytes.extend_from_slice(&[b'x'; PIECE]);
    for _ in 1..LARGE_DOCUMENT_BYTES / PIECE {
        // A copy of 64 bytes from 64 bytes before.
        bytes.extend_from_slice(&[(PIECE as u8 - 1) << 2 | 2, PIECE as u8, 0]);
    }
    bytes
}

fn store_documents(server: &Server) {
    let mut connection = server.connect();
    connection
        .set(b"small", &[b'x'; DOCUMENT_BYTES], None)
        .expect("a write");
    let (host, login) = (server.kv.ip().to_string(), administrator());
    let mut connection = {
        let opened = ClientConnection::ready(&host, server.kv.port(), &login, "default", PATIENCE);
        opened.expect("a connection")
    };
    connection.hello(&[Feature::Snappy]).expect("a feature");
    let writer = RequestWriter {
        datatype: Datatype::SNAPPY,
        ..connection.document(Opcode::Set, b"large")
    };
    connection
        .expect(&writer, &[0; 8], b"large", &snappy())
        .expect("a write");
}

/// Sends SIGTERM, and waits until the server accepts no more connections.
fn begin_shutdown(server: &Server) -> Instant {
    let began = Instant::now();
    server.signal(Signal::TERM);
    loop {
        match TcpStream::connect(server.memcached) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => return began,
            _ => assert!(began.elapsed() < PATIENCE, "connections are accepted"),
        }
        thread::yield_now();
    }
}

#[test]
fn shutdown_completes_a_long_retrieval() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut server = Server::start(dir.path(), &["--shutdown-timeout=120s"]);
    store_documents(&server);
    let mut retrieval = LongRetrieval::begin(&server);
    begin_shutdown(&server);
    assert!(server.is_alive(), "the answer is not complete");
    let rest = retrieval.receive_rest();
    // The command behind it is not answered.
    assert_same(&rest, &retrieval.answer[RECEIVED_FIRST..]);
    let (status, stderr) = server.wait();
    assert_eq!(status.code(), Some(0), "{stderr}");
    assert!(!stderr.contains("in flight"), "{stderr}");
}

#[test]
fn shutdown_does_not_wait_for_a_client_that_does_not_read() {
    const TIMEOUT: Duration = Duration::from_secs(1);
    /// Longest time that the machine may need for the rest of the shutdown.
    const REST_MAX: Duration = Duration::from_secs(10);
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(dir.path(), &["--shutdown-timeout=1s"]);
    store_documents(&server);
    let mut reading = LongRetrieval::begin(&server);
    let mut stuck = LongRetrieval::begin(&server);
    let began = begin_shutdown(&server);
    // The other connection shares the front-end threads with the one that is stuck.
    let rest = thread::scope(|scope| {
        let rest = scope.spawn(|| reading.receive_rest());
        let (status, stderr) = server.wait();
        let took = began.elapsed();
        assert_eq!(status.code(), Some(0), "{stderr}");
        assert!(stderr.contains("in flight"), "{stderr}");
        assert!(took >= TIMEOUT && took < TIMEOUT + REST_MAX, "{took:?}");
        rest.join().expect("it is received")
    });
    assert!(reading.answer[RECEIVED_FIRST..].starts_with(&rest));
    let rest = stuck.receive_rest();
    assert!(rest.len() < stuck.answer.len() - RECEIVED_FIRST);
    assert_same(&rest, &stuck.answer[RECEIVED_FIRST..][..rest.len()]);
    // Nothing was lost.
    let server = Server::start(dir.path(), &[]);
    let small = server.connect().get(b"small").expect("an answer");
    assert_eq!(small.map(|it| it.value.len()), Some(DOCUMENT_BYTES));
}

#[test]
fn second_signal_ends_a_shutdown_at_once_and_loses_no_persisted_write() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(dir.path(), &["--shutdown-timeout=600s"]);
    store_documents(&server);
    let level = Some(DurabilityLevel::PersistToMajority);
    let mut connection = server.connect();
    connection.set(b"durable", b"1", level).expect("a write");
    // The shutdown waits for a client that does not read.
    let _stuck = LongRetrieval::begin(&server);
    begin_shutdown(&server);
    server.signal(Signal::INT);
    let (status, stderr) = server.wait();
    assert_eq!(status.code(), Some(130), "{stderr}");
    let server = Server::start(dir.path(), &[]);
    let found = server.connect().get(b"durable").expect("an answer");
    assert!(found.is_some());
}
