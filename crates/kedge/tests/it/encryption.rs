//! Encryption at rest: no plain text in the data directory, and the life of keys.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use kedge::client::ClientConnection;
use kedge_protocol::binary::{Feature, Opcode};
use kedge_types::DurabilityLevel;
use serde_json::Value;

use crate::file_copies::wait_for_figure;
use crate::process::{self, PASSWORD, PATIENCE, Server, kedge, run, serve};

/// Parts of documents that no file may have.
const MARKERS: [&str; 3] = [
    "marker-of-a-key",
    "marker-of-a-value",
    "secret-of-an-attribute",
];
/// Settings with which data is in all kinds of files soon.
const SETTINGS: [&str; 3] = [
    "--apply-max-lag=10ms",
    "--eviction-policy=full_eviction",
    "--bucket-quota=3MiB",
];
/// Documents that do not fit in memory, so that there is an access log.
const DOCUMENTS: usize = 3_000;

/// A data directory, and master keys beside it.
pub(crate) struct Place {
    pub(crate) dir: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        for (name, digit) in [("first", "1a"), ("second", "2b")] {
            std::fs::write(dir.path().join(name), digit.repeat(32)).expect("a key");
        }
        Self { dir }
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub(crate) fn key(&self, setting: &str, name: &str) -> String {
        format!(
            "--encryption-{setting}=file:{}",
            self.dir.path().join(name).display()
        )
    }

    fn start(&self, more: &[&str]) -> Server {
        Server::start(&self.data(), &[&SETTINGS, more].concat())
    }

    /// Starts an encrypted server with the first key.
    pub(crate) fn start_encrypted(&self) -> Server {
        self.start(&[
            &self.key("master-key", "first"),
            "--encryption-at-rest=true",
        ])
    }

    /// Returns the reason why a server with these settings does not start.
    fn refusal(&self, more: &[&str]) -> String {
        let command = serve(&self.data(), &[&SETTINGS, more].concat());
        Server::spawn(command).expect_err("it does not start")
    }

    /// Returns the files in the data directory that contain a marker.
    fn files_with_markers(&self) -> Vec<String> {
        let mut found = Vec::new();
        search(&self.data(), &mut found);
        found
    }
}

/// Adds the files that contain a marker, with the marker.
pub(crate) fn search(dir: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            search(&path, found);
            continue;
        }
        // The server may remove it meanwhile.
        let bytes = std::fs::read(&path).unwrap_or_default();
        for marker in MARKERS {
            if memchr::memmem::find(&bytes, marker.as_bytes()).is_some() {
                found.push(format!("{}: {marker}", path.display()));
            }
        }
    }
}

fn key_of(number: usize) -> Vec<u8> {
    format!("marker-of-a-key-{number}").into_bytes()
}

fn value_of(number: usize) -> Vec<u8> {
    // Not compressible, except for the marker.
    let mut random = number as u64 + 1;
    let mut value = format!("marker-of-a-value-{number} ").into_bytes();
    for _ in 0..1_500 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        value.push(b'a' + (random >> 33) as u8 % 26);
    }
    value
}

fn write(connection: &mut ClientConnection) {
    for number in 0..DOCUMENTS {
        let level = (number % 100 == 0).then_some(DurabilityLevel::PersistToMajority);
        let stored = connection.set(&key_of(number), &value_of(number), level);
        stored.expect("a write");
    }
    connection
        .hello(&[Feature::Xattr])
        .expect("extended attributes");
    let path = b"note";
    let mut value = path.to_vec();
    value.extend_from_slice(b"\"secret-of-an-attribute\"");
    // The length of the path; an extended attribute, made if it is missing.
    let extras = [0, path.len() as u8, 0x05];
    connection
        .mutate(Opcode::SubdocDictUpsert, &extras, &key_of(0), &value, None)
        .expect("an attribute");
}

