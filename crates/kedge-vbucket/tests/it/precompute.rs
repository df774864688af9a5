//! Tests of writes of long values that are prepared before the vBucket is locked.

use crate::tools::*;
use kedge_types::limits::LONG_VALUE_BYTES;
use kedge_types::{Cas, Datatype, DocKey, Expiry, RevSeqno, Status};
use kedge_vbucket::{
    ConcatChange, ConcatMode, Item, MinRatio, Modify, NewValue, Patches, PrebuiltItem,
    StoreKeepingXattrs, StoreMode, VBucket, WithMetaArgs, any_long_value,
};

const AT: u64 = 100;

fn long(fill: u8) -> Vec<u8> {
    vec![fill; LONG_VALUE_BYTES]
}

fn item(vb: &VBucket, key: &DocKey) -> Item {
    vb.store().peek(key).unwrap()
}

/// Asserts that the stored item is the prebuilt one.
fn assert_used(vb: &VBucket, key: &DocKey, ahead: &PrebuiltItem<'_>, value: &[u8]) {
    let stored = item(vb, key);
    assert!(stored.value() == value);
    assert!(ahead.is_used());
    assert_eq!(stored.key(), key.as_bytes());
    assert!(stored.is_long() && any_long_value());
}

#[test]
fn prebuilt_item_is_stored_without_a_copy() {
    let vb = &mut vbucket();
    let k = key("k");
    let bytes = long(b'1');
    let new = value(&bytes);
    let ahead = PrebuiltItem::of(&k, &new.bytes).unwrap();
    let w = write(&k);
    assert!(!ahead.is_used());
    let expiry = Expiry(u32::try_from(at(AT).unix_secs()).unwrap());
    let store = |vb: &mut VBucket, ahead, new: &NewValue<'_>, flags| {
        let with = w.with_prebuilt(Some(ahead));
        done(
            vb.at(at(0))
                .store(&with, StoreMode::Set, new, flags, expiry)
                .unwrap(),
        )
    };
    let mutated = store(vb, &ahead, &new, 7);
    assert_used(vb, &k, &ahead, &bytes);
    let there = item(vb, &k);
    let found = (there.cas(), there.seqno(), there.flags(), there.expiry());
    assert_eq!(found, (mutated.cas, mutated.seqno, 7, expiry));
    assert_eq!(there.rev_seqno(), RevSeqno(1));
    // A prebuilt item is used once, and only for the slice that it was copied from.
    store(vb, &ahead, &new, 8);
    assert_eq!(item(vb, &k).flags(), 8);
    let (other, of_other) = (long(b'2'), PrebuiltItem::of(&k, &bytes).unwrap());
    let new = value(&other);
    store(vb, &of_other, &new, 9);
    assert!(item(vb, &k).value() == other && !of_other.is_used());
    assert!(PrebuiltItem::of(&k, b"short").is_none());
}

#[test]
fn precomputed_change_is_discarded_if_the_document_changed() {
    for changed in [false, true] {
        let vb = &mut vbucket();
        let k = key("k");
        let bytes = long(b'1');
        set(vb, at(0), "k", &bytes);
        let there = item(vb, &k);
        let append = ConcatChange::new(ConcatMode::Append, b"!");
        append.prepare(&k, Some(&there));
        let touch = PrebuiltItem::of(&k, there.value()).unwrap();
        let lock = PrebuiltItem::of(&k, there.value()).unwrap();
        let before = if changed { long(b'2') } else { bytes };
        if changed {
            set(vb, at(0), "k", &before);
        }
        let expiry = Expiry(u32::try_from(at(AT).unix_secs()).unwrap());
        let w = write(&k);
        done(
            vb.at(at(1))
                .touch(&w.with_prebuilt(Some(&touch)), expiry)
                .unwrap(),
        );
        assert_eq!(touch.is_used(), !changed);
        assert!(item(vb, &k).value() == before);
        assert_eq!(item(vb, &k).expiry(), expiry);
        let locked = vb
            .at(at(1))
            .get_and_lock(&k, 9, Some(&lock), |document| document.cas);
        let locked = Cas(done(locked.unwrap()).get());
        assert!(item(vb, &k).value() == before);
        let with_cas = kedge_vbucket::StepWrite { cas: locked, ..w };
        done(vb.at(at(1)).concat_with(&with_cas, &append).unwrap());
        assert!(item(vb, &k).value() == [&before[..], b"!"].concat());
        assert_eq!(item(vb, &k).expiry(), expiry);
    }
}

