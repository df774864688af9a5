//! Random histories of two nodes: all kinds of writes, all background work, crashes of either node, and failovers. At the
//! end the replica equals the active. A SyncWrite completes only when its level is reached. An acknowledged one survives a
//! failover and, depending on its level, a restart.
//!
//! `KEDGE_SEED` runs one seed, `KEDGE_SEEDS` that many.

use super::pair::{Node, Pair, whole};
use super::*;
use crate::crash::seeds;
use kedge_bucket::{CompactionRequest, Cookie, Write};
use kedge_disk::{Fault, Rng};
use kedge_types::{Durability, DurabilityLevel};

const KEYS: u64 = 16;

/// A write, in the order of the writes of its key.
#[derive(Debug)]
struct Written {
    /// The value; `None` for a deletion.
    value: Option<String>,
    acknowledged: Option<DurabilityLevel>,
}

/// A SyncWrite in progress.
struct Waiting {
    cookie: u64,
    name: String,
    /// The index among the writes of the key.
    index: usize,
    level: DurabilityLevel,
    prepared: Seqno,
}

struct History {
    seed: u64,
    pair: Pair,
    random: Rng,
    written: BTreeMap<String, Vec<Written>>,
    waiting: Vec<Waiting>,
    version: u64,
    /// True if the replica has received everything that the active has since it was started.
    replica_is_fresh: bool,
    /// The numbers of acknowledged SyncWrites and of failovers.
    counts: (u64, u64),
}

impl History {
    fn new(seed: u64) -> Self {
        let pair = Pair::new(seed, |config| {
            config.commit_log = !seed.is_multiple_of(3);
            config.apply_max_lag_ms = 40;
            // Small limits, so that a batch has many parts.
            config.flusher_batch_max_items = 2 + (seed % 5) as usize;
            config.log_bytes_max = 256 << 10;
            config.keep_files_open = !seed.is_multiple_of(4);
            if seed.is_multiple_of(2) {
                config.memory.dcp_cursor_percent = 0;
            }
            if seed.is_multiple_of(5) {
                config.memory.dcp_backfill_bytes_max = 4_000;
            }
        });
        Self {
            seed,
            pair,
            random: Rng::new(seed),
            written: BTreeMap::new(),
            waiting: Vec::new(),
            version: 0,
            replica_is_fresh: true,
            counts: (0, 0),
        }
    }

    fn name(&mut self) -> String {
        format!("key-{}", self.random.below(KEYS))
    }

    /// Writes or deletes, with a durability level or without.
    fn write(&mut self, level: Option<DurabilityLevel>, deletes: bool) {
        let name = self.name();
        self.version += 1;
        let cookie = self.version;
        let key = key(&name);
        let write = Write {
            durability: level.map(|level| Durability {
                level,
                timeout_ms: Some(3_000),
            }),
            cookie: Cookie(cookie),
            ..write(&key)
        };
        let open = self.pair.active().open();
        let times = 1 + self.random.below(40) as usize;
        let value = (!deletes).then(|| format!("{:08}", self.version).repeat(times));
        let taken = match &value {
            Some(value) => open.store(&write, value.as_bytes()).is_ok(),
            None => open.bucket.documents().delete(open.ctx(), &write).is_ok(),
        };
        if !taken {
            return;
        }
        let vb = key.vbucket(4);
        let figures = open.bucket.vbucket_figures(vb);
        let writes = self.written.entry(name.clone()).or_default();
        writes.push(Written {
            value,
            acknowledged: None,
        });
        if let Some(level) = level {
            self.waiting.push(Waiting {
                cookie,
                index: writes.len() - 1,
                name,
                level,
                prepared: figures.unwrap().high_seqno,
            });
        }
    }

    /// Checks that the SyncWrites that completed had reached their level.
    fn check_completions(&mut self) {
        let Some((open, _)) = &self.pair.active().up else {
            return;
        };
        let replica = self.pair.replica().up.as_ref().map(|up| &up.0);
        let ended = self
            .waiting
            .extract_if(.., |waiting| open.sink.get(waiting.cookie).is_some());
        for waiting in ended {
            if open.sink.wait(waiting.cookie).is_err() {
                continue;
            }
            let vb = key(&waiting.name).vbucket(4);
            let active = open.bucket.vbucket_figures(vb).unwrap();
            let replica = replica.expect("nothing is acknowledged without it");
            let replica = replica.bucket.vbucket_figures(vb).unwrap();
            let needs = |level| waiting.level >= level;
            assert!(replica.high_seqno >= waiting.prepared);
            assert!(
                !needs(DurabilityLevel::MajorityAndPersistOnActive)
                    || active.persisted_seqno >= waiting.prepared
            );
            assert!(
                !needs(DurabilityLevel::PersistToMajority)
                    || replica.persisted_seqno >= waiting.prepared
            );
            let writes = self.written.get_mut(&waiting.name).unwrap();
            writes[waiting.index].acknowledged = Some(waiting.level);
            self.counts.0 += 1;
        }
    }

