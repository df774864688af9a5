//! Reading paths of a document.

use crate::status::status_of;
use crate::virtual_xattrs::{
    DocumentProperties, VbucketContext, VirtualXattr, table_of_contents, vbucket,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kedge_json::{Lookup, LookupValue, Path, SubdocError, lookup_all};
use kedge_protocol::binary::commands::subdoc::{PathFlags, SubdocOp, SubdocSpec, xattr_key};
use kedge_types::{Cas, Datatype, Status};
use kedge_vbucket::{Item, ValueParts};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The prefix of a stored binary attribute: a JSON string of this and the bytes in base64.
const BINARY_PREFIX: &str = "cb-content-base64-encoded:";

/// The length of a body, in bytes, from which on one pass serves all specs. In smaller bodies each spec searches by
/// itself.
const ONE_PASS_BYTES_MIN: usize = 16 << 10;

/// Looks up the paths of `specs` in a document or tombstone whose value is in memory, and calls `found` with each
/// result in order: its status, and its value if it has one. `cas` is the CAS that clients see.
///
/// # Errors
/// `Internal` when the stored value does not match its datatype.
pub fn lookup<'s>(
    item: &Item,
    cas: Cas,
    around: &VbucketContext,
    specs: impl IntoIterator<Item = SubdocSpec<'s>>,
    found: &mut dyn FnMut(Status, &[u8]),
) -> Result<(), Status> {
    let parts = ValueParts::of(item).map_err(|_| Status::Internal)?;
    let facts = DocumentProperties::of(item, &parts, cas);
    let specs: Vec<SubdocSpec<'_>> = specs.into_iter().collect();
    let mut together = lookup_in_one_pass(&specs, &facts);
    for (at, spec) in specs.iter().enumerate() {
        let looked_up = if spec.is_xattr() {
            in_xattr(spec, &parts, &facts, around)
        } else if let Some(found) = together.remove(&at) {
            found.map_err(status_of)
        } else {
            in_body(spec, &facts)
        };
        match looked_up {
            Ok(value) if spec.op.returns_value() => found(Status::Success, &value),
            Ok(_) => found(Status::Success, &[]),
            Err(status) => found(status, &[]),
        }
    }
    Ok(())
}

/// Returns the lookup of a spec in the body, if its path parses.
fn lookup_of<'s>(spec: &SubdocSpec<'s>) -> Option<Lookup<'s>> {
    let path = Path::parse(spec.path).ok().filter(|_| !spec.is_xattr())?;
    match spec.op {
        SubdocOp::GetCount => Some(Lookup::Count(path)),
        SubdocOp::Get | SubdocOp::Exists => Some(Lookup::Value(path)),
        _ => None,
    }
}

/// Looks up the specs in a large body in one pass, and returns the results by their indexes. Specs of attributes are
/// looked up one by one.
fn lookup_in_one_pass<'a>(
    specs: &[SubdocSpec<'_>],
    facts: &DocumentProperties<'a>,
) -> BTreeMap<usize, Result<Cow<'a, [u8]>, SubdocError>> {
    let is_large = facts.body.len() >= ONE_PASS_BYTES_MIN && specs.len() > 1;
    if !is_large || facts.deleted || !facts.datatype.contains(Datatype::JSON) {
        return BTreeMap::new();
    }
    let numbered = specs.iter().enumerate();
    let (numbers, asked): (Vec<usize>, Vec<Lookup<'_>>) = numbered
        .filter_map(|(at, spec)| Some((at, lookup_of(spec)?)))
        .unzip();
    let answers = lookup_all(facts.body, &asked).into_iter().map(|answer| {
        answer.map(|answer| match answer {
            LookupValue::Value(text) => Cow::Borrowed(text),
            LookupValue::Count(count) => Cow::Owned(count.to_string().into_bytes()),
        })
    });
    numbers.into_iter().zip(answers).collect()
}

fn in_body<'a>(
    spec: &SubdocSpec<'_>,
    facts: &DocumentProperties<'a>,
) -> Result<Cow<'a, [u8]>, Status> {
    if facts.deleted {
        return Err(Status::SubdocPathEnoent);
    }
    if spec.op == SubdocOp::GetDoc {
        return Ok(Cow::Borrowed(facts.body));
    }
    if !facts.datatype.contains(Datatype::JSON) {
        return Err(Status::SubdocDocNotjson);
    }
    let path = Path::parse(spec.path).map_err(status_of)?;
    read(spec.op, facts.body, &path).map_err(status_of)
}

