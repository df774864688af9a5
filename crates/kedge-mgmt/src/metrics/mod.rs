//! `GET /metrics`: figures for Prometheus, in the OpenMetrics text format or, if the scraper asks for it, in its own.
//!
//! Tables assign statistics to metrics; nothing is counted only for metrics.

mod bucket_rows;
mod cluster;
mod collections;
#[cfg(test)]
pub(super) mod help;
mod node_requests;
mod process;
mod server_rows;
mod tasks;
mod text;
mod tls;

use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use kedge_auth::Privilege;
use kedge_bucket::{Timing, TimingSnapshot, TimingUnit};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use tokio::task::spawn_blocking;

pub(super) use bucket_rows::BUCKET;
use cluster::ClusterSample;
use collections::CollectionSamples;
use node_requests::NodeRequestSample;
use process::ProcessSample;
pub(super) use server_rows::SERVER;
use tasks::TaskSample;
use text::MetricsFormat;
use tls::TlsSample;

use super::reply::{EarlyReply, Handled, ok_typed};
use super::request_context::RequestContext;
use super::state::HttpState;

/// A statistic, its metric, true for a counter, and the help text. The encoder appends `_total` to the name of a
/// counter.
type MetricRow = (&'static str, &'static str, bool, &'static str);

/// Histograms in units other than microseconds, with their metrics and help texts.
pub(super) const OTHER_UNITS: [(Timing, &str, &str); 5] = [
    (
        Timing::LogBatchItems,
        "kedge_bucket_log_batch_items",
        "Changes that one sync of the log covered",
    ),
    (
        Timing::ApplyBatchItems,
        "kedge_bucket_apply_batch_items",
        "Documents in one commit of a vBucket's file",
    ),
    (
        Timing::BgBatchSize,
        "kedge_bucket_bg_batch_size",
        "Documents that one read of a file fetched for waiting commands",
    ),
    (
        Timing::FsReadSize,
        "kedge_bucket_file_read_size_bytes",
        "Size of one read of a vBucket's file",
    ),
    (
        Timing::FsWriteSize,
        "kedge_bucket_file_write_size_bytes",
        "Size of one write to a vBucket's file",
    ),
];

/// One bucket at the time of the scrape.
#[derive(Debug)]
struct BucketSample {
    name: String,
    stats: Vec<(String, String)>,
    timings: Vec<(&'static str, TimingSnapshot)>,
}

/// All figures at the time of the scrape.
#[derive(Debug)]
struct ScrapeSample {
    server: Vec<(String, String)>,
    buckets: Vec<BucketSample>,
    collections: CollectionSamples,
    tasks: TaskSample,
    cluster: Option<ClusterSample>,
    process: ProcessSample,
    tls: Option<TlsSample>,
    node_requests: Option<NodeRequestSample>,
}

impl ScrapeSample {
    fn take(state: &HttpState) -> Self {
        let mut server = Vec::new();
        state.server_stats(&mut |name, text| server.push((name.to_owned(), text.to_owned())));
        let source = &state.parts.buckets;
        let buckets = source.list().into_iter().map(|facts| facts.config.name);
        Self {
            server,
            buckets: buckets
                .map(|name| BucketSample {
                    stats: source.stats(&name).unwrap_or_default(),
                    timings: source.timings(&name).unwrap_or_default(),
                    name,
                })
                .collect(),
            collections: CollectionSamples::take(state),
            tasks: TaskSample::take(&state.parts.pools),
            cluster: ClusterSample::take(state),
            process: ProcessSample::take(),
            tls: TlsSample::take(state),
            node_requests: NodeRequestSample::take(state),
        }
    }
}

fn value(stats: &[(String, String)], name: &str) -> Option<f64> {
    let (_, text) = stats.iter().find(|(known, _)| known == name)?;
    text.parse().ok()
}

fn metric_type(grows: bool) -> MetricType {
    if grows {
        MetricType::Counter
    } else {
        MetricType::Gauge
    }
}

fn encode_value(encoder: MetricEncoder<'_>, grows: bool, value: f64) -> std::fmt::Result {
    if grows {
        return ConstCounter::new(value).encode(encoder);
    }
    ConstGauge::new(value).encode(encoder)
}

/// Encodes a histogram with one bucket for each power of two: enough for graphs, and the same in every scrape. `unit`
/// is the number of recorded units in one unit of the metric. The sum is estimated from the middles of the finer
/// buckets.
fn encode_histogram(
    encoder: &mut MetricEncoder<'_>,
    snapshot: &TimingSnapshot,
    unit: f64,
) -> std::fmt::Result {
    /// 2^27 us are two minutes; longer times are in the last bucket.
    const POWERS: usize = 28;
    let mut buckets: Vec<(f64, u64)> = (0..POWERS)
        .map(|power| ((1_u64 << power) as f64 / unit, 0))
        .collect();
    buckets.push((f64::INFINITY, 0));
    let mut sum = 0.0;
    for (low, high, count) in &snapshot.buckets {
        // The first power of two that is not below the value.
        let power = high.max(&1).next_power_of_two().trailing_zeros() as usize;
        buckets[power.min(POWERS)].1 += count;
        sum += (low + high) as f64 / 2.0 * *count as f64 / unit;
    }
    encoder.encode_histogram::<NoLabelSet>(sum, snapshot.count, &buckets, None)
}

impl Collector for ScrapeSample {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        for (stat, name, grows, help) in SERVER {
            if let Some(value) = value(&self.server, stat) {
                let metric = encoder.encode_descriptor(name, help, None, metric_type(*grows))?;
                encode_value(metric, *grows, value)?;
            }
        }
        for (stat, name, grows, help) in BUCKET {
            let mut family = encoder.encode_descriptor(name, help, None, metric_type(*grows))?;
            for bucket in &self.buckets {
                if let Some(value) = value(&bucket.stats, stat) {
                    let labels = [("bucket", bucket.name.as_str())];
                    encode_value(family.encode_family(&labels)?, *grows, value)?;
                }
            }
        }
        self.encode_timings(&mut encoder)?;
        self.collections.encode(&mut encoder)?;
        if let Some(cluster) = &self.cluster {
            cluster.encode(&mut encoder)?;
        }
        if let Some(node_requests) = &self.node_requests {
            node_requests.encode(&mut encoder)?;
        }
        if let Some(tls) = &self.tls {
            tls.encode(&mut encoder)?;
        }
        self.tasks.encode(&mut encoder)?;
        self.process.encode(&mut encoder)
    }
}

impl ScrapeSample {
    fn encode_timings(&self, encoder: &mut DescriptorEncoder<'_>) -> std::fmt::Result {
        let help = "Time that an operation of a bucket, or a part of one, took";
        let mut family = encoder.encode_descriptor(
            "kedge_bucket_duration_seconds",
            help,
            None,
            MetricType::Histogram,
        )?;
        for bucket in &self.buckets {
            let is_time = |name: &str| {
                let known = Timing::ALL.iter().find(|timing| timing.name() == name);
                known.is_none_or(|timing| timing.unit() == TimingUnit::Microseconds)
            };
            let timed = bucket.timings.iter().filter(|(name, _)| is_time(name));
            for (name, snapshot) in timed.filter(|(_, snapshot)| snapshot.count > 0) {
                let labels = [("bucket", bucket.name.as_str()), ("operation", name)];
                encode_histogram(&mut family.encode_family(&labels)?, snapshot, 1e6)?;
            }
        }
        for (histogram, name, help) in OTHER_UNITS {
            let kind = MetricType::Histogram;
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for bucket in &self.buckets {
                let mut timings = bucket.timings.iter();
                let found = timings.find(|(name, _)| *name == histogram.name());
                if let Some((_, snapshot)) = found {
                    let labels = [("bucket", bucket.name.as_str())];
                    encode_histogram(&mut family.encode_family(&labels)?, snapshot, 1.0)?;
                }
            }
        }
        Ok(())
    }
}

/// The longest wait of a scrape for the data directory: a disk that hangs must not hide all other figures.
const LOOK_TIMEOUT: Duration = Duration::from_millis(500);

/// Counts the directories of buckets again, as someone may have added or moved them.
async fn count_unserved(state: &Arc<HttpState>) {
    let state = state.clone();
    let counted = spawn_blocking(move || state.parts.buckets.count_unserved());
    // Without a result the last count stands.
    let _ = tokio::time::timeout(LOOK_TIMEOUT, counted).await;
}

/// `GET /metrics`.
pub(crate) async fn metrics(call: RequestContext, headers: HeaderMap) -> Handled {
    call.caller.require(Privilege::Stats, None)?;
    count_unserved(&call.state).await;
    let mut registry = Registry::default();
    registry.register_collector(Box::new(ScrapeSample::take(&call.state)));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)
        .map_err(|error| EarlyReply::failed("write the metrics", &error))?;
    let format = MetricsFormat::accepted(&headers);
    if format == MetricsFormat::Prometheus {
        text = text::to_prometheus(&text);
    }
    ok_typed(format.content_type(), text)
}
