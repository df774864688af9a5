//! The compatibility level of a cluster: what its nodes may write into documents that all of them read.
//!
//! A release supports its own level and that of the release before. The map states the level in force. It is raised when
//! all nodes support a higher one, so that nodes of two neighbouring releases work together, and the older one can come
//! back until then.
//!
//! Invariants:
//! * The map has nothing that needs a higher level than the one in force ([`Feature`]).
//! * The level never goes down.
//! * A node follows no map whose level its release does not support.

use std::fmt;

use kedge_types::limits::REBALANCE_MOVES_PER_NODE;
use serde::{Deserialize, Serialize};

use crate::{ClusterError, ClusterMap, NodeRecord, TlsPorts};

/// A compatibility level. A release has the next one when its documents have something that the release before cannot read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CompatLevel(pub u16);

impl CompatLevel {
    /// The first level. Its documents do not state it.
    pub const FIRST: Self = Self(1);
    /// The level of this release.
    pub const HIGHEST: Self = Self(2);

    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "the signature is serde's"
    )]
    pub(crate) fn is_first(&self) -> bool {
        *self == Self::FIRST
    }
}

impl Default for CompatLevel {
    fn default() -> Self {
        Self::FIRST
    }
}

impl fmt::Display for CompatLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The levels that a release supports. The default is that of releases that report none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LevelRange {
    /// The lowest one.
    #[serde(rename = "lowest_level", default)]
    pub lowest: CompatLevel,
    /// The highest one.
    #[serde(rename = "highest_level", default)]
    pub highest: CompatLevel,
}

impl LevelRange {
    /// Returns whether the release supports a level.
    #[must_use]
    pub fn contains(self, level: CompatLevel) -> bool {
        (self.lowest..=self.highest).contains(&level)
    }
}

impl fmt::Display for LevelRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.lowest == self.highest {
            true => write!(f, "level {}", self.lowest),
            false => write!(f, "levels {} to {}", self.lowest, self.highest),
        }
    }
}

/// A release of the software. The binary states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// The version.
    pub version: &'static str,
    /// The levels that it supports.
    pub levels: LevelRange,
}

impl Release {
    /// This release.
    pub const CURRENT: Self = Self {
        version: env!("CARGO_PKG_VERSION"),
        levels: LevelRange {
            lowest: CompatLevel(CompatLevel::HIGHEST.0 - 1),
            highest: CompatLevel::HIGHEST,
        },
    };

    /// Checks that this release can be one of a cluster at that level. `records` are those of its nodes, by name: the error
    /// names a release that can.
    ///
    /// # Errors
    /// `Level`.
    pub fn check<'a>(
        &self,
        level: CompatLevel,
        records: impl IntoIterator<Item = (&'a String, &'a NodeRecord)>,
    ) -> Result<(), ClusterError> {
        if self.levels.contains(level) {
            return Ok(());
        }
        let mut records = records.into_iter();
        let remedy = match records.find(|(_, record)| record.levels.contains(level)) {
            Some((node, record)) => {
                format!("use release {}, as node \"{node}\" does", record.release)
            }
            None if level > self.levels.highest => "use a newer release".to_owned(),
            None => "raise the level with the release before this one first".to_owned(),
        };
        Err(ClusterError::Level {
            in_force: level,
            release: *self,
            remedy,
        })
    }
}

/// Something in a document of the cluster that not every supported release can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// The map has chosen recoveries: a node discards its data, or is recovered by the next rebalance.
    ChosenRecovery,
    /// The map has the ids of the last changes. A map of a lower level has none.
    Lineage,
    /// The map has another number of moves per node than the default.
    MovesPerNode,
    /// The map has server groups that management changed.
    ServerGroups,
    /// The map has numbers of threads.
    Threads,
    /// Nodes fill new copies with files of the active, which they request from it.
    FileCopies,
    /// The map has the revisions in which moves of vBuckets began.
    MoveStarts,
    /// The map has how much each node had to do when a rebalance began.
    NodeProgress,
    /// A node that opens a replication link states the epoch of its map.
    ReplicationEpoch,
    /// The nodes of the map have ports of TLS.
    TlsPorts,
    /// A node proves the cluster's secret to others in requests to management, and does not send it.
    NodeProofs,
    /// The users of the cluster have external ones, or settings of a directory or of tokens.
    ExternalUsers,
    /// The users of the cluster have roles that administrators have defined.
    DefinedRoles,
    /// The users of the cluster have settings of the audit log.
    AuditSettings,
}

