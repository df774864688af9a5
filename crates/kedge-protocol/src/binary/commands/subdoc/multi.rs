//! SUBDOC_MULTI_LOOKUP and SUBDOC_MULTI_MUTATION: lists of specs, and lists of results.

use super::{DocFlags, PathFlags, SUBDOC_SPECS_MAX, SubdocOp, SubdocSpec, check_doc_flags};
use crate::binary::fields::{FieldReader, PartRule, RequestShape};
use crate::binary::{Opcode, Request, RequestWriter};
use kedge_types::{Cas, Datatype, Status};

const LOOKUP: RequestShape = RequestShape {
    extras: &[0, 1],
    key: PartRule::Required,
    value: PartRule::Optional,
    cas: PartRule::Optional,
    datatype: Datatype::JSON,
};
/// The extras: none, document flags, an expiry, or both; user flags (4) may follow an expiry.
const MUTATION: RequestShape = RequestShape {
    extras: &[0, 1, 4, 5, 8, 9],
    ..LOOKUP
};

/// Specs that were checked, in the order of the request. A copy is cheap, so that they can be iterated more than once.
#[derive(Clone, Copy, Debug)]
pub struct SubdocSpecs<'a> {
    fields: FieldReader<'a>,
    mutation: bool,
    left: usize,
}

impl<'a> Iterator for SubdocSpecs<'a> {
    type Item = SubdocSpec<'a>;

    fn next(&mut self) -> Option<SubdocSpec<'a>> {
        let spec = next_spec(&mut self.fields, self.mutation).ok()?;
        self.left = self.left.saturating_sub(1);
        Some(spec)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for SubdocSpecs<'_> {}

fn next_spec<'a>(fields: &mut FieldReader<'a>, mutation: bool) -> Result<SubdocSpec<'a>, Status> {
    let number = fields.u8()?;
    let flags = fields.u8()?;
    let path_len = usize::from(fields.u16()?);
    let value_len = if mutation { fields.u32()? as usize } else { 0 };
    let path = fields.take(path_len)?;
    let value = fields.take(value_len)?;
    let op = SubdocOp::from_wire(number).ok_or(Status::SubdocInvalidCombo)?;
    if op.is_mutation() != mutation {
        return Err(Status::SubdocInvalidCombo);
    }
    Ok(SubdocSpec {
        op,
        flags: PathFlags::from_bits(flags).ok_or(Status::Invalid)?,
        path,
        value,
    })
}

/// Several operations on one document.
#[derive(Clone, Copy, Debug)]
pub struct SubdocMulti<'a> {
    /// The operations, at least one and at most [`SUBDOC_SPECS_MAX`]; those on extended attributes come first.
    pub specs: SubdocSpecs<'a>,
    /// Flags of the document.
    pub doc_flags: DocFlags,
    /// The new expiry as the client gave it; `None` if it gave none. Only for mutations.
    pub expiry: Option<u32>,
    /// The new user flags; `None` keeps those of the document. Only for mutations. Official SDKs send them after the
    /// expiry when they store binary documents in transactions.
    pub user_flags: Option<u32>,
    /// The document.
    pub key: &'a [u8],
    /// The CAS that the document must have, 0 for any.
    pub cas: Cas,
}

impl<'a> SubdocMulti<'a> {
    /// Checks and reads the request, whose value must be inflated. The opcode distinguishes lookups from mutations.
    ///
    /// # Errors
    /// [`Status::SubdocInvalidCombo`] when there is no spec or there are too many, when lookups and mutations are
    /// mixed, or when something follows the deletion of the document; [`Status::SubdocInvalidXattrOrder`] when an
    /// extended attribute comes after the body; otherwise as [`super::SubdocSingle::decode`].
    pub fn decode(request: &Request<'a>) -> Result<Self, Status> {
        let mutation = request.opcode == Opcode::SubdocMultiMutation.wire();
        let shape = if mutation { MUTATION } else { LOOKUP };
        shape.check_document(request)?;
        let mut extras = FieldReader::new(request.extras);
        let expiry = if request.extras.len() >= 4 {
            Some(extras.u32()?)
        } else {
            None
        };
        let user_flags = if request.extras.len() >= 8 {
            Some(extras.u32()?)
        } else {
            None
        };
        let doc_flags = if extras.is_empty() { 0 } else { extras.u8()? };
        let doc_flags = DocFlags::from_bits(doc_flags).ok_or(Status::Invalid)?;
        check_doc_flags(doc_flags, !request.cas.is_none())?;
        Ok(Self {
            specs: check_specs(request.value, mutation, doc_flags)?,
            doc_flags,
            expiry,
            user_flags,
            key: request.key,
            cas: request.cas,
        })
    }

