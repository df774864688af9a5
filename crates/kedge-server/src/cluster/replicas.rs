//! Gives buckets as many replicas as their settings ask for, while clients go on.
//!
//! The first node that was not failed over does, on a thread of its own; the steps are those of
//! [`kedge_cluster::plan_replicas`] and [`CatchUp`]. Another node that follows it in that goes on from the map.

use std::collections::BTreeMap;
use std::sync::Weak;
use std::time::Duration;

use kedge_cluster::{CatchUp, ClusterMap, NodePositions, plan_replicas};

use super::change::ChangeError;
use super::{ASK_INTERVAL, ASK_TIMEOUT, ClusterNode};

/// How soon copies that are made are looked at again.
const PAUSE: Duration = Duration::from_millis(200);

/// Works until the server ends.
pub(super) fn run(node: &Weak<ClusterNode>) {
    let mut catch_up = None;
    let mut trouble = String::new();
    while let Some(node) = ClusterNode::alive(node) {
        let result = node.tend_replicas(&mut catch_up);
        let why = result.as_ref().err().map(ToString::to_string);
        let why = why.unwrap_or_default();
        if !why.is_empty() && why != trouble {
            tracing::warn!(why, "the number of replicas cannot change yet");
        }
        trouble = why;
        let has_more = !matches!(result, Ok(false));
        let pause = if has_more { PAUSE } else { ASK_INTERVAL };
        // Another map, or the stop, ends it early.
        node.wake.wait_for(&mut node.current.lock(), pause);
    }
}

impl ClusterNode {
    /// Does what can be done now. True when there is more to do.
    fn tend_replicas(&self, catch_up: &mut Option<CatchUp>) -> Result<bool, ChangeError> {
        let map = self.map().filter(|map| {
            let is_mine = map.members().next() == Some(self.me);
            is_mine && *self.applied.borrow() == Some(map.revision)
        });
        let Some(map) = map else {
            *catch_up = None;
            return Ok(false);
        };
        if self.change_map(|map| plan_replicas(map, self.me))? {
            return Ok(true);
        }
        if map.buckets.iter().all(|bucket| bucket.next.is_none()) {
            *catch_up = None;
            return Ok(false);
        }
        let is_known = |copies: &mut CatchUp| copies.revision() == map.revision;
        *catch_up = match catch_up.take_if(is_known) {
            Some(mut copies) => {
                let is_of_use = copies.note(&self.all_positions(&map));
                if is_of_use {
                    self.change_map(|map| copies.plan(map, self.me))?;
                }
                Some(copies).filter(|_| is_of_use)
            }
            None if self.all_are(&map) => {
                // What the actives have now, they have by this map.
                let begun = CatchUp::begin(&map, &self.all_positions(&map));
                let silent = "a node does not tell how far the active of a vBucket is";
                Some(begun.ok_or_else(|| ChangeError::Refused(silent.to_owned()))?)
            }
            None => None,
        };
        Ok(true)
    }

    /// Publishes a map, if there is one to be made, when all nodes are there. False when there is none.
    fn change_map(
        &self,
        plan: impl FnOnce(&ClusterMap) -> Option<ClusterMap>,
    ) -> Result<bool, ChangeError> {
        let _one_at_a_time = self.changing.lock();
        let map = self.map().ok_or(ChangeError::NotBegun)?;
        let Some(next) = plan(&map) else {
            return Ok(false);
        };
        self.require_all(&map)?;
        let changed = next.buckets.iter().filter(|it| !map.buckets.contains(it));
        for bucket in changed {
            let counts = bucket.next.as_ref().map(|next| next.counts);
            tracing::info!(
                bucket = bucket.name,
                replicas = bucket.replicas(),
                wanted = bucket.wanted_replicas(next.nodes.len()),
                counts,
                "changes numbers of replicas"
            );
        }
        self.publish(next)?;
        Ok(true)
    }

    /// Whether all nodes that were not failed over are what the map says.
    fn all_are(&self, map: &ClusterMap) -> bool {
        let said = self.each(map, |peer| peer.about(ASK_TIMEOUT).ok()?.applied);
        said.into_values()
            .all(|applied| applied == Some(map.revision))
    }

    /// How far the copies of all nodes are that tell.
    fn all_positions(&self, map: &ClusterMap) -> BTreeMap<u16, NodePositions> {
        let told = self.each(map, |peer| peer.positions().ok());
        let own = self.positions().ok().map(|own| (self.me, own));
        let told = told.into_iter();
        told.filter_map(|(node, positions)| Some((node, positions?)))
            .chain(own)
            .collect()
    }
}
