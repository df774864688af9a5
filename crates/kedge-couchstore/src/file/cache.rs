//! Nodes in memory, up to a number of bytes.
//!
//! Interior nodes: there are few of them, every look-up needs one per level, and with them in memory a look-up reads one
//! leaf. Leaves that look-ups have read only if they are asked for; else they are left to the kernel's cache.
//!
//! The hand of a clock goes round over the nodes: what was used since it passed last stays, what was not goes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::tree::node::Node;

/// What an entry takes beside its bytes: counters of the shared node, its place on the clock, the map's own.
const OVERHEAD_BYTES: usize = 96;

#[derive(Debug)]
pub(crate) struct NodeCache {
    clock: Mutex<Clock>,
    bytes_max: usize,
    has_leaves: bool,
    /// Of each tree.
    leaf_depths: [LeafDepth; 4],
}

/// How many levels below the root a tree's leaves were last: a hint, as there may be snapshots with other trees.
#[derive(Debug)]
pub(crate) struct LeafDepth(AtomicUsize);

impl Default for LeafDepth {
    fn default() -> Self {
        LeafDepth(AtomicUsize::new(usize::MAX))
    }
}

impl LeafDepth {
    /// Whether it is this one.
    pub(crate) fn is(&self, depth: usize) -> bool {
        self.0.load(Ordering::Relaxed) == depth
    }

    /// Hears of a node at this depth.
    pub(crate) fn learn(&self, depth: usize, is_leaf: bool) {
        if is_leaf != self.is(depth) {
            let known = if is_leaf { depth } else { usize::MAX };
            self.0.store(known, Ordering::Relaxed);
        }
    }
}

#[derive(Debug, Default)]
struct Clock {
    nodes: HashMap<u64, Place, foldhash::fast::RandomState>,
    /// The keys of all nodes, in the order in which the hand passes them.
    ring: Vec<u64>,
    hand: usize,
    bytes: usize,
}

#[derive(Debug)]
struct Place {
    node: Node,
    /// Where its key is in the ring.
    at: u32,
    /// Whether it was used since the hand passed.
    used: bool,
}

impl NodeCache {
    /// A cache of about `bytes_max` bytes, with leaves or without; 0 caches nothing.
    pub(crate) fn new(bytes_max: usize, has_leaves: bool) -> Self {
        NodeCache {
            clock: Mutex::default(),
            bytes_max,
            has_leaves,
            leaf_depths: Default::default(),
        }
    }

    /// What it may take, in bytes.
    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// What a node takes in it, in bytes.
    pub(crate) fn bytes_of(node: &Node) -> usize {
        node.bytes().len() + OVERHEAD_BYTES
    }

    /// Whether leaves may be in it.
    pub(crate) fn has_leaves(&self) -> bool {
        self.has_leaves
    }

    /// Where the leaves of the tree of this number are.
    pub(crate) fn leaf_depth(&self, tree: u64) -> &LeafDepth {
        &self.leaf_depths[tree as usize]
    }

    /// The node of `key`, if it is in memory.
    pub(crate) fn get(&self, key: u64) -> Option<Node> {
        let clock = &mut *self.lock();
        let place = clock.nodes.get_mut(&key)?;
        place.used = true;
        Some(place.node.clone())
    }

    /// Remembers a node.
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
        let place = Place {
            node,
            at: clock.ring.len() as u32,
            used: false,
        };
        clock.nodes.insert(key, place);
        clock.ring.push(key);
    }

    /// Forgets a node.
    pub(crate) fn remove(&self, key: u64) {
        self.lock().remove(key);
    }

    /// Forgets all nodes.
    pub(crate) fn clear(&self) {
        *self.lock() = Clock::default();
    }

    /// What it takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.lock().bytes
    }

    fn lock(&self) -> MutexGuard<'_, Clock> {
        // Nothing in here can panic half way, so what another thread left is sound.
        self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock {
    /// Removes one node. Ends: after one round none is marked as used.
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

    /// Removes a node, if it is there; the last key of the ring takes its place.
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
    fn what_is_used_stays_and_the_rest_goes() {
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
    fn nodes_of_any_size_stay_within_the_limit() {
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
    fn a_cache_of_nothing_caches_nothing() {
        let cache = NodeCache::new(0, false);
        cache.insert(1, Node::trusted(&[0; 100]));
        assert!(cache.get(1).is_none());
    }
}
