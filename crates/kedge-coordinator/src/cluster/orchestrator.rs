//! The thread "kedge-orchestrator": watches the leases of the members, holds the office of the orchestrator if it gets it,
//! and fails nodes over automatically. The thread "kedge-replicas" of the orchestrator executes rebalances, see
//! [`super::replicas`].
//!
//! Each node runs the thread, so that any of them can take the office over with what it has seen. The decisions are those of
//! [`kedge_cluster::AutoFailover`].
//!
//! Invariants:
//! * A node is replaced in the map by one transaction. It compares that the node has not renewed its lease since that was
//!   seen to have ended, that this node is still the orchestrator, that the settings and the map are the same.
//! * A node that lives is deposed only if its vBuckets can be taken over without a loss.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use kedge_cluster::{
    AutoFailover, ClusterError, ClusterMap, ClusterObservation, Decision, DownCause, DownNode,
    FailoverAttempt, FailoverPlan, MemberObservation, NodePositions, Refusal, joined_rev,
    lacks_durability_majority, plan_automatic_failover,
};
use kedge_coordination::lease::OfficeStep;
use kedge_coordination::{
    CoordinationError, Moment, ReadAgain, Revision, Transaction, Watch, WatchEvent,
};

use super::auto_failover::FailoverControl;
use super::begin::{new_attempt, stamped};
use super::followed::Followed;
use super::leases::{MayServe, now, time};
use super::peers::Peers;
use super::store::{AUTO_FAILOVER_KEY, ORCHESTRATOR_KEY, PutMap, Store};

/// The longest wait for a change: leases end without one.
const TICK: Duration = Duration::from_millis(100);
/// The pause before the store is read again that could not be read.
const RETRY: Duration = Duration::from_millis(500);
/// The largest number of events that are taken in before the next decision.
const EVENTS_MAX: usize = 10_000;

/// The parts of a node that fails others over.
pub(super) trait FailoverNode: Send + Sync + 'static {
    /// Returns the followed map.
    fn followed(&self) -> &Followed;
    /// Returns the other nodes.
    fn peers(&self) -> &Peers;
    /// Returns the coordination store.
    fn store(&self) -> &Store;
    /// Returns the state of automatic failover.
    fn failovers(&self) -> &FailoverControl;
    /// Sets the time of this node's lease from its next renewal on.
    fn set_lease_time(&self, time: Duration);
    /// Does work while nobody else on this node changes the map.
    fn one_at_a_time<T>(&self, work: impl FnOnce() -> T) -> T;
    /// Returns the positions of the copies of all nodes, except those to remove, which nobody follows any more then: they are
    /// fenced for the attempt.
    fn gather(
        &self,
        map: &ClusterMap,
        without: &[u16],
        attempt: FailoverAttempt,
    ) -> BTreeMap<u16, NodePositions>;
    /// Returns the positions of the copies of all nodes but some.
    fn ask_positions(&self, map: &ClusterMap, without: &[u16]) -> BTreeMap<u16, NodePositions>;
    /// Lifts the fences of an attempt on all nodes, because it was given up.
    fn lift_all_fences(&self, map: &ClusterMap, attempt: FailoverAttempt);
}

