//! `kedge cluster`: the status of a cluster, and the actions of an operator when a node fails.

use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::Value;

use super::auto_failover::AutoFailoverArgs;
use super::server_groups::{self, GroupArgs};
use super::table::table;
use super::{ServerArgs, ToolError};
use crate::client::ManagementClient;
use crate::output;

/// Show a cluster, add and remove nodes, fail a node over, and recover it
#[derive(Args, Clone, Debug)]
pub(crate) struct ClusterArgs {
    #[command(subcommand)]
    command: ClusterCommand,
    #[command(flatten)]
    access: ServerArgs,
}

#[derive(Subcommand, Clone, Debug)]
enum ClusterCommand {
    /// Show nodes, states of vBuckets, and the lag of replicas
    ///
    /// The exit code is 1 when a node is unreachable, or a vBucket has no active or a missing copy.
    Status {
        /// Print the server's JSON instead of tables
        #[arg(long)]
        json: bool,
    },
    /// Fail over a node that is gone: replicas take over its active vBuckets
    ///
    /// The command is refused for a node that responds, and when acknowledged writes would be lost.
    Failover {
        /// Name of the node
        node: String,
        /// Do it in spite of that
        #[arg(long)]
        force: bool,
        /// Move the actives of a running node to their replicas first, without an interruption for clients, and wait until
        /// that is done
        #[arg(long, conflicts_with = "force")]
        graceful: bool,
    },
    /// Move the actives of a node to their replicas, so that it can restart without an interruption for clients, and wait
    /// until that is done
    ///
    /// The node stays a member with its replicas, and gets actives back by `balance` or `rebalance`. `rebalance --stop` stops
    /// the command.
    Drain {
        /// Name of the node
        node: String,
    },
    /// Recover a failed-over node that runs again: it becomes a replica that counts after it has caught up
    ///
    /// A node that was not failed over becomes the active of vBuckets without any copy after a forced failover.
    Recover {
        /// Name of the node
        node: String,
        /// Let the node discard its data first
        #[arg(long)]
        full: bool,
    },
    /// Make a node a member that was started with this cluster's coordination store
    ///
    /// It has no vBuckets of existing buckets yet.
    Add {
        /// Name of the node
        node: String,
    },
    /// Remove a node that has no vBuckets, or forget one that waits to be added
    ///
    /// A removed node drops its buckets and waits to be added again.
    Remove {
        /// Name of the node
        node: String,
    },
    /// Hold the compatibility level of the cluster during an upgrade, so that the release before can come back
    ///
    /// The level is raised when all nodes have the newer release, and never goes down. `status` shows it.
    Level {
        /// Keep the level as it is
        #[arg(long, required_unless_present = "raise")]
        hold: bool,
        /// Raise it as soon as all nodes support the next one, which is the default
        #[arg(long, conflicts_with = "hold")]
        raise: bool,
    },
    /// Move the active of a vBucket to a node that has a replica of it, without an interruption for clients
    Move {
        /// Name of the bucket
        bucket: String,
        /// Number of the vBucket
        vbucket: u16,
        /// Name of the node
        node: String,
    },
    /// Move actives back to the nodes that they would have in a new bucket, as after `recover`, without an interruption
    /// for clients
    Balance,
    AutoFailover(AutoFailoverArgs),
    Group(GroupArgs),
    /// Spread all vBuckets evenly over all nodes, without an interruption for clients
    ///
    /// As few copies as possible are made. A stopped or failed rebalance is resumed by the same command. Nodes that are failed
    /// over have to be recovered before, or named with `--remove`.
    Rebalance(RebalanceArgs),
}

