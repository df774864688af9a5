use proptest::prelude::*;

use super::*;
use crate::compress::{deflate, inflate};
use crate::format::bytes::{be48, pack_lengths};
use crate::format::entry::EntryFields;
use crate::tree::{ById, BySeqno, Local};

fn node(type_byte: u8, entries: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut node = vec![type_byte];
    for (key, value) in entries {
        node.extend_from_slice(&pack_lengths(key.len(), value.len()));
        node.extend_from_slice(key);
        node.extend_from_slice(value);
    }
    node
}

fn packed<T: Tree>(node: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let len = pack::<T>(node, &mut snap::raw::Encoder::new(), &mut out);
    out.truncate(len);
    out
}

fn survives<T: Tree>(node: &[u8]) -> Result<(), TestCaseError> {
    prop_assert_eq!(inflate(&packed::<T>(node), 1 << 30), Ok(node.to_vec()));
    Ok(())
}

fn by_seqno_value(key: &[u8], meta: &[u8]) -> Vec<u8> {
    let fields = EntryFields {
        seqno: 0,
        rev: 1,
        body: 4711,
        body_bytes: 100,
        deleted: false,
        content_meta: 0,
    };
    let mut value = Vec::new();
    fields.put_seqno(key.len(), &mut value);
    value.extend_from_slice(key);
    value.extend_from_slice(meta);
    value
}

/// Bytes of few values, so that many of them are equal.
fn some_bytes(len: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(0..3_u8, len)
}

proptest! {
    #[test]
    fn packed_nodes_round_trip(
        entries in prop::collection::vec((some_bytes(0..300), some_bytes(0..400)), 1..40),
        type_byte in 0..2_u8,
    ) {
        let node = node(type_byte, &entries);
        survives::<ById>(&node)?;
        survives::<Local>(&node)?;
    }

    #[test]
    fn packed_seqno_leaves_round_trip(
        entries in prop::collection::vec((some_bytes(1..100), some_bytes(0..40)), 1..40),
    ) {
        let entries: Vec<_> = entries.iter().enumerate().map(|(seqno, (key, meta))| {
            (be48(seqno as u64).to_vec(), by_seqno_value(key, meta))
        }).collect();
        survives::<BySeqno>(&node(1, &entries))?;
    }
}

#[test]
fn packed_long_entries_round_trip() {
    for len in [60, 61, 255, 256, 257, 2047, 2048, 65_535, 65_536, 100_000] {
        let entries: Vec<_> = (0..3_u8).map(|n| (vec![n], vec![7; len])).collect();
        survives::<ById>(&node(1, &entries)).expect("it survives");
    }
}

#[test]
fn typical_leaf_is_packed_smaller_than_by_snappy() {
    let entries: Vec<_> = (0..8_u64)
        .map(|n| {
            let key = format!("\0key-{:017}", 1000 + n).into_bytes();
            let mut value = Vec::new();
            let fields = EntryFields {
                seqno: 77_000 + n * 31,
                rev: 1,
                body: 900_000 + n * 525,
                body_bytes: 525,
                deleted: false,
                content_meta: 0x83,
            };
            fields.put_id(&mut value);
            value.extend_from_slice(&(1_715_871_458_028_290_048 + n * 65_536 * 977).to_be_bytes());
            value.extend_from_slice(&[0, 0, 0, 0, 2, 0, 0, 6, 1, 1]);
            (key, value)
        })
        .collect();
    let node = node(1, &entries);
    let mut general = Vec::new();
    deflate(&mut snap::raw::Encoder::new(), &node, &mut general);
    let ours = packed::<ById>(&node);
    assert!(
        ours.len() <= general.len(),
        "{} bytes of {}, a general compressor makes {}",
        ours.len(),
        node.len(),
        general.len()
    );
}
