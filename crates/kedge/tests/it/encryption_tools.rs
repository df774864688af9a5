//! `kedge check` and `kedge dump` on the data directory of an encrypted bucket: with its master key, another one, and none.

use std::path::{Path, PathBuf};

use kedge_types::DurabilityLevel;

use crate::encryption::{Place, stop};
use crate::process::{kedge, run};

const DOCUMENTS: usize = 40;

/// A data directory with an encrypted bucket, of a server that is stopped.
fn encrypted() -> Place {
    let place = Place::new();
    let server = place.start_encrypted();
    let mut connection = server.connect();
    for number in 0..DOCUMENTS {
        let level = Some(DurabilityLevel::PersistToMajority);
        let key = format!("document-{number}");
        connection
            .set(key.as_bytes(), b"{\"a\":1}", level)
            .expect("a write");
    }
    stop(server);
    place
}

fn bucket(place: &Place) -> PathBuf {
    place.data().join("buckets/default")
}

/// Returns a file of the bucket that has documents.
fn file_with_documents(place: &Place) -> PathBuf {
    let names = std::fs::read_dir(bucket(place)).expect("a directory");
    let paths = names.map(|entry| entry.expect("an entry").path());
    let mut files: Vec<PathBuf> = paths
        .filter(|path| path.to_string_lossy().contains(".couch."))
        .collect();
    files.sort();
    let key = place.key("master-key", "first");
    let has_documents = |path: &&PathBuf| {
        let (code, stdout, stderr) = tool(&["dump", &key], path);
        assert_eq!(code, Some(0), "{stderr}");
        stdout.contains("document-")
    };
    files.iter().find(has_documents).expect("a file").clone()
}

fn tool(args: &[&str], path: &Path) -> (Option<i32>, String, String) {
    run(kedge(args).arg(path))
}

#[test]
fn check_and_dump_read_encrypted_files_with_the_master_key() {
    let place = encrypted();
    let first = place.key("master-key", "first");
    let keyring = std::fs::read(bucket(&place).join("encryption.keys")).expect("a keyring");
    let (code, stdout, stderr) = tool(&["check", &first], &place.data());
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    assert!(
        stdout.contains("encryption.keys: ok, lists 1 data key\n"),
        "{stdout}"
    );
    // Each durable write leaves a prepare beside its document.
    let all = format!("0 damaged, 0 not readable; {} documents", 2 * DOCUMENTS);
    assert!(stdout.contains(&all), "{stdout}");

    let file = file_with_documents(&place);
    // By a variable, as the server takes it, and with the master key before.
    let mut by_variable = kedge(&["dump"]);
    let source = first.trim_start_matches("--encryption-master-key=");
    by_variable.env("KEDGE_ENCRYPTION_MASTER_KEY", source);
    let (code, stdout, stderr) = run(by_variable.arg(&file));
    assert_eq!((code, &*stderr), (Some(0), ""));
    assert!(stdout.contains("{\"a\":1}"), "{stdout}");
    let second = place.key("master-key", "second");
    let previous = place.key("previous-master-key", "first");
    let (code, again, stderr) = tool(&["dump", &second, &previous], &file);
    assert_eq!((code, again), (Some(0), stdout), "{stderr}");

    // A file that was copied without its keyring.
    let copy = place.dir.path().join("0.couch.1");
    std::fs::copy(&file, &copy).expect("a copy");
    let (code, _, stderr) = tool(&["dump", &first], &copy);
    assert_eq!(code, Some(2));
    assert!(stderr.contains("--encryption-key "), "{stderr}");
    let keys = bucket(&place).join("encryption.keys");
    let keys = format!("--encryption-keyring={}", keys.display());
    assert_eq!(tool(&["dump", &first, &keys], &copy).0, Some(0));

    let after = std::fs::read(bucket(&place).join("encryption.keys")).expect("a keyring");
    assert!(keyring == after, "tools change no keyring");
}

#[test]
fn check_and_dump_name_the_master_key_that_is_missing() {
    let place = encrypted();
    let file = file_with_documents(&place);
    let (code, stdout, _) = tool(&["check"], &place.data());
    assert_eq!(code, Some(2), "{stdout}");
    let none = "encryption.keys: ok\n  note: only its checksum was checked";
    assert!(stdout.contains(none), "{stdout}");
    let (code, _, stderr) = tool(&["dump"], &file);
    assert_eq!(code, Some(2));
    for text in [&*stdout, &stderr] {
        assert!(text.contains("is encrypted with the key \""), "{text}");
        assert!(text.contains("give the master key local:"), "{text}");
        assert!(text.contains("with --encryption-master-key"), "{text}");
    }

    let second = place.key("master-key", "second");
    for (command, path) in [("check", &place.data()), ("dump", &file)] {
        let (code, stdout, stderr) = tool(&[command, &second], path);
        assert_eq!(code, Some(2), "{stdout}{stderr}");
        let text = stdout + &stderr;
        assert!(
            text.contains("is wrapped by the master key local:"),
            "{text}"
        );
        let missing = place.key("master-key", "third");
        let (code, stdout, stderr) = tool(&[command, &missing], path);
        assert_eq!(code, Some(2), "{stdout}{stderr}");
        assert!((stdout + &stderr).contains("cannot be read"), "{stderr}");
    }
    let (code, _, stderr) = tool(&["dump", "--encryption-master-key=x:y"], &file);
    assert_eq!(code, Some(2));
    assert!(stderr.contains("file:PATH"), "{stderr}");
}

#[test]
fn check_and_dump_report_keyrings_that_are_damaged_or_of_another_bucket() {
    let (place, other) = (encrypted(), encrypted());
    let file = file_with_documents(&place);
    let first = place.key("master-key", "first");
    let keys = bucket(&place).join("encryption.keys");
    let good = std::fs::read(&keys).expect("a keyring");
    let foreign = std::fs::read(bucket(&other).join("encryption.keys")).expect("a keyring");
    std::fs::write(&keys, foreign).expect("written");
    let (code, _, stderr) = tool(&["dump", &first], &file);
    assert_eq!(code, Some(2));
    assert!(stderr.contains("does not have it"), "{stderr}");

    let mut damaged = good.clone();
    damaged[20] ^= 1;
    std::fs::write(&keys, damaged).expect("written");
    let (code, _, stderr) = tool(&["dump", &first], &file);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("its checksum is wrong"), "{stderr}");
    // Also without the master key.
    for args in [&["check", &*first][..], &["check"]] {
        let (code, stdout, _) = tool(args, &place.data());
        assert_eq!(code, Some(1), "{stdout}");
        let expected = "encryption.keys: DAMAGED\n  expected data keys: its checksum is wrong";
        assert!(stdout.contains(expected), "{stdout}");
    }
    std::fs::write(&keys, good).expect("written");
    assert_eq!(tool(&["check", &first], &place.data()).0, Some(0));
}
