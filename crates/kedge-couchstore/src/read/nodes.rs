//! The trees node by node, for tools that show them.
//!
//! Invariant: leaves come in ascending order of their keys, or the walk ends with an error. So it ends, whatever the
//! pointers of a hostile file are.

use super::{Entry, Snapshot};
use crate::format::pointer::{IdReduce, NoReduce, Pointer, Reduce, SeqnoReduce};
use crate::limits::DEPTH_MAX;
use crate::tree::node::{FIRST_ENTRY, Node, NodeEntry};
use crate::tree::search::{NodeReader, ReadWindows};
use crate::tree::{ById, BySeqno, Local, Tree};
use crate::{DamageKind, Error, Offset};

/// One of the three trees of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeKind {
    /// The tree by document key.
    ById,
    /// The tree by seqno.
    BySeqno,
    /// The tree of local documents, by name.
    Local,
}

/// A node of a tree.
#[derive(Debug, Clone)]
pub struct TreeNode {
    tree: TreeKind,
    node: Node,
    offset: Offset,
    depth: usize,
    disk_bytes: u64,
}

/// An entry of a node.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum NodeItem {
    /// An entry of an interior node: a subtree with this greatest key.
    Subtree {
        /// The key; in the tree by seqno 6 bytes, big-endian.
        last_key: Vec<u8>,
        /// The offset of its topmost node.
        offset: Offset,
        /// The size of all its nodes, in bytes on disk.
        subtree_bytes: u64,
        /// The sums over its entries.
        totals: SubtreeTotals,
    },
    /// An entry of a leaf: a document or tombstone.
    Document(Entry),
    /// An entry of a leaf: a local document.
    Local {
        /// The name.
        name: Vec<u8>,
        /// The contents.
        value: Vec<u8>,
    },
}

/// The sums over entries, which differ between trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubtreeTotals {
    /// The tree by id.
    ById {
        /// Number of documents that are not tombstones.
        live: u64,
        /// Number of tombstones.
        deleted: u64,
        /// Size of the bodies, in bytes on disk.
        body_bytes: u64,
    },
    /// The tree by seqno.
    BySeqno {
        /// Number of documents and tombstones.
        count: u64,
    },
    /// The tree of local documents has no sums.
    Local,
}

impl TreeNode {
    /// Returns the offset of the node.
    #[must_use]
    pub fn offset(&self) -> Offset {
        self.offset
    }

    /// Returns the number of nodes above it.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Returns `true` if it has documents rather than subtrees.
    #[must_use]
    pub fn is_leaf(&self) -> bool {
        self.node.is_leaf()
    }

    /// Returns the size on disk, in bytes.
    #[must_use]
    pub fn disk_bytes(&self) -> u64 {
        self.disk_bytes
    }

    /// Returns the decompressed size, in bytes.
    #[must_use]
    pub fn plain_bytes(&self) -> usize {
        self.node.bytes().len()
    }

    /// Iterates over the entries, in key order.
    pub fn items(&self) -> impl Iterator<Item = NodeItem> {
        self.node.entries().map(|entry| match self.tree {
            _ if !self.is_leaf() => self.subtree(&entry),
            TreeKind::ById => NodeItem::Document(Entry::from_id(&self.node, &entry)),
            TreeKind::BySeqno => NodeItem::Document(Entry::from_seqno(&self.node, &entry)),
            TreeKind::Local => NodeItem::Local {
                name: entry.key.to_vec(),
                value: entry.value.to_vec(),
            },
        })
    }

    fn subtree(&self, entry: &NodeEntry<'_>) -> NodeItem {
        let (child, totals) = match self.tree {
            TreeKind::ById => split(&entry.pointer::<ById>()),
            TreeKind::BySeqno => split(&entry.pointer::<BySeqno>()),
            TreeKind::Local => split(&entry.pointer::<Local>()),
        };
        NodeItem::Subtree {
            last_key: entry.key.to_vec(),
            offset: Offset(child.offset),
            subtree_bytes: child.subtree_bytes,
            totals,
        }
    }
}

/// A pointer to a node of any tree.
type AnyPointer = Pointer<NoReduce>;

