//! DCP messages: their bytes, both ways, and what is not one of them.

use crate::hex;
use kedge_protocol::binary::commands::dcp::{
    AddStream, AddStreamReply, BufferAck, CacheTransfer, CacheTransferFilter, CachedDocument,
    DcpAbort, DcpBody, DcpCommit, DcpControl, DcpDeletion, DcpExpiration, DcpHeader, DcpMessage,
    DcpMutation, DcpOpen, DcpPrepare, DcpStreamRequest, DcpSystemEvent, DcpSystemEventKind,
    DiskMarker, EndReason, OpenFlags, OsoSnapshot, ParsePeer, PeerFrame, SeqnoAck, SeqnoAdvanced,
    SetVbucketState, SnapshotFlags, SnapshotMarker, StreamEnd, StreamFilter, StreamFlags,
    StreamReply, SystemEventPayload, VisibleMarker, encode_failover_log, parse_peer,
};
use kedge_protocol::binary::commands::{FailoverEntry, decode_failover_log};
use kedge_protocol::binary::{HEADER_BYTES, Opcode, ReplyFrame, Request, Response};
use kedge_types::{
    Cas, CollectionId, Datatype, DurabilityLevel, Expiry, RevSeqno, Seqno, Status, VbId, VbUuid,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// The one frame that `bytes` is.
#[track_caller]
fn whole_frame(bytes: &[u8]) -> PeerFrame<'_> {
    match parse_peer(bytes, 1 << 20) {
        ParsePeer::Frame { frame, consumed } if consumed == bytes.len() => frame,
        other => panic!("{bytes:02x?} is not one frame: {other:?}"),
    }
}

#[track_caller]
fn whole_request(bytes: &[u8]) -> Request<'_> {
    match whole_frame(bytes) {
        PeerFrame::Request(request) => request,
        PeerFrame::Reply(reply) => panic!("a reply: {reply:?}"),
    }
}

#[track_caller]
fn whole_reply(bytes: &[u8]) -> ReplyFrame<'_> {
    match whole_frame(bytes) {
        PeerFrame::Reply(reply) => reply,
        PeerFrame::Request(request) => panic!("a request: {request:?}"),
    }
}

const HEAD: DcpHeader = DcpHeader {
    vb: VbId(0x0210),
    opaque: 0xdead_beef,
    stream: None,
};

/// `body` is written as these bytes, and read from them.
#[track_caller]
fn check_bytes(head: DcpHeader, body: DcpBody<'_>, expected: &str) {
    let message = DcpMessage { head, body };
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    assert_eq!(bytes, hex(expected), "{message:?}");
    assert_eq!(DcpMessage::decode(&whole_request(&bytes)), Ok(message));
}

#[test]
fn dcp_connection_messages_match_the_documented_bytes() {
    let open = DcpOpen {
        flags: OpenFlags::PRODUCER.union(OpenFlags::XATTRS),
        name: b"dcp",
        value: b"",
    };
    check_bytes(
        DcpHeader::default(),
        DcpBody::Open(open),
        "80 50 0003 08 00 0000 0000000b 00000000 0000000000000000
         00000000 00000005 646370",
    );
    let control = DcpControl {
        key: b"enable_noop",
        value: b"true",
    };
    check_bytes(
        HEAD,
        DcpBody::Control(control),
        "80 5e 000b 00 00 0210 0000000f deadbeef 0000000000000000
         656e61626c655f6e6f6f70 74727565",
    );
    check_bytes(
        HEAD,
        DcpBody::Noop,
        "80 5c 0000 00 00 0210 00000000 deadbeef 0000000000000000",
    );
    check_bytes(
        HEAD,
        DcpBody::BufferAck(BufferAck { bytes: 0x1000 }),
        "80 5d 0000 04 00 0210 00000004 deadbeef 0000000000000000 00001000",
    );
    check_bytes(
        HEAD,
        DcpBody::GetFailoverLog,
        "80 54 0000 00 00 0210 00000000 deadbeef 0000000000000000",
    );
}

