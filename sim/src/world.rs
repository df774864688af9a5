//! The cluster and its history.

use crate::change::MapChange;
use crate::clients::{Clients, SimKey, number};
use crate::control::Times;
use crate::map::{SimMap, name};
use crate::network::Network;
use crate::node::SimNode;
use crate::plan::HistoryPlan;
use crate::service::{CommittedMap, SimStore};
use crate::trace::{self, note};
use kedge_bucket::{Completion, Cookie, DocumentRef, Outcome, Read};
use kedge_cluster::Revision;
use kedge_coordination::Transaction;
use kedge_disk::Rng;
use kedge_types::{Cas, Now, Seqno, Status, VbId, VbUuid};
use kedge_vbucket::VbState;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::AddAssign;
use std::time::Duration;

/// The start time of histories.
const BEGIN_UNIX_NS: u64 = 1_700_000_000_000_000_000;
/// The number of rounds without faults in which the cluster must become idle.
const HEALING_ROUNDS: u64 = 20_000;
/// The number of rounds in which all nodes follow and all work is done, also work that waits for the disk.
const QUIET_ROUNDS: u64 = 1_500;
/// The largest error of a wall clock: 2 hours.
const CLOCK_WRONG_NS_MAX: u64 = 2 * 3_600 * 1_000_000_000;
/// The number of turns within which a document that is only on disk is read.
const FETCH_TURNS: usize = 100;
/// A slice of a longer time, and the limit of their number.
const LONG_SLICE: Duration = Duration::from_millis(10);
const LONG_SLICES_MAX: u64 = 24;
/// The number of rounds within which a vBucket is served.
const SERVED_ROUNDS: usize = 2_000;
/// The cookie of reads that no client makes.
const READ_COOKIE: Cookie = Cookie(u64::MAX);

/// The figures of a history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// SyncWrites that succeeded.
    pub acknowledged: u64,
    /// SyncWrites with an unknown outcome.
    pub unknown: u64,
    /// Processes that were killed.
    pub kills: u64,
    /// Nodes that were failed over.
    pub failovers: u64,
    /// vBuckets that were taken over from a running node.
    pub takeovers: u64,
    /// Rollbacks of vBuckets.
    pub rollbacks: u64,
    /// Broken connections and links.
    pub cuts: u64,
    /// Evicted values and documents.
    pub evictions: u64,
    /// Changes of a node's wall clock.
    pub clocks_set: u64,
    /// Slowdowns of a disk.
    pub slow_disks: u64,
    /// Changes of the number of replicas.
    pub resizes: u64,
    /// Rebalances over other nodes.
    pub rebalances: u64,
    /// Drains.
    pub drains: u64,
    /// Graceful failovers that were finished.
    pub graceful_failovers: u64,
    /// Failed-over nodes that came back and discarded their copies.
    pub empty_returns: u64,
    /// Failed-over nodes that came back.
    pub returns: u64,
    /// vBuckets with which such a node had caught up.
    pub joins: u64,
    /// Restored backups of the store.
    pub restores: u64,
    /// Restored backups without the leases of nodes that may serve.
    pub lost_leases: u64,
    /// Changes of a restored store by nodes that know an older map only.
    pub branches: u64,
    /// Paused processes.
    pub pauses: u64,
    /// Processes that were ended by their watchdogs.
    pub watchdogs: u64,
    /// Outages of the store for all nodes.
    pub outages: u64,
    /// Nodes that lost their disks, or the directories of their buckets.
    pub lost_disks: u64,
    /// Rounds in which all others have promised a node not to fail it over.
    pub promises: u64,
    /// Nodes that were added.
    pub additions: u64,
    /// Nodes that were removed.
    pub removals: u64,
    /// Maps in which a node has taken several vBuckets over.
    pub joint_takeovers: u64,
}

