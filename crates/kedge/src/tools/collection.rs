//! `kedge collection`: create, change, drop and list scopes and collections.

use clap::{Args, Subcommand};
use serde_json::Value;

use super::confirm::Confirm;
use super::table::table;
use super::{ServerArgs, ToolError};
use crate::client::{ManagementClient, encode};
use crate::output;

/// Create, change, drop and list scopes and collections of the bucket in the URL
#[derive(Args, Clone, Debug)]
pub(crate) struct CollectionArgs {
    #[command(subcommand)]
    command: CollectionCommand,
    #[command(flatten)]
    access: ServerArgs,
}

#[derive(Subcommand, Clone, Debug)]
enum CollectionCommand {
    /// List scopes and collections
    List {
        /// Print the server's JSON instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Create a collection in an existing scope
    Create {
        /// SCOPE.COLLECTION
        path: String,
        #[command(flatten)]
        ttl: Ttl,
    },
    /// Change the default time to live of a collection, for documents that are written from then on
    Modify {
        /// SCOPE.COLLECTION
        path: String,
        #[command(flatten)]
        ttl: Ttl,
    },
    /// Drop a collection and all its documents
    Drop {
        /// SCOPE.COLLECTION
        path: String,
        #[command(flatten)]
        confirm: Confirm,
    },
    /// Create a scope
    CreateScope {
        /// Name of the scope
        scope: String,
    },
    /// Drop a scope and all collections in it
    DropScope {
        /// Name of the scope
        scope: String,
        #[command(flatten)]
        confirm: Confirm,
    },
}

#[derive(Args, Clone, Debug)]
struct Ttl {
    /// Default time to live of its documents, in seconds; 0: that of the bucket, -1: none, regardless of the bucket
    #[arg(
        long,
        default_value_t = 0,
        value_name = "SECS",
        allow_negative_numbers = true
    )]
    max_ttl: i64,
}

pub(crate) fn run(args: &CollectionArgs) -> Result<(), ToolError> {
    let client = args.access.management()?;
    let scopes = format!(
        "/pools/default/buckets/{}/scopes",
        encode(&args.access.bucket()?)
    );
    let said = answer(&client, &scopes, &args.command)?;
    Ok(output::print(&said)?)
}

fn answer(
    client: &ManagementClient,
    scopes: &str,
    command: &CollectionCommand,
) -> Result<String, ToolError> {
    let of_scope = |scope: &str| format!("{scopes}/{}", encode(scope));
    let of_collection =
        |(scope, name): (&str, &str)| format!("{}/collections/{}", of_scope(scope), encode(name));
    Ok(match command {
        CollectionCommand::List { json } => {
            let manifest = client.json(scopes)?;
            if *json {
                format!("{manifest}\n")
            } else {
                describe(&manifest)
            }
        }
        CollectionCommand::Create { path, ttl } => {
            let (scope, name) = split(path)?;
            let max_ttl = ttl.max_ttl.to_string();
            let form = [("name", name), ("maxTTL", max_ttl.as_str())];
            let place = format!("{}/collections", of_scope(scope));
            client.expect("POST", &place, &form)?;
            format!("collection \"{path}\" is made\n")
        }
        CollectionCommand::Modify { path, ttl } => {
            let max_ttl = ttl.max_ttl.to_string();
            let form = [("maxTTL", max_ttl.as_str())];
            client.expect("PATCH", &of_collection(split(path)?), &form)?;
            format!("collection \"{path}\" is changed\n")
        }
        CollectionCommand::Drop { path, confirm } => {
            let place = of_collection(split(path)?);
            confirm.ask(&format!("drop collection \"{path}\" and all its documents"))?;
            client.expect("DELETE", &place, &[])?;
            format!("collection \"{path}\" is gone\n")
        }
        CollectionCommand::CreateScope { scope } => {
            client.expect("POST", scopes, &[("name", scope)])?;
            format!("scope \"{scope}\" is made\n")
        }
        CollectionCommand::DropScope { scope, confirm } => {
            confirm.ask(&format!("drop scope \"{scope}\" and all collections in it"))?;
            client.expect("DELETE", &of_scope(scope), &[])?;
            format!("scope \"{scope}\" is gone\n")
        }
    })
}

/// Splits a path at its dot; names have no dots.
fn split(path: &str) -> Result<(&str, &str), ToolError> {
    path.split_once('.')
        .filter(|(scope, name)| !scope.is_empty() && !name.is_empty())
        .ok_or_else(|| ToolError::Usage(format!("\"{path}\" is not SCOPE.COLLECTION")))
}

fn describe(manifest: &Value) -> String {
    let text = |value: &Value, field: &str| {
        let field = value.get(field).and_then(Value::as_str);
        field.unwrap_or("?").to_owned()
    };
    let list = |value: &Value, field: &str| value.get(field).and_then(Value::as_array).cloned();
    let mut rows = vec![
        ["SCOPE", "COLLECTION", "ID", "MAX TTL"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for scope in list(manifest, "scopes").unwrap_or_default() {
        let collections = list(&scope, "collections").unwrap_or_default();
        if collections.is_empty() {
            rows.push(vec![
                text(&scope, "name"),
                "-".into(),
                "-".into(),
                "-".into(),
            ]);
        }
        for collection in collections {
            let max_ttl = match collection.get("maxTTL").and_then(Value::as_i64) {
                None | Some(0) => "bucket's".to_owned(),
                Some(-1) => "none".to_owned(),
                Some(secs) => format!("{secs} s"),
            };
            rows.push(vec![
                text(&scope, "name"),
                text(&collection, "name"),
                format!("0x{}", text(&collection, "uid")),
                max_ttl,
            ]);
        }
    }
    table("llrr", &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifest_is_shown_as_a_table() {
        let manifest = serde_json::json!({"uid": "3", "scopes": [
            {"name": "_default", "uid": "0", "collections": [
                {"name": "_default", "uid": "0", "maxTTL": 0, "history": false},
            ]},
            {"name": "shop", "uid": "8", "collections": [
                {"name": "orders", "uid": "8", "maxTTL": -1, "history": false},
                {"name": "carts", "uid": "1f", "maxTTL": 3600, "history": false},
            ]},
            {"name": "empty", "uid": "9", "collections": []},
        ]});
        assert_eq!(
            describe(&manifest),
            "SCOPE     COLLECTION    ID   MAX TTL\n\
             _default  _default     0x0  bucket's\n\
             shop      orders       0x8      none\n\
             shop      carts       0x1f    3600 s\n\
             empty     -              -         -\n"
        );
    }

    #[test]
    fn paths() {
        for (path, expected) in [
            ("shop.orders", Some(("shop", "orders"))),
            ("_default._default", Some(("_default", "_default"))),
            ("shop", None),
            (".orders", None),
            ("shop.", None),
        ] {
            assert_eq!(split(path).ok(), expected, "{path}");
        }
    }
}
