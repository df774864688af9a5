//! Files of Couchbase's library: reads give exactly the output of Couchbase's tools.

use std::fmt::Write as _;

use kedge_couchstore::kv::{CollectionStats, LocalDocument};
use kedge_couchstore::{BodyForm, Document, Entry, Error, Options, Snapshot, Version};
use kedge_disk::PosixDisk;
use kedge_types::Seqno;
use serde_json::Value;

use crate::support::{golden, golden_path};

const PLAIN: [&str; 7] = [
    "rich.couch.1",
    "s10_json.couch.1",
    "s1k_10commits.couch.1",
    "s1k_10commits_compacted.couch.2",
    "s200_v11_legacycrc.couch.1",
    "s200_v12.couch.1",
    "s200_v13.couch.1",
];
const ENCRYPTED: &str = "s200_encrypted_testkey.couch.1";

fn open(name: &str) -> Snapshot {
    let options = Options::default();
    Snapshot::open(&PosixDisk, &golden_path(name), &options)
        .unwrap_or_else(|error| panic!("{error}"))
}

fn dump(name: &str, kind: &str) -> Option<String> {
    let path = golden_path("dumps").join(format!("{name}.{kind}"));
    path.exists()
        .then(|| std::fs::read_to_string(path).expect("a dump is text"))
}

/// Formats a key like the tools.
fn key_text(key: &[u8]) -> String {
    let (number, rest) = leb128(key);
    match number {
        2 => format!("(prepare:{}", &key_text(rest)[1..]),
        1 => {
            let (kind, rest) = leb128(rest);
            let (id, rest) = leb128(rest);
            let kind = ["collection", "scope"][usize::try_from(kind).expect("a kind")];
            format!(
                "(system-event-key:{kind}:{id:#x}){}",
                String::from_utf8_lossy(rest)
            )
        }
        0 => format!("(collection:0x0:default){}", String::from_utf8_lossy(rest)),
        id => format!("(collection:{id:#x}){}", String::from_utf8_lossy(rest)),
    }
}

fn leb128(bytes: &[u8]) -> (u64, &[u8]) {
    let len = bytes
        .iter()
        .position(|byte| byte & 0x80 == 0)
        .expect("an end")
        + 1;
    let number = bytes[..len]
        .iter()
        .rev()
        .fold(0, |number, byte| number << 7 | u64::from(byte & 0x7f));
    (number, &bytes[len..])
}

/// The private metadata, decoded by hand: cas, time, flags, datatype, details.
struct Meta<'a>(&'a [u8]);

impl Meta<'_> {
    fn number(&self, at: usize, len: usize) -> u64 {
        self.0[at..at + len]
            .iter()
            .fold(0, |n, byte| n << 8 | u64::from(*byte))
    }

    fn datatype_names(&self) -> Vec<&'static str> {
        let names = [(2, "snappy"), (1, "json"), (4, "xattr")];
        let set = names.into_iter().filter(|(bit, _)| self.0[17] & bit != 0);
        let names: Vec<_> = set.map(|(_, name)| name).collect();
        if names.is_empty() { vec!["raw"] } else { names }
    }

    fn sync_write(&self) -> String {
        let levels = [
            "none",
            "majority",
            "majorityAndPersistOnMaster",
            "persistToMajority",
        ];
        match self.0.get(18) {
            None => String::new(),
            Some(0) => {
                let details = self.number(19, 6);
                let level = levels[(details >> 1) as usize];
                format!(
                    ", sync_write: pending [level: {level}, isDelete:{}]",
                    details & 1 == 1
                )
            }
            Some(2) => format!(", sync_write: abort [prepareSeqno: {}]", self.number(19, 6)),
            Some(other) => panic!("operation {other}"),
        }
    }

    fn deleted_by(&self) -> &'static str {
        if self.0[16] & 0x80 == 0 {
            "explicit"
        } else {
            "TTL"
        }
    }
}

/// Returns the value of a document without compression and extended attributes, and the attributes.
fn value(document: &Document) -> (Vec<u8>, Option<String>) {
    let mut body = document.body.clone().expect("a body");
    let datatype = document.entry.rev_meta()[17];
    if datatype & 2 != 0 {
        body = snap::raw::Decoder::new()
            .decompress_vec(&body)
            .expect("snappy");
    }
    if datatype & 4 == 0 {
        return (body, None);
    }
    let len = u32::from_be_bytes(body[..4].try_into().expect("four")) as usize;
    let pair = &body[8..4 + len];
    let mut parts = pair.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    let (name, text) = (
        parts.next().expect("a name"),
        parts.next().expect("a value"),
    );
    let xattrs = format!("{{\"{name}\":{text}}}");
    (body[4 + len..].to_vec(), Some(xattrs))
}