#[test]
fn dcp_stream_messages_match_the_documented_bytes() {
    let request = DcpStreamRequest {
        flags: StreamFlags::TO_LATEST.union(StreamFlags::ACTIVE_ONLY),
        start: Seqno(5),
        end: DcpStreamRequest::NO_END,
        vb_uuid: VbUuid(0x0011_2233_4455_6677),
        snap_start: Seqno(4),
        snap_end: Seqno(6),
        filter: br#"{"sid":7}"#,
    };
    check_bytes(
        HEAD,
        DcpBody::StreamRequest(request),
        "80 53 0000 30 00 0210 00000039 deadbeef 0000000000000000
         00000014 00000000 0000000000000005 ffffffffffffffff 0011223344556677
         0000000000000004 0000000000000006 7b22736964223a377d",
    );
    check_bytes(
        HEAD,
        DcpBody::AddStream(AddStream {
            flags: StreamFlags::TAKEOVER,
        }),
        "80 51 0000 04 00 0210 00000004 deadbeef 0000000000000000 00000001",
    );
    check_bytes(
        HEAD,
        DcpBody::CloseStream,
        "80 52 0000 00 00 0210 00000000 deadbeef 0000000000000000",
    );
    // With a stream id the frame is a flexible one: two bytes of lengths in place of the key's.
    let with_id = DcpHeader {
        stream: Some(0x0102),
        ..HEAD
    };
    check_bytes(
        with_id,
        DcpBody::StreamEnd(StreamEnd {
            reason: EndReason::StateChanged,
        }),
        "08 55 03 00 04 00 0210 00000007 deadbeef 0000000000000000 22 0102 00000002",
    );
    check_bytes(
        HEAD,
        DcpBody::SetVbucketState(SetVbucketState { state: 3 }),
        "80 5b 0000 01 00 0210 00000001 deadbeef 0000000000000000 03",
    );
    check_bytes(
        HEAD,
        DcpBody::SeqnoAdvanced(SeqnoAdvanced { seqno: Seqno(9) }),
        "80 64 0000 08 00 0210 00000008 deadbeef 0000000000000000 0000000000000009",
    );
    check_bytes(
        HEAD,
        DcpBody::OsoSnapshot(OsoSnapshot::End),
        "80 65 0000 04 00 0210 00000004 deadbeef 0000000000000000 00000002",
    );
}

#[test]
fn dcp_snapshot_markers_match_the_documented_bytes() {
    let v1 = SnapshotMarker {
        start: Seqno(1),
        end: Seqno(8),
        flags: SnapshotFlags::MEMORY.union(SnapshotFlags::CHECKPOINT),
        visible: None,
    };
    check_bytes(
        HEAD,
        DcpBody::SnapshotMarker(v1),
        "80 56 0000 14 00 0210 00000014 deadbeef 0000000000000000
         0000000000000001 0000000000000008 00000005",
    );
    let visible = VisibleMarker {
        max_visible: Seqno(7),
        high_completed: Seqno(6),
        disk: None,
    };
    let v2_0 = SnapshotMarker {
        flags: SnapshotFlags::DISK,
        visible: Some(visible),
        ..v1
    };
    check_bytes(
        HEAD,
        DcpBody::SnapshotMarker(v2_0),
        "80 56 0000 01 00 0210 00000025 deadbeef 0000000000000000 00
         0000000000000001 0000000000000008 00000002 0000000000000007 0000000000000006",
    );
    let v2_2 = SnapshotMarker {
        visible: Some(VisibleMarker {
            disk: Some(DiskMarker {
                purge: Seqno(2),
                high_prepared: Seqno(5),
            }),
            ..visible
        }),
        ..v2_0
    };
    check_bytes(
        HEAD,
        DcpBody::SnapshotMarker(v2_2),
        "80 56 0000 01 00 0210 00000035 deadbeef 0000000000000000 02
         0000000000000001 0000000000000008 00000002 0000000000000007 0000000000000006
         0000000000000002 0000000000000005",
    );
}

