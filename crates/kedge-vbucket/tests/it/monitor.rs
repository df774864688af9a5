//! Tests of SyncWrites on an active vBucket with replicas.

use crate::tools::*;
use kedge_types::DurabilityLevel::{self, Majority, MajorityAndPersistOnActive, PersistToMajority};
use kedge_types::{Durability, Expiry, Seqno, Status, VbUuid};
use kedge_vbucket::{
    Change, ConcatMode, Cookie, CounterOp, DurabilityRules, NodeName, StateChange, StepOutcome,
    StepWrite, StoreMode, Topology, VBucket, VbState,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

const LEVELS: [DurabilityLevel; 3] = [Majority, MajorityAndPersistOnActive, PersistToMajority];

/// Starts a SyncWrite.
fn begin(vb: &mut VBucket, name: &str, level: DurabilityLevel, cookie: u64) {
    let key = key(name);
    let write = durable(&key, level, cookie);
    let begun = store(vb, at(0), &write, StoreMode::Set, b"new");
    assert_eq!(begun, Ok(StepOutcome::Parked));
}

fn cookies(vb: &mut VBucket) -> Vec<u64> {
    results(vb)
        .into_iter()
        .map(|(cookie, result)| {
            assert!(result.is_ok(), "{result:?}");
            cookie
        })
        .collect()
}

fn ack(vb: &mut VBucket, name: &str, seqno: u64) {
    vb.acknowledge(&node(name), Seqno(seqno)).unwrap();
}

/// Rule: the active node must satisfy every level itself, even if the replicas alone are a majority.
#[test]
fn active_node_must_satisfy_the_level_itself() {
    for level in LEVELS {
        let vb = &mut active(&["abc"]);
        begin(vb, "k", level, 1);
        ack(vb, "b", 1);
        ack(vb, "c", 1);
        let done = level == Majority;
        assert_eq!(
            cookies(vb),
            if done { vec![1] } else { vec![] },
            "{level:?}"
        );
        log_all(vb);
        assert_eq!(cookies(vb).len(), usize::from(!done), "{level:?}");
        assert_eq!(get(vb, at(0), "k").unwrap(), b"new");
    }
}

/// Rule: with two chains, a majority of each is required.
#[test]
fn sync_write_needs_a_majority_of_both_chains() {
    let vb = &mut active(&["abc", "ade"]);
    begin(vb, "k", Majority, 1);
    ack(vb, "b", 1);
    ack(vb, "c", 1);
    assert!(cookies(vb).is_empty());
    ack(vb, "e", 1);
    assert_eq!(cookies(vb), [1]);
}

/// Rule: prepares are committed in order, and the first one that is not ready blocks all later ones.
#[test]
fn sync_writes_commit_in_prepare_order() {
    let vb = &mut active(&["ab"]);
    begin(vb, "first", PersistToMajority, 1);
    begin(vb, "second", Majority, 2);
    ack(vb, "b", 2);
    assert!(cookies(vb).is_empty(), "the first is not on this disk");
    log_all(vb);
    assert_eq!(cookies(vb), [1, 2]);
    let logged = log_all(vb);
    assert!(
        matches!(
            &logged[..],
            [
                Change::Commit {
                    prepared: Seqno(1),
                    ..
                },
                Change::Commit {
                    prepared: Seqno(2),
                    ..
                }
            ]
        ),
        "{logged:?}"
    );
    assert_eq!(vb.durability().high_completed_seqno(), Seqno(2));
}

/// Rule: prepares time out in order. A client gets its status at its own deadline, and the abort waits for earlier
/// prepares.
#[test]
fn sync_writes_abort_in_prepare_order_after_timeout() {
    let vb = &mut active(&["ab"]);
    let (slow, fast) = (key("slow"), key("fast"));
    let with = |key, timeout_ms, cookie| StepWrite {
        durability: Some(Durability {
            level: Majority,
            timeout_ms: Some(timeout_ms),
        }),
        cookie: Cookie(cookie),
        ..write(key)
    };
    store(vb, at(0), &with(&slow, 60_000, 1), StoreMode::Set, b"x").unwrap();
    store(vb, at(0), &with(&fast, 1_000, 2), StoreMode::Set, b"x").unwrap();
    log_all(vb);
    vb.on_time(at(2));
    assert_eq!(results(vb), [(2, Err(Status::SyncWriteAmbiguous))]);
    assert!(log_all(vb).is_empty(), "it may not overtake the first");
    let busy = store(vb, at(2), &write(&fast), StoreMode::Set, b"y");
    assert_eq!(busy, Err(Status::SyncWriteInProgress));
    ack(vb, "b", 1);
    assert_eq!(cookies(vb), [1]);
    let logged = log_all(vb);
    assert!(
        matches!(
            &logged[..],
            [
                Change::Commit {
                    prepared: Seqno(1),
                    ..
                },
                Change::Abort {
                    prepared: Seqno(2),
                    ..
                }
            ]
        ),
        "{logged:?}"
    );
    assert!(!vb.durability().has_waiters());
    assert_eq!(vb.durability_figures().aborted.majority, 1);
}

/// A prepare that timed out is still committed if it satisfies its level before it becomes the first one.
#[test]
fn timed_out_prepare_may_still_be_committed() {
    let vb = &mut active(&["abc"]);
    begin(vb, "a", PersistToMajority, 1);
    begin(vb, "b", Majority, 2);
    vb.on_time(at(1));
    ack(vb, "b", 2);
    assert!(results(vb).is_empty(), "the first is not on this disk");
    log_all(vb);
    assert_eq!(cookies(vb), [1, 2]);
}

/// Rule: an acknowledgement may arrive before the topology contains the node, or before its prepare.
#[test]
fn early_acks_count_when_topology_or_prepare_follows() {
    let vb = &mut active(&["ab"]);
    begin(vb, "k", Majority, 1);
    ack(vb, "c", 1);
    assert!(cookies(vb).is_empty(), "no chain names it");
    vb.set_state(StateChange {
        topology: Some(topology(&["ac"])),
        ..StateChange::to(VbState::Active, VbUuid(9))
    });
    assert_eq!(cookies(vb), [1]);
    // The acknowledged seqno has no prepare yet.
    set(vb, at(0), "plain", b"x");
    let high = vb.high_seqno().get();
    ack(vb, "c", high);
    begin(vb, "l", Majority, 2);
    assert!(cookies(vb).is_empty());
    ack(vb, "c", high + 1);
    ack(vb, "c", 1);
    assert_eq!(cookies(vb), [2], "what is acknowledged never goes back");
}

/// A node that restarts its stream may have lost what it acknowledged.
#[test]
fn acks_of_a_node_are_forgotten_with_its_stream() {
    let vb = &mut active(&["ab", "ac"]);
    begin(vb, "k", Majority, 1);
    ack(vb, "b", 1);
    vb.durability_mut().forget_acks(&node("b"));
    ack(vb, "c", 1);
    assert!(cookies(vb).is_empty());
    ack(vb, "b", 1);
    assert_eq!(cookies(vb), [1]);
}

#[test]
fn invalid_acks_are_refused() {
    let vb = &mut active(&["ab"]);
    begin(vb, "k", Majority, 1);
    let b = node("b");
    assert_eq!(vb.acknowledge(&b, Seqno(2)), Err(Status::OutOfRange));
    let mut taken = 0;
    for n in 0..100 {
        let name = NodeName::new(&format!("n{n}")).unwrap();
        match vb.acknowledge(&name, Seqno(1)) {
            Ok(()) => taken += 1,
            other => assert_eq!(other, Err(Status::TemporaryFailure)),
        }
    }
    assert_eq!(taken, 100, "strangers make room for each other");
    assert_eq!(vb.durability_figures().acknowledged.len(), 16);
    ack(vb, "b", 1);
    assert_eq!(cookies(vb), [1]);
    vb.set_state(StateChange::to(VbState::Replica, VbUuid(9)));
    assert_eq!(vb.acknowledge(&b, Seqno(1)), Err(Status::NotMyVbucket));
}

/// Without chains, an active vBucket accepts and completes no SyncWrites.
#[test]
fn sync_writes_fail_without_a_topology() {
    let vb = &mut active(&[]);
    let k = key("k");
    let write = durable(&k, Majority, 1);
    let refused = store(vb, at(0), &write, StoreMode::Set, b"x");
    assert_eq!(refused, Err(Status::TemporaryFailure));
    assert_eq!(vb.high_seqno(), Seqno(0), "nothing was changed");
    set(vb, at(0), "k", b"plain");
}

#[test]
fn sync_write_is_impossible_with_too_few_or_too_many_nodes() {
    for (chains, possible) in [
        (&["a"][..], true),
        (&["ab"], true),
        (&["a-"], false),
        (&["ab-"], true),
        (&["a--"], false),
        (&["abc"], true),
        (&["abcd"], false),
        (&["abc-"], true),
        (&["ab--"], false),
        (&["ab", "a-"], false),
        (&["abc", "abcd"], false),
    ] {
        let vb = &mut active(chains);
        let k = key("k");
        let write = durable(&k, Majority, 1);
        let begun = store(vb, at(0), &write, StoreMode::Set, b"x");
        let expected = if possible {
            None
        } else {
            Some(Status::DurabilityImpossible)
        };
        assert_eq!(begun.err(), expected, "{chains:?}");
        assert_eq!(vb.high_seqno() > Seqno(0), possible, "{chains:?}");
    }
}

#[test]
fn active_alone_is_enough_if_nodes_are_missing_and_the_rule_allows() {
    let rules = DurabilityRules {
        active_is_enough: true,
    };
    let vb = &mut active(&["a--"]);
    vb.set_durability_rules(rules);
    let k = key("k");
    let write = durable(&k, PersistToMajority, 1);
    let begun = store(vb, at(0), &write, StoreMode::Set, b"x");
    assert_eq!(begun, Ok(StepOutcome::Parked), "its own disk is asked for");
    log_all(vb);
    assert_eq!(cookies(vb), [1]);
    let figures = vb.durability_figures();
    assert_eq!(figures.committed_not_durable, 1);
    assert_eq!(figures.committed.persist_to_majority, 1);
    // A node that does not respond is not missing.
    let vb = &mut active(&["ab-"]);
    vb.set_durability_rules(rules);
    begin(vb, "k", Majority, 1);
    assert!(cookies(vb).is_empty());
    // When the node is removed, the waiting prepare is committed.
    vb.set_state(StateChange {
        topology: Some(topology(&["a--"])),
        ..StateChange::to(VbState::Active, VbUuid(9))
    });
    assert_eq!(cookies(vb), [1]);
    let long = &mut active(&["abcd"]);
    long.set_durability_rules(rules);
    let refused = store(long, at(0), &write, StoreMode::Set, b"x");
    assert_eq!(refused, Err(Status::DurabilityImpossible));
}

#[test]
fn invalid_topologies_are_refused() {
    let name = |text: &str| Some(node(text));
    let wrong = [
        vec![],
        vec![vec![]],
        vec![vec![None, name("b")]],
        vec![vec![name("a"), name("a")]],
        vec![vec![name("a"); 1], vec![name("a")], vec![name("a")]],
        vec![vec![name("a"), None, None, None, None]],
    ];
    for chains in wrong {
        assert_eq!(
            Topology::new(chains.clone()),
            Err(Status::Invalid),
            "{chains:?}"
        );
    }
    assert!(NodeName::new("").is_none() && NodeName::new(&"x".repeat(101)).is_none());
    assert!(topology(&["a-b", "ac"]).has_replica(&node("b")));
    assert!(!topology(&["ab"]).has_replica(&node("a")));
    assert!(!topology(&["ab", "ba"]).has_replica(&node("a")));
}

/// While a vBucket moves, the next active node is first in the second chain. The active node may be anywhere in that
/// chain, or missing.
#[test]
fn next_active_counts_in_its_chain() {
    for (chains, acks, done) in [
        (["ab", "ba"], "", false),
        (["ab", "ba"], "b", true),
        (["abc", "bac"], "c", true),
        (["abc", "bac"], "b", true),
        // The active node does not count in a chain that does not contain it.
        (["ac", "bc"], "c", false),
        (["ac", "bc"], "b", false),
        (["ac", "bc"], "bc", true),
        (["a", "b"], "", false),
        (["a", "b"], "b", true),
    ] {
        let vb = &mut active(&chains);
        let k = key("k");
        let parked = store(vb, at(0), &durable(&k, Majority, 1), StoreMode::Set, b"1");
        assert_eq!(parked, Ok(StepOutcome::Parked));
        for name in acks.chars() {
            ack(vb, &name.to_string(), 1);
        }
        assert_eq!(cookies(vb) == [1], done, "{chains:?} {acks}");
    }
}

/// Every command that changes a document supports durability levels.
#[test]
fn every_mutation_can_be_a_sync_write() {
    let vb = &mut active(&["ab"]);
    let k = key("k");
    let mut cookie = 0;
    let mut run = |vb: &mut VBucket, step: &dyn Fn(&mut VBucket, &StepWrite<'_>)| {
        cookie += 1;
        let before = vb.high_seqno();
        step(vb, &durable(&k, Majority, cookie));
        assert_eq!(vb.high_seqno(), before.next(), "a prepare");
        ack(vb, "b", vb.high_seqno().get());
        assert_eq!(cookies(vb), [cookie]);
    };
    let parked =
        |outcome: Result<StepOutcome<_>, Status>| assert_eq!(outcome, Ok(StepOutcome::Parked));
    for mode in [StoreMode::Add, StoreMode::Replace, StoreMode::Set] {
        run(vb, &|vb, write| parked(store(vb, at(0), write, mode, b"1")));
    }
    for mode in [ConcatMode::Append, ConcatMode::Prepend] {
        run(vb, &|vb, write| {
            parked(vb.at(at(0)).concat(write, mode, b"1"));
        });
    }
    for negative in [false, true] {
        let op = CounterOp {
            negative,
            delta: 1,
            initial: None,
            expiry: Expiry::NEVER,
        };
        run(vb, &|vb, write| {
            assert_eq!(vb.at(at(0)).arithmetic(write, &op), Ok(StepOutcome::Parked));
        });
    }
    run(vb, &|vb, write| {
        parked(vb.at(at(0)).touch(write, Expiry::NEVER));
    });
    run(vb, &|vb, write| {
        let shown = vb.at(at(0)).get_and_touch(write, Expiry::NEVER, |_| ());
        assert_eq!(shown, Ok(StepOutcome::Parked));
    });
    assert_eq!(get(vb, at(0), "k").unwrap(), b"111");
    run(vb, &|vb, write| parked(vb.at(at(0)).delete(write)));
    assert_eq!(get(vb, at(0), "k"), Err(Status::KeyNotFound));
    let figures = vb.durability_figures();
    assert_eq!(
        (figures.accepted.sum(), figures.committed.majority),
        (10, 10)
    );
    assert_eq!((figures.tracked, figures.tracked_range), (0, None));
}

#[test]
fn durability_figures_show_the_progress() {
    let vb = &mut active(&["ab"]);
    begin(vb, "a", Majority, 1);
    begin(vb, "b", PersistToMajority, 2);
    begin(vb, "c", Majority, 3);
    ack(vb, "b", 1);
    let figures = vb.durability_figures();
    assert_eq!(figures.high_prepared, Seqno(1), "the second is on no disk");
    assert_eq!(figures.high_completed, Seqno(1));
    assert_eq!(figures.tracked_range, Some((Seqno(2), Seqno(3))));
    assert_eq!(figures.acknowledged, [(node("b"), Seqno(1))]);
    log_all(vb);
    let standing = vb.progress();
    assert_eq!(
        (standing.high_prepared, standing.high_seqno),
        (Seqno(3), Seqno(4))
    );
}

#[derive(Clone, Debug)]
enum Step {
    Prepare(u8, DurabilityLevel, u16),
    Set(u8),
    Ack(u8, u64),
    Forget(u8),
    Log(usize),
    Wait(u64),
    Chains(usize),
    Fallback(bool),
}

const CHAINS: [&[&str]; 8] = [
    &["a"],
    &["ab"],
    &["abc"],
    &["ab-"],
    &["abc", "ad"],
    &["ab", "acd"],
    &["abcd"],
    &["a--"],
];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0u8..8, proptest::sample::select(&LEVELS[..]), 1u16..4)
            .prop_map(|(key, level, secs)| Step::Prepare(key, level, secs * 1_000)),
        2 => (0u8..8).prop_map(Step::Set),
        8 => (0u8..3, 0u64..4).prop_map(|(node, back)| Step::Ack(node, back)),
        1 => (0u8..3).prop_map(Step::Forget),
        5 => (1usize..5).prop_map(Step::Log),
        2 => (0u64..3).prop_map(Step::Wait),
        2 => (0usize..CHAINS.len()).prop_map(Step::Chains),
        1 => any::<bool>().prop_map(Step::Fallback),
    ];
    proptest::collection::vec(step, 1..80)
}

