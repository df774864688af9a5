//! `kedge dump` on couchstore files: those of Couchbase's own library beside what its tools print of them, damaged
//! copies, encrypted ones.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use kedge_couchstore::{
    ContentMeta, CreateOptions, EncryptionKey, Mutation, MutationBody, Options, Version, Writer,
};
use kedge_disk::PosixDisk;
use kedge_types::{RevSeqno, Seqno};
use serde_json::Value;

use crate::process::{kedge, run, wait_for};

/// The samples with a dump by id.
const SAMPLES: [&str; 5] = [
    "rich.couch.1",
    "s10_json.couch.1",
    "s1k_10commits.couch.1",
    "s200_v11_legacycrc.couch.1",
    "s200_v12.couch.1",
];
const KEY: [u8; 32] = [7; 32];

pub(crate) fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../kedge-couchstore/tests/golden")
        .join(name)
}

/// A tool on a file: exit code, lines of JSON, standard error.
pub(crate) fn tool(args: &[&str], file: &Path) -> (Option<i32>, Vec<Value>, String) {
    let (code, stdout, stderr) = run(kedge(args).arg(file));
    let lines = stdout.lines();
    let lines = lines.map(|line| serde_json::from_str(line).expect("a line of JSON"));
    (code, lines.collect(), stderr)
}

/// A dump that has to work.
fn dump(args: &[&str], file: &Path) -> Vec<Value> {
    let (code, lines, stderr) = tool(&[&["dump"], args].concat(), file);
    assert_eq!((code, &*stderr), (Some(0), ""), "{args:?}");
    lines
}

/// A copy of a golden file in a directory of its own, for damage.
pub(crate) fn copy(name: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("0.couch.1");
    std::fs::copy(golden(name), &path).expect("a copy");
    (dir, path)
}

pub(crate) fn damage(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).expect("a file");
    change(&mut bytes);
    std::fs::write(path, bytes).expect("written");
}

