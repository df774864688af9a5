//! Model test of two nodes, each with a file and with or without a log: one is active, the other its replica. Streams
//! are interrupted and come from memory or disk, nodes crash and recover from disk, and each node becomes active in
//! turn.
//!
//! Checked invariants: no prepare is visible; seqnos and CAS values ascend; a write that was committed for a client
//! survives the promotion of the other node if that node had acknowledged it; finally both nodes have the same
//! documents.

mod node;
mod streams;

use self::node::Node;
use self::streams::{disk_snapshot, rollback_point, whole_from};
use crate::disk::{Applying, WHOLE, documents};
use crate::tools::*;
use kedge_types::{DurabilityLevel, Seqno, Status, VbUuid};
use kedge_vbucket::{
    Change, Item, PersistenceMode, Received, StateChange, StoreMode, VBucket, VbState,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const LEVELS: [DurabilityLevel; 3] = [
    DurabilityLevel::Majority,
    DurabilityLevel::MajorityAndPersistOnActive,
    DurabilityLevel::PersistToMajority,
];

#[derive(Clone, Debug)]
enum Step {
    Set(u8),
    Delete(u8),
    Durable(u8, DurabilityLevel),
    DurableDelete(u8, DurabilityLevel),
    /// SyncWrites in flight time out.
    Late,
    Log(bool, usize),
    FileChange(bool, Applying),
    Release(bool),
    /// A snapshot from disk or memory, and the number of changes before the stream is interrupted.
    Stream {
        from_disk: bool,
        changes: usize,
        come: usize,
    },
    Ack,
    Crash(bool, usize),
    /// Promotes the replica, with or without the old active node as its replica.
    Promote {
        together: bool,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let level = || proptest::sample::select(LEVELS.to_vec());
    let applying =
        (1usize..5, 0usize..5, prop::bool::weighted(0.8)).prop_map(|(max_items, parts, ends)| {
            Applying {
                max_items,
                parts,
                ends,
            }
        });
    let stream = (prop::bool::weighted(0.25), 1usize..8, 0usize..12);
    let step = prop_oneof![
        5 => (0u8..5).prop_map(Step::Set),
        2 => (0u8..5).prop_map(Step::Delete),
        8 => (0u8..5, level()).prop_map(|(key, level)| Step::Durable(key, level)),
        2 => (0u8..5, level()).prop_map(|(key, level)| Step::DurableDelete(key, level)),
        1 => Just(Step::Late),
        8 => (any::<bool>(), 1usize..9).prop_map(|(active, max)| Step::Log(active, max)),
        3 => (any::<bool>(), applying).prop_map(|(active, how)| Step::FileChange(active, how)),
        1 => any::<bool>().prop_map(|active| Step::FileChange(active, WHOLE)),
        2 => any::<bool>().prop_map(Step::Release),
        12 => stream.prop_map(|(from_disk, changes, come)| Step::Stream { from_disk, changes, come }),
        8 => Just(Step::Ack),
        1 => (any::<bool>(), 0usize..4).prop_map(|(active, logged)| Step::Crash(active, logged)),
        1 => any::<bool>().prop_map(|together| Step::Promote { together }),
    ];
    proptest::collection::vec(step, 1..150)
}

/// The states of a key that a client may observe.
#[derive(Clone, Debug, Default)]
struct Allowed {
    /// The last acknowledged value or deletion, and its level.
    acknowledged: Option<(Option<Vec<u8>>, DurabilityLevel)>,
    /// The values and deletions that were attempted since.
    later: BTreeSet<Option<Vec<u8>>>,
}

struct Pair {
    nodes: [Node; 2],
    active: usize,
    together: bool,
    uuid: u64,
    turn: u64,
    secs: u64,
    allowed: BTreeMap<u8, Allowed>,
    /// SyncWrites in flight: cookie to key, value and level.
    waiting: BTreeMap<u64, (u8, Option<Vec<u8>>, DurabilityLevel)>,
    last_cas: u64,
    last_seqno: u64,
}

fn name(key: u8) -> String {
    format!("key-{key}")
}

/// Returns the live documents.
fn table(vb: &VBucket) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let live = vb.table().iter().filter(|item| !item.is_deleted());
    live.map(|item| (item.key().to_vec(), item.value().to_vec()))
        .collect()
}

/// Returns the documents and metadata that both nodes must agree on.
fn whole(vb: &VBucket) -> BTreeMap<Vec<u8>, String> {
    let show = |item: &Item| {
        let meta = item.meta();
        format!(
            "{:?} {:?} {:?} {:?} {:?}",
            item.value(),
            meta.seqno,
            meta.cas,
            meta.rev,
            meta.deleted
        )
    };
    vb.table()
        .iter()
        .map(|item| (item.key().to_vec(), show(item)))
        .collect()
}

impl Pair {
    fn new(persistences: [PersistenceMode; 2]) -> Self {
        let mut pair = Self {
            nodes: persistences.map(Node::new),
            active: 0,
            together: true,
            uuid: 1,
            turn: 0,
            secs: 0,
            allowed: BTreeMap::new(),
            waiting: BTreeMap::new(),
            last_cas: 0,
            last_seqno: 0,
        };
        let uuid = pair.next_uuid();
        pair.set_state(1, StateChange::to(VbState::Replica, uuid));
        pair.set_chains();
        pair
    }

    fn next_uuid(&mut self) -> VbUuid {
        self.uuid += 1;
        VbUuid(self.uuid)
    }

    fn active(&mut self) -> &mut Node {
        &mut self.nodes[self.active]
    }

    fn replica(&mut self) -> &mut Node {
        &mut self.nodes[1 - self.active]
    }

    fn node(&mut self, is_active: bool) -> &mut Node {
        if is_active {
            self.active()
        } else {
            self.replica()
        }
    }

    fn set_chains(&mut self) {
        let chain = match (self.active, self.together) {
            (0, true) => "ab",
            (0, false) => "a-",
            (_, true) => "ba",
            (_, false) => "b-",
        };
        let uuid = self.next_uuid();
        self.set_state(
            self.active,
            StateChange {
                topology: Some(topology(&[chain])),
                ..StateChange::to(VbState::Active, uuid)
            },
        );
    }

    /// Persists a state change before any other node is informed.
    fn set_state(&mut self, node: usize, change: StateChange) {
        let node = &mut self.nodes[node];
        node.vb.set_state(change);
        node.persist(usize::MAX);
    }

    fn write(&mut self, id: u8, level: Option<DurabilityLevel>, deletes: bool) {
        self.turn += 1;
        let (now, turn) = (at(self.secs), self.turn);
        let bytes = turn.to_string().into_bytes();
        let value = (!deletes).then(|| bytes.clone());
        let key = key(&name(id));
        let write = match level {
            Some(level) => durable(&key, level, turn),
            None => write(&key),
        };
        let vb = &mut self.active().vb;
        let highest = vb.table().iter().map(|item| item.cas().get()).max();
        let before = vb.high_seqno();
        let outcome = if deletes {
            vb.at(now).delete(&write)
        } else {
            store(vb, now, &write, StoreMode::Set, &bytes)
        };
        let (cas, after) = (vb.history().last_cas().get(), vb.high_seqno());
        if outcome.is_ok() {
            assert!(after > before);
            assert!(
                cas > self.last_cas.max(highest.unwrap_or(0)),
                "CAS only grow"
            );
            self.last_cas = cas;
            self.allowed
                .entry(id)
                .or_default()
                .later
                .insert(value.clone());
            if let Some(level) = level {
                self.waiting.insert(turn, (id, value, level));
            }
        }
        self.deliver_results();
    }

    /// Delivers the results of SyncWrites to clients.
    fn deliver_results(&mut self) {
        for node in 0..2 {
            for (cookie, result) in results(&mut self.nodes[node].vb) {
                let (id, value, level) = self.waiting.remove(&cookie).expect("it waits");
                match result {
                    Ok(_) => {
                        assert_eq!(node, self.active);
                        // Earlier attempts are superseded, and no write was accepted since.
                        self.allowed.insert(
                            id,
                            Allowed {
                                acknowledged: Some((value, level)),
                                later: BTreeSet::new(),
                            },
                        );
                    }
                    Err(status) => assert_eq!(status, Status::SyncWriteAmbiguous),
                }
            }
        }
    }

    /// Starts a stream to the replica, with as many rollbacks as needed.
    fn connect(&mut self) {
        for _ in 0..20 {
            let active = &self.nodes[self.active].vb;
            let (table, high) = (active.failover().clone(), active.high_seqno());
            let resume = self.replica().vb.history().resume_point();
            if let Some(to) = rollback_point(&table, high, &resume) {
                let uuid = self.next_uuid();
                let before = self.replica().high();
                self.replica().go_back(to, uuid);
                assert!(self.replica().high() < before.max(1), "it went back");
                continue;
            }
            let name = if self.active == 0 {
                node("b")
            } else {
                node("a")
            };
            self.active().vb.durability_mut().forget_acks(&name);
            self.replica().vb.begin_stream(table).unwrap();
            return;
        }
        panic!("it goes back for ever");
    }

    fn stream(&mut self, from_disk: bool, changes: usize, come: usize) {
        self.connect();
        let history = self.active().history();
        let start = self.replica().high();
        let (high, whole_from) = (self.active().high(), whole_from(&history));
        if start >= high {
            return self.caught_up();
        }
        let upto = (start + changes as u64).min(high);
        let from_disk = from_disk || start < whole_from;
        let (snapshot, all) = if from_disk {
            disk_snapshot(&history, start, upto.max(whole_from))
        } else {
            // After an interrupted disk snapshot, prepares may be missing that were completed by its end.
            let torn = self.replica().vb.history().resume_point().snap_start.get();
            let may_lack = |prepared: Seqno| torn < prepared.get() && prepared.get() <= start;
            let all = history.iter().filter_map(|change| match change {
                Change::Commit { item, prepared } if may_lack(*prepared) => {
                    Some(Received::Document(item.clone()))
                }
                other => sent(other),
            });
            let all = all.filter(|received| {
                let seqno = received.seqno().get();
                seqno > start && seqno <= upto
            });
            (memory(start + 1, upto), all.collect())
        };
        let breaks_off = come < all.len();
        let now = at(self.secs);
        let replica = self.replica();
        replica.vb.begin_snapshot(snapshot).unwrap();
        for received in all.into_iter().take(come) {
            replica.vb.receive(now, received).unwrap();
        }
        if breaks_off {
            self.replica().vb.end_stream();
        } else {
            assert_eq!(self.replica().high(), snapshot.end.get());
            self.caught_up();
        }
    }

    /// Checks both nodes if the replica has everything that the active node has.
    fn caught_up(&mut self) {
        let (active, replica) = (&self.nodes[self.active].vb, &self.nodes[1 - self.active].vb);
        let is_same = active.high_seqno() == replica.high_seqno()
            && replica.history().consistent_seqno() == replica.high_seqno();
        if !is_same {
            return;
        }
        assert_eq!(whole(active), whole(replica), "both have the same");
        let figures = |vb: &VBucket| {
            let figures = vb.durability_figures();
            (figures.tracked, figures.tracked_range)
        };
        assert_eq!(figures(active), figures(replica));
        if !self.nodes.iter().any(|node| node.was_torn) {
            assert_eq!(
                active.history().visible_seqno(),
                replica.history().visible_seqno()
            );
        }
        let replica = self.replica();
        replica.has_crashed = false;
        // The changes that it rolled back are on its disk again.
        replica.has_gone_back &= replica.vb.persisted_seqno() < replica.vb.high_seqno();
    }

    fn ack(&mut self) {
        let name = if self.active == 0 {
            node("b")
        } else {
            node("a")
        };
        if let Some(seqno) = self.replica().vb.take_ack() {
            self.active().vb.acknowledge(&name, seqno).unwrap();
        }
        self.deliver_results();
    }

    /// Promotes the replica. With `crash`, the old active node crashes first, with this number of further changes in
    /// its log.
    fn promote(&mut self, crash: Option<usize>, together: bool) {
        if let Some(logged) = crash {
            let uuid = self.next_uuid();
            self.active().crash(logged, uuid);
        }
        if self.replica().has_crashed {
            // Levels without persistence survive only one crash.
            for allowed in self.allowed.values_mut() {
                let persisted = DurabilityLevel::PersistToMajority;
                if allowed
                    .acknowledged
                    .as_ref()
                    .is_some_and(|(_, level)| *level != persisted)
                {
                    allowed.acknowledged = None;
                }
            }
        }
        let uuid = self.next_uuid();
        self.set_state(self.active, StateChange::to(VbState::Replica, uuid));
        self.deliver_results();
        // Clients of a crashed node get no response.
        self.waiting.clear();
        self.active = 1 - self.active;
        self.together = together;
        let consistent = self.active().vb.history().consistent_seqno();
        self.set_chains();
        let entries = self.active().vb.failover().entries();
        assert_eq!(entries[0].1, consistent);
        self.last_cas = self
            .last_cas
            .min(self.active().vb.history().last_cas().get());
        self.last_seqno = self.active().high();
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Set(id) => self.write(*id, None, false),
            Step::Delete(id) => self.write(*id, None, true),
            Step::Durable(id, level) => self.write(*id, Some(*level), false),
            Step::DurableDelete(id, level) => self.write(*id, Some(*level), true),
            Step::Late => {
                self.secs += 100;
                let now = at(self.secs);
                self.active().vb.on_time(now);
                self.deliver_results();
            }
            Step::Log(is_active, max) => {
                self.node(*is_active).persist(*max);
                self.deliver_results();
            }
            Step::FileChange(is_active, how) => {
                let ends = how.ends || (*is_active && self.replica().has_gone_back);
                let node = self.node(*is_active);
                node.disk.apply(&mut node.vb, Applying { ends, ..*how });
                if !ends {
                    self.crash(*is_active, 0);
                }
            }
            Step::Release(is_active) => {
                let node = self.node(*is_active);
                node.disk.release(&node.vb);
            }
            Step::Stream {
                from_disk,
                changes,
                come,
            } => self.stream(*from_disk, *changes, *come),
            Step::Ack => self.ack(),
            Step::Crash(true, _) | Step::Promote { .. } if self.replica().has_gone_back => {}
            Step::Crash(is_active, logged) => self.crash(*is_active, *logged),
            Step::Promote { together } => self.promote(None, *together),
        }
    }

    /// Crashes a node. The replica replaces a crashed active node, unless it lost acknowledged prepares in a rollback.
    fn crash(&mut self, is_active: bool, logged: usize) {
        if is_active {
            assert!(!self.replica().has_gone_back);
            return self.promote(Some(logged), true);
        }
        let uuid = self.next_uuid();
        self.replica().crash(logged, uuid);
    }

    fn check(&mut self) {
        for node in &mut self.nodes {
            assert_eq!(
                table(&node.vb),
                documents(&node.history(), at(0)),
                "no prepare is visible"
            );
            let vb = &node.vb;
            assert!(vb.persisted_seqno() <= vb.high_seqno());
            assert!(vb.history().consistent_seqno() <= vb.high_seqno());
            assert!(vb.applied_seqno() <= vb.persisted_seqno());
        }
        assert!(
            self.active().high() >= self.last_seqno,
            "seqnos never go back"
        );
        self.last_seqno = self.active().high();
    }

    /// Streams until both nodes have everything.
    fn quiet(&mut self) {
        self.together = true;
        self.set_chains();
        for _ in 0..8 {
            self.stream(false, usize::MAX >> 1, usize::MAX);
            for is_active in [true, false] {
                self.step(&Step::Log(is_active, usize::MAX));
            }
            self.ack();
        }
        assert_eq!(self.active().high(), self.replica().high());
        self.caught_up();
        assert_eq!(
            self.active().vb.durability_figures().tracked,
            0,
            "all have ended"
        );
        let documents = table(&self.active().vb);
        for (id, allowed) in &self.allowed {
            let Some((acknowledged, level)) = &allowed.acknowledged else {
                continue;
            };
            let there = documents.get(key(&name(*id)).as_bytes()).cloned();
            assert!(
                there == *acknowledged || allowed.later.contains(&there),
                "key {id}: {there:?} instead of {acknowledged:?} ({level:?}) or {:?}",
                allowed.later
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    #[test]
    fn two_nodes_agree_and_keep_acknowledged_writes(
        steps in steps(),
        persistences in [persistence(), persistence()],
    ) {
        run(persistences, &steps);
    }
}

fn persistence() -> impl Strategy<Value = PersistenceMode> {
    proptest::sample::select(vec![PersistenceMode::LogThenFile, PersistenceMode::Direct])
}

fn run(persistences: [PersistenceMode; 2], steps: &[Step]) {
    let mut pair = Pair::new(persistences);
    for step in steps {
        pair.step(step);
        pair.check();
    }
    pair.quiet();
    // Both disks have the same state too.
    for node in &mut pair.nodes {
        node.persist(usize::MAX);
        node.disk.apply(&mut node.vb, WHOLE);
        node.disk.release(&node.vb);
        let before = (whole(&node.vb), node.vb.state(), node.vb.failover().clone());
        let again = node.found(None);
        let after = (whole(&again), again.state(), again.failover().clone());
        assert_eq!(before, after);
        assert_eq!(again.history().resume_point().snap_end, again.high_seqno());
    }
}

/// Regression: a disk snapshot was interrupted, the replica became active, and its file was written. The file knows
/// nothing of the snapshot, whose start is still in the log.
#[test]
fn snapshot_ended_by_promotion_completes_no_prepare_after_a_crash() {
    use DurabilityLevel::Majority;
    let torn = |parts| Applying {
        max_items: 1,
        parts,
        ends: false,
    };
    let (memory, disk) = (
        |changes, come| Step::Stream {
            from_disk: false,
            changes,
            come,
        },
        |changes, come| Step::Stream {
            from_disk: true,
            changes,
            come,
        },
    );
    run(
        [PersistenceMode::LogThenFile; 2],
        &[
            Step::Durable(3, Majority),
            Step::FileChange(false, torn(1)),
            Step::Release(false),
            Step::Durable(0, Majority),
            Step::Set(0),
            Step::Set(0),
            Step::Durable(1, Majority),
            memory(3, 3),
            Step::Set(0),
            Step::Set(0),
            Step::Ack,
            disk(3, 2),
            Step::FileChange(true, torn(0)),
            Step::Set(2),
            Step::Log(true, 1),
            memory(1, 4),
            memory(2, 2),
            Step::FileChange(true, torn(1)),
        ],
    );
}
