//! The map of a cluster: the nodes, the buckets, the nodes of each vBucket and their roles.
//!
//! Invariants:
//! * Two maps with the same revision are equal: a change puts its map into the coordination store in place of the one
//!   from which it was made ([`ClusterMap::next`]), or not at all. A failover begins the next epoch.
//! * No chain has a node twice, or a failed one.
//! * The places of a chain stay until a target chain replaces it: the place of a failed node is empty until the node is
//!   back and has caught up.
//! * A vBucket moves to at most one node, and only that node publishes the map after the move. While it has a target
//!   chain, it moves only to the active of that one, when it counts.

use std::collections::{BTreeMap, BTreeSet};

use kedge_types::limits::{CHAIN_NODES_MAX, REBALANCE_MOVES_PER_NODE};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::groups::ServerGroups;
use crate::placement::place;
use crate::rebalance::{PlacementNode, target_chains};
use crate::{
    BucketEntry, ClusterError, CompatLevel, Feature, Lineage, ManifestKeeper, MapNode, NextChain,
    PendingMove, RebalanceRecord, RecoveryType, Revision, document,
};

const VERSION: u32 = 2;
/// The largest number of replicas of a vBucket: the places of a chain without that of the active.
pub const REPLICAS_MAX: u8 = CHAIN_NODES_MAX as u8 - 1;
/// The first epoch; each failover begins another.
const EPOCH: i64 = 1;

/// The nodes of a vBucket: the active first, then the replicas. `None` is a place without a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Chain(pub Vec<Option<u16>>);

impl Chain {
    /// Returns the active.
    #[must_use]
    pub fn active(&self) -> Option<u16> {
        self.0.first().copied().flatten()
    }

    /// Returns the replicas.
    pub fn replicas(&self) -> impl Iterator<Item = u16> {
        self.0.iter().skip(1).copied().flatten()
    }

    /// Returns all nodes of the chain.
    pub fn nodes(&self) -> impl Iterator<Item = u16> {
        self.0.iter().copied().flatten()
    }

    /// Returns whether the node is in the chain.
    #[must_use]
    pub fn contains(&self, node: u16) -> bool {
        self.0.contains(&Some(node))
    }

    /// Returns the role of the node.
    #[must_use]
    pub fn role(&self, node: u16) -> VbucketRole {
        if self.active() == Some(node) {
            VbucketRole::Active
        } else if self.contains(node) {
            VbucketRole::Replica {
                active: self.active(),
            }
        } else {
            VbucketRole::None
        }
    }

    /// Returns whether the chain consists of different members.
    pub(crate) fn is_valid(&self, is_member: impl Fn(u16) -> bool) -> bool {
        let mut seen = BTreeSet::new();
        (1..=CHAIN_NODES_MAX).contains(&self.0.len())
            && self
                .nodes()
                .all(|node| is_member(node) && seen.insert(node))
    }
}

/// The role of a node for a vBucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VbucketRole {
    /// The active: it serves reads and writes.
    Active,
    /// A replica: it streams from the active, if there is one.
    Replica {
        /// The node to stream from.
        active: Option<u16>,
    },
    /// The node has no copy.
    None,
}

/// A bucket of the map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MapBucket {
    /// The name.
    pub name: String,
    /// The settings, in the form that the bucket saves.
    pub settings: Value,
    /// The nodes over which the vBuckets are spread, in the order of their numbers. A node that is failed over stays
    /// one of them; a node that was added later is none.
    pub servers: Vec<u16>,
    /// The chain of each vBucket.
    pub chains: Vec<Chain>,
    /// The vBuckets that move, with the replicas that will take over from their actives.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub moves: BTreeMap<u16, PendingMove>,
    /// The target chains of vBuckets that get other copies.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub next: BTreeMap<u16, NextChain>,
    /// For each vBucket with empty places, the nodes that had them and were failed over.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub vacated: BTreeMap<u16, Vec<u16>>,
    /// For each vBucket, the nodes that follow the active to get an empty place of the chain.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub joining: BTreeMap<u16, Vec<u16>>,
    /// The scopes and collections.
    #[serde(default, skip_serializing_if = "ManifestKeeper::is_default")]
    pub manifest: ManifestKeeper,
}

impl MapBucket {
    /// Returns the uuid, in the form of the settings.
    #[must_use]
    pub fn uuid(&self) -> Option<&str> {
        self.settings.get("uuid").and_then(Value::as_str)
    }

    fn check_servers(&self, nodes: &BTreeMap<u16, MapNode>) -> Result<(), String> {
        let are_ordered = self.servers.is_sorted_by(|a, b| a < b);
        let are_known = self.servers.iter().all(|node| nodes.contains_key(node));
        if self.servers.is_empty() || !are_ordered || !are_known {
            return Err(format!(
                "bucket \"{}\" is spread over nodes that cannot be",
                self.name
            ));
        }
        Ok(())
    }

