//! Bytes of the other end of a DCP connection: frames are split, messages read and written again, and both kinds of ends
//! take them.
#![no_main]

use kedge_protocol::binary::commands::dcp::{
    AddStreamReply, DcpBody, DcpMessage, DcpOpen, OpenFlags, ParsePeer, PeerFrame, StreamFilter,
    StreamReply, SystemEventPayload, parse_peer,
};
use kedge_protocol::binary::{Feature, Features, HEADER_BYTES, Request};
use kedge_replication::{
    Consumer, ConsumerConfig, Producer, ProducerAction, ProducerConfig, Source, SourceState,
    StreamFlags, StreamId, StreamItem,
};
use kedge_types::{Seqno, VbId, VbUuid};
use kedge_vbucket::{FailoverTable, NodeName, ResumePoint};
use libfuzzer_sys::fuzz_target;

const MAX_BODY: usize = 1 << 16;

/// A message that was read is written again, and must be read as the same.
fn check_request(request: &Request<'_>) {
    let Ok(message) = DcpMessage::decode(request) else {
        return;
    };
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    let ParsePeer::Frame {
        frame: PeerFrame::Request(again),
        consumed,
    } = parse_peer(&bytes, usize::MAX)
    else {
        panic!("what was written is a request");
    };
    assert_eq!(consumed, bytes.len());
    assert_eq!(DcpMessage::decode(&again), Ok(message));
    match message.body {
        DcpBody::StreamRequest(request) => {
            if let Ok(filter) = StreamFilter::parse(request.filter) {
                assert_eq!(StreamFilter::parse(&filter.to_value()), Ok(filter));
            }
        }
        DcpBody::Open(open) => {
            let _ = open.consumer_name();
        }
        DcpBody::SystemEvent(event) => {
            let _ = SystemEventPayload::parse(&event);
        }
        DcpBody::CacheTransfer(transfer) => assert!(transfer.documents().count() > 0),
        _ => {}
    }
}

/// Streams that never have anything.
struct Nothing;

impl Source for Nothing {
    fn read(&mut self, _: StreamId, _: usize, _: usize, _: &mut Vec<StreamItem>) -> SourceState {
        SourceState::Idle
    }

    fn close(&mut self, _: StreamId) {}
}

fn producer() -> Producer {
    let open = DcpOpen {
        flags: OpenFlags::PRODUCER.union(OpenFlags::XATTRS),
        name: b"fuzz",
        value: b"",
    };
    let config = ProducerConfig {
        features: Features::of(&[Feature::Json, Feature::Xerror, Feature::Collections]),
        idle_timeout_ns: 1 << 20,
        stuck_timeout_ns: 1 << 20,
        map_epoch: Some(5),
    };
    Producer::open(&open, &config, 0).expect("it can be opened")
}

fn consumer() -> Consumer {
    let config = ConsumerConfig {
        name: "fuzz".into(),
        node: NodeName::new("n_1").expect("it is a name"),
        buffer_bytes: 100,
        noop_interval_secs: 1,
        collections: true,
        map_epoch: Some(5),
    };
    let out = &mut Vec::new();
    let mut consumer = Consumer::open(&config, 0, out);
    let from = ResumePoint {
        start: Seqno(0),
        snap_start: Seqno(0),
        snap_end: Seqno(0),
        uuid: VbUuid(1),
    };
    consumer.add_stream(VbId(0), &from, StreamFlags(0), out);
    consumer
}

/// Whatever either end makes of it, it comes to no harm.
fn take(producer: &mut Producer, consumer: &mut Consumer, now_ns: u64, frame: &PeerFrame<'_>) {
    let out = &mut Vec::new();
    let todo = match frame {
        PeerFrame::Request(request) => producer.on_request(now_ns, request, out),
        PeerFrame::Reply(reply) => producer.on_reply(now_ns, reply),
    };
    if let Ok(ProducerAction::OpenStream(id, _)) = todo {
        producer.stream_opened(now_ns, id, &FailoverTable::new(VbUuid(1)), out);
    }
    producer.fill(now_ns, &mut Nothing, out, 1 << 10);
    let _ = producer.on_time(now_ns, out);
    if let Ok(step) = consumer.on_frame(now_ns, frame, out) {
        consumer.consumed(now_ns, step.bytes, out);
    }
}

fuzz_target!(|bytes: &[u8]| {
    let (mut producer, mut consumer) = (producer(), consumer());
    let mut now_ns = 0;
    let mut rest = bytes;
    loop {
        match parse_peer(rest, MAX_BODY) {
            ParsePeer::Frame { frame, consumed } => {
                assert!(consumed >= HEADER_BYTES && consumed <= rest.len());
                now_ns += 1 << 10;
                take(&mut producer, &mut consumer, now_ns, &frame);
                match frame {
                    PeerFrame::Request(request) => check_request(&request),
                    PeerFrame::Reply(reply) => {
                        let _ = StreamReply::decode(&reply);
                        let _ = AddStreamReply::decode(&reply);
                    }
                }
                rest = &rest[consumed..];
            }
            ParsePeer::Incomplete { need } => {
                assert!(need > rest.len());
                break;
            }
            ParsePeer::Fatal(_) => break,
        }
    }
});