    /// Appends a request for `specs`. The writer's opcode gives the kind, the other fields come from `self`
    /// (`self.specs` is ignored).
    ///
    /// # Panics
    /// When a path is longer than 65,535 bytes, or a value is longer than 32 bits can express.
    pub fn encode(&self, specs: &[SubdocSpec<'_>], writer: &RequestWriter<'_>, out: &mut Vec<u8>) {
        let mut extras = Vec::with_capacity(9);
        if let Some(expiry) = self.expiry.or(self.user_flags.map(|_| 0)) {
            extras.extend_from_slice(&expiry.to_be_bytes());
        }
        if let Some(user_flags) = self.user_flags {
            extras.extend_from_slice(&user_flags.to_be_bytes());
        }
        if self.doc_flags != DocFlags::NONE {
            extras.push(self.doc_flags.bits());
        }
        let mut value = Vec::new();
        for spec in specs {
            let path_len = u16::try_from(spec.path.len()).expect("a path fits its length field");
            value.extend_from_slice(&[spec.op.wire(), spec.flags.bits()]);
            value.extend_from_slice(&path_len.to_be_bytes());
            if writer.opcode == Opcode::SubdocMultiMutation {
                let len = u32::try_from(spec.value.len()).expect("a value fits its length field");
                value.extend_from_slice(&len.to_be_bytes());
            }
            value.extend_from_slice(spec.path);
            value.extend_from_slice(spec.value);
        }
        RequestWriter {
            cas: self.cas,
            ..*writer
        }
        .write(&extras, self.key, &value, out);
    }

    /// Creates a request without operations on `key`, for [`SubdocMulti::encode`].
    #[must_use]
    pub const fn of_key(key: &'a [u8]) -> Self {
        Self {
            specs: SubdocSpecs {
                fields: FieldReader::new(&[]),
                mutation: false,
                left: 0,
            },
            doc_flags: DocFlags::NONE,
            expiry: None,
            user_flags: None,
            key,
            cas: Cas(0),
        }
    }
}

fn check_specs(
    value: &[u8],
    mutation: bool,
    doc_flags: DocFlags,
) -> Result<SubdocSpecs<'_>, Status> {
    let mut fields = FieldReader::new(value);
    let mut count = 0;
    let mut seen_body = false;
    let mut deleted = false;
    while !fields.is_empty() {
        if count == SUBDOC_SPECS_MAX || deleted {
            return Err(Status::SubdocInvalidCombo);
        }
        let spec = next_spec(&mut fields, mutation)?;
        spec.check(doc_flags)?;
        if spec.is_xattr() && seen_body {
            return Err(Status::SubdocInvalidXattrOrder);
        }
        deleted = spec.op == SubdocOp::DeleteDoc;
        if deleted && seen_body {
            return Err(Status::SubdocInvalidCombo);
        }
        seen_body |= !spec.is_xattr();
        count += 1;
    }
    if count == 0 {
        return Err(Status::SubdocInvalidCombo);
    }
    Ok(SubdocSpecs {
        fields: FieldReader::new(value),
        mutation,
        left: count,
    })
}

/// One result of a multi lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookupResult<'a> {
    /// The status of this path, as received.
    pub status_code: u16,
    /// The value at the path; empty for [`SubdocOp::Exists`] and on failure.
    pub value: &'a [u8],
}

/// Appends one result to the value of a reply to a multi lookup.
///
/// # Panics
/// When the value is longer than 32 bits can express.
pub fn push_lookup_result(status: Status, value: &[u8], out: &mut Vec<u8>) {
    let len = u32::try_from(value.len()).expect("a value fits its length field");
    out.extend_from_slice(&status.wire().to_be_bytes());
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(value);
}

/// Reads the value of a reply to a multi lookup.
///
/// # Errors
/// [`Status::Invalid`] when it ends in the middle of a result.
pub fn decode_lookup_results(value: &[u8]) -> Result<Vec<LookupResult<'_>>, Status> {
    let mut fields = FieldReader::new(value);
    let mut results = Vec::new();
    while !fields.is_empty() {
        let status_code = fields.u16()?;
        let len = fields.u32()? as usize;
        results.push(LookupResult {
            status_code,
            value: fields.take(len)?,
        });
    }
    Ok(results)
}

/// One result of a multi mutation: a value that an operation returned, or the operation that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MutationResult<'a> {
    /// The index of the spec in the request.
    pub index: u8,
    /// The status of the spec, as received.
    pub status_code: u16,
    /// The returned value; `None` for a failure.
    pub value: Option<&'a [u8]>,
}

/// Appends the value that a spec returned to the value of a successful reply. Specs without a returned value have no
/// entry.
///
/// # Panics
/// When the value is longer than 32 bits can express.
pub fn push_mutation_result(index: u8, value: &[u8], out: &mut Vec<u8>) {
    out.push(index);
    push_lookup_result(Status::Success, value, out);
}

/// Appends the failed spec to the value of a reply with [`Status::SubdocMultiPathFailure`]. There is only one, as the
/// first failure cancels the mutation.
pub fn push_mutation_failure(index: u8, status: Status, out: &mut Vec<u8>) {
    out.push(index);
    out.extend_from_slice(&status.wire().to_be_bytes());
}

/// Reads the value of a reply to a multi mutation.
///
/// # Errors
/// [`Status::Invalid`] when it ends in the middle of a result.
pub fn decode_mutation_results(value: &[u8]) -> Result<Vec<MutationResult<'_>>, Status> {
    let mut fields = FieldReader::new(value);
    let mut results = Vec::new();
    while !fields.is_empty() {
        let index = fields.u8()?;
        let status_code = fields.u16()?;
        let value = if status_code == Status::Success.wire() {
            let len = fields.u32()? as usize;
            Some(fields.take(len)?)
        } else {
            None
        };
        results.push(MutationResult {
            index,
            status_code,
            value,
        });
    }
    Ok(results)
}
