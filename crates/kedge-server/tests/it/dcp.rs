//! Connections that follow vBuckets: clients of DCP that are none of ours.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kedge_protocol::binary::commands::dcp::{
    Body, BufferAck, Control, EndReason, Head, Message, Mutation, Open, OpenFlags, ParsePeer,
    PeerFrame, SeqnoAck, SnapshotMarker, StreamEnd, StreamFlags, StreamReply, StreamRequest,
    SystemEventKind, SystemEventPayload, parse_peer,
};
use kedge_protocol::binary::{Feature, Features, Opcode, Response};
use kedge_types::{
    Collection, CollectionId, DurabilityLevel, Manifest, ManifestUid, Scope, ScopeId, Seqno,
    Status, VbId, VbUuid,
};

use crate::client::{Came, Client, Frame};
use crate::replication::{activate, bucket};
use crate::server::{Kedge, PASSWORD, USER};

/// What a client asks for that wants everything.
const FEATURES: Features = Features::of(&[
    Feature::Xerror,
    Feature::SelectBucket,
    Feature::Snappy,
    Feature::Json,
    Feature::SyncReplication,
    Feature::Collections,
]);

/// What came, with its parts owned.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Got {
    Marker(u64, u64),
    Mutation(u64, Vec<u8>, Vec<u8>),
    Deletion(u64, Vec<u8>),
    Prepare(u64, Vec<u8>),
    Commit(u64, u64),
    /// Seqno, what happened, name, collection.
    Event(u64, SystemEventKind, String, Option<u32>),
    Advanced(u64),
    End(EndReason),
    Noop(u32),
    /// Opcode, status and value of a reply.
    Reply(u8, Status, Vec<u8>),
    Closed,
}

struct Follower {
    client: Client,
    bytes: Vec<u8>,
    opaque: u32,
    /// Bytes of the messages that count for flow control.
    counted: usize,
}

