//! `kedge compact`: compact the files of a bucket.

use clap::Args;
use serde_json::Value;

use super::{ServerArgs, ToolError};
use crate::client::encode;
use crate::output;

/// Compact the files of a bucket
///
/// The server compacts a file automatically when it has enough garbage. Clients are served meanwhile, and compactions
/// are throttled by their latency.
#[derive(Args, Clone, Debug)]
pub(crate) struct CompactArgs {
    /// Name of the bucket; by default that of the URL
    bucket: Option<String>,
    /// Compact only this vBucket. May be repeated
    #[arg(long = "vb", value_name = "N")]
    vbuckets: Vec<u16>,
    /// Purge deletes from before this Unix second, and not only those older than the purge age
    #[arg(long, value_name = "SECS")]
    purge_before: Option<u32>,
    /// Purge all deletes; readers of the change history may then miss some
    #[arg(long)]
    drop_deletes: bool,
    /// Wait for the end, and print the result
    #[arg(long)]
    wait: bool,
    /// Cancel all compactions of the bucket instead
    #[arg(long, conflicts_with_all = ["vbuckets", "purge_before", "drop_deletes", "wait"])]
    cancel: bool,
    #[command(flatten)]
    access: ServerArgs,
}

pub(crate) fn run(args: &CompactArgs) -> Result<(), ToolError> {
    let bucket = match &args.bucket {
        Some(bucket) => bucket.clone(),
        None => args.access.bucket()?,
    };
    let client = args.access.management()?.patient();
    let place = format!("/pools/default/buckets/{}/controller", encode(&bucket));
    if args.cancel {
        client.expect("POST", &format!("{place}/cancelBucketCompaction"), &[])?;
        return Ok(output::print(&format!(
            "compactions of bucket \"{bucket}\" are cancelled\n"
        ))?);
    }
    let numbers: Vec<String> = args.vbuckets.iter().map(u16::to_string).collect();
    let numbers = numbers.join(",");
    let secs = args.purge_before.map(|secs| secs.to_string());
    let mut form = Vec::new();
    if !numbers.is_empty() {
        form.push(("vbuckets", numbers.as_str()));
    }
    if let Some(secs) = &secs {
        form.push(("purgeBefore", secs));
    }
    for (field, given) in [("dropDeletes", args.drop_deletes), ("wait", args.wait)] {
        if given {
            form.push((field, "true"));
        }
    }
    let reply = client.expect("POST", &format!("{place}/compactBucket"), &form)?;
    if !args.wait {
        return Ok(output::print(&format!(
            "bucket \"{bucket}\" is being compacted\n"
        ))?);
    }
    let report: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    output::print(&describe(&bucket, &report))?;
    let count = |field: &str| report.get(field).and_then(Value::as_u64).unwrap_or(0);
    match (count("failed"), count("cancelled")) {
        (0, 0) => Ok(()),
        (0, cancelled) => Err(ToolError::Usage(format!("{cancelled} were cancelled"))),
        (failed, _) => {
            let why = report.get("firstError").and_then(Value::as_str);
            let why = why.unwrap_or("the server's log says why");
            Err(ToolError::Usage(format!("{failed} failed: {why}")))
        }
    }
}

fn describe(bucket: &str, report: &Value) -> String {
    let count = |field: &str| report.get(field).and_then(Value::as_u64).unwrap_or(0);
    let mib = |field: &str| count(field) as f64 / f64::from(1 << 20);
    format!(
        "bucket \"{bucket}\": {} files compacted from {:.1} to {:.1} MiB, {} deletes forgotten, {} documents expired\n",
        count("compacted"),
        mib("bytesBefore"),
        mib("bytesAfter"),
        count("tombstones"),
        count("expired"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compaction_report_is_a_sentence() {
        let report = serde_json::json!({
            "compacted": 64, "bytesBefore": 3 << 20, "bytesAfter": 1 << 20, "tombstones": 5, "expired": 1,
        });
        assert_eq!(
            describe("b", &report),
            "bucket \"b\": 64 files compacted from 3.0 to 1.0 MiB, 5 deletes forgotten, 1 documents expired\n"
        );
    }
}
