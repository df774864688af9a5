//! The maximum flow of minimum cost through a network with few distinct costs.
//!
//! A primal-dual algorithm: it finds the cheapest distance to the sink, then sends as much as possible along edges of
//! that distance, and repeats. So the number of rounds is the number of distinct costs of paths, not the flow.

use std::collections::VecDeque;

/// The cost of one unit of flow over an edge.
pub(super) type Cost = i64;

const UNREACHED: Cost = Cost::MAX;

#[derive(Debug)]
struct FlowEdge {
    to: usize,
    /// The remaining capacity.
    capacity: usize,
    cost: Cost,
}

/// An edge of a network.
#[derive(Clone, Copy, Debug)]
pub(super) struct EdgeId(usize);

/// A network. Nodes are numbers; edges with even numbers are the added ones, each followed by its reverse.
#[derive(Debug, Default)]
pub(super) struct FlowNetwork {
    edges: Vec<FlowEdge>,
    /// The edges that leave each node.
    leaving: Vec<Vec<usize>>,
}

impl FlowNetwork {
    /// Adds a node.
    pub(super) fn node(&mut self) -> usize {
        self.leaving.push(Vec::new());
        self.leaving.len() - 1
    }

    /// Adds several nodes.
    pub(super) fn nodes(&mut self, count: usize) -> Vec<usize> {
        (0..count).map(|_| self.node()).collect()
    }

    /// Adds an edge; the cost is not negative.
    pub(super) fn edge(&mut self, from: usize, to: usize, capacity: usize, cost: Cost) -> EdgeId {
        assert!(cost >= 0, "the algorithm starts without negative costs");
        let id = self.edges.len();
        for (from, to, capacity, cost) in [(from, to, capacity, cost), (to, from, 0, -cost)] {
            self.leaving[from].push(self.edges.len());
            self.edges.push(FlowEdge { to, capacity, cost });
        }
        EdgeId(id)
    }

    /// Returns the flow over an edge.
    pub(super) fn flow(&self, edge: EdgeId) -> usize {
        self.edges[edge.0 + 1].capacity
    }

    /// Sends as much as possible from the source to the sink, as cheaply as possible. Returns the amount.
    pub(super) fn send(&mut self, source: usize, sink: usize) -> usize {
        let mut sent = 0;
        loop {
            let distances = self.distances(source);
            if distances[sink] == UNREACHED {
                return sent;
            }
            loop {
                let levels = self.levels(source, &distances);
                if levels[sink].is_none() {
                    break;
                }
                let mut tried = vec![0; self.leaving.len()];
                let mut paths = Paths {
                    sink,
                    distances: &distances,
                    levels: &levels,
                    tried: &mut tried,
                };
                sent += self.push(source, usize::MAX, &mut paths);
            }
        }
    }

    /// Returns the cheapest distance of each node from the source.
    fn distances(&self, source: usize) -> Vec<Cost> {
        let mut distances = vec![UNREACHED; self.leaving.len()];
        let mut is_queued = vec![false; self.leaving.len()];
        distances[source] = 0;
        let mut queue = VecDeque::from([source]);
        while let Some(node) = queue.pop_front() {
            is_queued[node] = false;
            for &edge in &self.leaving[node] {
                let edge = &self.edges[edge];
                let distance = distances[node] + edge.cost;
                if edge.capacity > 0 && distance < distances[edge.to] {
                    distances[edge.to] = distance;
                    if !std::mem::replace(&mut is_queued[edge.to], true) {
                        queue.push_back(edge.to);
                    }
                }
            }
        }
        distances
    }

    fn is_on_cheapest_path(&self, from: usize, edge: usize, distances: &[Cost]) -> bool {
        let edge = &self.edges[edge];
        edge.capacity > 0
            && distances[from] != UNREACHED
            && distances[from] + edge.cost == distances[edge.to]
    }

    /// Returns the number of edges from the source to each node along cheapest paths.
    fn levels(&self, source: usize, distances: &[Cost]) -> Vec<Option<usize>> {
        let mut levels = vec![None; self.leaving.len()];
        levels[source] = Some(0);
        let mut queue = VecDeque::from([(source, 0)]);
        while let Some((node, level)) = queue.pop_front() {
            for &edge in &self.leaving[node] {
                let to = self.edges[edge].to;
                if levels[to].is_none() && self.is_on_cheapest_path(node, edge, distances) {
                    levels[to] = Some(level + 1);
                    queue.push_back((to, level + 1));
                }
            }
        }
        levels
    }

    /// Sends up to `most` from a node to the sink along shortest cheapest paths. Paths are as long as the levels are
    /// many, so the recursion is shallow.
    fn push(&mut self, node: usize, most: usize, paths: &mut Paths<'_>) -> usize {
        if node == paths.sink {
            return most;
        }
        let mut sent = 0;
        while sent < most && paths.tried[node] < self.leaving[node].len() {
            let edge = self.leaving[node][paths.tried[node]];
            let to = self.edges[edge].to;
            let is_next = paths.levels[to] == paths.levels[node].map(|level| level + 1);
            if is_next && self.is_on_cheapest_path(node, edge, paths.distances) {
                let most = self.edges[edge].capacity.min(most - sent);
                let amount = self.push(to, most, paths);
                self.edges[edge].capacity -= amount;
                self.edges[edge ^ 1].capacity += amount;
                sent += amount;
                if amount == most {
                    // The edge may have more capacity than was needed.
                    continue;
                }
            }
            paths.tried[node] += 1;
        }
        sent
    }
}

/// The cheapest paths of one round.
struct Paths<'a> {
    sink: usize,
    distances: &'a [Cost],
    levels: &'a [Option<usize>],
    /// The number of edges of each node that are used up.
    tried: &'a mut [usize],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maximum_flow_takes_the_cheapest_paths_and_reroutes() {
        let mut network = FlowNetwork::default();
        let nodes = network.nodes(4);
        let (source, a, b, sink) = (nodes[0], nodes[1], nodes[2], nodes[3]);
        // The cheapest path alone would block one of two units.
        let direct = network.edge(source, a, 1, 1);
        let other = network.edge(source, b, 1, 4);
        let across = network.edge(a, b, 1, 0);
        let late = network.edge(a, sink, 1, 5);
        let early = network.edge(b, sink, 1, 1);
        assert_eq!(network.send(source, sink), 2);
        let flows = [direct, other, across, late, early].map(|edge| network.flow(edge));
        assert_eq!(flows, [1, 1, 0, 1, 1]);
        assert_eq!(network.send(source, sink), 0, "nothing more fits");
    }
}
