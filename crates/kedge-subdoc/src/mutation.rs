//! Changes of paths of a document.
//!
//! Specs work on a draft, which becomes the new version if all of them succeed.

use crate::lookup::{decode_binary, encode_binary, in_attribute};
use crate::macros::{Expansions, Macro};
use crate::spec::OwnedSpec;
use crate::status::status_of;
use crate::virtual_xattrs::{DocumentProperties, VbucketContext};
use kedge_json::{Edit, EditedDocument, Path, SubdocError, edit, get, is_json, parse_delta};
use kedge_protocol::binary::commands::subdoc::{
    DocFlags, PathFlags, SubdocOp, SubdocSpec, xattr_key,
};
use kedge_types::{
    Cas, Datatype, DocKey, Expiry, RevSeqno, Seqno, Status, VbUuid, XattrsBuf, check_xattr_sizes,
};
use kedge_vbucket::{Item, Modified, Modify, NextVersion, Precomputed, ValueParts};
use std::sync::{Mutex, PoisonError};

/// The temporary name of an attribute while a path in it is changed.
const PLACEHOLDER_NAME: &[u8] = b"x";

/// A mutation that waits for its document, and its outcome.
#[derive(Debug)]
pub struct SubdocMutation {
    specs: Vec<OwnedSpec>,
    flags: DocFlags,
    user_flags: Option<u32>,
    reply: Mutex<MutationReply>,
    precomputed: Precomputed<(Result<Modified, Status>, MutationReply)>,
}

/// The outcome of a mutation, in addition to the new version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MutationReply {
    /// The values of specs that returned one, with their indexes.
    pub values: Vec<(u8, Vec<u8>)>,
    /// The spec that failed.
    pub failed: Option<(u8, Status)>,
    /// The document was a tombstone, and stayed one.
    pub deleted: bool,
}

