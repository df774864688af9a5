//! The settings of automatic failover in the coordination store, and what this node knows of leases.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kedge_bucket::DiskCalls;
use kedge_cluster::{
    AutoFailoverEdit, AutoFailoverSettings, ClusterMap, DiskJudge, DiskSample, NodeHealth,
    joined_rev,
};
use kedge_coordination::lease::{Office, OfficeStep, PromiseRequest};
use kedge_coordination::{Compare, CoordinationError, Revision, Transaction};
use kedge_node::coordination::{AutoFailoverStatus, ChangeError};
use kedge_node::registry::BucketRegistry;
use kedge_sync::{
    RankedCondvar, RankedMutex,
    ranks::{ClusterDecision, ClusterJudge, ClusterSeen},
};

use super::leases::{MayServe, SeenStore, now, time};
use super::peer::ASK_TIMEOUT;
use super::store::{AUTO_FAILOVER_KEY, ORCHESTRATOR_KEY, Store};

/// The number of times that an edit is tried, as other edits come first.
const ATTEMPTS: usize = 10;
/// The longest wait for the end of a lease before the clock is read again.
const LEASE_PAUSE: Duration = Duration::from_millis(50);

/// The state of automatic failover on a node, and its settings.
pub(super) struct FailoverControl {
    store: Arc<Store>,
    registry: Arc<BucketRegistry>,
    /// The settings of a cluster that has none.
    defaults: AutoFailoverSettings,
    /// The name of this node.
    name: String,
    /// The UUID of this process.
    pub(super) process: String,
    /// The office of the orchestrator, for this process.
    pub(super) office: Office,
    /// The leases of the members, and what else of the store the orchestrator acts on.
    pub(super) seen: RankedMutex<ClusterSeen, SeenStore>,
    pub(super) seen_changed: RankedCondvar,
    /// The last decision.
    pub(super) decision: RankedMutex<ClusterDecision, AutoFailoverStatus>,
    /// The judge of this node's disk.
    judge: RankedMutex<ClusterJudge, DiskJudge>,
}

