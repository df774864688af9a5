//! `kedge bucket`: create, change, show, drop, empty and adopt buckets.

mod settings;
mod show;

use clap::{Args, Subcommand};

use super::confirm::Confirm;
use super::{ServerArgs, ToolError};
use crate::client::{ClientError, ManagementClient, encode};
use crate::output;
use settings::{BucketSettingArgs, FormFields};

/// Create, change, show, list, drop, empty and adopt buckets
#[derive(Args, Clone, Debug)]
pub(crate) struct BucketArgs {
    #[command(subcommand)]
    command: BucketCommand,
    #[command(flatten)]
    access: ServerArgs,
}

#[derive(Subcommand, Clone, Debug)]
enum BucketCommand {
    /// Create a bucket, with a quota of 100 MiB unless one is given
    Create {
        /// Name of the bucket
        name: String,
        /// Number of its vBuckets; the server's default if not given
        #[arg(long)]
        vbuckets: Option<u16>,
        /// Conflict resolution of writes with metadata: seqno or lww
        #[arg(long, value_name = "ORDER")]
        conflict_resolution: Option<String>,
        #[command(flatten)]
        settings: BucketSettingArgs,
    },
    /// Change settings of a bucket while it runs; others keep their values
    Edit {
        /// Name of the bucket
        name: String,
        #[command(flatten)]
        settings: BucketSettingArgs,
    },
    /// Show the settings and figures of a bucket
    Show {
        /// Name of the bucket
        name: String,
        /// Print the server's JSON instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Drop a bucket and all its documents
    Drop {
        /// Name of the bucket
        name: String,
        #[command(flatten)]
        confirm: Confirm,
    },
    /// List the buckets
    List {
        /// Print the server's JSON instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Serve an existing bucket directory that is not served
    ///
    /// The node serves the content of its directory of that name, with the last settings of the bucket.
    Adopt {
        /// Name of the bucket, as listed by kedge bucket list among those that are not served
        name: String,
    },
    /// Empty a bucket
    Flush {
        /// Name of the bucket
        name: String,
        #[command(flatten)]
        confirm: Confirm,
    },
}

/// The quota of a new bucket, for which the management has no default.
const QUOTA_FIELD: &str = "ramQuotaMB";
const QUOTA_MIB_DEFAULT: &str = "100";

const BUCKETS: &str = "/pools/default/buckets";
const UNSERVED: &str = "/kedge/buckets/unserved";

pub(crate) fn run(args: &BucketArgs) -> Result<(), ToolError> {
    let client = args.access.management()?;
    let place = |name: &str| format!("{BUCKETS}/{}", encode(name));
    let said = match &args.command {
        BucketCommand::Create {
            name,
            vbuckets,
            conflict_resolution,
            settings,
        } => {
            let mut fields = settings.fields();
            fields.push(("name", name.clone()));
            fields.push(("bucketType", "couchbase".to_owned()));
            if fields.iter().all(|(field, _)| *field != QUOTA_FIELD) {
                fields.push((QUOTA_FIELD, QUOTA_MIB_DEFAULT.to_owned()));
            }
            let vbuckets = vbuckets.map(|it| it.to_string());
            fields.extend(vbuckets.map(|it| ("numVBuckets", it)));
            let order = conflict_resolution.clone();
            fields.extend(order.map(|it| ("conflictResolutionType", it)));
            post(&client, BUCKETS, &fields)?;
            format!("bucket \"{name}\" is made\n")
        }
        BucketCommand::Edit { name, settings } => {
            let fields = settings.fields();
            if fields.is_empty() {
                let what = "nothing to change; see kedge bucket edit --help".to_owned();
                return Err(ToolError::Usage(what));
            }
            post(&client, &place(name), &fields).map_err(|error| about(name, error))?;
            format!("bucket \"{name}\" is changed\n")
        }
        BucketCommand::Show { name, json } => {
            let bucket = client.json(&place(name));
            let bucket = bucket.map_err(|error| about(name, error.into()))?;
            if *json {
                format!("{bucket}\n")
            } else {
                show::one(&bucket)
            }
        }
        BucketCommand::Drop { name, confirm } => {
            confirm.ask(&format!("drop bucket \"{name}\" and all its documents"))?;
            let dropped = client.expect("DELETE", &place(name), &[]);
            dropped.map_err(|error| about(name, error.into()))?;
            format!("bucket \"{name}\" is gone\n")
        }
        BucketCommand::Flush { name, confirm } => {
            confirm.ask(&format!("delete all documents of bucket \"{name}\""))?;
            let flushed =
                client.expect("POST", &format!("{}/controller/doFlush", place(name)), &[]);
            flushed.map_err(|error| about(name, error.into()))?;
            format!("bucket \"{name}\" is empty\n")
        }
        BucketCommand::List { json } => {
            let list = client.json(BUCKETS)?;
            if *json {
                format!("{list}\n")
            } else {
                show::all(&list) + &unserved(&client)?
            }
        }
        BucketCommand::Adopt { name } => {
            let place = format!("{UNSERVED}/{}/adopt", encode(name));
            client.expect("POST", &place, &[])?;
            format!("bucket \"{name}\" is served\n")
        }
    };
    Ok(output::print(&said)?)
}

/// Returns the directories that are not served, a line for each; nothing for a user who may not create buckets.
fn unserved(client: &ManagementClient) -> Result<String, ToolError> {
    let reply = client.send("GET", UNSERVED, &[])?;
    if reply.code == 403 {
        return Ok(String::new());
    }
    let reply = client.succeeded(reply)?;
    Ok(show::unserved(
        &serde_json::from_slice(&reply.body).unwrap_or_default(),
    ))
}

/// Returns the error of a command on the bucket `name`, which the server's error message does not name.
fn about(name: &str, error: ToolError) -> ToolError {
    match error {
        ToolError::Client(ClientError::Http { code: 404, .. }) => ToolError::Usage(format!(
            "there is no bucket \"{name}\"; kedge bucket list shows all"
        )),
        ToolError::Client(error @ ClientError::Http { .. }) => {
            ToolError::Usage(format!("bucket \"{name}\": {error}"))
        }
        other => other,
    }
}

/// Sends a form; errors of its fields are returned as a table.
fn post(client: &ManagementClient, path: &str, fields: &FormFields) -> Result<(), ToolError> {
    let form: Vec<(&str, &str)> = fields
        .iter()
        .map(|(field, value)| (*field, value.as_str()))
        .collect();
    let reply = client.send("POST", path, &form)?;
    if let Some(refusal) = settings::refusal(&reply) {
        return Err(refusal);
    }
    client.succeeded(reply)?;
    Ok(())
}
