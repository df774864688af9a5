//! What a front-end thread lends to a session.

use std::sync::Arc;
use std::time::Duration;

use kedge_bucket::{Bucket, Ctx};
use kedge_types::Now;

use crate::server_context::ServerContext;

/// The resources of a front-end thread that a session uses while it is handled.
pub(crate) struct SessionTurn<'t> {
    pub(crate) shared: &'t ServerContext,
    pub(crate) thread: u16,
    /// The time when the turn began: what buckets are told.
    pub(crate) now: Now,
    /// When the command before this one ended, which is when this one begins; nanoseconds of the monotonic clock.
    pub(crate) last_ns: u64,
    /// When others are to have their turn: no command begins after that. Nanoseconds of the monotonic clock.
    pub(crate) until_ns: u64,
    /// The command of the connection that took longest since [`Self::begin_slice`], and how long, in nanoseconds.
    pub(crate) longest: Option<(&'static str, u64)>,
    /// True if requests that take long are left to tasks.
    pub(crate) may_offload: bool,
    /// Buckets in which a command was parked during the turn.
    pub(crate) flush_requests: &'t mut Vec<Arc<Bucket>>,
}

/// Longest time of a connection before others have their turn; the command that runs then is not interrupted.
const SLICE: Duration = Duration::from_millis(2);

impl SessionTurn<'_> {
    /// A connection begins to be handled.
    pub(crate) fn begin_slice(&mut self) {
        self.last_ns = self.shared.clock.mono_ns();
        self.until_ns = self.last_ns + SLICE.as_nanos() as u64;
        self.longest = None;
    }

    /// A command took so long.
    #[inline]
    pub(crate) fn took(&mut self, name: &'static str, ns: u64) {
        if self.longest.is_none_or(|(_, longest)| ns > longest) {
            self.longest = Some((name, ns));
        }
    }

    /// Returns whether others are to have their turn, as of now.
    pub(crate) fn is_over(&self) -> bool {
        self.shared.clock.mono_ns() >= self.until_ns
    }

    /// Returns whether others are to have their turn, as of the end of the last command.
    #[inline]
    pub(crate) fn was_over(&self) -> bool {
        self.last_ns >= self.until_ns
    }

    pub(crate) fn ctx(&self) -> Ctx {
        Ctx {
            now: self.now,
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
