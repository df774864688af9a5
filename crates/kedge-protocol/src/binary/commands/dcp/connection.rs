//! DCP_OPEN, DCP_CONTROL and DCP_BUFFER_ACKNOWLEDGEMENT: the messages about a whole connection.

use super::{DcpHeader, Extras, extras_only};
use crate::binary::fields::{FieldReader, PartRule, RequestShape};
use crate::binary::flags::flag_set;
use crate::binary::{Opcode, Request};
use kedge_types::limits::DCP_NAME_BYTES_MAX;
use kedge_types::{Datatype, Status};
use serde::{Deserialize, Serialize};

/// Flags of DCP_OPEN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenFlags(pub u32);

flag_set!(OpenFlags);

impl OpenFlags {
    /// The receiver of the request is the producer. Without this flag, it is the consumer.
    pub const PRODUCER: Self = Self(0x1);
    /// The consumer wants extended attributes.
    pub const XATTRS: Self = Self(0x4);
    /// The consumer wants no values; the datatype is that of the sent document.
    pub const NO_VALUE: Self = Self(0x8);
    /// Deletions carry the time of the deletion.
    pub const DELETE_TIMES: Self = Self(0x20);
    /// The consumer wants no values; the datatype is that of the stored value.
    pub const NO_VALUE_WITH_DATATYPE: Self = Self(0x40);
    /// Deletions keep the user's extended attributes.
    pub const DELETED_USER_XATTRS: Self = Self(0x100);
    /// The initial backfill leaves out deletions.
    pub const SKIP_DELETES: Self = Self(0x200);

    /// Returns these flags without those of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// A request to turn the connection into a DCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DcpOpen<'a> {
    /// The flags of the connection.
    pub flags: OpenFlags,
    /// The name of the connection, 1 to [`DCP_NAME_BYTES_MAX`] bytes. A second connection with the same name ends the
    /// first.
    pub name: &'a [u8],
    /// Further properties as JSON; may be empty. [`DcpOpen::consumer_name`] reads it.
    pub value: &'a [u8],
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct OpenValue {
    #[serde(skip_serializing_if = "Option::is_none")]
    consumer_name: Option<String>,
}

impl<'a> DcpOpen<'a> {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the extras are not eight bytes, the name is empty or too long, or anything else is there.
    pub fn decode(request: &Request<'a>) -> Result<Self, Status> {
        const SHAPE: RequestShape = RequestShape {
            extras: &[8],
            key: PartRule::Required,
            value: PartRule::Optional,
            cas: PartRule::Forbidden,
            datatype: Datatype::JSON,
        };
        SHAPE.check(request)?;
        let mut extras = FieldReader::new(request.extras);
        // The first field was a seqno once and is ignored.
        extras.u32()?;
        if request.key.len() > DCP_NAME_BYTES_MAX {
            return Err(Status::Invalid);
        }
        Ok(Self {
            flags: OpenFlags(extras.u32()?),
            name: request.key,
            value: request.value,
        })
    }

    /// Appends the request.
    pub fn encode(&self, head: &DcpHeader, out: &mut Vec<u8>) {
        let extras = Extras::<8>::new().u32(0).u32(self.flags.0);
        let mut writer = head.writer(Opcode::DcpOpen);
        if !self.value.is_empty() {
            writer.datatype = Datatype::JSON;
        }
        writer.write(extras.bytes(), self.name, self.value, out);
    }

    /// Returns the consumer's name in the topology of vBuckets, if the value has one.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the value is not a JSON object with that member.
    pub fn consumer_name(&self) -> Result<Option<String>, Status> {
        if self.value.is_empty() {
            return Ok(None);
        }
        serde_json::from_slice(self.value)
            .map(|value: OpenValue| value.consumer_name)
            .map_err(|_| Status::Invalid)
    }

    /// Encodes a value with the consumer's name.
    #[must_use]
    pub fn consumer_name_value(name: &str) -> Vec<u8> {
        let value = OpenValue {
            consumer_name: Some(name.to_owned()),
        };
        serde_json::to_vec(&value).expect("a string is JSON")
    }
}

/// A request to set a property of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DcpControl<'a> {
    /// The name of the property.
    pub key: &'a [u8],
    /// The new value of the property, as text.
    pub value: &'a [u8],
}

impl<'a> DcpControl<'a> {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when key or value is empty, or anything else is there.
    pub fn decode(request: &Request<'a>) -> Result<Self, Status> {
        const SHAPE: RequestShape = RequestShape {
            value: PartRule::Required,
            ..RequestShape::KEY_ONLY
        };
        SHAPE.check(request)?;
        Ok(Self {
            key: request.key,
            value: request.value,
        })
    }

    /// Appends the request.
    pub fn encode(&self, head: &DcpHeader, out: &mut Vec<u8>) {
        head.writer(Opcode::DcpControl)
            .write(&[], self.key, self.value, out);
    }
}

/// An acknowledgement that the consumer has processed bytes of its streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferAck {
    /// The number of processed bytes, counted in whole frames with their headers.
    pub bytes: u32,
}

impl BufferAck {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the extras are not four bytes, or anything else is there.
    pub fn decode(request: &Request<'_>) -> Result<Self, Status> {
        extras_only(&[4]).check(request)?;
        Ok(Self {
            bytes: FieldReader::new(request.extras).u32()?,
        })
    }

    /// Appends the request.
    pub fn encode(&self, head: &DcpHeader, out: &mut Vec<u8>) {
        head.writer(Opcode::DcpBufferAcknowledgement).write(
            &self.bytes.to_be_bytes(),
            &[],
            &[],
            out,
        );
    }
}
