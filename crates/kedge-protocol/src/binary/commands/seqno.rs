//! GET_ALL_VB_SEQNOS, SEQNO_PERSISTENCE and GET_FAILOVER_LOG (a [`super::HeaderOnly`] request with a vBucket).

use crate::binary::fields::{FieldReader, RequestShape};
use crate::binary::{Request, RequestWriter};
use kedge_types::{CollectionId, Seqno, Status, VbId, VbUuid};

/// The vBucket states that GET_ALL_VB_SEQNOS lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum VbStateFilter {
    /// Active, replica and pending vBuckets.
    #[default]
    Alive = 0,
    /// Active vBuckets.
    Active = 1,
    /// Replicas.
    Replica = 2,
    /// Pending vBuckets.
    Pending = 3,
    /// Dead vBuckets.
    Dead = 4,
}

impl VbStateFilter {
    const fn from_wire(state: u32) -> Option<Self> {
        match state {
            0 => Some(Self::Alive),
            1 => Some(Self::Active),
            2 => Some(Self::Replica),
            3 => Some(Self::Pending),
            4 => Some(Self::Dead),
            _ => None,
        }
    }
}

/// A request for the high seqno of every vBucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetAllVbSeqnos {
    /// The states to list; `None` if the client gave none, which means the same as [`VbStateFilter::Alive`].
    pub state: Option<VbStateFilter>,
    /// The collection to report; needs a state.
    pub collection: Option<CollectionId>,
}

impl GetAllVbSeqnos {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the extras are not 0, 4 or 8 bytes, the state is undefined, or anything else is there.
    pub fn decode(request: &Request<'_>) -> Result<Self, Status> {
        const SHAPE: RequestShape = RequestShape {
            extras: &[0, 4, 8],
            ..RequestShape::EMPTY
        };
        SHAPE.check(request)?;
        let mut extras = FieldReader::new(request.extras);
        let mut decoded = Self {
            state: None,
            collection: None,
        };
        if !extras.is_empty() {
            let state = VbStateFilter::from_wire(extras.u32()?);
            decoded.state = Some(state.ok_or(Status::Invalid)?);
        }
        if !extras.is_empty() {
            decoded.collection = Some(CollectionId(extras.u32()?));
        }
        Ok(decoded)
    }

    /// Appends the request.
    pub fn encode(&self, writer: &RequestWriter<'_>, out: &mut Vec<u8>) {
        let mut extras = Vec::with_capacity(8);
        if self.state.is_some() || self.collection.is_some() {
            let state = self.state.unwrap_or_default() as u32;
            extras.extend_from_slice(&state.to_be_bytes());
        }
        if let Some(collection) = self.collection {
            extras.extend_from_slice(&collection.get().to_be_bytes());
        }
        writer.write(&extras, &[], &[], out);
    }
}

/// Appends one vBucket to the value of a reply to GET_ALL_VB_SEQNOS.
pub fn push_vb_seqno(vb: VbId, seqno: Seqno, out: &mut Vec<u8>) {
    out.extend_from_slice(&vb.get().to_be_bytes());
    out.extend_from_slice(&seqno.get().to_be_bytes());
}

/// Reads the value of a reply to GET_ALL_VB_SEQNOS.
///
/// # Errors
/// [`Status::Invalid`] when it ends in the middle of an entry.
pub fn decode_vb_seqnos(value: &[u8]) -> Result<Vec<(VbId, Seqno)>, Status> {
    let mut fields = FieldReader::new(value);
    let mut seqnos = Vec::new();
    while !fields.is_empty() {
        seqnos.push((VbId(fields.u16()?), Seqno(fields.u64()?)));
    }
    Ok(seqnos)
}

/// A request that waits until a vBucket is persisted up to a seqno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeqnoPersistence {
    /// The seqno.
    pub seqno: Seqno,
}

impl SeqnoPersistence {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the extras are not eight bytes, or anything else is there.
    pub fn decode(request: &Request<'_>) -> Result<Self, Status> {
        const SHAPE: RequestShape = RequestShape {
            extras: &[8],
            ..RequestShape::EMPTY
        };
        SHAPE.check(request)?;
        Ok(Self {
            seqno: Seqno(FieldReader::new(request.extras).u64()?),
        })
    }

    /// Appends the request.
    pub fn encode(&self, writer: &RequestWriter<'_>, out: &mut Vec<u8>) {
        writer.write(&self.seqno.get().to_be_bytes(), &[], &[], out);
    }
}

/// One branch of a vBucket's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailoverEntry {
    /// The vBucket uuid of the branch.
    pub vb_uuid: VbUuid,
    /// The seqno after which the branch began.
    pub seqno: Seqno,
}

/// Appends an entry to a failover log; the newest entry comes first.
pub fn push_failover_entry(entry: FailoverEntry, out: &mut Vec<u8>) {
    out.extend_from_slice(&entry.vb_uuid.get().to_be_bytes());
    out.extend_from_slice(&entry.seqno.get().to_be_bytes());
}

/// Reads a failover log.
///
/// # Errors
/// [`Status::Invalid`] when it ends in the middle of an entry.
pub fn decode_failover_log(value: &[u8]) -> Result<Vec<FailoverEntry>, Status> {
    let mut fields = FieldReader::new(value);
    let mut log = Vec::new();
    while !fields.is_empty() {
        log.push(FailoverEntry {
            vb_uuid: VbUuid(fields.u64()?),
            seqno: Seqno(fields.u64()?),
        });
    }
    Ok(log)
}
