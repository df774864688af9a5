//! Tests of eviction, background fetches, warmup and compression, case by case. The model test is in `residency_model`.

use crate::disk::{Disk, WHOLE};
use crate::tools::*;
use kedge_types::{Cas, Datatype, Expiry, Status, VbUuid};
use kedge_vbucket::{
    ConcatMode, Eviction, Fetched, MinRatio, PageOut, StepOutcome, StepWrite, StoreMode, VBucket,
    ValueCompressor,
};

fn page_out(vb: &mut VBucket, eviction: Eviction) -> kedge_vbucket::PagedOut {
    let how = PageOut {
        eviction,
        frequency_max: 255,
        bytes: usize::MAX,
        decay: false,
    };
    let mut all = kedge_vbucket::PagedOut::default();
    for shard in 0..vb.table().shard_count() {
        let out = vb.at(at(0)).page_out(shard, &how);
        all.values += out.values;
        all.items += out.items;
        all.bytes += out.bytes;
    }
    all
}

fn applied(names: &[&str]) -> (VBucket, Disk) {
    let mut vb = vbucket();
    let mut disk = Disk::default();
    for name in names {
        set(&mut vb, at(0), name, b"12345678");
    }
    disk.log(&mut vb, usize::MAX);
    disk.apply(&mut vb, WHOLE);
    (vb, disk)
}

#[test]
fn only_persisted_documents_are_evicted() {
    let (mut vb, mut disk) = applied(&["a", "b", "locked", "prepared"]);
    set(&mut vb, at(0), "a", b"newer");
    disk.log(&mut vb, usize::MAX);
    vb.at(at(0))
        .get_and_lock(&key("locked"), 10, None, |_| ())
        .unwrap();
    persist(&mut vb, at(0), "prepared", b"x", 1);
    let bytes = vb.table().bytes();
    let out = page_out(&mut vb, Eviction::ValueOnly);
    assert_eq!((out.values, out.items, out.bytes), (1, 0, 8));
    assert_eq!(vb.table().bytes(), bytes - 8);
    let out = page_out(&mut vb, Eviction::Full);
    assert_eq!((out.values, out.items), (0, 1));
    assert_eq!((vb.table().documents(), vb.documents().count()), (3, 4));
}

#[test]
fn cas_of_a_lock_survives_eviction() {
    let (mut vb, disk) = applied(&["a"]);
    let k = key("a");
    let cas = done(
        vb.at(at(0))
            .get_and_lock(&k, 10, None, |document| document.cas)
            .unwrap(),
    );
    vb.at(at(0)).unlock(&k, cas).unwrap();
    let out = page_out(&mut vb, Eviction::Full);
    assert_eq!((out.values, out.items), (1, 0));
    let stored = disk.file().unwrap().documents.values().next().cloned();
    assert_ne!(stored.as_ref().unwrap().cas(), cas);
    let ticket = vb.store().fetch_ticket();
    assert_eq!(
        vb.store_mut().fetched(ticket, k.as_bytes(), stored),
        Fetched::Known
    );
    assert_eq!(get(&mut vb, at(0), "a").unwrap(), b"12345678");
    assert_eq!(meta(&mut vb, at(0), &k).cas, cas);
}

/// The fetch read the file after the reset was logged and before it was applied. The new history reached the same
/// seqno.
#[test]
fn fetch_from_before_a_reset_is_stale() {
    let (mut vb, mut disk) = applied(&["a"]);
    vb.reset(VbUuid(9));
    let ticket = vb.store().fetch_ticket();
    let old = disk.file().unwrap().documents.values().next().cloned();
    set(&mut vb, at(0), "a", b"new");
    disk.log(&mut vb, usize::MAX);
    disk.apply(&mut vb, WHOLE);
    page_out(&mut vb, Eviction::ValueOnly);
    let k = key("a");
    assert_eq!(
        vb.store_mut().fetched(ticket, k.as_bytes(), old),
        Fetched::Stale
    );
    assert_eq!(vb.at(at(0)).get(&k, |_| ()), Ok(StepOutcome::Fetch));
}

/// The fetch read the file after the rollback in memory and before that of the file.
#[test]
fn fetch_from_before_a_rollback_is_stale() {
    let (mut vb, mut disk) = applied(&["a"]);
    let kept = vb.high_seqno();
    set(&mut vb, at(0), "a", b"goes");
    disk.log(&mut vb, usize::MAX);
    disk.apply(&mut vb, WHOLE);
    let old = disk.file().unwrap().documents.values().next().cloned();
    vb.rollback(kept, VbUuid(2));
    let ticket = vb.store().fetch_ticket();
    disk.rewind(kept, &vb);
    disk.rewound(&mut vb, &[]);
    let k = key("a");
    assert_eq!(
        vb.store_mut().fetched(ticket, k.as_bytes(), old),
        Fetched::Stale
    );
    let now = disk.file().unwrap().documents.values().next().cloned();
    let ticket = vb.store().fetch_ticket();
    assert_eq!(
        vb.store_mut().fetched(ticket, k.as_bytes(), now),
        Fetched::Known
    );
}

