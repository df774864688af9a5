//! The memory of incomplete requests.

use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use kedge_protocol::binary::{Opcode, RequestWriter};

use crate::process::{PATIENCE, Server};

const VALUE_BYTES: usize = 19 << 20;
const CLIENTS: usize = 10;
/// The growth that counts as memory of the requests, in bytes.
const MUCH: u64 = 100 << 20;

/// Sends all of a SET but its last byte.
fn send_most_of_a_set(stream: &mut TcpStream) {
    let mut request = Vec::new();
    let writer = RequestWriter::new(Opcode::Set);
    writer.write(&[0; 8], b"key", &vec![b'x'; VALUE_BYTES], &mut request);
    request.pop();
    match stream.write_all(&request) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
        sent => sent.expect("the server receives"),
    }
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < PATIENCE, "{what}");
        // sleep: the system has no notification of a process's memory
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn memory_of_incomplete_requests_is_returned_to_the_system() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(dir.path(), &[]);
    let before = server.resident_bytes();
    for _ in 0..2 {
        let mut streams: Vec<TcpStream> = (0..CLIENTS)
            .map(|_| server.connect().into_stream().expect("nothing is unread"))
            .collect();
        thread::scope(|scope| {
            for stream in &mut streams {
                scope.spawn(|| send_most_of_a_set(stream));
            }
        });
        wait_until("the requests are received", || {
            server.resident_bytes() > before + MUCH
        });
        drop(streams);
        wait_until("the memory is returned", || {
            server.resident_bytes() < before + MUCH / 4
        });
    }
}
