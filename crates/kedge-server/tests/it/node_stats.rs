//! Tests of statistics of the node, and of the list of groups.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kedge_executor::{Pool, ThreadCount};
use kedge_node::http_client::HttpClient;
use kedge_types::{Status, VbId};
use serde_json::Value;

use crate::client::{Client, SDK_FEATURES};
use crate::collections::as_user;
use crate::dcp::keys_of;
use crate::evicted::until;
use crate::server::{Kedge, PASSWORD, Setup};
use crate::stats::stat;

fn number(of: &HashMap<String, String>, name: &str) -> u64 {
    of[name].parse().unwrap_or_else(|_| panic!("{name}"))
}

#[test]
fn threads_stats_show_configured_and_running_threads() {
    let mut setup = Setup {
        threads: 2,
        ..Setup::default()
    };
    setup.bucket.num_shards = 3;
    let kedge = Kedge::with(setup);
    let mut client = kedge.client();
    let pools = kedge.server().pools();
    pools
        .set_threads(Pool::AuxIo, ThreadCount::Fixed(3))
        .unwrap();
    let threads = stat(&mut client, "threads").unwrap();
    for (name, count) in [
        ("num_frontend_threads", "2"),
        ("num_reader_threads", "1"),
        ("num_writer_threads", "1"),
        ("num_auxio_threads", "3"),
        ("num_nonio_threads", "1"),
    ] {
        for what in ["configured", "actual"] {
            assert_eq!(threads[&format!("{name}_{what}")], count, "{name} {what}");
        }
    }
    assert_eq!(threads.len(), 10, "{threads:?}");
    pools
        .set_threads(Pool::Reader, ThreadCount::Balanced)
        .unwrap();
    let threads = stat(&mut client, "threads").unwrap();
    assert_eq!(threads["num_reader_threads_configured"], "balanced");
    assert!(number(&threads, "num_reader_threads_actual") > 0);
    let workload = stat(&mut client, "workload").unwrap();
    let of = |name: &str| number(&workload, &format!("ep_workload:{name}"));
    assert_eq!((of("num_auxio"), of("num_writers")), (3, 1));
    assert_eq!(of("num_shards"), 3);
    for queue in ["Reader", "Writer", "AuxIO", "NonIO"] {
        assert!(of(&format!("LowPrioQ_{queue}:OutQsize")) <= of("ready_tasks"));
        assert!(of(&format!("LowPrioQ_{queue}:InQsize")) <= of("num_sleepers"));
    }
    // The tasks of the bucket become idle, and idle tasks are all that there are.
    until("tasks sleep", || {
        let workload = stat(&mut client, "workload").unwrap();
        let tasks = kedge.server().pools().executor().tasks();
        number(&workload, "ep_workload:num_sleepers") == tasks.len() as u64
    });
}

#[test]
fn worker_thread_info_shows_each_front_end_thread() {
    let kedge = Kedge::with(Setup {
        threads: 2,
        ..Setup::default()
    });
    let mut clients: Vec<_> = (0..4).map(|_| kedge.client()).collect();
    let mut done = || {
        let rows = stat(&mut clients[0], "worker_thread_info").unwrap();
        let row =
            |thread| -> Value { serde_json::from_str(&rows[&format!("thread_{thread}")]).unwrap() };
        assert_eq!(rows.len(), 2);
        [row(0), row(1)]
    };
    let sum = |rows: &[Value; 2], name: &str| -> u64 {
        rows.iter().map(|row| row[name].as_u64().unwrap()).sum()
    };
    let before = done();
    assert_eq!(sum(&before, "connections"), 4);
    for n in 0..10 {
        kedge.client().set(&format!("k{n}"), &[7; 1_000]).ok();
    }
    let after = done();
    for (name, least) in [
        ("commands", 10),
        ("bytes_read", 10_000),
        ("bytes_written", 240),
        ("event_loop_turns", 10),
    ] {
        let more = sum(&after, name) - sum(&before, name);
        assert!(more >= least, "{name} {more}");
    }
}

