//! The client's side, for tools and tests: requests are written, replies are parsed.

use super::fields::FieldReader;
use super::frame::{FrameError, HEADER_BYTES, Magic, Request, Split, SplitError, split};
use super::frame_info::FrameInfos;
use super::opcode::Opcode;
use super::response::{len8, len16, len32};
use kedge_types::{Cas, Datatype, Status, VbId};

/// A reply as received. All slices point into the parsed buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyFrame<'a> {
    /// Opcode of the request.
    pub opcode: u8,
    /// The datatype bits as received.
    pub datatype: u8,
    /// The status as received; [`ReplyFrame::status`] names it.
    pub status_code: u16,
    /// Opaque of the request.
    pub opaque: u32,
    /// CAS.
    pub cas: Cas,
    /// Framing extras.
    pub framing: &'a [u8],
    /// Extras.
    pub extras: &'a [u8],
    /// Key.
    pub key: &'a [u8],
    /// Value.
    pub value: &'a [u8],
}

impl<'a> ReplyFrame<'a> {
    pub(super) const fn from_split(split: &Split<'a>) -> Self {
        Self {
            opcode: split.opcode,
            datatype: split.datatype,
            status_code: split.vb_or_status,
            opaque: split.opaque,
            cas: split.cas,
            framing: split.framing,
            extras: split.extras,
            key: split.key,
            value: split.value,
        }
    }

    /// Returns the status, if it is a known one.
    #[must_use]
    pub const fn status(&self) -> Option<Status> {
        Status::from_wire(self.status_code)
    }

    /// Returns the encoded server duration, if the reply carries one.
    #[must_use]
    pub fn server_duration(&self) -> Option<u16> {
        let mut fields = FieldReader::new(self.framing);
        while let Ok(head) = fields.u8() {
            let body = fields.take(usize::from(head & 0x0f)).ok()?;
            if head >> 4 == 0 {
                return body.try_into().ok().map(u16::from_be_bytes);
            }
        }
        None
    }
}

/// The result of parsing the front of a client's receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseReply<'a> {
    /// The frame is incomplete.
    Incomplete {
        /// The length of the whole frame in bytes, from the start of the buffer; [`HEADER_BYTES`] while the header is
        /// incomplete.
        need: usize,
    },
    /// A reply.
    Reply {
        /// The reply.
        reply: ReplyFrame<'a>,
        /// The number of bytes consumed from the buffer.
        consumed: usize,
    },
    /// A request of the server (magic 0x82), with an opcode from the server's own set.
    ServerRequest {
        /// The request.
        request: Request<'a>,
        /// The number of bytes consumed from the buffer.
        consumed: usize,
    },
    /// The bytes are no valid frame. Close the connection.
    Fatal(FrameError),
}

/// Parses the frame at the front of `buf`, which came from a server. `max_body` limits the bytes after the header.
#[must_use]
pub fn parse_response(buf: &[u8], max_body: usize) -> ParseReply<'_> {
    const ACCEPTED: [Magic; 3] = [
        Magic::ClientResponse,
        Magic::AltClientResponse,
        Magic::ServerRequest,
    ];
    match split(buf, max_body, &ACCEPTED) {
        Err(SplitError::Incomplete { need }) => ParseReply::Incomplete { need },
        Err(SplitError::Fatal(error)) => ParseReply::Fatal(error),
        Ok(split) if split.magic == Magic::ServerRequest => ParseReply::ServerRequest {
            consumed: split.consumed,
            request: split.request(),
        },
        Ok(split) => ParseReply::Reply {
            consumed: split.consumed,
            reply: ReplyFrame::from_split(&split),
        },
    }
}

/// Writes requests. It holds the fields that all commands share; the codecs of [`super::commands`] add the others.
#[derive(Clone, Copy, Debug)]
pub struct RequestWriter<'a> {
    /// The command.
    pub opcode: Opcode,
    /// The vBucket of the key.
    pub vb: VbId,
    /// The opaque, which the reply repeats.
    pub opaque: u32,
    /// The CAS, 0 for none.
    pub cas: Cas,
    /// The datatype of the value.
    pub datatype: Datatype,
    /// Framing extras. If there are any, the request has magic 0x08.
    pub infos: FrameInfos<'a>,
}

impl<'a> RequestWriter<'a> {
    /// Creates a writer of requests for vBucket 0 without CAS, datatype or framing extras.
    #[must_use]
    pub fn new(opcode: Opcode) -> Self {
        Self {
            opcode,
            vb: VbId(0),
            opaque: 0,
            cas: Cas(0),
            datatype: Datatype::RAW,
            infos: FrameInfos::default(),
        }
    }

    /// Appends the whole frame.
    ///
    /// # Panics
    /// When a part is too long for its field in the header: extras 255 bytes; key 65,535 bytes, or 255 with framing
    /// extras; framing extras 255 bytes.
    pub fn write(&self, extras: &[u8], key: &[u8], value: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + HEADER_BYTES, 0);
        if self.infos != FrameInfos::default() {
            self.infos.encode(out);
        }
        let framing_len = out.len() - start - HEADER_BYTES;
        out.reserve(extras.len() + key.len() + value.len());
        out.extend_from_slice(extras);
        out.extend_from_slice(key);
        out.extend_from_slice(value);
        let body = len32(out.len() - start - HEADER_BYTES);

        let head = &mut out[start..start + HEADER_BYTES];
        if framing_len > 0 {
            head[0] = Magic::AltClientRequest.wire();
            head[2] = len8(framing_len);
            head[3] = len8(key.len());
        } else {
            head[0] = Magic::ClientRequest.wire();
            head[2..4].copy_from_slice(&len16(key.len()).to_be_bytes());
        }
        head[1] = self.opcode.wire();
        head[4] = len8(extras.len());
        head[5] = self.datatype.bits();
        head[6..8].copy_from_slice(&self.vb.get().to_be_bytes());
        head[8..12].copy_from_slice(&body.to_be_bytes());
        head[12..16].copy_from_slice(&self.opaque.to_be_bytes());
        head[16..24].copy_from_slice(&self.cas.get().to_be_bytes());
    }
}
