//! OBSERVE and OBSERVE_SEQNO: what clients poll that look after durability themselves.

use crate::binary::fields::{Fields, Part, Shape};
use crate::binary::{Request, RequestWriter};
use kedge_types::{Cas, Datatype, Seqno, Status, VbId, VbUuid};

/// Keys whose state to look up.
#[derive(Clone, Copy, Debug)]
pub struct Observe<'a>(Fields<'a>);

/// One key of [`Observe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservedKey<'a> {
    /// The key's vBucket.
    pub vb: VbId,
    /// The key.
    pub key: &'a [u8],
}

fn next_key<'a>(fields: &mut Fields<'a>) -> Result<ObservedKey<'a>, Status> {
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
        const SHAPE: Shape = Shape {
            value: Part::Required,
            ..Shape::EMPTY
        };
        SHAPE.check(request)?;
        let mut fields = Fields::new(request.value);
        while !fields.is_empty() {
            if next_key(&mut fields)?.key.is_empty() {
                return Err(Status::Invalid);
            }
        }
        Ok(Self(Fields::new(request.value)))
    }

    /// The keys.
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

/// Where a key stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum KeyState {
    /// In memory only.
    NotPersisted = 0x00,
    /// On disk.
    Persisted = 0x01,
    /// Not there.
    NotFound = 0x80,
    /// Deleted, and the deletion is in memory only.
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
    /// Where it stands.
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
    /// [`Status::Invalid`] when the value ends in the middle of an entry or a state has no meaning.
    pub fn decode_all(value: &'a [u8]) -> Result<Vec<Self>, Status> {
        let mut fields = Fields::new(value);
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

/// Asks how far a branch of a vBucket's history is persisted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObserveSeqno {
    /// The branch, as the client's mutation token names it. One that never was is [`Status::KeyNotFound`].
    pub vb_uuid: VbUuid,
}

impl ObserveSeqno {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the value is not eight bytes, or it has extras, a key or a datatype.
    pub fn decode(request: &Request<'_>) -> Result<Self, Status> {
        const SHAPE: Shape = Shape {
            extras: &[0],
            key: Part::Forbidden,
            value: Part::Required,
            cas: Part::Optional,
            datatype: Datatype::RAW,
        };
        SHAPE.check(request)?;
        let mut value = Fields::new(request.value);
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
    /// The branch of history that it is on now.
    pub vb_uuid: VbUuid,
    /// The last seqno on disk.
    pub persisted: Seqno,
    /// The last seqno.
    pub current: Seqno,
    /// When that is not the branch asked for: the one asked for, and its last seqno. What came after that seqno on
    /// the old branch is lost.
    pub failed_over: Option<(VbUuid, Seqno)>,
}

impl ObserveSeqnoReply {
    /// Appends the value: 27 bytes, 43 after a failover.
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
        let mut fields = Fields::new(value);
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
