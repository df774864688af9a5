//! Names of local documents, and statistics.

use super::{collections, hex, seqnos};
use crate::kv::{
    CollectionStats, DROPPED_COLLECTIONS_NAME, KvError, LocalDocument, MANIFEST_NAME,
    OPEN_COLLECTIONS_NAME, OPEN_SCOPES_NAME, VBSTATE_NAME,
};
use kedge_types::{CollectionId, Seqno};
use proptest::prelude::*;

#[test]
fn statistics_of_two_and_three_numbers() {
    for (bytes, items, high_seqno, disk_bytes) in [
        // The golden files s1k_10commits.couch.1 and rich.couch.1.
        ("e807 e807 00", 1000, 1000, Some(0)),
        ("07 29 00", 7, 41, Some(0)),
        ("07 29", 7, 41, None),
        ("00 00 ffffffffffffffffff01", 0, 0, Some(u64::MAX)),
    ] {
        let stats = CollectionStats {
            items,
            high_seqno: Seqno(high_seqno),
            disk_bytes,
        };
        let bytes = hex(bytes);
        assert_eq!(CollectionStats::decode(&bytes), Ok(stats));
        assert_eq!(stats.encode(), bytes);
    }
    for bytes in [
        "",
        "07",
        "80",
        "07 80",
        "07 29 80",
        "07 29 00 00",
        "8700 29",
    ] {
        let got = CollectionStats::decode(&hex(bytes));
        assert!(
            matches!(got, Err(KvError::Stats { .. })),
            "{bytes}: {got:?}"
        );
    }
}

#[test]
fn names_of_statistics() {
    for (name, id) in [
        ("|0x0|", 0),
        ("|0x9|", 9),
        ("|0x1234|", 0x1234),
        ("|0xffffffff|", u32::MAX),
    ] {
        assert_eq!(CollectionStats::name(CollectionId(id)), name);
        assert_eq!(
            CollectionStats::collection_of(name.as_bytes()),
            Some(CollectionId(id))
        );
    }
    for name in [
        "",
        "|0x|",
        "|0x9",
        "0x9|",
        "|9|",
        "|0x09|",
        "|0xA|",
        "|0x+9|",
        "|0x100000000|",
        "|0x|0x9|",
    ] {
        assert_eq!(
            CollectionStats::collection_of(name.as_bytes()),
            None,
            "{name}"
        );
    }
}

#[test]
fn name_determines_the_type_of_a_local_document() {
    let stats = LocalDocument::decode(b"|0x9|", &hex("07 29 00"), Seqno(41));
    let expected = CollectionStats {
        items: 7,
        high_seqno: Seqno(41),
        disk_bytes: Some(0),
    };
    assert_eq!(
        stats,
        Ok(Some(LocalDocument::Stats(CollectionId(9), expected)))
    );
    assert_eq!(
        LocalDocument::decode(b"_local/else", b"", Seqno(0)),
        Ok(None)
    );
    for name in [
        VBSTATE_NAME,
        MANIFEST_NAME,
        OPEN_COLLECTIONS_NAME,
        OPEN_SCOPES_NAME,
        DROPPED_COLLECTIONS_NAME,
        b"|0x0|",
    ] {
        let got = LocalDocument::decode(name, b"", Seqno(0));
        assert!(got.is_err(), "{}: {got:?}", name.escape_ascii());
    }
}

proptest! {
    #[test]
    fn round_trip(items: u64, high_seqno in seqnos(), disk_bytes: Option<u64>) {
        let stats = CollectionStats { items, high_seqno, disk_bytes };
        prop_assert_eq!(CollectionStats::decode(&stats.encode()), Ok(stats));
    }

    #[test]
    fn round_trip_of_names(collection in collections()) {
        let name = CollectionStats::name(collection);
        prop_assert_eq!(CollectionStats::collection_of(name.as_bytes()), Some(collection));
    }
}
