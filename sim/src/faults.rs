//! The faults of a cluster.

use crate::change::MapChange;
use crate::map::{SimMap, name, positions};
use crate::node::{Process, SimNode};
use crate::trace::note;
use crate::world::World;
use kedge_bucket::CompactionRequest;
use kedge_cluster::NodePositions;
use kedge_disk::Fault;
use kedge_types::VbId;
use std::collections::{BTreeMap, BTreeSet};

/// The longest time for which a node gets its answers late, before it is cut off.
const SLOW_NS_MAX: u64 = 1_000_000_000;
/// The longest time after the restore of the store for which only nodes without copies reach it.
const LATER_NS_MAX: u64 = 800_000_000;
/// The longest time for which a node does not hear of a restore that lost its lease: more than the lease.
const AWAY_NS_MAX: u64 = 2_000_000_000;
/// The longest time for which the watches of a node lag.
const LAG_NS_MAX: u64 = 3_000_000_000;
/// The longest outage of the store: some leases.
const OUTAGE_NS_MAX: u64 = 4_000_000_000;

impl World {
    pub(crate) fn fault(&mut self) {
        let node = self.any_node();
        match self.rng.below(68) {
            0..3 => {
                self.network.reset_any(&mut self.rng);
                self.summary.cuts += 1;
            }
            3..5 => {
                let other = self.any_node();
                self.network.cut(node, other);
                self.summary.cuts += 1;
            }
            5..8 => self.network.heal(),
            8..10 => self.kill(node),
            10 => self.lose_power_soon(node),
            // The disk may fail meanwhile.
            11..15 => drop(self.start(node)),
            15..17 => {
                let leads = self.map.leads(node).next().is_some();
                if leads && self.may_fail_over(node) {
                    self.depose(node);
                }
            }
            17 => self.recover(node),
            18..21 => self.lose_and_fail_over(node),
            21 => self.maintain(node),
            22 => self.squeeze(node),
            23 => self.set_clock(node),
            24 => {
                note!(name(node), "disk becomes slow");
                self.nodes[node].is_slow = true;
                self.summary.slow_disks += 1;
            }
            25 | 26 => {
                note!(name(node), "disk is as fast as others");
                self.nodes[node].is_slow = false;
            }
            27..31 => self.begin_move(node),
            31..34 => self.set_replicas(),
            34..36 => {
                let deaf = self.rng.below(3) == 0;
                self.store.cut(node, deaf);
            }
            36..38 => self.store.disturb_member(&mut self.rng),
            38 => self.store.compact(),
            39 => self.back_up(),
            40 => self.restore_store(),
            41..44 => self.begin_operation(),
            44..47 => self.pause(node),
            47..49 => {
                let until_ns = self.unix_ns() + self.rng.below(SLOW_NS_MAX);
                self.store.slow_down(node, until_ns);
            }
            49..52 => self.lose_source(),
            52 => {
                let until_ns = self.unix_ns() + self.rng.below(OUTAGE_NS_MAX);
                self.store.fail_until(until_ns);
                self.summary.outages += 1;
            }
            53 => self.lose_disk(node),
            54..58 => self.change_nodes(),
            58 => {
                let until_ns = self.unix_ns() + self.rng.below(LAG_NS_MAX);
                self.store.lag(node, until_ns);
            }
            59..62 => self.isolate(node),
            67 => self.lose_leases(node),
            _ => self.store.heal(),
        }
    }

    /// Makes a node reach neither the store nor others. It goes on, and reaches the others again before the store.
    fn isolate(&mut self, node: usize) {
        let until_ns = self.unix_ns() + self.rng.below(OUTAGE_NS_MAX);
        self.store.send_away(node, until_ns);
        for other in (0..self.nodes.len()).filter(|other| *other != node) {
            self.network.cut(node, other);
        }
        self.summary.cuts += 1;
    }

    /// Makes a backup of the store. Nodes without copies may not hear of what comes next.
    fn back_up(&mut self) {
        self.store.back_up();
        for node in 0..self.nodes.len() {
            if !self.map.has_any(node) {
                self.store.cut(node, false);
            }
        }
    }

