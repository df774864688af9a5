//! Power failures at every operation of the disk: what was acknowledged is there.
//!
//! `KEDGE_SEED` runs one seed, `KEDGE_SEEDS` that many.

use crate::tools::*;
use kedge_bucket::{CompactionPace, CompactionRequest, CompactionTicket};
use kedge_disk::{Fault, Rng, SimDisk};
use kedge_types::Status;
use std::collections::BTreeMap;

/// Those that the environment asks for, or the first few.
pub(crate) fn seeds(few: u64) -> Vec<u64> {
    kedge_disk::seeds(1, few)
}

/// What one key may hold after the crash: the last acknowledged value or anything written after it.
#[derive(Default)]
struct Expected {
    acknowledged: u64,
    written: u64,
}

/// `compacting`: files are compacted all the time, on threads of their own. Says how many were.
fn run(seed: u64, compacting: bool) -> u64 {
    eprintln!("seed {seed}");
    let disk = SimDisk::new(seed);
    let mut place = sim(&disk);
    place.config.compaction.pace = CompactionPace::Off;
    if !compacting {
        // What the log has is settled beside the writes; every fourth has no log.
        place.config.settle_age_ms = seed % 3;
        place.config.num_shards = 2;
        place.config.commit_log = !seed.is_multiple_of(4);
    }
    let operations_max = if compacting { 2_000 } else { 80 };
    let mut compacted = 0;
    let mut expected: BTreeMap<String, Expected> = BTreeMap::new();
    let mut version = 0;
    let mut random = Rng::new(seed);
    let mut next = move |below: u64| random.below(below);
    for round in 0..3 {
        let open = place.open();
        check(&open, &mut expected, seed, round);
        let fail_at = disk.operations() + 1 + next(operations_max);
        disk.fail_operation(fail_at, Fault::PowerLoss);
        let mut cookie = 0;
        let mut ticket = None;
        // Without a log, only a failed sync ends the process; what fails before it is tried again.
        let has_ended = || !open.sink.fatal().is_empty() || place.disk.exists(&place.dir).is_err();
        while !has_ended() {
            if compacting {
                ticket = go_on_compacting(&open, ticket, next(16) == 0);
            }
            let mut waiting = Vec::new();
            for _ in 0..=next(4) {
                let name = format!("key-{}", next(12));
                version += 1;
                cookie += 1;
                let value = format!("{version:020}")
                    .into_bytes()
                    .repeat(1 + next(300) as usize);
                match open.persist(&name, &value, cookie) {
                    Ok(()) => {
                        let entry = expected.entry(name.clone()).or_default();
                        entry.written = version;
                        waiting.push((cookie, name, version));
                    }
                    Err(Status::SyncWriteInProgress | Status::TemporaryFailure) => {}
                    Err(other) => panic!("{other:?}"),
                }
            }
            open.bucket.kick(next(2) == 0);
            for (cookie, name, version) in waiting {
                until("a completion or the end", || {
                    open.sink.get(cookie).is_some() || has_ended()
                });
                if open.sink.get(cookie).is_some() && open.sink.wait(cookie).is_ok() {
                    expected.get_mut(&name).unwrap().acknowledged = version;
                }
            }
        }
        compacted += open.figure("ep_compactions");
        open.bucket.shutdown();
        disk.crash(seed + round);
    }
    let open = place.open();
    check(&open, &mut expected, seed, 99);
    open.bucket.shutdown();
    compacted
}

/// Asks for the next compaction when the last one has ended, which is waited for now and then.
fn go_on_compacting(
    open: &Open,
    ticket: Option<CompactionTicket>,
    waits: bool,
) -> Option<CompactionTicket> {
    if let Some(ticket) = ticket {
        if waits {
            until("the end of a compaction, or of all", || {
                ticket.report().is_some() || !open.sink.fatal().is_empty()
            });
        }
        if ticket.report().is_none() {
            return Some(ticket);
        }
    }
    // Both are refused once the power is off.
    let _ = open.bucket.settle();
    open.bucket.compact(&CompactionRequest::default()).ok()
}

fn check(open: &Open, expected: &mut BTreeMap<String, Expected>, seed: u64, round: u64) {
    for (name, expected) in expected {
        let found = match open.get(name) {
            Ok(value) => {
                let (first, rest) = value.split_at(20);
                assert!(
                    rest.chunks(20).all(|chunk| chunk == first),
                    "half a value, seed {seed}"
                );
                std::str::from_utf8(first).unwrap().parse().unwrap()
            }
            Err(Status::KeyNotFound) => 0,
            Err(other) => panic!("{other:?}"),
        };
        let range = expected.acknowledged..=expected.written;
        assert!(
            range.contains(&found),
            "{name} holds {found}, not {range:?}, seed {seed}, round {round}"
        );
        // What was found is on disk: it may not be lost again.
        expected.acknowledged = found;
        expected.written = found;
    }
}

#[test]
fn acknowledged_writes_survive_power_failures_at_any_operation() {
    for seed in seeds(150) {
        run(seed, false);
    }
}

#[test]
fn acknowledged_writes_survive_power_failures_beside_compactions() {
    let seeds = seeds(40);
    let compacted: u64 = seeds.iter().map(|seed| run(*seed, true)).sum();
    assert!(
        compacted > seeds.len() as u64,
        "{compacted} of {} seeds",
        seeds.len()
    );
}
