//! Sessions against clients of rustls, over streams in memory that take and give as few bytes as a test wants.

use std::collections::VecDeque;
use std::time::SystemTime;

use kedge_bucket::Item;
use kedge_tls::rustls::pki_types::ServerName;
use kedge_tls::rustls::{ClientConfig, ClientConnection, ProtocolVersion};
use kedge_tls::{ClientTls, Request, ServerTls, TlsOptions, Trust, Usage, issue, new_authority};
use kedge_vbucket::ItemMeta;
use proptest::prelude::*;

use super::*;

/// A cipher suite that TLS 1.3 does not have.
const SUITE_OF_1_2: &str = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256";

/// The configurations of a server and a client that trusts it.
struct Configs {
    server: ServerTls,
    client: Arc<ClientConfig>,
}

impl Configs {
    fn new(cipher_suites: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let ca = new_authority("Test CA", 30, now).unwrap();
        let (ca_file, _) = ca.write(dir.path(), "ca").unwrap();
        let request = Request {
            usage: Usage::Node,
            common_name: "db1".to_owned(),
            names: vec!["localhost".to_owned()],
            days: 10,
        };
        let node = issue((&ca.certificate, &ca.key), &request, now).unwrap();
        let (certificate, key) = node.write(dir.path(), "node").unwrap();
        let options = TlsOptions {
            certificate,
            key,
            cipher_suites: cipher_suites.iter().map(|it| (*it).to_owned()).collect(),
            ..TlsOptions::default()
        };
        let trust = Trust::Ca(vec![ca_file]);
        Self {
            server: ServerTls::open(options, now).unwrap(),
            client: ClientTls { trust, own: None }.config().unwrap(),
        }
    }

    fn client(&self) -> ClientConnection {
        let name = ServerName::try_from("localhost").unwrap();
        ClientConnection::new(self.client.clone(), name).unwrap()
    }

    fn rig(&self) -> Rig {
        Rig {
            client: self.client(),
            session: TlsSession::new(self.server.config()).unwrap(),
            stream: Stream {
                to_server: VecDeque::new(),
                ends: false,
                step: usize::MAX,
                to_client: Vec::new(),
                room: usize::MAX,
            },
            buffers: TlsBuffers::default(),
            plain_room: 4 << 10,
            plain: Vec::new(),
            out: Output::default(),
            received: Vec::new(),
        }
    }

    fn connected(&self) -> Rig {
        let mut rig = self.rig();
        rig.exchange().unwrap();
        assert!(!rig.session.is_handshaking());
        rig
    }
}

/// The stream between a client and a session.
struct Stream {
    to_server: VecDeque<u8>,
    /// True if the client's stream ends behind these bytes.
    ends: bool,
    /// The number of bytes that one read returns, at most.
    step: usize,
    to_client: Vec<u8>,
    /// The number of bytes that the stream takes before it is full.
    room: usize,
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.to_server.is_empty() && !self.ends {
            return Err(ErrorKind::WouldBlock.into());
        }
        let step = self.step.min(buffer.len());
        self.to_server.read(&mut buffer[..step])
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.room == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        let count = self.room.min(bytes.len());
        self.room -= count;
        self.to_client.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Rig {
    client: ClientConnection,
    session: TlsSession,
    stream: Stream,
    buffers: TlsBuffers,
    /// Room for decrypted bytes in one receive.
    plain_room: usize,
    /// The bytes that the session has received.
    plain: Vec<u8>,
    out: Output,
    /// The bytes that the client has received.
    received: Vec<u8>,
}

impl Rig {
    /// Receives once. Returns true if another receive may return more.
    fn receive(&mut self, is_over: &dyn Fn() -> bool) -> io::Result<bool> {
        let mut buffer = vec![0; self.plain_room];
        let mut plain = PlainBytes::Shared {
            buffer: &mut buffer,
            filled: 0,
        };
        let stream = Some(&mut self.stream as &mut dyn Read);
        let read = self
            .session
            .receive(stream, &mut plain, &mut self.buffers, is_over);
        let count = self.plain_room - plain.room();
        self.plain.extend_from_slice(&buffer[..count]);
        self.session.take_completed();
        let read = read?;
        let has_more = match read {
            SocketRead::Blocked | SocketRead::End => false,
            SocketRead::Untried => !self.session.is_at_end(),
            SocketRead::Bytes { .. } => true,
        };
        Ok(has_more || self.session.has_received())
    }

