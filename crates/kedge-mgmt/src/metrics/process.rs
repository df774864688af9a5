//! The process and its build, for Prometheus, under the names that its client libraries give them.

use kedge_bucket::slab_figures;
use kedge_node::machine;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::info::Info;

use super::{encode_value, metric_type};

/// A metric: name, true for a counter, help text, and value, if the system has it.
type ProcessMetric = (&'static str, bool, &'static str, Option<f64>);

/// The process at the time of the scrape.
#[derive(Debug)]
pub(super) struct ProcessSample([ProcessMetric; 8]);

impl ProcessSample {
    pub(super) fn take() -> Self {
        let memory = machine::process_memory();
        let descriptors = machine::process_descriptors();
        let slabs = slab_figures();
        let limit = descriptors.and_then(|(_, limit)| limit);
        Self([
            (
                "process_cpu_seconds",
                true,
                "Processor time that the process used, in user and system mode",
                machine::process_cpu().map(|used| used.as_secs_f64()),
            ),
            (
                "process_resident_memory_bytes",
                false,
                "Memory of the process that is resident",
                memory.map(|memory| memory.resident as f64),
            ),
            (
                "process_virtual_memory_bytes",
                false,
                "Virtual memory of the process",
                memory.map(|memory| memory.mapped as f64),
            ),
            (
                "process_start_time_seconds",
                false,
                "Time at which the process began, in seconds since 1970",
                machine::process_start_s(),
            ),
            (
                "process_open_fds",
                false,
                "File descriptors that the process has open",
                descriptors.map(|(open, _)| open as f64),
            ),
            (
                "process_max_fds",
                false,
                "Limit of the number of open file descriptors of the process",
                limit.map(|limit| limit as f64),
            ),
            (
                "kedge_slab_bytes",
                false,
                "Memory that slabs of documents have, of all buckets",
                Some(slabs.bytes as f64),
            ),
            (
                "kedge_slab_used_bytes",
                false,
                "Memory of blocks of slabs that documents use; the defragmenter keeps the rest small",
                Some(slabs.used_bytes as f64),
            ),
        ])
    }

    pub(super) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> std::fmt::Result {
        for (name, grows, help, value) in self.0 {
            if let Some(value) = value {
                let metric = encoder.encode_descriptor(name, help, None, metric_type(grows))?;
                encode_value(metric, grows, value)?;
            }
        }
        let help = "Version, profile, operating system and processor of the server's build";
        let metric = encoder.encode_descriptor("kedge_build", help, None, MetricType::Info)?;
        Info::new(BUILD.to_vec()).encode(metric)
    }
}

/// The labels of the build.
const BUILD: [(&str, &str); 4] = [
    ("version", env!("CARGO_PKG_VERSION")),
    (
        "profile",
        if cfg!(debug_assertions) {
            "debug"
        } else {
            "release"
        },
    ),
    ("os", std::env::consts::OS),
    ("arch", std::env::consts::ARCH),
];
