//! The component whose tasks visit all hash tables.

use crate::signals::MemorySignals;
use kedge_bucket_core::{BucketCore, Component};
use std::sync::Arc;

/// The sweeps of a bucket's hash tables.
#[derive(Debug)]
pub(crate) struct Sweeper {
    pub(super) core: Arc<BucketCore>,
    pub(super) signals: Arc<MemorySignals>,
}

impl Component for Sweeper {
    fn core(&self) -> &BucketCore {
        &self.core
    }
}

impl Sweeper {
    pub(crate) fn new(core: &Arc<BucketCore>, signals: &Arc<MemorySignals>) -> Self {
        Self {
            core: Arc::clone(core),
            signals: Arc::clone(signals),
        }
    }

    /// Wakes the compressor if the bucket compresses values now, and the defragmenter if it is enabled.
    pub(crate) fn on_config(&self) {
        if self.core.dynamic.compresses() {
            self.signals.on_values_to_compress(&self.core);
        }
        self.signals.on_free_blocks(&self.core);
    }
}
