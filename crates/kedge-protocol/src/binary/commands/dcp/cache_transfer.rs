//! DCP_CACHE_TRANSFER: documents in the sender's memory, which the receiver takes into its own.

use super::{DcpHeader, Extras};
use crate::binary::fields::{FieldReader, PartRule, RequestShape};
use crate::binary::{Opcode, Request};
use kedge_types::{Cas, Datatype, Expiry, RevSeqno, Seqno, Status};

/// A batch of documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheTransfer<'a> {
    records: &'a [u8],
}

/// A document of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedDocument<'a> {
    /// Version.
    pub cas: Cas,
    /// The seqno of the change.
    pub seqno: Seqno,
    /// The revision number of the document.
    pub rev: RevSeqno,
    /// The client's flags.
    pub flags: u32,
    /// The expiry.
    pub expiry: Expiry,
    /// The datatype of the value.
    pub datatype: Datatype,
    /// The access frequency counter of the document.
    pub frequency: u8,
    /// Key.
    pub key: &'a [u8],
    /// Value.
    pub value: &'a [u8],
}

impl<'a> CachedDocument<'a> {
    fn next(fields: &mut FieldReader<'a>) -> Result<Self, Status> {
        let (cas, seqno) = (Cas(fields.u64()?), Seqno(fields.u64()?));
        let rev = RevSeqno(fields.u64()?);
        let value_len = fields.u32()? as usize;
        let (flags, expiry) = (fields.u32()?, Expiry(fields.u32()?));
        let key_len = usize::from(fields.u16()?);
        let datatype = Datatype::from_bits(fields.u8()?).ok_or(Status::Invalid)?;
        let frequency = fields.u8()?;
        let key = fields.take(key_len)?;
        if key.is_empty() {
            return Err(Status::Invalid);
        }
        Ok(Self {
            cas,
            seqno,
            rev,
            flags,
            expiry,
            datatype,
            frequency,
            key,
            value: fields.take(value_len)?,
        })
    }

    /// Appends the record to a batch.
    ///
    /// # Panics
    /// When the key is longer than 65,535 bytes or the value than 4 GiB.
    pub fn encode(&self, batch: &mut Vec<u8>) {
        let key_len = u16::try_from(self.key.len()).expect("a key fits its length field");
        let value_len = u32::try_from(self.value.len()).expect("a value fits its length field");
        let fixed = Extras::<40>::new()
            .u64(self.cas.get())
            .u64(self.seqno.get())
            .u64(self.rev.get())
            .u32(value_len)
            .u32(self.flags)
            .u32(self.expiry.0)
            .u16(key_len)
            .u8(self.datatype.bits())
            .u8(self.frequency);
        batch.extend_from_slice(fixed.bytes());
        batch.extend_from_slice(self.key);
        batch.extend_from_slice(self.value);
    }
}

impl<'a> CacheTransfer<'a> {
    /// Creates a batch from records that [`CachedDocument::encode`] wrote.
    #[must_use]
    pub const fn of_records(records: &'a [u8]) -> Self {
        Self { records }
    }

    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the value is not a list of records with at least one, or anything else is there.
    pub fn decode(request: &Request<'a>) -> Result<Self, Status> {
        const SHAPE: RequestShape = RequestShape {
            value: PartRule::Required,
            ..RequestShape::EMPTY
        };
        SHAPE.check(request)?;
        let mut fields = FieldReader::new(request.value);
        while !fields.is_empty() {
            CachedDocument::next(&mut fields)?;
        }
        Ok(Self {
            records: request.value,
        })
    }

    /// Iterates over the documents.
    pub fn documents(self) -> impl Iterator<Item = CachedDocument<'a>> {
        let mut fields = FieldReader::new(self.records);
        std::iter::from_fn(move || CachedDocument::next(&mut fields).ok())
    }

    /// Appends the request.
    pub fn encode(&self, head: &DcpHeader, out: &mut Vec<u8>) {
        head.writer(Opcode::DcpCacheTransfer)
            .write(&[], &[], self.records, out);
    }
}
