//! Tests of STAT and GET_CMD_TIMER.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use kedge_executor::{TaskInfo, TaskState};
use kedge_protocol::binary::Opcode;
use kedge_protocol::binary::commands::subdoc::{DocFlags, PathFlags, SubdocOp};
use kedge_types::{Datatype, Status};
use serde_json::Value;

use crate::client::{Client, Frame, SDK_FEATURES};
use crate::server::{Kedge, PASSWORD, Setup};
use crate::subdoc::{call, spec};

pub(crate) fn stat(client: &mut Client, group: &str) -> Result<HashMap<String, String>, Status> {
    stat_with(client, group, "")
}

/// The same with JSON arguments.
pub(crate) fn stat_with(
    client: &mut Client,
    group: &str,
    arguments: &str,
) -> Result<HashMap<String, String>, Status> {
    let datatype = match arguments {
        "" => Datatype::RAW,
        _ => Datatype::JSON,
    };
    client.send(
        &Frame {
            key: group.into(),
            value: arguments.into(),
            datatype,
            ..Frame::new(Opcode::Stat, 77)
        }
        .bytes(),
    );
    let mut all = HashMap::new();
    loop {
        let reply = client.reply();
        assert_eq!(reply.opaque, 77);
        if reply.status != Status::Success {
            assert!(all.is_empty(), "an error comes alone");
            return Err(reply.status);
        }
        if reply.key.is_empty() {
            assert!(reply.value.is_empty());
            return Ok(all);
        }
        let value = reply.text();
        let before = all.insert(String::from_utf8(reply.key).unwrap(), value);
        assert_eq!(before, None, "a name comes once");
    }
}

#[test]
fn every_group_has_its_statistics() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    let token = client.set("k", b"v").ok().token();
    client.get("k").ok();
    let vb = kedge_types::VbId::of_key(b"k", 16);
    for (group, wanted) in [
        (
            "",
            vec![
                "pid",
                "uptime",
                "time",
                "version",
                "curr_connections",
                "curr_items",
                "uuid",
                "cmd_total_ops",
            ],
        ),
        ("timings", vec!["get", "set"]),
        ("vbucket", vec!["vb_0", "vb_15"]),
        ("vbucket-seqno", vec!["vb_3:high_seqno", "vb_3:uuid"]),
        ("vbucket-details 2", vec!["vb_2", "vb_2:num_items"]),
        ("failovers 1", vec!["vb_1:num_entries", "vb_1:0:id"]),
        (
            "config",
            vec!["ep_vbuckets", "ep_quota_bytes", "ep_compaction_throttle"],
        ),
        ("memory", vec!["mem_used", "ep_max_size"]),
        ("dcp", vec!["ep_dcp_count"]),
        ("dcpagg :", vec![":total:count"]),
        (
            "durability-monitor 3",
            vec!["vb_3:num_accepted", "vb_3:high_prepared_seqno"],
        ),
        (
            "vbucket-durability-state",
            vec!["vb_15", "vb_0:high_completed_seqno", "vb_0:topology"],
        ),
        ("uuid", vec!["uuid"]),
        ("warmup", vec!["ep_warmup_state"]),
        (
            "connections",
            vec!["curr_connections", "thread_0:connections"],
        ),
        ("responses", vec!["0:Success", "responses"]),
        ("settings", vec!["maxconns"]),
        ("items", vec![]),
    ] {
        let got = stat(&mut client, group).unwrap();
        for name in wanted {
            assert!(got.contains_key(name), "{group}: {name} of {got:?}");
        }
    }
    let general = stat(&mut client, "").unwrap();
    assert_eq!(
        (
            &*general["cmd_get"],
            &*general["get_hits"],
            &*general["curr_items"]
        ),
        ("1", "1", "1")
    );
    let one = stat(&mut client, &format!("vbucket-seqno {vb}")).unwrap();
    assert_eq!(one[&format!("vb_{vb}:high_seqno")], token.seqno.to_string());
    assert_eq!(one[&format!("vb_{vb}:uuid")], token.vb_uuid.to_string());
    assert_eq!(stat(&mut client, "vbucket").unwrap().len(), 16);
    assert_eq!(stat(&mut client, "no such group"), Err(Status::KeyNotFound));
    assert_eq!(stat(&mut client, "vbucket-seqno x"), Err(Status::Invalid));
    assert_eq!(
        stat(&mut client, "vbucket-seqno 16"),
        Err(Status::NotMyVbucket)
    );
    stat(&mut client, "reset").unwrap();
    assert_eq!(stat(&mut client, "").unwrap()["cmd_get"], "0");
}

