//! Start, refusal to start, and stop of the process.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

use kedge_executor::{Pool, ThreadCount};
use kedge_faulty_disk::in_namespaces;
use kedge_types::{DurabilityLevel, Status};
use rustix::process::Signal;

use crate::process::{PATIENCE, Server, connect_to, kedge, mount, run, serve, threads_of};

/// The longest duration of a stop.
const STOP_MAX: Duration = Duration::from_secs(5);
const PERSIST: Option<DurabilityLevel> = Some(DurabilityLevel::PersistToMajority);

#[test]
fn sigterm_and_sigint_stop_cleanly_under_load() {
    let dir = tempfile::tempdir().expect("a directory");
    for signal in [Signal::TERM, Signal::INT] {
        let server = Server::start(dir.path(), &[]);
        let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
        let took = thread::scope(|scope| {
            for number in 0..4 {
                let mut connection = server.connect();
                let (stop, done) = (&stop, &done);
                scope.spawn(move || {
                    let key = format!("key-{number}");
                    let mut last = 0_u64;
                    while !stop.load(Ordering::Relaxed) {
                        last += 1;
                        let level = if last.is_multiple_of(2) {
                            PERSIST
                        } else {
                            None
                        };
                        match connection.set(key.as_bytes(), last.to_string().as_bytes(), level) {
                            Ok(_) => done.fetch_add(1, Ordering::Relaxed),
                            // Refused, or closed: the server is stopping.
                            Err(_) => return,
                        };
                    }
                });
            }
            let deadline = Instant::now() + PATIENCE;
            while done.load(Ordering::Relaxed) < 200 {
                assert!(Instant::now() < deadline, "the writers are at work");
                thread::yield_now();
            }
            let began = Instant::now();
            server.signal(signal);
            let (status, stderr) = server.wait();
            stop.store(true, Ordering::Relaxed);
            assert_eq!(status.code(), Some(0), "{stderr}");
            began.elapsed()
        });
        assert!(took < STOP_MAX, "stopping took {took:?}");
    }
    // After a clean stop also what nobody waited for is there.
    let server = Server::start(dir.path(), &[]);
    let mut connection = server.connect();
    connection
        .set(b"not waited for", b"x", None)
        .expect("a write");
    server.signal(Signal::TERM);
    assert_eq!(server.wait().0.code(), Some(0));
    let server = Server::start(dir.path(), &[]);
    let found = server.connect().get(b"not waited for").expect("an answer");
    assert_eq!(found.expect("a document").value, b"x");
}

#[test]
fn second_process_on_a_data_directory_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(dir.path(), &[]);
    let (code, stdout, stderr) = run(&mut serve(dir.path(), &[]));
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert!(stderr.contains("in use by another process"), "{stderr}");
    server
        .connect()
        .set(b"k", b"v", PERSIST)
        .expect("the first one goes on");
    server.kill();
    Server::start(dir.path(), &[]);
}

#[test]
fn port_in_use_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(dir.path(), &[]);
    let other = tempfile::tempdir().expect("a directory");
    let port = server.kv.port().to_string();
    let (code, stdout, stderr) = run(&mut serve(other.path(), &["--kv-port", &port]));
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert!(stderr.contains(&port), "{stderr}");
}

#[test]
fn reachable_address_requires_a_non_default_password() {
    let dir = tempfile::tempdir().expect("a directory");
    let open = [
        "--listen=0.0.0.0",
        "--kv-port=0",
        "--mgmt-port=0",
        "--memcached-port=0",
    ];
    let mut refused = kedge(&["serve", "--data-dir"]);
    let (code, stdout, stderr) = run(refused.arg(dir.path()).args(open));
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert!(stderr.contains("default password"), "{stderr}");
    let server = Server::start(dir.path(), &["--listen=0.0.0.0"]);
    assert!(server.kv.ip().is_unspecified());
    assert!(
        server.memcached.ip().is_loopback(),
        "plain memcached has no login"
    );
}

