//! An open file: reads of chunks and nodes, and the search for headers. It connects the formats with the disk.
//!
//! Invariants:
//! * The bytes before a header never change, except for the type byte of that header itself. So nodes are cached by
//!   offset and never become stale.
//! * Each offset of an open file is written once: a writer is not used again after an error.

pub(crate) mod cache;
pub(crate) mod find;
pub(crate) mod shared;
pub(crate) mod window;