#[test]
fn blind_write_stays_until_the_file_was_searched() {
    let (_, mut disk) = applied(&["a"]);
    let mut vb = disk.recover_cold(vbucket(), None);
    set(&mut vb, at(0), "a", b"blind");
    disk.log(&mut vb, usize::MAX);
    let batch = vb.store_mut().begin_apply().unwrap();
    let item = batch.items()[0].item().clone();
    assert!(item.is_blind());
    vb.store_mut().on_applied(batch.history(), batch.upto());
    assert_eq!(page_out(&mut vb, Eviction::ValueOnly).values, 0);
    vb.store_mut().applied_over(batch.history(), &item, true);
    vb.store_mut().applied_over(batch.history(), &item, true);
    drop(vb.store_mut().end_apply(batch));
    assert_eq!(vb.documents().count(), 1, "counted off once");
    assert_eq!(page_out(&mut vb, Eviction::ValueOnly).values, 1);
}

#[test]
fn document_missing_in_the_file_is_reported_as_lost() {
    let (mut vb, _) = applied(&["a"]);
    page_out(&mut vb, Eviction::ValueOnly);
    let k = key("a");
    assert_eq!(vb.at(at(0)).get(&k, |_| ()), Ok(StepOutcome::Fetch));
    let ticket = vb.store().fetch_ticket();
    assert_eq!(
        vb.store_mut().fetched(ticket, k.as_bytes(), None),
        Fetched::Lost
    );
}

#[test]
fn commands_without_a_value_need_no_fetch() {
    let (mut vb, _) = applied(&["a", "b", "c"]);
    page_out(&mut vb, Eviction::ValueOnly);
    let (a, b, c) = (key("a"), key("b"), key("c"));
    let cas = meta(&mut vb, at(0), &a).cas;
    let w = StepWrite { cas, ..write(&a) };
    done(store(&mut vb, at(0), &w, StoreMode::Replace, b"1").unwrap());
    done(vb.at(at(0)).delete(&write(&b)).unwrap());
    assert_eq!(
        vb.at(at(0)).touch(&write(&c), Expiry(u32::MAX)),
        Ok(StepOutcome::Fetch)
    );
    let same = vb.at(at(0)).touch(&write(&c), Expiry::NEVER).unwrap();
    assert!(matches!(same, StepOutcome::Done(_)), "nothing changes");
    let busy = StepWrite {
        cas: Cas(1),
        ..write(&c)
    };
    assert_eq!(vb.at(at(0)).delete(&busy), Err(Status::KeyExists));
    let default = kedge_types::CollectionId::DEFAULT;
    let shards = vb.table().shard_count();
    let picked = |shard| {
        vb.at(at(0))
            .random_document(default, shard, 0, |_| ())
            .is_some()
    };
    assert!((0..shards).any(picked));
}

