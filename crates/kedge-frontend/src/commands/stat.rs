//! STAT: groups of statistics. One reply per name and value, then an empty one.

use std::sync::Arc;

use kedge_bucket::{Bucket, Timing};
use kedge_protocol::binary::ConnectionKind;
use kedge_protocol::binary::commands::Stat;
use kedge_types::Status;

use super::bucket_stats::{self, vbuckets};
use super::context::{CommandContext, CommandOutcome};
use super::key_stats::{self, KeyStatGroup};
use super::node_stats::{self, check_node};
use super::stat_lines::StatStep;
use super::stat_steps::answer;
use super::{
    collection_details, collection_stats, dcp_stats, memcached_stats, memory_stats, storage_stats,
    task_stats,
};
use crate::histogram::{self, HistogramFormat};
use crate::server_context::ServerContext;
use crate::session::{CommandFailure, Rights, Session, StatFormat};
use crate::stat_generator::{AddStat, StatGenerator};
use crate::stat_timings::TimedGroup;
use GroupHandler::{BucketLines, BucketSteps, Checked, NodeLines, NodeSteps};

/// A request for a group of statistics.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StatRequest<'a> {
    /// The name of the group, then arguments behind spaces.
    pub(crate) group: &'a str,
    /// More arguments, as JSON; empty for none.
    pub(crate) arguments: &'a [u8],
}

/// The context of a request for a group of statistics.
struct StatContext<'a> {
    session: &'a Session,
    shared: &'a ServerContext,
    /// The first argument behind the name of the group.
    argument: Option<&'a str>,
    second_argument: Option<&'a str>,
    /// Further arguments, as JSON; empty for none.
    json: &'a [u8],
}

impl StatContext<'_> {
    fn style(&self) -> HistogramFormat {
        self.session.protocol.histograms
    }
}

/// The function that produces the lines of a group, by the privilege that is checked first.
enum GroupHandler {
    /// `Stats` in the selected bucket; all lines at once.
    BucketLines(fn(&StatContext<'_>, &Arc<Bucket>, AddStat<'_>)),
    /// `Stats` in the selected bucket; an error, or further lines in steps.
    BucketSteps(fn(&StatContext<'_>, &Arc<Bucket>, AddStat<'_>) -> StatStep),
    /// `Stats` in the selected bucket, or on the node without one; all lines at once.
    NodeLines(fn(&StatContext<'_>, AddStat<'_>)),
    /// `Stats` in the selected bucket, or on the node without one; an error, or further lines in steps.
    NodeSteps(fn(&StatContext<'_>, AddStat<'_>) -> StatStep),
    /// The function checks the privileges.
    Checked(fn(&StatContext<'_>, AddStat<'_>) -> StatStep),
}

impl GroupHandler {
    fn run(&self, context: &StatContext<'_>, each: AddStat<'_>) -> StatStep {
        let session = context.session;
        match self {
            Self::BucketLines(show) => {
                show(context, session.bucket(Rights::STATS)?, each);
                Ok(None)
            }
            Self::BucketSteps(show) => show(context, session.bucket(Rights::STATS)?, each),
            Self::NodeLines(show) => {
                check_node(session)?;
                show(context, each);
                Ok(None)
            }
            Self::NodeSteps(show) => {
                check_node(session)?;
                show(context, each)
            }
            Self::Checked(show) => show(context, each),
        }
    }
}

