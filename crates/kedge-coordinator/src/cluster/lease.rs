//! The lease of this node, and its part in the cluster.

use std::sync::Arc;

use kedge_coordination::lease::LeaseTiming;
use kedge_node::coordination::LeaseStatus;
use kedge_types::SystemClock;

use super::ClusterNode;
use super::store::map_revision;
use crate::lease::{LeaseSetup, NodeLease};

impl ClusterNode {
    /// Closes the gate of the node, and starts the thread that opens it.
    ///
    /// # Errors
    /// When the system refuses a thread or a timer.
    pub(super) fn start_lease(&self) -> std::io::Result<Arc<NodeLease>> {
        let (store, followed) = (self.store.clone(), self.followed.clone());
        let (registry, failovers) = (self.registry.clone(), self.failovers.clone());
        NodeLease::start(LeaseSetup {
            node: self.name().to_owned(),
            process: self.failovers.process.clone(),
            timing: self.lease_options.timing,
            watchdog: self.lease_options.watchdog || store.is_remote(),
            store: Box::new(move || store.handle()),
            stored_map: Box::new(map_revision),
            applied: Box::new(move || followed.settled()),
            health: Box::new(move || serde_json::to_value(failovers.health()).unwrap_or_default()),
            serving: registry.serving().clone(),
            await_steps: Box::new(move || registry.stop_serving()),
            clock: Arc::new(SystemClock::new()),
        })
    }

    /// Sets the time of the lease from its next renewal on. A tolerated pause that does not fit is shortened.
    pub(super) fn set_lease_time(&self, time: std::time::Duration) {
        let pause = self.lease_options.timing.pause();
        let timing = LeaseTiming::new(time, Some(pause));
        match timing.or_else(|_| LeaseTiming::new(time, None)) {
            Ok(timing) => {
                if let Some(lease) = self.lease.get() {
                    lease.set_timing(timing);
                }
            }
            Err(error) => tracing::error!(%error, "the time of the lease is not changed"),
        }
    }

    /// Returns the state of the lease. Never waits.
    pub(super) fn lease_status(&self) -> LeaseStatus {
        let lease = self.lease.get().map(|lease| lease.status());
        lease.unwrap_or_default()
    }
}
