//! Taking a node out of the map, and putting it back: pure functions of the map and of what the copies have.

use std::collections::BTreeMap;
use std::fmt;

use crate::position::newest_branch;
use crate::{Chain, ClusterError, ClusterMap, MapBucket, Position};

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
    let mut next_map = map.next_epoch(by);
    next_map.nodes[usize::from(failed)].failed = true;
    next_map.outrun_manifests(by);
    let mut failover = Failover {
        map,
        failed,
        promoted: 0,
        losses: Losses::default(),
    };
    for bucket in &mut next_map.buckets {
        let MapBucket {
            name,
            chains,
            moves,
            next,
            ..
        } = bucket;
        let next = next.take();
        // Copies that count have had what the active had.
        let next = next.as_ref().filter(|next| next.counts);
        for (vb, chain) in (0_u16..).zip(chains) {
            // Who was about to take over may have done so, and nobody has heard of it.
            let took_over = moves.get(&vb) == Some(&failed);
            if chain.active() != Some(failed) && !took_over {
                chain.remove(failed, |_| None);
                continue;
            }
            moves.remove(&vb);
            let coming = next.map(|next| next.chains[usize::from(vb)].replicas());
            let coming: Vec<u16> = coming.into_iter().flatten().collect();
            let position = |node: u16| {
                let positions = told.get(&node)?.get(name)?;
                positions.get(usize::from(vb))?.as_ref()
            };
            failover.replace_active((name.clone(), vb), chain, &coming, position);
        }
    }
    next_map.let_join();
    let Failover {
        promoted, losses, ..
    } = failover;
    if losses.is_empty() || force {
        return Ok(FailoverPlan {
            map: next_map,
            promoted,
            losses,
        });
    }
    Err(ClusterError::WouldLose(losses))
}

/// A failover while it is planned.
struct Failover<'a> {
    /// The map with the node that fails.
    map: &'a ClusterMap,
    failed: u16,
    promoted: usize,
    losses: Losses,
}

impl Failover<'_> {
    /// Takes the failed node out of the chain of a vBucket (of a bucket) whose active it is or may be, and makes the best
    /// of the other copies the active; one that is `coming` if the chain has no other. Notes what is lost by that.
    fn replace_active<'a>(
        &mut self,
        vbucket: (String, u16),
        chain: &mut Chain,
        coming: &[u16],
        position: impl Fn(u16) -> Option<&'a Position>,
    ) {
        let active = chain.active();
        let others = chain.nodes().filter(|node| *node != self.failed);
        let (known, silent): (Vec<u16>, Vec<u16>) =
            others.partition(|node| position(*node).is_some());
        self.note_silent(&silent);
        // A SyncWrite was acknowledged by a majority of the chain; one of those must be among who tells.
        let majority = chain.0.len() / 2 + 1;
        if known.is_empty() {
            if let Some(best) = best_copy(coming, &position) {
                self.losses.uncertain.push(vbucket);
                self.promoted += 1;
                chain.0[0] = Some(best);
            } else {
                self.losses.without_copy.push(vbucket);
            }
        } else if chain.nodes().count() - known.len() >= majority {
            self.losses.uncertain.push(vbucket);
        }
        let stays = active.filter(|&active| may_stay(active, &known, &position));
        let best = stays.or_else(|| best_copy(&known, &position));
        chain.remove(self.failed, |_| None);
        if let Some(best) = best {
            self.promoted += usize::from(active != Some(best));
            *chain = chain.led_by(best);
        }
    }

    /// Notes nodes that did not tell how far their copies have come.
    fn note_silent(&mut self, nodes: &[u16]) {
        for &node in nodes {
            let name = self.map.name(node).to_owned();
            if !self.losses.silent.contains(&name) {
                self.losses.silent.push(name);
            }
        }
    }
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
