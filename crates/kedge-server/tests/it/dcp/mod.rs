//! Tests of DCP connections with an independent client.

mod collections;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

use kedge_protocol::binary::commands::dcp::{
    BufferAck, DcpBody, DcpControl, DcpHeader, DcpMessage, DcpMutation, DcpOpen, DcpStreamRequest,
    DcpSystemEventKind, EndReason, OpenFlags, OsoSnapshot, ParsePeer, PeerFrame, SeqnoAck,
    SnapshotMarker, StreamEnd, StreamFlags, StreamReply, SystemEventPayload, parse_peer,
};
use kedge_protocol::binary::{Feature, Features, Opcode, Response};
use kedge_types::{CollectionId, DurabilityLevel, Seqno, Status, VbId, VbUuid};

use crate::client::{Came, Client, Frame};
use crate::replication::{activate, bucket};
use crate::server::{Kedge, PASSWORD, USER};

/// The features of a DCP client.
pub(crate) const FEATURES: Features = Features::of(&[
    Feature::Xerror,
    Feature::SelectBucket,
    Feature::Snappy,
    Feature::Json,
    Feature::SyncReplication,
    Feature::Collections,
]);

/// A frame, with its parts owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Got {
    Marker(u64, u64),
    Mutation(u64, Vec<u8>, Vec<u8>),
    Deletion(u64, Vec<u8>),
    Prepare(u64, Vec<u8>),
    Commit(u64, u64),
    /// Seqno, kind of event, name, collection.
    Event(u64, DcpSystemEventKind, String, Option<u32>),
    Advanced(u64),
    /// The begin or the end of an OSO snapshot.
    Unordered(OsoSnapshot),
    End(EndReason),
    Noop(u32),
    /// Opcode, status and value of a reply.
    Reply(u8, Status, Vec<u8>),
    Closed,
}

pub(crate) struct Follower {
    client: Client,
    bytes: Vec<u8>,
    opaque: u32,
    /// The bytes of the message that count for flow control.
    counted: usize,
}

impl Follower {
    pub(crate) fn connect(kedge: &Kedge, features: Features, user: &str) -> Self {
        let mut client = kedge.connect();
        client.hello(features);
        client.log_in(user, PASSWORD);
        client.select("default");
        Self {
            client,
            bytes: Vec::new(),
            opaque: 100,
            counted: 0,
        }
    }

    /// Opens a connection with NOOPs and these settings.
    pub(crate) fn open(kedge: &Kedge, name: &str, settings: &[(&str, &str)]) -> Self {
        let mut follower = Self::connect(kedge, FEATURES, USER);
        assert_eq!(follower.try_open(name), Status::Success);
        for (key, value) in [("enable_noop", "true")].iter().chain(settings) {
            assert_eq!(follower.control(key, value), Status::Success, "{key}");
        }
        follower
    }

    /// Opens a connection of the node "n_1", which acknowledges prepares.
    pub(crate) fn node(kedge: &Kedge) -> Self {
        let mut node = Self::connect(kedge, FEATURES, "root");
        assert_eq!(node.try_open("node"), Status::Success);
        for (key, value) in [
            ("enable_noop", "true"),
            ("enable_sync_writes", "true"),
            ("consumer_name", "n_1"),
        ] {
            assert_eq!(node.control(key, value), Status::Success);
        }
        node
    }

    /// The seqno of the next prepare.
    fn prepare(&mut self) -> u64 {
        loop {
            match self.next() {
                Got::Marker(..) => {}
                Got::Prepare(seqno, _) => return seqno,
                other => panic!("{other:?}"),
            }
        }
    }

    pub(crate) fn send(&mut self, vb: u16, body: DcpBody<'_>) {
        self.opaque += 1;
        let head = DcpHeader {
            vb: VbId(vb),
            opaque: self.opaque,
            stream: None,
        };
        let mut bytes = Vec::new();
        DcpMessage { head, body }.encode(&mut bytes);
        self.client.send(&bytes);
    }

    /// Numbers of the opcodes of all requests that were sent.
    pub(crate) fn sent(&self) -> &BTreeSet<u8> {
        &self.client.sent
    }

    fn try_open(&mut self, name: &str) -> Status {
        self.try_open_as(name, OpenFlags::PRODUCER)
    }

