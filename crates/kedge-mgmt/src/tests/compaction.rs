//! Compactions, and what is told of them.

use std::time::{Duration, Instant};

use kedge_bucket::{
    BucketChange, BucketConfig, CompactionChange, CompactionRate, StoreMode, Write,
};
use kedge_types::{Cas, CollectionId, Datatype, DocKey, VbId};

use super::{Server, VBUCKETS};

const CONTROLLER: &str = "/pools/default/buckets/default/controller";

/// Writes a document into every vBucket, some more often than others, and brings all into the files.
fn fill(server: &Server, rounds: u16) {
    let bucket = server.registry.get("default").unwrap();
    let key = DocKey::new(CollectionId::DEFAULT, b"key").unwrap();
    for _ in 0..rounds {
        for vb in 0..VBUCKETS {
            let write = Write {
                vb: VbId(vb),
                key: &key,
                cas: Cas(0),
                durability: None,
                new_cas: Cas(0),
                preserve_ttl: false,
                cookie: kedge_bucket::Cookie(0),
            };
            let value = &[7; 1_000];
            let raw = Datatype::RAW;
            bucket
                .documents()
                .store(
                    server.registry.ctx(),
                    &write,
                    &kedge_bucket::StoreArgs {
                        mode: StoreMode::Set,
                        value,
                        datatype: raw,
                        flags: 0,
                        expiry: 0,
                    },
                )
                .unwrap();
        }
        bucket.persistence().sync().unwrap();
        bucket.persistence().apply().unwrap();
    }
}

#[test]
fn compaction_with_wait_returns_the_result() {
    let server = Server::start();
    let path = &format!("{CONTROLLER}/compactBucket");
    let nothing = server.post(path, "wait=true").json();
    assert_eq!(nothing["compacted"], 0);
    assert_eq!(nothing["withoutFile"], VBUCKETS);
    fill(&server, 3);
    let one = server.post(path, "wait=1&vbuckets=2").json();
    assert_eq!(
        (&one["compacted"], &one["failed"]),
        (&1.into(), &0.into()),
        "{one}"
    );
    assert!(
        one["bytesBefore"].as_u64() > one["bytesAfter"].as_u64(),
        "{one}"
    );
    assert_eq!(one["firstError"], serde_json::Value::Null);
    let all = server.post(path, "wait=1&purgeBefore=1700000000&dropDeletes=1");
    assert_eq!(all.json()["compacted"], VBUCKETS);
    assert_eq!(
        server.get("/pools/default/tasks").json(),
        serde_json::json!([])
    );
}

#[test]
fn compaction_without_wait_can_be_cancelled() {
    let server = Server::start();
    fill(&server, 1);
    for name in [
        "compactBucket",
        "compactDatabases",
        "unsafePurgeBucket",
        "cancelBucketCompaction",
        "cancelDatabasesCompaction",
    ] {
        server.post(&format!("{CONTROLLER}/{name}"), "").is(200, "");
    }
    let tasks = server.get("/pools/default/tasks").json();
    for task in tasks.as_array().unwrap() {
        assert_eq!(task["type"], "bucket_compaction");
        assert_eq!(task["bucket"], "default");
    }
}

/// One at a time, and so slowly that it rests until it is cancelled.
#[test]
fn running_compaction_is_a_task_until_cancelled() {
    let server = Server::start();
    fill(&server, 3);
    let bucket = server.registry.get("default").unwrap();
    let change = BucketChange {
        compaction: CompactionChange {
            throttle: Some(CompactionRate::BytesPerSec(1)),
            max_concurrent: Some(1),
            ..CompactionChange::default()
        },
        ..BucketChange::default()
    };
    bucket.update(&change).unwrap();
    server
        .post(&format!("{CONTROLLER}/compactBucket"), "")
        .is(200, "");
    let started = Instant::now();
    let wait_for = |what: &str, is_so: &dyn Fn(&serde_json::Value) -> bool| loop {
        let tasks = server.get("/pools/default/tasks").json();
        if is_so(&tasks) {
            return tasks;
        }
        assert!(
            started.elapsed() < Duration::from_secs(20),
            "{what}: {tasks}"
        );
        std::thread::yield_now();
    };
    let tasks = wait_for("it has begun", &|tasks| {
        tasks[0]["totalChanges"].as_u64() > Some(0)
    });
    let cancel = format!("{CONTROLLER}/cancelBucketCompaction");
    let task = &tasks[0];
    assert_eq!(
        tasks,
        serde_json::json!([{
            "type": "bucket_compaction",
            "status": "running",
            "bucket": "default",
            "recommendedRefreshPeriod": 2,
            "changesDone": task["changesDone"],
            "totalChanges": 1,
            "progress": task["progress"],
            "vbucketsRunning": 1,
            "vbucketsQueued": VBUCKETS - 1,
            "cancelURI": &cancel,
        }])
    );
    assert!(task["changesDone"].as_u64() <= Some(1), "{task}");
    assert!(task["progress"].as_u64() <= Some(100), "{task}");
    server.post(&cancel, "").is(200, "");
    wait_for("it has ended", &|tasks| *tasks == serde_json::json!([]));
    let aborted = bucket.figures();
    let aborted = aborted
        .iter()
        .find(|(name, _)| *name == "ep_compaction_aborted");
    assert_eq!(aborted, Some(&("ep_compaction_aborted", 1)));
}

#[test]
fn invalid_or_unprivileged_compactions_are_refused() {
    let server = Server::start();
    let path = &format!("{CONTROLLER}/compactBucket");
    for (form, field) in [
        ("vbuckets=1,x", "vbuckets"),
        ("vbuckets=", "vbuckets"),
        ("purgeBefore=-1", "purgeBefore"),
        ("dropDeletes=maybe", "dropDeletes"),
        ("wait=2", "wait"),
        ("vbuckets=4", "_"),
    ] {
        let reply = server.post(path, form);
        assert_eq!(reply.status, 400, "{form}");
        assert!(
            reply.json()["errors"][field].is_string(),
            "{form}: {}",
            reply.body
        );
    }
    for name in ["compactBucket", "cancelBucketCompaction"] {
        let nowhere = format!("/pools/default/buckets/nowhere/controller/{name}");
        assert_eq!(server.post(&nowhere, "").status, 404);
    }
    server
        .registry
        .create(BucketConfig::new("other", 1, 1 << 20))
        .unwrap();
    let user = "/settings/rbac/users/local/app";
    let form = "password=secret&roles=bucket_full_access%5Bdefault%5D";
    assert_eq!(server.connect().request("PUT", user, form).status, 200);
    let mut app = server.connect_as("app", "secret");
    for name in [
        "compactBucket",
        "cancelBucketCompaction",
        "unsafePurgeBucket",
    ] {
        let reply = app.request("POST", &format!("{CONTROLLER}/{name}"), "");
        assert_eq!(reply.status, 403, "{name}: an application does not compact");
    }
}
