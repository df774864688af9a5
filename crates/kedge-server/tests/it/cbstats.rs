//! Tests of the groups of STAT as `cbstats` parses them. It sends its name in HELLO, and then gets histograms as lines.
//! It failed at the first histogram in JSON (in `timings`, `kvtimings`, `scheduler`, `runtimes`, `stat-timings`,
//! `frequency-counters` and `eviction`), crashed in `hash` and `responses`, and showed nothing for `tasks` and
//! `prev-vbucket`.

use std::collections::{BTreeMap, HashMap};

use kedge_bucket::EvictionPolicy;
use kedge_protocol::binary::Features;
use kedge_types::limits::STAT_COUNTED_ITEMS_MAX;
use kedge_types::{Status, VbId};
use serde_json::Value;

use crate::client::{Client, SDK_FEATURES};
use crate::dcp::{Follower, keys_of};
use crate::evicted::{evict_all, start};
use crate::server::{Kedge, PASSWORD, Setup};
use crate::stats::{stat, stat_with};

fn connect(kedge: &Kedge, agent: &[u8], features: Features) -> Client {
    let mut client = kedge.connect();
    client.hello_as(agent, features);
    client.log_in("root", PASSWORD);
    client.select("default");
    client
}

fn cbstats(kedge: &Kedge) -> Client {
    connect(kedge, b"cbstats 8.0.0", SDK_FEATURES)
}

/// The numbers of the ranges of histograms, by name. Every key has to be a line of one, with whole numbers.
fn histograms(of: &HashMap<String, String>) -> BTreeMap<String, Vec<(u64, u64, u64)>> {
    let mut found: BTreeMap<String, Vec<(u64, u64, u64)>> = BTreeMap::new();
    for (key, value) in of {
        let (name, range) = key.rsplit_once('_').unwrap_or_else(|| panic!("{key}"));
        let (low, high) = range.split_once(',').unwrap_or_else(|| panic!("{key}"));
        let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("{key} = {value}"));
        let (low, high, count) = (number(low), number(high), number(value));
        assert!(low < high && count > 0, "{key} = {value}");
        let ranges = found.entry(name.to_owned()).or_default();
        ranges.push((low, high, count));
    }
    for ranges in found.values_mut() {
        ranges.sort_unstable();
        assert!(
            ranges.windows(2).all(|two| two[0].1 <= two[1].0),
            "{ranges:?}"
        );
    }
    found
}

#[test]
fn cbstats_gets_histograms_as_lines() {
    let (kedge, bucket) = start(EvictionPolicy::ValueOnly, 256 << 20);
    let mut client = cbstats(&kedge);
    for n in 0..50 {
        client.set(&format!("k{n}"), b"value").ok();
    }
    client.get("k0").ok();
    bucket.persistence().apply().unwrap();
    let of = |client: &mut Client, group: &str| histograms(&stat(client, group).unwrap());
    let total = |ranges: &[(u64, u64, u64)]| ranges.iter().map(|range| range.2).sum::<u64>();
    let timings = of(&mut client, "timings");
    assert_eq!(
        (total(&timings["store_cmd"]), total(&timings["get_cmd"])),
        (50, 1)
    );
    let store = of(&mut client, "kvtimings");
    assert!(total(&store["rw_0:commit"]) > 0 && total(&store["rw_0:fsWriteSize"]) > 0);
    for group in ["scheduler", "runtimes"] {
        let tasks = of(&mut client, group);
        for (name, ranges) in &tasks {
            let (_, pool) = name.split_once('[').unwrap();
            assert!(
                ["Reader]", "Writer]", "AuxIO]", "NonIO]"].contains(&pool),
                "{name}"
            );
            assert!(total(ranges) > 0);
        }
        assert!(tasks.contains_key("warmup[Reader]"), "{tasks:?}");
    }
    let counters = of(&mut client, "frequency-counters");
    let evictable = &counters["vb_active_evictable_mfu"];
    assert_eq!(evictable, &[(64, 65, 49), (65, 66, 1)]);
    assert_eq!(stat(&mut client, "eviction").unwrap(), HashMap::new());
    evict_all(&bucket);
    let evicted = of(&mut client, "eviction");
    let evicted = &evicted["ep_active_or_pending_eviction_values_evicted"];
    assert_eq!(total(evicted), 50);
    let groups = of(&mut client, "stat-timings");
    assert_eq!(total(&groups["stat:eviction"]), 2);
    for group in ["dispatcher", "external-auth-timings"] {
        assert_eq!(stat(&mut client, group).unwrap(), HashMap::new(), "{group}");
    }
    // Groups with `raw` are JSON, and so are all groups for clients of other names.
    let mut other = connect(&kedge, b"mctimings 8.0.0", SDK_FEATURES);
    let timings = stat(&mut other, "timings").unwrap();
    let sets: Value = serde_json::from_str(&timings["set"]).unwrap();
    assert_eq!(sets["total"], 50);
    // The name is that of the last HELLO.
    other.hello_as(b"cbstats", SDK_FEATURES);
    assert!(of(&mut other, "timings").contains_key("store_cmd"));
    other.hello(SDK_FEATURES);
    assert!(stat(&mut other, "timings").unwrap().contains_key("set"));
}

