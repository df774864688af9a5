//! The measured pieces of work.

pub mod compact;
pub mod read;
pub mod write;
