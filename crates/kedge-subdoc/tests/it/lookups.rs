//! Reading paths, attributes, and what the server knows of a document.

use crate::tools::*;
use kedge_protocol::binary::commands::subdoc::SubdocOp::{Exists, Get, GetCount, GetDoc};
use kedge_subdoc::check;
use kedge_types::Status;

#[test]
fn lookup_of_paths_in_the_body() {
    let item = document(&[], r#"{"a": {"b": [1, "x", null]}, "n": 5}"#);
    for (op, path, expected) in [
        (Get, "a.b", Ok(r#"[1, "x", null]"#)),
        (Get, "a.b[1]", Ok(r#""x""#)),
        (Get, "a.b[-1]", Ok("null")),
        (Get, "c", Err(Status::SubdocPathEnoent)),
        (Get, "a[0]", Err(Status::SubdocPathMismatch)),
        (Get, "a..b", Err(Status::SubdocPathEinval)),
        (Exists, "a.b", Ok("")),
        (Exists, "a.c", Err(Status::SubdocPathEnoent)),
        (GetCount, "a.b", Ok("3")),
        (GetCount, "", Ok("2")),
        (GetCount, "n", Err(Status::SubdocPathMismatch)),
        (GetDoc, "", Ok(r#"{"a": {"b": [1, "x", null]}, "n": 5}"#)),
    ] {
        let found = look(&item, op, NO, path);
        assert_eq!(found.as_deref(), expected.as_deref(), "{op:?} {path}");
    }
    let deep = vec!["a"; 33].join(".");
    assert_eq!(look(&item, Get, NO, &deep), Err(Status::SubdocPathE2deep));
    let other = document(&[], "not json");
    assert_eq!(look(&other, Get, NO, "a"), Err(Status::SubdocDocNotjson));
    assert_eq!(look(&other, GetDoc, NO, "").as_deref(), Ok("not json"));
}

/// Sixteen times `[-1]` in an array of 19 MiB went through it sixteen times, which took seconds. A large body is gone through
/// once, and what is found is the same.
#[test]
fn multi_path_lookup_in_a_large_body() {
    let numbers: Vec<String> = (0..10_000).map(|number| number.to_string()).collect();
    let body = format!(r#"{{"a": [{}], "n": {{"m": 5}}}}"#, numbers.join(","));
    let item = document(&[("u", "[7]")], &body);
    let asked = [
        (Get, NO, "a[-1]"),
        (Get, NO, "a[9999]"),
        (Get, NO, "a[10000]"),
        (Get, X, "u[-1]"),
        (GetCount, NO, "a"),
        (GetCount, NO, ""),
        (Get, NO, "n.m"),
        (Exists, NO, "n"),
        (Get, NO, "n[0]"),
        (Get, NO, "n..m"),
        (Get, NO, "a[-1]"),
        (GetCount, NO, "n.m"),
        (Exists, NO, "x"),
    ];
    let specs = asked.map(|(op, flags, path)| spec(op, flags, path, ""));
    let mut found = Vec::new();
    let each = &mut |status, value: &[u8]| found.push((status, value.to_vec()));
    kedge_subdoc::lookup(&item, item.cas(), &AROUND, specs, each).unwrap();
    let alone = asked.map(|(op, flags, path)| match look(&item, op, flags, path) {
        Ok(value) => (Status::Success, value.into_bytes()),
        Err(status) => (status, Vec::new()),
    });
    assert_eq!(found, alone);
    assert_eq!(found[0].1, b"9999");
    assert_eq!(found[3].1, b"7");
    assert_eq!(found[4].1, b"10000");
}

#[test]
fn lookup_of_paths_in_attributes() {
    let item = document(&[("_s", r#"{"r":[1,2]}"#), ("u", "5")], "text");
    for (op, path, expected) in [
        (Get, "_s", Ok(r#"{"r":[1,2]}"#)),
        (Get, "_s.r[1]", Ok("2")),
        (Get, "u", Ok("5")),
        (Get, "u.x", Err(Status::SubdocPathMismatch)),
        (Get, "u.", Ok("5")),
        (Get, "u..", Err(Status::SubdocPathEinval)),
        (Get, "_s.r.[1].", Ok("2")),
        (Get, "v", Err(Status::SubdocPathEnoent)),
        (Exists, "_s.r", Ok("")),
        (GetCount, "_s.r", Ok("2")),
        (GetCount, "_s", Ok("1")),
        (Get, "$XTOC", Ok(r#"["_s","u"]"#)),
    ] {
        let found = look(&item, op, X, path);
        assert_eq!(found.as_deref(), expected.as_deref(), "{op:?} {path}");
    }
    let binary = document(&[("b", r#""cb-content-base64-encoded:AAH/""#)], "1");
    let found = look(&document(&[("b", "1")], "1"), Get, B, "b");
    assert_eq!(found, Err(Status::SubdocFieldNotBinaryValue));
    let mut bytes = Vec::new();
    let specs = [spec(Get, B, "b", "")];
    kedge_subdoc::lookup(&binary, binary.cas(), &AROUND, specs, &mut |_, value| {
        bytes = value.to_vec();
    })
    .unwrap();
    assert_eq!(bytes, [0, 1, 255]);
}

#[test]
fn virtual_attributes_show_document_properties() {
    let item = document(&[("u", "1")], "123456789");
    let expected = concat!(
        r#"{"CAS":"0x000001d1a94a2000","vbucket_uuid":"0x0000000000000abc","#,
        r#""seqno":"0x000000000000000a","revid":"3","exptime":0,"value_bytes":9,"#,
        r#""datatype":["json","xattr"],"deleted":false,"flags":7,"#,
        r#""last_modified":"2000","value_crc32c":"0xe3069283"}"#
    );
    assert_eq!(look(&item, Get, X, "$document").as_deref(), Ok(expected));
    assert_eq!(
        look(&item, Get, X, "$document.revid").as_deref(),
        Ok("\"3\"")
    );
    let missing = look(&item, Get, X, "$document.none");
    assert_eq!(missing, Err(Status::SubdocPathEnoent));
    let hlc = look(&item, Get, X, "$vbucket.HLC").unwrap();
    assert_eq!(hlc, r#"{"now":"1700000000","mode":"real"}"#);
    let deleted = look(&tombstone(&[]), Get, X, "$document.deleted");
    assert_eq!(deleted.as_deref(), Ok("true"));
    let raw = look(&tombstone(&[]), Get, X, "$document.datatype");
    assert_eq!(raw.as_deref(), Ok(r#"["raw"]"#));
}

#[test]
fn tombstone_has_attributes_but_no_body() {
    let item = tombstone(&[("_s", "1")]);
    assert_eq!(look(&item, Get, X, "_s").as_deref(), Ok("1"));
    for (op, path) in [(Get, "a"), (GetDoc, ""), (GetCount, "")] {
        assert_eq!(look(&item, op, NO, path), Err(Status::SubdocPathEnoent));
    }
}

#[test]
fn unknown_virtual_attributes_and_macros_are_rejected_early() {
    use kedge_protocol::binary::commands::subdoc::SubdocOp::DictUpsert;
    for (spec, expected) in [
        (spec(Get, X, "$document", ""), Ok(())),
        (spec(Get, NO, "$nothing", ""), Ok(())),
        (
            spec(Get, X, "$nothing", ""),
            Err(Status::SubdocXattrUnknownVattr),
        ),
        (spec(DictUpsert, M, "a", "\"${Mutation.CAS}\""), Ok(())),
        (spec(DictUpsert, M, "a", "\"${$document.flags}\""), Ok(())),
        (spec(DictUpsert, M, "a", "\"${$document}\""), Ok(())),
        (
            spec(DictUpsert, M, "a", "\"${$document.none}\""),
            Err(Status::SubdocXattrUnknownVattrMacro),
        ),
        (
            spec(DictUpsert, M, "a", "\"${Mutation.none}\""),
            Err(Status::SubdocXattrUnknownMacro),
        ),
    ] {
        assert_eq!(check([spec]), expected, "{spec:?}");
    }
}
