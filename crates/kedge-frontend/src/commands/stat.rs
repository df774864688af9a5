//! STAT: groups of statistics. One reply per name and value, then an empty one.

use std::sync::Arc;

use kedge_bucket::{Bucket, ScanFigures, ScanOf, Timing, VbFigures, VbState};
use kedge_cluster::CLAIMED_VERSION;
use kedge_protocol::binary::ConnectionKind;
use kedge_protocol::binary::commands::Stat;
use kedge_types::{Status, VbId};

use super::context::{CommandContext, Done};
use super::dcp_stats::StreamFormat;
use super::key_stats::{self, KeyGroup};
use super::node_stats::{self, node};
use super::stat_lines::{StatStep, of_vbuckets, state_name, state_name_of};
use super::stat_steps::answer;
use super::{
    collection_details, collection_stats, dcp_stats, memcached_stats, memory_stats, storage_stats,
    task_stats,
};
use crate::histogram::{self, Style};
use crate::session::{AnswerForm, Failure, Rights, Session};
use crate::shared::Shared;
use crate::stat_timings::TimedGroup;
use crate::stat_walk::{Each, Walk};

/// The groups that there are, beside those of [`KeyGroup`].
const GROUPS: [&str; 61] = [
    "",
    "reset",
    "vbucket",
    "prev-vbucket",
    "vbucket-seqno",
    "vbucket-details",
    "failovers",
    "durability-monitor",
    "vbucket-durability-state",
    "checkpoint",
    "hash",
    "eviction",
    "frequency-counters",
    "collections",
    "collections-byid",
    "scopes",
    "scopes-byid",
    "collections-details",
    "scopes-details",
    "manifest",
    "config",
    "uuid",
    "memory",
    "warmup",
    "timings",
    "json_validate",
    "snappy_decompress",
    "subdoc_execute",
    "diskinfo",
    "kvstore",
    "kvtimings",
    "disk-failures",
    "disk-slowness",
    "compaction",
    "dcp",
    "dcpagg",
    "dcp-vbtakeover",
    "range-scans",
    "workload",
    "connections",
    "responses",
    "settings",
    "info",
    "clocks",
    "bucket_details",
    "client_connection_details",
    "allocator",
    "audit",
    "stat-timings",
    "tasks",
    "tasks-all",
    "scheduler",
    "runtimes",
    "dispatcher",
    "external-auth-timings",
    "threads",
    "worker_thread_info",
    "items",
    "slabs",
    "sizes",
    "conns",
];

/// The group, and the form, that a request asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StatRequest<'a> {
    /// The name of the group, then arguments behind spaces.
    pub(crate) group: &'a str,
    /// More arguments, as JSON; empty for none.
    pub(crate) arguments: &'a [u8],
}

pub(super) fn stat(command: &mut CommandContext<'_, '_, '_>) -> Result<Done, Failure> {
    let wire = Stat::decode(command.request)?;
    let group = std::str::from_utf8(wire.group).map_err(|_| Status::Invalid)?;
    let mut words = group.split_ascii_whitespace();
    if let Some(of_key) = words.next().and_then(KeyGroup::named) {
        return key_stats::stat(command, of_key, words);
    }
    let form = AnswerForm::Binary {
        number: command.request.opcode,
        opaque: command.request.opaque,
    };
    let arguments = wire.arguments;
    let asked = StatRequest { group, arguments };
    match answer(command.session, command.turn, asked, form, command.out)? {
        true => Ok(Done::Replied),
        false => Ok(Done::Parked),
    }
}

/// One group. Returns how its histogram is named, and the rest of its lines.
///
/// # Errors
/// `KeyNotFound` for a group that there is not, `NoBucket`, `AccessDenied`, `Invalid` for arguments that make no sense.
pub(crate) fn group_stats(
    session: &Session,
    shared: &Shared,
    asked: StatRequest<'_>,
    each: Each<'_>,
) -> Result<(TimedGroup, Option<Walk>), Failure> {
    let mut words = asked.group.split_ascii_whitespace();
    let name = words.next().unwrap_or_default();
    let known = GROUPS.iter().find(|known| **known == name);
    let known = known.ok_or(Failure::new(
        Status::KeyNotFound,
        "there is no such group of statistics",
    ))?;
    let rest = known_group(session, shared, asked, each)?;
    let timed = TimedGroup {
        name: if known.is_empty() { "all" } else { known },
        single: words.next().is_some(),
    };
    Ok((timed, rest))
}

