//! The operator's commands against a real server.

use crate::process::{PASSWORD, PATIENCE, Server, connect_to, kedge, run, threads_of};
use kedge_types::{DurabilityLevel, Status, VbId};
use std::time::Instant;

/// Runs a tool against the server; it must succeed.
fn tool(server: &Server, args: &[&str]) -> String {
    let (code, stdout, stderr) = try_tool(server, PASSWORD, args);
    assert_eq!(code, Some(0), "{args:?}: {stdout}{stderr}");
    stdout
}

fn try_tool(server: &Server, password: &str, args: &[&str]) -> (Option<i32>, String, String) {
    let url = format!("couchbase://{}/default", server.kv);
    run(kedge(args).args(["-U", &url, "-u", "Administrator", "-P", password]))
}

fn start() -> (tempfile::TempDir, Server) {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(dir.path(), &[]);
    (dir, server)
}

#[test]
fn stats_and_timings_are_shown() {
    let (_dir, server) = start();
    let mut connection = server.connect();
    for number in 0..10_u32 {
        let key = number.to_be_bytes();
        connection
            .set(&key, b"v", Some(DurabilityLevel::PersistToMajority))
            .expect("a write");
        connection.get(&key).expect("an answer");
    }
    let stats = tool(&server, &["stats"]);
    let items = stats
        .lines()
        .find(|line| line.starts_with("curr_items "))
        .expect("curr_items");
    assert!(items.ends_with(" 10"), "{items}");
    let json = tool(&server, &["stats", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["curr_items"], 10);
    assert!(json["version"].is_string(), "{json}");
    let timings = tool(&server, &["timings"]);
    for name in [
        "get",
        "set",
        "sync_write_commit_persist_to_majority",
        "log_sync",
    ] {
        assert!(
            timings.contains(&format!("\"{name}\"")),
            "{name}: {timings}"
        );
    }
    let get = tool(&server, &["timings", "get"]);
    assert!(
        get.contains("Total: 10 operations") && get.contains("(100.0000%)"),
        "{get}"
    );
    let (code, _, stderr) = try_tool(&server, PASSWORD, &["timings", "no_such"]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("no histogram \"no_such\""), "{stderr}");
}

#[test]
fn open_files_are_limited_by_the_settings() {
    for (flag, expected) in [("--max-open-files=2", 2), ("--keep-files-open=false", 0)] {
        let dir = tempfile::tempdir().expect("a directory");
        let server = Server::start(dir.path(), &["--commit-log=false", flag]);
        let mut connection = server.connect();
        // A file that was just made is opened when it is needed again.
        for number in (0..8_u8).chain(0..8) {
            connection
                .set(&[number], b"v", Some(DurabilityLevel::PersistToMajority))
                .expect("a write");
        }
        let stats = tool(&server, &["stats", "--json"]);
        let stats: serde_json::Value = serde_json::from_str(&stats).expect("JSON");
        for name in ["ep_storage_open_files", "ep_storage_handles"] {
            assert_eq!(stats[name], expected, "{flag}: {name}");
        }
    }
}

#[test]
fn stats_arguments_may_be_separate_words_or_one() {
    let (_dir, server) = start();
    let vb = VbId::of_key(b"k", 64).get().to_string();
    server.connect().set(b"k", b"v", None).expect("a write");
    let cas = |args: &[&str]| {
        let text = tool(&server, args);
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        json["key_cas"].as_u64().expect("a CAS")
    };
    let cas_of_words = cas(&["stats", "key", "k", &vb, "--json"]);
    assert_eq!(
        cas_of_words,
        cas(&["stats", "--json", &format!("key k {vb}")])
    );
    let (code, _, stderr) = try_tool(&server, PASSWORD, &["stats", "key", "k"]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("group \"key k\": "), "{stderr}");
}

#[test]
fn buckets_are_managed() {
    let (_dir, server) = start();
    tool(
        &server,
        &[
            "bucket",
            "create",
            "other",
            "--quota",
            "100",
            "--flush-enabled",
        ],
    );
    let list = tool(&server, &["bucket", "list"]);
    assert!(
        list.lines()
            .any(|line| line.starts_with("other ") && line.ends_with("yes")),
        "{list}"
    );
    let (code, _, stderr) = try_tool(&server, PASSWORD, &["bucket", "create", "other"]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("already exists"), "{stderr}");
    server.connect().set(b"k", b"v", None).expect("a write");
    tool(&server, &["bucket", "flush", "default", "--yes"]);
    assert!(server.connect().get(b"k").expect("an answer").is_none());
    tool(&server, &["bucket", "drop", "other", "--yes"]);
    // The server's words did not say of which bucket they were.
    for words in [
        &["drop", "other", "--yes"][..],
        &["flush", "other", "--yes"],
        &["show", "other"],
        &["edit", "other", "--quota", "100"],
    ] {
        let words = [&["bucket"], words].concat();
        let (code, _, stderr) = try_tool(&server, PASSWORD, &words);
        assert_eq!(code, Some(1));
        assert!(
            stderr.contains("no bucket \"other\""),
            "{words:?}: {stderr}"
        );
    }
}

#[test]
fn drops_require_a_confirmation() {
    // `bucket drop` took a bucket away at once, whoever ran it by mistake.
    let (_dir, server) = start();
    server.connect().set(b"k", b"v", None).expect("a write");
    tool(&server, &["collection", "create-scope", "shop"]);
    tool(&server, &["collection", "create", "shop.orders"]);
    for words in [
        &["bucket", "drop", "default"][..],
        &["bucket", "flush", "default"],
        &["collection", "drop", "shop.orders"],
        &["collection", "drop-scope", "shop"],
    ] {
        let (code, stdout, stderr) = try_tool(&server, PASSWORD, words);
        assert_eq!((code, stdout.as_str()), (Some(1), ""), "{words:?}");
        assert!(stderr.contains("--yes is required"), "{words:?}: {stderr}");
        let name = words.last().expect("a name");
        assert!(stderr.contains(&format!("\"{name}\"")), "{stderr}");
    }
    assert!(server.connect().get(b"k").expect("an answer").is_some());
    let listed = tool(&server, &["collection", "list"]);
    assert!(listed.contains("orders"), "{listed}");
    tool(&server, &["collection", "drop-scope", "shop", "-y"]);
    tool(&server, &["bucket", "drop", "default", "--yes"]);
    assert!(!tool(&server, &["bucket", "list"]).contains("default"));
}

#[test]
fn collections_are_managed() {
    let (_dir, server) = start();
    let collection = |words: &[&str]| tool(&server, &[&["collection"], words].concat());
    collection(&["create-scope", "shop"]);
    collection(&["create", "shop.orders", "--max-ttl", "60"]);
    collection(&["create", "shop.carts"]);
    collection(&["modify", "shop.orders", "--max-ttl", "-1"]);
    let expected = "SCOPE     COLLECTION   ID   MAX TTL\n\
         _default  _default    0x0  bucket's\n\
         shop      orders      0x8      none\n\
         shop      carts       0x9  bucket's\n";
    assert_eq!(collection(&["list"]), expected);
    let json = collection(&["list", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["uid"], "4");
    let stats = tool(&server, &["stats", "collections"]);
    assert!(stats.contains("0x8:0x9:items"), "{stats}");
    for (words, says) in [
        (&["create", "shop.orders"][..], "already exists"),
        (&["create", "shop"], "SCOPE.COLLECTION"),
        (&["create", "none.orders"], "is not found"),
        (&["create-scope", "_shop"], "First character"),
        (&["drop", "shop.none", "--yes"], "is not found"),
        (&["drop-scope", "_default", "--yes"], "not allowed"),
    ] {
        let words = [&["collection"], words].concat();
        let (code, _, stderr) = try_tool(&server, PASSWORD, &words);
        assert_eq!(code, Some(1), "{words:?}");
        assert!(stderr.contains(says), "{words:?}: {stderr}");
    }
    collection(&["drop", "shop.orders", "--yes"]);
    collection(&["drop-scope", "shop", "--yes"]);
    let left = collection(&["list"]);
    assert_eq!(left.lines().count(), 2, "{left}");
}

#[test]
fn users_are_managed() {
    let (_dir, server) = start();
    let new = "--new-password=the-first";
    tool(
        &server,
        &["user", "add", "ada", "--roles", "data_reader[default]", new],
    );
    let (code, _, stderr) = try_tool(&server, PASSWORD, &["user", "add", "ada", new]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("already"), "{stderr}");
    let list = tool(&server, &["user", "list"]);
    let ada = list
        .lines()
        .find(|line| line.starts_with("ada"))
        .expect("a row");
    assert!(ada.ends_with("data_reader[default]"), "{list}");
    tool(
        &server,
        &["user", "passwd", "ada", "--new-password=the-second"],
    );
    let list = tool(&server, &["user", "list"]);
    assert!(list.contains("data_reader[default]"), "roles stay: {list}");
    let url = format!("couchbase://{}/default", server.kv);
    let as_ada = |password: &str| {
        run(kedge(&["bucket", "list"]).args(["-U", &url, "-u", "ada", "-P", password])).2
    };
    assert!(
        as_ada("the-first").contains("authentication as \"ada\" failed"),
        "{}",
        as_ada("the-first")
    );
    assert!(
        !as_ada("the-second").contains("authentication"),
        "{}",
        as_ada("the-second")
    );
    tool(&server, &["user", "remove", "ada"]);
    assert!(as_ada("the-second").contains("authentication as \"ada\" failed"));
}

/// `kedge user add carol` made an administrator, with a password of one character if that was given.
#[test]
fn new_user_has_only_the_given_rights() {
    let (_dir, server) = start();
    let tries = |words: &[&str]| try_tool(&server, PASSWORD, words);
    let (code, _, stderr) = tries(&["user", "add", "carol", "--new-password=x"]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("at least 6 characters"), "{stderr}");
    let new = "--new-password=christmas";
    let roles = [
        "user",
        "add",
        "carol",
        "--roles=data_reader[no-such-bucket]",
        new,
    ];
    let (code, _, stderr) = tries(&roles);
    assert_eq!(code, Some(1));
    assert!(
        stderr.contains("undefined: [data_reader[no-such-bucket]]"),
        "{stderr}"
    );
    tool(
        &server,
        &["user", "add", "carol", "--display-name=Carol", new],
    );
    let url = format!("couchbase://{}/default", server.kv);
    // Her password is right, and she may do nothing with it.
    for list in ["bucket", "user"] {
        let as_carol = ["-U", &url, "-u", "carol", "-P", "christmas"];
        let (code, _, stderr) = run(kedge(&[list, "list"]).args(as_carol));
        assert_eq!(code, Some(1), "{list}");
        assert!(stderr.contains("Forbidden"), "{list}: {stderr}");
    }
    // What is not given stays.
    tool(&server, &["user", "set", "carol", "--roles=ro_admin"]);
    let list = tool(&server, &["user", "list"]);
    let carol = list
        .lines()
        .find(|line| line.starts_with("carol"))
        .expect("a row");
    assert!(
        carol.contains("Carol") && carol.ends_with("ro_admin"),
        "{list}"
    );
    let reserved: [&[&str]; 2] = [
        &["user", "remove", "kedge.cluster"],
        &["user", "add", "kedge.x", new],
    ];
    for words in reserved {
        let (code, _, stderr) = tries(words);
        assert_eq!(code, Some(1), "{words:?}");
        assert!(stderr.contains("reserved"), "{words:?}: {stderr}");
    }
}

#[test]
fn client_errors_name_the_remedy() {
    let (_dir, server) = start();
    let (code, _, stderr) = try_tool(&server, "wrong", &["stats"]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("wrong user or password"), "{stderr}");
    let (code, _, stderr) = run(kedge(&["stats", "-U", "couchbase://127.0.0.1:1"]).arg("-Px"));
    assert_eq!(code, Some(1));
    assert!(
        stderr.contains("127.0.0.1:1") && stderr.contains("is the server running"),
        "{stderr}"
    );
    let (code, _, stderr) = run(&mut kedge(&["stats", "-U", "couchbases://h"]));
    assert_eq!(code, Some(1));
    assert!(stderr.contains("TLS"), "{stderr}");
    let (code, stdout, _) = run(&mut kedge(&["version"]));
    assert_eq!(
        (code, stdout),
        (Some(0), format!("kedge {}\n", env!("CARGO_PKG_VERSION")))
    );
}

#[test]
fn load_drives_every_protocol() {
    let (_dir, server) = start();
    let counts = |url: String, more: &[&str]| {
        let mut command = kedge(&[
            "load",
            "-U",
            &url,
            "-P",
            PASSWORD,
            "--json",
            "--num-items=100",
        ]);
        command
            .args(["--num-threads=3", "--num-cycles=40", "--max-size=600"])
            .args(more);
        let (code, stdout, stderr) = run(&mut command);
        assert_eq!(code, Some(0), "{stdout}{stderr}");
        let report: serde_json::Value = serde_json::from_str(&stdout).expect("JSON");
        assert_eq!(
            (&report["errors"], &report["misses"]),
            (&0.into(), &0.into()),
            "{report}"
        );
        assert_eq!(report["populated"], 100, "{report}");
        for field in [
            "ops_per_s",
            "p50_us",
            "p99_us",
            "p999_us",
            "max_us",
            "seconds",
        ] {
            assert!(
                report[field].as_f64().expect("a number") > 0.0,
                "{field}: {report}"
            );
        }
        report["ops"].as_u64().expect("a number")
    };
    let kv = || format!("couchbase://{}/default", server.kv);
    let plain = || format!("memcached://{}", server.memcached);
    assert_eq!(counts(kv(), &[]), 120);
    assert_eq!(
        counts(kv(), &["--batch-size=5", "--random-body", "--sequential"]),
        600
    );
    let durable = [
        "--durability=persist_to_majority",
        "--set-pct=100",
        "--pipeline=8",
        "--sequential",
    ];
    assert_eq!(counts(kv(), &durable), 120);
    assert_eq!(
        counts(plain(), &["--pipeline=8", "--worker-threads=2"]),
        120
    );
    assert_eq!(
        counts(plain(), &["--protocol=memcached-text", "--rate-limit=2000"]),
        120
    );
    assert_eq!(counts(plain(), &["--set-pct=10", "--zipfian"]), 120);
}

#[test]
fn stats_show_tasks_and_their_times() {
    let (_dir, server) = start();
    let mut connection = server.connect();
    connection
        .set(b"k", b"v", Some(DurabilityLevel::PersistToMajority))
        .expect("a write");
    // A password that was not verified in this process costs a hash, with SASL PLAIN as this client logs in.
    connect_to(server.kv, "wrong").expect_err("a wrong password");
    let tasks = tool(&server, &["stats", "tasks"]);
    let line = |start: &[&str]| {
        tasks
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .find(|words| words.windows(start.len()).any(|at| at == start))
            .unwrap_or_else(|| panic!("{start:?}: {tasks}"))
    };
    for pool in ["reader", "writer", "auxio", "nonio"] {
        assert_eq!(line(&[pool]).len(), 4);
    }
    line(&["bucket:default", "log_commit", "writer", "high"]);
    line(&["bucket:default", "durability_timeout", "nonio", "high"]);
    line(&["bucket:default", "expiry_sweep", "nonio", "low"]);
    line(&["bucket:default", "log_segment", "auxio", "normal"]);
    line(&["server", "authentication", "nonio", "high", "sleeping"]);
    for group in ["scheduler", "runtimes"] {
        let json = tool(&server, &["stats", group, "--json"]);
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        for kind in ["warmup[Reader]", "authentication[NonIO]"] {
            let histogram = json[kind].as_str().expect("a histogram");
            let histogram: serde_json::Value = serde_json::from_str(histogram).expect("JSON");
            assert!(histogram["total"].as_u64() > Some(0), "{group} {kind}");
        }
    }
    let times = tool(
        &server,
        &["timings", "queue_time", "run_time:authentication"],
    );
    for name in [
        "queue_time.warmup",
        "queue_time.authentication",
        "run_time.authentication",
    ] {
        assert!(
            times.contains(&format!("for \"{name}\"")),
            "{name}: {times}"
        );
    }
    assert!(!times.contains("run_time.warmup"), "{times}");
    let all = tool(&server, &["timings"]);
    assert!(
        all.contains("\"run_time.warmup\"") && all.contains("\"set\""),
        "{all}"
    );
    let (code, _, stderr) = try_tool(&server, PASSWORD, &["timings", "run_time.no_such"]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("no histogram"), "{stderr}");
}

#[test]
fn thread_counts_change_at_run_time() {
    let (_dir, server) = start();
    let pools = |server: &Server| {
        let threads = threads_of(server.pid());
        ["reader-", "writer-", "auxio-", "nonio-"]
            .map(|pool| threads.iter().filter(|name| name.starts_with(pool)).count())
    };
    // A thread that has just begun may have no name yet.
    let tasks = tool(&server, &["stats", "tasks"]);
    let [writers, auxio] = ["writer", "auxio"].map(|pool| {
        let line = tasks.lines().find(|line| line.starts_with(pool));
        let threads = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<usize>().ok());
        threads.unwrap_or_else(|| panic!("{pool}: {tasks}"))
    });
    assert!(writers >= 2 && auxio >= 2, "{tasks}");
    let changes = ["num_reader_threads=7", "num_nonio_threads=1"];
    let said = tool(&server, &["config", "set", changes[0], changes[1]]);
    assert!(
        said.contains("num_reader_threads = 7\n")
            && said.contains("num_nonio_threads = 1\n")
            && said.contains("num_writer_threads = \"balanced\"\n"),
        "{said}"
    );
    let expected = [7, writers, auxio, 1];
    let deadline = Instant::now() + PATIENCE;
    while pools(&server) != expected {
        assert!(Instant::now() < deadline, "{:?}", pools(&server));
        std::thread::yield_now();
    }
    server.connect().set(b"k", b"v", None).expect("a write");
    assert_eq!(
        tool(&server, &["config", "set"]),
        said,
        "nothing is changed"
    );
    for (change, words) in [
        ("num_reader_threads=0", "1 to 128"),
        ("num_threads=1", "num_reader_threads"),
        ("num_reader_threads", "NAME=VALUE"),
    ] {
        let (code, _, stderr) = try_tool(&server, PASSWORD, &["config", "set", change]);
        assert_eq!(code, Some(1), "{change}");
        assert!(stderr.contains(words), "{change}: {stderr}");
    }
    assert_eq!(pools(&server), expected);
}

#[test]
fn files_are_compacted() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(dir.path(), &["--apply-max-lag=1ms"]);
    let mut connection = server.connect();
    for number in 0..100_u32 {
        let key = number.to_be_bytes();
        connection
            .set(&key, &[7; 1_000], Some(DurabilityLevel::PersistToMajority))
            .expect("a write");
    }
    let compacted = |text: &str| -> u64 {
        let count = text
            .split(": ")
            .nth(1)
            .and_then(|text| text.split(' ').next());
        count.and_then(|count| count.parse().ok()).expect("a count")
    };
    let begin = Instant::now();
    while compacted(&tool(&server, &["compact", "--wait"])) == 0 {
        assert!(begin.elapsed() < PATIENCE, "no document came into a file");
    }
    let said = tool(
        &server,
        &["compact", "default", "--vb=1", "--vb=2", "--drop-deletes"],
    );
    assert_eq!(said, "bucket \"default\" is being compacted\n");
    tool(&server, &["compact", "--cancel"]);
    let (code, _, stderr) = try_tool(&server, PASSWORD, &["compact", "--vb=64"]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("0 to 63"), "{stderr}");
    let (code, _, stderr) = try_tool(&server, PASSWORD, &["compact", "nowhere"]);
    assert_eq!(code, Some(1), "{stderr}");
    let timings = tool(&server, &["timings", "compaction"]);
    assert!(timings.contains("Total:"), "{timings}");
}

