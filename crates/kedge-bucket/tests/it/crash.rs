//! Power loss at every disk operation: acknowledged writes survive.
//!
//! `KEDGE_SEED` runs one seed, `KEDGE_SEEDS` that many.

use crate::published_seqnos::Published;
use crate::tools::*;
use kedge_bucket::{CompactionRate, CompactionRequest, CompactionTicket, Mutated};
use kedge_disk::{Fault, Rng, SimDisk};
use kedge_types::{Status, VbId};
use std::collections::BTreeMap;

/// Returns the seeds that the environment specifies, or the first few.
pub(crate) fn seeds(few: u64) -> Vec<u64> {
    kedge_disk::seeds(1, few)
}

/// The values that a key may have after the crash: the last acknowledged one, or any later one.
#[derive(Default)]
struct Expected {
    acknowledged: u64,
    written: u64,
    /// The result of the last acknowledged write, and its index.
    stored: Option<(u64, Mutated)>,
}

/// The seqnos and CAS values that vBuckets have reported.
#[derive(Default)]
struct Order {
    published: BTreeMap<VbId, Published>,
    /// The highest acknowledged seqno and CAS.
    highest: BTreeMap<VbId, Mutated>,
}

impl Order {
    fn publish(&mut self, open: &Open) {
        for vb in all_vbuckets() {
            let now = Published::read(open, vb).expect("none is deleted");
            self.published.insert(vb, now);
        }
    }

    fn acknowledged(&mut self, name: &str, stored: Mutated) {
        let highest = self.highest.entry(key(name).vbucket(4)).or_insert(stored);
        highest.seqno = highest.seqno.max(stored.seqno);
        highest.cas = highest.cas.max(stored.cas);
    }

    /// Checks that no report was revoked, and that the next write has a higher CAS and a new seqno. A seqno is used again
    /// only by a branch of the history that began below it: a SyncWrite is acknowledged as soon as its prepare is durable,
    /// so its commit may be lost with a prepare between them, and is then repeated with a lower seqno.
    fn check(&mut self, open: &Open, when: &str) {
        for (vb, published) in &self.published {
            let figures = open.bucket.vbucket_figures(*vb).expect("it is there");
            if let Err(why) = published.holds(&figures) {
                panic!("{when}: {why}");
            }
        }
        for n in 0..8 {
            let name = format!("next-{n}");
            let next = open.set(&name, b"1").unwrap();
            let vb = key(&name).vbucket(4);
            if let Some(before) = self.highest.get(&vb) {
                let figures = open.bucket.vbucket_figures(vb).expect("it is there");
                let is_new = next.seqno > before.seqno || figures.failover[0].1 < before.seqno;
                assert!(
                    is_new && next.cas > before.cas,
                    "{when}: {next:?} after {before:?}, in {figures:?}"
                );
            }
        }
    }
}

/// Runs one history. With `compacting`, files are compacted all the time on other threads. Returns the number of compactions.
fn run(seed: u64, compacting: bool) -> u64 {
    eprintln!("seed {seed}");
    let disk = SimDisk::new(seed);
    let mut site = sim(&disk);
    site.config.compaction.throttle = CompactionRate::Off;
    if !compacting {
        // The log is applied concurrently; every fourth seed has no log.
        site.config.apply_max_lag_ms = seed % 3;
        site.config.num_shards = 2;
        site.config.commit_log = !seed.is_multiple_of(4);
    }
    let operations_max = if compacting { 2_000 } else { 80 };
    let mut compacted = 0;
    let mut expected: BTreeMap<String, Expected> = BTreeMap::new();
    let mut order = Order::default();
    let mut version = 0;
    let mut random = Rng::new(seed);
    let mut next = move |below: u64| random.below(below);
    for round in 0..3 {
        let open = site.open();
        check(&open, &mut expected, seed, round);
        order.check(&open, &format!("seed {seed}, round {round}"));
        disk.fail_after(next(operations_max), Fault::PowerLoss);
        let mut cookie = 0;
        let mut ticket = None;
        // Without a log only a failed sync is fatal; earlier failures are retried.
        let has_ended = || !open.sink.fatal().is_empty() || site.disk.exists(&site.dir).is_err();
        while !has_ended() {
            if compacting {
                ticket = request_next_compaction(&open, ticket, next(16) == 0);
            }
            let mut waiting = Vec::new();
            for _ in 0..=next(4) {
                let name = format!("key-{}", next(12));
                version += 1;
                assert!(version < 1_000_000, "the power never failed, seed {seed}");
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
            open.bucket
                .persistence()
                .writers()
                .request_flush(next(2) == 0);
            for (cookie, name, version) in waiting {
                until("a completion or the end", || {
                    open.sink.get(cookie).is_some() || has_ended()
                });
                if open.sink.get(cookie).is_some()
                    && let Ok(stored) = open.sink.wait(cookie)
                {
                    order.acknowledged(&name, stored);
                    let expected = expected.get_mut(&name).unwrap();
                    expected.acknowledged = version;
                    expected.stored = Some((version, stored));
                }
            }
            order.publish(&open);
        }
        compacted += open.figure("ep_compactions");
        open.bucket.shutdown();
        disk.crash(seed + round);
    }
    let open = site.open();
    check(&open, &mut expected, seed, 99);
    order.check(&open, &format!("seed {seed}, the end"));
    open.bucket.shutdown();
    compacted
}

/// Requests the next compaction when the last one has ended, and sometimes waits for it.
fn request_next_compaction(
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
    // Both are rejected after the power loss.
    let _ = open.bucket.persistence().apply();
    open.bucket
        .persistence()
        .compactions()
        .compact(&CompactionRequest::default())
        .ok()
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
        if let Some((version, stored)) = expected.stored.filter(|(it, _)| *it == found) {
            check_place(
                open,
                name,
                stored,
                &format!("version {version}, seed {seed}"),
            );
        }
        // The values found are durable and must not be lost later.
        expected.acknowledged = found;
        expected.written = found;
    }
}

/// Checks that a document has its CAS and seqno, or those of a repeated commit if only its prepare was durable.
fn check_place(open: &Open, name: &str, stored: Mutated, when: &str) {
    let k = key(name);
    let meta = done(open.bucket.documents().get_meta(open.ctx(), &read(&k))).unwrap();
    assert_eq!(meta.cas, stored.cas, "{name}, {when}");
    let figures = open.bucket.vbucket_figures(k.vbucket(4)).unwrap();
    let is_anew = meta.seqno > figures.failover[0].1;
    assert!(
        meta.seqno == stored.seqno || is_anew,
        "{name}, {when}: {meta:?}, not {stored:?}, in {figures:?}"
    );
}

#[test]
fn acknowledged_writes_survive_power_loss_at_any_operation() {
    for seed in seeds(150) {
        run(seed, false);
    }
}

#[test]
fn acknowledged_writes_survive_power_loss_during_compactions() {
    let seeds = seeds(40);
    let compacted: u64 = seeds.iter().map(|seed| run(*seed, true)).sum();
    assert!(
        compacted > seeds.len() as u64,
        "{compacted} of {} seeds",
        seeds.len()
    );
}
