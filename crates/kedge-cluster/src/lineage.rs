//! The lineage of a map: the changes that led to it.
//!
//! After the restore of a backup of the coordination store, a node that knows an older map only may change it unnoticed: there
//! are two branches, and their revisions say nothing about each other. Each change therefore has a random id, and a map has those
//! of the last changes. A node follows a newer map only if that continues its own, and puts its own over the other branch
//! otherwise ([`act_on`]).
//!
//! Invariants:
//! * A map in the store has the id of its own change first, if its level has lineages.
//! * A map that is put over one of another branch has the changes of both. So the nodes of that branch follow it, and do not
//!   put theirs over it in turn.

use kedge_types::limits::MAP_LINEAGE_MAX;
use serde::{Deserialize, Serialize};

use crate::{ClusterMap, Feature};

/// A change of the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct LineageMark {
    /// The `rev` of the map that it made.
    rev: i64,
    /// A random number.
    id: u64,
}

/// The last changes that led to a map, the newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Lineage(Vec<LineageMark>);

impl Lineage {
    /// Returns whether no change is known, as for a map that was never in a store.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether this is a later state of the same branch, or the same one. Without changes that old it is taken for one.
    fn continues(&self, earlier: &Self) -> bool {
        let Some(mark) = earlier.0.first() else {
            return true;
        };
        let is_forgotten = |oldest: &LineageMark| oldest.rev >= mark.rev;
        self.0.contains(mark) || self.0.last().is_none_or(is_forgotten)
    }

    /// Adds the changes of another lineage.
    fn join(&mut self, other: &Self) {
        self.0.extend(&other.0);
        self.0.sort_unstable_by(|a, b| b.cmp(a));
        self.0.dedup();
        self.0.truncate(MAP_LINEAGE_MAX);
    }
}

impl ClusterMap {
    /// Returns the map with the id of the change that made it, unless it has one, or its level has no lineages.
    #[must_use]
    pub fn stamped(mut self, id: u64) -> Self {
        if self.is_to_be_stamped() {
            let rev = self.revision.rev;
            self.lineage.0.insert(0, LineageMark { rev, id });
            self.lineage.0.truncate(MAP_LINEAGE_MAX);
        }
        self
    }

    /// Returns whether the map lacks the id of its own change.
    #[must_use]
    pub fn is_to_be_stamped(&self) -> bool {
        let newest = self.lineage.0.first();
        self.has(Feature::Lineage) && newest.is_none_or(|mark| mark.rev != self.revision.rev)
    }

    /// Returns whether this is a later map of the same branch, or the same one, as far as the changes are known.
    #[must_use]
    pub fn continues(&self, earlier: &Self) -> bool {
        self.lineage.continues(&earlier.lineage)
    }

    /// Returns whether neither of two maps continues the other one.
    #[must_use]
    pub fn is_of_other_branch(&self, other: &Self) -> bool {
        !self.continues(other) && !other.continues(self)
    }

    /// Returns the map to put into a store that has another one instead, which this one does not lead to.
    fn put_over(&self, stored: &Self) -> Self {
        let mut map = self.clone();
        if stored.revision < self.revision && self.continues(stored) {
            // The store is older, and gets the same map again.
            return map;
        }
        map.revision.epoch = self.revision.epoch.max(stored.revision.epoch);
        map.revision.rev = self.revision.rev.max(stored.revision.rev) + 1;
        map.lineage.join(&stored.lineage);
        map
    }
}

/// The consequence of a map in the store for a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapAction {
    /// None: the node follows it, or is no member and has no map.
    Nothing,
    /// The node adopts it.
    Adopt,
    /// The store went backwards: the node puts this map in place of it.
    PutBack(Box<ClusterMap>),
    /// It cannot be the map of this cluster; the text gives the reason.
    Refuse(String),
}