#[derive(Args, Clone, Debug)]
struct RebalanceArgs {
    /// Name of a node to remove at the end; repeatable
    #[arg(long, value_name = "NODE", conflicts_with_all = ["stop", "status"])]
    remove: Vec<String>,
    /// Wait until it ends, and show its progress
    #[arg(long, conflicts_with = "stop")]
    wait: bool,
    /// Stop the running rebalance, drain or graceful failover: copies that are not complete are given up
    #[arg(long, conflicts_with = "status")]
    stop: bool,
    /// Limit the vBuckets that a node sends, and receives, at the same time: 1 to 64, of a running rebalance and of later
    /// ones; none begins
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["remove", "stop", "status"])]
    moves_per_node: Option<u8>,
    /// Show the last rebalance, drain or graceful failover, and begin none
    #[arg(long)]
    status: bool,
}

/// Sends a form to a place below `/kedge/cluster`.
type Post<'a> = dyn Fn(&str, &[(&str, &str)]) -> Result<Value, ToolError> + 'a;

fn rebalance(
    client: &ManagementClient,
    post: &Post<'_>,
    args: &RebalanceArgs,
) -> Result<(), ToolError> {
    if args.stop {
        let said = post("rebalance/stop", &[])?;
        let status = client.json("/kedge/cluster/rebalance")?;
        output::print(&outcome(
            &format!("the {} is stopped", kind(&status)),
            &said,
        ))?;
    } else if let Some(moves) = args.moves_per_node {
        let moves = moves.to_string();
        client.expect(
            "POST",
            "/settings/rebalance",
            &[("rebalanceMovesPerNode", &moves)],
        )?;
        output::print(&format!("moves per node: {moves}\n"))?;
        if !args.wait {
            return Ok(());
        }
    } else if !args.status {
        let nodes = args.remove.iter();
        let form: Vec<(&str, &str)> = nodes.map(|node| ("remove", &**node)).collect();
        let said = post("rebalance", &form)?;
        output::print(&outcome("the rebalance has begun", &said))?;
    }
    let ended = rebalanced(client, args.wait);
    if args.status {
        let status = client.json("/kedge/cluster/rebalance")?;
        let moves = number(&status, "/movesPerNode");
        output::print(&format!("moves per node: {moves}\n"))?;
    }
    ended
}

/// Holds the compatibility level, or no longer.
fn level(post: &Post<'_>, hold: bool) -> Result<String, ToolError> {
    let (what, is_held) = match hold {
        true => ("the compatibility level is held", "true"),
        false => (
            "the compatibility level is raised as soon as all nodes support the next one",
            "false",
        ),
    };
    Ok(outcome(what, &post("level", &[("hold", is_held)])?))
}

/// Moves the actives of a node to its replicas, and fails it over if wanted. Waits until that is done.
fn drain(
    client: &ManagementClient,
    post: &Post<'_>,
    node: &str,
    fails_over: bool,
) -> Result<(), ToolError> {
    let (what, fails_over) = match fails_over {
        true => ("graceful failover", "true"),
        false => ("drain", "false"),
    };
    let said = post("drain", &[("node", node), ("failover", fails_over)])?;
    output::print(&outcome(&format!("the {what} has begun"), &said))?;
    rebalanced(client, true)
}