#[test]
fn reachable_memcached_port_requires_a_login_or_memcached_open() {
    // It could be bound to any address: whoever reached it read and wrote without a login, and nothing was said.
    let [dir, other, files] = [(); 3].map(|()| tempfile::tempdir().expect("a directory"));
    let file = files.path().join("authfile");
    fs::write(&file, "ada:secret\n").expect("a file");
    let file = format!("--memcached-auth-file={}", file.display());
    let open = "--memcached-listen=0.0.0.0";
    let refusal = |more: &[&str]| {
        let words = [&[open], more].concat();
        let (code, stdout, stderr) = run(&mut serve(dir.path(), &words));
        assert_eq!((code, stdout.as_str()), (Some(1), ""), "{words:?}");
        stderr
    };
    let stderr = refusal(&[]);
    assert!(
        stderr.contains("memcached port on 0.0.0.0") && stderr.contains("--memcached-login"),
        "{stderr}"
    );
    let mut weak = kedge(&["serve", open, "--memcached-login", "--data-dir"]);
    weak.arg(other.path())
        .args(["--kv-port=0", "--mgmt-port=0", "--memcached-port=0"]);
    let (code, _, stderr) = run(&mut weak);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("default password"), "{stderr}");
    let missing = refusal(&["--memcached-auth-file=/no/such/file"]);
    assert!(missing.contains("/no/such/file: No such file"), "{missing}");
    let bad = files.path().join("bad");
    fs::write(&bad, "ada:secret\nbob\n").expect("a file");
    let bad = format!("--memcached-auth-file={}", bad.display());
    let bad = refusal(&[&bad]);
    assert!(bad.contains("line 2 is not \"user:password\""), "{bad}");

    let server = Server::start(dir.path(), &[open, &file]);
    assert!(server.memcached.ip().is_unspecified());
    let mut client = TcpStream::connect(("127.0.0.1", server.memcached.port())).expect("a port");
    let mut talk = |sent: &str, expected: &str| {
        client.write_all(sent.as_bytes()).expect("the server reads");
        let mut got = vec![0; expected.len()];
        client.read_exact(&mut got).expect("an answer");
        assert_eq!(String::from_utf8_lossy(&got), expected, "{sent}");
    };
    talk("get k\r\n", "CLIENT_ERROR unauthenticated\r\n");
    talk("set k 0 0 10\r\nada secret\r\n", "STORED\r\n");
    talk("get k\r\n", "END\r\n");
    talk("flush_all\r\n", "CLIENT_ERROR flush_all not allowed\r\n");
    server.signal(Signal::TERM);
    assert_eq!(server.wait().0.code(), Some(0));

    let server = Server::start(dir.path(), &[open, "--memcached-open"]);
    server.signal(Signal::TERM);
    let (status, stderr) = server.wait();
    assert_eq!(status.code(), Some(0));
    let warned = stderr.lines().find(|line| line.contains(" WARN "));
    assert!(
        warned.is_some_and(|line| line.contains("the memcached port is open")),
        "{stderr}"
    );
}

#[test]
fn later_password_replaces_the_old_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(dir.path(), &[]);
    server.connect();
    server.kill();
    // Without any, it stays; the default password does not come back.
    let mut command = kedge(&["serve", "--data-dir"]);
    command
        .arg(dir.path())
        .args(["--kv-port=0", "--mgmt-port=0", "--memcached-port=0"]);
    let server = Server::spawn(command).expect("it starts");
    server.connect();
    let error = connect_to(server.kv, "password").expect_err("not the password");
    assert_eq!(error.status(), Some(Status::AuthError));
    server.kill();
    let server = Server::start(dir.path(), &["--password=another"]);
    connect_to(server.kv, "another").expect("the new password");
    server.try_connect().expect_err("the old password");
}