/// Waits until the initial tasks of a bucket have run, and its loading task has ended.
fn apply(kedge: &Kedge) {
    let started = Instant::now();
    let has_applied = |tasks: &[TaskInfo]| {
        tasks.iter().all(|task| task.kind != "warmup")
            && ["log_commit", "expiry_sweep"].iter().all(|kind| {
                tasks.iter().any(|task| {
                    task.kind == *kind && task.runs > 0 && task.state != TaskState::Running
                })
            })
    };
    while !has_applied(&kedge.server().pools().executor().tasks()) {
        assert!(started.elapsed() < Duration::from_secs(20), "tasks run");
        std::thread::yield_now();
    }
}

#[test]
fn file_statistics() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    let number = |stats: &HashMap<String, String>, name: &str| -> u64 {
        stats[name].parse().unwrap_or_else(|_| panic!("{name}"))
    };
    let empty = stat(&mut client, "diskinfo").unwrap();
    assert_eq!(number(&empty, "ep_db_file_size"), 0, "no file yet");
    let vb = kedge_types::VbId::of_key(b"k", 16);
    let bucket = kedge.server().registry().get("default").unwrap();
    for _ in 0..2 {
        client.set("k", &[7; 10_000]).ok();
        bucket.persistence().sync().unwrap();
        bucket.persistence().apply().unwrap();
    }
    let disk = stat(&mut client, "diskinfo detail").unwrap();
    let data = number(&disk, &format!("vb_{vb}:data_size"));
    assert!(data > 0 && number(&disk, "ep_db_data_size") == data);
    assert!(number(&disk, "ep_db_file_size") > data);
    assert!(number(&disk, &format!("vb_{vb}:fragmentation")) > 0);
    assert_eq!(disk.len(), 3 + 2, "one vBucket has a file");
    let details = stat(&mut client, &format!("vbucket-details {vb}")).unwrap();
    assert_eq!(number(&details, &format!("vb_{vb}:db_items")), 1);
    assert_eq!(number(&details, &format!("vb_{vb}:db_revision")), 1);
    let store = stat(&mut client, "kvstore").unwrap();
    assert_eq!(store["rw_0:backend_type"], "couchstore");
    assert_eq!(number(&store, "rw_0:numLoadedVb"), 1);
    assert_eq!(number(&store, "rw_0:commits"), 2);
    let ticket = bucket
        .persistence()
        .compactions()
        .compact(&kedge_bucket::CompactionRequest::default());
    assert_eq!(ticket.unwrap().wait().compacted, 1);
    let compaction = stat(&mut client, "compaction").unwrap();
    assert_eq!(number(&compaction, "ep_compactions"), 1);
    let after = stat(&mut client, "diskinfo").unwrap();
    assert!(number(&after, "ep_db_file_size") < number(&disk, "ep_db_file_size"));
    assert_eq!(stat(&mut client, "diskinfo x"), Err(Status::Invalid));
}

/// One at a time, throttled so much that it lasts as long as the test.
#[test]
fn compaction_progress_statistics() {
    let mut setup = Setup::default();
    setup.bucket.compaction.throttle = kedge_bucket::CompactionRate::BytesPerSec(1);
    setup.bucket.compaction.max_concurrent = 1;
    let vbuckets = setup.bucket.vbuckets;
    let kedge = Kedge::with(setup);
    let mut client = kedge.client();
    // Some for each vBucket.
    for n in 0..300 {
        client.set(&format!("key-{n}"), &[7; 1_000]).ok();
    }
    let bucket = kedge.server().registry().get("default").unwrap();
    bucket.persistence().apply().unwrap();
    let idle = stat(&mut client, "compaction").unwrap();
    assert!(!idle.keys().any(|name| name.starts_with("vb_")), "{idle:?}");
    let ticket = bucket
        .persistence()
        .compactions()
        .compact(&kedge_bucket::CompactionRequest::default())
        .unwrap();
    let started = Instant::now();
    let (stats, running) = loop {
        let stats = stat(&mut client, "compaction").unwrap();
        let figure = |vb: u16, name: &str| stats.get(&format!("vb_{vb}:{name}"));
        let has_begun = |vb: &u16| figure(*vb, "file_size").is_some_and(|size| size != "0");
        if let Some(running) = (0..vbuckets).find(has_begun) {
            break (stats, running);
        }
        assert!(started.elapsed() < Duration::from_secs(20), "{stats:?}");
        std::thread::yield_now();
    };
    let figure = |vb: u16, name: &str| stats.get(&format!("vb_{vb}:{name}")).map(|it| &**it);
    let number = |name: &str| -> u64 { figure(running, name).unwrap().parse().unwrap() };
    assert_eq!(figure(running, "state"), Some("running"));
    assert_eq!(figure(running, "phase"), Some("copy"));
    let documents = bucket.vbucket_figures(kedge_types::VbId(running)).unwrap();
    let documents = documents.documents as u64;
    assert_eq!(number("entries_total"), documents);
    assert!(number("entries") <= documents && documents > 0);
    assert!(number("file_size") > 0, "{stats:?}");
    for name in ["bytes_read", "bytes_written"] {
        assert!(figure(running, name).is_some(), "{name} of {stats:?}");
    }
    for vb in (0..vbuckets).filter(|vb| *vb != running) {
        assert_eq!(figure(vb, "state"), Some("queued"), "{stats:?}");
        assert_eq!(figure(vb, "phase"), None, "{stats:?}");
    }
    let of_bucket = |name: &str| &*stats[name];
    assert_eq!(of_bucket("ep_compactions_running"), "1");
    assert_eq!(of_bucket("ep_compactions_queued"), "15");
    assert_eq!(of_bucket("ep_compaction_bytes_per_sec"), "1");
    assert_eq!(
        bucket.persistence().compactions().cancel(None),
        Ok(usize::from(vbuckets))
    );
    assert_eq!(ticket.wait().cancelled, u32::from(vbuckets));
    let ended = stat(&mut client, "compaction").unwrap();
    assert!(
        !ended.keys().any(|name| name.starts_with("vb_")),
        "{ended:?}"
    );
}

