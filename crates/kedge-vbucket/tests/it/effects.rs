//! Tests of the effects of steps.

use crate::tools::*;
use kedge_types::DurabilityLevel::MajorityAndPersistOnActive;
use kedge_types::Seqno;
use kedge_vbucket::{AfterLog, Cookie, MemoryUse, StepOutcome, StoreMode};

fn log_one(vb: &mut kedge_vbucket::VBucket) -> AfterLog {
    let to = vb
        .changes()
        .for_log(usize::MAX, usize::MAX, &mut Vec::new());
    vb.on_logged(to)
}

#[test]
fn memory_effects_sum_up_to_the_memory_use() {
    let vb = &mut vbucket();
    let mut sum = MemoryUse::default();
    for step in 0..6 {
        match step {
            0 | 1 => drop(set(vb, at(0), "k", &[b'v'; 1_000])),
            2 => drop(log_all(vb)),
            3 => drop(get(vb, at(0), "k")),
            4 => vb.reset(kedge_types::VbUuid(2)),
            _ => drop(log_all(vb)),
        }
        let change = vb.take_effects().unwrap_or_default().memory;
        sum.total += change.total;
        sum.checkpoints += change.checkpoints;
        sum.pinned += change.pinned;
        assert_eq!(sum.total, vb.bytes() as i64, "step {step}");
        assert_eq!(sum.pinned, vb.unapplied().pinned_bytes as i64);
        assert_eq!(sum.checkpoints > 0, [0, 1, 4].contains(&step), "{step}");
    }
    assert_eq!(sum.checkpoints, 0);
}

#[test]
fn commits_without_waiters_do_not_request_a_log_write() {
    let vb = &mut vbucket();
    let commit = |vb: &mut kedge_vbucket::VBucket, cookie| {
        let k = key("k");
        let write = durable(&k, MajorityAndPersistOnActive, cookie);
        let stored = store(vb, at(0), &write, StoreMode::Set, b"1");
        assert_eq!(stored, Ok(StepOutcome::Parked));
        assert!(vb.take_effects().unwrap_or_default().newly_dirty);
        assert!(
            !vb.take_effects().unwrap_or_default().newly_dirty,
            "told once"
        );
        assert_eq!(log_one(vb), AfterLog::CommitsOnly);
        let effects = vb.take_effects().unwrap_or_default();
        assert_eq!(effects.completions.len(), 1);
        assert!(!effects.newly_dirty);
    };
    commit(vb, 1);
    let _ = get(vb, at(0), "k");
    assert!(
        !vb.take_effects().unwrap_or_default().newly_dirty,
        "a read is no reason"
    );
    set(vb, at(0), "other", b"1");
    assert!(vb.take_effects().unwrap_or_default().newly_dirty);
    log_all(vb);
    commit(vb, 2);
    let upto = Seqno(vb.high_seqno().get());
    assert_eq!(
        vb.at(at(0)).seqno_persistence(upto, Cookie(3)),
        StepOutcome::Parked
    );
    assert!(
        vb.take_effects().unwrap_or_default().newly_dirty,
        "a client waits for the commit"
    );
    log_all(vb);
    commit(vb, 4);
    assert!(
        vb.changes_mut().take_newly_queued(),
        "after a while they go by themselves"
    );
}

#[test]
fn a_read_has_no_effects() {
    let vb = &mut vbucket();
    set(vb, at(0), "k", b"1");
    assert!(vb.take_effects().is_some());
    assert!(get(vb, at(0), "k").is_ok());
    assert!(vb.take_effects().is_none());
}

#[test]
fn work_for_sweeps_is_handed_out_when_it_begins() {
    let vb = &mut vbucket();
    let lock = |vb: &mut kedge_vbucket::VBucket| {
        let locked = vb.at(at(0)).get_and_lock(&key("k"), 15, None, |_| ());
        assert!(locked.is_ok());
        vb.take_effects().unwrap_or_default().new_work.expiry
    };
    set(vb, at(0), "k", b"1");
    set(vb, at(0), "other", b"1");
    assert!(!vb.take_effects().unwrap_or_default().new_work.expiry);
    assert!(lock(vb), "the first lock");
    set(vb, at(20), "k", b"2");
    assert!(vb.take_effects().is_some());
    vb.at(at(20)).sweep(0);
    drop(vb.take_effects());
    assert!(lock(vb), "the sweep has ended the work");
    set(vb, at(0), "other", b"2");
    let effects = vb.take_effects().unwrap_or_default();
    assert!(!effects.new_work.expiry, "it is known");
    let mut replaced = vbucket();
    std::mem::swap(vb, &mut replaced);
    vb.replace_with(replaced);
    let effects = vb.take_effects().unwrap_or_default();
    assert!(effects.new_work.expiry, "another vBucket took its place");
}
