//! Frames from a client: their boundaries and headers.
//!
//! Layout of the header: memcached `doc/protocol-binary.xml` section 2, Couchbase's flexible framing (magic 0x08 and
//! 0x18) as every SDK sends it. All numbers are big-endian. Invariants:
//! * nothing is read beyond the frame, and nothing is allocated;
//! * a frame with inconsistent lengths has no trustworthy end, so the connection must be closed.

use super::client::ReplyFrame;
use kedge_types::{Cas, Datatype, Status, VbId};

/// Length of every header, in bytes.
pub const HEADER_BYTES: usize = 24;

/// The first byte of a frame, its magic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Magic {
    /// Request of a client, classic framing.
    ClientRequest = 0x80,
    /// Request of a client, flexible framing.
    AltClientRequest = 0x08,
    /// Reply to a client, classic framing.
    ClientResponse = 0x81,
    /// Reply to a client, flexible framing.
    AltClientResponse = 0x18,
    /// Request of the server to a client that negotiated Duplex.
    ServerRequest = 0x82,
    /// A client's reply to a request of the server.
    ServerResponse = 0x83,
}

impl Magic {
    /// Returns the magic with this number.
    #[must_use]
    pub const fn from_wire(byte: u8) -> Option<Self> {
        match byte {
            0x80 => Some(Self::ClientRequest),
            0x08 => Some(Self::AltClientRequest),
            0x81 => Some(Self::ClientResponse),
            0x18 => Some(Self::AltClientResponse),
            0x82 => Some(Self::ServerRequest),
            0x83 => Some(Self::ServerResponse),
            _ => None,
        }
    }

    /// Returns the number on the wire.
    #[must_use]
    pub const fn wire(self) -> u8 {
        self as u8
    }

    const fn is_flexible(self) -> bool {
        matches!(self, Self::AltClientRequest | Self::AltClientResponse)
    }
}

/// An error after which a connection cannot continue: no reply is possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// This side does not accept the first byte as a magic. Close the connection.
    #[error("the first byte of the frame is {0:#04x}, which is no magic accepted here")]
    BadMagic(u8),
    /// Framing extras, extras and key together are longer than the body. Close the connection.
    #[error("the parts of the frame need {parts} bytes but its body has {body}")]
    LengthMismatch {
        /// The length of framing extras, extras and key together, in bytes.
        parts: usize,
        /// The length of the body, in bytes.
        body: usize,
    },
    /// The body is longer than the limit. Close the connection.
    #[error("the frame's body has {body} bytes, more than the {max} allowed")]
    TooLong {
        /// The length of the body according to the header, in bytes.
        body: usize,
        /// The limit, in bytes.
        max: usize,
    },
}

/// A client's request. All slices point into the parsed buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Number of the command; [`super::Opcode::from_wire`] names it.
    pub opcode: u8,
    /// The datatype bits as received, which may include undefined bits. See [`Request::datatype`].
    pub datatype: u8,
    /// The vBucket that the client computed.
    pub vb: VbId,
    /// The opaque, which the reply repeats bit for bit.
    pub opaque: u32,
    /// The CAS, 0 if none was given.
    pub cas: Cas,
    /// Framing extras, for [`super::FrameInfos::parse`]. Empty with classic framing.
    pub framing: &'a [u8],
    /// Extras: fields of the command.
    pub extras: &'a [u8],
    /// Key, with its collection prefix when Collections was negotiated.
    pub key: &'a [u8],
    /// Value.
    pub value: &'a [u8],
}

impl Request<'_> {
    /// Returns the datatype, if all its bits are defined and in `negotiated`.
    ///
    /// # Errors
    /// [`Status::Invalid`] otherwise.
    pub fn datatype(&self, negotiated: Datatype) -> Result<Datatype, Status> {
        match Datatype::from_bits(self.datatype) {
            Some(datatype) if negotiated.contains(datatype) => Ok(datatype),
            _ => Err(Status::Invalid),
        }
    }

    /// Returns the length of the whole frame on the wire, in bytes.
    #[must_use]
    pub const fn frame_bytes(&self) -> usize {
        let body = self.framing.len() + self.extras.len() + self.key.len() + self.value.len();
        HEADER_BYTES + body
    }

    /// Returns whether the value is one raw Snappy block.
    #[must_use]
    #[inline]
    pub const fn is_compressed(&self) -> bool {
        self.datatype & Datatype::SNAPPY.bits() != 0
    }

    /// Returns the same request with its value inflated, for codecs that parse the value.
    #[must_use]
    pub const fn with_inflated<'b>(&self, inflated: &'b [u8]) -> Request<'b>
    where
        Self: 'b,
    {
        Request {
            datatype: self.datatype & !Datatype::SNAPPY.bits(),
            value: inflated,
            ..*self
        }
    }
}

