use super::*;
use crate::item::ItemMeta;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn item(key: u16, value: &[u8]) -> Item {
    Item::new(&ItemMeta::default(), &key.to_be_bytes(), &[value])
}

/// All keys have one of four homes, and one of two tags.
fn crowded(item: &Item) -> KeyHash {
    crowded_key(item.key())
}

fn crowded_key(key: &[u8]) -> KeyHash {
    let low = u64::from(key[1]);
    KeyHash((low % 2) << TAG_SHIFT | (low / 2 % 4) << (HOME_BITS - 2))
}

fn put(shard: &mut Shard, key: u16, value: &[u8]) {
    let new = item(key, value);
    let hash = crowded(&new);
    if let Err(new) = shard.replace(hash, new) {
        shard.insert(hash, new, crowded);
    }
}

fn overflow(shard: &Shard) -> u64 {
    shard.buckets.iter().map(Bucket::overflow).sum()
}

#[test]
fn places_have_the_tag_and_no_other() {
    let mut bucket = Bucket::default();
    for (place, tag) in [0x80, 0x81, 0, 0x80, 0xff, 0x7f, 0x80]
        .into_iter()
        .enumerate()
    {
        bucket.tags |= tag << (8 * place);
    }
    bucket.tags |= 3 << OVERFLOW_SHIFT;
    let places = |tag| bucket.places(tag).collect::<Vec<_>>();
    assert_eq!(places(0x80), [0, 3, 6]);
    assert_eq!(places(0), [2]);
    assert_eq!(places(0xff), [4]);
    assert_eq!(places(3), [] as [usize; 0], "the overflow is no tag");
}

#[test]
fn shard_grows_by_a_quarter_and_wastes_little() {
    let mut shard = Shard::default();
    let hash_of = |item: &Item| KeyHash(foldhash_of(item.key()));
    for key in 0..6_000 {
        let before = shard.allocated_bytes();
        let new = item(key, b"");
        shard.insert(hash_of(&new), new, hash_of);
        let grown = shard.allocated_bytes() - before;
        assert!(grown <= (before / GROWTH).max(BUCKET_BYTES));
        if key >= 100 {
            assert!(shard.allocated_bytes() <= usize::from(key + 1) * 14);
        }
    }
    assert!((0..6_000).all(|key| {
        shard
            .find(hash_of(&item(key, b"")), &key.to_be_bytes())
            .is_some()
    }));
}

fn foldhash_of(key: &[u8]) -> u64 {
    use std::hash::BuildHasher;
    foldhash::fast::FixedState::default().hash_one(key)
}

#[test]
fn more_items_of_one_home_than_an_overflow_counts_are_found_and_removed() {
    let same = |_: &Item| KeyHash(0);
    let mut shard = Shard::default();
    for key in 0..2_000 {
        shard.insert(KeyHash(0), item(key, b""), same);
    }
    assert_eq!(shard.buckets[0].overflow(), OVERFLOW_MAX);
    for key in 0..2_000_u16 {
        assert!(shard.remove(KeyHash(0), &key.to_be_bytes()).is_some());
        assert!(shard.remove(KeyHash(0), &key.to_be_bytes()).is_none());
    }
    assert_eq!((shard.len(), shard.iter().len()), (0, 0));
    shard.shrink_to(0, same);
    assert_eq!(shard.allocated_bytes(), 0);
    assert!(shard.find(KeyHash(0), b"key").is_none());
}

#[test]
fn prefetch_changes_nothing() {
    let mut shard = Shard::default();
    let ask = |shard: &Shard| {
        shard.prefetch_bucket(KeyHash(0));
        shard.prefetch_items(KeyHash(0));
    };
    ask(&shard);
    (0..100).for_each(|key| put(&mut shard, key, b"value"));
    ask(&shard);
    assert!((0..100_u16).all(|key| {
        shard
            .find(crowded_key(&key.to_be_bytes()), &key.to_be_bytes())
            .is_some()
    }));
}

#[derive(Clone, Debug)]
enum Action {
    Put(u16, usize),
    Remove(u16),
    /// Keeps the keys that this number does not divide, and doubles their values.
    Retain(u16),
    Shrink,
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        6 => (0_u16..90, 0_usize..9).prop_map(|(key, len)| Action::Put(key, len)),
        4 => (0_u16..90).prop_map(Action::Remove),
        1 => (2_u16..9).prop_map(Action::Retain),
        1 => Just(Action::Shrink),
    ]
}

proptest! {
    #[test]
    fn crowded_shard_behaves_like_a_map(actions in proptest::collection::vec(action(), 1..200)) {
        let mut shard = Shard::default();
        let mut model = BTreeMap::new();
        for action in actions {
            match action {
                Action::Put(key, len) => {
                    put(&mut shard, key, &vec![1; len]);
                    model.insert(key, len);
                }
                Action::Remove(key) => {
                    let key_bytes = key.to_be_bytes();
                    let gone = shard.remove(crowded_key(&key_bytes), &key_bytes);
                    prop_assert_eq!(gone.map(|item| item.value().len()), model.remove(&key));
                }
                Action::Retain(number) => {
                    let key_of = |item: &Item| u16::from_be_bytes([item.key()[0], item.key()[1]]);
                    shard.retain(crowded, |there| {
                        let key = key_of(there);
                        *there = item(key, &vec![1; there.value().len() * 2]);
                        key % number != 0
                    });
                    model.retain(|key, _| key % number != 0);
                    model.values_mut().for_each(|len| *len *= 2);
                }
                Action::Shrink => shard.shrink_to(0, crowded),
            }
            prop_assert_eq!(shard.len(), model.len());
            for key in 0_u16..90 {
                let key_bytes = key.to_be_bytes();
                let found = shard.find(crowded_key(&key_bytes), &key_bytes);
                prop_assert_eq!(found.map(|item| item.value().len()), model.get(&key).copied());
            }
            let seen: BTreeMap<Vec<u8>, usize> = shard.iter().map(|item| (item.key().to_vec(), item.value().len())).collect();
            prop_assert_eq!(seen.len(), shard.iter().len());
            prop_assert_eq!(seen.len(), model.len());
        }
        shard.retain(crowded, |_| false);
        prop_assert_eq!(overflow(&shard), 0);
        prop_assert!(shard.buckets.iter().all(|bucket| bucket.tags == 0));
    }
}
