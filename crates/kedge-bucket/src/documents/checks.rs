//! What is done with what clients send before it is stored, timed: values are inflated and checked, and paths of documents
//! changed.

use super::component::Documents;
use kedge_bucket_core::Ctx;
use kedge_bucket_core::Timing;
use kedge_types::{Datatype, Status};
use kedge_vbucket::{Item, MinRatio, Modified, Modify, NewValue, NextVersion};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Smaller values are not timed: to check them takes hardly longer than to look at the clock.
const TIMED_BYTES_MIN: usize = 4 << 10;

impl Documents {
    /// [`NewValue::check`], timed.
    pub(crate) fn check_value<'v>(
        &self,
        ctx: Ctx,
        value: &'v [u8],
        datatype: Datatype,
        min_ratio: MinRatio,
    ) -> Result<NewValue<'v>, Status> {
        if value.len() < TIMED_BYTES_MIN {
            return NewValue::check(value, datatype, min_ratio);
        }
        let began = Instant::now();
        let mut inflated = began;
        let mut on_inflated = || inflated = Instant::now();
        let checked = NewValue::check_telling(value, datatype, min_ratio, &mut on_inflated)?;
        let ended = Instant::now();
        if datatype.contains(Datatype::SNAPPY) {
            self.record(ctx, Timing::SnappyDecompress, inflated - began);
        }
        self.record(ctx, Timing::JsonValidate, ended - inflated);
        Ok(checked)
    }

    fn record(&self, ctx: Ctx, timing: Timing, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.core.timings.record_us(ctx.thread, timing, us);
    }

    /// Counts the time that a change took, if it was made.
    pub(crate) fn record_change(&self, ctx: Ctx, change: &TimedChange<'_>) {
        if let Some(took) = change.took.get() {
            self.record(ctx, Timing::SubdocExecute, *took);
        }
    }
}

/// A change that is timed.
#[derive(Debug)]
pub(crate) struct TimedChange<'m> {
    change: &'m dyn Modify,
    /// Set when it has run.
    took: OnceLock<Duration>,
}

impl<'m> TimedChange<'m> {
    pub(crate) fn new(change: &'m dyn Modify) -> Self {
        Self {
            change,
            took: OnceLock::new(),
        }
    }
}

impl Modify for TimedChange<'_> {
    fn wants_tombstones(&self) -> bool {
        self.change.wants_tombstones()
    }

    fn bytes(&self) -> usize {
        self.change.bytes()
    }

    fn modify(&self, there: Option<&Item>, next: &NextVersion) -> Result<Modified, Status> {
        let began = Instant::now();
        let modified = self.change.modify(there, next);
        // Of several runs the first counts.
        let _ = self.took.set(began.elapsed());
        modified
    }
}
