//! The golden files through the codecs of the key-value engine: the decoded values are those that Couchbase's tools
//! print.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kedge_couchstore::kv::{
    CommittedManifest, DeleteSource, DiskKey, EntryMeta, LocalDocument, Meaning, StoredSystemEvent,
};
use kedge_couchstore::{BodyForm, Entry, Options, Snapshot};
use kedge_disk::PosixDisk;
use kedge_types::{CollectionId, DurabilityLevel, ScopeId, Seqno};
use serde_json::Value;

/// The samples with a dump of their documents by id.
const SAMPLES: [&str; 6] = [
    "rich.couch.1",
    "s10_json.couch.1",
    "s1k_10commits.couch.1",
    "s200_v11_legacycrc.couch.1",
    "s200_v12.couch.1",
    "s200_v13.couch.1",
];

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name)
}

fn open(name: &str) -> Snapshot {
    Snapshot::open(&PosixDisk, &golden(name), &Options::default()).expect("a sound file")
}

/// Formats the key like Couchbase's tools.
pub(crate) fn print_key(key: &DiskKey<'_>) -> String {
    match key {
        DiskKey::SystemEvent { kind, subject } => {
            let name = format!("{kind:?}").to_lowercase();
            format!("(system-event-key:{name}:{subject:#x})_{name}")
        }
        DiskKey::Document {
            prepared,
            collection,
            logical,
        } => {
            let prepare = if *prepared { "prepare:" } else { "" };
            let default = if *collection == CollectionId::DEFAULT {
                ":default"
            } else {
                ""
            };
            let logical = String::from_utf8_lossy(logical);
            format!(
                "({prepare}collection:{:#x}{default}){logical}",
                collection.get()
            )
        }
    }
}

fn check(entry: &Entry, line: &Value) {
    let key = DiskKey::decode(entry.key()).expect("a key");
    assert_eq!(key.encode(), entry.key());
    assert_eq!(line["id"], print_key(&key));
    let meta = EntryMeta::decode(entry.is_deleted(), entry.content_meta(), entry.rev_meta());
    let meta = meta.expect("metadata");
    let rev_meta = meta.rev_meta;
    assert_eq!(line["cas"], rev_meta.cas.to_string());
    assert_eq!(line["flags"], u32::from_be_bytes(rev_meta.flags));
    assert_eq!(line["datatype"], rev_meta.datatype.bits());
    let exptime = if entry.is_deleted() {
        "delete_time"
    } else {
        "expiry"
    };
    assert_eq!(line[exptime], rev_meta.exptime);
    let source = match rev_meta.delete_source {
        DeleteSource::Explicit => "explicit",
        DeleteSource::Ttl => "TTL",
    };
    assert_eq!(
        line["deleted"].as_str(),
        entry.is_deleted().then_some(source)
    );
    check_meaning(meta.meaning(&key).expect("one meaning"), line);
    // Encoded again it is the same, except for the code that some releases did not write.
    let mut written = entry.rev_meta().to_vec();
    written[16] |= 1;
    assert_eq!(rev_meta.encode().as_slice(), written);
}

fn check_meaning(meaning: Meaning, line: &Value) {
    match meaning {
        Meaning::Prepare { level, is_delete } => {
            let level = match level {
                DurabilityLevel::Majority => "majority",
                DurabilityLevel::MajorityAndPersistOnActive => "majorityAndPersistOnMaster",
                DurabilityLevel::PersistToMajority => "persistToMajority",
            };
            assert_eq!(
                (&line["sync_write"], &line["level"]),
                (&"pending".into(), &level.into())
            );
            assert_eq!(line["isDelete"], is_delete);
        }
        Meaning::Abort { prepare } => {
            assert_eq!(line["sync_write"], "abort");
            assert_eq!(line["prepareSeqno"], prepare.get());
        }
        Meaning::LegacyCommit { .. } => panic!("no sample is that old: {line}"),
        Meaning::Live => assert!(line["sync_write"].is_null() && line["deleted"].is_null()),
        Meaning::Tombstone => assert!(line["sync_write"].is_null() && line["deleted"].is_string()),
        Meaning::SystemEvent { dropped, .. } => assert_eq!(line["deleted"].is_string(), dropped),
    }
}

