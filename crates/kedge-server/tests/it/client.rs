//! Simple clients: they write bytes and read replies, with a timeout.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use kedge_auth::{ClientSession, ClientStep, Mechanism, random_nonce};
use kedge_protocol::binary::commands::{GetReply, Hello, MutationToken, SaslStart, SelectBucket};
use kedge_protocol::binary::{
    Feature, Features, FrameInfos, Opcode, ParseReply, RequestWriter, parse_response,
};
use kedge_types::{Cas, Datatype, Durability, DurabilityLevel, Status, VbId};

/// A generous deadline.
const DEADLINE: Duration = Duration::from_secs(20);

/// The features that SDKs request, as far as they change the server's behaviour; without UnorderedExecution.
pub(crate) const SDK_FEATURES: Features = Features::of(&[
    Feature::TcpNodelay,
    Feature::MutationSeqno,
    Feature::Xattr,
    Feature::Xerror,
    Feature::SelectBucket,
    Feature::Snappy,
    Feature::Json,
    Feature::AltRequestSupport,
    Feature::SyncReplication,
    Feature::Collections,
    Feature::SnappyEverywhere,
]);

/// A reply with its parts owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) opcode: u8,
    pub(crate) status: Status,
    pub(crate) opaque: u32,
    pub(crate) cas: u64,
    pub(crate) datatype: u8,
    pub(crate) extras: Vec<u8>,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    pub(crate) duration: Option<u16>,
}

impl Reply {
    /// The value as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.value.clone()).unwrap()
    }

    /// Asserts success.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.status, Status::Success, "{self:?}");
        self
    }

    pub(crate) fn flags(&self) -> u32 {
        GetReply::decode(&self.extras).unwrap().flags
    }

    pub(crate) fn token(&self) -> MutationToken {
        MutationToken::decode(&self.extras).unwrap()
    }
}

/// A request of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Push {
    pub(crate) opcode: u8,
    pub(crate) extras: Vec<u8>,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

/// A frame from the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    Reply(Reply),
    Push(Push),
    /// The server closed the connection.
    End,
}

/// A client of the binary protocol.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    received: Vec<u8>,
    pub(crate) features: Features,
    opaque: u32,
    /// Numbers of the opcodes of all requests that were sent.
    pub(crate) sent: BTreeSet<u8>,
}

