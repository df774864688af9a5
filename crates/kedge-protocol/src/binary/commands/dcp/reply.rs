//! Replies of DCP that carry more than a status.

use crate::binary::commands::{FailoverEntry, decode_failover_log, push_failover_entry};
use crate::binary::fields::FieldReader;
use crate::binary::{Opcode, ReplyFrame, Response};
use kedge_types::{Seqno, Status};

/// The reply to DCP_STREAM_REQ, as the consumer reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamReply {
    /// The stream follows. Carries the failover log of the vBucket, newest branch first.
    Accepted(Vec<FailoverEntry>),
    /// The consumer has to roll back to this seqno and send the request again.
    Rollback(Seqno),
    /// The producer refused the stream. Carries the status code, which may be an unknown one.
    Refused(u16),
}

impl StreamReply {
    /// Reads the reply.
    ///
    /// # Errors
    /// [`Status::Invalid`] when a log is empty or ends in the middle of an entry, or the seqno of a rollback is not
    /// eight bytes.
    pub fn decode(reply: &ReplyFrame<'_>) -> Result<Self, Status> {
        match reply.status() {
            Some(Status::Success) => match decode_failover_log(reply.value)? {
                log if log.is_empty() => Err(Status::Invalid),
                log => Ok(Self::Accepted(log)),
            },
            Some(Status::Rollback) => {
                let mut fields = FieldReader::new(reply.value);
                let to = Seqno(fields.u64()?);
                fields.end(Self::Rollback(to))
            }
            _ => Ok(Self::Refused(reply.status_code)),
        }
    }

    /// Appends the reply that tells the consumer to roll back to `to`.
    pub fn encode_rollback(opaque: u32, to: Seqno, out: &mut Vec<u8>) {
        Response {
            value: &to.get().to_be_bytes(),
            ..Response::new(Opcode::DcpStreamReq.wire(), opaque, Status::Rollback)
        }
        .write(out);
    }
}

/// Appends the reply with a vBucket's failover log, newest branch first. It answers a DCP_STREAM_REQ that is accepted,
/// and DCP_GET_FAILOVER_LOG.
pub fn encode_failover_log(
    opcode: Opcode,
    opaque: u32,
    log: impl Iterator<Item = FailoverEntry>,
    out: &mut Vec<u8>,
) {
    let mut value = Vec::with_capacity(64);
    log.for_each(|entry| push_failover_entry(entry, &mut value));
    Response {
        value: &value,
        ..Response::new(opcode.wire(), opaque, Status::Success)
    }
    .write(out);
}

/// The reply to DCP_ADD_STREAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddStreamReply {
    /// The opaque of the stream that the consumer requested.
    pub stream_opaque: u32,
}

impl AddStreamReply {
    /// Appends a successful reply.
    pub fn encode(&self, opaque: u32, out: &mut Vec<u8>) {
        Response {
            extras: &self.stream_opaque.to_be_bytes(),
            ..Response::new(Opcode::DcpAddStream.wire(), opaque, Status::Success)
        }
        .write(out);
    }

    /// Reads a successful reply.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the extras are not four bytes.
    pub fn decode(reply: &ReplyFrame<'_>) -> Result<Self, Status> {
        let mut extras = FieldReader::new(reply.extras);
        let stream_opaque = extras.u32()?;
        extras.end(Self { stream_opaque })
    }
}
