//! The memcached binary protocol with Couchbase's extensions.
//!
//! A frame goes through three steps, none of which uses sockets:
//! 1. [`parse_frame`] finds its end and splits it into a [`Request`]. A frame that cannot be split closes the
//!    connection.
//! 2. [`FrameInfos::parse`] and the codec of the command ([`commands`]) check it and give it types. An error in this step
//!    is answered with a status, and the connection goes on.
//! 3. [`Response::write`] appends the reply.
//!
//! [`parse_response`] and [`RequestWriter`] do the same on the client's side.
//!
//! ```
//! use kedge_protocol::binary::commands::{Get, GetReply};
//! use kedge_protocol::binary::{Opcode, Parse, RequestWriter, Response, parse_frame};
//! use kedge_types::{Status, limits::FRAME_BODY_BYTES_MAX};
//!
//! let mut received = Vec::new();
//! Get { key: b"hello" }.encode(&RequestWriter::new(Opcode::Get), &mut received);
//!
//! let Parse::Frame { request, consumed } = parse_frame(&received, FRAME_BODY_BYTES_MAX) else {
//!     panic!("the frame is complete");
//! };
//! assert_eq!(consumed, received.len());
//! assert_eq!(Get::decode(&request), Ok(Get { key: b"hello" }));
//!
//! let mut sent = Vec::new();
//! Response {
//!     extras: &GetReply { flags: 0 }.encode(),
//!     value: b"world",
//!     ..Response::new(request.opcode, request.opaque, Status::Success)
//! }
//! .write(&mut sent);
//! assert_eq!(sent.len(), 24 + 4 + 5);
//! ```

mod client;
pub mod commands;
mod duration;
mod error_body;
mod error_map;
mod features;
mod fields;
mod flags;
mod frame;
mod frame_info;
mod opcode;
mod response;
mod xerror;

pub use client::{ParseReply, ReplyFrame, RequestWriter, parse_response};
pub use duration::{SERVER_DURATION_US_MAX, ServerDuration};
pub use error_body::{write_error_context, write_unknown_manifest_entity};
pub use error_map::{ERROR_MAP_VERSION_MAX, error_map};
pub use features::{Feature, Features};
pub use frame::{FrameError, HEADER_BYTES, Magic, Parse, Request, parse_frame};
pub use frame_info::FrameInfos;
pub use opcode::{Audience, ConnectionKind, Opcode};
pub use response::{
    ClustermapChangeNotification, Response, SERVER_OPCODE_CLUSTERMAP_CHANGE_NOTIFICATION,
    ServerRequest,
};
pub use xerror::{Remap, remap_without_xerror};
