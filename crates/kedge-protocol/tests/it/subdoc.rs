//! Sub-document requests.

use crate::whole_request;
use kedge_protocol::binary::commands::subdoc::{
    DocFlags, PathFlags, SUBDOC_PATH_BYTES_MAX, SUBDOC_SPECS_MAX, SubdocMulti, SubdocOp,
    SubdocSingle, SubdocSpec, xattr_key,
};
use kedge_protocol::binary::{ConnectionKind, Opcode, RequestWriter};
use kedge_types::{Cas, Datatype, Status};
use proptest::collection::vec;
use proptest::prelude::*;

const LOOKUP: Opcode = Opcode::SubdocMultiLookup;
const MUTATION: Opcode = Opcode::SubdocMultiMutation;

fn spec<'a>(op: SubdocOp, flags: u8, path: &'a str, value: &'a str) -> SubdocSpec<'a> {
    SubdocSpec {
        op,
        flags: PathFlags::from_bits(flags).unwrap(),
        path: path.as_bytes(),
        value: value.as_bytes(),
    }
}

fn multi(
    opcode: Opcode,
    doc_flags: u8,
    cas: u64,
    specs: &[SubdocSpec<'_>],
) -> Result<usize, Status> {
    let mut bytes = Vec::new();
    SubdocMulti {
        doc_flags: DocFlags::from_bits(doc_flags).unwrap(),
        cas: Cas(cas),
        ..SubdocMulti::of_key(b"k")
    }
    .encode(specs, &RequestWriter::new(opcode), &mut bytes);
    let request = whole_request(&bytes);
    let decoded = SubdocMulti::decode(&request)?;
    assert_eq!(decoded.specs.len(), specs.len());
    assert!(decoded.specs.eq(specs.iter().copied()));
    Ok(specs.len())
}

fn single(spec: SubdocSpec<'_>, doc_flags: u8, expiry: Option<u32>) -> Result<(), Status> {
    let opcode = Opcode::from_wire(spec.op.wire(), ConnectionKind::Couchbase).unwrap();
    let command = SubdocSingle {
        spec,
        doc_flags: DocFlags::from_bits(doc_flags).unwrap(),
        expiry,
        key: b"k",
        cas: Cas(0),
    };
    let mut bytes = Vec::new();
    command.encode(&RequestWriter::new(opcode), &mut bytes);
    let decoded = SubdocSingle::decode(&whole_request(&bytes))?;
    assert_eq!(decoded, command);
    Ok(())
}

#[test]
fn single_commands() {
    use SubdocOp::*;
    let invalid = Err(Status::Invalid);
    let cases = [
        (spec(Get, 0, "a.b", ""), 0, None, Ok(())),
        (spec(Get, 0, "", ""), 0, None, invalid),
        (spec(Get, 0, "a", "1"), 0, None, invalid),
        (spec(Get, 0, "a", ""), 0, Some(1), invalid),
        (spec(Get, 0, "a", ""), 0x01, None, invalid),
        (spec(Get, 0, "a", ""), 0x04, None, Ok(())),
        (spec(Get, 0, "a", ""), 0x20, None, Ok(())),
        (spec(Get, 0, "a", ""), 0x24, None, Ok(())),
        (spec(Get, 0x01, "a", ""), 0, None, invalid),
        (spec(Get, 0x04, "a", ""), 0, None, Ok(())),
        (spec(Get, 0x24, "a", ""), 0, None, Ok(())),
        (
            spec(Get, 0x20, "a", ""),
            0,
            None,
            Err(Status::SubdocXattrInvalidFlagCombo),
        ),
        (spec(Get, 0x04, "$document.CAS", ""), 0, None, Ok(())),
        (spec(GetCount, 0, "", ""), 0, None, Ok(())),
        (spec(Exists, 0, "a", ""), 0, None, Ok(())),
        (spec(DictAdd, 0x01, "a", "1"), 0x01, Some(60), Ok(())),
        (spec(DictAdd, 0, "a", ""), 0, None, invalid),
        (spec(DictUpsert, 0, "a", "1"), 0x03, None, invalid),
        (spec(DictUpsert, 0, "a", "1"), 0x02, None, Ok(())),
        (spec(DictUpsert, 0, "a", "1"), 0x09, None, invalid),
        (spec(DictUpsert, 0x04, "a", "1"), 0x09, None, Ok(())),
        (spec(DictUpsert, 0x04, "a", "1"), 0x08, None, invalid),
        (spec(DictUpsert, 0x04, "a", "1"), 0x10, None, invalid),
        (spec(DictUpsert, 0x04, "a", "1"), 0x14, None, Ok(())),
        (
            spec(DictUpsert, 0x04, "$document", "1"),
            0,
            None,
            Err(Status::SubdocXattrCantModifyVattr),
        ),
        (
            spec(DictUpsert, 0x04, "", "1"),
            0,
            None,
            Err(Status::XattrInvalid),
        ),
        (
            spec(DictUpsert, 0x10, "a", "\"${Mutation.CAS}\""),
            0,
            None,
            Err(Status::SubdocXattrInvalidFlagCombo),
        ),
        (
            spec(DictUpsert, 0x14, "a", "\"${Mutation.CAS}\""),
            0,
            None,
            Ok(()),
        ),
        (
            spec(DictUpsert, 0x14, "a", "\"${$document.seqno}\""),
            0,
            None,
            Ok(()),
        ),
        (
            spec(DictUpsert, 0x14, "a", "\"${Mutation.time}\""),
            0,
            None,
            Err(Status::SubdocXattrUnknownMacro),
        ),
        (spec(Delete, 0, "a", ""), 0, None, Ok(())),
        (spec(Delete, 0, "a", ""), 0x01, None, invalid),
        (spec(Delete, 0, "a", "1"), 0, None, invalid),
        (spec(Replace, 0x01, "a", "1"), 0, None, invalid),
        (spec(ArrayPushLast, 0, "", "1,2"), 0x01, None, Ok(())),
        (spec(ArrayInsert, 0, "a[0]", "1"), 0x01, None, invalid),
        (spec(ArrayAddUnique, 0x01, "", "1"), 0, None, Ok(())),
        (spec(Counter, 0x01, "a", "-5"), 0, Some(0), Ok(())),
    ];
    for (spec, doc_flags, expiry, expected) in cases {
        assert_eq!(
            single(spec, doc_flags, expiry),
            expected,
            "{spec:?} {doc_flags:#x}"
        );
    }
    let long = "a".repeat(SUBDOC_PATH_BYTES_MAX + 1);
    assert_eq!(single(spec(Get, 0, &long[1..], ""), 0, None), Ok(()));
    let too_long = Err(Status::SubdocPathE2big);
    assert_eq!(single(spec(Get, 0, &long, ""), 0, None), too_long);
}

/// Opcode, document flags, CAS and specs; then the number of specs or what is wrong with them.
type Multi<'a> = (Opcode, u8, u64, &'a [SubdocSpec<'a>], Result<usize, Status>);

#[test]
fn multi_commands() {
    use SubdocOp::*;
    let get = spec(Get, 0, "a", "");
    let xattr = spec(Get, 0x04, "_x", "");
    let upsert = spec(DictUpsert, 0, "a", "1");
    let upsert_xattr = spec(DictUpsert, 0x04, "_x.y", "1");
    let delete_doc = spec(DeleteDoc, 0, "", "");
    let cases: [Multi<'_>; 23] = [
        (LOOKUP, 0, 0, &[get], Ok(1)),
        (LOOKUP, 0, 0, &[xattr, get, spec(GetDoc, 0, "", "")], Ok(3)),
        (LOOKUP, 0, 0, &[], Err(Status::SubdocInvalidCombo)),
        (
            LOOKUP,
            0,
            0,
            &[get, xattr],
            Err(Status::SubdocInvalidXattrOrder),
        ),
        (
            LOOKUP,
            0,
            0,
            &[spec(GetDoc, 0, "a", "")],
            Err(Status::Invalid),
        ),
        (LOOKUP, 0, 0, &[get; SUBDOC_SPECS_MAX], Ok(16)),
        (
            LOOKUP,
            0,
            0,
            &[get; SUBDOC_SPECS_MAX + 1],
            Err(Status::SubdocInvalidCombo),
        ),
        (
            LOOKUP,
            0,
            0,
            &[spec(Delete, 0, "a", "")],
            Err(Status::SubdocInvalidCombo),
        ),
        (MUTATION, 0, 0, &[get], Err(Status::SubdocInvalidCombo)),
        (MUTATION, 1, 0, &[upsert_xattr, upsert], Ok(2)),
        (
            MUTATION,
            1,
            0,
            &[upsert_xattr, spec(SetDoc, 0, "", "{}")],
            Ok(2),
        ),
        (LOOKUP, 0x24, 0, &[get], Ok(1)),
        (MUTATION, 2, 0, &[upsert], Ok(1)),
        (MUTATION, 2, 9, &[upsert], Err(Status::Invalid)),
        (MUTATION, 3, 0, &[upsert], Err(Status::Invalid)),
        (MUTATION, 0x0c, 0, &[upsert_xattr], Err(Status::Invalid)),
        (MUTATION, 0x0c, 9, &[upsert_xattr], Ok(1)),
        (
            MUTATION,
            0,
            0,
            &[spec(SetDoc, 0, "", "")],
            Err(Status::Invalid),
        ),
        (MUTATION, 0, 0, &[upsert_xattr, delete_doc], Ok(2)),
        (
            MUTATION,
            0,
            0,
            &[upsert, delete_doc],
            Err(Status::SubdocInvalidCombo),
        ),
        (
            MUTATION,
            0,
            0,
            &[delete_doc, upsert],
            Err(Status::SubdocInvalidCombo),
        ),
        (
            MUTATION,
            0x14,
            0,
            &[spec(ReplaceBodyWithXattr, 0x04, "_x", "")],
            Ok(1),
        ),
        (
            MUTATION,
            0,
            0,
            &[spec(ReplaceBodyWithXattr, 0, "_x", "")],
            Err(Status::Invalid),
        ),
    ];
    for (opcode, doc_flags, cas, specs, expected) in cases {
        assert_eq!(multi(opcode, doc_flags, cas, specs), expected, "{specs:?}");
    }
}

/// An expiry may be followed by user flags; so extras have 0, 1, 4, 5, 8 or 9 bytes.
#[test]
fn extras_of_mutations() {
    let upsert = spec(SubdocOp::DictUpsert, 0x04, "a", "1");
    for doc_flags in [DocFlags::NONE, DocFlags::ACCESS_DELETED] {
        for (expiry, user_flags) in [(None, None), (Some(7), None), (Some(7), Some(0x0200_0006))] {
            let command = SubdocMulti {
                doc_flags,
                expiry,
                user_flags,
                ..SubdocMulti::of_key(b"k")
            };
            let mut bytes = Vec::new();
            command.encode(&[upsert], &RequestWriter::new(MUTATION), &mut bytes);
            let decoded = SubdocMulti::decode(&whole_request(&bytes)).unwrap();
            assert_eq!(
                (decoded.doc_flags, decoded.expiry, decoded.user_flags),
                (doc_flags, expiry, user_flags)
            );
        }
    }
    for len in 0..12 {
        let mut bytes = Vec::new();
        let value = b"\xc8\0\0\x01\0\0\0\x01a1";
        RequestWriter::new(MUTATION).write(&vec![0; len], b"k", value, &mut bytes);
        let result = SubdocMulti::decode(&whole_request(&bytes)).map(|_| ());
        let expected = match len {
            0 | 1 | 4 | 5 | 8 | 9 => Ok(()),
            _ => Err(Status::Invalid),
        };
        assert_eq!(result, expected, "{len} bytes");
    }
}

#[test]
fn a_compressed_request_is_inflated_first() {
    let mut bytes = Vec::new();
    RequestWriter {
        datatype: Datatype::SNAPPY,
        ..RequestWriter::new(Opcode::SubdocGet)
    }
    .write(&[0, 1, 0], b"k", b"compressed", &mut bytes);
    let request = whole_request(&bytes);
    assert!(request.is_compressed());
    assert_eq!(SubdocSingle::decode(&request), Err(Status::Invalid));
    let inflated = request.with_inflated(b"a");
    assert_eq!(SubdocSingle::decode(&inflated).unwrap().spec.path, b"a");
}

#[test]
fn xattr_key_of_a_path_is_checked() {
    for (path, expected) in [
        ("_sync", Ok("_sync")),
        ("_sync.rev", Ok("_sync")),
        ("tags[0]", Ok("tags")),
        ("$document", Ok("$document")),
        ("0123456789abcde", Ok("0123456789abcde")),
        ("0123456789abcdef", Err(Status::XattrInvalid)),
        ("0123456789abcde.f", Ok("0123456789abcde")),
        ("", Err(Status::XattrInvalid)),
        (".a", Err(Status::XattrInvalid)),
        ("_", Err(Status::XattrInvalid)),
        ("$.a", Err(Status::XattrInvalid)),
        ("!a", Err(Status::XattrInvalid)),
        ("a\u{1}", Err(Status::XattrInvalid)),
        ("été", Ok("été")),
    ] {
        assert_eq!(
            xattr_key(path.as_bytes()),
            expected.map(str::as_bytes),
            "{path}"
        );
    }
    assert_eq!(xattr_key(b"\xff"), Err(Status::XattrInvalid));
}

#[test]
fn subdoc_operations_have_wire_numbers() {
    for &op in SubdocOp::ALL {
        assert_eq!(SubdocOp::from_wire(op.wire()), Some(op));
        let opcode = Opcode::from_wire(op.wire(), ConnectionKind::Couchbase).unwrap();
        assert_eq!(op.is_mutation(), opcode.is_write(), "{op:?}");
    }
    assert_eq!(SubdocOp::from_wire(0xd0), None);
}

proptest! {
    #[test]
    fn random_subdoc_specs_round_trip_or_are_rejected(
        picks in vec((0..SubdocOp::ALL.len(), any::<u8>(), "[a-z_.]{0,20}", "[0-9]{0,5}"), 0..20),
        doc_flags in 0_u8..0x40,
        mutation: bool,
        cut in 0_usize..1000,
    ) {
        let specs: Vec<_> = picks
            .iter()
            .map(|(op, flags, path, value)| {
                let value = if mutation { value } else { "" };
                spec(SubdocOp::ALL[*op], flags & 0x35, path, value)
            })
            .collect();
        let opcode = if mutation { MUTATION } else { LOOKUP };
        let _ = multi(opcode, doc_flags, 0, &specs);
        let mut bytes = Vec::new();
        SubdocMulti::of_key(b"k").encode(&specs, &RequestWriter::new(opcode), &mut bytes);
        let request = whole_request(&bytes);
        let value = &request.value[..cut.min(request.value.len())];
        if let Ok(decoded) = SubdocMulti::decode(&request.with_inflated(value)) {
            prop_assert!(decoded.specs.count() <= SUBDOC_SPECS_MAX);
        }
    }
}
