//! DCP_MUTATION, DCP_DELETION and DCP_EXPIRATION.

use super::{DcpHeader, Extras, datatype, document, place};
use crate::binary::fields::{FieldReader, PartRule};
use crate::binary::{Opcode, Request};
use kedge_types::{Cas, Datatype, Expiry, RevSeqno, Seqno, Status};

/// The current version of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DcpMutation<'a> {
    /// The seqno of the change.
    pub seqno: Seqno,
    /// The revision number of the document.
    pub rev: RevSeqno,
    /// The client's flags.
    pub flags: u32,
    /// The expiry.
    pub expiry: Expiry,
    /// The Unix second at which the lock ends; 0 if the document is not locked.
    pub lock_until: u32,
    /// The NRU (not recently used) value of old versions; newer ones put the access frequency here.
    pub nru: u8,
    /// Version.
    pub cas: Cas,
    /// The datatype of the value.
    pub datatype: Datatype,
    /// Key.
    pub key: &'a [u8],
    /// Value.
    pub value: &'a [u8],
}

/// Returns the value without the `nmeta` bytes of extended metadata that old versions append.
fn without_nmeta(value: &[u8], nmeta: u16) -> Result<&[u8], Status> {
    let len = value.len().checked_sub(usize::from(nmeta));
    len.map(|len| &value[..len]).ok_or(Status::Invalid)
}

impl<'a> DcpMutation<'a> {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the extras are not 31 bytes, the key is missing or too long, or the value is shorter
    /// than its metadata.
    pub fn decode(request: &Request<'a>) -> Result<Self, Status> {
        document(&[31], PartRule::Optional).check_document(request)?;
        let mut extras = FieldReader::new(request.extras);
        let (seqno, rev) = place(&mut extras)?;
        let (flags, expiry) = (extras.u32()?, Expiry(extras.u32()?));
        let lock_until = extras.u32()?;
        let value = without_nmeta(request.value, extras.u16()?)?;
        Ok(Self {
            seqno,
            rev,
            flags,
            expiry,
            lock_until,
            nru: extras.u8()?,
            cas: request.cas,
            datatype: datatype(request),
            key: request.key,
            value,
        })
    }

    /// Appends the request.
    pub fn encode(&self, head: &DcpHeader, out: &mut Vec<u8>) {
        let extras = Extras::<31>::of_place(self.seqno, self.rev)
            .u32(self.flags)
            .u32(self.expiry.0)
            .u32(self.lock_until)
            .u16(0)
            .u8(self.nru);
        head.document_writer(Opcode::DcpMutation, self.cas, self.datatype)
            .write(extras.bytes(), self.key, self.value, out);
    }
}

/// The deletion of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DcpDeletion<'a> {
    /// The seqno of the change.
    pub seqno: Seqno,
    /// The revision number of the document.
    pub rev: RevSeqno,
    /// The Unix second of the deletion, on a connection with [`super::OpenFlags::DELETE_TIMES`].
    pub delete_time: Option<u32>,
    /// Version.
    pub cas: Cas,
    /// The datatype of the value.
    pub datatype: Datatype,
    /// Key.
    pub key: &'a [u8],
    /// The extended attributes that the tombstone keeps; may be empty.
    pub value: &'a [u8],
}

impl<'a> DcpDeletion<'a> {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the extras are neither 18 nor, with the time, 21 bytes, the key is missing or too long,
    /// or the value is shorter than its metadata.
    pub fn decode(request: &Request<'a>) -> Result<Self, Status> {
        document(&[18, 21], PartRule::Optional).check_document(request)?;
        let mut extras = FieldReader::new(request.extras);
        let (seqno, rev) = place(&mut extras)?;
        let (delete_time, nmeta) = if request.extras.len() == 21 {
            (Some(extras.u32()?), 0)
        } else {
            (None, extras.u16()?)
        };
        Ok(Self {
            seqno,
            rev,
            delete_time,
            cas: request.cas,
            datatype: datatype(request),
            key: request.key,
            value: without_nmeta(request.value, nmeta)?,
        })
    }

    /// Appends the request.
    pub fn encode(&self, head: &DcpHeader, out: &mut Vec<u8>) {
        let extras = Extras::<21>::of_place(self.seqno, self.rev);
        let extras = match self.delete_time {
            Some(time) => extras.u32(time).u8(0),
            None => extras.u16(0),
        };
        head.document_writer(Opcode::DcpDeletion, self.cas, self.datatype)
            .write(extras.bytes(), self.key, self.value, out);
    }
}

/// The expiration of a document, for a connection that distinguishes expirations from deletions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DcpExpiration<'a> {
    /// The seqno of the change.
    pub seqno: Seqno,
    /// The revision number of the document.
    pub rev: RevSeqno,
    /// The Unix second of the deletion.
    pub delete_time: u32,
    /// Version.
    pub cas: Cas,
    /// The datatype of the value.
    pub datatype: Datatype,
    /// Key.
    pub key: &'a [u8],
    /// The extended attributes that the tombstone keeps; may be empty.
    pub value: &'a [u8],
}

impl<'a> DcpExpiration<'a> {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the extras are not 20 bytes, or the key is missing or too long.
    pub fn decode(request: &Request<'a>) -> Result<Self, Status> {
        document(&[20], PartRule::Optional).check_document(request)?;
        let mut extras = FieldReader::new(request.extras);
        let (seqno, rev) = place(&mut extras)?;
        Ok(Self {
            seqno,
            rev,
            delete_time: extras.u32()?,
            cas: request.cas,
            datatype: datatype(request),
            key: request.key,
            value: request.value,
        })
    }

    /// Appends the request.
    pub fn encode(&self, head: &DcpHeader, out: &mut Vec<u8>) {
        let extras = Extras::<20>::of_place(self.seqno, self.rev).u32(self.delete_time);
        head.document_writer(Opcode::DcpExpiration, self.cas, self.datatype)
            .write(extras.bytes(), self.key, self.value, out);
    }
}
