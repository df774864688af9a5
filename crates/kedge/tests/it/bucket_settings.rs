//! Settings of buckets: changed while the server runs, shown, and there after whatever ends it.

use crate::process::{PASSWORD, Server, kedge, run};
use rustix::process::Signal;
use serde_json::Value;

fn try_bucket(server: &Server, args: &[&str]) -> (Option<i32>, String, String) {
    let url = format!("couchbase://{}/default", server.kv);
    let login = ["-U", &url, "-u", "Administrator"];
    let mut command = kedge(&["bucket"]);
    run(command
        .args(args)
        .args(login)
        .env("KEDGE_PASSWORD", PASSWORD))
}

/// Runs `kedge bucket`; it must succeed.
fn bucket(server: &Server, args: &[&str]) -> String {
    let (code, stdout, stderr) = try_bucket(server, args);
    assert_eq!(code, Some(0), "{args:?}: {stdout}{stderr}");
    stdout
}

#[test]
fn bucket_settings_are_set_changed_and_shown() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(dir.path(), &[]);
    bucket(
        &server,
        &[
            "create",
            "--flush-enabled",
            "other",
            "--vbuckets=4",
            "--conflict-resolution=lww",
            "--max-ttl=60",
            "--durability-min-level=majority_and_persist_to_active",
            "--mem-low-wat-percent=60",
        ],
    );
    let shown = |name: &str| {
        let text = bucket(&server, &["show", "other"]);
        let row = text.lines().find_map(|line| {
            let (first, rest) = line.split_once(' ')?;
            (first == name).then(|| rest.trim().to_owned())
        });
        row.unwrap_or_else(|| panic!("{name} in {text}"))
    };
    for (name, value) in [
        ("quota", "100.0 MiB"),
        ("vbuckets", "4"),
        ("flush_enabled", "true"),
        ("max_ttl", "60 s"),
        ("compression", "passive"),
        ("durability_min_level", "majorityAndPersistActive"),
        ("conflict_resolution", "lww"),
        ("eviction_policy", "valueOnly"),
        ("mem_low_wat_percent", "60"),
        ("compaction", "as by default"),
    ] {
        assert_eq!(shown(name), value, "{name}");
    }
    let edits = [
        "edit",
        "other",
        "--quota=128",
        "--flush-enabled=false",
        "--eviction-policy=full_eviction",
        "--compaction-fragmentation-percent=40",
        "--purge-interval=1.5",
    ];
    let said = bucket(&server, &edits);
    assert_eq!(said, "bucket \"other\" is changed\n");
    for (name, value) in [
        ("quota", "128.0 MiB"),
        ("flush_enabled", "false"),
        ("max_ttl", "60 s"),
        ("eviction_policy", "fullEviction"),
        (
            "compaction",
            "at 40 % garbage, tombstones are kept 1.5 days",
        ),
    ] {
        assert_eq!(shown(name), value, "{name}");
    }
    let json = bucket(&server, &["show", "other", "--json"]);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["maxTTL"], 60);

    let wrong = ["edit", "other", "--compression=all", "--replicas=9"];
    let (code, _, stderr) = try_bucket(&server, &wrong);
    assert_eq!(code, Some(1));
    let rows: Vec<&str> = stderr.lines().skip(1).collect();
    assert!(
        rows[0].starts_with("FIELD ") && rows[0].ends_with("WHAT IS WRONG"),
        "{stderr}"
    );
    assert!(
        rows[1].starts_with("compressionMode ") && rows[2].starts_with("replicaNumber "),
        "{stderr}"
    );
    for (args, says) in [
        (&["edit", "other"][..], "nothing to change"),
        (&["edit", "none", "--max-ttl=1"], "no bucket \"none\""),
        (&["show", "none"], "no bucket \"none\""),
    ] {
        let (code, _, stderr) = try_bucket(&server, args);
        assert_eq!(code, Some(1), "{args:?}");
        assert!(stderr.contains(says), "{args:?}: {stderr}");
    }
}

/// The settings of a bucket, without what moves by itself.
fn settings_of(server: &Server) -> Value {
    let json = bucket(server, &["show", "default", "--json"]);
    let mut json: Value = serde_json::from_str(&json).expect("JSON");
    let document = json.as_object_mut().expect("an object");
    for moves in ["basicStats", "nodes", "vBucketServerMap"] {
        document.remove(moves);
    }
    json
}

#[test]
fn acknowledged_bucket_change_survives_a_kill_and_a_stop() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut server = Server::start(dir.path(), &[]);
    for (round, end) in [Signal::KILL, Signal::TERM, Signal::KILL]
        .into_iter()
        .enumerate()
    {
        let (ttl, quota) = (
            format!("--max-ttl={}", round + 7),
            format!("--quota={}", round + 101),
        );
        let policy = ["full_eviction", "value_only"][round % 2];
        let compression = ["active", "off", "passive"][round];
        let edits = [
            "edit",
            "default",
            &ttl,
            &quota,
            "--eviction-policy",
            policy,
            "--compression",
            compression,
            "--durability-min-level=majority",
            "--flush-enabled",
            "--warmup-behavior=blocking",
            "--mem-high-wat-percent=80",
        ];
        let before = settings_of(&server);
        bucket(&server, &edits);
        let changed = settings_of(&server);
        assert_ne!(changed, before);
        assert_eq!(changed["maxTTL"], round + 7);
        server.signal(end);
        server.wait();
        server = Server::start(dir.path(), &[]);
        assert_eq!(settings_of(&server), changed, "after {end:?}");
    }
}