#[test]
fn node_groups_need_the_stats_privilege() {
    let kedge = Kedge::start();
    let mut client = kedge.connect();
    client.hello(SDK_FEATURES);
    client.log_in("reader", PASSWORD);
    client.select("default");
    for group in [
        "threads",
        "worker_thread_info",
        "workload",
        "checkpoint",
        "hash",
        "kvtimings",
    ] {
        let denied = stat(&mut client, group);
        assert_eq!(denied, Err(Status::AccessDenied), "{group}");
    }
}

fn object(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| panic!("{text}"))
}

#[test]
fn bucket_details_show_visible_buckets() {
    let kedge = Kedge::start();
    let other = kedge_bucket::BucketConfig::new("other", 4, 64 << 20);
    let created = kedge.server().registry().create(other).unwrap();
    created.wait_loaded().unwrap();
    let names = |client: &mut Client| -> Vec<String> {
        let all = stat(client, "bucket_details").unwrap();
        assert_eq!(all.len(), 1);
        let all = object(&all["bucket details"]);
        let buckets = all["buckets"].as_array().unwrap();
        let name = |bucket: &Value| bucket["name"].as_str().unwrap().to_owned();
        buckets.iter().map(name).collect()
    };
    let mut client = kedge.client();
    assert_eq!(names(&mut client), ["default", "other"]);
    let one = object(&stat(&mut client, "bucket_details other").unwrap()["other"]);
    assert_eq!(
        (&one["vbuckets"], &one["quota_bytes"]),
        (&4.into(), &(64 << 20).into())
    );
    assert_eq!(one["state"], "ready");
    let mut narrow = as_user(&kedge, "narrow", "data_monitoring[default]");
    assert_eq!(names(&mut narrow), ["default"]);
    for (client, name) in [(&mut narrow, "other"), (&mut client, "none")] {
        let group = format!("bucket_details {name}");
        assert_eq!(stat(client, &group), Err(Status::KeyNotFound), "{name}");
    }
}

#[test]
fn groups_about_other_users_need_the_node_privilege() {
    let kedge = Kedge::start();
    let mut root = kedge.connect();
    root.hello(SDK_FEATURES);
    root.log_in("root", PASSWORD);
    let from = root.stream.local_addr().unwrap().ip().to_string();
    let mut known = |wanted: &[(&str, u64)]| {
        let all = stat(&mut root, "client_connection_details").unwrap();
        let known = object(&all[&from]);
        assert!(known["last_used"].as_str().unwrap().starts_with("20"));
        wanted.iter().all(|(name, value)| known[name] == *value)
    };
    assert!(known(&[("current", 1), ("total", 1), ("disconnect", 0)]));
    let others: Vec<_> = (0..3).map(|_| kedge.client()).collect();
    assert!(known(&[("current", 4), ("total", 4), ("disconnect", 0)]));
    drop(others);
    until("they are gone", || {
        known(&[("current", 1), ("total", 4), ("disconnect", 3)])
    });
    let audit = stat(&mut root, "audit").unwrap();
    assert_eq!(
        (&*audit["enabled"], &*audit["dropped_events"]),
        ("false", "0")
    );
    let mut client = kedge.client();
    for group in ["client_connection_details", "audit"] {
        let denied = stat(&mut client, group);
        assert_eq!(denied, Err(Status::AccessDenied), "{group}");
    }
}