pub(crate) fn run(args: &ClusterArgs) -> Result<(), ToolError> {
    // The server gives up on a node that hangs, and then replies.
    let client = args.access.management()?.patient();
    let post = |place: &str, form: &[(&str, &str)]| -> Result<Value, ToolError> {
        let reply = client.expect("POST", &format!("/kedge/cluster/{place}"), form)?;
        Ok(serde_json::from_slice(&reply.body).unwrap_or_default())
    };
    let said = match &args.command {
        ClusterCommand::Status { json } => {
            let status = client.json("/kedge/cluster/status")?;
            output::print(&match *json {
                true => format!("{status}\n"),
                false => describe(&status),
            })?;
            return match troubles(&status) {
                none if none.is_empty() => Ok(()),
                troubles => Err(ToolError::Usage(format!(
                    "the cluster has problems: {troubles}"
                ))),
            };
        }
        ClusterCommand::Failover {
            node,
            graceful: true,
            ..
        } => return drain(&client, &post, node, true),
        ClusterCommand::Drain { node } => return drain(&client, &post, node, false),
        ClusterCommand::Failover { node, force, .. } => {
            let force = if *force { "true" } else { "false" };
            let said = post("failover", &[("node", node), ("force", force)])?;
            let promoted = number(&said, "/promoted");
            let what =
                format!("node \"{node}\" is failed over: {promoted} vBuckets have another active");
            outcome(&what, &said)
        }
        ClusterCommand::Recover { node, full } => {
            let full = if *full { "true" } else { "false" };
            let said = post("recover", &[("node", node), ("full", full)])?;
            let what =
                format!("node \"{node}\" is back as a replica, and counts when it has caught up");
            outcome(&what, &said)
        }
        ClusterCommand::Add { node } => {
            let said = post("add", &[("node", node)])?;
            outcome(&format!("node \"{node}\" is a member"), &said)
        }
        ClusterCommand::Remove { node } => {
            let said = post("remove", &[("node", node)])?;
            outcome(&format!("node \"{node}\" is removed"), &said)
        }
        ClusterCommand::Level { hold, .. } => level(&post, *hold)?,
        ClusterCommand::Move {
            bucket,
            vbucket,
            node,
        } => {
            let vbucket = vbucket.to_string();
            let form = [("bucket", &**bucket), ("vbucket", &vbucket), ("node", node)];
            moved(&post("move", &form)?)
        }
        ClusterCommand::Balance => moved(&post("balance", &[])?),
        ClusterCommand::AutoFailover(args) => super::auto_failover::run(&client, args)?,
        ClusterCommand::Group(args) => server_groups::run(&client, args)?,
        ClusterCommand::Rebalance(args) => return rebalance(&client, &post, args),
    };
    Ok(output::print(&said)?)
}

fn number(document: &Value, pointer: &str) -> u64 {
    document
        .pointer(pointer)
        .and_then(Value::as_u64)
        .unwrap_or(0)
}

fn text<'a>(document: &'a Value, field: &str) -> &'a str {
    document.get(field).and_then(Value::as_str).unwrap_or("")
}

/// Returns the outcome of moves.
fn moved(said: &Value) -> String {
    let what = format!("{} vBuckets have moved", number(said, "/moved"));
    let mut out = outcome(&what, said);
    let moving = number(said, "/moving");
    if moving > 0 {
        out.push_str(&format!("warning: {moving} vBuckets are still moving\n"));
    }
    out
}

/// The pause between two lines of progress.
const PROGRESS_PAUSE: Duration = Duration::from_secs(1);

/// Prints the state of the last rebalance of any kind; with `wait`, until it is not running any more. An error if it failed, or
/// was stopped meanwhile.
fn rebalanced(client: &ManagementClient, wait: bool) -> Result<(), ToolError> {
    loop {
        // The server that answers may be the one that is removed.
        let status = client.json("/kedge/cluster/rebalance")?;
        output::print(&rebalance_line(&status))?;
        match text(&status, "state") {
            "running" if wait => std::thread::sleep(PROGRESS_PAUSE),
            "failed" => {
                let (kind, why) = (kind(&status), text(&status, "reason"));
                return Err(ToolError::Usage(format!("the {kind} failed: {why}")));
            }
            "stopped" if wait => {
                return Err(ToolError::Usage(format!(
                    "the {} was stopped",
                    kind(&status)
                )));
            }
            _ => return Ok(()),
        }
    }
}

/// Returns the kind of a rebalance in words.
fn kind(status: &Value) -> &'static str {
    match text(status, "kind") {
        "gracefulFailover" => "graceful failover",
        "drain" => "drain",
        _ => "rebalance",
    }
}