#[test]
fn invalid_administrator_name_or_password_is_refused() {
    for (more, says) in [
        ("--password=short", "at least 6 characters"),
        ("--user=kedge.cluster", "reserved"),
    ] {
        let dir = tempfile::tempdir().expect("a directory");
        let mut command = kedge(&[
            "serve",
            "--kv-port=0",
            "--mgmt-port=0",
            "--memcached-port=0",
        ]);
        command.arg("--data-dir").arg(dir.path());
        let (code, _, stderr) = run(command.arg(more));
        assert_eq!(code, Some(1), "{more}: {stderr}");
        assert!(stderr.contains(says), "{more}: {stderr}");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let more = ["--password-length-min=5", "--password=short"];
    let server = Server::start(dir.path(), &more);
    connect_to(server.kv, "short").expect("its password");
}

#[test]
fn invalid_settings_are_refused_before_anything_is_created() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    let file = dir.path().join("kedge.toml");
    fs::write(&file, "memcached_prot = 1\n").expect("a file");
    let (code, _, stderr) = run(serve(&data, &["--config"]).arg(&file));
    assert_eq!(code, Some(1));
    assert!(
        stderr.contains("did you mean \"memcached_port\"?"),
        "{stderr}"
    );
    let (code, _, stderr) = run(&mut serve(&data, &["--no-such-flag"]));
    assert_eq!(code, Some(2));
    assert!(stderr.contains("--no-such-flag"), "{stderr}");
    assert!(!data.exists());
}

#[test]
fn documents_survive_many_restarts() {
    let dir = tempfile::tempdir().expect("a directory");
    for round in 0..5_u32 {
        let server = Server::start(dir.path(), &[]);
        let mut connection = server.connect();
        for earlier in 0..round {
            let key = format!("round-{earlier}");
            let found = connection
                .get(key.as_bytes())
                .expect("an answer")
                .expect("a document");
            assert_eq!(found.value, earlier.to_string().as_bytes());
        }
        let key = format!("round-{round}");
        connection
            .set(key.as_bytes(), round.to_string().as_bytes(), PERSIST)
            .expect("a write");
        if round % 2 == 0 {
            server.kill();
        } else {
            server.signal(Signal::TERM);
            assert_eq!(server.wait().0.code(), Some(0));
        }
    }
}

#[test]
fn full_disk_is_a_temporary_failure() {
    if !in_namespaces("lifecycle::full_disk_is_a_temporary_failure") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    mount(dir.path(), 96);
    let ballast = dir.path().join("ballast");
    fs::write(&ballast, vec![0; 48 << 20]).expect("half of it is taken");
    let mut server = Server::start(&dir.path().join("data"), &[]);
    let mut connection = server.connect();
    connection.set_durability_timeout(Some(2000));
    let value = vec![b'v'; 512 << 10];
    let mut stored = 0_u32;
    // Those that wait for the disk when it fills up may have to say that they do not know; from then on writes
    // are refused at once.
    let mut unknown = 0_u32;
    loop {
        let key = format!("key-{}", stored + unknown);
        let result = connection.set(key.as_bytes(), &value, PERSIST);
        match result.map_err(|error| error.status()) {
            Ok(_) => stored += 1,
            Err(Some(Status::SyncWriteAmbiguous)) => unknown += 1,
            Err(Some(Status::TemporaryFailure)) => break,
            Err(other) => panic!("{other:?}"),
        }
        assert!(stored < 1000, "96 MiB do not take {stored} times 512 KiB");
        assert!(unknown < 10, "writes are still taken");
    }
    assert!(stored > 10, "{stored}");
    let found = connection
        .get(b"key-0")
        .expect("reads go on")
        .expect("a document");
    assert_eq!(found.value, value);
    fs::remove_file(ballast).expect("the ballast goes");
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = connection.set(b"after", &value, PERSIST) {
        let passing = [Status::TemporaryFailure, Status::SyncWriteInProgress];
        assert!(
            error
                .status()
                .is_some_and(|status| passing.contains(&status)),
            "{error}"
        );
        assert!(Instant::now() < deadline, "writes do not recover");
        thread::yield_now();
    }
    assert!(server.is_alive());
}

