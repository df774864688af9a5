//! Single-path commands, 0xc5 to 0xcf and 0xd2.

use super::{DocFlags, PathFlags, SubdocOp, SubdocSpec, check_doc_flags};
use crate::binary::fields::{FieldReader, PartRule, RequestShape};
use crate::binary::{Request, RequestWriter};
use kedge_types::{Cas, Datatype, Status};

/// The extras: path length and flags, then an expiry (4), document flags (1), or both.
const SHAPE: RequestShape = RequestShape {
    extras: &[3, 4, 7, 8],
    key: PartRule::Required,
    value: PartRule::Optional,
    cas: PartRule::Optional,
    datatype: Datatype::JSON,
};

/// One operation on one document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubdocSingle<'a> {
    /// The operation; [`SubdocOp::wire`] is the opcode of the request.
    pub spec: SubdocSpec<'a>,
    /// Flags of the document.
    pub doc_flags: DocFlags,
    /// The new expiry as the client gave it; `None` if it gave none.
    pub expiry: Option<u32>,
    /// The document.
    pub key: &'a [u8],
    /// The CAS that the document must have, 0 for any.
    pub cas: Cas,
}

impl<'a> SubdocSingle<'a> {
    /// Checks and reads the request, whose value must be inflated.
    ///
    /// # Errors
    /// [`Status::Invalid`] for a malformed request (extras of a wrong length, a path longer than its value, a missing
    /// or forbidden value, flags that the operation does not allow); [`Status::SubdocPathE2big`] for a path that is too
    /// long; [`Status::XattrInvalid`] and the statuses 0xce, 0xd0 and 0xd2 for a wrong use of extended attributes.
    pub fn decode(request: &Request<'a>) -> Result<Self, Status> {
        SHAPE.check_document(request)?;
        let op = match SubdocOp::from_wire(request.opcode) {
            Some(op) if !op.is_whole_doc() => op,
            _ => return Err(Status::Invalid),
        };
        let mut extras = FieldReader::new(request.extras);
        let path_len = usize::from(extras.u16()?);
        let flags = PathFlags::from_bits(extras.u8()?).ok_or(Status::Invalid)?;
        let expiry = if request.extras.len() >= 7 {
            Some(extras.u32()?)
        } else {
            None
        };
        let doc_flags = if extras.is_empty() { 0 } else { extras.u8()? };
        let doc_flags = DocFlags::from_bits(doc_flags).ok_or(Status::Invalid)?;
        if expiry.is_some() && !op.is_mutation() {
            return Err(Status::Invalid);
        }
        let mut value = FieldReader::new(request.value);
        let spec = SubdocSpec {
            op,
            flags,
            path: value.take(path_len)?,
            value: value.rest(),
        };
        check_doc_flags(doc_flags, !request.cas.is_none())?;
        spec.check(doc_flags)?;
        if doc_flags.contains(DocFlags::CREATE_AS_DELETED) && !spec.is_xattr() {
            return Err(Status::Invalid);
        }
        Ok(Self {
            spec,
            doc_flags,
            expiry,
            key: request.key,
            cas: request.cas,
        })
    }

    /// Appends the request. The writer's opcode must be that of the operation.
    ///
    /// # Panics
    /// When the path is longer than 65,535 bytes.
    pub fn encode(&self, writer: &RequestWriter<'_>, out: &mut Vec<u8>) {
        let path_len = u16::try_from(self.spec.path.len()).expect("a path fits its length field");
        let mut extras = Vec::with_capacity(8);
        extras.extend_from_slice(&path_len.to_be_bytes());
        extras.push(self.spec.flags.bits());
        if let Some(expiry) = self.expiry {
            extras.extend_from_slice(&expiry.to_be_bytes());
        }
        if self.doc_flags != DocFlags::NONE {
            extras.push(self.doc_flags.bits());
        }
        let value = [self.spec.path, self.spec.value].concat();
        RequestWriter {
            cas: self.cas,
            ..*writer
        }
        .write(&extras, self.key, &value, out);
    }
}
