//! The first steps of vBuckets on the way to their target chains, within limits per node.

use std::collections::{BTreeMap, BTreeSet};

use kedge_types::limits::{DRAIN_MOVES_PER_NODE, REBALANCE_MOVES_PER_NODE_MAX};

use super::{
    CatchUp, NextChain, PlacementNode, RebalanceKind, RebalanceRecord, RebalanceState,
    target_chains,
};
use crate::{Chain, ClusterError, ClusterMap, Feature, MapBucket, MoveStart, PendingMove};

/// The largest numbers of vBuckets of a node that are copied or taken over at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveLimits {
    /// To the node.
    pub incoming: usize,
    /// From the node; a vBucket with several new copies may exceed it if it is the only one.
    pub outgoing: usize,
    /// To or from the node, of a drain: only actives move, and no copies are made.
    pub drained: usize,
    /// The nodes to which nothing moves yet, because clients have not connected to them again.
    pub awaited: BTreeSet<u16>,
    /// The nodes that do not respond: no vBucket gets other copies that has one of them in its chain or its target chain.
    pub silent: BTreeSet<u16>,
}

impl MoveLimits {
    /// Returns the limits that a map sets.
    #[must_use]
    pub fn of(map: &ClusterMap) -> Self {
        let moves = usize::from(map.moves_per_node);
        Self {
            incoming: moves,
            outgoing: moves,
            drained: DRAIN_MOVES_PER_NODE.max(moves),
            awaited: BTreeSet::new(),
            silent: BTreeSet::new(),
        }
    }

    /// Returns the limits of a drain.
    pub(super) fn of_takeovers(self) -> Self {
        Self {
            incoming: self.drained,
            outgoing: self.drained,
            ..self
        }
    }
}

/// The numbers of vBuckets that each node sends and receives.
#[derive(Debug)]
pub(super) struct MoveSlots {
    limits: MoveLimits,
    start: MoveStart,
    incoming: BTreeMap<u16, usize>,
    outgoing: BTreeMap<u16, usize>,
}

impl MoveSlots {
    /// Returns the slots that the copies and moves in progress occupy. Further moves begin with this map.
    pub(super) fn of(map: &ClusterMap, limits: MoveLimits) -> Self {
        let mut slots = Self {
            limits,
            start: MoveStart::of(map),
            incoming: BTreeMap::new(),
            outgoing: BTreeMap::new(),
        };
        for bucket in &map.buckets {
            for (vb, chain) in (0_u16..).zip(&bucket.chains) {
                let Some(active) = chain.active() else {
                    continue;
                };
                let building = bucket.next.get(&vb).filter(|next| !next.counts);
                let receivers = match (bucket.moves.get(&vb), building) {
                    (Some(pending), _) => vec![pending.to],
                    (None, Some(next)) => new_nodes(chain, &next.chain),
                    (None, None) => continue,
                };
                slots.occupy(active, &receivers);
            }
        }
        slots
    }

    /// Returns the start of further moves.
    pub(super) fn start(&self) -> MoveStart {
        self.start
    }

    /// Returns whether nothing moves to a node yet.
    pub(super) fn is_awaited(&self, node: u16) -> bool {
        self.limits.awaited.contains(&node)
    }

    /// Returns whether one of the nodes of a chain, or of its target chain, does not respond.
    fn waits_for_any(&self, chain: &Chain, target: &Chain) -> bool {
        let mut nodes = chain.nodes().chain(target.nodes());
        nodes.any(|node| self.limits.silent.contains(&node))
    }

    fn occupy(&mut self, from: u16, to: &[u16]) {
        *self.outgoing.entry(from).or_default() += to.len();
        for to in to {
            *self.incoming.entry(*to).or_default() += 1;
        }
    }

    /// Occupies slots of these nodes, if there are enough.
    pub(super) fn take(&mut self, from: u16, to: &[u16]) -> bool {
        let sends = self.outgoing.get(&from).copied().unwrap_or(0);
        let may_send = sends == 0 || sends + to.len() <= self.limits.outgoing;
        let may_receive = |node: &u16| {
            let receives = self.incoming.get(node).copied().unwrap_or(0);
            receives < self.limits.incoming && !self.is_awaited(*node)
        };
        let may_begin = self.limits.outgoing > 0 && may_send && to.iter().all(may_receive);
        if may_begin {
            self.occupy(from, to);
        }
        may_begin
    }
}

