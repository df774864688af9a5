//! Every status of the error map: a situation that provokes it at the wire, or the reason why there is none.
//!
//! The same table, in words, is in `docs/compat.md`, which is read here too.

mod common;
mod documents;
mod following;
mod subdocuments;
mod sync_writes;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kedge_protocol::binary::commands::GetErrorMap;
use kedge_protocol::binary::{Opcode, RequestWriter};
use kedge_types::Status;

use crate::server::Kedge;

/// The cause of a status.
#[derive(Clone, Copy)]
enum Origin {
    /// A function that provokes it.
    Provoked(fn() -> Status),
    /// Never sent, for this reason.
    Never,
    /// The file of the test that provokes it, and the name that the status has there. Its situation needs a server of its own.
    Elsewhere(&'static str, &'static str),
}

/// A status, the text of the table in the document, and the cause.
type Row = (Status, &'static str, Origin);

const fn never(status: Status, why: &'static str) -> Row {
    (status, why, Origin::Never)
}

const fn provoked(status: Status, how: &'static str, by: fn() -> Status) -> Row {
    (status, how, Origin::Provoked(by))
}

const ELSEWHERE: &[Row] = &[
    (
        Status::AuthStale,
        "a command after the token of the login has expired",
        Origin::Elsewhere("tests/users/test_jwt.py", "AUTH_STALE"),
    ),
    (
        Status::EncryptionKeyNotAvailable,
        "PREPARE_SNAPSHOT of an encrypted file, whose key is of this node",
        Origin::Elsewhere(
            "crates/kedge-bucket/tests/it/encryption.rs",
            "EncryptionKeyNotAvailable",
        ),
    ),
];

fn rows() -> Vec<Row> {
    let parts = [
        common::ROWS,
        documents::ROWS,
        subdocuments::ROWS,
        sync_writes::ROWS,
        following::ROWS,
        NEVER,
        ELSEWHERE,
    ];
    let mut rows = parts.concat();
    rows.sort_by_key(|(status, ..)| status.wire());
    rows
}

const NEVER: &[Row] = &[
    never(
        Status::OpaqueNoMatch,
        "never: nobody sends changes to this server unasked",
    ),
    never(Status::EwouldThrottle, "never: nothing is throttled"),
    never(
        Status::ConfigOnly,
        "never: each node of a bucket has its data",
    ),
    never(
        Status::NotInitialized,
        "never: a node that answers is initialised",
    ),
    never(
        Status::ChecksumMismatch,
        "never: files are not copied over the wire",
    ),
    never(
        Status::ExpiryOverflow,
        "never: until 2106 no expiry is beyond 32 bits",
    ),
    never(
        Status::LockExpiryOverflow,
        "never: locks are not kept as 32 bits",
    ),
    never(
        Status::RateLimitedNetworkIngress,
        "never: traffic has no limit",
    ),
    never(
        Status::RateLimitedNetworkEgress,
        "never: traffic has no limit",
    ),
    never(
        Status::RateLimitedMaxConnections,
        "never: one connection too many is closed",
    ),
    never(
        Status::RateLimitedMaxCommands,
        "never: commands have no limit",
    ),
    never(
        Status::BucketSizeLimitExceeded,
        "never: a bucket's data have no limit",
    ),
    never(
        Status::BucketResidentRatioTooLow,
        "never: any share may be on disk only",
    ),
    never(
        Status::BucketDataSizeTooBig,
        "never: a bucket's data have no limit",
    ),
    never(
        Status::BucketDiskSpaceTooLow,
        "never: a full disk is `TemporaryFailure`",
    ),
    never(Status::BucketPaused, "never: buckets are not paused"),
    never(
        Status::Cancelled,
        "never: no command but a scan is cancelled",
    ),
    never(
        Status::CannotApplyCollectionsManifest,
        "never: manifests come from management, not from clients",
    ),
    never(
        Status::SubdocXattrInvalidKeyCombo,
        "never: a command may name any number of attributes",
    ),
];

/// The codes and names of the error map, as the server gives it.
fn error_map(kedge: &Kedge, version: u16) -> BTreeMap<u16, String> {
    let mut client = kedge.connect();
    let mut bytes = Vec::new();
    GetErrorMap { version }.encode(&RequestWriter::new(Opcode::GetErrorMap), &mut bytes);
    client.send(&bytes);
    let map: serde_json::Value = serde_json::from_slice(&client.reply().ok().value).unwrap();
    let errors = map["errors"].as_object().unwrap().iter();
    errors
        .map(|(code, entry)| {
            let name = entry["name"].as_str().unwrap().to_owned();
            (u16::from_str_radix(code, 16).unwrap(), name)
        })
        .collect()
}

#[test]
fn every_status_of_the_error_map_has_its_row() {
    let kedge = Kedge::start();
    let codes: Vec<u16> = rows().iter().map(|(status, ..)| status.wire()).collect();
    for version in [1, 2] {
        let map: Vec<u16> = error_map(&kedge, version).into_keys().collect();
        assert_eq!(codes, map, "version {version}");
    }
}

#[test]
fn every_reachable_status_is_provoked() {
    let mut wrong = Vec::new();
    for (status, how, origin) in rows() {
        let Origin::Provoked(by) = origin else {
            continue;
        };
        let got = by();
        if got != status {
            wrong.push(format!("{how}: {got:?} instead of {status:?}"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn tests_of_other_files_name_their_status() {
    for (status, _, origin) in rows() {
        if let Origin::Elsewhere(file, name) = origin {
            let text = std::fs::read_to_string(workspace().join(file)).unwrap();
            assert!(text.contains(name), "{status:?} in {file}");
        }
    }
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn unreachable_statuses_are_not_in_the_code() {
    /// Files that name statuses without sending them: the enum, the map, the replacements for old clients, and the
    /// handling of replies of other servers.
    const ONLY_NAMED: [&str; 4] = [
        "kedge-types/src/status.rs",
        "binary/error_map.rs",
        "binary/xerror.rs",
        "producer/requests.rs",
    ];
    let mut files = Vec::new();
    for krate in std::fs::read_dir(workspace().join("crates")).unwrap() {
        sources(&krate.unwrap().path().join("src"), &mut files);
    }
    assert!(files.len() > 100, "these are not all sources");
    files.retain(|path| !ONLY_NAMED.iter().any(|end| path.ends_with(end)));
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        for (status, ..) in NEVER {
            let name = format!("Status::{}", status.name());
            let is_whole = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric());
            let mut places = text.split(&name).skip(1);
            assert!(!places.any(is_whole), "{name} in {}", path.display());
        }
    }
}

#[test]
fn compat_doc_matches_the_status_table() {
    let path = workspace().join("docs/compat.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (_, section) = text.split_once("## Statuses\n").expect("its section");
    let section = section.split("\n## ").next().unwrap();
    let told: Vec<&str> = section
        .lines()
        .filter(|row| row.starts_with("| 0x"))
        .collect();
    let expected: Vec<String> = rows()
        .iter()
        .map(|(status, how, _)| {
            let (code, name) = (status.wire(), status.name());
            format!("| 0x{code:02x} | {name} | {how} |")
        })
        .collect();
    assert_eq!(told, expected, "it should be\n{}", expected.join("\n"));
}
