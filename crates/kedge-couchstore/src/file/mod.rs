//! A file that is open: how its chunks and nodes are read, and how its headers are found. The rim where the formats
//! meet the disk.
//!
//! Invariants:
//! * What lies before a header never changes, apart from the type byte of that header itself. So nodes are cached by
//!   their offset and never forgotten for being stale.
//! * An open file is written at an offset once: a writer that met an error is not used again.

pub(crate) mod cache;
pub(crate) mod find;
pub(crate) mod shared;
pub(crate) mod window;