#[test]
fn given_settings_change_an_existing_bucket() {
    let dir = tempfile::tempdir().expect("a directory");
    let quota = |server: &Server| {
        let stats = server.connect().stat("").expect("statistics");
        let found = stats.into_iter().find(|(name, _)| name == "ep_max_size");
        found.expect("the quota").1
    };
    let first = Server::start(dir.path(), &["--bucket-quota", "64MiB"]);
    assert_eq!(quota(&first), "67108864");
    first.signal(Signal::TERM);
    first.wait();
    let unchanged = Server::start(dir.path(), &[]);
    assert_eq!(quota(&unchanged), "67108864", "a default changes nothing");
    unchanged.signal(Signal::TERM);
    unchanged.wait();
    let other = Server::start(dir.path(), &["--bucket-quota", "128MiB", "--vbuckets", "7"]);
    assert_eq!(quota(&other), "134217728");
    other.signal(Signal::TERM);
    let (_, stderr) = other.wait();
    assert!(
        stderr.contains("cannot be changed") && stderr.contains("keeps="),
        "{stderr}"
    );
}

#[test]
fn logins_are_in_the_audit_log_while_the_server_runs() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(dir.path(), &["--audit-log"]);
    let _client = server.connect();
    let log = dir.path().join("audit.log");
    let deadline = Instant::now() + PATIENCE;
    loop {
        let text = fs::read_to_string(&log).unwrap_or_default();
        if text.contains("\"authentication succeeded\"") && text.ends_with('\n') {
            break;
        }
        assert!(Instant::now() < deadline, "{text}");
        thread::yield_now();
    }
}

#[test]
fn threads_have_names_and_configured_counts() {
    let dir = tempfile::tempdir().expect("a directory");
    let more = [
        "--threads=2",
        "--num-reader-threads=1",
        "--num-writer-threads=3",
        "--num-auxio-threads=2",
        "--num-nonio-threads=disk_io_optimized",
        "--audit-log",
    ];
    let server = Server::start(dir.path(), &more);
    server.connect().set(b"k", b"v", PERSIST).expect("a write");
    let mut expected: Vec<String> = [
        "kedge",
        "kedge-accept",
        "kedge-fe-0",
        "kedge-fe-1",
        "kedge-http",
        "kedge-signals",
        "timer",
        "reader-0",
        "writer-0",
        "writer-1",
        "writer-2",
        "auxio-0",
        "auxio-1",
    ]
    .map(str::to_owned)
    .to_vec();
    let cores = thread::available_parallelism().expect("it is known").get();
    let nonio = ThreadCount::DiskIoOptimized.count(Pool::NonIo, cores);
    expected.extend((0..nonio).map(|number| format!("nonio-{number}")));
    expected.sort_unstable();
    // Management's helpers come and go.
    let named = || {
        let mut names = threads_of(server.pid());
        names.retain(|name| name != "kedge-http-io");
        names.sort_unstable();
        names
    };
    let deadline = Instant::now() + PATIENCE;
    while named() != expected {
        assert!(Instant::now() < deadline, "{:?}", named());
        thread::yield_now();
    }
    for (flag, value) in [
        ("--num-reader-threads", "0"),
        ("--num-writer-threads", "129"),
        ("--num-auxio-threads", "fast"),
        ("--num-nonio-threads", ""),
    ] {
        let other = tempfile::tempdir().expect("a directory");
        let (code, _, stderr) = run(&mut serve(other.path(), &[flag, value]));
        assert_eq!(code, Some(1), "{flag} {value}");
        assert!(
            stderr.contains(flag) && stderr.contains("a number from 1 to 128"),
            "{stderr}"
        );
    }
}

#[test]
fn memory_never_uses_huge_pages() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(dir.path(), &[]);
    let mut connection = server.connect();
    for n in 0..80 {
        let set = connection.set(format!("key-{n}").as_bytes(), &vec![b'v'; 1 << 20], None);
        set.expect("it is stored");
    }
    assert!(server.resident_bytes() > 64 << 20);
    assert_eq!(server.status("THP_enabled"), "0");
}

