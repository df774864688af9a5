//! Changes of the number of replicas, rejoining nodes, and the compatibility level, in a running cluster.
//!
//! The orchestrator does this on a thread of its own, with the steps of [`kedge_cluster::plan_round`] and [`CatchUp`]. Another
//! node that takes the office over continues from the map.
//!
//! Invariant: each step compares that this node is still the orchestrator, and the revision of the map on which it is based. The
//! first member of the map executes the steps, too, if it is of a release in which that did it: the second compare is enough, as
//! of two steps from the same map one is made.
//!
//! All nodes and all clients follow each map, which costs processor time that clients notice. So the steps that are due are
//! one change of the map, and the pause after it is a multiple of the time that it took.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use kedge_cluster::{
    CatchUp, ClusterMap, MapBucket, MoveLimits, MovePace, NodePositions, RebalanceKind,
    RebalanceRecord, plan_discarded, plan_next_level, plan_round,
};
use kedge_coordination::{Compare, Transaction};
use kedge_node::coordination::ChangeError;
use kedge_types::limits::REMOVAL_LINGER_SECS;

use super::change::{Commit, PlannedChange, change_map_with};
use super::level::{self, levels_of};
use super::reconnect::awaiting_clients;
use super::{ASK_INTERVAL, ASK_TIMEOUT, ClusterNode};

/// The time for which nodes without vBuckets stay in the map at the end of a rebalance.
const REMOVAL_LINGER: Duration = Duration::from_secs(REMOVAL_LINGER_SECS);
/// The shortest and the longest pause between two checks of incomplete copies.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// The pause after a check, as a multiple of its duration: clients do not notice what takes 4 % of the time.
const PAUSE_TIMES: u32 = 24;

/// The work between two checks.
#[derive(Default)]
struct CopyProgress {
    catch_up: Option<CatchUp>,
    pace: MovePace,
    removal: Removal,
}

/// The removal of nodes at the end of a rebalance.
#[derive(Default)]
struct Removal {
    /// The moment at which the rebalance was complete but for that.
    complete_since: Option<Instant>,
}

impl Removal {
    /// Returns whether nodes may leave the map. They stay until clients know that they have no vBuckets: a node that has left
    /// has no map for those that ask it.
    fn allows(&mut self, map: &ClusterMap, next: &ClusterMap) -> bool {
        let is_removed = |number: &u16| !next.nodes.contains_key(number);
        let mut removed = map.nodes.iter().filter(|(number, _)| is_removed(number));
        if removed.all(|(_, node)| node.failed) {
            self.complete_since = None;
            return true;
        }
        let since = self.complete_since.get_or_insert_with(Instant::now);
        since.elapsed() >= REMOVAL_LINGER
    }
}

/// Works until the server ends.
pub(super) fn run(node: &Weak<ClusterNode>) {
    let mut progress = CopyProgress::default();
    let mut trouble = String::new();
    while let Some(node) = ClusterNode::alive(node) {
        let began = Instant::now();
        let result = node.tend_replicas(&mut progress);
        let why = result.as_ref().err().map(ToString::to_string);
        let why = why.unwrap_or_default();
        if !why.is_empty() && why != trouble {
            tracing::warn!(why, "copies cannot be made, or count, yet");
        }
        trouble = why;
        match result {
            Ok(false) => node.followed.wait_for_news(ASK_INTERVAL),
            Ok(true) | Err(_) => node.followed.rest(pause_after(began.elapsed())),
        }
    }
}

/// Returns the pause after a check of that duration.
fn pause_after(took: Duration) -> Duration {
    (took * PAUSE_TIMES).clamp(PAUSES.0, PAUSES.1)
}

