//! `kedge check` of directories that a server left: files that their catalogs list and that are missing or were cut.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use kedge_types::VbId;
use serde_json::Value;

use crate::couchstore::damage;
use crate::couchstore_check::check;
use crate::missing::{segments, stop, write};
use crate::process::{Server, kedge, run};

/// A data directory whose bucket `default` has the document `key`, after a clean stop.
struct Data {
    dir: tempfile::TempDir,
}

impl Data {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let server = Server::start(dir.path(), &[]);
        write(&server, "key");
        stop(server);
        Self { dir }
    }

    fn bucket(&self) -> PathBuf {
        self.dir.path().join("buckets/default")
    }

    /// The file of the vBucket of `key`.
    fn file(&self) -> PathBuf {
        self.bucket().join(format!("{}.couch.1", vbucket()))
    }

    fn check(&self) -> (Option<i32>, Vec<Value>, Value) {
        check(&[], &self.bucket())
    }

    /// The finding about the only file of the bucket that is not as it should be.
    fn only_damage(&self) -> (PathBuf, String) {
        only_damage(&self.bucket())
    }
}

fn vbucket() -> VbId {
    VbId::of_key(b"key", 64)
}

fn only_damage(dir: &Path) -> (PathBuf, String) {
    let (code, files, total) = check(&[], dir);
    let damaged: Vec<&Value> = files.iter().filter(|file| file["ok"] == false).collect();
    let [file] = damaged[..] else {
        panic!("one file: {damaged:?}")
    };
    assert_eq!((code, &total["damages"]), (Some(1), &1.into()), "{file}");
    let path = PathBuf::from(file["file"].as_str().expect("a name"));
    let expected = file["damage"][0]["expected"].as_str().expect("text");
    // In text: the file, and below what was expected.
    let (code, stdout, _) = run(kedge(&["check"]).arg(dir));
    assert_eq!(code, Some(1));
    let line = format!("{}: DAMAGED", path.display());
    let at = stdout.find(&line).unwrap_or_else(|| panic!("{stdout}"));
    assert!(stdout[at..].contains(expected), "{stdout}");
    (path, expected.to_owned())
}

fn line_of<'a>(files: &'a [Value], path: &Path) -> &'a Value {
    let name = path.display().to_string();
    let found = files.iter().find(|file| file["file"] == name.as_str());
    found.unwrap_or_else(|| panic!("{name} in {files:?}"))
}

fn notes(file: &Value) -> Vec<&str> {
    let notes = file["notes"].as_array().expect("a list").iter();
    notes.filter_map(Value::as_str).collect()
}

/// All files below a directory, with the time of their last change.
fn contents(dir: &Path, found: &mut BTreeMap<PathBuf, (SystemTime, Vec<u8>)>) {
    for entry in std::fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("a name").path();
        let changed = path.metadata().and_then(|it| it.modified());
        let changed = changed.expect("a time");
        if path.is_dir() {
            contents(&path, found);
            found.insert(path, (changed, Vec::new()));
        } else {
            let bytes = std::fs::read(&path).expect("a file");
            found.insert(path, (changed, bytes));
        }
    }
}

#[test]
fn check_of_an_undamaged_directory_reports_ok_and_writes_nothing() {
    let data = Data::new();
    // What the next start removes, and a check has to leave.
    for left in ["3.couch.boot", "log/unfinished-00000000000000000009"] {
        std::fs::write(data.bucket().join(left), b"x").expect("a file");
    }
    let mut before = BTreeMap::new();
    contents(data.dir.path(), &mut before);
    let (code, files, total) = data.check();
    assert_eq!((code, &total["damages"]), (Some(0), &0.into()), "{files:?}");
    for (catalog, lists) in [
        ("vbuckets.catalog", " of 64 vBuckets"),
        ("log.catalog", " segments"),
    ] {
        let line = line_of(&files, &data.bucket().join(catalog));
        let text = line["lists"].as_str().expect("what it lists");
        assert!(text.ends_with(lists), "{text}");
        assert_eq!(notes(line), [""; 0]);
    }
    assert_eq!(notes(line_of(&files, &data.file())), [""; 0]);
    // The data directory: its own files, and those of all buckets.
    let (code, all, total) = check(&[], data.dir.path());
    assert_eq!((code, &total["damages"]), (Some(0), &0.into()));
    line_of(&all, &data.dir.path().join("files.json"));
    for line in &files {
        assert!(all.contains(line), "{line}");
    }
    let mut after = BTreeMap::new();
    contents(data.dir.path(), &mut after);
    assert!(before == after, "a check wrote something");
}

#[test]
fn check_of_a_running_servers_directory_reports_ok() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(dir.path(), &["--commit-log=false"]);
    for round in 0..5 {
        write(&server, "key");
        let (code, files, _) = check(&[], dir.path());
        assert_eq!(code, Some(0), "{round}: {files:?}");
    }
    stop(server);
}

