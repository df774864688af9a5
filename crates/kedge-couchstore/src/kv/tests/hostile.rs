//! Arbitrary bytes give a value or an error, never a panic, and use no more memory than justified.

use super::hex;
use crate::kv::{
    CollectionStats, CommittedManifest, DiskKey, DroppedCollections, KvError, RevMeta, Scopes,
    StoredCollection, StoredCollections, StoredSystemEvent, SystemEventKind, VbStateDocument,
};
use kedge_types::Seqno;
use proptest::prelude::*;

/// Decodes the bytes as each type. Decoded values have to survive a round trip.
fn decode_all(bytes: &[u8]) -> Result<(), TestCaseError> {
    let _ = (
        DiskKey::decode(bytes),
        RevMeta::decode(bytes),
        CollectionStats::decode(bytes),
    );
    let _ = VbStateDocument::decode(bytes, Seqno(0));
    if let Ok(found) = CommittedManifest::decode(bytes) {
        prop_assert_eq!(CommittedManifest::decode(&found.encode()), Ok(found));
    }
    if let Ok(found) = StoredCollections::decode(bytes) {
        prop_assert!(found.entries.len() <= bytes.len() / 4);
        prop_assert_eq!(StoredCollections::decode(&found.encode()), Ok(found));
    }
    if let Ok(found) = Scopes::decode(bytes) {
        prop_assert_eq!(Scopes::decode(&found.encode()), Ok(found));
    }
    if let Ok(found) = DroppedCollections::decode(bytes) {
        prop_assert_eq!(DroppedCollections::decode(&found.encode()), Ok(found));
    }
    for (kind, deleted) in [
        (SystemEventKind::Collection, false),
        (SystemEventKind::Collection, true),
        (SystemEventKind::Scope, false),
        (SystemEventKind::Scope, true),
    ] {
        if let Ok(found) = StoredSystemEvent::decode(kind, deleted, bytes) {
            prop_assert_eq!(
                StoredSystemEvent::decode(kind, deleted, &found.encode()),
                Ok(found)
            );
        }
    }
    Ok(())
}

fn manifest() -> Vec<u8> {
    let entry = |n: u32| StoredCollection {
        start: Seqno(n.into()),
        name: format!("collection-{n}"),
        history: n == 1,
        ..StoredCollection::default()
    };
    StoredCollections {
        entries: (0..3).map(entry).collect(),
    }
    .encode()
}

#[test]
fn changed_and_truncated_manifests_never_panic() {
    let bytes = manifest();
    for at in 0..bytes.len() {
        decode_all(&bytes[..at]).expect("no contradiction");
        for to in [0, 1, 4, 0x7f, 0x80, 0xfc, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] = to;
            decode_all(&damaged).expect("no contradiction");
        }
    }
}

#[test]
fn shared_name_is_not_copied_for_each_table() {
    // One table with a name of 64 KiB, and a vector of 16 Ki references to it.
    let (count, name_len) = (16_384_u32, 65_536_u32);
    let mut bytes = hex("0c000000 0000 0600 0800 0400 06000000 04000000");
    let table = 20 + 4 + 4 * count + 16;
    bytes.extend(count.to_le_bytes());
    for n in 0..count {
        bytes.extend((table - 24 - 4 * n).to_le_bytes());
    }
    // A vtable with field 5 only, its table, and the string.
    bytes.extend(hex(
        "1000 0800 0000 0000 0000 0000 0000 0400 10000000 04000000",
    ));
    bytes.extend(name_len.to_le_bytes());
    bytes.resize(bytes.len() + name_len as usize, b'n');
    bytes.push(0);
    let got = StoredCollections::decode(&bytes);
    let Err(KvError::Flatbuffer { expected, .. }) = got else {
        panic!("{:?} entries", got.map(|open| open.entries.len()));
    };
    assert_eq!(expected, "names that fit the buffer together");
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        decode_all(&bytes)?;
    }

    #[test]
    fn small_numbers_never_panic(bytes in prop::collection::vec(0..24_u8, 0..80)) {
        decode_all(&bytes)?;
    }

    #[test]
    fn changed_manifest_never_panics(changes in prop::collection::vec((0..300_usize, any::<u8>()), 1..6)) {
        let mut bytes = manifest();
        for (at, to) in changes {
            let at = at % bytes.len();
            bytes[at] = to;
        }
        decode_all(&bytes)?;
    }
}
