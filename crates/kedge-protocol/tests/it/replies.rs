//! Replies and requests of the server, read back the way a client does.

use crate::{MAX_BODY, hex};
use kedge_protocol::binary::commands::subdoc::{
    decode_lookup_results, decode_mutation_results, push_lookup_result, push_mutation_failure,
    push_mutation_result,
};
use kedge_protocol::binary::commands::{
    CollectionIdReply, FailoverEntry, GetMetaReply, GetReply, KeyList, KeyState, MutationToken,
    ObserveReply, ObserveSeqnoReply, ObservedKey, ScopeIdReply, Stat, decode_counter,
    decode_failover_log, decode_vb_seqnos, encode_counter, push_failover_entry, push_key,
    push_vb_seqno, range_scan,
};
use kedge_protocol::binary::{
    ClustermapChangeNotification, ParseReply, Remap, ReplyFrame, Response, ServerDuration,
    parse_response, remap_without_xerror,
};
use kedge_types::{Cas, CollectionId, Datatype, Expiry, RevSeqno, Seqno, Status, VbId, VbUuid};
use proptest::collection::vec;
use proptest::prelude::*;

#[track_caller]
fn whole_reply(bytes: &[u8]) -> ReplyFrame<'_> {
    match parse_response(bytes, MAX_BODY) {
        ParseReply::Reply { reply, consumed } if consumed == bytes.len() => reply,
        other => panic!("not one reply: {other:?}"),
    }
}

#[test]
fn known_replies() {
    let base = Response::new(0x00, 0xdead_beef, Status::Success);
    for (response, text) in [
        (
            Response {
                cas: Cas(1),
                extras: &[0, 0, 0, 7],
                value: b"world",
                ..base
            },
            "81 00 0000 04 00 0000 00000009 deadbeef 0000000000000001 00000007 776f726c64",
        ),
        (
            Response::new(0xff, 1, Status::UnknownCommand),
            "81 ff 0000 00 00 0081 00000000 00000001 0000000000000000",
        ),
        (
            Response {
                server_duration: Some(ServerDuration::encode(100)),
                key: b"k",
                datatype: Datatype::JSON,
                value: b"{}",
                ..base
            },
            "18 00 03 01 00 01 0000 00000006 deadbeef 0000000000000000 02 0015 6b 7b7d",
        ),
    ] {
        let mut out = vec![0xaa];
        response.write(&mut out);
        assert_eq!(out[0], 0xaa, "what was there stays");
        assert_eq!(out[1..], hex(text));
    }
}

#[test]
fn reply_with_a_long_key_leaves_the_duration_out() {
    let key = vec![b'k'; 300];
    let mut out = Vec::new();
    Response {
        key: &key,
        server_duration: Some(1),
        ..Response::new(0x10, 0, Status::Success)
    }
    .write(&mut out);
    let reply = whole_reply(&out);
    assert_eq!((reply.key, reply.server_duration()), (&key[..], None));
}

#[test]
fn cluster_map_pushes() {
    let push = ClustermapChangeNotification {
        epoch: 1,
        rev: 7,
        bucket: b"default",
        map: Some(b"{}"),
        snappy: false,
    };
    let brief = ClustermapChangeNotification { map: None, ..push };
    let snappy = ClustermapChangeNotification {
        snappy: true,
        ..push
    };
    for (push, text) in [
        (
            push,
            "82 01 0007 10 01 0000 00000019 00000005 0000000000000000
             0000000000000001 0000000000000007 64656661756c74 7b7d",
        ),
        (
            brief,
            "82 01 0007 10 00 0000 00000017 00000005 0000000000000000
             0000000000000001 0000000000000007 64656661756c74",
        ),
        (
            snappy,
            "82 01 0007 10 03 0000 00000019 00000005 0000000000000000
             0000000000000001 0000000000000007 64656661756c74 7b7d",
        ),
    ] {
        let mut out = Vec::new();
        push.write(5, &mut out);
        assert_eq!(out, hex(text));
        let ParseReply::ServerRequest { request, consumed } = parse_response(&out, MAX_BODY) else {
            panic!("a request of the server");
        };
        assert_eq!(consumed, out.len());
        assert_eq!((request.opcode, request.key), (1, &b"default"[..]));
    }
}

#[test]
fn stat_replies_end_with_an_empty_reply() {
    let mut out = Vec::new();
    Stat::write_reply(0x10, 9, b"pid", b"1", &mut out);
    let first = out.len();
    Stat::write_reply(0x10, 9, b"", b"", &mut out);
    let reply = whole_reply(&out[..first]);
    assert_eq!((reply.key, reply.value), (&b"pid"[..], &b"1"[..]));
    let reply = whole_reply(&out[first..]);
    assert!(reply.key.is_empty() && reply.value.is_empty());
    assert_eq!((reply.status(), reply.opaque), (Some(Status::Success), 9));
}

