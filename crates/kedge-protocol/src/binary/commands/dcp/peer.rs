//! Frames of a connection whose both ends send requests and replies.

use crate::binary::frame::{Magic, SplitError, split};
use crate::binary::{FrameError, ReplyFrame, Request};

/// A frame of the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerFrame<'a> {
    /// A request or notification.
    Request(Request<'a>),
    /// A reply.
    Reply(ReplyFrame<'a>),
}

/// The result of parsing the front of the receive buffer of a DCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParsePeer<'a> {
    /// The frame is incomplete.
    Incomplete {
        /// The length of the whole frame in bytes, from the start of the buffer; [`crate::binary::HEADER_BYTES`] while
        /// the header is incomplete.
        need: usize,
    },
    /// A frame.
    Frame {
        /// The frame.
        frame: PeerFrame<'a>,
        /// The number of bytes consumed from the buffer.
        consumed: usize,
    },
    /// The bytes are no valid frame. Close the connection.
    Fatal(FrameError),
}

/// Parses the frame at the front of `buf`. Magics 0x80, 0x08, 0x81 and 0x18 are accepted; `max_body` limits the bytes
/// after the header.
#[must_use]
#[inline]
pub fn parse_peer(buf: &[u8], max_body: usize) -> ParsePeer<'_> {
    const ACCEPTED: [Magic; 4] = [
        Magic::ClientRequest,
        Magic::AltClientRequest,
        Magic::ClientResponse,
        Magic::AltClientResponse,
    ];
    match split(buf, max_body, &ACCEPTED) {
        Err(SplitError::Incomplete { need }) => ParsePeer::Incomplete { need },
        Err(SplitError::Fatal(error)) => ParsePeer::Fatal(error),
        Ok(split) => {
            let is_request = matches!(split.magic, Magic::ClientRequest | Magic::AltClientRequest);
            let frame = if is_request {
                PeerFrame::Request(split.request())
            } else {
                PeerFrame::Reply(ReplyFrame::from_split(&split))
            };
            ParsePeer::Frame {
                frame,
                consumed: split.consumed,
            }
        }
    }
}
