//! The encoding of couchstore files, as pure functions over slices. "Section" in comments refers to the description of
//! the couchstore file format, versions 11 to 14.

pub(crate) mod block;
pub(crate) mod bytes;
pub(crate) mod checksum;
pub(crate) mod chunk;
pub(crate) mod entry;
pub(crate) mod header;
pub(crate) mod metadata;
pub(crate) mod pointer;
