//! Building nodes from entries that come in order: a new tree, or what changes of an old one.
//!
//! One node is under construction at each level. Entries and untouched subtrees come from left to right; a node is
//! written when it and the one after it are full, so that the last two can share what is left. Its pointer goes to the
//! level above.
//!
//! Invariant: everything in the node under construction at a level comes after everything that was written at that
//! level, and before everything that will be. Before a subtree is added at a level, all levels below it are written.

use std::marker::PhantomData;

use super::Tree;
use super::node::{FIRST_ENTRY, LENGTHS_BYTES, Node, entry_at, type_byte};
use super::pack::pack;
use crate::Error;
use crate::format::bytes::pack_lengths;
use crate::format::pointer::{Pointer, Reduce};
use crate::limits::NODE_SPLIT_BYTES;
use crate::write::append::Appender;

/// Entries that a node should have, however long they are: a tree of fewer would be deep.
const ENTRIES_MIN: usize = 4;

/// How large nodes are made, in bytes before compression. Any size can be read; see `docs/formats/couchstore.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeSizes {
    pub(crate) leaf_bytes: usize,
    pub(crate) interior_bytes: usize,
}

impl NodeSizes {
    /// For files that are updated: what is rewritten for one change is small.
    pub(crate) const UPDATE: NodeSizes = NodeSizes {
        leaf_bytes: 400,
        interior_bytes: 900,
    };

    /// For copies, which are read more than they are changed: fewer and larger leaves, so that the interior nodes of
    /// many documents stay in memory.
    pub(crate) const COPY: NodeSizes = NodeSizes {
        leaf_bytes: 1000,
        interior_bytes: 1000,
    };
}

/// What is being built.
#[derive(Debug)]
pub(crate) struct Builder<'w, T: Tree> {
    out: &'w mut Appender,
    sizes: NodeSizes,
    levels: Vec<Level>,
    /// No level below this one has entries that wait to be written.
    lowest_waiting: usize,
    /// Whether interior nodes that are written go to the cache.
    pub(crate) remembers: bool,
    tree: PhantomData<T>,
}

/// The node under construction at one level.
#[derive(Debug)]
struct Level {
    bytes: Vec<u8>,
    starts: Vec<u32>,
}

impl Level {
    fn new(height: usize) -> Self {
        Level {
            bytes: vec![type_byte(height)],
            starts: Vec::new(),
        }
    }

    /// The number of entries to write so that both nodes have `target` bytes, if there are enough.
    fn full(&self, target: usize) -> Option<usize> {
        let bytes = self.bytes.len();
        let usual = bytes >= 2 * target && self.starts.len() >= 2 * ENTRIES_MIN;
        if usual {
            return Some(self.split_at(target, ENTRIES_MIN));
        }
        let large = bytes >= NODE_SPLIT_BYTES && self.starts.len() >= 2;
        large.then(|| self.split_at(target, 1))
    }

    /// The fewest entries, but at least `min`, that have `target` bytes and leave an entry behind them.
    fn split_at(&self, target: usize, min: usize) -> usize {
        let enough = self
            .starts
            .partition_point(|start| (*start as usize) < target);
        enough.clamp(min, self.starts.len() - 1)
    }

    /// Where the first `entries` entries end.
    fn end_of(&self, entries: usize) -> usize {
        match self.starts.get(entries) {
            Some(start) => *start as usize,
            None => self.bytes.len(),
        }
    }

    /// Drops the first `entries` entries, which were written.
    fn drop_front(&mut self, entries: usize) {
        let end = self.end_of(entries);
        self.bytes.drain(FIRST_ENTRY..end);
        self.starts.drain(..entries);
        let shift = (end - FIRST_ENTRY) as u32;
        for start in &mut self.starts {
            *start -= shift;
        }
    }
}

impl<'w, T: Tree> Builder<'w, T> {
    pub(crate) fn new(out: &'w mut Appender, sizes: NodeSizes) -> Self {
        Builder {
            out,
            sizes,
            levels: Vec::new(),
            lowest_waiting: 0,
            remembers: true,
            tree: PhantomData,
        }
    }

    /// What nodes are appended to, for whatever comes between them.
    pub(crate) fn out(&mut self) -> &mut Appender {
        self.out
    }