/// Returns the consequence of a map that was read from the store for the node with that uuid.
#[must_use]
pub fn act_on(uuid: &str, followed: Option<&ClusterMap>, stored: Option<&ClusterMap>) -> MapAction {
    let (followed, stored) = match (followed, stored) {
        (None, None) => return MapAction::Nothing,
        (None, Some(stored)) => {
            let is_member = stored.nodes.values().any(|node| node.uuid == uuid);
            return if is_member {
                MapAction::Adopt
            } else {
                MapAction::Nothing
            };
        }
        // It may be another store: a node that put its map there would be a cluster of its own.
        (Some(_), None) => return MapAction::Refuse("the store has no map".to_owned()),
        (Some(followed), Some(stored)) => (followed, stored),
    };
    if followed.cluster_uuid != stored.cluster_uuid {
        return MapAction::Refuse(format!(
            "the store has the map of another cluster, {}",
            stored.cluster_uuid
        ));
    }
    if stored.revision > followed.revision && stored.continues(followed) {
        return MapAction::Adopt;
    }
    if stored == followed {
        return MapAction::Nothing;
    }
    MapAction::PutBack(Box::new(followed.put_over(stored)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MapNode, SERVER_GROUP, TlsPorts};

    fn map(id: u64) -> ClusterMap {
        let node = |(at, name): (u16, &str)| MapNode {
            name: name.to_owned(),
            uuid: name.repeat(32),
            host: "127.0.0.1".to_owned(),
            kv_port: 11_000 + at,
            mgmt_port: 9_000 + at,
            tls: TlsPorts::default(),
            external: None,
            server_group: SERVER_GROUP.to_owned(),
            failed: false,
        };
        let nodes = (0..).zip(["a", "b"]).map(node);
        let map = ClusterMap::new("7".repeat(32), 0, nodes);
        map.expect("the names are valid").stamped(id)
    }

    fn changed(map: &ClusterMap, id: u64) -> ClusterMap {
        map.next().stamped(id)
    }

    #[test]
    fn stored_map_is_adopted_or_replaced_by_a_newer_followed_one() {
        let old = map(1);
        let uuid = old.nodes[&0].uuid.as_str();
        let new = changed(&old, 2);
        let mut other = new.clone();
        other.cluster_uuid = "0".repeat(32);
        let put = |map: &ClusterMap| MapAction::PutBack(Box::new(map.clone()));
        let table = [
            (uuid, None, None, MapAction::Nothing),
            (uuid, None, Some(&old), MapAction::Adopt),
            ("another", None, Some(&old), MapAction::Nothing),
            (uuid, Some(&old), Some(&old), MapAction::Nothing),
            (uuid, Some(&old), Some(&new), MapAction::Adopt),
            // It is told that it was removed.
            ("another", Some(&old), Some(&new), MapAction::Adopt),
            (uuid, Some(&new), Some(&old), put(&new)),
        ];
        for (at, (uuid, followed, stored, expected)) in table.into_iter().enumerate() {
            assert_eq!(act_on(uuid, followed, stored), expected, "{at}");
        }
        for stored in [None, Some(&other)] {
            let action = act_on(uuid, Some(&new), stored);
            assert!(matches!(action, MapAction::Refuse(_)), "{action:?}");
        }
    }

    /// A node that had missed the last changes changed the map of a restored store. The others took it for a newer one.
    #[test]
    fn map_of_another_branch_is_replaced_whatever_its_revision_is() {
        let old = map(1);
        let uuid = old.nodes[&0].uuid.as_str();
        let second = changed(&old, 2);
        let followed = changed(&second, 3);
        let mut branch = old.clone();
        for id in 10..16 {
            branch = changed(&branch, id);
            let MapAction::PutBack(put) = act_on(uuid, Some(&followed), Some(&branch)) else {
                panic!("{branch:?} is no later state");
            };
            assert!(put.is_to_be_stamped() && put.nodes == followed.nodes);
            let put = put.stamped(100);
            // All follow it: those of the branch, and those who knew the old state.
            for follower in [&branch, &followed, &second, &old] {
                assert!(put.revision > follower.revision);
                let action = act_on(uuid, Some(follower), Some(&put));
                assert_eq!(action, MapAction::Adopt, "{follower:?}");
            }
            // One who knew less comes first, and is replaced.
            let MapAction::PutBack(first) = act_on(uuid, Some(&second), Some(&branch)) else {
                panic!("{branch:?} is no later state");
            };
            let first = first.stamped(101);
            let action = act_on(uuid, Some(&followed), Some(&first));
            assert!(matches!(action, MapAction::PutBack(_)), "{action:?}");
        }
    }

    #[test]
    fn lineage_is_bounded_and_forgotten_changes_are_taken_for_known() {
        let old = map(1);
        let mut new = old.clone();
        for id in 0..MAP_LINEAGE_MAX as u64 {
            assert!(new.continues(&old), "{id} changes");
            new = changed(&new, 100 + id);
            assert!(!old.continues(&new) || new == old);
        }
        assert_eq!(new.lineage.0.len(), MAP_LINEAGE_MAX);
        assert!(new.continues(&old), "the first change is forgotten");
        let json = new.to_json();
        assert_eq!(ClusterMap::from_json(&json).expect("it is valid"), new);
    }
}
