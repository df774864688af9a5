//! `kedge stats`: a group of statistics.

use clap::Args;
use serde_json::{Map, Value};

use super::table::table;
use super::tasks;
use super::{Access, ToolError};
use crate::client::ClientError;
use crate::output;

/// Show the server's statistics
#[derive(Args, Clone, Debug)]
pub(crate) struct StatsArgs {
    /// Group and its arguments; without one, the general ones.
    ///
    /// Of a bucket: vbucket, prev-vbucket, vbucket-seqno, vbucket-details, failovers, checkpoint, hash, manifest,
    /// durability-monitor, vbucket-durability-state (each also GROUP VB), key NAME VB [SCOPE.COLLECTION],
    /// key-byid NAME VB ID, vkey and vkey-byid (as key, compared to the file), eviction, frequency-counters, collections,
    /// collections-byid, collections-details, scopes, scopes-byid, scopes-details, config, uuid, memory, warmup, timings,
    /// json_validate, snappy_decompress, subdoc_execute,
    /// diskinfo, diskinfo detail, kvstore, kvtimings, disk-failures, disk-slowness SECONDS, compaction, dcp, dcpagg,
    /// dcp-vbtakeover VB NAME, range-scans, workload, reset.
    ///
    /// Of the node: connections, client_connection_details, bucket_details, responses, settings, info, clocks, audit,
    /// allocator, stat-timings, tasks, tasks-all, scheduler, runtimes, threads, worker_thread_info
    group: Vec<String>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    access: Access,
}

pub(crate) fn run(args: &StatsArgs) -> Result<(), ToolError> {
    let group = args.group.join(" ");
    let rows = match args.access.connect()?.stat(&group) {
        Err(error @ ClientError::Refused { .. }) if !group.is_empty() => {
            return Err(ToolError::Usage(format!("group \"{group}\": {error}")));
        }
        other => other?,
    };
    let text = if args.json {
        let object: Map<String, Value> = rows
            .into_iter()
            .map(|(name, value)| (name, value.into()))
            .collect();
        format!("{}\n", Value::from(object))
    } else if matches!(&*group, "tasks" | "tasks-all") {
        tasks::tables(&rows)
    } else {
        table(
            "lr",
            &rows
                .into_iter()
                .map(|(name, value)| vec![name, value])
                .collect::<Vec<_>>(),
        )
    };
    Ok(output::print(&text)?)
}