impl FailoverControl {
    /// Creates the state of a process with that UUID, of the node with that name, which has seen nothing. `timeout` is that of
    /// a cluster without settings.
    pub(super) fn new(
        store: Arc<Store>,
        registry: Arc<BucketRegistry>,
        (name, process): (&str, String),
        timeout: Duration,
    ) -> Self {
        let mut defaults = AutoFailoverSettings::default();
        let seconds = timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0);
        defaults.timeout = u32::try_from(seconds).unwrap_or(defaults.timeout);
        Self {
            store,
            registry,
            name: name.to_owned(),
            office: Office::new(ORCHESTRATOR_KEY, name, process.as_str()),
            process,
            seen: RankedMutex::new(SeenStore::new(defaults.clone())),
            defaults,
            seen_changed: RankedCondvar::new(),
            decision: RankedMutex::default(),
            judge: RankedMutex::default(),
        }
    }

    /// Returns the settings of automatic failover.
    ///
    /// # Errors
    /// `Store`.
    pub(super) fn settings(&self) -> Result<AutoFailoverSettings, ChangeError> {
        Ok(self.stored()?.1)
    }

    /// Reads the settings, with the condition that they are unchanged.
    fn stored(&self) -> Result<(Compare, AutoFailoverSettings), ChangeError> {
        let store = |error: CoordinationError| ChangeError::Store(error.to_string());
        let snapshot = self.store.read_prefix(AUTO_FAILOVER_KEY);
        let snapshot = snapshot.map_err(store)?;
        let key = AUTO_FAILOVER_KEY.to_owned();
        Ok(match snapshot.entry(AUTO_FAILOVER_KEY) {
            Some(entry) => (
                Compare::Unchanged(key, entry.mod_revision),
                AutoFailoverSettings::from_json(&entry.value)?,
            ),
            None => (Compare::Absent(key), self.defaults.clone()),
        })
    }

    /// Changes the settings of automatic failover, and returns the new ones.
    ///
    /// # Errors
    /// `Fields`, `Store`; `Raced` after too many other edits.
    pub(super) fn edit(
        &self,
        edit: &AutoFailoverEdit,
    ) -> Result<AutoFailoverSettings, ChangeError> {
        for _ in 0..ATTEMPTS {
            let (unchanged, settings) = self.stored()?;
            let next = edit.apply(&settings).map_err(ChangeError::Fields)?;
            if next == settings {
                return Ok(next);
            }
            let put = Transaction::new()
                .when(unchanged)
                .put(AUTO_FAILOVER_KEY, next.to_json());
            match self.store.transact(&put) {
                Ok(_) => return Ok(next),
                // It is read again: made, it changes nothing.
                Err(CoordinationError::Conflict(_) | CoordinationError::OutcomeUnknown(_)) => {}
                Err(error) => return Err(ChangeError::Store(error.to_string())),
            }
        }
        Err(ChangeError::Raced)
    }

    /// Returns the token of the orchestrator's office; `None` unless this process holds it and its own lease, as far as it has
    /// seen.
    pub(super) fn held_office(&self) -> Option<Revision> {
        let at = now();
        let seen = self.seen.lock();
        if !seen.is_read() || !seen.is_held_by(at, &self.name, &self.process) {
            return None;
        }
        match seen.office_step(at, &self.office) {
            OfficeStep::Hold { token } => Some(token),
            OfficeStep::Take(_) | OfficeStep::Wait(_) => None,
        }
    }

    /// Returns the condition that this node is the orchestrator still; `None` if it is not, as far as it has seen.
    pub(super) fn in_office(&self) -> Option<Compare> {
        Some(self.office.guard(self.held_office()?))
    }

    /// Returns the last decision about automatic failovers.
    pub(super) fn status(&self) -> AutoFailoverStatus {
        self.decision.lock().clone()
    }

    /// Returns the health of this node, by the calls of its disk.
    pub(super) fn health(&self) -> NodeHealth {
        let buckets = self.registry.list();
        let samples = buckets.iter().map(|bucket| sample(bucket.disk_calls()));
        let sample = samples.fold(DiskSample::default(), DiskSample::plus);
        let mut judge = self.judge.lock();
        NodeHealth {
            disk: judge.judge(time(now()), sample),
            follows: None,
        }
    }

    /// Promises a node not to fail it over for a time. Never waits.
    ///
    /// # Errors
    /// `Refused`.
    pub(super) fn promise(&self, name: &str, request: PromiseRequest) -> Result<(), ChangeError> {
        let promised = self.seen.lock().promise(now(), name, request);
        promised.map_err(|error| ChangeError::Refused(error.to_string()))
    }

    /// Waits until the leases of the members that have one show that they follow a map, or a later one: its new members may
    /// fail them over then.
    pub(super) fn await_followers(&self, map: &ClusterMap, deadline: Instant) {
        let names: Vec<&str> = map.members().map(|node| map.name(node)).collect();
        let mut seen = self.seen.lock();
        while names
            .iter()
            .any(|name| seen.is_behind(now(), name, map.revision))
            && Instant::now() < deadline
        {
            self.seen_changed.wait_for(&mut seen, LEASE_PAUSE);
        }
    }

    /// Ends the lease of a member whose process serves no more. Waits for the end of the lease, and of this node's promise.
    ///
    /// # Errors
    /// `Map` for an unknown node, `Alive` when the lease is renewed, `Refused` when the process may serve by promises, `Store`.
    pub(super) fn release_lease(
        &self,
        (map, me): (&ClusterMap, u16),
        name: &str,
    ) -> Result<(), ChangeError> {
        map.node(name)?;
        if !map.is_member(me) {
            return Err(ChangeError::Refused("this node is no member".to_owned()));
        }
        let end = self.await_end_of_lease((map, me), name, WhenAlive::Keep, false)?;
        match self.store.transact(&end) {
            Ok(_) => Ok(()),
            Err(CoordinationError::Conflict(_)) => Err(ChangeError::Alive(name.to_owned())),
            Err(error) => Err(ChangeError::Store(error.to_string())),
        }
    }

    /// Waits until a node serves no more whose place is to be taken, and returns the compare of that and the end of its record.
    /// `map` is to be replaced, and `me` is this node. A user who accepts losses vouches that a node without a record serves by no
    /// promises of former members.
    pub(super) fn await_end_of_lease(
        &self,
        (map, me): (&ClusterMap, u16),
        name: &str,
        when_alive: WhenAlive,
        accepts_losses: bool,
    ) -> Result<Transaction, ChangeError> {
        let mut seen = self.seen.lock();
        // Its promises end as well.
        seen.withhold_promises(name);
        let lease_time = seen.lost_time();
        let first = seen.renewed(name);
        drop(seen);
        let joined = match accepts_losses {
            true => i64::MAX,
            false => map.node(name).map_or(0, |node| joined_rev(map, node)),
        };
        // A lease that was renewed just now ends, and then one that is taken, or a promise.
        let deadline = Instant::now() + lease_time * 2 + ASK_TIMEOUT;
        loop {
            let mut seen = self.seen.lock();
            let is_member_since = |rev| map.is_member_since(me, rev);
            let why = match seen.end(now(), name, joined, is_member_since) {
                Ok(ended) => return Ok(ended),
                Err(why) => why,
            };
            let is_renewed = why == MayServe::Lease && seen.renewed(name) != first;
            let is_kept = is_renewed && when_alive == WhenAlive::Keep;
            if why == MayServe::NewMember || is_kept || Instant::now() >= deadline {
                return Err(match why {
                    MayServe::Lease => ChangeError::Alive(name.to_owned()),
                    MayServe::Lost | MayServe::Promise | MayServe::NewMember => {
                        ChangeError::Refused(format!(
                            "node \"{name}\" cannot be failed over: {why}"
                        ))
                    }
                });
            }
            let revokes = match when_alive {
                WhenAlive::Keep => false,
                // The lease of a node that is lost ends sooner by itself.
                WhenAlive::Revoke => is_renewed,
                WhenAlive::RevokeAtOnce => why == MayServe::Lease,
            };
            let Some(revocation) = seen.revocation(name).filter(|_| revokes) else {
                self.seen_changed.wait_for(&mut seen, LEASE_PAUSE);
                continue;
            };
            drop(seen);
            tracing::warn!(
                node = name,
                "the lease is taken from a node that is failed over"
            );
            match self.store.transact(&revocation) {
                // It was renewed in the meantime: the watch shows its new record.
                Ok(_) | Err(CoordinationError::Conflict(_)) => {}
                Err(error) => return Err(ChangeError::Store(error.to_string())),
            }
            let mut seen = self.seen.lock();
            self.seen_changed.wait_for(&mut seen, LEASE_PAUSE);
        }
    }
}

/// The treatment of a node that renews its lease while the end of that is awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WhenAlive {
    /// It keeps its lease.
    Keep,
    /// It loses its lease.
    Revoke,
    /// It loses its lease before it has renewed that.
    RevokeAtOnce,
}

fn sample(calls: DiskCalls) -> DiskSample {
    DiskSample {
        reads: calls.reads,
        failed_reads: calls.failed_reads,
        writes: calls.writes,
        failed_writes: calls.failed_writes,
        slow: calls.slow,
        slow_in_flight: calls.slow_in_flight,
        oldest_in_flight: calls.oldest_in_flight,
    }
}
