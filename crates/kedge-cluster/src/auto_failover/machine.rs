//! The decisions about automatic failovers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::outage::Outage;
use super::{ClusterObservation, DownCause, LeaseSeen, MemberObservation, Refusal};

/// The pause before a failover that was refused or has failed is planned again.
const RETRY: Duration = Duration::from_secs(1);

/// A node that is down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DownNode {
    /// The number.
    pub node: u16,
    /// The name.
    pub name: String,
    /// The reason why it counts as down.
    pub cause: DownCause,
    /// True if its lease has certainly ended. Otherwise it has to stop serving before another node is promoted.
    pub lease_ended: bool,
}

/// A decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// No node is down.
    Idle,
    /// Nodes are late with their leases; nothing is decided before the time `until`.
    Wait {
        /// Their names.
        nodes: Vec<String>,
        /// The time of the next decision, if nothing is observed before.
        until: Duration,
    },
    /// The nodes are down, and are not failed over.
    Refused {
        /// Their names.
        nodes: Vec<String>,
        /// The reason.
        reason: Refusal,
    },
    /// This node is down, by its own disk: it gives the office of the orchestrator up, so that another fails it over.
    Resign(DownCause),
    /// The nodes have to be failed over, all in one change of the map.
    FailOver(Vec<DownNode>),
}

impl Decision {
    /// Returns the names of the nodes that it is about.
    #[must_use]
    pub fn nodes(&self) -> Vec<String> {
        match self {
            Decision::Idle | Decision::Resign(_) => Vec::new(),
            Decision::Wait { nodes, .. } | Decision::Refused { nodes, .. } => nodes.clone(),
            Decision::FailOver(nodes) => nodes.iter().map(|it| it.name.clone()).collect(),
        }
    }
}

/// A failover that was refused when it was planned, or failed.
#[derive(Clone, Debug)]
struct SetBack {
    nodes: BTreeSet<u16>,
    reason: Refusal,
    retry_at: Duration,
}

/// The state of automatic failover on a node. It exists on each member; only that of the orchestrator decides.
#[derive(Clone, Debug, Default)]
pub struct AutoFailover {
    outages: BTreeMap<u16, Outage>,
    /// The members that were seen to renew their leases since the start of this process.
    known: BTreeSet<u16>,
    /// True from a restore of the store until all members live and have applied the map.
    restored: bool,
    /// The last time at which this node's own renewals were late.
    slow_store: Option<Duration>,
    set_back: Option<SetBack>,
}

impl AutoFailover {
    /// Notes that the store went backwards: nothing is decided until every member has renewed its lease and has applied the
    /// map.
    pub fn store_was_restored(&mut self) {
        self.restored = true;
        self.outages.clear();
    }

    /// Notes that the planned failover of these nodes was refused or has failed at the time `now`.
    pub fn was_set_back(&mut self, now: Duration, nodes: &[DownNode], reason: Refusal) {
        self.set_back = Some(SetBack {
            nodes: nodes.iter().map(|it| it.node).collect(),
            reason,
            retry_at: now + RETRY,
        });
    }

    /// Notes what is observed at the time `now`, which never goes backwards, and decides.
    pub fn decide(&mut self, now: Duration, observed: &ClusterObservation) -> Decision {
        if !observed.store_reached {
            // The gaps are those of this node.
            self.outages.clear();
            return Decision::Refused {
                nodes: Vec::new(),
                reason: Refusal::StoreUnreachable,
            };
        }
        self.note(now, observed);
        let down = self.down(now, observed);
        let late = self.late(now, observed, &down);
        if down.is_empty() {
            return late.map_or(Decision::Idle, |(nodes, until)| Decision::Wait {
                nodes,
                until,
            });
        }
        if let Some(reason) = self.not_ready(now, observed) {
            return refused(&down, reason);
        }
        if down.len() == observed.members.len() {
            return refused(&down, Refusal::LastNode);
        }
        if let Some(own) = down.iter().find(|it| it.node == observed.me) {
            return Decision::Resign(own.cause);
        }
        if let Some((nodes, until)) = late {
            return Decision::Wait { nodes, until };
        }
        self.choose(now, observed, down)
    }