/// The result of parsing the front of a receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parse<'a> {
    /// The frame is incomplete.
    Incomplete {
        /// The length of the whole frame in bytes, from the start of the buffer; [`HEADER_BYTES`] while the header is
        /// incomplete.
        need: usize,
    },
    /// A request.
    Frame {
        /// The request.
        request: Request<'a>,
        /// The number of bytes consumed from the buffer.
        consumed: usize,
    },
    /// A client's reply to a request of the server (magic 0x83). It needs no answer.
    ServerResponse {
        /// The reply.
        reply: ReplyFrame<'a>,
        /// The number of bytes consumed from the buffer.
        consumed: usize,
    },
    /// The bytes are no valid frame. Close the connection without a reply.
    Fatal(FrameError),
}

/// The parts of a frame of any magic.
pub(super) struct Split<'a> {
    pub(super) magic: Magic,
    pub(super) opcode: u8,
    pub(super) datatype: u8,
    /// The vBucket of a request, or the status of a reply.
    pub(super) vb_or_status: u16,
    pub(super) opaque: u32,
    pub(super) cas: Cas,
    pub(super) framing: &'a [u8],
    pub(super) extras: &'a [u8],
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
    pub(super) consumed: usize,
}

impl<'a> Split<'a> {
    /// Returns the frame as a request, regardless of its magic.
    pub(super) const fn request(&self) -> Request<'a> {
        Request {
            opcode: self.opcode,
            datatype: self.datatype,
            vb: VbId(self.vb_or_status),
            opaque: self.opaque,
            cas: self.cas,
            framing: self.framing,
            extras: self.extras,
            key: self.key,
            value: self.value,
        }
    }
}

pub(super) enum SplitError {
    Incomplete { need: usize },
    Fatal(FrameError),
}

/// Splits the frame at the front of `buf` into its parts, if its magic is one of `accepted`.
#[inline]
pub(super) fn split<'a>(
    buf: &'a [u8],
    max_body: usize,
    accepted: &[Magic],
) -> Result<Split<'a>, SplitError> {
    let Some(&first) = buf.first() else {
        return Err(SplitError::Incomplete { need: HEADER_BYTES });
    };
    // The magic is checked before the header is complete, so that a client of another protocol gets an error at once.
    let magic = Magic::from_wire(first)
        .filter(|magic| accepted.contains(magic))
        .ok_or(SplitError::Fatal(FrameError::BadMagic(first)))?;
    let Some((header, after)) = buf.split_first_chunk::<HEADER_BYTES>() else {
        return Err(SplitError::Incomplete { need: HEADER_BYTES });
    };
    let (framing_len, key_len) = if magic.is_flexible() {
        (usize::from(header[2]), usize::from(header[3]))
    } else {
        (0, usize::from(u16::from_be_bytes([header[2], header[3]])))
    };
    let extras_len = usize::from(header[4]);
    let body = u32::from_be_bytes([header[8], header[9], header[10], header[11]]) as usize;
    let parts = framing_len + extras_len + key_len;
    if body > max_body {
        return Err(SplitError::Fatal(FrameError::TooLong {
            body,
            max: max_body,
        }));
    }
    if parts > body {
        return Err(SplitError::Fatal(FrameError::LengthMismatch {
            parts,
            body,
        }));
    }
    let need = HEADER_BYTES + body;
    let Some(body) = after.get(..body) else {
        return Err(SplitError::Incomplete { need });
    };
    let (framing, rest) = body.split_at(framing_len);
    let (extras, rest) = rest.split_at(extras_len);
    let (key, value) = rest.split_at(key_len);
    Ok(Split {
        magic,
        opcode: header[1],
        datatype: header[5],
        vb_or_status: u16::from_be_bytes([header[6], header[7]]),
        opaque: u32::from_be_bytes([header[12], header[13], header[14], header[15]]),
        cas: Cas(u64::from_be_bytes([
            header[16], header[17], header[18], header[19], header[20], header[21], header[22],
            header[23],
        ])),
        framing,
        extras,
        key,
        value,
        consumed: need,
    })
}

/// Parses the frame at the front of `buf`, which came from a client. Magics 0x80, 0x08 and 0x83 are accepted;
/// `max_body` limits the bytes after the header ([`kedge_types::limits::FRAME_BODY_BYTES_MAX`]).
#[must_use]
#[inline]
pub fn parse_frame(buf: &[u8], max_body: usize) -> Parse<'_> {
    const ACCEPTED: [Magic; 3] = [
        Magic::ClientRequest,
        Magic::AltClientRequest,
        Magic::ServerResponse,
    ];
    match split(buf, max_body, &ACCEPTED) {
        Err(SplitError::Incomplete { need }) => Parse::Incomplete { need },
        Err(SplitError::Fatal(error)) => Parse::Fatal(error),
        Ok(split) if split.magic == Magic::ServerResponse => Parse::ServerResponse {
            consumed: split.consumed,
            reply: ReplyFrame::from_split(&split),
        },
        Ok(split) => Parse::Frame {
            consumed: split.consumed,
            request: split.request(),
        },
    }
}
