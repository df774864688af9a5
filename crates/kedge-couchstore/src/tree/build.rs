//! Construction of nodes from entries in ascending order: a new tree, or the changed parts of an old one.
//!
//! One node is under construction at each level. Entries and unchanged subtrees arrive from left to right. A node is
//! written when it and the one after it are full, so that the last two can share the rest. Its pointer is added to the
//! level above.
//!
//! Invariant: the entries of the node under construction follow everything written at that level, and precede
//! everything still to be written. Before a subtree is added at a level, all levels below it are written.

use std::marker::PhantomData;

use super::Tree;
use super::node::{FIRST_ENTRY, LENGTHS_BYTES, Node, entry_at, type_byte};
use super::pack::pack;
use crate::Error;
use crate::format::bytes::pack_lengths;
use crate::format::pointer::{Pointer, Reduce};
use crate::limits::NODE_SPLIT_BYTES;
use crate::write::append::FileAppender;

/// Smallest number of entries of a node, whatever their length, because a tree with fewer would be deep.
const ENTRIES_MIN: usize = 4;

/// The size of new nodes, in bytes before compression. Readers accept any size; see
/// `docs/reference/formats/couchstore.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeSizes {
    pub(crate) leaf_bytes: usize,
    pub(crate) interior_bytes: usize,
    /// Number of bytes of entries that are collected before leaves are made of them, so that these are contiguous,
    /// whatever else is appended between the entries.
    pub(crate) together_bytes: usize,
}

impl NodeSizes {
    /// For files that are updated: small nodes, because one change rewrites a whole node.
    pub(crate) const UPDATE: NodeSizes = NodeSizes {
        leaf_bytes: 400,
        interior_bytes: 900,
        together_bytes: 0,
    };

    /// For copies, which are read more than changed: fewer and larger leaves, so that the interior nodes of many
    /// documents fit into the cache, and contiguous ones, so that scans without bodies read several at once.
    pub(crate) const COPY: NodeSizes = NodeSizes {
        leaf_bytes: 1000,
        interior_bytes: 1000,
        together_bytes: 16 << 10,
    };
}

/// A tree under construction.
#[derive(Debug)]
pub(crate) struct TreeBuilder<'w, T: Tree> {
    out: &'w mut FileAppender,
    sizes: NodeSizes,
    levels: Vec<BuildLevel>,
    /// The lowest level that may have unwritten entries.
    lowest_waiting: usize,
    /// `true` if written interior nodes are cached.
    pub(crate) remembers: bool,
    tree: PhantomData<T>,
}

/// The node under construction at one level.
#[derive(Debug)]
struct BuildLevel {
    type_byte: u8,
    /// Entries from [`FIRST_ENTRY`] on. The byte before the first entry, and before each unwritten entry, may have any
    /// value.
    bytes: Vec<u8>,
    starts: Vec<u32>,
    /// Number of written entries.
    written: usize,
}

impl BuildLevel {
    fn new(height: usize) -> Self {
        BuildLevel {
            type_byte: type_byte(height),
            bytes: vec![0; FIRST_ENTRY],
            starts: Vec::new(),
            written: 0,
        }
    }

    /// Returns the number of unwritten entries.
    fn waiting(&self) -> usize {
        self.starts.len() - self.written
    }

    /// Returns the size of the node with all of them, in bytes.
    fn waiting_bytes(&self) -> usize {
        FIRST_ENTRY + self.bytes.len() - self.end_of(0)
    }

    /// Adds an entry that `put` appends.
    fn add(&mut self, put: impl FnOnce(&mut Vec<u8>)) {
        self.starts.push(self.bytes.len() as u32);
        put(&mut self.bytes);
    }

    /// Returns the number of entries to write so that both nodes have `target` bytes, if there are enough.
    fn full(&self, target: usize) -> Option<usize> {
        let bytes = self.waiting_bytes();
        let usual = bytes >= 2 * target && self.waiting() >= 2 * ENTRIES_MIN;
        if usual {
            return Some(self.split_at(target, ENTRIES_MIN));
        }
        let large = bytes >= NODE_SPLIT_BYTES && self.waiting() >= 2;
        large.then(|| self.split_at(target, 1))
    }

