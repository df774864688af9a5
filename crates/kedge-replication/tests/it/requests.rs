//! Requests of a client to a producer, and the replies.

use crate::pair::{features, history, producer, producer_config};
use crate::script::{Script, document, memory, stream};
use kedge_protocol::binary::commands::dcp::{
    AddStream, BufferAck, DcpBody, DcpControl, DcpHeader, DcpMessage, DcpOpen, DcpStreamRequest,
    OpenFlags, ParsePeer, PeerFrame, SeqnoAck, StreamFilter, StreamFlags, StreamReply, parse_peer,
};
use kedge_protocol::binary::{Feature, Features, ReplyFrame};
use kedge_replication::{Disconnect, Filter, Producer, ProducerAction, ProducerConfig, StreamId};
use kedge_types::limits::DCP_STREAMS_MAX;
use kedge_types::{CollectionId, Seqno, Status, VbId, VbUuid};
use kedge_vbucket::NodeName;

/// Asks, and gives what is to be done and the reply's status, if there is one.
fn ask(
    producer: &mut Producer,
    head: DcpHeader,
    body: DcpBody<'_>,
) -> (ProducerAction, Option<Status>) {
    let mut out = Vec::new();
    let todo = ask_into(producer, head, body, &mut out).unwrap();
    let status = (!out.is_empty()).then(|| reply(&out).status().unwrap());
    (todo, status)
}

fn ask_into(
    producer: &mut Producer,
    head: DcpHeader,
    body: DcpBody<'_>,
    out: &mut Vec<u8>,
) -> Result<ProducerAction, Disconnect> {
    let mut bytes = Vec::new();
    DcpMessage { head, body }.encode(&mut bytes);
    match parse_peer(&bytes, 1 << 20) {
        ParsePeer::Frame {
            frame: PeerFrame::Request(request),
            ..
        } => producer.on_request(0, &request, out),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn reply(bytes: &[u8]) -> ReplyFrame<'_> {
    match parse_peer(bytes, 1 << 20) {
        ParsePeer::Frame {
            frame: PeerFrame::Reply(reply),
            consumed,
        } if consumed == bytes.len() => reply,
        other => panic!("not one reply: {other:?}"),
    }
}

fn set(producer: &mut Producer, key: &str, value: &str) -> Status {
    let control = DcpControl {
        key: key.as_bytes(),
        value: value.as_bytes(),
    };
    let (todo, status) = ask(producer, DcpHeader::default(), DcpBody::Control(control));
    let expected = match (status, value.parse()) {
        (Some(Status::Success), Ok(bytes_per_sec)) if key == "max_copy_bytes_per_sec" => {
            ProducerAction::LimitCopies { bytes_per_sec }
        }
        _ => ProducerAction::Nothing,
    };
    assert_eq!(todo, expected);
    status.expect("it is answered")
}

fn head(vb: u16) -> DcpHeader {
    DcpHeader {
        vb: VbId(vb),
        opaque: 5,
        stream: None,
    }
}

fn request(filter: &[u8]) -> DcpStreamRequest<'_> {
    DcpStreamRequest {
        flags: StreamFlags(0),
        start: Seqno(5),
        end: DcpStreamRequest::NO_END,
        vb_uuid: VbUuid(7),
        snap_start: Seqno(4),
        snap_end: Seqno(6),
        filter,
    }
}

/// A producer with NOOPs, as extended attributes and collections want it.
fn ready_producer(features: Features) -> Producer {
    let mut producer = producer(OpenFlags::default(), features);
    assert_eq!(set(&mut producer, "enable_noop", "true"), Status::Success);
    producer
}