fn check_documents(connection: &mut ClientConnection) {
    for number in 0..DOCUMENTS {
        let found = connection.get(&key_of(number)).expect("a reply");
        assert!(
            found.is_some_and(|it| it.value == value_of(number)),
            "{number}"
        );
    }
}

fn tool(server: &Server, args: &[&str]) -> String {
    let url = format!("couchbase://{}/default", server.kv);
    let access = ["-U", &url, "-u", "Administrator", "-P", PASSWORD];
    let (code, stdout, stderr) = run(kedge(args).args(access));
    assert_eq!(code, Some(0), "{args:?}: {stdout}{stderr}");
    stdout
}

fn status(server: &Server) -> Value {
    serde_json::from_str(&tool(server, &["encryption", "status", "--json"])).expect("JSON")
}

/// Waits until the status is as expected.
fn wait_status(server: &Server, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    process::wait_status(what, || status(server), is)
}

fn key_ids(status: &Value) -> Vec<String> {
    let keys = status["keys"].as_array().expect("keys").iter();
    keys.map(|key| key["id"].as_str().expect("an id").to_owned())
        .collect()
}

pub(crate) fn stop(server: Server) {
    server.signal(rustix::process::Signal::TERM);
    let (status, stderr) = server.wait();
    assert!(status.success(), "{stderr}");
}

fn exists(place: &Place, name: &str) -> bool {
    place.data().join("buckets/default").join(name).exists()
}

#[test]
fn data_directory_has_no_plain_text() {
    let place = Place::new();
    let server = place.start_encrypted();
    write(&mut server.connect());
    wait_for_figure(&server, "ep_unapplied_items", |items| items == 0);
    assert_eq!(place.files_with_markers(), [""; 0], "after writes");
    tool(&server, &["compact", "default", "--wait"]);
    assert_eq!(place.files_with_markers(), [""; 0], "after a compaction");
    write(&mut server.connect());
    server.kill();
    assert_eq!(place.files_with_markers(), [""; 0], "after a kill");

    let server = place.start_encrypted();
    check_documents(&mut server.connect());
    let [stat] = &server
        .connect()
        .stat("encryption-key-ids")
        .expect("statistics")[..]
    else {
        panic!("one line");
    };
    let status = wait_status(&server, "encrypted", |status| {
        status["info"]["dataStatus"] == "encrypted"
    });
    assert_eq!(
        stat.1,
        serde_json::to_string(&key_ids(&status)).expect("JSON")
    );
    stop(server);
    assert!(exists(&place, "access.log.0"));
    assert_eq!(place.files_with_markers(), [""; 0], "after a stop");
    // The access log is read, too.
    let server = place.start_encrypted();
    assert!(!exists(&place, "access.log.0.next"));
    check_documents(&mut server.connect());
}

/// Shows that the search of the other tests finds something.
#[test]
fn data_directory_without_encryption_has_plain_text_of_all_kinds() {
    let place = Place::new();
    let server = place.start(&[]);
    write(&mut server.connect());
    wait_for_figure(&server, "ep_unapplied_items", |items| items == 0);
    // A clean stop may end the log.
    let mut found = place.files_with_markers();
    stop(server);
    found.extend(place.files_with_markers());
    for marker in MARKERS {
        let of_marker = |it: &&String| it.ends_with(marker);
        assert!(
            found
                .iter()
                .any(|it| it.contains(".couch.") && of_marker(&it)),
            "{marker}"
        );
        assert!(
            found
                .iter()
                .any(|it| it.contains("/log/") && of_marker(&it)),
            "{marker}"
        );
    }
    assert!(
        found.iter().any(|it| it.contains("access.log.0")),
        "{found:?}"
    );
}