fn known_group(
    session: &Session,
    shared: &Shared,
    asked: StatRequest<'_>,
    each: Each<'_>,
) -> StatStep {
    let mut words = asked.group.split_ascii_whitespace();
    let name = words.next().unwrap_or_default();
    let argument = words.next();
    let bucket = || session.bucket(Rights::STATS);
    let style = session.protocol.histograms;
    match name {
        "" => {
            if session.bucket.is_some() {
                bucket()?;
            } else if !session.privileges.allow(Rights::STATS) {
                return Err(Status::AccessDenied.into());
            }
            general(shared, session.bucket.as_deref(), each);
            if let (Some(bucket), ConnectionKind::Memcached) = (&session.bucket, session.kind()) {
                memcached_stats::general(shared, bucket, each);
            }
        }
        "timings" => timings(bucket()?, style, each),
        "json_validate" => histogram::show(bucket()?, name, Timing::JsonValidate, each),
        "snappy_decompress" => histogram::show(bucket()?, name, Timing::SnappyDecompress, each),
        "subdoc_execute" => histogram::show(bucket()?, name, Timing::SubdocExecute, each),
        "vbucket" => {
            return vbuckets(bucket()?, argument, each, |figures, each| {
                each(&format!("vb_{}", figures.vb), state_name(figures));
            });
        }
        "prev-vbucket" => {
            let look = |bucket: &Bucket, vb| {
                let since = || bucket.vbucket_state(vb).ok().map(|_| VbState::Dead);
                bucket.persistence().state_before(vb).or_else(since)
            };
            return of_vbuckets(bucket()?, argument, each, look, |vb, state, each| {
                each(&format!("vb_{vb}"), state_name_of(state));
            });
        }
        "vbucket-seqno" => return vbuckets(bucket()?, argument, each, vbucket_seqno),
        "vbucket-details" => {
            let bucket = bucket()?;
            let files = bucket.clone();
            return vbuckets(bucket, argument, each, move |figures, each| {
                vbucket_details(figures, each);
                storage_stats::vbucket_file(&files, figures.vb, each);
            });
        }
        "checkpoint" => return memory_stats::checkpoint(bucket()?, argument, each),
        "hash" => return memory_stats::hash(bucket()?, argument, each),
        "eviction" => memory_stats::eviction(bucket()?, style, each),
        "frequency-counters" => memory_stats::frequency_counters(bucket()?, style, each),
        "diskinfo" => return storage_stats::disk_info(bucket()?, argument),
        "kvstore" => return Ok(Some(storage_stats::kv_store(bucket()?, each))),
        "kvtimings" => storage_stats::kv_timings(bucket()?, style, each),
        "disk-failures" => storage_stats::disk_failures(bucket()?, each),
        "disk-slowness" => storage_stats::disk_slowness(bucket()?, argument, each)?,
        "compaction" => storage_stats::compaction(bucket()?, each),
        "dcp" => {
            let bucket = bucket()?;
            let format = StreamFormat::of(asked.arguments)?;
            return Ok(Some(dcp_stats::connections(shared, bucket, format, each)));
        }
        "dcpagg" => dcp_stats::sums(shared, bucket()?, argument, each),
        "dcp-vbtakeover" => {
            let (vb, name) = (argument, words.next());
            dcp_stats::takeover(shared, bucket()?, vb, name, each)?;
        }
        "durability-monitor" => return vbuckets(bucket()?, argument, each, dcp_stats::monitor),
        "vbucket-durability-state" => return vbuckets(bucket()?, argument, each, dcp_stats::state),
        "range-scans" => return Ok(Some(range_scans(bucket()?, each))),
        "collections" | "collections-byid" | "scopes" | "scopes-byid" => {
            return collection_stats::group(session, name, argument, each);
        }
        "collections-details" | "scopes-details" => {
            return collection_details::group(session, name, argument);
        }
        "manifest" => return collection_stats::manifest(session, argument, each),
        "failovers" => return vbuckets(bucket()?, argument, each, failovers),
        "config" => config(bucket()?, each),
        "memory" => memory(bucket()?, each),
        "uuid" => each("uuid", &bucket()?.config().uuid),
        "warmup" => bucket()?.residency().warmup_stats(each),
        "connections" => node_stats::connections(shared, session, each)?,
        "responses" => node_stats::responses(shared, session, each)?,
        "settings" => node_stats::settings(shared, session, each)?,
        "info" => node_stats::info(session, each)?,
        "clocks" => node_stats::clocks(shared, session, each)?,
        "bucket_details" => node_stats::bucket_details(shared, session, argument, each)?,
        "client_connection_details" => {
            return Ok(Some(node_stats::client_connections(shared, session)?));
        }
        "allocator" => node_stats::allocator(session, each)?,
        "audit" => node_stats::audit(shared, session, each)?,
        "stat-timings" => {
            node(session)?;
            shared.stat_timings.show(style, each);
        }
        "tasks" | "tasks-all" => {
            node(session)?;
            let all = name == "tasks-all";
            return Ok(Some(task_stats::tasks(shared, session, all, each)));
        }
        "scheduler" => {
            node(session)?;
            task_stats::scheduler(&shared.pools, style, each);
        }
        "runtimes" => {
            node(session)?;
            task_stats::runtimes(&shared.pools, style, each);
        }
        "workload" => task_stats::workload(shared, bucket()?, each),
        "threads" => {
            node(session)?;
            task_stats::threads(shared, each);
        }
        "worker_thread_info" => {
            node(session)?;
            task_stats::front_ends(shared, each);
        }
        // Tools ask for them, though nothing is behind them here.
        "dispatcher" | "external-auth-timings" => node(session)?,
        "items" => memcached_stats::items(bucket()?, each),
        "slabs" => memcached_stats::slabs(bucket()?, each),
        "sizes" => {
            bucket()?;
            memcached_stats::sizes(each);
        }
        "conns" => {
            bucket()?;
            memcached_stats::connections(shared, session, each);
        }
        "reset" => {
            session
                .bucket(Rights::STATS.and(Rights::FLUSH))?
                .reset_stats();
            if task_stats::reset(shared, session) {
                shared.stat_timings.reset();
            }
        }
        // A group that is in the list only.
        _ => return Err(Status::NotSupported.into()),
    }
    Ok(None)
}

