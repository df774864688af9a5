//! The groups of STAT about a bucket and its vBuckets that need no file of their own.

use std::sync::Arc;

use kedge_bucket::{Bucket, ScanFigures, ScanSelection, Timing, VbFigures, VbState};
use kedge_cluster::CLAIMED_VERSION;
use kedge_types::VbId;

use super::stat_lines::{StatStep, of_vbuckets, state_name, state_name_of};
use super::storage_stats;
use crate::histogram::{self, HistogramFormat};
use crate::server_context::ServerContext;
use crate::stat_generator::{AddStat, StatGenerator};

/// The general statistics, of the server and of the selected bucket.
pub(super) fn general(shared: &ServerContext, bucket: Option<&Bucket>, each: AddStat<'_>) {
    each("pid", &std::process::id().to_string());
    each("time", &shared.now().unix_secs().to_string());
    each("version", CLAIMED_VERSION);
    each("pointer_size", &usize::BITS.to_string());
    shared.metrics.stats(each);
    shared.tls_stats(each);
    shared.checks.guard().stats(each);
    shared.request_memory.stats(each);
    shared.dcp.stats(each);
    shared.replication.stats(each);
    shared.registry.stats(each);
    let Some(bucket) = bucket else {
        return;
    };
    let (mut gets, mut sets) = (0, 0);
    bucket.stats(&mut |name, value| {
        each(name, value);
        let number = || value.parse::<u64>().unwrap_or(0);
        match name {
            "cmd_get" | "cmd_subdoc_lookup" => gets += number(),
            "cmd_set"
            | "delete_hits"
            | "delete_misses"
            | "incr_hits"
            | "incr_misses"
            | "decr_hits"
            | "decr_misses"
            | "cmd_subdoc_mutation" => sets += number(),
            _ => {}
        }
        // The names that memcached clients use for the same figures.
        match name {
            "mem_used" => each("bytes", value),
            "ep_max_size" => each("limit_maxbytes", value),
            _ => {}
        }
    });
    for (name, value) in [
        ("cmd_total_gets", gets),
        ("cmd_total_sets", sets),
        ("cmd_total_ops", gets + sets),
    ] {
        each(name, &value.to_string());
    }
}

pub(super) fn timings(bucket: &Bucket, style: HistogramFormat, each: AddStat<'_>) {
    for timing in Timing::ALL {
        let name = match style {
            HistogramFormat::Json => timing.name(),
            HistogramFormat::Lines => vendor_name(*timing),
        };
        histogram::show_in(style, bucket, name, *timing, each);
    }
}

/// The name of a histogram for `cbstats timings`, which derives the unit from the end of the name. It is Couchbase
/// Server's name where that has the same histogram.
const fn vendor_name(timing: Timing) -> &'static str {
    match timing {
        Timing::Get => "get_cmd",
        Timing::Set => "store_cmd",
        Timing::Arithmetic => "arith_cmd",
        Timing::Stat => "get_stats_cmd",
        Timing::SyncWriteMajorityAndPersistToActive => {
            "sync_write_commit_majority_and_persist_on_master"
        }
        Timing::LogBatchItems => "logBatchCount",
        Timing::ApplyBatchItems => "applyBatchCount",
        Timing::FsReadSize => "fsReadSize",
        Timing::FsWriteSize => "fsWriteSize",
        other => other.name(),
    }
}