#[test]
fn cbstats_gets_hash_depths_responses_and_totals() {
    let kedge = Kedge::start();
    let mut client = cbstats(&kedge);
    client.set("k", b"1").ok();
    client.get("k").ok();
    assert_eq!(client.get("none").status, Status::KeyNotFound);
    // The tool computes averages of the lines with these names.
    let hash = stat(&mut client, "hash").unwrap();
    for part in ["min_dep", "max_dep", ":counted"] {
        let found = hash.iter().filter(|(name, _)| name.contains(part));
        let numbers: Vec<u64> = found.map(|(_, value)| value.parse().unwrap()).collect();
        assert_eq!(numbers.len(), 16, "{part}: {hash:?}");
        let expected = u64::from(part != "min_dep");
        assert_eq!(numbers.iter().sum::<u64>(), expected, "{part}");
    }
    let responses = stat(&mut client, "responses").unwrap();
    let responses: Value = serde_json::from_str(&responses["responses"]).unwrap();
    assert!(responses["0"].as_u64() > Some(2), "{responses}");
    assert_eq!(responses["1"], 1, "{responses}");
    let all = stat(&mut client, "").unwrap();
    let totals = ["cmd_total_gets", "cmd_total_sets", "cmd_total_ops"].map(|name| &*all[name]);
    assert_eq!(totals, ["2", "1", "3"]);
}

#[test]
fn cbstats_gets_tasks_as_a_table() {
    let kedge = Kedge::start();
    let registry = kedge.server().registry();
    let other = kedge_bucket::BucketConfig::new("other", 4, 64 << 20);
    registry.create(other).unwrap().wait_loaded().unwrap();
    let mut client = cbstats(&kedge);
    client.set("k", b"1").ok();
    for (group, owners) in [
        ("tasks", vec!["default"]),
        ("tasks-all", vec!["default", "other", "No bucket"]),
    ] {
        let all = stat(&mut client, group).unwrap();
        let tables = all
            .keys()
            .filter_map(|key| key.strip_prefix("ep_tasks:tasks:"));
        let mut found: Vec<&str> = tables.collect();
        found.sort_unstable();
        let mut expected = owners.clone();
        expected.sort_unstable();
        assert_eq!(found, expected, "{group}");
        for owner in owners {
            let now: u64 = all[&format!("ep_tasks:cur_time:{owner}")].parse().unwrap();
            let table: Vec<Value> =
                serde_json::from_str(&all[&format!("ep_tasks:tasks:{owner}")]).unwrap();
            assert!(!table.is_empty());
            for task in table {
                is_a_row(&task, owner, now);
            }
        }
    }
}

fn is_a_row(task: &Value, owner: &str, now_ns: u64) {
    let text = |name: &str| {
        task[name]
            .as_str()
            .unwrap_or_else(|| panic!("{name}: {task}"))
    };
    let number = |name: &str| {
        task[name]
            .as_u64()
            .unwrap_or_else(|| panic!("{name}: {task}"))
    };
    assert_eq!(text("bucket"), owner);
    assert!(
        ["RUNNING", "SNOOZED", "DEAD"].contains(&text("state")),
        "{task}"
    );
    assert!(
        ["Reader", "Writer", "AuxIO", "NonIO"].contains(&text("type")),
        "{task}"
    );
    assert!(!text("name").is_empty() && !text("this").is_empty());
    let _ = text("description");
    for name in ["tid", "priority", "num_runs"] {
        number(name);
    }
    // Relative to the time in the table; 2^60 is never.
    assert!(now_ns < 1 << 60);
    let wakes = number("waketime_ns");
    assert!(wakes >= now_ns && wakes <= 1 << 60, "{task}");
    let began = number("last_starttime_ns");
    assert_eq!(began > 0, text("state") == "RUNNING", "{task}");
    assert!(began <= now_ns, "{task}");
    let (last, total) = (number("previous_runtime_ns"), number("total_runtime_ns"));
    assert!(last <= total, "{task}");
    assert_eq!(number("num_runs") == 0, total == 0 && began == 0, "{task}");
}