/// The groups of statistics, beside those of [`KeyStatGroup`].
static GROUPS: [(&str, GroupHandler); 62] = [
    ("", Checked(general)),
    ("reset", Checked(reset)),
    (
        "vbucket",
        BucketSteps(|context, bucket, each| {
            bucket_stats::vbucket_states(bucket, context.argument, each)
        }),
    ),
    (
        "prev-vbucket",
        BucketSteps(|context, bucket, each| {
            bucket_stats::previous_vbucket_states(bucket, context.argument, each)
        }),
    ),
    (
        "vbucket-seqno",
        BucketSteps(|context, bucket, each| {
            vbuckets(bucket, context.argument, each, bucket_stats::vbucket_seqno)
        }),
    ),
    (
        "vbucket-details",
        BucketSteps(|context, bucket, each| {
            bucket_stats::vbucket_and_file_details(bucket, context.argument, each)
        }),
    ),
    (
        "failovers",
        BucketSteps(|context, bucket, each| {
            vbuckets(bucket, context.argument, each, bucket_stats::failovers)
        }),
    ),
    (
        "durability-monitor",
        BucketSteps(|context, bucket, each| {
            vbuckets(bucket, context.argument, each, dcp_stats::monitor)
        }),
    ),
    (
        "vbucket-durability-state",
        BucketSteps(|context, bucket, each| {
            vbuckets(bucket, context.argument, each, dcp_stats::state)
        }),
    ),
    (
        "checkpoint",
        BucketSteps(|context, bucket, each| {
            memory_stats::checkpoint(bucket, context.argument, each)
        }),
    ),
    (
        "hash",
        BucketSteps(|context, bucket, each| memory_stats::hash(bucket, context.argument, each)),
    ),
    (
        "eviction",
        BucketLines(|context, bucket, each| memory_stats::eviction(bucket, context.style(), each)),
    ),
    (
        "frequency-counters",
        BucketLines(|context, bucket, each| {
            memory_stats::frequency_counters(bucket, context.style(), each);
        }),
    ),
    (
        "collections",
        Checked(|context, each| {
            collection_stats::group(context.session, "collections", context.argument, each)
        }),
    ),
    (
        "collections-byid",
        Checked(|context, each| {
            collection_stats::group(context.session, "collections-byid", context.argument, each)
        }),
    ),
    (
        "scopes",
        Checked(|context, each| {
            collection_stats::group(context.session, "scopes", context.argument, each)
        }),
    ),
    (
        "scopes-byid",
        Checked(|context, each| {
            collection_stats::group(context.session, "scopes-byid", context.argument, each)
        }),
    ),
    (
        "collections-details",
        Checked(|context, _| {
            collection_details::group(context.session, "collections-details", context.argument)
        }),
    ),
    (
        "scopes-details",
        Checked(|context, _| {
            collection_details::group(context.session, "scopes-details", context.argument)
        }),
    ),
    (
        "manifest",
        Checked(|context, each| {
            collection_stats::manifest(context.session, context.argument, each)
        }),
    ),
    (
        "config",
        BucketLines(|_, bucket, each| bucket_stats::config(bucket, each)),
    ),
    (
        "uuid",
        BucketLines(|_, bucket, each| each("uuid", &bucket.config().uuid)),
    ),
    (
        "memory",
        BucketLines(|_, bucket, each| bucket_stats::memory(bucket, each)),
    ),
    (
        "warmup",
        BucketLines(|_, bucket, each| bucket.residency().warmup().stats(each)),
    ),
    (
        "timings",
        BucketLines(|context, bucket, each| bucket_stats::timings(bucket, context.style(), each)),
    ),
    (
        "json_validate",
        BucketLines(|_, bucket, each| {
            histogram::show(bucket, "json_validate", Timing::JsonValidate, each);
        }),
    ),
    (
        "snappy_decompress",
        BucketLines(|_, bucket, each| {
            histogram::show(bucket, "snappy_decompress", Timing::SnappyDecompress, each);
        }),
    ),
    (
        "subdoc_execute",
        BucketLines(|_, bucket, each| {
            histogram::show(bucket, "subdoc_execute", Timing::SubdocExecute, each);
        }),
    ),
    (
        "diskinfo",
        BucketSteps(|context, bucket, _| storage_stats::disk_info(bucket, context.argument)),
    ),
    (
        "kvstore",
        BucketSteps(|_, bucket, each| Ok(Some(storage_stats::kv_store(bucket, each)))),
    ),
    (
        "kvtimings",
        BucketLines(|context, bucket, each| {
            storage_stats::kv_timings(bucket, context.style(), each);
        }),
    ),
    (
        "disk-failures",
        BucketLines(|_, bucket, each| storage_stats::disk_failures(bucket, each)),
    ),
    (
        "disk-slowness",
        BucketSteps(|context, bucket, each| {
            storage_stats::disk_slowness(bucket, context.argument, each)
        }),
    ),
    (
        "compaction",
        BucketLines(|_, bucket, each| storage_stats::compaction(bucket, each)),
    ),
    (
        "encryption-key-ids",
        BucketLines(|_, bucket, each| storage_stats::encryption_key_ids(bucket, each)),
    ),
    (
        "dcp",
        BucketSteps(|context, bucket, each| {
            dcp_stats::connections(context.shared, bucket, context.json, each)
        }),
    ),
    (
        "dcpagg",
        BucketLines(|context, bucket, each| {
            dcp_stats::sums(context.shared, bucket, context.argument, each);
        }),
    ),
    (
        "dcp-vbtakeover",
        BucketSteps(|context, bucket, each| {
            dcp_stats::takeover(
                context.shared,
                bucket,
                context.argument,
                context.second_argument,
                each,
            )
        }),
    ),
    (
        "range-scans",
        BucketSteps(|_, bucket, each| Ok(Some(bucket_stats::range_scans(bucket, each)))),
    ),
    (
        "workload",
        BucketLines(|context, bucket, each| task_stats::workload(context.shared, bucket, each)),
    ),
    (
        "connections",
        NodeLines(|context, each| node_stats::connections(context.shared, context.session, each)),
    ),
    (
        "responses",
        NodeLines(|context, each| node_stats::responses(context.shared, each)),
    ),
    (
        "settings",
        NodeLines(|context, each| node_stats::settings(context.shared, context.session, each)),
    ),
    ("info", NodeLines(|_, each| node_stats::info(each))),
    (
        "clocks",
        NodeLines(|context, each| node_stats::clocks(context.shared, each)),
    ),
    (
        "bucket_details",
        NodeSteps(|context, each| {
            node_stats::bucket_details(context.shared, context.session, context.argument, each)
        }),
    ),
    (
        "client_connection_details",
        Checked(|context, _| node_stats::client_connections(context.shared, context.session)),
    ),
    (
        "allocator",
        NodeLines(|_, each| node_stats::allocator(each)),
    ),
    (
        "audit",
        Checked(|context, each| node_stats::audit(context.shared, context.session, each)),
    ),
    (
        "stat-timings",
        NodeLines(|context, each| context.shared.stat_timings.show(context.style(), each)),
    ),
    (
        "tasks",
        NodeSteps(|context, each| {
            Ok(Some(task_stats::tasks(
                context.shared,
                context.session,
                false,
                each,
            )))
        }),
    ),
    (
        "tasks-all",
        NodeSteps(|context, each| {
            Ok(Some(task_stats::tasks(
                context.shared,
                context.session,
                true,
                each,
            )))
        }),
    ),
    (
        "scheduler",
        NodeLines(|context, each| {
            task_stats::scheduler(&context.shared.pools, context.style(), each);
        }),
    ),
    (
        "runtimes",
        NodeLines(|context, each| {
            task_stats::runtimes(&context.shared.pools, context.style(), each);
        }),
    ),
    // Tools ask for these two, although Kedge has nothing to show.
    ("dispatcher", NodeLines(|_, _| {})),
    ("external-auth-timings", NodeLines(|_, _| {})),
    (
        "threads",
        NodeLines(|context, each| task_stats::threads(context.shared, each)),
    ),
    (
        "worker_thread_info",
        NodeLines(|context, each| task_stats::front_ends(context.shared, each)),
    ),
    (
        "items",
        BucketLines(|_, bucket, each| memcached_stats::items(bucket, each)),
    ),
    (
        "slabs",
        BucketLines(|_, bucket, each| memcached_stats::slabs(bucket, each)),
    ),
    (
        "sizes",
        BucketLines(|_, _, each| memcached_stats::sizes(each)),
    ),
    (
        "conns",
        BucketLines(|context, _, each| {
            memcached_stats::connections(context.shared, context.session, each);
        }),
    ),
];

