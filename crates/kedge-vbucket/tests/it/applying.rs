//! Tests of batches for the file, their parts, and failed applies.

use crate::disk::{Applying, Disk, WHOLE};
use crate::tools::*;
use kedge_types::DurabilityLevel::PersistToMajority;
use kedge_types::{Seqno, VbUuid};
use kedge_vbucket::{ApplyBatch, Change, FileChange, StoreMode, VBucket};
use proptest::prelude::*;

/// Returns the parts of a batch: seqnos, and the applied seqno after each part.
fn parts(batch: &mut ApplyBatch, max_items: usize, max_bytes: usize) -> Vec<(Vec<u64>, u64)> {
    let seqnos = |items: &[FileChange]| {
        let seqnos = items.iter().map(|apply| apply.item().seqno().get());
        seqnos.collect::<Vec<_>>()
    };
    batch
        .parts(max_items, max_bytes)
        .map(|part| (seqnos(part.items), part.upto.get()))
        .collect()
}

fn prepare(vb: &mut VBucket, name: &str, bytes: &[u8]) {
    persist(vb, at(0), name, bytes, 1);
}

#[test]
fn only_logged_changes_are_applied_one_batch_at_a_time() {
    let vb = &mut vbucket();
    assert!(vb.store_mut().begin_apply().is_none());
    set(vb, at(0), "a", b"1");
    assert!(vb.store_mut().begin_apply().is_none(), "not logged");
    log_all(vb);
    set(vb, at(0), "b", b"1");
    let mut batch = vb.store_mut().begin_apply().unwrap();
    assert_eq!(parts(&mut batch, 10, 1_000), [(vec![1], 1)]);
    log_all(vb);
    assert!(
        vb.store_mut().begin_apply().is_none(),
        "one is being written"
    );
    assert_eq!(vb.unapplied().items, 2);
    vb.store_mut().on_applied(batch.history(), batch.upto());
    assert_eq!(vb.applied_seqno(), Seqno(1));
    drop(vb.store_mut().end_apply(batch));
    assert_eq!(vb.unapplied().items, 1);
    let mut batch = vb.store_mut().begin_apply().unwrap();
    assert_eq!(parts(&mut batch, 10, 1_000), [(vec![2], 2)]);
    assert_eq!(
        (batch.state().snap_start, batch.state().snap_end),
        (Seqno(1), Seqno(2))
    );
}

#[test]
fn batch_has_each_key_once_and_parts_respect_limits() {
    let vb = &mut vbucket();
    for name in ["a", "b", "a", "c", "a", "d"] {
        set(vb, at(0), name, b"12345678");
    }
    log_all(vb);
    set(vb, at(0), "d", b"not logged: the old one is to be written");
    let mut batch = vb.store_mut().begin_apply().unwrap();
    assert_eq!(
        parts(&mut batch, 2, usize::MAX),
        [(vec![2, 4], 4), (vec![5, 6], 6)]
    );
    let one = batch.items()[0].item().heap_bytes();
    assert_eq!(parts(&mut batch, 9, one * 3).len(), 2);
    assert_eq!(parts(&mut batch, 9, 1).len(), 4, "one at least");
}

#[test]
fn open_prepare_is_in_the_file_until_it_is_completed_there() {
    let vb = &mut vbucket();
    prepare(vb, "k", b"first");
    set(vb, at(0), "other", b"1");
    log_all(vb);
    prepare(vb, "k", b"second");
    log_all(vb);
    log_all(vb);
    // The changes: 1 prepare, 2 other, 3 commit of 1, 4 prepare, 5 commit of 4.
    let mut batch = vb.store_mut().begin_apply().unwrap();
    let completed: Vec<_> = batch
        .parts(2, usize::MAX)
        .map(|part| {
            (
                part.items.len(),
                part.upto.get(),
                part.state.completed.get(),
            )
        })
        .collect();
    assert_eq!(completed, [(2, 2, 0), (2, 5, 4)]);
    let mut disk = Disk::default();
    disk.write(
        vb,
        &mut batch,
        Applying {
            parts: 1,
            max_items: 2,
            ..WHOLE
        },
    );
    let file = disk.file().unwrap();
    assert_eq!(file.base().prepares[0].value(), b"first");
    assert!(!file.is_consistent());
    drop(vb.store_mut().end_apply(batch));
    let mut batch = vb.store_mut().begin_apply().unwrap();
    assert_eq!(parts(&mut batch, 10, usize::MAX), [(vec![4, 5], 5)]);
}