    /// Returns the bucket as clients see it.
    #[must_use]
    pub fn entry(&self) -> BucketEntry {
        let uuid = self.uuid();
        let uuid = uuid.and_then(|text| u128::from_str_radix(text, 16).ok());
        BucketEntry {
            name: self.name.clone(),
            uuid: uuid.unwrap_or_default().to_be_bytes(),
            vbuckets: u16::try_from(self.chains.len()).unwrap_or(u16::MAX),
            manifest_uid: self.manifest.uid().0,
        }
    }
}

/// The whole map at one revision. Nodes send it to each other and save it as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterMap {
    version: u32,
    /// The compatibility level in force.
    #[serde(default, skip_serializing_if = "CompatLevel::is_first")]
    pub level: CompatLevel,
    /// True if the level is not raised, so that the release before can come back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub level_is_held: bool,
    /// A uuid of 32 hexadecimal digits.
    pub cluster_uuid: String,
    /// A display name; may be empty.
    pub cluster_name: String,
    /// The revision.
    pub revision: Revision,
    /// The changes that led to it.
    #[serde(default, skip_serializing_if = "Lineage::is_empty")]
    pub(crate) lineage: Lineage,
    /// The default number of replicas of a bucket.
    pub replicas: u8,
    /// All nodes, by number.
    pub nodes: BTreeMap<u16, MapNode>,
    /// The number of the next added node.
    pub(crate) next_node: u16,
    /// For each member that was added or recovered, the `rev` of the map that made it a member.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) joined: BTreeMap<u16, i64>,
    /// The recovery that was chosen for failed-over nodes. A member among them discards its copies before it joins.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) recovery: BTreeMap<u16, RecoveryType>,
    /// The largest number of vBuckets that a node sends, and receives, at the same time while copies are made or move.
    #[serde(
        default = "default_moves_per_node",
        skip_serializing_if = "is_default_moves_per_node"
    )]
    pub(crate) moves_per_node: u8,
    /// The server groups that management changed.
    #[serde(default, skip_serializing_if = "ServerGroups::is_empty")]
    pub(crate) groups: ServerGroups,
    /// The numbers of threads of the nodes' task pools that management set, by the name of the setting.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) threads: BTreeMap<String, String>,
    /// The last rebalance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebalance: Option<Box<RebalanceRecord>>,
    /// All buckets, ordered by name.
    pub buckets: Vec<MapBucket>,
}

