use super::*;
use crate::format::bytes::{be48, pack_lengths};
use crate::tree::{ById, BySeqno, Local};

fn entry(key: &[u8], value: &[u8]) -> Vec<u8> {
    [&pack_lengths(key.len(), value.len())[..], key, value].concat()
}

fn node(type_byte: u8, entries: &[Vec<u8>]) -> Vec<u8> {
    [vec![type_byte], entries.concat()].concat()
}

fn child(key: &[u8], offset: u64) -> Vec<u8> {
    entry(key, &[&be48(offset)[..], &be48(1), &[0, 0]].concat())
}

#[test]
fn entries_of_a_sound_node_are_iterated() {
    let bytes = node(
        LEAF,
        &[entry(b"a", b"1"), entry(b"b", b""), entry(b"ba", b"333")],
    );
    assert_eq!(check::<Local>(9, &bytes), Ok(()));
    let node = Node::trusted(&bytes);
    let found: Vec<_> = node
        .entries()
        .map(|entry| (entry.key, entry.value))
        .collect();
    let expected: [(&[u8], &[u8]); 3] = [(b"a", b"1"), (b"b", b""), (b"ba", b"333")];
    assert_eq!(found, expected);
    assert!(node.entry(bytes.len()).is_none());
}

#[test]
fn each_kind_of_damage_is_reported() {
    let leaf = |entries: &[Vec<u8>]| check::<Local>(100, &node(LEAF, entries));
    let interior = |entries: &[Vec<u8>]| check::<Local>(100, &node(INTERIOR, entries));
    assert_eq!(check::<Local>(100, b""), Err(DamageKind::NodeEmpty));
    assert_eq!(leaf(&[]), Err(DamageKind::NodeEmpty));
    assert_eq!(
        check::<Local>(100, b"\x02rest"),
        Err(DamageKind::NodeType(2))
    );
    for order in [[&b"b"[..], b"a"], [b"a", b"a"], [b"aa", b"a"]] {
        let entries = order.map(|key| entry(key, b""));
        let second = 1 + entries[0].len() as u32;
        assert_eq!(
            leaf(&entries),
            Err(DamageKind::KeyOrder(second)),
            "{order:?}"
        );
    }
    let whole = node(LEAF, &[entry(b"a", b"1"), entry(b"b", b"22")]);
    for len in 2..whole.len() {
        let result = check::<Local>(100, &whole[..len]);
        match len {
            8 => assert_eq!(result, Ok(()), "the first entry ends there"),
            _ => assert!(
                matches!(result, Err(DamageKind::EntryLength(1 | 8))),
                "{len}: {result:?}"
            ),
        }
    }
    assert_eq!(interior(&[child(b"a", 99)]), Ok(()));
    for offset in [0, 100, 101, 1 << 40] {
        assert_eq!(
            interior(&[child(b"a", offset)]),
            Err(DamageKind::ChildOffset(offset))
        );
    }
    assert_eq!(
        interior(&[entry(b"a", &[1; 13])]),
        Err(DamageKind::EntryShape(1))
    );
    // Pointers of one tree are invalid in another.
    let bytes = node(INTERIOR, &[child(b"a", 9)]);
    assert_eq!(check::<ById>(100, &bytes), Err(DamageKind::EntryShape(1)));
    assert_eq!(
        check::<BySeqno>(100, &bytes),
        Err(DamageKind::EntryShape(1))
    );
    // Values that are too short for their tree.
    let bytes = node(LEAF, &[entry(b"a", &[0; 22])]);
    assert_eq!(check::<ById>(100, &bytes), Err(DamageKind::EntryShape(1)));
    for (key, value) in [
        (&b"12345"[..], &[0; 30][..]),
        (b"123456", &[0; 17]),
        (b"123456", &[0xff; 30]),
    ] {
        let bytes = node(LEAF, &[entry(key, value)]);
        assert_eq!(
            check::<BySeqno>(100, &bytes),
            Err(DamageKind::EntryShape(1))
        );
    }
}

#[test]
fn node_memory_is_reused_without_other_owners_only() {
    let packed = |bytes: &[u8]| {
        snap::raw::Encoder::new()
            .compress_vec(bytes)
            .expect("snappy")
    };
    let (one, two) = (
        node(LEAF, &[entry(b"a", b"1")]),
        node(LEAF, &[entry(b"b", b"2")]),
    );
    let mut reused = Node::decode::<Local>(9, &packed(&one)).expect("sound");
    let kept = reused.clone();
    reused
        .decode_again::<Local>(9, &packed(&two))
        .expect("sound");
    assert_eq!((kept.bytes(), reused.bytes()), (&one[..], &two[..]));
    let before = reused.bytes().as_ptr();
    reused
        .decode_again::<Local>(9, &packed(&one))
        .expect("sound");
    assert_eq!(
        (reused.bytes(), reused.bytes().as_ptr()),
        (&one[..], before)
    );
}