#[test]
fn every_entry_kind_matches_the_dump() {
    for name in SAMPLES {
        let dump = golden(&format!("dumps/{name}.byid.jsonl"));
        let dump = std::fs::read_to_string(dump).expect("a dump");
        let lines: Vec<Value> = dump
            .lines()
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_str(line).expect("a line of JSON"))
            .collect();
        let scan = open(name).scan_ids(..).expect("a sound tree");
        let entries: Result<Vec<Entry>, _> = scan.collect();
        let entries = entries.expect("a sound tree");
        assert_eq!(entries.len(), lines.len(), "{name}");
        for (entry, line) in entries.iter().zip(&lines) {
            check(entry, line);
        }
    }
}

#[test]
fn every_local_document_of_every_commit_decodes() {
    // Two samples have only `{"state":"active"}` as the state of the vBucket.
    for name in &SAMPLES[..4] {
        for commit in open(name).history() {
            let commit = commit.expect("a sound header");
            let high = commit.header().update_seqno();
            for local in commit.locals().expect("a sound root") {
                let (local, value) = local.expect("a sound tree");
                let decoded = LocalDocument::decode(&local, &value, high);
                let decoded = decoded.unwrap_or_else(|error| panic!("{name}: {error}"));
                match decoded.unwrap_or_else(|| panic!("{name}: unknown name")) {
                    LocalDocument::VbState(state) => assert_eq!(state.encode(), value),
                    LocalDocument::Stats(_, stats) => assert_eq!(stats.encode(), value),
                    // The layout of a flatbuffer is free.
                    _ => {}
                }
            }
        }
    }
}

#[test]
fn manifest_matches_its_system_events() {
    let newest = open("rich.couch.1");
    let mut before: Option<Snapshot> = None;
    for commit in newest.history() {
        let commit = commit.expect("a sound header");
        // The drop came last, so the commit before it still has the collection.
        if commit.header().update_seqno() == Seqno(42) {
            before = Some(commit);
        }
    }
    let names = |snapshot: &Snapshot| {
        let mut collections = BTreeMap::new();
        let mut scopes = BTreeMap::new();
        let mut uid = None;
        for local in snapshot.locals().expect("a sound root") {
            let (name, value) = local.expect("a sound tree");
            match LocalDocument::decode(&name, &value, Seqno(0)).expect("decodes") {
                Some(LocalDocument::OpenCollections(open)) => {
                    collections.extend(open.entries.into_iter().map(|c| (c.collection, c.name)));
                }
                Some(LocalDocument::Scopes(open)) => {
                    scopes.extend(open.entries.into_iter().map(|s| (s.scope, s.name)));
                }
                Some(LocalDocument::Manifest(manifest)) => uid = Some(manifest),
                _ => {}
            }
        }
        (collections, scopes, uid)
    };
    let event = |snapshot: &Snapshot, key: &[u8]| {
        let entry = snapshot.get(key).expect("a sound tree").expect("an event");
        let body = snapshot
            .body(&entry, BodyForm::Plain)
            .expect("a sound body");
        let DiskKey::SystemEvent { kind, .. } = DiskKey::decode(entry.key()).expect("a key") else {
            panic!("{:?} is no event", entry.key());
        };
        let body = body.expect("a body");
        StoredSystemEvent::decode(kind, entry.is_deleted(), &body).expect("an event")
    };
    let before = before.expect("the commit before the last");
    let StoredSystemEvent::CollectionOpened(opened) = event(&before, b"\x01\x00\x09_collection")
    else {
        panic!("the collection was dropped too early");
    };
    let StoredSystemEvent::ScopeOpened(scope) = event(&before, b"\x01\x01\x08_scope") else {
        panic!("the scope was dropped");
    };
    let (collections, scopes, _) = names(&before);
    assert_eq!(collections.get(&opened.collection), Some(&opened.name));
    assert_eq!(scopes.get(&scope.scope), Some(&scope.name));
    assert_eq!((opened.scope, scope.scope), (ScopeId(8), ScopeId(8)));

    let StoredSystemEvent::CollectionDropped(dropped) = event(&newest, b"\x01\x00\x09_collection")
    else {
        panic!("the collection was not dropped");
    };
    let (collections, _, uid) = names(&newest);
    assert_eq!(
        collections.keys().collect::<Vec<_>>(),
        [&CollectionId::DEFAULT]
    );
    assert_eq!(dropped.collection, opened.collection);
    assert_eq!(uid, Some(CommittedManifest { uid: dropped.uid }));
}
