//! DCP_MUTATION, DCP_DELETION and DCP_EXPIRATION.

use super::{Extras, Head, datatype, document, place};
use crate::binary::fields::{Fields, Part};
use crate::binary::{Opcode, Request};
use kedge_types::{Cas, Datatype, Expiry, RevSeqno, Seqno, Status};

/// A document as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mutation<'a> {
    /// Place in the vBucket's order.
    pub seqno: Seqno,
    /// Count of changes.
    pub rev: RevSeqno,
    /// The client's own 32 bits.
    pub flags: u32,
    /// When it expires.
    pub expiry: Expiry,
    /// Until when it is locked, in Unix seconds; 0: it is not.
    pub lock_until: u32,
    /// How recently it was used, as old versions saw it; newer ones put here how often.
    pub nru: u8,
    /// Version.
    pub cas: Cas,
    /// What the value is made of.
    pub datatype: Datatype,
    /// Key.
    pub key: &'a [u8],
    /// Value.
    pub value: &'a [u8],
}

/// The value without the `nmeta` bytes of extended metadata at its end, which old versions sent.
fn without_nmeta(value: &[u8], nmeta: u16) -> Result<&[u8], Status> {
    let len = value.len().checked_sub(usize::from(nmeta));
    len.map(|len| &value[..len]).ok_or(Status::Invalid)
}

impl<'a> Mutation<'a> {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the extras are not 31 bytes, there is no key or a too long one, or the value is shorter
    /// than its metadata.
    pub fn decode(request: &Request<'a>) -> Result<Self, Status> {
        document(&[31], Part::Optional).check_document(request)?;
        let mut extras = Fields::new(request.extras);
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
    pub fn encode(&self, head: &Head, out: &mut Vec<u8>) {
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

/// A document was deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deletion<'a> {
    /// Place in the vBucket's order.
    pub seqno: Seqno,
    /// Count of changes.
    pub rev: RevSeqno,
    /// When it was deleted, in Unix seconds, on a connection with [`super::OpenFlags::DELETE_TIMES`].
    pub delete_time: Option<u32>,
    /// Version.
    pub cas: Cas,
    /// What the value is made of.
    pub datatype: Datatype,
    /// Key.
    pub key: &'a [u8],
    /// Extended attributes that outlive the document, or nothing.
    pub value: &'a [u8],
}

impl<'a> Deletion<'a> {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the extras are neither 18 nor, with the time, 21 bytes, there is no key or a too long
    /// one, or the value is shorter than its metadata.
    pub fn decode(request: &Request<'a>) -> Result<Self, Status> {
        document(&[18, 21], Part::Optional).check_document(request)?;
        let mut extras = Fields::new(request.extras);
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
    pub fn encode(&self, head: &Head, out: &mut Vec<u8>) {
        let extras = Extras::<21>::of_place(self.seqno, self.rev);
        let extras = match self.delete_time {
            Some(time) => extras.u32(time).u8(0),
            None => extras.u16(0),
        };
        head.document_writer(Opcode::DcpDeletion, self.cas, self.datatype)
            .write(extras.bytes(), self.key, self.value, out);
    }
}

/// A document expired, told to a connection that wants to know these from deletions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiration<'a> {
    /// Place in the vBucket's order.
    pub seqno: Seqno,
    /// Count of changes.
    pub rev: RevSeqno,
    /// When it was deleted, in Unix seconds.
    pub delete_time: u32,
    /// Version.
    pub cas: Cas,
    /// What the value is made of.
    pub datatype: Datatype,
    /// Key.
    pub key: &'a [u8],
    /// Extended attributes that outlive the document, or nothing.
    pub value: &'a [u8],
}

impl<'a> Expiration<'a> {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the extras are not 20 bytes, or there is no key or a too long one.
    pub fn decode(request: &Request<'a>) -> Result<Self, Status> {
        document(&[20], Part::Optional).check_document(request)?;
        let mut extras = Fields::new(request.extras);
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
    pub fn encode(&self, head: &Head, out: &mut Vec<u8>) {
        let extras = Extras::<20>::of_place(self.seqno, self.rev).u32(self.delete_time);
        head.document_writer(Opcode::DcpExpiration, self.cas, self.datatype)
            .write(extras.bytes(), self.key, self.value, out);
    }
}
