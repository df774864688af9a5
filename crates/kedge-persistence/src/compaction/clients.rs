//! The latencies of clients' requests, measured for the throttle at the end of each of its windows.
//!
//! Nothing is counted for the throttle alone: reads have their histograms, and the system counts the waits of threads.

use kedge_bucket_core::{BucketCore, ProcessorWaits, Timing, TimingSnapshot, Total};
use kedge_storage::ClientLatencies;
use std::sync::Arc;

/// The percentile of latencies of reads.
const PERCENTILE: f64 = 90.0;

/// The source of the latencies.
pub(crate) trait ClientRequests: std::fmt::Debug + Send {
    /// Returns a function that returns the number of reads of evicted documents so far.
    fn reads(&self) -> Box<dyn Fn() -> u64 + Send + Sync>;

    /// Returns the latencies since the last call.
    fn measure(&mut self) -> ClientLatencies;
}

/// The figures of the bucket's requests at the last measurement.
#[derive(Debug)]
pub(crate) struct ClientMeter {
    core: Arc<BucketCore>,
    /// The time for which reads waited before they began, and the time that they took.
    reads: [TimingSnapshot; 2],
    processor: Option<ProcessorWaits>,
}

impl ClientMeter {
    pub(crate) fn new(core: Arc<BucketCore>) -> Box<Self> {
        Box::new(Self {
            core,
            reads: Default::default(),
            processor: None,
        })
    }
}

impl ClientRequests for ClientMeter {
    fn reads(&self) -> Box<dyn Fn() -> u64 + Send + Sync> {
        let core = Arc::clone(&self.core);
        Box::new(move || core.totals.get(Total::FetchSamples))
    }

    fn measure(&mut self) -> ClientLatencies {
        let timings = &self.core.timings;
        let reads = [Timing::BgWait, Timing::BgLoad].map(|timing| timings.snapshot_of(timing));
        let new = [0, 1].map(|at| reads[at].since(&self.reads[at]));
        self.reads = reads;
        let reads_us = (new[1].count > 0)
            .then(|| new[0].percentile(PERCENTILE) + new[1].percentile(PERCENTILE));
        let processor = self.core.setup.completions.processor_waits();
        let earlier = std::mem::replace(&mut self.processor, processor).unwrap_or_default();
        ClientLatencies {
            reads_us,
            processor_us: processor.and_then(|waits| waits.mean_us_since(earlier)),
        }
    }
}