    /// Returns the smallest number of entries, at least `min`, that have `target` bytes and leave an entry after them.
    fn split_at(&self, target: usize, min: usize) -> usize {
        let target = self.end_of(0) - FIRST_ENTRY + target;
        let enough =
            self.starts[self.written..].partition_point(|start| (*start as usize) < target);
        enough.clamp(min, self.waiting() - 1)
    }

    /// Returns the end of the first `entries` unwritten entries.
    fn end_of(&self, entries: usize) -> usize {
        match self.starts.get(self.written + entries) {
            Some(start) => *start as usize,
            None => self.bytes.len(),
        }
    }

    /// Returns the node of the first `entries` unwritten entries.
    fn node(&mut self, entries: usize) -> &[u8] {
        let (start, end) = (self.end_of(0) - FIRST_ENTRY, self.end_of(entries));
        // The byte belonged to an entry that is written.
        self.bytes[start] = self.type_byte;
        &self.bytes[start..end]
    }

    /// Removes the first `entries` unwritten entries after they were written. The rest moves to the front only
    /// occasionally.
    fn drop_front(&mut self, entries: usize) {
        self.written += entries;
        if self.waiting() > self.written {
            return;
        }
        let moved = self.end_of(0) - FIRST_ENTRY;
        self.bytes.drain(..moved);
        self.starts.drain(..self.written);
        self.written = 0;
        for start in &mut self.starts {
            *start -= moved as u32;
        }
    }
}

impl<'w, T: Tree> TreeBuilder<'w, T> {
    pub(crate) fn new(out: &'w mut FileAppender, sizes: NodeSizes) -> Self {
        TreeBuilder {
            out,
            sizes,
            levels: Vec::new(),
            lowest_waiting: 0,
            remembers: true,
            tree: PhantomData,
        }
    }

    /// Returns the appender of the nodes, for data between them.
    pub(crate) fn out(&mut self) -> &mut FileAppender {
        self.out
    }

    /// Adds an entry to the leaves; `value` appends its value.
    pub(crate) fn push(
        &mut self,
        key: &[u8],
        value: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), Error> {
        self.lowest_waiting = 0;
        self.level(0).add(|bytes| {
            let start = bytes.len();
            bytes.extend_from_slice(&[0; LENGTHS_BYTES]);
            bytes.extend_from_slice(key);
            value(bytes);
            let value_bytes = bytes.len() - start - LENGTHS_BYTES - key.len();
            let lengths = pack_lengths(key.len(), value_bytes);
            bytes[start..start + LENGTHS_BYTES].copy_from_slice(&lengths);
        });
        self.write_if_full(0)
    }

    /// Adds an entry of another leaf.
    pub(crate) fn push_raw(&mut self, entry: &[u8]) -> Result<(), Error> {
        self.lowest_waiting = 0;
        self.level(0).add(|bytes| bytes.extend_from_slice(entry));
        self.write_if_full(0)
    }

    /// Adds an unchanged subtree, `height` levels above the leaves (0 for a leaf). `entry` is the one that points to it
    /// in another interior node.
    pub(crate) fn push_subtree(&mut self, height: usize, entry: &[u8]) -> Result<(), Error> {
        if self.lowest_waiting <= height {
            for below in 0..=height {
                self.write_rest(below)?;
            }
        }
        self.lowest_waiting = height + 1;
        self.level(height + 1)
            .add(|bytes| bytes.extend_from_slice(entry));
        self.write_if_full(height + 1)
    }

    /// Returns the number of bytes that are not in a leaf yet.
    pub(crate) fn waiting_leaf_bytes(&self) -> usize {
        match self.levels.first() {
            Some(leaf) if leaf.waiting() > 0 => leaf.waiting_bytes(),
            _ => 0,
        }
    }

    /// Returns the target size of leaves.
    pub(crate) fn leaf_bytes(&self) -> usize {
        self.sizes.leaf_bytes
    }

