//! GET_META, GETQ_META; SET_WITH_META, ADD_WITH_META, DEL_WITH_META and their quiet forms.
//!
//! Layouts: Couchbase `docs/BinaryProtocol.md`, sections "Get Meta" and "Set With Meta".

use crate::binary::fields::{ALL_DATATYPES, FieldReader, PartRule, RequestShape};
use crate::binary::flags::flag_set;
use crate::binary::{Request, RequestWriter};
use kedge_types::{Cas, Datatype, RevSeqno, Status};

const GET: RequestShape = RequestShape {
    extras: &[0, 1],
    ..RequestShape::KEY_ONLY
};
const WITH_META: RequestShape = RequestShape {
    extras: &[24, 26, 28, 30],
    key: PartRule::Required,
    value: PartRule::Optional,
    cas: PartRule::Optional,
    datatype: ALL_DATATYPES,
};

/// The version of [`GetMetaReply`] that a client expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MetaVersion {
    /// All fields but the datatype.
    V1,
    /// All fields.
    V2,
}

/// A request for the metadata of a document or tombstone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetMeta<'a> {
    /// The version of the reply.
    pub version: MetaVersion,
    /// The document.
    pub key: &'a [u8],
}

impl<'a> GetMeta<'a> {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the extras are neither absent nor one byte up to 2, it has a value, a CAS or a
    /// datatype, or no key.
    pub fn decode(request: &Request<'a>) -> Result<Self, Status> {
        GET.check_document(request)?;
        let version = match request.extras {
            [] | [0 | 1] => MetaVersion::V1,
            [2] => MetaVersion::V2,
            _ => return Err(Status::Invalid),
        };
        Ok(Self {
            version,
            key: request.key,
        })
    }

    /// Appends the request.
    pub fn encode(&self, writer: &RequestWriter<'_>, out: &mut Vec<u8>) {
        let extras: &[u8] = match self.version {
            MetaVersion::V1 => &[],
            MetaVersion::V2 => &[2],
        };
        writer.write(extras, self.key, &[], out);
    }
}

/// The extras of the reply to GET_META. The header carries the document's CAS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetMetaReply {
    /// True if it is a tombstone.
    pub deleted: bool,
    /// The client's flags.
    pub flags: u32,
    /// Unix second of expiry, 0 for never; of the deletion, for a tombstone.
    pub expiry: u32,
    /// Revision.
    pub rev_seqno: RevSeqno,
    /// The datatype, only in version 2 of the reply.
    pub datatype: Option<Datatype>,
}

impl GetMetaReply {
    /// Appends the extras: 21 bytes with a datatype, else 20.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&u32::from(self.deleted).to_be_bytes());
        out.extend_from_slice(&self.flags.to_be_bytes());
        out.extend_from_slice(&self.expiry.to_be_bytes());
        out.extend_from_slice(&self.rev_seqno.get().to_be_bytes());
        if let Some(datatype) = self.datatype {
            out.push(datatype.bits());
        }
    }

    /// Reads the extras.
    ///
    /// # Errors
    /// [`Status::Invalid`] when they are not 20 or 21 bytes, or the datatype has undefined bits.
    pub fn decode(extras: &[u8]) -> Result<Self, Status> {
        let mut fields = FieldReader::new(extras);
        let deleted = fields.u32()? != 0;
        let flags = fields.u32()?;
        let expiry = fields.u32()?;
        let rev_seqno = RevSeqno(fields.u64()?);
        let datatype = if fields.is_empty() {
            None
        } else {
            Some(Datatype::from_bits(fields.u8()?).ok_or(Status::Invalid)?)
        };
        fields.end(Self {
            deleted,
            flags,
            expiry,
            rev_seqno,
            datatype,
        })
    }
}

/// Options of a with-meta command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WithMetaOptions(u32);

flag_set!(WithMetaOptions);