#[test]
fn task_statistics() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    client.set("k", b"v").ok();
    apply(&kedge);
    let tasks = stat(&mut client, "tasks").unwrap();
    let json = |name: &String| -> Value { serde_json::from_str(&tasks[name]).unwrap() };
    let pool = |name: &str| json(&format!("pool:{name}"));
    for name in ["reader", "writer", "auxio", "nonio"] {
        assert_eq!(pool(name)["threads"], 1, "{name}");
        assert!(pool(name)["idle"].is_u64() && pool(name)["queued"].is_u64());
    }
    let rows: Vec<Value> = tasks
        .keys()
        .filter(|name| name.starts_with("task:"))
        .map(json)
        .collect();
    for (owner, kind, pool, priority) in [
        ("bucket:default", "log_commit", "writer", "high"),
        ("bucket:default", "durability_timeout", "nonio", "high"),
        ("bucket:default", "expiry_sweep", "nonio", "low"),
        ("bucket:default", "log_segment", "auxio", "normal"),
        ("bucket:default", "log_apply", "writer", "normal"),
        ("server", "authentication", "nonio", "high"),
    ] {
        let found = rows.iter().find(|row| row["kind"] == kind);
        let row = found.unwrap_or_else(|| panic!("{kind}: {rows:?}"));
        assert_eq!(
            (&row["owner"], &row["pool"], &row["priority"]),
            (&owner.into(), &pool.into(), &priority.into()),
            "{row}"
        );
        assert!(!row["description"].as_str().unwrap().is_empty());
        assert!(row["runs"].is_u64() && row["run_time_us"].is_u64());
        let state = row["state"].as_str().unwrap();
        assert!(
            ["sleeping", "snoozing", "queued", "running"].contains(&state),
            "{row}"
        );
        assert_eq!(row["sleeps_us"].is_u64(), state == "snoozing", "{row}");
    }
    let kinds: BTreeSet<&str> = rows.iter().filter_map(|row| row["kind"].as_str()).collect();
    assert!(!kinds.contains("warmup"), "loading is over: {rows:?}");
    for group in ["scheduler", "runtimes"] {
        let kinds = stat(&mut client, group).unwrap();
        for kind in [
            "warmup[Reader]",
            "log_commit[Writer]",
            "expiry_sweep[NonIO]",
        ] {
            let histogram: Value = serde_json::from_str(&kinds[kind]).unwrap();
            assert!(histogram["total"].as_u64().unwrap() > 0, "{group} {kind}");
        }
        assert!(!kinds.contains_key("no such kind"));
    }
}

#[test]
fn tasks_of_invisible_buckets_are_hidden() {
    let kedge = Kedge::start();
    let owners = |client: &mut Client| {
        let tasks = stat(client, "tasks").unwrap();
        let owners = tasks.values().filter_map(|row| {
            let row: Value = serde_json::from_str(row).unwrap();
            Some(row.get("owner")?.as_str()?.to_owned())
        });
        owners.collect::<BTreeSet<_>>()
    };
    kedge
        .users
        .change(|store| {
            let roles = "bucket_full_access[default]".parse().unwrap();
            store.add("one", PASSWORD, roles, 1)
        })
        .unwrap();
    kedge
        .server()
        .registry()
        .create(kedge_bucket::BucketConfig::new("other", 4, 64 << 20))
        .unwrap()
        .wait_loaded()
        .unwrap();
    apply(&kedge);
    for (user, expected) in [
        ("root", vec!["bucket:default", "bucket:other", "server"]),
        ("one", vec!["bucket:default", "server"]),
    ] {
        let mut client = kedge.connect();
        client.log_in(user, PASSWORD);
        client.select("default");
        let found = owners(&mut client);
        assert!(found.iter().eq(expected.iter()), "{user}: {found:?}");
    }
    // Their histograms are for all buckets.
    let mut client = kedge.connect();
    for (user, is_reset) in [("one", false), ("root", true)] {
        client.log_in(user, PASSWORD);
        client.select("default");
        stat(&mut client, "reset").unwrap();
        let left = stat(&mut client, "runtimes").unwrap();
        assert_eq!(!left.contains_key("warmup[Reader]"), is_reset, "{user}");
    }
    assert!(
        kedge
            .text()
            .until("stats tasks\r\n", "END")
            .contains("log_commit")
    );
}

