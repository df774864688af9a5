//! `kedge stats`: a group of statistics.

use clap::Args;
use serde_json::{Map, Value};

use super::table::table;
use super::{ServerArgs, ToolError, tasks};
use crate::client::ClientError;
use crate::output;

/// Show the server's statistics
#[derive(Args, Clone, Debug)]
pub(crate) struct StatsArgs {
    /// Group and its arguments; without one, the general group.
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
    access: ServerArgs,
}

/// Returns a value as JSON: a number if it is nothing else.
fn json_value(text: String) -> Value {
    if let Ok(number) = text.parse::<u64>()
        && number.to_string() == text
    {
        return number.into();
    }
    if let Ok(number) = text.parse::<i64>()
        && number.to_string() == text
    {
        return number.into();
    }
    let is_decimal = text.split_once('.').is_some_and(|(whole, part)| {
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
        let whole = whole.strip_prefix('-').unwrap_or(whole);
        digits(whole) && digits(part) && (whole == "0" || !whole.starts_with('0'))
    });
    match text.parse::<f64>() {
        Ok(number) if is_decimal => number.into(),
        _ => text.into(),
    }
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
            .map(|(name, value)| (name, json_value(value)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_numbers() {
        // `kedge stats --json` printed every number as text, so that jq could not compare or add them.
        let json = |text: &str| json_value(text.to_owned()).to_string();
        for (text, expected) in [
            ("0", "0"),
            ("42", "42"),
            ("-1", "-1"),
            ("18446744073709551615", "18446744073709551615"),
            ("1.5", "1.5"),
            ("0.250000", "0.25"),
            ("-0.5", "-0.5"),
        ] {
            assert_eq!(json(text), expected, "{text}");
        }
        for text in [
            "",
            "007",
            "+1",
            "1e3",
            "1.",
            ".5",
            "00.5",
            "8.0.0",
            "0x10",
            "NaN",
            "inf",
            "1_0",
            " 1",
            "18446744073709551616",
            "active",
            "true",
            "5f",
            "-",
            "--1",
            "1.5.2",
        ] {
            assert_eq!(json_value(text.to_owned()), Value::from(text), "{text}");
        }
    }
}
