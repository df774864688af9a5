//! NOOP, VERSION, QUIT, QUITQ, SASL_LIST_MECHS, which have only a header; VERBOSITY; GET_CMD_TIMER.

use crate::binary::fields::{FieldReader, PartRule, RequestShape};
use crate::binary::{Request, RequestWriter};
use kedge_types::Status;

/// A request that has only a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderOnly;

impl HeaderOnly {
    /// Checks the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when anything but the header is there, or it has a CAS or datatype.
    pub fn decode(request: &Request<'_>) -> Result<Self, Status> {
        RequestShape::EMPTY.check(request)?;
        Ok(Self)
    }

    /// Appends the request.
    pub fn encode(&self, writer: &RequestWriter<'_>, out: &mut Vec<u8>) {
        writer.write(&[], &[], &[], out);
    }
}

/// A request to set the log level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verbosity {
    /// The level.
    pub level: u32,
}

impl Verbosity {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the extras are not four bytes, or anything else is there.
    pub fn decode(request: &Request<'_>) -> Result<Self, Status> {
        const SHAPE: RequestShape = RequestShape {
            extras: &[4],
            key: PartRule::Forbidden,
            ..RequestShape::KEY_ONLY
        };
        SHAPE.check(request)?;
        Ok(Self {
            level: FieldReader::new(request.extras).u32()?,
        })
    }

    /// Appends the request.
    pub fn encode(&self, writer: &RequestWriter<'_>, out: &mut Vec<u8>) {
        writer.write(&self.level.to_be_bytes(), &[], &[], out);
    }
}

/// A request for a latency histogram. The reply's value is JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetCmdTimer<'a> {
    /// The opcode of the command of the histogram.
    pub opcode: u8,
    /// The bucket: empty for the selected one, [`GetCmdTimer::ALL_BUCKETS`] for the sum of all.
    pub bucket: &'a [u8],
}

impl<'a> GetCmdTimer<'a> {
    /// The name that stands for all buckets.
    pub const ALL_BUCKETS: &'static [u8] = b"/all/";

    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the extras are not one byte, or it has a value, a CAS or a datatype.
    pub fn decode(request: &Request<'a>) -> Result<Self, Status> {
        const SHAPE: RequestShape = RequestShape {
            extras: &[1],
            key: PartRule::Optional,
            ..RequestShape::KEY_ONLY
        };
        SHAPE.check(request)?;
        Ok(Self {
            opcode: FieldReader::new(request.extras).u8()?,
            bucket: request.key,
        })
    }

    /// Appends the request.
    pub fn encode(&self, writer: &RequestWriter<'_>, out: &mut Vec<u8>) {
        writer.write(&[self.opcode], self.bucket, &[], out);
    }
}