    /// Restores a backup of the store. All nodes run, reach it, and follow its map, but for nodes without copies: those may
    /// know an older state only, and change the restored map without noticing. Where any copy is so old, it may be read until
    /// the others have put their map back.
    fn restore_store(&mut self) {
        let Some(map) = self.store.backup_map() else {
            return;
        };
        let follows = |process: &Process| process.revision == self.map.revision();
        let nodes = self.nodes.iter();
        let (following, behind): (Vec<&SimNode>, Vec<&SimNode>) = nodes.partition(|node| {
            let follows = node.process.as_ref().is_some_and(follows);
            follows && !node.is_paused() && !self.store.is_cut(node.number)
        });
        let has_copies = |node: &SimNode| map.has_any(node.number) || self.map.has_any(node.number);
        if behind.iter().any(|node| has_copies(node)) || map.is_long_before(&self.map) {
            return;
        }
        let numbers = |nodes: Vec<&SimNode>| nodes.iter().map(|node| node.number).collect();
        let (following, behind): (Vec<usize>, Vec<usize>) = (numbers(following), numbers(behind));
        let others_come_first = !behind.is_empty() && self.rng.below(4) != 0;
        let is_noticed = !others_come_first && !self.store.is_backup_young();
        let other = !is_noticed || self.rng.below(2) == 0;
        self.summary.restores += u64::from(self.store.restore(other));
        if !others_come_first {
            return;
        }
        // The others come first.
        for node in following {
            let until_ns = self.unix_ns() + self.rng.below(LATER_NS_MAX);
            self.store.send_away(node, until_ns);
        }
        for node in behind {
            self.store.reconnect(node);
            let replicas = self.rng.below(3) as u8;
            self.request(node, MapChange::Replicas(replicas));
        }
    }

    /// Restores a backup that was made before any node had taken a lease. One node does not hear of that for a while, and is to be
    /// failed over meanwhile.
    fn lose_leases(&mut self, node: usize) {
        let mut actives = self.map.vbuckets().filter_map(|vb| self.map.active(vb));
        let node = actives.next().unwrap_or(node);
        self.store.restore_without_leases();
        self.summary.lost_leases += 1;
        let until_ns = self.unix_ns() + self.rng.below(AWAY_NS_MAX);
        self.store.send_away(node, until_ns);
        if !self.may_fail_over(node) {
            return;
        }
        for other in self.nodes.iter_mut().filter(|other| other.number != node) {
            if let Some(process) = &mut other.process {
                process.control.deposing = Some(node);
            }
        }
    }

    /// Returns whether a node may lose its memory.
    fn may_lose(&self, node: usize) -> bool {
        self.plan.may_come_back || self.may_lose_data(node)
    }

    /// Returns whether a node may lose its data.
    fn may_lose_data(&self, node: usize) -> bool {
        let is_paused = self.nodes.iter().any(SimNode::is_paused);
        if !self.lost.is_empty() || is_paused || self.store.changes_chains() {
            return false;
        }
        // One loss at a time: all others of its chains have everything that clients rely on.
        let is_safe = |vb: VbId| {
            let mut others = self.map.replicas(vb).filter(|replica| *replica != node);
            let active = self.map.active(vb).filter(|active| *active != node);
            let leads_on = active.is_none_or(|active| self.nodes[active].process.is_some());
            leads_on && others.all(|other| self.is_in_step(vb, other))
        };
        let is_in = |vb: &VbId| self.map.has(*vb, node);
        // A step that is sent already may make it the only node that counts.
        let is_alone = |vb: VbId| self.map.is_alone_next(vb, node);
        if self.map.vbuckets().any(is_alone) {
            return false;
        }
        self.may_fail_over(node) && self.map.vbuckets().filter(is_in).all(is_safe)
    }

    fn is_in_step(&self, vb: VbId, node: usize) -> bool {
        self.in_step.get(&(vb, node)).copied().unwrap_or(false)
    }

    fn kill(&mut self, node: usize) {
        if self.nodes[node].process.is_none() || !self.may_lose(node) {
            return;
        }
        let power = self.rng.below(2) == 0;
        self.kill_process(node, power);
    }

    /// Makes a node lose its disk, or only the directory of its bucket. Its process notices that when it starts, and has another
    /// node fail it over before it takes part.
    fn lose_disk(&mut self, node: usize) {
        if self.nodes[node].process.is_none() || !self.may_lose_data(node) {
            return;
        }
        self.end(node, true);
        let seed = self.rng.next();
        let keeps_map = self.rng.below(2) == 0;
        self.nodes[node].replace_disk(seed, keeps_map);
        self.lost.insert(node);
        self.summary.lost_disks += 1;
    }

    /// Ends a process. If its memory counts, it is failed over before it comes back.
    pub(crate) fn kill_process(&mut self, node: usize, power: bool) {
        self.end(node, power);
        if !self.plan.may_come_back {
            self.lost.insert(node);
        }
    }

