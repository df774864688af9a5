//! Reads that nobody waits for: a thread asks for many with one call of the system, and is told when they are done.
//!
//! Where the system has none, or forbids them, as some containers do, there is no [`ReadRing`], and files are read with
//! [`File::read_at`](crate::File::read_at).

#[cfg(not(target_os = "linux"))]
mod none;
#[cfg(target_os = "linux")]
mod uring;

#[cfg(not(target_os = "linux"))]
pub use none::{ReadRing, RingFile};
#[cfg(target_os = "linux")]
pub use uring::{ReadRing, RingFile};
