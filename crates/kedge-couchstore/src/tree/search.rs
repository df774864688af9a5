//! Lookups of keys: one, or many in one walk.

use super::Tree;
use super::node::{Node, NodeEntry};
use crate::file::shared::OpenFile;
use crate::file::window::{ChunkSize, ReadWindow};
use crate::format::pointer::Pointer;
use crate::limits::{DEPTH_MAX, NODE_CHUNK_BYTES_MAX};
use crate::{DamageKind, Error, Offset};

/// The windows through which nodes are read.
#[derive(Debug)]
pub(crate) struct ReadWindows {
    exact: ReadWindow,
    /// For contiguous leaves.
    ahead: ReadWindow,
    /// `true` if interior nodes are cached when read.
    remembers: bool,
    /// `true` if leaves are cached when read, if the cache has any.
    remembers_leaves: bool,
    /// The memory of a leaf, for reuse.
    spare: Option<Node>,
}

impl ReadWindows {
    /// Creates windows for lookups, which cache the nodes that they read.
    pub(crate) fn exact() -> Self {
        ReadWindows {
            exact: ReadWindow::exact(),
            ahead: ReadWindow::exact(),
            remembers: true,
            remembers_leaves: true,
            spare: None,
        }
    }

    /// Creates windows for scans, which read leaves up to `ahead_max` bytes ahead and leave the cache unchanged.
    pub(crate) fn scan(ahead_max: usize) -> Self {
        ReadWindows {
            exact: ReadWindow::exact(),
            ahead: ReadWindow::ahead(ahead_max),
            remembers: false,
            remembers_leaves: false,
            spare: None,
        }
    }

    /// Creates windows for updates, which read leaves ahead if many change, and cache interior nodes.
    pub(crate) fn update(ahead_max: usize) -> Self {
        ReadWindows {
            remembers: true,
            ..ReadWindows::scan(ahead_max)
        }
    }
}

/// Reads the nodes that a header refers to.
#[derive(Debug)]
pub(crate) struct NodeReader<'a> {
    pub(crate) shared: &'a OpenFile,
    /// The header, beyond which nothing is read.
    end: Offset,
    windows: &'a mut ReadWindows,
}

impl<'a> NodeReader<'a> {
    /// Creates a reader of nodes before `end`.
    pub(crate) fn new(shared: &'a OpenFile, end: Offset, windows: &'a mut ReadWindows) -> Self {
        NodeReader {
            shared,
            end,
            windows,
        }
    }

    /// Returns the node that `pointer` refers to.
    pub(crate) fn node<T: Tree>(&mut self, pointer: &Pointer<T::Reduce>) -> Result<Node, Error> {
        if let Some(node) = self.shared.cache().get(T::cache_key(pointer.offset)) {
            return Ok(node);
        }
        self.read::<T>(pointer)
    }

    /// Returns the node that `pointer` refers to, `depth` levels below the root. Leaves are not searched in the cache
    /// once their depth is known and the cache has none.
    fn node_at<T: Tree>(
        &mut self,
        pointer: &Pointer<T::Reduce>,
        depth: usize,
    ) -> Result<Node, Error> {
        let cache = self.shared.cache();
        let leaf_depth = cache.leaf_depth(T::NUMBER);
        let node = if leaf_depth.is(depth) && !cache.has_leaves() {
            self.read::<T>(pointer)?
        } else {
            self.node::<T>(pointer)?
        };
        leaf_depth.learn(depth, node.is_leaf());
        Ok(node)
    }

    /// Reads the node that `pointer` refers to from disk.
    fn read<T: Tree>(&mut self, pointer: &Pointer<T::Reduce>) -> Result<Node, Error> {
        let (shared, at) = (self.shared, Offset(pointer.offset));
        let expect = ChunkSize::UpTo(pointer.subtree_bytes);
        let window = &mut self.windows.exact;
        let body = window.chunk(shared, at, expect, NODE_CHUNK_BYTES_MAX, self.end)?;
        let mut spare = self.windows.spare.take();
        let decoded = decode_over::<T>(&mut spare, at, body);
        decoded.map_err(|problem| shared.corrupt(at, problem))?;
        let node = spare.expect("it was just decoded");
        let is_kept = if node.is_leaf() {
            self.windows.remembers_leaves && shared.cache().has_leaves()
        } else {
            self.windows.remembers
        };
        if !is_kept {
            return Ok(node);
        }
        let kept = Node::trusted(node.bytes());
        shared.cache().insert(T::cache_key(at.0), kept.clone());
        self.windows.spare = Some(node);
        Ok(kept)
    }