    /// Decides about nodes that are down, while all others are up.
    fn choose(
        &self,
        now: Duration,
        observed: &ClusterObservation,
        down: Vec<DownNode>,
    ) -> Decision {
        let leads = |it: &DownNode| {
            let mut members = observed.members.iter();
            members.any(|member| member.node == it.node && member.leads)
        };
        let (mut down, others): (Vec<DownNode>, Vec<DownNode>) = down.into_iter().partition(leads);
        if down.is_empty() {
            return refused(&others, Refusal::NoActives);
        }
        let groups = groups(observed, &down);
        if groups.len() > 1 {
            return refused(&down, Refusal::SeveralGroups(groups));
        }
        let settings = &observed.settings;
        let left = settings.left();
        if left == 0 {
            return refused(&down, Refusal::MaximumReached(settings.max_count));
        }
        down.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        let operation = observed.operation;
        if let Some(operation) = operation.filter(|_| !settings.can_abort_rebalance) {
            return refused(&down, Refusal::Operation(operation));
        }
        let nodes: BTreeSet<u16> = down.iter().map(|it| it.node).collect();
        let waits = |it: &&SetBack| it.nodes == nodes && now < it.retry_at;
        match self.set_back.as_ref().filter(waits) {
            Some(set_back) => refused(&down, set_back.reason.clone()),
            None => Decision::FailOver(down),
        }
    }

    /// Returns the reason why this node may not decide at all.
    fn not_ready(&self, now: Duration, observed: &ClusterObservation) -> Option<Refusal> {
        if !observed.is_orchestrator {
            return Some(Refusal::NotOrchestrator);
        }
        if !observed.settings.enabled {
            return Some(Refusal::Disabled);
        }
        self.restored
            .then(|| Refusal::StoreRestored(members_behind(now, observed)))
    }

    fn note(&mut self, now: Duration, observed: &ClusterObservation) {
        let members = || observed.members.iter();
        let timeout = observed.settings.timeout();
        if let Some(own) = members().find(|member| member.node == observed.me)
            && let Some(outage) = self.outages.get(&own.node)
            && outage.was_late(now, &own.lease)
        {
            self.slow_store = Some(now);
        }
        let is_member = |node: &u16| members().any(|member| member.node == *node);
        self.outages.retain(|node, _| is_member(node));
        self.known.retain(is_member);
        for member in members() {
            let is_known = self.known.contains(&member.node);
            let outage = self.outages.entry(member.node);
            let outage = outage.or_insert_with(|| Outage::new(now, &member.lease, is_known));
            if outage.note(now, &member.lease, timeout, self.slow_store) {
                self.known.insert(member.node);
            }
        }
        self.restored &= !members_behind(now, observed).is_empty();
    }

    /// Returns the members that are late with their leases and not down, and the time until which they may be.
    fn late(
        &self,
        now: Duration,
        observed: &ClusterObservation,
        down: &[DownNode],
    ) -> Option<(Vec<String>, Duration)> {
        let is_down = |node: u16| down.iter().any(|it| it.node == node);
        let members = observed.members.iter();
        let late = members.filter(|member| {
            let is_other = member.node != observed.me && !is_down(member.node);
            is_other && Outage::is_late(now, &member.lease)
        });
        let late: Vec<&MemberObservation> = late.collect();
        let down_at = |member: &&MemberObservation| {
            let outage = self.outages.get(&member.node);
            outage.map(|outage| outage.down_at(&member.lease))
        };
        let until = late.iter().filter_map(down_at).min()?;
        Some((late.iter().map(|it| it.name.clone()).collect(), until))
    }

    fn down(&self, now: Duration, observed: &ClusterObservation) -> Vec<DownNode> {
        let settings = &observed.settings;
        let down = |member: &MemberObservation| {
            let outage = self.outages.get(&member.node)?;
            let disk = member.health.disk.trouble(settings);
            let disk = disk.map(|(trouble, lasted)| DownCause::Disk(trouble, lasted));
            let cause = outage.cause(now, &member.lease, settings.timeout());
            // This node is alive, whatever it sees of its own lease.
            let cause = cause.filter(|_| member.node != observed.me);
            Some(DownNode {
                node: member.node,
                name: member.name.clone(),
                cause: cause.or(disk)?,
                lease_ended: now >= member.lease.ends(),
            })
        };
        observed.members.iter().filter_map(down).collect()
    }
}

fn refused(down: &[DownNode], reason: Refusal) -> Decision {
    Decision::Refused {
        nodes: down.iter().map(|it| it.name.clone()).collect(),
        reason,
    }
}

/// Returns the server groups of these nodes.
fn groups(observed: &ClusterObservation, down: &[DownNode]) -> Vec<String> {
    let members = observed.members.iter();
    let of = members.filter(|member| down.iter().any(|it| it.node == member.node));
    let groups: BTreeSet<&str> = of.map(|member| member.group.as_str()).collect();
    groups.into_iter().map(str::to_owned).collect()
}

/// Returns the members that have not shown since the store was restored that they live and follow the map.
fn members_behind(now: Duration, observed: &ClusterObservation) -> Vec<String> {
    let members = observed.members.iter();
    let behind = members.filter(|member| {
        let is_held = matches!(member.lease, LeaseSeen::Held { .. });
        !is_held || !member.applied || Outage::is_late(now, &member.lease)
    });
    behind.map(|member| member.name.clone()).collect()
}