/// Returns the state of a rebalance on one line.
fn rebalance_line(status: &Value) -> String {
    let state = text(status, "state");
    if state == "none" {
        return "there was no rebalance\n".to_owned();
    }
    let percent = status
        .get("progress")
        .and_then(Value::as_f64)
        .unwrap_or(0.0)
        * 100.0;
    let (done, all) = (number(status, "/vbucketsDone"), number(status, "/vbuckets"));
    let (made, copies) = (number(status, "/copiesDone"), number(status, "/copies"));
    let left = status.get("leftMs").and_then(Value::as_u64);
    let left = left.map_or_else(String::new, |ms| {
        format!(", about {} s left", ms.div_ceil(1_000))
    });
    let copies = match kind(status) {
        "rebalance" => format!(", {made} of {copies} copies"),
        _ => String::new(),
    };
    let unreachable = status.get("unreachable").and_then(Value::as_array);
    let names = unreachable.into_iter().flatten().filter_map(Value::as_str);
    let names: Vec<&str> = names.collect();
    let waits = match names.is_empty() {
        true => String::new(),
        false => format!(", cannot reach {}", names.join(", ")),
    };
    format!("{state}: {percent:.0} %, {done} of {all} vBuckets{copies}{left}{waits}\n")
}

/// Returns the action, and remaining problems.
fn outcome(what: &str, said: &Value) -> String {
    let (rev, took) = (number(said, "/revision/rev"), number(said, "/tookMs"));
    let mut out = format!("{what}; map {rev}, {took} ms\n");
    if !text(said, "losses").is_empty() {
        out.push_str(&format!("warning: {}\n", text(said, "losses")));
    }
    for missing in said
        .get("missing")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let (node, why) = (text(missing, "node"), text(missing, "why"));
        out.push_str(&format!(
            "warning: node \"{node}\" has not followed yet: {why}\n"
        ));
    }
    out
}

/// Returns the problems of a status in a sentence; empty if there are none.
fn troubles(status: &Value) -> String {
    let list = |field: &str| {
        status
            .get(field)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
    };
    let is_down = |node: &&Value| node.get("up").and_then(Value::as_bool) != Some(true);
    let down = list("nodes").filter(is_down);
    let down = down.map(|node| format!("node \"{}\" does not answer", text(node, "name")));
    let has_no_lease = |node: &&Value| {
        let serves = node.pointer("/lease/serves").and_then(Value::as_bool);
        serves == Some(false) && node.get("failedOver").and_then(Value::as_bool) != Some(true)
    };
    let idle = list("nodes").filter(has_no_lease);
    let idle = idle.map(|node| {
        let why = node.pointer("/lease/trouble").and_then(Value::as_str);
        format!(
            "node \"{}\" serves nothing, as it has no valid lease: {}",
            text(node, "name"),
            why.unwrap_or("it has not applied the map yet")
        )
    });
    let of_bucket = |bucket: &Value| {
        let (without, missing) = (
            number(bucket, "/withoutActive"),
            number(bucket, "/missingCopies"),
        );
        let name = text(bucket, "name");
        let words =
            format!("bucket \"{name}\": {missing} vBuckets miss a copy, {without} have no active");
        (without + missing > 0).then_some(words)
    };
    let short = list("buckets").filter_map(of_bucket);
    let store = status
        .pointer("/coordinator/trouble")
        .and_then(Value::as_str);
    let store = store.map(|why| format!("the cluster cannot be changed: {why}"));
    let refused = refused_failover(status);
    down.chain(idle)
        .chain(short)
        .chain(store)
        .chain(refused)
        .collect::<Vec<_>>()
        .join("; ")
}

