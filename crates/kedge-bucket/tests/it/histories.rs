//! Histories by seed, cut off by a power failure at any operation of the disk, recovery included: what was acknowledged
//! is there, and each vBucket is what it was at one moment of its history.
//!
//! `KEDGE_SEED` runs one seed, `KEDGE_SEEDS` that many.

use crate::crash::seeds;
use crate::tools::*;
use kedge_bucket::{Bucket, CompactionRequest, VbState};
use kedge_disk::{Fault, SimDisk};
use kedge_types::{Status, VbId};
use std::collections::BTreeMap;
use std::sync::Arc;

const KEYS: u64 = 24;
const STEPS: u64 = 250;

/// What a step did to a vBucket.
#[derive(Clone, Debug)]
enum Op {
    Set(String, Vec<u8>),
    Delete(String),
    Reset,
    DeleteVbucket,
    MakeVbucket,
}

type Documents = BTreeMap<String, Vec<u8>>;

/// What is known of a vBucket.
struct Known {
    /// What it held when it was looked at last; `None`: it was deleted.
    base: Option<Documents>,
    /// What was done since, in the order of seqnos.
    ops: Vec<Op>,
    /// So many of these are acknowledged as durable.
    durable: usize,
}

impl Known {
    fn found(base: Option<Documents>) -> Self {
        Self {
            base,
            ops: Vec::new(),
            durable: 0,
        }
    }

    /// How many of the operations `found` comes from, no fewer than are durable.
    fn explain(&self, found: &Option<Documents>) -> Option<usize> {
        let mut documents = self.base.clone();
        let mut explained = (self.durable == 0 && documents == *found).then_some(0);
        for (index, op) in self.ops.iter().enumerate() {
            match (op, &mut documents) {
                (Op::Set(name, value), Some(there)) => {
                    there.insert(name.clone(), value.clone());
                }
                (Op::Delete(name), Some(there)) => {
                    there.remove(name);
                }
                (Op::Reset, Some(there)) => there.clear(),
                (Op::DeleteVbucket, _) => documents = None,
                (Op::MakeVbucket, None) => documents = Some(Documents::new()),
                (_, None) | (Op::MakeVbucket, _) => {}
            }
            if index + 1 >= self.durable && documents == *found {
                explained = Some(index + 1);
            }
        }
        explained
    }
}

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
    place: Place,
    random: Random,
    vbuckets: Vec<Known>,
    version: u64,
    /// SyncWrites under way: cookie, vBucket, number of its operations with this one.
    waiting: Vec<(u64, VbId, usize)>,
}

impl History {
    fn new(seed: u64) -> Self {
        let disk = SimDisk::new(seed);
        let mut place = sim(&disk);
        let config = &mut place.config;
        config.settle_age_ms = 100;
        // So a batch has many parts.
        config.flusher_batch_max_items = 2;
        // Segments of 64 KiB: the log is given back all the time.
        config.log_bytes_max = 256 << 10;
        config.num_shards = 2;
        config.keep_files_open = !seed.is_multiple_of(3);
        config.commit_log = !seed.is_multiple_of(4);
        Self {
            seed,
            disk,
            place,
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            vbuckets: (0..4)
                .map(|_| Known::found(Some(Documents::new())))
                .collect(),
            version: 0,
            waiting: Vec::new(),
        }
    }

    fn has_no_power(&self) -> bool {
        self.place.disk.exists(&self.place.dir).is_err()
    }

    /// Opens the bucket; `None` when the power failed meanwhile.
    fn open(&mut self) -> Option<(Open, Steps)> {
        if self.seed.is_multiple_of(5) {
            self.place.config.commit_log = self.random.below(2) == 0;
        }
        let steps = self.place.by_hand();
        let sink = Arc::new(Sink::default());
        let bucket = Bucket::open(self.place.setup(&sink)).ok()?;
        steps.run();
        match bucket.wait_loaded() {
            // It may be at work already when the power fails.
            Ok(_) if !sink.fatal().is_empty() => None,
            Ok(_) => Some((self.place.opened(bucket, sink), steps)),
            Err(error) => {
                let lost = self.has_no_power();
                assert!(lost, "seed {}: {error}", self.seed);
                None
            }
        }
    }