fn new_nodes(chain: &Chain, next: &Chain) -> Vec<u16> {
    next.nodes().filter(|node| !chain.contains(*node)).collect()
}

fn has_same_nodes(chain: &Chain, next: &Chain) -> bool {
    chain.0.len() == next.0.len()
        && next.nodes().count() == chain.nodes().count()
        && new_nodes(chain, next).is_empty()
}

impl MapBucket {
    /// Returns the chains after the steps in progress.
    pub(crate) fn coming_chains(&self) -> Vec<Chain> {
        let chains = (0_u16..).zip(&self.chains);
        let coming = chains.map(
            |(vb, chain)| match (self.next.get(&vb), self.moves.get(&vb)) {
                (Some(next), _) => next.chain.clone(),
                (None, Some(pending)) => chain.led_by(pending.to),
                (None, None) => chain.clone(),
            },
        );
        coming.collect()
    }

    /// Begins steps of the due vBuckets towards these chains.
    fn begin_steps(&mut self, targets: Vec<Chain>, work: Work, slots: &mut MoveSlots) {
        let places = self.wanted_replicas() + 1;
        for (vb, target) in (0_u16..).zip(targets) {
            let chain = &self.chains[usize::from(vb)];
            let is_due = work == Work::Rebalance || chain.0.len() != places;
            let may_begin = is_due && !self.is_in_progress(vb);
            let Some(active) = chain.active().filter(|_| may_begin) else {
                continue;
            };
            // Only a rebalance makes the actives even.
            let keeps = work == Work::Replicas && target.contains(active);
            let target = if keeps { target.led_by(active) } else { target };
            if has_same_nodes(chain, &target) {
                let leads = target.active().filter(|node| *node != active);
                if let Some(to) = leads.filter(|to| slots.take(active, &[*to])) {
                    let start = slots.start();
                    self.moves.insert(vb, PendingMove { to, start });
                }
                continue;
            }
            let new = new_nodes(chain, &target);
            let may_begin = !slots.waits_for_any(chain, &target);
            if may_begin && (new.is_empty() || slots.take(active, &new)) {
                self.next.insert(
                    vb,
                    NextChain {
                        chain: target,
                        counts: false,
                    },
                );
            }
        }
    }

    /// Cancels target chains with another number of replicas than the wanted one, or with nodes over which the bucket
    /// is not spread any more, unless their actives take over already.
    fn cancel_obsolete(&mut self) {
        let places = self.wanted_replicas() + 1;
        let (moves, servers) = (&self.moves, &self.servers);
        self.next.retain(|vb, next| {
            let is_wanted = next.chain.0.len() == places
                && next.chain.nodes().all(|node| servers.contains(&node));
            is_wanted || moves.contains_key(vb)
        });
    }
}

impl ClusterMap {
    /// Returns the nodes over which a bucket is spread; `None` if one of them is failed over.
    fn placement_nodes(&self, bucket: &MapBucket) -> Option<Vec<PlacementNode>> {
        let node = |number: &u16| {
            let node = self.nodes.get(number).filter(|node| !node.failed)?;
            Some(PlacementNode {
                number: *number,
                group: node.server_group.clone(),
            })
        };
        bucket.servers.iter().map(node).collect()
    }

    fn target_chains(&self, bucket: &MapBucket) -> Option<Vec<Chain>> {
        let members = self.placement_nodes(bucket)?;
        Some(target_chains(
            &members,
            bucket.wanted_replicas(),
            &bucket.coming_chains(),
        ))
    }
}

/// The vBuckets that get steps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    /// Those with another number of replicas than the wanted one.
    Replicas,
    /// All.
    Rebalance,
    /// Those whose actives are on nodes that are drained.
    Drain,
}

/// Returns the map with the next steps; `None` when there are none.
///
/// Obsolete target chains are cancelled, and nodes join whose places are empty. vBuckets begin that have another number of
/// replicas than the wanted one; during a rebalance, all that are not on their nodes yet. None begins whose nodes do not
/// respond, or in a bucket one of whose servers is failed over or joins. A rebalance that is complete ends, and the nodes to remove leave the map.
#[must_use]
pub fn plan_steps(map: &ClusterMap, limits: MoveLimits) -> Option<ClusterMap> {
    steps_of(map, map.next(), limits)
}