fn describe(status: &Value) -> String {
    let mut out = format!("map {}\n", number(status, "/revision/rev"));
    out.push_str(&compatibility(status));
    out.push_str(&orchestrator(status));
    out.push_str(&encryption(status));
    out.push('\n');
    out.push_str(&nodes_table(status));
    for bucket in list(status, "buckets") {
        let (replicas, wanted) = (
            number(bucket, "/replicas"),
            number(bucket, "/wantedReplicas"),
        );
        let to_be = match replicas == wanted {
            true => String::new(),
            false => format!(", to be {wanted}"),
        };
        out.push_str(&format!(
            "\nbucket \"{}\": {} vBuckets with {replicas} replicas{to_be}; {} miss a copy, {} have no active, {} move\n\n",
            text(bucket, "name"),
            number(bucket, "/vbuckets"),
            number(bucket, "/missingCopies"),
            number(bucket, "/withoutActive"),
            number(bucket, "/moving"),
        ));
        out.push_str(&copies_table(bucket));
    }
    out
}

/// Returns the line of the compatibility level; empty if the server states none.
fn compatibility(status: &Value) -> String {
    let Some(of) = status.get("compatibility") else {
        return String::new();
    };
    let waits = list(of, "waitsFor").iter().filter_map(Value::as_str);
    let waits: Vec<&str> = waits.collect();
    let why = match (of.get("isHeld") == Some(&Value::Bool(true)), &*waits) {
        (true, _) => ", held: kedge cluster level --raise ends that".to_owned(),
        (false, []) => String::new(),
        (false, waits) => format!(", waits for the newer release of {}", waits.join(", ")),
    };
    format!("compatibility level {}{why}\n", number(of, "/level"))
}

/// Returns the line of the encryption between nodes; empty if no node uses it.
fn encryption(status: &Value) -> String {
    let mut modes: Vec<(&str, Vec<&str>)> = Vec::new();
    for node in list(status, "nodes") {
        let (mode, name) = (text(node, "encryption"), text(node, "name"));
        match modes.iter_mut().find(|(known, _)| *known == mode) {
            Some((_, names)) => names.push(name),
            None => modes.push((mode, vec![name])),
        }
    }
    modes.retain(|(mode, _)| !mode.is_empty());
    let shown = match &*modes {
        [] | [("off", _)] => return String::new(),
        [(mode, _)] => (*mode).to_owned(),
        several => {
            let each = several.iter();
            let each = each.map(|(mode, names)| format!("{mode} of {}", names.join(", ")));
            each.collect::<Vec<_>>().join("; ")
        }
    };
    format!("encryption between nodes: {shown}\n")
}

/// Returns the lines of the orchestrator and of automatic failover; empty without an orchestrator.
fn orchestrator(status: &Value) -> String {
    let name = text(status, "orchestrator");
    if name.is_empty() {
        return String::new();
    }
    let is_enabled = status.pointer("/autoFailover/enabled") == Some(&Value::Bool(true));
    let is = if is_enabled { "enabled" } else { "disabled" };
    let count = number(status, "/autoFailover/count");
    let mut out = format!("orchestrator {name}; automatic failover is {is}, count {count}\n");
    if let Some(refused) = refused_failover(status) {
        out.push_str(&format!("{refused}\n"));
    }
    out
}

/// Returns why nodes that are down are not failed over automatically.
fn refused_failover(status: &Value) -> Option<String> {
    let decision = status.get("autoFailover")?;
    let nodes = list(decision, "nodes").iter().filter_map(Value::as_str);
    let nodes: Vec<&str> = nodes.collect();
    let reason = text(decision, "reason");
    let says = !nodes.is_empty() && !reason.is_empty();
    says.then(|| format!("not failed over: {}: {reason}", nodes.join(", ")))
}

/// Returns the rows of a list of the status; none if it is missing.
fn list<'a>(document: &'a Value, field: &str) -> &'a [Value] {
    let list = document.get(field).and_then(Value::as_array);
    list.map_or(&[], Vec::as_slice)
}

/// Returns the rows of a table that has only its head.
fn head(columns: &[&str]) -> Vec<Vec<String>> {
    vec![columns.iter().map(|&column| column.to_owned()).collect()]
}

