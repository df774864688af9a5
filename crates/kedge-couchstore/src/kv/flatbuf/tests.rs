//! The layout alone: alignment, and each kind of invalid offset.

use super::{FlatField, FlatTable, finish};
use crate::kv::KvError;
use crate::kv::tests::hex;

/// One table with a field of each type.
fn sample() -> Vec<u8> {
    finish(&[
        FlatField::Bool(true),
        FlatField::U64(0x0807_0605_0403_0201),
        FlatField::U32(0),
        FlatField::Str("name"),
        FlatField::U32(7),
        FlatField::Tables(vec![
            vec![FlatField::U32(1)],
            vec![FlatField::U64(0), FlatField::U64(2)],
        ]),
        FlatField::Bool(false),
    ])
}

#[test]
fn flatbuffers_round_trip() {
    let bytes = sample();
    let root = FlatTable::root(&bytes).expect("a table");
    assert_eq!(root.bool(0), Ok(true));
    assert_eq!(root.u64(1), Ok(0x0807_0605_0403_0201));
    assert_eq!(root.u32(2), Ok(0));
    assert_eq!(root.string(3), Ok("name"));
    assert_eq!(root.u32(4), Ok(7));
    assert_eq!(root.bool(6), Ok(false));
    assert_eq!(root.u64(1000), Ok(0));
    let tables = root.tables(5).expect("a vector");
    assert_eq!(tables.len(), 2);
    let tables: Vec<_> = tables.map(|table| table.expect("a table")).collect();
    assert_eq!((tables[0].u32(0), tables[1].u64(1)), (Ok(1), Ok(2)));
    assert_eq!(root.tables(6).map(|none| none.len()), Ok(0));
    assert!(matches!(root.string(2), Err(KvError::Flatbuffer { .. })));
}

#[test]
fn flatbuffer_has_the_documented_layout() {
    // The root is at 12. Its vtable of 8 bytes is at 4: a table of 12 bytes, no field 0, field 1 at 4.
    let expected = hex("0c000000 0800 0c00 0000 0400 08000000 0900000000000000");
    assert_eq!(finish(&[FlatField::U32(0), FlatField::U64(9)]), expected);
}

#[test]
fn flatbuffer_fields_are_aligned() {
    let bytes = sample();
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
    let u16_at = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    let root = u32_at(0) as usize;
    let vtable = root - u32_at(root) as usize;
    assert_eq!((root % 4, vtable % 2), (0, 0));
    let field = |index: usize| root + u16_at(vtable + 4 + 2 * index);
    assert_eq!(field(1) % 8, 0, "the number of 8 bytes");
    for index in [3, 4, 5] {
        assert_eq!(field(index) % 4, 0, "field {index}");
    }
    for index in [3, 5] {
        let to = field(index) + u32_at(field(index)) as usize;
        assert_eq!(to % 4, 0, "what field {index} leads to");
    }
    // The last field has its default, so the vtable ends before it.
    assert_eq!(u16_at(vtable), 4 + 2 * 6);
}

#[test]
fn flatbuffer_damage_is_reported_with_its_offset() {
    // Root at 12 with its vtable at 4; field 0 is a string.
    let good = hex("0c000000 0600 0800 0400 0000 08000000 04000000 02000000 6162 00");
    let root = |bytes: &[u8]| FlatTable::root(bytes).map(|_| ());
    assert_eq!(
        FlatTable::root(&good).and_then(|table| table.string(0)),
        Ok("ab")
    );
    let damage = |offset, expected| KvError::Flatbuffer { offset, expected };
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    for (bytes, expected) in [
        (vec![], damage(0, "the offset of the root table")),
        (with(0, 28), damage(0, "the offset of the root table")),
        (with(0, 24), damage(24, "a table")),
        (with(12, 13), damage(12, "a distance to a table's vtable")),
        (with(15, 0x80), damage(12 + (1 << 31) - 8, "a vtable")),
        (with(4, 3), damage(4, "the length of a vtable")),
        (with(4, 200), damage(4, "the length of a vtable")),
        (with(6, 3), damage(6, "the length of a table")),
        (with(6, 200), damage(6, "the length of a table")),
    ] {
        assert_eq!(root(&bytes), Err(expected));
    }
    for (bytes, expected) in [
        (with(8, 3), damage(12, "a field within its table")),
        (with(8, 5), damage(12, "a field within its table")),
        (with(16, 200), damage(16, "the offset of a string")),
        (
            with(20, 3),
            damage(20, "the length of a string, and a zero behind it"),
        ),
        (
            with(20, 200),
            damage(20, "the length of a string, and a zero behind it"),
        ),
        (
            with(26, 1),
            damage(20, "the length of a string, and a zero behind it"),
        ),
        (with(24, 0xff), damage(20, "a string in UTF-8")),
    ] {
        assert_eq!(
            FlatTable::root(&bytes).and_then(|table| table.string(0)),
            Err(expected)
        );
    }
    // As a vector, the string states two tables and has no room for them.
    let tables = |table: FlatTable<'_>| table.tables(0).map(|tables| tables.len());
    assert_eq!(
        FlatTable::root(&good).and_then(tables),
        Err(damage(20, "the count of a vector"))
    );
}
