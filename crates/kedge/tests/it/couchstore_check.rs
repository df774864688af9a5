//! `kedge check`: sound files, damaged ones, directories, and how much memory it takes.

use std::path::Path;

use serde_json::Value;

use crate::couchstore::{copy, damage, golden, large_file, tool};
use crate::process::{PATIENCE, kedge, run};

/// The line of a file, the line of all, and the exit code.
pub(crate) fn check(args: &[&str], path: &Path) -> (Option<i32>, Vec<Value>, Value) {
    let (code, mut lines, stderr) = tool(&[&["check", "--json"], args].concat(), path);
    assert_eq!(stderr, "");
    let total = lines.pop().expect("a line of all")["total"].clone();
    (code, lines, total)
}

#[test]
fn check_accepts_the_golden_files() {
    for (name, live, deleted) in [
        ("rich.couch.1", 30, 6),
        ("s10_json.couch.1", 10, 0),
        ("s1k_10commits.couch.1", 1000, 0),
        ("s1k_10commits_compacted.couch.2", 1000, 0),
        ("s200_v11_legacycrc.couch.1", 200, 0),
    ] {
        let (code, files, total) = check(&["--every-header"], &golden(name));
        let file = &files[0];
        assert_eq!(
            (code, &file["ok"]),
            (Some(0), &true.into()),
            "{name}: {file}"
        );
        assert_eq!(
            (&file["live"], &file["deleted"]),
            (&live.into(), &deleted.into())
        );
        assert_eq!(total["damages"], 0);
        let headers = tool(&["dump", "--headers"], &golden(name)).1;
        assert_eq!(
            (&file["commits"], &file["header"]),
            (&headers.len().into(), &headers[0])
        );
    }
    // Whoever made this sample did not keep its statistics through deletes.
    let (_, files, _) = check(&[], &golden("rich.couch.1"));
    let notes = files[0]["notes"].as_array().expect("notes");
    assert_eq!(
        notes[0],
        "collection 0x0 has 6 documents, its statistics say 7"
    );
}

#[test]
fn check_prints_a_text_summary() {
    let (code, stdout, _) = run(kedge(&["check"]).arg(golden("s10_json.couch.1")));
    assert_eq!(code, Some(0));
    let expected = format!(
        "{}: ok, version 14, 10 documents, 0 tombstones, 2 local documents, 3 nodes, 640 bytes of bodies\n",
        golden("s10_json.couch.1").display()
    );
    assert_eq!(stdout, expected);
}

#[test]
fn check_finds_damage_at_any_place() {
    // (bytes to flip, what is said of it), all in the newest commit of 100 documents.
    let nodes = |tree: &str| {
        let lines = tool(&["dump", "--tree", tree], &golden("s1k_10commits.couch.1")).1;
        let last = lines.last().expect("a node");
        last["offset"].as_u64().expect("an offset")
    };
    let (id, seq, local) = (nodes("id"), nodes("seq"), nodes("local"));
    let documents = tool(&["dump"], &golden("s1k_10commits.couch.1")).1;
    let body = documents[999]["body_offset"].as_u64().expect("an offset");
    for (offset, flip, expected) in [
        (body, 20, "expected another checksum of the chunk"),
        (body, 0, "expected the length of a data chunk"),
        (body, 3, "expected a body of 70 bytes on disk"),
        (id, 20, "expected another checksum of the chunk"),
        (seq, 20, "expected another checksum of the chunk"),
        (local, 20, "expected another checksum of the chunk"),
    ] {
        let (_dir, path) = copy("s1k_10commits.couch.1");
        damage(&path, |bytes| bytes[offset as usize + flip] ^= 0x80);
        let (code, files, _) = check(&[], &path);
        let file = &files[0];
        assert_eq!((code, &file["damages"]), (Some(1), &1.into()), "{file}");
        let found = &file["damage"][0];
        assert_eq!(found["offset"], offset);
        let text = found["expected"].as_str().expect("text");
        assert!(text.starts_with(expected), "{text}");
        // In text: the file, the place, what was expected.
        let (_, stdout, _) = run(kedge(&["check"]).arg(&path));
        let start = format!("{}: DAMAGED, ", path.display());
        let line = format!("  at byte {offset}: {text}\n");
        assert!(
            stdout.starts_with(&start) && stdout.contains(&line),
            "{stdout}"
        );
    }
}

#[test]
fn check_reports_several_damages() {
    let (_dir, path) = copy("s1k_10commits.couch.1");
    let documents = tool(&["dump"], &path).1;
    let mut offsets: Vec<u64> = [3, 400, 401, 999]
        .map(|at: usize| documents[at]["body_offset"].as_u64().expect("an offset"))
        .to_vec();
    damage(&path, |bytes| {
        for offset in &offsets {
            bytes[*offset as usize + 10] ^= 4;
        }
    });
    // The newest header, too: the commit before it has all but the last.
    damage(&path, |bytes| bytes[266_240 + 20] ^= 4);
    let (code, files, _) = check(&[], &path);
    assert_eq!((code, &files[0]["live"]), (Some(1), &900.into()));
    offsets[3] = 266_240;
    offsets.sort_unstable();
    let found = files[0]["damage"].as_array().expect("a list").iter();
    let mut found: Vec<u64> = found.filter_map(|it| it["offset"].as_u64()).collect();
    found.sort_unstable();
    assert_eq!(found, offsets);
}

