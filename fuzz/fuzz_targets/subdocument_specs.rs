//! Any body of a multi lookup or mutation: what decodes is read from a document, changed in it, and in the order of its
//! specs; either all is done or nothing, and a document stays one that can be taken apart.
#![no_main]

use kedge_protocol::binary::commands::subdoc::{SubdocMulti, SubdocSpec};
use kedge_protocol::binary::{Opcode, Parse, RequestWriter, parse_frame};
use kedge_subdoc::{SubdocMutation, VbucketContext, check, lookup};
use kedge_types::{Cas, Datatype, Seqno, Status, VbUuid, XattrsBuf};
use kedge_vbucket::{Deletion, Item, ItemMeta, Modify, NextVersion, ValueParts};
use libfuzzer_sys::fuzz_target;

const AROUND: VbucketContext = VbucketContext {
    uuid: VbUuid(1),
    unix_secs: 1_700_000_000,
};
const NEXT: NextVersion = NextVersion {
    cas: Cas(1 << 60),
    seqno: Seqno(11),
    uuid: VbUuid(1),
    unix_secs: 1_700_000_000,
};

/// A document with an attribute of a user and one of the system, or its tombstone.
fn document(body: &[u8], is_deleted: bool) -> Item {
    let mut xattrs = XattrsBuf::default();
    xattrs.set(b"u", b"{\"a\":[1,2]}");
    xattrs.set(b"_s", b"1");
    let json = kedge_json::is_json(body);
    let datatype = if json { Datatype::JSON } else { Datatype::RAW };
    let meta = ItemMeta {
        cas: Cas(1 << 50),
        seqno: Seqno(10),
        datatype: datatype.union(Datatype::XATTR),
        deleted: is_deleted.then_some(Deletion::Explicit),
        ..ItemMeta::default()
    };
    let body = if is_deleted { b"" } else { body };
    Item::new(&meta, b"\0k", &[&xattrs.section(), body])
}

fn look(item: &Item, specs: &[SubdocSpec<'_>]) {
    let mut count = 0;
    let found = &mut |status: Status, value: &[u8]| {
        count += 1;
        assert!(status == Status::Success || value.is_empty());
    };
    lookup(item, item.cas(), &AROUND, specs.iter().copied(), found).expect("it can be taken apart");
    assert_eq!(count, specs.len());
}

fn change(there: Option<&Item>, mutation: &SubdocMutation, count: usize) {
    let before = there.map(|item| item.value().to_vec());
    match mutation.modify(there, &NEXT) {
        Ok(modified) => {
            let meta = ItemMeta {
                datatype: modified.datatype,
                ..ItemMeta::default()
            };
            let item = Item::new(&meta, b"\0k", &[modified.bytes()]);
            let parts = ValueParts::of(&item).expect("it can be taken apart");
            assert!(!modified.deleted || parts.body().is_empty());
            let is_json = modified.datatype.contains(Datatype::JSON);
            assert!(!is_json || kedge_json::is_json(parts.body()));
            let reply = mutation.reply();
            assert!(reply.failed.is_none());
            assert!(reply.values.iter().all(|(at, _)| usize::from(*at) < count));
        }
        Err(_) => {
            let failed = mutation.reply().failed;
            assert!(failed.is_none_or(|(at, status)| {
                usize::from(at) < count && status != Status::Success
            }));
        }
    }
    assert_eq!(there.map(|item| item.value().to_vec()), before);
}

fuzz_target!(|input: (bool, bool, bool, &[u8], &[u8], &[u8])| {
    let (is_mutation, is_deleted, is_there, extras, value, body) = input;
    let opcode = match is_mutation {
        true => Opcode::SubdocMultiMutation,
        false => Opcode::SubdocMultiLookup,
    };
    let mut bytes = Vec::new();
    if extras.len() > 255 {
        return;
    }
    RequestWriter::new(opcode).write(extras, b"k", value, &mut bytes);
    let Parse::Frame { request, .. } = parse_frame(&bytes, 64 << 20) else {
        return;
    };
    let Ok(multi) = SubdocMulti::decode(&request) else {
        return;
    };
    let specs: Vec<SubdocSpec<'_>> = multi.specs.collect();
    assert!((1..=16).contains(&specs.len()));
    if check(specs.iter().copied()).is_err() {
        return;
    }
    let item = document(body, is_deleted);
    if is_mutation {
        let mutation = SubdocMutation::new(specs.iter().copied(), multi.doc_flags);
        let mutation = mutation.with_user_flags(multi.user_flags);
        change(is_there.then_some(&item), &mutation, specs.len());
    } else {
        look(&item, &specs);
    }
});
