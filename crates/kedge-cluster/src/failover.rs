//! Failover of nodes: pure functions of the map and of the positions of the copies.

use std::collections::BTreeMap;
use std::fmt;

use crate::position::newest_branch;
use crate::rebalance::resize_rebalance;
use crate::{Chain, ClusterError, ClusterMap, CopyPosition, MapBucket};

/// The positions of a node's vBuckets, as it reported them: for each bucket one position per vBucket, `None` if it has
/// no copy.
pub type NodePositions = BTreeMap<String, Vec<Option<CopyPosition>>>;

/// The data that a failover would lose, as far as known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailoverLosses {
    /// The vBuckets without any copy left, as (bucket, vBucket).
    pub without_copy: Vec<(String, u16)>,
    /// The vBuckets with too few remaining copies to be sure that one of them has every acknowledged SyncWrite.
    pub uncertain: Vec<(String, u16)>,
    /// The vBuckets with enough remaining copies, too many of which were rolled back and have not caught up again.
    pub rolled_back: Vec<(String, u16)>,
    /// The nodes whose positions are needed, and that did not report them.
    pub silent: Vec<String>,
}

impl FailoverLosses {
    fn add(&mut self, other: Self) {
        self.without_copy.extend(other.without_copy);
        self.uncertain.extend(other.uncertain);
        self.rolled_back.extend(other.rolled_back);
        for node in other.silent {
            if !self.silent.contains(&node) {
                self.silent.push(node);
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.without_copy.is_empty()
            && self.uncertain.is_empty()
            && self.rolled_back.is_empty()
            && self.silent.is_empty()
    }
}

fn list(what: &[(String, u16)]) -> String {
    const SHOWN: usize = 8;
    let shown: Vec<String> = what
        .iter()
        .take(SHOWN)
        .map(|(bucket, vb)| format!("{bucket}/{vb}"))
        .collect();
    let more = if what.len() > SHOWN { ", ..." } else { "" };
    format!("{} ({}{more})", what.len(), shown.join(", "))
}

impl fmt::Display for FailoverLosses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = Vec::new();
        if !self.without_copy.is_empty() {
            let which = list(&self.without_copy);
            said.push(format!("no copy would be left of vBuckets: {which}"));
        }
        if !self.uncertain.is_empty() {
            let which = list(&self.uncertain);
            said.push(format!(
                "acknowledged SyncWrites might be lost of vBuckets: {which}"
            ));
        }
        if !self.rolled_back.is_empty() {
            let which = list(&self.rolled_back);
            said.push(format!(
                "copies were rolled back below acknowledged SyncWrites and have not caught up of vBuckets: {which}"
            ));
        }
        if !self.silent.is_empty() {
            let which = self.silent.join(", ");
            said.push(format!("it is not known how far the copies of {which} are"));
        }
        f.write_str(&said.join("; "))
    }
}

/// A failover that can be carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailoverPlan {
    /// The map to send to all nodes.
    pub map: ClusterMap,
    /// The number of vBuckets that another node becomes the active of.
    pub promoted: usize,
    /// The data that it loses; empty unless it was forced.
    pub losses: FailoverLosses,
}

/// Returns the map without the node `failed`. For each vBucket whose active it was, the most advanced replica takes
/// over. The same holds for vBuckets that were moving to it, if their active has handed them over and other copies have more.
/// Target chains of vBuckets are cancelled if they have the node, or it was the active. Joining nodes continue with the
/// new active, and still do not count. A running rebalance goes on without the node. `force` accepts the losses.
///
/// # Errors
/// `NoNode`, `Failed` when it is already failed over, `LastNode`, `WouldLose`.
pub fn plan_failover(
    map: &ClusterMap,
    failed: u16,
    told: &BTreeMap<u16, NodePositions>,
    force: bool,
) -> Result<FailoverPlan, ClusterError> {
    plan(map, failed, told, &FailoverRules::manual(force))
}

/// Returns the map without the nodes `failed`, which nobody has asked for: it is never forced.
///
/// Places of a chain that are empty count as lost copies. After a failover of a replica, its active and it may be the only
/// nodes that have an acknowledged SyncWrite, until the other replicas have received it.
///
/// # Errors
/// As those of [`plan_failover`].
pub fn plan_automatic_failover(
    map: &ClusterMap,
    failed: &[u16],
    told: &BTreeMap<u16, NodePositions>,
) -> Result<FailoverPlan, ClusterError> {
    let rules = FailoverRules {
        is_forced: true,
        are_empty_places_lost: true,
        gone: failed,
    };
    let mut done = FailoverPlan {
        map: map.clone(),
        promoted: 0,
        losses: FailoverLosses::default(),
    };
    for &node in failed {
        let next = plan(&done.map, node, told, &rules)?;
        done.map = next.map;
        done.promoted += next.promoted;
        done.losses.add(next.losses);
    }
    match done.losses.is_empty() {
        true => Ok(done),
        false => Err(ClusterError::WouldLose(done.losses)),
    }
}