    fn step(&mut self) {
        use DurabilityLevel::{Majority, MajorityAndPersistOnActive, PersistToMajority};
        let which = self.random.below(2) as usize;
        match self.random.below(100) {
            0..22 => self.write(None, false),
            22..27 => self.write(None, true),
            27..36 => self.write(Some(Majority), false),
            36..42 => self.write(Some(MajorityAndPersistOnActive), false),
            42..50 => self.write(Some(PersistToMajority), false),
            50..53 => self.write(Some(PersistToMajority), true),
            53..57 => {
                let lead = self.random.below(2) == 0;
                self.pair
                    .active()
                    .open()
                    .bucket
                    .persistence()
                    .writers()
                    .request_flush(lead);
            }
            57..75 => {
                let vb = VbId(self.random.below(4) as u16);
                self.pair.at_once = 1 + self.random.below(6) as usize;
                self.pair.pump(vb);
            }
            75..83 => {
                if let Some((_, steps)) = &self.pair.nodes[which].up {
                    steps.run();
                }
                self.pair.deliver_acks();
            }
            83..88 => {
                let time = MS * self.random.below(60) as u32;
                self.pair.pass(time);
            }
            88..90 => {
                if let Some((open, _)) = &self.pair.nodes[which].up {
                    // The write is rejected when the power fails.
                    let _ = open.bucket.persistence().apply();
                }
            }
            90..92 => {
                if let Some((open, steps)) = &self.pair.nodes[which].up
                    && open
                        .bucket
                        .persistence()
                        .compactions()
                        .compact(&CompactionRequest::default())
                        .is_ok()
                {
                    steps.run();
                }
            }
            92..94 => self.pair.disconnect(),
            94 if self.pair.from_files => self.begin_replica_anew(),
            94 => self.switch_over(),
            95 => self.crash(which),
            96 if self.pair.nodes[which].up.is_some() => {
                // The power fails at one of the next operations.
                let disk = &self.pair.nodes[which].disk;
                disk.fail_after(self.random.below(40), Fault::PowerLoss);
            }
            97 => self.check(),
            _ => self.start_stopped_nodes(),
        }
    }

    /// Deletes a vBucket of the replica, and creates it again without its documents.
    fn begin_replica_anew(&mut self) {
        let replica = self.pair.replica();
        if replica.up.is_none() {
            return;
        }
        self.replica_is_fresh = false;
        let vb = VbId(self.random.below(4) as u16);
        self.pair.disconnect();
        let states = self.pair.replica().open().bucket.states();
        // Both fail when the power fails.
        let _ = states.delete_vbucket(vb);
        self.pair.set_states();
    }

    /// Makes the other node active while both are running.
    fn switch_over(&mut self) {
        if self.pair.nodes.iter().all(Node::is_well) && self.replica_is_fresh {
            self.fail_over();
        }
    }

    fn fail_over(&mut self) {
        self.check_completions();
        self.waiting.clear();
        self.pair.disconnect();
        self.pair.active = 1 - self.pair.active;
        // The vBuckets on the disk of this node are no longer active.
        for write in self.written.values_mut().flatten() {
            let level = &mut write.acknowledged;
            *level = level.map(|level| match level {
                DurabilityLevel::MajorityAndPersistOnActive => DurabilityLevel::Majority,
                other => other,
            });
        }
        // The old active may have changes that the new one lacks.
        self.replica_is_fresh = false;
        self.counts.1 += 1;
        self.pair.set_states();
    }

    fn crash(&mut self, which: usize) {
        self.check_completions();
        self.pair.disconnect();
        let killed = self.random.below(3) == 0;
        let seed = self.seed + self.version;
        self.pair.nodes[which].disk.clear_faults();
        self.pair.nodes[which].crash(seed, killed);
        if which != self.pair.active {
            self.replica_is_fresh = false;
            return;
        }
        if self.replica_is_fresh && self.pair.replica().is_well() {
            self.fail_over();
        } else {
            self.restart_active();
        }
    }

    /// Restarts the active when the other node cannot take over. Changes that were only in its memory are lost.
    fn restart_active(&mut self) {
        self.waiting.clear();
        let active = self.pair.active;
        self.pair.nodes[active].start().expect("nothing fails");
        for write in self.written.values_mut().flatten() {
            let level = &mut write.acknowledged;
            *level = level.filter(|level| *level > DurabilityLevel::Majority);
        }
        self.replica_is_fresh = false;
        self.pair.set_states();
    }