#[derive(Clone, Debug)]
struct Waiting {
    key: u8,
    seqno: u64,
    level: DurabilityLevel,
    cookie: u64,
    deadline: u64,
    overdue: bool,
}

/// The naive model of the durability rules.
#[derive(Default)]
struct Naive {
    waiting: Vec<Waiting>,
    chains: &'static [&'static str],
    acks: BTreeMap<char, u64>,
    persisted: u64,
    fallback: bool,
    high: u64,
    ended: Vec<(u64, bool)>,
    committed: Vec<u64>,
    aborted: Vec<u64>,
}

impl Naive {
    fn is_ready(&self, prepare: &Waiting) -> bool {
        let here = prepare.level == Majority || prepare.seqno <= self.persisted;
        let chain = |chain: &&str| {
            let majority = chain.len() / 2 + 1;
            let there = chain.chars().filter(|node| *node != '-');
            if there.clone().count() < majority {
                return self.fallback;
            }
            let has = |node: &char| {
                *node == 'a' || self.acks.get(node).is_some_and(|ack| *ack >= prepare.seqno)
            };
            there.filter(has).count() >= majority
        };
        here && self.chains.iter().all(chain)
    }

    fn is_possible(&self) -> bool {
        self.chains.iter().all(|chain| {
            let there = chain.chars().filter(|node| *node != '-').count();
            there <= 3 && (self.fallback || there > chain.len() / 2)
        })
    }