impl AddAssign for Summary {
    fn add_assign(&mut self, other: Self) {
        let Self {
            acknowledged,
            unknown,
            kills,
            failovers,
            takeovers,
            rollbacks,
            cuts,
            evictions,
            clocks_set,
            slow_disks,
            resizes,
            rebalances,
            drains,
            graceful_failovers,
            empty_returns,
            returns,
            joins,
            restores,
            lost_leases,
            branches,
            pauses,
            watchdogs,
            outages,
            lost_disks,
            promises,
            additions,
            removals,
            joint_takeovers,
        } = other;
        self.acknowledged += acknowledged;
        self.unknown += unknown;
        self.kills += kills;
        self.failovers += failovers;
        self.takeovers += takeovers;
        self.rollbacks += rollbacks;
        self.cuts += cuts;
        self.evictions += evictions;
        self.clocks_set += clocks_set;
        self.slow_disks += slow_disks;
        self.resizes += resizes;
        self.rebalances += rebalances;
        self.drains += drains;
        self.graceful_failovers += graceful_failovers;
        self.empty_returns += empty_returns;
        self.returns += returns;
        self.joins += joins;
        self.restores += restores;
        self.lost_leases += lost_leases;
        self.branches += branches;
        self.pauses += pauses;
        self.watchdogs += watchdogs;
        self.outages += outages;
        self.lost_disks += lost_disks;
        self.promises += promises;
        self.additions += additions;
        self.removals += removals;
        self.joint_takeovers += joint_takeovers;
    }
}

/// A cluster.
pub struct World {
    seed: u64,
    pub(crate) plan: HistoryPlan,
    pub(crate) rng: Rng,
    /// The right time, which no node knows.
    unix_ns: u64,
    pub(crate) nodes: Vec<SimNode>,
    /// The number of starts of each node.
    pub(crate) starts: Vec<u64>,
    pub(crate) network: Network,
    pub(crate) store: SimStore,
    /// The newest map of the store, which each node learns of late, and which it gets back after the restore of a backup.
    pub(crate) map: SimMap,
    /// All maps that the store had, by revision.
    maps: BTreeMap<Revision, SimMap>,
    clients: Clients,
    /// Nodes that have lost data which counts: each is failed over before it starts again.
    pub(crate) lost: BTreeSet<usize>,
    /// For each replica, true if it has had everything of its active since its last loss.
    pub(crate) in_step: BTreeMap<(VbId, usize), bool>,
    /// The number of attempts of failovers, of which each has a number.
    pub(crate) failovers_tried: u64,
    /// The highest seqno and CAS of each branch at its active.
    highest: BTreeMap<(VbId, VbUuid), (Seqno, Cas)>,
    /// True once nothing fails any more.
    pub(crate) heals: bool,
    pub(crate) summary: Summary,
}

impl World {
    /// Creates the cluster of a seed, without events.
    #[must_use]
    pub fn new(seed: u64, plan: &HistoryPlan) -> Self {
        let begin = Now {
            unix_ns: BEGIN_UNIX_NS,
            mono_ns: 1_000_000_000,
        };
        let mut rng = Rng::new(seed);
        let map = SimMap::new(plan.vbuckets, plan.nodes, plan.replicas);
        let nodes =
            (0..plan.all_nodes()).map(|number| SimNode::new(number, plan, &map, begin, rng.next()));
        let nodes = nodes.collect();
        Self {
            seed,
            plan: plan.clone(),
            rng,
            unix_ns: begin.unix_ns,
            nodes,
            starts: vec![0; plan.all_nodes()],
            network: Network::default(),
            store: SimStore::new(plan.store_members, &map),
            maps: BTreeMap::from([(map.revision(), map.clone())]),
            map,
            clients: Clients::new(plan),
            lost: BTreeSet::new(),
            in_step: BTreeMap::new(),
            failovers_tried: 0,
            highest: BTreeMap::new(),
            heals: false,
            summary: Summary::default(),
        }
    }

    /// Runs the history to its end.
    ///
    /// # Errors
    /// The violation, with the seed.
    pub fn run(mut self) -> Result<Summary, String> {
        let seed = self.seed;
        trace::set_time(0);
        note!("cluster", "seed {seed}: {:?}", self.plan);
        self.live().map_err(|wrong| {
            format!(
                "KEDGE_SEED={seed}: {wrong}\n{:?}\n{:?}",
                self.plan, self.summary
            )
        })?;
        self.summary.acknowledged = self.clients.acknowledged;
        self.summary.unknown = self.clients.unknown;
        Ok(self.summary)
    }

    fn live(&mut self) -> Result<(), String> {
        for node in 0..self.nodes.len() {
            self.start(node)?;
        }
        for _ in 0..self.plan.steps {
            self.step()?;
            self.look()?;
        }
        self.heal()?;
        self.compare()?;
        self.clients.judge().map_or(Ok(()), Err)
    }

    pub(crate) fn start(&mut self, node: usize) -> Result<(), String> {
        if self.nodes[node].process.is_some() || self.lost.contains(&node) {
            return Ok(());
        }
        self.nodes[node].start()?;
        self.starts[node] += 1;
        Ok(())
    }

