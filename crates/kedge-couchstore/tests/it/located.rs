//! Documents whose bodies the caller reads equal those of lookups.

use kedge_couchstore::{BodyForm, DamageKind, Entry, Error, Options, Snapshot};
use kedge_disk::PosixDisk;

use crate::support::golden_path;

const NAMES: [&str; 3] = ["rich.couch.1", "s10_json.couch.1", "s1k_10commits.couch.1"];

/// Opens a Couchbase file. Returns its bytes, and the keys of its documents with a body.
fn open(name: &str) -> (Snapshot, Vec<u8>, Vec<Vec<u8>>) {
    let path = golden_path(name);
    let options = Options {
        cache_leaves: true,
        ..Options::default()
    };
    let snapshot = Snapshot::open(&PosixDisk, &path, &options).expect("the file is whole");
    let entries = snapshot.scan_ids(..).expect("a scan");
    let entries = entries.map(|entry| entry.expect("an entry"));
    let with_body = entries.filter(|entry| entry.body_offset().is_some());
    let keys = with_body.map(|entry| entry.key().to_vec()).collect();
    (
        snapshot,
        std::fs::read(path).expect("the file is there"),
        keys,
    )
}

#[test]
fn located_bodies_equal_lookups() {
    for name in NAMES {
        let (snapshot, file, keys) = open(name);
        assert!(!keys.is_empty());
        let is_known = |key: &Vec<u8>| snapshot.locate(key).is_some();
        assert!(!keys.iter().any(is_known), "nothing was looked up yet");
        for form in [BodyForm::Plain, BodyForm::Stored] {
            let documents = snapshot.get_many_documents(&keys, form).expect("a look-up");
            for (key, document) in keys.iter().zip(documents) {
                let Some(located) = snapshot.locate(key) else {
                    // The system has no such reads.
                    continue;
                };
                let place = located.place();
                let bytes = file[place.start as usize..place.end as usize].to_vec();
                let found = located.document(bytes, form).expect("it is whole");
                assert_eq!(Some(found), document);
            }
        }
        assert!(snapshot.locate(b"\0not there").is_none());
    }
}

#[test]
fn cached_nodes_locate_all_documents() {
    for name in NAMES {
        let (snapshot, _, keys) = open(name);
        snapshot.remember_ids().expect("the nodes are whole");
        // `None` if the system has no such reads.
        let known = keys.iter().filter(|key| snapshot.locate(key).is_some());
        assert!([0, keys.len()].contains(&known.count()), "{name}");
    }
}

#[test]
fn remember_ids_stays_within_the_cache_limit() {
    let path = golden_path("s1k_10commits.couch.1");
    for (cache_bytes_max, cache_leaves) in [(10_000, true), (0, true), (1 << 20, false)] {
        let options = Options {
            cache_bytes_max,
            cache_leaves,
            ..Options::default()
        };
        let snapshot = Snapshot::open(&PosixDisk, &path, &options).expect("the file is whole");
        let before = snapshot.memory_bytes();
        snapshot.remember_ids().expect("the nodes are whole");
        assert!(snapshot.memory_bytes() <= before + cache_bytes_max);
        let is_known = |entry: Result<Entry, Error>| {
            let entry = entry.expect("an entry");
            snapshot.locate(entry.key()).is_some()
        };
        let entries = snapshot.scan_ids(..).expect("a scan");
        let known = entries.map(is_known).filter(|known| *known).count();
        let leaf = if cache_leaves {
            cache_bytes_max / 10
        } else {
            0
        };
        assert!(
            known <= leaf,
            "{known} of {cache_bytes_max} bytes, leaves: {cache_leaves}"
        );
    }
}

#[test]
fn damage_is_detected_in_bytes_that_the_caller_read() {
    let (snapshot, file, keys) = open("s10_json.couch.1");
    snapshot.get_many(&keys).expect("a look-up");
    for key in &keys {
        let Some(located) = snapshot.locate(key) else {
            continue;
        };
        let place = located.place();
        let mut bytes = file[place.start as usize..place.end as usize].to_vec();
        *bytes.last_mut().expect("a body") ^= 1;
        match located.document(bytes, BodyForm::Plain) {
            Err(Error::Corrupt {
                problem: DamageKind::ChunkChecksum,
                offset,
                ..
            }) => assert_eq!(offset.0, place.start),
            other => panic!("{other:?}"),
        }
    }
}
