//! Changes of the number of replicas of a bucket in operation: pure functions of the map and of the positions of the
//! copies.
//!
//! A change begins with a map that has the target chains. Nodes that are only in the target chains follow the actives
//! without counting: no config lists them, no SyncWrite waits for them, and no failover chooses them. Once they have
//! everything that the actives had, the target chains begin to count: a SyncWrite needs a majority of both chains. Once
//! they have everything that the actives had by then, they replace the chains.
//!
//! Invariants:
//! * Everything that a majority of an old chain has acknowledged is on the disks of all nodes of the new chain before
//!   that counts alone.
//! * No vBucket of the bucket moves during a change, and a failover cancels the change. It starts over when all nodes
//!   are up and have joined ([`crate::joining`]).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Chain, ClusterMap, CopyPosition, MapBucket, NodePositions, Revision, VbucketRole};

/// The target chains of a bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NextChains {
    /// As many chains as the bucket has; each has the active of the one that it replaces.
    pub chains: Vec<Chain>,
    /// True if a SyncWrite needs a majority of these chains too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub counts: bool,
}

impl MapBucket {
    /// Returns the number of replicas of a vBucket, as far as their nodes exist.
    #[must_use]
    pub fn replicas(&self) -> usize {
        places(&self.chains).saturating_sub(1)
    }

    /// Returns the number of replicas of the settings, limited to the number of other nodes over which the bucket is
    /// spread.
    #[must_use]
    pub fn wanted_replicas(&self) -> usize {
        let wanted = self.settings.get("replicas").and_then(Value::as_u64);
        let wanted = wanted.and_then(|wanted| usize::try_from(wanted).ok());
        wanted.map_or(self.replicas(), |wanted| {
            wanted.min(self.servers.len().saturating_sub(1))
        })
    }

    /// Returns the role of a node for a vBucket: a node that joins or is in the target chain follows the active, too.
    #[must_use]
    pub fn role(&self, vb: u16, node: u16) -> VbucketRole {
        let chain = &self.chains[usize::from(vb)];
        let role = chain.role(node);
        let comes = |next: &NextChains| next.chains[usize::from(vb)].contains(node);
        let follows = self.joins(vb, node) || self.next.as_ref().is_some_and(comes);
        if role == VbucketRole::None && follows {
            return VbucketRole::Replica {
                active: chain.active(),
            };
        }
        role
    }

    /// Returns the second chain whose majority a SyncWrite of a vBucket needs: while the vBucket moves, and while the
    /// number of replicas changes.
    #[must_use]
    pub fn second_chain(&self, vb: u16) -> Option<Chain> {
        let at = usize::from(vb);
        if let Some(to) = self.moves.get(&vb) {
            return Some(self.chains[at].led_by(*to));
        }
        let counts = self.next.as_ref().filter(|next| next.counts);
        counts.map(|next| next.chains[at].clone())
    }

    /// Returns whether nodes follow that do not count yet, or not alone.
    #[must_use]
    pub fn is_unfinished(&self) -> bool {
        self.next.is_some() || !self.joining.is_empty()
    }

    /// Returns whether the number of replicas differs from the wanted one.
    pub(crate) fn is_to_change(&self) -> bool {
        self.replicas() != self.wanted_replicas()
    }