    /// Reads the node that `pointer` refers to from disk, with its size there; with `ahead` if it is expected to be a
    /// leaf beside others.
    pub(crate) fn node_and_bytes<T: Tree>(
        &mut self,
        pointer: &Pointer<T::Reduce>,
        ahead: bool,
    ) -> Result<(Node, u64), Error> {
        let (shared, at) = (self.shared, Offset(pointer.offset));
        let expect = ChunkSize::UpTo(pointer.subtree_bytes);
        let window = if ahead {
            &mut self.windows.ahead
        } else {
            &mut self.windows.exact
        };
        let body = window.chunk(shared, at, expect, NODE_CHUNK_BYTES_MAX, self.end)?;
        let node = Node::decode::<T>(at.0, body).map_err(|problem| shared.corrupt(at, problem))?;
        let bytes = shared.codec().disk_bytes(body.len());
        Ok((node, bytes as u64))
    }

    /// Reads the node that `pointer` refers to, ahead because it is expected to be a leaf beside others. Reuses the
    /// memory of `node`.
    pub(crate) fn leaf<T: Tree>(
        &mut self,
        pointer: &Pointer<T::Reduce>,
        node: &mut Option<Node>,
    ) -> Result<(), Error> {
        let (shared, at) = (self.shared, Offset(pointer.offset));
        let expect = ChunkSize::UpTo(pointer.subtree_bytes);
        let window = &mut self.windows.ahead;
        let body = window.chunk(shared, at, expect, NODE_CHUNK_BYTES_MAX, self.end)?;
        decode_over::<T>(node, at, body).map_err(|problem| shared.corrupt(at, problem))
    }

    /// Removes a node from the cache.
    pub(crate) fn forget<T: Tree>(&self, pointer: &Pointer<T::Reduce>) {
        self.shared.cache().remove(T::cache_key(pointer.offset));
    }

    pub(crate) fn too_deep<T: Tree>(&self, pointer: &Pointer<T::Reduce>) -> Error {
        self.shared
            .corrupt(Offset(pointer.offset), DamageKind::Depth)
    }

    /// Returns the result of `found` for the entry of `key`, if there is one.
    pub(crate) fn find<T: Tree, R>(
        &mut self,
        root: &Pointer<T::Reduce>,
        key: &[u8],
        found: impl FnOnce(NodeEntry<'_>) -> R,
    ) -> Result<Option<R>, Error> {
        let mut pointer = *root;
        for depth in 0..DEPTH_MAX {
            let node = self.node_at::<T>(&pointer, depth)?;
            let Some(entry) = node.entries().find(|entry| entry.key >= key) else {
                return Ok(None);
            };
            if node.is_leaf() {
                return Ok((entry.key == key).then(|| found(entry)));
            }
            pointer = entry.pointer::<T>();
        }
        Err(self.too_deep::<T>(&pointer))
    }

    /// Looks up ascending keys in one walk; `found` receives the index of each existing key.
    pub(crate) fn find_many<T: Tree, K: AsRef<[u8]>>(
        &mut self,
        pointer: &Pointer<T::Reduce>,
        keys: &[(usize, K)],
        depth: usize,
        found: &mut dyn FnMut(usize, NodeEntry<'_>),
    ) -> Result<(), Error> {
        if depth == DEPTH_MAX {
            return Err(self.too_deep::<T>(pointer));
        }
        let node = self.node_at::<T>(pointer, depth)?;
        let mut left = keys;
        for entry in node.entries() {
            let below = left.partition_point(|(_, key)| key.as_ref() <= entry.key);
            let (here, rest) = left.split_at(below);
            left = rest;
            if here.is_empty() {
                continue;
            }
            if node.is_leaf() {
                for (index, key) in here {
                    if key.as_ref() == entry.key {
                        found(*index, entry);
                    }
                }
            } else {
                self.find_many::<T, K>(&entry.pointer::<T>(), here, depth + 1, found)?;
            }
            if left.is_empty() {
                break;
            }
        }
        if node.is_leaf() {
            self.windows.spare = Some(node);
        }
        Ok(())
    }
}

/// Returns the result of `found` for the entry of `key`, using cached nodes only: `None` also if they do not suffice.
pub(crate) fn find_in_memory<T: Tree, R>(
    shared: &OpenFile,
    root: &Pointer<T::Reduce>,
    key: &[u8],
    found: impl FnOnce(NodeEntry<'_>) -> R,
) -> Option<R> {
    let mut pointer = *root;
    for _ in 0..DEPTH_MAX {
        let node = shared.cache().get(T::cache_key(pointer.offset))?;
        let entry = node.entries().find(|entry| entry.key >= key)?;
        if node.is_leaf() {
            return (entry.key == key).then(|| found(entry));
        }
        pointer = entry.pointer::<T>();
    }
    None
}

/// Decodes a node into the memory of another, if there is one.
fn decode_over<T: Tree>(
    node: &mut Option<Node>,
    at: Offset,
    body: &[u8],
) -> Result<(), DamageKind> {
    match node {
        Some(node) => node.decode_again::<T>(at.0, body),
        None => {
            *node = Some(Node::decode::<T>(at.0, body)?);
            Ok(())
        }
    }
}