    fn receive_all(&mut self) -> io::Result<()> {
        while self.receive(&|| false)? {}
        Ok(())
    }

    fn send(&mut self) {
        let Self {
            session,
            stream,
            out,
            buffers,
            ..
        } = self;
        session.send(stream, out, usize::MAX, buffers).unwrap();
    }

    /// Gives the client all that was sent.
    fn deliver(&mut self) {
        let mut bytes = &self.stream.to_client[..];
        while !bytes.is_empty() {
            self.client.read_tls(&mut bytes).unwrap();
            let state = self.client.process_new_packets().unwrap();
            let mut plain = vec![0; state.plaintext_bytes_to_read()];
            self.client.reader().read_exact(&mut plain).unwrap();
            self.received.extend_from_slice(&plain);
        }
        self.stream.to_client.clear();
    }

    /// The client gives the stream all that it has.
    fn take_from_client(&mut self) -> bool {
        let wants = self.client.wants_write();
        while self.client.wants_write() {
            self.client.write_tls(&mut self.stream.to_server).unwrap();
        }
        wants
    }

    /// Exchanges bytes until neither side has more.
    fn exchange(&mut self) -> io::Result<()> {
        loop {
            let from_client = self.take_from_client();
            self.receive_all()?;
            self.send();
            let from_server = !self.stream.to_client.is_empty();
            self.deliver();
            if !from_client && !from_server {
                return Ok(());
            }
        }
    }

    /// The client writes these bytes, as records of the stream.
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(16 << 10) {
            self.client.writer().write_all(part).unwrap();
            self.take_from_client();
        }
    }
}

/// Bytes that differ from their neighbours.
fn sample(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251) as u8).collect()
}

#[test]
fn both_versions_work_with_single_bytes() {
    for (suites, version) in [
        (&[][..], ProtocolVersion::TLSv1_3),
        (&[SUITE_OF_1_2], ProtocolVersion::TLSv1_2),
    ] {
        let mut rig = Configs::new(suites).rig();
        rig.stream.step = 1;
        rig.plain_room = 7;
        rig.exchange().unwrap();
        assert_eq!(rig.session.state().protocol_version(), Some(version));
        assert!(!rig.session.is_resumed());
        rig.write(b"a request");
        rig.receive_all().unwrap();
        assert_eq!(rig.plain, b"a request");
        rig.out.buffer().extend_from_slice(b"a reply");
        rig.exchange().unwrap();
        assert_eq!(rig.received, b"a reply");
        assert_eq!(rig.session.held_bytes(), 0);
        assert_eq!(rig.session.encrypted.capacity(), 0, "an idle session");
        assert!(!rig.session.has_unsent() && !rig.session.has_received());
    }
}

#[test]
fn later_handshakes_of_a_client_resume_its_session() {
    let configs = Configs::new(&[]);
    assert!(!configs.connected().session.is_resumed());
    assert!(configs.connected().session.is_resumed());
}

#[test]
fn large_values_are_sent_to_a_client_that_reads_slowly() {
    let mut rig = Configs::new(&[]).connected();
    let value = sample(3 << 20);
    rig.out.buffer().extend_from_slice(&sample(30));
    let item = Item::new(&ItemMeta::default(), b"k", &[&value]);
    rig.out.push_value(item);
    rig.out.buffer().extend_from_slice(&sample(20_000));
    while !rig.out.is_empty() || rig.session.has_unsent() {
        rig.stream.room = 9_973;
        rig.send();
        assert!(rig.session.unsent.len() <= RECORDS_BYTES);
        rig.deliver();
    }
    let expected = [&sample(30), &value[..], &sample(20_000)].concat();
    assert!(rig.received == expected);
}

#[test]
fn large_requests_are_appended_to_their_memory() {
    let mut rig = Configs::new(&[]).connected();
    let value = sample(1 << 20);
    rig.write(&value);
    rig.write(b"the next");
    let mut frame = Vec::new();
    while frame.len() < value.len() {
        let mut plain = PlainBytes::Owned {
            room: value.len() - frame.len(),
            buffer: &mut frame,
        };
        let stream = Some(&mut rig.stream as &mut dyn Read);
        let buffers = &mut rig.buffers;
        let read = rig.session.receive(stream, &mut plain, buffers, &|| false);
        assert_ne!(read.unwrap(), SocketRead::End);
    }
    assert!(frame == value);
    rig.receive_all().unwrap();
    assert_eq!(rig.plain, b"the next");
}