impl ClusterNode {
    /// Executes the steps that are possible now. True if there is more to do.
    fn tend_replicas(&self, progress: &mut CopyProgress) -> Result<bool, ChangeError> {
        let Some((map, office)) = map_in_office(self) else {
            *progress = CopyProgress::default();
            return Ok(false);
        };
        if self.followed.applied_revision() != Some(map.revision) {
            return Ok(true);
        }
        if map.buckets.iter().any(MapBucket::is_unfinished) {
            let copies = progress
                .catch_up
                .get_or_insert_with(|| CatchUp::begin(&map));
            if copies.revision() != map.revision {
                copies.follow(&map);
            }
            // The present data of the actives belongs to this map.
            copies.note(&self.positions_by(&map));
        } else {
            (progress.catch_up, progress.pace) = (None, MovePace::default());
        }
        let discards = map.discarding().next().is_some();
        if discards {
            let told = self.positions_by(&map);
            self.advance(&office, |map| plan_discarded(map, &told))?;
        }
        let has_begun = make_round(self, (&map, &office), progress)?;
        raise_level(self, &map, &office)?;
        let waits = discards || progress.catch_up.is_some();
        Ok(has_begun || waits || progress.removal.complete_since.is_some())
    }

    /// Makes a change, if there is one, while this node is the orchestrator. The nodes of a vBucket that gets other copies have to
    /// respond. False if there is none.
    fn advance(
        &self,
        office: &Compare,
        mut plan: impl FnMut(&ClusterMap) -> Option<ClusterMap>,
    ) -> Result<bool, ChangeError> {
        // The store is asked only if there is something to do.
        if self.followed.map().is_none_or(|map| plan(&map).is_none()) {
            return Ok(false);
        }
        let mut is_changed = false;
        let with = Transaction::new().when(office.clone());
        change_map_with(self, &with, |map| {
            let is_in_office = self.failovers.in_office().as_ref() == Some(office);
            let next = plan(map).filter(|_| is_in_office);
            is_changed = next.is_some();
            if let Some(next) = &next {
                self.check_step(map, next)?;
            }
            Ok(next)
        })?;
        Ok(is_changed)
    }

    fn check_step(&self, map: &ClusterMap, next: &ClusterMap) -> Result<(), ChangeError> {
        let both = || map.buckets.iter().zip(&next.buckets);
        let mut needed = map.clone();
        let begins: BTreeSet<u16> = both()
            .flat_map(|(before, after)| begun(before, after))
            .collect();
        needed.nodes.retain(|node, _| begins.contains(node));
        self.peers.require_all(&needed)?;
        for (_, bucket) in both().filter(|(before, after)| before != after) {
            let counting = bucket.next.values().filter(|next| next.counts).count();
            tracing::debug!(
                bucket = bucket.name,
                replicas = bucket.replicas(),
                wanted = bucket.wanted_replicas(),
                copies = bucket.next.len(),
                counting,
                joining = bucket.joining.len(),
                "copies are made, or count"
            );
        }
        Ok(())
    }

    /// Returns the positions of all nodes that have applied the map and respond.
    fn positions_by(&self, map: &ClusterMap) -> BTreeMap<u16, NodePositions> {
        let told = self.peers.each(map, |peer| {
            let about = peer.about(ASK_TIMEOUT).ok()?;
            let positions = (about.applied == Some(map.revision)).then(|| peer.positions());
            positions?.ok()
        });
        let own = self.followed.number(map).zip(self.positions().ok());
        let told = told.into_iter();
        told.filter_map(|(node, positions)| Some((node, positions?)))
            .chain(own)
            .collect()
    }
}

/// Returns the followed map, and the condition that this node is the orchestrator; `None` unless it is.
fn map_in_office(node: &ClusterNode) -> Option<(Arc<ClusterMap>, Compare)> {
    let map = node.followed.map()?;
    let me = node.followed.number(&map);
    me.filter(|me| map.is_member(*me))?;
    Some((map, node.failovers.in_office()?))
}

