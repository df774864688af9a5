//! A walk over one tree, which reads every node once and compares the pointers with their subtrees.
//!
//! Invariant: `last_key` is the greatest key of the leaves visited so far. A leaf that does not begin above it is
//! reported and skipped, so no leaf is visited twice, whatever the pointers of a hostile file are.

use super::{AHEAD_BYTES_MAX, CheckEnd, CheckRun};
use crate::format::pointer::{Pointer, Reduce};
use crate::limits::DEPTH_MAX;
use crate::tree::Tree;
use crate::tree::node::{FIRST_ENTRY, Node, NodeEntry};
use crate::tree::search::{NodeReader, ReadWindows};
use crate::{DamageKind, Error, Offset};

/// A callback for each entry of each sound leaf; the offset is that of the leaf.
type LeafVisitor<'v> =
    dyn FnMut(&mut CheckRun<'_>, Offset, &Node, NodeEntry<'_>) -> Result<(), CheckEnd> + 'v;

/// The properties of the subtree below a pointer.
struct SubtreeSums<R> {
    reduce: R,
    subtree_bytes: u64,
}

struct Walk<'c, 'a, 'v> {
    check: &'c mut CheckRun<'a>,
    visit: &'c mut LeafVisitor<'v>,
    windows: ReadWindows,
    /// Number of interior nodes above a leaf, once one was reached: from then on leaves are read ahead.
    leaf_depth: Option<usize>,
    last_key: Option<Vec<u8>>,
}

/// Walks a tree. Returns `true` if nothing was skipped.
pub(super) fn walk<T: Tree>(
    check: &mut CheckRun<'_>,
    root: Option<Pointer<T::Reduce>>,
    visit: &mut LeafVisitor<'_>,
) -> Result<bool, CheckEnd> {
    let Some(root) = root else {
        return Ok(true);
    };
    let mut walk = Walk {
        check,
        visit,
        windows: ReadWindows::scan(AHEAD_BYTES_MAX),
        leaf_depth: None,
        last_key: None,
    };
    Ok(walk.subtree::<T>(&root, 0)?.is_some())
}

impl Walk<'_, '_, '_> {
    /// Walks a subtree and compares it with `pointer`. Returns `None` if a part was skipped, so that the pointers above
    /// cannot be checked.
    fn subtree<T: Tree>(
        &mut self,
        pointer: &Pointer<T::Reduce>,
        depth: usize,
    ) -> Result<Option<SubtreeSums<T::Reduce>>, CheckEnd> {
        let at = Offset(pointer.offset);
        if depth == DEPTH_MAX {
            self.check.tell(at, DamageKind::Depth)?;
            return Ok(None);
        }
        let (node, chunk_bytes) = match self.read::<T>(pointer, depth) {
            Ok(read) => read,
            Err(error) => {
                self.check.tell_error(error)?;
                return Ok(None);
            }
        };
        self.check.checked.nodes += 1;
        let below = if node.is_leaf() {
            self.leaf_depth = Some(depth);
            self.leaf::<T>(at, &node)?
        } else {
            self.children::<T>(at, &node, depth)?
        };
        let Some(mut below) = below else {
            return Ok(None);
        };
        below.subtree_bytes += chunk_bytes;
        if below.reduce != pointer.reduce {
            self.check.tell(at, DamageKind::Reduce)?;
        }
        if below.subtree_bytes != pointer.subtree_bytes {
            let problem = DamageKind::SubtreeBytes {
                expected: below.subtree_bytes,
                found: pointer.subtree_bytes,
            };
            self.check.tell(at, problem)?;
        }
        Ok(Some(below))
    }

    fn read<T: Tree>(
        &mut self,
        pointer: &Pointer<T::Reduce>,
        depth: usize,
    ) -> Result<(Node, u64), Error> {
        let snapshot = self.check.snapshot;
        let end = snapshot.header().offset();
        let ahead = self.leaf_depth == Some(depth);
        NodeReader::new(snapshot.shared(), end, &mut self.windows)
            .node_and_bytes::<T>(pointer, ahead)
    }

    fn leaf<T: Tree>(
        &mut self,
        at: Offset,
        node: &Node,
    ) -> Result<Option<SubtreeSums<T::Reduce>>, CheckEnd> {
        let first = node.entry(FIRST_ENTRY).expect("no node is empty");
        if self
            .last_key
            .as_deref()
            .is_some_and(|last| first.key <= last)
        {
            self.check
                .tell(at, DamageKind::KeyOrder(first.start as u32))?;
            return Ok(None);
        }
        let mut reduce = T::Reduce::default();
        let mut entries = 0;
        let last_key = self.last_key.get_or_insert_default();
        for entry in node.entries() {
            reduce.add(&T::reduce(entry.value));
            entries += 1;
            if entry.end() == node.bytes().len() {
                last_key.clear();
                last_key.extend_from_slice(entry.key);
            }
            (self.visit)(self.check, at, node, entry)?;
        }
        if T::IS_OF_DOCUMENTS {
            self.check.observer.progress(entries);
        }
        Ok(Some(SubtreeSums {
            reduce,
            subtree_bytes: 0,
        }))
    }

    fn children<T: Tree>(
        &mut self,
        at: Offset,
        node: &Node,
        depth: usize,
    ) -> Result<Option<SubtreeSums<T::Reduce>>, CheckEnd> {
        let mut all = Some(SubtreeSums {
            reduce: T::Reduce::default(),
            subtree_bytes: 0,
        });
        for entry in node.entries() {
            let Some(found) = self.subtree::<T>(&entry.pointer::<T>(), depth + 1)? else {
                all = None;
                continue;
            };
            if self.last_key.as_deref() != Some(entry.key) {
                self.check
                    .tell(at, DamageKind::LastKey(entry.start as u32))?;
            }
            if let Some(below) = &mut all {
                below.reduce.add(&found.reduce);
                below.subtree_bytes = below.subtree_bytes.saturating_add(found.subtree_bytes);
            }
        }
        Ok(all)
    }
}
