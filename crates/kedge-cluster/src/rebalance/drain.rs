//! Drains: every active of a node moves to one of its replicas, so that the node can restart, or be failed over, without an
//! interruption for clients.
//!
//! A drain is a rebalance of another kind: it has the same record and the same executor, can be stopped, and goes on when
//! another node executes it. The node stays a member, and keeps its replicas. A graceful failover is a drain after which
//! the node is failed over: it has no active by then, so nothing is lost, and no lease has to end.
//!
//! Invariants:
//! * An active moves by takeover to a node of its own chain, so no copy is made.
//! * Copies that are made for another reason are finished first, and no other ones begin.

use std::collections::{BTreeMap, BTreeSet};

use super::steps::{MoveLimits, MoveSlots};
use super::{RebalanceKind, RebalanceLeft, RebalanceRecord, RebalanceState};
use crate::{ClusterError, ClusterMap, Feature, MapBucket, PendingMove, plan_failover};

/// A drain to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainRequest {
    /// The id.
    pub id: String,
    /// The wall-clock time, in milliseconds since 1970.
    pub now_ms: u64,
    /// The nodes.
    pub nodes: BTreeSet<u16>,
    /// True if the nodes are failed over at the end.
    pub fails_over: bool,
}

/// Returns the map in which a drain begins. The steps follow by [`crate::plan_steps`].
///
/// # Errors
/// `NoNode`; `Failed` when a node is failed over; `LastNode`; `Node` while a rebalance of any kind runs, or when an active has
/// no replica on another node.
pub fn begin_drain(map: &ClusterMap, request: DrainRequest) -> Result<ClusterMap, ClusterError> {
    let refused = |why: String| Err(ClusterError::Node(why));
    let DrainRequest {
        id,
        now_ms,
        nodes,
        fails_over,
    } = request;
    if let Some(running) = map.running_rebalance() {
        return refused(format!("a {} is running", running.kind));
    }
    let Some(&first) = nodes.first() else {
        return refused("no node was named".to_owned());
    };
    for node in &nodes {
        match map.nodes.get(node) {
            None => return Err(ClusterError::NoNode(node.to_string())),
            Some(node) if node.failed => return Err(ClusterError::Failed(node.name.clone())),
            Some(_) => {}
        }
    }
    if map.members().all(|node| nodes.contains(&node)) {
        return Err(ClusterError::LastNode(map.name(first).to_owned()));
    }
    let lost = map.lost_vbuckets().filter(|_| fails_over);
    if let Some(why) = lost.or_else(|| map.without_taker(&nodes)) {
        return refused(why);
    }
    let kind = match fails_over {
        true => RebalanceKind::GracefulFailover,
        false => RebalanceKind::Drain,
    };
    let mut record = RebalanceRecord::new(id, kind, now_ms);
    record.drain = nodes;
    let left = map.drain_left(&record.drain);
    record.begin(&left, map.has(Feature::NodeProgress));
    let mut next = map.next();
    next.rebalance = Some(Box::new(record));
    Ok(next)
}

impl MapBucket {
    /// Returns the vBuckets whose active is one of these nodes.
    fn led_by_any(&self, nodes: &BTreeSet<u16>) -> impl Iterator<Item = u16> {
        let chains = (0_u16..).zip(&self.chains);
        let led = chains.filter(|(_, chain)| {
            let active = chain.active();
            active.is_some_and(|active| nodes.contains(&active))
        });
        led.map(|(vb, _)| vb)
    }

    /// Returns the replicas of a vBucket that may take it over when these nodes are drained.
    fn takers(&self, vb: u16, drained: &BTreeSet<u16>) -> impl Iterator<Item = u16> {
        let replicas = self.chains[usize::from(vb)].replicas();
        replicas.filter(|node| !drained.contains(node))
    }

    /// Returns the number of actives of each node, after the moves in progress.
    fn coming_actives(&self) -> BTreeMap<u16, usize> {
        let mut counts = BTreeMap::new();
        for chain in self.coming_chains() {
            if let Some(active) = chain.active() {
                *counts.entry(active).or_default() += 1;
            }
        }
        counts
    }

