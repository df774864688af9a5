//! Buckets made of the files of another server.

use std::path::{Path, PathBuf};

use kedge::client::{ClientConnection, LoginCredentials};
use kedge_auth::Mechanism;
use kedge_couchstore::kv::VBSTATE_NAME;
use kedge_couchstore::{Options, Writer};
use kedge_disk::PosixDisk;
use kedge_protocol::binary::Feature;

use crate::process::{PASSWORD, PATIENCE, Server, kedge, run};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../kedge-couchstore/tests/golden")
        .join(name)
}

/// A directory as another server leaves it: one vBucket, an older file of it, and what is no vBucket's.
fn source() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    for (name, file) in [
        ("0.couch.5", "s1k_10commits.couch.1"),
        ("0.couch.4", "s200_v13.couch.1"),
        ("master.couch.1", "s10_json.couch.1"),
    ] {
        std::fs::copy(golden(file), dir.path().join(name)).expect("a copy");
    }
    dir
}

const DOCUMENTS: usize = 200;

fn name(n: usize) -> String {
    format!("key-{n}")
}

/// A data directory of a stopped server whose bucket of 64 vBuckets has some documents, and how many files they are in.
fn served() -> (tempfile::TempDir, usize) {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(dir.path(), &[]);
    let mut connection = server.connect();
    for n in 0..DOCUMENTS {
        let written = connection.set(name(n).as_bytes(), b"1", None);
        written.expect("a write");
    }
    server.signal(rustix::process::Signal::TERM);
    assert!(server.wait().0.success());
    let files = std::fs::read_dir(dir.path().join("buckets/default")).expect("a bucket");
    let names = files.map(|file| file.expect("a name").file_name());
    let names = names.filter(|name| name.to_string_lossy().contains(".couch."));
    let count = names.count();
    assert!(count > 48, "{count}");
    (dir, count)
}

fn import(source: &Path, data: &Path, more: &[&str]) -> (Option<i32>, String, String) {
    let mut command = kedge(&["import"]);
    command.arg(source).arg("--data-dir").arg(data);
    run(command.arg("--bucket=moved").args(more))
}

fn stat(server: &Server, name: &str) -> String {
    let url = format!("couchbase://{}/moved", server.kv);
    let (code, stdout, stderr) = run(&mut kedge(&[
        "stats",
        "--json",
        "-U",
        &url,
        "-u",
        "Administrator",
        "-P",
        PASSWORD,
    ]));
    assert_eq!(code, Some(0), "{stderr}");
    let stats: serde_json::Value = serde_json::from_str(&stdout).expect("JSON");
    stats[name].to_string()
}

