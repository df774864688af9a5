//! Keys of documents, prepares and system events.

use super::{collections, hex};
use crate::kv::{DiskKey, KvError, SystemEventKind, split_prepare};
use kedge_types::{CollectionId, DocKey};
use proptest::prelude::*;

fn document(prepared: bool, collection: u32, logical: &str) -> DiskKey<'_> {
    DiskKey::Document {
        prepared,
        collection: CollectionId(collection),
        logical: logical.as_bytes(),
    }
}

#[test]
fn keys_of_the_golden_file() {
    let event = |kind, subject| DiskKey::SystemEvent { kind, subject };
    for (bytes, key) in [
        (
            "00 616c72656164792d736e61707079",
            document(false, 0, "already-snappy"),
        ),
        ("09 6170706c652d30", document(false, 9, "apple-0")),
        (
            "b424 6c65622d74776f2d627974652d636964",
            document(false, 0x1234, "leb-two-byte-cid"),
        ),
        (
            "02 00 6475722d6d616a6f72697479",
            document(true, 0, "dur-majority"),
        ),
        (
            "01 00 09 5f636f6c6c656374696f6e",
            event(SystemEventKind::Collection, 9),
        ),
        ("01 01 08 5f73636f7065", event(SystemEventKind::Scope, 8)),
    ] {
        let bytes = hex(bytes);
        assert_eq!(DiskKey::decode(&bytes), Ok(key));
        assert_eq!(key.encode(), bytes);
    }
}

#[test]
fn namespaces_sort_by_their_prefix() {
    let event = DiskKey::SystemEvent {
        kind: SystemEventKind::ModifyCollection,
        subject: 8,
    };
    let keys = [
        document(false, 0, "z"),
        event,
        document(true, 0, "a"),
        document(true, 9, "a"),
        document(false, 8, "a"),
        document(false, 0x1234, "a"),
    ];
    assert!(keys.is_sorted_by_key(DiskKey::encode));
}

#[test]
fn malformed_keys_are_rejected() {
    for bytes in [
        "",        // nothing
        "02",      // a namespace alone
        "80",      // half an id
        "8000 6b", // an id spelled too long
        "03 6b",   // reserved ids
        "07 6b",
        "02 01 00 09 5f636f6c6c656374696f6e", // a prepared event
        "02 02 6b",                           // a prepared prepare
        "01",                                 // an event without anything
        "01 03 09 5f636f6c6c656374696f6e",    // of an unknown kind
        "01 00 09 5f73636f7065",              // of a collection, called a scope
        "01 00 09",                           // without a suffix
    ] {
        let got = DiskKey::decode(&hex(bytes)).map(|key| format!("{key:?}"));
        assert!(matches!(got, Err(KvError::Key { .. })), "{bytes}: {got:?}");
    }
}

#[test]
#[should_panic(expected = "other than 1 to 7")]
fn encoding_a_reserved_collection_panics() {
    let _ = document(false, 1, "k").encode();
}

#[test]
fn split_prepare_removes_the_namespace() {
    let logical = DocKey::new(CollectionId(0x1234), b"k").expect("a key");
    for prepared in [false, true] {
        let key = document(prepared, 0x1234, "k").encode();
        assert_eq!(split_prepare(&key), (prepared, logical.as_bytes()));
    }
}

#[test]
fn flags_of_events_are_little_endian() {
    assert_eq!(SystemEventKind::Scope.flags(), [1, 0, 0, 0]);
}

proptest! {
    #[test]
    fn round_trip(prepared: bool, collection in collections(), logical: Vec<u8>) {
        let key = DiskKey::Document { prepared, collection, logical: &logical };
        let bytes = key.encode();
        prop_assert_eq!(DiskKey::decode(&bytes), Ok(key));
    }

    #[test]
    fn round_trip_of_events(kind in 0..3_u8, subject: u32) {
        let kind = [
            SystemEventKind::Collection,
            SystemEventKind::Scope,
            SystemEventKind::ModifyCollection,
        ][usize::from(kind)];
        let key = DiskKey::SystemEvent { kind, subject };
        let bytes = key.encode();
        prop_assert_eq!(DiskKey::decode(&bytes), Ok(key));
    }

    #[test]
    fn decoded_values_encode_to_the_same_bytes(bytes in prop::collection::vec(0..12_u8, 0..8)) {
        if let Ok(key) = DiskKey::decode(&bytes) {
            prop_assert_eq!(key.encode(), bytes);
        }
    }
}
