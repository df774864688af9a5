//! Changing extended attributes, with macros and binary values, of documents and tombstones.

use crate::tools::*;
use kedge_protocol::binary::commands::subdoc::SubdocOp::{
    ArrayPushLast, Counter, Delete, DictAdd, DictUpsert, Replace, ReplaceBodyWithXattr, SetDoc,
};
use kedge_protocol::binary::commands::subdoc::{DocFlags, SubdocSpec};
use kedge_types::limits::SYSTEM_XATTR_BYTES_MAX;
use kedge_types::{Status, split_xattrs};

fn attributes(section: &[u8]) -> String {
    if section.is_empty() {
        return String::new();
    }
    let (xattrs, _) = split_xattrs(section).unwrap();
    let pairs = xattrs.iter().map(|(name, value)| {
        format!(
            "{}={}",
            String::from_utf8_lossy(name),
            String::from_utf8_lossy(value)
        )
    });
    pairs.collect::<Vec<_>>().join(" ")
}

/// The attributes after one spec on a document with `u` and `_s`, or the spec's status.
fn after(spec: SubdocSpec<'_>) -> Result<String, Status> {
    let item = document(&[("u", r#"{"a":[1]}"#), ("_s", "5")], "text");
    match change(Some(&item), DocFlags::NONE, &[spec]) {
        (Ok((section, body, false)), _) => {
            assert_eq!(body, "text");
            Ok(attributes(&section))
        }
        (Err(Status::SubdocMultiPathFailure), reply) => Err(reply.failed.unwrap().1),
        (other, _) => panic!("{other:?}"),
    }
}

#[test]
fn each_operation_changes_its_attribute() {
    let path = X.union(P);
    for (spec, expected) in [
        (spec(DictUpsert, X, "u", "1"), Ok("u=1 _s=5")),
        (
            spec(DictUpsert, X, "u.b", "1"),
            Ok(r#"u={"a":[1],"b":1} _s=5"#),
        ),
        (
            spec(DictUpsert, X, "new", "1"),
            Ok(r#"u={"a":[1]} _s=5 new=1"#),
        ),
        (
            spec(DictUpsert, path, "n.o", "1"),
            Ok(r#"u={"a":[1]} _s=5 n={"o":1}"#),
        ),
        (
            spec(DictUpsert, X, "n.o", "1"),
            Err(Status::SubdocPathEnoent),
        ),
        (spec(DictAdd, X, "u", "1"), Err(Status::SubdocPathEexists)),
        (spec(Replace, X, "v", "1"), Err(Status::SubdocPathEnoent)),
        (spec(Delete, X, "u", ""), Ok("_s=5")),
        (spec(Delete, X, "u.a[0]", ""), Ok(r#"u={"a":[]} _s=5"#)),
        (spec(Delete, X, "v", ""), Err(Status::SubdocPathEnoent)),
        (spec(Counter, X, "_s", "2"), Ok(r#"u={"a":[1]} _s=7"#)),
        (
            spec(ArrayPushLast, X, "u.a", "2"),
            Ok(r#"u={"a":[1,2]} _s=5"#),
        ),
        (
            spec(ArrayPushLast, path, "v", "2"),
            Ok(r#"u={"a":[1]} _s=5 v=[2]"#),
        ),
        (
            spec(DictUpsert, X, "u..", "1"),
            Err(Status::SubdocPathEinval),
        ),
        (spec(DictUpsert, X, "u.", "1"), Ok("u=1 _s=5")),
        (
            spec(DictUpsert, X, "u.a.[0]", "1"),
            Err(Status::SubdocPathEinval),
        ),
        (
            spec(DictUpsert, X, "u", "}"),
            Err(Status::SubdocValueCantinsert),
        ),
        (
            spec(DictUpsert, X, "u", "1}, {\"x\":2"),
            Err(Status::SubdocValueCantinsert),
        ),
        (
            spec(DictUpsert, B, "b", "\u{1}x"),
            Ok(r#"u={"a":[1]} _s=5 b="cb-content-base64-encoded:AXg=""#),
        ),
    ] {
        assert_eq!(after(spec).as_deref(), expected.as_deref(), "{spec:?}");
    }
}

#[test]
fn macros_expand_to_the_new_version_and_the_old_document() {
    for (text, expected) in [
        ("\"${Mutation.CAS}\"", "\"0x0807060504030201\""),
        ("\"${Mutation.seqno}\"", "\"0x000000000000001f\""),
        ("\"${$document.revid}\"", "\"3\""),
        ("\"${$document.exptime}\"", "0"),
        ("\"${$document.CAS}\"", "\"0x000001d1a94a2000\""),
    ] {
        let spec = spec(DictUpsert, M, "u", text);
        assert_eq!(after(spec), Ok(format!("u={expected} _s=5")), "{text}");
    }
    // Of the body that the whole mutation makes.
    let specs = [
        spec(DictUpsert, M, "u", "\"${Mutation.value_crc32c}\""),
        spec(SetDoc, NO, "", "123456789"),
    ];
    let item = document(&[], "{}");
    let (result, _) = change(Some(&item), DocFlags::NONE, &specs);
    assert_eq!(result.unwrap().0, section(&[("u", "\"0xe3069283\"")]));
}

#[test]
fn body_is_replaced_by_an_attribute() {
    let staged = r#"{"staged":{"a":1},"bin":"cb-content-base64-encoded:dGV4dA=="}"#;
    let item = document(&[("txn", staged)], "{}");
    let specs = [
        spec(ReplaceBodyWithXattr, X, "txn.staged", ""),
        spec(Delete, X, "txn", ""),
    ];
    let (result, _) = change(Some(&item), DocFlags::NONE, &specs);
    assert_eq!(result, Ok((Vec::new(), r#"{"a":1}"#.to_owned(), false)));
    let binary = [spec(ReplaceBodyWithXattr, B, "txn.bin", "")];
    let (result, _) = change(Some(&item), DocFlags::NONE, &binary);
    assert_eq!(result.unwrap().1, "text");
    let missing = [spec(ReplaceBodyWithXattr, X, "txn.none", "")];
    assert_eq!(body(&item, &missing), Err(Status::SubdocPathEnoent));
    // A staged insert becomes a document.
    let dead = tombstone(&[("txn", staged)]);
    let revive = DocFlags::ACCESS_DELETED.union(DocFlags::REVIVE);
    let (result, reply) = change(Some(&dead), revive, &specs);
    assert_eq!(result, Ok((Vec::new(), r#"{"a":1}"#.to_owned(), false)));
    assert!(!reply.deleted);
}

#[test]
fn tombstone_is_created_and_changed_through_attributes() {
    let set = spec(DictUpsert, X, "txn.id", "1");
    let flags = DocFlags::ADD
        .union(DocFlags::CREATE_AS_DELETED)
        .union(DocFlags::ACCESS_DELETED);
    let (result, reply) = change(None, flags, &[set]);
    let staged = section(&[("txn", r#"{"id":1}"#)]);
    assert_eq!(result, Ok((staged, String::new(), true)));
    assert!(reply.deleted);
    let dead = tombstone(&[("txn", r#"{"id":1}"#)]);
    let (result, reply) = change(
        Some(&dead),
        DocFlags::ACCESS_DELETED,
        &[spec(Delete, X, "txn", "")],
    );
    assert_eq!(result, Ok((Vec::new(), String::new(), true)));
    assert!(reply.deleted);
    let (result, reply) = change(
        Some(&dead),
        DocFlags::ACCESS_DELETED,
        &[spec(Delete, X, "x", "")],
    );
    assert_eq!(result, Err(Status::SubdocMultiPathFailureDeleted));
    assert_eq!(reply.failed, Some((0, Status::SubdocPathEnoent)));
}

#[test]
fn attribute_sizes_are_limited() {
    let large = format!("\"{}\"", "x".repeat(SYSTEM_XATTR_BYTES_MAX));
    let item = document(&[], "{}");
    for (name, expected) in [("_s", Some(Status::TooBig)), ("user", None)] {
        let (result, _) = change(
            Some(&item),
            DocFlags::NONE,
            &[spec(DictUpsert, X, name, &large)],
        );
        assert_eq!(result.err(), expected, "{name}");
    }
}
