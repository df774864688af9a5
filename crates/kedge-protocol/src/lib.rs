//! Bytes to requests and responses: binary protocol, framing extras, memcached text protocol.
//!
//! # Example
//!
//! [`binary`] has an example of the binary protocol. This one parses a command of the text protocol:
//!
//! ```
//! use kedge_protocol::text::{Parsed, TextCommand, TextLimits, parse};
//!
//! let Parsed::Command { command: TextCommand::Retrieve(retrieve), .. } =
//!     parse(b"gets hello world\r\n", &TextLimits::default())
//! else {
//!     panic!("the line is a retrieval");
//! };
//! assert!(retrieve.with_cas);
//! ```

pub mod binary;
pub mod text;