    pub(crate) fn try_open_as(&mut self, name: &str, flags: OpenFlags) -> Status {
        let open = DcpOpen {
            flags,
            name: name.as_bytes(),
            value: b"",
        };
        self.send(0, DcpBody::Open(open));
        self.status()
    }

    pub(crate) fn control(&mut self, key: &str, value: &str) -> Status {
        let (key, value) = (key.as_bytes(), value.as_bytes());
        self.send(0, DcpBody::Control(DcpControl { key, value }));
        self.status()
    }

    pub(crate) fn ask(&mut self, vb: VbId, request: DcpStreamRequest<'_>) -> Got {
        self.send(vb.get(), DcpBody::StreamRequest(request));
        self.next()
    }

    /// Opens a stream behind a seqno, and returns the uuid of the newest history branch.
    pub(crate) fn stream(&mut self, vb: VbId, start: u64, uuid: u64) -> u64 {
        match self.ask(vb, request(start, uuid)) {
            Got::Reply(_, Status::Success, log) => u64::from_be_bytes(log[..8].try_into().unwrap()),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn next(&mut self) -> Got {
        let Some((got, bytes)) = self.frame(read) else {
            return Got::Closed;
        };
        if !matches!(got, Got::Noop(_) | Got::Reply(..)) {
            self.counted += bytes;
        }
        got
    }

    /// The result of `read` on the next frame, and its length; `None` if the connection is closed.
    pub(crate) fn frame<R>(
        &mut self,
        read: impl FnOnce(&PeerFrame<'_>) -> R,
    ) -> Option<(R, usize)> {
        loop {
            if let ParsePeer::Frame { frame, consumed } = parse_peer(&self.bytes, 64 << 20) {
                let got = read(&frame);
                self.bytes.drain(..consumed);
                return Some((got, consumed));
            }
            let mut buffer = [0; 4 << 10];
            match self.client.stream.read(&mut buffer) {
                Ok(0) => return None,
                Ok(count) => self.bytes.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                    return None;
                }
                Err(error) => panic!("nothing came: {error}"),
            }
        }
    }

    pub(crate) fn status(&mut self) -> Status {
        match self.next() {
            Got::Reply(_, status, _) => status,
            other => panic!("{other:?}"),
        }
    }

    /// The keys of the next `count` mutations, and the last seqno.
    pub(crate) fn mutations(&mut self, count: usize) -> (Vec<String>, u64) {
        let (mut keys, mut last) = (Vec::new(), 0);
        while keys.len() < count {
            match self.next() {
                Got::Mutation(seqno, key, _) => {
                    assert!(seqno > last);
                    last = seqno;
                    keys.push(String::from_utf8(key[1..].to_vec()).unwrap());
                }
                Got::Marker(start, end) => assert!(start <= end),
                Got::Noop(_) => {}
                other => panic!("{other:?}"),
            }
        }
        (keys, last)
    }

    /// All frames up to the reply to a request.
    pub(crate) fn rest(&mut self) -> Vec<Got> {
        self.send(0, DcpBody::GetFailoverLog);
        let mut all = Vec::new();
        loop {
            match self.next() {
                Got::Reply(opcode, status, _) if opcode == Opcode::DcpGetFailoverLog.wire() => {
                    assert_eq!(status, Status::Success);
                    return all;
                }
                got => all.push(got),
            }
        }
    }
}

pub(crate) fn request(start: u64, uuid: u64) -> DcpStreamRequest<'static> {
    DcpStreamRequest {
        flags: StreamFlags(0),
        start: Seqno(start),
        end: DcpStreamRequest::NO_END,
        vb_uuid: VbUuid(uuid),
        snap_start: Seqno(start),
        snap_end: Seqno(start),
        filter: b"",
    }
}

fn read(frame: &PeerFrame<'_>) -> Got {
    let request = match frame {
        PeerFrame::Reply(reply) => {
            if reply.opcode == Opcode::DcpStreamReq.wire()
                && let Ok(StreamReply::Rollback(to)) = StreamReply::decode(reply)
            {
                let to = to.get().to_be_bytes().to_vec();
                return Got::Reply(reply.opcode, Status::Rollback, to);
            }
            let status = reply.status().unwrap();
            return Got::Reply(reply.opcode, status, reply.value.to_vec());
        }
        PeerFrame::Request(request) => request,
    };
    match DcpMessage::decode(request).unwrap().body {
        DcpBody::SnapshotMarker(SnapshotMarker { start, end, .. }) => {
            Got::Marker(start.get(), end.get())
        }
        DcpBody::Mutation(DcpMutation {
            seqno, key, value, ..
        }) => Got::Mutation(seqno.get(), key.to_vec(), value.to_vec()),
        DcpBody::Deletion(deletion) => Got::Deletion(deletion.seqno.get(), deletion.key.to_vec()),
        DcpBody::Prepare(prepare) => Got::Prepare(prepare.seqno.get(), prepare.key.to_vec()),
        DcpBody::Commit(commit) => Got::Commit(commit.prepared.get(), commit.seqno.get()),
        DcpBody::SystemEvent(event) => {
            let name = String::from_utf8(event.name.to_vec()).unwrap();
            // Flatbuffers have it at another offset.
            let payload = (event.version < 2).then(|| SystemEventPayload::parse(&event).unwrap());
            let collection = payload.and_then(|payload| payload.collection);
            let collection = collection.map(CollectionId::get);
            Got::Event(event.seqno.get(), event.kind, name, collection)
        }
        DcpBody::SeqnoAdvanced(advanced) => Got::Advanced(advanced.seqno.get()),
        DcpBody::OsoSnapshot(which) => Got::Unordered(which),
        DcpBody::StreamEnd(StreamEnd { reason }) => Got::End(reason),
        DcpBody::Noop => Got::Noop(request.opaque),
        other => panic!("{other:?}"),
    }
}

fn vb_of(key: &str) -> VbId {
    VbId::of_key(key.as_bytes(), 16)
}

/// Keys of one vBucket.
pub(crate) fn keys_of(vb: VbId, count: usize) -> Vec<String> {
    let keys = (0..).map(|n| format!("key{n}"));
    keys.filter(|key| vb_of(key) == vb).take(count).collect()
}

#[test]
fn stream_sends_existing_and_new_items() {
    // Items that were truncated from the log come from the file.
    for applied in [false, true] {
        let kedge = Kedge::start();
        let mut writer = kedge.client();
        let vb = VbId(3);
        let keys = keys_of(vb, 20);
        for key in &keys[..10] {
            writer.set(key, b"1").ok();
        }
        if applied {
            bucket(&kedge).persistence().apply().unwrap();
        }
        let mut follower = Follower::open(&kedge, "s", &[]);
        follower.stream(vb, 0, 0);
        assert_eq!(follower.mutations(10).0, keys[..10]);
        for key in &keys[10..] {
            writer.set(key, b"1").ok();
        }
        assert_eq!(follower.mutations(10).0, keys[10..]);
        let gone = writer.request(Opcode::Delete).key(&keys[10]);
        writer.call(&gone).ok();
        let deleted = loop {
            match follower.next() {
                Got::Marker(..) => {}
                got => break got,
            }
        };
        assert!(matches!(deleted, Got::Deletion(21, key) if key[1..] == *keys[10].as_bytes()));
        follower.send(vb.get(), DcpBody::CloseStream);
        assert_eq!(follower.status(), Status::Success);
        writer.set(&keys[0], b"2").ok();
        assert_eq!(follower.rest(), [], "it is closed");
    }
}

#[test]
fn stream_resumes_where_another_ended() {
    let kedge = Kedge::start();
    let mut writer = kedge.client();
    let vb = VbId(3);
    let keys = keys_of(vb, 30);
    for key in &keys[..10] {
        writer.set(key, b"1").ok();
    }
    let mut follower = Follower::open(&kedge, "a", &[]);
    let mut wanted = request(0, 0);
    wanted.flags = StreamFlags::TO_LATEST;
    let Got::Reply(_, Status::Success, log) = follower.ask(vb, wanted) else {
        panic!("the stream was refused");
    };
    let uuid = u64::from_be_bytes(log[..8].try_into().unwrap());
    let (got, last) = follower.mutations(10);
    assert_eq!(got, keys[..10]);
    assert_eq!(follower.next(), Got::End(EndReason::Ok));
    drop(follower);
    for key in &keys[10..] {
        writer.set(key, b"1").ok();
    }
    let mut follower = Follower::open(&kedge, "b", &[]);
    follower.stream(vb, last, uuid);
    assert_eq!(follower.mutations(20).0, keys[10..]);
    // A start in a history that the vBucket does not have.
    for (uuid, start, to) in [(uuid, 1_000, 30), (uuid ^ 1, 5, 0)] {
        let mut follower = Follower::open(&kedge, "c", &[]);
        let got = follower.ask(vb, request(start, uuid));
        let Got::Reply(_, Status::Rollback, seqno) = got else {
            panic!("{got:?}");
        };
        assert_eq!(u64::from_be_bytes(seqno.try_into().unwrap()), to);
    }
}

#[test]
fn prepares_are_sent_only_with_sync_replication() {
    let kedge = Kedge::start();
    let mut writer = kedge.client();
    let vb = vb_of("k");
    let mut plain = Follower::open(&kedge, "plain", &[]);
    plain.stream(vb, 0, 0);
    let settings = [("enable_sync_writes", "true")];
    let mut aware = Follower::open(&kedge, "aware", &settings);
    // A backfill of the file, which has no completed prepare any more, would send the document.
    aware.stream(vb, 0, 0);
    let write = writer.request(Opcode::Set).store("k", b"1");
    writer.call(&write.durable(DurabilityLevel::Majority)).ok();
    assert_eq!(plain.mutations(1), (vec!["k".to_owned()], 2));
    assert!(matches!(aware.next(), Got::Marker(..)));
    assert_eq!(aware.next(), Got::Prepare(1, b"\0k".to_vec()));
    let commit = loop {
        match aware.next() {
            Got::Marker(..) => {}
            got => break got,
        }
    };
    assert_eq!(commit, Got::Commit(1, 2));
}

#[test]
fn idle_dcp_connection_gets_noops() {
    let kedge = Kedge::start();
    let mut follower = Follower::open(&kedge, "n", &[("set_noop_interval", "1")]);
    for _ in 0..2 {
        let Got::Noop(opaque) = follower.next() else {
            panic!("something else came");
        };
        let mut answer = Vec::new();
        Response::new(Opcode::DcpNoop.wire(), opaque, Status::Success).write(&mut answer);
        follower.client.stream.write_all(&answer).unwrap();
    }
    follower.send(0, DcpBody::Noop);
    assert_eq!(follower.status(), Status::Success);
}

#[test]
fn flow_control_limits_unacknowledged_bytes() {
    let kedge = Kedge::start();
    let mut writer = kedge.client();
    let vb = VbId(3);
    for key in keys_of(vb, 100) {
        writer.set(&key, &[7; 100]).ok();
    }
    let size = 1_000;
    let settings = [("connection_buffer_size", "1000")];
    let mut follower = Follower::open(&kedge, "f", &settings);
    follower.stream(vb, 0, 0);
    let (mut seen, mut acknowledged) = (0, 0);
    while seen < 100 {
        while follower.counted - acknowledged < size && seen < 100 {
            match follower.next() {
                Got::Mutation(..) => seen += 1,
                Got::Marker(..) => {}
                other => panic!("{other:?}"),
            }
        }
        assert!(
            follower.counted - acknowledged < size + 300,
            "one frame more"
        );
        assert_eq!(follower.rest(), [], "the window is full, or all was sent");
        let bytes = (follower.counted - acknowledged) as u32;
        acknowledged = follower.counted;
        follower.send(0, DcpBody::BufferAck(BufferAck { bytes }));
    }
}

#[test]
fn second_dcp_connection_with_the_name_closes_the_first() {
    let kedge = Kedge::start();
    let mut first = Follower::open(&kedge, "same", &[]);
    first.stream(VbId(1), 0, 0);
    let mut other = Follower::open(&kedge, "other", &[]);
    other.stream(VbId(1), 0, 0);
    let mut second = Follower::open(&kedge, "same", &[]);
    assert_eq!(first.next(), Got::Closed);
    second.stream(VbId(1), 0, 0);
    assert_eq!(second.rest(), []);
    assert_eq!(other.rest(), []);
}

#[test]
fn streams_end_with_the_vbucket_state_or_the_bucket() {
    let kedge = Kedge::start();
    let mut follower = Follower::open(&kedge, "e", &[]);
    follower.stream(VbId(1), 0, 0);
    let state = kedge_bucket::VbState::Dead;
    bucket(&kedge).states().set_vbucket(VbId(1), state).unwrap();
    assert_eq!(follower.next(), Got::End(EndReason::StateChanged));
    let refused = follower.ask(VbId(1), request(0, 0));
    assert!(matches!(refused, Got::Reply(_, Status::NotMyVbucket, map) if !map.is_empty()));
    // A connection whose bucket is dropped is closed.
    follower.stream(VbId(2), 0, 0);
    let registry = kedge.server().registry();
    registry.drop_bucket("default").unwrap();
    loop {
        match follower.next() {
            Got::Closed => break,
            Got::End(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn malformed_dcp_requests_are_refused() {
    let kedge = Kedge::start();
    // Without a login, a bucket, or the privilege.
    let mut stranger = kedge.connect();
    stranger.hello(FEATURES);
    let mut bytes = Vec::new();
    let open = DcpOpen {
        flags: OpenFlags::PRODUCER,
        name: b"x",
        value: b"",
    };
    open.encode(&DcpHeader::default(), &mut bytes);
    stranger.send(&bytes);
    assert_eq!(stranger.reply().status, Status::AccessDenied);
    let mut reader = Follower::connect(&kedge, FEATURES, "reader");
    assert_eq!(reader.try_open("x"), Status::AccessDenied);
    // Before it is open.
    let mut early = Follower::connect(&kedge, FEATURES, USER);
    early.send(0, DcpBody::Noop);
    assert_eq!(early.status(), Status::Invalid);
    assert_eq!(early.try_open(&"n".repeat(201)), Status::Invalid);
    assert_eq!(early.try_open("x"), Status::Success);
    assert_eq!(early.try_open("x"), Status::Invalid);
    // Without NOOPs, which collections need.
    assert!(matches!(
        early.ask(VbId(0), request(0, 0)),
        Got::Reply(_, Status::Invalid, _)
    ));
    assert_eq!(early.control("enable_noop", "maybe"), Status::Invalid);
    assert_eq!(early.control("no_such", "1"), Status::Invalid);
    assert_eq!(early.control("enable_noop", "true"), Status::Success);
    early.stream(VbId(0), 0, 0);
    for (vb, wanted, status) in [
        (0, request(0, 0), Status::KeyExists),
        (16, request(0, 0), Status::NotMyVbucket),
        (u16::MAX, request(0, 0), Status::NotMyVbucket),
        (
            1,
            DcpStreamRequest {
                end: Seqno(4),
                ..request(5, 0)
            },
            Status::OutOfRange,
        ),
        (
            1,
            DcpStreamRequest {
                filter: b"{",
                ..request(0, 0)
            },
            Status::Invalid,
        ),
        (
            1,
            DcpStreamRequest {
                flags: StreamFlags::TAKEOVER,
                ..request(0, 0)
            },
            Status::AccessDenied,
        ),
    ] {
        match early.ask(VbId(vb), wanted) {
            Got::Reply(_, got, _) => assert_eq!(got, status, "{vb} {wanted:?}"),
            other => panic!("{other:?}"),
        }
    }
    early.send(7, DcpBody::CloseStream);
    assert_eq!(early.status(), Status::KeyNotFound);
    early.send(0, DcpBody::SeqnoAck(SeqnoAck { prepared: Seqno(1) }));
    assert_eq!(early.status(), Status::Invalid);
    early.send(0, DcpBody::BufferAck(BufferAck { bytes: 1 }));
    assert_eq!(early.status(), Status::Invalid);
    // Commands that change the session.
    for opcode in [Opcode::Hello, Opcode::SelectBucket, Opcode::SaslAuth] {
        let frame = Frame::new(opcode, 9).extras(&[]).key("default");
        early.client.stream.write_all(&frame.bytes()).unwrap();
        assert_eq!(early.status(), Status::Invalid, "{opcode:?}");
    }
    assert_eq!(early.rest(), []);
    // Other commands still work.
    let get = Frame::new(Opcode::Noop, 9);
    early.client.stream.write_all(&get.bytes()).unwrap();
    assert_eq!(early.status(), Status::Success);
    // No frame at all.
    early.client.stream.write_all(&[0x55; 64]).unwrap();
    assert_eq!(early.next(), Got::Closed);
}

#[test]
fn large_value_commands_are_refused_on_dcp_connections() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    let value = vec![b'x'; 1 << 20];
    client.set("large", &value).ok();
    client.set("small", b"v").ok();
    let mut follower = Follower::open(&kedge, "f", &[]);
    let mut ask = |frame: Frame| {
        follower.client.send(&frame.bytes());
        follower.status()
    };
    let get = |key: &str| Frame::new(Opcode::Get, 1).key(key);
    let append = |key: &str| Frame::new(Opcode::Append, 1).key(key).value(b"!");
    let collections = |mut frame: Frame| {
        frame.key.insert(0, 0);
        frame
    };
    assert_eq!(ask(collections(append("small"))), Status::Success);
    assert_eq!(ask(collections(append("large"))), Status::NotSupported);
    let filter = Frame::new(Opcode::DcpStreamReq, 1)
        .extras(&[0; 48])
        .value(&value);
    assert_eq!(ask(filter), Status::NotSupported);
    assert_eq!(ask(collections(get("small"))), Status::Success);
    assert_eq!(client.get("large").ok().value, value);
    assert_eq!(client.get("small").ok().value, b"v!");
}

#[test]
fn only_cluster_nodes_may_acknowledge_prepares() {
    let kedge = Kedge::start();
    activate(&kedge, &["n_0", "n_1"]);
    let vb = vb_of("k");
    let settings = [("enable_sync_writes", "true")];
    let mut liar = Follower::open(&kedge, "liar", &settings);
    liar.send(
        0,
        DcpBody::Control(DcpControl {
            key: b"consumer_name",
            value: b"n_1",
        }),
    );
    assert_eq!(liar.next(), Got::Closed);
    // A user that may.
    let mut node = Follower::node(&kedge);
    node.stream(vb, 0, 0);
    let mut writer = kedge.client();
    let write = writer.request(Opcode::Set).store("k", b"1");
    let write = write.durable(DurabilityLevel::Majority);
    writer.send(&write.bytes());
    let prepared = node.prepare();
    let ack = SeqnoAck {
        prepared: Seqno(prepared),
    };
    node.send(vb.get(), DcpBody::SeqnoAck(ack));
    match writer.next() {
        Came::Reply(reply) => assert_eq!(reply.status, Status::Success),
        other => panic!("{other:?}"),
    }
}

#[test]
fn many_large_documents_are_streamed() {
    let kedge = Kedge::start();
    let mut writer = kedge.client();
    let vb = VbId(3);
    let keys = keys_of(vb, 40);
    for (number, key) in keys.iter().enumerate() {
        let len = if number % 10 == 0 { 3 << 20 } else { 50_000 };
        writer.set(key, &vec![number as u8; len]).ok();
    }
    let mut follower = Follower::open(&kedge, "l", &[]);
    let began = Instant::now();
    follower.stream(vb, 0, 0);
    assert_eq!(follower.mutations(40).0, keys);
    assert!(began.elapsed() < Duration::from_secs(20));
}

#[test]
fn shutdown_serves_replicas_until_clients_are_answered() {
    let kedge = Kedge::start();
    activate(&kedge, &["n_0", "n_1"]);
    let vb = vb_of("k");
    let mut node = Follower::node(&kedge);
    node.stream(vb, 0, 0);
    let (mut idle, mut writer) = (kedge.client(), kedge.client());
    let write = writer.request(Opcode::Set).store("k", b"1");
    writer.send(&write.durable(DurabilityLevel::Majority).bytes());
    let prepared = Seqno(node.prepare());
    let stopping = std::thread::spawn(move || kedge.stop());
    // The only front-end thread has begun to stop.
    idle.assert_closed();
    node.send(vb.get(), DcpBody::SeqnoAck(SeqnoAck { prepared }));
    writer.reply().ok();
    writer.assert_closed();
    while node.next() != Got::Closed {}
    stopping.join().unwrap();
}
