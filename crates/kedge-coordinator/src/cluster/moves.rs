//! Moves of vBuckets from one running node to another.
//!
//! The node that gets the request makes a map with the moves. Each target node takes its vBuckets over, and makes the
//! map after the move.
//!
//! Invariants:
//! * A vBucket is active here only by a map that this node follows, and a vBucket that was taken over only after that
//!   map.
//! * Nothing moves here while a node is about to be failed over: that decision is based on the positions before.

use std::time::{Duration, Instant};

use kedge_cluster::{ClusterMap, plan_balance, plan_move};
use kedge_node::coordination::{AppliedChange, ChangeError};
use kedge_types::VbId;

use super::ClusterNode;

/// The longest wait for moves by the caller. The moves go on afterwards.
const MOVES_WITHIN: Duration = Duration::from_secs(60);

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
        self.begin_moves(|map| Ok(Some(plan_move(map, self.me, bucket, vb, to)?)))
    }

    /// Moves actives back to the nodes that they would have in a new bucket.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub(super) fn balance(&self) -> Result<AppliedChange, ChangeError> {
        self.begin_moves(|map| {
            let next = plan_balance(map, self.me);
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
        plan: impl FnOnce(&ClusterMap) -> Result<Option<ClusterMap>, ChangeError>,
    ) -> Result<AppliedChange, ChangeError> {
        let began = Instant::now();
        let one_at_a_time = self.changing.lock();
        let map = self.map().ok_or(ChangeError::NotBegun)?;
        let Some(next) = plan(&map)? else {
            return Ok(AppliedChange::nothing(map.revision));
        };
        self.require_all(&map)?;
        let moves = moves_of(&next);
        tracing::info!(vbuckets = moves.len(), "moving vBuckets");
        let applied = self.publish(next)?;
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
    fn wait_moved(&self, moves: &[(String, u16, u16)], deadline: Instant) -> usize {
        let mut current = self.current.lock();
        loop {
            let left = current.map.as_deref().map(moves_of).unwrap_or_default();
            let moving = moves.iter().filter(|it| left.contains(it)).count();
            let is_over = moving == 0 || self.is_stopping();
            if is_over || self.wake.wait_until(&mut current, deadline).timed_out() {
                return moving;
            }
        }
    }

    /// Records a vBucket that was taken over.
    pub(super) fn took_over(&self, bucket: &str, vb: VbId) {
        self.taken.lock().push((bucket.to_owned(), vb.get()));
        self.poke();
    }

    /// Makes the map after finished takeovers. True if that has to wait.
    pub(super) fn finish_moves(&self) -> bool {
        let taken = std::mem::take(&mut *self.taken.lock());
        if taken.is_empty() {
            return false;
        }
        let is_done = self.fenced().is_none() && self.amend(|map| map.with_taken(self.me, &taken));
        if !is_done {
            self.taken.lock().extend(taken);
        }
        !is_done
    }

    /// Cancels moves away from this node after a restart: it may have lost data that the target has already.
    pub(super) fn give_up_moves(&self, has_begun: bool) {
        if !has_begun {
            // If it cannot be saved, nothing that follows can.
            self.amend(|map| map.without_moves_from(self.me));
        }
    }

    /// Adopts a map that is derived from the followed one, if there is a change. False if that fails.
    fn amend(&self, change: impl FnOnce(&ClusterMap) -> Option<ClusterMap>) -> bool {
        {
            let mut current = self.current.lock();
            let Some(next) = current.map.as_deref().and_then(change) else {
                return true;
            };
            if let Err(error) = self.follow_map(&mut current, next) {
                tracing::error!(%error, "cannot change the cluster map");
                return false;
            }
        }
        self.told_of_map(true);
        true
    }
}

/// Returns all moves as (bucket, vBucket, node).
fn moves_of(map: &ClusterMap) -> Vec<(String, u16, u16)> {
    let of_bucket = |bucket: &kedge_cluster::MapBucket| {
        let moves = bucket.moves.iter();
        let moves = moves.map(|(vb, to)| (bucket.name.clone(), *vb, *to));
        moves.collect::<Vec<_>>()
    };
    map.buckets.iter().flat_map(of_bucket).collect()
}
