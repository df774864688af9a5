//! The catch-up of new copies: they count once they have what their actives had.

use std::collections::{BTreeMap, BTreeSet};

use super::NextChain;
use crate::{
    Chain, ClusterMap, CopyPosition, MapBucket, MoveStart, NodePositions, PendingMove, Revision,
};

/// The entry of a vBucket in the map. Positions that copies must reach are valid as long as it stays the same.
#[derive(Debug, PartialEq, Eq)]
struct CatchUpEntry {
    /// The uuid of the bucket.
    bucket: Option<String>,
    chain: Chain,
    next: Option<NextChain>,
    joining: Vec<u16>,
}

impl CatchUpEntry {
    fn of(bucket: &MapBucket, vb: u16) -> Self {
        Self {
            bucket: bucket.uuid().map(str::to_owned),
            chain: bucket.chains[usize::from(vb)].clone(),
            next: bucket.next.get(&vb).cloned(),
            joining: bucket.joining.get(&vb).cloned().unwrap_or_default(),
        }
    }
}

/// The target of the copies of a vBucket: the position of its active.
#[derive(Debug)]
struct CatchUpTarget {
    entry: CatchUpEntry,
    active: u16,
    /// The position of the active; `None` until it has reported.
    had: Option<CopyPosition>,
    /// For each copy, true if it was seen to have reached the target.
    copies: BTreeMap<u16, bool>,
}

impl CatchUpTarget {
    fn new(entry: CatchUpEntry) -> Option<Self> {
        let active = entry.chain.active()?;
        let copies: Vec<u16> = match &entry.next {
            Some(next) => next.chain.nodes().collect(),
            None => entry.joining.clone(),
        };
        let copies = copies.into_iter().filter(|node| *node != active);
        Some(Self {
            active,
            had: None,
            copies: copies.map(|node| (node, false)).collect(),
            entry,
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

    /// Returns the node that takes the vBucket over at the end, if that is another one.
    fn taker(&self) -> Option<u16> {
        let to = self.entry.next.as_ref()?.chain.active();
        to.filter(|to| *to != self.active)
    }

    /// Returns whether the takeover may begin.
    fn may_be_taken(&self) -> bool {
        self.is_reached() && self.entry.next.as_ref().is_some_and(|next| next.counts)
    }

    /// Advances the vBucket as far as its copies are, but for takeovers by the nodes `held`. A move begins with `start`.
    fn advance(&self, bucket: &mut MapBucket, vb: u16, held: &BTreeSet<u16>, start: MoveStart) {
        let Some(next) = bucket.next.get_mut(&vb) else {
            let have_it = self.copies.iter().filter(|(_, has_it)| **has_it);
            have_it.for_each(|(node, _)| bucket.put_in(vb, *node));
            return;
        };
        if !self.is_reached() || bucket.moves.contains_key(&vb) {
            return;
        }
        match next.chain.active() {
            _ if !next.counts => next.counts = true,
            Some(to) if to != self.active => {
                if held.contains(&to) {
                    return;
                }
                bucket.moves.insert(vb, PendingMove { to, start });
            }
            _ => bucket.replace_chain(vb),
        }
    }
}

/// The positions that copies must reach before they count.
#[derive(Debug)]
pub struct CatchUp {
    revision: Revision,
    /// The targets by bucket and vBucket.
    targets: BTreeMap<(String, u16), CatchUpTarget>,
}

fn position<'a>(
    told: &'a BTreeMap<u16, NodePositions>,
    bucket: &str,
    vb: u16,
    node: u16,
) -> Option<&'a CopyPosition> {
    told.get(&node)?.get(bucket)?.get(usize::from(vb))?.as_ref()
}

impl CatchUp {
    /// Begins the catch-up of the copies of a map. Their targets are the first positions that the actives report.
    #[must_use]
    pub fn begin(map: &ClusterMap) -> Self {
        let mut copies = Self {
            revision: map.revision,
            targets: BTreeMap::new(),
        };
        copies.follow(map);
        copies
    }

    /// Continues with a newer map: vBuckets whose entries are the same keep their targets.
    pub fn follow(&mut self, map: &ClusterMap) {
        self.revision = map.revision;
        let mut known = std::mem::take(&mut self.targets);
        for bucket in &map.buckets {
            let all = bucket.next.keys().chain(bucket.joining.keys());
            for &vb in all {
                let key = (bucket.name.clone(), vb);
                let entry = CatchUpEntry::of(bucket, vb);
                let same = known.remove(&key).filter(|target| target.entry == entry);
                let target = same.or_else(|| CatchUpTarget::new(entry));
                self.targets.extend(target.map(|target| (key, target)));
            }
        }
    }

    /// Returns the revision of the map.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Records the reports of nodes that have applied the map of this revision.
    pub fn note(&mut self, told: &BTreeMap<u16, NodePositions>) {
        for ((bucket, vb), target) in &mut self.targets {
            target.note(|node| position(told, bucket, *vb, node));
        }
    }

    /// Returns the map in which caught-up nodes have joined, and vBuckets whose copies have all caught up take their
    /// next step; `None` when there are none, or `map` is another map.
    #[must_use]
    pub fn plan(&self, map: &ClusterMap) -> Option<ClusterMap> {
        self.plan_without(map, &BTreeSet::new())
    }

    /// Returns the same map, but without takeovers by nodes that are awaited.
    pub(super) fn plan_without(
        &self,
        map: &ClusterMap,
        awaited: &BTreeSet<u16>,
    ) -> Option<ClusterMap> {
        if map.revision != self.revision {
            return None;
        }
        let mut next = map.next();
        let start = MoveStart::of(&next);
        let mut held = self.held_takers(map);
        held.extend(awaited);
        for bucket in &mut next.buckets {
            let name = bucket.name.clone();
            let of_bucket = (name.clone(), 0)..=(name, u16::MAX);
            for ((_, vb), target) in self.targets.range(of_bucket) {
                target.advance(bucket, *vb, &held, start);
            }
        }
        next.let_join();
        (next.buckets != map.buckets).then_some(next)
    }

    /// Returns the nodes whose takeovers wait until more of them can begin together.
    fn held_takers(&self, map: &ClusterMap) -> BTreeSet<u16> {
        let mut ready: BTreeMap<u16, usize> = BTreeMap::new();
        let mut later = BTreeSet::new();
        for target in self.targets.values() {
            let Some(to) = target.taker() else { continue };
            if target.may_be_taken() {
                *ready.entry(to).or_default() += 1;
            } else {
                later.insert(to);
            }
        }
        let is_few = |count: usize| count < usize::from(map.moves_per_node());
        let few = ready.into_iter().filter(|(_, count)| is_few(*count));
        few.map(|(to, _)| to)
            .filter(|to| later.contains(to))
            .collect()
    }
}

impl CopyPosition {
    /// Returns whether a copy has on its disk everything that another one had when it reported, on the same branch.
    fn has_on_disk(&self, other: &Self) -> bool {
        self.catch_up_to.is_none()
            && self.on(&other.history).undivided
            && self.persisted_seqno >= other.high_seqno
            && self.high_prepared >= other.high_prepared
    }
}
