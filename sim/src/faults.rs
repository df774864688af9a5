//! The faults of a cluster.

use crate::map::{SimMap, name, number, positions};
use crate::node::Process;
use crate::trace::note;
use crate::world::World;
use kedge_bucket::CompactionRequest;
use kedge_cluster::NodePositions;
use kedge_disk::Fault;
use kedge_types::VbId;
use std::collections::{BTreeMap, BTreeSet};

impl World {
    pub(crate) fn fault(&mut self) {
        let node = self.any_node();
        match self.rng.below(34) {
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
                    self.fail_over(node);
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
            _ => self.set_replicas(),
        }
    }

    /// Returns whether a node may lose its memory.
    fn may_lose(&self, node: usize) -> bool {
        if self.plan.may_come_back {
            return true;
        }
        // One loss at a time: all others of its chains have everything that clients rely on.
        let is_safe = |vb: VbId| {
            let mut others = self.map.replicas(vb).filter(|replica| *replica != node);
            let active = self.map.active(vb).filter(|active| *active != node);
            let leads_on = active.is_none_or(|active| self.nodes[active].process.is_some());
            leads_on && others.all(|other| self.is_in_step(vb, other))
        };
        let is_in = |vb: &VbId| self.map.has(*vb, node);
        self.may_fail_over(node) && self.map.vbuckets().filter(is_in).all(is_safe)
    }

    fn is_in_step(&self, vb: VbId, node: usize) -> bool {
        self.in_step.get(&(vb, node)).copied().unwrap_or(false)
    }

    fn kill(&mut self, node: usize) {
        if self.nodes[node].process.is_none() || !self.may_lose(node) {
            return;
        }
        // A node that may not come back unchanged is failed over before it does.
        let without = if self.plan.may_come_back || self.map.is_out(node) {
            None
        } else {
            match self.plan_without(node) {
                Some(map) => Some(map),
                None => return,
            }
        };
        let power = self.rng.below(2) == 0;
        self.end(node, power);
        if let Some(map) = without {
            self.follow_without(node, map);
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
        self.fail_over(node);
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

    /// Fails a node over, unless data would be lost. The node may be alive, and learn of it late.
    fn fail_over(&mut self, node: usize) {
        if let Some(map) = self.plan_without(node) {
            self.follow_without(node, map);
        }
    }

    fn plan_without(&self, node: usize) -> Option<SimMap> {
        let others = (0..self.nodes.len()).filter(|other| *other != node);
        let told = others.filter_map(|other| {
            let process = self.nodes[other].process.as_ref()?;
            Some((number(other), positions(&process.bucket)?))
        });
        self.map.without(node, &told.collect())
    }

    fn follow_without(&mut self, node: usize, map: SimMap) {
        self.change_map(map, format_args!("{} is failed over", name(node)));
        self.summary.failovers += 1;
        for other in 0..self.nodes.len() {
            if other != node {
                self.nodes[other].adopt(&self.map, &mut self.network);
            }
        }
        // With the remaining nodes, all others have to catch up before the next loss.
        self.in_step.clear();
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
        if let Some(map) = self.map.with_move(vb, to) {
            self.change_map(map, format_args!("vBucket {vb} is to move"));
        }
    }

    /// Makes nodes that have taken over a vBucket its active, unless the map has changed; others learn of it late.
    pub(crate) fn finish_moves(&mut self) {
        for node in 0..self.nodes.len() {
            for vb in self.nodes[node].take_taken() {
                let Some(map) = self.map.with_taken(node, vb) else {
                    continue;
                };
                self.change_map(
                    map,
                    format_args!("{} has taken vBucket {vb} over", name(node)),
                );
                self.summary.takeovers += 1;
                self.nodes[node].adopt(&self.map, &mut self.network);
                // The former active has lost nothing, but counts only after it has followed.
                self.in_step.retain(|(of, _), _| *of != vb);
            }
        }
    }

    /// Changes the number of replicas of the bucket.
    fn set_replicas(&mut self) {
        let replicas = self.rng.below(self.nodes.len() as u64) as u8;
        let map = self.map.with_replicas(replicas);
        self.change_map(map, format_args!("there are to be {replicas} replicas"));
    }

    /// Advances the creation of copies according to their progress.
    pub(crate) fn tend_replicas(&mut self) {
        if let Some(map) = self.map.with_change() {
            self.change_map(map, format_args!("copies are to be made"));
            return;
        }
        if !self.map.makes_copies() {
            return;
        }
        let known = self.copies.take();
        let known = known.filter(|it| it.revision() == self.map.revision());
        let mut copies = known.unwrap_or_else(|| self.map.catch_up());
        // Each node reports at another time.
        let node = self.any_node();
        copies.note(&self.told_by_map(node));
        let Some(map) = self.map.with_step(&copies) else {
            self.copies = Some(copies);
            return;
        };
        let resizes = self.map.changes_replicas() && !map.changes_replicas();
        self.summary.resizes += u64::from(resizes);
        self.change_map(map, format_args!("copies have what they have to"));
        if resizes {
            for vb in self.map.vbuckets() {
                for replica in self.map.replicas(vb) {
                    self.in_step.insert((vb, replica), true);
                }
            }
        }
    }

    /// Returns the positions of a node, if it has applied the map.
    fn told_by_map(&self, node: usize) -> BTreeMap<u16, NodePositions> {
        let process = self.nodes[node].process.as_ref();
        let process = process.filter(|it| it.revision == self.map.revision());
        let told = process.and_then(|it| positions(&it.bucket));
        told.map(|told| (number(node), told)).into_iter().collect()
    }

    pub(crate) fn recover(&mut self, node: usize) {
        let is_back = self.map.is_out(node) && self.nodes[node].process.is_some();
        if let Some(map) = self.map.with(node).filter(|_| is_back) {
            self.change_map(map, format_args!("{} is back", name(node)));
            self.summary.returns += 1;
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