/// Shows all vBuckets, or the one that the argument names.
pub(super) fn vbuckets(
    bucket: &Arc<Bucket>,
    argument: Option<&str>,
    each: AddStat<'_>,
    show: impl Fn(&VbFigures, AddStat<'_>) + Send + 'static,
) -> StatStep {
    let look = Bucket::vbucket_figures;
    of_vbuckets(bucket, argument, each, look, move |_, figures, each| {
        show(&figures, each);
    })
}

/// `vbucket`: the state of vBuckets.
pub(super) fn vbucket_states(
    bucket: &Arc<Bucket>,
    argument: Option<&str>,
    each: AddStat<'_>,
) -> StatStep {
    vbuckets(bucket, argument, each, |figures, each| {
        each(&format!("vb_{}", figures.vb), state_name(figures));
    })
}

/// `prev-vbucket`: the state of vBuckets before the last restart.
pub(super) fn previous_vbucket_states(
    bucket: &Arc<Bucket>,
    argument: Option<&str>,
    each: AddStat<'_>,
) -> StatStep {
    let look = |bucket: &Bucket, vb| {
        let since = || bucket.vbucket_state(vb).ok().map(|_| VbState::Dead);
        bucket.persistence().state_at_open(vb).or_else(since)
    };
    of_vbuckets(bucket, argument, each, look, |vb, state, each| {
        each(&format!("vb_{vb}"), state_name_of(state));
    })
}

/// `vbucket-details`: the figures of vBuckets and of their files.
pub(super) fn vbucket_and_file_details(
    bucket: &Arc<Bucket>,
    argument: Option<&str>,
    each: AddStat<'_>,
) -> StatStep {
    let files = bucket.clone();
    vbuckets(bucket, argument, each, move |figures, each| {
        vbucket_details(figures, each);
        storage_stats::vbucket_file(&files, figures.vb, each);
    })
}

fn rows(vb: VbId, rows: &[(&str, u64)], each: AddStat<'_>) {
    for (name, value) in rows {
        each(&format!("vb_{vb}:{name}"), &value.to_string());
    }
}

pub(super) fn vbucket_seqno(figures: &VbFigures, each: AddStat<'_>) {
    let uuid = figures.failover.first().map_or(0, |(uuid, _)| uuid.get());
    let table = [
        ("abs_high_seqno", figures.high_seqno.get()),
        ("high_seqno", figures.high_seqno.get()),
        ("last_persisted_seqno", figures.persisted_seqno.get()),
        ("max_visible_seqno", figures.visible_seqno.get()),
        ("purge_seqno", figures.purge_seqno.get()),
        ("uuid", uuid),
    ];
    rows(figures.vb, &table, each);
}

fn vbucket_details(figures: &VbFigures, each: AddStat<'_>) {
    let vb = figures.vb;
    each(&format!("vb_{vb}"), state_name(figures));
    let table = [
        ("num_items", figures.documents as u64),
        ("num_tombstones", figures.tombstones as u64),
        ("bytes", figures.bytes as u64),
        ("queue_size", figures.queued as u64),
        ("high_seqno", figures.high_seqno.get()),
        ("persisted_seqno", figures.persisted_seqno.get()),
        ("applied_seqno", figures.applied_seqno.get()),
        ("unapplied_items", figures.unapplied as u64),
        ("max_visible_seqno", figures.visible_seqno.get()),
        ("purge_seqno", figures.purge_seqno.get()),
        ("open_checkpoint_id", figures.checkpoint),
        (
            "high_prepared_seqno",
            figures.durability.high_prepared.get(),
        ),
        (
            "high_completed_seqno",
            figures.durability.high_completed.get(),
        ),
        ("num_prepared", figures.durability.tracked as u64),
        ("max_cas", figures.max_cas.get()),
        ("total_abs_drift", figures.drift.total_us),
        ("total_abs_drift_count", figures.drift.samples),
        ("drift_ahead_threshold_exceeded", figures.drift.ahead),
        ("drift_behind_threshold_exceeded", figures.drift.behind),
        ("num_expired", figures.expired),
        (
            "uuid",
            figures.failover.first().map_or(0, |(uuid, _)| uuid.get()),
        ),
    ];
    rows(vb, &table, each);
}

pub(super) fn failovers(figures: &VbFigures, each: AddStat<'_>) {
    let vb = figures.vb;
    each(
        &format!("vb_{vb}:num_entries"),
        &figures.failover.len().to_string(),
    );
    for (at, (uuid, seqno)) in figures.failover.iter().enumerate() {
        each(&format!("vb_{vb}:{at}:id"), &uuid.to_string());
        each(&format!("vb_{vb}:{at}:seq"), &seqno.to_string());
    }
}

pub(super) fn config(bucket: &Bucket, each: AddStat<'_>) {
    let config = bucket.config();
    if let Ok(settings) = serde_json::to_value(&*config) {
        members("ep", &settings, each);
    }
}

/// Shows the members of an object, with the names of nested objects joined.
fn members(prefix: &str, value: &serde_json::Value, each: AddStat<'_>) {
    match value {
        serde_json::Value::Object(inner) => {
            for (name, value) in inner {
                members(&format!("{prefix}_{name}"), value, each);
            }
        }
        serde_json::Value::String(text) => each(prefix, text),
        other => each(prefix, &other.to_string()),
    }
}

pub(super) fn memory(bucket: &Bucket, each: AddStat<'_>) {
    const WANTED: [&str; 5] = [
        "mem_used",
        "ep_max_size",
        "ep_mem_high_wat",
        "ep_mem_low_wat",
        "ep_checkpoint_memory",
    ];
    for (name, value) in bucket.figures() {
        if WANTED.contains(&name) {
            each(name, &value.to_string());
        }
    }
}

/// `range-scans`: the open range scans, with a line for each figure, named by vBucket and scan.
pub(super) fn range_scans(bucket: &Bucket, each: AddStat<'_>) -> StatGenerator {
    let scans = bucket.scans().scan_figures();
    each("num_open", &scans.len().to_string());
    StatGenerator::over(scans, |scan, each| range_scan(&scan, each))
}

fn range_scan(scan: &ScanFigures, each: AddStat<'_>) {
    let id: String = scan.id.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut tell = |what: &str, value: &str| each(&format!("vb_{}:{id}:{what}", scan.vb), value);
    let request = &scan.request;
    tell("name", &request.name);
    let kind = match request.selection {
        ScanSelection::Range { .. } => "range",
        ScanSelection::Sample { .. } => "sampling",
    };
    tell("type", kind);
    tell("collection", &format!("{:x}", request.collection.get()));
    tell("key_only", if request.key_only { "true" } else { "false" });
    let with_xattrs = if request.with_xattrs { "true" } else { "false" };
    tell("include_xattrs", with_xattrs);
    tell("state", if scan.is_busy { "continuing" } else { "idle" });
    tell("items", &scan.items.to_string());
    tell("bytes", &scan.bytes.to_string());
    tell("idle_ms", &scan.idle_ms.to_string());
}

#[cfg(test)]
mod tests {
    use kedge_bucket::TimingUnit;

    use super::*;

    #[test]
    fn histogram_names_end_with_their_unit() {
        for timing in Timing::ALL {
            let name = vendor_name(*timing);
            let (is_size, is_count) = (name.ends_with("Size"), name.ends_with("Count"));
            let is_count = is_count || name == "bg_batch_size";
            let expected = match timing.unit() {
                TimingUnit::Bytes => (true, false),
                TimingUnit::Count => (false, true),
                TimingUnit::Microseconds => (false, false),
            };
            assert_eq!((is_size, is_count), expected, "{name}");
            let reserved = ["mean", "overflowed", "maxTrackable"];
            assert!(
                name.split('_').all(|part| !reserved.contains(&part)),
                "{name}"
            );
        }
    }
}
