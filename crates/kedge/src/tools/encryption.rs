//! `kedge encryption`: the state of encryption at rest, and new data keys.

use std::fmt::Write as _;

use clap::{Args, Subcommand};
use serde_json::Value;

use super::{ServerArgs, ToolError};
use crate::client::{ManagementClient, encode};
use crate::output;

/// Show the encryption at rest of the bucket in the URL, and give it new data keys
#[derive(Args, Clone, Debug)]
pub(crate) struct EncryptionArgs {
    #[command(subcommand)]
    command: EncryptionCommand,
    #[command(flatten)]
    access: ServerArgs,
}

#[derive(Subcommand, Clone, Copy, Debug)]
enum EncryptionCommand {
    /// Show data keys, and files that are to be written again
    Status {
        /// Print the server's JSON instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Give new data a new key, and have all data of older ones written again in the background
    Rotate,
    /// Have the master key wrap the data keys of all buckets again, as after a rotation in its key management service
    Rewrap,
    /// Encrypt and decrypt something with the master key
    TestKey,
}

pub(crate) fn run(args: &EncryptionArgs) -> Result<(), ToolError> {
    let client = args.access.management()?;
    let done = match args.command {
        EncryptionCommand::Status { json } => {
            return status(&client, &args.access.bucket()?, json);
        }
        EncryptionCommand::Rotate => {
            let bucket = args.access.bucket()?;
            let path = format!(
                "/controller/dropEncryptionAtRestDeks/bucket/{}",
                encode(&bucket)
            );
            client.expect("POST", &path, &[])?;
            format!(
                "bucket \"{bucket}\" has a new data key; data of older ones is written again in the background\n"
            )
        }
        EncryptionCommand::Rewrap => {
            client.expect("POST", "/controller/rotateEncryptionKey/1", &[])?;
            "the master key has wrapped the data keys of all buckets again\n".to_owned()
        }
        EncryptionCommand::TestKey => {
            client.expect("POST", "/settings/encryptionKeys/1/test", &[])?;
            "the master key works\n".to_owned()
        }
    };
    Ok(output::print(&done)?)
}

fn status(client: &ManagementClient, bucket: &str, json: bool) -> Result<(), ToolError> {
    let reply = client.expect("GET", &format!("/kedge/encryption/{}", encode(bucket)), &[])?;
    if json {
        return Ok(output::print(&format!(
            "{}\n",
            String::from_utf8_lossy(&reply.body)
        ))?);
    }
    let status: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    Ok(output::print(&describe(bucket, &status))?)
}

fn describe(bucket: &str, status: &Value) -> String {
    let text = |field: &str| status[field].as_str().unwrap_or("none").to_owned();
    let count = |field: &str| status[field].as_u64().unwrap_or(0);
    let data = status["info"]["dataStatus"].as_str().unwrap_or("unknown");
    let mut out = format!("bucket \"{bucket}\": {data}\n");
    let source = status["masterKeySource"].as_str();
    let source = source.map_or_else(String::new, |source| format!(" from {source}"));
    let _ = writeln!(out, "master key      {}{source}", text("masterKey"));
    let keys = status["keys"].as_array();
    for key in keys.into_iter().flatten() {
        let id = key["id"].as_str().unwrap_or_default();
        let created = key["created"].as_u64().unwrap_or(0);
        let created = kedge_node::iso_8601(created * 1_000);
        let _ = writeln!(out, "data key        {id} of {created}");
    }
    let (encrypted, plain) = (count("encryptedFiles"), count("plainFiles"));
    let _ = writeln!(
        out,
        "files           {encrypted} encrypted, {plain} in plain text"
    );
    let _ = writeln!(out, "to be rewritten {}", count("filesToRewrite"));
    if let Some(error) = status["error"].as_str() {
        let _ = writeln!(out, "last error      {error}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_shows_keys_files_and_the_last_error() {
        let status = serde_json::json!({
            "masterKey": "local:00ff",
            "masterKeySource": "env:KEY",
            "keys": [{ "id": "some-uuid", "created": 0 }],
            "encryptedFiles": 3,
            "plainFiles": 1,
            "filesToRewrite": 1,
            "error": "the disk is full",
            "info": { "dataStatus": "partiallyEncrypted" },
        });
        assert_eq!(
            describe("b", &status),
            "bucket \"b\": partiallyEncrypted\n\
             master key      local:00ff from env:KEY\n\
             data key        some-uuid of 1970-01-01T00:00:00.000Z\n\
             files           3 encrypted, 1 in plain text\n\
             to be rewritten 1\n\
             last error      the disk is full\n"
        );
    }
}
