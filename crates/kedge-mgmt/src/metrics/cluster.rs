//! The cluster, for Prometheus.

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use kedge_cluster::Refusal;
use kedge_node::coordination::{AutoFailoverStatus, LeaseStatus, ServesBy};
use prometheus_client::metrics::counter::ConstCounter;

use crate::state::HttpState;

/// A metric: name, help text, value.
type RevisionMetric = (&'static str, &'static str, i64);

/// The metrics of the map's level and revisions, and of the coordination store.
fn revisions(level: i64, followed: i64, applied: i64, has_store: bool) -> [RevisionMetric; 4] {
    [
        (
            "kedge_cluster_compatibility_level",
            "Compatibility level of the cluster map that the node follows",
            level,
        ),
        (
            "kedge_cluster_coordinator_up",
            "1 if the coordination store answered the last call and has the map of this cluster, or 0: the cluster cannot be changed",
            i64::from(has_store),
        ),
        (
            "kedge_cluster_map_revision",
            "Revision of the cluster map that the node follows",
            followed,
        ),
        (
            "kedge_cluster_applied_revision",
            "Revision of the cluster map that the node's vBuckets have applied",
            applied,
        ),
    ]
}

/// The cluster as this node sees it, at the time of the scrape.
#[derive(Debug)]
pub(super) struct ClusterSample {
    revisions: [RevisionMetric; 4],
    auto_failover: AutoFailoverStatus,
    lease: LeaseStatus,
    /// (name, whether it can be reached) of each other node.
    nodes: Vec<(String, bool)>,
    /// (name, replicas, how many there are to be, vBuckets without one of them, vBuckets without an active) of each bucket.
    buckets: Vec<(String, [usize; 4])>,
}

impl ClusterSample {
    /// Takes the sample; `None` on a standalone node.
    pub(super) fn take(state: &HttpState) -> Option<Self> {
        let node = state.parts.node.as_ref()?;
        let report = node.report();
        let rev = |revision: Option<kedge_cluster::Revision>| revision.map_or(0, |it| it.rev);
        let map = node.map();
        let of_bucket = |bucket: &kedge_cluster::MapBucket| {
            let wanted = bucket.wanted_replicas();
            let shortfall = bucket.shortfall(|number| node.is_reached(number));
            let (missing, without) = (shortfall.missing_copies, shortfall.without_active);
            let figures = [bucket.replicas(), wanted, missing, without];
            (bucket.name.clone(), figures)
        };
        let buckets = map.iter().flat_map(|map| &map.buckets).map(of_bucket);
        let store = node.coordinator();
        Some(Self {
            buckets: buckets.collect(),
            revisions: revisions(
                map.as_ref().map_or(0, |map| map.level.0.into()),
                rev(report.revision),
                rev(report.applied),
                store.trouble.is_none(),
            ),
            lease: store.lease,
            auto_failover: node.auto_failover_status(),
            nodes: node.others(),
        })
    }

