//! The record of the last rebalance, a part of the map: whether it goes on, its nodes, its result, and how much there was
//! to do when it began.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{RebalanceLeft, rebalance_left};
use crate::ClusterMap;

/// The kind of a rebalance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RebalanceKind {
    /// All buckets are spread over the servers.
    #[default]
    Rebalance,
    /// The actives of nodes move away, and the nodes are failed over.
    GracefulFailover,
    /// The actives of nodes move away, and the nodes stay members.
    Drain,
}

impl RebalanceKind {
    fn is_default(&self) -> bool {
        *self == Self::Rebalance
    }

    /// Returns whether only actives move, away from nodes.
    #[must_use]
    pub fn drains(self) -> bool {
        self != Self::Rebalance
    }
}

impl fmt::Display for RebalanceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rebalance => "rebalance",
            Self::GracefulFailover => "graceful failover",
            Self::Drain => "drain",
        })
    }
}

/// The state of a rebalance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RebalanceState {
    /// It goes on.
    Running,
    /// A user stopped it. It can be resumed.
    Stopped,
    /// It is complete.
    Finished,
    /// It ended for this reason. It can be resumed.
    Failed(String),
}

/// A rebalance, as the map has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RebalanceRecord {
    /// 32 hexadecimal digits.
    pub id: String,
    /// The kind.
    #[serde(default, skip_serializing_if = "RebalanceKind::is_default")]
    pub kind: RebalanceKind,
    /// The state.
    pub state: RebalanceState,
    /// The numbers of the nodes whose actives move away.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub drain: BTreeSet<u16>,
    /// The numbers of the nodes over which all buckets are to be spread.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<u16>,
    /// The numbers of the nodes to remove at the end.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub remove: BTreeSet<u16>,
    /// The number of copies to make when it began.
    pub copies: usize,
    /// The number of vBuckets with any step when it began.
    pub vbuckets: usize,
    /// The number of vBuckets of which each node was to get, or to give up, a copy or the active when it began. Empty if it
    /// began at a compatibility level without it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_vbuckets: BTreeMap<u16, usize>,
    /// The wall-clock time at which it began, or was resumed, in milliseconds since 1970.
    pub started_ms: u64,
}

impl RebalanceRecord {
    /// Creates the record of a rebalance that begins, without nodes and steps.
    #[must_use]
    pub fn new(id: String, kind: RebalanceKind, started_ms: u64) -> Self {
        Self {
            id,
            kind,
            state: RebalanceState::Running,
            drain: BTreeSet::new(),
            servers: Vec::new(),
            remove: BTreeSet::new(),
            copies: 0,
            vbuckets: 0,
            node_vbuckets: BTreeMap::new(),
            started_ms,
        }
    }

    /// Records how much there is to do at the beginning, by nodes if the map can have that.
    pub(super) fn begin(&mut self, left: &RebalanceLeft, by_node: bool) {
        self.copies = left.copies();
        self.vbuckets = left.vbuckets;
        if by_node {
            self.node_vbuckets.clone_from(&left.nodes);
        }
    }

    /// Leaves a node out that is removed from the map while the rebalance runs.
    pub(crate) fn forget(&mut self, node: u16) {
        if self.state == RebalanceState::Running {
            self.servers.retain(|it| *it != node);
            self.drain.retain(|it| *it != node);
            self.remove.remove(&node);
        }
    }

    /// Adapts the size of the whole to a change by which more or less is left. The completed part stays the same.
    pub(super) fn resize(&mut self, before: &RebalanceLeft, after: &RebalanceLeft) {
        let resized = |all: usize, before: usize, after: usize| all.saturating_sub(before) + after;
        self.vbuckets = resized(self.vbuckets, before.vbuckets, after.vbuckets);
        self.copies = resized(self.copies, before.copies(), after.copies());
        if self.node_vbuckets.is_empty() {
            return;
        }
        let nodes: BTreeSet<u16> = self
            .node_vbuckets
            .keys()
            .chain(after.nodes.keys())
            .copied()
            .collect();
        for node in nodes {
            let count = |of: &BTreeMap<u16, usize>| of.get(&node).copied().unwrap_or(0);
            let all = count(&self.node_vbuckets);
            let all = resized(all, count(&before.nodes), count(&after.nodes));
            self.node_vbuckets.insert(node, all);
        }
    }

    /// Returns the nodes that are drained, or over which all buckets are to be spread.
    pub(super) fn nodes(&self) -> BTreeSet<u16> {
        match self.kind.drains() {
            true => self.drain.clone(),
            false => self.servers.iter().copied().collect(),
        }
    }

    /// Returns the rest of it in a map; `None` if a node of it is failed over.
    #[must_use]
    pub fn left(&self, map: &ClusterMap) -> Option<RebalanceLeft> {
        match self.kind.drains() {
            true => Some(map.drain_left(&self.drain)),
            false => rebalance_left(map),
        }
    }