/// A file of many documents of 100 bytes.
pub(crate) fn large_file(path: &Path, documents: u64) {
    let options = Options::default();
    let mut writer =
        Writer::create(&PosixDisk, path, &CreateOptions::default(), &options).expect("create");
    let numbers: Vec<u64> = (1..=documents).collect();
    for part in numbers.chunks(10_000) {
        let keys: Vec<Vec<u8>> = part
            .iter()
            .map(|n| format!("\0key-{:016x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).into_bytes())
            .collect();
        let body = [b'b'; 100];
        let batch: Vec<Mutation<'_>> = part
            .iter()
            .zip(&keys)
            .map(|(&seqno, key)| mutation(key, seqno, &body))
            .collect();
        writer.save(&batch, &mut |_| {}).expect("save");
    }
    writer.commit(0).expect("commit");
}

fn mutation<'a>(key: &'a [u8], seqno: u64, body: &'a [u8]) -> Mutation<'a> {
    Mutation {
        key,
        seqno: Seqno(seqno),
        rev: RevSeqno(1),
        deleted: false,
        content_meta: ContentMeta(3),
        rev_meta: &[0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0],
        body: MutationBody::Stored(body),
    }
}

/// A key as the original's tools print it, from a line of ours.
fn id(line: &Value) -> String {
    let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
    if line["namespace"] == "system" {
        let meta = &line["meta"];
        let (event, subject) = (meta["event"].as_str(), meta["subject"].as_str());
        let (event, subject) = (event.expect("an event"), subject.expect("a subject"));
        return format!("(system-event-key:{event}:{subject})_{event}");
    }
    let prepare = if line["namespace"] == "prepare" {
        "prepare:"
    } else {
        ""
    };
    let default = if line["collection"] == "0x0" {
        ":default"
    } else {
        ""
    };
    let (collection, key) = (text("collection"), text("key"));
    format!("({prepare}collection:{collection}{default}){key}")
}

/// Returns the fields of a document that both dumps have, under the names of the original.
fn comparable(line: &Value) -> BTreeMap<&'static str, Value> {
    let meta = &line["meta"];
    let mut fields = BTreeMap::from([
        ("id", id(line).into()),
        ("seq", line["seqno"].clone()),
        ("rev", line["rev"].clone()),
        ("cas", meta["cas"].clone()),
        ("flags", meta["flags"].clone()),
        ("file_offset", line["body_offset"].clone()),
        ("physical_size", line["disk_bytes"].clone()),
    ]);
    let content_meta = line["content_meta"].as_u64().expect("a number");
    fields.insert("content_meta", format!("{content_meta:#04x}").into());
    for (theirs, ours) in [
        ("expiry", "expiry"),
        ("delete_time", "deleted_at"),
        ("level", "level"),
        ("prepareSeqno", "prepare_seqno"),
    ] {
        fields.insert(theirs, meta[ours].clone());
    }
    let deleted = meta["deleted_by"].as_str();
    let deleted = deleted.map(|by| by.replace("ttl", "TTL"));
    fields.insert("deleted", deleted.into());
    fields.insert("xattr", line["xattrs"].clone());
    if line["body_as"] == "json" {
        fields.insert("body", line["body"].clone());
    }
    fields
}

#[test]
fn dump_prints_the_same_documents_as_couch_dbdump() {
    for name in SAMPLES {
        let path = golden("dumps").join(format!("{name}.byid.jsonl"));
        let theirs = std::fs::read_to_string(path).expect("a dump");
        let ours = dump(&["--by-id"], &golden(name));
        assert_eq!(ours.len(), theirs.lines().count(), "{name}");
        let mut json_bodies = 0;
        for (line, theirs) in ours.iter().zip(theirs.lines()) {
            let mut theirs: Value = serde_json::from_str(theirs).expect("JSON");
            if let Some(text) = theirs["xattr"].as_str() {
                theirs["xattr"] = serde_json::from_str(text).expect("JSON");
            }
            for (field, value) in comparable(line) {
                assert_eq!(value, theirs[field], "{name}: {field} of {}", theirs["id"]);
            }
            json_bodies += usize::from(line["body_as"] == "json");
            assert_eq!(line.get("error"), None, "{line}");
        }
        assert!(json_bodies > 0, "{name}");
        // The other order has the same documents.
        let mut by_seqno = dump(&[], &golden(name));
        let seqnos: Vec<_> = by_seqno.iter().map(|it| it["seqno"].as_u64()).collect();
        assert!(seqnos.is_sorted(), "{name}");
        by_seqno.sort_by_key(|line| ours.iter().position(|it| it["seqno"] == line["seqno"]));
        assert_eq!(by_seqno, ours, "{name}");
    }
}

#[test]
fn dump_prints_bodies_that_are_not_json() {
    let lines = dump(&[], &golden("rich.couch.1"));
    let of = |key: &str| {
        let found = lines.iter().find(|line| line["key"] == key);
        found.unwrap_or_else(|| panic!("no {key}"))
    };
    assert_eq!(
        (&of("empty")["body_as"], &of("empty")["body"]),
        (&"text".into(), &"".into())
    );
    let big = of("big");
    assert_eq!(big["body_as"], "base64");
    assert_eq!(big["body"].as_str().map(str::len), Some(300_000 / 3 * 4));
    assert_eq!(of("with-xattr")["xattrs"]["_sync"]["rev"], 2);
    assert_eq!(of("already-snappy")["body"]["name"], "user-3");
    let scope = &lines[0];
    assert_eq!(
        (&scope["body_as"], &scope["body"]["name"]),
        (&"event".into(), &"shop".into())
    );
    let without = dump(&["--no-body"], &golden("rich.couch.1"));
    assert_eq!(without.len(), lines.len());
    assert!(
        without
            .iter()
            .all(|line| line.get("body").is_none() && line.get("body_as").is_none())
    );
    let dropped = dump(&["--key", "dur-delete"], &golden("rich.couch.1"));
    assert_eq!(dropped[0]["meta"]["state"], "prepared_delete");
}

#[test]
fn dump_selects_documents_by_key_seqno_and_collection() {
    let keys = |args: &[&str], name: &str| -> Vec<String> {
        let lines = dump(args, &golden(name));
        lines.iter().map(id).collect()
    };
    let rich = "rich.couch.1";
    assert_eq!(
        keys(&["--key", "dur-majority"], rich),
        [
            "(collection:0x0:default)dur-majority",
            "(prepare:collection:0x0:default)dur-majority"
        ]
    );
    assert_eq!(
        keys(&["--key=apple-7", "--collection=0x9"], rich),
        ["(collection:0x9)apple-7"]
    );
    assert_eq!(
        keys(
            &["--key", "b4246c65622d74776f2d627974652d636964", "--hex"],
            rich
        ),
        ["(collection:0x1234)leb-two-byte-cid"]
    );
    assert_eq!(
        keys(&["--by-id", "--start=e", "--end=json"], rich),
        ["empty", "expires", "json"].map(|key| format!("(collection:0x0:default){key}"))
    );
    assert_eq!(keys(&["--collection=9"], rich).len(), 20);
    let all = keys(&["--by-id", "--collection=9", "--start=apple-10"], rich);
    assert_eq!((all.len(), &*all[0]), (18, "(collection:0x9)apple-10"));
    let seqnos: Vec<_> = dump(
        &["--start=10", "--end=0xc", "--no-body"],
        &golden("s10_json.couch.1"),
    );
    assert_eq!(seqnos.len(), 1);
    let (code, lines, stderr) = tool(&["dump", "--key=no such"], &golden(rich));
    assert_eq!((code, lines.len()), (Some(0), 0));
    assert!(stderr.contains("no document has this key"), "{stderr}");
}

#[test]
fn dump_reads_older_commits_through_headers() {
    let info = std::fs::read_to_string(golden("dumps/rich.couch.1.info.txt")).expect("a dump");
    let offsets: Vec<u64> = info
        .lines()
        .filter_map(|line| line.strip_prefix("Header at file offset "))
        .map(|digits| digits.parse().expect("a number"))
        .collect();
    let file = golden("rich.couch.1");
    let headers = dump(&["--headers"], &file);
    let found: Vec<u64> = headers
        .iter()
        .filter_map(|it| it["header"].as_u64())
        .collect();
    assert_eq!(found, offsets);
    for (number, header) in headers.iter().enumerate() {
        let older = dump(&["--no-body", "--older", &number.to_string()], &file);
        let offset = format!("--header={:#x}", offsets[number]);
        assert_eq!(dump(&["--no-body", &offset], &file), older);
        let (live, deleted): (Vec<_>, Vec<_>) =
            older.iter().partition(|line| line["deleted"] == false);
        let counts = (Value::from(live.len()), Value::from(deleted.len()));
        assert_eq!(
            (&header["live"], &header["deleted"]),
            (&counts.0, &counts.1)
        );
    }
    let (code, _, stderr) = tool(&["dump", "--older=8"], &file);
    assert_eq!(code, Some(2));
    assert!(stderr.contains("has 8 commits"), "{stderr}");
    for offset in ["20480", "8193", "0x1000000"] {
        let (code, _, stderr) = tool(&["dump", "--header", offset], &file);
        assert_eq!(code, Some(2));
        assert!(stderr.contains("has no header at byte "), "{stderr}");
    }
}

#[test]
fn dump_prints_local_documents_and_trees() {
    let file = golden("rich.couch.1");
    let text = std::fs::read_to_string(golden("dumps/rich.couch.1.local.txt")).expect("a dump");
    let names: Vec<&str> = text
        .lines()
        .filter_map(|it| it.strip_prefix("Key: "))
        .collect();
    let locals = dump(&["--local"], &file);
    let found: Vec<&str> = locals.iter().filter_map(|it| it["name"].as_str()).collect();
    assert_eq!(found, names);
    assert_eq!(locals[0]["value"]["entries"][0]["end_seqno"], 43);
    assert_eq!(locals[3]["value"]["entries"][0]["name"], "shop");
    assert_eq!(locals[4]["value"]["state"], "active");
    assert_eq!(locals[5]["value"]["items"], 7);
    let damaged = dump(&["--local"], &golden("s200_v12.couch.1"));
    assert!(
        damaged[0]["error"]
            .as_str()
            .expect("an error")
            .contains("max_deleted_seqno")
    );

    let header = &dump(&["--headers"], &file)[0];
    for (tree, bytes, leaves) in [
        ("id", "by_id", 36),
        ("seq", "by_seqno", 36),
        ("local", "local", 6),
    ] {
        let nodes = dump(&["--tree", tree], &file);
        let sum: u64 = nodes
            .iter()
            .filter_map(|it| it["disk_bytes"].as_u64())
            .sum();
        assert_eq!(header["tree_bytes"][bytes], sum, "{tree}");
        let entries = nodes.iter().filter(|node| node["node"] == "leaf");
        let entries: usize = entries
            .map(|it| it["entries"].as_array().expect("entries").len())
            .sum();
        assert_eq!(entries, leaves, "{tree}");
    }
}

#[test]
fn dump_stops_at_damage_unless_it_recovers() {
    let (_dir, path) = copy("s1k_10commits_compacted.couch.2");
    let all = dump(&[], &path);
    let bad = all[500]["body_offset"].as_u64().expect("an offset");
    damage(&path, |bytes| bytes[bad as usize + 30] ^= 1);
    let (code, lines, stderr) = tool(&["dump"], &path);
    assert_eq!((code, &*lines), (Some(1), &all[..500]));
    let place = format!(
        "{} is damaged at byte {bad}: expected another checksum",
        path.display()
    );
    assert!(stderr.contains(&place), "{stderr}");
    // What is not asked for is not missed.
    let (code, lines, _) = tool(&["dump", "--no-body"], &path);
    assert_eq!((code, lines.len()), (Some(0), 1000));

    let (code, lines, stderr) = tool(&["dump", "--mode=recover"], &path);
    assert_eq!((code, lines.len()), (Some(1), 999));
    assert!(
        stderr.contains(&place) && stderr.contains("damaged in 1 places"),
        "{stderr}"
    );

    // The newest header: nothing at all, or what was committed before it.
    let (_dir, path) = copy("s1k_10commits.couch.1");
    damage(&path, |bytes| bytes[266_240 + 30] ^= 1);
    for mode in ["strict", "normal"] {
        let (code, lines, stderr) = tool(&["dump", "--mode", mode], &path);
        assert_eq!((code, lines.len()), (Some(1), 0));
        assert!(
            stderr.contains("at byte 266240: expected another checksum"),
            "{stderr}"
        );
    }
    let (code, lines, _) = tool(&["dump", "--mode=recover"], &path);
    assert_eq!((code, lines.len()), (Some(0), 900));
}

#[test]
fn dump_distinguishes_files_that_are_not_couchstore() {
    let dir = tempfile::tempdir().expect("a directory");
    let of_bytes = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).expect("a file");
        path
    };
    let unknown = {
        let body = [&[15_u8][..], &[0; 50]].concat();
        let crc = crc32c(&body);
        let length = body.len() as u32 + 4;
        [&[1][..], &length.to_be_bytes(), &crc.to_be_bytes(), &body].concat()
    };
    for (path, code, words) in [
        (dir.path().join("missing"), 2, "No such file"),
        (of_bytes("empty", b""), 1, "has no header"),
        (of_bytes("other", &[0; 10_000]), 1, "has no header"),
        (
            of_bytes("text", b"not a couchstore file"),
            1,
            "at byte 0: expected a block type",
        ),
        (
            of_bytes("newer", &unknown),
            2,
            "has a header of version 15 at byte 0",
        ),
        (
            golden("s200_encrypted_testkey.couch.1"),
            2,
            "--encryption-key testkey=KEY",
        ),
    ] {
        for command in ["dump", "check"] {
            let (found, stdout, stderr) = run(kedge(&[command]).arg(&path));
            assert_eq!(found, Some(code), "{command} {path:?}: {stdout}{stderr}");
            assert!(
                (stdout + &stderr).contains(words),
                "{command} {path:?}: {stderr}"
            );
        }
    }
    let (code, _, stderr) = tool(&["dump"], dir.path());
    assert_eq!(code, Some(2));
    assert!(stderr.contains("is a directory"), "{stderr}");
    for args in [
        &["dump"][..],
        &["dump", "f", "--by-id", "--headers"],
        &["dump", "f", "--key=a", "--start=1"],
        &["dump", "f", "--collection=3"],
        &["dump", "f", "--start=a"],
        &["dump", "f", "--tree=x"],
        &["dump", "f", "--encryption-key=k"],
        &["check"],
    ] {
        let (code, _, stderr) = run(&mut kedge(args));
        assert_eq!(code, Some(2), "{args:?}: {stderr}");
    }
}