impl Feature {
    /// Returns the level that the feature needs, and its name in messages: one row for each feature.
    const fn row(self) -> (CompatLevel, &'static str) {
        match self {
            Self::ChosenRecovery => (CompatLevel(2), "full recovery, or recovery by a rebalance,"),
            Self::Lineage => (CompatLevel(2), "the lineage of the map"),
            Self::MovesPerNode => (CompatLevel(2), "another number of moves per node"),
            Self::ServerGroups => (CompatLevel(2), "a change of server groups"),
            Self::Threads => (CompatLevel(2), "a change of the threads of all nodes"),
            Self::FileCopies => (CompatLevel(2), "new copies from files"),
            Self::MoveStarts => (CompatLevel(2), "the start of a move"),
            Self::NodeProgress => (CompatLevel(2), "the progress of single nodes"),
            Self::ReplicationEpoch => (CompatLevel(2), "the epoch in replication"),
            Self::TlsPorts => (CompatLevel(2), "the ports of TLS"),
            Self::NodeProofs => (CompatLevel(2), "proofs of the cluster's secret"),
            Self::ExternalUsers => (CompatLevel(2), "external users"),
            Self::DefinedRoles => (CompatLevel(2), "a role that administrators define"),
            Self::AuditSettings => (CompatLevel(2), "a change of the audit log's settings"),
        }
    }

    /// Returns the level that the feature needs.
    #[must_use]
    pub const fn level(self) -> CompatLevel {
        self.row().0
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row().1)
    }
}

impl ClusterMap {
    /// Returns whether the level in force has a feature.
    #[must_use]
    pub fn has(&self, feature: Feature) -> bool {
        self.level >= feature.level()
    }

    /// Checks that the level in force has a feature that is about to be used.
    ///
    /// # Errors
    /// `NeedsLevel`.
    pub fn require(&self, feature: Feature) -> Result<(), ClusterError> {
        match self.has(feature) {
            true => Ok(()),
            false => Err(ClusterError::NeedsLevel {
                feature,
                in_force: self.level,
            }),
        }
    }

    /// Returns a feature that the map uses although its level does not have it.
    pub(crate) fn excess_feature(&self) -> Option<Feature> {
        let mut moves = self.buckets.iter().flat_map(|bucket| bucket.moves.values());
        let has_starts = moves.any(|pending| pending.start.0.is_some());
        let record = self.rebalance.as_deref();
        let has_node_progress = record.is_some_and(|it| !it.node_vbuckets.is_empty());
        let has_tls = self.nodes.values().any(|it| it.tls != TlsPorts::default());
        let uses = [
            (Feature::ChosenRecovery, !self.recovery.is_empty()),
            (Feature::Lineage, !self.lineage.is_empty()),
            (
                Feature::MovesPerNode,
                self.moves_per_node != REBALANCE_MOVES_PER_NODE,
            ),
            (Feature::ServerGroups, !self.groups.is_empty()),
            (Feature::Threads, !self.threads.is_empty()),
            (Feature::MoveStarts, has_starts),
            (Feature::NodeProgress, has_node_progress),
            (Feature::TlsPorts, has_tls),
        ];
        let mut uses = uses.into_iter();
        let found = uses.find(|(feature, is_used)| *is_used && !self.has(*feature));
        found.map(|(feature, _)| feature)
    }

    /// Returns the names of the nodes that do not support the level after the one in force, by the levels that are known of
    /// them.
    pub fn without_next_level<'a>(
        &'a self,
        levels_of: impl Fn(&str) -> Option<LevelRange> + 'a,
    ) -> impl Iterator<Item = &'a str> {
        let next = CompatLevel(self.level.0 + 1);
        let supports =
            move |name: &str| levels_of(name).is_some_and(|levels| levels.contains(next));
        let names = self.nodes.values().map(|node| node.name.as_str());
        names.filter(move |name| !supports(name))
    }
}

/// Returns the map at the next level; `None` if it is held, or not all nodes support it, by the levels that are known of them.
/// Nodes that are failed over count, too: they come back.
#[must_use]
pub fn plan_next_level(
    map: &ClusterMap,
    levels_of: impl Fn(&str) -> Option<LevelRange>,
) -> Option<ClusterMap> {
    if map.level_is_held || map.without_next_level(levels_of).next().is_some() {
        return None;
    }
    let mut next = map.next();
    next.level.0 += 1;
    Some(next)
}

/// Returns the map whose level is held, or no longer; `None` if it is so already.
#[must_use]
pub fn plan_hold(map: &ClusterMap, is_held: bool) -> Option<ClusterMap> {
    let mut next = map.next();
    next.level_is_held = is_held;
    (next.level_is_held != map.level_is_held).then_some(next)
}
