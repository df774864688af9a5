//! How far warmup is, for those who wait for it.

use super::{Stage, Warmup};
use crate::residency::Residency;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The log has no more than one line about it in so long a time.
const SAY_EVERY: Duration = Duration::from_secs(5);

/// How far a stage is.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Documents that were read in this stage, whether or not there was room for them.
    read: AtomicU64,
    /// So many are likely to be.
    expected: AtomicU64,
    /// When the log had the last line about it.
    said_ns: AtomicU64,
}

impl Warmup {
    pub(super) fn note_read(&self, documents: usize) {
        let read = &self.progress.read;
        read.fetch_add(documents as u64, Ordering::Relaxed);
    }

    /// What is in memory of the files, and how many documents they have.
    pub(crate) fn figures(&self) -> [(&'static str, u64); 3] {
        let of = |number: &AtomicU64| number.load(Ordering::Relaxed);
        [
            ("ep_warmup_key_count", of(&self.keys)),
            ("ep_warmup_value_count", of(&self.values)),
            ("ep_warmup_estimated_key_count", of(&self.estimated)),
        ]
    }
}

impl Residency {
    pub(super) fn begin_stage(&self, stage: Stage) {
        let (warmup, progress) = (&self.warmup, &self.warmup.progress);
        let expected = match stage {
            Stage::LoadingAccessLog => &warmup.hot_planned,
            _ => &warmup.estimated,
        };
        let expected = expected.load(Ordering::Relaxed);
        progress.expected.store(expected, Ordering::Relaxed);
        progress.read.store(0, Ordering::Relaxed);
        let now_ns = self.core.setup.clock.now().mono_ns;
        progress.said_ns.store(now_ns, Ordering::Relaxed);
    }

    /// Says in the log how far the stage is, if that was not said for a while.
    pub(super) fn say_progress(&self) {
        let progress = &self.warmup.progress;
        let now_ns = self.core.setup.clock.now().mono_ns;
        let said_ns = progress.said_ns.load(Ordering::Relaxed);
        let relaxed = Ordering::Relaxed;
        if now_ns.saturating_sub(said_ns) < SAY_EVERY.as_nanos() as u64
            // One of the workers does.
            || progress.said_ns.compare_exchange(said_ns, now_ns, relaxed, relaxed).is_err()
        {
            return;
        }
        let read = progress.read.load(Ordering::Relaxed);
        let expected = progress.expected.load(Ordering::Relaxed);
        tracing::info!(
            bucket = self.core.name(),
            stage = self.warmup.stage().name(),
            read,
            of = expected,
            percent = (read * 100).checked_div(expected).unwrap_or(100).min(100),
            "documents are still being read into memory"
        );
    }
}
