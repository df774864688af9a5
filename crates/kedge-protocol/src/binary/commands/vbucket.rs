//! SET_VBUCKET and DEL_VBUCKET.

use crate::binary::fields::{Fields, Part, Shape};
use crate::binary::{Request, RequestWriter};
use kedge_types::{Datatype, Status};

/// Gives the request's vBucket a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetVbucket<'a> {
    /// The state: 1 active, 2 replica, 3 pending, 4 dead.
    pub state: u8,
    /// More about it, as JSON; may be empty.
    pub details: &'a [u8],
}

impl<'a> SetVbucket<'a> {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the extras are not one byte from 1 to 4, there is a value that is not said to be JSON, or
    /// anything else is there.
    pub fn decode(request: &Request<'a>) -> Result<Self, Status> {
        const SHAPE: Shape = Shape {
            extras: &[1],
            value: Part::Optional,
            datatype: Datatype::JSON,
            ..Shape::EMPTY
        };
        SHAPE.check(request)?;
        let state = Fields::new(request.extras).u8()?;
        let is_json = request.datatype == Datatype::JSON.bits();
        if !(1..=4).contains(&state) || is_json == request.value.is_empty() {
            return Err(Status::Invalid);
        }
        Ok(Self {
            state,
            details: request.value,
        })
    }

    /// Appends the request.
    pub fn encode(&self, writer: &RequestWriter<'_>, out: &mut Vec<u8>) {
        let datatype = if self.details.is_empty() {
            Datatype::RAW
        } else {
            Datatype::JSON
        };
        let writer = RequestWriter {
            datatype,
            ..*writer
        };
        writer.write(&[self.state], &[], self.details, out);
    }
}

/// Deletes the request's vBucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelVbucket {
    /// The answer comes when the vBucket is gone from the disk, and not before.
    pub waits: bool,
}

impl DelVbucket {
    const WAITS: &'static [u8] = b"async=0";

    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the value is neither empty nor `async=0`, or anything else is there.
    pub fn decode(request: &Request<'_>) -> Result<Self, Status> {
        const SHAPE: Shape = Shape {
            value: Part::Optional,
            ..Shape::EMPTY
        };
        SHAPE.check(request)?;
        match request.value {
            b"" => Ok(Self { waits: false }),
            Self::WAITS => Ok(Self { waits: true }),
            _ => Err(Status::Invalid),
        }
    }

    /// Appends the request.
    pub fn encode(&self, writer: &RequestWriter<'_>, out: &mut Vec<u8>) {
        let value = if self.waits { Self::WAITS } else { b"" };
        writer.write(&[], &[], value, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binary::{Opcode, Parse, parse_frame};

    fn with<T>(bytes: &[u8], read: impl FnOnce(&Request<'_>) -> T) -> T {
        match parse_frame(bytes, 1 << 10) {
            Parse::Frame { request, .. } => read(&request),
            other => panic!("{other:?}"),
        }
    }

    fn frame(opcode: Opcode, extras: &[u8], value: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        RequestWriter::new(opcode).write(extras, &[], value, &mut bytes);
        bytes
    }

    #[test]
    fn a_state_comes_back_and_nothing_else_is_taken_for_one() {
        let json = br#"{"topology":[["n1"]]}"#;
        for (state, details) in [(1, json.as_slice()), (2, b""), (4, b"")] {
            let set = SetVbucket { state, details };
            let mut bytes = Vec::new();
            set.encode(&RequestWriter::new(Opcode::SetVbucket), &mut bytes);
            with(&bytes, |request| {
                assert_eq!(SetVbucket::decode(request), Ok(set));
            });
        }
        let not_json = frame(Opcode::SetVbucket, &[1], json);
        let refused = with(&not_json, |request| SetVbucket::decode(request).err());
        assert_eq!(refused, Some(Status::Invalid));
        for extras in [[].as_slice(), &[0], &[5], &[1, 1]] {
            let bytes = frame(Opcode::SetVbucket, extras, b"");
            let refused = with(&bytes, |request| SetVbucket::decode(request).err());
            assert_eq!(refused, Some(Status::Invalid), "{extras:?}");
        }
    }

    #[test]
    fn a_deletion_comes_back_and_nothing_else_is_taken_for_one() {
        for waits in [false, true] {
            let delete = DelVbucket { waits };
            let mut bytes = Vec::new();
            delete.encode(&RequestWriter::new(Opcode::DelVbucket), &mut bytes);
            assert_eq!(with(&bytes, DelVbucket::decode), Ok(delete));
        }
        for (extras, value) in [([].as_slice(), b"async=1".as_slice()), (&[1], b"")] {
            let bytes = frame(Opcode::DelVbucket, extras, value);
            assert_eq!(with(&bytes, DelVbucket::decode), Err(Status::Invalid));
        }
    }
}
