//! `kedge cluster group`: the server groups.

use clap::Args;
use serde_json::Value;

use super::ToolError;
use super::table::table;
use crate::client::{ManagementClient, encode};

/// The path of all groups.
const PATH: &str = "/pools/default/serverGroups";

/// Show or change the server groups: nodes of one group may fail together
///
/// A change moves no vBuckets. The next `rebalance` spreads copies over the groups.
#[derive(Args, Clone, Debug)]
pub(crate) struct GroupArgs {
    /// Make a group without nodes
    #[arg(long, value_name = "GROUP", conflicts_with_all = ["delete", "rename", "node"])]
    create: Option<String>,
    /// Delete a group without nodes
    #[arg(long, value_name = "GROUP", conflicts_with_all = ["rename", "node"])]
    delete: Option<String>,
    /// Give this group the name of `--to`
    #[arg(long, value_name = "GROUP", requires = "to", conflicts_with = "node")]
    rename: Option<String>,
    /// Name of a node that gets the group of `--to`, which it keeps whatever `--server-group` it is started with; repeatable
    #[arg(long, value_name = "NODE", requires = "to")]
    node: Vec<String>,
    /// The new name of a group, or the group of nodes
    #[arg(long, value_name = "GROUP")]
    to: Option<String>,
}

/// Changes the groups as asked for, and returns the text that shows them.
pub(crate) fn run(client: &ManagementClient, args: &GroupArgs) -> Result<String, ToolError> {
    let path = |group: &str| format!("{PATH}/{}", encode(group));
    let to = args.to.as_deref().unwrap_or_default();
    if let Some(name) = &args.create {
        client.expect("POST", PATH, &[("name", name)])?;
    } else if let Some(name) = &args.delete {
        client.expect("DELETE", &path(name), &[])?;
    } else if let Some(from) = &args.rename {
        client.expect("PUT", &path(from), &[("name", to)])?;
    } else if args.node.is_empty() && args.to.is_some() {
        return Err(ToolError::Usage("--to needs --rename or --node".to_owned()));
    }
    for node in &args.node {
        let form = [("node", &**node), ("group", to)];
        client.expect("POST", "/kedge/cluster/group", &form)?;
    }
    Ok(describe(&client.json(PATH)?))
}

fn describe(groups: &Value) -> String {
    let mut rows = vec![["group", "nodes"].map(str::to_owned).to_vec()];
    for group in groups["groups"].as_array().into_iter().flatten() {
        let nodes = group["nodes"].as_array().into_iter().flatten();
        let nodes: Vec<&str> = nodes.filter_map(|node| node["otpNode"].as_str()).collect();
        let name = group["name"].as_str().unwrap_or_default();
        rows.push(vec![name.to_owned(), nodes.join(", ")]);
    }
    table("ll", &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn groups_are_shown_as_a_table() {
        let groups = json!({ "groups": [
            { "name": "east", "nodes": [{ "otpNode": "ns_1@a" }, { "otpNode": "ns_3@c" }] },
            { "name": "west", "nodes": [] },
        ]});
        let shown = describe(&groups);
        let lines: Vec<&str> = shown.lines().map(str::trim_end).collect();
        assert_eq!(lines, ["group  nodes", "east   ns_1@a, ns_3@c", "west"]);
    }
}