#[test]
fn receive_stops_at_the_end_of_the_time_slice() {
    let mut rig = Configs::new(&[]).connected();
    for at in 0..50 {
        rig.write(&[at; 10]);
    }
    for records in 1..=50 {
        rig.receive(&|| true).unwrap();
        assert_eq!(rig.plain.len(), records * 10);
    }
    assert!(!rig.session.has_received());
    // What was left is received without the socket.
    for at in 0..50 {
        rig.write(&[at; 10]);
    }
    rig.receive(&|| true).unwrap();
    let mut buffer = [0; 4_096];
    let mut plain = PlainBytes::Shared {
        buffer: &mut buffer,
        filled: 0,
    };
    let read = rig
        .session
        .receive(None, &mut plain, &mut rig.buffers, &|| false);
    assert_eq!(read.unwrap(), SocketRead::Untried);
    assert_eq!(plain.room(), 4_096 - 490);
}

#[test]
fn replies_are_sent_while_records_wait() {
    let mut rig = Configs::new(&[]).connected();
    rig.write(&[1; 10]);
    rig.write(&[2; 10]);
    rig.receive(&|| true).unwrap();
    assert!(rig.session.has_received());
    rig.out.buffer().extend_from_slice(b"a reply");
    rig.send();
    rig.deliver();
    assert_eq!(rig.received, b"a reply");
    rig.receive_all().unwrap();
    assert_eq!(rig.plain, [[1; 10], [2; 10]].concat());
}

#[test]
fn end_without_close_notify_is_reported_at_every_position() {
    let configs = Configs::new(&[]);
    for cut in 0.. {
        let mut rig = configs.connected();
        rig.write(b"first");
        rig.write(b"second");
        rig.client.send_close_notify();
        rig.take_from_client();
        let len = rig.stream.to_server.len();
        rig.stream.to_server.truncate(cut);
        rig.stream.ends = true;
        rig.receive_all().unwrap();
        assert!(rig.session.is_at_end());
        assert_eq!(rig.session.is_truncated(), cut < len, "{cut} of {len}");
        let whole: &[&[u8]] = &[b"", b"first", b"firstsecond"];
        assert!(whole.contains(&&rig.plain[..]), "{cut}: {:?}", rig.plain);
        if cut == len {
            assert_eq!(rig.plain, b"firstsecond");
            break;
        }
    }
}

#[test]
fn end_during_the_handshake_is_no_truncation() {
    let configs = Configs::new(&[]);
    for cut in 0.. {
        let mut rig = configs.rig();
        rig.take_from_client();
        let len = rig.stream.to_server.len();
        rig.stream.to_server.truncate(cut);
        rig.stream.ends = true;
        rig.receive_all().unwrap();
        assert!(rig.session.is_at_end() && rig.session.is_handshaking());
        assert!(!rig.session.is_truncated() && rig.session.failure().is_none());
        assert_eq!(rig.session.has_unsent(), cut == len, "the server's hello");
        if cut == len {
            break;
        }
    }
}

#[test]
fn half_closed_connection_gets_its_replies() {
    let mut rig = Configs::new(&[]).connected();
    rig.write(b"a request");
    rig.client.send_close_notify();
    rig.exchange().unwrap();
    assert!(rig.session.is_at_end() && !rig.session.is_truncated());
    rig.out.buffer().extend_from_slice(b"a reply");
    rig.send();
    rig.session.close(&mut rig.stream);
    rig.deliver();
    assert_eq!(rig.received, b"a reply");
    let state = rig.client.process_new_packets().unwrap();
    assert!(state.peer_has_closed(), "close_notify of the server");
}