/// Returns the next steps of a map, made in `next`, which has the same content and the revision of the result.
fn steps_of(map: &ClusterMap, mut next: ClusterMap, limits: MoveLimits) -> Option<ClusterMap> {
    let work = next.continue_rebalance();
    for bucket in &mut next.buckets {
        bucket.cancel_obsolete();
    }
    next.let_join();
    match work {
        Work::Drain => next.drain_further(limits),
        Work::Replicas | Work::Rebalance => next.begin_copies(work, limits),
    }
    let is_changed = next.buckets != map.buckets || next.rebalance != map.rebalance;
    is_changed.then_some(next)
}

/// Returns the map with another limit of the vBuckets that a node sends, and receives, at the same time; `None` if it has that
/// limit.
///
/// # Errors
/// `Node` when the limit is out of range; `NeedsLevel`.
pub fn plan_moves_per_node(
    map: &ClusterMap,
    moves: u8,
) -> Result<Option<ClusterMap>, ClusterError> {
    if !(1..=REBALANCE_MOVES_PER_NODE_MAX).contains(&moves) {
        return Err(ClusterError::Node(format!(
            "the number of moves per node is from 1 to {REBALANCE_MOVES_PER_NODE_MAX}"
        )));
    }
    if map.moves_per_node == moves {
        return Ok(None);
    }
    map.require(Feature::MovesPerNode)?;
    let mut next = map.next();
    next.moves_per_node = moves;
    Ok(Some(next))
}

/// Returns the map in which copies that have caught up count, and the next steps begin; `None` when there is nothing to do. It
/// is one change, because all nodes and clients follow each map.
#[must_use]
pub fn plan_round(
    map: &ClusterMap,
    copies: Option<&CatchUp>,
    limits: MoveLimits,
) -> Option<ClusterMap> {
    let counted = copies.and_then(|copies| copies.plan_without(map, &limits.awaited));
    match counted {
        Some(counted) => steps_of(&counted, counted.clone(), limits).or(Some(counted)),
        None => plan_steps(map, limits),
    }
}

impl ClusterMap {
    /// Begins steps of the due vBuckets, and ends a rebalance that is complete.
    fn begin_copies(&mut self, work: Work, limits: MoveLimits) {
        let next = self;
        let mut slots = MoveSlots::of(next, limits);
        let discards = next.discarding().next().is_some();
        let is_ready = |bucket: &MapBucket| {
            !discards
                && bucket.joining.is_empty()
                && (work == Work::Rebalance || bucket.is_to_change())
        };
        let targets = |bucket: &MapBucket| {
            let bucket = Some(bucket).filter(|bucket| is_ready(bucket))?;
            next.target_chains(bucket)
        };
        let targets: Vec<Option<Vec<Chain>>> = next.buckets.iter().map(targets).collect();
        for (bucket, targets) in next.buckets.iter_mut().zip(targets) {
            if let Some(targets) = targets {
                bucket.begin_steps(targets, work, &mut slots);
            }
        }
        if work == Work::Rebalance && rebalance_left(next).is_some_and(|left| left.is_done()) {
            next.finish_rebalance();
        }
    }
}

/// A rebalance to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RebalanceRequest {
    /// The id.
    pub id: String,
    /// The wall-clock time, in milliseconds since 1970.
    pub now_ms: u64,
    /// The nodes over which all buckets are to be spread.
    pub servers: Vec<u16>,
    /// The nodes to remove at the end.
    pub remove: BTreeSet<u16>,
}