/// The state of the thread.
struct Orchestrator {
    watch: Option<Box<dyn Watch>>,
    /// The moment since which the watch cannot reach the store.
    failing_since: Option<Moment>,
    /// The moment at which the changes of the store were taken in.
    followed_at: Moment,
    /// The moment until which others are to have the office, as this process was paused.
    unfit_until: Moment,
    machine: AutoFailover,
    /// The last decision that was logged: the nodes, and the reason.
    said: (Vec<String>, &'static str),
}

/// Returns the pause of this process after which it does not know whether others were paused too.
fn tolerated_pause(node: &impl FailoverNode) -> Duration {
    node.failovers().seen.lock().settings().settings.timeout() / 2
}

/// Runs until the server ends.
pub(super) fn run<N: FailoverNode>(node: &Weak<N>) {
    let alive = |node: &Weak<N>| node.upgrade().filter(|node| !node.followed().is_stopping());
    let Some(first) = alive(node) else {
        return;
    };
    let mut orchestrator = Orchestrator {
        watch: None,
        failing_since: None,
        followed_at: now(),
        unfit_until: Moment::default(),
        machine: AutoFailover::default(),
        said: (Vec::new(), ""),
    };
    let mut lease_time = first.failovers().seen.lock().settings().settings.timeout();
    drop(first);
    while let Some(node) = alive(node) {
        let is_read = orchestrator.follow(&*node);
        let timeout = node.failovers().seen.lock().settings().settings.timeout();
        if is_read && std::mem::replace(&mut lease_time, timeout) != timeout {
            node.set_lease_time(timeout);
        }
        orchestrator.followed_at = now();
        orchestrator.act(&*node);
        drop(node);
        if !is_read {
            // The watch that waits for changes is not open.
            std::thread::sleep(RETRY);
        }
    }
}

impl Orchestrator {
    /// Takes in what has changed in the store, and returns whether the watch is open.
    fn follow(&mut self, node: &impl FailoverNode) -> bool {
        if self.watch.is_none() && !self.read(node) {
            return false;
        }
        let mut wait = TICK;
        for _ in 0..EVENTS_MAX {
            let Some(watch) = &mut self.watch else {
                return false;
            };
            let began = now();
            let event = watch.next(wait);
            let came = now();
            if came.since(began) > wait + tolerated_pause(node) {
                self.was_paused(node);
                return false;
            }
            match event {
                Ok(event) => {
                    self.failing_since = None;
                    let Some(event) = event else {
                        return true;
                    };
                    self.take_in(node, came, event);
                }
                // There was hardly any time to wait.
                Err(_) if wait.is_zero() => return true,
                Err(_) => {
                    let since = *self.failing_since.get_or_insert(came);
                    if came.since(since) < tolerated_pause(node) / 2 {
                        return true;
                    }
                    // Nobody may have been able to renew a lease.
                    node.failovers().seen.lock().on_interruption();
                    self.watch = None;
                }
            }
            node.failovers().seen_changed.notify_all();
            wait = Duration::ZERO;
        }
        true
    }

    fn take_in(&mut self, node: &impl FailoverNode, came: Moment, event: WatchEvent) {
        let mut seen = node.failovers().seen.lock();
        match event {
            WatchEvent::Changes { changes, .. } => {
                for change in &changes {
                    seen.on_change(came, change);
                }
            }
            WatchEvent::ReadAgain(why) => {
                seen.on_interruption();
                self.watch = None;
                if why == ReadAgain::WentBackwards {
                    self.machine.store_was_restored();
                }
            }
        }
    }

    /// Reads everything, and watches from there.
    fn read(&mut self, node: &impl FailoverNode) -> bool {
        let snapshot = match node.store().read_all() {
            Ok(snapshot) => snapshot,
            Err(error) => {
                if matches!(error, CoordinationError::WentBackwards { .. }) {
                    self.machine.store_was_restored();
                }
                return false;
            }
        };
        node.failovers().seen.lock().on_snapshot(now(), &snapshot);
        node.failovers().seen_changed.notify_all();
        self.watch = node.store().watch(snapshot.revision()).ok();
        self.watch.is_some()
    }

    /// This process was paused, and the others with it if the machine was: their leases count anew. If only this one was,
    /// another node does better in the office.
    fn was_paused(&mut self, node: &impl FailoverNode) {
        let mut seen = node.failovers().seen.lock();
        seen.on_interruption();
        self.unfit_until = now().plus(seen.settings().settings.timeout());
        self.watch = None;
    }

