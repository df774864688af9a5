//! Random histories, interrupted by a power loss at any disk operation, including recovery. Acknowledged writes survive, and
//! each vBucket is at one point of its history, with its CAS values and seqnos.
//!
//! `KEDGE_SEED` runs one seed, `KEDGE_SEEDS` that many.

mod each_operation;
mod known;

use crate::crash::seeds;
use crate::published_seqnos::Published;
use crate::tools::*;
use kedge_bucket::{Bucket, CompactionRequest, RollbackReport, VbState};
use kedge_disk::{Fault, SimDisk};
use kedge_types::{DocKey, Seqno, VbId};
use known::{Change, Found, Known, Op};
use std::sync::Arc;

const KEYS: u64 = 24;
const STEPS: u64 = 250;

struct Random(u64);

impl Random {
    fn below(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

struct History {
    seed: u64,
    disk: SimDisk,
    site: TestSite,
    random: Random,
    vbuckets: Vec<Known>,
    version: u64,
    /// The maximum size of values, in units of eight bytes.
    longest: u64,
    /// The SyncWrites in progress: cookie, vBucket, and the number of the vBucket's operations including this one.
    waiting: Vec<(u64, VbId, usize)>,
    /// The numbers of rollbacks that restored a commit, and of those that reset the vBucket.
    rolled_back: u64,
    resets: u64,
}

fn key_names() -> impl Iterator<Item = String> {
    (0..KEYS).map(|n| format!("key-{n}"))
}

impl History {
    fn new(seed: u64) -> Self {
        let disk = SimDisk::new(seed);
        let mut site = sim(&disk);
        let config = &mut site.config;
        config.apply_max_lag_ms = 100;
        // Small limits, so that a batch has many parts.
        config.flusher_batch_max_items = 2;
        // Segments of 64 KiB, so that the log is recycled all the time.
        config.log_bytes_max = 256 << 10;
        config.num_shards = 2;
        config.keep_files_open = !seed.is_multiple_of(3);
        config.commit_log = !seed.is_multiple_of(4);
        Self {
            seed,
            disk,
            site,
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            vbuckets: all_vbuckets().map(|_| Known::new()).collect(),
            version: 0,
            longest: if seed.is_multiple_of(3) { 30 } else { 2_000 },
            waiting: Vec::new(),
            rolled_back: 0,
            resets: 0,
        }
    }

    fn has_no_power(&self) -> bool {
        self.site.disk.exists(&self.site.dir).is_err()
    }

    /// Opens the bucket. Returns `None` if the power failed meanwhile.
    fn open(&mut self) -> Option<(Open, Steps)> {
        if self.seed.is_multiple_of(5) {
            self.site.config.commit_log = self.random.below(2) == 0;
        }
        let steps = self.site.manual_tasks();
        let sink = Arc::new(Sink::default());
        let bucket = Bucket::open(self.site.setup(&sink)).ok()?;
        steps.run();
        match bucket.wait_loaded() {
            // The bucket may already be loaded when the power fails.
            Ok(_) if !sink.fatal().is_empty() => None,
            Ok(_) => Some((self.site.opened(bucket, sink), steps)),
            Err(error) => {
                let lost = self.has_no_power();
                assert!(lost, "seed {}: {error}", self.seed);
                None
            }
        }
    }

    /// Checks that every vBucket is at a point not before the acknowledged one, and can be written to.
    fn check(&mut self, open: &Open, when: &str) {
        let mut all_found = Vec::new();
        for vb in all_vbuckets() {
            match Found::look(open, vb, key_names()) {
                Ok(found) => all_found.push(found),
                Err(error) => {
                    assert!(self.has_no_power(), "seed {}, {when}: {error:?}", self.seed);
                    return;
                }
            }
        }
        for (vb, (known, found)) in self.vbuckets.iter_mut().zip(all_found).enumerate() {
            match known.explain(&found) {
                // The contents found are durable.
                Ok(changes) => known.begin(&found, changes),
                Err(reasons) => panic!(
                    "seed {}, {when}, vBucket {vb}: {reasons:#?}: found {found:#?} after {:#?}, of which {} are durable",
                    self.seed, known.ops, known.durable
                ),
            }
        }
        self.waiting.clear();
        for vb in all_vbuckets() {
            self.check_next_write(open, vb, when);
        }
    }

    /// Checks that the next write has a higher seqno and CAS than all before.
    fn check_next_write(&mut self, open: &Open, vb: VbId, when: &str) {
        let (seqno, cas) = self.vbuckets[vb.index()].highest();
        let mut names = key_names().filter(|name| key(name).vbucket(4) == vb);
        let name = names.next().expect("each has one");
        let value = self.value();
        if let Ok(mutated) = open.set(&name, &value) {
            assert!(
                mutated.seqno > seqno && mutated.cas > cas,
                "seed {}, {when}, vBucket {vb}: {mutated:?} after {seqno:?} and {cas:?}",
                self.seed
            );
            self.push(vb, Op::Write(Change::done(name, Some(value), mutated)));
        }
    }

    fn push(&mut self, vb: VbId, op: Op) -> usize {
        let ops = &mut self.vbuckets[vb.index()].ops;
        ops.push(op);
        ops.len()
    }

    fn all_durable(&mut self) {
        for known in &mut self.vbuckets {
            known.durable = known.ops.len();
        }
    }

    fn check_completions(&mut self, open: &Open) {
        let vbuckets = &mut self.vbuckets;
        self.waiting.retain(|(cookie, vb, ops)| {
            if open.sink.get(*cookie).is_none() {
                return true;
            }
            if let Ok(mutated) = open.sink.wait(*cookie) {
                let known = &mut vbuckets[vb.index()];
                known.durable = known.durable.max(*ops);
                if let Op::Write(change) = &mut known.ops[*ops - 1] {
                    assert_eq!(change.cas, mutated.cas, "{change:?}");
                    change.seqno = Some(mutated.seqno);
                }
            }
            false
        });
    }

    /// Records the reported persisted seqnos.
    fn publish(&mut self, open: &Open) {
        let has_power = !self.has_no_power();
        for (vb, known) in all_vbuckets().zip(&mut self.vbuckets) {
            let (before, now) = (known.published(), Published::read(open, vb));
            // A change without acknowledgement may not have begun.
            let goes_on = || before.zip(now).is_some_and(|(a, b)| a.branch == b.branch);
            if has_power || goes_on() {
                known.publish(now);
            }
        }
    }

    fn value(&mut self) -> Vec<u8> {
        self.version += 1;
        let times = 1 + self.random.below(self.longest) as usize;
        format!("{:08}", self.version).into_bytes().repeat(times)
    }

    fn set(&mut self, open: &Open, name: String) {
        let value = self.value();
        if let Ok(mutated) = open.set(&name, &value) {
            let vb = key(&name).vbucket(4);
            self.push(vb, Op::Write(Change::done(name, Some(value), mutated)));
        }
    }

    fn persist(&mut self, open: &Open, name: String) {
        let (value, cookie) = (self.value(), self.version);
        if open.persist(&name, &value, cookie).is_ok() {
            let vb = key(&name).vbucket(4);
            let now = open.bucket.vbucket_figures(vb).expect("it is there");
            let ops = self.push(vb, Op::Write(Change::prepared(name, value, &now)));
            self.waiting.push((cookie, vb, ops));
        }
    }

    fn delete(&mut self, open: &Open, name: String) {
        let k: DocKey = key(&name);
        if let Ok(mutated) = done(open.bucket.documents().delete(open.ctx(), &write(&k))) {
            let change = Change::done(name, None, mutated);
            self.push(k.vbucket(4), Op::Write(change));
        }
    }

    fn sync(&mut self, open: &Open) {
        if open.bucket.persistence().sync().is_ok() {
            self.all_durable();
        }
    }

    fn apply(&mut self, open: &Open) {
        if open.bucket.persistence().apply().is_ok() {
            self.all_durable();
        }
    }

    fn flush(&mut self, open: &Open) {
        let flushed = open.bucket.flush_all(open.ctx());
        for vb in all_vbuckets() {
            self.push(vb, Op::Reset);
        }
        if flushed.is_ok() {
            self.all_durable();
        }
    }

    fn delete_or_make(&mut self, open: &Open, vb: VbId) {
        let (deleted, op) = if open.bucket.vbucket_state(vb).is_ok() {
            (open.bucket.states().delete_vbucket(vb), Op::DeleteVbucket)
        } else {
            let made = open.bucket.states().set_vbucket(vb, VbState::Active);
            (made, Op::MakeVbucket)
        };
        self.push(vb, op);
        if deleted.is_ok() {
            self.all_durable();
        }
    }

    /// Rolls a vBucket back by `by` seqnos or a few more. Returns `None` if the power failed, or the vBucket does not exist.
    fn roll_back(&mut self, open: &Open, vb: VbId, by: u64) -> Option<RollbackReport> {
        // So that the position of everything is known.
        open.bucket.persistence().sync().ok()?;
        self.all_durable();
        self.check_completions(open);
        let high = open.bucket.vbucket_figures(vb)?.high_seqno;
        open.bucket
            .states()
            .set_vbucket(vb, VbState::Replica)
            .ok()?;
        let to = Seqno(high.get().saturating_sub(by));
        let Ok(back) = open.bucket.persistence().rollbacks().rollback(vb, to) else {
            self.push(vb, Op::BeginRollback(to));
            return None;
        };
        assert!(back.seqno <= to && (!back.is_reset || back.seqno == Seqno(0)));
        let op = match back.is_reset {
            true => Op::Reset,
            false => Op::RollBack(back.seqno),
        };
        self.push(vb, op);
        self.all_durable();
        open.bucket.states().set_vbucket(vb, VbState::Active).ok()?;
        let found = Found::look(open, vb, key_names()).ok()??;
        let known = &mut self.vbuckets[vb.index()];
        known.update_positions(&found);
        // The rollback was acknowledged, although the power may have failed after its last commit.
        known.publish(Published::read(open, vb));
        Some(back)
    }

    fn step(&mut self, open: &Open, steps: &Steps) {
        let name = format!("key-{}", self.random.below(KEYS));
        let vb = key(&name).vbucket(4);
        match self.random.below(106) {
            0..25 => self.set(open, name),
            25..45 => self.persist(open, name),
            45..55 => self.delete(open, name),
            55..70 => {
                open.bucket
                    .persistence()
                    .writers()
                    .request_flush(self.random.below(2) == 0);
                steps.run();
            }
            70..88 => {
                steps.pass(MS * self.random.below(60) as u32);
            }
            88..92 => self.sync(open),
            92..96 => self.apply(open),
            96..97 => self.flush(open),
            97..99 => self.delete_or_make(open, vb),
            99..101 => {
                let request = CompactionRequest {
                    drop_deletes: self.random.below(2) == 0,
                    ..CompactionRequest::default()
                };
                if open
                    .bucket
                    .persistence()
                    .compactions()
                    .compact(&request)
                    .is_ok()
                {
                    steps.run();
                }
            }
            101..104 => {
                let by = self.random.below(12);
                if let Some(back) = self.roll_back(open, vb, by) {
                    self.resets += u64::from(back.is_reset);
                    self.rolled_back += u64::from(!back.is_reset && by > 0);
                }
            }
            _ => {
                steps.pass(SEC * 2);
            }
        }
        self.check_completions(open);
        self.publish(open);
    }

    fn run(&mut self) {
        for round in 0..4 {
            // A killed process leaves its writes in the kernel's memory; a power loss does not.
            let killed = self.random.below(4) == 0;
            let steps_max = if killed {
                self.random.below(STEPS)
            } else {
                self.disk
                    .fail_after(self.random.below(1_000), Fault::PowerLoss);
                STEPS
            };
            if let Some((open, steps)) = self.open() {
                self.check(&open, &format!("round {round}"));
                for _ in 0..steps_max {
                    if !open.sink.fatal().is_empty() {
                        break;
                    }
                    self.step(&open, &steps);
                }
                if !killed && open.sink.fatal().is_empty() && self.random.below(2) == 0 {
                    open.bucket.shutdown();
                    // The result is known only if nothing failed before.
                    if !self.has_no_power() {
                        self.all_durable();
                    }
                }
            }
            if killed {
                self.disk.kill_process();
            } else {
                self.disk.crash(self.seed + round);
            }
            // The rest of the process; its files are not those of the next one.
            self.site.executor.shutdown();
        }
        let (open, _steps) = self.open().expect("nothing fails any more");
        self.check(&open, "the end");
        open.bucket.shutdown();
        self.site.executor.shutdown();
    }
}

#[test]
fn power_loss_at_any_operation_loses_no_acknowledged_write_in_random_histories() {
    let (mut rolled_back, mut resets) = (0, 0);
    let seeds = seeds(300);
    for seed in &seeds {
        eprintln!("seed {seed}");
        let mut history = History::new(*seed);
        history.run();
        rolled_back += history.rolled_back;
        resets += history.resets;
    }
    if seeds.len() > 10 {
        let least = seeds.len() as u64;
        assert!(
            rolled_back > least && resets > least,
            "{rolled_back} {resets}"
        );
    }
}