/// Returns the map in which a rebalance begins. The steps follow by [`plan_steps`].
///
/// # Errors
/// `Node` while another one runs, when no node would be left, a failed-over node is not to be removed, or a vBucket has no
/// active.
pub fn begin_rebalance(
    map: &ClusterMap,
    request: RebalanceRequest,
) -> Result<ClusterMap, ClusterError> {
    let refused = |why: String| Err(ClusterError::Node(why));
    let RebalanceRequest {
        id,
        now_ms,
        mut servers,
        remove,
    } = request;
    if let Some(running) = map.running_rebalance() {
        return refused(format!("a {} is running", running.kind));
    }
    servers.sort_unstable();
    servers.dedup();
    servers.retain(|node| map.nodes.contains_key(node) && !remove.contains(node));
    if servers.is_empty() {
        return refused("no node would be left".to_owned());
    }
    let mut next = map.next();
    for (node, recovery) in map.to_recover() {
        if !remove.contains(&node) {
            next.recover_node(node, recovery)?;
        }
    }
    next.let_join();
    let mut stay = next
        .nodes
        .iter()
        .filter(|(number, _)| !remove.contains(number));
    if let Some((_, node)) = stay.find(|(_, node)| node.failed) {
        return refused(format!(
            "node \"{}\" is failed over: recover it, or remove it in the rebalance",
            node.name
        ));
    }
    if let Some(why) = next.lost_vbuckets() {
        return refused(why);
    }
    for bucket in &mut next.buckets {
        bucket.servers.clone_from(&servers);
    }
    let mut record = RebalanceRecord::new(id, RebalanceKind::Rebalance, now_ms);
    let left = rebalance_left(&next).unwrap_or_default();
    record.begin(&left, next.has(Feature::NodeProgress));
    (record.servers, record.remove) = (servers, remove);
    next.rebalance = Some(Box::new(record));
    Ok(next)
}

impl ClusterMap {
    /// Returns the vBuckets without an active as a reason for which no rebalance is possible.
    pub(super) fn lost_vbuckets(&self) -> Option<String> {
        self.buckets.iter().find_map(|bucket| {
            let lost = bucket.chains.iter().filter(|chain| chain.active().is_none());
            let lost = lost.count();
            (lost > 0).then(|| {
                format!(
                    "{lost} vBuckets of bucket \"{}\" have no active: recover a node that has them first",
                    bucket.name
                )
            })
        })
    }

    /// Returns the largest number of vBuckets that a node sends, and receives, at the same time.
    #[must_use]
    pub fn moves_per_node(&self) -> u8 {
        self.moves_per_node
    }

    /// Returns the running rebalance of any kind.
    #[must_use]
    pub fn running_rebalance(&self) -> Option<&RebalanceRecord> {
        self.rebalance.as_deref().filter(|it| it.is_running())
    }

    /// Makes a running rebalance of any kind go on without those of its nodes that are failed over or gone: of a rebalance, all
    /// buckets are spread over the other ones. It ends as failed when it cannot go on: none of its nodes is left, or a
    /// vBucket has no active or no replica that it needs.
    pub(crate) fn continue_without_failed(&mut self) {
        let Some(mut record) = self.running_rebalance().cloned() else {
            return;
        };
        let nodes = record.nodes();
        let gone = nodes.iter().find(|node| !self.is_member(**node));
        let gone = gone.map(|node| format!("node \"{}\" was failed over", self.name(*node)));
        record.drain.retain(|node| self.is_member(*node));
        record.servers.retain(|node| self.is_member(*node));
        let has_none = record.nodes().is_empty();
        let obstacle = gone.filter(|_| has_none);
        let obstacle = obstacle.or_else(|| match record.kind.drains() {
            true => self.without_taker(&record.drain),
            false => self.lost_vbuckets(),
        });
        match obstacle {
            Some(why) => self.end_rebalance(RebalanceState::Failed(why)),
            None => self.spread_by(record),
        }
    }

    /// Replaces the record of a running rebalance. Of a rebalance that spreads buckets, all are spread over its servers, also those that
    /// were created meanwhile.
    fn spread_by(&mut self, record: RebalanceRecord) {
        if !record.kind.drains() {
            for bucket in &mut self.buckets {
                bucket.servers.clone_from(&record.servers);
            }
        }
        self.rebalance = Some(Box::new(record));
    }

    /// Makes a running rebalance spread all buckets over a recovered node, too, unless it removes the node.
    pub(crate) fn rebalance_over(&mut self, node: u16) {
        let running = self.running_rebalance().cloned();
        let Some(mut record) = running.filter(|it| !it.kind.drains()) else {
            return;
        };
        if record.remove.contains(&node) || record.servers.contains(&node) {
            return;
        }
        record.servers.push(node);
        record.servers.sort_unstable();
        self.spread_by(record);
    }

