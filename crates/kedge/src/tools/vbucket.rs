//! `kedge vbucket`: what a person does about one vBucket.

use clap::{Args, Subcommand};
use serde_json::Value;

use super::{Access, ToolError};
use crate::client::encode;
use crate::output;

/// Give up the file of a vBucket that cannot be read
#[derive(Args, Clone, Debug)]
pub(crate) struct VbucketArgs {
    #[command(subcommand)]
    command: VbucketCommand,
    #[command(flatten)]
    access: Access,
}

#[derive(Subcommand, Clone, Debug)]
enum VbucketCommand {
    /// Serve a vBucket that is quarantined again, without its file
    ///
    /// The file is put away under another name, and the vBucket has what the commit log has of it; all other documents
    /// of it are missing. A vBucket whose file can be read is refused.
    Reset {
        /// Its number
        vbucket: u16,
        /// The bucket; that of the URL when not given
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
            "the file that cannot be read is {file} now; what can be saved of it: kedge dump --mode recover {file}\n"
        ),
        None => "the file that could not be read was not there any more\n".to_owned(),
    };
    format!("warning: bucket \"{bucket}\": {}\n{file}", text("warning"))
}