/// Returns a count, or `-` if there is none.
fn count_or_dash(count: Option<&Value>) -> String {
    let count = count.and_then(Value::as_u64);
    count.map_or_else(|| "-".to_owned(), |count| count.to_string())
}

/// Returns the table of the nodes of the cluster.
fn nodes_table(status: &Value) -> String {
    let mut rows = head(&[
        "NODE",
        "KV",
        "MANAGEMENT",
        "RELEASE",
        "STATE",
        "SERVES BY",
        "MAP",
    ]);
    for node in list(status, "nodes") {
        let place = |plain: &str, tls: &str| {
            let port = match number(node, plain) {
                0 => number(node, tls),
                port => port,
            };
            format!("{}:{port}", text(node, "host"))
        };
        let is = |field: &str| node.get(field).and_then(Value::as_bool).unwrap_or(false);
        let state = match (is("up"), is("failedOver")) {
            (true, false) => "up",
            (false, false) => "down",
            (true, true) => "up, failed over",
            (false, true) => "down, failed over",
        };
        rows.push(vec![
            text(node, "name").to_owned(),
            place("/kvPort", "/kvTlsPort"),
            place("/mgmtPort", "/mgmtTlsPort"),
            node.get("release")
                .and_then(Value::as_str)
                .unwrap_or("-")
                .to_owned(),
            state.to_owned(),
            node.pointer("/lease/servesBy")
                .and_then(Value::as_str)
                .unwrap_or("-")
                .to_owned(),
            count_or_dash(node.pointer("/applied/rev")),
        ]);
    }
    table("llllllr", &rows)
}

