//! Members of a cluster change by the requests of the original's tools: what `couchbase-cli` sends for `server-add`,
//! `rebalance`, `failover`, `recovery` and `rebalance --server-remove`.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Instant;

use kedge_node::http_client::HttpClient;
use serde_json::{Value, json};

use crate::cluster::{Cluster, is_whole, put, value_of};
use crate::cluster_store::another;
use crate::process::{PASSWORD, PATIENCE, Server, USER};

/// A tool that talks to one node.
struct Tool<'a> {
    cluster: &'a Cluster,
    node: usize,
}

impl Tool<'_> {
    fn get(&self, path: &str) -> Value {
        let http = self.cluster.http(self.node);
        http.json(path).expect("a document")
    }

    /// Sends a form: the code and the body.
    fn post(&self, path: &str, form: &[(&str, &str)]) -> (u16, Value) {
        let http = self.cluster.http(self.node);
        let reply = http.send("POST", path, form).expect("an answer");
        let text = String::from_utf8_lossy(&reply.body).into_owned();
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        (reply.code, body)
    }

    fn nodes(&self) -> Vec<Value> {
        let pool = self.get("/pools/default");
        pool["nodes"].as_array().expect("nodes").clone()
    }

    /// Returns a field of the node with that management port.
    fn node(&self, hostname: &str, field: &str) -> String {
        let nodes = self.nodes();
        let node = nodes.iter().find(|node| node["hostname"] == hostname);
        let node = node.unwrap_or_else(|| panic!("{hostname} is in {nodes:?}"));
        node[field].as_str().expect("text").to_owned()
    }

    fn memberships(&self) -> Vec<String> {
        let nodes = self.nodes();
        let of = |node: &Value| node["clusterMembership"].as_str().unwrap_or("").to_owned();
        nodes.iter().map(of).collect()
    }

    /// Rebalances all nodes, as they are listed, and waits until the task has ended.
    fn rebalance(&self, ejected: &str) {
        let nodes = self.nodes();
        let names = nodes
            .iter()
            .map(|node| node["otpNode"].as_str().expect("a name"));
        let known = names.collect::<Vec<_>>().join(",");
        let form = [("knownNodes", &*known), ("ejectedNodes", ejected)];
        let (code, body) = self.post("/controller/rebalance", &form);
        assert_eq!(code, 200, "{body}");
        self.wait_task();
    }

    fn wait_task(&self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let tasks = self.get("/pools/default/tasks");
            let tasks = tasks.as_array().expect("tasks");
            let task = tasks.iter().find(|task| task["type"] == "rebalance");
            let task = task.expect("there is always one");
            if task["status"] == "notRunning" {
                assert_eq!(task["errorMessage"], Value::Null, "{task}");
                return;
            }
            assert!(Instant::now() < deadline, "{task}");
            thread::yield_now();
        }
    }
}

/// Adds the node that waits, once it does, at the address that the refusal of another address names.
fn add(tool: &Tool<'_>) -> (String, String) {
    let deadline = Instant::now() + PATIENCE;
    let hostname = loop {
        let (code, body) = tool.post("/controller/addNode", &[("hostname", "127.0.0.1:1")]);
        assert_eq!(code, 400, "{body}");
        let why = body[0].as_str().expect("a list of texts").to_owned();
        assert!(why.starts_with("Prepare join failed."), "{why}");
        if let Some((_, place)) = why.split_once("n_2 at ") {
            break place.split('.').take(4).collect::<Vec<_>>().join(".");
        }
        assert!(Instant::now() < deadline, "{why}");
    };
    let form = [
        ("hostname", &*format!("http://{hostname}")),
        ("user", USER),
        ("password", PASSWORD),
        ("services", "kv"),
    ];
    let (code, body) = tool.post("/controller/addNode", &form);
    assert_eq!(code, 200, "{body}");
    let (code, again) = tool.post("/controller/addNode", &form);
    assert_eq!(code, 400);
    assert!(
        again.to_string().contains("already part of cluster"),
        "{again}"
    );
    (
        hostname,
        body["otpNode"].as_str().expect("a name").to_owned(),
    )
}

