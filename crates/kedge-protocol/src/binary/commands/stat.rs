//! STAT: one reply per statistic, then one with neither key nor value.

use crate::binary::fields::{Part, Shape};
use crate::binary::{Request, RequestWriter, Response};
use kedge_types::{Datatype, Status};

const SHAPE: Shape = Shape {
    extras: &[0],
    key: Part::Optional,
    value: Part::Optional,
    cas: Part::Forbidden,
    datatype: Datatype::JSON,
};

/// Statistics to fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat<'a> {
    /// Name of the group and its arguments, separated by spaces; empty for the general ones.
    pub group: &'a [u8],
    /// Arguments as JSON, empty for none.
    pub arguments: &'a [u8],
}

impl<'a> Stat<'a> {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when it has extras, a CAS, or a value that is not marked as JSON. Whether the value really
    /// is JSON is left to whoever reads it.
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

    /// Appends one reply. With empty `name` and `value` it is the one that ends the list.
    pub fn write_reply(opcode: u8, opaque: u32, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        Response {
            key: name,
            value,
            ..Response::new(opcode, opaque, Status::Success)
        }
        .write(out);
    }
}
