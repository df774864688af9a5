//! Moves of vBuckets from one running node to another.
//!
//! The node that gets the request makes a map with the moves. Each target node takes its vBuckets over, and the thread
//! "kedge-moves" makes the map after the move. It repeats that until the coordination store has it.
//!
//! Invariants:
//! * A vBucket is active here only by a map that this node follows, and a vBucket that was taken over only after that
//!   map.
//! * Nothing moves here while a node is about to be failed over: that decision is based on the positions before.

use std::collections::BTreeSet;
use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use kedge_cluster::{ClusterMap, PendingMove, TakenVbucket, plan_balance, plan_move};
use kedge_node::coordination::{AppliedChange, ChangeError};

use super::change::{Commit, PlannedChange};
use super::reconnect::{RECONNECT, awaiting_clients};
use super::{ASK_INTERVAL, ClusterNode};

/// The longest wait for moves by the caller. The moves go on afterwards.
const MOVES_WITHIN: Duration = Duration::from_secs(60);
/// The pause between two checks of whether clients have connected to the targets again.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);
/// The pause before a change of the map that failed, or has to wait, is tried again.
const PAUSE: Duration = Duration::from_millis(50);

/// Makes the maps after finished takeovers, until the server ends.
pub(super) fn run(node: &Weak<ClusterNode>) {
    let mut trouble = String::new();
    while let Some(node) = ClusterNode::alive(node) {
        let done = node.cancel_moves().and_then(|()| node.finish_moves());
        let why = done.err().map(|error| error.to_string());
        let why = why.unwrap_or_default();
        if !why.is_empty() && why != trouble {
            tracing::warn!(why, "a finished or cancelled move is not in the map yet");
        }
        trouble = why;
        let mut current = node.followed.current.lock();
        let has_more = !trouble.is_empty() || !node.taken.lock().is_empty();
        let pause = if has_more { PAUSE } else { ASK_INTERVAL };
        // Another map, a takeover, or the stop ends it early.
        node.followed.wake.wait_for(&mut current, pause);
    }
}

impl ClusterNode {
    /// Moves a vBucket to a node that has a replica of it.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub(super) fn move_vbucket(
        &self,
        bucket: &str,
        vb: u16,
        to: &str,
    ) -> Result<AppliedChange, ChangeError> {
        self.begin_moves(|map| Ok(Some(plan_move(map, bucket, vb, to)?)))
    }

    /// Moves actives back to the nodes that they would have in a new bucket.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub(super) fn balance(&self) -> Result<AppliedChange, ChangeError> {
        self.begin_moves(|map| {
            let next = plan_balance(map);
            let waits_for = map.catching_up();
            if next.is_some() || waits_for.is_empty() {
                return Ok(next);
            }
            let names: Vec<&str> = waits_for.iter().map(|node| map.name(*node)).collect();
            let names = names.join(", ");
            let why = format!("nothing can move before these nodes have caught up: {names}");
            Err(ChangeError::Refused(why))
        })
    }

    fn begin_moves(
        &self,
        mut plan: impl FnMut(&ClusterMap) -> Result<Option<ClusterMap>, ChangeError>,
    ) -> Result<AppliedChange, ChangeError> {
        let began = Instant::now();
        if let Some(map) = self.followed.map()
            && self.peers.require_all(&map).is_ok()
            && let Ok(Some(next)) = plan(&map)
        {
            let targets = moves_of(&next)
                .into_iter()
                .map(|(_, _, pending)| pending.to);
            let targets: BTreeSet<u16> = targets.collect();
            let awaited = || awaiting_clients(&self.peers, &map, self.report());
            while !self.followed.is_stopping()
                && began.elapsed() < RECONNECT
                && !awaited().is_disjoint(&targets)
            {
                self.followed.rest(RECONNECT_PAUSE);
            }
        }
        let one_at_a_time = self.changing.lock();
        let begun = self.commit(|map| {
            if let Some(running) = map.running_rebalance() {
                let why = format!("a {} is running, and moves vBuckets", running.kind);
                return Err(ChangeError::Refused(why));
            }
            let next = plan(map)?;
            if next.is_some() {
                self.peers.require_all(map)?;
            }
            Ok(next.map(PlannedChange::from))
        })?;
        let map = match begun {
            Commit::Unchanged(map) => return Ok(AppliedChange::nothing(map.revision)),
            Commit::Changed(map) => map,
        };
        let moves = moves_of(&map);
        tracing::info!(vbuckets = moves.len(), "moving vBuckets");
        let applied = self.distribute(&map, began);
        // The cluster may change in the meantime.
        drop(one_at_a_time);
        let moving = self.wait_moved(&moves, began + MOVES_WITHIN);
        Ok(AppliedChange {
            moved: moves.len() - moving,
            moving,
            took: began.elapsed(),
            ..applied
        })
    }

    /// Waits until none of these moves is pending. Returns the number of pending ones at the deadline.
    fn wait_moved(&self, moves: &[(String, u16, PendingMove)], deadline: Instant) -> usize {
        let mut current = self.followed.current.lock();
        loop {
            let left = current.map.as_deref().map(moves_of).unwrap_or_default();
            let moving = moves.iter().filter(|it| left.contains(it)).count();
            let is_over = moving == 0 || self.followed.is_stopping();
            if is_over
                || self
                    .followed
                    .wake
                    .wait_until(&mut current, deadline)
                    .timed_out()
            {
                return moving;
            }
        }
    }

    /// Records a vBucket that was taken over.
    pub(super) fn took_over(&self, taken: TakenVbucket) {
        self.taken.lock().push(taken);
        self.followed.poke();
    }

    /// Makes the map after finished takeovers, unless a node is about to be failed over.
    fn finish_moves(&self) -> Result<(), ChangeError> {
        if !self.fenced().is_empty() {
            return Ok(());
        }
        let taken = std::mem::take(&mut *self.taken.lock());
        if taken.is_empty() {
            return Ok(());
        }
        let done = self.amend(|map, me| map.with_taken(me, &taken));
        if done.is_err() {
            self.taken.lock().extend(taken);
        }
        done
    }

    /// Cancels moves away from this node after a restart: it may have lost data that the target has already.
    fn cancel_moves(&self) -> Result<(), ChangeError> {
        if self.waits_for_moves(self.followed.map().as_deref()) {
            self.amend(|map, me| map.without_moves_from(me))?;
        }
        Ok(())
    }

    /// Returns whether moves away from this node have to be cancelled before it applies its first map.
    pub(super) fn waits_for_moves(&self, map: Option<&ClusterMap>) -> bool {
        let moves_away = |map: &ClusterMap| {
            let me = self.followed.number(map)?;
            map.without_moves_from(me)
        };
        !self.begun.load(Ordering::SeqCst) && map.is_some_and(|map| moves_away(map).is_some())
    }
}

