//! The kinds of entries, and `content_meta`.

use super::rev_meta::rev_metas;
use super::{datatypes, hex};
use crate::ContentMeta;
use crate::kv::{
    DeleteSource, DiskKey, EntryMeta, KvError, Meaning, SystemEventKind, ValueMeta,
    datatype_of_value,
};
use kedge_types::{Cas, CollectionId, Datatype, DurabilityLevel, Expiry, Seqno};
use proptest::prelude::*;

const JSON_VALUE: ValueMeta = ValueMeta {
    flags: [0; 4],
    datatype: Datatype::JSON,
    bytes: 113,
};

/// An entry of the golden file.
struct Golden {
    deleted: bool,
    content_meta: u8,
    key: &'static str,
    rev_meta: &'static str,
}

impl Golden {
    /// Checks that the bytes mean `meaning`, and that `entry` encodes to them.
    fn is(&self, meaning: Meaning, entry: EntryMeta) {
        let mut rev_meta = hex(self.rev_meta);
        let content_meta = ContentMeta(self.content_meta);
        let got = EntryMeta::decode(self.deleted, content_meta, &rev_meta).expect("decodes");
        let key = hex(self.key);
        let key = DiskKey::decode(&key).expect("a key");
        assert_eq!(got.meaning(&key), Ok(meaning));
        assert_eq!(got, entry);
        assert_eq!(
            (entry.deleted, entry.content_meta),
            (self.deleted, content_meta)
        );
        rev_meta[16] |= 1;
        assert_eq!(entry.rev_meta.encode().as_slice(), rev_meta);
    }
}

#[test]
fn committed_entries_of_the_golden_file() {
    let value = ValueMeta {
        datatype: Datatype::JSON.union(Datatype::SNAPPY),
        bytes: 56,
        ..JSON_VALUE
    };
    Golden {
        deleted: false,
        content_meta: 0x00,
        key: "00 616c72656164792d736e61707079",
        rev_meta: "17d0000000070000 00000000 00000000 00 03",
    }
    .is(
        Meaning::Live,
        EntryMeta::live(Cas(0x17d0_0000_0007_0000), Expiry::NEVER, value),
    );
    Golden {
        deleted: true,
        content_meta: 0x03,
        key: "00 65787069726573",
        rev_meta: "17d0000000270000 5f5e12bc 00000000 80 00",
    }
    .is(
        Meaning::Tombstone,
        EntryMeta::tombstone(
            Cas(0x17d0_0000_0027_0000),
            1_600_000_700,
            DeleteSource::Ttl,
            ValueMeta::default(),
        ),
    );
    let attributes = ValueMeta {
        datatype: Datatype::XATTR,
        bytes: 24,
        ..JSON_VALUE
    };
    Golden {
        deleted: true,
        content_meta: 0x83,
        key: "00 776974682d7861747472",
        rev_meta: "17d00000002a0000 5f5e1384 00000000 00 04",
    }
    .is(
        Meaning::Tombstone,
        EntryMeta::tombstone(
            Cas(0x17d0_0000_002a_0000),
            1_600_000_900,
            DeleteSource::Explicit,
            attributes,
        ),
    );
}

#[test]
fn sync_writes_of_the_golden_file() {
    let level = DurabilityLevel::Majority;
    Golden {
        deleted: false,
        content_meta: 0x80,
        key: "02 00 6475722d6d616a6f72697479",
        rev_meta: "17d0000000200000 00000000 00000000 00 01 00 000000000002",
    }
    .is(
        Meaning::Prepare {
            level,
            is_delete: false,
        },
        EntryMeta::prepare(Cas(0x17d0_0000_0020_0000), Expiry::NEVER, JSON_VALUE, level),
    );
    let level = DurabilityLevel::MajorityAndPersistOnActive;
    Golden {
        deleted: false,
        content_meta: 0x03,
        key: "02 00 6475722d64656c657465",
        rev_meta: "17d0000000220000 00000000 00000000 00 00 00 000000000005",
    }
    .is(
        Meaning::Prepare {
            level,
            is_delete: true,
        },
        EntryMeta::prepare_delete(Cas(0x17d0_0000_0022_0000), level),
    );
    let prepare = Seqno(35);
    Golden {
        deleted: true,
        content_meta: 0x03,
        key: "02 00 6475722d746f2d61626f7274",
        rev_meta: "17d0000000250000 5f5e11f4 00000000 00 00 02 000000000023",
    }
    .is(
        Meaning::Abort { prepare },
        EntryMeta::abort(Cas(0x17d0_0000_0025_0000), 1_600_000_500, prepare),
    );
}