/// The tool requests one line for each stream in the request's value, which was ignored.
#[test]
fn dcp_streams_have_the_requested_format() {
    let kedge = Kedge::start();
    let mut client = cbstats(&kedge);
    let vb = VbId(3);
    for key in keys_of(vb, 3) {
        client.set(&key, b"1").ok();
    }
    let mut follower = Follower::open(&kedge, "reader", &[]);
    follower.stream(vb, 0, 0);
    follower.mutations(3);
    let key = "eq_dcpq:reader:stream_3";
    let of = |client: &mut Client, arguments| {
        let all = stat_with(client, "dcp", arguments).unwrap();
        assert_eq!(all["eq_dcpq:reader:num_streams"], "1", "{arguments}");
        let lines = all.into_iter().filter(|(name, _)| name.starts_with(key));
        lines.collect::<BTreeMap<String, String>>()
    };
    let legacy = of(&mut client, "");
    assert_eq!(legacy[&format!("{key}_last_sent_seqno")], "3");
    for arguments in [
        r#"{"stream_format":"legacy"}"#,
        r#"{"filter":{"user":"a"}}"#,
    ] {
        assert!(of(&mut client, arguments).keys().eq(legacy.keys()));
    }
    assert!(of(&mut client, r#"{"stream_format":"skip"}"#).is_empty());
    let json = of(&mut client, r#"{"stream_format":"json"}"#);
    assert_eq!(json.len(), 1);
    let json: Value = serde_json::from_str(&json[key]).unwrap();
    assert_eq!(json["last_sent_seqno"], 3);
    for (name, value) in &legacy {
        let found = &json[&name[key.len() + 1..]];
        let text = found.as_str().map_or(found.to_string(), str::to_owned);
        assert_eq!(&text, value, "{name}");
    }
    for arguments in [r#"{"stream_format":"xml"}"#, "7", "{"] {
        let refused = stat_with(&mut client, "dcp", arguments);
        assert_eq!(refused, Err(Status::Invalid), "{arguments}");
    }
    assert!(stat_with(&mut client, "uuid", "{}").is_ok());
}

#[test]
fn groups_with_an_argument_have_their_own_timings() {
    let kedge = Kedge::start();
    let mut client = cbstats(&kedge);
    for group in ["vbucket-seqno", "vbucket-seqno 3", "vbucket-seqno 4"] {
        stat(&mut client, group).unwrap();
    }
    let timings = histograms(&stat(&mut client, "stat-timings").unwrap());
    let total = |name| timings[name].iter().map(|range| range.2).sum::<u64>();
    assert_eq!(total("stat:vbucket-seqno"), 1);
    assert_eq!(total("stat:vbucket-seqno.single"), 2);
}

/// A vBucket with many items had no `counted`, and the tool crashed where all were like that.
#[test]
fn hash_depths_of_large_vbuckets_are_counted() {
    let mut setup = Setup::default();
    setup.bucket.vbuckets = 2;
    let kedge = Kedge::with(setup);
    let mut client = cbstats(&kedge);
    let documents = STAT_COUNTED_ITEMS_MAX + 1;
    crate::whole_node::store(&mut client, documents);
    for group in ["hash", "hash 0"] {
        let all = stat(&mut client, group).unwrap();
        let number = |name: &str| all[name].parse::<usize>().unwrap();
        assert_eq!(number("vb_0:counted"), documents, "{group}");
        assert_eq!(number("vb_0:reported"), documents, "{group}");
        assert_eq!(all.get("vb_0:mem_size_counted"), None, "{group}");
    }
    let all = stat(&mut client, "hash").unwrap();
    assert_eq!(all["vb_1:counted"], "0");
    assert_eq!(all["vb_1:mem_size_counted"], "0");
}