#[test]
fn consumer_with_a_map_of_another_epoch_gets_no_stream() {
    for epoch in ["4", "6"] {
        let mut producer = ready_producer(features());
        assert_eq!(
            set(&mut producer, "map_epoch", epoch),
            Status::TemporaryFailure
        );
        let stream = || DcpBody::StreamRequest(request(b""));
        let refused = ask(&mut producer, head(1), stream());
        let status = Some(Status::TemporaryFailure);
        assert_eq!(refused, (ProducerAction::Nothing, status), "{epoch}");
        assert_eq!(set(&mut producer, "map_epoch", "5"), Status::Success);
        let (todo, _) = ask(&mut producer, head(1), stream());
        assert!(matches!(todo, ProducerAction::OpenStream(..)), "{todo:?}");
    }
    // A server that is in no cluster has no map.
    let open = DcpOpen {
        flags: OpenFlags::PRODUCER,
        name: b"client",
        value: b"",
    };
    let config = ProducerConfig {
        map_epoch: None,
        ..producer_config(features())
    };
    let mut alone = Producer::open(&open, &config, 0).unwrap();
    assert_eq!(set(&mut alone, "map_epoch", "5"), Status::Invalid);
}

#[test]
fn dcp_open_flags_are_accepted_or_rejected() {
    let xattrs = OpenFlags::XATTRS.0;
    for (flags, expected) in [
        (0x1, None),
        (0x1 | xattrs, None),
        (0x1 | 0x8, None),
        (0x1 | 0x20, None),
        (0x1 | 0x40, None),
        (0x1 | 0x104, None),
        (0x1 | 0x200, None),
        (0x0, Some(Status::NotSupported)),
        (xattrs, Some(Status::NotSupported)),
        (0x1 | 0x2, Some(Status::Invalid)),
        (0x1 | 0x10, Some(Status::Invalid)),
        (0x1 | 0x80, Some(Status::Invalid)),
        (0x1 | 0x400, Some(Status::Invalid)),
        (0x1 | 0x8 | 0x40, Some(Status::Invalid)),
    ] {
        let open = DcpOpen {
            flags: OpenFlags(flags),
            name: b"client",
            value: b"",
        };
        let opened = Producer::open(&open, &producer_config(features()), 0);
        let refused = opened.err().map(|refusal| refusal.status);
        assert_eq!(refused, expected, "{flags:#x}");
    }
    let open = |value| {
        let open = DcpOpen {
            flags: OpenFlags::PRODUCER,
            name: b"client",
            value,
        };
        Producer::open(&open, &producer_config(features()), 0)
    };
    let named = open(br#"{"consumer_name":"n_1"}"#).unwrap();
    assert_eq!(named.consumer_name().unwrap().as_str(), "n_1");
    for wrong in [&b"{"[..], br#"{"consumer_name":""}"#] {
        assert_eq!(open(wrong).err().unwrap().status, Status::Invalid);
    }
}

#[test]
fn dcp_control_keys_are_accepted_or_rejected() {
    let (ok, no) = (Status::Success, Status::Invalid);
    let long_name = "n".repeat(1_000);
    for (key, value, expected) in [
        ("enable_noop", "true", ok),
        ("enable_noop", "false", ok),
        ("enable_noop", "1", no),
        ("set_noop_interval", "1", ok),
        ("set_noop_interval", "10000", ok),
        ("set_noop_interval", "0", no),
        ("set_noop_interval", "10001", no),
        ("set_noop_interval", "1.5", no),
        ("set_noop_interval", "-1", no),
        ("set_noop_interval", "+1", no),
        ("connection_buffer_size", "0", ok),
        ("connection_buffer_size", "4294967295", ok),
        ("connection_buffer_size", "4294967296", no),
        ("connection_buffer_size", "many", no),
        ("set_priority", "low", ok),
        ("set_priority", "medium", ok),
        ("set_priority", "high", ok),
        ("set_priority", "highest", no),
        ("force_value_compression", "true", ok),
        ("force_value_compression", "yes", no),
        ("supports_cursor_dropping", "true", ok),
        ("supports_cursor_dropping_vulcan", "true", ok),
        ("supports_cursor_dropping_vulcan", "x", no),
        ("supports_hifi_MFU", "true", ok),
        ("send_stream_end_on_client_close_stream", "true", ok),
        ("enable_expiry_opcode", "true", ok),
        ("enable_stream_id", "true", ok),
        ("enable_stream_id", "false", no),
        ("enable_sync_writes", "true", ok),
        ("enable_sync_writes", "false", no),
        ("consumer_name", "n_1", ok),
        ("consumer_name", &long_name, no),
        ("enable_out_of_order_snapshots", "true", ok),
        ("enable_out_of_order_snapshots", "false", ok),
        (
            "enable_out_of_order_snapshots",
            "true_with_seqno_advanced",
            ok,
        ),
        ("enable_out_of_order_snapshots", "maybe", no),
        ("include_deleted_user_xattrs", "false", ok),
        ("include_deleted_user_xattrs", "true", no),
        ("v7_dcp_status_codes", "true", ok),
        ("max_marker_version", "1.0", ok),
        ("max_marker_version", "2.0", ok),
        ("max_marker_version", "2.2", ok),
        ("max_marker_version", "3.0", no),
        ("backfill_order", "round-robin", ok),
        ("backfill_order", "sequential", no),
        ("flatbuffers_system_events", "true", ok),
        ("flatbuffers_system_events", "yes", no),
        ("flatbuffers_system_events", "false", ok),
        ("change_streams", "true", no),
        ("change_streams", "false", ok),
        ("cache_transfer", "true", no),
        ("cache_transfer", "false", ok),
        ("max_copy_bytes_per_sec", "4294967296", ok),
        ("max_copy_bytes_per_sec", "0", ok),
        ("max_copy_bytes_per_sec", "+1", no),
        ("max_copy_bytes_per_sec", "18446744073709551616", no),
        ("map_epoch", "5", ok),
        ("map_epoch", "4", Status::TemporaryFailure),
        ("map_epoch", "6", Status::TemporaryFailure),
        ("map_epoch", "-5", no),
        ("something", "true", no),
    ] {
        let mut producer = producer(OpenFlags::default(), features());
        assert_eq!(set(&mut producer, key, value), expected, "{key} {value}");
    }
    let flags = OpenFlags::XATTRS.union(OpenFlags::DELETED_USER_XATTRS);
    let mut says_so = producer(flags, features());
    assert_eq!(set(&mut says_so, "include_deleted_user_xattrs", "true"), ok);
    let without = features()
        .without(Feature::Snappy)
        .without(Feature::Collections);
    let mut plain = producer(OpenFlags::default(), without);
    assert_eq!(set(&mut plain, "force_value_compression", "true"), no);
    assert_eq!(set(&mut plain, "force_value_compression", "false"), ok);
    assert_eq!(set(&mut plain, "enable_stream_id", "true"), no);
}

#[test]
fn stream_ids_and_sync_writes_exclude_each_other() {
    let both = ["enable_stream_id", "enable_sync_writes"];
    for (first, second) in [(both[0], both[1]), (both[1], both[0])] {
        let mut producer = producer(OpenFlags::default(), features());
        assert_eq!(set(&mut producer, first, "true"), Status::Success);
        assert_eq!(set(&mut producer, second, "true"), Status::Invalid);
    }
    let mut producer = ready_producer(features());
    ask(&mut producer, head(0), DcpBody::StreamRequest(request(b"")));
    assert!(producer.stream_opened(0, stream(0), &history(), &mut Vec::new()));
    let refused = set(&mut producer, "enable_stream_id", "true");
    assert_eq!(refused, Status::Invalid, "there is a stream without one");
}

#[test]
fn stream_request_carries_all_fields_to_the_source() {
    let mut producer = ready_producer(features());
    assert_eq!(
        set(&mut producer, "enable_sync_writes", "true"),
        Status::Success
    );
    let unordered = ("enable_out_of_order_snapshots", "true");
    assert_eq!(
        set(&mut producer, unordered.0, unordered.1),
        Status::Success
    );
    assert_eq!(set(&mut producer, "consumer_name", "b"), Status::Success);
    let flags = StreamFlags::ACTIVE_ONLY.union(StreamFlags::TO_LATEST);
    let wire = DcpStreamRequest {
        flags,
        end: Seqno(9),
        ..request(br#"{"collections":["0"],"purge_seqno":"3","uid":"0"}"#)
    };
    let (todo, status) = ask(&mut producer, head(3), DcpBody::StreamRequest(wire));
    assert_eq!(status, None, "it is answered when the stream is open");
    let ProducerAction::OpenStream(id, request) = todo else {
        panic!("{todo:?}");
    };
    assert_eq!(id, stream(3));
    let expected = kedge_replication::StreamRequest {
        vb: VbId(3),
        flags,
        start: Seqno(5),
        end: Seqno(9),
        uuid: VbUuid(7),
        snap_start: Seqno(4),
        snap_end: Seqno(6),
        purge_seen: Some(Seqno(3)),
        manifest_seen: Some(kedge_types::ManifestUid(0)),
        filter: Filter::Collections([CollectionId(0)].into()),
        unordered: true,
        sync_writes: true,
        consumer: NodeName::new("b"),
    };
    assert_eq!(*request, expected);
    let mut out = Vec::new();
    assert!(producer.stream_opened(0, id, &history(), &mut out));
    let StreamReply::Accepted(log) = StreamReply::decode(&reply(&out)).unwrap() else {
        panic!("it is accepted");
    };
    let log: Vec<_> = log
        .iter()
        .map(|entry| (entry.vb_uuid, entry.seqno))
        .collect();
    assert_eq!(log, history().entries());
    assert_eq!(reply(&out).opaque, 5);
    assert!(!producer.stream_opened(0, id, &history(), &mut out), "once");
}

#[test]
fn invalid_stream_request_is_rejected() {
    let json = |filter: &'static str| request(filter.as_bytes());
    let numbers = |start, end, (snap_start, snap_end)| DcpStreamRequest {
        start: Seqno(start),
        end: Seqno(end),
        snap_start: Seqno(snap_start),
        snap_end: Seqno(snap_end),
        ..request(b"")
    };
    let flags = |flags| DcpStreamRequest {
        flags: StreamFlags(flags),
        ..request(b"")
    };
    for (wire, expected) in [
        (numbers(5, 4, (5, 5)), Status::OutOfRange),
        (numbers(5, 9, (6, 7)), Status::OutOfRange),
        (numbers(5, 9, (3, 4)), Status::OutOfRange),
        (numbers(5, 9, (7, 4)), Status::OutOfRange),
        (flags(0x200), Status::Invalid),
        (flags(0x8), Status::NotSupported),
        (flags(0x100), Status::NotSupported),
        (json("x"), Status::Invalid),
        (json(r#"{"sid":1}"#), Status::DcpStreamIdInvalid),
        (json(r#"{"cts":{}}"#), Status::NotSupported),
    ] {
        let mut producer = ready_producer(features());
        let (todo, status) = ask(&mut producer, head(0), DcpBody::StreamRequest(wire));
        assert_eq!(
            (todo, status),
            (ProducerAction::Nothing, Some(expected)),
            "{wire:?}"
        );
    }
    for wire in [numbers(0, 0, (0, 0)), numbers(5, 5, (5, 5)), flags(0xf7)] {
        let mut producer = ready_producer(features());
        let (todo, status) = ask(&mut producer, head(0), DcpBody::StreamRequest(wire));
        assert!(matches!(todo, ProducerAction::OpenStream(..)), "{wire:?}");
        assert_eq!(status, None);
    }
    let legacy = features().without(Feature::Collections);
    let mut producer = ready_producer(legacy);
    let wire = json(r#"{"scope":"0"}"#);
    let (_, status) = ask(&mut producer, head(0), DcpBody::StreamRequest(wire));
    assert_eq!(
        status,
        Some(Status::Invalid),
        "collections were not negotiated"
    );
}

#[test]
fn xattrs_and_collections_require_noops() {
    let legacy = features().without(Feature::Collections);
    for (flags, features, wants) in [
        (OpenFlags::default(), features(), true),
        (OpenFlags::XATTRS, legacy, true),
        (OpenFlags::default(), legacy, false),
    ] {
        let mut producer = producer(flags, features);
        let body = DcpBody::StreamRequest(request(b""));
        let (_, status) = ask(&mut producer, head(0), body);
        assert_eq!(status, wants.then_some(Status::Invalid), "{flags:?}");
        set(&mut producer, "enable_noop", "true");
        let (todo, _) = ask(&mut producer, head(1), body);
        assert!(matches!(todo, ProducerAction::OpenStream(..)));
    }
}

#[test]
fn duplicate_stream_is_rejected() {
    let mut producer = ready_producer(features());
    let body = DcpBody::StreamRequest(request(b""));
    ask(&mut producer, head(0), body);
    let (_, status) = ask(&mut producer, head(0), body);
    assert_eq!(status, Some(Status::KeyExists), "it is being opened");
    producer.stream_opened(0, stream(0), &history(), &mut Vec::new());
    let (_, status) = ask(&mut producer, head(0), body);
    assert_eq!(status, Some(Status::KeyExists));
    let (todo, status) = ask(&mut producer, head(0), DcpBody::CloseStream);
    assert_eq!(todo, ProducerAction::CloseStream(stream(0)));
    assert_eq!(status, Some(Status::Success));
    let (todo, _) = ask(&mut producer, head(0), body);
    assert!(matches!(todo, ProducerAction::OpenStream(..)));
    // Closed before it is open.
    let (todo, _) = ask(&mut producer, head(0), DcpBody::CloseStream);
    assert_eq!(todo, ProducerAction::CloseStream(stream(0)));
    let mut out = Vec::new();
    assert!(!producer.stream_opened(0, stream(0), &history(), &mut out));
    assert!(out.is_empty());
}

#[test]
fn vbucket_may_have_several_streams_with_stream_ids() {
    let mut producer = ready_producer(features());
    set(&mut producer, "enable_stream_id", "true");
    let with_id = |sid| {
        StreamFilter {
            stream_id: sid,
            ..StreamFilter::default()
        }
        .to_value()
    };
    let (_, status) = ask(&mut producer, head(0), DcpBody::StreamRequest(request(b"")));
    assert_eq!(status, Some(Status::DcpStreamIdInvalid));
    let mut script = Script::new();
    for sid in [1, 2] {
        let id = StreamId { vb: VbId(0), sid };
        let filter = with_id(Some(sid));
        let body = DcpBody::StreamRequest(request(&filter));
        let (todo, _) = ask(&mut producer, head(0), body);
        assert!(matches!(todo, ProducerAction::OpenStream(opened, _) if opened == id));
        assert!(producer.stream_opened(0, id, &history(), &mut Vec::new()));
        let (_, status) = ask(&mut producer, head(0), body);
        assert_eq!(status, Some(Status::KeyExists));
        script.say(id, [memory(6, 6, 6), document(6, "k")]);
    }
    let mut out = Vec::new();
    producer.ready(VbId(0));
    producer.fill(0, &mut script, &mut out, 1 << 20);
    let mut rest = &out[..];
    let mut ids = Vec::new();
    while let ParsePeer::Frame {
        frame: PeerFrame::Request(request),
        consumed,
    } = parse_peer(rest, 1 << 20)
    {
        ids.push(DcpMessage::decode(&request).unwrap().head.stream.unwrap());
        rest = &rest[consumed..];
    }
    assert_eq!(ids, [1, 1, 2, 2]);
    let (_, status) = ask(&mut producer, head(0), DcpBody::CloseStream);
    assert_eq!(status, Some(Status::DcpStreamIdInvalid), "which?");
    let second = DcpHeader {
        stream: Some(2),
        ..head(0)
    };
    let (todo, _) = ask(&mut producer, second, DcpBody::CloseStream);
    let id = StreamId {
        vb: VbId(0),
        sid: 2,
    };
    assert_eq!(todo, ProducerAction::CloseStream(id));
    assert_eq!(producer.figures().streams, 1);
}

#[test]
fn streams_per_connection_are_limited() {
    let mut producer = ready_producer(features());
    let body = DcpBody::StreamRequest(request(b""));
    for vb in 0..DCP_STREAMS_MAX as u16 {
        let (todo, _) = ask(&mut producer, head(vb), body);
        assert!(matches!(todo, ProducerAction::OpenStream(..)), "{vb}");
        if vb % 2 == 0 {
            producer.stream_opened(0, stream(vb), &history(), &mut Vec::new());
        }
    }
    let one_more = head(DCP_STREAMS_MAX as u16);
    let (_, status) = ask(&mut producer, one_more, body);
    assert_eq!(status, Some(Status::TemporaryFailure));
    ask(&mut producer, head(0), DcpBody::CloseStream);
    let (todo, _) = ask(&mut producer, one_more, body);
    assert!(matches!(todo, ProducerAction::OpenStream(..)));
}

#[test]
fn closing_a_missing_stream_is_an_error() {
    let mut producer = ready_producer(features());
    let (_, status) = ask(&mut producer, head(0), DcpBody::CloseStream);
    assert_eq!(status, Some(Status::KeyNotFound));
    set(&mut producer, "v7_dcp_status_codes", "true");
    let (_, status) = ask(&mut producer, head(0), DcpBody::CloseStream);
    assert_eq!(status, Some(Status::StreamNotFound));
}

#[test]
fn stream_end_after_close_is_sent_on_request() {
    for wanted in [false, true] {
        let mut producer = ready_producer(features());
        let value = wanted.to_string();
        set(
            &mut producer,
            "send_stream_end_on_client_close_stream",
            &value,
        );
        set(&mut producer, "connection_buffer_size", "1000");
        ask(&mut producer, head(0), DcpBody::StreamRequest(request(b"")));
        producer.stream_opened(0, stream(0), &history(), &mut Vec::new());
        let mut out = Vec::new();
        ask_into(&mut producer, head(0), DcpBody::CloseStream, &mut out).unwrap();
        let end = if wanted { 24 + 4 } else { 0 };
        assert_eq!(out.len(), 24 + end, "the answer, then the end");
        assert_eq!(producer.figures().unacknowledged, end as u64);
    }
}

#[test]
fn failover_log_request_is_answered() {
    let mut producer = ready_producer(features());
    let (todo, status) = ask(&mut producer, head(3), DcpBody::GetFailoverLog);
    let lookup = ProducerAction::FailoverLog {
        vb: VbId(3),
        opaque: 5,
    };
    assert_eq!((todo, status), (lookup, None));
    let mut out = Vec::new();
    producer
        .failover_log(0, 5, Ok(&history()), &mut out)
        .unwrap();
    assert_eq!(reply(&out).value.len(), 2 * 16);
    out.clear();
    let not_mine = Err(Status::NotMyVbucket);
    producer.failover_log(0, 5, not_mine, &mut out).unwrap();
    assert_eq!(reply(&out).status(), Some(Status::NotMyVbucket));
}

#[test]
fn refused_stream_reply_has_the_map_or_the_rollback_seqno() {
    let mut producer = ready_producer(features());
    let body = DcpBody::StreamRequest(request(b""));
    ask(&mut producer, head(0), body);
    let mut out = Vec::new();
    let not_mine = Status::NotMyVbucket;
    producer
        .stream_refused(0, stream(0), not_mine, b"{}", &mut out)
        .unwrap();
    let refused = reply(&out);
    assert_eq!(
        (refused.status(), refused.value),
        (Some(not_mine), &b"{}"[..])
    );
    assert_eq!((refused.datatype, refused.opaque), (1, 5));
    out.clear();
    ask(&mut producer, head(0), body);
    producer.stream_rolls_back(0, stream(0), Seqno(4), &mut out);
    assert_eq!(
        StreamReply::decode(&reply(&out)),
        Ok(StreamReply::Rollback(Seqno(4)))
    );
}

#[test]
fn unexpected_requests_are_rejected_with_a_reason() {
    let mut producer = ready_producer(features());
    let add = DcpBody::AddStream(AddStream {
        flags: StreamFlags(0),
    });
    let ack = DcpBody::BufferAck(BufferAck { bytes: 1 });
    let seqno_ack = DcpBody::SeqnoAck(SeqnoAck { prepared: Seqno(1) });
    let open = DcpBody::Open(DcpOpen {
        flags: OpenFlags::PRODUCER,
        name: b"again",
        value: b"",
    });
    for (body, expected) in [
        (add, Status::NotSupported),
        (DcpBody::CacheTransferEnd, Status::NotSupported),
        (open, Status::Invalid),
        (ack, Status::Invalid),
        (seqno_ack, Status::Invalid),
    ] {
        let mut out = Vec::new();
        let todo = ask_into(&mut producer, head(0), body, &mut out).unwrap();
        assert_eq!(todo, ProducerAction::Nothing);
        let refused = reply(&out);
        assert_eq!(refused.status(), Some(expected), "{body:?}");
        let text = std::str::from_utf8(refused.value).unwrap();
        assert!(text.starts_with(r#"{"error":{"context":""#), "{text}");
    }
    let (_, status) = ask(&mut producer, head(0), DcpBody::Noop);
    assert_eq!(status, Some(Status::Success));
    set(&mut producer, "connection_buffer_size", "100");
    assert_eq!(
        ask(&mut producer, head(0), ack),
        (ProducerAction::Nothing, None)
    );
    // Who has a name and SyncWrites acknowledges streams that are there.
    set(&mut producer, "enable_sync_writes", "true");
    set(&mut producer, "consumer_name", "n_1");
    let (_, status) = ask(&mut producer, head(0), seqno_ack);
    assert_eq!(status, Some(Status::StreamNotFound));
}

/// A replica that went back may still have something on its way that it had prepared before.
#[test]
fn seqno_ack_beyond_the_sent_seqno_is_rejected() {
    let mut producer = ready_producer(features());
    set(&mut producer, "enable_sync_writes", "true");
    set(&mut producer, "consumer_name", "n_1");
    ask(&mut producer, head(0), DcpBody::StreamRequest(request(b"")));
    producer.stream_opened(0, stream(0), &history(), &mut Vec::new());
    let acknowledge = |producer: &mut Producer, prepared| {
        let prepared = Seqno(prepared);
        let ack = DcpBody::SeqnoAck(SeqnoAck { prepared });
        match ask(producer, head(0), ack) {
            (ProducerAction::Acknowledge { vb, prepared: told }, None) => {
                assert_eq!((vb, told), (VbId(0), prepared));
                None
            }
            (_, status) => status,
        }
    };
    assert_eq!(acknowledge(&mut producer, 5), None, "it had that before");
    let refused = Some(Status::OutOfRange);
    assert_eq!(acknowledge(&mut producer, 6), refused);
    let mut script = Script::new();
    script.say(
        stream(0),
        [memory(6, 7, 7), document(6, "k"), document(7, "k")],
    );
    producer.fill(0, &mut script, &mut Vec::new(), 100);
    assert_eq!(acknowledge(&mut producer, 6), None);
    assert_eq!(acknowledge(&mut producer, 7), refused);
    producer.fill(0, &mut script, &mut Vec::new(), 100);
    assert_eq!(acknowledge(&mut producer, 7), None);
}

#[test]
fn replies_are_limited_to_the_features_of_the_client() {
    // Without JSON there is no reason, and without XERROR no status that is new.
    let plain = Features::default();
    let mut producer = producer(OpenFlags::default(), plain);
    let mut out = Vec::new();
    let body = DcpBody::Control(DcpControl {
        key: b"nothing",
        value: b"x",
    });
    ask_into(&mut producer, head(0), body, &mut out).unwrap();
    assert_eq!(reply(&out).value, b"");
    let filter = br#"{"sid":1}"#;
    let body = DcpBody::StreamRequest(request(filter));
    let refused = ask_into(&mut producer, head(0), body, &mut Vec::new());
    let closed = Disconnect::BadMessage {
        opcode: 0x53,
        status: Status::DcpStreamIdInvalid,
    };
    assert_eq!(refused, Err(closed));
}