/// Makes the steps that are due. False if there are none.
fn make_round(
    node: &ClusterNode,
    (map, office): (&ClusterMap, &Compare),
    progress: &mut CopyProgress,
) -> Result<bool, ChangeError> {
    match may_continue(node, map) {
        Ok(true) => {}
        waits => {
            // Joining nodes do not have to wait, too.
            node.advance(office, |map| progress.catch_up.as_ref()?.plan(map))?;
            return waits.map(|_| true);
        }
    }
    let CopyProgress {
        catch_up,
        pace,
        removal,
    } = progress;
    let awaited = match map.running_rebalance() {
        Some(_) => awaiting_clients(&node.peers, map, node.report()),
        None => BTreeSet::new(),
    };
    let mut round = |pace: &MovePace, silent: &BTreeSet<u16>| {
        node.advance(office, |map| {
            let limits = MoveLimits {
                awaited: awaited.clone(),
                silent: silent.clone(),
                ..pace.limits(map)
            };
            let next = plan_round(map, catch_up.as_ref(), limits)?;
            removal.allows(map, &next).then_some(next)
        })
    };
    let has_begun = match round(pace, &BTreeSet::new()) {
        // Other vBuckets, and joining nodes, do not have to wait for it.
        Err(ChangeError::Down(down)) => match round(pace, &silent_members(node, map))? {
            true => Ok(true),
            false => Err(ChangeError::Down(down)),
        },
        done => done,
    };
    if let Some(next) = node.followed.map() {
        pace.note_round(map, &next);
    }
    has_begun
}

/// Returns whether the next step may be made. The last one of a graceful failover removes copies without asking for any
/// positions: it waits until all other members have applied the map, as they may have the only other copies.
///
/// # Errors
/// `Down` when one of them does not respond.
fn may_continue(node: &ClusterNode, map: &ClusterMap) -> Result<bool, ChangeError> {
    let running = map.running_rebalance();
    let graceful = running.filter(|it| it.kind == RebalanceKind::GracefulFailover);
    let is_last = |it: &&RebalanceRecord| it.left(map).is_some_and(|left| left.is_done());
    let Some(record) = graceful.filter(is_last) else {
        return Ok(true);
    };
    let mut stay = map.clone();
    stay.nodes
        .retain(|number, _| !record.drain.contains(number));
    node.peers.require_all(&stay)?;
    let applied = node.peers.each(&stay, |peer| {
        let about = peer.about(ASK_TIMEOUT);
        about.is_ok_and(|about| about.applied >= Some(map.revision))
    });
    Ok(applied.into_values().all(|has_applied| has_applied))
}

/// Returns the members that do not respond.
fn silent_members(node: &ClusterNode, map: &ClusterMap) -> BTreeSet<u16> {
    let responds = node.peers.each(map, |peer| peer.about(ASK_TIMEOUT).is_ok());
    let me = node.followed.number(map);
    let is_silent = |it: &u16| Some(*it) != me && responds.get(it) != Some(&true);
    map.members().filter(is_silent).collect()
}

/// Returns the nodes of the vBuckets of a bucket that get other copies from this change on.
fn begun(before: &MapBucket, after: &MapBucket) -> BTreeSet<u16> {
    let begins = |vb: &&u16| !before.next.contains_key(vb);
    let vbuckets = after.next.keys().filter(begins);
    let nodes = vbuckets.flat_map(|vb| {
        let chain = &before.chains[usize::from(*vb)];
        chain.nodes().chain(after.next[vb].chain.nodes())
    });
    nodes.collect()
}

/// Raises the compatibility level if all nodes of the map support the next one.
fn raise_level(node: &ClusterNode, map: &ClusterMap, office: &Compare) -> Result<(), ChangeError> {
    let levels_of = |name: &str| levels_of(&node.followed, &node.peers, name);
    // The store is asked only if there is something to do.
    if plan_next_level(map, levels_of).is_none() {
        return Ok(());
    }
    let began = Instant::now();
    let _one_at_a_time = node.changing.lock();
    let done = node.commit(|map| {
        let records = node.store.read(node.name())?.records;
        let next = level::plan(map, levels_of, &records);
        let in_office = |(map, with): (ClusterMap, Transaction)| {
            let with = with.when(office.clone());
            PlannedChange { map, with }
        };
        Ok(next.map(in_office))
    })?;
    if let Commit::Changed(map) = done {
        tracing::info!(
            level = map.level.0,
            "the compatibility level of the cluster is raised, as all nodes support it"
        );
        node.distribute(&map, began);
    }
    Ok(())
}
