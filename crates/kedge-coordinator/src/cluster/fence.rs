//! A node that is to be failed over is followed no more before anyone says how far its replicas are.
//!
//! Else it could have a SyncWrite acknowledged by a replica that told its position a moment before, and answer its client,
//! when another replica is about to take over: it may be alive, only not for the node that was asked for the failover.

use std::time::{Duration, Instant};

use super::ClusterNode;

/// Duration of a fence, unless a new map comes or the failover is given up.
const LASTS: Duration = Duration::from_secs(10);
/// Timeout of the end of streams.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

impl ClusterNode {
    /// Ends all streams from a node, and begins none for a while. When it returns nothing is acknowledged to it.
    ///
    /// # Errors
    /// When streams do not end.
    pub(super) fn fence(&self, node: u16) -> Result<(), String> {
        *self.fenced.lock() = Some((node, Instant::now() + LASTS));
        self.poke();
        let name = &self.file.nodes[usize::from(node)].name;
        if !self.replicator.wait_gone(name, ENDS_WITHIN) {
            return Err(format!("it still follows node \"{name}\""));
        }
        Ok(())
    }

    /// The failover is not made: the node is followed again.
    pub(super) fn lift_fence(&self) {
        *self.fenced.lock() = None;
        self.poke();
    }

    /// The node that is not followed for now.
    pub(super) fn fenced(&self) -> Option<u16> {
        let mut fenced = self.fenced.lock();
        *fenced = fenced.filter(|(_, until)| *until > Instant::now());
        fenced.map(|(node, _)| node)
    }
}