/// The rules of a failover.
struct FailoverRules<'a> {
    /// True if losses are accepted.
    is_forced: bool,
    /// True if an empty place of a chain counts as a lost copy.
    are_empty_places_lost: bool,
    /// The nodes that are failed over in the same change: nobody waits for their positions.
    gone: &'a [u16],
}

impl FailoverRules<'_> {
    fn manual(is_forced: bool) -> Self {
        Self {
            is_forced,
            are_empty_places_lost: false,
            gone: &[],
        }
    }

    /// Returns the number of copies that may have acknowledged a SyncWrite.
    fn copies(&self, chain: &Chain) -> usize {
        match self.are_empty_places_lost {
            true => chain.0.len(),
            false => chain.nodes().count(),
        }
    }
}

fn plan(
    map: &ClusterMap,
    failed: u16,
    told: &BTreeMap<u16, NodePositions>,
    rules: &FailoverRules<'_>,
) -> Result<FailoverPlan, ClusterError> {
    if map.members().all(|node| node == failed) {
        return Err(ClusterError::LastNode(map.name(failed).to_owned()));
    }
    let mut next_map = map.next_epoch();
    if std::mem::replace(&mut next_map.node_mut(failed)?.failed, true) {
        return Err(ClusterError::Failed(map.name(failed).to_owned()));
    }
    next_map.recovery.remove(&failed);
    let mut failover = FailoverPlanner {
        map,
        failed,
        rules,
        told,
        promoted: 0,
        losses: FailoverLosses::default(),
    };
    for bucket in &mut next_map.buckets {
        for vb in (0_u16..).take(bucket.chains.len()) {
            failover.leave(bucket, vb);
        }
    }
    next_map.continue_without_failed();
    next_map.let_join();
    resize_rebalance(map, &mut next_map);
    let FailoverPlanner {
        promoted, losses, ..
    } = failover;
    if losses.is_empty() || rules.is_forced {
        return Ok(FailoverPlan {
            map: next_map,
            promoted,
            losses,
        });
    }
    Err(ClusterError::WouldLose(losses))
}

/// A failover during its planning.
struct FailoverPlanner<'a> {
    /// The map with the failed node.
    map: &'a ClusterMap,
    failed: u16,
    rules: &'a FailoverRules<'a>,
    told: &'a BTreeMap<u16, NodePositions>,
    promoted: usize,
    losses: FailoverLosses,
}