#[test]
fn dcp_documents_match_the_documented_bytes() {
    let mutation = DcpMutation {
        seqno: Seqno(3),
        rev: RevSeqno(2),
        flags: 0x0200_0000,
        expiry: Expiry(0x6000_0000),
        lock_until: 0,
        nru: 1,
        cas: Cas(0x1234),
        datatype: Datatype::JSON,
        key: b"\x00k",
        value: b"{}",
    };
    check_bytes(
        HEAD,
        DcpBody::Mutation(mutation),
        "80 57 0002 1f 01 0210 00000023 deadbeef 0000000000001234
         0000000000000003 0000000000000002 02000000 60000000 00000000 0000 01 006b 7b7d",
    );
    let deletion = DcpDeletion {
        seqno: Seqno(4),
        rev: RevSeqno(3),
        delete_time: None,
        cas: Cas(0x1235),
        datatype: Datatype::RAW,
        key: b"k",
        value: b"",
    };
    check_bytes(
        HEAD,
        DcpBody::Deletion(deletion),
        "80 58 0001 12 00 0210 00000013 deadbeef 0000000000001235
         0000000000000004 0000000000000003 0000 6b",
    );
    check_bytes(
        HEAD,
        DcpBody::Deletion(DcpDeletion {
            delete_time: Some(0x6000_0001),
            ..deletion
        }),
        "80 58 0001 15 00 0210 00000016 deadbeef 0000000000001235
         0000000000000004 0000000000000003 60000001 00 6b",
    );
    let expiration = DcpExpiration {
        seqno: Seqno(4),
        rev: RevSeqno(3),
        delete_time: 0x6000_0001,
        cas: Cas(0x1235),
        datatype: Datatype::XATTR,
        key: b"k",
        value: b"\0\0\0\0",
    };
    check_bytes(
        HEAD,
        DcpBody::Expiration(expiration),
        "80 59 0001 14 04 0210 00000019 deadbeef 0000000000001235
         0000000000000004 0000000000000003 60000001 6b 00000000",
    );
}

#[test]
fn dcp_sync_writes_match_the_documented_bytes() {
    let prepare = DcpPrepare {
        seqno: Seqno(3),
        rev: RevSeqno(2),
        flags: 1,
        expiry: Expiry(0),
        lock_until: 0,
        nru: 4,
        deleted: true,
        level: DurabilityLevel::PersistToMajority,
        cas: Cas(0x1234),
        datatype: Datatype::RAW,
        key: b"k",
        value: b"",
    };
    check_bytes(
        HEAD,
        DcpBody::Prepare(prepare),
        "80 60 0001 1f 00 0210 00000020 deadbeef 0000000000001234
         0000000000000003 0000000000000002 00000001 00000000 00000000 04 01 03 6b",
    );
    let (prepared, seqno, key) = (Seqno(3), Seqno(4), b"k".as_slice());
    let commit = DcpCommit {
        prepared,
        seqno,
        cas: Cas(0),
        key,
    };
    check_bytes(
        HEAD,
        DcpBody::Commit(commit),
        "80 62 0001 10 00 0210 00000011 deadbeef 0000000000000000
         0000000000000003 0000000000000004 6b",
    );
    let abort = DcpAbort {
        prepared,
        seqno,
        key,
    };
    check_bytes(
        HEAD,
        DcpBody::Abort(abort),
        "80 63 0001 10 00 0210 00000011 deadbeef 0000000000000000
         0000000000000003 0000000000000004 6b",
    );
    check_bytes(
        HEAD,
        DcpBody::SeqnoAck(SeqnoAck { prepared }),
        "80 61 0000 08 00 0210 00000008 deadbeef 0000000000000000 0000000000000003",
    );
}

#[test]
fn dcp_system_events_match_the_documented_bytes() {
    let mut data = Vec::new();
    let payload = SystemEventPayload {
        manifest_uid: 4,
        scope: 8,
        collection: Some(CollectionId(9)),
        max_ttl: Some(60),
    };
    payload.encode(&mut data);
    let event = DcpSystemEvent {
        seqno: Seqno(3),
        kind: DcpSystemEventKind::CollectionBegan,
        version: 1,
        name: b"beer",
        data: &data,
    };
    check_bytes(
        HEAD,
        DcpBody::SystemEvent(event),
        "80 5f 0004 0d 00 0210 00000025 deadbeef 0000000000000000
         0000000000000003 00000000 01 62656572 0000000000000004 00000008 00000009 0000003c",
    );
    assert_eq!(SystemEventPayload::parse(&event), Ok(payload));
    for (kind, bytes) in [
        (DcpSystemEventKind::CollectionBegan, 16),
        (DcpSystemEventKind::CollectionDropped, 16),
        (DcpSystemEventKind::ScopeCreated, 12),
        (DcpSystemEventKind::ScopeDropped, 12),
    ] {
        let payload = SystemEventPayload {
            collection: (bytes == 16).then_some(CollectionId(9)),
            max_ttl: None,
            ..payload
        };
        let mut data = Vec::new();
        payload.encode(&mut data);
        assert_eq!(data.len(), bytes);
        let event = DcpSystemEvent {
            kind,
            version: 0,
            data: &data,
            ..event
        };
        assert_eq!(SystemEventPayload::parse(&event), Ok(payload));
        let short = DcpSystemEvent {
            data: &data[1..],
            ..event
        };
        assert_eq!(SystemEventPayload::parse(&short), Err(Status::Invalid));
    }
    let newer = DcpSystemEvent {
        version: 2,
        ..event
    };
    assert_eq!(SystemEventPayload::parse(&newer), Err(Status::NotSupported));
}

