//! Interior nodes in memory, up to a number of bytes.
//!
//! Only interior nodes: there are few of them, every look-up needs one per level, and with them in memory a look-up
//! reads one leaf. Leaves are left to the kernel's cache.
//!
//! Two generations: what is used moves to the young one; when that is half full, the old one is dropped and the young
//! one becomes old. What was not used for that long is forgotten.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::tree::node::Node;

/// What an entry takes beside its bytes: key, pointers, counters, the map's own.
const OVERHEAD_BYTES: usize = 80;

#[derive(Debug)]
pub(crate) struct NodeCache {
    generations: Mutex<Generations>,
    generation_bytes_max: usize,
}

#[derive(Debug, Default)]
struct Generations {
    young: HashMap<u64, Node, foldhash::fast::RandomState>,
    old: HashMap<u64, Node, foldhash::fast::RandomState>,
    young_bytes: usize,
}

impl NodeCache {
    /// A cache of about `bytes_max` bytes; 0 caches nothing.
    pub(crate) fn new(bytes_max: usize) -> Self {
        NodeCache {
            generations: Mutex::default(),
            generation_bytes_max: bytes_max / 2,
        }
    }

    /// The node at `offset`, if it is in memory.
    pub(crate) fn get(&self, offset: u64) -> Option<Node> {
        let mut generations = self.lock();
        if let Some(node) = generations.young.get(&offset) {
            return Some(node.clone());
        }
        let node = generations.old.remove(&offset)?;
        self.put(&mut generations, offset, node.clone());
        Some(node)
    }

    /// Remembers an interior node.
    pub(crate) fn insert(&self, offset: u64, node: Node) {
        self.put(&mut self.lock(), offset, node);
    }

    fn put(&self, generations: &mut Generations, offset: u64, node: Node) {
        let bytes = node.bytes().len() + OVERHEAD_BYTES;
        if bytes > self.generation_bytes_max {
            return;
        }
        if generations.young_bytes + bytes > self.generation_bytes_max {
            generations.old = std::mem::take(&mut generations.young);
            generations.young_bytes = 0;
        }
        if generations.young.insert(offset, node).is_none() {
            generations.young_bytes += bytes;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Generations> {
        // Nothing in here can panic half way, so what another thread left is sound.
        self.generations
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays_and_the_rest_goes() {
        let cache = NodeCache::new(20 * (100 + OVERHEAD_BYTES));
        for offset in 0..1000 {
            cache.insert(offset, Node::trusted(&[0; 100]));
            assert!(cache.get(0).is_some(), "used all the time, at {offset}");
        }
        assert!(cache.get(999).is_some());
        assert!(cache.get(500).is_none());
        let generations = cache.lock();
        assert!(generations.young.len() + generations.old.len() <= 20);
    }

    #[test]
    fn a_cache_of_nothing_caches_nothing() {
        let cache = NodeCache::new(0);
        cache.insert(1, Node::trusted(&[0; 100]));
        assert!(cache.get(1).is_none());
    }
}