    /// Adds an entry to the leaves; `value` appends its value.
    pub(crate) fn push(
        &mut self,
        key: &[u8],
        value: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), Error> {
        self.lowest_waiting = 0;
        let level = self.level(0);
        let start = level.bytes.len();
        level.starts.push(start as u32);
        level.bytes.extend_from_slice(&[0; LENGTHS_BYTES]);
        level.bytes.extend_from_slice(key);
        value(&mut level.bytes);
        let value_bytes = level.bytes.len() - start - LENGTHS_BYTES - key.len();
        let lengths = pack_lengths(key.len(), value_bytes);
        level.bytes[start..start + LENGTHS_BYTES].copy_from_slice(&lengths);
        self.write_if_full(0)
    }

    /// Adds an entry that stood in another leaf.
    pub(crate) fn push_raw(&mut self, entry: &[u8]) -> Result<(), Error> {
        self.lowest_waiting = 0;
        let level = self.level(0);
        level.starts.push(level.bytes.len() as u32);
        level.bytes.extend_from_slice(entry);
        self.write_if_full(0)
    }

    /// Adds a subtree that stays as it is, `height` levels above the leaves or at them (0). `entry` is the one that
    /// points to it, in another interior node.
    pub(crate) fn push_subtree(&mut self, height: usize, entry: &[u8]) -> Result<(), Error> {
        if self.lowest_waiting <= height {
            for below in 0..=height {
                self.write_rest(below)?;
            }
        }
        self.lowest_waiting = height + 1;
        let level = self.level(height + 1);
        level.starts.push(level.bytes.len() as u32);
        level.bytes.extend_from_slice(entry);
        self.write_if_full(height + 1)
    }

    /// Bytes that wait to become a leaf.
    pub(crate) fn waiting_leaf_bytes(&self) -> usize {
        match self.levels.first() {
            Some(leaf) if !leaf.starts.is_empty() => leaf.bytes.len(),
            _ => 0,
        }
    }

    /// How large leaves are made.
    pub(crate) fn leaf_bytes(&self) -> usize {
        self.sizes.leaf_bytes
    }

    /// Writes what is left; the root, or `None` if nothing was added.
    pub(crate) fn finish(mut self) -> Result<Option<Pointer<T::Reduce>>, Error> {
        let mut height = 0;
        while height < self.levels.len() {
            let above_is_empty = self.levels[height + 1..]
                .iter()
                .all(|level| level.starts.is_empty());
            let level = &self.levels[height];
            if height > 0 && above_is_empty && level.starts.len() == 1 {
                // The only node below is the root: no node is needed above it.
                let entry = entry_at(&level.bytes, FIRST_ENTRY).expect("there is one");
                return Ok(Some(entry.pointer::<T>()));
            }
            self.write_rest(height)?;
            height += 1;
        }
        Ok(None)
    }

    fn level(&mut self, height: usize) -> &mut Level {
        while self.levels.len() <= height {
            let level = Level::new(self.levels.len());
            self.levels.push(level);
        }
        &mut self.levels[height]
    }

    fn write_if_full(&mut self, height: usize) -> Result<(), Error> {
        let target = self.target(height);
        while let Some(entries) = self.levels[height].full(target) {
            self.write(height, entries)?;
        }
        Ok(())
    }

    /// Writes all that a level has: one node, or two if they are large enough.
    fn write_rest(&mut self, height: usize) -> Result<(), Error> {
        let target = self.target(height);
        let level = self.level(height);
        let entries = level.starts.len();
        if entries == 0 {
            return Ok(());
        }
        let bytes = level.bytes.len();
        if bytes >= target + target / 2 && entries >= 2 * ENTRIES_MIN {
            let half = level.split_at(bytes / 2, ENTRIES_MIN);
            self.write(height, half)?;
        }
        let rest = self.levels[height].starts.len();
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
        let level = &self.levels[height];
        let node = &level.bytes[..level.end_of(entries)];
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
        let (lower, upper) = self.levels.split_at_mut(height + 1);
        let key = &lower[height].bytes[last_key];
        let above = &mut upper[0];
        above.starts.push(above.bytes.len() as u32);
        let lengths = pack_lengths(key.len(), Pointer::<T::Reduce>::VALUE_BYTES);
        above.bytes.extend_from_slice(&lengths);
        above.bytes.extend_from_slice(key);
        pointer.put_value(&mut above.bytes);
        self.levels[height].drop_front(entries);
        self.write_if_full(height + 1)
    }
}

#[cfg(test)]
mod tests;
