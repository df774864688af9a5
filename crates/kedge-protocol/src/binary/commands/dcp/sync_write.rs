//! DCP_PREPARE, DCP_COMMIT, DCP_ABORT and DCP_SEQNO_ACKNOWLEDGED.

use super::{DcpHeader, Extras, datatype, document, extras_only, place};
use crate::binary::fields::{FieldReader, PartRule, RequestShape};
use crate::binary::{Opcode, Request};
use kedge_types::{Cas, Datatype, DurabilityLevel, Expiry, RevSeqno, Seqno, Status};

/// The prepare of a SyncWrite, which waits for its durability level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DcpPrepare<'a> {
    /// The seqno of the change.
    pub seqno: Seqno,
    /// The revision number of the document.
    pub rev: RevSeqno,
    /// The client's flags.
    pub flags: u32,
    /// The expiry; for a deletion, the time of the deletion.
    pub expiry: Expiry,
    /// The Unix second at which the lock ends; 0 if the document is not locked.
    pub lock_until: u32,
    /// The NRU (not recently used) value of the document.
    pub nru: u8,
    /// True if the SyncWrite deletes the document.
    pub deleted: bool,
    /// The durability level.
    pub level: DurabilityLevel,
    /// Version.
    pub cas: Cas,
    /// The datatype of the value.
    pub datatype: Datatype,
    /// Key.
    pub key: &'a [u8],
    /// Value.
    pub value: &'a [u8],
}

impl<'a> DcpPrepare<'a> {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the extras are not 31 bytes, the deletion byte is neither 0 nor 1, or the key is
    /// missing or too long; [`Status::DurabilityInvalidLevel`] for an undefined level.
    pub fn decode(request: &Request<'a>) -> Result<Self, Status> {
        document(&[31], PartRule::Optional).check_document(request)?;
        let mut extras = FieldReader::new(request.extras);
        let (seqno, rev) = place(&mut extras)?;
        Ok(Self {
            seqno,
            rev,
            flags: extras.u32()?,
            expiry: Expiry(extras.u32()?),
            lock_until: extras.u32()?,
            nru: extras.u8()?,
            deleted: match extras.u8()? {
                0 => false,
                1 => true,
                _ => return Err(Status::Invalid),
            },
            level: DurabilityLevel::from_wire(extras.u8()?)
                .ok_or(Status::DurabilityInvalidLevel)?,
            cas: request.cas,
            datatype: datatype(request),
            key: request.key,
            value: request.value,
        })
    }

    /// Appends the request.
    pub fn encode(&self, head: &DcpHeader, out: &mut Vec<u8>) {
        let extras = Extras::<31>::of_place(self.seqno, self.rev)
            .u32(self.flags)
            .u32(self.expiry.0)
            .u32(self.lock_until)
            .u8(self.nru)
            .u8(u8::from(self.deleted))
            .u8(self.level as u8);
        head.document_writer(Opcode::DcpPrepare, self.cas, self.datatype)
            .write(extras.bytes(), self.key, self.value, out);
    }
}

/// Reads a key and two seqnos, the form of COMMIT and ABORT.
fn completion<'a>(request: &Request<'a>) -> Result<(Seqno, Seqno, &'a [u8]), Status> {
    const SHAPE: RequestShape = document(&[16], PartRule::Forbidden);
    SHAPE.check_document(request)?;
    let mut extras = FieldReader::new(request.extras);
    Ok((Seqno(extras.u64()?), Seqno(extras.u64()?), request.key))
}

fn encode_completion(
    opcode: Opcode,
    (head, cas): (&DcpHeader, Cas),
    (prepared, seqno): (Seqno, Seqno),
    key: &[u8],
    out: &mut Vec<u8>,
) {
    let extras = Extras::<16>::new().u64(prepared.get()).u64(seqno.get());
    head.document_writer(opcode, cas, Datatype::RAW)
        .write(extras.bytes(), key, &[], out);
}

/// The commit of the prepare of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DcpCommit<'a> {
    /// The seqno of the prepare.
    pub prepared: Seqno,
    /// The seqno of the commit.
    pub seqno: Seqno,
    /// The CAS of the committed document; 0 if the sender does not give it.
    pub cas: Cas,
    /// Key.
    pub key: &'a [u8],
}

impl<'a> DcpCommit<'a> {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the extras are not 16 bytes, the key is missing or too long, or there is a value.
    pub fn decode(request: &Request<'a>) -> Result<Self, Status> {
        let (prepared, seqno, key) = completion(request)?;
        Ok(Self {
            prepared,
            seqno,
            cas: request.cas,
            key,
        })
    }

    /// Appends the request.
    pub fn encode(&self, head: &DcpHeader, out: &mut Vec<u8>) {
        let seqnos = (self.prepared, self.seqno);
        encode_completion(Opcode::DcpCommit, (head, self.cas), seqnos, self.key, out);
    }
}

/// The abort of the prepare of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DcpAbort<'a> {
    /// The seqno of the prepare.
    pub prepared: Seqno,
    /// The seqno of the abort.
    pub seqno: Seqno,
    /// Key.
    pub key: &'a [u8],
}

impl<'a> DcpAbort<'a> {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// The same as for [`DcpCommit::decode`].
    pub fn decode(request: &Request<'a>) -> Result<Self, Status> {
        let (prepared, seqno, key) = completion(request)?;
        Ok(Self {
            prepared,
            seqno,
            key,
        })
    }

    /// Appends the request.
    pub fn encode(&self, head: &DcpHeader, out: &mut Vec<u8>) {
        let seqnos = (self.prepared, self.seqno);
        encode_completion(Opcode::DcpAbort, (head, Cas(0)), seqnos, self.key, out);
    }
}

/// An acknowledgement that the consumer has every prepare of the vBucket up to a seqno, persisted where the level asks
/// for that. It gets no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeqnoAck {
    /// The seqno.
    pub prepared: Seqno,
}

impl SeqnoAck {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the extras are not eight bytes, or anything else is there.
    pub fn decode(request: &Request<'_>) -> Result<Self, Status> {
        extras_only(&[8]).check(request)?;
        Ok(Self {
            prepared: Seqno(FieldReader::new(request.extras).u64()?),
        })
    }

    /// Appends the request.
    pub fn encode(&self, head: &DcpHeader, out: &mut Vec<u8>) {
        let prepared = self.prepared.get().to_be_bytes();
        head.writer(Opcode::DcpSeqnoAcknowledged)
            .write(&prepared, &[], &[], out);
    }
}