fn by_seqno_text(name: &str, snapshot: &Snapshot) -> String {
    let mut text = format!("Dumping \"{name}\":\n");
    let mut count = 0;
    for document in snapshot
        .scan_seqnos(..)
        .expect("scan")
        .with_bodies(BodyForm::Plain)
    {
        document_text(&document.expect("a document"), &mut text);
        count += 1;
    }
    write!(text, "\nTotal docs: {count}\n").expect("text");
    text
}

fn document_text(document: &Document, text: &mut String) {
    let Document { entry, body } = document;
    let meta = Meta(entry.rev_meta());
    let deleted = entry.is_deleted();
    let content_meta = match entry.content_meta().0 {
        0 => "00".to_owned(),
        other => format!("{other:#x}"),
    };
    let time = if deleted { "delete_time" } else { "expiry" };
    writeln!(
        text,
        "Doc seq: {}\n     id: {}\n     rev: {}\n     content_meta: {content_meta}\n     size (on disk): {}\n     \
         file offset: {}\n     cas: {}, {time}: {}, flags: {}, datatype: 0x{:02x} ({}){}",
        entry.seqno(),
        key_text(entry.key()),
        entry.rev(),
        entry.disk_bytes(),
        entry.body_offset().expect("all have one"),
        meta.number(0, 8),
        meta.number(8, 4),
        meta.number(12, 4),
        meta.0[17],
        meta.datatype_names().join(","),
        meta.sync_write(),
    )
    .expect("text");
    if deleted {
        writeln!(text, "     doc deleted ({})", meta.deleted_by()).expect("text");
    }
    let body_bytes = body.as_ref().map_or(0, Vec::len);
    writeln!(text, "     size: {body_bytes}").expect("text");
    if body_bytes == 0 {
        text.push_str("     data: null\n");
        return;
    }
    let (value, xattrs) = value(document);
    if let Some(xattrs) = xattrs {
        writeln!(text, "     xattrs: {xattrs}").expect("text");
    }
    let mark = if entry.content_meta().is_compressed() {
        "(snappy) "
    } else {
        ""
    };
    // The tool prints a C string.
    let shown = value.split(|byte| *byte == 0).next().unwrap_or_default();
    writeln!(text, "     data: {mark}{}", String::from_utf8_lossy(shown)).expect("text");
}

#[test]
fn documents_by_seqno_match_the_dump() {
    let mut dumps = 0;
    for name in PLAIN {
        let Some(expected) = golden_bytes(name, "byseq.txt") else {
            continue;
        };
        let found = by_seqno_text(name, &open(name));
        assert!(found == String::from_utf8_lossy(&expected), "{name}");
        dumps += 1;
    }
    assert_eq!(dumps, 6);
}

fn golden_bytes(name: &str, kind: &str) -> Option<Vec<u8>> {
    let path = golden_path("dumps").join(format!("{name}.{kind}"));
    path.exists().then(|| std::fs::read(path).expect("a dump"))
}

#[test]
fn documents_by_id_match_the_dump() {
    let mut dumps = 0;
    for name in PLAIN {
        let Some(expected) = dump(name, "byid.jsonl") else {
            continue;
        };
        dumps += 1;
        let scan = open(name)
            .scan_ids(..)
            .expect("scan")
            .with_bodies(BodyForm::Plain);
        let found: Vec<Document> = scan.map(|document| document.expect("a document")).collect();
        let lines: Vec<&str> = expected.lines().filter(|line| !line.is_empty()).collect();
        assert_eq!(found.len(), lines.len(), "{name}");
        for (document, line) in found.iter().zip(lines) {
            check_line(document, &serde_json::from_str(line).expect("JSON"));
        }
    }
    assert_eq!(dumps, 6);
}

fn check_line(document: &Document, line: &Value) {
    let entry = &document.entry;
    let meta = Meta(entry.rev_meta());
    let time = if entry.is_deleted() {
        "delete_time"
    } else {
        "expiry"
    };
    assert_eq!(line["id"], key_text(entry.key()));
    assert_eq!(line["seq"], entry.seqno().0);
    assert_eq!(line["rev"], entry.rev().0);
    assert_eq!(
        line["content_meta"],
        format!("0x{:02x}", entry.content_meta().0)
    );
    assert_eq!(line["file_offset"], entry.body_offset().expect("a body").0);
    assert_eq!(line["physical_size"], entry.disk_bytes());
    assert_eq!(line["size"], document.body.as_ref().map_or(0, Vec::len));
    assert_eq!(line["cas"], meta.number(0, 8).to_string());
    assert_eq!(line[time], meta.number(8, 4));
    assert_eq!(line["flags"], meta.number(12, 4));
    assert_eq!(line["datatype"], meta.0[17]);
    assert_eq!(
        line["datatype_as_text"],
        serde_json::json!(meta.datatype_names())
    );
    let deleted_by = entry.is_deleted().then(|| meta.deleted_by());
    assert_eq!(line.get("deleted").and_then(Value::as_str), deleted_by);
    let (value, xattrs) = if document.body.as_ref().is_some_and(Vec::is_empty) {
        (Vec::new(), None)
    } else {
        value(document)
    };
    assert_eq!(line.get("xattr").and_then(Value::as_str), xattrs.as_deref());
    if meta.0[17] & 1 == 0 {
        assert_eq!(line["body"], *String::from_utf8_lossy(&value));
    } else {
        let json: Value = serde_json::from_slice(&value).expect("JSON");
        assert_eq!(line["body"], json);
    }
}

