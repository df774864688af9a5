//! GET_CLUSTER_CONFIG, GET_ERROR_MAP, SELECT_BUCKET.

use crate::binary::fields::{FieldReader, PartRule, RequestShape};
use crate::binary::{Request, RequestWriter};
use kedge_types::{Datatype, Status, VbId};

/// A request for the cluster map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetClusterConfig {
    /// The epoch and revision that the client has. If the server's map is not newer, the reply is success without a
    /// value.
    pub known: Option<(i64, i64)>,
}

impl GetClusterConfig {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the extras are neither absent nor sixteen bytes, or anything else is there.
    pub fn decode(request: &Request<'_>) -> Result<Self, Status> {
        const SHAPE: RequestShape = RequestShape {
            extras: &[0, 16],
            ..RequestShape::EMPTY
        };
        SHAPE.check(request)?;
        let known = if request.extras.is_empty() {
            None
        } else {
            // Any revision is accepted, also the 0 or -1 of a client that has no map yet.
            let mut extras = FieldReader::new(request.extras);
            Some((extras.i64()?, extras.i64()?))
        };
        Ok(Self { known })
    }

    /// Appends the request.
    pub fn encode(&self, writer: &RequestWriter<'_>, out: &mut Vec<u8>) {
        let Some((epoch, rev)) = self.known else {
            return writer.write(&[], &[], &[], out);
        };
        let mut extras = [0; 16];
        extras[..8].copy_from_slice(&epoch.to_be_bytes());
        extras[8..].copy_from_slice(&rev.to_be_bytes());
        writer.write(&extras, &[], &[], out);
    }
}

/// A request for the error map; see [`crate::binary::error_map`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetErrorMap {
    /// The newest version that the client understands.
    pub version: u16,
}

impl GetErrorMap {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the value is not two bytes, anything else is there, or the vBucket is not 0.
    pub fn decode(request: &Request<'_>) -> Result<Self, Status> {
        const SHAPE: RequestShape = RequestShape {
            value: PartRule::Required,
            ..RequestShape::EMPTY
        };
        SHAPE.check(request)?;
        if request.vb != VbId(0) {
            return Err(Status::Invalid);
        }
        let mut value = FieldReader::new(request.value);
        let version = value.u16()?;
        value.end(Self { version })
    }

    /// Appends the request.
    pub fn encode(&self, writer: &RequestWriter<'_>, out: &mut Vec<u8>) {
        writer.write(&[], &[], &self.version.to_be_bytes(), out);
    }
}

/// A request to select a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelectBucket<'a> {
    /// The name of the bucket; `@no bucket@` ([`SelectBucket::NO_BUCKET`]) deselects the current one.
    pub name: &'a [u8],
}

impl<'a> SelectBucket<'a> {
    /// The name that stands for no bucket.
    pub const NO_BUCKET: &'static [u8] = b"@no bucket@";

    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when it has extras, a value or a datatype. An empty or over-long name is no error here: the
    /// caller finds no bucket of that name.
    pub fn decode(request: &Request<'a>) -> Result<Self, Status> {
        const SHAPE: RequestShape = RequestShape {
            extras: &[0],
            key: PartRule::Optional,
            value: PartRule::Forbidden,
            cas: PartRule::Optional,
            datatype: Datatype::RAW,
        };
        SHAPE.check(request)?;
        Ok(Self { name: request.key })
    }

    /// Appends the request.
    pub fn encode(&self, writer: &RequestWriter<'_>, out: &mut Vec<u8>) {
        writer.write(&[], self.name, &[], out);
    }
}