impl FailoverPlanner<'_> {
    /// Removes the failed node from a vBucket.
    fn leave(&mut self, bucket: &mut MapBucket, vb: u16) {
        let failed = self.failed;
        let at = usize::from(vb);
        let had_place = bucket.chains[at].contains(failed);
        let moves_to = bucket.moves.get(&vb).map(|pending| pending.to);
        let was_next = moves_to == Some(failed);
        if bucket.chains[at].active() == Some(failed)
            || was_next && !self.active_stays(&bucket.name, vb, &bucket.chains[at])
        {
            bucket.moves.remove(&vb);
            // Copies that count have had everything of the active.
            let next = bucket.next.remove(&vb).filter(|next| next.counts);
            self.replace_active(bucket, vb, next.map(|next| next.chain), moves_to);
        } else if was_next {
            bucket.moves.remove(&vb);
            bucket.next.remove(&vb);
            bucket.chains[at].remove(failed, |_| None);
        } else {
            bucket.chains[at].remove(failed, |_| None);
            if let Some(next) = bucket
                .next
                .get_mut(&vb)
                .filter(|next| next.chain.contains(failed))
            {
                if moves_to.is_some() {
                    next.chain.remove(failed, |_| None);
                } else {
                    bucket.next.remove(&vb);
                }
            }
        }
        if had_place && !bucket.chains[at].contains(failed) {
            bucket.vacate(vb, failed);
        }
        bucket.trim_vacated(vb);
    }

    /// Removes the failed node from the chain of a vBucket whose active it is or may be, and makes the best of the other
    /// copies the active: also the node that was about to take over, if it has more. If the chain has no other copy, the
    /// best of the target chain, if that counts. Records the resulting losses.
    fn replace_active(
        &mut self,
        bucket: &mut MapBucket,
        vb: u16,
        next: Option<Chain>,
        moves_to: Option<u16>,
    ) {
        let (failed, told) = (self.failed, self.told);
        let name = bucket.name.clone();
        let position = |node| position_of(told, &name, vb, node);
        let counts = |node| position(node).is_some_and(|it| it.catch_up_to.is_none());
        let chain = &mut bucket.chains[usize::from(vb)];
        let active = chain.active();
        let others = chain.nodes().filter(|node| *node != failed);
        let (mut known, silent): (Vec<u16>, Vec<u16>) =
            others.partition(|node| position(*node).is_some());
        self.note_silent(&silent);
        // A majority of the chain acknowledged each SyncWrite; one node of such a majority must be among those that
        // reported.
        let majority = chain.0.len() / 2 + 1;
        let copies = self.rules.copies(chain);
        let vbucket = (name.clone(), vb);
        if known.is_empty() {
            let coming = next
                .iter()
                .flat_map(Chain::nodes)
                .filter(|node| *node != failed);
            let coming: Vec<u16> = coming.collect();
            if let Some(best) = best_copy(&coming, position) {
                self.losses.uncertain.push(vbucket);
                self.promoted += 1;
                chain.0[0] = Some(best);
            } else {
                self.losses.without_copy.push(vbucket);
            }
        } else if copies - known.len() >= majority {
            self.losses.uncertain.push(vbucket);
        } else if copies - known.iter().filter(|node| counts(**node)).count() >= majority {
            self.losses.rolled_back.push(vbucket);
        }
        // It may have taken over, and have acknowledged more, without anyone having heard of it.
        let took_over = moves_to.filter(|to| *to != failed && !chain.contains(*to));
        let took_over = took_over.filter(|to| !known.is_empty() && position(*to).is_some());
        known.extend(took_over);
        let best = best_copy(&known, position);
        if let Some(next) = next.filter(|_| best.is_some() && best == took_over) {
            *chain = next;
        }
        chain.remove(failed, |_| None);
        if let Some(best) = best {
            self.promoted += usize::from(active != Some(best));
            *chain = chain.led_by(best);
        }
    }

    /// Returns whether the active of a vBucket that was moving to the failed node stays the active.
    ///
    /// It does while it serves the vBucket, whatever others have: nobody waits for the end of its lease. Nothing is lost by
    /// that, since the failed node serves only by a map after the move. The same holds for an active that does not report.
    /// One that has handed the vBucket over stays if it has everything that the others have; after a restore of the store,
    /// a newer map may have been lost.
    fn active_stays(&self, bucket: &str, vb: u16, chain: &Chain) -> bool {
        let position = |node| position_of(self.told, bucket, vb, node);
        let Some(active) = chain.active() else {
            return false;
        };
        let Some(has) = position(active) else {
            return true;
        };
        let others = chain.nodes().filter(|node| *node != self.failed);
        let mut others = others.filter_map(position);
        has.active || has.consistent && others.all(|other| has_all_of(has, other))
    }

    /// Records nodes that did not report their positions.
    fn note_silent(&mut self, nodes: &[u16]) {
        let gone = self.rules.gone;
        for &node in nodes.iter().filter(|node| !gone.contains(node)) {
            let name = self.map.name(node).to_owned();
            if !self.losses.silent.contains(&name) {
                self.losses.silent.push(name);
            }
        }
    }
}

/// Returns the position of a node's copy of a vBucket, if the node has reported it.
fn position_of<'a>(
    told: &'a BTreeMap<u16, NodePositions>,
    bucket: &str,
    vb: u16,
    node: u16,
) -> Option<&'a CopyPosition> {
    let positions = told.get(&node)?.get(bucket)?;
    positions.get(usize::from(vb))?.as_ref()
}

/// Returns whether a copy has everything that another one has.
fn has_all_of(has: &CopyPosition, other: &CopyPosition) -> bool {
    let tip = other.history.first().map(|(uuid, _)| uuid);
    let knows = |tip| has.history.iter().any(|(uuid, _)| uuid == tip);
    let undivided = other.on(&has.history).undivided;
    tip.is_some_and(knows) && undivided && other.high_seqno <= has.high_seqno
}

/// Returns the most advanced node; the first one of several.
fn best_copy<'a>(known: &[u16], position: impl Fn(u16) -> Option<&'a CopyPosition>) -> Option<u16> {
    let positions: Vec<&CopyPosition> = known.iter().filter_map(|&node| position(node)).collect();
    let branch = newest_branch(&positions);
    let standing = |&node: &u16| Some((node, position(node)?.on(branch)));
    let standings = known.iter().rev().filter_map(standing);
    standings
        .max_by_key(|(_, standing)| *standing)
        .map(|(node, _)| node)
}

/// Returns whether SyncWrites are impossible for a vBucket of the map that has an active: its chain has fewer nodes than a
/// majority of its places.
#[must_use]
pub fn lacks_durability_majority(map: &ClusterMap) -> bool {
    let mut chains = map.buckets.iter().flat_map(|bucket| &bucket.chains);
    chains.any(|chain| {
        let nodes = chain.nodes().count();
        chain.active().is_some() && nodes < chain.0.len() / 2 + 1
    })
}