    /// Returns whether it goes on.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.state == RebalanceState::Running
    }

    /// Returns the completed part of a node's vBuckets with this much left, from 0 to 1; 1 for a node that has nothing to do. It is that
    /// of the whole if the record does not have the numbers of the nodes.
    #[must_use]
    pub fn node_fraction(&self, left: &RebalanceLeft, node: u16) -> f64 {
        if self.node_vbuckets.is_empty() {
            return self.progress(left, self.started_ms).fraction();
        }
        let count = |of: &BTreeMap<u16, usize>| of.get(&node).copied().unwrap_or(0);
        let (all, left) = (count(&self.node_vbuckets), count(&left.nodes));
        fraction(all.saturating_sub(left), all.max(left))
    }

    /// Returns the progress at a wall-clock time, with this much left.
    #[must_use]
    pub fn progress(&self, left: &RebalanceLeft, now_ms: u64) -> RebalanceProgress {
        let done = self.vbuckets.saturating_sub(left.vbuckets);
        // More may be left than at the beginning: a bucket was created.
        let all = done + left.vbuckets;
        let ran = Duration::from_millis(now_ms.saturating_sub(self.started_ms));
        let estimate = u32::try_from(left.vbuckets)
            .ok()
            .zip(u32::try_from(done).ok());
        let estimate = estimate.filter(|(_, done)| *done > 0);
        RebalanceProgress {
            vbuckets: all,
            vbuckets_done: done,
            copies: self.copies.max(left.copies()),
            copies_done: self.copies.saturating_sub(left.copies()),
            ran,
            left: match left.vbuckets {
                0 => Some(Duration::ZERO),
                _ => estimate.map(|(left, done)| ran / done * left),
            },
        }
    }
}

/// The progress of a rebalance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RebalanceProgress {
    /// The number of vBuckets with any step.
    pub vbuckets: usize,
    /// Those that are done.
    pub vbuckets_done: usize,
    /// The number of copies to make.
    pub copies: usize,
    /// Those that are made and count.
    pub copies_done: usize,
    /// The time since it began, or was resumed.
    pub ran: Duration,
    /// The time that the rest takes, if it goes on as fast as so far; `None` before anything is done.
    pub left: Option<Duration>,
}

impl RebalanceProgress {
    /// Returns the part that is done, from 0 to 1.
    #[must_use]
    pub fn fraction(&self) -> f64 {
        fraction(self.vbuckets_done, self.vbuckets)
    }
}

fn fraction(done: usize, all: usize) -> f64 {
    if all == 0 {
        return 1.0;
    }
    let done = u32::try_from(done).unwrap_or(u32::MAX);
    let all = u32::try_from(all).unwrap_or(u32::MAX);
    f64::from(done) / f64::from(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(vbuckets: usize, copies: usize) -> RebalanceLeft {
        RebalanceLeft {
            incoming: BTreeMap::from([(3, copies)]),
            nodes: BTreeMap::from([(2, vbuckets / 2), (3, copies)]),
            vbuckets,
            ..RebalanceLeft::default()
        }
    }

    fn record() -> RebalanceRecord {
        let id = "ab".repeat(16);
        let mut record = RebalanceRecord::new(id, RebalanceKind::Rebalance, 1_000);
        record.servers = vec![0, 1, 3];
        record.remove = BTreeSet::from([2]);
        record.begin(&left(40, 30), true);
        record
    }

    #[test]
    fn record_survives_its_encoding() {
        for state in [
            RebalanceState::Running,
            RebalanceState::Stopped,
            RebalanceState::Finished,
            RebalanceState::Failed("node \"n_1\" failed".to_owned()),
        ] {
            let record = RebalanceRecord { state, ..record() };
            let json = serde_json::to_vec(&record).expect("it can be encoded");
            let read: RebalanceRecord = serde_json::from_slice(&json).expect("it was written here");
            assert_eq!(read, record);
        }
    }

    #[test]
    fn estimate_follows_from_the_rate_so_far() {
        let progress = record().progress(&left(30, 21), 6_000);
        assert_eq!((progress.vbuckets, progress.vbuckets_done), (40, 10));
        assert_eq!((progress.copies, progress.copies_done), (30, 9));
        assert_eq!(progress.ran, Duration::from_secs(5));
        assert_eq!(progress.left, Some(Duration::from_secs(15)));
        assert!((progress.fraction() - 0.25).abs() < 1e-9);
        assert_eq!(record().progress(&left(40, 30), 6_000).left, None);
        let done = record().progress(&left(0, 0), 6_000);
        assert_eq!((done.left, done.copies_done), (Some(Duration::ZERO), 30));
        assert!((done.fraction() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn nodes_have_their_own_progress() {
        let is = |record: &RebalanceRecord, now: &RebalanceLeft, expected: [f64; 3]| {
            let nodes = [1, 2, 3].map(|node| record.node_fraction(now, node));
            let all = nodes.iter().zip(expected);
            assert!(
                all.into_iter().all(|(is, it)| (is - it).abs() < 1e-9),
                "{nodes:?}"
            );
        };
        is(&record(), &left(10, 24), [1.0, 0.75, 0.2]);
        is(&record(), &left(0, 0), [1.0; 3]);
        is(&record(), &left(400, 300), [1.0, 0.0, 0.0]);
        let mut at_first_level = record();
        at_first_level.node_vbuckets.clear();
        is(&at_first_level, &left(10, 24), [0.75; 3]);

        // By a failover there is more to do: what was done stays done.
        let mut more = record();
        more.resize(&left(10, 24), &left(30, 44));
        is(&more, &left(30, 44), [1.0, 0.5, 0.12]);
        let progress = more.progress(&left(30, 44), 6_000);
        assert_eq!((progress.vbuckets, progress.vbuckets_done), (60, 30));
        assert_eq!((progress.copies, progress.copies_done), (50, 6));
    }

    /// A bucket was created meanwhile, and a clock went back.
    #[test]
    fn progress_never_is_negative() {
        let progress = record().progress(&left(100, 90), 500);
        assert_eq!((progress.vbuckets, progress.vbuckets_done), (100, 0));
        assert_eq!((progress.copies_done, progress.ran), (0, Duration::ZERO));
        let nothing = RebalanceRecord::new(String::new(), RebalanceKind::Drain, 0);
        assert!((nothing.progress(&left(0, 0), 0).fraction() - 1.0).abs() < 1e-9);
    }
}