#[test]
fn dcp_cache_transfer_matches_the_documented_bytes() {
    let document = CachedDocument {
        cas: Cas(1),
        seqno: Seqno(2),
        rev: RevSeqno(3),
        flags: 4,
        expiry: Expiry(5),
        datatype: Datatype::JSON,
        frequency: 6,
        key: b"k",
        value: b"12",
    };
    let other = CachedDocument {
        key: b"other",
        value: b"",
        ..document
    };
    let mut batch = Vec::new();
    document.encode(&mut batch);
    assert_eq!(
        batch,
        hex(
            "0000000000000001 0000000000000002 0000000000000003 00000002 00000004 00000005
             0001 01 06 6b 3132"
        )
    );
    other.encode(&mut batch);
    let transfer = CacheTransfer::of_records(&batch);
    assert_eq!(transfer.documents().collect::<Vec<_>>(), [document, other]);
    let mut bytes = Vec::new();
    transfer.encode(&HEAD, &mut bytes);
    let message = DcpMessage::decode(&whole_request(&bytes));
    assert_eq!(message.unwrap().body, DcpBody::CacheTransfer(transfer));
    let cut = CacheTransfer::of_records(&batch[..batch.len() - 1]);
    let mut bytes = Vec::new();
    cut.encode(&HEAD, &mut bytes);
    assert_eq!(
        DcpMessage::decode(&whole_request(&bytes)),
        Err(Status::Invalid)
    );
    check_bytes(
        HEAD,
        DcpBody::CacheTransferEnd,
        "80 67 0000 00 00 0210 00000000 deadbeef 0000000000000000",
    );
}