    fn begin_change(&mut self) {
        let mut next = self.new_chains(self.wanted_replicas());
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
        // vBuckets whose active has to change move first.
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

/// Returns the map in which changes to the wanted number of replicas begin, or obsolete ones are cancelled, and nodes
/// join whose places are empty, to be published by `by`; `None` when nothing begins. No number of replicas changes
/// while a node is failed over or joins, or vBuckets of the bucket move.
#[must_use]
pub fn plan_replicas(map: &ClusterMap, by: u16) -> Option<ClusterMap> {
    let mut next = map.next(by);
    for bucket in &mut next.buckets {
        let wanted = bucket.wanted_replicas();
        bucket.next.take_if(|it| places(&it.chains) != wanted + 1);
    }
    next.let_join();
    let all_are_there = next.nodes.values().all(|node| !node.failed);
    for bucket in &mut next.buckets {
        let may_begin = all_are_there && !bucket.is_unfinished() && bucket.moves.is_empty();
        if may_begin && bucket.is_to_change() {
            bucket.begin_change();
        }
    }
    (next.buckets != map.buckets).then_some(next)
}

/// The target of the copies of a vBucket: the position of its active.
#[derive(Debug)]
struct CatchUpTarget {
    vb: usize,
    active: u16,
    /// The position of the active; `None` until it has reported.
    had: Option<CopyPosition>,
    /// For each copy, true if it was seen to have reached the target.
    copies: BTreeMap<u16, bool>,
}

impl CatchUpTarget {
    fn new(vb: usize, chain: &Chain, copies: impl Iterator<Item = u16>) -> Option<Self> {
        Some(Self {
            vb,
            active: chain.active()?,
            had: None,
            copies: copies.map(|node| (node, false)).collect(),
        })
    }

    /// Records the positions that nodes reported.
    fn note<'a>(&mut self, position: impl Fn(u16) -> Option<&'a CopyPosition>) {
        if let Some(is) = position(self.active) {
            // A restarted node may no longer have what it had before.
            let is_same = |had: &CopyPosition| had.history == is.history;
            if !self.had.as_ref().is_some_and(is_same) {
                self.had = Some(is.clone());
                self.copies.values_mut().for_each(|has_it| *has_it = false);
            }
        }
        let Some(had) = &self.had else { return };
        for (node, has_it) in &mut self.copies {
            if let Some(is) = position(*node) {
                // In the middle of a snapshot, a copy still has everything that it had before.
                *has_it = is.has_on_disk(had) && (*has_it || is.consistent);
            }
        }
    }

    fn is_reached(&self) -> bool {
        self.had.is_some() && self.copies.values().all(|has_it| *has_it)
    }
}

/// The positions that copies must reach before they count.
#[derive(Debug)]
pub struct CatchUp {
    revision: Revision,
    /// The targets by bucket.
    targets: BTreeMap<String, Vec<CatchUpTarget>>,
}

fn position<'a>(
    told: &'a BTreeMap<u16, NodePositions>,
    bucket: &str,
    vb: usize,
    node: u16,
) -> Option<&'a CopyPosition> {
    told.get(&node)?.get(bucket)?.get(vb)?.as_ref()
}

impl CatchUp {
    /// Begins the catch-up of the copies of a map. Their targets are the first positions that the actives report.
    #[must_use]
    pub fn begin(map: &ClusterMap) -> Self {
        let mut targets = BTreeMap::new();
        for bucket in map.buckets.iter().filter(|it| it.is_unfinished()) {
            let of_bucket: Option<Vec<CatchUpTarget>> = match &bucket.next {
                Some(next) => {
                    let chains = next.chains.iter().enumerate();
                    let target = |(vb, chain): (usize, &Chain)| {
                        CatchUpTarget::new(vb, chain, chain.replicas())
                    };
                    chains.map(target).collect()
                }
                None => {
                    let joining = bucket.joining.iter();
                    let target = |(vb, nodes): (&u16, &Vec<u16>)| {
                        let vb = usize::from(*vb);
                        CatchUpTarget::new(vb, &bucket.chains[vb], nodes.iter().copied())
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

    /// Returns the revision of the map.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Records the reports of nodes that follow the map and have applied it.
    pub fn note(&mut self, told: &BTreeMap<u16, NodePositions>) {
        for (bucket, targets) in &mut self.targets {
            for target in targets {
                let vb = target.vb;
                target.note(|node| position(told, bucket, vb, node));
            }
        }
    }

    /// Returns the map in which caught-up nodes have joined, and replica changes advance in buckets whose copies have
    /// all caught up, to be published by `by`; `None` when there are none, or `map` is another map.
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
            if !targets.iter().all(CatchUpTarget::is_reached) {
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

impl CopyPosition {
    /// Returns whether a copy has on its disk everything that another one had when it reported, on the same branch.
    fn has_on_disk(&self, other: &Self) -> bool {
        self.on(&other.history).undivided
            && self.persisted_seqno >= other.high_seqno
            && self.high_prepared >= other.high_prepared
    }
}
