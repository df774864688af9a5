//! Moves of vBuckets from their active to one of their replicas, or to a node of their target chain, while both run: pure
//! functions of the map.
//!
//! A move begins with a map that contains it. The replica then takes over from the active through its stream: it gets
//! everything that the active has, and the active becomes dead. Then it publishes the map in which it is the active.
//! Until then the vBucket has no active.
//!
//! Invariants:
//! * Only the node to which a vBucket moves publishes the map after the move.
//! * A takeover completes only the move for which it was made ([`MoveStart`]): the same vBucket may move to the same node again.

use serde::{Deserialize, Serialize};

use crate::{ClusterError, ClusterMap, Feature, even_actives};

/// The start of a move: the `rev` of the map with which it began. Moves that began at a compatibility level without it have none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct MoveStart(pub Option<i64>);

impl MoveStart {
    /// Returns the start of moves that begin with a map.
    pub(crate) fn of(map: &ClusterMap) -> Self {
        Self(map.has(Feature::MoveStarts).then_some(map.revision.rev))
    }
}

/// A move of a vBucket, from its active.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "MoveDocument", into = "MoveDocument")]
pub struct PendingMove {
    /// The node that will take over.
    pub to: u16,
    /// The start.
    pub start: MoveStart,
}

/// A move in the map's document: the node alone, or the node and the start.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum MoveDocument {
    To(u16),
    Since(u16, i64),
}

impl From<MoveDocument> for PendingMove {
    fn from(document: MoveDocument) -> Self {
        let (to, since) = match document {
            MoveDocument::To(to) => (to, None),
            MoveDocument::Since(to, since) => (to, Some(since)),
        };
        Self {
            to,
            start: MoveStart(since),
        }
    }
}

impl From<PendingMove> for MoveDocument {
    fn from(PendingMove { to, start }: PendingMove) -> Self {
        match start.0 {
            None => Self::To(to),
            Some(since) => Self::Since(to, since),
        }
    }
}

/// A vBucket that a node has taken over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenVbucket {
    /// The bucket.
    pub bucket: String,
    /// The vBucket.
    pub vb: u16,
    /// The start of the move.
    pub start: MoveStart,
}

/// Returns the map in which a vBucket of a bucket moves to a node that has a replica of it.
///
/// # Errors
/// `Move` when there is no such vBucket, or it cannot move to that node; `NoNode`.
pub fn plan_move(
    map: &ClusterMap,
    bucket: &str,
    vb: u16,
    to: &str,
) -> Result<ClusterMap, ClusterError> {
    let refused = |why: &str| {
        let what = format!("vBucket {vb} of bucket \"{bucket}\" cannot move to node \"{to}\"");
        Err(ClusterError::Move(format!("{what}: {why}")))
    };
    let node = map.node(to)?;
    let mut next = map.next();
    let start = MoveStart::of(&next);
    let of_bucket = next.buckets.iter_mut().find(|it| it.name == bucket);
    let Some(of_bucket) = of_bucket else {
        return refused("there is no such bucket");
    };
    let Some(chain) = of_bucket.chains.get(usize::from(vb)) else {
        return refused("there is no such vBucket");
    };
    if of_bucket.next.contains_key(&vb) {
        return refused("it gets other copies");
    }
    if chain.active() == Some(node) {
        return refused("it is its active");
    }
    if of_bucket.joins(vb, node) {
        return refused("that catches up");
    }
    if !chain.contains(node) {
        return refused("that has no replica of it");
    }
    if of_bucket.moves.contains_key(&vb) {
        return refused("it is moving already");
    }
    of_bucket.moves.insert(vb, PendingMove { to: node, start });
    Ok(next)
}

/// Returns the map in which the actives become as even as the present replicas allow. `None` when there is nothing to
/// move. vBuckets that move or get other copies are left as they are.
#[must_use]
pub fn plan_balance(map: &ClusterMap) -> Option<ClusterMap> {
    let mut next = map.next();
    let start = MoveStart::of(&next);
    for bucket in &mut next.buckets {
        let even = even_actives(&bucket.coming_chains());
        for (vb, even) in (0_u16..).zip(even) {
            let chain = &bucket.chains[usize::from(vb)];
            let is_free = !bucket.moves.contains_key(&vb) && !bucket.next.contains_key(&vb);
            let may_move = is_free && chain.active().is_some() && chain.active() != even.active();
            if let Some(to) = even.active().filter(|_| may_move) {
                bucket.moves.insert(vb, PendingMove { to, start });
            }
        }
    }
    (next.buckets != map.buckets).then_some(next)
}

impl ClusterMap {
    /// Returns the number of moving vBuckets, of all buckets.
    #[must_use]
    pub fn moving(&self) -> usize {
        self.buckets.iter().map(|bucket| bucket.moves.len()).sum()
    }

    /// Returns the map in which `by` is the active of the vBuckets that it has taken over. vBuckets whose move is no longer the one
    /// of the takeover are unchanged; `None` when no vBucket changes.
    #[must_use]
    pub fn with_taken(&self, by: u16, taken: &[TakenVbucket]) -> Option<Self> {
        let mut next = self.next();
        let before = next.moving();
        for bucket in &mut next.buckets {
            let name = bucket.name.clone();
            for TakenVbucket { vb, start, .. } in taken.iter().filter(|it| it.bucket == name) {
                let (to, start) = (by, *start);
                if bucket.moves.get(vb) == Some(&PendingMove { to, start }) {
                    bucket.moves.remove(vb);
                    if bucket.next.contains_key(vb) {
                        bucket.replace_chain(*vb);
                    } else {
                        let chain = &mut bucket.chains[usize::from(*vb)];
                        *chain = chain.led_by(by);
                    }
                }
            }
        }
        (next.moving() < before).then_some(next)
    }

    /// Returns the map without the moves away from `by`, which has restarted and so cannot hand over its data; `None`
    /// when there are none. Nodes that adopt this map do not take over any more.
    #[must_use]
    pub fn without_moves_from(&self, by: u16) -> Option<Self> {
        let mut next = self.next();
        let before = next.moving();
        for bucket in &mut next.buckets {
            let chains = &bucket.chains;
            let leads = |vb: u16| chains[usize::from(vb)].active() == Some(by);
            bucket.moves.retain(|vb, _| !leads(*vb));
        }
        (next.moving() < before).then_some(next)
    }
}