impl SubdocMutation {
    /// Creates a mutation with these specs, which [`crate::check`] has accepted.
    #[must_use]
    pub fn new<'s>(specs: impl IntoIterator<Item = SubdocSpec<'s>>, flags: DocFlags) -> Self {
        Self {
            specs: specs.into_iter().map(OwnedSpec::from).collect(),
            flags,
            user_flags: None,
            reply: Mutex::default(),
            precomputed: Precomputed::default(),
        }
    }

    /// Also sets the user flags of the document; `None` keeps them.
    #[must_use]
    pub fn with_user_flags(self, user_flags: Option<u32>) -> Self {
        Self { user_flags, ..self }
    }

    /// Returns the outcome of the last run.
    #[must_use]
    pub fn reply(&self) -> MutationReply {
        self.slot().clone()
    }

    /// Returns whether the outcome depends only on the old document, and not on the new version.
    fn is_plain(&self) -> bool {
        let specs = self.specs.iter().map(OwnedSpec::get);
        specs.into_iter().all(|spec| {
            let expands = spec.flags.contains(PathFlags::EXPAND_MACROS);
            !expands && spec.op != SubdocOp::ReplaceBodyWithXattr
        })
    }

    fn slot(&self) -> std::sync::MutexGuard<'_, MutationReply> {
        // A reply is whole at any time.
        self.reply.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has(&self, flag: DocFlags) -> bool {
        self.flags.contains(flag)
    }

    fn creates(&self) -> bool {
        self.has(DocFlags::MKDOC) || self.has(DocFlags::ADD)
    }

    /// Checks that this mutation may be applied to the existing document.
    fn check(&self, there: Option<&Item>) -> Result<(), Status> {
        match there {
            Some(_) if self.has(DocFlags::ADD) => Err(Status::KeyExists),
            Some(item) if self.has(DocFlags::REVIVE) && !item.is_deleted() => {
                Err(Status::SubdocCanOnlyReviveDeletedDocuments)
            }
            None if !self.creates() => Err(Status::KeyNotFound),
            _ => Ok(()),
        }
    }

    /// Returns the draft on which the specs start.
    fn draft(
        &self,
        parts: Option<&ValueParts<'_>>,
        before: &DocumentProperties<'_>,
    ) -> MutationDraft {
        let Some(parts) = parts else {
            return self.new_draft(XattrsBuf::default(), self.has(DocFlags::CREATE_AS_DELETED));
        };
        let xattrs = XattrsBuf::from(parts.xattrs());
        if before.deleted {
            return self.new_draft(xattrs, !self.has(DocFlags::REVIVE));
        }
        MutationDraft {
            xattrs,
            body: parts.body().to_vec(),
            is_json: before.datatype.contains(Datatype::JSON),
            deleted: false,
            makes_parents: self.creates(),
            crc_wanted: false,
        }
    }

    /// Returns the draft of a new document: an empty array if the first path is in one, otherwise an empty object.
    fn new_draft(&self, xattrs: XattrsBuf, deleted: bool) -> MutationDraft {
        let first = self.specs.iter().map(OwnedSpec::get);
        let first = first.clone().find(|spec| !spec.is_xattr());
        let is_array =
            first.is_some_and(|spec| spec.path.is_empty() || spec.path.starts_with(b"["));
        let body: &[u8] = match (deleted, is_array) {
            (true, _) => b"",
            (false, true) => b"[]",
            (false, false) => b"{}",
        };
        MutationDraft {
            xattrs,
            body: body.to_vec(),
            is_json: !deleted,
            deleted,
            makes_parents: self.creates(),
            crc_wanted: false,
        }
    }

    /// Runs all specs. The error of one is in `reply`.
    fn run(
        &self,
        draft: &mut MutationDraft,
        expansions: &Expansions<'_>,
        exists: bool,
        reply: &mut MutationReply,
    ) -> Result<(), Status> {
        for (index, spec) in self.specs.iter().map(OwnedSpec::get).enumerate() {
            let index = u8::try_from(index).unwrap_or(u8::MAX);
            match draft.apply(&spec, expansions, exists) {
                Ok(None) => {}
                Ok(Some(value)) => reply.values.push((index, value)),
                // An error of the document, not of the spec.
                Err(Status::SubdocDeletedDocumentCantHaveValue) => {
                    return Err(Status::SubdocDeletedDocumentCantHaveValue);
                }
                Err(status) => {
                    reply.failed = Some((index, status));
                    return Err(match reply.deleted {
                        true => Status::SubdocMultiPathFailureDeleted,
                        false => Status::SubdocMultiPathFailure,
                    });
                }
            }
        }
        Ok(())
    }
}

impl Modify for SubdocMutation {
    fn wants_tombstones(&self) -> bool {
        // The result is a tombstone, and an existing tombstone must not be overwritten by a creation.
        let adds_tombstone = self.has(DocFlags::ADD) && self.has(DocFlags::CREATE_AS_DELETED);
        self.has(DocFlags::ACCESS_DELETED) || adds_tombstone
    }

    fn bytes(&self) -> usize {
        self.specs.iter().map(OwnedSpec::bytes).sum()
    }

    fn prepare(&self, key: &DocKey, there: Option<&Item>) {
        let is_tombstone = there.is_some_and(Item::is_deleted);
        if !self.is_plain() || is_tombstone && self.wants_tombstones() {
            return;
        }
        let there = there.filter(|_| !is_tombstone);
        let made = self
            .modify(there, &NO_VERSION)
            .map(|made| made.drafted(key));
        self.precomputed.keep(there, (made, self.reply()));
    }

