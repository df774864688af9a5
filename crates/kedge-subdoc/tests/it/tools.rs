//! Helpers of the tests.

use kedge_protocol::binary::commands::subdoc::{DocFlags, PathFlags, SubdocOp, SubdocSpec};
use kedge_subdoc::{MutationReply, SubdocMutation, VbucketContext, lookup};
use kedge_types::{Cas, Datatype, Expiry, RevSeqno, Seqno, Status, VbUuid, XattrsBuf};
use kedge_vbucket::{Deletion, Item, ItemMeta, Modified, Modify, NextVersion, ValueParts};

pub(crate) const AROUND: VbucketContext = VbucketContext {
    uuid: VbUuid(0xabc),
    unix_secs: 1_700_000_000,
};

pub(crate) const NEXT: NextVersion = NextVersion {
    cas: Cas(0x0102_0304_0506_0708),
    seqno: Seqno(0x1f),
    uuid: VbUuid(0xabc),
    unix_secs: 1_700_000_000,
};

pub(crate) fn section(pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut all = XattrsBuf::default();
    for (name, value) in pairs {
        all.set(name.as_bytes(), value.as_bytes());
    }
    all.section()
}

fn item_of(xattrs: &[(&str, &str)], body: &str, deleted: Option<Deletion>) -> Item {
    let section = section(xattrs);
    let mut datatype = match kedge_json::is_json(body.as_bytes()) {
        true => Datatype::JSON,
        false => Datatype::RAW,
    };
    if !section.is_empty() {
        datatype = datatype.union(Datatype::XATTR);
    }
    let meta = ItemMeta {
        cas: Cas(2_000_000_000_000),
        seqno: Seqno(10),
        rev: RevSeqno(3),
        flags: 7,
        expiry: Expiry(0),
        datatype,
        deleted,
        level: None,
    };
    Item::new(&meta, b"\0k", &[&section, body.as_bytes()])
}

pub(crate) fn document(xattrs: &[(&str, &str)], body: &str) -> Item {
    item_of(xattrs, body, None)
}

pub(crate) fn tombstone(xattrs: &[(&str, &str)]) -> Item {
    item_of(xattrs, "", Some(Deletion::Explicit))
}

pub(crate) const X: PathFlags = PathFlags::XATTR;
pub(crate) const P: PathFlags = PathFlags::MKDIR_P;
pub(crate) const NO: PathFlags = PathFlags::NONE;
pub(crate) const M: PathFlags = X.union(PathFlags::EXPAND_MACROS);
pub(crate) const B: PathFlags = X.union(PathFlags::BINARY_VALUE);

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

/// The status and value of one path.
pub(crate) fn look(
    item: &Item,
    op: SubdocOp,
    flags: PathFlags,
    path: &str,
) -> Result<String, Status> {
    let mut result = Err(Status::Internal);
    let found = &mut |status, value: &[u8]| {
        result = match status {
            Status::Success => Ok(String::from_utf8(value.to_vec()).unwrap()),
            status => Err(status),
        };
    };
    lookup(
        item,
        item.cas(),
        &AROUND,
        [spec(op, flags, path, "")],
        found,
    )
    .unwrap();
    result
}

/// A version as its attributes' section, its body, and whether it is a tombstone.
pub(crate) type Version = (Vec<u8>, String, bool);

pub(crate) fn version(modified: &Modified) -> Version {
    let meta = ItemMeta {
        datatype: modified.datatype,
        ..ItemMeta::default()
    };
    let item = Item::new(&meta, b"\0k", &[modified.bytes()]);
    let parts = ValueParts::of(&item).unwrap();
    let body = String::from_utf8(parts.body().to_vec()).unwrap();
    let is_json = kedge_json::is_json(body.as_bytes());
    assert_eq!(modified.datatype.contains(Datatype::JSON), is_json);
    (parts.section().to_vec(), body, modified.deleted)
}

pub(crate) fn change(
    there: Option<&Item>,
    flags: DocFlags,
    specs: &[SubdocSpec<'_>],
) -> (Result<Version, Status>, MutationReply) {
    let mutation = SubdocMutation::new(specs.iter().copied(), flags);
    let result = mutation.modify(there, &NEXT);
    (result.map(|modified| version(&modified)), mutation.reply())
}

/// The new body, or the status of the spec that failed.
pub(crate) fn body(there: &Item, specs: &[SubdocSpec<'_>]) -> Result<String, Status> {
    match change(Some(there), DocFlags::NONE, specs) {
        (Ok((_, body, false)), _) => Ok(body),
        (Err(Status::SubdocMultiPathFailure), reply) => Err(reply.failed.unwrap().1),
        (other, _) => panic!("{other:?}"),
    }
}