#[test]
fn check_reports_a_missing_vbucket_file() {
    let data = Data::new();
    std::fs::remove_file(data.file()).expect("it is there");
    let expected = "expected this file: it is missing, and vbuckets.catalog lists it";
    assert_eq!(data.only_damage(), (data.file(), expected.to_owned()));
    let (_, files, _) = data.check();
    assert_eq!(line_of(&files, &data.file())["vbucket"], vbucket().get());
    // The same from the data directory, and when it was the last file of its kind.
    assert_eq!(only_damage(data.dir.path()).0, data.file());
    // What explains that it is not there.
    let put_away = data.file().with_extension("1.damaged");
    std::fs::write(&put_away, b"").expect("a file");
    assert_eq!(data.check().0, Some(0));
    std::fs::remove_file(put_away).expect("it is there");
    for mark in ["dropping", "creating"] {
        let settings = data.bucket().join("bucket.json");
        std::fs::rename(&settings, data.bucket().join(mark)).expect("a mark");
        assert_eq!(check(&[], data.dir.path()).0, Some(0), "{mark}");
        std::fs::rename(data.bucket().join(mark), &settings).expect("settings");
    }
}

#[test]
fn check_reports_a_truncated_vbucket_file() {
    let data = Data::new();
    let len = data.file().metadata().expect("the file").len();
    let server = Server::start(data.dir.path(), &[]);
    write(&server, "key");
    stop(server);
    assert_eq!(data.check().0, Some(0));
    let file = std::fs::File::options().write(true).open(data.file());
    file.and_then(|file| file.set_len(len)).expect("cut");
    let (path, expected) = data.only_damage();
    assert_eq!(path, data.file());
    let start = "expected a commit at byte ";
    let end = ", which vbuckets.catalog lists: the file was cut, or is an older copy";
    assert!(
        expected.starts_with(start) && expected.ends_with(end),
        "{expected}"
    );
}

#[test]
fn check_reports_a_missing_log_segment() {
    let data = Data::new();
    let [segment] = &segments(data.dir.path())[..] else {
        panic!("one segment")
    };
    // One that came after the last note, and is legal.
    let later = segment.with_file_name("00000000000000000099.log");
    std::fs::copy(segment, &later).expect("a copy");
    let (code, files, _) = data.check();
    let catalog = data.bucket().join("log.catalog");
    let note = format!("does not list {}", later.display());
    assert_eq!(
        (code, notes(line_of(&files, &catalog))),
        (Some(0), vec![&*note])
    );
    std::fs::remove_file(later).expect("it is there");
    std::fs::remove_file(segment).expect("it is there");
    let expected = "expected this file: it is missing, and log.catalog lists it";
    assert_eq!(data.only_damage(), (segment.clone(), expected.to_owned()));
    // So is the whole directory; without a commit log there is none.
    std::fs::remove_dir_all(data.bucket().join("log")).expect("it is there");
    assert_eq!(data.only_damage().0, *segment);
    std::fs::write(data.bucket().join("direct"), b"clean\n").expect("a mark");
    assert_eq!(data.check().0, Some(0));
}

#[test]
fn check_reports_a_damaged_catalog_and_notes_a_torn_entry() {
    let data = Data::new();
    let catalog = data.bucket().join("vbuckets.catalog");
    for path in [&catalog, &data.bucket().join("log.catalog")] {
        damage(path, |bytes| bytes[9] ^= 1);
        let expected = "expected a catalog: which files have to be there is not known";
        assert_eq!(data.only_damage(), (path.clone(), expected.to_owned()));
        damage(path, |bytes| bytes[9] ^= 1);
    }
    std::fs::write(data.bucket().join("files.json"), b"[").expect("a list");
    let (path, expected) = data.only_damage();
    assert_eq!(path, data.bucket().join("files.json"));
    assert!(expected.starts_with("expected a list of names"));
    std::fs::write(&path, b"[\"manifest.json\"]").expect("a list");
    let missing = data.bucket().join("manifest.json");
    let _ = std::fs::remove_file(&missing);
    assert_eq!(data.only_damage().0, missing);
    std::fs::remove_file(path).expect("it is there");

    let entry = 512 + 32 * usize::from(vbucket().get());
    damage(&catalog, |bytes| bytes[entry + 8] ^= 1);
    let (code, files, _) = data.check();
    let line = line_of(&files, &catalog);
    let note = format!("the entry of vBucket {} has a wrong checksum", vbucket());
    assert_eq!(code, Some(0));
    assert!(notes(line)[0].starts_with(&note), "{line}");
}

#[test]
fn check_notes_an_unlisted_file() {
    let data = Data::new();
    let newer = data.file().with_extension("9");
    let strange = data.bucket().join("64.couch.1");
    for path in [&newer, &strange] {
        std::fs::copy(data.file(), path).expect("a copy");
    }
    let (code, files, _) = data.check();
    assert_eq!(code, Some(0));
    for path in [&newer, &strange] {
        let note = "vbuckets.catalog does not list this file";
        assert!(notes(line_of(&files, path)).contains(&note), "{files:?}");
    }
    let (_, stdout, _) = run(kedge(&["check"]).arg(data.bucket()));
    assert!(
        stdout.contains("  note: vbuckets.catalog does not list this file\n"),
        "{stdout}"
    );
}

#[test]
fn check_reports_a_missing_state_file() {
    let data = Data::new();
    let users = data.dir.path().join("users.json");
    std::fs::remove_file(&users).expect("it is there");
    let expected = "expected this file: it is missing, and files.json lists it";
    let found = only_damage(data.dir.path());
    assert_eq!(found, (users, expected.to_owned()));
    assert_eq!(data.check().0, Some(0));
}
