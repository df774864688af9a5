//! `kedge vbucket`: actions on one vBucket.

use clap::{Args, Subcommand};
use serde_json::Value;

use super::{ServerArgs, ToolError};
use crate::client::encode;
use crate::output;

/// Give up the unreadable file of a vBucket
#[derive(Args, Clone, Debug)]
pub(crate) struct VbucketArgs {
    #[command(subcommand)]
    command: VbucketCommand,
    #[command(flatten)]
    access: ServerArgs,
}

#[derive(Subcommand, Clone, Debug)]
enum VbucketCommand {
    /// Serve a quarantined vBucket again, without its file
    ///
    /// The file is renamed, and the vBucket keeps only the documents that are in the commit log. A vBucket whose file
    /// can be read is refused.
    Reset {
        /// Number of the vBucket
        vbucket: u16,
        /// Name of the bucket; by default that of the URL
        bucket: Option<String>,
    },
}

pub(crate) fn run(args: &VbucketArgs) -> Result<(), ToolError> {
    let VbucketCommand::Reset { vbucket, bucket } = &args.command;
    let bucket = match bucket {
        Some(bucket) => bucket.clone(),
        None => args.access.bucket()?,
    };
    let place = format!(
        "/pools/default/buckets/{}/controller/resetVbucket",
        encode(&bucket)
    );
    let number = vbucket.to_string();
    let client = args.access.management()?.patient();
    let reply = client.expect("POST", &place, &[("vbucket", &number)])?;
    let said: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    Ok(output::print(&describe(&bucket, &said))?)
}

fn describe(bucket: &str, said: &Value) -> String {
    let text = |field: &str| said.get(field).and_then(Value::as_str).unwrap_or("?");
    let file = match said.get("file").and_then(Value::as_str) {
        Some(file) => format!(
            "the unreadable file is now {file}; to salvage documents: kedge dump --mode recover {file}\n"
        ),
        None => "the unreadable file no longer exists\n".to_owned(),
    };
    format!("warning: bucket \"{bucket}\": {}\n{file}", text("warning"))
}
