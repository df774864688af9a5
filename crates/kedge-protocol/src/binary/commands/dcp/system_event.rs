//! DCP_SYSTEM_EVENT: the creation and removal of collections and scopes.

use super::{DcpHeader, Extras};
use crate::binary::fields::{FieldReader, PartRule, RequestShape};
use crate::binary::{Opcode, Request};
use kedge_types::{CollectionId, Datatype, Seqno, Status};

/// The kind of the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum DcpSystemEventKind {
    /// A collection was created, or emptied by a flush.
    CollectionBegan = 0,
    /// A collection was dropped.
    CollectionDropped = 1,
    /// A scope was created.
    ScopeCreated = 3,
    /// A scope was dropped.
    ScopeDropped = 4,
    /// A property of a collection changed.
    CollectionModified = 5,
}

impl DcpSystemEventKind {
    const fn from_wire(kind: u32) -> Option<Self> {
        match kind {
            0 => Some(Self::CollectionBegan),
            1 => Some(Self::CollectionDropped),
            3 => Some(Self::ScopeCreated),
            4 => Some(Self::ScopeDropped),
            5 => Some(Self::CollectionModified),
            _ => None,
        }
    }
}

/// A change of the collections, with its seqno in the vBucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DcpSystemEvent<'a> {
    /// The seqno.
    pub seqno: Seqno,
    /// The kind.
    pub kind: DcpSystemEventKind,
    /// The layout version of the data.
    pub version: u8,
    /// The name of the collection or scope; empty if it was dropped.
    pub name: &'a [u8],
    /// Ids; [`SystemEventPayload::parse`] reads them.
    pub data: &'a [u8],
}

impl<'a> DcpSystemEvent<'a> {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the extras are not 13 bytes, the kind is undefined, or it has a CAS or datatype.
    pub fn decode(request: &Request<'a>) -> Result<Self, Status> {
        const SHAPE: RequestShape = RequestShape {
            extras: &[13],
            key: PartRule::Optional,
            value: PartRule::Optional,
            cas: PartRule::Forbidden,
            datatype: Datatype::RAW,
        };
        SHAPE.check(request)?;
        let mut extras = FieldReader::new(request.extras);
        Ok(Self {
            seqno: Seqno(extras.u64()?),
            kind: DcpSystemEventKind::from_wire(extras.u32()?).ok_or(Status::Invalid)?,
            version: extras.u8()?,
            name: request.key,
            data: request.value,
        })
    }

    /// Appends the request.
    pub fn encode(&self, head: &DcpHeader, out: &mut Vec<u8>) {
        let extras = Extras::<13>::new()
            .u64(self.seqno.get())
            .u32(self.kind as u32)
            .u8(self.version);
        head.writer(Opcode::DcpSystemEvent)
            .write(extras.bytes(), self.name, self.data, out);
    }
}

/// The data of versions 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemEventPayload {
    /// The uid of the manifest with the change.
    pub manifest_uid: u64,
    /// The scope.
    pub scope: u32,
    /// The collection, for an event about one.
    pub collection: Option<CollectionId>,
    /// The default expiry of its documents in seconds, in version 1 of an event about the creation of a collection.
    pub max_ttl: Option<u32>,
}

impl SystemEventPayload {
    /// Reads the data of an event.
    ///
    /// # Errors
    /// [`Status::NotSupported`] for another version or for an event that versions 0 and 1 do not have,
    /// [`Status::Invalid`] when the length does not fit.
    pub fn parse(event: &DcpSystemEvent<'_>) -> Result<Self, Status> {
        let is_scope = matches!(
            event.kind,
            DcpSystemEventKind::ScopeCreated | DcpSystemEventKind::ScopeDropped
        );
        if event.version > 1 || event.kind == DcpSystemEventKind::CollectionModified {
            return Err(Status::NotSupported);
        }
        let mut fields = FieldReader::new(event.data);
        let mut payload = Self {
            manifest_uid: fields.u64()?,
            scope: fields.u32()?,
            collection: None,
            max_ttl: None,
        };
        if !is_scope {
            payload.collection = Some(CollectionId(fields.u32()?));
        }
        if event.version == 1 && event.kind == DcpSystemEventKind::CollectionBegan {
            payload.max_ttl = Some(fields.u32()?);
        }
        fields.end(payload)
    }

    /// Appends the data to a buffer. An event with a default expiry has version 1, the others have version 0.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.manifest_uid.to_be_bytes());
        out.extend_from_slice(&self.scope.to_be_bytes());
        if let Some(collection) = self.collection {
            out.extend_from_slice(&collection.get().to_be_bytes());
        }
        if let Some(max_ttl) = self.max_ttl {
            out.extend_from_slice(&max_ttl.to_be_bytes());
        }
    }
}
