//! Statuses of sub-document commands. They are sent for a single path and, for a failed path, inside the reply to
//! several.

use kedge_protocol::binary::Opcode;
use kedge_protocol::binary::commands::subdoc::{DocFlags, PathFlags, SubdocOp, SubdocSpec};
use kedge_types::Status;

use super::{Row, provoked};
use crate::client::{Client, SDK_FEATURES};
use crate::server::Kedge;
use crate::subdoc::{NO, X, call, spec};

pub(super) const ROWS: &[Row] = &[
    provoked(
        Status::XattrInvalid,
        "a name of an attribute with 16 bytes",
        || change("k", X, "0123456789abcdef", "1"),
    ),
    provoked(
        Status::SubdocPathEnoent,
        "a member that is not there",
        || single(NO, "x"),
    ),
    provoked(Status::SubdocPathMismatch, "a member of an array", || {
        single(NO, "a.x")
    }),
    provoked(
        Status::SubdocPathEinval,
        "a path that does not parse",
        || single(NO, "a["),
    ),
    provoked(Status::SubdocPathE2big, "a path of 1,025 bytes", || {
        single(NO, &"x".repeat(1_025))
    }),
    provoked(Status::SubdocPathE2deep, "a path of 33 components", || {
        single(NO, &vec!["x"; 33].join("."))
    }),
    provoked(
        Status::SubdocValueCantinsert,
        "a value that is no JSON; a sum beyond 64 bits",
        || {
            let too_large = mutate_one("k", SubdocOp::Counter, "n", "9223372036854775807");
            assert_eq!(too_large, Status::SubdocValueCantinsert);
            mutate_one("k", SubdocOp::DictUpsert, "x", "{")
        },
    ),
    provoked(
        Status::SubdocDocNotjson,
        "a path of a document that is no JSON",
        || mutate_one("text", SubdocOp::DictUpsert, "x", "1"),
    ),
    provoked(
        Status::SubdocNumErange,
        "SUBDOC_COUNTER of a number beyond 64 bits",
        || mutate_one("k", SubdocOp::Counter, "large", "1"),
    ),
    provoked(Status::SubdocDeltaEinval, "SUBDOC_COUNTER by 0", || {
        mutate_one("k", SubdocOp::Counter, "n", "0")
    }),
    provoked(
        Status::SubdocPathEexists,
        "SUBDOC_DICT_ADD of a member that is there",
        || mutate_one("k", SubdocOp::DictAdd, "n", "1"),
    ),
    provoked(
        Status::SubdocValueEtoodeep,
        "a value of 33 arrays in each other",
        || {
            let value = format!("{}{}", "[".repeat(33), "]".repeat(33));
            mutate_one("k", SubdocOp::DictUpsert, "x", &value)
        },
    ),
    provoked(
        Status::SubdocInvalidCombo,
        "a mutation among lookups",
        || {
            let get = spec(SubdocOp::Get, NO, "n", "");
            let upsert = spec(SubdocOp::DictUpsert, NO, "n", "1");
            several("k", DocFlags::NONE, &[get, upsert])
        },
    ),
    provoked(
        Status::SubdocMultiPathFailure,
        "a path of several that is not there",
        || look("k", &[(NO, "n"), (NO, "x")]),
    ),
    provoked(
        Status::SubdocSuccessDeleted,
        "an attribute of a tombstone",
        || look("gone", &[(X, "_s")]),
    ),
    provoked(
        Status::SubdocXattrInvalidFlagCombo,
        "a macro outside of attributes",
        || change("k", PathFlags::EXPAND_MACROS, "x", r#""${Mutation.CAS}""#),
    ),
    provoked(
        Status::SubdocXattrUnknownMacro,
        "a macro that is not known",
        || change("k", MACRO, "x", r#""${Mutation.none}""#),
    ),
    provoked(
        Status::SubdocXattrUnknownVattr,
        "a virtual attribute that is not known",
        || look("k", &[(X, "$none")]),
    ),
    provoked(
        Status::SubdocXattrCantModifyVattr,
        "a write to a virtual attribute",
        || change("k", X, "$document", "1"),
    ),
    provoked(
        Status::SubdocMultiPathFailureDeleted,
        "an attribute that a tombstone has not",
        || look("gone", &[(X, "_t")]),
    ),
    provoked(
        Status::SubdocInvalidXattrOrder,
        "an attribute behind a path of the body",
        || look("k", &[(NO, "n"), (X, "x")]),
    ),
    provoked(
        Status::SubdocXattrUnknownVattrMacro,
        "a field of `$document` that is not known",
        || change("k", MACRO, "x", r#""${$document.none}""#),
    ),
    provoked(
        Status::SubdocCanOnlyReviveDeletedDocuments,
        "a live document that is to be revived",
        || {
            let flags = DocFlags::ACCESS_DELETED.union(DocFlags::REVIVE);
            several("k", flags, &[spec(SubdocOp::DictUpsert, NO, "x", "1")])
        },
    ),
    provoked(
        Status::SubdocDeletedDocumentCantHaveValue,
        "a document created as deleted, with a body",
        || {
            let flags = DocFlags::MKDOC.union(DocFlags::CREATE_AS_DELETED);
            several("new", flags, &[spec(SubdocOp::DictUpsert, NO, "x", "1")])
        },
    ),
    provoked(
        Status::SubdocFieldNotBinaryValue,
        "a text that is read as binary",
        || single(X.union(PathFlags::BINARY_VALUE), "u"),
    ),
];

const MACRO: PathFlags = X.union(PathFlags::EXPAND_MACROS);
const DOCUMENT: &[u8] = br#"{"a":[1],"n":5,"large":99999999999999999999}"#;

/// A document "k" with an xattr, a text, and a tombstone "gone" with a system xattr.
fn with_documents(step: impl FnOnce(&mut Client) -> Status) -> Status {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    client.hello(SDK_FEATURES);
    client.set("k", DOCUMENT).ok();
    client.set("text", b"text").ok();
    client.set("gone", b"{}").ok();
    for (key, name) in [("k", "u"), ("gone", "_s")] {
        let specs = [spec(SubdocOp::DictUpsert, X, name, "1")];
        call(&mut client, key, DocFlags::NONE, &specs).ok();
    }
    let delete = client.request(Opcode::Delete).key("gone");
    client.call(&delete).ok();
    step(&mut client)
}

fn several(key: &str, flags: DocFlags, specs: &[SubdocSpec<'_>]) -> Status {
    with_documents(|client| call(client, key, flags, specs).status)
}

/// Reads several paths, also of a tombstone.
fn look(key: &str, paths: &[(PathFlags, &'static str)]) -> Status {
    let get = |(flags, path): &(PathFlags, &'static str)| spec(SubdocOp::Get, *flags, path, "");
    let specs: Vec<_> = paths.iter().map(get).collect();
    several(key, DocFlags::ACCESS_DELETED, &specs)
}

fn one(
    client: &mut Client,
    opcode: Opcode,
    key: &str,
    flags: PathFlags,
    path: &str,
    value: &str,
) -> Status {
    let len = u16::try_from(path.len()).unwrap().to_be_bytes();
    let frame = client
        .request(opcode)
        .key(key)
        .extras(&[len[0], len[1], flags.bits()]);
    let frame = frame.value(format!("{path}{value}").as_bytes());
    client.call(&frame).status
}

fn single(flags: PathFlags, path: &str) -> Status {
    with_documents(|client| one(client, Opcode::SubdocGet, "k", flags, path, ""))
}

fn mutate_one(key: &str, op: SubdocOp, path: &str, value: &str) -> Status {
    let opcode = match op {
        SubdocOp::Counter => Opcode::SubdocCounter,
        SubdocOp::DictAdd => Opcode::SubdocDictAdd,
        _ => Opcode::SubdocDictUpsert,
    };
    with_documents(|client| one(client, opcode, key, NO, path, value))
}

fn change(key: &str, flags: PathFlags, path: &str, value: &str) -> Status {
    with_documents(|client| one(client, Opcode::SubdocDictUpsert, key, flags, path, value))
}