#[test]
fn dropped_bucket_leaves_no_task() {
    let kedge = Kedge::start();
    let registry = kedge.server().registry();
    for _ in 0..5 {
        let config = kedge_bucket::BucketConfig::new("other", 4, 64 << 20);
        registry.create(config).unwrap();
        // While it loads, or while its tasks begin.
        registry.drop_bucket("other").unwrap();
        let tasks = kedge.server().pools().executor().tasks();
        assert!(tasks.iter().all(|task| task.owner != "bucket:other"));
    }
}

#[test]
fn stat_checks_privileges() {
    let kedge = Kedge::start();
    let mut client = kedge.connect();
    client.hello(SDK_FEATURES);
    client.log_in("reader", PASSWORD);
    assert_eq!(stat(&mut client, ""), Err(Status::AccessDenied));
    assert_eq!(stat(&mut client, "timings"), Err(Status::NoBucket));
    client.select("default");
    for group in [
        "",
        "timings",
        "reset",
        "connections",
        "tasks",
        "scheduler",
        "runtimes",
    ] {
        assert_eq!(
            stat(&mut client, group),
            Err(Status::AccessDenied),
            "{group}"
        );
    }
}

#[test]
fn command_timers() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    for _ in 0..10 {
        client.set("k", b"v").ok();
    }
    for bucket in ["", "default", "/all/"] {
        let frame = client
            .request(Opcode::GetCmdTimer)
            .extras(&[Opcode::Set.wire()]);
        let frame = Frame {
            key: bucket.into(),
            ..frame
        };
        let json: Value = serde_json::from_slice(&client.call(&frame).ok().value).unwrap();
        assert_eq!(json["total"], 10);
        let counts: u64 = json["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row[1].as_u64().unwrap())
            .sum();
        assert_eq!(counts, 10);
    }
    for (opcode, bucket, status) in [
        (Opcode::Noop, "", Status::KeyNotFound),
        (Opcode::Get, "no such bucket", Status::KeyNotFound),
    ] {
        let frame = client.request(Opcode::GetCmdTimer).extras(&[opcode.wire()]);
        let reply = client.call(&Frame {
            key: bucket.into(),
            ..frame
        });
        assert_eq!(reply.status, status);
    }
}

#[test]
fn slow_command_steps_have_timings() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    let mut watcher = kedge.client();
    let mut totals = || {
        ["json_validate", "snappy_decompress", "subdoc_execute"].map(|group| {
            let all = stat(&mut watcher, group).unwrap();
            let json = all
                .get(group)
                .map(|json| serde_json::from_str::<Value>(json).unwrap());
            json.map_or(0, |json| json["total"].as_u64().unwrap())
        })
    };
    let long = kedge_disk::Rng::new(1).bytes(10_000);
    client.set("short", b"{}").ok();
    assert_eq!(totals(), [0, 0, 0]);
    client.set("long", &long).ok();
    let append = client.request(Opcode::Append).key("short").value(&long);
    client.call(&append).ok();
    assert_eq!(totals(), [2, 0, 0]);
    let packed = snap::raw::Encoder::new().compress_vec(&long).unwrap();
    let set = client.request(Opcode::Set).store("long", &packed);
    client.call(&set.datatype(Datatype::SNAPPY)).ok();
    assert_eq!(totals(), [3, 1, 0]);
    let broken = client.request(Opcode::Set).store("long", &long);
    let refused = client.call(&broken.datatype(Datatype::SNAPPY)).status;
    assert_eq!((refused, totals()), (Status::Invalid, [3, 1, 0]));
    client.set("doc", br#"{"a":1}"#).ok();
    for (op, path, status) in [
        (SubdocOp::Get, "a", Status::Success),
        (SubdocOp::DictUpsert, "b", Status::Success),
        (SubdocOp::Get, "none", Status::SubdocMultiPathFailure),
    ] {
        let value = if op.is_mutation() { "2" } else { "" };
        let specs = [spec(op, PathFlags::NONE, path, value)];
        let reply = call(&mut client, "doc", DocFlags::NONE, &specs);
        assert_eq!(reply.status, status, "{path}");
    }
    assert_eq!(totals(), [3, 1, 3]);
}