/// CRC-32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 }
        })
    })
}

#[test]
fn dump_reads_encrypted_files_with_their_key() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("0.couch.1");
    let create = CreateOptions {
        version: Version::V14,
        encryption: Some(EncryptionKey::new("mine", KEY)),
    };
    let options = Options::default();
    let mut writer = Writer::create(&PosixDisk, &path, &create, &options).expect("create");
    let batch = [mutation(b"\0secret", 1, b"very")];
    writer.save(&batch, &mut |_| {}).expect("save");
    writer.commit(0).expect("commit");

    let hex = "07".repeat(32);
    let secret = dir.path().join("secret");
    std::fs::write(&secret, format!("{hex}\n")).expect("a file");
    let from_file = format!("--encryption-key=mine=@{}", secret.display());
    let given = format!("--encryption-key=mine={hex}");
    for flag in [&given, &from_file] {
        for args in [["dump", &**flag], ["check", flag]] {
            let (code, stdout, stderr) = run(kedge(&args).arg(&path));
            assert_eq!(code, Some(0), "{stdout}{stderr}");
        }
    }
    let lines = dump(
        &[
            "--encryption-key=other=BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=",
            &given,
        ],
        &path,
    );
    assert_eq!(
        (&lines[0]["key"], &lines[0]["body"]),
        (&"secret".into(), &"very".into())
    );
    let mut from_environment = kedge(&["dump"]);
    from_environment.env("KEDGE_ENCRYPTION_KEY", format!("mine={hex}"));
    assert_eq!(run(from_environment.arg(&path)).0, Some(0));
    let wrong = format!("--encryption-key=mine={}", "08".repeat(32));
    let (code, _, stderr) = tool(&["dump", &wrong], &path);
    assert_eq!(code, Some(1));
    assert!(
        stderr.contains("expected the chunk to decrypt with the file's key"),
        "{stderr}"
    );
}

#[test]
fn dump_ignores_a_closed_output() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("0.couch.1");
    large_file(&path, 20_000);
    let mut child = kedge(&["dump"])
        .arg(&path)
        .spawn()
        .expect("the command starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let first = lines.next().expect("a line").expect("text");
    assert!(first.starts_with("{\"seqno\":1,"), "{first}");
    drop(lines);
    let mut stderr = String::new();
    let mut pipe = child.stderr.take().expect("a pipe");
    std::io::Read::read_to_string(&mut pipe, &mut stderr).expect("text");
    assert_eq!((wait_for(&mut child).code(), &*stderr), (Some(0), ""));
}
