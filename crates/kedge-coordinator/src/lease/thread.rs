//! The thread "kedge-lease".

use std::sync::{Arc, mpsc};
use std::time::Duration;

use kedge_cluster::Revision;
use kedge_coordination::lease::{LeaseEvent, LeaseHolder};
use kedge_coordination::{CoordinationError, Coordinator, Moment};

use kedge_node::coordination::{LeaseStatus, ServesBy};

use super::watchdog::Watchdog;
use super::{LeaseSetup, NodeLease};

/// The time between two looks whether the map that a tenure needs is applied.
const APPLIED_INTERVAL: Duration = Duration::from_millis(20);
/// The longest sleep. A node whose lease another process has taken has nothing else to do.
const SLEEP_MAX: Duration = Duration::from_secs(1);
/// The shortest time for a renewal. With less until the end of the lease, its end comes first.
const REQUEST_MIN: Duration = Duration::from_millis(5);

/// The map that has to be applied in a tenure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequiredMap {
    /// It is not known yet: the store has to be read in this tenure.
    Unknown,
    /// A map of this revision, or of a later one.
    Applied(Revision),
}

/// The state of the thread.
pub(super) struct LeaseThread {
    setup: LeaseSetup,
    holder: LeaseHolder,
    watchdog: Option<Watchdog>,
    handle: Option<Arc<dyn Coordinator>>,
    /// The revision of the store in which the tenure began that `required` is of.
    tenure: Option<kedge_coordination::Revision>,
    required: RequiredMap,
    /// The moment of the next read of the map.
    next_read: Moment,
    is_serving: bool,
    renewals: u64,
    failures: u64,
    lapses: u64,
    /// The number of rounds in which all others have promised.
    promised: u64,
    by_promises: bool,
    trouble: String,
    /// The process that was logged as the holder of this node's lease.
    occupant: String,
}

impl LeaseThread {
    pub(super) fn new(setup: LeaseSetup, watchdog: Option<Watchdog>) -> Self {
        let key = format!("alive/{}", setup.node);
        Self {
            holder: LeaseHolder::new(key, setup.process.as_str(), setup.timing)
                .holding(setup.lock.as_str()),
            setup,
            watchdog,
            handle: None,
            tenure: None,
            required: RequiredMap::Unknown,
            next_read: Moment::default(),
            is_serving: false,
            renewals: 0,
            failures: 0,
            lapses: 0,
            promised: 0,
            by_promises: false,
            trouble: String::new(),
            occupant: String::new(),
        }
    }

    fn now(&self) -> Moment {
        Moment::at_ns(self.setup.clock.mono_ns())
    }

    /// Holds the lease until the server ends.
    pub(super) fn run(&mut self, lease: &NodeLease) {
        loop {
            self.update_gate();
            self.renew_if_due();
            self.read_map_if_due();
            self.update_gate();
            if self.wait(lease) {
                self.stop_serving();
                return;
            }
        }
    }

    /// Shows the state, and sleeps until something is due. True when the server ends.
    fn wait(&mut self, lease: &NodeLease) -> bool {
        let now = self.now();
        let status = self.status(now);
        let sleep = self.next_event(now).since(now).min(SLEEP_MAX);
        let mut state = lease.state.lock();
        let listeners = match status.serves {
            true => std::mem::take(&mut state.listeners),
            false => Vec::new(),
        };
        state.status = status;
        if !listeners.is_empty() {
            drop(state);
            listeners.into_iter().for_each(|tell| tell());
            return false;
        }
        if !state.stopping && !state.renew && state.timing.is_none() {
            lease.wake.wait_for(&mut state, sleep);
        }
        if let Some(timing) = state.timing.take() {
            self.holder.set_timing(timing);
        }
        if std::mem::take(&mut state.renew) {
            self.holder.renew_soon();
        }
        state.stopping
    }

    fn status(&self, now: Moment) -> LeaseStatus {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        LeaseStatus {
            serves: self.is_serving,
            serves_by: match (self.is_serving, self.by_promises) {
                (false, _) => ServesBy::None,
                (true, false) => ServesBy::Lease,
                (true, true) => ServesBy::Promises,
            },
            left_ms: ms(self.holder.serves_until().since(now)),
            time_ms: ms(self.holder.timing().time()),
            renewals: self.renewals,
            failures: self.failures,
            lapses: self.lapses,
            promised: self.promised,
            promises: 0,
            trouble: (!self.trouble.is_empty()).then(|| self.trouble.clone()),
        }
    }

