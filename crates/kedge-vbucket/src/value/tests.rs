//! Tests of value validation and compression.

use super::*;
use kedge_types::limits::SYSTEM_XATTR_BYTES_MAX;

fn compress(bytes: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(bytes).unwrap()
}

#[test]
fn json_datatype_is_detected_not_taken_from_the_client() {
    for (text, said, expected) in [
        (&br#"{"a":1}"#[..], Datatype::RAW, Datatype::JSON),
        (b"not json", Datatype::JSON, Datatype::RAW),
        (b"12", Datatype::RAW, Datatype::JSON),
        (b"", Datatype::JSON, Datatype::RAW),
    ] {
        let value = NewValue::check(text, said, MinRatio::DEFAULT).unwrap();
        assert_eq!((value.datatype, &*value.bytes), (expected, text));
    }
}

#[test]
fn compressed_values_are_validated_and_kept_by_ratio() {
    let json = br#"{"text":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}"#;
    let packed = compress(json);
    let kept = NewValue::check(&packed, Datatype::SNAPPY, MinRatio::DEFAULT).unwrap();
    assert_eq!(kept.datatype, Datatype::JSON.union(Datatype::SNAPPY));
    assert_eq!(&*kept.bytes, &packed[..]);
    let plain = NewValue::check(&packed, Datatype::SNAPPY, MinRatio::NEVER).unwrap();
    assert_eq!((plain.datatype, &*plain.bytes), (Datatype::JSON, &json[..]));
    let grown = compress(b"xyz");
    let value = NewValue::check(&grown, Datatype::SNAPPY, MinRatio::DEFAULT).unwrap();
    assert_eq!(
        (value.datatype, &*value.bytes),
        (Datatype::RAW, &b"xyz"[..]),
        "larger than plain"
    );
}

#[test]
fn value_is_compressed_if_the_ratio_is_reached() {
    // A third of the value is one repeated byte.
    let mut random = 1u32;
    let mut next = || {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 24) as u8
    };
    let mut value = vec![b'x'; 1_000];
    value.extend((0..2_000).map(|_| next()));
    let mut packer = ValueCompressor::default();
    let ratio = |ratio| MinRatio::new(ratio).unwrap();
    let packed = packer.pack(&value, ratio(1.4)).unwrap().to_vec();
    assert_eq!(inflate(&packed).unwrap(), value);
    assert_eq!(packer.pack(&value, ratio(1.6)), None);
    let kept = |min| {
        let checked = NewValue::check(&packed, Datatype::SNAPPY, min).unwrap();
        checked.datatype.contains(Datatype::SNAPPY)
    };
    assert!(kept(ratio(1.4)) && !kept(ratio(1.6)));
    assert_eq!(packer.pack(b"", ratio(1.0)), None);
    assert_eq!(packer.pack(&[b'x'; 9_999], MinRatio::NEVER), None);
    assert_eq!((MinRatio::new(0.99), MinRatio::new(f64::NAN)), (None, None));
    assert_eq!(ratio(1.2), MinRatio::DEFAULT);
}

/// Returns a value with the given attribute pairs, without validation.
fn whole(pairs: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut section = Vec::new();
    for (name, text) in pairs {
        section.extend((name.len() as u32 + text.len() as u32 + 2).to_be_bytes());
        section.extend([name.as_bytes(), b"\0", text.as_bytes(), b"\0"].concat());
    }
    let len = (section.len() as u32).to_be_bytes();
    [&len[..], &section, body].concat()
}