    fn resolve(&mut self) {
        while let Some(first) = self.waiting.first().cloned() {
            let ready = self.is_ready(&first);
            if !ready && !first.overdue {
                return;
            }
            self.waiting.remove(0);
            self.high += 1;
            if ready {
                self.committed.push(first.seqno);
            } else {
                self.aborted.push(first.seqno);
            }
            if !first.overdue {
                self.ended.push((first.cookie, true));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn durability_monitor_matches_the_naive_model(steps in steps()) {
        let mut vb = active(&["abc"]);
        log_all(&mut vb);
        let mut naive = Naive { chains: &["abc"], ..Naive::default() };
        let mut now = 0;
        let mut log = Vec::new();
        for (turn, step) in steps.iter().enumerate() {
            let cookie = turn as u64;
            match step {
                Step::Prepare(id, level, timeout_ms) => {
                    let key = key(&id.to_string());
                    let write = StepWrite {
                        durability: Some(Durability { level: *level, timeout_ms: Some(*timeout_ms) }),
                        cookie: Cookie(cookie),
                        ..write(&key)
                    };
                    let begun = store(&mut vb, at(now), &write, StoreMode::Set, b"x");
                    let busy = naive.waiting.iter().any(|other| other.key == *id);
                    if !naive.is_possible() {
                        prop_assert_eq!(begun, Err(Status::DurabilityImpossible));
                    } else if busy {
                        prop_assert_eq!(begun, Err(Status::SyncWriteInProgress));
                    } else {
                        naive.high += 1;
                        naive.waiting.push(Waiting {
                            key: *id,
                            seqno: naive.high,
                            level: *level,
                            cookie,
                            deadline: now + u64::from(*timeout_ms) / 1_000,
                            overdue: false,
                        });
                        naive.resolve();
                        if matches!(begun, Ok(StepOutcome::Done(_))) {
                            // The result was returned at once.
                            prop_assert_eq!(naive.ended.pop(), Some((cookie, true)));
                        }
                    }
                }
                Step::Set(id) => {
                    let key = key(&id.to_string());
                    let busy = naive.waiting.iter().any(|other| other.key == *id);
                    let done = store(&mut vb, at(now), &write(&key), StoreMode::Set, b"y");
                    prop_assert_eq!(done.is_err(), busy);
                    naive.high += u64::from(!busy);
                }
                Step::Ack(index, back) => {
                    let name = ['b', 'c', 'd'][usize::from(*index)];
                    let seqno = naive.high.saturating_sub(*back);
                    vb.acknowledge(&node(&name.to_string()), Seqno(seqno)).unwrap();
                    let acked = naive.acks.entry(name).or_default();
                    *acked = seqno.max(*acked);
                    naive.resolve();
                }
                Step::Forget(index) => {
                    let name = ['b', 'c', 'd'][usize::from(*index)];
                    vb.durability_mut().forget_acks(&node(&name.to_string()));
                    naive.acks.remove(&name);
                }
                Step::Log(max) => {
                    let mut changes = Vec::new();
                    let to = vb.changes().for_log(*max, usize::MAX, &mut changes);
                    vb.on_logged(to);
                    let last = changes.iter().filter_map(Change::seqno).next_back();
                    naive.persisted = last.map_or(naive.persisted, Seqno::get);
                    log.append(&mut changes);
                    naive.resolve();
                }
                Step::Wait(secs) => {
                    now += secs;
                    vb.on_time(at(now));
                    for prepare in &mut naive.waiting {
                        if !prepare.overdue && prepare.deadline <= now {
                            prepare.overdue = true;
                            naive.ended.push((prepare.cookie, false));
                        }
                    }
                    naive.resolve();
                }
                Step::Chains(index) => {
                    naive.chains = CHAINS[*index];
                    vb.set_state(StateChange {
                        topology: Some(topology(naive.chains)),
                        ..StateChange::to(VbState::Active, VbUuid(9))
                    });
                    naive.resolve();
                }
                Step::Fallback(active_is_enough) => {
                    naive.fallback = *active_is_enough;
                    vb.set_durability_rules(DurabilityRules { active_is_enough: *active_is_enough });
                    naive.resolve();
                }
            }
            let ended: Vec<_> = results(&mut vb)
                .into_iter()
                .map(|(cookie, result)| (cookie, result.is_ok()))
                .collect();
            prop_assert_eq!(&ended, &naive.ended, "after {:?}", step);
            naive.ended.clear();
            prop_assert_eq!(vb.high_seqno().get(), naive.high);
            let completed = naive.committed.iter().chain(&naive.aborted).max();
            prop_assert_eq!(vb.durability().high_completed_seqno().get(), completed.copied().unwrap_or(0));
            prop_assert_eq!(vb.durability_figures().tracked, naive.waiting.len());
            let waits = naive.waiting.iter().any(|prepare| !prepare.overdue);
            prop_assert_eq!(vb.durability().has_waiters(), waits);
        }
        // The order of the queue is that of the seqnos and of the durability monitor.
        vb.changes().for_log(usize::MAX, usize::MAX, &mut log);
        let seqnos: Vec<u64> = log.iter().filter_map(Change::seqno).map(Seqno::get).collect();
        prop_assert!(seqnos.iter().copied().eq(1..=naive.high));
        let ends = |wanted: fn(&Change) -> Option<Seqno>| -> Vec<u64> {
            log.iter().filter_map(wanted).map(Seqno::get).collect()
        };
        let committed = ends(|change| match change {
            Change::Commit { prepared, .. } => Some(*prepared),
            _ => None,
        });
        let aborted = ends(|change| match change {
            Change::Abort { prepared, .. } => Some(*prepared),
            _ => None,
        });
        prop_assert_eq!((committed, aborted), (naive.committed, naive.aborted));
    }
}