#[test]
fn check_covers_older_commits_on_request() {
    let (_dir, path) = copy("s1k_10commits.couch.1");
    let root = tool(&["dump", "--tree=id", "--older=9"], &path).1[0]["offset"].clone();
    let offset = root.as_u64().expect("an offset");
    damage(&path, |bytes| bytes[offset as usize + 20] ^= 1);
    assert_eq!(check(&[], &path).0, Some(0));
    let (code, files, _) = check(&["--every-header"], &path);
    assert_eq!((code, &files[0]["damages"]), (Some(1), &1.into()));
    assert_eq!(files[0]["damage"][0]["offset"], root);
}

#[test]
fn check_of_a_directory_reports_the_newest_revision() {
    let dir = tempfile::tempdir().expect("a directory");
    let place = |name: &str, from: &str| {
        std::fs::copy(golden(from), dir.path().join(name)).expect("a copy");
    };
    for name in ["3.couch.10", "3.couch.9", "12.couch.1"] {
        place(name, "s10_json.couch.1");
    }
    // Not files of a vBucket.
    for name in ["3.couch.11.compact", "access.log.0", "4.couch.boot"] {
        std::fs::write(dir.path().join(name), b"x").expect("a file");
    }
    let (code, files, total) = check(&[], dir.path());
    assert_eq!((code, &total["files"]), (Some(0), &3.into()));
    let said = |file: &Value| {
        let fields = ["vbucket", "revision", "newest"].map(|name| file[name].clone());
        (fields[0].as_u64(), fields[1].as_u64(), fields[2].as_bool())
    };
    assert_eq!(
        files.iter().map(said).collect::<Vec<_>>(),
        [
            (Some(3), Some(9), Some(false)),
            (Some(3), Some(10), Some(true)),
            (Some(12), Some(1), Some(true)),
        ]
    );
    let (_, stdout, _) = run(kedge(&["check"]).arg(dir.path()));
    assert!(
        stdout.contains("vBucket 3: revision 9, the newest is 10\n"),
        "{stdout}"
    );
    assert!(
        stdout.contains("vBucket 12: revision 1, the newest\n"),
        "{stdout}"
    );
    assert!(
        stdout.contains("\n3 files: 0 damaged, 0 not readable; 30 documents, "),
        "{stdout}"
    );

    // What cannot be read is 2, unless there is damage as well.
    place("5.couch.1", "s200_encrypted_testkey.couch.1");
    assert_eq!(check(&[], dir.path()).0, Some(2));
    damage(&dir.path().join("3.couch.9"), |bytes| bytes[0x40] ^= 1);
    let (code, _, total) = check(&[], dir.path());
    assert_eq!(
        (code, &total["damaged"], &total["unreadable"]),
        (Some(1), &1.into(), &1.into())
    );
    let empty = tempfile::tempdir().expect("a directory");
    let (code, _, stderr) = run(kedge(&["check"]).arg(empty.path()));
    assert_eq!(code, Some(2));
    assert!(
        stderr.contains("has no file of the form *.couch.N"),
        "{stderr}"
    );
}

/// The most memory that a command had while it ran, in KiB.
fn peak_kib(args: &[&str], path: &Path) -> u64 {
    let mut child = kedge(args)
        .arg(path)
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("the command starts");
    let status = format!("/proc/{}/status", child.id());
    let deadline = std::time::Instant::now() + PATIENCE;
    let mut peak = 0;
    // It is gone from memory before it can be waited for, so the last look that saw it counts.
    while child.try_wait().expect("the process is ours").is_none() {
        assert!(
            std::time::Instant::now() < deadline,
            "the process does not end"
        );
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let seen = line.and_then(|it| it.trim().trim_end_matches(" kB").parse().ok());
        peak = seen.unwrap_or(0).max(peak);
    }
    assert!(peak > 0, "it was never seen");
    peak
}

#[test]
fn dump_memory_does_not_grow_with_the_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let (small, large) = (dir.path().join("0.couch.1"), dir.path().join("1.couch.1"));
    large_file(&small, 20_000);
    large_file(&large, 200_000);
    for args in [
        &["check"][..],
        &["dump"],
        &["dump", "--by-id"],
        &["dump", "--tree=id"],
    ] {
        let (few, many) = (peak_kib(args, &small), peak_kib(args, &large));
        // 180,000 documents more, in less than 32 bytes each; keys and metadata alone have 60.
        assert!(
            many < few + 5 * 1024,
            "{args:?}: {few} KiB, then {many} KiB"
        );
    }
}
