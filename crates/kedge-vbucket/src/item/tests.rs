use super::*;
use proptest::prelude::*;

#[test]
fn item_fields_do_not_overlap() {
    let meta = ItemMeta {
        cas: Cas(u64::MAX),
        seqno: Seqno(LOW_48),
        rev: RevSeqno(LOW_48),
        flags: u32::MAX,
        expiry: Expiry(u32::MAX),
        datatype: Datatype::JSON.union(Datatype::SNAPPY),
        deleted: Some(Deletion::Expired),
        level: Some(DurabilityLevel::PersistToMajority),
    };
    let item = Item::new(&meta, &[7; 251], &[b"ab", b"", b"c"]);
    assert_eq!(item.meta(), meta);
    assert_eq!(item.key(), [7; 251]);
    assert_eq!(item.value(), b"abc");
    assert_eq!(item.heap_bytes(), 40 + 251 + 3);
    let zero = item.with_meta(&ItemMeta::default());
    assert_eq!(zero.meta(), ItemMeta::default());
    assert_eq!(zero.value(), b"abc");
}

#[test]
fn with_seqno_changes_only_the_seqno_and_no_shared_item() {
    let meta = ItemMeta {
        seqno: Seqno(5),
        cas: Cas(7),
        flags: 9,
        ..ItemMeta::default()
    };
    let item = Item::new(&meta, b"key", &[b"value"]);
    let at = item.header;
    let item = item.with_seqno(Seqno(6));
    assert_eq!(item.header, at, "no copy");
    let other = item.clone();
    let third = item.with_seqno(Seqno(LOW_48));
    assert_eq!(
        other.meta(),
        ItemMeta {
            seqno: Seqno(6),
            ..meta
        }
    );
    assert_eq!(
        third.meta(),
        ItemMeta {
            seqno: Seqno(LOW_48),
            ..meta
        }
    );
    assert_eq!((third.key(), third.value()), (&b"key"[..], &b"value"[..]));
}

#[test]
fn clones_share_one_allocation_across_threads() {
    let item = Item::new(&ItemMeta::default(), b"k", &[b"value"]);
    let clones: Vec<Item> = (0..100).map(|_| item.clone()).collect();
    drop(item);
    std::thread::scope(|scope| {
        for clone in clones {
            scope.spawn(move || assert_eq!(clone.value(), b"value"));
        }
    });
}

proptest! {
    #[test]
    fn item_holds_its_key_and_value(
        key in proptest::collection::vec(any::<u8>(), 1..=251),
        value in proptest::collection::vec(any::<u8>(), 0..600),
        cut in 0usize..600,
    ) {
        let cut = cut.min(value.len());
        let item = Item::new(&ItemMeta::default(), &key, &[&value[..cut], &value[cut..]]);
        prop_assert_eq!(item.key(), &key[..]);
        prop_assert_eq!(item.value(), &value[..]);
    }
}
