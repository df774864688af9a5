//! Tests of documents with xattrs in their value: writes and reads.

use kedge_protocol::binary::commands::dcp::{DcpBody, DcpMessage, OpenFlags, PeerFrame};
use kedge_protocol::binary::commands::subdoc::{DocFlags, PathFlags, SubdocOp, SubdocSpec};
use kedge_protocol::binary::{Feature, Features, Opcode};
use kedge_types::{Datatype, Status, VbId, XattrsBuf};

use crate::client::{Client, Reply, SDK_FEATURES};
use crate::collections::{create, create_scope, edit, found};
use crate::dcp::{FEATURES, Follower, keys_of};
use crate::evicted::{POLICIES, evict_all, start};
use crate::replication::make_replica;
use crate::server::{Kedge, PASSWORD, USER};
use crate::subdoc::{call as look, looked, spec};
use crate::with_meta::Meta;

pub(crate) const XATTR: Datatype = Datatype::XATTR;
pub(crate) const PACKED: Datatype = XATTR.union(Datatype::SNAPPY);
pub(crate) const PAIRS: [(&str, &str); 2] = [("_sync", r#"{"rev":"1-a"}"#), ("mine", "[1,2]")];

pub(crate) fn section(pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut all = XattrsBuf::default();
    for (name, value) in pairs {
        all.set(name.as_bytes(), value.as_bytes());
    }
    all.section()
}

pub(crate) fn whole(pairs: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    [section(pairs), body.to_vec()].concat()
}

pub(crate) fn packed(value: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(value).unwrap()
}

/// A value without compression.
pub(crate) fn plain(datatype: Datatype, value: &[u8]) -> Vec<u8> {
    match datatype.contains(Datatype::SNAPPY) {
        true => snap::raw::Decoder::new().decompress_vec(value).unwrap(),
        false => value.to_vec(),
    }
}

/// A body that is worth compressing.
fn body() -> Vec<u8> {
    format!(r#"{{"a":"{}"}}"#, "x".repeat(1_000)).into_bytes()
}

/// A client with these features and those of SDKs.
fn client_with(kedge: &Kedge, features: Features) -> Client {
    let mut client = kedge.connect();
    client.hello(features);
    client.log_in(USER, PASSWORD);
    client.select("default");
    client
}

/// A with-meta command, whose document is of this revision.
pub(crate) fn copy(
    client: &mut Client,
    opcode: Opcode,
    key: &str,
    rev: u64,
    datatype: Datatype,
    value: &[u8],
) -> Reply {
    let frame = client.request(opcode).key(key).value(value);
    let frame = frame.extras(&Meta::of(rev, rev << 16).extras());
    client.call(&frame.datatype(datatype))
}

/// A document or tombstone of a DCP stream.
#[derive(Debug, PartialEq, Eq)]
struct Sent {
    key: String,
    deleted: bool,
    datatype: Datatype,
    value: Vec<u8>,
}

fn sent(frame: &PeerFrame<'_>) -> Option<Sent> {
    let PeerFrame::Request(request) = frame else {
        return None;
    };
    let (key, deleted, datatype, value) = match DcpMessage::decode(request).unwrap().body {
        DcpBody::Mutation(it) => (it.key, false, it.datatype, it.value),
        DcpBody::Deletion(it) => (it.key, true, it.datatype, it.value),
        _ => return None,
    };
    Some(Sent {
        key: String::from_utf8(key[1..].to_vec()).unwrap(),
        deleted,
        datatype: datatype.without(Datatype::SNAPPY),
        value: plain(datatype, value),
    })
}

/// The documents and tombstones of a vBucket up to the first tombstone, from a DCP stream with xattrs; the last version
/// of each key.
fn followed(kedge: &Kedge, vb: VbId) -> Vec<Sent> {
    let features = FEATURES.with(Feature::Xattr);
    let mut follower = Follower::connect(kedge, features, USER);
    let flags = OpenFlags::PRODUCER
        .union(OpenFlags::XATTRS)
        .union(OpenFlags::DELETED_USER_XATTRS);
    assert_eq!(follower.try_open_as("x", flags), Status::Success);
    assert_eq!(follower.control("enable_noop", "true"), Status::Success);
    follower.stream(vb, 0, 0);
    let mut all: Vec<Sent> = Vec::new();
    while all.last().is_none_or(|it| !it.deleted) {
        let Some(next) = follower.frame(sent).expect("it is open").0 else {
            continue;
        };
        all.retain(|it| it.key != next.key);
        all.push(next);
    }
    all
}

#[test]
fn with_meta_copies_xattrs() {
    const X: PathFlags = PathFlags::XATTR;
    for policy in POLICIES {
        let (kedge, bucket) = start(policy, 256 << 20);
        let mut client = kedge.client();
        let vb = VbId(3);
        let keys = keys_of(vb, 3);
        let value = whole(&PAIRS, &body());
        let [set, add, gone] = &keys[..] else {
            panic!("three keys");
        };
        let set_it = Opcode::SetWithMeta;
        copy(&mut client, set_it, set, 1, XATTR, &value).ok();
        copy(
            &mut client,
            Opcode::AddWithMeta,
            add,
            1,
            PACKED,
            &packed(&value),
        )
        .ok();
        copy(&mut client, set_it, gone, 1, XATTR, &value).ok();
        let specs: [SubdocSpec<'_>; 2] = [
            spec(SubdocOp::Get, X, "_sync.rev", ""),
            spec(SubdocOp::Get, X, "mine[1]", ""),
        ];
        for evicted in [false, true] {
            if evicted {
                evict_all(&bucket);
            }
            for key in [set, add] {
                let reply = look(&mut client, key, DocFlags::NONE, &specs).ok();
                let expected = [(0, "\"1-a\"".to_owned()), (0, "2".to_owned())];
                assert_eq!(looked(&reply), expected, "{policy:?} {evicted}");
                let got = client.get(key).ok();
                let datatype = Datatype::from_bits(got.datatype).unwrap();
                assert_eq!(plain(datatype, &got.value), body());
                assert!(!datatype.contains(XATTR), "{datatype:?}");
            }
        }
        // A deletion has its own xattrs, and removes the body.
        let left = section(&[("_sync", r#"{"rev":"2-b"}"#), ("mine", "[3,4]")]);
        copy(
            &mut client,
            Opcode::DelWithMeta,
            gone,
            2,
            PACKED,
            &packed(&left),
        )
        .ok();
        assert_eq!(client.get(gone).status, Status::KeyNotFound);
        let reply = look(&mut client, gone, DocFlags::ACCESS_DELETED, &specs);
        assert_eq!(reply.status, Status::SubdocSuccessDeleted);
        let expected = [(0, "\"2-b\"".to_owned()), (0, "4".to_owned())];
        assert_eq!(looked(&reply), expected, "{policy:?}");
        for applied in [false, true] {
            if applied {
                bucket.persistence().apply().unwrap();
            }
            let document = |key: &str| Sent {
                key: key.to_owned(),
                deleted: false,
                datatype: XATTR.union(Datatype::JSON),
                value: value.clone(),
            };
            let tombstone = Sent {
                key: gone.clone(),
                deleted: true,
                datatype: XATTR,
                value: left.clone(),
            };
            let expected = [document(set), document(add), tombstone];
            let got = followed(&kedge, vb);
            assert_eq!(got, expected, "{policy:?} {applied}");
        }
    }
}

#[test]
fn with_meta_refuses_malformed_xattrs() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    use Opcode::{AddWithMeta, DelWithMeta, SetWithMeta};
    let good = whole(&PAIRS, b"{}");
    let cut_off = &good[..20];
    let no_json = whole(&[("a", "text")], b"{}");
    let bad_name = whole(&[("$document", "1")], b"{}");
    let too_large = whole(&[("_s", &"1".repeat(1 << 20))], b"{}");
    let invalid = Status::XattrInvalid;
    for (opcode, datatype, value, expected) in [
        (SetWithMeta, XATTR, &b""[..], invalid),
        (SetWithMeta, XATTR, cut_off, invalid),
        (SetWithMeta, PACKED, &packed(cut_off), invalid),
        (SetWithMeta, PACKED, &good, Status::Invalid),
        (AddWithMeta, XATTR, &no_json, invalid),
        (AddWithMeta, XATTR, &bad_name, invalid),
        (AddWithMeta, XATTR, &too_large, Status::TooBig),
        (DelWithMeta, XATTR, cut_off, invalid),
        (DelWithMeta, XATTR, &good, Status::Invalid),
        (DelWithMeta, Datatype::JSON, b"{}", Status::Invalid),
    ] {
        let reply = copy(&mut client, opcode, "k", 1, datatype, value);
        assert_eq!(reply.status, expected, "{opcode:?} {datatype:?} {value:?}");
    }
    let mut without = client_with(&kedge, SDK_FEATURES.without(Feature::Xattr));
    let reply = copy(&mut without, SetWithMeta, "k", 1, XATTR, &good);
    assert_eq!(reply.status, Status::Invalid, "not negotiated");
    assert_eq!(client.get("k").status, Status::KeyNotFound);
}

/// The document as it is stored.
pub(crate) fn get_ex(client: &mut Client, key: &str) -> Reply {
    let frame = client.request(Opcode::GetEx).key(key);
    client.call(&frame)
}

pub(crate) fn datatype_of(reply: &Reply) -> Datatype {
    Datatype::from_bits(reply.datatype).unwrap()
}

#[test]
fn get_ex_returns_the_stored_document() {
    let large = vec![b'x'; 300_000];
    let both = XATTR.union(Datatype::JSON);
    let documents: [(&str, Datatype, Vec<u8>, Datatype); 6] = [
        ("attributes", XATTR, whole(&PAIRS, &body()), both),
        (
            "packed",
            PACKED,
            packed(&whole(&PAIRS, &body())),
            both.union(Datatype::SNAPPY),
        ),
        ("no body", XATTR, section(&PAIRS), XATTR),
        ("large", XATTR, whole(&PAIRS, &large), XATTR),
        ("body", Datatype::RAW, body(), Datatype::JSON),
        (
            "packed body",
            Datatype::SNAPPY,
            packed(&large),
            Datatype::SNAPPY,
        ),
    ];
    for policy in POLICIES {
        let (kedge, bucket) = start(policy, 256 << 20);
        let mut client = kedge.client();
        for (key, datatype, value, _) in &documents {
            copy(&mut client, Opcode::SetWithMeta, key, 7, *datatype, value).ok();
        }
        for evicted in [false, true] {
            if evicted {
                evict_all(&bucket);
            }
            for (key, _, value, stored) in &documents {
                let reply = get_ex(&mut client, key).ok();
                assert_eq!(datatype_of(&reply), *stored, "{key} {policy:?} {evicted}");
                assert!(reply.value == *value, "{key} {policy:?} {evicted}");
                assert_eq!((reply.cas, reply.flags()), (7 << 16, 5), "{key}");
            }
        }
        assert_eq!(get_ex(&mut client, "none").status, Status::KeyNotFound);
        let delete = client.request(Opcode::Delete).key("attributes");
        client.call(&delete).ok();
        let gone = get_ex(&mut client, "attributes");
        assert_eq!(
            gone.status,
            Status::KeyNotFound,
            "a tombstone is no document"
        );
    }
}

/// The features that a client needs to read documents with their attributes in front of the body.
const NEEDED_WHOLE: [Feature; 3] = [Feature::Xattr, Feature::Json, Feature::SnappyEverywhere];

/// Checks that `read` returns the whole document "k" only with these features and the privilege to read.
fn with_whole(features: Features, read: impl Fn(&mut Client) -> Reply) -> Kedge {
    let kedge = Kedge::start();
    let value = whole(&PAIRS, b"{}");
    let mut client = kedge.client();
    copy(&mut client, Opcode::SetWithMeta, "k", 1, XATTR, &value).ok();
    for lacks in NEEDED_WHOLE {
        let mut client = client_with(&kedge, SDK_FEATURES.without(lacks));
        let reply = read(&mut client);
        assert_eq!(reply.status, Status::NotSupported, "without {lacks:?}");
    }
    for (user, expected) in [
        ("reader", Status::Success),
        ("writer", Status::AccessDenied),
    ] {
        let mut client = kedge.connect();
        client.hello(features);
        assert_eq!(client.features, features);
        client.log_in(user, PASSWORD);
        client.select("default");
        assert_eq!(read(&mut client).status, expected, "{user}");
    }
    kedge
}

#[test]
fn get_ex_checks_privileges() {
    let kedge = with_whole(SDK_FEATURES, |client| get_ex(client, "k"));
    let mut client = kedge.client();

    edit(&kedge, &[create_scope("s"), create("s", "c")]);
    let (_, id) = found(&mut client, "s.c").unwrap();
    let in_collection = |client: &mut Client, opcode| {
        let mut frame = client.request(opcode).key("k");
        frame.key = [&[id as u8], &b"k"[..]].concat();
        frame
    };
    let there = in_collection(&mut client, Opcode::GetEx);
    assert_eq!(client.call(&there).status, Status::KeyNotFound);
    let store = in_collection(&mut client, Opcode::SetWithMeta).datatype(XATTR);
    let store = store.extras(&Meta::of(1, 1 << 16).extras());
    client.call(&store.value(&section(&PAIRS))).ok();
    assert_eq!(client.call(&there).ok().value, section(&PAIRS));
    let mut elsewhere = there.clone();
    elsewhere.key[0] += 1;
    assert_eq!(client.call(&elsewhere).status, Status::UnknownCollection);

    let replica = client.request(Opcode::GetExReplica).key("k");
    assert_eq!(client.call(&replica).status, Status::NotMyVbucket);
    make_replica(&kedge);
    let reply = client.call(&replica).ok();
    assert_eq!(
        (datatype_of(&reply), reply.value),
        (XATTR.union(Datatype::JSON), whole(&PAIRS, b"{}"))
    );
    assert_eq!(get_ex(&mut client, "k").status, Status::NotMyVbucket);
}

/// A random document, as it is stored.
fn random_whole(client: &mut Client) -> Reply {
    let frame = client.request(Opcode::GetRandomKey);
    client.call(&frame.extras(&[0, 0, 0, 0, 1]))
}

#[test]
fn random_key_returns_xattrs_on_request() {
    for policy in POLICIES {
        let (kedge, bucket) = start(policy, 256 << 20);
        let mut client = kedge.client();
        let nothing = random_whole(&mut client);
        assert_eq!(nothing.status, Status::KeyNotFound);
        let value = packed(&whole(&PAIRS, &body()));
        copy(&mut client, Opcode::SetWithMeta, "k", 7, PACKED, &value).ok();
        for evicted in [false, true] {
            if evicted {
                evict_all(&bucket);
            }
            let reply = random_whole(&mut client).ok();
            let stored = PACKED.union(Datatype::JSON);
            assert_eq!(datatype_of(&reply), stored, "{policy:?} {evicted}");
            assert!(reply.value == value, "{policy:?} {evicted}");
            assert_eq!((reply.cas, reply.flags()), (7 << 16, 5));
            assert_eq!(reply.key, b"k", "{policy:?} {evicted}");
        }
        let without = client.request(Opcode::GetRandomKey).extras(&[0; 5]);
        let reply = client.call(&without).ok();
        assert_eq!((reply.key, reply.value), (b"k".to_vec(), body()));
    }
}

#[test]
fn random_key_with_xattrs_checks_privileges() {
    let kedge = with_whole(
        SDK_FEATURES.with(Feature::GetRandomKeyIncludeXattr),
        random_whole,
    );
    for lacks in NEEDED_WHOLE {
        let mut client = client_with(&kedge, SDK_FEATURES.without(lacks));
        client.simple(Opcode::GetRandomKey).ok();
    }
}