#[test]
fn imported_bucket_serves_all_documents() {
    let (source, data) = (source(), tempfile::tempdir().expect("a directory"));
    let (code, stdout, stderr) = import(source.path(), data.path(), &["--list", "--vbuckets=1"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(
        stdout.ends_with("bucket \"moved\" is made: 1000 documents in 1 of 1 vBuckets\n"),
        "{stdout}"
    );
    assert!(
        stdout.contains("not taken over: 0.couch.4\nnot taken over: master.couch.1\n"),
        "{stdout}"
    );
    assert!(stdout.contains("0.couch.5\n"));

    let server = Server::start(data.path(), &["--bucket=moved"]);
    assert_eq!(stat(&server, "curr_items"), "1000");
    let (code, _, stderr) = import(source.path(), data.path(), &[]);
    assert_eq!(code, Some(1), "the server has the directory");
    assert!(stderr.contains("is in use by another process"), "{stderr}");
    server.signal(rustix::process::Signal::TERM);
    let (status, stderr) = server.wait();
    assert!(status.success(), "{stderr}");

    let (code, _, stderr) = import(source.path(), data.path(), &["--vbuckets=1"]);
    assert_eq!(code, Some(1));
    assert!(
        stderr.contains("there is a bucket \"moved\" already"),
        "{stderr}"
    );
    // What a crash leaves does not come back in another shape either.
    let server = Server::start(data.path(), &["--bucket=moved"]);
    assert_eq!(stat(&server, "curr_items"), "1000");
    server.kill();
    let server = Server::start(data.path(), &["--bucket=moved"]);
    assert_eq!(stat(&server, "curr_items"), "1000");
}

/// Removes the highest CAS from a vBucket's state, which old releases did not write.
fn remove_max_cas(path: &Path) {
    let mut writer = Writer::open(&PosixDisk, path, &Options::default()).expect("a file");
    let state = writer.snapshot().local(VBSTATE_NAME).expect("a look-up");
    let mut state: serde_json::Value =
        serde_json::from_slice(&state.expect("a state")).expect("JSON");
    let fields = state.as_object_mut().expect("an object");
    fields.remove("max_cas").expect("a recent file");
    let state = state.to_string();
    writer
        .save_locals(&[(VBSTATE_NAME, Some(state.as_bytes()))])
        .expect("it is written");
    writer.commit(1).expect("it is committed");
}

/// Such files were damaged for `kedge check`, and `kedge import` refused them.
#[test]
fn check_and_import_accept_states_without_max_cas() {
    let (source, data) = (source(), tempfile::tempdir().expect("a directory"));
    let file = source.path().join("0.couch.5");
    remove_max_cas(&file);
    let (code, stdout, stderr) = run(kedge(&["check"]).arg(&file));
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{stdout}");
    let note = "note: the state of the vBucket does not say its highest CAS";
    assert!(
        stdout.contains(": ok, ") && stdout.contains(note),
        "{stdout}"
    );

    let (code, stdout, stderr) = import(source.path(), data.path(), &["--vbuckets=1"]);
    assert_eq!(code, Some(0), "{stderr}");
    let noted: Vec<&str> = stdout
        .lines()
        .filter(|line| line.starts_with("note: ") && line.contains("has no highest CAS"))
        .collect();
    assert_eq!(noted.len(), 1, "{stdout}");
    assert!(noted[0].contains("0.couch.5"), "{stdout}");
    assert!(
        stdout.ends_with("made: 1000 documents in 1 of 1 vBuckets\n"),
        "{stdout}"
    );
    let server = Server::start(data.path(), &["--bucket=moved"]);
    assert_eq!(stat(&server, "curr_items"), "1000");
}

/// Sixteen files went into a bucket of 1,024 vBuckets, and clients found one of thirty documents.
#[test]
fn import_accepts_only_the_vbucket_count_of_the_files() {
    let (from, files) = served();
    let source = from.path().join("buckets/default");
    let data = tempfile::tempdir().expect("a directory");
    for wrong in ["--vbuckets=1024", "--vbuckets=65"] {
        let (code, _, stderr) = import(&source, data.path(), &[wrong]);
        assert_eq!(code, Some(1));
        assert!(
            stderr.contains("key-") && stderr.contains(".couch.1"),
            "{stderr}"
        );
        assert!(stderr.contains("another number of vBuckets"), "{stderr}");
        assert!(!data.path().join("buckets/moved/bucket.json").exists());
    }
    let (code, stdout, stderr) = import(&source, data.path(), &[]);
    assert_eq!(code, Some(0), "{stderr}");
    let made = format!("made: {DOCUMENTS} documents in {files} of 64 vBuckets\n");
    assert!(stdout.ends_with(&made), "{stdout}");
    let server = Server::start(data.path(), &["--bucket=moved"]);
    let login = LoginCredentials {
        user: "Administrator".to_owned(),
        password: PASSWORD.to_owned(),
        mechanism: Mechanism::Plain,
    };
    let host = server.kv.ip().to_string();
    let connected = ClientConnection::ready(&host, server.kv.port(), &login, "moved", PATIENCE);
    let mut connection = connected.expect("a connection");
    for n in 0..DOCUMENTS {
        let found = connection.get(name(n).as_bytes()).expect("an answer");
        assert!(found.is_some(), "{}", name(n));
    }
}

#[test]
fn interrupted_import_can_be_repeated() {
    let (from, files) = served();
    let source = from.path().join("buckets/default");
    let data = tempfile::tempdir().expect("a directory");
    let (code, _, stderr) = import(&source, data.path(), &[]);
    assert_eq!(code, Some(0), "{stderr}");
    let bucket = data.path().join("buckets/moved");
    let last = kedge_types::VbId::of_key(name(0).as_bytes(), 64);
    // As a crash leaves it that comes before one file has its name, and the settings theirs.
    std::fs::write(bucket.join("creating"), "").expect("the mark");
    let file = format!("{last}.couch.1");
    for missing in ["bucket.json", &file, "vbuckets.catalog"] {
        std::fs::remove_file(bucket.join(missing)).expect("a file");
    }
    let (code, stdout, stderr) = import(&source, data.path(), &[]);
    assert_eq!(code, Some(0), "{stderr}");
    let before = files - 1;
    let made = format!(
        "{DOCUMENTS} documents in {files} of 64 vBuckets, {before} of them from an import before"
    );
    assert!(stdout.contains(&made), "{stdout}");
}

#[test]
fn failed_import_names_the_file_and_creates_no_bucket() {
    let (from, _) = served();
    let source = from.path().join("buckets/default");
    let data = tempfile::tempdir().expect("a directory");
    let damaged = source.join("5.couch.9");
    std::fs::write(&damaged, vec![0xff; 8_192]).expect("a file");
    for more in [&[][..], &["--vbuckets=64"]] {
        let (code, _, stderr) = import(&source, data.path(), more);
        assert_eq!(code, Some(1));
        assert!(stderr.contains("5.couch.9"), "{stderr}");
    }
    std::fs::rename(&damaged, source.join("64.couch.1")).expect("a name");
    let (code, _, stderr) = import(&source, data.path(), &["--vbuckets=64"]);
    assert_eq!(code, Some(1));
    assert!(
        stderr.contains("64.couch.1") && stderr.contains("only 64 vBuckets"),
        "{stderr}"
    );
    assert!(!data.path().join("buckets/moved/bucket.json").exists());
    let empty = tempfile::tempdir().expect("a directory");
    let (code, _, stderr) = import(empty.path(), data.path(), &[]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("it has no vBucket files"), "{stderr}");
}

/// The files of a stopped server are as those of any other.
#[test]
fn imported_collections_exist_and_new_ones_can_be_created() {
    let new = || tempfile::tempdir().expect("a directory");
    let (from, to) = (new(), new());
    let collection = |server: &Server, bucket: &str, words: &[&str]| {
        let url = format!("http://{}/{bucket}", server.mgmt);
        let login = ["-U", &url, "-u", "Administrator", "-P", PASSWORD];
        let (code, stdout, stderr) = run(kedge(&["collection"]).args(words).args(login));
        assert_eq!(code, Some(0), "{words:?}: {stderr}");
        stdout
    };
    let server = Server::start(from.path(), &[]);
    for words in [
        &["create-scope", "shop"][..],
        &["create", "shop.gone"],
        &["create", "shop.orders", "--max-ttl", "600"],
        &["drop", "shop.gone", "--yes"],
    ] {
        collection(&server, "default", words);
    }
    let listed = collection(&server, "default", &["list"]);
    assert!(listed.contains("orders"), "{listed}");
    let (prefix, len) = kedge_types::encode_leb128(9);
    // The connection knows of no collections: one of the keys that are in the same vBucket with their prefix.
    let place = |key: &[u8]| kedge_types::VbId::of_key(key, 64);
    let mut keys = (0..).map(|n| [&prefix[..len], format!("order-{n}").as_bytes()].concat());
    let key = keys.find(|key| place(key) == place(&key[len..]));
    let key = key.expect("one of 64");
    let connect = |server: &Server, bucket: &str| {
        let login = LoginCredentials {
            user: "Administrator".to_owned(),
            password: PASSWORD.to_owned(),
            mechanism: Mechanism::Plain,
        };
        let host = server.kv.ip().to_string();
        let ready = ClientConnection::ready(&host, server.kv.port(), &login, bucket, PATIENCE);
        let mut connection = ready.expect("a connection");
        connection.hello(&[Feature::Collections]).expect("HELLO");
        connection
    };
    let written = connect(&server, "default").set(&key, b"paid", None);
    written.expect("a write");
    server.signal(rustix::process::Signal::TERM);
    assert!(server.wait().0.success());

    let (code, _, stderr) = import(
        &from.path().join("buckets/default"),
        to.path(),
        &["--vbuckets=64"],
    );
    assert_eq!(code, Some(0), "{stderr}");
    let server = Server::start(to.path(), &["--bucket=moved"]);
    assert_eq!(collection(&server, "moved", &["list"]), listed);
    collection(&server, "moved", &["create", "shop.carts"]);
    let list = collection(&server, "moved", &["list"]);
    assert!(list.contains("carts") && !list.contains("0xa "), "{list}");
    let found = connect(&server, "moved").get(&key).expect("an answer");
    assert_eq!(found.expect("the document").value, b"paid");
}
