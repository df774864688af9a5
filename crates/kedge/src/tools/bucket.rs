//! `kedge bucket`: make, drop, list and empty buckets.

use clap::{Args, Subcommand};
use serde_json::Value;

use super::table::table;
use super::{Access, ToolError};
use crate::client::encode;
use crate::output;

/// Make, drop, list and empty buckets
#[derive(Args, Clone, Debug)]
pub(crate) struct BucketArgs {
    #[command(subcommand)]
    command: BucketCommand,
    #[command(flatten)]
    access: Access,
}

#[derive(Subcommand, Clone, Debug)]
enum BucketCommand {
    /// Make a bucket
    Create {
        /// Its name
        name: String,
        /// Memory for its documents, in MiB
        #[arg(long, default_value_t = 100, value_name = "MIB")]
        quota: u64,
        /// Its vBuckets; the server's default when not given
        #[arg(long)]
        vbuckets: Option<u16>,
        /// Let clients empty it
        #[arg(long)]
        flush_enabled: bool,
        /// Replicas wished for, 0 to 3; the cluster's default when not given. One node keeps none
        #[arg(long)]
        replicas: Option<u8>,
        /// Longest time to live of its documents, in seconds; 0 is no limit
        #[arg(long, default_value_t = 0, value_name = "SECS")]
        max_ttl: u32,
        /// Compressed values: off, passive or active
        #[arg(long, default_value = "passive")]
        compression: String,
    },
    /// Drop a bucket and all that is in it
    Drop {
        /// Its name
        name: String,
    },
    /// List the buckets
    List {
        /// Print the server's JSON instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Empty a bucket
    Flush {
        /// Its name
        name: String,
    },
}

const BUCKETS: &str = "/pools/default/buckets";

pub(crate) fn run(args: &BucketArgs) -> Result<(), ToolError> {
    let client = args.access.management()?;
    let place = |name: &str| format!("{BUCKETS}/{}", encode(name));
    let said = match &args.command {
        BucketCommand::Create {
            name,
            quota,
            vbuckets,
            flush_enabled,
            replicas,
            max_ttl,
            compression,
        } => {
            let (quota, replicas) = (quota.to_string(), replicas.map(|it| it.to_string()));
            let (max_ttl, vbuckets) = (max_ttl.to_string(), vbuckets.map(|it| it.to_string()));
            let mut form = vec![
                ("name", name.as_str()),
                ("bucketType", "couchbase"),
                ("ramQuotaMB", &quota),
                ("flushEnabled", if *flush_enabled { "1" } else { "0" }),
                ("maxTTL", &max_ttl),
                ("compressionMode", compression),
            ];
            if let Some(replicas) = &replicas {
                form.push(("replicaNumber", replicas));
            }
            if let Some(vbuckets) = &vbuckets {
                form.push(("numVBuckets", vbuckets));
            }
            client.expect("POST", BUCKETS, &form)?;
            format!("bucket \"{name}\" is made\n")
        }
        BucketCommand::Drop { name } => {
            client.expect("DELETE", &place(name), &[])?;
            format!("bucket \"{name}\" is gone\n")
        }
        BucketCommand::Flush { name } => {
            client.expect("POST", &format!("{}/controller/doFlush", place(name)), &[])?;
            format!("bucket \"{name}\" is empty\n")
        }
        BucketCommand::List { json } => {
            let list = client.json(BUCKETS)?;
            if *json {
                format!("{list}\n")
            } else {
                describe(&list)
            }
        }
    };
    Ok(output::print(&said)?)
}

fn describe(list: &Value) -> String {
    let mut rows = vec![
        [
            "NAME",
            "ITEMS",
            "USED MIB",
            "QUOTA MIB",
            "VBUCKETS",
            "REPLICAS",
            "FLUSH",
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    for bucket in list.as_array().into_iter().flatten() {
        let number = |pointer: &str| bucket.pointer(pointer).and_then(Value::as_f64);
        let text = |pointer: &str| {
            number(pointer).map_or_else(|| "-".to_owned(), |number| format!("{number:.0}"))
        };
        let mib = |pointer: &str| {
            let bytes = number(pointer);
            bytes.map_or_else(
                || "-".to_owned(),
                |it| format!("{:.1}", it / f64::from(1 << 20)),
            )
        };
        let may_flush = bucket.pointer("/controllers/flush").is_some();
        rows.push(vec![
            bucket
                .get("name")
                .and_then(Value::as_str)
                .unwrap_or("?")
                .to_owned(),
            text("/basicStats/itemCount"),
            mib("/basicStats/memUsed"),
            mib("/quota/ram"),
            text("/numVBuckets"),
            text("/replicaNumber"),
            if may_flush { "yes" } else { "no" }.to_owned(),
        ]);
    }
    table("lrrrrr", &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_a_table() {
        let list = serde_json::json!([{
            "name": "default", "numVBuckets": 1024, "replicaNumber": 0,
            "quota": {"ram": 104_857_600}, "controllers": {"flush": "/x"},
            "basicStats": {"itemCount": 7, "memUsed": 1_572_864},
        }, {"name": "b"}]);
        assert_eq!(
            describe(&list),
            "NAME     ITEMS  USED MIB  QUOTA MIB  VBUCKETS  REPLICAS  FLUSH\n\
             default      7       1.5      100.0      1024         0  yes\n\
             b            -         -          -         -         -  no\n"
        );
    }
}
