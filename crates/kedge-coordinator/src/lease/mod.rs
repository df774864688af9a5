//! This node's lease: without it the node serves no client.
//!
//! The thread "kedge-lease" renews the record `alive/NAME` in the coordination store, and moves the time until which the
//! node serves its active vBuckets ([`ServingGate`]). The argument and the inequality of the times are in
//! [`kedge_coordination::lease`].
//!
//! Invariants:
//! * The gate is open only for the time that the lease allows, and only in a tenure in which this node has applied the map
//!   that the store had when the tenure began, or a later one. The transaction that ended the tenure before put its map at
//!   the same time, so that this node does not serve by a map that took vBuckets from it.
//! * When the time of the lease is over, the gate is closed, the steps that run are awaited, and then the watchdog is disarmed.
//!   If this thread does not get that far in the tolerated pause, the watchdog ends the process: no other node can have
//!   been promoted before. No operation of a client is therefore executed later, whatever was paused, and for how long.
//! * A store that went backwards ends the tenure: its older state does not say who was deposed since.
//! * A process of this name that may serve keeps its lease. It may run on another machine, with the disk that this one has now,
//!   by promises of the other members. So one of them, which promises nothing from then on, deletes its record when it has
//!   lapsed. Only where this node is the only member, it replaces a lapsed record itself.
//! * While the store is unreachable, the node serves by the promises of all other members of the map that it follows
//!   ([`kedge_coordination::lease::Promises`]). Requests for them are awaited for no longer than the node serves.

mod thread;
mod watchdog;

use std::io;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use kedge_bucket::ServingGate;
use kedge_cluster::Revision;
use kedge_coordination::lease::{LeaseTiming, PromiseRequest};
use kedge_coordination::{CoordinationError, Coordinator, Snapshot};
use kedge_node::coordination::LeaseStatus;
use kedge_sync::{RankedCondvar, RankedMutex, ranks::NodeLeaseState};
use kedge_types::SystemClock;
use serde_json::Value;

use thread::LeaseThread;
use watchdog::Watchdog;

/// Returns the revision of the map in a snapshot.
pub type StoredRevision = Box<dyn Fn(&Snapshot) -> Option<Revision> + Send>;

/// The parameters of a node's lease.
#[derive(Clone, Copy, Debug)]
pub struct LeaseOptions {
    /// The times.
    pub timing: LeaseTiming,
    /// The tolerated pause of the settings; `None` for the default.
    pub pause: Option<Duration>,
    /// True if the process is ended when it is paused for longer than the lease tolerates, on a store of one machine too.
    pub watchdog: bool,
}

/// The parts of a node that its lease reaches.
pub struct LeaseSetup {
    /// The name of the node.
    pub node: String,
    /// A UUID of this process.
    pub process: String,
    /// The lock on the data directory that the process holds, see [`kedge_coordination::lease::LeaseHolder::holding`].
    pub lock: String,
    /// The times of the lease.
    pub timing: LeaseTiming,
    /// True if the process is ended when it is paused for longer than the lease tolerates.
    pub watchdog: bool,
    /// Returns the handle of the coordination store. Another handle is another store, or one that went backwards.
    pub store: Box<dyn Fn() -> Result<Arc<dyn Coordinator>, CoordinationError> + Send>,
    /// Returns the revision of the map in the store; `None` if there is none, or it cannot be read.
    pub stored_map: StoredRevision,
    /// Returns the revision of the map that is applied: no vBucket is active that this map assigns to another node.
    pub applied: Box<dyn Fn() -> Option<Revision> + Send>,
    /// Returns the names of the other members of the followed map; `None` if this node is no member.
    pub others: Box<dyn Fn() -> Option<Vec<String>> + Send>,
    /// Asks them for promises, each for no longer than that time. Returns the names of those that promise.
    pub ask: Arc<dyn Fn(PromiseRequest, Duration) -> Vec<String> + Send + Sync>,
    /// Asks another member to delete the record of a process of this name that serves no more. It may wait for the end of its
    /// lease.
    pub release: Box<dyn Fn() -> Result<(), String> + Send>,
    /// Returns the state of the node for its record. The node follows the map that it names, or a later one.
    pub health: Box<dyn Fn() -> Value + Send>,
    /// The gate of the node.
    pub serving: Arc<ServingGate>,
    /// Waits for the steps of vBuckets that run.
    pub await_steps: Box<dyn Fn() + Send>,
    /// The clock of the gate.
    pub clock: Arc<SystemClock>,
}

impl std::fmt::Debug for LeaseSetup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LeaseSetup")
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

/// The lease of this node.
pub struct NodeLease {
    state: RankedMutex<NodeLeaseState, LeaseShared>,
    wake: RankedCondvar,
}

/// The state that the thread shares with others.
#[derive(Default)]
struct LeaseShared {
    stopping: bool,
    status: LeaseStatus,
    /// The times of the next renewals, if they change.
    timing: Option<LeaseTiming>,
    /// True if the lease is to be renewed at once.
    renew: bool,
    /// The listeners, called once the node serves.
    listeners: Vec<Box<dyn FnOnce() + Send>>,
}

impl std::fmt::Debug for NodeLease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeLease").finish_non_exhaustive()
    }
}

impl NodeLease {
    /// Closes the gate of the node, and starts the thread that opens it.
    ///
    /// # Errors
    /// When the system refuses a thread or a timer.
    pub fn start(setup: LeaseSetup) -> io::Result<Arc<Self>> {
        setup.serving.close();
        let lease = Arc::new(Self {
            state: RankedMutex::default(),
            wake: RankedCondvar::new(),
        });
        let (ready, begun) = mpsc::sync_channel(1);
        let shared = lease.clone();
        std::thread::Builder::new()
            .name("kedge-lease".to_owned())
            .spawn(move || {
                // The timer belongs to the thread.
                let watchdog = setup.watchdog.then(Watchdog::new).transpose();
                match watchdog {
                    Ok(watchdog) => {
                        let _ = ready.send(Ok(()));
                        LeaseThread::new(setup, watchdog).run(&shared);
                    }
                    Err(error) => drop(ready.send(Err(error))),
                }
            })?;
        let begun = begun.recv();
        begun.unwrap_or_else(|_| Err(io::Error::other("the thread of the lease has ended")))?;
        Ok(lease)
    }

    /// Sets the times of the next renewals.
    pub fn set_timing(&self, timing: LeaseTiming) {
        self.state.lock().timing = Some(timing);
        self.wake.notify_all();
    }

    /// Renews the lease at once, so that its record says which map the node follows.
    pub fn renew(&self) {
        self.state.lock().renew = true;
        self.wake.notify_all();
    }

    /// Calls `tell` when the node serves.
    pub fn when_serving(&self, tell: impl FnOnce() + Send + 'static) {
        let mut state = self.state.lock();
        if !state.status.serves {
            state.listeners.push(Box::new(tell));
            return;
        }
        drop(state);
        tell();
    }

    /// Ends the thread. The node does not serve any more.
    pub fn stop(&self) {
        self.state.lock().stopping = true;
        self.wake.notify_all();
    }

    /// Returns the state of the lease.
    #[must_use]
    pub fn status(&self) -> LeaseStatus {
        self.state.lock().status.clone()
    }
}

#[cfg(test)]
mod tests;
