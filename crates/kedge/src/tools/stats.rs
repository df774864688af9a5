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
    /// Group, such as vbucket, vbucket-seqno, vbucket-details, diskinfo, kvstore, compaction, warmup, timings, config,
    /// connections, tasks, scheduler or runtimes; without one, the general ones
    #[arg(default_value = "")]
    group: String,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    access: Access,
}

pub(crate) fn run(args: &StatsArgs) -> Result<(), ToolError> {
    let rows = match args.access.connect()?.stat(&args.group) {
        Err(error @ ClientError::Refused { .. }) if !args.group.is_empty() => {
            return Err(ToolError::Usage(format!(
                "group \"{}\": {error}",
                args.group
            )));
        }
        other => other?,
    };
    let text = if args.json {
        let object: Map<String, Value> = rows
            .into_iter()
            .map(|(name, value)| (name, value.into()))
            .collect();
        format!("{}\n", Value::from(object))
    } else if args.group == "tasks" {
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