fn prepared(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.set_write_timeout(Some(DEADLINE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).unwrap())
    }

    /// A client over an existing connection.
    pub(crate) fn over(stream: TcpStream) -> Self {
        Self {
            stream: prepared(stream),
            received: Vec::new(),
            features: Features::NONE,
            opaque: 0,
            sent: BTreeSet::new(),
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.sent.extend(opcodes_of(bytes));
        self.stream.write_all(bytes).unwrap();
    }

    /// The next frame from the server, or the end of the connection.
    pub(crate) fn next(&mut self) -> Came {
        loop {
            let (came, consumed) = match parse_response(&self.received, 64 << 20) {
                ParseReply::Incomplete { .. } => {
                    let mut buffer = [0; 64 << 10];
                    match self.stream.read(&mut buffer) {
                        Ok(0) => return Came::End,
                        Ok(count) => self.received.extend_from_slice(&buffer[..count]),
                        Err(error) => match error.kind() {
                            ErrorKind::ConnectionReset => return Came::End,
                            // The end of an earlier io_uring of this thread interrupts the receive.
                            ErrorKind::Interrupted => {}
                            _ => panic!("no reply came: {error}"),
                        },
                    }
                    continue;
                }
                ParseReply::Fatal(error) => panic!("{error}"),
                ParseReply::Reply { reply, consumed } => {
                    let reply = Reply {
                        opcode: reply.opcode,
                        status: reply.status().unwrap(),
                        opaque: reply.opaque,
                        cas: reply.cas.get(),
                        datatype: reply.datatype,
                        extras: reply.extras.to_vec(),
                        key: reply.key.to_vec(),
                        value: reply.value.to_vec(),
                        duration: reply.server_duration(),
                    };
                    (Came::Reply(reply), consumed)
                }
                ParseReply::ServerRequest { request, consumed } => {
                    let push = Push {
                        opcode: request.opcode,
                        extras: request.extras.to_vec(),
                        key: request.key.to_vec(),
                        value: request.value.to_vec(),
                    };
                    (Came::Push(push), consumed)
                }
            };
            self.received.drain(..consumed);
            return came;
        }
    }

    #[track_caller]
    pub(crate) fn reply(&mut self) -> Reply {
        match self.next() {
            Came::Reply(reply) => reply,
            other => panic!("no reply but {other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn assert_closed(&mut self) {
        assert_eq!(self.next(), Came::End);
    }

    /// A request with an opaque of its own, to be completed.
    pub(crate) fn request(&mut self, opcode: Opcode) -> Frame {
        self.opaque += 1;
        Frame {
            collections: self.features.contains(Feature::Collections),
            ..Frame::new(opcode, self.opaque)
        }
    }

    #[track_caller]
    pub(crate) fn call(&mut self, frame: &Frame) -> Reply {
        self.send(&frame.bytes());
        let reply = self.reply();
        assert_eq!(reply.opaque, frame.opaque);
        assert_eq!(reply.opcode, frame.opcode.wire());
        reply
    }

    #[track_caller]
    pub(crate) fn simple(&mut self, opcode: Opcode) -> Reply {
        let frame = self.request(opcode);
        self.call(&frame)
    }

    #[track_caller]
    pub(crate) fn hello(&mut self, features: Features) {
        self.hello_as(b"test", features);
    }

    /// Sends HELLO with this name of the client.
    #[track_caller]
    pub(crate) fn hello_as(&mut self, agent: &[u8], features: Features) {
        let mut bytes = Vec::new();
        Hello { agent, features }.encode(&RequestWriter::new(Opcode::Hello), &mut bytes);
        self.send(&bytes);
        self.features = Features::parse(&self.reply().ok().value).unwrap();
    }

    pub(crate) fn sasl(&mut self, mechanism: Mechanism, user: &str, password: &str) -> Status {
        let (mut session, mut message) =
            ClientSession::start(mechanism, user, password, random_nonce).unwrap();
        let mut opcode = Opcode::SaslAuth;
        loop {
            let reply = self.sasl_step(opcode, mechanism, &message);
            match reply.status {
                Status::AuthContinue => {
                    let ClientStep::Send(next) = session.step(&reply.value).unwrap() else {
                        panic!("the server wants more than the client has");
                    };
                    message = next;
                    opcode = Opcode::SaslStep;
                }
                Status::Success => {
                    assert_eq!(session.step(&reply.value).unwrap(), ClientStep::Done);
                    return Status::Success;
                }
                other => return other,
            }
        }
    }

    /// Begins a login with SCRAM, and returns the proof, see [`Self::end_sasl`].
    pub(crate) fn begin_sasl(
        &mut self,
        mechanism: Mechanism,
        user: &str,
        password: &str,
    ) -> Vec<u8> {
        let (mut session, message) =
            ClientSession::start(mechanism, user, password, random_nonce).unwrap();
        let reply = self.sasl_step(Opcode::SaslAuth, mechanism, &message);
        assert_eq!(reply.status, Status::AuthContinue);
        match session.step(&reply.value).unwrap() {
            ClientStep::Send(proof) => proof,
            ClientStep::Done => panic!("a proof is due"),
        }
    }

    /// Ends a login with its proof.
    pub(crate) fn end_sasl(&mut self, mechanism: Mechanism, proof: &[u8]) -> Status {
        self.sasl_step(Opcode::SaslStep, mechanism, proof).status
    }

    fn sasl_step(&mut self, opcode: Opcode, mechanism: Mechanism, message: &[u8]) -> Reply {
        let mut bytes = Vec::new();
        SaslStart {
            mechanism: mechanism.name().as_bytes(),
            message,
        }
        .encode(&RequestWriter::new(opcode), &mut bytes);
        self.send(&bytes);
        self.reply()
    }

    #[track_caller]
    pub(crate) fn log_in(&mut self, user: &str, password: &str) {
        assert_eq!(
            self.sasl(Mechanism::ScramSha512, user, password),
            Status::Success
        );
    }

    #[track_caller]
    pub(crate) fn select(&mut self, bucket: &str) {
        assert_eq!(self.try_select(bucket).status, Status::Success);
    }

    pub(crate) fn try_select(&mut self, bucket: &str) -> Reply {
        let mut bytes = Vec::new();
        SelectBucket {
            name: bucket.as_bytes(),
        }
        .encode(&RequestWriter::new(Opcode::SelectBucket), &mut bytes);
        self.send(&bytes);
        self.reply()
    }

    #[track_caller]
    pub(crate) fn set(&mut self, key: &str, value: &[u8]) -> Reply {
        let frame = self.request(Opcode::Set).store(key, value);
        self.call(&frame)
    }

    #[track_caller]
    pub(crate) fn get(&mut self, key: &str) -> Reply {
        let frame = self.request(Opcode::Get).key(key);
        self.call(&frame)
    }
}

/// Numbers of the opcodes of the requests of which `bytes` consists.
fn opcodes_of(mut bytes: &[u8]) -> Vec<u8> {
    let mut opcodes = Vec::new();
    while let [0x80 | 0x08, opcode, ..] = bytes
        && bytes.len() >= 24
    {
        opcodes.push(*opcode);
        let body = u32::from_be_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
        bytes = bytes.get(24 + body as usize..).unwrap_or_default();
    }
    opcodes
}

/// A builder of a request.
#[derive(Clone)]
pub(crate) struct Frame {
    pub(crate) opcode: Opcode,
    pub(crate) opaque: u32,
    pub(crate) vb: u16,
    pub(crate) cas: u64,
    pub(crate) datatype: Datatype,
    pub(crate) infos: FrameInfos<'static>,
    pub(crate) extras: Vec<u8>,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    pub(crate) collections: bool,
}

impl Frame {
    pub(crate) fn new(opcode: Opcode, opaque: u32) -> Self {
        Self {
            opcode,
            opaque,
            vb: 0,
            cas: 0,
            datatype: Datatype::RAW,
            infos: FrameInfos::default(),
            extras: Vec::new(),
            key: Vec::new(),
            value: Vec::new(),
            collections: false,
        }
    }

    /// Sets a key in the default collection, and its vBucket of 16.
    pub(crate) fn key(mut self, key: &str) -> Self {
        self.vb = VbId::of_key(key.as_bytes(), 16).get();
        self.key = if self.collections {
            vec![0]
        } else {
            Vec::new()
        };
        self.key.extend_from_slice(key.as_bytes());
        self
    }

    pub(crate) fn store(self, key: &str, value: &[u8]) -> Self {
        self.key(key).extras(&[0; 8]).value(value)
    }

    pub(crate) fn extras(mut self, extras: &[u8]) -> Self {
        self.extras = extras.to_vec();
        self
    }

    pub(crate) fn value(mut self, value: &[u8]) -> Self {
        self.value = value.to_vec();
        self
    }

    pub(crate) fn cas(mut self, cas: u64) -> Self {
        self.cas = cas;
        self
    }

    pub(crate) fn datatype(mut self, datatype: Datatype) -> Self {
        self.datatype = datatype;
        self
    }

    pub(crate) fn durable(mut self, level: DurabilityLevel) -> Self {
        self.infos.durability = Some(Durability {
            level,
            timeout_ms: None,
        });
        self
    }

    pub(crate) fn barrier(mut self) -> Self {
        self.infos.barrier = true;
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        RequestWriter {
            vb: VbId(self.vb),
            opaque: self.opaque,
            cas: Cas(self.cas),
            datatype: self.datatype,
            infos: self.infos,
            ..RequestWriter::new(self.opcode)
        }
        .write(&self.extras, &self.key, &self.value, &mut bytes);
        bytes
    }
}

/// Longest time that a test may take between setting a time to live and reading it, in seconds.
const TTL_SLACK_SECS: u64 = 50;

/// Replaces times to live (` tSECONDS`) in `got` by those of `expected` if they are a little shorter. A test expects no
/// time to live that loses a digit meanwhile.
fn with_expected_ttls(got: &str, expected: &str) -> String {
    let ttl = |word: &str| {
        word.strip_prefix('t')
            .and_then(|secs| secs.parse::<u64>().ok())
    };
    let mut expected = expected.split(' ');
    let words = got.split(' ').map(|word| {
        let wanted = expected.next().unwrap_or_default();
        let head = word.split("\r\n").next().unwrap_or_default();
        let wanted_head = wanted.split("\r\n").next().unwrap_or_default();
        match (ttl(head), ttl(wanted_head)) {
            (Some(left), Some(all)) if left < all && all - left <= TTL_SLACK_SECS => {
                word.replacen(head, wanted_head, 1)
            }
            _ => word.to_owned(),
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// A client of the text protocol.
pub(crate) struct Text {
    pub(crate) stream: TcpStream,
}

impl Text {
    /// A client over an existing connection.
    pub(crate) fn over(stream: TcpStream) -> Self {
        Self {
            stream: prepared(stream),
        }
    }

    /// Sends `request` and checks that the next bytes are `expected`.
    #[track_caller]
    pub(crate) fn expect(&mut self, request: &str, expected: &str) {
        self.stream.write_all(request.as_bytes()).unwrap();
        let mut got = vec![0; expected.len()];
        let mut filled = 0;
        while filled < got.len() {
            match self.stream.read(&mut got[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) => {
                    let so_far = String::from_utf8_lossy(&got[..filled]).into_owned();
                    panic!("{request:?}: {error} after {so_far:?}");
                }
            }
        }
        let got = with_expected_ttls(&String::from_utf8_lossy(&got[..filled]), expected);
        assert_eq!(got, expected, "{request:?}");
    }

    /// Sends `request` and reads up to and including a line `end`.
    #[track_caller]
    pub(crate) fn until(&mut self, request: &str, end: &str) -> String {
        self.stream.write_all(request.as_bytes()).unwrap();
        let mut got = Vec::new();
        let end = format!("{end}\r\n");
        while !got.ends_with(end.as_bytes()) {
            let mut byte = [0];
            assert_eq!(
                self.stream.read(&mut byte).unwrap(),
                1,
                "{}",
                String::from_utf8_lossy(&got)
            );
            got.push(byte[0]);
        }
        String::from_utf8(got).unwrap()
    }

    #[track_caller]
    pub(crate) fn assert_closed(&mut self) {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest)),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
    }
}