    /// Returns the moment at which something is due.
    fn next_event(&self, now: Moment) -> Moment {
        let mut next = self.holder.next_put().unwrap_or(now.plus(SLEEP_MAX));
        if self.is_serving {
            return next.min(self.holder.serves_until());
        }
        if self.holder.since().is_some() {
            next = next.min(match self.required {
                RequiredMap::Unknown => self.next_read,
                RequiredMap::Applied(_) => now.plus(APPLIED_INTERVAL),
            });
        }
        next
    }

    /// Opens, moves or closes the gate as the lease says.
    fn update_gate(&mut self) {
        let is_applied = match self.required {
            RequiredMap::Unknown => false,
            RequiredMap::Applied(required) => {
                self.is_serving || (self.setup.applied)() >= Some(required)
            }
        };
        let until = self.holder.serves_until();
        if !is_applied || self.now() >= until || self.tenure != self.holder.since() {
            self.close_gate();
            return;
        }
        if let Some(watchdog) = &mut self.watchdog
            && let Err(error) = watchdog.kill_at(self.holder.ends())
        {
            tracing::error!(%error, "the watchdog cannot be armed: the node does not serve");
            self.close_gate();
            return;
        }
        self.setup.serving.serve_until(until.ns());
        let by_promises = self.holder.needs_promises(self.now());
        if !self.is_serving || by_promises != self.by_promises {
            match by_promises {
                false => tracing::info!("the node serves by its lease"),
                true => tracing::warn!(
                    why = self.trouble,
                    "the node serves by the promises of the others: it cannot renew its lease"
                ),
            }
        }
        (self.is_serving, self.by_promises) = (true, by_promises);
    }

    fn close_gate(&mut self) {
        if !self.is_serving {
            return;
        }
        self.stop_serving();
        self.lapses += 1;
        tracing::warn!(
            why = self.trouble,
            "the node does not serve its active vBuckets: it has no valid lease"
        );
    }

    fn stop_serving(&mut self) {
        // In this order: no step with an earlier time may run when the watchdog is disarmed.
        self.setup.serving.close();
        (self.setup.await_steps)();
        if let Some(watchdog) = &mut self.watchdog
            && let Err(error) = watchdog.disarm()
        {
            tracing::error!(%error, "the watchdog cannot be disarmed");
        }
        self.is_serving = false;
    }

    fn renew_if_due(&mut self) {
        let now = self.now();
        if self.holder.next_put().is_none_or(|due| now < due) {
            return;
        }
        let mut timeout = self.holder.timing().request_timeout();
        if self.is_serving {
            // The gate is closed in time, whatever becomes of the renewal.
            timeout = timeout.min(self.holder.serves_until().since(now));
            if timeout < REQUEST_MIN {
                std::thread::sleep(timeout);
                return;
            }
        }
        let answer = self.renew(now, timeout);
        let is_ok = answer.is_ok();
        if let Err(CoordinationError::WentBackwards { .. }) = &answer {
            self.forget();
        }
        let event = self.holder.on_answer(self.now(), &answer);
        if self.tenure != self.holder.since() {
            self.tenure = self.holder.since();
            self.required = RequiredMap::Unknown;
            self.next_read = Moment::default();
        }
        match (is_ok, &answer) {
            (true, _) => {
                self.renewals += 1;
                self.trouble.clear();
            }
            // The record of the process before is replaced at once.
            (_, Err(CoordinationError::Conflict(_))) if event == LeaseEvent::Found => {}
            (_, answer) => {
                self.failures += 1;
                let error = answer.as_ref().err().map(ToString::to_string);
                self.trouble = error.unwrap_or_default();
            }
        }
        match event {
            LeaseEvent::Deposed => tracing::error!(
                "the lease of this node was taken from it: it serves again when it has applied the present map"
            ),
            LeaseEvent::Replaced => tracing::error!(
                process = self.holder.replaced_by(),
                "another process runs as this node and has taken its lease: this one serves no more"
            ),
            LeaseEvent::Occupied => self.replace_occupant(),
            LeaseEvent::Unknown => self.ask_for_promises(),
            LeaseEvent::Taken | LeaseEvent::Renewed | LeaseEvent::Found => {}
        }
    }