impl WithMetaOptions {
    /// Skips conflict resolution in buckets with custom resolution.
    pub const FORCE: Self = Self(1);
    /// Accepts the command in buckets with last-write-wins resolution, which require it.
    pub const FORCE_ACCEPT: Self = Self(2);
    /// Generates a new CAS instead of the given one; only together with [`Self::SKIP_CONFLICT_RESOLUTION`].
    pub const REGENERATE_CAS: Self = Self(4);
    /// Stores the document without conflict resolution.
    pub const SKIP_CONFLICT_RESOLUTION: Self = Self(8);
    /// Marks the deletion as an expiration.
    pub const IS_EXPIRATION: Self = Self(0x10);

    /// Returns the options with these bits.
    ///
    /// # Errors
    /// [`Status::Invalid`] for an undefined bit, and for [`Self::REGENERATE_CAS`] alone.
    pub const fn from_bits(bits: u32) -> Result<Self, Status> {
        let options = Self(bits);
        let lonely = options.contains(Self::REGENERATE_CAS)
            && !options.contains(Self::SKIP_CONFLICT_RESOLUTION);
        if bits & !0x1f != 0 || lonely {
            return Err(Status::Invalid);
        }
        Ok(options)
    }

    /// Returns the options with these bits in the form of MUTATE_WITH_META: there [`Self::REGENERATE_CAS`] needs no
    /// other bit, and 0x20 is [`Self::FORCE_ACCEPT`] as well.
    ///
    /// # Errors
    /// [`Status::Invalid`] for an undefined bit.
    pub const fn from_json(bits: u32) -> Result<Self, Status> {
        match bits & !0x3f {
            0 => Ok(Self(bits & 0x1f | (bits & 0x20) >> 4)),
            _ => Err(Status::Invalid),
        }
    }

    /// Returns the bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }
}

/// A document with its metadata, from a tool that copies it from elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WithMeta<'a> {
    /// The client's flags.
    pub flags: u32,
    /// Unix second of expiry; of the deletion, for a delete.
    pub expiry: u32,
    /// Revision.
    pub rev_seqno: RevSeqno,
    /// The new CAS of the document.
    pub cas: Cas,
    /// The CAS that the document must have now, 0 for any.
    pub expected_cas: Cas,
    /// Options.
    pub options: WithMetaOptions,
    /// The document.
    pub key: &'a [u8],
    /// The value, without the extended metadata that old clients append.
    pub value: &'a [u8],
    /// Datatype of the value.
    pub datatype: Datatype,
}

impl<'a> WithMeta<'a> {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the extras are not 24, 26, 28 or 30 bytes, an option is undefined, the extended
    /// metadata is longer than the value, or the key is missing.
    pub fn decode(request: &Request<'a>) -> Result<Self, Status> {
        WITH_META.check_document(request)?;
        let mut extras = FieldReader::new(request.extras);
        let flags = extras.u32()?;
        let expiry = extras.u32()?;
        let rev_seqno = RevSeqno(extras.u64()?);
        let cas = Cas(extras.u64()?);
        let options = if request.extras.len() >= 28 {
            WithMetaOptions::from_bits(extras.u32()?)?
        } else {
            WithMetaOptions::default()
        };
        let metadata_len = if extras.is_empty() { 0 } else { extras.u16()? };
        let value_len = request.value.len().checked_sub(usize::from(metadata_len));
        Ok(Self {
            flags,
            expiry,
            rev_seqno,
            cas,
            expected_cas: request.cas,
            options,
            key: request.key,
            value: &request.value[..value_len.ok_or(Status::Invalid)?],
            datatype: request.datatype(ALL_DATATYPES)?,
        })
    }

    /// Appends the request.
    pub fn encode(&self, writer: &RequestWriter<'_>, out: &mut Vec<u8>) {
        let mut extras = Vec::with_capacity(28);
        extras.extend_from_slice(&self.flags.to_be_bytes());
        extras.extend_from_slice(&self.expiry.to_be_bytes());
        extras.extend_from_slice(&self.rev_seqno.get().to_be_bytes());
        extras.extend_from_slice(&self.cas.get().to_be_bytes());
        extras.extend_from_slice(&self.options.bits().to_be_bytes());
        RequestWriter {
            cas: self.expected_cas,
            datatype: self.datatype,
            ..*writer
        }
        .write(&extras, self.key, self.value, out);
    }
}