/// Returns the table of the copies of a bucket's vBuckets, by node.
fn copies_table(bucket: &Value) -> String {
    /// The columns behind the node's name that are counts, and their fields.
    const COUNTS: [(&str, &str); 6] = [
        ("ACTIVE", "active"),
        ("REPLICA", "replica"),
        ("PENDING", "pending"),
        ("DEAD", "dead"),
        ("CATCHING UP", "catchingUp"),
        ("BEHIND", "lagItems"),
    ];
    let mut columns = vec!["NODE"];
    columns.extend(COUNTS.map(|(column, _)| column));
    columns.push("LAG");
    let mut rows = head(&columns);
    for node in list(bucket, "nodes") {
        let mut row = vec![text(node, "node").to_owned()];
        row.extend(COUNTS.map(|(_, field)| count_or_dash(node.get(field))));
        row.push(match node.get("lagSeconds") {
            Some(Value::Null) => "> 1 s".to_owned(),
            Some(lag) => format!("{:.0} ms", lag.as_f64().unwrap_or(0.0) * 1e3),
            None => "-".to_owned(),
        });
        rows.push(row);
    }
    table("lrrrrrrr", &rows)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cluster_status_is_shown_as_tables() {
        let mut status = json!({
            "revision": {"epoch": 1, "rev": 4},
            "compatibility": {"level": 1, "isHeld": false, "waitsFor": ["n_1"]},
            "nodes": [
                {"name": "n_0", "release": "0.2.0", "host": "127.0.0.1", "kvPort": 12000, "mgmtPort": 9000, "up": true,
                 "failedOver": false, "applied": {"epoch": 1, "rev": 4}, "lease": {"serves": true, "servesBy": "lease"}},
                {"name": "n_1", "host": "127.0.0.1", "kvPort": 12002, "mgmtPort": 9001, "up": false,
                 "failedOver": true, "applied": null},
            ],
            "buckets": [{
                "name": "default", "vbuckets": 64, "replicas": 1, "wantedReplicas": 1, "missingCopies": 64,
                "withoutActive": 0, "moving": 3,
                "nodes": [
                    {"node": "n_0", "active": 64, "replica": 0, "pending": 0, "dead": 0, "catchingUp": 0,
                     "lagItems": 7, "lagSeconds": 0.0123},
                    {"node": "n_1", "catchingUp": 64},
                ],
            }],
        });
        assert_eq!(
            describe(&status),
            "map 4\n\
             compatibility level 1, waits for the newer release of n_1\n\n\
             NODE  KV               MANAGEMENT      RELEASE  STATE              SERVES BY  MAP\n\
             n_0   127.0.0.1:12000  127.0.0.1:9000  0.2.0    up                 lease        4\n\
             n_1   127.0.0.1:12002  127.0.0.1:9001  -        down, failed over  -            -\n\n\
             bucket \"default\": 64 vBuckets with 1 replicas; 64 miss a copy, 0 have no active, 3 move\n\n\
             NODE  ACTIVE  REPLICA  PENDING  DEAD  CATCHING UP  BEHIND    LAG\n\
             n_0       64        0        0     0            0       7  12 ms\n\
             n_1        -        -        -     -           64       -      -\n"
        );
        status["compatibility"]["isHeld"] = true.into();
        let line = "compatibility level 1, held: kedge cluster level --raise ends that\n";
        assert_eq!(compatibility(&status), line);
        status["nodes"][0]["encryption"] = "off".into();
        assert_eq!(encryption(&status), "", "nobody uses it");
        status["nodes"][0]["encryption"] = "tls".into();
        // One that is down says nothing.
        assert_eq!(encryption(&status), "encryption between nodes: tls\n");
        status["nodes"][1]["encryption"] = "off".into();
        let line = "encryption between nodes: tls of n_0; off of n_1\n";
        assert_eq!(encryption(&status), line);
        assert!(describe(&status).contains(line));
        status["buckets"][0]["wantedReplicas"] = 2.into();
        assert!(describe(&status).contains("with 1 replicas, to be 2; 64 miss a copy"));
    }

    #[test]
    fn cluster_status_reports_missing_copies() {
        let mut status = json!({
            "nodes": [{"name": "n_0", "up": true}, {"name": "n_1", "up": true, "failedOver": true}],
            "buckets": [{"name": "default", "missingCopies": 0, "withoutActive": 0}],
        });
        assert_eq!(troubles(&status), "");
        status["buckets"][0]["missingCopies"] = 22.into();
        assert_eq!(
            troubles(&status),
            "bucket \"default\": 22 vBuckets miss a copy, 0 have no active"
        );
        status["nodes"][0]["lease"] = json!({"serves": false, "trouble": "it is late"});
        assert!(
            troubles(&status).starts_with(
                "node \"n_0\" serves nothing, as it has no valid lease: it is late; bucket"
            ),
            "{}",
            troubles(&status)
        );
        status["nodes"][0]["lease"] = json!({"serves": true, "trouble": "it is late"});
        status["nodes"][1]["up"] = false.into();
        status["buckets"][0]["withoutActive"] = 11.into();
        status["orchestrator"] = "n_0".into();
        status["autoFailover"] =
            json!({"enabled": true, "count": 1, "nodes": ["n_1"], "reason": "so"});
        assert_eq!(
            orchestrator(&status),
            "orchestrator n_0; automatic failover is enabled, count 1\nnot failed over: n_1: so\n"
        );
        status["coordinator"]["trouble"] = "it is gone".into();
        assert_eq!(
            troubles(&status),
            "node \"n_1\" does not answer; bucket \"default\": 22 vBuckets miss a copy, 11 have no active; the \
             cluster cannot be changed: it is gone; not failed over: n_1: so"
        );
    }

    #[test]
    fn cluster_outcome_reports_remaining_work() {
        let said = json!({
            "revision": {"epoch": 1, "rev": 5}, "tookMs": 7, "losses": "all of it",
            "missing": [{"node": "n_2", "why": "gone"}],
        });
        assert_eq!(
            outcome("done", &said),
            "done; map 5, 7 ms\nwarning: all of it\nwarning: node \"n_2\" has not followed yet: gone\n"
        );
    }
}