#[test]
fn system_events_of_the_golden_file() {
    let kind = SystemEventKind::Scope;
    Golden {
        deleted: false,
        content_meta: 0x83,
        key: "01 01 08 5f73636f7065",
        rev_meta: "17d0000000020000 00000000 01000000 00 00",
    }
    .is(
        Meaning::SystemEvent {
            kind,
            subject: 8,
            dropped: false,
        },
        EntryMeta::event(Cas(0x17d0_0000_0002_0000), kind, None, 56),
    );
    let kind = SystemEventKind::Collection;
    Golden {
        deleted: true,
        content_meta: 0x83,
        key: "01 00 09 5f636f6c6c656374696f6e",
        rev_meta: "17d00000002b0000 5f5e13e8 00000000 00 00",
    }
    .is(
        Meaning::SystemEvent {
            kind,
            subject: 9,
            dropped: true,
        },
        EntryMeta::event(Cas(0x17d0_0000_002b_0000), kind, Some(1_600_001_000), 40),
    );
}

#[test]
fn contradictory_entries_are_rejected() {
    let key = |prepared| DiskKey::Document {
        prepared,
        collection: CollectionId(0),
        logical: b"k",
    };
    let live = EntryMeta::live(Cas(1), Expiry::NEVER, JSON_VALUE);
    let prepare = EntryMeta::prepare(Cas(1), Expiry::NEVER, JSON_VALUE, DurabilityLevel::Majority);
    let abort = EntryMeta::abort(Cas(1), 1, Seqno(1));
    let event = DiskKey::SystemEvent {
        kind: SystemEventKind::Scope,
        subject: 8,
    };
    let flipped = |entry: EntryMeta| EntryMeta {
        deleted: !entry.deleted,
        ..entry
    };
    for (entry, key) in [
        (live, key(true)),
        (prepare, key(false)),
        (abort, key(false)),
        (prepare, event),
        (flipped(prepare), key(true)),
        (flipped(abort), key(true)),
    ] {
        let got = entry.meaning(&key);
        assert!(
            matches!(got, Err(KvError::Entry { .. })),
            "{entry:?} under {key:?}: {got:?}"
        );
    }
}

#[test]
fn content_meta_of_values() {
    let json = Datatype::JSON;
    for (datatype, bytes, bits) in [
        (Datatype::RAW, 0, 0x03),
        (Datatype::RAW, 1, 0x83),
        (json, 1, 0x80),
        (json.union(Datatype::XATTR), 1, 0x80),
        (json.union(Datatype::SNAPPY), 1, 0x00),
        (Datatype::SNAPPY, 1, 0x03),
        (Datatype::XATTR, 1, 0x83),
    ] {
        let meta = ContentMeta::of_value(datatype, bytes);
        assert_eq!(meta.0, bits, "{datatype:?} of {bytes} bytes");
        assert_eq!(meta.is_json(), datatype.contains(json));
        assert_eq!(meta.is_compressed(), bits & 0x80 != 0);
    }
    // An empty value has no datatype, whatever the caller states.
    let entry = EntryMeta::live(
        Cas(1),
        Expiry::NEVER,
        ValueMeta {
            bytes: 0,
            ..JSON_VALUE
        },
    );
    assert_eq!(entry.rev_meta.datatype, Datatype::RAW);
    assert_eq!(entry.content_meta, ContentMeta::NOT_JSON);
    assert_eq!(datatype_of_value(json, 0), Datatype::RAW);
    assert_eq!(datatype_of_value(json, 1), json);
}

#[test]
fn any_content_meta_byte_decodes_or_fails() {
    let rev_meta = EntryMeta::live(Cas(1), Expiry::NEVER, JSON_VALUE)
        .rev_meta
        .encode();
    for bits in 0..=u8::MAX {
        match EntryMeta::decode(false, ContentMeta(bits), rev_meta.as_slice()) {
            Ok(entry) => assert_eq!((entry.content_meta.0, bits & 0x7c), (bits, 0)),
            Err(error) => {
                assert_eq!(error, KvError::ContentMeta { found: bits });
                assert_ne!(bits & 0x7c, 0);
            }
        }
    }
}

proptest! {
    #[test]
    fn round_trip(deleted: bool, datatype in datatypes(), bytes in 0..3_usize, rev_meta in rev_metas()) {
        let content_meta = ContentMeta::of_value(datatype, bytes);
        let entry = EntryMeta { deleted, content_meta, rev_meta };
        let encoded = rev_meta.encode();
        let again = EntryMeta::decode(deleted, content_meta, encoded.as_slice());
        prop_assert_eq!(again, Ok(entry));
    }

    #[test]
    fn entry_kind_is_independent_of_the_collection(
        deleted: bool,
        prepared: bool,
        rev_meta in rev_metas(),
    ) {
        let content_meta = ContentMeta::of_value(rev_meta.datatype, 1);
        let entry = EntryMeta { deleted, content_meta, rev_meta };
        let under = |id| DiskKey::Document { prepared, collection: CollectionId(id), logical: b"k" };
        prop_assert_eq!(entry.meaning(&under(0)), entry.meaning(&under(9)));
        // Only prepares have a SyncWrite, and all of them do.
        prop_assert!(entry.meaning(&under(0)).is_err() || prepared == rev_meta.sync_write.is_some());
    }
}