/// Returns all moves, with their buckets and vBuckets.
fn moves_of(map: &ClusterMap) -> Vec<(String, u16, PendingMove)> {
    let of_bucket = |bucket: &kedge_cluster::MapBucket| {
        let moves = bucket.moves.iter();
        let moves = moves.map(|(vb, pending)| (bucket.name.clone(), *vb, *pending));
        moves.collect::<Vec<_>>()
    };
    map.buckets.iter().flat_map(of_bucket).collect()
}

#[cfg(test)]
mod tests {
    use kedge_cluster::{Chain, plan_add_node};
    use serde_json::json;

    use super::*;
    use crate::cluster::testing::{self, change, stored};

    fn moved(map: &ClusterMap) -> ClusterMap {
        plan_move(map, "b", 0, "n_0").expect("it can")
    }

    /// The word of a takeover did not reach the store before the move was cancelled. It was there when the vBucket moved to
    /// this node again, and the other node served.
    #[test]
    fn takeover_of_a_cancelled_move_does_not_complete_the_next_one() {
        let dir = tempfile::tempdir().expect("a directory");
        let node = testing::node(dir.path());
        let me = node.followed.member(&stored(&node).map).expect("a member");
        change(&node, |map| {
            let mut other = map.nodes[&me].clone();
            (other.name, other.uuid) = ("n_1".to_owned(), "1".repeat(32));
            other.kv_port += 10;
            other.mgmt_port += 10;
            let mut next = plan_add_node(map, other).expect("it is new");
            let made = next.add_bucket("b", json!({ "replicas": 1 }), 1, 1);
            made.expect("none has failed");
            let chain = &mut next.buckets[0].chains[0];
            if chain.active() == Some(me) {
                chain.0.reverse();
            }
            next
        });
        let chain = || stored(&node).map.buckets[0].chains[0].clone();
        let before = chain();
        let taken = || {
            let start = stored(&node).map.buckets[0].moves[&0].start;
            let bucket = "b".to_owned();
            TakenVbucket {
                bucket,
                vb: 0,
                start,
            }
        };
        let other = before.active().expect("it has one");
        change(&node, moved);
        node.took_over(taken());
        change(&node, |map| map.without_moves_from(other).expect("one"));
        change(&node, moved);
        node.finish_moves().expect("the store answers");
        assert_eq!(chain(), before, "it is the takeover of another move");
        node.took_over(taken());
        node.finish_moves().expect("the store answers");
        assert_eq!(chain(), Chain(before.0.into_iter().rev().collect()));
        assert!(node.taken.lock().is_empty());
    }
}
