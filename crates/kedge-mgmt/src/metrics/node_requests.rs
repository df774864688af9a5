//! The connections between nodes, for Prometheus: their encryption, and proofs of the cluster's secret.

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::state::HttpState;

/// The connections between nodes at the time of the scrape.
#[derive(Debug)]
pub(super) struct NodeRequestSample {
    proofs: [(&'static str, u64); 3],
    encryption: &'static str,
}

impl NodeRequestSample {
    /// Takes the sample; `None` on a standalone node.
    pub(super) fn take(state: &HttpState) -> Option<Self> {
        let checks = state.parts.proofs.as_ref()?;
        let tls = state.parts.tls.as_ref();
        Some(Self {
            proofs: checks.counts(),
            encryption: tls.map_or("off", |tls| tls.node_encryption()),
        })
    }

    pub(super) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> std::fmt::Result {
        let name = "kedge_mgmt_node_proofs";
        let help = "Requests of other nodes with a proof of the cluster's secret: accepted, refused, or stale, which are answered with a new nonce";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (result, count) in self.proofs {
            let labels = [("result", result)];
            ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
        }
        let name = "kedge_cluster_encryption";
        let help = "1 for the encryption of connections from this node to other nodes, as set by cluster_encryption";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for mode in ["off", "tls", "mutual_tls"] {
            let gauge = ConstGauge::new(i64::from(mode == self.encryption));
            gauge.encode(family.encode_family(&[("mode", mode)])?)?;
        }
        Ok(())
    }
}