pub(super) fn stat(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    let wire = Stat::decode(command.request)?;
    let group = std::str::from_utf8(wire.group).map_err(|_| Status::Invalid)?;
    let mut words = group.split_ascii_whitespace();
    if let Some(of_key) = words.next().and_then(KeyStatGroup::named) {
        return key_stats::stat(command, of_key, words);
    }
    let form = StatFormat::Binary {
        number: command.request.opcode,
        opaque: command.request.opaque,
    };
    let arguments = wire.arguments;
    let asked = StatRequest { group, arguments };
    match answer(command.session, command.turn, asked, form, command.out)? {
        true => Ok(CommandOutcome::Replied),
        false => Ok(CommandOutcome::Parked),
    }
}

/// Produces the lines of a group. Returns the name under which its duration is recorded, and the rest of its lines.
///
/// # Errors
/// `KeyNotFound` for an unknown group, `NoBucket`, `AccessDenied`, `Invalid` for malformed arguments.
pub(crate) fn group_stats(
    session: &Session,
    shared: &ServerContext,
    asked: StatRequest<'_>,
    each: AddStat<'_>,
) -> Result<(TimedGroup, Option<StatGenerator>), CommandFailure> {
    let mut words = asked.group.split_ascii_whitespace();
    let asked_name = words.next().unwrap_or_default();
    let known = GROUPS.iter().find(|(name, _)| *name == asked_name);
    let (name, handler) = known.ok_or(CommandFailure::new(
        Status::KeyNotFound,
        "there is no such group of statistics",
    ))?;
    let context = StatContext {
        session,
        shared,
        argument: words.next(),
        second_argument: words.next(),
        json: asked.arguments,
    };
    let rest = handler.run(&context, each)?;
    let timed = TimedGroup {
        name: if name.is_empty() { "all" } else { name },
        single: context.argument.is_some(),
    };
    Ok((timed, rest))
}

fn general(context: &StatContext<'_>, each: AddStat<'_>) -> StatStep {
    let StatContext {
        session, shared, ..
    } = *context;
    if session.bucket.is_some() {
        session.bucket(Rights::STATS)?;
    } else {
        check_node(session)?;
    }
    bucket_stats::general(shared, session.bucket.as_deref(), each);
    if let (Some(bucket), ConnectionKind::Memcached) = (&session.bucket, session.kind()) {
        memcached_stats::general(shared, bucket, each);
    }
    Ok(None)
}

fn reset(context: &StatContext<'_>, _: AddStat<'_>) -> StatStep {
    let StatContext {
        session, shared, ..
    } = *context;
    let needed = Rights::STATS.and(Rights::FLUSH);
    session.bucket(needed)?.reset_stats();
    if task_stats::reset(shared, session) {
        shared.stat_timings.reset();
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_group_is_documented_in_compat() {
        let text = include_str!("../../../../docs/compat.md");
        let (_, groups) = text.split_once("## Groups of STAT").unwrap();
        let (supported, _) = groups.split_once("Not served").unwrap();
        for (group, _) in GROUPS.iter().filter(|(group, _)| !group.is_empty()) {
            let is_there = [' ', '`']
                .iter()
                .any(|end| supported.contains(&format!("`{group}{end}")));
            assert!(is_there, "{group}");
        }
    }
}
