//! Asynchronous reads: a thread submits many with one system call and collects their results later.
//!
//! Where the system has none, or forbids them as some containers do, no [`ReadRing`] can be created, and callers use
//! [`File::read_at`](crate::File::read_at).

#[cfg(not(target_os = "linux"))]
mod none;
#[cfg(target_os = "linux")]
mod uring;

#[cfg(not(target_os = "linux"))]
pub use none::{ReadRing, RingFile};
#[cfg(target_os = "linux")]
pub use uring::{ReadRing, RingFile};
