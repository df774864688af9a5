//! Fencing: nodes stop following a node that is to be failed over before their positions are read.
//!
//! Otherwise a replica that has just reported its position could acknowledge a SyncWrite of that node, which would
//! reply to its client while another replica is about to take over: the node may be alive, and only unreachable for the
//! node that executes the failover.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use kedge_cluster::FailoverAttempt;

use super::ClusterNode;

/// The duration of a fence, unless a new map comes or the failover is cancelled.
const LASTS: Duration = Duration::from_secs(10);
/// Timeout of the end of streams.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

impl ClusterNode {
    /// Ends all streams from a node, and starts none for a while, for an attempt of its failover. When it returns, nothing is
    /// acknowledged to that node.
    ///
    /// # Errors
    /// When streams do not end in time.
    pub(super) fn fence(&self, node: u16, attempt: FailoverAttempt) -> Result<(), String> {
        let until = Instant::now() + LASTS;
        self.fenced.lock().add(node, attempt, until);
        self.followed.poke();
        let map = self.followed.map().ok_or("it has no map")?;
        let name = map.name(node);
        if !self.replicator.wait_gone(name, ENDS_WITHIN) {
            return Err(format!("it still follows node \"{name}\""));
        }
        Ok(())
    }

    /// Lifts the fences of an attempt that was given up: the nodes are followed again, unless there is another attempt.
    pub(super) fn lift_fences(&self, attempt: FailoverAttempt) {
        self.fenced.lock().lift(attempt);
        self.followed.poke();
    }

    /// Returns the fenced nodes.
    pub(super) fn fenced(&self) -> BTreeSet<u16> {
        self.fenced.lock().nodes(Instant::now())
    }
}
