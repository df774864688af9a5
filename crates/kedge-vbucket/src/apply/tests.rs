//! Byte-exact accounting of unapplied changes.

use super::{FileChange, PersistenceMode};
use crate::item::Item;
use crate::vbucket::{VBucket, VbSetup};
use crate::write::{StepWrite, StoreMode};
use crate::{Cookie, MinRatio, NewValue};
use foldhash::fast::RandomState;
use kedge_types::{
    Cas, CollectionId, Datatype, DocKey, Durability, DurabilityLevel, Expiry, Now, VbId, VbUuid,
};
use proptest::prelude::*;

fn vbucket() -> VBucket {
    VBucket::new(VbSetup {
        id: VbId(0),
        uuid: VbUuid(1),
        shards: 1,
        hasher: RandomState::default(),
        persistence: PersistenceMode::LogThenFile,
        topology: Some(crate::Topology::alone()),
    })
}

fn at(secs: u64) -> Now {
    Now {
        unix_ns: secs * 1_000_000_000,
        mono_ns: secs * 1_000_000_000,
    }
}

fn store(vb: &mut VBucket, now: Now, key: u8, len: usize, durable: bool) {
    let key = DocKey::new(CollectionId::DEFAULT, &[b'a' + key]).unwrap();
    let durability = durable.then_some(Durability {
        level: DurabilityLevel::PersistToMajority,
        timeout_ms: Some(1_000),
    });
    let write = StepWrite {
        key: &key,
        cas: Cas(0),
        durability,
        new_cas: Cas(0),
        preserve_ttl: false,
        cookie: Cookie(1),
        prebuilt: None,
    };
    let bytes = vec![b'x'; len];
    let value = NewValue::check(&bytes, Datatype::RAW, MinRatio::NEVER).unwrap();
    let _ = vb
        .at(now)
        .store(&write, StoreMode::Set, &value, 0, Expiry::NEVER);
}

fn lock(vb: &mut VBucket, now: Now, key: u8) {
    let key = DocKey::new(CollectionId::DEFAULT, &[b'a' + key]).unwrap();
    let _ = vb.at(now).get_and_lock(&key, 1, None, |_| ());
}

fn log(vb: &mut VBucket, max: usize) {
    let to = vb.changes().for_log(max, usize::MAX, &mut Vec::new());
    vb.on_logged(to);
}

/// Returns the bytes of the items that are not in the hash table.
fn pinned<'a>(vb: &VBucket, items: impl Iterator<Item = &'a Item>) -> usize {
    items
        .filter(|item| {
            let there = vb.table().find(vb.table().hash(item.key()), item.key());
            there.is_none_or(|there| !there.is_same(item))
        })
        .map(Item::heap_bytes)
        .sum()
}

#[derive(Clone, Debug)]
enum Step {
    Store(u8, usize, bool),
    Lock(u8),
    Late,
    Log(usize),
    Begin,
    /// Writes this number of parts of the batch.
    Write(usize),
    End,
    Reset,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0u8..4, 0usize..50, any::<bool>()).prop_map(|(key, len, durable)| Step::Store(key, len, durable)),
        2 => (0u8..4).prop_map(Step::Lock),
        1 => Just(Step::Late),
        6 => (0usize..5).prop_map(Step::Log),
        3 => Just(Step::Begin),
        3 => (0usize..3).prop_map(Step::Write),
        3 => Just(Step::End),
        1 => Just(Step::Reset),
    ];
    proptest::collection::vec(step, 1..150)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn pinned_bytes_of_unapplied_changes_are_exact(steps in steps()) {
        let mut vb = vbucket();
        let mut secs = 0;
        let mut batch = None;
        // The items of the batch when it was taken.
        let mut held: Vec<Item> = Vec::new();
        for step in steps {
            match step {
                Step::Store(key, len, durable) => store(&mut vb, at(secs), key, len, durable),
                Step::Lock(key) => {
                    lock(&mut vb, at(secs), key);
                    secs += 2;
                }
                Step::Late => {
                    secs += 10;
                    vb.on_time(at(secs));
                }
                Step::Log(max) => log(&mut vb, max),
                Step::Begin => {
                    if let Some(new) = vb.store_mut().begin_apply() {
                        held = new.items().iter().map(FileChange::item).cloned().collect();
                        batch = Some(new);
                    }
                }
                Step::Write(parts) => {
                    if let Some(batch) = &mut batch {
                        let history = batch.history();
                        for part in batch.parts(2, usize::MAX).take(parts) {
                            vb.store_mut().on_applied(history, part.upto);
                        }
                    }
                }
                Step::End => {
                    if let Some(batch) = batch.take() {
                        drop(vb.store_mut().end_apply(batch));
                        held.clear();
                    }
                }
                Step::Reset => vb.reset(VbUuid(2)),
            }
            let waiting = vb.store.unapplied.items().map(FileChange::item);
            let expected = pinned(&vb, waiting.chain(&held));
            prop_assert_eq!(vb.store.unapplied.pinned_items_bytes(), expected);
        }
    }
}
