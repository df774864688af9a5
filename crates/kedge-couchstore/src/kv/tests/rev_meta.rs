//! Metadata, byte by byte.

use super::{datatypes, hex, levels, seqnos};
use crate::kv::{DeleteSource, KvError, RevMeta, SyncWrite};
use kedge_types::{Cas, Datatype, DurabilityLevel, Seqno};
use proptest::prelude::*;

fn meta(cas: u64) -> RevMeta {
    RevMeta {
        cas: Cas(cas),
        exptime: 0,
        flags: [0; 4],
        delete_source: DeleteSource::Explicit,
        datatype: Datatype::RAW,
        sync_write: None,
    }
}

fn check(bytes: &str, expected: RevMeta) {
    let bytes = hex(bytes);
    assert_eq!(RevMeta::decode(&bytes), Ok(expected));
    // The golden file is of a release that wrote no flex code; encoded metadata has one.
    let mut written = bytes;
    written[16] |= 1;
    assert_eq!(expected.encode().as_slice(), written);
}

#[test]
fn documents() {
    check(
        "17d0000000010000 00000000 02000006 01 01",
        RevMeta {
            flags: [2, 0, 0, 6],
            datatype: Datatype::JSON,
            ..meta(0x17d0_0000_0001_0000)
        },
    );
    check(
        "17d0000000070000 00000000 00000000 00 03",
        RevMeta {
            datatype: Datatype::JSON.union(Datatype::SNAPPY),
            ..meta(0x17d0_0000_0007_0000)
        },
    );
}

#[test]
fn tombstone_of_an_expired_document() {
    check(
        "17d0000000270000 5f5e12bc 00000000 80 00",
        RevMeta {
            exptime: 1_600_000_700,
            delete_source: DeleteSource::Ttl,
            ..meta(0x17d0_0000_0027_0000)
        },
    );
}

#[test]
fn prepares_and_an_abort() {
    let pending = |level, is_delete| Some(SyncWrite::Pending { level, is_delete });
    for (cas, details, sync_write) in [
        (
            0x20,
            "00 000000000002",
            pending(DurabilityLevel::Majority, false),
        ),
        (
            0x21,
            "00 000000000006",
            pending(DurabilityLevel::PersistToMajority, false),
        ),
        (
            0x22,
            "00 000000000005",
            pending(DurabilityLevel::MajorityAndPersistOnActive, true),
        ),
    ] {
        let bytes = format!("17d00000{cas:04x}0000 00000000 00000000 00 00 {details}");
        let cas = 0x17d0_0000_0000_0000 | cas << 16;
        check(
            &bytes,
            RevMeta {
                sync_write,
                ..meta(cas)
            },
        );
    }
    check(
        "17d0000000250000 5f5e11f4 00000000 00 00 02 000000000023",
        RevMeta {
            exptime: 1_600_000_500,
            sync_write: Some(SyncWrite::Abort { prepare: Seqno(35) }),
            ..meta(0x17d0_0000_0025_0000)
        },
    );
}

#[test]
fn unused_byte_of_version_2_is_ignored() {
    let mut bytes = meta(5).encode().as_slice().to_vec();
    bytes.push(0xff);
    assert_eq!(RevMeta::decode(&bytes), Ok(meta(5)));
}

#[test]
fn low_bits_of_the_flex_code_are_ignored() {
    let mut bytes = meta(5).encode().as_slice().to_vec();
    for code in 0..0x80 {
        bytes[16] = code;
        assert_eq!(RevMeta::decode(&bytes), Ok(meta(5)));
    }
}

#[test]
fn other_metadata_lengths_are_rejected() {
    let bytes = [0; 40];
    for len in 0..bytes.len() {
        let expected = match len {
            18 | 19 => Ok(meta(0)),
            // All zeros is a prepare of level 0, which is undefined.
            25 => Err(KvError::DurabilityLevel { found: 0 }),
            16 => Err(KvError::RevMetaVersion0),
            found => Err(KvError::RevMetaLength { found }),
        };
        assert_eq!(RevMeta::decode(&bytes[..len]), expected, "{len} bytes");
    }
}

#[test]
fn unknown_operations_and_levels_are_rejected() {
    let bytes = hex("17d0000000250000 5f5e11f4 00000000 00 00 02 000000000023");
    let changed = |at: usize, to: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = to;
        RevMeta::decode(&bytes)
    };
    assert_eq!(changed(17, 8), Err(KvError::Datatype { found: 8 }));
    assert_eq!(
        changed(18, 3),
        Err(KvError::SyncWriteOperation { found: 3 })
    );
    // As a prepare, the details have level 17.
    assert_eq!(changed(18, 0), Err(KvError::DurabilityLevel { found: 17 }));
}

#[test]
#[should_panic(expected = "fits 48 bits")]
fn encoding_an_impossible_seqno_panics() {
    let prepare = Seqno(1 << 48);
    let sync_write = Some(SyncWrite::Abort { prepare });
    let _ = RevMeta {
        sync_write,
        ..meta(1)
    }
    .encode();
}

pub(super) fn sync_writes() -> impl Strategy<Value = SyncWrite> {
    prop_oneof![
        (levels(), any::<bool>())
            .prop_map(|(level, is_delete)| SyncWrite::Pending { level, is_delete }),
        seqnos().prop_map(|prepare| SyncWrite::LegacyCommit { prepare }),
        seqnos().prop_map(|prepare| SyncWrite::Abort { prepare }),
    ]
}

prop_compose! {
    pub(super) fn rev_metas()(
        cas: u64,
        exptime: u32,
        flags: [u8; 4],
        by_ttl: bool,
        datatype in datatypes(),
        sync_write in prop::option::of(sync_writes()),
    ) -> RevMeta {
        let delete_source = if by_ttl { DeleteSource::Ttl } else { DeleteSource::Explicit };
        RevMeta { cas: Cas(cas), exptime, flags, delete_source, datatype, sync_write }
    }
}

proptest! {
    #[test]
    fn round_trip(meta in rev_metas()) {
        let bytes = meta.encode();
        prop_assert_eq!(bytes.as_slice().len(), if meta.sync_write.is_some() { 25 } else { 18 });
        prop_assert_eq!(RevMeta::decode(bytes.as_slice()), Ok(meta));
    }

    #[test]
    fn decoded_values_encode_to_the_same_bytes(bytes in prop::collection::vec(any::<u8>(), 18..26)) {
        if let Ok(meta) = RevMeta::decode(&bytes) {
            let mut expected = bytes;
            expected[16] = expected[16] & 0x80 | 1;
            if expected.len() == 19 {
                expected.pop();
            }
            let written = meta.encode();
            prop_assert_eq!(written.as_slice(), expected);
        }
    }
}