#[test]
fn statuses_for_clients_without_xerror() {
    use Remap::{Close, Send};
    for (status, collections, expected) in [
        (Status::Success, false, Send(Status::Success)),
        (Status::KeyNotFound, false, Send(Status::KeyNotFound)),
        (Status::Locked, false, Send(Status::KeyExists)),
        (Status::CasValueInvalid, false, Send(Status::KeyExists)),
        (Status::NotLocked, true, Send(Status::TemporaryFailure)),
        (
            Status::SyncWriteInProgress,
            true,
            Send(Status::TemporaryFailure),
        ),
        (
            Status::SyncWriteReCommitInProgress,
            true,
            Send(Status::TemporaryFailure),
        ),
        (Status::UnknownCollection, false, Send(Status::Invalid)),
        (
            Status::UnknownCollection,
            true,
            Send(Status::UnknownCollection),
        ),
        (Status::UnknownScope, false, Send(Status::Invalid)),
        (
            Status::RateLimitedMaxConnections,
            false,
            Send(Status::TooBig),
        ),
        (Status::AccessDenied, true, Close),
        (Status::NoBucket, true, Close),
        (Status::AuthStale, true, Close),
        (Status::SyncWriteAmbiguous, true, Close),
        (Status::DurabilityImpossible, true, Close),
        (Status::RangeScanMore, true, Close),
        (Status::Cancelled, true, Close),
        (Status::ExpiryOverflow, true, Close),
        (Status::NotMyVbucket, false, Send(Status::NotMyVbucket)),
        (Status::AuthError, false, Send(Status::AuthError)),
    ] {
        assert_eq!(
            remap_without_xerror(status, collections),
            expected,
            "{status:?}"
        );
    }
}

#[test]
fn fixed_layouts() {
    let reply = ObserveSeqnoReply {
        vb: VbId(0x0210),
        vb_uuid: VbUuid(2),
        persisted: Seqno(3),
        current: Seqno(4),
        failed_over: None,
    };
    let mut out = Vec::new();
    reply.encode(&mut out);
    assert_eq!(
        out,
        hex("00 0210 0000000000000002 0000000000000003 0000000000000004")
    );
    assert_eq!(out.len(), 27);
    let moved = ObserveSeqnoReply {
        failed_over: Some((VbUuid(5), Seqno(6))),
        ..reply
    };
    out.clear();
    moved.encode(&mut out);
    assert_eq!(out.len(), 43);
    assert_eq!(ObserveSeqnoReply::decode(&out), Ok(moved));
    out[0] = 2;
    assert_eq!(ObserveSeqnoReply::decode(&out), Err(Status::Invalid));

    let meta = GetMetaReply {
        deleted: true,
        flags: 1,
        expiry: 2,
        rev_seqno: RevSeqno(3),
        datatype: Some(Datatype::JSON),
    };
    out.clear();
    meta.encode(&mut out);
    assert_eq!(out, hex("00000001 00000001 00000002 0000000000000003 01"));
    assert_eq!(GetMetaReply::decode(&out), Ok(meta));
    assert_eq!(
        GetMetaReply::decode(&out[..20]),
        Ok(GetMetaReply {
            datatype: None,
            ..meta
        })
    );

    let id = CollectionIdReply {
        manifest_uid: 1,
        collection: CollectionId(8),
    };
    assert_eq!(id.encode()[..], hex("0000000000000001 00000008"));
    assert_eq!(CollectionIdReply::decode(&id.encode()), Ok(id));
    let id = ScopeIdReply {
        manifest_uid: 1,
        scope: 8,
    };
    assert_eq!(ScopeIdReply::decode(&id.encode()), Ok(id));
    let token = MutationToken {
        vb_uuid: VbUuid(1),
        seqno: Seqno(2),
    };
    assert_eq!(token.encode()[..], hex("0000000000000001 0000000000000002"));
    assert_eq!(MutationToken::decode(&token.encode()), Ok(token));
    assert_eq!(MutationToken::decode(&[]), Err(Status::Invalid));
    assert_eq!(
        GetReply::decode(&GetReply { flags: 5 }.encode()),
        Ok(GetReply { flags: 5 })
    );
    assert_eq!(range_scan::encode_record_kind(true)[..], hex("00000001"));
}

#[test]
fn multi_mutation_results() {
    let mut out = Vec::new();
    push_mutation_result(2, b"41", &mut out);
    assert_eq!(out, hex("02 0000 00000002 3431"));
    let results = decode_mutation_results(&out).unwrap();
    assert_eq!((results[0].index, results[0].value), (2, Some(&b"41"[..])));
    out.clear();
    push_mutation_failure(1, Status::SubdocPathEnoent, &mut out);
    assert_eq!(out, hex("01 00c0"));
    let results = decode_mutation_results(&out).unwrap();
    assert_eq!((results[0].status_code, results[0].value), (0xc0, None));
}

