//! Collections, for Prometheus.

use kedge_bucket::CollectionFigures;
use kedge_types::Manifest;
use prometheus_client::encoding::DescriptorEncoder;

use super::{encode_value, metric_type};
use crate::state::HttpState;

/// A collection at the time of the scrape.
#[derive(Debug)]
struct CollectionSample {
    bucket: String,
    scope: String,
    collection: String,
    figures: CollectionFigures,
}

/// The collections of all buckets at the time of the scrape.
#[derive(Debug)]
pub(super) struct CollectionSamples(Vec<CollectionSample>);

/// The value of a metric.
type CollectionFigure = fn(&CollectionFigures) -> u64;

/// A metric: name, help text, value.
type CollectionMetric = (&'static str, &'static str, CollectionFigure);

const GAUGES: [CollectionMetric; 2] = [
    (
        "kedge_collection_items",
        "Documents of a collection in active vBuckets",
        |figures| figures.items,
    ),
    (
        "kedge_collection_disk_bytes",
        "Bytes of a collection's documents in the files of active vBuckets",
        |figures| figures.disk_bytes,
    ),
];

/// The counters of commands, by the label `op`.
const OPS: [(&str, CollectionFigure); 3] = [
    ("get", |figures| figures.ops.reads),
    ("store", |figures| figures.ops.writes),
    ("delete", |figures| figures.ops.deletes),
];

impl CollectionSamples {
    pub(super) fn take(state: &HttpState) -> Self {
        let source = &state.parts.buckets;
        let mut samples = Vec::new();
        for facts in source.list() {
            let bucket = facts.config.name;
            let (Some(manifest), Some(figures)) =
                (source.manifest(&bucket), source.collection_figures(&bucket))
            else {
                continue;
            };
            samples.extend(figures.into_iter().filter_map(|figures| {
                let (scope, collection) = names(&manifest, &figures)?;
                Some(CollectionSample {
                    bucket: bucket.clone(),
                    scope,
                    collection,
                    figures,
                })
            }));
        }
        Self(samples)
    }

    pub(super) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> std::fmt::Result {
        for (name, help, value) in GAUGES {
            let mut family = encoder.encode_descriptor(name, help, None, metric_type(false))?;
            for sample in &self.0 {
                let labels = sample.labels();
                let metric = family.encode_family(&labels)?;
                encode_value(metric, false, value(&sample.figures) as f64)?;
            }
        }
        let help = "Commands on documents of a collection";
        let name = "kedge_collection_ops";
        let mut family = encoder.encode_descriptor(name, help, None, metric_type(true))?;
        for sample in &self.0 {
            for (op, value) in OPS {
                let [bucket, scope, collection] = sample.labels();
                let labels = [bucket, scope, collection, ("op", op)];
                let metric = family.encode_family(&labels)?;
                encode_value(metric, true, value(&sample.figures) as f64)?;
            }
        }
        Ok(())
    }
}

impl CollectionSample {
    fn labels(&self) -> [(&'static str, &str); 3] {
        [
            ("bucket", &self.bucket),
            ("scope", &self.scope),
            ("collection", &self.collection),
        ]
    }
}

/// Returns the names of a collection that still exists.
fn names(manifest: &Manifest, figures: &CollectionFigures) -> Option<(String, String)> {
    let (scope, collection) = manifest.collection(figures.collection)?;
    Some((scope.name.clone(), collection.name.clone()))
}
