//! Tests of sub-document commands, with documents in memory, evicted, deleted, and with durability.

use std::sync::Arc;

use kedge_bucket::{Bucket, Counter, VbState};
use kedge_protocol::binary::commands::subdoc::{
    DocFlags, PathFlags, SubdocMulti, SubdocOp, SubdocSpec, decode_lookup_results,
    decode_mutation_results,
};
use kedge_protocol::binary::{Feature, Features, Opcode, RequestWriter};
use kedge_types::{Datatype, DurabilityLevel, Status, VbId};

use crate::client::{Client, Frame, Reply, SDK_FEATURES};
use crate::evicted::{POLICIES, evict_all, start, waited};
use crate::server::{Kedge, PASSWORD, Setup};

pub(crate) const X: PathFlags = PathFlags::XATTR;
pub(crate) const PX: PathFlags = X.union(PathFlags::MKDIR_P);
pub(crate) const NO: PathFlags = PathFlags::NONE;

pub(crate) fn spec<'a>(
    op: SubdocOp,
    flags: PathFlags,
    path: &'a str,
    value: &'a str,
) -> SubdocSpec<'a> {
    SubdocSpec {
        op,
        flags,
        path: path.as_bytes(),
        value: value.as_bytes(),
    }
}

/// A multi-path request.
pub(crate) fn multi(
    client: &mut Client,
    key: &str,
    flags: DocFlags,
    specs: &[SubdocSpec<'_>],
) -> Frame {
    let opcode = match specs[0].op.is_mutation() {
        true => Opcode::SubdocMultiMutation,
        false => Opcode::SubdocMultiLookup,
    };
    let mut bytes = Vec::new();
    let writer = RequestWriter::new(opcode);
    let wire = SubdocMulti {
        doc_flags: flags,
        ..SubdocMulti::of_key(b"k")
    };
    wire.encode(specs, &writer, &mut bytes);
    let extras_len = usize::from(flags != DocFlags::NONE);
    let body = &bytes[24..];
    client
        .request(opcode)
        .key(key)
        .extras(&body[..extras_len])
        .value(&body[extras_len + 1..])
}

pub(crate) fn call(
    client: &mut Client,
    key: &str,
    flags: DocFlags,
    specs: &[SubdocSpec<'_>],
) -> Reply {
    let frame = multi(client, key, flags, specs);
    client.call(&frame)
}

/// Statuses and values of a lookup.
pub(crate) fn looked(reply: &Reply) -> Vec<(u16, String)> {
    let results = decode_lookup_results(&reply.value).unwrap();
    let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
    let results = results.iter();
    results
        .map(|result| (result.status_code, text(result.value)))
        .collect()
}

fn ok(text: &str) -> (u16, String) {
    (0, text.to_owned())
}

const DOCUMENT: &[u8] = br#"{"a":{"b":[1,2]},"n":5}"#;

#[test]
fn paths_of_evicted_documents_are_read_and_changed() {
    for policy in POLICIES {
        let (kedge, bucket) = start(policy, 64 << 20);
        let mut client = kedge.client();
        client.set("k", DOCUMENT).ok();
        for evicted in [false, true] {
            if evicted {
                evict_all(&bucket);
            }
            let before = waited(&bucket);
            let specs = [
                spec(SubdocOp::Get, X, "$document.flags", ""),
                spec(SubdocOp::Get, NO, "a.b[1]", ""),
                spec(SubdocOp::Exists, NO, "none", ""),
                spec(SubdocOp::GetCount, NO, "a.b", ""),
                spec(SubdocOp::GetDoc, NO, "", ""),
            ];
            let reply = call(&mut client, "k", DocFlags::NONE, &specs);
            assert_eq!(reply.status, Status::SubdocMultiPathFailure);
            let text = String::from_utf8_lossy(DOCUMENT);
            let expected = [ok("0"), ok("2"), (0xc0, String::new()), ok("2"), ok(&text)];
            assert_eq!(looked(&reply), expected);
            assert_eq!(reply.cas, client.get("k").ok().cas);
            assert_eq!(waited(&bucket) > before, evicted);
        }
        evict_all(&bucket);
        let specs = [
            spec(SubdocOp::Counter, NO, "n", "2"),
            spec(SubdocOp::DictUpsert, PX, "u.v", "1"),
            spec(SubdocOp::Counter, NO, "m", "1"),
        ];
        let wrong_order = call(&mut client, "k", DocFlags::NONE, &specs);
        assert_eq!(wrong_order.status, Status::SubdocInvalidXattrOrder);
        let specs = [specs[1], specs[0], specs[2]];
        let reply = call(&mut client, "k", DocFlags::NONE, &specs).ok();
        let results = decode_mutation_results(&reply.value).unwrap();
        let values: Vec<_> = results
            .iter()
            .map(|it| (it.index, it.value.unwrap()))
            .collect();
        assert_eq!(values, [(1, &b"7"[..]), (2, &b"1"[..])]);
        let after = client.get("k").ok();
        assert_eq!(after.text(), r#"{"a":{"b":[1,2]},"n":7,"m":1}"#);
        assert_eq!(
            (after.cas, after.datatype),
            (reply.cas, Datatype::JSON.bits())
        );
        assert_eq!(reply.token().seqno.get(), 2);

        // The document has xattrs now, which its next body keeps.
        evict_all(&bucket);
        client.set("k", b"text").ok();
        evict_all(&bucket);
        let attribute = [spec(SubdocOp::Get, X, "u", "")];
        let reply = call(&mut client, "k", DocFlags::NONE, &attribute).ok();
        assert_eq!(looked(&reply), [ok(r#"{"v":1}"#)]);
        assert_eq!(client.get("k").ok().text(), "text");
        assert_eq!(bucket.counter(Counter::SubdocLookups), 3);
        assert_eq!(bucket.counter(Counter::SubdocMutations), 1);
    }
}

#[test]
fn failed_mutation_names_the_path_and_changes_nothing() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    let cas = client.set("k", DOCUMENT).ok().cas;
    let specs = [
        spec(SubdocOp::DictUpsert, NO, "x", "1"),
        spec(SubdocOp::DictAdd, NO, "n", "1"),
    ];
    let reply = call(&mut client, "k", DocFlags::NONE, &specs);
    assert_eq!(reply.status, Status::SubdocMultiPathFailure);
    assert_eq!(reply.value, [1, 0, 0xc9]);
    let after = client.get("k").ok();
    assert_eq!((after.cas, &after.value[..]), (cas, DOCUMENT));
    for (key, flags, cas, expected) in [
        ("none", DocFlags::NONE, 0, Status::KeyNotFound),
        ("k", DocFlags::ADD, 0, Status::KeyExists),
        ("k", DocFlags::NONE, cas + 1, Status::KeyExists),
        ("k", DocFlags::NONE, cas, Status::Success),
    ] {
        let frame = multi(&mut client, key, flags, &specs[..1]).cas(cas);
        assert_eq!(client.call(&frame).status, expected, "{key} {flags:?}");
    }
    let lock = client.request(Opcode::GetLocked).key("k");
    client.call(&lock).ok();
    let locked = call(&mut client, "k", DocFlags::NONE, &specs[..1]);
    assert_eq!(locked.status, Status::Locked);
}

#[test]
fn single_path_commands_return_the_path_status() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    client.set("k", DOCUMENT).ok();
    let extras = |path: &str| [0, path.len() as u8, 0];
    for (opcode, path, value, status, reply) in [
        (Opcode::SubdocGet, "a.b", "", Status::Success, "[1,2]"),
        (Opcode::SubdocGet, "x", "", Status::SubdocPathEnoent, ""),
        (Opcode::SubdocExists, "n", "", Status::Success, ""),
        (Opcode::SubdocGetCount, "a", "", Status::Success, "1"),
        (Opcode::SubdocCounter, "n", "5", Status::Success, "10"),
        (
            Opcode::SubdocDictAdd,
            "n",
            "5",
            Status::SubdocPathEexists,
            "",
        ),
        (Opcode::SubdocArrayPushLast, "a.b", "3", Status::Success, ""),
        (Opcode::SubdocDelete, "n", "", Status::Success, ""),
        (Opcode::SubdocGet, "", "", Status::Invalid, ""),
    ] {
        let frame = client
            .request(opcode)
            .key("k")
            .extras(&extras(path))
            .value(format!("{path}{value}").as_bytes());
        let came = client.call(&frame);
        assert_eq!(came.status, status, "{opcode:?} {path}");
        if status == Status::Success {
            assert_eq!(came.text(), reply, "{opcode:?} {path}");
        }
    }
    assert_eq!(client.get("k").ok().text(), r#"{"a":{"b":[1,2,3]}}"#);
}

#[test]
fn durable_subdoc_mutation_returns_counter_values() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    client.set("k", DOCUMENT).ok();
    let specs = [spec(SubdocOp::Counter, NO, "n", "1")];
    let frame =
        multi(&mut client, "k", DocFlags::NONE, &specs).durable(DurabilityLevel::PersistToMajority);
    let reply = client.call(&frame).ok();
    let results = decode_mutation_results(&reply.value).unwrap();
    assert_eq!(results[0].value, Some(&b"6"[..]));
    assert_eq!(client.get("k").ok().cas, reply.cas);
}

/// SDKs that stage a binary document in a transaction send its user flags with the sub-document mutation: such a
/// request was refused as malformed, so no transaction of a current SDK could write.
#[test]
fn staged_document_becomes_the_body() {
    const BINARY: PathFlags = X.union(PathFlags::BINARY_VALUE);
    const FLAGS: u32 = 0x0300_0000;
    let kedge = Kedge::start();
    let mut client = kedge.client();
    let with_flags = |client: &mut Client, user_flags: u32, flags, specs: &[SubdocSpec<'_>]| {
        let mut extras = vec![0; 4];
        extras.extend_from_slice(&user_flags.to_be_bytes());
        extras.push(DocFlags::bits(flags));
        let frame = multi(client, "k", flags, specs).extras(&extras);
        client.call(&frame)
    };
    let stage = [
        spec(SubdocOp::DictUpsert, PX, "txn.id", "1"),
        SubdocSpec {
            value: b"\0\xff",
            ..spec(
                SubdocOp::DictUpsert,
                BINARY.union(PathFlags::MKDIR_P),
                "txn.op.bin",
                "",
            )
        },
    ];
    let created = DocFlags::ADD
        .union(DocFlags::ACCESS_DELETED)
        .union(DocFlags::CREATE_AS_DELETED);
    let staged = with_flags(&mut client, 1, created, &stage);
    assert_eq!(staged.status, Status::SubdocSuccessDeleted);
    let read = [
        spec(SubdocOp::Get, X, "$document.flags", ""),
        spec(SubdocOp::Get, BINARY, "txn.op.bin", ""),
    ];
    let found = call(&mut client, "k", DocFlags::ACCESS_DELETED, &read);
    assert_eq!(found.status, Status::SubdocSuccessDeleted);
    let results = decode_lookup_results(&found.value).unwrap();
    let values: Vec<_> = results.iter().map(|result| result.value).collect();
    assert_eq!(values, [&b"1"[..], b"\0\xff"]);
    assert_eq!(client.get("k").status, Status::KeyNotFound);

    // An existing tombstone is staged with its CAS.
    let again = DocFlags::ACCESS_DELETED.union(DocFlags::CREATE_AS_DELETED);
    let frame = multi(&mut client, "k", again, &stage);
    let staged = client.call(&frame.cas(found.cas));
    assert_eq!(staged.status, Status::SubdocSuccessDeleted);
    let frame = multi(&mut client, "k", again, &stage);
    assert_eq!(client.call(&frame.cas(found.cas)).status, Status::KeyExists);

    let commit = [
        spec(SubdocOp::ReplaceBodyWithXattr, BINARY, "txn.op.bin", ""),
        spec(SubdocOp::Delete, X, "txn", ""),
    ];
    let revive = DocFlags::ACCESS_DELETED.union(DocFlags::REVIVE);
    with_flags(&mut client, FLAGS, revive, &commit).ok();
    let after = client.get("k").ok();
    assert_eq!((&after.value[..], after.datatype), (&b"\0\xff"[..], 0));
    assert_eq!(after.extras, FLAGS.to_be_bytes());

    // Without flags the document keeps its own.
    let attribute = [spec(SubdocOp::DictUpsert, X, "a", "1")];
    call(&mut client, "k", DocFlags::NONE, &attribute).ok();
    assert_eq!(client.get("k").ok().extras, FLAGS.to_be_bytes());
}

#[test]
fn tombstone_xattrs_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let setup = || Setup {
        disk: Arc::new(kedge_disk::PosixDisk),
        data_dir: dir.path().to_owned(),
        ..Setup::default()
    };
    let kedge = Kedge::with(setup());
    let access = DocFlags::ACCESS_DELETED;
    let staged = access
        .union(DocFlags::CREATE_AS_DELETED)
        .union(DocFlags::ADD);
    let id = [spec(SubdocOp::DictUpsert, PX, "txn.id", "7")];
    let look = [spec(SubdocOp::Get, X, "txn.id", "")];
    let mut first = kedge.client();
    let created = call(&mut first, "staged", staged, &id);
    assert_eq!(created.status, Status::SubdocSuccessDeleted);
    assert_eq!(first.get("staged").status, Status::KeyNotFound);
    assert_eq!(
        call(&mut first, "staged", staged, &id).status,
        Status::KeyExists
    );
    first.set("k", b"{}").ok();
    let both = [
        spec(SubdocOp::DictUpsert, X, "_s", "1"),
        spec(SubdocOp::DictUpsert, X, "u", "2"),
    ];
    call(&mut first, "k", DocFlags::NONE, &both).ok();
    let delete = first.request(Opcode::Delete).key("k");
    first.call(&delete).ok();
    // An add fails on a tombstone with or without AccessDeleted: the staged document would be lost.
    let add = DocFlags::CREATE_AS_DELETED.union(DocFlags::ADD);
    for key in ["staged", "k"] {
        let added = call(&mut first, key, add, &id);
        assert_eq!(added.status, Status::KeyExists, "{key}");
    }
    let found = call(&mut first, "staged", access, &look);
    assert_eq!(looked(&found), [ok("7")]);
    kedge.stop();
    let kedge = Kedge::with(setup());
    let mut second = kedge.client();
    let added = call(&mut second, "staged", add, &id);
    assert_eq!(added.status, Status::KeyExists);
    let missing = call(&mut second, "staged", DocFlags::NONE, &look);
    assert_eq!(missing.status, Status::KeyNotFound);
    let found = call(&mut second, "staged", access, &look);
    assert_eq!(found.status, Status::SubdocSuccessDeleted);
    assert_eq!(looked(&found), [ok("7")]);
    let kept = [
        spec(SubdocOp::Get, X, "_s", ""),
        spec(SubdocOp::Get, X, "u", ""),
    ];
    let found = call(&mut second, "k", access, &kept);
    assert_eq!(found.status, Status::SubdocMultiPathFailureDeleted);
    assert_eq!(looked(&found), [ok("1"), (0xc0, String::new())]);
    // The staged document is revived.
    let revive = access.union(DocFlags::REVIVE);
    let specs = [
        spec(SubdocOp::Delete, X, "txn", ""),
        spec(SubdocOp::SetDoc, NO, "", "[7]"),
    ];
    call(&mut second, "staged", revive, &specs).ok();
    assert_eq!(second.get("staged").ok().text(), "[7]");
    let again = call(&mut second, "staged", revive, &specs);
    assert_eq!(again.status, Status::SubdocCanOnlyReviveDeletedDocuments);
}

#[test]
fn xattrs_require_the_feature() {
    let kedge = Kedge::start();
    let features = Features::of(&[Feature::Xerror, Feature::Json, Feature::Collections]);
    let mut plain = kedge.client();
    plain.hello(features);
    plain.set("k", DOCUMENT).ok();
    let path = [spec(SubdocOp::Get, NO, "n", "")];
    call(&mut plain, "k", DocFlags::NONE, &path).ok();
    let attribute = [spec(SubdocOp::Get, X, "u", "")];
    let refused = call(&mut plain, "k", DocFlags::NONE, &attribute);
    assert_eq!(refused.status, Status::NotSupported);
    let mut client = kedge.client();
    let unknown = [spec(SubdocOp::Get, X, "$none", "")];
    let refused = call(&mut client, "k", DocFlags::NONE, &unknown);
    assert_eq!(refused.status, Status::SubdocXattrUnknownVattr);
    call(
        &mut client,
        "k",
        DocFlags::NONE,
        &[spec(SubdocOp::DictUpsert, X, "u", "1")],
    )
    .ok();
    let came = plain.get("k").ok();
    assert_eq!(
        (&came.value[..], came.datatype),
        (DOCUMENT, Datatype::JSON.bits())
    );
}

#[test]
fn subdoc_reads_and_writes_check_privileges() {
    let kedge = Kedge::start();
    let mut app = kedge.client();
    app.set("k", DOCUMENT).ok();
    let look = [spec(SubdocOp::Get, NO, "n", "")];
    let change = [spec(SubdocOp::Counter, NO, "n", "1")];
    let mut reader = kedge.connect();
    reader.hello(SDK_FEATURES);
    reader.log_in("reader", PASSWORD);
    reader.select("default");
    call(&mut reader, "k", DocFlags::NONE, &look).ok();
    let refused = call(&mut reader, "k", DocFlags::NONE, &change);
    assert_eq!(refused.status, Status::AccessDenied);
}

/// It needs the feature SubdocAllowReplicaReadOnDeletedDocs.
#[test]
fn replica_tombstones_are_read_on_request() {
    for policy in POLICIES {
        let (kedge, bucket) = start(policy, 64 << 20);
        let mut client = kedge.client();
        for key in ["live", "gone"] {
            client.set(key, DOCUMENT).ok();
            let set = [spec(SubdocOp::DictUpsert, PX, "_s.v", "1")];
            call(&mut client, key, DocFlags::NONE, &set).ok();
        }
        let delete = client.request(Opcode::Delete).key("gone");
        client.call(&delete).ok();
        let copy = DocFlags::REPLICA_READ;
        let any_copy = copy.union(DocFlags::ACCESS_DELETED);
        let specs = [spec(SubdocOp::Get, X, "_s.v", "")];
        for flags in [copy, any_copy] {
            let reply = call(&mut client, "gone", flags, &specs);
            assert_eq!(reply.status, Status::NotMyVbucket, "it is active");
        }
        for evicted in [false, true] {
            if evicted {
                make(&bucket, VbState::Active);
                evict_all(&bucket);
            }
            make(&bucket, VbState::Replica);
            for (key, flags, status) in [
                ("live", copy, Status::Success),
                ("live", any_copy, Status::Success),
                ("gone", copy, Status::KeyNotFound),
                ("gone", any_copy, Status::SubdocSuccessDeleted),
                ("none", any_copy, Status::KeyNotFound),
                ("gone", DocFlags::ACCESS_DELETED, Status::NotMyVbucket),
            ] {
                let reply = call(&mut client, key, flags, &specs);
                assert_eq!(reply.status, status, "{key} {flags:?} {policy:?} {evicted}");
                if matches!(status, Status::Success | Status::SubdocSuccessDeleted) {
                    assert_eq!(looked(&reply), [ok("1")], "{key} {policy:?} {evicted}");
                }
            }
        }
    }
}

/// Sets the state of every vBucket.
fn make(bucket: &Bucket, state: VbState) {
    for vb in 0..bucket.vbuckets() {
        bucket.states().set_vbucket(VbId(vb), state).unwrap();
    }
}

/// These paths were `SubdocPathEinval`.
#[test]
fn paths_may_have_a_dot_at_the_end_or_before_a_bracket() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    let document = br#"{"a":[1,{"b":2},3,[4,5]],"array":[6,7,8]}"#;
    let one = |client: &mut Client, opcode, path: &str, value: &str| {
        let length = u16::try_from(path.len()).unwrap().to_be_bytes();
        let frame = client.request(opcode).key("k");
        let frame = frame.extras(&[&length[..], &[0]].concat());
        let frame = frame.value(&[path.as_bytes(), value.as_bytes()].concat());
        client.call(&frame)
    };
    client.set("k", document).ok();
    for (path, expected) in [
        ("a.", r#"[1,{"b":2},3,[4,5]]"#),
        ("array.[2]", "8"),
        ("a[1].", r#"{"b":2}"#),
        ("a[3].[0]", "4"),
    ] {
        let got = one(&mut client, Opcode::SubdocGet, path, "").ok();
        assert_eq!(got.text(), expected, "{path}");
        let specs = [
            spec(SubdocOp::Get, NO, path, ""),
            spec(SubdocOp::Exists, NO, path, ""),
        ];
        let reply = call(&mut client, "k", DocFlags::NONE, &specs).ok();
        assert_eq!(looked(&reply), [ok(expected), ok("")], "{path}");
    }
    for (path, expected) in [
        ("a.", r#"{"a":9,"array":[6,7,8]}"#),
        ("array.[2]", r#"{"a":[1,{"b":2},3,[4,5]],"array":[6,7,9]}"#),
        ("a[1].", r#"{"a":[1,9,3,[4,5]],"array":[6,7,8]}"#),
        ("a[3].[0]", r#"{"a":[1,{"b":2},3,[9,5]],"array":[6,7,8]}"#),
    ] {
        client.set("k", document).ok();
        one(&mut client, Opcode::SubdocReplace, path, "9").ok();
        assert_eq!(client.get("k").ok().text(), expected, "{path}");
        client.set("k", document).ok();
        let specs = [spec(SubdocOp::Replace, NO, path, "9")];
        call(&mut client, "k", DocFlags::NONE, &specs).ok();
        assert_eq!(client.get("k").ok().text(), expected, "{path}");
    }
}