    /// Pauses a process, sometimes for longer than its lease.
    fn pause(&mut self, node: usize) {
        let may_end = self.plan.may_come_back || self.may_lose(node);
        if self.nodes[node].process.is_none() || self.nodes[node].is_paused() || !may_end {
            return;
        }
        let most_ms = [self.plan.pause_ms, 3_000][self.rng.below(2) as usize];
        let until_ns = self.unix_ns() + self.rng.below(most_ms * 1_000_000);
        let in_batch = self.rng.below(2) == 0;
        self.nodes[node].pause(until_ns, in_batch);
        self.summary.pauses += 1;
    }

    /// Fails nodes over that may not come back unchanged before that.
    pub(crate) fn fail_over_lost(&mut self) {
        let has_no_part = |node: &usize| self.map.is_out(*node);
        let out: Vec<usize> = self.lost.iter().copied().filter(has_no_part).collect();
        for node in out {
            self.lost.remove(&node);
        }
        if let Some(node) = self.lost.first().copied() {
            self.depose(node);
        }
    }

    fn lose_power_soon(&mut self, node: usize) {
        // The moment of the failure is unknown, so only data on disk may have been acknowledged.
        if self.plan.may_come_back && self.nodes[node].process.is_some() {
            let disk = &self.nodes[node].disk;
            let at = disk.operations() + 1 + self.rng.below(60);
            note!(
                name(node),
                "is to lose its power at operation {at} of its disk"
            );
            disk.fail_operation(at, Fault::PowerLoss);
        }
    }

    /// Makes a replica lose the data that is not on its disk, and become active right after its return.
    fn lose_and_fail_over(&mut self, node: usize) {
        let led: Vec<VbId> = self.map.leads(node).collect();
        if !self.plan.may_come_back || led.is_empty() || !self.may_fail_over(node) {
            return;
        }
        let replicas: BTreeSet<usize> = led.iter().flat_map(|vb| self.map.replicas(*vb)).collect();
        for replica in replicas {
            self.end(replica, true);
            if self.start(replica).is_err() {
                return;
            }
        }
        self.depose(node);
    }

    /// Ends an active whose replica was rolled back and has not caught up.
    fn lose_source(&mut self) {
        let mut behind = self.in_step.iter().filter(|(_, in_step)| !**in_step);
        let source = behind.find_map(|((vb, _), _)| self.map.active(*vb));
        let source = source.filter(|source| self.nodes[*source].process.is_some());
        if let Some(source) = source.filter(|_| self.plan.may_come_back) {
            self.end(source, true);
        }
    }

    /// Sometimes ends the active of a vBucket of which a replica was just rolled back.
    pub(crate) fn lose_source_of(&mut self, vb: VbId) {
        let is_alive = |node: &usize| self.nodes[*node].process.is_some();
        let source = self.map.active(vb).filter(is_alive);
        let may_end = self.plan.may_come_back && !self.heals && self.rng.below(3) == 0;
        if let Some(source) = source.filter(|_| may_end) {
            self.end(source, true);
        }
    }

    pub(crate) fn end(&mut self, node: usize, power: bool) {
        self.summary.kills += 1;
        let seed = self.rng.next();
        self.nodes[node].kill(power, seed, &mut self.network);
        self.starts[node] += 1;
    }

    /// Ends processes whose disk has failed.
    pub(crate) fn bury(&mut self) {
        for node in 0..self.nodes.len() {
            if self.nodes[node].has_failed() {
                self.end(node, true);
            }
        }
    }

    /// Returns whether the chains of an active node can go on without it, and without loss.
    fn may_fail_over(&self, node: usize) -> bool {
        let can_go_on = |vb: VbId| {
            let mut others = self.map.replicas(vb).peekable();
            let is_there =
                |other: usize| self.nodes[other].process.is_some() && self.is_in_step(vb, other);
            others.peek().is_some() && others.all(is_there)
        };
        self.map.leads(node).all(can_go_on)
    }

    /// Makes administrators give up the failovers that they wait for.
    pub(crate) fn withdraw_failovers(&mut self) {
        for node in &mut self.nodes {
            if let Some(process) = &mut node.process {
                process.control.deposing = None;
            }
        }
    }

    /// Asks a node to fail another one over, which may be alive.
    fn depose(&mut self, node: usize) {
        let by = self.any_node();
        if let Some(process) = self.nodes[by].process.as_mut().filter(|_| by != node) {
            process.control.deposing = Some(node);
        }
    }