    fn encode_auto_failover(&self, encoder: &mut DescriptorEncoder<'_>) -> std::fmt::Result {
        let status = &self.auto_failover;
        let gauges = [
            (
                "kedge_cluster_orchestrator",
                "1 if the node is the orchestrator of the cluster, or 0",
                i64::from(status.is_orchestrator),
            ),
            (
                "kedge_cluster_auto_failover_count",
                "Nodes that were failed over automatically since the count was reset",
                i64::from(status.count),
            ),
        ];
        for (name, help, value) in gauges {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value).encode(metric)?;
        }
        let help = "Nodes that this process has failed over automatically";
        let name = "kedge_cluster_auto_failovers";
        let metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        ConstCounter::new(status.failovers).encode(metric)?;
        let help =
            "1 if nodes are down and the orchestrator refuses a failover for this reason, or 0";
        let name = "kedge_cluster_auto_failover_refused";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for reason in Refusal::names() {
            let is_reason = status.is_orchestrator && status.refused == reason;
            let labels = [("reason", reason)];
            let gauge = ConstGauge::new(i64::from(is_reason && !status.nodes.is_empty()));
            gauge.encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn encode_lease(&self, encoder: &mut DescriptorEncoder<'_>) -> std::fmt::Result {
        let lease = &self.lease;
        let help = "Time in seconds for which the node serves if no further renewal of the lease succeeds and the other nodes promise nothing more";
        let name = "kedge_cluster_lease_left_seconds";
        let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        ConstGauge::new(lease.left_ms as f64 / 1e3).encode(metric)?;
        let help = "1 for the reason why the node serves active vBuckets: the lease, the promises of the other nodes while the coordination store is unreachable, or none";
        let name = "kedge_cluster_serves";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for by in [ServesBy::Lease, ServesBy::Promises, ServesBy::None] {
            let gauge = ConstGauge::new(i64::from(lease.serves_by == by));
            gauge.encode(family.encode_family(&[("by", by.name())])?)?;
        }
        let help = "Valid promises of the node not to make failovers of other nodes";
        let name = "kedge_cluster_promises_given";
        let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        ConstGauge::new(i64::try_from(lease.promises).unwrap_or(i64::MAX)).encode(metric)?;
        let counters = [
            (
                "kedge_cluster_lease_renewals",
                "Renewals of the node's lease",
                lease.renewals,
            ),
            (
                "kedge_cluster_lease_failures",
                "Failed renewals of the node's lease",
                lease.failures,
            ),
            (
                "kedge_cluster_lease_lapses",
                "Times that the node stopped serving because the lease was over",
                lease.lapses,
            ),
            (
                "kedge_cluster_promises_received",
                "Times that all other members have promised not to fail this node over",
                lease.promised,
            ),
        ];
        for (name, help, value) in counters {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::new(value).encode(metric)?;
        }
        Ok(())
    }

    pub(super) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> std::fmt::Result {
        for (name, help, value) in self.revisions {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value).encode(metric)?;
        }
        self.encode_lease(encoder)?;
        self.encode_auto_failover(encoder)?;
        let help = "1 if the other node can be reached, as of the last two seconds, or 0";
        let name = "kedge_cluster_node_up";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (node, up) in &self.nodes {
            let labels = [("node", node.as_str())];
            ConstGauge::new(i64::from(*up)).encode(family.encode_family(&labels)?)?;
        }
        let figures = [
            (
                "kedge_cluster_replicas",
                "Replicas that each vBucket of the bucket has",
            ),
            (
                "kedge_cluster_wanted_replicas",
                "Replicas that each vBucket of the bucket should have",
            ),
            (
                "kedge_cluster_missing_copies",
                "vBuckets of which a copy is missing: the node was failed over and has not caught up yet, or cannot be reached",
            ),
            (
                "kedge_cluster_vbuckets_without_active",
                "vBuckets that nobody serves, as there is no active or the node of the active cannot be reached",
            ),
        ];
        for (at, (name, help)) in figures.into_iter().enumerate() {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (bucket, figures) in &self.buckets {
                let labels = [("bucket", bucket.as_str())];
                let gauge = ConstGauge::new(i64::try_from(figures[at]).unwrap_or(i64::MAX));
                gauge.encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::collector::Collector;
    use prometheus_client::registry::Registry;

    use super::*;

    impl Collector for ClusterSample {
        fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
            Self::encode(self, &mut encoder)
        }
    }

    #[test]
    fn every_metric_has_a_help_text_of_its_own() {
        let sample = ClusterSample {
            revisions: revisions(1, 3, 2, true),
            auto_failover: AutoFailoverStatus {
                is_orchestrator: true,
                nodes: vec!["n_1".to_owned()],
                refused: "last_node",
                ..AutoFailoverStatus::default()
            },
            lease: LeaseStatus {
                serves_by: ServesBy::Promises,
                ..LeaseStatus::default()
            },
            nodes: vec![("n_1".to_owned(), true)],
            buckets: vec![("b".to_owned(), [1, 2, 3, 0])],
        };
        let mut registry = Registry::default();
        registry.register_collector(Box::new(sample));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let line = "kedge_cluster_node_up{node=\"n_1\"} 1";
        assert!(text.contains(line), "{text}");
        let line = "kedge_cluster_serves{by=\"promises\"} 1";
        assert!(text.contains(line), "{text}");
        let line = "kedge_cluster_auto_failover_refused{reason=\"last_node\"} 1";
        assert!(text.contains(line), "{text}");
        super::super::help::check(&text);
    }
}
