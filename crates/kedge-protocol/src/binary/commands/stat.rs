//! STAT: one reply per statistic, then one without key and value.

use crate::binary::fields::{PartRule, RequestShape};
use crate::binary::{Request, RequestWriter, Response};
use kedge_types::{Datatype, Status};

const SHAPE: RequestShape = RequestShape {
    extras: &[0],
    key: PartRule::Optional,
    value: PartRule::Optional,
    cas: PartRule::Forbidden,
    datatype: Datatype::JSON,
};

/// A request for statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat<'a> {
    /// The name of the group and its arguments, separated by spaces; empty for the general group.
    pub group: &'a [u8],
    /// The arguments as JSON, empty for none.
    pub arguments: &'a [u8],
}

impl<'a> Stat<'a> {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when it has extras, a CAS, or a value that is not marked as JSON. The JSON itself is checked
    /// by its reader.
    pub fn decode(request: &Request<'a>) -> Result<Self, Status> {
        SHAPE.check(request)?;
        let marked = request.datatype & Datatype::JSON.bits() != 0;
        if !request.value.is_empty() && !marked {
            return Err(Status::Invalid);
        }
        Ok(Self {
            group: request.key,
            arguments: request.value,
        })
    }

    /// Appends the request.
    pub fn encode(&self, writer: &RequestWriter<'_>, out: &mut Vec<u8>) {
        let datatype = if self.arguments.is_empty() {
            Datatype::RAW
        } else {
            Datatype::JSON
        };
        RequestWriter {
            datatype,
            ..*writer
        }
        .write(&[], self.group, self.arguments, out);
    }

    /// Appends one reply. The reply with empty `name` and `value` ends the list.
    pub fn write_reply(opcode: u8, opaque: u32, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        Response {
            key: name,
            value,
            ..Response::new(opcode, opaque, Status::Success)
        }
        .write(out);
    }
}
