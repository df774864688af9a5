//! Values and their attributes.

use crate::compress::deflate;
use crate::kv::{KvError, Value};
use kedge_types::Datatype;
use proptest::prelude::*;

/// The attributes in front of a document.
fn with_attributes(pairs: &[(&[u8], &[u8])], document: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    for (name, value) in pairs {
        all.extend_from_slice(&(name.len() as u32 + value.len() as u32 + 2).to_be_bytes());
        all.extend_from_slice(&[name, &b"\0"[..], value, b"\0"].concat());
    }
    [&(all.len() as u32).to_be_bytes()[..], &all, document].concat()
}

fn xattr_and(other: Datatype) -> Datatype {
    Datatype::XATTR.union(other)
}

#[test]
fn values_are_split_into_attributes_and_document() {
    let pairs: [(&[u8], &[u8]); 2] = [(b"_sync", b"{\"rev\":1}"), (b"user", b"7")];
    let plain = with_attributes(&pairs, b"[1]");
    let value = Value::decode(xattr_and(Datatype::JSON), &plain).expect("sound");
    assert_eq!(value.document(), b"[1]");
    assert_eq!(value.attributes().collect::<Vec<_>>(), pairs);

    let mut packed = Vec::new();
    deflate(&mut snap::raw::Encoder::new(), &plain, &mut packed);
    let value = Value::decode(xattr_and(Datatype::SNAPPY), &packed).expect("sound");
    assert_eq!(value.document(), b"[1]");
    assert_eq!(value.attributes().collect::<Vec<_>>(), pairs);

    let value = Value::decode(Datatype::RAW, &plain).expect("any bytes");
    assert_eq!((value.document(), value.attributes().count()), (&*plain, 0));
    // A deleted document that keeps its system attributes.
    let only = with_attributes(&pairs[..1], b"");
    let value = Value::decode(Datatype::XATTR, &only).expect("sound");
    assert_eq!(
        (value.document(), value.attributes().count()),
        (&b""[..], 1)
    );
    let all = Datatype::from_bits(7).expect("three bits");
    let value = Value::decode(all, b"").expect("readers look at the length first");
    assert_eq!(
        (value.document(), value.attributes().count()),
        (&b""[..], 0)
    );
}

#[test]
fn malformed_values_are_rejected() {
    let sound = with_attributes(&[(b"a", b"1")], b"");
    let refused = |body: &[u8], expected| {
        let result = Value::decode(Datatype::XATTR, body);
        assert_eq!(result, Err(KvError::Value { expected }), "{body:?}");
    };
    refused(b"\0\0\0", "the length of its attributes");
    for cut in 4..sound.len() {
        refused(&sound[..cut], "attributes that end within it");
    }
    for name in [&b""[..], b"a\0b"] {
        let body = with_attributes(&[(name, b"1")], b"");
        refused(&body, "attributes of names and values");
    }
    refused(b"\0\0\0\x04\0\0\0\x01", "attributes of names and values");
    refused(b"\0\0\0\x06\0\0\0\x02a\0", "attributes of names and values");
    refused(b"\xff\xff\xff\xff", "attributes that end within it");
    assert_eq!(
        Value::decode(Datatype::SNAPPY, &[0xff; 9]),
        Err(KvError::Value {
            expected: "sound Snappy data"
        })
    );
}

proptest! {
    #[test]
    fn arbitrary_bytes_decode_as_a_value_or_fail(bytes: Vec<u8>, bits in 0..8_u8) {
        let datatype = Datatype::from_bits(bits).expect("three bits");
        if let Ok(value) = Value::decode(datatype, &bytes) {
            let attributes: usize = value.attributes().map(|(name, value)| name.len() + value.len()).sum();
            prop_assert!(attributes + value.document().len() <= bytes.len().max(1) * 32);
        }
    }

    #[test]
    fn wrapped_documents_round_trip(
        pairs in proptest::collection::vec(("[a-z_]{1,9}", "[^\\x00]{0,20}"), 0..5),
        document: Vec<u8>,
    ) {
        let bytes: Vec<(&[u8], &[u8])> =
            pairs.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
        let body = with_attributes(&bytes, &document);
        let value = Value::decode(Datatype::XATTR, &body).expect("sound");
        prop_assert_eq!(value.document(), &*document);
        prop_assert_eq!(value.attributes().collect::<Vec<_>>(), bytes);
    }
}
