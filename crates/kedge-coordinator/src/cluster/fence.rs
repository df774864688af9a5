//! Fencing: nodes stop following a node that is to be failed over before their positions are read.
//!
//! Otherwise a replica that has just reported its position could acknowledge a SyncWrite of that node, which would
//! reply to its client while another replica is about to take over: the node may be alive, and only unreachable for the
//! node that executes the failover.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::ClusterNode;

/// The duration of a fence, unless a new map comes or the failover is cancelled.
const LASTS: Duration = Duration::from_secs(10);
/// Timeout of the end of streams.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

impl ClusterNode {
    /// Ends all streams from a node, and starts none for a while. When it returns, nothing is acknowledged to that
    /// node.
    ///
    /// # Errors
    /// When streams do not end in time.
    pub(super) fn fence(&self, node: u16) -> Result<(), String> {
        self.fenced.lock().insert(node, Instant::now() + LASTS);
        self.followed.poke();
        let map = self.followed.map().ok_or("it has no map")?;
        let name = map.name(node);
        if !self.replicator.wait_gone(name, ENDS_WITHIN) {
            return Err(format!("it still follows node \"{name}\""));
        }
        Ok(())
    }

    /// Lifts all fences, because the failover was cancelled: the nodes are followed again.
    pub(super) fn lift_fence(&self) {
        self.fenced.lock().clear();
        self.followed.poke();
    }

    /// Returns the fenced nodes.
    pub(super) fn fenced(&self) -> BTreeSet<u16> {
        let mut fenced = self.fenced.lock();
        fenced.retain(|_, until| *until > Instant::now());
        fenced.keys().copied().collect()
    }
}
