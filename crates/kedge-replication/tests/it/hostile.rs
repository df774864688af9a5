//! An other end that does not keep to anything.

use crate::pair::{Pair, consumer_config, features, producer};
use crate::script::{Script, document, memory, stream};
use kedge_protocol::binary::commands::dcp::{
    DcpBody, DcpCommit, DcpDeletion, DcpHeader, DcpMessage, DcpMutation, OpenFlags, OsoSnapshot,
    ParsePeer, PeerFrame, SeqnoAdvanced, parse_peer,
};
use kedge_protocol::binary::{Opcode, ReplyFrame, Request, Response};
use kedge_replication::{Consumer, ConsumerEvent, ConsumerStep, Disconnect, StreamFlags};
use kedge_types::{Cas, Datatype, Expiry, RevSeqno, Seqno, Status, VbId};
use proptest::collection::vec;
use proptest::prelude::*;

fn consumer() -> (Consumer, Vec<u8>) {
    let mut out = Vec::new();
    let mut consumer = Consumer::open(&consumer_config(), 0, &mut out);
    let from = crate::pair::resume(0);
    consumer.add_stream(VbId(0), &from, StreamFlags(0), &mut out);
    (consumer, out)
}

fn give(consumer: &mut Consumer, bytes: &[u8]) -> Result<ConsumerStep, Disconnect> {
    match parse_peer(bytes, 1 << 20) {
        ParsePeer::Frame { frame, consumed } => {
            assert_eq!(consumed, bytes.len());
            consumer.on_frame(0, &frame, &mut Vec::new())
        }
        other => panic!("{other:?}"),
    }
}

/// A document with this key.
fn mutation(key: &[u8]) -> DcpMutation<'_> {
    DcpMutation {
        seqno: Seqno(1),
        rev: RevSeqno(1),
        flags: 0,
        expiry: Expiry(0),
        lock_until: 0,
        nru: 0,
        cas: Cas(1),
        datatype: Datatype::RAW,
        key,
        value: b"",
    }
}

/// Opaque of the request for the stream, the last message that the consumer sent.
fn stream_opaque(sent: &[u8]) -> u32 {
    let mut rest = sent;
    let mut last = 0;
    while let ParsePeer::Frame {
        frame: PeerFrame::Request(request),
        consumed,
    } = parse_peer(rest, 1 << 20)
    {
        last = request.opaque;
        rest = &rest[consumed..];
    }
    last
}

fn reply(opcode: Opcode, opaque: u32, status: Status, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    Response {
        value,
        ..Response::new(opcode.wire(), opaque, status)
    }
    .write(&mut bytes);
    bytes
}

fn message(opaque: u32, body: DcpBody<'_>) -> Vec<u8> {
    let head = DcpHeader {
        opaque,
        ..DcpHeader::default()
    };
    let mut bytes = Vec::new();
    DcpMessage { head, body }.encode(&mut bytes);
    bytes
}

#[test]
fn unrequested_message_disconnects_the_consumer() {
    let (mut consumer, sent) = consumer();
    let opaque = stream_opaque(&sent);
    let accepted = reply(Opcode::DcpStreamReq, opaque, Status::Success, &[1; 16]);
    let step = give(&mut consumer, &accepted).unwrap();
    assert!(matches!(step.event, ConsumerEvent::Begins { .. }));
    assert_eq!(step.bytes, 0, "answers do not count");
    for (body, status) in [
        (
            DcpBody::OsoSnapshot(OsoSnapshot::Start),
            Status::NotSupported,
        ),
        (DcpBody::CacheTransferEnd, Status::NotSupported),
        (DcpBody::GetFailoverLog, Status::NotSupported),
        (DcpBody::Mutation(mutation(b"\x80")), Status::Invalid),
    ] {
        let bytes = message(opaque, body);
        let bad = Disconnect::BadMessage {
            opcode: bytes[1],
            status,
        };
        assert_eq!(give(&mut consumer, &bytes).unwrap_err(), bad);
    }
    // For no stream of this connection it is counted, and forgotten.
    let advanced = DcpBody::SeqnoAdvanced(SeqnoAdvanced { seqno: Seqno(1) });
    let step = give(&mut consumer, &message(opaque + 1, advanced)).unwrap();
    assert!(matches!(step.event, ConsumerEvent::Nothing));
    assert_eq!(step.bytes, 32);
}

