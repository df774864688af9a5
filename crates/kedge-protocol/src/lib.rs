//! Bytes to requests and responses: binary protocol, framing extras, memcached text protocol.

pub mod binary;
pub mod text;