#[test]
fn dcp_replies_round_trip() {
    let log = [(9, 20), (8, 0)].map(|(uuid, seqno)| FailoverEntry {
        vb_uuid: VbUuid(uuid),
        seqno: Seqno(seqno),
    });
    let mut bytes = Vec::new();
    encode_failover_log(Opcode::DcpStreamReq, 7, log.into_iter(), &mut bytes);
    assert_eq!(
        bytes,
        hex("81 53 0000 00 00 0000 00000020 00000007 0000000000000000
             0000000000000009 0000000000000014 0000000000000008 0000000000000000")
    );
    let accepted = StreamReply::decode(&whole_reply(&bytes));
    assert_eq!(accepted, Ok(StreamReply::Accepted(log.to_vec())));

    let mut bytes = Vec::new();
    StreamReply::encode_rollback(7, Seqno(5), &mut bytes);
    assert_eq!(
        bytes,
        hex("81 53 0000 00 00 0023 00000008 00000007 0000000000000000 0000000000000005")
    );
    let rollback = StreamReply::decode(&whole_reply(&bytes));
    assert_eq!(rollback, Ok(StreamReply::Rollback(Seqno(5))));

    let mut bytes = Vec::new();
    encode_failover_log(Opcode::DcpGetFailoverLog, 7, log.into_iter(), &mut bytes);
    assert_eq!(
        decode_failover_log(whole_reply(&bytes).value),
        Ok(log.to_vec())
    );

    let opcode = Opcode::DcpStreamReq.wire();
    for (status, value, expected) in [
        (Status::Success, &b""[..], Err(Status::Invalid)),
        (Status::Success, &[0; 15], Err(Status::Invalid)),
        (Status::Rollback, &[0; 7], Err(Status::Invalid)),
        (Status::Rollback, &[0; 9], Err(Status::Invalid)),
        (Status::NotMyVbucket, b"{}", Ok(StreamReply::Refused(7))),
    ] {
        let mut bytes = Vec::new();
        Response {
            value,
            ..Response::new(opcode, 7, status)
        }
        .write(&mut bytes);
        let reply = StreamReply::decode(&whole_reply(&bytes));
        assert_eq!(reply, expected, "{status:?} {value:?}");
    }

    let added = AddStreamReply { stream_opaque: 77 };
    let mut bytes = Vec::new();
    added.encode(7, &mut bytes);
    assert_eq!(AddStreamReply::decode(&whole_reply(&bytes)), Ok(added));
}

#[test]
fn dcp_open_carries_the_consumer_name() {
    let value = DcpOpen::consumer_name_value("n_\"1");
    let open = |value| DcpOpen {
        flags: OpenFlags(0),
        name: b"x",
        value,
    };
    assert_eq!(open(&value).consumer_name(), Ok(Some("n_\"1".to_owned())));
    assert_eq!(open(b"").consumer_name(), Ok(None));
    assert_eq!(open(b"{}").consumer_name(), Ok(None));
    for wrong in [&b"x"[..], br#"{"consumer_name":1}"#, br#"{"consumer":"n"}"#] {
        assert_eq!(open(wrong).consumer_name(), Err(Status::Invalid));
    }
}

#[test]
fn dcp_stream_filters_parse_as_documented() {
    let all = StreamFilter {
        manifest_uid: Some(0x1f),
        collections: Some(vec![CollectionId(0), CollectionId(0x1a)]),
        scope: None,
        stream_id: Some(3),
        purge_seqno: Some(Seqno(12)),
        cache_transfer: Some(CacheTransferFilter {
            free_memory: Some(100),
            all_keys: true,
        }),
    };
    let json = br#"{"uid":"1f","collections":["0","1a"],"sid":3,"purge_seqno":"12","cts":{"free_memory":100,"all_keys":true}}"#;
    assert_eq!(StreamFilter::parse(json), Ok(all.clone()));
    assert_eq!(all.to_value(), json);
    let scope = StreamFilter {
        scope: Some(8),
        ..StreamFilter::default()
    };
    assert_eq!(StreamFilter::parse(br#"{"scope":"8"}"#), Ok(scope));
    assert_eq!(StreamFilter::parse(b""), Ok(StreamFilter::default()));
    assert_eq!(StreamFilter::parse(b"{}"), Ok(StreamFilter::default()));
    assert!(StreamFilter::default().to_value().is_empty());
    for wrong in [
        &b"x"[..],
        b"[]",
        br#"{"collections":[]}"#,
        br#"{"collections":["g"]}"#,
        br#"{"collections":["+1"]}"#,
        br#"{"collections":["100000000"]}"#,
        br#"{"collections":[1]}"#,
        br#"{"collections":["0"],"scope":"0"}"#,
        br#"{"scope":""}"#,
        br#"{"sid":0}"#,
        br#"{"sid":65536}"#,
        br#"{"sid":"1"}"#,
        br#"{"purge_seqno":"1f"}"#,
        br#"{"purge_seqno":12}"#,
        br#"{"uid":"10000000000000000"}"#,
        br#"{"unknown":1}"#,
        b"\xff",
    ] {
        let text = wrong.escape_ascii();
        assert_eq!(StreamFilter::parse(wrong), Err(Status::Invalid), "{text}");
    }
}

#[test]
fn dcp_decode_rejects_unknown_messages() {
    let mut bytes = Vec::new();
    for (opcode, status) in [
        (0x00, Status::UnknownCommand),
        (0x5a, Status::UnknownCommand),
    ] {
        bytes.clear();
        DcpMessage {
            head: HEAD,
            body: DcpBody::Noop,
        }
        .encode(&mut bytes);
        bytes[1] = opcode;
        assert_eq!(DcpMessage::decode(&whole_request(&bytes)), Err(status));
    }
    let unknown_info = hex("08 5c 01 00 00 00 0000 00000001 00000000 0000000000000000 90");
    assert_eq!(
        DcpMessage::decode(&whole_request(&unknown_info)),
        Err(Status::UnknownFrameInfo)
    );
}

fn datatype() -> impl Strategy<Value = Datatype> {
    (0_u8..8).prop_map(|bits| Datatype::from_bits(bits).unwrap())
}

/// Any message, given to `check` as its parts are borrowed.
fn with_messages(parts: &Parts, mut check: impl FnMut(DcpBody<'_>)) {
    let Parts {
        key,
        value,
        a,
        b,
        c,
        d,
        n,
        m,
        datatype,
        ..
    } = parts;
    let (key, value, datatype) = (&key[..], &value[..], *datatype);
    let (seqno, other, cas) = (Seqno(*a), Seqno(*b), Cas(*c));
    let (rev, flags, expiry) = (RevSeqno(*d), *n, Expiry(*m));
    let level = [1, 2, 3][*n as usize % 3];
    let visible = VisibleMarker {
        max_visible: Seqno(*c),
        high_completed: Seqno(*d),
        disk: None,
    };
    let disk = DiskMarker {
        purge: seqno,
        high_prepared: other,
    };
    let marker = SnapshotMarker {
        start: seqno.min(other),
        end: seqno.max(other),
        flags: SnapshotFlags(flags),
        visible: None,
    };
    let deletion = DcpDeletion {
        seqno,
        rev,
        delete_time: None,
        cas,
        datatype,
        key,
        value,
    };
    for body in [
        DcpBody::Open(DcpOpen {
            flags: OpenFlags(flags),
            name: &key[..key.len().min(200)],
            value,
        }),
        DcpBody::StreamRequest(DcpStreamRequest {
            flags: StreamFlags(flags),
            start: seqno,
            end: other,
            vb_uuid: VbUuid(*c),
            snap_start: Seqno(*d),
            snap_end: seqno,
            filter: value,
        }),
        DcpBody::SnapshotMarker(marker),
        DcpBody::SnapshotMarker(SnapshotMarker {
            visible: Some(visible),
            ..marker
        }),
        DcpBody::SnapshotMarker(SnapshotMarker {
            visible: Some(VisibleMarker {
                disk: Some(disk),
                ..visible
            }),
            ..marker
        }),
        DcpBody::Mutation(DcpMutation {
            seqno,
            rev,
            flags,
            expiry,
            lock_until: *m,
            nru: *n as u8,
            cas,
            datatype,
            key,
            value,
        }),
        DcpBody::Deletion(deletion),
        DcpBody::Deletion(DcpDeletion {
            delete_time: Some(*m),
            ..deletion
        }),
        DcpBody::Expiration(DcpExpiration {
            seqno,
            rev,
            delete_time: *m,
            cas,
            datatype,
            key,
            value,
        }),
        DcpBody::Prepare(DcpPrepare {
            seqno,
            rev,
            flags,
            expiry,
            lock_until: *m,
            nru: *n as u8,
            deleted: *n % 2 == 0,
            level: DurabilityLevel::from_wire(level).unwrap(),
            cas,
            datatype,
            key,
            value,
        }),
        DcpBody::Commit(DcpCommit {
            prepared: seqno,
            seqno: other,
            cas,
            key,
        }),
        DcpBody::Abort(DcpAbort {
            prepared: seqno,
            seqno: other,
            key,
        }),
        DcpBody::SystemEvent(DcpSystemEvent {
            seqno,
            kind: DcpSystemEventKind::CollectionDropped,
            version: *n as u8,
            name: key,
            data: value,
        }),
        DcpBody::SeqnoAdvanced(SeqnoAdvanced { seqno }),
        DcpBody::SeqnoAck(SeqnoAck { prepared: seqno }),
        DcpBody::BufferAck(BufferAck { bytes: *n }),
        DcpBody::CloseStream,
        DcpBody::Noop,
    ] {
        check(body);
    }
}

#[derive(Clone, Debug)]
struct Parts {
    head: DcpHeader,
    key: Vec<u8>,
    value: Vec<u8>,
    a: u64,
    b: u64,
    c: u64,
    d: u64,
    n: u32,
    m: u32,
    datatype: Datatype,
}

fn parts() -> impl Strategy<Value = Parts> {
    (
        any::<(u16, u32, Option<u16>)>(),
        vec(any::<u8>(), 1..=251),
        vec(any::<u8>(), 0..300),
        any::<(u64, u64, u64, u64, u32, u32)>(),
        datatype(),
    )
        .prop_map(|((vb, opaque, stream), key, value, numbers, datatype)| {
            let (a, b, c, d, n, m) = numbers;
            Parts {
                head: DcpHeader {
                    vb: VbId(vb),
                    opaque,
                    stream,
                },
                key,
                value,
                a,
                b,
                c,
                d,
                n,
                m,
                datatype,
            }
        })
}

proptest! {
    #[test]
    fn dcp_messages_round_trip(parts in parts()) {
        with_messages(&parts, |body| {
            let message = DcpMessage { head: parts.head, body };
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            assert_eq!(DcpMessage::decode(&whole_request(&bytes)), Ok(message));
        });
    }

    /// Every cut of a frame is incomplete, and says how much is missing.
    #[test]
    fn dcp_parse_waits_for_a_whole_frame(parts in parts(), cut in any::<prop::sample::Index>()) {
        with_messages(&parts, |body| {
            let mut bytes = Vec::new();
            DcpMessage { head: parts.head, body }.encode(&mut bytes);
            let at = cut.index(bytes.len());
            let expected = if at < HEADER_BYTES { HEADER_BYTES } else { bytes.len() };
            let need = match parse_peer(&bytes[..at], 1 << 20) {
                ParsePeer::Incomplete { need } => need,
                other => panic!("{other:?}"),
            };
            assert_eq!(need, expected);
        });
    }

    /// A part of the wrong length, or where none may be, is an error and never a panic.
    #[test]
    fn dcp_decode_rejects_hostile_requests(
        opcode in 0x50_u8..0x68,
        extras in vec(any::<u8>(), 0..60),
        key in vec(any::<u8>(), 0..300),
        value in vec(any::<u8>(), 0..100),
        (datatype, cas) in any::<(u8, u64)>(),
    ) {
        let request = Request {
            opcode,
            datatype,
            vb: VbId(0),
            opaque: 0,
            cas: Cas(cas),
            framing: &[],
            extras: &extras,
            key: &key,
            value: &value,
        };
        if let Ok(message) = DcpMessage::decode(&request) {
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            prop_assert_eq!(DcpMessage::decode(&whole_request(&bytes)), Ok(message));
        }
    }
}

/// Each message with one part that it may not have, or not so long.
#[test]
fn dcp_decode_checks_each_part_of_a_request() {
    let good = |opcode: u8| -> (Vec<u8>, &[u8], &[u8]) {
        match opcode {
            0x50 => (vec![0; 8], b"name", b""),
            0x51 | 0x5d => (vec![0; 4], b"", b""),
            0x55 | 0x65 => (vec![0, 0, 0, 1], b"", b""),
            0x53 => (vec![0; 48], b"", b""),
            0x56 => (vec![0; 20], b"", b""),
            0x57 => (vec![0; 31], b"k", b"v"),
            0x58 => (vec![0; 18], b"k", b""),
            0x59 => (vec![0; 20], b"k", b""),
            0x5b => (vec![1], b"", b""),
            0x5e => (vec![], b"k", b"v"),
            0x5f => (vec![0; 13], b"", b""),
            0x60 => ([vec![0; 30], vec![1]].concat(), b"k", b"v"),
            0x61 | 0x64 => (vec![0; 8], b"", b""),
            0x62 | 0x63 => (vec![0; 16], b"k", b""),
            _ => (vec![], b"", b""),
        }
    };
    for opcode in (0x50..=0x67).filter(|opcode| ![0x5a, 0x66].contains(opcode)) {
        let (extras, key, value) = good(opcode);
        let request = Request {
            opcode,
            datatype: 0,
            vb: VbId(0),
            opaque: 0,
            cas: Cas(0),
            framing: &[],
            extras: &extras,
            key,
            value,
        };
        let decoded = DcpMessage::decode(&request);
        assert!(decoded.is_ok(), "{opcode:#x}: {decoded:?}");
        let invalid = |request: Request<'_>, what: &str| {
            let decoded = DcpMessage::decode(&request);
            assert_eq!(decoded, Err(Status::Invalid), "{opcode:#x}: {what}");
        };
        let longer = [&extras[..], &[0]].concat();
        let long_key = [b'k'; 252];
        invalid(
            Request {
                extras: &longer,
                ..request
            },
            "longer extras",
        );
        invalid(
            Request {
                datatype: 0x10,
                ..request
            },
            "datatype",
        );
        if !extras.is_empty() {
            let extras = &extras[1..];
            invalid(Request { extras, ..request }, "shorter extras");
        }
        if !key.is_empty() {
            invalid(
                Request {
                    key: b"",
                    ..request
                },
                "no key",
            );
        }
        if ![0x5e, 0x5f].contains(&opcode) {
            let key = &long_key;
            invalid(Request { key, ..request }, "a long key");
        }
        if ![0x50, 0x53, 0x57, 0x58, 0x59, 0x5e, 0x5f, 0x60].contains(&opcode) {
            let value = b"v";
            invalid(Request { value, ..request }, "a value");
        }
        if !(0x57..=0x59).contains(&opcode) && ![0x60, 0x62, 0x63].contains(&opcode) {
            let cas = Cas(1);
            invalid(Request { cas, ..request }, "a CAS");
        }
    }
}