    /// Takes the office if it is free, and does what is to be done.
    fn act(&mut self, node: &impl FailoverNode) {
        let Some(map) = node.followed().map() else {
            return;
        };
        let Some(me) = node.followed().number(&map).filter(|me| map.is_member(*me)) else {
            node.failovers().decision.lock().is_orchestrator = false;
            // After a graceful failover, or its removal, it lives and keeps its lease.
            if let Some(token) = node.failovers().held_office() {
                self.resign(node, token, "it is no member");
            }
            return;
        };
        let token = self.hold_office(node);
        let at = now();
        if at.since(self.followed_at) > tolerated_pause(node) {
            self.was_paused(node);
            return;
        }
        let observed = observe(node, at, &map, me, token.is_some());
        let decision = self.machine.decide(time(at), &observed);
        self.note(node, token.is_some(), &observed, &decision);
        let Some(token) = token else {
            return;
        };
        match decision {
            Decision::FailOver(nodes) => self.fail_over(node, &map, &nodes, token),
            Decision::Resign(_) => self.resign(node, token, "its disk is in trouble"),
            Decision::Idle | Decision::Wait { .. } | Decision::Refused { .. } => {}
        }
    }

    /// Returns the token of the office; `None` if another node holds it.
    fn hold_office(&self, node: &impl FailoverNode) -> Option<Revision> {
        let at = now();
        let (step, is_fit) = {
            let seen = node.failovers().seen.lock();
            // Who has no lease could not keep the office either.
            if !seen.is_read()
                || !seen.is_held_by(at, node.followed().name(), &node.failovers().process)
            {
                return None;
            }
            let settings = seen.settings().settings;
            let disk = seen.health(node.followed().name()).disk;
            let is_fit = at >= self.unfit_until && disk.trouble(&settings).is_none();
            (seen.office_step(at, &node.failovers().office), is_fit)
        };
        match step {
            OfficeStep::Hold { token } if at < self.unfit_until => {
                self.resign(node, token, "it was paused");
                None
            }
            OfficeStep::Hold { token } => Some(token),
            OfficeStep::Take(take) if is_fit => {
                // The watch shows the outcome.
                if node.store().transact(&take).is_ok() {
                    tracing::info!(
                        node = node.followed().name(),
                        "this node is the orchestrator"
                    );
                }
                None
            }
            OfficeStep::Take(_) | OfficeStep::Wait(_) => None,
        }
    }

    fn resign(&self, node: &impl FailoverNode, token: Revision, why: &str) {
        let resign = Transaction::new()
            .when(node.failovers().office.guard(token))
            .delete(ORCHESTRATOR_KEY);
        match node.store().transact(&resign) {
            Ok(_) => {
                tracing::warn!(why, "this node is the orchestrator no more");
            }
            Err(error) => tracing::warn!(%error, "the office of the orchestrator is not given up"),
        }
    }

    /// Publishes the decision, and logs it once.
    fn note(
        &mut self,
        node: &impl FailoverNode,
        is_orchestrator: bool,
        observed: &ClusterObservation,
        decision: &Decision,
    ) {
        if matches!(decision, Decision::FailOver(_)) {
            // Its outcome is the next decision.
            return;
        }
        let mut shown = node.failovers().decision.lock();
        *shown = shown.after(is_orchestrator, &observed.settings, decision);
        let said = (shown.nodes.clone(), shown.refused);
        drop(shown);
        // A wait is short, and comes before everything else.
        if said == self.said || matches!(decision, Decision::Wait { .. }) {
            return;
        }
        if let Decision::Refused { nodes, reason } = decision
            && is_orchestrator
            && !nodes.is_empty()
        {
            tracing::warn!(
                nodes = nodes.join(", "),
                why = %reason,
                "nodes are down, and are not failed over automatically"
            );
        }
        self.said = said;
    }