#[test]
fn failed_apply_repeats_only_unwritten_changes() {
    let vb = &mut vbucket();
    for n in 1..=6 {
        set(vb, at(0), &format!("k{n}"), b"1");
    }
    log_all(vb);
    let mut batch = vb.store_mut().begin_apply().unwrap();
    let history = batch.history();
    let first = batch.parts(2, usize::MAX).next().unwrap().upto;
    vb.store_mut().on_applied(history, first);
    set(vb, at(0), "k4", b"22");
    set(vb, at(0), "k7", b"1");
    log_all(vb);
    drop(vb.store_mut().end_apply(batch));
    assert_eq!((vb.applied_seqno(), vb.unapplied().items), (Seqno(2), 6));
    let mut batch = vb.store_mut().begin_apply().unwrap();
    assert_eq!(
        parts(&mut batch, 10, usize::MAX),
        [(vec![3, 5, 6, 7, 8], 8)]
    );
    assert_eq!(batch.state().snap_start, Seqno(2));
}

/// Regression: a cut put a prepare, its completion and a later prepare of the key into one part, and the first prepare
/// was dropped. That part failed, the next batch was cut between them, and after a crash the commit had no value.
#[test]
fn prepare_skipped_by_one_cut_is_restored_for_the_next() {
    let vb = &mut vbucket();
    let mut disk = Disk::default();
    prepare(vb, "k", b"first");
    set(vb, at(0), "other", b"1");
    disk.log(vb, usize::MAX);
    prepare(vb, "k", b"second");
    vb.on_time(at(3));
    disk.log(vb, usize::MAX);
    // The changes: 1 prepare, 2 other, 3 commit of 1, 4 prepare, 5 abort of 4.
    let mut batch = vb.store_mut().begin_apply().unwrap();
    assert_eq!(parts(&mut batch, 10, usize::MAX), [(vec![2, 3, 5], 5)]);
    drop(vb.store_mut().end_apply(batch));
    let half = Applying {
        max_items: 1,
        parts: 1,
        ends: false,
    };
    disk.apply(vb, half);
    let mut again = disk.recover(vbucket(), None);
    assert_eq!(get(&mut again, at(3), "k").unwrap(), b"first");
}

#[test]
fn unapplied_list_keeps_frequently_changed_documents_once() {
    let vb = &mut vbucket();
    for n in 0..10_000 {
        if n % 2 == 0 {
            set(vb, at(0), &format!("k{}", n % 10), &[b'x'; 500]);
        } else {
            prepare(vb, &format!("k{}", n % 10), &[b'x'; 500]);
        }
        if n % 3 == 0 {
            log_all(vb);
        }
    }
    while !log_all(vb).is_empty() {}
    let waiting = vb.unapplied();
    assert!(waiting.items < 10 + 64 * 3, "{waiting:?}");
    assert!(waiting.pinned_bytes < 200_000, "{waiting:?}");
    let batch = &mut vb.store_mut().begin_apply().unwrap();
    let documents = batch.parts(usize::MAX, usize::MAX).next().unwrap();
    let committed = |apply: &&FileChange| apply.is_committed_namespace();
    assert_eq!(documents.items.iter().filter(committed).count(), 10);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Changes that were removed while unapplied are not needed, wherever a batch is cut and a crash happens.
    #[test]
    fn crash_after_any_part_of_a_late_apply_keeps_logged_changes(
        steps in proptest::collection::vec((0u8..6, any::<bool>(), 0usize..8), 150..600),
        applied_first in 0usize..150,
        max_items in 1usize..60,
        parts in 0usize..12,
        ends in any::<bool>(),
    ) {
        let mut vb = vbucket();
        let mut disk = Disk::default();
        for (index, (name, is_durable, logged)) in steps.into_iter().enumerate() {
            let name = format!("k{name}");
            let value = index.to_string();
            let key = key(&name);
            // A SyncWrite of the key may be in flight.
            let _ = if is_durable {
                let write = durable(&key, PersistToMajority, 1);
                store(&mut vb, at(0), &write, StoreMode::Set, value.as_bytes())
            } else {
                store(&mut vb, at(0), &write(&key), StoreMode::Set, value.as_bytes())
            };
            disk.log(&mut vb, logged);
            if index == applied_first {
                disk.apply(&mut vb, WHOLE);
            }
        }
        disk.log(&mut vb, usize::MAX);
        disk.apply(&mut vb, Applying { max_items, parts, ends });
        let expected = disk.expected(at(1));
        let mut again = disk.recover(vbucket(), None);
        for (key, value) in expected {
            let name = String::from_utf8(key[1..].to_vec()).unwrap();
            prop_assert_eq!(get(&mut again, at(1), &name).unwrap(), value);
        }
    }
}

