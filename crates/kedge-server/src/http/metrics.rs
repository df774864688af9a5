//! `GET /metrics`: figures for Prometheus, in the OpenMetrics text format.
//!
//! Which statistic becomes which metric stands in tables; nothing is counted for the sake of metrics alone.

use kedge_auth::Privilege;
use kedge_bucket::TimingSnapshot;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::HttpState;
use super::call::Call;
use super::cluster_metrics::ClusterSample;
use super::collection_metrics::CollectionSamples;
use super::reply::{Handled, Reply, ok_typed};
use super::task_metrics::TaskSample;

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A statistic, the metric it becomes, whether it only grows, and what to say of it. The encoder ends the name of
/// what only grows with `_total`.
pub(super) type Row = (&'static str, &'static str, bool, &'static str);

/// Statistics of the server as a whole.
pub(super) const SERVER: &[Row] = &[
    (
        "uptime",
        "kedge_uptime_seconds",
        false,
        "Seconds since the server started",
    ),
    (
        "curr_connections",
        "kedge_connections",
        false,
        "Open connections of clients",
    ),
    (
        "total_connections",
        "kedge_connections_accepted",
        true,
        "Connections accepted",
    ),
    (
        "rejected_connections",
        "kedge_connections_rejected",
        true,
        "Connections refused at the limit",
    ),
    (
        "bytes_read",
        "kedge_received_bytes",
        true,
        "Bytes read from clients",
    ),
    (
        "bytes_written",
        "kedge_sent_bytes",
        true,
        "Bytes written to clients",
    ),
    (
        "max_connections",
        "kedge_connections_limit",
        false,
        "Most connections at a time",
    ),
    (
        "timed_out_connections",
        "kedge_connections_timed_out",
        true,
        "Connections closed by a time limit",
    ),
    (
        "malformed_connections",
        "kedge_connections_malformed",
        true,
        "Connections closed for sending no request",
    ),
    ("cmd_total", "kedge_commands", true, "Commands executed"),
    ("auth_cmds", "kedge_logins", true, "Logins tried"),
    ("auth_errors", "kedge_logins_failed", true, "Logins refused"),
    (
        "dcp_connections",
        "kedge_dcp_connections",
        false,
        "Open DCP connections of clients and other nodes",
    ),
    ("dcp_streams", "kedge_dcp_streams", false, "Their streams"),
    (
        "dcp_unacked_bytes",
        "kedge_dcp_unacknowledged_bytes",
        false,
        "Bytes sent to consumers that have flow control and not acknowledged",
    ),
    (
        "replication_links",
        "kedge_replication_links",
        false,
        "Connections to other nodes that there are to be",
    ),
    (
        "replication_links_up",
        "kedge_replication_links_up",
        false,
        "Those of them that there are",
    ),
    (
        "replication_vbuckets",
        "kedge_replication_vbuckets",
        false,
        "vBuckets that are to follow others",
    ),
    (
        "replication_following",
        "kedge_replication_following",
        false,
        "Those of them that do",
    ),
    (
        "replication_items_behind",
        "kedge_replication_items_behind",
        false,
        "Seqnos of snapshots under way that have not come",
    ),
    (
        "replication_connects",
        "kedge_replication_connects",
        true,
        "Connections to other nodes that were made",
    ),
    (
        "replication_failures",
        "kedge_replication_failures",
        true,
        "Attempts at them that failed, and connections lost",
    ),
    (
        "replication_items",
        "kedge_replication_items",
        true,
        "Changes received from other nodes",
    ),
    (
        "replication_bytes",
        "kedge_replication_received_bytes",
        true,
        "Bytes received from other nodes",
    ),
    (
        "replication_acks",
        "kedge_replication_acks",
        true,
        "Acknowledgements of SyncWrites sent to other nodes",
    ),
    (
        "replication_rollbacks",
        "kedge_replication_rollbacks",
        true,
        "Times that vBuckets went back to what they share with others",
    ),
    (
        "replication_takeovers",
        "kedge_replication_takeovers",
        true,
        "vBuckets that were taken over from nodes that run",
    ),
];

/// Statistics of each bucket.
pub(super) const BUCKET: &[Row] = &[
    ("curr_items", "kedge_bucket_items", false, "Documents"),
    (
        "ep_dcp_backfills",
        "kedge_bucket_dcp_backfills",
        true,
        "Backfills of streams from files",
    ),
    (
        "ep_dcp_oso_backfills",
        "kedge_bucket_dcp_oso_backfills",
        true,
        "Those that read collections in the order of keys",
    ),
    (
        "ep_dcp_backfilled_items",
        "kedge_bucket_dcp_backfilled_items",
        true,
        "Changes that they read",
    ),
    (
        "ep_dcp_backfill_failures",
        "kedge_bucket_dcp_backfill_failures",
        true,
        "Backfills that failed",
    ),
    (
        "ep_cursors_dropped",
        "kedge_bucket_dcp_cursors_dropped",
        true,
        "Cursors of slow streams that were dropped",
    ),
    (
        "ep_dcp_received_items",
        "kedge_bucket_dcp_received_items",
        true,
        "Changes received as a replica",
    ),
    (
        "ep_dcp_received_later",
        "kedge_bucket_dcp_received_later",
        true,
        "Times that there was no room for them",
    ),
    (
        "ep_waiting_for_active",
        "kedge_bucket_waiting_for_active",
        false,
        "Commands that wait for a vBucket to become active",
    ),
    (
        "mem_used",
        "kedge_bucket_mem_used_bytes",
        false,
        "Memory that counts against the quota",
    ),
    (
        "ep_max_size",
        "kedge_bucket_quota_bytes",
        false,
        "Memory quota",
    ),
    (
        "vb_active_tombstones",
        "kedge_bucket_tombstones",
        false,
        "Deleted documents that are remembered",
    ),
    (
        "vb_active_expired",
        "kedge_bucket_expired",
        true,
        "Documents that expired",
    ),
    (
        "ep_clock_cas_drift_threshold_exceeded",
        "kedge_bucket_cas_drift_exceeded",
        true,
        "CAS values from elsewhere that were far from the clock here",
    ),
    (
        "ep_dropped_collection_sweeps",
        "kedge_bucket_dropped_collection_sweeps",
        true,
        "Rounds over a vBucket's memory for documents of dropped collections",
    ),
    (
        "ep_dropped_collection_items_swept",
        "kedge_bucket_dropped_collection_items_swept",
        true,
        "Documents of dropped collections that left memory so",
    ),
    (
        "ep_range_scans_open",
        "kedge_bucket_range_scans_open",
        false,
        "Range scans that are open",
    ),
    (
        "ep_range_scans",
        "kedge_bucket_range_scans",
        true,
        "Range scans that were made",
    ),
    (
        "ep_range_scan_items",
        "kedge_bucket_range_scan_items",
        true,
        "Keys and documents that range scans gave",
    ),
    (
        "ep_range_scan_bytes",
        "kedge_bucket_range_scan_bytes",
        true,
        "Bytes of keys and values that range scans gave",
    ),
    (
        "ep_queue_size",
        "kedge_bucket_queued_items",
        false,
        "Changes that are not on disk yet",
    ),
    (
        "ep_parked_commands",
        "kedge_bucket_parked_commands",
        false,
        "Commands that wait for the disk",
    ),
    (
        "ep_disk_full",
        "kedge_bucket_disk_full",
        false,
        "1 while the disk has no room for the log",
    ),
    (
        "ep_vb_set_aside",
        "kedge_bucket_vbuckets_set_aside",
        false,
        "vBuckets whose files could not be read at the start",
    ),
    (
        "ep_vb_resets",
        "kedge_bucket_vbuckets_reset",
        true,
        "vBuckets whose files could not be read, and were given up",
    ),
    (
        "ep_log_bytes",
        "kedge_bucket_log_bytes",
        false,
        "Size of the log",
    ),
    (
        "ep_log_file_bytes",
        "kedge_bucket_log_file_bytes",
        false,
        "Size of the log's files, spare ones included",
    ),
    (
        "ep_log_syncs",
        "kedge_bucket_log_syncs",
        true,
        "Syncs of the log",
    ),
    (
        "ep_log_appended_bytes",
        "kedge_bucket_log_appended_bytes",
        true,
        "Bytes written to the log",
    ),
    (
        "ep_log_needed_bytes",
        "kedge_bucket_log_needed_bytes",
        false,
        "Size of the log from the oldest record on that a vBucket's file does not have",
    ),
    (
        "ep_unsettled_items",
        "kedge_bucket_unsettled_items",
        false,
        "Changes that are in the log and not in a vBucket's file",
    ),
    (
        "ep_pinned_bytes",
        "kedge_bucket_pinned_bytes",
        false,
        "Memory that only changes on their way to the files take",
    ),
    (
        "ep_settle_commits",
        "kedge_bucket_settle_commits",
        true,
        "Commits of files with what the log has",
    ),
    (
        "ep_settled_items",
        "kedge_bucket_settled_items",
        true,
        "Changes that went from the log into the files",
    ),
    (
        "ep_data_read_failed",
        "kedge_bucket_data_read_failures",
        true,
        "Documents that could not be read from files",
    ),
    (
        "ep_data_write_failed",
        "kedge_bucket_data_write_failures",
        true,
        "Writes and syncs of the log and of files that failed",
    ),
    (
        "ep_settle_failures",
        "kedge_bucket_settle_failures",
        true,
        "Attempts to settle that failed",
    ),
    (
        "ep_flush_commits",
        "kedge_bucket_flush_commits",
        true,
        "Commits of files without a log",
    ),
    (
        "ep_flush_failures",
        "kedge_bucket_flush_failures",
        true,
        "Attempts at them that failed",
    ),
    (
        "ep_db_file_size",
        "kedge_bucket_file_bytes",
        false,
        "Size of the vBuckets' files",
    ),
    (
        "ep_db_data_size",
        "kedge_bucket_file_data_bytes",
        false,
        "What of the files counts, the rest being garbage",
    ),
    (
        "ep_storage_open_files",
        "kedge_bucket_open_files",
        false,
        "Files of vBuckets that stay open",
    ),
    (
        "ep_storage_written_bytes",
        "kedge_bucket_file_written_bytes",
        true,
        "Bytes written to the files of vBuckets",
    ),
    (
        "ep_storage_read_bytes",
        "kedge_bucket_file_read_bytes",
        true,
        "Bytes read from the files of vBuckets",
    ),
    (
        "ep_storage_syncs",
        "kedge_bucket_file_syncs",
        true,
        "Syncs of the files of vBuckets and their directory",
    ),
    (
        "ep_settle_put_off",
        "kedge_bucket_settles_put_off",
        true,
        "Attempts to settle that were put off, as a compaction had the file",
    ),
    (
        "ep_rollback_count",
        "kedge_bucket_rollbacks",
        true,
        "Rollbacks of vBuckets",
    ),
    (
        "ep_rollback_resets",
        "kedge_bucket_rollback_resets",
        true,
        "Rollbacks for which the vBucket began anew, empty",
    ),
    (
        "ep_deleted_vbuckets",
        "kedge_bucket_deleted_vbuckets",
        true,
        "vBuckets that were deleted",
    ),
    (
        "ep_compactions",
        "kedge_bucket_compactions",
        true,
        "Files that were compacted",
    ),
    (
        "ep_compaction_failed",
        "kedge_bucket_compaction_failures",
        true,
        "Compactions that failed",
    ),
    (
        "ep_compaction_aborted",
        "kedge_bucket_compactions_aborted",
        true,
        "Compactions that were cancelled, or gave way to something else",
    ),
    (
        "ep_compactions_queued",
        "kedge_bucket_compactions_queued",
        false,
        "Files that wait for their compaction",
    ),
    (
        "ep_compactions_running",
        "kedge_bucket_compactions_running",
        false,
        "Files that are being compacted",
    ),
    (
        "ep_compaction_bytes",
        "kedge_bucket_compaction_bytes",
        true,
        "Bytes that compactions read and wrote",
    ),
    (
        "ep_compaction_freed_bytes",
        "kedge_bucket_compaction_freed_bytes",
        true,
        "Bytes by which files became smaller",
    ),
    (
        "ep_compaction_bytes_per_sec",
        "kedge_bucket_compaction_bytes_per_second_max",
        false,
        "Rate that compactions are held to; 0 is no limit",
    ),
    (
        "ep_compaction_slowed_down",
        "kedge_bucket_compaction_slowed_down",
        true,
        "Times that the rate was halved, as commits felt it",
    ),
    (
        "ep_compaction_purged_tombstones",
        "kedge_bucket_compaction_purged_tombstones",
        true,
        "Tombstones that compactions left out",
    ),
    (
        "ep_expired_compactor",
        "kedge_bucket_compaction_expired",
        true,
        "Documents that compactions found expired",
    ),
    ("cmd_get", "kedge_bucket_reads", true, "Reads"),
    (
        "get_hits",
        "kedge_bucket_read_hits",
        true,
        "Reads that found a document",
    ),
    (
        "get_misses",
        "kedge_bucket_read_misses",
        true,
        "Reads that found none",
    ),
    (
        "cmd_set",
        "kedge_bucket_writes",
        true,
        "Stores, appends and prepends",
    ),
    (
        "delete_hits",
        "kedge_bucket_deletes",
        true,
        "Deletes that found a document",
    ),
    ("cmd_touch", "kedge_bucket_touches", true, "Touches"),
    (
        "cmd_subdoc_lookup",
        "kedge_bucket_subdoc_lookups",
        true,
        "Sub-document lookups",
    ),
    (
        "cmd_subdoc_mutation",
        "kedge_bucket_subdoc_mutations",
        true,
        "Sub-document mutations",
    ),
    (
        "ep_tmp_oom_errors",
        "kedge_bucket_writes_over_quota",
        true,
        "Writes refused for want of memory",
    ),
    (
        "ep_held_back_writes",
        "kedge_bucket_writes_held_back",
        true,
        "Writes whose answer waited until they were on disk, as the disk was behind",
    ),
    (
        "ep_held_for_memory_writes",
        "kedge_bucket_writes_held_for_memory",
        true,
        "Writes that waited until documents had left memory",
    ),
    (
        "ep_waiting_for_memory",
        "kedge_bucket_writes_waiting_for_memory",
        false,
        "Writes that wait for that now",
    ),
    (
        "ep_item_compressor_num_visited",
        "kedge_bucket_compressor_visited",
        true,
        "Values that the bucket tried to compress in memory",
    ),
    (
        "ep_item_compressor_num_compressed",
        "kedge_bucket_compressor_compressed",
        true,
        "Values that it keeps compressed in memory",
    ),
    (
        "ep_item_compressor_saved_bytes",
        "kedge_bucket_compressor_saved_bytes",
        true,
        "Bytes by which these became smaller",
    ),
    (
        "vb_active_sync_write_accepted_count",
        "kedge_bucket_sync_writes_accepted",
        true,
        "SyncWrites that began",
    ),
    (
        "vb_active_sync_write_committed_count",
        "kedge_bucket_sync_writes_committed",
        true,
        "SyncWrites that were committed",
    ),
    (
        "vb_active_sync_write_aborted_count",
        "kedge_bucket_sync_writes_aborted",
        true,
        "SyncWrites that were aborted",
    ),
];

/// Histograms that do not count microseconds, the metrics that they become, and what to say of them.
const COUNTS: [(&str, &str, &str); 3] = [
    (
        "log_batch_items",
        "kedge_bucket_log_batch_items",
        "Changes that one sync of the log covered",
    ),
    (
        "settle_batch_items",
        "kedge_bucket_settle_batch_items",
        "Documents in one commit of a file",
    ),
    (
        "bg_batch_size",
        "kedge_bucket_bg_batch_size",
        "Documents of one look into a file for commands that wait",
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
struct Sample {
    server: Vec<(String, String)>,
    buckets: Vec<BucketSample>,
    collections: CollectionSamples,
    tasks: TaskSample,
    cluster: Option<ClusterSample>,
}

impl Sample {
    fn take(state: &HttpState) -> Self {
        let mut server = Vec::new();
        (state.parts.stats)(&mut |name, text| server.push((name.to_owned(), text.to_owned())));
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
        }
    }
}

fn value(stats: &[(String, String)], name: &str) -> Option<f64> {
    let (_, text) = stats.iter().find(|(known, _)| known == name)?;
    text.parse().ok()
}

pub(super) fn metric_type(grows: bool) -> MetricType {
    if grows {
        MetricType::Counter
    } else {
        MetricType::Gauge
    }
}

pub(super) fn encode_value(
    encoder: MetricEncoder<'_>,
    grows: bool,
    value: f64,
) -> std::fmt::Result {
    if grows {
        return ConstCounter::new(value).encode(encoder);
    }
    ConstGauge::new(value).encode(encoder)
}

/// A histogram with one bucket for each power of two: enough to draw, and the same from scrape to scrape. `unit`: how
/// many of the recorded values make one of the metric's. The sum is estimated from the middles of the finer buckets.
pub(super) fn encode_histogram(
    encoder: &mut MetricEncoder<'_>,
    snapshot: &TimingSnapshot,
    unit: f64,
) -> std::fmt::Result {
    /// 2^27 us are two minutes; what takes longer is in the last bucket.
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

impl Collector for Sample {
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
        self.tasks.encode(&mut encoder)
    }
}

impl Sample {
    fn encode_timings(&self, encoder: &mut DescriptorEncoder<'_>) -> std::fmt::Result {
        let help = "Time that operations took";
        let mut family = encoder.encode_descriptor(
            "kedge_bucket_duration_seconds",
            help,
            None,
            MetricType::Histogram,
        )?;
        for bucket in &self.buckets {
            let is_time = |name: &str| COUNTS.iter().all(|(count, ..)| *count != name);
            let timed = bucket.timings.iter().filter(|(name, _)| is_time(name));
            for (name, snapshot) in timed.filter(|(_, snapshot)| snapshot.count > 0) {
                let labels = [("bucket", bucket.name.as_str()), ("operation", name)];
                encode_histogram(&mut family.encode_family(&labels)?, snapshot, 1e6)?;
            }
        }
        for (histogram, name, help) in COUNTS {
            let kind = MetricType::Histogram;
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for bucket in &self.buckets {
                let mut timings = bucket.timings.iter();
                let found = timings.find(|(name, _)| *name == histogram);
                if let Some((_, snapshot)) = found {
                    let labels = [("bucket", bucket.name.as_str())];
                    encode_histogram(&mut family.encode_family(&labels)?, snapshot, 1.0)?;
                }
            }
        }
        Ok(())
    }
}

/// `GET /metrics`.
pub(crate) async fn metrics(call: Call) -> Handled {
    call.caller.require(Privilege::Stats, None)?;
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Sample::take(&call.state)));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)
        .map_err(|error| Reply::failed("write the metrics", &error))?;
    ok_typed(CONTENT_TYPE, text)
}