    fn modify(&self, there: Option<&Item>, next: &NextVersion) -> Result<Modified, Status> {
        if let Some((made, reply)) = self.precomputed.take(there) {
            *self.slot() = reply;
            return made;
        }
        *self.slot() = MutationReply::default();
        self.check(there)?;
        let parts = there.map(ValueParts::of).transpose();
        let parts = parts.map_err(|_| Status::Internal)?;
        let before = match (there, &parts) {
            (Some(item), Some(parts)) => DocumentProperties::of(item, parts, item.cas()),
            _ => NO_DOCUMENT,
        };
        let around = VbucketContext {
            uuid: next.uuid,
            unix_secs: next.unix_secs,
        };
        let mut expansions = Expansions {
            cas: next.cas,
            seqno: next.seqno,
            crc32c: 0,
            before: &before,
            around: &around,
        };
        loop {
            let mut reply = MutationReply::default();
            let mut draft = self.draft(parts.as_ref(), &before);
            reply.deleted = draft.deleted;
            let result = self.run(&mut draft, &expansions, there.is_some(), &mut reply);
            let crc32c = crc32c::crc32c(&draft.body);
            // The checksum is that of the body after all specs: it is known only at the end, and needed before.
            if result.is_ok() && draft.crc_wanted && expansions.crc32c != crc32c {
                expansions.crc32c = crc32c;
                continue;
            }
            *self.slot() = reply;
            result?;
            return draft.finish(self.user_flags.unwrap_or(before.flags));
        }
    }
}

/// The new version, if nothing depends on it.
const NO_VERSION: NextVersion = NextVersion {
    cas: Cas(0),
    seqno: Seqno(0),
    uuid: VbUuid(0),
    unix_secs: 0,
};

/// The facts of a missing document.
const NO_DOCUMENT: DocumentProperties<'static> = DocumentProperties {
    cas: Cas(0),
    seqno: Seqno(0),
    rev: RevSeqno(0),
    expiry: Expiry::NEVER,
    datatype: Datatype::RAW,
    deleted: false,
    flags: 0,
    body: b"",
};

/// A document that is being changed.
struct MutationDraft {
    xattrs: XattrsBuf,
    body: Vec<u8>,
    is_json: bool,
    deleted: bool,
    /// True if the parents of a path are created regardless of the path's flags.
    makes_parents: bool,
    /// True if a macro needs the checksum of the body.
    crc_wanted: bool,
}

impl MutationDraft {
    /// Runs one spec, and returns the value that it returns to the client.
    fn apply(
        &mut self,
        spec: &SubdocSpec<'_>,
        expansions: &Expansions<'_>,
        exists: bool,
    ) -> Result<Option<Vec<u8>>, Status> {
        match spec.op {
            SubdocOp::AddDoc if exists => return Err(Status::KeyExists),
            SubdocOp::ReplaceDoc if !exists => return Err(Status::KeyNotFound),
            SubdocOp::SetDoc | SubdocOp::AddDoc | SubdocOp::ReplaceDoc => {
                self.set_body(spec.value.to_vec())?;
                return Ok(None);
            }
            SubdocOp::DeleteDoc => {
                (self.body, self.is_json, self.deleted) = (Vec::new(), false, true);
                self.xattrs.remove_user();
                return Ok(None);
            }
            SubdocOp::ReplaceBodyWithXattr => {
                let body = self.xattr_value(spec)?;
                self.set_body(body)?;
                return Ok(None);
            }
            _ => {}
        }
        let makes_parents = self.makes_parents || spec.flags.contains(PathFlags::MKDIR_P);
        let edited = if spec.is_xattr() {
            self.edit_xattr(spec, expansions, makes_parents)?
        } else {
            self.edit_body(spec, makes_parents)?
        };
        Ok(edited.map(|number| number.to_string().into_bytes()))
    }

    fn set_body(&mut self, body: Vec<u8>) -> Result<(), Status> {
        if self.deleted {
            return Err(Status::SubdocDeletedDocumentCantHaveValue);
        }
        self.is_json = is_json(&body);
        self.body = body;
        Ok(())
    }

    /// Returns the value of an attribute at the path of a spec.
    fn xattr_value(&self, spec: &SubdocSpec<'_>) -> Result<Vec<u8>, Status> {
        let key = xattr_key(spec.path)?;
        let text = self.xattrs.get(key).ok_or(Status::SubdocPathEnoent)?;
        let value = in_attribute(spec, key, text)?;
        match spec.flags.contains(PathFlags::BINARY_VALUE) {
            true => decode_binary(&value),
            false => Ok(value.into_owned()),
        }
    }

