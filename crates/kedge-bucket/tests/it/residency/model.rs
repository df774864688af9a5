//! Random commands on a bucket with little memory, compared to a map; with compactions, restarts, kills and disk faults.
//!
//! `KEDGE_SEED` runs one seed, `KEDGE_SEEDS` that many.

use super::small;
use crate::crash::seeds;
use crate::tools::*;
use kedge_bucket::{
    CompactionRate, CompactionRequest, Completion, ConcatMode, Cookie, CounterUpdate,
    EvictionPolicy, Mutated, Outcome, StoreMode, WarmupBehavior, Write,
};
use kedge_disk::{Fault, SimDisk};
use kedge_types::{Datatype, Durability, DurabilityLevel, Status};
use std::collections::BTreeMap;

type Map = BTreeMap<String, Vec<u8>>;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// Returns the result of a write, completed at once or later, and retries it while memory is short.
fn wait<T>(
    open: &Open,
    random: &mut Random,
    name: &str,
    mut run: impl FnMut(&Open, &Write<'_>) -> Result<Outcome<T>, Status>,
) -> Result<(), Status> {
    let key = key(name);
    loop {
        let cookie = open.next_cookie();
        let durability = (random.below(8) == 0).then_some(Durability {
            level: DurabilityLevel::PersistToMajority,
            timeout_ms: None,
        });
        let write = Write {
            cookie: Cookie(cookie),
            durability,
            ..write(&key)
        };
        let result: Result<(), Status> = match run(open, &write) {
            Ok(Outcome::Done(_)) => Ok(()),
            Ok(Outcome::Parked) => {
                open.bucket
                    .persistence()
                    .writers()
                    .request_flush(random.below(2) == 0);
                match open.sink.wait_any(cookie) {
                    Completion::SyncWrite { result, .. } => result.map(|_: Mutated| ()),
                    Completion::Counter { result } => result.map(drop),
                    other => panic!("{other:?}"),
                }
            }
            Err(status) => Err(status),
        };
        if result != Err(Status::TemporaryFailure) {
            return result;
        }
        std::thread::yield_now();
    }
}

/// Compacts all files, concurrently with the next steps or before them.
fn compact(open: &Open, random: &mut Random) {
    let request = CompactionRequest {
        drop_deletes: random.below(2) == 0,
        ..CompactionRequest::default()
    };
    let ticket = open
        .bucket
        .persistence()
        .compactions()
        .compact(&request)
        .unwrap();
    if random.below(2) == 0 {
        assert!(ticket.wait().is_complete());
    }
}

fn step(open: &Open, random: &mut Random, map: &mut Map) {
    if random.below(100) == 0 {
        compact(open, random);
    }
    let name = format!("key-{}", random.below(400));
    let there = map.get(&name).cloned();
    let text = format!("{:010}", random.below(1 << 30)).into_bytes();
    let new = text.repeat(1 + random.below(100) as usize);
    let store = |mode, new: Vec<u8>| {
        move |open: &Open, write: &Write<'_>| {
            open.bucket.documents().store(
                open.ctx(),
                write,
                &kedge_bucket::StoreArgs {
                    mode,
                    value: &new,
                    datatype: Datatype::RAW,
                    flags: 0,
                    expiry: 0,
                },
            )
        }
    };
    match random.below(12) {
        0..3 => {
            let found = open.get(&name);
            assert_eq!(found.ok(), there, "{name}");
        }
        3..6 => {
            wait(open, random, &name, store(StoreMode::Set, new.clone())).unwrap();
            map.insert(name, new);
        }
        6 => {
            let result = wait(open, random, &name, store(StoreMode::Add, new.clone()));
            let expected = there.map_or(Ok(()), |_| Err(Status::KeyExists));
            assert_eq!(result, expected, "{name}");
            map.entry(name).or_insert(new);
        }
        7 => {
            let result = wait(open, random, &name, store(StoreMode::Replace, new.clone()));
            assert_eq!(result.is_ok(), there.is_some(), "{name}");
            map.entry(name).and_modify(|value| *value = new);
        }
        8 => {
            let append = |open: &Open, write: &Write<'_>| {
                let (mode, raw) = (ConcatMode::Append, Datatype::RAW);
                open.bucket
                    .documents()
                    .concat(open.ctx(), write, mode, b"+", raw)
            };
            let result = wait(open, random, &name, append);
            assert_eq!(result.is_ok(), there.is_some(), "{name}");
            map.entry(name).and_modify(|value| value.push(b'+'));
        }
        9 => {
            let delete =
                |open: &Open, write: &Write<'_>| open.bucket.documents().delete(open.ctx(), write);
            let result = wait(open, random, &name, delete);
            assert_eq!(result.is_ok(), there.is_some(), "{name}");
            map.remove(&name);
        }
        10 => {
            let touch = |open: &Open, write: &Write<'_>| {
                open.bucket
                    .documents()
                    .get_and_touch(open.ctx(), write, 100_000, |_| ())
            };
            let result = wait(open, random, &name, touch);
            assert_eq!(result.is_ok(), there.is_some(), "{name}");
        }
        _ => {
            let name = format!("counter-{}", random.below(40));
            let op = CounterUpdate {
                negative: false,
                delta: 3,
                initial: Some(1),
                expiry: 0,
            };
            let count = |open: &Open, write: &Write<'_>| {
                open.bucket.documents().arithmetic(open.ctx(), write, op)
            };
            wait(open, random, &name, count).unwrap();
            let number = map.get(&name).map_or(1, |value| {
                let text = std::str::from_utf8(value).unwrap();
                text.parse::<u64>().unwrap() + 3
            });
            map.insert(name, number.to_string().into_bytes());
        }
    }
}