proptest! {
    #[test]
    fn replies_round_trip(
        (opcode, opaque, cas) in any::<(u8, u32, u64)>(),
        status in proptest::sample::select(Status::ALL),
        duration in any::<Option<u16>>(),
        extras in vec(any::<u8>(), 0..24),
        key in vec(any::<u8>(), 0..256),
        value in vec(any::<u8>(), 0..300),
    ) {
        let response = Response {
            opcode,
            status,
            opaque,
            cas: Cas(cas),
            datatype: Datatype::SNAPPY,
            server_duration: duration,
            extras: &extras,
            key: &key,
            value: &value,
        };
        let mut out = Vec::new();
        response.write(&mut out);
        let mut head = Vec::new();
        response.write_head(value.len(), &mut head);
        prop_assert_eq!(&out[..head.len()], &head[..]);
        prop_assert_eq!(out.len(), head.len() + value.len());
        let reply = whole_reply(&out);
        prop_assert_eq!(reply.status(), Some(status));
        prop_assert_eq!(
            (reply.opcode, reply.opaque, reply.cas, reply.datatype),
            (opcode, opaque, Cas(cas), 2)
        );
        prop_assert_eq!(reply.server_duration(), duration);
        prop_assert_eq!((reply.extras, reply.key, reply.value), (&extras[..], &key[..], &value[..]));
    }

    #[test]
    fn lists_in_replies_round_trip(
        numbers in vec(any::<(u16, u64)>(), 0..20),
        texts in vec(vec(any::<u8>(), 0..40), 0..20),
    ) {
        let mut out = Vec::new();
        numbers.iter().for_each(|(vb, seqno)| push_vb_seqno(VbId(*vb), Seqno(*seqno), &mut out));
        let expected: Vec<_> = numbers.iter().map(|(vb, seqno)| (VbId(*vb), Seqno(*seqno))).collect();
        prop_assert_eq!(decode_vb_seqnos(&out), Ok(expected));

        let log: Vec<_> = numbers
            .iter()
            .map(|(uuid, seqno)| FailoverEntry { vb_uuid: VbUuid((*uuid).into()), seqno: Seqno(*seqno) })
            .collect();
        out.clear();
        log.iter().for_each(|entry| push_failover_entry(*entry, &mut out));
        prop_assert_eq!(decode_failover_log(&out), Ok(log));

        out.clear();
        texts.iter().for_each(|key| push_key(key, &mut out));
        let keys: Vec<_> = KeyList::new(&out).map(Result::unwrap).collect();
        prop_assert_eq!(&keys, &texts);
        if !out.is_empty() {
            let cut = KeyList::new(&out[..out.len() - 1]).collect::<Vec<_>>();
            prop_assert_eq!(cut.last(), Some(&Err(Status::Invalid)));
        }

        out.clear();
        texts.iter().for_each(|text| push_lookup_result(Status::SubdocPathEnoent, text, &mut out));
        let results = decode_lookup_results(&out).unwrap();
        prop_assert!(results.iter().all(|result| result.status_code == 0xc0));
        prop_assert!(results.iter().map(|result| result.value).eq(texts.iter().map(|text| &text[..])));

        out.clear();
        texts.iter().for_each(|text| range_scan::push_scan_key(text, &mut out));
        prop_assert_eq!(&range_scan::decode_scan_keys(&out).unwrap(), &texts);

        let documents: Vec<_> = texts.iter().zip(&numbers).map(|(text, (small, large))| range_scan::ScanDocument {
            flags: u32::from(*small),
            expiry: Expiry(7),
            seqno: Seqno(*large),
            cas: Cas(*large),
            datatype: Datatype::XATTR,
            key: text,
            value: &texts[0],
        }).collect();
        out.clear();
        documents.iter().for_each(|document| document.encode(&mut out));
        prop_assert_eq!(range_scan::ScanDocument::decode_all(&out), Ok(documents));

        let states = [KeyState::NotPersisted, KeyState::Persisted, KeyState::NotFound, KeyState::DeletedNotPersisted];
        let observed: Vec<_> = texts.iter().zip(states).map(|(key, state)| ObserveReply {
            key: ObservedKey { vb: VbId(3), key },
            state,
            cas: Cas(4),
        }).collect();
        out.clear();
        observed.iter().for_each(|entry| entry.encode(&mut out));
        prop_assert_eq!(ObserveReply::decode_all(&out), Ok(observed));
    }

    #[test]
    fn counters_round_trip(counter: u64) {
        prop_assert_eq!(decode_counter(&encode_counter(counter)), Ok(counter));
    }

    #[test]
    fn reply_decoders_survive_random_values(bytes in vec(any::<u8>(), 0..100)) {
        let _ = decode_vb_seqnos(&bytes);
        let _ = decode_failover_log(&bytes);
        let _ = decode_lookup_results(&bytes);
        let _ = decode_mutation_results(&bytes);
        let _ = decode_counter(&bytes);
        let _ = KeyList::new(&bytes).count();
        let _ = range_scan::decode_scan_keys(&bytes);
        let _ = range_scan::ScanDocument::decode_all(&bytes);
        let _ = ObserveReply::decode_all(&bytes);
        let _ = ObserveSeqnoReply::decode(&bytes);
        let _ = GetMetaReply::decode(&bytes);
        let _ = MutationToken::decode(&bytes);
    }
}
