//! GET_LOCKED and UNLOCK_KEY.

use crate::binary::fields::{FieldReader, PartRule, RequestShape};
use crate::binary::{Request, RequestWriter};
use kedge_types::{Cas, Status};

const LOCK: RequestShape = RequestShape {
    extras: &[0, 4],
    ..RequestShape::KEY_ONLY
};
const UNLOCK: RequestShape = RequestShape {
    cas: PartRule::Required,
    ..RequestShape::KEY_ONLY
};

/// A request to read and lock a document. The reply's CAS is the token that unlocks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetLocked<'a> {
    /// The duration of the lock in seconds, as the client gave it. 0, no value, and more than
    /// [`kedge_types::limits::LOCK_SECS_MAX`] stand for [`kedge_types::limits::LOCK_SECS_DEFAULT`].
    pub lock_secs: Option<u32>,
    /// The document.
    pub key: &'a [u8],
}

impl<'a> GetLocked<'a> {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the extras are neither absent nor four bytes, it has a value, a CAS or a datatype, or
    /// no key.
    pub fn decode(request: &Request<'a>) -> Result<Self, Status> {
        LOCK.check_document(request)?;
        let lock_secs = if request.extras.is_empty() {
            None
        } else {
            Some(FieldReader::new(request.extras).u32()?)
        };
        Ok(Self {
            lock_secs,
            key: request.key,
        })
    }

    /// Appends the request.
    pub fn encode(&self, writer: &RequestWriter<'_>, out: &mut Vec<u8>) {
        match self.lock_secs {
            Some(secs) => writer.write(&secs.to_be_bytes(), self.key, &[], out),
            None => writer.write(&[], self.key, &[], out),
        }
    }
}

/// A request to unlock a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unlock<'a> {
    /// The document.
    pub key: &'a [u8],
    /// The CAS that GET_LOCKED returned.
    pub cas: Cas,
}

impl<'a> Unlock<'a> {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when it has extras, a value or a datatype, or no key or CAS.
    pub fn decode(request: &Request<'a>) -> Result<Self, Status> {
        UNLOCK.check_document(request)?;
        Ok(Self {
            key: request.key,
            cas: request.cas,
        })
    }

    /// Appends the request.
    pub fn encode(&self, writer: &RequestWriter<'_>, out: &mut Vec<u8>) {
        RequestWriter {
            cas: self.cas,
            ..*writer
        }
        .write(&[], self.key, &[], out);
    }
}
