//! Server groups: nodes of one group may fail together. Pure functions of the map.
//!
//! A node has the group with which it was started, until management gives it another one. A change moves no vBuckets: the next
//! rebalance spreads copies over the groups.
//!
//! Invariant: a group without nodes exists only if management made it, or emptied it.

use std::collections::{BTreeMap, BTreeSet};

use kedge_types::limits::SERVER_GROUP_BYTES_MAX;
use serde::{Deserialize, Serialize};

use crate::{ClusterError, ClusterMap, Feature};

/// The decisions of management about server groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServerGroups {
    /// The groups that exist even without nodes.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    names: BTreeSet<String>,
    /// The nodes that keep their group, whatever they are started with.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    assigned: BTreeSet<u16>,
}

impl ServerGroups {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns whether management gave the node its group.
    pub(crate) fn has_assigned(&self, node: u16) -> bool {
        self.assigned.contains(&node)
    }

    pub(crate) fn forget(&mut self, node: u16) {
        self.assigned.remove(&node);
    }
}

/// A change of server groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupChange {
    /// A new group without nodes.
    Add(String),
    /// Another name of a group.
    Rename {
        /// The present name.
        from: String,
        /// The new name.
        to: String,
    },
    /// The end of a group without nodes.
    Delete(String),
    /// The group of each node, all groups and nodes included.
    Assign {
        /// The `rev` of the map for which it was decided, if the caller knows.
        rev: Option<i64>,
        /// The group of each node.
        nodes: BTreeMap<u16, String>,
        /// All groups.
        groups: BTreeSet<String>,
    },
    /// The group of one node.
    Move {
        /// The node.
        node: u16,
        /// The group.
        to: String,
    },
}

/// The reason why a change of server groups was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// There is a group of that name.
    #[error("already exists")]
    Exists,
    /// There is no such group.
    #[error("there is no such server group")]
    Unknown,
    /// The group has nodes.
    #[error("the server group has nodes: give them another one first")]
    NotEmpty,
    /// The name cannot be.
    #[error(
        "the name of a server group has 1 to {SERVER_GROUP_BYTES_MAX} bytes, and no blanks around it"
    )]
    Name,
    /// The map has changed since the caller read the groups.
    #[error("the cluster has changed: read the server groups again")]
    Stale,
    /// A group or a node is missing, or there is an unknown one.
    #[error("each server group and each node has to be given once")]
    Incomplete,
    /// A rebalance uses the groups.
    #[error("a rebalance is running")]
    Rebalancing,
}

impl ClusterMap {
    /// Returns all server groups, with or without nodes.
    #[must_use]
    pub fn groups(&self) -> BTreeSet<&str> {
        let of_nodes = self.nodes.values().map(|node| node.server_group.as_str());
        let names = self.groups.names.iter().map(String::as_str);
        of_nodes.chain(names).collect()
    }
}

fn find_group(map: &ClusterMap, name: &str) -> Result<(), GroupError> {
    let is_there = map.groups().contains(name);
    is_there.then_some(()).ok_or(GroupError::Unknown)
}

fn check_new_group(map: &ClusterMap, name: &str) -> Result<(), GroupError> {
    if name.is_empty() || name.len() > SERVER_GROUP_BYTES_MAX || name.trim() != name {
        return Err(GroupError::Name);
    }
    match find_group(map, name) {
        Ok(()) => Err(GroupError::Exists),
        Err(_) => Ok(()),
    }
}

/// Gives a node a group, which it keeps.
fn assign(map: &mut ClusterMap, node: u16, group: &str) {
    if let Some(known) = map.nodes.get_mut(&node)
        && known.server_group != group
    {
        group.clone_into(&mut known.server_group);
        map.groups.assigned.insert(node);
    }
}

fn nodes_of(map: &ClusterMap, group: &str) -> Vec<u16> {
    let nodes = map.nodes.iter();
    let nodes = nodes.filter(|(_, node)| node.server_group == group);
    nodes.map(|(number, _)| *number).collect()
}

/// Makes a change of the next map, whose groups are those of the present one.
fn make(map: &mut ClusterMap, change: &GroupChange) -> Result<(), GroupError> {
    match change {
        GroupChange::Add(name) => {
            check_new_group(map, name)?;
            map.groups.names.insert(name.clone());
        }
        GroupChange::Rename { from, to } => {
            find_group(map, from)?;
            if from == to {
                return Ok(());
            }
            check_new_group(map, to)?;
            map.groups.names.remove(from);
            map.groups.names.insert(to.clone());
            for node in nodes_of(map, from) {
                assign(map, node, to);
            }
        }
        GroupChange::Delete(name) => {
            find_group(map, name)?;
            if !nodes_of(map, name).is_empty() {
                return Err(GroupError::NotEmpty);
            }
            map.groups.names.remove(name);
        }
        GroupChange::Assign { rev, nodes, groups } => {
            if rev.is_some_and(|rev| rev != map.revision.rev - 1) {
                return Err(GroupError::Stale);
            }
            let has_all = groups.iter().map(String::as_str).eq(map.groups())
                && nodes.keys().eq(map.nodes.keys())
                && nodes.values().all(|group| groups.contains(group));
            if !has_all {
                return Err(GroupError::Incomplete);
            }
            for (node, group) in nodes {
                assign(map, *node, group);
            }
        }
        GroupChange::Move { node, to } => {
            find_group(map, to)?;
            assign(map, *node, to);
        }
    }
    Ok(())
}

/// Returns the map after a change of its server groups; `None` if it changes nothing.
///
/// # Errors
/// `Group`, `NeedsLevel`.
pub fn plan_group_change(
    map: &ClusterMap,
    change: &GroupChange,
) -> Result<Option<ClusterMap>, ClusterError> {
    let is_running = map.rebalance.as_ref().is_some_and(|it| it.is_running());
    if is_running && !matches!(change, GroupChange::Add(_)) {
        return Err(GroupError::Rebalancing.into());
    }
    let mut next = map.next();
    make(&mut next, change)?;
    // Groups that lose their nodes stay.
    let all: Vec<String> = map.groups().into_iter().map(str::to_owned).collect();
    let gone = match change {
        GroupChange::Rename { from: gone, to } if gone != to => Some(gone),
        GroupChange::Delete(gone) => Some(gone),
        _ => None,
    };
    let stay = all.into_iter().filter(|name| Some(name) != gone);
    let names: BTreeSet<String> = stay.chain(std::mem::take(&mut next.groups.names)).collect();
    let before: BTreeSet<&str> = map.groups();
    if next.nodes == map.nodes && names.iter().map(String::as_str).eq(before) {
        return Ok(None);
    }
    map.require(Feature::ServerGroups)?;
    next.groups.names = names;
    Ok(Some(next))
}
