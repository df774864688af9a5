//! The pieces of work that are measured.

pub mod compact;
pub mod read;
pub mod write;
