//! COLLECTIONS_GET_ID, COLLECTIONS_GET_SCOPE_ID, COLLECTIONS_GET_MANIFEST, COLLECTIONS_SET_MANIFEST.

use crate::binary::fields::{FieldReader, PartRule, RequestShape};
use crate::binary::{Request, RequestWriter};
use kedge_types::{CollectionId, Datatype, Status, VbId};

/// The shape of a request with a path in its value, or in its key as some older clients send it.
const PATH: RequestShape = RequestShape {
    extras: &[0],
    key: PartRule::Optional,
    value: PartRule::Optional,
    cas: PartRule::Forbidden,
    datatype: Datatype::RAW,
};

/// The name of the default scope and of the default collection.
const DEFAULT_NAME: &[u8] = b"_default";

fn path<'a>(request: &Request<'a>) -> Result<&'a [u8], Status> {
    PATH.check(request)?;
    let both = !request.key.is_empty() && !request.value.is_empty();
    if both || request.vb != VbId(0) {
        return Err(Status::Invalid);
    }
    Ok(if request.value.is_empty() {
        request.key
    } else {
        request.value
    })
}

const fn or_default(name: &[u8]) -> &[u8] {
    if name.is_empty() { DEFAULT_NAME } else { name }
}

/// A request for the id of a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetCollectionId<'a> {
    /// Name of the scope.
    pub scope: &'a [u8],
    /// Name of the collection.
    pub collection: &'a [u8],
}

impl<'a> GetCollectionId<'a> {
    /// Checks and reads the request: `scope.collection`, either part empty for `_default`.
    ///
    /// # Errors
    /// [`Status::Invalid`] when it has extras, a CAS or a datatype, both a key and a value, a vBucket other than 0,
    /// or a path that is not two names with a dot between them.
    pub fn decode(request: &Request<'a>) -> Result<Self, Status> {
        let path = path(request)?;
        let mut parts = path.splitn(3, |byte| *byte == b'.');
        match (parts.next(), parts.next(), parts.next()) {
            (Some(scope), Some(collection), None) => Ok(Self {
                scope: or_default(scope),
                collection: or_default(collection),
            }),
            _ => Err(Status::Invalid),
        }
    }

    /// Appends the request, with the path in the value.
    pub fn encode(&self, writer: &RequestWriter<'_>, out: &mut Vec<u8>) {
        let path = [self.scope, b".", self.collection].concat();
        writer.write(&[], &[], &path, out);
    }
}

/// A request for the id of a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetScopeId<'a> {
    /// Name of the scope.
    pub scope: &'a [u8],
}

impl<'a> GetScopeId<'a> {
    /// Checks and reads the request: the scope's name, empty for `_default`. Everything after a dot is ignored.
    ///
    /// # Errors
    /// [`Status::Invalid`] when it has extras, a CAS or a datatype, both a key and a value, a vBucket other than 0,
    /// or a path with more than one dot.
    pub fn decode(request: &Request<'a>) -> Result<Self, Status> {
        let path = path(request)?;
        let mut parts = path.splitn(3, |byte| *byte == b'.');
        match (parts.next(), parts.next(), parts.next()) {
            (Some(scope), _, None) => Ok(Self {
                scope: or_default(scope),
            }),
            _ => Err(Status::Invalid),
        }
    }

    /// Appends the request, with the path in the value.
    pub fn encode(&self, writer: &RequestWriter<'_>, out: &mut Vec<u8>) {
        writer.write(&[], &[], self.scope, out);
    }
}

fn encode_id(manifest_uid: u64, id: u32) -> [u8; 12] {
    let mut extras = [0; 12];
    extras[..8].copy_from_slice(&manifest_uid.to_be_bytes());
    extras[8..].copy_from_slice(&id.to_be_bytes());
    extras
}

/// Extras of the reply to COLLECTIONS_GET_ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectionIdReply {
    /// The uid of the manifest that the id was looked up in.
    pub manifest_uid: u64,
    /// The collection's id.
    pub collection: CollectionId,
}

impl CollectionIdReply {
    /// Encodes the extras.
    #[must_use]
    pub fn encode(self) -> [u8; 12] {
        encode_id(self.manifest_uid, self.collection.get())
    }

    /// Reads the extras.
    ///
    /// # Errors
    /// [`Status::Invalid`] when they are not twelve bytes.
    pub fn decode(extras: &[u8]) -> Result<Self, Status> {
        let mut fields = FieldReader::new(extras);
        let manifest_uid = fields.u64()?;
        let collection = CollectionId(fields.u32()?);
        fields.end(Self {
            manifest_uid,
            collection,
        })
    }
}

/// Extras of the reply to COLLECTIONS_GET_SCOPE_ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScopeIdReply {
    /// The uid of the manifest that the id was looked up in.
    pub manifest_uid: u64,
    /// The scope's id.
    pub scope: u32,
}

impl ScopeIdReply {
    /// Encodes the extras.
    #[must_use]
    pub fn encode(self) -> [u8; 12] {
        encode_id(self.manifest_uid, self.scope)
    }

    /// Reads the extras.
    ///
    /// # Errors
    /// [`Status::Invalid`] when they are not twelve bytes.
    pub fn decode(extras: &[u8]) -> Result<Self, Status> {
        let mut fields = FieldReader::new(extras);
        let manifest_uid = fields.u64()?;
        let scope = fields.u32()?;
        fields.end(Self {
            manifest_uid,
            scope,
        })
    }
}

/// A request for the manifest. The reply's value is its JSON text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetManifest;

impl GetManifest {
    /// Checks the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when anything but the header is there, or the vBucket is not 0.
    pub fn decode(request: &Request<'_>) -> Result<Self, Status> {
        RequestShape::EMPTY.check(request)?;
        if request.vb != VbId(0) {
            return Err(Status::Invalid);
        }
        Ok(Self)
    }

    /// Appends the request.
    pub fn encode(&self, writer: &RequestWriter<'_>, out: &mut Vec<u8>) {
        writer.write(&[], &[], &[], out);
    }
}

/// A manifest to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetManifest<'a> {
    /// The JSON text of the manifest, not yet parsed.
    pub manifest: &'a [u8],
}

impl<'a> SetManifest<'a> {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the value is missing, anything else is there, or the vBucket is not 0.
    pub fn decode(request: &Request<'a>) -> Result<Self, Status> {
        const SHAPE: RequestShape = RequestShape {
            value: PartRule::Required,
            ..RequestShape::EMPTY
        };
        SHAPE.check(request)?;
        if request.vb != VbId(0) {
            return Err(Status::Invalid);
        }
        Ok(Self {
            manifest: request.value,
        })
    }

    /// Appends the request.
    pub fn encode(&self, writer: &RequestWriter<'_>, out: &mut Vec<u8>) {
        writer.write(&[], &[], self.manifest, out);
    }
}
