//! Turns of a front-end thread that the test takes itself.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::SystemTime;

use kedge_node::inbox::Inbox;
use kedge_tls::rustls::ClientConnection;
use kedge_tls::rustls::pki_types::ServerName;
use kedge_tls::{ClientTls, ServerTls, TlsOptions, Trust, ensure_auto};
use mio::Waker;

use super::*;
use crate::inbox::{AcceptedConnection, Port};
use crate::limits::HANDSHAKES_PER_TURN;
use crate::session::tests::shared;

const DEADLINE: Duration = Duration::from_secs(60);

struct Rig {
    front_end: FrontEnd,
    shared: Arc<ServerContext>,
    events: Events,
    listener: TcpListener,
    client: ClientTls,
    _dir: tempfile::TempDir,
}

/// A client and its end of the connection.
struct TlsClient {
    tls: ClientConnection,
    stream: TcpStream,
}

impl Rig {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let files = ensure_auto(dir.path(), &["localhost".to_owned()], now).unwrap();
        let options = TlsOptions {
            certificate: files.certificate,
            key: files.key,
            ..TlsOptions::default()
        };
        let poll = Poll::new().unwrap();
        let waker = Waker::new(poll.registry(), WAKER).unwrap();
        let front_ends = Arc::new(FrontEnds::new(vec![Inbox::new(waker)]));
        let mut context = shared(&front_ends);
        context.tls = Some(ServerTls::open(options, now).unwrap());
        // The test has its own.
        context.limits.unauthenticated = 10 * DEADLINE;
        let shared = Arc::new(context);
        Self {
            front_end: FrontEnd::new(0, poll, shared.clone(), None),
            shared,
            events: Events::with_capacity(EVENTS),
            listener: TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap(),
            client: ClientTls {
                trust: Trust::Ca(vec![files.ca]),
                own: None,
            },
            _dir: dir,
        }
    }

    /// A connection whose client has sent these bytes. The thread accepts it in its next turn.
    fn connect(&self, port: Port, is_tls: bool, first: &[u8]) -> TcpStream {
        let mut client = TcpStream::connect(self.listener.local_addr().unwrap()).unwrap();
        client.write_all(first).unwrap();
        let (stream, peer) = self.listener.accept().unwrap();
        // Until they have come.
        stream.peek(&mut [0]).unwrap();
        stream.set_nonblocking(true).unwrap();
        let from = peer.ip();
        let handshake = is_tls.then(|| self.shared.handshakes.admit(from).unwrap().0);
        let accepted = AcceptedConnection {
            stream: mio::net::TcpStream::from_std(stream),
            port,
            handshake,
            peer,
            local: (Ipv4Addr::LOCALHOST, 11_210).into(),
        };
        self.shared.metrics.opened(port == Port::Memcached);
        let message = FrontEndMessage::Connection(Box::new(accepted));
        self.shared.front_ends.send(0, message);
        client
    }

    fn connect_tls(&self) -> TlsClient {
        let name = ServerName::try_from("localhost").unwrap();
        let mut tls = ClientConnection::new(self.client.config().unwrap(), name).unwrap();
        let mut hello = Vec::new();
        tls.write_tls(&mut hello).unwrap();
        let stream = self.connect(Port::Kv, true, &hello);
        stream.set_nonblocking(true).unwrap();
        TlsClient { tls, stream }
    }

    fn take_turn(&mut self) {
        self.front_end.wait(&mut self.events);
        self.front_end.front_ends.inbox(0).awake();
        let shared = self.shared.clone();
        self.front_end.take_turn(&shared, &self.events);
    }

    fn stat(&self, wanted: &str) -> u64 {
        let mut found = None;
        self.shared.handshakes.stats(&mut |name, value| {
            if name == wanted {
                found = Some(value.parse().unwrap());
            }
        });
        found.unwrap()
    }
}

impl TlsClient {
    /// Goes on with the handshake as far as the server's messages are there.
    fn advance(&mut self) {
        if self.tls.read_tls(&mut self.stream).is_ok() {
            self.tls.process_new_packets().unwrap();
        }
        while self.tls.wants_write() {
            self.tls.write_tls(&mut self.stream).unwrap();
        }
    }
}

#[test]
fn storm_of_handshakes_leaves_time_for_other_connections() {
    let mut rig = Rig::new();
    let storm = 3 * HANDSHAKES_PER_TURN;
    let mut clients: Vec<TlsClient> = (0..storm).map(|_| rig.connect_tls()).collect();
    // It comes last, and is served in the first turn.
    let mut plain = rig.connect(Port::Memcached, false, b"version\r\n");
    plain.set_read_timeout(Some(DEADLINE)).unwrap();
    assert_eq!(rig.stat("tls_handshakes_open"), storm as u64);
    rig.take_turn();
    let mut reply = [0; 8];
    plain.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"VERSION ");
    let waiting = rig.front_end.queue.waiting_handshakes();
    assert_eq!(waiting, storm - HANDSHAKES_PER_TURN);
    assert_eq!(rig.stat("tls_handshakes_deferred"), 0);
    rig.take_turn();
    assert_eq!(rig.stat("tls_handshakes_deferred"), waiting as u64);

    let end = Instant::now() + DEADLINE;
    while rig.stat("tls_handshakes_open") > 0 {
        assert!(Instant::now() < end, "the handshakes do not end");
        clients.iter_mut().for_each(TlsClient::advance);
        // A turn without work would wait for some.
        rig.shared
            .front_ends
            .send(0, FrontEndMessage::ClusterChanged);
        rig.take_turn();
    }
    assert!(clients.iter().all(|client| !client.tls.is_handshaking()));
    assert_eq!(rig.front_end.queue.waiting_handshakes(), 0);
}

#[test]
fn connection_that_ends_gives_its_handshake_back() {
    let mut rig = Rig::new();
    let client = rig.connect(Port::Kv, true, b"\x16\x03\x01");
    rig.take_turn();
    assert_eq!(rig.stat("tls_handshakes_open"), 1);
    drop(client);
    let end = Instant::now() + DEADLINE;
    while rig.stat("tls_handshakes_open") > 0 {
        assert!(Instant::now() < end, "the handshake is not given back");
        rig.shared
            .front_ends
            .send(0, FrontEndMessage::ClusterChanged);
        rig.take_turn();
    }
}