    /// Lets a node fail others over: those that it has to as the orchestrator, and one that an administrator named.
    pub(crate) fn fail_over_down(&mut self, by: usize) {
        let times = self.times(by);
        let revision = self.map.revision();
        let process = |node: usize| self.nodes[node].process.as_ref();
        let has_ended: Vec<bool> = self.nodes.iter().map(|it| it.process.is_none()).collect();
        let applied: Vec<bool> = (0..self.nodes.len())
            .map(|node| process(node).is_some_and(|it| it.revision == revision))
            .collect();
        if self.nodes[by].is_paused() {
            return;
        }
        let Some(process) = &mut self.nodes[by].process else {
            return;
        };
        let control = &mut process.control;
        let down = control.down(times, |node| applied[node]);
        if control.is_changing() {
            return;
        }
        if !down.is_empty() && self.fail_over(by, &down, true) {
            return;
        }
        let Some(process) = &mut self.nodes[by].process else {
            return;
        };
        let control = &mut process.control;
        let Some(node) = control.deposing else { return };
        control.is_dead = has_ended[node];
        if control.view().is_none_or(|view| view.map.is_out(node)) || self.map.is_out(by) {
            control.deposing = None;
        } else if control.depositions(times, &[node], false).is_some() {
            control.deposing = None;
            self.fail_over(by, &[node], false);
        } else {
            control.revoke(times, node, &mut self.store, &mut self.rng);
        }
    }

    /// Fails nodes over whose leases have lapsed, unless data would be lost. The positions of the others count from then on.
    /// Returns whether it has sent the change.
    fn fail_over(&mut self, by: usize, nodes: &[usize], automatic: bool) -> bool {
        // An administrator who knows that the others have not caught up since the last failover does not insist.
        if !automatic && !nodes.iter().all(|node| self.may_fail_over(*node)) {
            return false;
        }
        // Two losses at a time are too many: of a lost disk, and where data counts that is only in memory.
        let is_going = |node: usize| {
            let may_be_lost = !self.plan.may_come_back && self.nodes[node].is_paused();
            self.lost.contains(&node) || may_be_lost
        };
        let mut others = (0..self.nodes.len()).filter(|other| !nodes.contains(other));
        if others.any(is_going) {
            return false;
        }
        let times = self.times(by);
        let SimNode { process, saved, .. } = &mut self.nodes[by];
        let (map, Some(process)) = (saved.clone(), process) else {
            return false;
        };
        let control = &mut process.control;
        let guarded = control.depositions(times, nodes, automatic);
        let follows = control.view().is_some_and(|view| map == view.map);
        let Some(guarded) = guarded.filter(|_| follows) else {
            return false;
        };
        self.failovers_tried += 1;
        let attempt = self.failovers_tried;
        let told = self.gather(by, &map, nodes, attempt);
        let Some(next) = map.without(nodes, &told, automatic) else {
            self.lift_fences(by, attempt);
            return false;
        };
        note!(name(by), "is to fail {nodes:?} over");
        let change = MapChange::FailOver(nodes.to_vec(), attempt);
        self.send_change(by, change, guarded, &next);
        if !self.heals && self.rng.below(3) == 0 {
            // Before the change is made, the nodes reach all others again, but for the store.
            note!(name(by), "is late with that");
            self.network.heal();
            self.store.delay_failovers(by, &mut self.rng);
        }
        true
    }

    /// Returns the positions of all members that a node reaches but some, which nobody of them follows any more.
    fn gather(
        &mut self,
        by: usize,
        map: &SimMap,
        without: &[usize],
        attempt: u64,
    ) -> BTreeMap<u16, NodePositions> {
        let mut told = BTreeMap::new();
        for other in map.members().filter(|other| !without.contains(other)) {
            let node = &mut self.nodes[other];
            if self.network.is_cut(by, other) || node.is_paused() {
                continue;
            }
            node.fence(without, attempt, &mut self.network);
            let process = node.process.as_ref();
            let positions = process.and_then(|process| positions(&process.bucket));
            told.extend(positions.map(|positions| (map.number(other), positions)));
        }
        told
    }

    /// Lets the nodes that a node reaches follow those again that its attempt was to fail over.
    pub(crate) fn lift_fences(&mut self, by: usize, attempt: u64) {
        for other in 0..self.nodes.len() {
            if !self.network.is_cut(by, other) && !self.nodes[other].is_paused() {
                self.nodes[other].lift_fences(attempt);
            }
        }
    }

