//! The lease of this node, and its part in the cluster.

use std::sync::Arc;
use std::time::Duration;

use kedge_cluster::NodeHealth;
use kedge_coordination::lease::{LeaseTiming, PromiseRequest, TimingError};
use kedge_node::coordination::{ChangeError, LeaseStatus};
use kedge_types::SystemClock;

use super::ClusterNode;
use super::leases::now;
use super::peer::{ASK_TIMEOUT, Peer};
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
        let (applied, known) = (self.followed.clone(), self.followed.clone());
        let (asking, releasing) = (self.this.clone(), self.this.clone());
        NodeLease::start(LeaseSetup {
            node: self.name().to_owned(),
            process: self.failovers.process.clone(),
            lock: self.data_lock.clone(),
            timing: self.lease_options.timing,
            watchdog: self.lease_options.watchdog || store.is_remote(),
            store: Box::new(move || store.handle()),
            stored_map: Box::new(map_revision),
            applied: Box::new(move || applied.settled()),
            others: Box::new(move || {
                let map = followed.map()?;
                let me = followed.number(&map).filter(|me| map.is_member(*me))?;
                let others = map.members().filter(|it| *it != me);
                Some(others.map(|it| map.name(it).to_owned()).collect())
            }),
            ask: Arc::new(move |request, within| {
                let node = asking.upgrade();
                node.map_or_else(Vec::new, |node| node.ask_for_promises(request, within))
            }),
            release: Box::new(move || match releasing.upgrade() {
                Some(node) => ask_to_release(&node),
                None => Ok(()),
            }),
            health: Box::new(move || {
                let health = NodeHealth {
                    follows: known.revision(),
                    ..failovers.health()
                };
                serde_json::to_value(health).unwrap_or_default()
            }),
            serving: registry.serving().clone(),
            await_steps: Box::new(move || registry.stop_serving()),
            clock: Arc::new(SystemClock::new()),
        })
    }

    /// Asks the other members for promises, and returns the names of those that promise.
    fn ask_for_promises(&self, request: PromiseRequest, within: Duration) -> Vec<String> {
        let Some(map) = self.followed.map() else {
            return Vec::new();
        };
        let ask = |peer: &Peer| match peer.promise(self.name(), request, within) {
            Ok(()) => Some(peer.name.clone()),
            Err(error) => {
                tracing::debug!(node = peer.name, %error, "a node promises nothing");
                None
            }
        };
        self.peers.each(&map, ask).into_values().flatten().collect()
    }

    /// Promises a node not to fail it over for a time. Never waits.
    ///
    /// # Errors
    /// `Refused`.
    pub(super) fn promise(&self, name: &str, request: PromiseRequest) -> Result<(), ChangeError> {
        self.failovers.promise(name, request)
    }

    /// Sets the time of the lease from its next renewal on. A tolerated pause that does not fit is shortened.
    pub(super) fn set_lease_time(&self, time: Duration) {
        let pause = self.lease_options.pause;
        match fitting(time, pause) {
            Ok(timing) => {
                if let Some(pause) = pause.filter(|pause| timing.pause() < *pause) {
                    tracing::warn!(
                        timeout = ?time,
                        configured = ?pause,
                        used = ?timing.pause(),
                        "lease_tolerated_pause is too long for the timeout of automatic failover: a shorter pause is tolerated"
                    );
                }
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
        LeaseStatus {
            promises: self.failovers.seen.lock().promised(now()),
            ..lease.unwrap_or_default()
        }
    }
}

/// Returns the times of a lease, with the default pause if the given one does not fit.
///
/// # Errors
/// `OutOfRange`.
fn fitting(time: Duration, pause: Option<Duration>) -> Result<LeaseTiming, TimingError> {
    let timing = LeaseTiming::new(time, pause);
    timing.or_else(|_| LeaseTiming::new(time, None))
}

/// Asks one member after the other to end the lease of a process of this node's name that serves no more.
///
/// # Errors
/// The reason of the last one.
fn ask_to_release(node: &ClusterNode) -> Result<(), String> {
    let map = node.followed.map().ok_or("there is no map")?;
    let lease_time = node.failovers.seen.lock().settings().settings.timeout();
    // That of the wait, and of the request.
    let within = lease_time * 2 + ASK_TIMEOUT * 2;
    let mut why = "there is no other member".to_owned();
    for peer in map.members().filter_map(|it| node.peers.get(it)) {
        match peer.release_lease(node.name(), within) {
            Ok(()) => return Ok(()),
            Err(error) => why = format!("{}: {error}", peer.name),
        }
    }
    Err(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerated_pause_is_shortened_when_the_timeout_does_not_allow_it() {
        let ms = Duration::from_millis;
        let pause =
            |time, pause: Option<u64>| fitting(ms(time), pause.map(ms)).map(LeaseTiming::pause);
        assert_eq!(pause(10_000, Some(2_000)), Ok(ms(2_000)));
        assert_eq!(pause(2_000, Some(2_000)), Ok(ms(500)));
        assert_eq!(pause(1_000, Some(2_000)), Ok(ms(250)));
        // The default is that of the present timeout.
        assert_eq!(pause(1_000, None), Ok(ms(250)));
        assert_eq!(pause(5_000, None), Ok(ms(500)));
        fitting(ms(500), None).expect_err("it is out of range");
    }
}
