//! The executor of operations: the first member of the map advances rebalances, drains and copies, as far as its own view goes.

use crate::change::MapChange;
use crate::map::{SimMap, number, positions};
use crate::node::SimNode;
use crate::world::World;
use kedge_cluster::{CatchUp, NodePositions};
use kedge_coordination::Transaction;
use std::collections::BTreeMap;

impl World {
    /// Lets a node execute the steps that are possible now, if it is the first member.
    pub(crate) fn execute_steps(&mut self) {
        let by = self.any_node();
        let node = &self.nodes[by];
        if node.is_paused() || node.saved.members().next() != Some(by) {
            self.forget_catch_up(by);
            return;
        }
        let map = node.saved.clone();
        let Some(process) = node.process.as_ref() else {
            return;
        };
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
        if map.makes_copies() {
            let process = self.nodes[by].process.as_mut();
            let copies = process.map(|process| &mut process.copies);
            let Some(copies) = copies else { return };
            let known = copies.get_or_insert_with(|| map.catch_up());
            map.follow_up(known);
            known.note(&told);
            if let Some(next) = map.with_step(known) {
                self.send_change(by, MapChange::Step, Transaction::new(), &next);
                return;
            }
        } else {
            self.forget_catch_up(by);
        }
        if let Some(next) = map.with_discarded(&told) {
            self.send_change(by, MapChange::Discarded, Transaction::new(), &next);
        } else if let Some(next) = map.with_change() {
            self.send_change(by, MapChange::Begin, Transaction::new(), &next);
        }
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
        told.map(|told| (number(node), told)).into_iter().collect()
    }
}
