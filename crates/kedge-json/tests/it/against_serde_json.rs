//! Comparison with `serde_json`. Its `RawValue` is checked without recursion and thus without a depth limit, accepts
//! unpaired surrogates like this crate, and ignores the size of numbers.

use kedge_json::{MAX_DEPTH, is_json, validate};
use proptest::prelude::*;
use serde_json::value::RawValue;

fn oracle(text: &[u8]) -> bool {
    serde_json::from_slice::<&RawValue>(text).is_ok()
}

fn agrees(text: &[u8]) -> Result<(), TestCaseError> {
    let shown = text.escape_ascii();
    let result = validate(text);
    prop_assert_eq!(result.is_ok(), oracle(text), "{}", shown);
    prop_assert_eq!(result.is_ok(), is_json(text), "{}", shown);
    if let Err(error) = result {
        prop_assert!(error.offset <= text.len(), "{} {}", error, shown);
    }
    Ok(())
}

/// Pieces of JSON and of nearly valid JSON.
pub(crate) fn piece() -> impl Strategy<Value = &'static [u8]> {
    prop::sample::select(vec![
        b"{".as_slice(),
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"\"",
        b"\"a\"",
        b"\"a\":",
        b"\\",
        b"\\u00",
        b"\\uD83D",
        b"\\n",
        b" ",
        b"\n",
        b"\x00",
        b"0",
        b"1",
        b"-",
        b"+",
        b".",
        b"e",
        b"E",
        b"true",
        b"null",
        b"abcdefgh",
        b"\xc3\xa9",
        b"\xc3",
        b"\xa9",
        b"\xed\xa0\x80",
        b"\xf0\x9f\x98\x80",
    ])
}

/// JSON values, formatted with or without white space.
pub(crate) fn value() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<f64>().prop_map(Into::into),
        any::<String>().prop_map(Into::into),
    ];
    leaf.prop_recursive(6, 48, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Into::into),
            prop::collection::hash_map(any::<String>(), inner, 0..8)
                .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn validation_agrees_on_random_bytes(text in prop::collection::vec(any::<u8>(), 0..64)) {
        agrees(&text)?;
    }

    #[test]
    fn validation_agrees_on_pieces_of_json(pieces in prop::collection::vec(piece(), 0..16)) {
        agrees(&pieces.concat())?;
    }

    #[test]
    fn validation_agrees_inside_a_string(pieces in prop::collection::vec(piece(), 0..16)) {
        let text = [b"{\"a\":\"".as_slice(), &pieces.concat(), b"\"}"].concat();
        agrees(&text)?;
    }

    #[test]
    fn validation_agrees_on_values_and_mutations(
        value in value(),
        pretty in any::<bool>(),
        place in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut text = if pretty {
            serde_json::to_vec_pretty(&value).unwrap()
        } else {
            serde_json::to_vec(&value).unwrap()
        };
        prop_assert_eq!(validate(&text), Ok(()));
        let at = place.index(text.len());
        agrees(&text[..at])?;
        text[at] = byte;
        agrees(&text)?;
        text.remove(at);
        agrees(&text)?;
    }

    #[test]
    fn validation_agrees_at_any_depth(depth in 0..2 * MAX_DEPTH) {
        let text = [b"[".repeat(depth), b"0".to_vec(), b"]".repeat(depth)].concat();
        prop_assert!(oracle(&text));
        prop_assert_eq!(is_json(&text), depth <= MAX_DEPTH);
    }
}
