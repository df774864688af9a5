//! Changing a tree: one walk over the leaves that change, in key order. What does not change is not read, and not
//! written again.

use super::Tree;
use super::build::Builder;
use super::node::{Node, NodeEntry};
use super::search::Nodes;
use crate::Error;
use crate::format::pointer::Pointer;
use crate::limits::DEPTH_MAX;

/// Changes of a tree, in ascending order of keys.
pub(crate) trait Changes<T: Tree> {
    /// The key of the next change.
    fn next_key(&self) -> Option<&[u8]>;

    /// Takes the next change: adds the entry that there will be, if any, to the tree. `old` is the entry that there
    /// was.
    fn apply(
        &mut self,
        old: Option<NodeEntry<'_>>,
        builder: &mut Builder<'_, T>,
    ) -> Result<(), Error>;
}

/// Applies all changes to the tree at `root`; what results is in `builder`.
pub(crate) fn update<T: Tree>(
    nodes: &mut Nodes<'_>,
    root: Option<&Pointer<T::Reduce>>,
    changes: &mut impl Changes<T>,
    builder: &mut Builder<'_, T>,
) -> Result<(), Error> {
    if let Some(root) = root {
        let height = height_of::<T>(nodes, root)?;
        let mut walk = Walk {
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

/// How many levels of interior nodes a tree has. In a tree whose leaves are not all at one level, which nobody writes,
/// the answer is that of its first leaf; it decides where subtrees end up, not what they contain.
fn height_of<T: Tree>(nodes: &mut Nodes<'_>, root: &Pointer<T::Reduce>) -> Result<usize, Error> {
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

struct Walk<'a, 'n, 'w, T: Tree, C> {
    nodes: &'a mut Nodes<'n>,
    changes: &'a mut C,
    builder: &'a mut Builder<'w, T>,
    /// Memory of the last leaf, used again.
    leaf: Option<Node>,
}

impl<T: Tree, C: Changes<T>> Walk<'_, '_, '_, T, C> {
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
            // Beyond the last key of the tree everything belongs to the last subtree.
            let is_last = last.is_none() && entry.end() == node.bytes().len();
            let changes = self
                .changes
                .next_key()
                .is_some_and(|key| is_last || key <= entry.key);
            if changes || (height == 1 && self.joins(&entry)) {
                let last = (!is_last).then_some(entry.key);
                self.subtree(&entry.pointer::<T>(), height_below, last, depth + 1)?;
            } else {
                self.builder.push_subtree(height_below, entry.raw)?;
            }
        }
        // What replaces it is in the cache now; nobody but readers of older headers needs it again.
        self.nodes.forget::<T>(pointer);
        Ok(())
    }

    /// Whether to write an untouched leaf again, since it and the one that is being written are both small: that
    /// costs little once, and keeps nodes from becoming ever smaller where documents go.
    fn joins(&self, leaf: &NodeEntry<'_>) -> bool {
        let waiting = self.builder.waiting_leaf_bytes();
        let wanted = self.builder.leaf_bytes();
        // Compressed, a leaf has about half its bytes.
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