#[test]
fn vendors_tools_add_fail_over_recover_and_remove_a_node() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = ["--nodes=2", "--replicas=1", "--audit-log"];
    let cluster = Cluster::start(dir.path(), &options);
    let tool = Tool {
        cluster: &cluster,
        node: 0,
    };
    let mut connections = vec![cluster.connect(0), cluster.connect(1)];
    for number in 0..50 {
        put(&mut connections, &format!("key-{number}"), "1");
    }
    let command = another(dir.path(), "n_2", &dir.path().join("n_2"));
    let starting = thread::spawn(move || Server::spawn(command));
    // server-add
    let (hostname, otp) = add(&tool);
    let server = starting.join().expect("no panic").expect("it is ready");
    assert_eq!(otp, "ns_3@127.0.0.1");
    assert_eq!(tool.node(&hostname, "otpNode"), otp);
    assert_eq!(tool.memberships(), ["active", "active", "inactiveAdded"]);
    // rebalance
    let form = [
        ("knownNodes", "ns_1@127.0.0.1,ns_2@127.0.0.1"),
        ("ejectedNodes", ""),
    ];
    let refused = tool.post("/controller/rebalance", &form);
    assert_eq!(refused, (400, json!({ "mismatch": 1 })));
    tool.rebalance("");
    assert_eq!(tool.memberships(), ["active"; 3]);
    // failover, gracefully
    let named = [("otpNode", &*otp)];
    let (code, body) = tool.post("/controller/startGracefulFailover", &named);
    assert_eq!(code, 200, "{body}");
    tool.wait_task();
    assert_eq!(tool.node(&hostname, "clusterMembership"), "inactiveFailed");
    let (code, body) = tool.post("/controller/startGracefulFailover", &named);
    assert_eq!(code, 400, "{body}");
    // recovery
    let wrong = [("otpNode", &*otp), ("recoveryType", "none")];
    let (code, body) = tool.post("/controller/setRecoveryType", &wrong);
    assert!(code == 400 && body["recoveryType"].is_string(), "{body}");
    for recovery in ["delta", "full"] {
        let form = [("otpNode", &*otp), ("recoveryType", recovery)];
        let set = tool.post("/controller/setRecoveryType", &form);
        assert_eq!(set, (200, json!([])));
        assert_eq!(tool.node(&hostname, "recoveryType"), recovery);
    }
    tool.rebalance("");
    assert_eq!(tool.memberships(), ["active"; 3]);
    assert_eq!(tool.node(&hostname, "recoveryType"), "none");
    cluster.wait_status(1, "all copies count", is_whole);
    // failover --hard, of a node that runs
    let (code, body) = tool.post("/controller/failOver", &named);
    assert_eq!(code, 200, "{body}");
    assert_eq!(tool.node(&hostname, "clusterMembership"), "inactiveFailed");
    // server-readd, which is taken back
    let (code, _) = tool.post("/controller/reAddNode", &named);
    assert_eq!(code, 200);
    let (code, _) = tool.post("/controller/reFailOver", &named);
    assert_eq!(code, 200);
    // rebalance, which removes it
    tool.rebalance("");
    assert_eq!(tool.memberships(), ["active"; 2]);
    cluster.wait_status(1, "all copies count", is_whole);
    for number in 0..50 {
        let value = value_of(&mut connections, &format!("key-{number}"));
        assert_eq!(value.as_deref(), Some("1"), "key-{number}");
    }
    drop(server);
    // What each command left, by the node that executed it. The test itself has disabled automatic failovers.
    let expected = [
        8221, 8196, 8200, 8198, 8199, 8199, 8200, 8198, 8199, 8198, 8200,
    ];
    let log = dir.path().join("n_0").join("audit.log");
    wait_audited(&log, &expected);
}

/// Waits until an audit log has these events of cluster commands, and no password.
fn wait_audited(log: &Path, expected: &[u64]) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let text = fs::read_to_string(log).expect("the audit log");
        assert!(!text.contains(PASSWORD), "{text}");
        let lines = text
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let commands = lines.filter(|line| line["parameters"].is_object());
        let ids: Vec<u64> = commands.filter_map(|line| line["id"].as_u64()).collect();
        if ids == expected {
            return;
        }
        assert!(Instant::now() < deadline, "{ids:?} in {text}");
        thread::yield_now();
    }
}

