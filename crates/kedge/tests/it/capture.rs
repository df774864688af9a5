//! Proxies in front of the ports of nodes, which record all that goes through them.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// The bytes of one direction of a connection.
type Recording = Arc<Mutex<Vec<u8>>>;

/// The recordings of all connections through the proxies.
#[derive(Clone, Default)]
pub(crate) struct Recorder(Arc<Mutex<Vec<Recording>>>);

impl Recorder {
    /// Opens a proxy at one host, and returns its port, which is free at the host to which it forwards.
    pub(crate) fn open(&self, known: &str, own: &str) -> u16 {
        loop {
            let listener = TcpListener::bind((known, 0)).expect("a port");
            let port = listener.local_addr().expect("an address").port();
            if TcpListener::bind((own, port)).is_err() {
                continue;
            }
            let to = format!("{own}:{port}").parse().expect("an address");
            self.forward(listener, to);
            return port;
        }
    }

    /// Forwards all connections of a listener, until the process ends.
    fn forward(&self, listener: TcpListener, to: SocketAddr) {
        let recorder = self.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if let Ok(server) = TcpStream::connect(to) {
                    recorder.join(&client, &server);
                }
            }
        });
    }

    fn join(&self, client: &TcpStream, server: &TcpStream) {
        for (from, to) in [(client, server), (server, client)] {
            let recording = Recording::default();
            self.0.lock().expect("no panic").push(recording.clone());
            from.set_nodelay(true).expect("a socket");
            let clone = |socket: &TcpStream| socket.try_clone().expect("a descriptor");
            let (from, to) = (clone(from), clone(to));
            thread::spawn(move || copy(from, to, &recording));
        }
    }

    pub(crate) fn all(&self) -> Vec<Vec<u8>> {
        let all = self.0.lock().expect("no panic");
        let bytes = all.iter().map(|it| it.lock().expect("no panic").clone());
        bytes.collect()
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, recording: &Mutex<Vec<u8>>) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let bytes = &buffer[..count];
        recording.lock().expect("no panic").extend_from_slice(bytes);
        if to.write_all(bytes).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}

pub(crate) fn has(bytes: &[u8], word: &str) -> bool {
    bytes.windows(word.len()).any(|it| it == word.as_bytes())
}

/// Checks that bytes are records of TLS 1.3 and nothing else: without encryption only the first message of each side.
pub(crate) fn check_records(stream: &[u8]) {
    let mut rest = stream;
    // A connection may end within a record.
    while let [kind, 3, minor, high, low, body @ ..] = rest {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        assert!((20..=23).contains(kind), "record of type {kind}");
        assert!(
            [1, 3].contains(minor) && length <= (16 << 10) + 256,
            "{minor} {length}"
        );
        let is_hello = body.first().is_none_or(|kind| [1, 2].contains(kind));
        assert!(
            *kind != 22 || is_hello,
            "a message of the handshake is not encrypted"
        );
        rest = body.get(length..).unwrap_or_default();
    }
    assert!(rest.len() < 5, "{:02x?}", &rest[..5]);
}