/// The events of collections are kept as items of collection 1: a document there would be taken for one of them.
#[test]
fn key_in_the_system_event_namespace_is_rejected() {
    let (mut consumer, sent) = consumer();
    let opaque = stream_opaque(&sent);
    let accepted = reply(Opcode::DcpStreamReq, opaque, Status::Success, &[1; 16]);
    give(&mut consumer, &accepted).unwrap();
    let there = message(opaque, DcpBody::Mutation(mutation(b"\x08k")));
    let step = give(&mut consumer, &there).unwrap();
    assert!(matches!(step.event, ConsumerEvent::Received { .. }));
    let key = b"\x01k";
    for body in [
        DcpBody::Mutation(mutation(key)),
        DcpBody::Deletion(DcpDeletion {
            seqno: Seqno(1),
            rev: RevSeqno(1),
            cas: Cas(1),
            delete_time: None,
            datatype: Datatype::RAW,
            key,
            value: b"",
        }),
        DcpBody::Commit(DcpCommit {
            prepared: Seqno(1),
            seqno: Seqno(2),
            cas: Cas(1),
            key,
        }),
    ] {
        let bytes = message(opaque, body);
        let bad = Disconnect::BadMessage {
            opcode: bytes[1],
            status: Status::Invalid,
        };
        assert_eq!(give(&mut consumer, &bytes).unwrap_err(), bad);
    }
}

#[test]
fn message_of_an_unaccepted_stream_is_ignored() {
    let (mut consumer, sent) = consumer();
    let opaque = stream_opaque(&sent);
    let advanced = DcpBody::SeqnoAdvanced(SeqnoAdvanced { seqno: Seqno(1) });
    let step = give(&mut consumer, &message(opaque, advanced)).unwrap();
    assert!(matches!(step.event, ConsumerEvent::Nothing));
}

#[test]
fn consumer_disconnects_when_a_needed_property_is_refused() {
    let refused = |opcode: Opcode, status: Status| Disconnect::Refused {
        opcode: opcode.wire(),
        status: status.wire(),
    };
    let (mut no_open, _) = consumer();
    let bytes = reply(Opcode::DcpOpen, 1, Status::AccessDenied, b"");
    assert_eq!(
        give(&mut no_open, &bytes).unwrap_err(),
        refused(Opcode::DcpOpen, Status::AccessDenied)
    );
    assert!(!no_open.is_open());
    // Settings are answered in their order; the fourth is about SyncWrites.
    let (mut no_sync_writes, _) = consumer();
    for opaque in 2..5 {
        let bytes = reply(Opcode::DcpControl, opaque, Status::Success, b"");
        give(&mut no_sync_writes, &bytes).unwrap();
    }
    let bytes = reply(Opcode::DcpControl, 5, Status::Invalid, b"");
    assert_eq!(
        give(&mut no_sync_writes, &bytes).unwrap_err(),
        Disconnect::ControlRefused {
            key: "enable_sync_writes",
            status: 4,
        }
    );
    // A producer of an earlier release knows no limit of new copies: the connection goes on.
    let (mut limits, _) = consumer();
    limits.limit_copies(1_000, &mut Vec::new());
    let stream = 13;
    for opaque in (2..=14).filter(|opaque| *opaque != stream) {
        let status = if opaque < stream {
            Status::Success
        } else {
            Status::Invalid
        };
        give(&mut limits, &reply(Opcode::DcpControl, opaque, status, b"")).unwrap();
    }
    let (mut confused, sent) = consumer();
    let opaque = stream_opaque(&sent);
    let bytes = reply(Opcode::DcpControl, 99, Status::Success, b"");
    assert!(give(&mut confused, &bytes).is_err());
    for (status, value) in [
        (Status::Success, &[][..]),
        (Status::Success, &[1; 15]),
        // Seqnos that grow towards older branches.
        (Status::Success, &[[0; 16], [1; 16]].concat()),
        (Status::Rollback, &[1; 7]),
    ] {
        let (mut unclear, _) = consumer();
        let bytes = reply(Opcode::DcpStreamReq, opaque, status, value);
        let bad = Disconnect::BadMessage {
            opcode: Opcode::DcpStreamReq.wire(),
            status: Status::Invalid,
        };
        assert_eq!(give(&mut unclear, &bytes).unwrap_err(), bad);
    }
}

#[test]
fn producer_disconnects_when_a_change_is_refused() {
    let mut script = Script::new();
    script.say(stream(0), [memory(1, 1, 1), document(1, "a")]);
    let mut pair = Pair::new(script);
    pair.add_stream(0, 0);
    pair.run().unwrap();
    let late = [
        Status::KeyNotFound,
        Status::StreamNotFound,
        Status::OpaqueNoMatch,
    ];
    for status in late {
        pair.to_producer
            .extend(reply(Opcode::DcpMutation, 1, status, b""));
    }
    pair.run().unwrap();
    pair.to_producer
        .extend(reply(Opcode::DcpMutation, 1, Status::NoMemory, b""));
    let refused = Disconnect::Refused {
        opcode: Opcode::DcpMutation.wire(),
        status: Status::NoMemory.wire(),
    };
    assert_eq!(pair.run(), Err(refused));
}

