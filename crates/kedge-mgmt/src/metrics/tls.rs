//! TLS, for Prometheus.

use std::time::SystemTime;

use kedge_tls::FailureReason;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::state::HttpState;

/// A counter with a label: name, help text, label, the values of the label with their counts.
type LabelledCounter<'a> = (
    &'static str,
    &'static str,
    &'static str,
    &'a [(&'static str, u64)],
);

/// TLS at the time of the scrape.
#[derive(Debug)]
pub(super) struct TlsSample {
    full: u64,
    resumed: u64,
    failures: Vec<(&'static str, u64)>,
    reloads: u64,
    failed_reloads: u64,
    expires_in: i64,
}

impl TlsSample {
    /// Takes the sample; `None` if TLS is not served.
    pub(super) fn take(state: &HttpState) -> Option<Self> {
        let tls = state.parts.tls.as_ref()?;
        let metrics = tls.metrics();
        let failures = FailureReason::ALL.map(|reason| (reason.label(), metrics.failures(reason)));
        let (reloads, failed_reloads) = metrics.reloads();
        Some(Self {
            full: metrics.full(),
            resumed: metrics.resumed(),
            failures: failures.to_vec(),
            reloads,
            failed_reloads,
            expires_in: tls.expires_in(SystemTime::now()),
        })
    }

    pub(super) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> std::fmt::Result {
        let labelled: [LabelledCounter<'_>; 3] = [
            (
                "kedge_tls_handshakes",
                "TLS handshakes that succeeded: full ones, and resumptions of a session",
                "kind",
                &[("full", self.full), ("resumed", self.resumed)],
            ),
            (
                "kedge_tls_handshake_failures",
                "TLS handshakes that failed, by reason",
                "reason",
                &self.failures,
            ),
            (
                "kedge_tls_reloads",
                "Reloads of the files of TLS, by result",
                "result",
                &[("loaded", self.reloads), ("refused", self.failed_reloads)],
            ),
        ];
        for (name, help, label, values) in labelled {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (value, count) in values {
                let counter = ConstCounter::new(*count);
                counter.encode(family.encode_family(&[(label, *value)])?)?;
            }
        }
        let name = "kedge_tls_certificate_expiry_seconds";
        let help = "Seconds until the TLS certificate expires; negative after that";
        let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        ConstGauge::new(self.expires_in).encode(metric)
    }
}
