//! Metrics of the nodes of a cluster: help texts, and the page that documents them.

use std::collections::BTreeSet;

use crate::cluster::Cluster;

#[path = "../../../kedge-mgmt/src/metrics/help.rs"]
mod help;

const PAGE: &str = include_str!("../../../../docs/reference/metrics.md");

fn metrics(cluster: &Cluster, node: usize) -> String {
    let reply = cluster.http(node).send("GET", "/metrics", &[]);
    String::from_utf8(reply.expect("an answer").body).expect("text")
}

/// Returns the names of all families, as the `# TYPE` lines give them.
fn families(text: &str) -> BTreeSet<&str> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.filter_map(|rest| rest.split(' ').next()).collect()
}

/// Returns the metrics that the page names in full: no prefixes, which end in `_`.
fn documented() -> BTreeSet<&'static str> {
    let quoted = PAGE.split('`').skip(1).step_by(2);
    let is_metric = |name: &&str| {
        (name.starts_with("kedge_") || name.starts_with("process_")) && !name.ends_with('_')
    };
    quoted.filter(is_metric).collect()
}

/// Only the metrics of a single node were checked. The help texts of two metrics of a cluster began with the name of a
/// type.
#[test]
fn metrics_of_a_cluster_node_have_help_texts_and_are_documented() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(dir.path(), &["--nodes=2", "--replicas=1", "--tls=auto"]);
    for node in 0..2 {
        let text = metrics(&cluster, node);
        help::check(&text);
        let families = families(&text);
        for name in [
            "map_revision",
            "applied_revision",
            "coordinator_up",
            "serves",
            "lease_left_seconds",
            "lease_renewals",
            "lease_failures",
            "lease_lapses",
            "promises_given",
            "promises_received",
            "node_up",
            "replicas",
            "wanted_replicas",
            "missing_copies",
            "vbuckets_without_active",
        ] {
            let name = format!("kedge_cluster_{name}");
            assert!(families.contains(&*name), "{name}: {families:?}");
        }
        for name in [
            "links",
            "links_up",
            "vbuckets",
            "following",
            "items_behind",
            "connects",
            "failures",
            "items",
            "received_bytes",
            "acks",
            "rollbacks",
            "takeovers",
        ] {
            let name = format!("kedge_replication_{name}");
            assert!(families.contains(&*name), "{name}: {families:?}");
        }
        for name in documented() {
            // The names of counters end in `_total` in samples only.
            let family = name.strip_suffix("_total").unwrap_or(name);
            let is_info = || families.contains(family.trim_end_matches("_info"));
            assert!(
                families.contains(family) || is_info(),
                "{name} of the page is no metric"
            );
        }
    }
}
