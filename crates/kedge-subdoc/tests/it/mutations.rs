//! Changing paths of the body, and which documents a mutation is made of.

use crate::tools::*;
use kedge_protocol::binary::commands::subdoc::DocFlags;
use kedge_protocol::binary::commands::subdoc::SubdocOp::{
    AddDoc, ArrayAddUnique, ArrayInsert, ArrayPushFirst, ArrayPushLast, Counter, Delete, DeleteDoc,
    DictAdd, DictUpsert, Replace, ReplaceDoc, SetDoc,
};
use kedge_subdoc::SubdocMutation;
use kedge_types::{CollectionId, DocKey, Status};
use kedge_vbucket::Modify;

/// The vBucket was locked for as long as it takes to change a document of 20 MiB. The new version of a large document is made
/// before, and counts if the document is the same then.
#[test]
fn prepared_mutation_applies_only_to_the_same_document() {
    let (there, other) = (document(&[], "[1]"), document(&[], "[5]"));
    let key = DocKey::new(CollectionId::DEFAULT, b"k").unwrap();
    let push = || SubdocMutation::new([spec(ArrayPushLast, NO, "", "2")], DocFlags::NONE);
    let mutation = push();
    mutation.prepare(&key, Some(&there));
    let modified = mutation.modify(Some(&there), &NEXT).unwrap();
    assert_eq!(version(&modified).1, "[1,2]");
    let mutation = push();
    mutation.prepare(&key, Some(&there));
    let modified = mutation.modify(Some(&other), &NEXT).unwrap();
    assert_eq!(version(&modified).1, "[5,2]");
    let modified = mutation.modify(Some(&there), &NEXT).unwrap();
    assert_eq!(version(&modified).1, "[1,2]", "it is made again");
    let mutation = push();
    mutation.prepare(&key, Some(&there));
    let gone = mutation.modify(None, &NEXT);
    assert_eq!(gone.unwrap_err(), Status::KeyNotFound);
    let make = || SubdocMutation::new([spec(DictAdd, NO, "a", "2")], DocFlags::MKDOC);
    for (there, expected) in [
        (None, r#"{"a":2}"#),
        (Some(document(&[], "{}")), r#"{"a":2}"#),
    ] {
        let mutation = make();
        mutation.prepare(&key, None);
        let modified = mutation.modify(there.as_ref(), &NEXT).unwrap();
        assert_eq!(version(&modified).1, expected);
        assert_eq!(modified.draft.is_some(), there.is_none(), "it was none");
    }
    let failing = SubdocMutation::new([spec(DictAdd, NO, "a", "2")], DocFlags::NONE);
    failing.prepare(&key, Some(&there));
    let failed = failing.modify(Some(&there), &NEXT);
    assert_eq!(failed.unwrap_err(), Status::SubdocMultiPathFailure);
    assert_eq!(
        failing.reply().failed,
        Some((0, Status::SubdocPathMismatch))
    );
    // What stands for the new version cannot be worked out before it is known.
    let cas = SubdocMutation::new(
        [spec(DictUpsert, M, "x", "\"${Mutation.CAS}\"")],
        DocFlags::NONE,
    );
    cas.prepare(&key, Some(&there));
    let modified = cas.modify(Some(&there), &NEXT).unwrap();
    let expected = section(&[("x", "\"0x0807060504030201\"")]);
    assert_eq!(version(&modified).0, expected);
}

#[test]
fn each_operation_changes_its_path() {
    let item = document(&[], r#"{"a":[1,2],"n":5,"s":"x"}"#);
    for (spec, expected) in [
        (
            spec(DictAdd, NO, "b", "1"),
            r#"{"a":[1,2],"n":5,"s":"x","b":1}"#,
        ),
        (
            spec(DictUpsert, NO, "s", "[]"),
            r#"{"a":[1,2],"n":5,"s":[]}"#,
        ),
        (
            spec(DictUpsert, P, "o.p", "1"),
            r#"{"a":[1,2],"n":5,"s":"x","o":{"p":1}}"#,
        ),
        (spec(Delete, NO, "a[0]", ""), r#"{"a":[2],"n":5,"s":"x"}"#),
        (
            spec(Replace, NO, "a[-1]", "{}"),
            r#"{"a":[1,{}],"n":5,"s":"x"}"#,
        ),
        (
            spec(ArrayPushLast, NO, "a", "3,4"),
            r#"{"a":[1,2,3,4],"n":5,"s":"x"}"#,
        ),
        (
            spec(ArrayPushFirst, NO, "a", "0"),
            r#"{"a":[0,1,2],"n":5,"s":"x"}"#,
        ),
        (
            spec(ArrayInsert, NO, "a[1]", "9"),
            r#"{"a":[1,9,2],"n":5,"s":"x"}"#,
        ),
        (
            spec(ArrayAddUnique, NO, "a", "3"),
            r#"{"a":[1,2,3],"n":5,"s":"x"}"#,
        ),
        (
            spec(Counter, NO, "n", "-7"),
            r#"{"a":[1,2],"n":-2,"s":"x"}"#,
        ),
        (spec(SetDoc, NO, "", "[1]"), "[1]"),
        (spec(ReplaceDoc, NO, "", "text"), "text"),
    ] {
        assert_eq!(body(&item, &[spec]).as_deref(), Ok(expected), "{spec:?}");
    }
    for (spec, expected) in [
        (spec(DictAdd, NO, "n", "1"), Status::SubdocPathEexists),
        (spec(DictAdd, NO, "x.y", "1"), Status::SubdocPathEnoent),
        (spec(DictAdd, NO, "b", "{"), Status::SubdocValueCantinsert),
        (spec(DictUpsert, NO, "a[0]", "1"), Status::SubdocPathEinval),
        (spec(Delete, NO, "z", ""), Status::SubdocPathEnoent),
        (spec(Replace, NO, "n.x", "1"), Status::SubdocPathMismatch),
        (
            spec(ArrayPushLast, NO, "n", "1"),
            Status::SubdocPathMismatch,
        ),
        (spec(ArrayInsert, NO, "a[7]", "1"), Status::SubdocPathEnoent),
        (
            spec(ArrayInsert, NO, "a[-1]", "1"),
            Status::SubdocPathEinval,
        ),
        (
            spec(ArrayAddUnique, NO, "a", "2"),
            Status::SubdocPathEexists,
        ),
        (spec(Counter, NO, "s", "1"), Status::SubdocPathMismatch),
        (spec(Counter, NO, "n", "0"), Status::SubdocDeltaEinval),
        (spec(Counter, NO, "n", "1.5"), Status::SubdocDeltaEinval),
        (
            spec(Counter, NO, "n", "9223372036854775807"),
            Status::SubdocValueCantinsert,
        ),
        (spec(AddDoc, NO, "", "1"), Status::KeyExists),
    ] {
        assert_eq!(body(&item, &[spec]), Err(expected), "{spec:?}");
    }
    let large = document(&[], r#"{"n":99999999999999999999}"#);
    let spec = spec(Counter, NO, "n", "1");
    assert_eq!(body(&large, &[spec]), Err(Status::SubdocNumErange));
    let text = document(&[], "text");
    assert_eq!(body(&text, &[spec]), Err(Status::SubdocDocNotjson));
    let deep = format!("{{\"n\":{}1{}}}", "[".repeat(31), "]".repeat(31));
    let too_deep = body(
        &document(&[], &deep),
        &[crate::tools::spec(DictUpsert, NO, "x", &"[".repeat(40))],
    );
    assert!(too_deep.is_err());
}

#[test]
fn mutation_returns_counters_and_keeps_flags() {
    let item = document(&[], r#"{"n":5}"#);
    let specs = [
        spec(DictAdd, NO, "a", "1"),
        spec(Counter, NO, "n", "2"),
        spec(Counter, NO, "m", "3"),
    ];
    let (result, reply) = change(Some(&item), DocFlags::NONE, &specs);
    assert_eq!(result.unwrap().1, r#"{"n":7,"a":1,"m":3}"#);
    assert_eq!(reply.values, [(1, b"7".to_vec()), (2, b"3".to_vec())]);
    assert_eq!((reply.failed, reply.deleted), (None, false));
}

#[test]
fn document_flags_restrict_the_existing_document() {
    let live = document(&[], "{}");
    let dead = tombstone(&[("_s", "1")]);
    let (none, mkdoc, add) = (DocFlags::NONE, DocFlags::MKDOC, DocFlags::ADD);
    let access = DocFlags::ACCESS_DELETED;
    let revive = access.union(DocFlags::REVIVE);
    let created_deleted = mkdoc.union(DocFlags::CREATE_AS_DELETED);
    let no_body = Err(Status::SubdocDeletedDocumentCantHaveValue);
    let set = spec(DictUpsert, NO, "a.b", "1");
    for (there, flags, expected) in [
        (None, none, Err(Status::KeyNotFound)),
        (None, access, Err(Status::KeyNotFound)),
        (None, mkdoc, Ok(r#"{"a":{"b":1}}"#)),
        (None, add, Ok(r#"{"a":{"b":1}}"#)),
        (None, created_deleted, no_body),
        (Some(&live), none, Err(Status::SubdocMultiPathFailure)),
        (Some(&live), mkdoc, Ok(r#"{"a":{"b":1}}"#)),
        (Some(&live), add, Err(Status::KeyExists)),
        (
            Some(&live),
            revive,
            Err(Status::SubdocCanOnlyReviveDeletedDocuments),
        ),
        (Some(&dead), access, no_body),
        (Some(&dead), add.union(access), Err(Status::KeyExists)),
        (
            Some(&dead),
            add.union(DocFlags::CREATE_AS_DELETED),
            Err(Status::KeyExists),
        ),
        (Some(&dead), mkdoc.union(revive), Ok(r#"{"a":{"b":1}}"#)),
    ] {
        let (result, _) = change(there, flags, &[set]);
        let result = result.map(|(_, body, deleted)| {
            assert!(!deleted);
            body
        });
        assert_eq!(
            result.as_deref(),
            expected.as_deref(),
            "{there:?} {flags:?}"
        );
    }
}

#[test]
fn new_document_type_follows_its_first_path() {
    for (spec, expected) in [
        (spec(ArrayPushLast, NO, "", "1,2"), "[1,2]"),
        (spec(ArrayInsert, NO, "[0]", "1"), "[1]"),
        (spec(ArrayPushLast, NO, "a", "1"), r#"{"a":[1]}"#),
        (spec(DictUpsert, X, "u", "1"), "{}"),
        (spec(SetDoc, NO, "", "7"), "7"),
        (spec(AddDoc, NO, "", "text"), "text"),
        (spec(Counter, NO, "n", "1"), r#"{"n":1}"#),
    ] {
        let (result, _) = change(None, DocFlags::MKDOC, &[spec]);
        assert_eq!(result.unwrap().1, expected, "{spec:?}");
    }
}

#[test]
fn document_deletion_keeps_system_attributes() {
    let item = document(&[("_s", "1"), ("u", "2")], "{}");
    let specs = [spec(DictUpsert, X, "_t", "3"), spec(DeleteDoc, NO, "", "")];
    let (result, reply) = change(Some(&item), DocFlags::NONE, &specs);
    let kept = section(&[("_s", "1"), ("_t", "3")]);
    assert_eq!(result, Ok((kept, String::new(), true)));
    assert!(!reply.deleted, "it was there");
}