    /// Fails nodes over, unless that would lose something.
    fn fail_over(
        &mut self,
        node: &impl FailoverNode,
        map: &Arc<ClusterMap>,
        nodes: &[DownNode],
        token: Revision,
    ) {
        let alive: Vec<&DownNode> = nodes.iter().filter(|it| !it.lease_ended).collect();
        let done = match alive.is_empty() {
            true => node.one_at_a_time(|| self.replace(node, map, nodes, token)),
            false => depose(node, map, nodes, &alive),
        };
        if let Err(reason) = done {
            self.machine.was_set_back(time(now()), nodes, reason);
        }
    }

    /// Replaces nodes whose leases have ended.
    fn replace(
        &self,
        node: &impl FailoverNode,
        map: &ClusterMap,
        nodes: &[DownNode],
        token: Revision,
    ) -> Result<(), Refusal> {
        let began = Instant::now();
        let failed = |why: &dyn std::fmt::Display| Refusal::Failed(why.to_string());
        let stored = node.store().read_map().map_err(|error| failed(&error))?;
        let stored = stored.filter(|stored| stored.map == *map);
        let stored =
            stored.ok_or_else(|| failed(&"this node does not follow the newest map yet"))?;
        let numbers: Vec<u16> = nodes.iter().map(|it| it.node).collect();
        // They are told nothing in vain, and their followers neither.
        ends(node, map, nodes)?;
        let attempt = new_attempt();
        let told = node.gather(map, &numbers, attempt);
        let mut plan =
            plan(node, map, &numbers, &told).inspect_err(|_| node.lift_all_fences(map, attempt))?;
        plan.map = stamped(plan.map);
        let ended = ends(node, map, nodes)?;
        let in_office = node.failovers().office.guard(token);
        let guarded = Transaction::new().when(in_office).and(ended);
        let settings = node.failovers().seen.lock().settings();
        let counted = settings.settings.counted(nodes.len());
        let guarded = guarded
            .when(settings.unchanged)
            .put(AUTO_FAILOVER_KEY, counted.to_json());
        let put = node
            .store()
            .put_map(Some(stored.revision), &plan.map, &guarded);
        match put.map_err(|error| failed(&error))? {
            PutMap::Done => {}
            PutMap::Conflict(_) => {
                node.lift_all_fences(map, attempt);
                return Err(failed(&"another change came first"));
            }
            PutMap::Unknown => return Err(failed(&"the store may have made the change or not")),
        }
        publish(node, &plan, nodes, began);
        Ok(())
    }
}

/// Returns the compares of the ends of leases, and the deletions of their records.
fn ends(
    node: &impl FailoverNode,
    map: &ClusterMap,
    nodes: &[DownNode],
) -> Result<Transaction, Refusal> {
    let me = node.followed().number(map);
    let is_member_since = |rev| me.is_some_and(|me| map.is_member_since(me, rev));
    let mut seen = node.failovers().seen.lock();
    let at = now();
    let mut all = Transaction::new();
    for it in nodes {
        let end = seen.end(at, &it.name, joined_rev(map, it.node), is_member_since);
        all = all.and(end.map_err(|why| match why {
            MayServe::Promise => Refusal::Promised(vec![it.name.clone()]),
            MayServe::Lease | MayServe::Lost | MayServe::NewMember => {
                Refusal::Failed(why.to_string())
            }
        })?);
    }
    Ok(all)
}

/// Takes the leases from nodes that live, if they can be failed over then.
fn depose(
    node: &impl FailoverNode,
    map: &ClusterMap,
    nodes: &[DownNode],
    alive: &[&DownNode],
) -> Result<(), Refusal> {
    let revocations = |it: &&DownNode| {
        let revocation = node.failovers().seen.lock().revocation(&it.name)?;
        Some((it.name.clone(), it.cause, revocation))
    };
    let revocations: Vec<(String, DownCause, Transaction)> = alive
        .iter()
        .copied()
        .filter_map(|it| revocations(&it))
        .collect();
    if revocations.is_empty() {
        // Their leases end soon.
        return Ok(());
    }
    let numbers: Vec<u16> = nodes.iter().map(|it| it.node).collect();
    let told = node.ask_positions(map, &numbers);
    plan(node, map, &numbers, &told)?;
    for (name, cause, revocation) in revocations {
        match node.store().transact(&revocation) {
            Ok(_) => tracing::warn!(
                node = name,
                why = %cause,
                "the lease is taken from a node that is to be failed over"
            ),
            // It was renewed in the meantime, which the watch shows.
            Err(CoordinationError::Conflict(_)) => {}
            Err(error) => return Err(Refusal::Failed(error.to_string())),
        }
    }
    Ok(())
}

/// Plans the failover of nodes.
fn plan(
    node: &impl FailoverNode,
    map: &ClusterMap,
    numbers: &[u16],
    told: &BTreeMap<u16, NodePositions>,
) -> Result<FailoverPlan, Refusal> {
    let member = node.followed().member(map);
    member.map_err(|error| Refusal::Failed(error.to_string()))?;
    let plan = plan_automatic_failover(map, numbers, told);
    let plan = plan.map_err(|error| match error {
        ClusterError::WouldLose(losses) => Refusal::WouldLose(losses),
        ClusterError::LastNode(_) => Refusal::LastNode,
        other => Refusal::Failed(other.to_string()),
    })?;
    let settings = node.failovers().seen.lock().settings().settings;
    let preserves = settings.failover_preserve_durability_majority;
    match preserves && lacks_durability_majority(&plan.map) && !lacks_durability_majority(map) {
        true => Err(Refusal::DurabilityMajority),
        false => Ok(plan),
    }
}

/// Returns the cluster as this node sees it.
fn observe(
    node: &impl FailoverNode,
    at: Moment,
    map: &ClusterMap,
    me: u16,
    is_orchestrator: bool,
) -> ClusterObservation {
    let members: Vec<u16> = map.members().collect();
    let applied: Vec<bool> = members
        .iter()
        .map(|member| has_applied(node, map, me, *member))
        .collect();
    let leaders = map.leaders();
    let mut seen = node.failovers().seen.lock();
    let settings = seen.settings().settings;
    let member = |(number, applied): (u16, bool)| {
        let entry = map.nodes.get(&number)?;
        Some(MemberObservation {
            node: number,
            name: entry.name.clone(),
            group: entry.server_group.clone(),
            lease: seen.seen(at, &entry.name, settings.timeout()),
            health: seen.health(&entry.name),
            applied,
            leads: leaders.contains(&number),
        })
    };
    let members = members
        .into_iter()
        .zip(applied)
        .filter_map(member)
        .collect();
    ClusterObservation {
        me,
        is_orchestrator,
        store_reached: seen.is_read(),
        settings,
        operation: map.running_rebalance().map(|record| record.kind),
        members,
    }
}

/// Returns whether a node has applied the map, as far as is known.
fn has_applied(node: &impl FailoverNode, map: &ClusterMap, me: u16, other: u16) -> bool {
    if other == me {
        return node.followed().applied_revision() >= Some(map.revision);
    }
    let peer = node.peers().get(other);
    peer.is_some_and(|peer| {
        let status = peer.status.lock();
        let about = status.about.as_ref();
        about.is_some_and(|(about, _)| about.applied >= Some(map.revision))
    })
}

/// Follows the map of a failover, and sends it to the other nodes. Nobody waits for them.
fn publish(node: &impl FailoverNode, plan: &FailoverPlan, nodes: &[DownNode], began: Instant) {
    for it in nodes {
        tracing::warn!(
            node = it.name,
            why = %it.cause,
            promoted = plan.promoted,
            rev = plan.map.revision.rev,
            took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
            "a node was failed over automatically"
        );
    }
    node.failovers().decision.lock().failovers += nodes.len() as u64;
    if let Err(error) = node.followed().adopt(plan.map.clone()) {
        // The store has it. The thread "kedge-store" tries again.
        tracing::error!(%error, "this node does not follow a map that it made");
    }
    node.peers().offer(&Arc::new(plan.map.clone()));
}
