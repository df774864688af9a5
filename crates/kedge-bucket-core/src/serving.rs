//! The time until which a node serves its active vBuckets.
//!
//! A node of a cluster serves clients only as long as no other node can have been promoted in its place: its lease in the
//! coordination store says until when. All buckets of a node share one gate, which the holder of the lease moves on, so
//! that a new bucket is never without it.
//!
//! Invariants:
//! * A step of an active vBucket for a client compares the time that it was given with the gate, under the vBucket's
//!   lock. A step with a later time, or after the gate was closed, is refused.
//! * After [`ServingGate::close`] and then [`crate::BucketCore::await_steps`] no such step runs, whatever time it was
//!   given, and none begins before the gate is opened again.
//! * A SyncWrite succeeds for its client only if the gate was open after its last acknowledgement. The positions by which
//!   another node is promoted are read after the gate was closed, so they include it.

use std::sync::atomic::{AtomicU64, Ordering};

/// The gate of a node: the time until which it serves its active vBuckets.
#[derive(Debug)]
pub struct ServingGate {
    /// In nanoseconds of the clock that steps use.
    until_ns: AtomicU64,
}

impl Default for ServingGate {
    /// The gate of a node that runs alone: it serves without end.
    fn default() -> Self {
        Self {
            until_ns: AtomicU64::new(u64::MAX),
        }
    }
}

impl ServingGate {
    /// Creates the gate of a node that has no lease yet.
    #[must_use]
    pub const fn closed() -> Self {
        Self {
            until_ns: AtomicU64::new(0),
        }
    }

    /// Lets the node serve until a time in nanoseconds of the clock that steps use.
    pub fn serve_until(&self, until_ns: u64) {
        self.until_ns.store(until_ns, Ordering::Release);
    }

    /// Closes the gate, also for steps that were given an earlier time than now.
    pub fn close(&self) {
        self.serve_until(0);
    }

    /// Returns the time until which the node serves, in nanoseconds; `u64::MAX` for one that runs alone.
    #[must_use]
    pub fn until_ns(&self) -> u64 {
        self.until_ns.load(Ordering::Acquire)
    }

    /// Returns whether the node serves at a time.
    #[inline]
    #[must_use]
    pub fn is_open(&self, mono_ns: u64) -> bool {
        // The lock of the vBucket orders this with `close` and `await_steps`.
        mono_ns < self.until_ns.load(Ordering::Relaxed)
    }
}
