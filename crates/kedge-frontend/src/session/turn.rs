//! The resources of a front-end thread for a session.

use std::sync::Arc;
use std::time::Duration;

use kedge_bucket::{Bucket, Ctx};
use kedge_types::Now;

use crate::server_context::ServerContext;

/// The resources of a front-end thread that a session uses while it is handled.
pub(crate) struct SessionTurn<'t> {
    pub(crate) shared: &'t ServerContext,
    pub(crate) thread: u16,
    /// The start of the turn, whose wall-clock time is that of its commands.
    pub(crate) now: Now,
    /// The last reading of the monotonic clock in nanoseconds. The end of a command is the start of the next one.
    pub(crate) last_ns: u64,
    /// The end of the time slice: no command begins after it. Nanoseconds of the monotonic clock.
    pub(crate) until_ns: u64,
    /// The longest command since [`Self::begin_slice`], and its duration in nanoseconds.
    pub(crate) longest: Option<(&'static str, u64)>,
    /// True if requests that take long are offloaded to tasks.
    pub(crate) may_offload: bool,
    /// Buckets in which a command was parked during the turn.
    pub(crate) flush_requests: &'t mut Vec<Arc<Bucket>>,
}

/// The time slice of a connection. A command is not interrupted at its end.
const SLICE: Duration = Duration::from_millis(2);

impl SessionTurn<'_> {
    /// Begins the time slice of a connection, at [`Self::last_ns`].
    pub(crate) fn begin_slice(&mut self) {
        self.until_ns = self.last_ns + SLICE.as_nanos() as u64;
        self.longest = None;
    }

    /// Records the duration of a command.
    #[inline]
    pub(crate) fn took(&mut self, name: &'static str, ns: u64) {
        if self.longest.is_none_or(|(_, longest)| ns > longest) {
            self.longest = Some((name, ns));
        }
    }

    /// Returns true if the time slice is over now.
    pub(crate) fn is_over(&self) -> bool {
        self.shared.clock.mono_ns() >= self.until_ns
    }

    /// Returns true if the time slice was over at the end of the last command.
    #[inline]
    pub(crate) fn was_over(&self) -> bool {
        self.last_ns >= self.until_ns
    }

    /// Returns the context of the next command. Its monotonic time is the last that was read, not the start of the turn: a
    /// turn with many connections may be longer than the pause that the node's lease tolerates.
    pub(crate) fn ctx(&self) -> Ctx {
        Ctx {
            now: Now {
                mono_ns: self.now.mono_ns.max(self.last_ns),
                ..self.now
            },
            thread: self.thread,
        }
    }

    pub(crate) fn request_flush(&mut self, bucket: &Arc<Bucket>) {
        if !self
            .flush_requests
            .iter()
            .any(|known| Arc::ptr_eq(known, bucket))
        {
            self.flush_requests.push(bucket.clone());
        }
    }
}
