//! What a front-end thread lends to a session.

use std::sync::Arc;

use kedge_bucket::{Bucket, Ctx};
use kedge_types::Now;

use crate::shared::Shared;

/// What a front-end thread lends to a session while it is handled.
pub(crate) struct Turn<'t> {
    pub(crate) shared: &'t Shared,
    pub(crate) thread: u16,
    /// The time when the turn began: what buckets are told.
    pub(crate) now: Now,
    /// When the command before this one ended, which is when this one begins; nanoseconds of the monotonic clock.
    pub(crate) last_ns: u64,
    /// Buckets in which a command was parked during the turn.
    pub(crate) kicks: &'t mut Vec<Arc<Bucket>>,
}

impl Turn<'_> {
    pub(crate) fn ctx(&self) -> Ctx {
        Ctx {
            now: self.now,
            thread: self.thread,
        }
    }

    pub(super) fn kick(&mut self, bucket: &Arc<Bucket>) {
        if !self.kicks.iter().any(|known| Arc::ptr_eq(known, bucket)) {
            self.kicks.push(bucket.clone());
        }
    }
}