impl Follower {
    fn connect(kedge: &Kedge, features: Features, user: &str) -> Self {
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

    /// A connection that is open, with NOOPs and these settings.
    fn open(kedge: &Kedge, name: &str, settings: &[(&str, &str)]) -> Self {
        let mut follower = Self::connect(kedge, FEATURES, USER);
        assert_eq!(follower.try_open(name), Status::Success);
        for (key, value) in [("enable_noop", "true")].iter().chain(settings) {
            assert_eq!(follower.control(key, value), Status::Success, "{key}");
        }
        follower
    }

    /// A connection of the node "n_1", which acknowledges prepares.
    fn node(kedge: &Kedge) -> Self {
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

    /// The seqno of the prepare that comes next.
    fn prepare(&mut self) -> u64 {
        loop {
            match self.next() {
                Got::Marker(..) => {}
                Got::Prepare(seqno, _) => return seqno,
                other => panic!("{other:?}"),
            }
        }
    }

    fn send(&mut self, vb: u16, body: Body<'_>) {
        self.opaque += 1;
        let head = Head {
            vb: VbId(vb),
            opaque: self.opaque,
            stream: None,
        };
        let mut bytes = Vec::new();
        Message { head, body }.encode(&mut bytes);
        self.client.stream.write_all(&bytes).unwrap();
    }

    fn try_open(&mut self, name: &str) -> Status {
        let open = Open {
            flags: OpenFlags::PRODUCER,
            name: name.as_bytes(),
            value: b"",
        };
        self.send(0, Body::Open(open));
        self.status()
    }

    fn control(&mut self, key: &str, value: &str) -> Status {
        let (key, value) = (key.as_bytes(), value.as_bytes());
        self.send(0, Body::Control(Control { key, value }));
        self.status()
    }

    fn ask(&mut self, vb: VbId, request: StreamRequest<'_>) -> Got {
        self.send(vb.get(), Body::StreamRequest(request));
        self.next()
    }

    /// Asks for everything behind a seqno and expects to get it; gives the uuid of the newest branch.
    fn stream(&mut self, vb: VbId, start: u64, uuid: u64) -> u64 {
        match self.ask(vb, request(start, uuid)) {
            Got::Reply(_, Status::Success, log) => u64::from_be_bytes(log[..8].try_into().unwrap()),
            other => panic!("{other:?}"),
        }
    }

    fn next(&mut self) -> Got {
        loop {
            if let ParsePeer::Frame { frame, consumed } = parse_peer(&self.bytes, 64 << 20) {
                let got = read(&frame);
                let counts = !matches!(got, Got::Noop(_) | Got::Reply(..));
                if counts {
                    self.counted += consumed;
                }
                self.bytes.drain(..consumed);
                return got;
            }
            let mut buffer = [0; 4 << 10];
            match self.client.stream.read(&mut buffer) {
                Ok(0) => return Got::Closed,
                Ok(count) => self.bytes.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                    return Got::Closed;
                }
                Err(error) => panic!("nothing came: {error}"),
            }
        }
    }

    fn status(&mut self) -> Status {
        match self.next() {
            Got::Reply(_, status, _) => status,
            other => panic!("{other:?}"),
        }
    }

    /// The keys of the mutations that come next, `count` of them, and the last seqno.
    fn mutations(&mut self, count: usize) -> (Vec<String>, u64) {
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

    /// Everything that is there to be read, up to the answer to a question.
    fn rest(&mut self) -> Vec<Got> {
        self.send(0, Body::GetFailoverLog);
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

fn request(start: u64, uuid: u64) -> StreamRequest<'static> {
    StreamRequest {
        flags: StreamFlags(0),
        start: Seqno(start),
        end: StreamRequest::NO_END,
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
    match Message::decode(request).unwrap().body {
        Body::SnapshotMarker(SnapshotMarker { start, end, .. }) => {
            Got::Marker(start.get(), end.get())
        }
        Body::Mutation(Mutation {
            seqno, key, value, ..
        }) => Got::Mutation(seqno.get(), key.to_vec(), value.to_vec()),
        Body::Deletion(deletion) => Got::Deletion(deletion.seqno.get(), deletion.key.to_vec()),
        Body::Prepare(prepare) => Got::Prepare(prepare.seqno.get(), prepare.key.to_vec()),
        Body::Commit(commit) => Got::Commit(commit.prepared.get(), commit.seqno.get()),
        Body::SystemEvent(event) => {
            let payload = SystemEventPayload::parse(&event).unwrap();
            let name = String::from_utf8(event.name.to_vec()).unwrap();
            let collection = payload.collection.map(CollectionId::get);
            Got::Event(event.seqno.get(), event.kind, name, collection)
        }
        Body::SeqnoAdvanced(advanced) => Got::Advanced(advanced.seqno.get()),
        Body::StreamEnd(StreamEnd { reason }) => Got::End(reason),
        Body::Noop => Got::Noop(request.opaque),
        other => panic!("{other:?}"),
    }
}

fn vb_of(key: &str) -> VbId {
    VbId::of_key(key.as_bytes(), 16)
}

/// Keys of one vBucket, in the order in which they are given.
fn keys_of(vb: VbId, count: usize) -> Vec<String> {
    let keys = (0..).map(|n| format!("key{n}"));
    keys.filter(|key| vb_of(key) == vb).take(count).collect()
}

#[test]
fn a_stream_gives_what_is_there_and_what_comes() {
    // What has left the log comes from the file.
    for settled in [false, true] {
        let kedge = Kedge::start();
        let mut writer = kedge.client();
        let vb = VbId(3);
        let keys = keys_of(vb, 20);
        for key in &keys[..10] {
            writer.set(key, b"1").ok();
        }
        if settled {
            bucket(&kedge).settle().unwrap();
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
        follower.send(vb.get(), Body::CloseStream);
        assert_eq!(follower.status(), Status::Success);
        writer.set(&keys[0], b"2").ok();
        assert_eq!(follower.rest(), [], "it is closed");
    }
}

#[test]
fn a_stream_goes_on_where_another_ended() {
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
    // From the middle of a history that the vBucket does not have.
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
fn sync_writes_are_told_to_those_who_ask_for_them() {
    let kedge = Kedge::start();
    let mut writer = kedge.client();
    let vb = vb_of("k");
    let mut plain = Follower::open(&kedge, "plain", &[]);
    plain.stream(vb, 0, 0);
    let settings = [("enable_sync_writes", "true")];
    let mut aware = Follower::open(&kedge, "aware", &settings);
    // From the file, where the prepare is not any more, it would get the document.
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
fn a_quiet_connection_is_asked_whether_it_is_there() {
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
    follower.send(0, Body::Noop);
    assert_eq!(follower.status(), Status::Success);
}

#[test]
fn no_more_is_sent_than_the_consumer_has_room_for() {
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
        follower.send(0, Body::BufferAck(BufferAck { bytes }));
    }
}

#[test]
fn a_second_connection_of_the_name_ends_the_first() {
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
fn streams_end_with_what_they_are_of() {
    let kedge = Kedge::start();
    let mut follower = Follower::open(&kedge, "e", &[]);
    follower.stream(VbId(1), 0, 0);
    let state = kedge_bucket::VbState::Dead;
    bucket(&kedge).set_vbucket(VbId(1), state).unwrap();
    assert_eq!(follower.next(), Got::End(EndReason::StateChanged));
    let refused = follower.ask(VbId(1), request(0, 0));
    assert!(matches!(refused, Got::Reply(_, Status::NotMyVbucket, map) if !map.is_empty()));
    // Who may not follow any more, or has no bucket, is cut off.
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
fn what_makes_no_sense_is_refused() {
    let kedge = Kedge::start();
    // Without a login, a bucket, or the right to it.
    let mut stranger = kedge.connect();
    stranger.hello(FEATURES);
    let mut bytes = Vec::new();
    let open = Open {
        flags: OpenFlags::PRODUCER,
        name: b"x",
        value: b"",
    };
    open.encode(&Head::default(), &mut bytes);
    stranger.send(&bytes);
    assert_eq!(stranger.reply().status, Status::AccessDenied);
    let mut reader = Follower::connect(&kedge, FEATURES, "reader");
    assert_eq!(reader.try_open("x"), Status::AccessDenied);
    // Before it is open.
    let mut early = Follower::connect(&kedge, FEATURES, USER);
    early.send(0, Body::Noop);
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
            StreamRequest {
                end: Seqno(4),
                ..request(5, 0)
            },
            Status::OutOfRange,
        ),
        (
            1,
            StreamRequest {
                filter: b"{",
                ..request(0, 0)
            },
            Status::Invalid,
        ),
        (
            1,
            StreamRequest {
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
    early.send(7, Body::CloseStream);
    assert_eq!(early.status(), Status::KeyNotFound);
    early.send(0, Body::SeqnoAck(SeqnoAck { prepared: Seqno(1) }));
    assert_eq!(early.status(), Status::Invalid);
    early.send(0, Body::BufferAck(BufferAck { bytes: 1 }));
    assert_eq!(early.status(), Status::Invalid);
    // What would make it another connection.
    for opcode in [Opcode::Hello, Opcode::SelectBucket, Opcode::SaslAuth] {
        let frame = Frame::new(opcode, 9).extras(&[]).key("default");
        early.client.stream.write_all(&frame.bytes()).unwrap();
        assert_eq!(early.status(), Status::Invalid, "{opcode:?}");
    }
    assert_eq!(early.rest(), []);
    // It is still good for commands.
    let get = Frame::new(Opcode::Noop, 9);
    early.client.stream.write_all(&get.bytes()).unwrap();
    assert_eq!(early.status(), Status::Success);
    // No frame at all.
    early.client.stream.write_all(&[0x55; 64]).unwrap();
    assert_eq!(early.next(), Got::Closed);
}

#[test]
fn only_nodes_of_the_cluster_acknowledge() {
    let kedge = Kedge::start();
    activate(&kedge, &["n_0", "n_1"]);
    let vb = vb_of("k");
    let settings = [("enable_sync_writes", "true")];
    let mut liar = Follower::open(&kedge, "liar", &settings);
    liar.send(
        0,
        Body::Control(Control {
            key: b"consumer_name",
            value: b"n_1",
        }),
    );
    assert_eq!(liar.next(), Got::Closed);
    // One that may.
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
    node.send(vb.get(), Body::SeqnoAck(ack));
    match writer.next() {
        Came::Reply(reply) => assert_eq!(reply.status, Status::Success),
        other => panic!("{other:?}"),
    }
}

#[test]
fn large_documents_and_many_of_them_come_through() {
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
fn a_server_that_stops_serves_replicas_until_clients_have_their_answers() {
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
    // The only front-end thread knows that it stops.
    idle.assert_closed();
    node.send(vb.get(), Body::SeqnoAck(SeqnoAck { prepared }));
    writer.reply().ok();
    writer.assert_closed();
    while node.next() != Got::Closed {}
    stopping.join().unwrap();
}

/// Collections of these ids in the scope 9.
fn manifest(uid: u64, ids: &[u32]) -> Arc<Manifest> {
    let mut manifest = Manifest {
        uid: ManifestUid(uid),
        ..Manifest::default()
    };
    let collection = |id: &u32| Collection {
        id: CollectionId(*id),
        name: format!("c{id}"),
        max_ttl: None,
        history: false,
    };
    manifest.scopes.push(Scope {
        id: ScopeId(9),
        name: "shop".to_owned(),
        collections: ids.iter().map(collection).collect(),
    });
    Arc::new(manifest)
}

/// What comes that is neither a marker nor a NOOP.
fn changes(follower: &mut Follower, count: usize) -> Vec<Got> {
    let mut all = Vec::new();
    while all.len() < count {
        match follower.next() {
            Got::Marker(..) | Got::Noop(_) => {}
            got => all.push(got),
        }
    }
    all
}

fn set_in(client: &mut Client, collection: u8, key: &str) -> Status {
    let mut frame = client.request(Opcode::Set).store(key, b"v");
    frame.key[0] = collection;
    client.call(&frame).status
}

#[test]
fn a_stream_has_the_collections_that_it_asks_for_and_their_events() {
    use SystemEventKind::{CollectionBegan, CollectionDropped, ScopeCreated, ScopeDropped};
    for settled in [false, true] {
        let kedge = Kedge::start();
        let mut writer = kedge.client();
        let vb = VbId(3);
        let key = &keys_of(vb, 1)[0];
        assert_eq!(set_in(&mut writer, 8, key), Status::UnknownCollection);
        // Scope 1, collections 2 and 3; documents 4 to 6.
        bucket(&kedge).set_manifest(manifest(1, &[8, 10]));
        for id in [0, 8, 10] {
            assert_eq!(set_in(&mut writer, id, key), Status::Success);
        }
        if settled {
            bucket(&kedge).settle().unwrap();
        }
        let ask = |name: &str, filter: &'static [u8]| {
            let mut follower = Follower::open(&kedge, name, &[]);
            let wanted = StreamRequest {
                filter,
                ..request(0, 0)
            };
            match follower.ask(vb, wanted) {
                Got::Reply(_, Status::Success, _) => Ok(follower),
                Got::Reply(_, status, _) => Err(status),
                other => panic!("{other:?}"),
            }
        };
        let status = |filter| ask("refused", filter).err();
        assert_eq!(
            status(b"{\"collections\":[\"b\"]}"),
            Some(Status::UnknownCollection)
        );
        assert_eq!(status(b"{\"scope\":\"a\"}"), Some(Status::UnknownScope));
        assert_eq!(status(b"{\"uid\":\"2\"}"), Some(Status::TemporaryFailure));

        let began = |seqno, id: u32| Got::Event(seqno, CollectionBegan, format!("c{id}"), Some(id));
        let dropped = |seqno, id| Got::Event(seqno, CollectionDropped, String::new(), Some(id));
        let document = |seqno, id: u8| {
            let stored = [&[id], key.as_bytes()].concat();
            Got::Mutation(seqno, stored, b"v".to_vec())
        };
        let scope = || Got::Event(1, ScopeCreated, "shop".to_owned(), None);
        let mut whole = ask("whole", b"").unwrap();
        let there = [scope(), began(2, 8), began(3, 10)];
        let documents = [document(4, 0), document(5, 8), document(6, 10)];
        assert_eq!(changes(&mut whole, 6), [&there[..], &documents].concat());
        let mut one = ask("one", b"{\"collections\":[\"a\"],\"uid\":\"1\"}").unwrap();
        assert_eq!(changes(&mut one, 2), [began(3, 10), document(6, 10)]);
        let mut of_scope = ask("scope", b"{\"scope\":\"9\"}").unwrap();
        let expected = [&there[..], &documents[1..]].concat();
        assert_eq!(changes(&mut of_scope, 5), expected);
        let mut default = ask("default", b"{\"collections\":[\"0\"]}").unwrap();
        // Up to the end of the snapshot there is nothing more for it.
        assert_eq!(changes(&mut default, 2), [document(4, 0), Got::Advanced(6)]);

        // At once, so that they are one snapshot: 8 is gone at 7, 10 at 8, the scope stays.
        bucket(&kedge).set_manifest(manifest(2, &[]));
        assert_eq!(set_in(&mut writer, 10, key), Status::UnknownCollection);
        assert_eq!(changes(&mut whole, 2), [dropped(7, 8), dropped(8, 10)]);
        assert_eq!(
            changes(&mut one, 2),
            [dropped(8, 10), Got::End(EndReason::FilterEmpty)]
        );
        assert_eq!(changes(&mut of_scope, 2), [dropped(7, 8), dropped(8, 10)]);
        bucket(&kedge).set_manifest(Arc::new(Manifest {
            uid: ManifestUid(3),
            ..Manifest::default()
        }));
        let gone = || Got::Event(9, ScopeDropped, String::new(), None);
        assert_eq!(
            changes(&mut of_scope, 2),
            [gone(), Got::End(EndReason::FilterEmpty)]
        );
        assert_eq!(changes(&mut whole, 1), [gone()]);
    }
}