fn human(bytes: u64) -> String {
    if bytes < 1024 {
        format!("{bytes} bytes")
    } else {
        format!("{:.1} kB", bytes as f64 / 1024.0)
    }
}

fn info_lines(key: Option<&str>, headers: &[kedge_couchstore::Header]) -> Vec<String> {
    let crc = if headers[0].version() == Version::V11 {
        "CRC-32"
    } else {
        "CRC-32C"
    };
    let mut text = format!("   crc: {crc}\n");
    if let Some(key) = key {
        writeln!(text, "   Encryption key: {key}").expect("text");
    }
    for header in headers {
        let trees = header.tree_bytes();
        let all_trees = trees.by_id + trees.by_seqno + trees.local;
        writeln!(
            text,
            "\nHeader at file offset {}\n   file format version: {}\n   update_seq: {}\n   purge_seq: {}",
            header.offset(),
            header.version().number(),
            header.update_seqno(),
            header.purge_seqno()
        )
        .expect("text");
        if header.version() >= Version::V13 {
            writeln!(text, "   timestamp: {}", header.timestamp_ns()).expect("text");
        }
        writeln!(
            text,
            "   doc count: {}\n   deleted doc count: {}\n   data size: {}\n   B-tree size:       {}\n   \
             └── by-id tree:    {}\n   └── by-seqno tree: {}\n   └── local size:    {}",
            header.live_count(),
            header.deleted_count(),
            human(header.used_bytes()),
            human(all_trees),
            human(trees.by_id),
            human(trees.by_seqno),
            human(trees.local),
        )
        .expect("text");
    }
    text.lines().map(str::to_owned).collect()
}

#[test]
fn headers_match_the_dump() {
    for name in PLAIN {
        let history = open(name).history();
        let headers: Vec<_> = history
            .map(|found| found.expect("a header").header().clone())
            .collect();
        let key = (headers[0].version() == Version::V14).then_some("unencrypted");
        let expected = dump(name, "info.txt").expect("a dump");
        // The first line has the size of the file on the disk where the dump was made.
        let expected: Vec<&str> = expected.trim_end().lines().skip(1).collect();
        assert_eq!(info_lines(key, &headers), expected, "{name}");
    }
}

#[test]
fn local_documents_match_the_dump() {
    for name in PLAIN {
        let snapshot = open(name);
        let locals: Vec<_> = snapshot
            .locals()
            .expect("scan")
            .map(|local| local.expect("a local document"))
            .collect();
        let expected = dump(name, "local.txt").expect("a dump");
        let lines: Vec<&str> = expected.lines().skip(1).collect();
        assert_eq!(lines.len(), 3 * locals.len() + 2, "{name}");
        assert_eq!(
            lines[lines.len() - 1],
            format!("Total docs: {}", locals.len())
        );
        for ((key, value), lines) in locals.iter().zip(lines.chunks(3)) {
            assert_eq!(lines[0], format!("Key: {}", String::from_utf8_lossy(key)));
            assert_eq!(lines[2], format!("Value size: {}", value.len()));
            let shown = lines[1].strip_prefix("Value: ").expect("a value");
            check_local(key, value, shown);
            assert_eq!(snapshot.local(key).expect("get").as_deref(), Some(&**value));
        }
        assert_eq!(snapshot.local(b"no such").expect("get"), None);
    }
}

fn check_local(name: &[u8], value: &[u8], shown: &str) {
    if name == b"_local/vbstate" {
        assert_eq!(value, shown.as_bytes());
        return;
    }
    let local = LocalDocument::decode(name, value, Seqno(43)).expect("it decodes");
    if name.starts_with(b"|0x") {
        let stats = CollectionStats::decode(value).expect("statistics");
        let shown: Value = serde_json::from_str(shown).expect("JSON");
        assert_eq!(shown["item_count"], stats.items);
        assert_eq!(shown["high_seqno"], stats.high_seqno.0);
        assert_eq!(shown["disk_size"], stats.disk_bytes.unwrap_or(0));
    } else {
        // Flatbuffers, which the tests of the codecs check; here the bytes have to exist.
        assert!(local.is_some(), "{}", name.escape_ascii());
    }
}