/// Ends a bucket in one of several ways, after all writes are durable.
fn end(open: &Open, disk: &SimDisk, random: &mut Random) {
    open.bucket.persistence().sync().unwrap();
    match random.below(3) {
        0 => open.bucket.shutdown(),
        1 => {
            disk.kill_process();
            open.bucket.shutdown();
        }
        _ => {
            disk.fail_after(random.below(30), Fault::PowerLoss);
            // Applies the log, or tries to.
            drop(open.bucket.persistence().apply());
            open.bucket.shutdown();
            disk.crash(random.below(1 << 40));
        }
    }
    disk.clear_faults();
}

/// The names of the events that each run must include.
const WANTED: [&str; 4] = [
    "ep_num_value_ejects",
    "ep_num_item_ejects",
    "ep_bg_fetched",
    "ep_compactions",
];

/// Runs one seed. Returns how often each event of [`WANTED`] happened.
fn run(seed: u64) -> [u64; WANTED.len()] {
    eprintln!("seed {seed}");
    let disk = SimDisk::new(seed);
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let policy = match seed % 2 {
        0 => EvictionPolicy::ValueOnly,
        _ => EvictionPolicy::FullEviction,
    };
    let mut site = small(&disk, policy, 120_000);
    site.config.commit_log = !seed.is_multiple_of(5);
    site.config.apply_max_lag_ms = 5;
    site.config.compaction.throttle = CompactionRate::Off;
    if !seed.is_multiple_of(3) {
        site.config.memory.warmup_behavior = WarmupBehavior::Background;
    }
    let mut map = Map::new();
    let mut happened = [0; WANTED.len()];
    for _ in 0..4 {
        let open = site.open();
        for _ in 0..random.below(1_500) {
            step(&open, &mut random, &mut map);
        }
        until("the bucket is warm", || {
            !open.bucket.residency().warmup().is_warming()
        });
        for (name, value) in &map {
            assert_eq!(open.get(name).as_ref(), Ok(value), "{name}, seed {seed}");
        }
        open.bucket.persistence().apply().unwrap();
        let documents = open.figure("curr_items");
        assert_eq!(documents, map.len() as u64, "seed {seed}");
        assert_eq!(open.sink.fatal(), [""; 0]);
        for (happened, name) in happened.iter_mut().zip(WANTED) {
            *happened += open.figure(name);
        }
        end(&open, &disk, &mut random);
    }
    happened
}

#[test]
fn random_commands_with_little_memory_match_a_map() {
    let seeds = seeds(24);
    let mut happened = [0; WANTED.len()];
    for seed in &seeds {
        let more = run(*seed);
        for (happened, more) in happened.iter_mut().zip(more) {
            *happened += more;
        }
    }
    if seeds.len() > 10 {
        let least = seeds.len() as u64;
        assert!(
            happened.iter().all(|happened| *happened > least),
            "{WANTED:?}: {happened:?}"
        );
    }
}