    /// Returns the work that goes on.
    fn continue_rebalance(&mut self) -> Work {
        self.continue_without_failed();
        match self.running_rebalance() {
            None => Work::Replicas,
            Some(record) if record.kind.drains() => Work::Drain,
            Some(_) => Work::Rebalance,
        }
    }

    /// Gives up copies that are not complete.
    fn end_rebalance(&mut self, state: RebalanceState) {
        let Some(record) = &mut self.rebalance else {
            return;
        };
        record.state = state;
        if record.kind.drains() {
            return;
        }
        for bucket in &mut self.buckets {
            let moves = &bucket.moves;
            bucket.next.retain(|vb, _| moves.contains_key(vb));
        }
    }

    /// Removes the nodes to remove.
    fn finish_rebalance(&mut self) {
        let Some(record) = &self.rebalance else {
            return;
        };
        let mut state = RebalanceState::Finished;
        for node in record.remove.clone() {
            let mut next = self.clone();
            match next.remove_node(node) {
                Ok(()) => *self = next,
                Err(error) => state = RebalanceState::Failed(error.to_string()),
            }
        }
        self.let_join();
        if let Some(record) = &mut self.rebalance {
            record.state = state;
        }
    }
}

/// Adapts the size of a running rebalance of any kind to the change from one map to another, by which more or less of it is left.
pub(crate) fn resize_rebalance(before: &ClusterMap, after: &mut ClusterMap) {
    let left = |map: &ClusterMap| map.running_rebalance()?.left(map);
    let Some((was, is)) = left(before).zip(left(after)) else {
        return;
    };
    if let Some(record) = &mut after.rebalance {
        record.resize(&was, &is);
    }
}

/// Returns the map in which the running rebalance of any kind is stopped; `None` if none is running. Copies
/// that are not complete are given up. What moves already goes on.
#[must_use]
pub fn stop_rebalance(map: &ClusterMap) -> Option<ClusterMap> {
    map.running_rebalance().map(|_| {
        let mut next = map.next();
        next.end_rebalance(RebalanceState::Stopped);
        next.let_join();
        next
    })
}

/// The rest of a rebalance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RebalanceLeft {
    /// The number of copies that each node has yet to receive.
    pub incoming: BTreeMap<u16, usize>,
    /// The number of copies that each node has yet to give up.
    pub outgoing: BTreeMap<u16, usize>,
    /// The number of vBuckets whose active is another one in the end.
    pub takeovers: usize,
    /// The number of vBuckets with any step left.
    pub vbuckets: usize,
    /// The number of those of which each node has yet to get, or to give up, a copy or the active.
    pub nodes: BTreeMap<u16, usize>,
}

impl RebalanceLeft {
    /// Returns whether nothing is left.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.vbuckets == 0
    }

    /// Adds a vBucket of which a step is left.
    fn add(&mut self, chain: &Chain, target: &Chain) {
        let (new, old) = (new_nodes(chain, target), new_nodes(target, chain));
        let (from, to) = (chain.active(), target.active());
        let changes = from != to;
        let actives = from.into_iter().chain(to).filter(|_| changes);
        let nodes: BTreeSet<u16> = actives.chain(new.iter().chain(&old).copied()).collect();
        self.vbuckets += 1;
        self.takeovers += usize::from(changes);
        for (counts, nodes) in [
            (&mut self.incoming, new.into_iter().collect()),
            (&mut self.outgoing, old.into_iter().collect()),
            (&mut self.nodes, nodes),
        ] {
            for node in nodes {
                *counts.entry(node).or_default() += 1;
            }
        }
    }

    /// Returns the number of copies that are yet to be made.
    #[must_use]
    pub fn copies(&self) -> usize {
        self.incoming.values().sum()
    }
}

/// Returns the rest of a rebalance of all buckets over their servers; `None` if one of these nodes is failed over.
#[must_use]
pub fn rebalance_left(map: &ClusterMap) -> Option<RebalanceLeft> {
    let mut left = RebalanceLeft::default();
    for bucket in &map.buckets {
        let targets = map.target_chains(bucket)?;
        for ((vb, chain), target) in (0_u16..).zip(&bucket.chains).zip(&targets) {
            let is_done = has_same_nodes(chain, target) && chain.active() == target.active();
            if is_done && !bucket.is_in_progress(vb) {
                continue;
            }
            left.add(chain, target);
        }
    }
    Some(left)
}