#[test]
fn clients_without_tls_are_told_so() {
    let get = [
        0x80, 0x0c, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    for bytes in [&get[..], b"get a\r\n", b"GET / HTTP/1.1\r\n\r\n", &[0; 100]] {
        let mut rig = Configs::new(&[]).rig();
        rig.stream.to_server.extend(bytes);
        let error = rig.receive_all().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        assert_eq!(rig.session.failure(), Some(FailureReason::NotTls));
        rig.session.close(&mut rig.stream);
        // An alert: fatal, decode_error.
        assert_eq!(rig.stream.to_client, [21, 3, 3, 0, 2, 2, 50], "{bytes:?}");
    }
}

#[test]
fn changed_record_ends_the_session_with_an_alert() {
    let mut rig = Configs::new(&[]).connected();
    rig.write(b"good");
    let at = rig.stream.to_server.len() + 8;
    rig.write(b"changed");
    rig.stream.to_server[at] ^= 1;
    rig.write(b"good again");
    rig.receive_all().unwrap_err();
    assert_eq!(rig.plain, b"good");
    assert!(!rig.session.has_received() && rig.session.failure().is_none());
    rig.session.close(&mut rig.stream);
    let error = rig.client.read_tls(&mut &rig.stream.to_client[..]);
    error.unwrap();
    let error = rig.client.process_new_packets().unwrap_err();
    assert!(error.to_string().contains("BadRecordMac"), "{error}");
}

#[test]
fn endless_handshake_message_is_refused() {
    let mut rig = Configs::new(&[]).rig();
    // A client hello of 65,000 bytes, in records of 16 KiB.
    let mut hello = vec![1, 0, 0xfd, 0xe8];
    hello.resize(4 * 16_000, 0);
    for part in hello.chunks(16_000) {
        let len = u16::try_from(part.len()).unwrap().to_be_bytes();
        rig.stream.to_server.extend([22, 3, 1, len[0], len[1]]);
        rig.stream.to_server.extend(part);
    }
    let mut most = 0;
    let refused = loop {
        match rig.receive(&|| false) {
            Ok(true) => most = most.max(rig.session.held_bytes()),
            Ok(false) => panic!("it was not refused"),
            Err(error) => break error,
        }
    };
    assert_eq!(refused.to_string(), "a TLS message is too long");
    assert_eq!(rig.session.failure(), Some(FailureReason::Other));
    assert!(most <= TLS_INCOMPLETE_BYTES_MAX, "{most}");
}

#[test]
fn key_updates_are_followed_and_floods_refused() {
    let mut rig = Configs::new(&[]).connected();
    for at in 0..40 {
        rig.client.refresh_traffic_keys().unwrap();
        rig.write(&[at; 3]);
        rig.out.buffer().push(at);
        rig.exchange().unwrap();
    }
    assert_eq!((rig.plain.len(), rig.received.len()), (120, 40));
    for _ in 0..40 {
        rig.client.refresh_traffic_keys().unwrap();
        rig.take_from_client();
    }
    let error = rig.receive_all().unwrap_err();
    assert!(
        error.to_string().contains("TooManyKeyUpdateRequests"),
        "{error}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_split_of_the_records_gives_the_same_bytes(
        parts in proptest::collection::vec(1usize..40_000, 1..8),
        step in prop_oneof![1usize..64, 64usize..70_000],
        plain_room in prop_oneof![1usize..64, 64usize..300_000],
        is_over: bool,
    ) {
        let mut rig = Configs::new(&[]).connected();
        let bytes = sample(parts.iter().sum());
        let mut at = 0;
        for part in parts {
            rig.write(&bytes[at..at + part]);
            at += part;
        }
        (rig.stream.step, rig.plain_room) = (step, plain_room);
        while rig.receive(&|| is_over).unwrap() {}
        prop_assert!(rig.plain == bytes);
        prop_assert_eq!(rig.session.held_bytes(), 0);
    }

    #[test]
    fn output_of_any_parts_arrives(
        parts in proptest::collection::vec((any::<bool>(), 0usize..50_000), 0..12),
        room in prop_oneof![1_000usize..5_000, 5_000usize..200_000],
    ) {
        let mut rig = Configs::new(&[]).connected();
        let mut expected = Vec::new();
        for (is_large, len) in parts {
            let bytes = sample(len);
            expected.extend_from_slice(&bytes);
            if is_large && len > 0 {
                rig.out.push_value(Item::new(&ItemMeta::default(), b"k", &[&bytes]));
            } else {
                rig.out.buffer().extend_from_slice(&bytes);
            }
        }
        while !rig.out.is_empty() || rig.session.has_unsent() {
            rig.stream.room = room;
            rig.send();
            rig.deliver();
        }
        prop_assert!(rig.received == expected);
    }
}