#[test]
fn bloom_filter_avoids_fetches_of_missing_keys() {
    let names: Vec<String> = (0..200).map(|n| format!("k{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (mut vb, _) = applied(&names);
    assert_eq!(get(&mut vb, at(0), "none"), Err(Status::KeyNotFound));
    assert_eq!(page_out(&mut vb, Eviction::Full).items, 200);
    assert_eq!((vb.table().documents(), vb.documents().count()), (0, 200));
    assert!(
        names
            .iter()
            .all(|name| vb.documents().may_be_on_disk(key(name).as_bytes()))
    );
    let others = (0..1_000).filter(|n| {
        vb.documents()
            .may_be_on_disk(key(&format!("x{n}")).as_bytes())
    });
    assert!(others.count() < 50);
    assert_eq!(vb.documents().residency().filter_keys, 200);
    vb.reset(VbUuid(9));
    assert!(
        names
            .iter()
            .all(|name| !vb.documents().may_be_on_disk(key(name).as_bytes()))
    );
}

#[test]
fn commands_are_served_before_warmup_ends() {
    let (vb, mut disk) = applied(&["a", "b"]);
    let rev = vb.table().iter().next().unwrap().rev_seqno();
    drop(vb);
    let mut vb = disk.recover_cold(vbucket(), None);
    assert!(!vb.documents().is_warm());
    assert_eq!((vb.documents().count(), vb.table().documents()), (2, 0));
    let (a, new) = (key("a"), key("new"));
    assert_eq!(vb.at(at(0)).get(&a, |_| ()), Ok(StepOutcome::Fetch));
    assert_eq!(vb.at(at(0)).get_meta(&new), Ok(StepOutcome::Fetch));
    assert_eq!(vb.at(at(0)).observe_key(&a), Ok(StepOutcome::Fetch));
    assert_eq!(
        store(&mut vb, at(0), &write(&a), StoreMode::Add, b"1"),
        Ok(StepOutcome::Fetch)
    );
    set(&mut vb, at(0), "a", b"written blindly");
    assert!(meta(&mut vb, at(0), &a).rev_seqno > rev);
    assert_eq!(
        vb.documents().count(),
        3,
        "counted twice until the state of the file is known"
    );
    disk.log(&mut vb, usize::MAX);
    disk.apply(&mut vb, WHOLE);
    assert_eq!(vb.documents().count(), 2);
    let history = vb.history_id();
    for item in disk.file().unwrap().documents.values() {
        vb.store_mut().warm(history, item.clone());
    }
    vb.store_mut().warmed(history, true);
    assert_eq!(vb.at(at(0)).get(&new, |_| ()), Err(Status::KeyNotFound));
    assert_eq!((vb.documents().count(), vb.table().documents()), (2, 2));
}

#[test]
fn frequently_read_documents_are_not_evicted() {
    let (mut vb, _) = applied(&["hot", "cold"]);
    for _ in 0..1_000 {
        get(&mut vb, at(0), "hot").unwrap();
    }
    let mut counts = [0; 256];
    let shards = 0..vb.table().shard_count();
    for shard in shards.clone() {
        vb.at(at(0))
            .count_frequencies(shard, Eviction::ValueOnly, &mut counts);
    }
    assert_eq!(counts.iter().sum::<u64>(), 2);
    let lowest = counts.iter().position(|count| *count > 0).unwrap();
    let how = PageOut {
        eviction: Eviction::ValueOnly,
        frequency_max: u8::try_from(lowest).unwrap(),
        bytes: usize::MAX,
        decay: true,
    };
    let frequency = |vb: &VBucket, name: &str| {
        let key = key(name);
        let hash = vb.table().hash(key.as_bytes());
        vb.table().find(hash, key.as_bytes()).unwrap().frequency()
    };
    let before = frequency(&vb, "hot");
    for shard in shards {
        vb.at(at(0)).page_out(shard, &how);
    }
    assert_eq!(
        vb.at(at(0)).get(&key("cold"), |_| ()),
        Ok(StepOutcome::Fetch)
    );
    assert!(get(&mut vb, at(0), "hot").is_ok());
    assert!(frequency(&vb, "hot") < before, "time goes by");
}

#[test]
fn value_is_compressed_only_while_its_document_is_unchanged() {
    let mut vb = vbucket();
    let mut disk = Disk::default();
    let long = [b'x'; 1_000];
    set(&mut vb, at(0), "a", &long);
    set(&mut vb, at(0), "short", b"x");
    let take = |vb: &VBucket| {
        let mut items = Vec::new();
        let shards = 0..vb.table().shard_count();
        shards.for_each(|shard| vb.store().to_compress(shard, usize::MAX, &mut items));
        items
    };
    assert_eq!(vb.table().compressible(), 1);
    assert!(take(&vb).is_empty(), "the file does not have it");
    disk.log(&mut vb, usize::MAX);
    disk.apply(&mut vb, WHOLE);
    let k = key("a");
    let lock = vb
        .at(at(0))
        .get_and_lock(&k, 10, None, |document| document.cas);
    let lock = done(lock.unwrap());
    let (before, bytes) = (meta(&mut vb, at(0), &k), vb.bytes());
    let items = take(&vb);
    let mut packer = ValueCompressor::default();
    let packed = packer.pack(items[0].value(), MinRatio::DEFAULT);
    let saved = vb.store_mut().compressed(&items[0], packed);
    assert!(saved > 900);
    assert_eq!(vb.bytes() + saved, bytes);
    assert_eq!(
        vb.store_mut().compressed(&items[0], packed),
        0,
        "it is another by now"
    );
    let after = meta(&mut vb, at(0), &k);
    assert_eq!(after.datatype, Datatype::SNAPPY);
    let datatype = before.datatype;
    assert_eq!(kedge_vbucket::Meta { datatype, ..after }, before);
    vb.at(at(0)).unlock(&k, lock).unwrap();
    // Writes work on the compressed document.
    done(
        vb.at(at(0))
            .concat(&write(&k), ConcatMode::Append, b"y")
            .unwrap(),
    );
    assert_eq!(
        get(&mut vb, at(0), "a").unwrap(),
        [&long[..], b"y"].concat()
    );
}