fn in_xattr<'a>(
    spec: &SubdocSpec<'_>,
    parts: &'a ValueParts<'_>,
    facts: &DocumentProperties<'_>,
    around: &VbucketContext,
) -> Result<Cow<'a, [u8]>, Status> {
    let key = xattr_key(spec.path)?;
    let attribute = match VirtualXattr::named(key) {
        Some(VirtualXattr::Document) => Cow::Owned(facts.document(around).into_bytes()),
        Some(VirtualXattr::Vbucket) => Cow::Owned(vbucket(around).into_bytes()),
        Some(VirtualXattr::TableOfContents) => {
            let names = parts.xattrs().iter().map(|(name, _)| name);
            Cow::Owned(table_of_contents(names).into_bytes())
        }
        None => Cow::Borrowed(parts.xattrs().get(key).ok_or(Status::SubdocPathEnoent)?),
    };
    let value = match attribute {
        Cow::Borrowed(text) => in_attribute(spec, key, text)?,
        Cow::Owned(text) => Cow::Owned(in_attribute(spec, key, &text)?.into_owned()),
    };
    if spec.flags.contains(PathFlags::BINARY_VALUE) {
        return Ok(Cow::Owned(decode_binary(&value)?));
    }
    Ok(value)
}

/// Returns the value at the rest of a path, behind the attribute's name, in the attribute's value.
pub(crate) fn in_attribute<'a>(
    spec: &SubdocSpec<'_>,
    key: &[u8],
    text: &'a [u8],
) -> Result<Cow<'a, [u8]>, Status> {
    let rest = match &spec.path[key.len()..] {
        // A dot at the end has no meaning.
        [] | [b'.'] if spec.op != SubdocOp::GetCount => return Ok(Cow::Borrowed(text)),
        [b'.', rest @ ..] => rest,
        rest => rest,
    };
    let path = Path::parse(rest).map_err(status_of)?;
    read(spec.op, text, &path).map_err(status_of)
}

fn read<'a>(op: SubdocOp, json: &'a [u8], path: &Path<'_>) -> Result<Cow<'a, [u8]>, SubdocError> {
    match op {
        SubdocOp::GetCount => {
            let count = kedge_json::count(json, path)?;
            Ok(Cow::Owned(count.to_string().into_bytes()))
        }
        _ => kedge_json::get(json, path).map(Cow::Borrowed),
    }
}

/// Encodes a binary value as a JSON string.
pub(crate) fn encode_binary(bytes: &[u8]) -> Vec<u8> {
    format!("\"{BINARY_PREFIX}{}\"", STANDARD.encode(bytes)).into_bytes()
}

/// Decodes a binary value.
///
/// # Errors
/// `SubdocFieldNotBinaryValue`.
pub(crate) fn decode_binary(json: &[u8]) -> Result<Vec<u8>, Status> {
    let text = json
        .strip_prefix(b"\"")
        .and_then(|text| text.strip_suffix(b"\""))
        .and_then(|text| text.strip_prefix(BINARY_PREFIX.as_bytes()));
    text.and_then(|text| STANDARD.decode(text).ok())
        .ok_or(Status::SubdocFieldNotBinaryValue)
}

#[cfg(test)]
mod tests {
    use kedge_types::{Expiry, RevSeqno, Seqno};

    use super::*;

    fn facts(body: &str) -> DocumentProperties<'_> {
        DocumentProperties {
            cas: Cas(1),
            seqno: Seqno(1),
            rev: RevSeqno(1),
            expiry: Expiry(0),
            datatype: Datatype::JSON,
            deleted: false,
            flags: 0,
            body: body.as_bytes(),
        }
    }

    /// Each of 16 paths in a large body had a pass of its own; `kedge_json::lookup_all` reads the body once.
    #[test]
    fn one_pass_serves_all_paths_of_a_large_body() {
        let paths = ["[0]", "[-1]", "[7].a", "[-1].a[-1]"];
        let spec = |op, path: &'static str| SubdocSpec {
            op,
            flags: PathFlags::NONE,
            path: path.as_bytes(),
            value: b"",
        };
        let mut specs: Vec<SubdocSpec<'_>> = (0..16)
            .map(|at| spec(SubdocOp::Get, paths[at % paths.len()]))
            .collect();
        specs[3].op = SubdocOp::Exists;
        specs[9] = spec(SubdocOp::GetCount, "");
        let large = format!("[{}7]", "7,".repeat(ONE_PASS_BYTES_MIN / 2));
        let served: Vec<usize> = lookup_in_one_pass(&specs, &facts(&large))
            .into_keys()
            .collect();
        assert_eq!(served, (0..specs.len()).collect::<Vec<usize>>());
        let small = lookup_in_one_pass(&specs, &facts("[7]"));
        assert!(small.is_empty(), "a small body is read for each path");
    }
}