/// Makes, renames, assigns and deletes server groups: what `couchbase-cli group-manage` sends.
fn change_groups(tool: &Tool<'_>) {
    const GROUPS: &str = "/pools/default/serverGroups";
    let http = tool.cluster.http(tool.node);
    let send = |method: &str, path: &str, form: &[(&str, &str)]| {
        let reply = http.send(method, path, form).expect("an answer");
        (
            reply.code,
            String::from_utf8_lossy(&reply.body).into_owned(),
        )
    };
    let done = (200, "[]".to_owned());
    assert_eq!(send("POST", GROUPS, &[("name", "west")]), done);
    let (code, why) = send("POST", GROUPS, &[("name", "west")]);
    assert_eq!((code, &*why), (400, r#"{"name":"already exists"}"#));
    let first = format!("{GROUPS}/Group%201");
    assert_eq!(send("PUT", &first, &[("name", "east side")]), done);
    let missing = (404, "[]".to_owned());
    assert_eq!(send("DELETE", &first, &[]), missing);
    assert_eq!(send("DELETE", &format!("{GROUPS}/east%20side"), &[]).0, 400);
    // One node moves to the other group, by the command of an operator.
    let (code, shown, why) = tool.cluster.tool(1, &["group", "--node=n_1", "--to=west"]);
    assert_eq!(code, Some(0), "{why}");
    let lines: Vec<&str> = shown.lines().map(str::trim_end).collect();
    let expected = [
        "group      nodes",
        "east side  ns_1@127.0.0.1",
        "west       ns_2@127.0.0.1",
    ];
    assert_eq!(lines, expected);
    // Each node reports its group to clients.
    let nodes = tool.nodes();
    let groups: Vec<&Value> = nodes.iter().map(|node| &node["serverGroup"]).collect();
    assert_eq!(groups, ["east side", "west"]);
    let stale = format!("{GROUPS}?rev=1");
    let assignment = tool.get(GROUPS);
    let put = |path: &str| {
        let body = assignment.to_string();
        let mgmt = tool.cluster.nodes[tool.node].mgmt;
        let http = HttpClient::new(&mgmt.ip().to_string(), mgmt.port(), USER, PASSWORD);
        let reply = http.send("PUT", path, "application/json", body.as_bytes());
        reply.expect("an answer").code
    };
    assert_eq!(put(&stale), 409);
    assert_eq!(put(assignment["uri"].as_str().expect("text")), 200);
}

/// Sets what all nodes have in common at one node, and finds it at the other one.
fn change_settings_of_all_nodes(cluster: &Cluster) {
    let at = |node| Tool { cluster, node };
    let until = |path: &str, field: &str, expected: Value| {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let found = at(1).get(path)[field].clone();
            if found == expected {
                return;
            }
            assert!(Instant::now() < deadline, "{path} {field}: {found}");
            thread::yield_now();
        }
    };
    let policy = "/settings/passwordPolicy";
    let (code, body) = at(0).post(policy, &[("minLength", "9"), ("enforceDigits", "true")]);
    assert_eq!(code, 200, "{body}");
    until(policy, "minLength", json!(9));
    until(policy, "enforceDigits", json!(true));
    let threads = "/pools/default/settings/memcached/global";
    let (code, body) = at(0).post(threads, &[("num_nonio_threads", "3")]);
    assert_eq!((code, &body["num_nonio_threads"]), (200, &json!(3)));
    until(threads, "num_nonio_threads", json!(3));
}

#[test]
fn vendors_tools_eject_nodes_and_list_server_groups() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(dir.path(), &["--nodes=2", "--replicas=1"]);
    let tool = Tool {
        cluster: &cluster,
        node: 1,
    };
    let groups = tool.get("/pools/default/serverGroups");
    let group = &groups["groups"][0];
    assert_eq!(group["name"], "Group 1");
    assert_eq!(group["nodes"].as_array().map(Vec::len), Some(2));
    let uri = groups["uri"].as_str().expect("text");
    assert!(uri.starts_with("/pools/default/serverGroups?rev="), "{uri}");
    let form = [("hostname", "127.0.0.1:1")];
    let place = group["addNodeURI"].as_str().expect("text");
    let (code, body) = tool.post(place, &form);
    assert!(code == 400 && body[0].is_string(), "{place}: {code} {body}");
    change_groups(&tool);
    change_settings_of_all_nodes(&cluster);
    let (code, body) = tool.post("/controller/ejectNode", &[("otpNode", "ns_1@127.0.0.1")]);
    assert_eq!((code, body), (400, json!("Cannot remove active server.")));
    for path in [
        "ejectNode",
        "failOver",
        "startGracefulFailover",
        "reAddNode",
    ] {
        let path = format!("/controller/{path}");
        assert_eq!(tool.post(&path, &[]).0, 400, "{path}");
        let (code, body) = tool.post(&path, &[("otpNode", "ns_9@127.0.0.1")]);
        assert_eq!(
            (code, body),
            (400, json!("Unknown server given: ns_9@127.0.0.1")),
            "{path}"
        );
    }
    let named = [("otpNode", "ns_1@127.0.0.1")];
    let (code, body) = tool.post("/controller/failOver", &named);
    assert_eq!(code, 200, "{body}");
    let last = [("otpNode", "ns_2@127.0.0.1")];
    let (code, body) = tool.post("/controller/failOver", &last);
    assert_eq!(code, 400, "{body}");
    let (code, body) = tool.post("/controller/ejectNode", &named);
    assert_eq!(code, 200, "{body}");
    assert_eq!(tool.memberships(), ["active"]);
}