    /// Lets the store execute what has arrived.
    fn coordinate(&mut self) -> Result<(), String> {
        for committed in self.store.work(self.unix_ns, &mut self.rng) {
            self.committed(committed)?;
        }
        Ok(())
    }

    /// Lets a node do its part in the coordination of the cluster.
    fn coordinate_node(&mut self, node: usize) {
        let (store, network) = (&mut self.store, &mut self.network);
        let rng = &mut self.rng;
        self.summary.promises += self.nodes[node].coordinate(self.unix_ns, store, network, rng);
        let control = self.nodes[node].process.as_mut().map(|it| &mut it.control);
        let given_up = control.map(|control| std::mem::take(&mut control.given_up_failovers));
        for attempt in given_up.unwrap_or_default() {
            self.lift_fences(node, attempt);
        }
        self.fail_over_down(node);
    }

    /// Sends a change that was planned from the map of a node's view.
    pub(crate) fn send_change(
        &mut self,
        node: usize,
        change: MapChange,
        guarded: Transaction,
        next: &SimMap,
    ) {
        let times = self.times(node);
        if let Some(process) = &mut self.nodes[node].process {
            let control = &mut process.control;
            control.send_change(times, change, guarded, next, &mut self.store, &mut self.rng);
        }
    }

    /// Returns the right time.
    pub(crate) fn unix_ns(&self) -> u64 {
        self.unix_ns
    }

    /// Returns the present times of a node.
    pub(crate) fn times(&self, node: usize) -> Times {
        self.nodes[node].times(self.unix_ns)
    }

    /// Asks a node to make a change.
    pub(crate) fn request(&mut self, node: usize, change: MapChange) {
        if let Some(process) = &mut self.nodes[node].process {
            process.control.request(change);
        }
    }

    /// Notes a change of the map in the store.
    fn committed(&mut self, committed: CommittedMap) -> Result<(), String> {
        let CommittedMap { map, mut change } = committed;
        let (is, was) = (map.revision(), self.map.revision());
        if map == self.map {
            note!("store", "{change}");
            return Ok(());
        }
        if !map.continues(&self.map) {
            if self.summary.restores == 0 {
                return Err(format!("{map:?} does not continue {:?}", self.map));
            }
            // A node without the newest map has changed the restored one. The others put theirs over it.
            note!("store", "{change}, of another branch: {}", map.brief());
            self.summary.branches += 1;
            return Ok(());
        }
        if is <= was {
            return Err(format!(
                "the map of the store goes back from {was:?} to {is:?}"
            ));
        }
        let same = self.maps.entry(is).or_insert_with(|| map.clone());
        if *same != map {
            return Err(format!("there are two maps {is:?}: {same:?} and {map:?}"));
        }
        if let MapChange::Taken { node, vbuckets } = &mut change {
            // Some may have been given up meanwhile.
            vbuckets.retain(|(vb, start)| self.map.start_of_move(*vb, *node) == Some(*start));
        }
        let before = std::mem::replace(&mut self.map, map);
        note!("store", "{change}: {}", self.map.brief());
        self.note_change(&before, &change);
        Ok(())
    }

    /// Records the effects of a change of the map.
    fn note_change(&mut self, before: &SimMap, change: &MapChange) {
        let with_next = before.with_next();
        for vb in self.map.vbuckets() {
            for replica in self.map.replicas(vb) {
                // The map guarantees the data of every node that it adds to a chain: all others of the chain may be
                // lost from now on.
                if !before.has(vb, replica) {
                    self.in_step.insert((vb, replica), true);
                    self.summary.joins += u64::from(!with_next.contains(&vb));
                }
            }
        }
        let nodes = 0..self.nodes.len();
        let gone = nodes.filter(|node| before.has_node(*node) && !self.map.has_node(*node));
        self.summary.removals += gone.count() as u64;
        match change {
            MapChange::FailOver(nodes, _) => {
                self.summary.failovers += nodes.len() as u64;
                // With the remaining nodes, all others have to catch up before the next loss.
                self.in_step.clear();
            }
            MapChange::Taken { vbuckets, .. } => {
                self.summary.takeovers += vbuckets.len() as u64;
                self.summary.joint_takeovers += u64::from(vbuckets.len() > 1);
                // The former actives have lost nothing, but count only after they have followed.
                self.in_step
                    .retain(|(of, _), _| vbuckets.iter().all(|(vb, _)| vb != of));
            }
            MapChange::Add(_) => self.summary.additions += 1,
            MapChange::Return(_) => self.summary.returns += 1,
            MapChange::ReturnEmpty(_) => self.summary.empty_returns += 1,
            MapChange::Servers(_) | MapChange::Eject(_) => self.summary.rebalances += 1,
            MapChange::Drain(_) => self.summary.drains += 1,
            MapChange::Round => {
                // Other target chains were given up.
                let is_replaced = |vb: &VbId| !self.map.has_same_chain(*vb, before);
                for vb in with_next.into_iter().filter(is_replaced) {
                    self.summary.resizes += 1;
                    for replica in self.map.replicas(vb) {
                        self.in_step.insert((vb, replica), true);
                    }
                }
                if self.map.revision().epoch > before.revision().epoch {
                    self.summary.graceful_failovers += 1;
                    self.in_step.clear();
                }
            }
            _ => {}
        }
    }

