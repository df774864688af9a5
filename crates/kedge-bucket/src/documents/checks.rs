//! Timed work on the values of clients before they are stored: decompression, JSON validation, and sub-document changes.

use super::component::DocumentCommands;
use kedge_bucket_core::{Ctx, Timing};
use kedge_types::{Datatype, Status};
use kedge_vbucket::{Item, MinRatio, Modified, Modify, NewValue, NextVersion};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The minimum size in bytes of values that are timed. Checking a smaller value takes hardly longer than reading the clock.
const TIMED_BYTES_MIN: usize = 4 << 10;

impl DocumentCommands {
    /// Runs [`NewValue::check`] and records the durations of decompression and validation.
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
        let checked = NewValue::check_inflated(value, datatype, min_ratio, &mut on_inflated)?;
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

    /// Records the duration of a change, if it ran.
    pub(crate) fn record_change(&self, ctx: Ctx, change: &TimedChange<'_>) {
        if let Some(took) = change.took.get() {
            self.record(ctx, Timing::SubdocExecute, *took);
        }
    }
}

/// A change whose duration is measured.
#[derive(Debug)]
pub(crate) struct TimedChange<'m> {
    change: &'m dyn Modify,
    /// The duration of the first run.
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

    fn modify(&self, existing: Option<&Item>, next: &NextVersion) -> Result<Modified, Status> {
        let began = Instant::now();
        let modified = self.change.modify(existing, next);
        // Only the first run counts.
        let _ = self.took.set(began.elapsed());
        modified
    }
}