    fn edit_body(
        &mut self,
        spec: &SubdocSpec<'_>,
        makes_parents: bool,
    ) -> Result<Option<i64>, Status> {
        if self.deleted {
            return Err(Status::SubdocDeletedDocumentCantHaveValue);
        }
        if !self.is_json {
            return Err(Status::SubdocDocNotjson);
        }
        let EditedDocument { document, number } =
            edited(&self.body, spec.path, spec.op, spec.value, makes_parents)?;
        self.body = document;
        Ok(number)
    }

    /// Changes an attribute as the only member of an object.
    fn edit_xattr(
        &mut self,
        spec: &SubdocSpec<'_>,
        expansions: &Expansions<'_>,
        makes_parents: bool,
    ) -> Result<Option<i64>, Status> {
        let key = xattr_key(spec.path)?;
        let value = self.value_of(spec, expansions)?;
        let around = match self.xattrs.get(key) {
            Some(text) => [b"{\"", PLACEHOLDER_NAME, b"\":", text, b"}"].concat(),
            None => b"{}".to_vec(),
        };
        let path = [PLACEHOLDER_NAME, &spec.path[key.len()..]].concat();
        let EditedDocument { document, number } =
            edited(&around, &path, spec.op, &value, makes_parents)?;
        let stand_in = Path::parse(PLACEHOLDER_NAME).map_err(status_of)?;
        match get(&document, &stand_in) {
            Ok(text) => self.xattrs.set(key, text),
            Err(SubdocError::PathEnoent) => self.xattrs.remove(key),
            Err(error) => return Err(status_of(error)),
        }
        Ok(number)
    }

    /// Returns the value of a spec on an attribute, as JSON.
    fn value_of(
        &mut self,
        spec: &SubdocSpec<'_>,
        expansions: &Expansions<'_>,
    ) -> Result<Vec<u8>, Status> {
        if spec.flags.contains(PathFlags::EXPAND_MACROS) {
            let expands = Macro::parse(spec.value)?;
            self.crc_wanted |= expands == Macro::Crc32c;
            return Ok(expands.expand(expansions).into_bytes());
        }
        if spec.flags.contains(PathFlags::BINARY_VALUE) {
            return Ok(encode_binary(spec.value));
        }
        Ok(spec.value.to_vec())
    }

    fn finish(self, flags: u32) -> Result<Modified, Status> {
        check_xattr_sizes(self.xattrs.iter(), self.body.len())?;
        let mut datatype = match self.is_json {
            true => Datatype::JSON,
            false => Datatype::RAW,
        };
        let section = self.xattrs.section();
        if !section.is_empty() {
            datatype = datatype.union(Datatype::XATTR);
        }
        Ok(Modified {
            draft: None,
            value: [section, self.body].concat(),
            datatype,
            flags,
            deleted: self.deleted,
        })
    }
}

fn edited(
    json: &[u8],
    path: &[u8],
    op: SubdocOp,
    value: &[u8],
    makes_parents: bool,
) -> Result<EditedDocument, Status> {
    let edit_it = || {
        let path = Path::parse(path)?;
        let change = match op {
            SubdocOp::DictAdd => Edit::DictAdd(value),
            SubdocOp::DictUpsert => Edit::DictUpsert(value),
            SubdocOp::Delete => Edit::Delete,
            SubdocOp::Replace => Edit::Replace(value),
            SubdocOp::ArrayPushLast => Edit::PushLast(value),
            SubdocOp::ArrayPushFirst => Edit::PushFirst(value),
            SubdocOp::ArrayInsert => Edit::Insert(value),
            SubdocOp::ArrayAddUnique => Edit::AddUnique(value),
            SubdocOp::Counter => Edit::Counter(parse_delta(value)?),
            // The codec has no other operation that changes a path.
            _ => return Err(SubdocError::PathEinval),
        };
        edit(json, &path, change, makes_parents)
    };
    edit_it().map_err(status_of)
}
