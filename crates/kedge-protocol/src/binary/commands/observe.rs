//! OBSERVE and OBSERVE_SEQNO, which clients poll that check durability themselves.

use crate::binary::fields::{FieldReader, PartRule, RequestShape};
use crate::binary::{Request, RequestWriter};
use kedge_types::{Cas, Datatype, Seqno, Status, VbId, VbUuid};

/// A request for the state of keys.
#[derive(Clone, Copy, Debug)]
pub struct Observe<'a>(FieldReader<'a>);

/// One key of [`Observe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservedKey<'a> {
    /// The key's vBucket.
    pub vb: VbId,
    /// The key.
    pub key: &'a [u8],
}

fn next_key<'a>(fields: &mut FieldReader<'a>) -> Result<ObservedKey<'a>, Status> {
    let vb = VbId(fields.u16()?);
    let len = usize::from(fields.u16()?);
    let key = fields.take(len)?;
    Ok(ObservedKey { vb, key })
}

impl<'a> Observe<'a> {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the value is not a list of keys with at least one, a key is empty, or anything else
    /// is there.
    pub fn decode(request: &Request<'a>) -> Result<Self, Status> {
        const SHAPE: RequestShape = RequestShape {
            value: PartRule::Required,
            ..RequestShape::EMPTY
        };
        SHAPE.check(request)?;
        let mut fields = FieldReader::new(request.value);
        while !fields.is_empty() {
            if next_key(&mut fields)?.key.is_empty() {
                return Err(Status::Invalid);
            }
        }
        Ok(Self(FieldReader::new(request.value)))
    }

    /// Iterates over the keys.
    pub fn keys(self) -> impl Iterator<Item = ObservedKey<'a>> {
        let mut fields = self.0;
        std::iter::from_fn(move || next_key(&mut fields).ok())
    }

    /// Appends a request for `keys`.
    ///
    /// # Panics
    /// When a key is longer than 65,535 bytes.
    pub fn encode(keys: &[ObservedKey<'_>], writer: &RequestWriter<'_>, out: &mut Vec<u8>) {
        let mut value = Vec::new();
        for key in keys {
            push_observed(*key, &mut value);
        }
        writer.write(&[], &[], &value, out);
    }
}

fn push_observed(key: ObservedKey<'_>, out: &mut Vec<u8>) {
    let len = u16::try_from(key.key.len()).expect("a key fits its length field");
    out.extend_from_slice(&key.vb.get().to_be_bytes());
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(key.key);
}

/// The state of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum KeyState {
    /// The document is in memory only.
    NotPersisted = 0x00,
    /// The document is on disk.
    Persisted = 0x01,
    /// There is no document.
    NotFound = 0x80,
    /// The document is deleted, and the deletion is in memory only.
    DeletedNotPersisted = 0x81,
}

impl KeyState {
    const fn from_wire(state: u8) -> Option<Self> {
        match state {
            0x00 => Some(Self::NotPersisted),
            0x01 => Some(Self::Persisted),
            0x80 => Some(Self::NotFound),
            0x81 => Some(Self::DeletedNotPersisted),
            _ => None,
        }
    }
}

/// One entry of the value of a reply to OBSERVE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObserveReply<'a> {
    /// The key.
    pub key: ObservedKey<'a>,
    /// The state of the key.
    pub state: KeyState,
    /// Its CAS.
    pub cas: Cas,
}

impl<'a> ObserveReply<'a> {
    /// Appends the entry.
    ///
    /// # Panics
    /// When the key is longer than 65,535 bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        push_observed(self.key, out);
        out.push(self.state as u8);
        out.extend_from_slice(&self.cas.get().to_be_bytes());
    }

    /// Reads all entries of a value.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the value ends in the middle of an entry or a state is undefined.
    pub fn decode_all(value: &'a [u8]) -> Result<Vec<Self>, Status> {
        let mut fields = FieldReader::new(value);
        let mut entries = Vec::new();
        while !fields.is_empty() {
            entries.push(Self {
                key: next_key(&mut fields)?,
                state: KeyState::from_wire(fields.u8()?).ok_or(Status::Invalid)?,
                cas: Cas(fields.u64()?),
            });
        }
        Ok(entries)
    }
}

/// A request for the persisted seqno of a branch of a vBucket's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObserveSeqno {
    /// The branch, from the client's mutation token. An unknown branch is [`Status::KeyNotFound`].
    pub vb_uuid: VbUuid,
}

impl ObserveSeqno {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the value is not eight bytes, or it has extras, a key or a datatype.
    pub fn decode(request: &Request<'_>) -> Result<Self, Status> {
        const SHAPE: RequestShape = RequestShape {
            extras: &[0],
            key: PartRule::Forbidden,
            value: PartRule::Required,
            cas: PartRule::Optional,
            datatype: Datatype::RAW,
        };
        SHAPE.check(request)?;
        let mut value = FieldReader::new(request.value);
        let vb_uuid = VbUuid(value.u64()?);
        value.end(Self { vb_uuid })
    }

    /// Appends the request.
    pub fn encode(&self, writer: &RequestWriter<'_>, out: &mut Vec<u8>) {
        writer.write(&[], &[], &self.vb_uuid.get().to_be_bytes(), out);
    }
}

/// Value of the reply to OBSERVE_SEQNO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObserveSeqnoReply {
    /// The vBucket.
    pub vb: VbId,
    /// The current branch of history of the vBucket.
    pub vb_uuid: VbUuid,
    /// The last seqno on disk.
    pub persisted: Seqno,
    /// The last seqno.
    pub current: Seqno,
    /// The requested branch and its last seqno, if that is not the current branch. Changes after that seqno on the old
    /// branch are lost.
    pub failed_over: Option<(VbUuid, Seqno)>,
}

impl ObserveSeqnoReply {
    /// Appends the value: 27 bytes, or 43 after a failover.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.failed_over.is_some()));
        out.extend_from_slice(&self.vb.get().to_be_bytes());
        out.extend_from_slice(&self.vb_uuid.get().to_be_bytes());
        out.extend_from_slice(&self.persisted.get().to_be_bytes());
        out.extend_from_slice(&self.current.get().to_be_bytes());
        if let Some((old_uuid, last_seqno)) = self.failed_over {
            out.extend_from_slice(&old_uuid.get().to_be_bytes());
            out.extend_from_slice(&last_seqno.get().to_be_bytes());
        }
    }

    /// Reads the value.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the format byte is neither 0 nor 1, or the length does not fit it.
    pub fn decode(value: &[u8]) -> Result<Self, Status> {
        let mut fields = FieldReader::new(value);
        let format = fields.u8()?;
        let mut reply = Self {
            vb: VbId(fields.u16()?),
            vb_uuid: VbUuid(fields.u64()?),
            persisted: Seqno(fields.u64()?),
            current: Seqno(fields.u64()?),
            failed_over: None,
        };
        match format {
            0 => {}
            1 => reply.failed_over = Some((VbUuid(fields.u64()?), Seqno(fields.u64()?))),
            _ => return Err(Status::Invalid),
        }
        fields.end(reply)
    }
}