/// The general statistics: of the server, and of a bucket if there is one.
pub(crate) fn general(shared: &Shared, bucket: Option<&Bucket>, each: Each<'_>) {
    each("pid", &std::process::id().to_string());
    each("time", &shared.now().unix_secs().to_string());
    each("version", CLAIMED_VERSION);
    each("pointer_size", &usize::BITS.to_string());
    shared.metrics.stats(each);
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
        // The names under which memcached's own clients look for the same.
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

fn timings(bucket: &Bucket, style: Style, each: Each<'_>) {
    for timing in Timing::ALL {
        let name = match style {
            Style::Json => timing.name(),
            Style::Lines => vendor_name(*timing),
        };
        histogram::show_in(style, bucket, name, *timing, each);
    }
}

/// The name of a histogram for `cbstats timings`, which tells the unit by the end of the name: that of the original
/// where it has the same.
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

/// All vBuckets, or the one that the argument names.
fn vbuckets(
    bucket: &Arc<Bucket>,
    argument: Option<&str>,
    each: Each<'_>,
    show: impl Fn(&VbFigures, Each<'_>) + Send + 'static,
) -> StatStep {
    let look = Bucket::vbucket_figures;
    of_vbuckets(bucket, argument, each, look, move |_, figures, each| {
        show(&figures, each);
    })
}

fn rows(vb: VbId, rows: &[(&str, u64)], each: Each<'_>) {
    for (name, value) in rows {
        each(&format!("vb_{vb}:{name}"), &value.to_string());
    }
}

fn vbucket_seqno(figures: &VbFigures, each: &mut dyn FnMut(&str, &str)) {
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

fn vbucket_details(figures: &VbFigures, each: &mut dyn FnMut(&str, &str)) {
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

fn failovers(figures: &VbFigures, each: &mut dyn FnMut(&str, &str)) {
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

fn config(bucket: &Bucket, each: Each<'_>) {
    let config = bucket.config();
    if let Ok(settings) = serde_json::to_value(&*config) {
        members("ep", &settings, each);
    }
}

/// The members of an object, those of objects in it under both names.
fn members(prefix: &str, value: &serde_json::Value, each: Each<'_>) {
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

fn memory(bucket: &Bucket, each: Each<'_>) {
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

/// The range scans that are open: a name of the vBucket and the scan for each of their figures.
fn range_scans(bucket: &Bucket, each: Each<'_>) -> Walk {
    let scans = bucket.scans().scan_figures();
    each("num_open", &scans.len().to_string());
    Walk::over(scans, |scan, each| range_scan(&scan, each))
}

fn range_scan(scan: &ScanFigures, each: Each<'_>) {
    let id: String = scan.id.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut tell = |what: &str, value: &str| each(&format!("vb_{}:{id}:{what}", scan.vb), value);
    let wanted = &scan.wanted;
    tell("name", &wanted.name);
    let kind = match wanted.of {
        ScanOf::Range { .. } => "range",
        ScanOf::Sample { .. } => "sampling",
    };
    tell("type", kind);
    tell("collection", &format!("{:x}", wanted.collection.get()));
    tell("key_only", if wanted.key_only { "true" } else { "false" });
    let with_xattrs = if wanted.with_xattrs { "true" } else { "false" };
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
    fn names_of_histograms_tell_their_unit() {
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

    #[test]
    fn every_group_stands_in_the_document_of_what_is_compatible() {
        let text = include_str!("../../../../docs/compat.md");
        let (_, groups) = text.split_once("## Groups of STAT").unwrap();
        let (supported, _) = groups.split_once("Not served").unwrap();
        for group in GROUPS.iter().filter(|group| !group.is_empty()) {
            let is_there = [' ', '`']
                .iter()
                .any(|end| supported.contains(&format!("`{group}{end}")));
            assert!(is_there, "{group}");
        }
    }
}
