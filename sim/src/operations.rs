//! The executor of operations: the orchestrator advances rebalances, drains and copies, as far as its own view goes.

use crate::change::MapChange;
use crate::map::{SimMap, positions};
use crate::node::SimNode;
use crate::world::World;
use kedge_cluster::{CatchUp, NodePositions};
use std::collections::BTreeMap;

impl World {
    /// Lets a node execute the steps that are possible now, if it is the orchestrator, as far as it knows.
    pub(crate) fn execute_steps(&mut self) {
        let by = self.any_node();
        let node = &self.nodes[by];
        let process = node.process.as_ref().filter(|_| !node.is_paused());
        let in_office = process.and_then(|process| process.control.in_office());
        let (Some(process), Some(in_office)) = (process, in_office) else {
            self.forget_catch_up(by);
            return;
        };
        let map = node.saved.clone();
        let view = process.control.view().map(|view| &view.map);
        let has_applied = process.revision == map.revision() && view == Some(&map);
        // Nobody counts as a copy, or not any more, after the decision that a node may lose its data. An administrator waits,
        // too, with a graceful failover.
        let is_unsafe = !self.lost.is_empty() || self.nodes.iter().any(SimNode::is_paused);
        if !has_applied || process.control.is_changing() {
            return;
        }
        if is_unsafe && (map.makes_copies() || map.discards() || map.removes_copies()) {
            return;
        }
        // Each node reports at another time.
        let other = self.any_node();
        let told = self.told_by(by, other, &map);
        let awaited = self.awaited();
        let process = self.nodes[by].process.as_mut();
        let Some(process) = process else { return };
        if map.makes_copies() {
            let known = process.copies.get_or_insert_with(|| map.catch_up());
            map.follow_up(known);
            known.note(&told);
        } else {
            process.copies = None;
        }
        let round = map.with_round(process.copies.as_ref(), &awaited);
        if let Some(next) = map.with_discarded(&told) {
            self.send_change(by, MapChange::Discarded, in_office, &next);
        } else if let Some(next) = round {
            self.send_change(by, MapChange::Round, in_office, &next);
        }
    }

    /// Returns nodes to which clients have not connected again after a restart: some, as nobody knows of all clients.
    fn awaited(&mut self) -> Vec<usize> {
        if self.heals || self.rng.below(3) != 0 {
            return Vec::new();
        }
        let nodes = 0..self.nodes.len();
        nodes.filter(|_| self.rng.below(2) == 0).collect()
    }

    fn forget_catch_up(&mut self, node: usize) {
        if let Some(process) = &mut self.nodes[node].process {
            process.copies = None::<CatchUp>;
        }
    }

    /// Returns the positions that a node reports to another one, if it has applied the map.
    fn told_by(&self, to: usize, node: usize, map: &SimMap) -> BTreeMap<u16, NodePositions> {
        let is_reached = node == to || !self.network.is_cut(to, node);
        let process = self.nodes[node].process.as_ref();
        let process = process.filter(|it| it.revision == map.revision() && is_reached);
        let process = process.filter(|_| !self.nodes[node].is_paused());
        let told = process.and_then(|it| positions(&it.bucket));
        let told = told.filter(|_| map.has_node(node));
        told.map(|told| (map.number(node), told))
            .into_iter()
            .collect()
    }
}