#[test]
fn vbucket_reset_serves_a_quarantined_vbucket_again() {
    // The log has given nothing back yet; without one, only the file has the documents.
    give_a_file_up(true);
    give_a_file_up(false);
}

fn give_a_file_up(commit_log: bool) {
    let dir = tempfile::tempdir().expect("a directory");
    let mode = format!("--commit-log={commit_log}");
    let server = Server::start(dir.path(), &[&mode]);
    let mut connection = server.connect();
    let names: Vec<String> = (0..200).map(|number| format!("key-{number}")).collect();
    for name in &names {
        connection
            .set(name.as_bytes(), b"1", None)
            .expect("a write");
    }
    server.signal(rustix::process::Signal::TERM);
    server.wait();
    let lost = VbId::of_key(names[0].as_bytes(), 64);
    let file = dir.path().join(format!("buckets/default/{lost}.couch.1"));
    let len = file.metadata().expect("the file").len() as usize;
    std::fs::write(&file, vec![0; len]).expect("the damage");

    let server = Server::start(dir.path(), &[]);
    let mut connection = server.connect();
    let refused = connection
        .get(names[0].as_bytes())
        .expect_err("its file is gone");
    assert_eq!(refused.status(), Some(Status::TemporaryFailure));
    let well = VbId((lost.get() + 1) % 64).to_string();
    for (number, why) in [(&*well, "not quarantined"), ("64", "0 to 63")] {
        let (code, _, stderr) = try_tool(&server, PASSWORD, &["vbucket", "reset", number]);
        assert_eq!(code, Some(1));
        assert!(stderr.contains(why), "{stderr}");
    }
    let said = tool(&server, &["vbucket", "reset", &lost.to_string()]);
    let is_lost = |name: &String| VbId::of_key(name.as_bytes(), 64) == lost;
    let logged = names.iter().filter(|name| is_lost(name) && commit_log);
    let has = format!("has the {} documents", logged.count());
    let damaged = format!("{}.damaged", file.display());
    assert!(
        said.starts_with("warning: ") && said.contains(&has) && said.contains(&damaged),
        "{said}"
    );
    assert!(!file.exists() && std::path::Path::new(&damaged).exists());
    let metrics = tool(&server, &["stats"]);
    for (name, value) in [("ep_vb_quarantined", 0), ("ep_vb_resets", 1)] {
        let line = metrics
            .lines()
            .find(|line| line.starts_with(&format!("{name} ")));
        let line = line.unwrap_or_else(|| panic!("no {name}"));
        assert!(line.ends_with(&format!(" {value}")), "{line}");
    }
    for name in &names {
        let found = connection.get(name.as_bytes()).expect("an answer");
        assert_eq!(found.is_none(), is_lost(name) && !commit_log, "{name}");
    }
    let persist = Some(DurabilityLevel::PersistToMajority);
    connection
        .set(names[0].as_bytes(), b"2", persist)
        .expect("a write");
    server.kill();
    let server = Server::start(dir.path(), &[]);
    let found = server
        .connect()
        .get(names[0].as_bytes())
        .expect("an answer");
    assert_eq!(found.expect("the document").value, b"2");
}