    /// Tries to end the lease of another process of this name, if that serves no more.
    fn replace_occupant(&mut self) {
        let process = self.holder.occupant().map(|it| it.process.clone());
        let process = process.unwrap_or_default();
        if self.occupant != process {
            tracing::warn!(
                process,
                "the lease of this node is held by another process, which may run on another machine: this one waits for its end"
            );
            self.occupant.clone_from(&process);
        }
        let why = match (self.setup.others)() {
            None => "this node is no member".to_owned(),
            Some(others) if others.is_empty() => {
                self.holder.take_lapsed(self.now());
                "its lease has not ended".to_owned()
            }
            Some(_) => match (self.setup.release)() {
                Ok(()) => "its record is deleted".to_owned(),
                Err(why) => why,
            },
        };
        self.trouble = format!("process {process} may serve as this node: {why}");
    }

    /// Asks the others for promises, as the store does not answer.
    fn ask_for_promises(&mut self) {
        let Some(others) = (self.setup.others)() else {
            return;
        };
        let now = self.now();
        let Some(mut round) = self.holder.begin_round(now, others) else {
            return;
        };
        let request = round.request();
        let mut wait = self.holder.timing().request_timeout();
        if self.is_serving {
            // The gate is closed in time, whatever becomes of the requests.
            wait = wait.min(self.holder.serves_until().since(now));
            if wait < REQUEST_MIN {
                return;
            }
        }
        let (tell, told) = mpsc::channel();
        let ask = self.setup.ask.clone();
        // A name that is looked up may take any time.
        let asking = std::thread::Builder::new()
            .name("kedge-promises".to_owned())
            .spawn(move || {
                // Nobody waits any more if it takes too long.
                let _ = tell.send(ask(request, wait / 2));
            });
        if let Err(error) = asking {
            tracing::error!(%error, "the other nodes cannot be asked for promises");
            return;
        }
        for node in told.recv_timeout(wait).unwrap_or_default() {
            round.on_promise(&node);
        }
        if self.holder.on_promises(&round) {
            self.promised += 1;
        } else {
            let missing: Vec<&str> = round.missing().collect();
            self.trouble = format!("{}; no promise of {}", self.trouble, missing.join(", "));
        }
    }

    fn renew(
        &mut self,
        now: Moment,
        timeout: Duration,
    ) -> Result<kedge_coordination::Revision, CoordinationError> {
        let handle = self.handle()?;
        let health = (self.setup.health)();
        let Some(put) = self.holder.put(now, &health) else {
            return Err(CoordinationError::Unreachable(
                "the lease is held by another process".to_owned(),
            ));
        };
        // A shorter lease time counts before its record is sent.
        self.update_gate();
        handle.transact(&put, timeout)
    }

    /// Returns the handle of the store. A new one is of a store that may know less than the one before.
    fn handle(&mut self) -> Result<Arc<dyn Coordinator>, CoordinationError> {
        let handle = (self.setup.store)()?;
        let is_other = |known: &Arc<dyn Coordinator>| !Arc::ptr_eq(known, &handle);
        if self.handle.as_ref().is_some_and(is_other) {
            self.forget();
        }
        self.handle = Some(handle.clone());
        Ok(handle)
    }

    fn forget(&mut self) {
        self.holder.forget();
        // Revisions of another store say nothing.
        self.tenure = None;
        self.required = RequiredMap::Unknown;
        self.update_gate();
    }

    /// Reads which map a new tenure needs.
    fn read_map_if_due(&mut self) {
        let now = self.now();
        let is_due = self.holder.since().is_some()
            && self.required == RequiredMap::Unknown
            && now >= self.next_read;
        if !is_due {
            return;
        }
        self.next_read = now.plus(self.holder.timing().retry_interval());
        let Some(handle) = self.handle.clone() else {
            return;
        };
        let read = handle.read(self.holder.timing().request_timeout());
        let stored = match &read {
            Ok(snapshot) => (self.setup.stored_map)(snapshot),
            Err(CoordinationError::WentBackwards { .. }) => {
                self.forget();
                return;
            }
            Err(_) => return,
        };
        if let Some(stored) = stored
            // A newer map that the store has lost is put back first.
            && (self.setup.applied)() <= Some(stored)
        {
            self.required = RequiredMap::Applied(stored);
        }
    }
}
