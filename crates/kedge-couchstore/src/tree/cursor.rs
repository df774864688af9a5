//! Walks over the leaves in order.
//!
//! Invariant: `last_key` is the last key of the leaf before the current one. Keys of the next leaf have to be above it.
//! So no leaf is visited twice, whatever the pointers of a hostile file are, and a walk ends.

use super::Tree;
use super::node::{FIRST_ENTRY, Node, NodeEntry};
use super::search::NodeReader;
use crate::format::pointer::Pointer;
use crate::limits::DEPTH_MAX;
use crate::{DamageKind, Error, Offset};

/// A position in a tree.
#[derive(Debug)]
pub(crate) struct Cursor<T: Tree> {
    root: Option<Pointer<T::Reduce>>,
    /// Interior nodes above the leaf, each with the position of its next entry.
    path: Vec<(Node, usize)>,
    leaf: Option<Node>,
    /// The position of the leaf's next entry.
    at: usize,
    /// The offset of the leaf, for errors.
    leaf_offset: Offset,
    last_key: Vec<u8>,
    has_last: bool,
    /// Number of interior nodes above a leaf, once one was reached.
    leaf_depth: Option<usize>,
}

impl<T: Tree> Cursor<T> {
    /// Creates a cursor before the first entry.
    pub(crate) fn new(root: Option<Pointer<T::Reduce>>) -> Self {
        Cursor {
            root,
            path: Vec::new(),
            leaf: None,
            at: 0,
            leaf_offset: Offset(0),
            last_key: Vec::new(),
            has_last: false,
            leaf_depth: None,
        }
    }

    /// Moves before the first entry whose key is at least `key`. The cursor must not have been moved before.
    pub(crate) fn seek(&mut self, nodes: &mut NodeReader<'_>, key: &[u8]) -> Result<(), Error> {
        let Some(mut pointer) = self.root.take() else {
            return Ok(());
        };
        loop {
            let node = nodes.node::<T>(&pointer)?;
            let found = node.entries().find(|entry| entry.key >= key);
            let Some(entry) = found else {
                // All keys are below `key`. Interior nodes above have no further entries either, or are out of order.
                return Ok(());
            };
            if node.is_leaf() {
                self.at = entry.start;
                self.leaf_offset = Offset(pointer.offset);
                self.leaf_depth = Some(self.path.len());
                self.leaf = Some(node);
                return Ok(());
            }
            let (child, next) = (entry.pointer::<T>(), entry.end());
            self.descend(nodes, node, next, &child)?;
            pointer = child;
        }
    }

    /// Returns the next entry, with its leaf.
    pub(crate) fn next(
        &mut self,
        nodes: &mut NodeReader<'_>,
    ) -> Result<Option<(&Node, NodeEntry<'_>)>, Error> {
        if self
            .leaf
            .as_ref()
            .is_none_or(|leaf| self.at >= leaf.bytes().len())
            && !self.next_leaf(nodes)?
        {
            return Ok(None);
        }
        let Some(leaf) = &self.leaf else {
            return Ok(None);
        };
        let Some(entry) = leaf.entry(self.at) else {
            return Ok(None);
        };
        if entry.end() == leaf.bytes().len() {
            self.last_key.clear();
            self.last_key.extend_from_slice(entry.key);
            self.has_last = true;
        }
        self.at = entry.end();
        Ok(Some((leaf, entry)))
    }

    /// Moves to the start of the next leaf. Returns `false` at the end of the tree.
    fn next_leaf(&mut self, nodes: &mut NodeReader<'_>) -> Result<bool, Error> {
        let mut pointer = match self.root.take() {
            Some(root) => root,
            None => match self.next_child() {
                Some(child) => child,
                None => {
                    self.leaf = None;
                    return Ok(false);
                }
            },
        };
        loop {
            let node = if self.leaf_depth == Some(self.path.len()) {
                nodes.leaf::<T>(&pointer, &mut self.leaf)?;
                self.leaf.take().expect("it was just read")
            } else {
                nodes.node::<T>(&pointer)?
            };
            let first = node.entry(FIRST_ENTRY).expect("no node is empty");
            if node.is_leaf() {
                if self.has_last && first.key <= &*self.last_key {
                    let problem = DamageKind::KeyOrder(FIRST_ENTRY as u32);
                    return Err(nodes.shared.corrupt(Offset(pointer.offset), problem));
                }
                self.at = FIRST_ENTRY;
                self.leaf_offset = Offset(pointer.offset);
                self.leaf_depth = Some(self.path.len());
                self.leaf = Some(node);
                return Ok(true);
            }
            let (child, next) = (first.pointer::<T>(), first.end());
            self.descend(nodes, node, next, &child)?;
            pointer = child;
        }
    }

    fn descend(
        &mut self,
        nodes: &NodeReader<'_>,
        node: Node,
        next: usize,
        child: &Pointer<T::Reduce>,
    ) -> Result<(), Error> {
        if self.path.len() >= DEPTH_MAX {
            return Err(nodes.too_deep::<T>(child));
        }
        self.path.push((node, next));
        Ok(())
    }

    /// Returns the next pointer of the path and moves past it.
    fn next_child(&mut self) -> Option<Pointer<T::Reduce>> {
        while let Some((node, at)) = self.path.last_mut() {
            if let Some(entry) = node.entry(*at) {
                *at = entry.end();
                return Some(entry.pointer::<T>());
            }
            self.path.pop();
        }
        None
    }
}

#[cfg(test)]
mod tests;