fn default_moves_per_node() -> u8 {
    REBALANCE_MOVES_PER_NODE
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_default_moves_per_node(moves: &u8) -> bool {
    *moves == REBALANCE_MOVES_PER_NODE
}

impl ClusterMap {
    /// Creates the first map of a cluster, without buckets, at the highest level.
    ///
    /// # Errors
    /// `Map` when the nodes or the number of replicas cannot be.
    pub fn new(
        cluster_uuid: String,
        replicas: u8,
        nodes: impl IntoIterator<Item = MapNode>,
    ) -> Result<Self, ClusterError> {
        let mut map = Self {
            version: VERSION,
            level: CompatLevel::HIGHEST,
            level_is_held: false,
            cluster_uuid,
            cluster_name: String::new(),
            revision: Revision {
                epoch: EPOCH,
                rev: 0,
            },
            lineage: Lineage::default(),
            replicas,
            nodes: BTreeMap::new(),
            next_node: 0,
            joined: BTreeMap::new(),
            recovery: BTreeMap::new(),
            moves_per_node: default_moves_per_node(),
            groups: ServerGroups::default(),
            threads: BTreeMap::new(),
            rebalance: None,
            buckets: Vec::new(),
        };
        for node in nodes {
            map.enter(node);
        }
        map.check()?;
        Ok(map.next())
    }

    /// Returns the same map with the next revision, to be changed.
    #[must_use]
    pub fn next(&self) -> Self {
        let mut map = self.clone();
        map.revision.rev += 1;
        map
    }

    /// Returns the same map with the next revision, in the next epoch.
    #[must_use]
    pub(crate) fn next_epoch(&self) -> Self {
        let mut map = self.next();
        map.revision.epoch += 1;
        map
    }

    /// Reads a map that [`Self::to_json`] wrote, or another node sent.
    ///
    /// # Errors
    /// `Damaged`, `Version`, `Level`; `Map` when the document contradicts itself.
    pub fn from_json(json: &[u8]) -> Result<Self, ClusterError> {
        let map: Self = document::read(json, VERSION)?;
        map.check()?;
        Ok(map)
    }

    /// Encodes the document to keep and to send.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings and numbers always serialise")
    }

    fn check(&self) -> Result<(), ClusterError> {
        self.check_nodes().map_err(ClusterError::Map)?;
        if let Some(feature) = self.excess_feature() {
            let (needed, level) = (feature.level(), self.level);
            return Err(ClusterError::Map(format!(
                "{feature} needs compatibility level {needed}, and the map has {level}"
            )));
        }
        if !self.recovery_is_valid() {
            let why = "a node is to be recovered that was not failed over";
            return Err(ClusterError::Map(why.to_owned()));
        }
        let replicas = self.replicas;
        if replicas > REPLICAS_MAX {
            return Err(ClusterError::Map(format!(
                "a bucket has 0 to {REPLICAS_MAX} replicas, not {replicas}"
            )));
        }
        for bucket in &self.buckets {
            bucket
                .check_servers(&self.nodes)
                .map_err(ClusterError::Map)?;
            let is_member = |node| self.is_member(node);
            let has_replica = |(vb, PendingMove { to, .. }): (&u16, &PendingMove)| {
                let chain = bucket.chains.get(usize::from(*vb));
                let is_replica =
                    chain.is_some_and(|chain| chain.replicas().any(|node| node == *to));
                is_replica || bucket.next.contains_key(vb)
            };
            let is_valid = bucket.chains.iter().all(|chain| chain.is_valid(is_member))
                && bucket.moves.iter().all(has_replica)
                && bucket.next_is_valid(is_member)
                && bucket.vacated_is_valid(|node| self.nodes.contains_key(&node))
                && bucket.joining_is_valid(is_member);
            if bucket.chains.is_empty() || !is_valid {
                let name = &bucket.name;
                return Err(ClusterError::Map(format!(
                    "bucket \"{name}\" has a chain that cannot be"
                )));
            }
        }
        Ok(())
    }

    /// Returns the bucket with that name.
    #[must_use]
    pub fn bucket(&self, name: &str) -> Option<&MapBucket> {
        self.buckets.iter().find(|bucket| bucket.name == name)
    }

    /// Adds a new bucket, balanced over all nodes; `replicas` is limited to the number of other nodes.
    ///
    /// # Errors
    /// `Map` when all nodes of a vBucket are failed over.
    pub fn add_bucket(
        &mut self,
        name: &str,
        settings: Value,
        vbuckets: u16,
        replicas: u8,
    ) -> Result<(), ClusterError> {
        let servers = self.numbers();
        let member = |(number, node): (&u16, &MapNode)| PlacementNode {
            number: *number,
            group: node.server_group.clone(),
        };
        let members: Vec<PlacementNode> = self.nodes.iter().map(member).collect();
        // This spreads the replicas of a node's actives; the rest are the rules of a rebalance.
        let spread = place(&servers, replicas, vbuckets);
        let mut chains = target_chains(&members, usize::from(replicas), &spread);
        let mut vacated: BTreeMap<u16, Vec<u16>> = BTreeMap::new();
        for (vb, chain) in (0_u16..).zip(&mut chains) {
            for node in servers.iter().filter(|node| !self.is_member(**node)) {
                if chain.contains(*node) {
                    // The bucket is empty, so any replica may become the active.
                    chain.remove(*node, |places| places.first().copied());
                    vacated.entry(vb).or_default().push(*node);
                }
            }
            if chain.active().is_none() {
                return Err(ClusterError::Map(format!(
                    "bucket \"{name}\" cannot be made: all nodes of some of its vBuckets have failed"
                )));
            }
        }
        self.buckets.push(MapBucket {
            name: name.to_owned(),
            settings,
            servers,
            chains,
            moves: BTreeMap::new(),
            next: BTreeMap::new(),
            vacated,
            joining: BTreeMap::new(),
            manifest: ManifestKeeper::default(),
        });
        self.buckets.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(())
    }

    /// Returns the numbers of threads that management set for all nodes, by the name of the setting.
    #[must_use]
    pub const fn threads(&self) -> &BTreeMap<String, String> {
        &self.threads
    }

    /// Returns the names of a chain's nodes, the active first: a vBucket's topology. An empty place is `None`.
    pub fn topology<'a>(&'a self, chain: &'a Chain) -> impl Iterator<Item = Option<&'a str>> {
        chain.0.iter().map(|node| Some(self.name((*node)?)))
    }
}

/// Returns the map with other numbers of threads; `None` if it has them. Settings that are not given stay.
///
/// # Errors
/// `NeedsLevel`.
pub fn plan_threads(
    map: &ClusterMap,
    changes: &BTreeMap<String, String>,
) -> Result<Option<ClusterMap>, ClusterError> {
    let mut next = map.next();
    next.threads.extend(changes.clone());
    if next.threads == map.threads {
        return Ok(None);
    }
    map.require(Feature::Threads)?;
    Ok(Some(next))
}

impl Chain {
    /// Returns the chain with another of its nodes as the active; the old active takes the place of that node.
    #[must_use]
    pub fn led_by(&self, node: u16) -> Self {
        let mut chain = self.clone();
        if let Some(place) = chain.0.iter().position(|it| *it == Some(node)) {
            chain.0.swap(0, place);
        }
        chain
    }

    /// Removes a node. If it is the active, `choose` selects the place of the replica that takes over.
    pub(crate) fn remove(&mut self, node: u16, choose: impl FnOnce(&[usize]) -> Option<usize>) {
        let Some(place) = self.0.iter().position(|it| *it == Some(node)) else {
            return;
        };
        self.0[place] = None;
        if place == 0 {
            let candidates: Vec<usize> = (1..self.0.len())
                .filter(|&at| self.0[at].is_some())
                .collect();
            if let Some(chosen) = choose(&candidates) {
                self.0.swap(0, chosen);
            }
        }
    }
}