#[test]
fn stat_timings_and_clocks() {
    let kedge = Kedge::start();
    let mut client = kedge.connect();
    client.hello(SDK_FEATURES);
    client.log_in("root", PASSWORD);
    client.select("default");
    let mut total = |group: &str| {
        let all = stat(&mut client, "stat-timings").unwrap();
        let json = all.get(&format!("stat:{group}")).map(|json| object(json));
        json.map_or(0, |json| json["total"].as_u64().unwrap())
    };
    assert_eq!((total("hash"), total("stat-timings")), (0, 1));
    for group in ["hash", "hash 3", "", "no such group", "hash 16"] {
        let _ = stat(&mut kedge.client(), group);
    }
    assert_eq!((total("hash"), total("all"), total("no")), (1, 1, 0));
    // Failed ones are not counted.
    assert_eq!((total("hash.single"), total("all.single")), (1, 0));
    stat(&mut client, "reset").unwrap();
    let after = stat(&mut client, "stat-timings").unwrap();
    assert_eq!(after.keys().collect::<Vec<_>>(), ["stat:reset"]);
    let clocks = stat(&mut client, "clocks").unwrap();
    let wall_ns = number(&clocks, "clock_wall_ns");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let behind = now.checked_sub(Duration::from_nanos(wall_ns)).unwrap();
    assert!(behind < Duration::from_secs(60), "{behind:?}");
    let each = number(&clocks, "clock_fine_overhead_ns");
    assert!(each * 1_000 <= number(&clocks, "clock_measurement_period_ns"));
    let memory = stat(&mut client, "allocator").unwrap();
    let of = |name| number(&memory, name);
    assert!(of("resident") > 1 << 20, "{memory:?}");
    assert!(of("resident") <= of("mapped") && of("resident_peak") > 1 << 20);
    let info = stat(&mut client, "info").unwrap();
    assert!(info["info"].starts_with("Kedge "), "{info:?}");
}

/// Names of groups in the first column of a table, with arguments.
fn groups(table: &str) -> Vec<String> {
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `"));
    let cells = rows.filter_map(|row| row.split(" | ").next());
    let names = cells.flat_map(|cell| cell.split('`').step_by(2));
    let arguments = [
        (" [SCOPE.COLLECTION]", ""),
        (" VB", " 3"),
        (" NAME", " k"),
        (" ID", " 0"),
        (" SECONDS", " 1"),
    ];
    let fill = |name: &str| {
        let fill = |text: String, (from, to): &(&str, &str)| text.replace(from, to);
        arguments.iter().fold(name.to_owned(), fill)
    };
    names.map(fill).collect()
}

#[test]
fn documented_groups_match_the_code() {
    let kedge = Kedge::start();
    let mut client = kedge.connect();
    client.hello(SDK_FEATURES);
    client.log_in("root", PASSWORD);
    client.select("default");
    for vb in 0..16 {
        let key = keys_of(VbId(vb), 1).remove(0);
        client.set(&key, b"v").ok();
    }
    let text = include_str!("../../../../docs/compat.md");
    let (_, text) = text.split_once("## Groups of STAT").unwrap();
    let (text, _) = text.split_once("\n## ").unwrap();
    let (served, others) = text.split_once("\nNot served").unwrap();
    let (served, others) = (groups(served), groups(others));
    assert!(
        served.len() > 50 && others.len() >= 10,
        "{served:?} {others:?}"
    );
    for group in served {
        // Groups about a key, with made-up arguments, find no key.
        let of_key = group.contains("key") && group != "encryption-key-ids";
        let group = if group.starts_with("vkey") {
            format!("{group} k 3")
        } else {
            group
        };
        match stat(&mut client, &group) {
            Ok(_) => {}
            Err(Status::KeyNotFound | Status::Invalid) if of_key => {}
            Err(other) => panic!("{group}: {other:?}"),
        }
    }
    for group in others {
        assert_eq!(
            stat(&mut client, &group),
            Err(Status::KeyNotFound),
            "{group}"
        );
    }
}

/// The statistic of a metric of the server.
#[test]
fn every_server_metric_has_a_statistic() {
    let kedge = Kedge::start();
    let address = kedge.server().mgmt_addr().unwrap();
    let client = HttpClient::new("127.0.0.1", address.port(), "root", PASSWORD);
    let reply = client.send("GET", "/kedge/stats", "", b"").unwrap();
    let stats: Value = serde_json::from_slice(&reply.body).unwrap();
    for statistic in kedge_mgmt::server_statistics() {
        assert!(stats["server"].get(statistic).is_some(), "{statistic}");
    }
}