    /// Writes the rest. Returns the root, or `None` if nothing was added.
    pub(crate) fn finish(mut self) -> Result<Option<Pointer<T::Reduce>>, Error> {
        let mut height = 0;
        while height < self.levels.len() {
            let above_is_empty = self.levels[height + 1..]
                .iter()
                .all(|level| level.waiting() == 0);
            let level = &mut self.levels[height];
            if height > 0 && above_is_empty && level.waiting() == 1 {
                // The only node below is the root: no node is needed above it.
                let entry = entry_at(level.node(1), FIRST_ENTRY).expect("there is one");
                return Ok(Some(entry.pointer::<T>()));
            }
            self.write_rest(height)?;
            height += 1;
        }
        Ok(None)
    }

    fn level(&mut self, height: usize) -> &mut BuildLevel {
        while self.levels.len() <= height {
            let level = BuildLevel::new(self.levels.len());
            self.levels.push(level);
        }
        &mut self.levels[height]
    }

    fn write_if_full(&mut self, height: usize) -> Result<(), Error> {
        let target = self.target(height);
        let together_bytes = self.sizes.together_bytes;
        if height == 0 && self.levels[0].waiting_bytes() < together_bytes {
            return Ok(());
        }
        while let Some(entries) = self.levels[height].full(target) {
            self.write(height, entries)?;
        }
        Ok(())
    }

    /// Writes all entries of a level.
    fn write_rest(&mut self, height: usize) -> Result<(), Error> {
        let target = self.target(height);
        self.level(height);
        while let Some(entries) = self.levels[height].full(target) {
            self.write(height, entries)?;
        }
        let level = &self.levels[height];
        let entries = level.waiting();
        if entries == 0 {
            return Ok(());
        }
        let bytes = level.waiting_bytes();
        if bytes >= target + target / 2 && entries >= 2 * ENTRIES_MIN {
            let half = level.split_at(bytes / 2, ENTRIES_MIN);
            self.write(height, half)?;
        }
        let rest = self.levels[height].waiting();
        self.write(height, rest)
    }

    fn target(&self, height: usize) -> usize {
        if height == 0 {
            self.sizes.leaf_bytes
        } else {
            self.sizes.interior_bytes
        }
    }

    /// Writes the first `entries` entries of a level as a node and adds its pointer to the level above.
    fn write(&mut self, height: usize, entries: usize) -> Result<(), Error> {
        // Levels above have to exist before this one is borrowed.
        self.level(height + 1);
        let (lower, upper) = self.levels.split_at_mut(height + 1);
        let node = lower[height].node(entries);
        let mut reduce = T::Reduce::default();
        let mut below_bytes = 0_u64;
        let mut at = FIRST_ENTRY;
        let mut last_key = 0..0;
        while let Some(entry) = entry_at(node, at) {
            if height == 0 {
                reduce.add(&T::reduce(entry.value));
            } else {
                let pointer = entry.pointer::<T>();
                reduce.add(&pointer.reduce);
                below_bytes = below_bytes.wrapping_add(pointer.subtree_bytes);
            }
            let key_start = at + LENGTHS_BYTES;
            last_key = key_start..key_start + entry.key.len();
            at = entry.end();
        }
        let (offset, chunk_bytes) = self
            .out
            .append_with(|encoder, out| pack::<T>(node, encoder, out))?;
        if height > 0 && self.remembers {
            self.out.remember(T::cache_key(offset), Node::trusted(node));
        }
        let pointer = Pointer {
            offset,
            subtree_bytes: below_bytes + u64::from(chunk_bytes),
            reduce,
        };
        let key = &node[last_key];
        upper[0].add(|bytes| {
            bytes.extend_from_slice(&pack_lengths(key.len(), Pointer::<T::Reduce>::VALUE_BYTES));
            bytes.extend_from_slice(key);
            pointer.put_value(bytes);
        });
        lower[height].drop_front(entries);
        self.write_if_full(height + 1)
    }
}

#[cfg(test)]
mod tests;