fn split<R: Reduce + Into<SubtreeTotals>>(pointer: &Pointer<R>) -> (AnyPointer, SubtreeTotals) {
    let plain = Pointer {
        offset: pointer.offset,
        subtree_bytes: pointer.subtree_bytes,
        reduce: NoReduce,
    };
    (plain, pointer.reduce.into())
}

impl From<IdReduce> for SubtreeTotals {
    fn from(reduce: IdReduce) -> Self {
        SubtreeTotals::ById {
            live: reduce.live,
            deleted: reduce.deleted,
            body_bytes: reduce.body_bytes,
        }
    }
}

impl From<SeqnoReduce> for SubtreeTotals {
    fn from(reduce: SeqnoReduce) -> Self {
        SubtreeTotals::BySeqno {
            count: reduce.count,
        }
    }
}

impl From<NoReduce> for SubtreeTotals {
    fn from(_: NoReduce) -> Self {
        SubtreeTotals::Local
    }
}

/// The nodes of a tree, each before those below it, from left to right. The iteration ends after an error.
#[derive(Debug)]
pub struct TreeNodes {
    tree: TreeKind,
    snapshot: Snapshot,
    windows: ReadWindows,
    /// Nodes to visit, the next one last, each with the number of nodes above it.
    pending: Vec<(AnyPointer, usize)>,
    last_key: Option<Vec<u8>>,
}

impl Iterator for TreeNodes {
    type Item = Result<TreeNode, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let (pointer, depth) = self.pending.pop()?;
        let read = match self.tree {
            TreeKind::ById => self.read::<ById>(&pointer, depth),
            TreeKind::BySeqno => self.read::<BySeqno>(&pointer, depth),
            TreeKind::Local => self.read::<Local>(&pointer, depth),
        };
        if read.is_err() {
            self.pending.clear();
        }
        Some(read)
    }
}

impl TreeNodes {
    fn read<T: Tree>(&mut self, pointer: &AnyPointer, depth: usize) -> Result<TreeNode, Error> {
        let Snapshot { shared, header } = &self.snapshot;
        let offset = Offset(pointer.offset);
        if depth == DEPTH_MAX {
            return Err(shared.corrupt(offset, DamageKind::Depth));
        }
        let pointer = Pointer {
            offset: pointer.offset,
            subtree_bytes: pointer.subtree_bytes,
            reduce: T::Reduce::default(),
        };
        let mut nodes = NodeReader::new(shared, header.offset, &mut self.windows);
        let (node, disk_bytes) = nodes.node_and_bytes::<T>(&pointer, false)?;
        if node.is_leaf() {
            let first = node.entry(FIRST_ENTRY).expect("no node is empty");
            if self
                .last_key
                .as_deref()
                .is_some_and(|last| first.key <= last)
            {
                let problem = DamageKind::KeyOrder(FIRST_ENTRY as u32);
                return Err(shared.corrupt(offset, problem));
            }
            let last = node.entries().last().expect("no node is empty");
            self.last_key = Some(last.key.to_vec());
        } else {
            let first_new = self.pending.len();
            let children = node.entries().map(|entry| {
                let child = entry.pointer::<T>();
                let plain = Pointer {
                    offset: child.offset,
                    subtree_bytes: child.subtree_bytes,
                    reduce: NoReduce,
                };
                (plain, depth + 1)
            });
            self.pending.extend(children);
            self.pending[first_new..].reverse();
        }
        Ok(TreeNode {
            tree: self.tree,
            node,
            offset,
            depth,
            disk_bytes,
        })
    }
}

impl Snapshot {
    /// Iterates over the nodes of a tree.
    #[must_use]
    pub fn nodes_of(&self, tree: TreeKind) -> TreeNodes {
        let header = &self.header;
        let root = match tree {
            TreeKind::ById => header.by_id.as_ref().map(split),
            TreeKind::BySeqno => header.by_seqno.as_ref().map(split),
            TreeKind::Local => header.local.as_ref().map(split),
        };
        TreeNodes {
            tree,
            snapshot: self.clone(),
            windows: ReadWindows::scan(0),
            pending: root.into_iter().map(|(root, _)| (root, 0)).collect(),
            last_key: None,
        }
    }
}