#[test]
fn excess_buffer_ack_does_not_enlarge_the_window() {
    use kedge_protocol::binary::commands::dcp::{BufferAck, DcpControl};
    let mut producer = producer(OpenFlags::default(), features());
    let mut ask = |body| {
        let bytes = message(0, body);
        let ParsePeer::Frame {
            frame: PeerFrame::Request(request),
            ..
        } = parse_peer(&bytes, 1 << 20)
        else {
            panic!("it is a request");
        };
        producer.on_request(0, &request, &mut Vec::new()).unwrap();
        producer.figures().unacknowledged
    };
    ask(DcpBody::Control(DcpControl {
        key: b"connection_buffer_size",
        value: b"100",
    }));
    assert_eq!(ask(DcpBody::BufferAck(BufferAck { bytes: u32::MAX })), 0);
}

#[derive(Clone, Debug)]
struct Frame {
    opcode: u8,
    framing: Vec<u8>,
    extras: Vec<u8>,
    key: Vec<u8>,
    value: Vec<u8>,
    numbers: (u16, u32, u64, u8),
    is_request: bool,
}

fn frame() -> impl Strategy<Value = Frame> {
    let framing = prop_oneof![Just(vec![]), vec(any::<u8>(), 0..6)];
    let lengths = prop::sample::select(vec![0, 1, 4, 8, 13, 16, 18, 20, 21, 31, 48]);
    let extras = lengths.prop_flat_map(|len| vec(prop_oneof![Just(0), any::<u8>()], len));
    let opaque = prop_oneof![0_u32..30, any::<u32>()];
    (
        0x50_u8..0x68,
        framing,
        extras,
        vec(any::<u8>(), 0..30),
        vec(any::<u8>(), 0..60),
        (0_u16..3, opaque, any::<u64>(), 0_u8..9),
        any::<bool>(),
    )
        .prop_map(
            |(opcode, framing, extras, key, value, numbers, is_request)| Frame {
                opcode,
                framing,
                extras,
                key,
                value,
                numbers,
                is_request,
            },
        )
}

impl Frame {
    fn as_peer(&self) -> PeerFrame<'_> {
        let (vb, opaque, cas, datatype) = self.numbers;
        if self.is_request {
            PeerFrame::Request(Request {
                opcode: self.opcode,
                datatype,
                vb: VbId(vb),
                opaque,
                cas: Cas(cas),
                framing: &self.framing,
                extras: &self.extras,
                key: &self.key,
                value: &self.value,
            })
        } else {
            PeerFrame::Reply(ReplyFrame {
                opcode: self.opcode,
                datatype,
                status_code: vb,
                opaque,
                cas: Cas(cas),
                framing: &self.framing,
                extras: &self.extras,
                key: &self.key,
                value: &self.value,
            })
        }
    }
}

proptest! {
    /// Neither end comes to harm, and the producer goes on serving.
    #[test]
    fn random_frames_do_not_panic(frames in vec(frame(), 1..40)) {
        let mut script = Script::new();
        script.say(stream(0), (1..5).flat_map(|seqno| {
            [memory(seqno, seqno, seqno), document(seqno, "k")]
        }));
        let mut pair = Pair::new(script);
        pair.add_stream(0, 0);
        pair.run().unwrap();
        for (frame, now) in frames.iter().zip(1..) {
            let mut out = Vec::new();
            let peer = frame.as_peer();
            let _ = match &peer {
                PeerFrame::Request(request) => {
                    pair.producer().on_request(now, request, &mut out).map(|_| ())
                }
                PeerFrame::Reply(reply) => pair.producer().on_reply(now, reply).map(|_| ()),
            };
            let producer = pair.producer.as_mut().unwrap();
            producer.fill(now, &mut pair.script, &mut out, 1 << 10);
            let _ = producer.on_time(now, &mut out);
            let step = pair.consumer.on_frame(now, &peer, &mut out);
            if let Ok(step) = step {
                pair.consumer.consumed(now, step.bytes, &mut out);
            }
            let _ = pair.consumer.on_time(now, &mut out);
        }
        let mut reply = Vec::new();
        let noop = message(77, DcpBody::Noop);
        if let ParsePeer::Frame { frame: PeerFrame::Request(request), .. } = parse_peer(&noop, 99) {
            pair.producer().on_request(100, &request, &mut reply).unwrap();
        }
        prop_assert_eq!(reply.len(), 24);
    }
}
