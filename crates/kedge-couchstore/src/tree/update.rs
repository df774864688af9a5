//! Updates of a tree: one walk over the changing leaves, in key order. Unchanged parts are neither read nor written, and
//! leaves of which no entry stays are not read if the changes do not need them.

use super::Tree;
use super::build::TreeBuilder;
use super::node::{Node, NodeEntry};
use super::search::NodeReader;
use crate::Error;
use crate::format::pointer::Pointer;
use crate::limits::DEPTH_MAX;

/// Changes of a tree, in ascending order of keys.
pub(crate) trait TreeChanges<T: Tree> {
    /// Returns the key of the next change.
    fn next_key(&self) -> Option<&[u8]>;

    /// Takes the next changes if they remove all entries of a leaf, whose last key and reduce value these are, so that
    /// it need not be read. Returns `false`, without an effect, if an entry stays or that is unknown.
    fn remove_leaf(&mut self, last: &[u8], reduce: &T::Reduce) -> bool {
        let _ = (last, reduce);
        false
    }

    /// Applies the next change: adds the new entry, if any, to the tree. `old` is the previous entry.
    fn apply(
        &mut self,
        old: Option<NodeEntry<'_>>,
        builder: &mut TreeBuilder<'_, T>,
    ) -> Result<(), Error>;
}

/// Applies all changes to the tree at `root`. The result is in `builder`.
pub(crate) fn update<T: Tree>(
    nodes: &mut NodeReader<'_>,
    root: Option<&Pointer<T::Reduce>>,
    changes: &mut impl TreeChanges<T>,
    builder: &mut TreeBuilder<'_, T>,
) -> Result<(), Error> {
    if let Some(root) = root {
        let height = height_of::<T>(nodes, root)?;
        let mut walk = UpdateWalk {
            nodes,
            changes,
            builder,
            leaf: None,
        };
        walk.subtree(root, height, None, 0)?;
    }
    while changes.next_key().is_some() {
        changes.apply(None, builder)?;
    }
    Ok(())
}

/// Returns the number of levels of interior nodes. If the leaves are at different levels, which no program writes, it
/// is that of the first leaf; it decides about the position of subtrees, not about their contents.
fn height_of<T: Tree>(
    nodes: &mut NodeReader<'_>,
    root: &Pointer<T::Reduce>,
) -> Result<usize, Error> {
    let mut pointer = *root;
    for height in 0..DEPTH_MAX {
        let node = nodes.node::<T>(&pointer)?;
        if node.is_leaf() {
            return Ok(height);
        }
        let first = node.entries().next().expect("no node is empty");
        pointer = first.pointer::<T>();
    }
    Err(nodes.too_deep::<T>(&pointer))
}

struct UpdateWalk<'a, 'n, 'w, T: Tree, C> {
    nodes: &'a mut NodeReader<'n>,
    changes: &'a mut C,
    builder: &'a mut TreeBuilder<'w, T>,
    /// The memory of the last leaf, for reuse.
    leaf: Option<Node>,
}

impl<T: Tree, C: TreeChanges<T>> UpdateWalk<'_, '_, '_, T, C> {
    /// Applies the changes up to the key `last`, or all if it is `None`, to a subtree.
    fn subtree(
        &mut self,
        pointer: &Pointer<T::Reduce>,
        height: usize,
        last: Option<&[u8]>,
        depth: usize,
    ) -> Result<(), Error> {
        if depth == DEPTH_MAX {
            return Err(self.nodes.too_deep::<T>(pointer));
        }
        let node = if height == 0 {
            self.nodes.leaf::<T>(pointer, &mut self.leaf)?;
            self.leaf.take().expect("it was just read")
        } else {
            self.nodes.node::<T>(pointer)?
        };
        if node.is_leaf() {
            self.leaf(&node, last)?;
            self.leaf = Some(node);
            return Ok(());
        }
        let height_below = height.saturating_sub(1);
        for entry in node.entries() {
            // Keys beyond the last key of the tree belong to the last subtree.
            let is_last = last.is_none() && entry.end() == node.bytes().len();
            let changes = self
                .changes
                .next_key()
                .is_some_and(|key| is_last || key <= entry.key);
            if changes
                && height_below == 0
                && self
                    .changes
                    .remove_leaf(entry.key, &entry.pointer::<T>().reduce)
            {
                continue;
            }
            if changes || (height == 1 && self.joins(&entry)) {
                let last = (!is_last).then_some(entry.key);
                self.subtree(&entry.pointer::<T>(), height_below, last, depth + 1)?;
            } else {
                self.builder.push_subtree(height_below, entry.raw)?;
            }
        }
        // Its replacement is in the cache now; only readers of older headers need it again.
        self.nodes.forget::<T>(pointer);
        Ok(())
    }

    /// Returns `true` if an unchanged leaf should be rewritten, because it and the one under construction are both
    /// small. That costs little once, and keeps nodes from becoming ever smaller as documents are removed.
    fn joins(&self, leaf: &NodeEntry<'_>) -> bool {
        let waiting = self.builder.waiting_leaf_bytes();
        let wanted = self.builder.leaf_bytes();
        // A compressed leaf has about half its size.
        waiting > 0
            && waiting < wanted / 2
            && waiting as u64 + 2 * leaf.pointer::<T>().subtree_bytes <= wanted as u64
    }

    fn leaf(&mut self, node: &Node, last: Option<&[u8]>) -> Result<(), Error> {
        for entry in node.entries() {
            let mut is_changed = false;
            while let Some(key) = self.changes.next_key()
                && key <= entry.key
                && !is_changed
            {
                is_changed = key == entry.key;
                let old = is_changed.then_some(entry);
                self.changes.apply(old, self.builder)?;
            }
            if !is_changed {
                self.builder.push_raw(entry.raw)?;
            }
        }
        while let Some(key) = self.changes.next_key()
            && last.is_none_or(|last| key <= last)
        {
            self.changes.apply(None, self.builder)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