    /// Begins moves away from drained nodes, each to the replica whose node has the fewest actives, or waits for one that
    /// clients have to connect to again.
    fn begin_drain_moves(&mut self, drained: &BTreeSet<u16>, slots: &mut MoveSlots) {
        let mut counts = self.coming_actives();
        for vb in self.led_by_any(drained).collect::<Vec<u16>>() {
            if self.moves.contains_key(&vb) || self.next.contains_key(&vb) {
                continue;
            }
            let active = self.chains[usize::from(vb)].active();
            let count = |node: &u16| {
                let count = counts.get(node).copied().unwrap_or(0);
                (slots.is_awaited(*node), count, *node)
            };
            let taker = self.takers(vb, drained).min_by_key(count);
            let Some((from, to)) = active.zip(taker) else {
                continue;
            };
            if slots.take(from, &[to]) {
                let start = slots.start();
                self.moves.insert(vb, PendingMove { to, start });
                *counts.entry(to).or_default() += 1;
            }
        }
    }

    /// Returns, for each vBucket that is, or will be, active on one of these nodes, those nodes.
    fn undrained(&self, drained: &BTreeSet<u16>) -> impl Iterator<Item = BTreeSet<u16>> {
        let vbuckets = (0_u16..).take(self.chains.len());
        let of_vbucket = |vb: u16| {
            let next = self.next.get(&vb).and_then(|next| next.chain.active());
            let to = self.moves.get(&vb).map(|pending| pending.to);
            let is = self.chains[usize::from(vb)].active();
            let all = is.into_iter().chain(to).chain(next);
            let nodes: BTreeSet<u16> = all.filter(|node| drained.contains(node)).collect();
            nodes
        };
        vbuckets.map(of_vbucket).filter(|nodes| !nodes.is_empty())
    }
}

impl ClusterMap {
    /// Returns the actives of drained nodes that no node can take over, as a reason.
    pub(super) fn without_taker(&self, drained: &BTreeSet<u16>) -> Option<String> {
        self.buckets.iter().find_map(|bucket| {
            let led = bucket.led_by_any(drained);
            let alone = led.filter(|vb| bucket.takers(*vb, drained).next().is_none());
            let alone = alone.count();
            (alone > 0).then(|| {
                let name = &bucket.name;
                format!(
                    "{alone} active vBuckets of bucket \"{name}\" have no replica on another node"
                )
            })
        })
    }

    /// Returns the rest of a drain.
    pub(super) fn drain_left(&self, drained: &BTreeSet<u16>) -> RebalanceLeft {
        let mut left = RebalanceLeft::default();
        let buckets = self.buckets.iter();
        for nodes in buckets.flat_map(|bucket| bucket.undrained(drained)) {
            left.takeovers += 1;
            left.vbuckets += 1;
            for node in nodes {
                *left.nodes.entry(node).or_default() += 1;
            }
        }
        left
    }

    /// Begins the next moves of a drain, or ends it.
    pub(super) fn drain_further(&mut self, limits: MoveLimits) {
        let Some(record) = self.rebalance.as_deref().cloned() else {
            return;
        };
        let mut slots = MoveSlots::of(self, limits.of_takeovers());
        for bucket in &mut self.buckets {
            bucket.begin_drain_moves(&record.drain, &mut slots);
        }
        if !self.drain_left(&record.drain).is_done() {
            return;
        }
        let state = match record.kind {
            RebalanceKind::GracefulFailover => self.fail_over_drained(&record.drain),
            RebalanceKind::Rebalance | RebalanceKind::Drain => Ok(()),
        };
        if let Some(record) = &mut self.rebalance {
            record.state = match state {
                Ok(()) => RebalanceState::Finished,
                Err(error) => RebalanceState::Failed(error.to_string()),
            };
        }
    }

    /// Fails drained nodes over. They have no actives, so no positions are needed.
    fn fail_over_drained(&mut self, drained: &BTreeSet<u16>) -> Result<(), ClusterError> {
        let revision = self.revision;
        let mut next = self.clone();
        for node in drained {
            next = plan_failover(&next, *node, &BTreeMap::new(), false)?.map;
        }
        // It is one change.
        next.revision.epoch = revision.epoch + 1;
        next.revision.rev = revision.rev;
        *self = next;
        Ok(())
    }
}