    pub(crate) fn any_node(&mut self) -> usize {
        self.rng.below(self.nodes.len() as u64) as usize
    }

    fn step(&mut self) -> Result<(), String> {
        match self.rng.below(1_000) {
            0..300 => {
                let node = self.any_node();
                self.nodes[node].run_one(&mut self.rng);
            }
            300..650 => {
                let node = self.any_node();
                self.nodes[node].pump(&mut self.rng, &mut self.network);
            }
            650..800 => {
                let (nodes, starts) = (&mut self.nodes, &self.starts);
                self.clients.step(&mut self.rng, nodes, starts, &self.map)?;
            }
            800..910 => {
                let us = self.rng.below(8_000);
                self.pass(Duration::from_micros(us));
            }
            910..930 => self.pass_long()?,
            930..950 => {
                self.execute_steps();
                self.fail_over_lost();
            }
            950..972 => {
                let node = self.any_node();
                self.coordinate_node(node);
                self.nodes[node].connect(&mut self.network);
            }
            _ => self.fault(),
        }
        self.bury();
        self.coordinate()?;
        self.finish_moves();
        self.note_steps();
        Ok(())
    }

    /// Lets a longer time pass, in which all nodes work: leases end only after many operations of clients.
    fn pass_long(&mut self) -> Result<(), String> {
        for _ in 0..self.rng.below(LONG_SLICES_MAX) {
            self.pass(LONG_SLICE);
            self.coordinate()?;
            for node in 0..self.nodes.len() {
                if self.rng.below(2) == 0 {
                    self.coordinate_node(node);
                    self.nodes[node].connect(&mut self.network);
                }
                self.nodes[node].pump(&mut self.rng, &mut self.network);
                self.nodes[node].run_one(&mut self.rng);
            }
            self.bury();
            self.note_steps();
            self.look()?;
        }
        Ok(())
    }

    fn pass(&mut self, time: Duration) {
        self.unix_ns += time.as_nanos() as u64;
        trace::set_time(self.unix_ns - BEGIN_UNIX_NS);
        for node in &mut self.nodes {
            node.advance(time);
        }
        for node in 0..self.nodes.len() {
            if self.nodes[node].end_pause(Some(self.unix_ns)) {
                note!(name(node), "is ended by its watchdog");
                self.summary.watchdogs += 1;
                self.kill_process(node, false);
            }
        }
    }

    /// Sets a node's wall clock to a wrong time: further ahead than CAS values of clients may be.
    pub(crate) fn set_clock(&mut self, node: usize) {
        let wrong_ns = self.rng.below(2 * CLOCK_WRONG_NS_MAX);
        let unix_ns = self.unix_ns - CLOCK_WRONG_NS_MAX + wrong_ns;
        note!(name(node), "clock is set to {unix_ns} ns");
        self.nodes[node].set_unix_ns(unix_ns);
        self.summary.clocks_set += 1;
    }

    /// Records the replicas that have everything that their active has.
    fn note_steps(&mut self) {
        for node in 0..self.nodes.len() {
            let went_back = self.nodes[node].take_went_back();
            self.summary.rollbacks += went_back.len() as u64;
            for vb in went_back {
                self.in_step.insert((vb, node), false);
                self.lose_source_of(vb);
            }
        }
        for vb in self.map.vbuckets() {
            let Some(active) = self.map.active(vb) else {
                continue;
            };
            let replicas: Vec<usize> = self.map.replicas(vb).collect();
            for replica in replicas {
                if self.is_same(vb, active, replica) && self.has_all_on_disk(vb, replica) {
                    self.in_step.insert((vb, replica), true);
                }
            }
        }
    }

