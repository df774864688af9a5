//! The number of replicas of a bucket changes while it is at work: pure functions of the map, and of what the copies have.
//!
//! A change begins with a map that names the chains that there are to be. Nodes that are in these, and not in those that
//! there are, follow the actives and count for nothing: no client hears of them, no SyncWrite waits for them, no failover
//! chooses them. When they have what the actives had, the chains that are to be begin to count: a SyncWrite needs a
//! majority of both. When they have what the actives had by then, they are the chains.
//!
//! Invariants:
//! * What a majority of a chain that goes has acknowledged is on the disks of all nodes of the one that comes, before that
//!   counts alone.
//! * No vBucket of the bucket moves meanwhile, and a failover gives the change up. It begins anew when all nodes are there,
//!   and have joined ([`crate::joining`]).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::placement::place;
use crate::{Chain, ClusterMap, MapBucket, NodePositions, Position, Revision, Role};

/// The chains that a bucket is to have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NextChains {
    /// As many as there are; each has the active of the one that it replaces.
    pub chains: Vec<Chain>,
    /// Whether a SyncWrite needs a majority of these too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub counts: bool,
}

impl MapBucket {
    /// How many replicas a vBucket has, as far as their nodes are there.
    #[must_use]
    pub fn replicas(&self) -> usize {
        places(&self.chains).saturating_sub(1)
    }

    /// How many replicas its settings ask for, of which a cluster of so many nodes can have as many as there are others.
    #[must_use]
    pub fn wanted_replicas(&self, nodes: usize) -> usize {
        let wanted = self.settings.get("replicas").and_then(Value::as_u64);
        let wanted = wanted.and_then(|wanted| usize::try_from(wanted).ok());
        wanted.map_or(self.replicas(), |wanted| {
            wanted.min(nodes.saturating_sub(1))
        })
    }

    /// What a vBucket is for a node: also one that joins, or is in the chain that is to be, follows the active.
    #[must_use]
    pub fn role(&self, vb: u16, node: u16) -> Role {
        let chain = &self.chains[usize::from(vb)];
        let role = chain.role(node);
        let comes = |next: &NextChains| next.chains[usize::from(vb)].contains(node);
        let follows = self.joins(vb, node) || self.next.as_ref().is_some_and(comes);
        if role == Role::None && follows {
            return Role::Replica {
                active: chain.active(),
            };
        }
        role
    }

    /// The chain whose majority a SyncWrite of a vBucket needs beside that of its own: while it moves, and while the number of
    /// replicas changes.
    #[must_use]
    pub fn second_chain(&self, vb: u16) -> Option<Chain> {
        let at = usize::from(vb);
        if let Some(to) = self.moves.get(&vb) {
            return Some(self.chains[at].led_by(*to));
        }
        let counts = self.next.as_ref().filter(|next| next.counts);
        counts.map(|next| next.chains[at].clone())
    }

    /// Whether nodes follow that count for nothing yet, or not alone.
    #[must_use]
    pub fn is_unfinished(&self) -> bool {
        self.next.is_some() || !self.joining.is_empty()
    }

    /// Whether the number of replicas is another one than is asked for.
    pub(crate) fn is_to_change(&self, nodes: usize) -> bool {
        self.replicas() != self.wanted_replicas(nodes)
    }

    fn begin_change(&mut self, nodes: usize) {
        let wanted = u8::try_from(self.wanted_replicas(nodes)).unwrap_or(u8::MAX);
        let vbuckets = u16::try_from(self.chains.len()).unwrap_or(u16::MAX);
        let mut next = place(nodes, wanted, vbuckets);
        for ((vb, chain), next) in (0_u16..).zip(&self.chains).zip(&mut next) {
            let Some(active) = chain.active() else { return };
            if next.contains(active) {
                *next = next.led_by(active);
            } else if let Some(to) = next.active().filter(|it| chain.contains(*it)) {
                self.moves.insert(vb, to);
            } else {
                next.0[0] = Some(active);
            }
        }
        // What has to lead elsewhere moves first.
        if self.moves.is_empty() {
            self.next = Some(NextChains {
                chains: next,
                counts: false,
            });
        }
    }
}

pub(crate) fn places(chains: &[Chain]) -> usize {
    chains.first().map_or(0, |chain| chain.0.len())
}

/// The map in which buckets begin to get as many replicas as their settings ask for, to be published by `by`, or stop to
/// get as many as they no longer do, and nodes join that are to; `None` when nothing is to begin. No number changes while a
/// node is failed over or joins, or vBuckets of the bucket move.
#[must_use]
pub fn plan_replicas(map: &ClusterMap, by: u16) -> Option<ClusterMap> {
    let mut next = map.next(by);
    let nodes = next.nodes.len();
    for bucket in &mut next.buckets {
        let wanted = bucket.wanted_replicas(nodes);
        bucket.next.take_if(|it| places(&it.chains) != wanted + 1);
    }
    next.let_join();
    let all_are_there = next.nodes.iter().all(|node| !node.failed);
    for bucket in &mut next.buckets {
        let may_begin = all_are_there && !bucket.is_unfinished() && bucket.moves.is_empty();
        if may_begin && bucket.is_to_change(nodes) {
            bucket.begin_change(nodes);
        }
    }
    (next.buckets != map.buckets).then_some(next)
}