#[test]
fn every_commit_of_every_sample_is_sound() {
    for name in PLAIN {
        for snapshot in open(name).history() {
            let snapshot = snapshot.expect("a header");
            let header = snapshot.header();
            let checked = snapshot
                .check(&mut |_| {})
                .unwrap_or_else(|error| panic!("{name} at {}: {error}", header.offset()));
            assert_eq!(checked.live, header.live_count());
            assert_eq!(checked.deleted, header.deleted_count());
            assert_eq!(checked.body_bytes, header.body_bytes());
        }
    }
}

#[test]
fn gets_agree_with_scans() {
    for name in PLAIN {
        let snapshot = open(name);
        let entries: Vec<Entry> = snapshot
            .scan_ids(..)
            .expect("scan")
            .map(|e| e.expect("an entry"))
            .collect();
        let mut keys: Vec<&[u8]> = entries.iter().map(Entry::key).collect();
        keys.reverse();
        keys.insert(0, b"not there");
        let many = snapshot.get_many(&keys).expect("get");
        assert_eq!(many[0], None);
        let documents = snapshot
            .get_many_documents(&keys, BodyForm::Stored)
            .expect("get");
        for (entry, found) in entries
            .iter()
            .rev()
            .zip(many.iter().zip(&documents).skip(1))
        {
            assert_eq!(found.0.as_ref(), Some(entry));
            let document = found.1.as_ref().expect("a document");
            assert_eq!(&document.entry, entry);
            assert_eq!(
                document.body,
                snapshot.body(entry, BodyForm::Stored).expect("a body")
            );
            assert_eq!(
                snapshot.get(entry.key()).expect("get").as_ref(),
                Some(entry)
            );
            let by_seqno = snapshot.get_by_seqno(entry.seqno()).expect("get");
            assert_eq!(by_seqno.as_ref(), Some(entry));
        }
        assert_eq!(snapshot.get(b"\0key-0000005").expect("get"), None);
        assert_eq!(snapshot.get(b"\xff").expect("get"), None);
    }
}

#[test]
fn encrypted_sample_names_its_key() {
    let path = golden_path(ENCRYPTED);
    let error = Snapshot::open(&PosixDisk, &path, &Options::default()).expect_err("no key");
    assert!(
        matches!(&error, Error::KeyNeeded { key_id, .. } if key_id == "testkey"),
        "{error}"
    );
    let other = kedge_couchstore::EncryptionKey::new("testkey", [0; 32]);
    let options = Options {
        keys: vec![other],
        ..Options::default()
    };
    // Headers are not encrypted, everything else is.
    let snapshot = Snapshot::open(&PosixDisk, &path, &options).expect("headers are plain");
    let history = snapshot.history();
    let headers: Vec<_> = history
        .map(|found| found.expect("a header").header().clone())
        .collect();
    let expected = dump(ENCRYPTED, "info.txt").expect("a dump");
    let expected: Vec<&str> = expected.trim_end().lines().skip(1).collect();
    assert_eq!(info_lines(Some("testkey"), &headers), expected);
    let error = snapshot.get(b"\0key-000001").expect_err("the wrong key");
    assert!(error.is_damage(), "{error}");
}

#[test]
fn counts_come_from_the_tree() {
    let snapshot = open("s1k_10commits.couch.1");
    let count = |range: std::ops::Range<u64>| {
        let range = Seqno(range.start)..Seqno(range.end);
        snapshot.count_seqnos(range).expect("count")
    };
    assert_eq!(snapshot.count_seqnos(..).expect("count"), 1000);
    assert_eq!(count(1..1001), 1000);
    assert_eq!(count(0..1), 0);
    assert_eq!(count(10..20), 10);
    assert_eq!(count(995..5000), 6);
    assert_eq!(count(5000..6000), 0);
    assert_eq!(
        snapshot.count_seqnos(Seqno(7)..=Seqno(7)).expect("count"),
        1
    );
    assert_eq!(snapshot.count_seqnos(Seqno(900)..).expect("count"), 101);
    let rich = open("rich.couch.1");
    for from in 0..50 {
        for to in from..50 {
            let range = Seqno(from)..Seqno(to);
            let scanned = rich.scan_seqnos(range.clone()).expect("scan").count() as u64;
            assert_eq!(
                rich.count_seqnos(range).expect("count"),
                scanned,
                "{from}..{to}"
            );
        }
    }
}

#[test]
fn golden_files_are_unchanged() {
    // A tool that changes line ends or encodings would make the other tests meaningless.
    let sizes = PLAIN.map(|name| golden(name).len());
    assert_eq!(
        sizes,
        [331_881, 4201, 266_345, 127_081, 32_859, 20_571, 20_579]
    );
}