    /// Every vBucket is what it was at some moment that is not before what was acknowledged.
    fn check(&mut self, open: &Open, when: &str) {
        let mut found = vec![Some(Documents::new()); 4];
        for n in 0..KEYS {
            let name = format!("key-{n}");
            match open.get(&name) {
                Ok(value) => {
                    let there = &mut found[key(&name).vbucket(4).index()];
                    there.as_mut().expect("it is there").insert(name, value);
                }
                Err(Status::NotMyVbucket) => found[key(&name).vbucket(4).index()] = None,
                Err(error) => assert_eq!(error, Status::KeyNotFound),
            }
        }
        for (vb, (known, found)) in self.vbuckets.iter_mut().zip(found).enumerate() {
            let brief = |documents: &Option<Documents>| -> Vec<String> {
                let text = |(name, value): (&String, &Vec<u8>)| {
                    format!("{name}={}", String::from_utf8_lossy(&value[..8]))
                };
                documents.iter().flatten().map(text).collect()
            };
            assert!(
                known.explain(&found).is_some(),
                "seed {}, {when}, vBucket {vb}: found {:?}, of which {} of {} changes behind {:?} are durable",
                self.seed,
                brief(&found),
                known.durable,
                known.ops.len(),
                brief(&known.base),
            );
            // What was found is durable.
            *known = Known::found(found);
        }
        self.waiting.clear();
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

    fn hear(&mut self, open: &Open) {
        let vbuckets = &mut self.vbuckets;
        self.waiting.retain(|(cookie, vb, ops)| {
            if open.sink.get(*cookie).is_none() {
                return true;
            }
            if open.sink.wait(*cookie).is_ok() {
                let durable = &mut vbuckets[vb.index()].durable;
                *durable = (*durable).max(*ops);
            }
            false
        });
    }

    fn value(&mut self) -> Vec<u8> {
        self.version += 1;
        let longest = if self.seed.is_multiple_of(3) {
            30
        } else {
            2_000
        };
        let times = 1 + self.random.below(longest) as usize;
        format!("{:08}", self.version).into_bytes().repeat(times)
    }

    fn step(&mut self, open: &Open, steps: &Steps) {
        let name = format!("key-{}", self.random.below(KEYS));
        let k = key(&name);
        let vb = k.vbucket(4);
        match self.random.below(103) {
            0..25 => {
                let value = self.value();
                if open.set(&name, &value).is_ok() {
                    self.push(vb, Op::Set(name, value));
                }
            }
            25..45 => {
                let (value, cookie) = (self.value(), self.version);
                if open.persist(&name, &value, cookie).is_ok() {
                    let ops = self.push(vb, Op::Set(name, value));
                    self.waiting.push((cookie, vb, ops));
                }
            }
            45..55 => {
                if open.bucket.delete(open.ctx(), &write(&k)).is_ok() {
                    self.push(vb, Op::Delete(name));
                }
            }
            55..70 => {
                open.bucket.kick(self.random.below(2) == 0);
                steps.run();
            }
            70..88 => {
                steps.pass(MS * self.random.below(60) as u32);
            }
            88..92 => {
                if open.bucket.sync().is_ok() {
                    self.all_durable();
                }
            }
            92..96 => {
                if open.bucket.settle().is_ok() {
                    self.all_durable();
                }
            }
            96..97 => {
                let flushed = open.bucket.flush_all(open.ctx());
                for vb in all_vbuckets() {
                    self.push(vb, Op::Reset);
                }
                if flushed.is_ok() {
                    self.all_durable();
                }
            }
            97..99 => {
                let (deleted, op) = if open.bucket.vbucket_state(vb).is_ok() {
                    (open.bucket.delete_vbucket(vb), Op::DeleteVbucket)
                } else {
                    let made = open.bucket.set_vbucket(vb, VbState::Active);
                    (made, Op::MakeVbucket)
                };
                self.push(vb, op);
                if deleted.is_ok() {
                    self.all_durable();
                }
            }
            99..101 => {
                let request = CompactionRequest {
                    drop_deletes: self.random.below(2) == 0,
                    ..CompactionRequest::default()
                };
                if open.bucket.compact(&request).is_ok() {
                    steps.run();
                }
            }
            _ => {
                steps.pass(SEC * 2);
            }
        }
        self.hear(open);
    }

    fn run(&mut self) {
        for round in 0..4 {
            // A process that is killed leaves in the kernel's memory what it wrote; a power failure does not.
            let killed = self.random.below(4) == 0;
            let steps_max = if killed {
                self.random.below(STEPS)
            } else {
                let fail_at = self.disk.operations() + 1 + self.random.below(1_000);
                self.disk.fail_operation(fail_at, Fault::PowerLoss);
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
                    // It is known only if nothing failed on the way.
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
            // What is left of the process; its files are not those of the next one.
            self.place.executor.shutdown();
        }
        let (open, _steps) = self.open().expect("nothing fails any more");
        self.check(&open, "the end");
        open.bucket.shutdown();
        self.place.executor.shutdown();
    }
}

#[test]
fn a_power_failure_at_any_operation_takes_nothing_that_was_acknowledged() {
    for seed in seeds(300) {
        eprintln!("seed {seed}");
        History::new(seed).run();
    }
}
