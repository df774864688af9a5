//! The node cache of an open file, limited in bytes.
//!
//! It holds interior nodes: there are few, every lookup needs one per level, and with all of them a lookup reads one
//! leaf from disk. Leaves that lookups have read are cached on request only; otherwise they are left to the page cache.
//!
//! Eviction is the CLOCK algorithm: a node that was used since the hand last passed it stays, and others are evicted.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::tree::node::Node;

/// Size of an entry without its bytes: the counters of the shared node, its place in the ring, and the map's overhead.
const OVERHEAD_BYTES: usize = 96;

#[derive(Debug)]
pub(crate) struct NodeCache {
    clock: Mutex<ClockRing>,
    bytes_max: usize,
    has_leaves: bool,
    /// The depth of the leaves of each tree.
    leaf_depths: [LeafDepth; 4],
}

/// The depth of a tree's leaves below the root when last seen. It is a hint, because snapshots may have other trees.
#[derive(Debug)]
pub(crate) struct LeafDepth(AtomicUsize);

impl Default for LeafDepth {
    fn default() -> Self {
        LeafDepth(AtomicUsize::new(usize::MAX))
    }
}

impl LeafDepth {
    /// Returns `true` if leaves are at this depth.
    pub(crate) fn is(&self, depth: usize) -> bool {
        self.0.load(Ordering::Relaxed) == depth
    }

    /// Records whether the node at this depth is a leaf.
    pub(crate) fn learn(&self, depth: usize, is_leaf: bool) {
        if is_leaf != self.is(depth) {
            let known = if is_leaf { depth } else { usize::MAX };
            self.0.store(known, Ordering::Relaxed);
        }
    }
}

#[derive(Debug, Default)]
struct ClockRing {
    nodes: HashMap<u64, CachedNode, foldhash::fast::RandomState>,
    /// The keys of all nodes, in the order in which the hand passes them.
    ring: Vec<u64>,
    hand: usize,
    bytes: usize,
}

#[derive(Debug)]
struct CachedNode {
    node: Node,
    /// Index of its key in the ring.
    at: u32,
    /// `true` if the node was used since the hand passed it.
    used: bool,
}

impl NodeCache {
    /// Creates a cache of about `bytes_max` bytes, with or without leaves; 0 disables it.
    pub(crate) fn new(bytes_max: usize, has_leaves: bool) -> Self {
        NodeCache {
            clock: Mutex::default(),
            bytes_max,
            has_leaves,
            leaf_depths: Default::default(),
        }
    }

    /// Returns the limit in bytes.
    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Returns the size of a node in the cache, in bytes.
    pub(crate) fn bytes_of(node: &Node) -> usize {
        node.bytes().len() + OVERHEAD_BYTES
    }

    /// Returns `true` if leaves may be cached.
    pub(crate) fn has_leaves(&self) -> bool {
        self.has_leaves
    }

    /// Returns the depth of the leaves of the tree with this number.
    pub(crate) fn leaf_depth(&self, tree: u64) -> &LeafDepth {
        &self.leaf_depths[tree as usize]
    }

    /// Returns the node of `key`, if it is cached.
    pub(crate) fn get(&self, key: u64) -> Option<Node> {
        let clock = &mut *self.lock();
        let place = clock.nodes.get_mut(&key)?;
        place.used = true;
        Some(place.node.clone())
    }

    /// Adds a node.
    pub(crate) fn insert(&self, key: u64, node: Node) {
        let bytes = Self::bytes_of(&node);
        if bytes > self.bytes_max {
            return;
        }
        let clock = &mut *self.lock();
        if clock.nodes.contains_key(&key) {
            return;
        }
        while clock.bytes + bytes > self.bytes_max {
            clock.evict();
        }
        clock.bytes += bytes;
        let place = CachedNode {
            node,
            at: clock.ring.len() as u32,
            used: false,
        };
        clock.nodes.insert(key, place);
        clock.ring.push(key);
    }

    /// Removes a node.
    pub(crate) fn remove(&self, key: u64) {
        self.lock().remove(key);
    }

    /// Removes all nodes.
    pub(crate) fn clear(&self) {
        *self.lock() = ClockRing::default();
    }

    /// Returns the size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.lock().bytes
    }

    fn lock(&self) -> MutexGuard<'_, ClockRing> {
        // No code can panic in the middle of a change, so the state is sound after a panic of another thread.
        self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClockRing {
    /// Evicts one node. It ends, because after one round no node is marked as used.
    fn evict(&mut self) {
        loop {
            if self.hand >= self.ring.len() {
                self.hand = 0;
            }
            let key = self.ring[self.hand];
            let place = self
                .nodes
                .get_mut(&key)
                .expect("the ring has keys of nodes");
            if std::mem::take(&mut place.used) {
                self.hand += 1;
                continue;
            }
            self.remove(key);
            self.hand += 1;
            return;
        }
    }

    /// Removes a node, if it exists; the last key of the ring takes its index.
    fn remove(&mut self, key: u64) {
        let Some(gone) = self.nodes.remove(&key) else {
            return;
        };
        self.bytes -= NodeCache::bytes_of(&gone.node);
        self.ring.swap_remove(gone.at as usize);
        if let Some(moved) = self.ring.get(gone.at as usize) {
            self.nodes
                .get_mut(moved)
                .expect("the ring has keys of nodes")
                .at = gone.at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_nodes_are_evicted() {
        let cache = NodeCache::new(20 * (100 + OVERHEAD_BYTES), false);
        for key in 0..1000 {
            cache.insert(key, Node::trusted(&[0; 100]));
            assert!(cache.get(0).is_some(), "used all the time, at {key}");
        }
        assert!(cache.get(999).is_some());
        assert!(cache.get(500).is_none());
        let clock = cache.lock();
        assert_eq!(clock.nodes.len(), 20);
        assert_eq!(clock.ring.len(), 20);
        for (at, key) in clock.ring.iter().enumerate() {
            assert_eq!(clock.nodes[key].at, at as u32);
        }
    }

    #[test]
    fn cache_stays_within_its_limit() {
        let cache = NodeCache::new(10_000, false);
        for key in 0..3000_u64 {
            cache.insert(
                key % 700,
                Node::trusted(&vec![0; (key * 37 % 3000) as usize]),
            );
            cache.get(key % 13);
            if key % 5 == 0 {
                cache.remove(key % 11);
                assert!(cache.get(key % 11).is_none());
            }
            let clock = cache.lock();
            let bytes: usize = clock
                .nodes
                .values()
                .map(|place| place.node.bytes().len() + OVERHEAD_BYTES)
                .sum();
            assert_eq!(bytes, clock.bytes);
            assert!(bytes <= 10_000);
        }
    }

    #[test]
    fn cache_with_limit_zero_is_empty() {
        let cache = NodeCache::new(0, false);
        cache.insert(1, Node::trusted(&[0; 100]));
        assert!(cache.get(1).is_none());
    }
}