#[test]
fn xattrs_are_validated_with_the_body() {
    let never = MinRatio::NEVER;
    let both = Datatype::XATTR.union(Datatype::JSON);
    let good = whole(&[("_sync", "{}"), ("user", "[1]")], b"{}");
    for (value, expected) in [
        (good.clone(), Ok((both, good.clone()))),
        (
            whole(&[("u", "1")], b"text"),
            Ok((Datatype::XATTR, whole(&[("u", "1")], b"text"))),
        ),
        (
            whole(&[("u", "1")], b""),
            Ok((Datatype::XATTR, whole(&[("u", "1")], b""))),
        ),
        (whole(&[], b"{}"), Ok((Datatype::JSON, b"{}".to_vec()))),
        (whole(&[], b""), Ok((Datatype::RAW, vec![]))),
        (
            whole(&[("u", "1"), ("u", "1")], b""),
            Err(Status::XattrInvalid),
        ),
        (whole(&[("u", "text")], b""), Err(Status::XattrInvalid)),
        (whole(&[("u", "")], b""), Err(Status::XattrInvalid)),
        (whole(&[("$u", "1")], b""), Err(Status::XattrInvalid)),
        (
            whole(&[("sixteen letters!", "1")], b""),
            Err(Status::XattrInvalid),
        ),
        (good[..good.len() - 3].to_vec(), Err(Status::XattrInvalid)),
        (b"\0\0\0".to_vec(), Err(Status::XattrInvalid)),
    ] {
        let (xattr, packed) = (Datatype::XATTR, compress(&value));
        let plain = NewValue::check_whole(&value, xattr, never);
        let plain = plain.map(|it| (it.datatype, it.bytes.into_owned()));
        assert_eq!(plain, expected, "{value:?}");
        let inflated = NewValue::check_whole(&packed, xattr.union(Datatype::SNAPPY), never);
        let inflated = inflated.map(|it| (it.datatype, it.bytes.into_owned()));
        assert_eq!(inflated, expected, "{value:?}, compressed");
    }
    let long = whole(&[("u", "1")], &[b'x'; 1_000]);
    let packed = compress(&long);
    let snappy = Datatype::XATTR.union(Datatype::SNAPPY);
    let kept = NewValue::check_whole(&packed, snappy, MinRatio::DEFAULT).unwrap();
    assert_eq!((kept.datatype, &*kept.bytes), (snappy, &packed[..]));
}

#[test]
fn deletion_value_may_have_only_xattrs() {
    let both = whole(&[("_s", "1"), ("u", "2")], b"");
    let kept = NewValue::check_deletion(&both, Datatype::XATTR).unwrap();
    assert_eq!((kept.datatype, &*kept.bytes), (Datatype::XATTR, &both[..]));
    let packed = compress(&both);
    let snappy = Datatype::XATTR.union(Datatype::SNAPPY);
    let kept = NewValue::check_deletion(&packed, snappy).unwrap();
    assert_eq!((kept.datatype, &*kept.bytes), (Datatype::XATTR, &both[..]));
    for (value, datatype) in [(vec![], Datatype::RAW), (whole(&[], b""), Datatype::XATTR)] {
        let kept = NewValue::check_deletion(&value, datatype).unwrap();
        assert_eq!((kept.datatype, &*kept.bytes), (Datatype::RAW, &b""[..]));
    }
    for (value, datatype) in [
        (b"{}".to_vec(), Datatype::RAW),
        (whole(&[], b"{}"), Datatype::XATTR),
        (whole(&[("_s", "1")], b"x"), Datatype::XATTR),
    ] {
        let refused = NewValue::check_deletion(&value, datatype);
        assert_eq!(refused.unwrap_err(), Status::Invalid, "{value:?}");
    }
}

#[test]
fn xattrs_have_size_limits_with_and_without_the_body() {
    let digits = |count: usize| "1".repeat(count);
    // A length field, the name and two zero bytes.
    let beside = 4 + 2 + 2;
    for (name, text, body, fits) in [
        ("us", 1, VALUE_BYTES_MAX - beside - 1, true),
        ("us", 1, VALUE_BYTES_MAX - beside, false),
        ("_s", SYSTEM_XATTR_BYTES_MAX - beside, VALUE_BYTES_MAX, true),
        ("_s", SYSTEM_XATTR_BYTES_MAX - beside + 1, 0, false),
        ("_s", 1, VALUE_BYTES_MAX + 1, false),
    ] {
        let value = whole(&[(name, &digits(text))], &vec![b'x'; body]);
        let checked = NewValue::check_whole(&value, Datatype::XATTR, MinRatio::NEVER);
        let expected = if fits { Ok(()) } else { Err(Status::TooBig) };
        assert_eq!(checked.map(drop), expected, "{name} {text} {body}");
    }
}

#[test]
fn values_that_contradict_their_datatype_are_refused() {
    let off = MinRatio::NEVER;
    assert_eq!(
        NewValue::check(b"\xff\xff\xff", Datatype::SNAPPY, off).unwrap_err(),
        Status::Invalid
    );
    let claims_a_gigabyte = [0x80, 0x80, 0x80, 0x80, 0x04, 0x00];
    assert_eq!(
        NewValue::check(&claims_a_gigabyte, Datatype::SNAPPY, off).unwrap_err(),
        Status::TooBig
    );
    assert_eq!(
        NewValue::check(b"x", Datatype::XATTR, off).unwrap_err(),
        Status::Invalid
    );
    let large = vec![b'x'; VALUE_BYTES_MAX + 1];
    assert_eq!(
        NewValue::check(&large, Datatype::RAW, off).unwrap_err(),
        Status::TooBig
    );
    let bomb = compress(&large);
    assert_eq!(
        NewValue::check(&bomb, Datatype::SNAPPY, off).unwrap_err(),
        Status::TooBig
    );
}