    /// Returns whether data that a node lost in a rollback is on its disk again, so that it survives a power failure.
    fn has_all_on_disk(&self, vb: VbId, node: usize) -> bool {
        let process = self.nodes[node].process.as_ref();
        let figures = process.and_then(|process| process.bucket.vbucket_figures(vb));
        figures.is_some_and(|figures| figures.persisted_seqno == figures.high_seqno)
    }

    fn is_same(&self, vb: VbId, active: usize, replica: usize) -> bool {
        let facts = |node: usize| {
            let process = self.nodes[node].process.as_ref()?;
            let is_there = process.revision == self.map.revision();
            let figures = process.bucket.vbucket_figures(vb).filter(|_| is_there)?;
            let log = process
                .bucket
                .failover_log(self.nodes[node].ctx(), vb)
                .ok()?;
            Some((figures.state, figures.high_seqno, log.first().copied()))
        };
        match (facts(active), facts(replica)) {
            (Some((VbState::Active, high, log)), Some((VbState::Replica, seqno, other))) => {
                high == seqno && log == other
            }
            _ => false,
        }
    }

    /// Checks that no two nodes serve a vBucket, and that seqnos and CAS of branches do not decrease.
    fn look(&mut self) -> Result<(), String> {
        for vb in self.map.vbuckets() {
            let nodes = self.nodes.iter().filter(|node| node.serves(vb));
            let serving: Vec<usize> = nodes.map(|node| node.number).collect();
            if serving.len() > 1 {
                return Err(format!("vBucket {vb} is served by nodes {serving:?}"));
            }
            let Some(node) = self.map.active(vb) else {
                continue;
            };
            let Some(process) = &self.nodes[node].process else {
                continue;
            };
            let Some(figures) = process.bucket.vbucket_figures(vb) else {
                continue;
            };
            let Ok(log) = process.bucket.failover_log(self.nodes[node].ctx(), vb) else {
                continue;
            };
            if figures.state != VbState::Active || process.revision != self.map.revision() {
                continue;
            }
            let now = (figures.high_seqno, figures.max_cas);
            let highest = self.highest.entry((vb, log[0].0)).or_default();
            if now.0 < highest.0 || now.1 < highest.1 {
                return Err(format!(
                    "{vb:?} of node {node} went back: {highest:?}, then {now:?}"
                ));
            }
            *highest = now;
        }
        Ok(())
    }

    /// Ends all faults, and waits until the cluster is idle.
    fn heal(&mut self) -> Result<(), String> {
        note!("cluster", "nothing fails any more");
        self.heals = true;
        self.network.heal();
        self.store.end_all_faults();
        for node in &mut self.nodes {
            node.disk.clear_faults();
            node.is_slow = false;
        }
        for node in 0..self.nodes.len() {
            if self.nodes[node].end_pause(None) {
                self.kill_process(node, false);
            }
        }
        let mut quiet = 0;
        for _ in 0..HEALING_ROUNDS {
            self.bury();
            for node in 0..self.nodes.len() {
                self.start(node)
                    .map_err(|why| format!("node {node} does not start: {why}"))?;
                if self.rng.below(4) == 0 {
                    self.recover(node);
                    self.coordinate_node(node);
                    self.nodes[node].connect(&mut self.network);
                }
                self.nodes[node].pump(&mut self.rng, &mut self.network);
                self.nodes[node].run_one(&mut self.rng);
            }
            self.coordinate()?;
            self.finish_moves();
            self.execute_steps();
            if self.lost.is_empty() {
                self.withdraw_failovers();
            }
            self.fail_over_lost();
            self.pass(Duration::from_millis(1));
            self.note_steps();
            self.clients.look_all(&self.nodes, &self.starts);
            quiet = if self.is_quiet() { quiet + 1 } else { 0 };
            if quiet == QUIET_ROUNDS {
                return Ok(());
            }
        }
        Err(format!("nothing comes to rest: {}", self.describe()))
    }

