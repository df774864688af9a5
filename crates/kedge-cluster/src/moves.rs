//! Moves of vBuckets from their active to one of their replicas, or to a node of their target chain, while both run: pure
//! functions of the map.
//!
//! A move begins with a map that contains it. The replica then takes over from the active through its stream: it gets
//! everything that the active has, and the active becomes dead. Then it publishes the map in which it is the active.
//! Until then the vBucket has no active.
//!
//! Invariants:
//! * Only the node to which a vBucket moves publishes the map after the move.
//! * A map that was made without knowledge of a finished move still contains the move, and the node repeats it
//!   ([`ClusterMap::carry_over`]). The former active of such a map asks all copies before it is active again.

use crate::{ClusterError, ClusterMap, even_actives};

/// Returns the map in which a vBucket of a bucket moves to a node that has a replica of it, to be published by `by`.
///
/// # Errors
/// `Move` when there is no such vBucket, or it cannot move to that node; `NoNode`.
pub fn plan_move(
    map: &ClusterMap,
    by: u16,
    bucket: &str,
    vb: u16,
    to: &str,
) -> Result<ClusterMap, ClusterError> {
    let refused = |why: &str| {
        let what = format!("vBucket {vb} of bucket \"{bucket}\" cannot move to node \"{to}\"");
        Err(ClusterError::Move(format!("{what}: {why}")))
    };
    let node = map.node(to)?;
    let mut next = map.next(by);
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
    if of_bucket.moves.insert(vb, node).is_some() {
        return refused("it is moving already");
    }
    Ok(next)
}

/// Returns the map in which the actives become as even as the present replicas allow, to be published by `by`. `None`
/// when there is nothing to move. vBuckets that move or get other copies are left as they are.
#[must_use]
pub fn plan_balance(map: &ClusterMap, by: u16) -> Option<ClusterMap> {
    let mut next = map.next(by);
    for bucket in &mut next.buckets {
        let even = even_actives(&bucket.coming_chains());
        for (vb, even) in (0_u16..).zip(even) {
            let chain = &bucket.chains[usize::from(vb)];
            let is_free = !bucket.moves.contains_key(&vb) && !bucket.next.contains_key(&vb);
            let may_move = is_free && chain.active().is_some() && chain.active() != even.active();
            if let Some(to) = even.active().filter(|_| may_move) {
                bucket.moves.insert(vb, to);
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

    /// Returns the map in which `by` is the active of the vBuckets that it has taken over, as `(bucket, vBucket)`.
    /// vBuckets that no longer move to it are unchanged; `None` when no vBucket changes.
    #[must_use]
    pub fn with_taken(&self, by: u16, taken: &[(String, u16)]) -> Option<Self> {
        let mut next = self.next(by);
        let before = next.moving();
        for bucket in &mut next.buckets {
            let name = bucket.name.clone();
            for (_, vb) in taken.iter().filter(|(of, _)| *of == name) {
                if bucket.moves.get(vb) == Some(&by) {
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

    /// Returns whether a map is this one, or this one after some of its moves, steps of changes of the number of
    /// replicas, and joins.
    #[must_use]
    pub fn leads_to(&self, newer: &Self) -> bool {
        let mut expected = self.clone();
        expected.revision = newer.revision;
        for bucket in &mut expected.buckets {
            let there = newer.bucket(&bucket.name);
            let is_open = bucket.is_unfinished() || bucket.is_to_change();
            if let Some(there) = there.filter(|there| is_open || !there.joining.is_empty()) {
                bucket.joining.clone_from(&there.joining);
                bucket.chains.clone_from(&there.chains);
                bucket.next.clone_from(&there.next);
                bucket.vacated.clone_from(&there.vacated);
                bucket.moves.clone_from(&there.moves);
                continue;
            }
            let left = there.map(|it| &it.moves);
            let moves = std::mem::take(&mut bucket.moves);
            for (vb, to) in moves {
                if left.is_some_and(|left| left.contains_key(&vb)) {
                    bucket.moves.insert(vb, to);
                } else {
                    let chain = &mut bucket.chains[usize::from(vb)];
                    *chain = chain.led_by(to);
                }
            }
        }
        expected == *newer
    }

    /// Returns the map without the moves away from `by`, which has restarted and so cannot hand over its data; `None`
    /// when there are none. Nodes that adopt this map do not take over any more.
    #[must_use]
    pub fn without_moves_from(&self, by: u16) -> Option<Self> {
        let mut next = self.next(by);
        let before = next.moving();
        for bucket in &mut next.buckets {
            let chains = &bucket.chains;
            let leads = |vb: u16| chains[usize::from(vb)].active() == Some(by);
            bucket.moves.retain(|vb, _| !leads(*vb));
        }
        (next.moving() < before).then_some(next)
    }

    /// Returns a newer map, adjusted by the node `by` that follows this one: it is the active of vBuckets that it has
    /// taken over here and that still move to it there, and each bucket keeps the newer of its two manifests. The map
    /// gets another revision if it changes.
    #[must_use]
    pub fn carry_over(&self, newer: Self, by: u16) -> Self {
        let newer = self.carry_manifests(newer, by);
        let mut taken = Vec::new();
        for bucket in &newer.buckets {
            let here = self.bucket(&bucket.name);
            let is_taken = |vb: u16| {
                here.is_some_and(|here| {
                    let chain = here.chains.get(usize::from(vb));
                    chain.is_some_and(|chain| chain.active() == Some(by))
                })
            };
            let to_me = bucket.moves.iter().filter(|(_, to)| **to == by);
            let names = to_me.filter(|(vb, _)| is_taken(**vb));
            taken.extend(names.map(|(vb, _)| (bucket.name.clone(), *vb)));
        }
        newer.with_taken(by, &taken).unwrap_or(newer)
    }

    /// The maker of the other map may not have known the latest manifest changes here; collections that clients have
    /// seen do not vanish because of a race.
    fn carry_manifests(&self, newer: Self, by: u16) -> Self {
        if !newer.is_member(by) {
            // The other nodes went on without the changes made here.
            return newer;
        }
        let mut next = newer.next(by);
        let mut is_changed = false;
        for bucket in &mut next.buckets {
            let here = self.bucket(&bucket.name);
            // Another bucket of the same name has a new manifest.
            let here = here.filter(|here| here.entry().uuid == bucket.entry().uuid);
            if let Some(here) = here.filter(|here| here.manifest.uid() > bucket.manifest.uid()) {
                bucket.manifest = here.manifest.clone();
                is_changed = true;
            }
        }
        if is_changed { next } else { newer }
    }

    /// Makes the manifests newer than those that a failed node may have made.
    pub(crate) fn outrun_manifests(&mut self, by: u16) {
        let maker = self.maker(by);
        for bucket in &mut self.buckets {
            bucket.manifest = bucket.manifest.outrun(maker);
        }
    }
}
