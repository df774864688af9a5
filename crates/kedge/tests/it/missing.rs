//! Data directories that have lost a file: nothing begins anew without a word, and nothing that is left is removed.

use std::path::{Path, PathBuf};
use std::time::Instant;

use kedge::client::ClientConnection;
use kedge_types::Status;

use crate::process::{PASSWORD, PATIENCE, Server, administrator, kedge, run, serve};

pub(crate) fn write(server: &Server, name: &str) {
    let written = server.connect().set(name.as_bytes(), b"1", None);
    written.expect("a write");
}

/// Returns whether a document is there, once its bucket is loaded.
fn has(server: &Server, name: &str) -> bool {
    let started = Instant::now();
    loop {
        match server.connect().get(name.as_bytes()) {
            Err(error) if error.status() == Some(Status::TemporaryFailure) => {
                assert!(started.elapsed() < PATIENCE, "the bucket does not load");
                std::thread::yield_now();
            }
            found => return found.expect("an answer").is_some(),
        }
    }
}

pub(crate) fn stop(server: Server) -> String {
    server.signal(rustix::process::Signal::TERM);
    let (status, stderr) = server.wait();
    assert!(status.success(), "{stderr}");
    stderr
}

fn bucket(server: &Server, words: &[&str]) -> (Option<i32>, String, String) {
    let url = format!("http://{}/", server.mgmt);
    run(kedge(&["bucket"])
        .args(words)
        .args(["-U", &url, "-u", "Administrator", "-P", PASSWORD]))
}

/// Returns the error message of a server that does not start.
fn refusal(dir: &Path, more: &[&str]) -> String {
    match Server::spawn(serve(dir, more)) {
        Ok(_) => panic!("it starts"),
        Err(why) => why,
    }
}

/// The directory with all its data was deleted at the next start, and an empty bucket put in its place.
#[test]
fn bucket_directory_without_settings_is_not_served_until_adopted() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(dir.path(), &[]);
    write(&server, "kept");
    stop(server);
    let settings = dir.path().join("buckets/default/bucket.json");
    std::fs::remove_file(&settings).expect("it is there");

    let server = Server::start(dir.path(), &[]);
    let (code, listed, _) = bucket(&server, &["list"]);
    assert_eq!(code, Some(0));
    assert!(listed.contains("not served: default ("), "{listed}");
    assert!(listed.contains("kedge bucket adopt default"), "{listed}");
    // No bucket can be selected.
    let host = server.kv.ip().to_string();
    let connection = ClientConnection::open(&host, server.kv.port(), PATIENCE);
    let mut connection = connection.expect("a connection");
    connection.login(&administrator()).expect("a login");
    let stats = connection.stat("").expect("statistics");
    let unserved = ("unserved_directories".to_owned(), "1".to_owned());
    assert!(stats.contains(&unserved), "{stats:?}");
    let (code, _, why) = bucket(&server, &["create", "default"]);
    assert_ne!(code, Some(0));
    assert!(why.contains("kedge bucket adopt default"), "{why}");
    let (code, _, why) = bucket(&server, &["adopt", "other"]);
    assert_ne!(code, Some(0), "{why}");
    let (code, said, why) = bucket(&server, &["adopt", "default"]);
    assert_eq!(code, Some(0), "{why}");
    assert_eq!(said, "bucket \"default\" is served\n");
    assert!(has(&server, "kept"));
    write(&server, "new");
    let (_, listed, _) = bucket(&server, &["list"]);
    assert!(!listed.contains("not served"), "{listed}");
    let log = stop(server);
    assert!(log.contains("is not served and stays as it is"), "{log}");

    let server = Server::start(dir.path(), &[]);
    assert!(settings.exists() && has(&server, "kept") && has(&server, "new"));
}

#[test]
fn missing_users_file_stops_the_start() {
    let dir = tempfile::tempdir().expect("a directory");
    stop(Server::start(dir.path(), &[]));
    let users = dir.path().join("users.json");
    std::fs::remove_file(&users).expect("it is there");
    let why = refusal(dir.path(), &[]);
    for part in ["users.json is missing", "files.json"] {
        assert!(why.contains(part), "{why}");
    }
    std::fs::remove_file(dir.path().join("files.json")).expect("the list");
    stop(Server::start(dir.path(), &[]));
    assert!(users.exists());
}

pub(crate) fn segments(dir: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(dir.join("buckets/default/log")).expect("a log");
    let files = files.map(|file| file.expect("a name").path());
    files
        .filter(|file| file.extension().is_some_and(|it| it == "log"))
        .collect()
}

/// Documents that were only in the log were lost, and the server reported no error.
#[test]
fn missing_only_log_segment_stops_the_start() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(dir.path(), &["--apply-max-lag=1h"]);
    write(&server, "logged");
    let durable = Some(kedge_types::DurabilityLevel::PersistToMajority);
    let written = server.connect().set(b"durable", b"1", durable);
    written.expect("a write");
    server.kill();
    for segment in segments(dir.path()) {
        std::fs::remove_file(segment).expect("it is there");
    }
    let why = refusal(dir.path(), &[]);
    assert!(why.contains("00000000000000000001.log"), "{why}");
    assert!(why.contains("--recover salvage"), "{why}");
    let server = Server::start(dir.path(), &["--recover=salvage"]);
    assert!(!has(&server, "durable"));
    write(&server, "new");
    stop(server);
    assert!(has(&Server::start(dir.path(), &[]), "new"));
}

/// Without a log, a file that was cut showed an older commit.
#[test]
fn truncated_or_missing_file_quarantines_its_vbucket() {
    for is_cut in [true, false] {
        let dir = tempfile::tempdir().expect("a directory");
        let start = || Server::start(dir.path(), &["--commit-log=false"]);
        let lost = kedge_types::VbId::of_key(b"key", 64);
        let file = dir.path().join(format!("buckets/default/{lost}.couch.1"));
        let server = start();
        write(&server, "key");
        stop(server);
        let len = file.metadata().expect("the file").len();
        let server = start();
        let durable = Some(kedge_types::DurabilityLevel::PersistToMajority);
        let written = server.connect().set(b"key", b"2", durable);
        written.expect("a write");
        server.kill();
        if is_cut {
            let file = std::fs::File::options().write(true).open(&file);
            file.and_then(|file| file.set_len(len)).expect("cut");
        } else {
            std::fs::remove_file(&file).expect("it is there");
        }
        let server = start();
        let refused = server.connect().get(b"key").expect_err("it is quarantined");
        assert_eq!(refused.status(), Some(Status::TemporaryFailure));
        let log = stop(server);
        assert!(log.contains(&format!("{lost}.couch.1")), "{log}");
    }
}
