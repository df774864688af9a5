//! The part of the FlatBuffers layout that the collection documents use: tables of scalars, strings and vectors of
//! tables. Source: FlatBuffers documentation, "FlatBuffer Internals".
//!
//! ```text
//! buffer   u32 offset of the root table, then tables, vtables, strings and vectors in any order
//! table    i32 distance back to its vtable | fields
//! vtable   u16 its length | u16 length of the table | u16 per field: offset within the table, 0 if absent
//! string   u32 length | bytes | 0
//! vector   u32 count | per element: u32 distance from here to its table
//! ```
//! Numbers are little-endian and aligned to their size, counted from the start of the buffer. An absent field has its
//! default, which is always 0, false or empty here. The `flatbuffers` crate is not used, because it reads tables with
//! generated `unsafe` code.

mod read;
mod write;

#[cfg(test)]
mod tests;

pub(super) use read::FlatTable;
pub(super) use write::{FlatField, finish};
