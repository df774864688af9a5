//! Bytes as everything that the key-value engine keeps in couchstore files. What decodes is written again, and must
//! decode to the same.
//!
//! The first byte is split between what a decoder wants to know beside the bytes.
#![no_main]

use kedge_couchstore::ContentMeta;
use kedge_couchstore::kv::{
    CollectionStats, CommittedManifest, DiskKey, DroppedCollections, EntryMeta, FileAudit,
    LocalDocument, RevMeta, Scopes, StoredCollections, StoredSystemEvent, SystemEventKind,
    VBSTATE_NAME, Value, VbStateDocument, split_prepare,
};
use kedge_types::{Datatype, Seqno};
use libfuzzer_sys::fuzz_target;

const HIGH_SEQNO: Seqno = Seqno(77);

/// Checks that a decoded value encodes to bytes that decode to the same value.
macro_rules! round_trip {
    ($bytes:expr, $($type:ty)*) => {
        $(if let Ok(found) = <$type>::decode($bytes) {
            assert_eq!(<$type>::decode(&found.encode()), Ok(found));
        })*
    };
}

fn keys_and_metadata(kind: u8, bytes: &[u8]) {
    let key = DiskKey::decode(bytes);
    if let Ok(key) = &key {
        assert_eq!(key.encode(), bytes);
        let prepared = matches!(key, DiskKey::Document { prepared: true, .. });
        assert_eq!(split_prepare(bytes).0, prepared);
    }
    if let Ok(meta) = RevMeta::decode(bytes) {
        assert_eq!(RevMeta::decode(meta.encode().as_slice()), Ok(meta));
    }
    // A key, and metadata behind it.
    let (meta, key) = bytes.split_at(bytes.len().min(if kind & 1 == 0 { 18 } else { 25 }));
    if let (Ok(meta), Ok(key)) = (
        EntryMeta::decode(kind & 2 != 0, ContentMeta(kind & 0x83), meta),
        DiskKey::decode(key),
    ) {
        let _ = meta.meaning(&key);
    }
}

fn local_documents(bytes: &[u8]) {
    round_trip!(
        bytes,
        CommittedManifest StoredCollections Scopes DroppedCollections CollectionStats
    );
    if let Ok(state) = VbStateDocument::decode(bytes, HIGH_SEQNO) {
        let mut again = VbStateDocument::decode(&state.encode(), HIGH_SEQNO).expect("our own");
        // Always written as today's.
        again.version = state.version;
        assert_eq!(again, state);
        let _ = again.check_snapshot(HIGH_SEQNO);
    }
    // A name, and contents behind it.
    let (name, value) = bytes.split_at(bytes.iter().position(|it| *it == b'\n').unwrap_or(0));
    let _ = LocalDocument::decode(name, value.get(1..).unwrap_or_default(), HIGH_SEQNO);
    let mut audit = FileAudit::new(HIGH_SEQNO);
    let _ = audit.local(name, bytes);
    let _ = audit.local(VBSTATE_NAME, bytes);
    assert!(audit.is_vbucket());
    let _ = audit.disagreements();
}

fn bodies(kind: u8, bytes: &[u8]) {
    for event in [
        SystemEventKind::Collection,
        SystemEventKind::Scope,
        SystemEventKind::ModifyCollection,
    ] {
        if let Ok(found) = StoredSystemEvent::decode(event, kind & 1 == 1, bytes) {
            let again = StoredSystemEvent::decode(event, kind & 1 == 1, &found.encode());
            assert_eq!(again, Ok(found));
        }
    }
    let datatype = Datatype::from_bits(kind & 7).expect("three bits");
    if let Ok(value) = Value::decode(datatype, bytes) {
        let attributes = value.attributes();
        let used: usize = attributes
            .map(|(name, value)| name.len() + value.len())
            .sum();
        // Snappy stands for at most so many bytes with each of its own.
        assert!(used + value.document().len() <= 32 * bytes.len());
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((&kind, bytes)) = input.split_first() else {
        return;
    };
    keys_and_metadata(kind, bytes);
    local_documents(bytes);
    bodies(kind, bytes);
});
