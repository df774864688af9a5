//! The cluster, for Prometheus.

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::http::HttpState;

/// The cluster as this node sees it, at the time of the scrape.
#[derive(Debug)]
pub(super) struct ClusterSample {
    /// Metric, what to say of it, value.
    revisions: [(&'static str, &'static str, i64); 2],
    /// (name, whether it answered when it was asked last) of each other node.
    nodes: Vec<(String, bool)>,
    /// (name, replicas, how many there are to be, vBuckets without one of them) of each bucket.
    buckets: Vec<(String, [usize; 3])>,
}

impl ClusterSample {
    /// `None` of a node that runs alone.
    pub(super) fn take(state: &HttpState) -> Option<Self> {
        let node = state.parts.node.as_ref()?;
        let about = node.about();
        let rev = |revision: Option<kedge_cluster::Revision>| revision.map_or(0, |it| it.rev);
        let map = node.map();
        let of_bucket = |map: &kedge_cluster::ClusterMap, bucket: &kedge_cluster::MapBucket| {
            let wanted = bucket.wanted_replicas(map.nodes.len());
            let figures = [bucket.replicas(), wanted, bucket.missing_copies()];
            (bucket.name.clone(), figures)
        };
        let buckets = map.iter().flat_map(|map| {
            let all = map.buckets.iter();
            all.map(|bucket| of_bucket(map, bucket))
        });
        Some(Self {
            buckets: buckets.collect(),
            revisions: [
                (
                    "kedge_cluster_map_revision",
                    "Revision of the cluster map that the node follows",
                    rev(about.revision),
                ),
                (
                    "kedge_cluster_applied_revision",
                    "Revision of the cluster map that the node's vBuckets are",
                    rev(about.applied),
                ),
            ],
            nodes: node.others(),
        })
    }

    pub(super) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> std::fmt::Result {
        for (name, help, value) in self.revisions {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value).encode(metric)?;
        }
        let help = "Whether another node answered when it was asked last, a second ago at most";
        let name = "kedge_cluster_node_up";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (node, up) in &self.nodes {
            let labels = [("node", node.as_str())];
            ConstGauge::new(i64::from(*up)).encode(family.encode_family(&labels)?)?;
        }
        let figures = [
            (
                "kedge_cluster_replicas",
                "Replicas of each vBucket that count",
            ),
            (
                "kedge_cluster_wanted_replicas",
                "Replicas of each vBucket that there are to be",
            ),
            (
                "kedge_cluster_missing_copies",
                "vBuckets of which a node is missing, or has not caught up yet",
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