#[test]
fn start_needs_the_master_key() {
    let place = Place::new();
    let without = place.refusal(&["--encryption-at-rest=true"]);
    assert!(
        without.contains("no master key: give it with encryption_master_key"),
        "{without}"
    );
    let server = place.start_encrypted();
    let mut connection = server.connect();
    connection
        .set(b"key", b"value", Some(DurabilityLevel::PersistToMajority))
        .expect("a write");
    stop(server);

    let without = place.refusal(&[]);
    assert!(without.contains("bucket default is encrypted"), "{without}");
    let other = place.refusal(&[&place.key("master-key", "second")]);
    assert!(other.contains("is wrapped by the master key"), "{other}");
    let missing = place.refusal(&[&place.key("master-key", "third")]);
    assert!(missing.contains("cannot be read"), "{missing}");

    // The data keys themselves are lost: nothing is changed until they are back.
    let keys = place.data().join("buckets/default/encryption.keys");
    let hidden = place.dir.path().join("hidden");
    std::fs::rename(&keys, &hidden).expect("moved");
    let lost = place.refusal(&[&place.key("master-key", "first")]);
    assert!(lost.contains("encrypt"), "{lost}");
    std::fs::rename(&hidden, &keys).expect("moved back");

    // A server with another master key takes over when it knows the one before.
    let server = place.start(&[
        &place.key("master-key", "second"),
        &place.key("previous-master-key", "first"),
    ]);
    let found = server.connect().get(b"key").expect("a reply");
    assert_eq!(found.expect("the document").value, b"value");
    stop(server);
    let server = place.start(&[&place.key("master-key", "second")]);
    assert!(server.connect().get(b"key").expect("a reply").is_some());
}

#[test]
fn rotation_writes_all_data_again_and_drops_the_old_key() {
    let place = Place::new();
    let server = place.start_encrypted();
    write(&mut server.connect());
    wait_for_figure(&server, "ep_unapplied_items", |items| items == 0);
    let before = key_ids(&status(&server));
    assert_eq!(before.len(), 1);
    tool(&server, &["encryption", "rotate"]);
    let after = wait_status(&server, "one new key", |status| {
        let ids = key_ids(status);
        ids.len() == 1 && ids != before && status["pending"] == false
    });
    assert_eq!(after["plainFiles"], 0);
    check_documents(&mut server.connect());
    let old = before[0].as_bytes();
    let bucket = place.data().join("buckets/default");
    for entry in std::fs::read_dir(bucket).expect("a directory") {
        let path = entry.expect("an entry").path();
        let bytes = std::fs::read(&path).unwrap_or_default();
        assert!(
            memchr::memmem::find(&bytes, old).is_none(),
            "{}",
            path.display()
        );
    }
    server.kill();
    let server = place.start_encrypted();
    check_documents(&mut server.connect());
    assert_eq!(key_ids(&status(&server)), key_ids(&after));
}

#[test]
fn encryption_is_switched_on_and_off_while_the_server_runs() {
    let place = Place::new();
    stop(place.start(&[]));
    let server = place.start(&[&place.key("master-key", "first")]);
    write(&mut server.connect());
    wait_for_figure(&server, "ep_unapplied_items", |items| items == 0);
    assert_eq!(status(&server)["info"]["dataStatus"], "unencrypted");
    tool(
        &server,
        &["bucket", "edit", "default", "--encryption-at-rest=true"],
    );
    wait_status(&server, "all is encrypted", |status| {
        status["info"]["dataStatus"] == "encrypted" && status["pending"] == false
    });
    let deadline = Instant::now() + PATIENCE;
    // Released segments of the log are removed step by step.
    while !place.files_with_markers().is_empty() {
        assert!(
            Instant::now() < deadline,
            "{:?}",
            place.files_with_markers()
        );
        thread::yield_now();
    }
    check_documents(&mut server.connect());
    tool(
        &server,
        &["bucket", "edit", "default", "--encryption-at-rest=false"],
    );
    wait_status(&server, "all is plain", |status| {
        status["info"]["dataStatus"] == "unencrypted" && key_ids(status).is_empty()
    });
    assert!(!exists(&place, "encryption.keys"));
    stop(server);
    // The master key is not needed any more.
    let server = place.start(&[]);
    check_documents(&mut server.connect());
}