    fn is_quiet(&self) -> bool {
        let has_map = |node: usize| {
            let process = self.nodes[node].process.as_ref();
            process.is_some_and(|process| process.revision == self.map.revision())
        };
        let follow = |vb: VbId| {
            // An active without replicas decides by the newest map, too, which SyncWrites are done.
            let Some(active) = self.map.active(vb).filter(|active| has_map(*active)) else {
                return false;
            };
            let mut replicas = self.map.replicas(vb);
            replicas.all(|replica| self.is_same(vb, active, replica))
        };
        !self.clients.is_waiting() && self.map.is_whole() && self.map.vbuckets().all(follow)
    }

    fn describe(&self) -> String {
        let mut lines = vec![format!("{:?}", self.map)];
        for vb in self.map.vbuckets() {
            for node in &self.nodes {
                let figures = node
                    .process
                    .as_ref()
                    .and_then(|it| it.bucket.vbucket_figures(vb));
                let figures = figures.map(|it| {
                    let seqnos = (it.high_seqno, it.persisted_seqno);
                    (it.state, seqnos, it.failover, it.durability)
                });
                lines.push(format!("{vb:?} of {}: {figures:?}", name(node.number)));
            }
        }
        lines.push(format!(
            "waiting {}, under way {}",
            self.clients.is_waiting(),
            self.network.under_way()
        ));
        lines.join("\n")
    }

    /// Checks that replicas equal their actives, and that documents are the last that clients saw.
    fn compare(&mut self) -> Result<(), String> {
        for key in self.clients.keys() {
            let vb = key.document().vbucket(self.plan.vbuckets);
            self.wait_served(vb)?;
            let active = self.map.active(vb).ok_or("there is no active")?;
            let there = self.read(active, key, false).map_err(|why| {
                let around = self.describe();
                format!("{key:?} cannot be read at its active: {why}\n{around}")
            })?;
            if let SimKey::Durable(_) = key {
                self.clients.saw(key, there.map(|(value, _)| value));
            }
            let replicas: Vec<usize> = self.map.replicas(vb).collect();
            for replica in replicas {
                let found = self.read(replica, key, true);
                let found =
                    found.map_err(|why| format!("{key:?} cannot be read at its replica: {why}"))?;
                if found != there {
                    return Err(format!(
                        "{key:?} is {there:?} at node {active}, but {found:?} at its replica {replica}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Waits until a vBucket is served.
    fn wait_served(&mut self, vb: VbId) -> Result<(), String> {
        for _ in 0..SERVED_ROUNDS {
            self.pass(Duration::from_millis(1));
            self.coordinate()?;
            for node in 0..self.nodes.len() {
                self.coordinate_node(node);
            }
            let active = self.map.active(vb);
            if active.is_some_and(|active| self.nodes[active].serves(vb)) {
                return Ok(());
            }
        }
        Err(format!("nobody serves vBucket {vb}: {}", self.describe()))
    }

    /// Reads a key of a node, with its CAS; from disk, if it is only there.
    fn read(
        &mut self,
        node: usize,
        key: SimKey,
        replica: bool,
    ) -> Result<Option<(u64, Cas)>, String> {
        let at = node;
        let node = &self.nodes[at];
        let bucket = &node.process.as_ref().ok_or("the node is down")?.bucket;
        let document = key.document();
        let wanted = Read {
            vb: document.vbucket(self.plan.vbuckets),
            key: &document,
            cookie: READ_COOKIE,
        };
        let seen = |document: DocumentRef<'_>| {
            number(document.item.value()).map(|value| (value, document.item.cas()))
        };
        let outcome = if replica {
            bucket.documents().get_replica(node.ctx(), &wanted, seen)
        } else {
            bucket.documents().get(node.ctx(), &wanted, seen)
        };
        match outcome {
            Ok(Outcome::Done(found)) => return Ok(found),
            Ok(Outcome::Parked) => {}
            Err(Status::KeyNotFound) => return Ok(None),
            Err(status) => return Err(format!("{status:?}")),
        }
        for _ in 0..FETCH_TURNS {
            self.nodes[at].run_ready();
            match self.nodes[at].take_done(READ_COOKIE.0) {
                None => self.pass(Duration::from_millis(1)),
                Some(Completion::Read {
                    result: Ok((item, cas)),
                }) => {
                    return Ok(number(item.value()).map(|value| (value, cas)));
                }
                Some(Completion::Read {
                    result: Err(Status::KeyNotFound),
                }) => return Ok(None),
                Some(other) => return Err(format!("{other:?}")),
            }
        }
        Err("it is neither in memory nor comes from the disk".to_owned())
    }
}