    fn start_stopped_nodes(&mut self) {
        let replica = 1 - self.pair.active;
        if self.pair.nodes[replica].up.is_none() {
            self.pair.nodes[replica].start().expect("nothing fails");
            self.pair.set_states();
        }
    }

    fn stop_failed_nodes(&mut self) {
        for which in 0..2 {
            let node = &self.pair.nodes[which];
            if node.up.is_some() && !node.is_well() {
                self.crash(which);
            }
        }
    }

    /// Checks that both nodes have the same documents, and all that were acknowledged.
    fn check(&mut self) {
        for node in &self.pair.nodes {
            node.disk.clear_faults();
        }
        self.stop_failed_nodes();
        self.start_stopped_nodes();
        self.pair.check_equal();
        self.replica_is_fresh = true;
        self.check_completions();
        let mut found = BTreeMap::new();
        for vb in all_vbuckets() {
            found.append(&mut whole(self.pair.active(), vb).values());
        }
        for (name, writes) in &self.written {
            let there = found.get(name);
            let last = writes.iter().rposition(|it| it.acknowledged.is_some());
            let is_explained = writes[last.unwrap_or(0)..]
                .iter()
                .any(|it| it.value.as_ref() == there)
                || (last.is_none() && there.is_none());
            let brief = |value: &String| value[..8].to_owned();
            assert!(
                is_explained,
                "seed {}: {name} has {:?}, not what was acknowledged at {last:?} of {:?}",
                self.seed,
                there.map(brief),
                writes
                    .iter()
                    .map(|it| it.value.as_ref().map(brief))
                    .collect::<Vec<_>>(),
            );
        }
    }

    fn run(&mut self, steps: u32) {
        for _ in 0..steps {
            self.step();
            self.check_completions();
            self.stop_failed_nodes();
        }
        self.check();
        self.pair.nodes.iter_mut().for_each(Node::shutdown);
    }
}

#[test]
fn replica_equals_its_active_in_random_histories() {
    let seeds = seeds(60);
    let (mut acknowledged, mut failovers, mut rollbacks) = (0, 0, 0);
    for seed in &seeds {
        eprintln!("seed {seed}");
        let mut history = History::new(*seed);
        history.run(250);
        acknowledged += history.counts.0;
        failovers += history.counts.1;
        rollbacks += u64::from(history.pair.rollbacks);
    }
    eprintln!("{acknowledged} acknowledged, {failovers} failovers, {rollbacks} rollbacks");
    if seeds.len() > 20 {
        assert!(acknowledged > 500 && failovers > 50 && rollbacks > 10);
    }
}

#[test]
fn replica_from_files_equals_its_active_in_random_histories() {
    let (mut copies, mut acknowledged) = (0, 0);
    let seeds = seeds(60);
    for seed in &seeds {
        eprintln!("seed {seed}");
        let mut history = History::new(*seed);
        history.pair.from_files = true;
        history.run(250);
        acknowledged += history.counts.0;
        copies += history.pair.files.get();
    }
    eprintln!("{acknowledged} acknowledged, {copies} copies");
    if seeds.len() > 20 {
        assert!(acknowledged > 100 && copies > 50);
    }
}

/// Runs a short history, in which the power of one node fails at its disk operation number `fail_at`. Returns whether it failed.
fn short(which: usize, commit_log: bool, fail_at: u64) -> bool {
    let mut history = History::new(fail_at);
    for node in &mut history.pair.nodes {
        node.shutdown();
        node.site.config.commit_log = commit_log;
        node.start().unwrap();
    }
    history.pair.set_states();
    history.pair.quiet();
    let disk = history.pair.nodes[which].disk.clone();
    let end = disk.operations() + fail_at;
    disk.fail_operation(end, Fault::PowerLoss);
    // The same steps each time: the seed decides other things only.
    history.random = Rng::new(7);
    for round in 0..12 {
        let level = DurabilityLevel::PersistToMajority;
        history.write((round % 3 == 0).then_some(level), false);
        history.write(Some(level).filter(|_| round % 4 == 1), round % 5 == 4);
        if round % 2 == 0 {
            for vb in all_vbuckets() {
                history.pair.pump(vb);
            }
        }
        history
            .pair
            .active()
            .open()
            .bucket
            .persistence()
            .writers()
            .request_flush(true);
        history.pair.pass(MS * 30);
        history.check_completions();
    }
    let has_failed = disk.operations() >= end;
    disk.clear_faults();
    history.check();
    history.pair.nodes.iter_mut().for_each(Node::shutdown);
    has_failed
}

#[test]
fn power_loss_of_either_node_at_each_operation_loses_nothing() {
    for (which, commit_log) in [(0, true), (1, true), (0, false), (1, false)] {
        let failed = (1..).take_while(|fail_at| short(which, commit_log, *fail_at));
        let failed = failed.count();
        assert!(failed > 20, "{which} {commit_log}: {failed}");
    }
}