    /// Begins the move of a vBucket from its active to one of its replicas.
    fn begin_move(&mut self, node: usize) {
        let led: Vec<VbId> = self.map.leads(node).collect();
        if led.is_empty() {
            return;
        }
        let vb = led[self.rng.below(led.len() as u64) as usize];
        let replicas: Vec<usize> = self.map.replicas(vb).collect();
        if replicas.is_empty() {
            return;
        }
        let to = replicas[self.rng.below(replicas.len() as u64) as usize];
        let by = self.any_node();
        self.request(by, MapChange::Move { vb, to });
    }

    /// Asks nodes that have taken over a vBucket to make the map in which they are its active.
    pub(crate) fn finish_moves(&mut self) {
        for node in 0..self.nodes.len() {
            let vbuckets = self.nodes[node].take_taken();
            if !vbuckets.is_empty() {
                self.request(node, MapChange::Taken { node, vbuckets });
            }
        }
    }

    /// Changes the number of replicas of the bucket.
    fn set_replicas(&mut self) {
        let replicas = self.rng.below(self.nodes.len() as u64) as u8;
        let by = self.any_node();
        self.request(by, MapChange::Replicas(replicas));
    }

    /// Begins a rebalance over other nodes, or a drain of some, after which they may be failed over; or stops what runs.
    fn begin_operation(&mut self) {
        let nodes = 0..self.nodes.len();
        let some: Vec<usize> = nodes.filter(|_| self.rng.below(3) != 0).collect();
        if some.is_empty() {
            return;
        }
        let by = self.any_node();
        let members: Vec<usize> = self.map.members().collect();
        let member = members[self.rng.below(members.len() as u64) as usize];
        let change = match self.rng.below(9) {
            0..3 => MapChange::Servers(some),
            3 if self.rng.below(2) == 0 => MapChange::Drain(some),
            3 => MapChange::Drain(vec![member]),
            // Few of them end: nothing else may happen meanwhile.
            4..8 => MapChange::FailOverGracefully(vec![member]),
            _ => MapChange::Stop,
        };
        self.request(by, change);
    }

    /// Adds a node, removes one by a rebalance, or both, which is a swap.
    fn change_nodes(&mut self) {
        let by = self.any_node();
        let nodes = 0..self.nodes.len();
        let (present, absent): (Vec<usize>, Vec<usize>) =
            nodes.partition(|node| self.map.has_node(*node));
        let some = |of: &[usize], at: u64| of.get(at as usize % of.len().max(1)).copied();
        let (coming, going) = (
            some(&absent, self.rng.next()),
            some(&present, self.rng.next()),
        );
        let ejected = going.filter(|_| present.len() > 1);
        let what = self.rng.below(4);
        let added = coming.filter(|_| what < 3);
        if let Some(node) = added {
            self.request(by, MapChange::Add(node));
        }
        match (what, ejected, added) {
            (0 | 1, Some(node), _) => self.request(by, MapChange::Eject(vec![node])),
            (2, _, Some(_)) => self.request(by, MapChange::Eject(Vec::new())),
            (3, Some(node), _) => self.request(by, MapChange::Remove(node)),
            _ => {}
        }
    }

    pub(crate) fn recover(&mut self, node: usize) {
        let is_back = self.map.is_failed(node) && self.nodes[node].process.is_some();
        if is_back {
            let by = self.any_node();
            let change = match self.rng.below(3) {
                0 => MapChange::ReturnEmpty(node),
                _ => MapChange::Return(node),
            };
            self.request(by, change);
        }
    }

    /// Work in the background: applying, compaction.
    fn maintain(&mut self, node: usize) {
        let Some(process) = &self.nodes[node].process else {
            return;
        };
        // An error fails the node.
        if self.rng.below(2) == 0 {
            note!(name(node), "applies");
            let _ = process.bucket.persistence().apply();
        } else {
            note!(name(node), "compacts");
            let _ = process
                .bucket
                .persistence()
                .compactions()
                .compact(&CompactionRequest::default());
        }
    }

    /// Makes the memory of a node short for a moment.
    fn squeeze(&mut self, node: usize) {
        let process = self.nodes[node].process.as_ref();
        // An error fails the node.
        let evicted = process.map_or(Ok(0), Process::squeeze);
        note!(name(node), "memory was short: {evicted:?} left it");
        self.summary.evictions += evicted.unwrap_or(0);
    }
}
