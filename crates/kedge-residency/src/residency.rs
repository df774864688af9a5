//! The component itself, and what it reports upwards.

use crate::signals::MemorySignals;
use crate::warmup::Warmup;
use kedge_bucket_core::{BucketCore, Component, DiskWriters, Parker};
use kedge_types::VbId;
use std::sync::{Arc, OnceLock, Weak};

/// The receiver of what residency reports.
pub trait ResidencyEvents: Send + Sync {
    /// Documents cannot leave memory before their changes are in the files.
    fn apply_wanted(&self);
}

/// The memory of a bucket.
pub struct Residency {
    pub(crate) core: Arc<BucketCore>,
    pub(crate) signals: Arc<MemorySignals>,
    pub(crate) writers: Arc<dyn DiskWriters>,
    events: OnceLock<Weak<dyn ResidencyEvents>>,
    pub(crate) warmup: Warmup,
    pub(crate) access_scanner: Parker,
}

impl std::fmt::Debug for Residency {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Residency")
            .field("bucket", &self.core.name())
            .finish_non_exhaustive()
    }
}

impl Component for Residency {
    fn core(&self) -> &BucketCore {
        &self.core
    }
}

impl Residency {
    /// Returns the component of a bucket that has not been loaded.
    #[must_use]
    pub fn new(
        core: Arc<BucketCore>,
        signals: Arc<MemorySignals>,
        writers: Arc<dyn DiskWriters>,
    ) -> Self {
        Self {
            core,
            signals,
            writers,
            events: OnceLock::new(),
            warmup: Warmup::default(),
            access_scanner: Parker::default(),
        }
    }

    /// Sets the receiver of events, once, before the bucket is loaded.
    pub fn set_events(&self, events: Weak<dyn ResidencyEvents>) {
        // Components are wired once.
        let _ = self.events.set(events);
    }

    /// Returns the statistics that are numbers and no counters.
    #[must_use]
    pub fn figures(&self) -> Vec<(&'static str, u64)> {
        let waiting = [
            (
                "ep_bg_remaining_items",
                self.signals.fetches.waiting() as u64,
            ),
            ("ep_waiting_for_memory", self.waiting_for_memory() as u64),
        ];
        waiting.into_iter().chain(self.warmup.figures()).collect()
    }

    /// Reports that documents cannot leave memory before their changes are in the files.
    pub(crate) fn report_apply_wanted(&self) {
        if let Some(events) = self.events.get().and_then(Weak::upgrade) {
            events.apply_wanted();
        }
    }

    pub(crate) fn is_quarantined(&self, vb: VbId) -> bool {
        self.core.vbuckets[vb.index()].lock().is_quarantined()
    }
}
