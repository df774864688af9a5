//! The memcached binary protocol with Couchbase's extensions.
//!
//! A frame goes through three steps, none of which knows of sockets:
//! 1. [`parse_frame`] finds its end and splits it into a [`Request`]. A frame that cannot be split closes the
//!    connection.
//! 2. [`FrameInfos::parse`] and the codec of the command ([`commands`]) check it and give it types. What is wrong here
//!    is answered with a status, and the connection goes on.
//! 3. [`Response::write`] appends the reply.
//!
//! [`parse_response`] and [`RequestWriter`] are the same from the client's side.

mod client;
pub mod commands;
mod duration;
mod error_body;
mod error_map;
mod features;
mod fields;
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
pub use opcode::{ConnectionKind, Opcode, Rank};
pub use response::{
    ClustermapChangeNotification, Response, SERVER_OPCODE_CLUSTERMAP_CHANGE_NOTIFICATION,
    ServerRequest,
};
pub use xerror::{Remap, remap_without_xerror};