/// What the active of a vBucket had, and the copies that are to have it.
#[derive(Debug)]
struct Target {
    vb: usize,
    active: u16,
    /// `None` until it has told.
    had: Option<Position>,
    /// Whether it was seen there.
    copies: BTreeMap<u16, bool>,
}

impl Target {
    fn new(vb: usize, chain: &Chain, copies: impl Iterator<Item = u16>) -> Option<Self> {
        Some(Self {
            vb,
            active: chain.active()?,
            had: None,
            copies: copies.map(|node| (node, false)).collect(),
        })
    }

    /// What nodes have told of their copies.
    fn note<'a>(&mut self, position: impl Fn(u16) -> Option<&'a Position>) {
        if let Some(is) = position(self.active) {
            // Who has started anew may not have any more what it had.
            let is_same = |had: &Position| had.history == is.history;
            if !self.had.as_ref().is_some_and(is_same) {
                self.had = Some(is.clone());
                self.copies.values_mut().for_each(|has_it| *has_it = false);
            }
        }
        let Some(had) = &self.had else { return };
        for (node, has_it) in &mut self.copies {
            if let Some(is) = position(*node) {
                // In the midst of a snapshot a copy has still what it had before.
                *has_it = is.has_on_disk(had) && (*has_it || is.consistent);
            }
        }
    }

    fn is_reached(&self) -> bool {
        self.had.is_some() && self.copies.values().all(|has_it| *has_it)
    }
}

/// What copies still have to get before they count.
#[derive(Debug)]
pub struct CatchUp {
    revision: Revision,
    /// By bucket.
    targets: BTreeMap<String, Vec<Target>>,
}

fn position<'a>(
    told: &'a BTreeMap<u16, NodePositions>,
    bucket: &str,
    vb: usize,
    node: u16,
) -> Option<&'a Position> {
    told.get(&node)?.get(bucket)?.get(vb)?.as_ref()
}

impl CatchUp {
    /// What the copies of a map have to get is what the actives have when they have told first.
    #[must_use]
    pub fn begin(map: &ClusterMap) -> Self {
        let mut targets = BTreeMap::new();
        for bucket in map.buckets.iter().filter(|it| it.is_unfinished()) {
            let of_bucket: Option<Vec<Target>> = match &bucket.next {
                Some(next) => {
                    let chains = next.chains.iter().enumerate();
                    let target =
                        |(vb, chain): (usize, &Chain)| Target::new(vb, chain, chain.replicas());
                    chains.map(target).collect()
                }
                None => {
                    let joining = bucket.joining.iter();
                    let target = |(vb, nodes): (&u16, &Vec<u16>)| {
                        let vb = usize::from(*vb);
                        Target::new(vb, &bucket.chains[vb], nodes.iter().copied())
                    };
                    Some(joining.filter_map(target).collect())
                }
            };
            targets.extend(of_bucket.map(|it| (bucket.name.clone(), it)));
        }
        Self {
            revision: map.revision,
            targets,
        }
    }

    /// The map that it is about.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Nodes that follow the map, and are what it says, have told how far they are.
    pub fn note(&mut self, told: &BTreeMap<u16, NodePositions>) {
        for (bucket, targets) in &mut self.targets {
            for target in targets {
                let vb = target.vb;
                target.note(|node| position(told, bucket, vb, node));
            }
        }
    }

    /// The map in which nodes have joined whose copies miss nothing, and changes of the buckets whose copies all miss nothing
    /// go a step on, to be published by `by`; `None` when there are none, or the map is another one.
    #[must_use]
    pub fn plan(&self, map: &ClusterMap, by: u16) -> Option<ClusterMap> {
        if map.revision != self.revision {
            return None;
        }
        let mut next = map.next(by);
        for bucket in &mut next.buckets {
            let Some(targets) = self.targets.get(&bucket.name) else {
                continue;
            };
            if bucket.next.is_none() {
                for target in targets {
                    let have_it = target.copies.iter().filter(|(_, has_it)| **has_it);
                    have_it.for_each(|(node, _)| bucket.put_in(target.vb, *node));
                }
                continue;
            }
            if !targets.iter().all(Target::is_reached) {
                continue;
            }
            match bucket.next.take() {
                Some(NextChains {
                    chains,
                    counts: true,
                }) => bucket.chains = chains,
                building => {
                    bucket.next = building.map(|it| NextChains { counts: true, ..it });
                }
            }
        }
        next.let_join();
        (next.buckets != map.buckets).then_some(next)
    }
}

impl Position {
    /// Whether a copy is as far on its disk as another one was that has told, on the same branch.
    fn has_on_disk(&self, other: &Self) -> bool {
        self.on(&other.history).undivided
            && self.persisted_seqno >= other.high_seqno
            && self.high_prepared >= other.high_prepared
    }
}
