//! Taking a node out of the map, and putting it back: pure functions of the map and of what the copies have.

use std::collections::BTreeMap;
use std::fmt;

use crate::position::newest_branch;
use crate::{ClusterError, ClusterMap, MapBucket, Position};

/// What a node told of its vBuckets: for each bucket one position per vBucket, `None` where it has no copy.
pub type NodePositions = BTreeMap<String, Vec<Option<Position>>>;

/// What a failover would lose, as far as can be known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// (bucket, vBucket) of which no copy is left at all.
    pub without_copy: Vec<(String, u16)>,
    /// Those whose remaining copies are too few to be sure that one of them has every acknowledged SyncWrite.
    pub uncertain: Vec<(String, u16)>,
    /// Nodes that should tell how far their copies have come, and did not.
    pub silent: Vec<String>,
}

impl Losses {
    fn is_empty(&self) -> bool {
        self.without_copy.is_empty() && self.uncertain.is_empty() && self.silent.is_empty()
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

impl fmt::Display for Losses {
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
    /// vBuckets that another node becomes the active of.
    pub promoted: usize,
    /// What it loses; empty unless it was forced.
    pub losses: Losses,
}

/// The map without the node `failed`, to be published by `by`. Of each vBucket that it was the active of, the replica
/// that has the most takes over; so it is with vBuckets that were moving to it, unless their active has all that others
/// have. Changes of numbers of replicas are given up; nodes that join go on with who is the active now, and count for as
/// little. `force` accepts what would be lost.
///
/// # Errors
/// `Failed` when it was failed over already, `LastNode`, `WouldLose`.
pub fn plan_failover(
    map: &ClusterMap,
    by: u16,
    failed: u16,
    told: &BTreeMap<u16, NodePositions>,
    force: bool,
) -> Result<FailoverPlan, ClusterError> {
    if map.nodes[usize::from(failed)].failed {
        return Err(ClusterError::Failed(map.name(failed).to_owned()));
    }
    if map.members().all(|node| node == failed) {
        return Err(ClusterError::LastNode(map.name(failed).to_owned()));
    }
    let mut plan = FailoverPlan {
        map: map.next_epoch(by),
        promoted: 0,
        losses: Losses::default(),
    };
    plan.map.nodes[usize::from(failed)].failed = true;
    plan.map.outrun_manifests(by);
    for bucket in &mut plan.map.buckets {
        let MapBucket {
            name,
            chains,
            moves,
            next,
            ..
        } = bucket;
        let next = next.take();
        for (vb, chain) in (0_u16..).zip(chains) {
            let position = |node: u16| {
                let positions = told.get(&node)?.get(name)?;
                positions.get(usize::from(vb))?.as_ref()
            };
            let active = chain.active();
            // Who was about to take over may have done so, and nobody has heard of it.
            let took_over = moves.get(&vb) == Some(&failed);
            if active != Some(failed) && !took_over {
                chain.remove(failed, |_| None);
                continue;
            }
            moves.remove(&vb);
            let place = (name.clone(), vb);
            let nodes: Vec<u16> = chain.nodes().collect();
            let others: Vec<u16> = nodes.iter().copied().filter(|it| *it != failed).collect();
            let known: Vec<u16> = others
                .iter()
                .copied()
                .filter(|&it| position(it).is_some())
                .collect();
            for silent in others.into_iter().filter(|it| !known.contains(it)) {
                let name = map.name(silent).to_owned();
                if !plan.losses.silent.contains(&name) {
                    plan.losses.silent.push(name);
                }
            }
            // A SyncWrite was acknowledged by a majority of the chain; one of those must be among who tells.
            let majority = chain.0.len() / 2 + 1;
            if known.is_empty() {
                // Copies that count have had what the active had.
                let coming = next.as_ref().filter(|next| next.counts);
                let coming = coming.map(|next| next.chains[usize::from(vb)].replicas());
                let coming: Vec<u16> = coming.into_iter().flatten().collect();
                if let Some(best) = best_copy(&coming, position) {
                    plan.losses.uncertain.push(place);
                    plan.promoted += 1;
                    chain.0[0] = Some(best);
                } else {
                    plan.losses.without_copy.push(place);
                }
            } else if nodes.len() - known.len() >= majority {
                plan.losses.uncertain.push(place);
            }
            let stays = active.filter(|&active| may_stay(active, &known, position));
            let best = stays.or_else(|| best_copy(&known, position));
            chain.remove(failed, |_| None);
            if let Some(best) = best {
                plan.promoted += usize::from(active != Some(best));
                *chain = chain.led_by(best);
            }
        }
    }
    plan.map.let_join();
    if plan.losses.is_empty() || force {
        return Ok(plan);
    }
    Err(ClusterError::WouldLose(plan.losses))
}

/// Whether the active that a vBucket was moving away from has all that the others have. If it has not been taken over from,
/// it goes on until it hears of the new map, and acknowledges what it had in memory only when it told.
fn may_stay<'a>(
    active: u16,
    known: &[u16],
    position: impl Fn(u16) -> Option<&'a Position>,
) -> bool {
    let Some(has) = position(active).filter(|has| has.consistent && known.contains(&active)) else {
        return false;
    };
    let has_all_of = |other: &Position| {
        let tip = other.history.first().map(|(uuid, _)| uuid);
        let knows = |tip| has.history.iter().any(|(uuid, _)| uuid == tip);
        let undivided = other.on(&has.history).undivided;
        tip.is_some_and(knows) && undivided && other.high_seqno <= has.high_seqno
    };
    known
        .iter()
        .filter_map(|&node| position(node))
        .all(has_all_of)
}

/// The node that has the most; the first of several.
fn best_copy<'a>(known: &[u16], position: impl Fn(u16) -> Option<&'a Position>) -> Option<u16> {
    let positions: Vec<&Position> = known.iter().filter_map(|&node| position(node)).collect();
    let branch = newest_branch(&positions);
    let standing = |&node: &u16| Some((node, position(node)?.on(branch)));
    let standings = known.iter().rev().filter_map(standing);
    standings
        .max_by_key(|(_, standing)| *standing)
        .map(|(node, _)| node)
}

/// The map in which a node that was failed over is back, to be published by `by`: it joins what it had once, and is the
/// active of what has none. Balanced it is not: the actives stay where they are.
///
/// A node that was not failed over becomes the active of what nobody has any more, if it is to have that.
///
/// # Errors
/// `NotFailed` when it was not, and there is no such vBucket.
pub fn plan_recovery(map: &ClusterMap, by: u16, node: u16) -> Result<ClusterMap, ClusterError> {
    let had_failed = map.nodes[usize::from(node)].failed;
    let mut map = map.next(by);
    map.nodes[usize::from(node)].failed = false;
    map.outrun_manifests(by);
    let nodes = map.nodes.len();
    let mut leads = false;
    for bucket in &mut map.buckets {
        let first = bucket.first_chains(nodes);
        for (chain, first) in bucket.chains.iter_mut().zip(first) {
            // Where there are replicas only, one that joins with less than these would not ask them.
            let may_lead = had_failed || chain.nodes().next().is_none();
            if may_lead && chain.active().is_none() && first.contains(node) {
                chain.0[0] = Some(node);
                leads = true;
            }
        }
    }
    if !had_failed && !leads {
        return Err(ClusterError::NotFailed(map.name(node).to_owned()));
    }
    map.let_join();
    Ok(map)
}