#[test]
fn pages_that_only_the_start_needed_are_unmapped() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(dir.path(), &[]);
    let mapped = || -> u64 {
        let pages = server.status("RssFile");
        pages.trim_end_matches(" kB").parse().expect("a number")
    };
    let (at_start, deadline) = (mapped(), Instant::now() + PATIENCE);
    while mapped() > at_start * 3 / 4 {
        assert!(Instant::now() < deadline, "{} of {at_start} kB", mapped());
        // sleep: the kernel reports no change of a process's memory, so it is polled.
        thread::sleep(Duration::from_millis(50));
    }
    let stored = server.connect().set(b"key", b"value", None);
    stored.expect("the code is mapped again");
}

#[test]
fn start_logs_the_begin_and_end_of_loading() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(dir.path(), &[]);
    let mut connection = server.connect();
    for key in [b"a", b"b", b"c"] {
        connection.set(key, b"v", PERSIST).expect("a write");
    }
    server.signal(Signal::TERM);
    assert_eq!(server.wait().0.code(), Some(0));
    let server = Server::start(dir.path(), &["--warmup-behavior=blocking"]);
    server.connect().get(b"a").expect("an answer");
    server.signal(Signal::TERM);
    let (_, stderr) = server.wait();
    let place = |words: &[&str]| {
        let mut lines = stderr.lines();
        let found = lines.position(|line| words.iter().all(|word| line.contains(word)));
        found.unwrap_or_else(|| panic!("{words:?}: {stderr}"))
    };
    let stage = "stage=\"loading k/v pairs\"";
    let begins = place(&["documents are being read into memory", stage, "documents=3"]);
    let warm = place(&["warmup is complete", "keys=3", "values=3"]);
    let loaded = place(&["the bucket is loaded", "documents=3"]);
    assert!(begins < warm && warm < loaded, "{stderr}");
}

#[test]
fn stop_during_loading_loses_no_documents() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(dir.path(), &[]);
    let mut connection = server.connect();
    for number in 0..2_000_u32 {
        connection
            .set(&number.to_be_bytes(), &[b'v'; 1_000], None)
            .expect("a write");
    }
    server.signal(Signal::TERM);
    assert_eq!(server.wait().0.code(), Some(0));
    for _ in 0..5 {
        let mut child = serve(dir.path(), &[]).spawn().expect("it starts");
        let began = Instant::now();
        // sleep: any moment of the start will do
        thread::sleep(Duration::from_millis(20));
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, Signal::TERM).expect("it is ours");
        crate::process::wait_for(&mut child);
        assert!(began.elapsed() < STOP_MAX);
    }
    let server = Server::start(dir.path(), &[]);
    let stats = server.connect().stat("").expect("statistics");
    let items = stats.into_iter().find(|(name, _)| name == "curr_items");
    assert_eq!(items.expect("the count").1, "2000");
}

#[test]
fn memcached_port_may_be_free_or_off() {
    let dir = tempfile::tempdir().expect("a directory");
    for (port, is_served) in [("0", true), ("off", false)] {
        let mut command = kedge(&["serve", "--listen", "localhost", "--data-dir"]);
        command.arg(dir.path());
        command.args(["--kv-port=0", "--mgmt-port=0", "--memcached-port", port]);
        let mut child = command.spawn().expect("a server");
        let mut lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
        let line = lines.next().expect("a line").expect("it is text");
        assert!(line.starts_with("ready kv=127.0.0.1:"), "{line}");
        let (_, memcached) = line.split_once("memcached=").expect("the port");
        assert_eq!(memcached != "off", is_served, "{line}");
        assert!(!memcached.ends_with(":0"), "{line}");
        child.kill().expect("the process is ours");
        child.wait().expect("the process is ours");
    }
}