/// Stores a document with an attribute and this body.
fn with_attribute(vb: &mut VBucket, key: &DocKey, body: &[u8]) {
    let bytes = [&crate::xattrs::section(&[("x", "1")])[..], body].concat();
    let both = Datatype::XATTR;
    let value = NewValue::check_whole(&bytes, both, MinRatio::NEVER).unwrap();
    let given = WithMetaArgs {
        cas: Cas(0x99),
        rev: RevSeqno(5),
        flags: 3,
        expiry: Expiry::NEVER,
        deleted: None,
        only_new: false,
        new_cas: true,
        rule: None,
    };
    let written = vb
        .at(at(0))
        .write_with_meta(&write(key), &given, &value, &Patches::default());
    done(written.unwrap());
}

#[test]
fn precomputed_store_keeps_existing_xattrs() {
    let k = key("k");
    let bytes = long(b'1');
    let new = value(&bytes);
    let section = crate::xattrs::section(&[("x", "1")]);
    // (state of the document at the store, mode, expected value)
    type Case<'a> = (&'a str, StoreMode, Result<Vec<u8>, Status>);
    let both = || [&section[..], &bytes].concat();
    let cases: [Case<'_>; 6] = [
        ("same", StoreMode::Set, Ok(both())),
        ("same", StoreMode::Add, Err(Status::KeyExists)),
        ("other body", StoreMode::Replace, Ok(both())),
        ("no attributes", StoreMode::Set, Ok(bytes.clone())),
        ("deleted", StoreMode::Set, Ok(bytes.clone())),
        ("deleted", StoreMode::Replace, Err(Status::KeyNotFound)),
    ];
    for (there, mode, expected) in cases {
        let vb = &mut vbucket();
        with_attribute(vb, &k, b"old");
        let change = StoreKeepingXattrs::new(mode, &new, 7);
        change.prepare(&k, Some(&item(vb, &k)));
        match there {
            "other body" => set(vb, at(0), "k", b"other").seqno,
            "same" => vb.high_seqno(),
            _ => done(vb.at(at(0)).delete(&write(&k)).unwrap()).seqno,
        };
        if there == "no attributes" {
            set(vb, at(0), "k", b"other");
        }
        let expiry = Expiry(u32::try_from(at(AT).unix_secs()).unwrap());
        let stored = vb.at(at(0)).modify(&write(&k), expiry, &change);
        assert_eq!(
            stored.map(|_| ()),
            expected.as_ref().map(|_| ()).map_err(|error| *error)
        );
        if let Ok(expected) = expected {
            let there = item(vb, &k);
            assert!(there.value() == expected);
            assert_eq!((there.flags(), there.expiry()), (7, expiry));
        }
    }
}

#[test]
fn precomputed_append_fails_after_a_deletion() {
    let vb = &mut vbucket();
    let k = key("k");
    set(vb, at(0), "k", &long(b'1'));
    let append = ConcatChange::new(ConcatMode::Append, b"!");
    append.prepare(&k, Some(&item(vb, &k)));
    done(vb.at(at(0)).delete(&write(&k)).unwrap());
    let result = vb.at(at(0)).concat_with(&write(&k), &append);
    assert_eq!(result, Err(Status::NotStored));
    // A result for a missing document is not used for a document that was created since.
    let append = ConcatChange::new(ConcatMode::Append, b"!");
    append.prepare(&k, None);
    set(vb, at(0), "k", b"new");
    done(vb.at(at(0)).concat_with(&write(&k), &append).unwrap());
    assert_eq!(get(vb, at(0), "k").unwrap(), b"new!");
}

#[test]
fn prebuilt_item_takes_the_metadata_of_a_write_with_meta() {
    let vb = &mut vbucket();
    let k = key("k");
    let bytes = long(b'1');
    let new = value(&bytes);
    let ahead = PrebuiltItem::of(&k, &new.bytes).unwrap();
    assert!(!ahead.is_used());
    let given = WithMetaArgs {
        cas: Cas(0x99),
        rev: RevSeqno(5),
        flags: 3,
        expiry: Expiry::NEVER,
        deleted: None,
        only_new: false,
        new_cas: false,
        rule: None,
    };
    let w = write(&k);
    let with = w.with_prebuilt(Some(&ahead));
    let written = vb
        .at(at(0))
        .write_with_meta(&with, &given, &new, &Patches::default());
    done(written.unwrap());
    assert_used(vb, &k, &ahead, &bytes);
    let there = item(vb, &k);
    assert_eq!((there.cas(), there.rev_seqno()), (Cas(0x99), RevSeqno(5)));
    assert_eq!((there.flags(), there.datatype()), (3, Datatype::JSON));
}