#[test]
fn reset_voids_unapplied_changes_and_the_current_batch() {
    let vb = &mut vbucket();
    set(vb, at(0), "a", b"1");
    log_all(vb);
    let mut batch = vb.store_mut().begin_apply().unwrap();
    set(vb, at(0), "b", b"1");
    log_all(vb);
    set(vb, at(0), "c", b"1");
    vb.reset(VbUuid(9));
    let upto = batch.parts(1, 1).last().unwrap().upto;
    vb.store_mut().on_applied(batch.history(), upto);
    assert_eq!(vb.applied_seqno(), Seqno(0), "of a history that is gone");
    assert!(vb.unapplied().pinned_bytes > 0, "the batch is still held");
    drop(vb.store_mut().end_apply(batch));
    assert_eq!((vb.unapplied().pinned_bytes, vb.unapplied().items), (0, 0));
    assert!(
        vb.store_mut().begin_apply().is_none(),
        "the log does not have the reset"
    );
    set(vb, at(1), "d", b"1");
    let logged = log_all(vb);
    assert!(matches!(logged[1], Change::Reset(..)));
    let batch = vb.store_mut().begin_apply().unwrap();
    assert!(batch.replaces_file());
    assert_eq!(batch.items().len(), 1);
    drop(vb.store_mut().end_apply(batch));
    let batch = vb.store_mut().begin_apply().unwrap();
    assert!(batch.replaces_file(), "still, as it was not written");
    vb.store_mut().on_applied(batch.history(), batch.upto());
    drop(vb.store_mut().end_apply(batch));
    assert!(!vb.unapplied().replaces_file && vb.store_mut().begin_apply().is_none());
}

#[test]
fn changed_vbucket_metadata_is_applied_without_items() {
    let mut vb = vbucket();
    let mut disk = Disk::default();
    set(&mut vb, at(0), "a", b"1");
    disk.log(&mut vb, usize::MAX);
    disk.apply(&mut vb, WHOLE);
    let mut vb = disk.recover(vbucket(), Some(VbUuid(5)));
    assert!(
        vb.store_mut().begin_apply().is_none(),
        "the branch is not logged"
    );
    disk.log(&mut vb, usize::MAX);
    assert!(vb.unapplied().state_changed);
    let mut batch = vb.store_mut().begin_apply().unwrap();
    assert_eq!(parts(&mut batch, 10, 10), [(vec![], 1)]);
    assert_eq!(batch.state().failover.uuid(), VbUuid(5));
    drop(vb.store_mut().end_apply(batch));
    assert!(vb.unapplied().state_changed, "it was not written");
}

#[test]
fn tombstone_is_purged_from_memory_only_when_applied() {
    let old = 10 + kedge_types::limits::TOMBSTONE_PURGE_AGE_SECS;
    let mut vb = vbucket();
    let mut disk = Disk::default();
    set(&mut vb, at(0), "a", b"1");
    vb.at(at(0)).delete(&write(&key("a"))).unwrap();
    disk.log(&mut vb, usize::MAX);
    let sweep = |vb: &mut VBucket| {
        (0..vb.table().shard_count()).for_each(|shard| vb.at(at(old)).sweep(shard));
    };
    sweep(&mut vb);
    assert_eq!(vb.table().tombstones(), 1);
    disk.apply(&mut vb, WHOLE);
    sweep(&mut vb);
    assert_eq!(
        (vb.table().tombstones(), vb.history().purge_seqno()),
        (0, Seqno(0)),
        "the file has it"
    );
    assert_eq!(disk.file().unwrap().state.max_deleted_rev.get(), 2);
    let mut again = disk.recover(vbucket(), None);
    set(&mut again, at(old), "new", b"1");
    let meta = meta(&mut again, at(old), &key("new"));
    assert_eq!(meta.rev_seqno.get(), 3, "above every tombstone");
}
