//! The examples are bytes of the golden file `rich.couch.1`, which Couchbase's library wrote.

mod entry;
mod hostile;
mod key;
mod local;
mod manifest;
mod rev_meta;
mod value;
mod vbstate;

use kedge_types::{CollectionId, Datatype, DurabilityLevel, Seqno};
use proptest::prelude::*;

/// Returns bytes from hexadecimal text with spaces.
pub(super) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
    let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16);
    digits
        .chunks(2)
        .map(|pair| byte(pair).expect("hexadecimal"))
        .collect()
}

pub(super) fn seqnos() -> impl Strategy<Value = Seqno> {
    prop_oneof![Just(0), 0..1000_u64, 0..1_u64 << 48].prop_map(Seqno)
}

pub(super) fn collections() -> impl Strategy<Value = CollectionId> {
    prop_oneof![Just(0), 8..200_u32, 8..=u32::MAX].prop_map(CollectionId)
}

pub(super) fn datatypes() -> impl Strategy<Value = Datatype> {
    (0..8_u8).prop_map(|bits| Datatype::from_bits(bits).expect("three bits"))
}

pub(super) fn levels() -> impl Strategy<Value = DurabilityLevel> {
    (1..=3_u8).prop_map(|level| DurabilityLevel::from_wire(level).expect("a level"))
}
