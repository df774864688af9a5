//! One node, decompressed and checked: after [`Node::check`] its entries can be walked without fear.

use std::sync::Arc;

use super::Tree;
use crate::Problem;
use crate::compress::{inflate_into, inflated_bytes};
use crate::format::bytes::{lengths_at, u48_at};
use crate::format::pointer::Pointer;
use crate::limits::NODE_BYTES_MAX;

const INTERIOR: u8 = 0;
/// Type byte of a leaf.
pub(crate) const LEAF: u8 = 1;
/// Bytes of the two lengths before an entry.
pub(crate) const LENGTHS_BYTES: usize = 5;
/// Where the first entry starts.
pub(crate) const FIRST_ENTRY: usize = 1;

/// The type byte of a node at this height above the leaves.
pub(crate) fn type_byte(height: usize) -> u8 {
    if height == 0 { LEAF } else { INTERIOR }
}

/// A node that passed [`Node::check`]. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    /// Memory, of which the first `len` bytes are the node.
    memory: Arc<[u8]>,
    len: usize,
}

impl Node {
    /// The node in the body of a chunk at `offset`.
    pub(crate) fn decode<T: Tree>(offset: u64, compressed: &[u8]) -> Result<Self, Problem> {
        let len = inflated_bytes(compressed, NODE_BYTES_MAX)?;
        let mut memory: Arc<[u8]> = std::iter::repeat_n(0, len).collect();
        let inside = Arc::get_mut(&mut memory).expect("nobody else has it yet");
        inflate_into(compressed, inside)?;
        check::<T>(offset, &memory)?;
        Ok(Node { memory, len })
    }

    /// As [`Node::decode`], into the memory of a node that nobody else holds any more, if it is large enough.
    pub(crate) fn decode_again<T: Tree>(
        &mut self,
        offset: u64,
        compressed: &[u8],
    ) -> Result<(), Problem> {
        let len = inflated_bytes(compressed, NODE_BYTES_MAX)?;
        match Arc::get_mut(&mut self.memory) {
            Some(inside) if inside.len() >= len => {
                let inside = &mut inside[..len];
                inflate_into(compressed, inside)?;
                check::<T>(offset, inside)?;
                self.len = len;
                Ok(())
            }
            _ => {
                *self = Node::decode::<T>(offset, compressed)?;
                Ok(())
            }
        }
    }

    /// Wraps bytes that were just encoded by this crate.
    pub(crate) fn trusted(bytes: &[u8]) -> Self {
        Node {
            memory: bytes.into(),
            len: bytes.len(),
        }
    }

    /// The node's bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.memory[..self.len]
    }

    /// Shared memory that begins with the node's bytes.
    pub(crate) fn memory(&self) -> &Arc<[u8]> {
        &self.memory
    }

    pub(crate) fn is_leaf(&self) -> bool {
        self.memory[0] == LEAF
    }

    /// The entry at `at`, which is [`FIRST_ENTRY`] or the end of another; `None` at the node's end.
    pub(crate) fn entry(&self, at: usize) -> Option<NodeEntry<'_>> {
        entry_at(self.bytes(), at)
    }

    /// All entries.
    pub(crate) fn entries(&self) -> Entries<'_> {
        Entries {
            bytes: self.bytes(),
            at: FIRST_ENTRY,
        }
    }
}

/// One entry of a node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NodeEntry<'a> {
    /// Where it starts within its node.
    pub(crate) start: usize,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    /// With its lengths: what is copied when the entry goes into another node.
    pub(crate) raw: &'a [u8],
}

impl NodeEntry<'_> {
    /// Where it ends within its node.
    pub(crate) fn end(&self) -> usize {
        self.start + self.raw.len()
    }

    /// The child that an entry of an interior node points to.
    pub(crate) fn pointer<T: Tree>(&self) -> Pointer<T::Reduce> {
        Pointer::take_value(self.value).expect("the node was checked")
    }
}

/// The entries of a node.
#[derive(Debug, Clone)]
pub(crate) struct Entries<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Entries<'a> {
    type Item = NodeEntry<'a>;

    fn next(&mut self) -> Option<NodeEntry<'a>> {
        let entry = entry_at(self.bytes, self.at)?;
        self.at = entry.end();
        Some(entry)
    }
}

/// The entry at `at` of a checked node.
pub(crate) fn entry_at(bytes: &[u8], at: usize) -> Option<NodeEntry<'_>> {
    if at >= bytes.len() {
        return None;
    }
    let (key, value) = lengths_at(bytes, at);
    let raw = &bytes[at..at + LENGTHS_BYTES + key + value];
    let (key, value) = raw[LENGTHS_BYTES..].split_at(key);
    Some(NodeEntry {
        start: at,
        key,
        value,
        raw,
    })
}

/// Checks all of a node that does not need another node.
fn check<T: Tree>(offset: u64, bytes: &[u8]) -> Result<(), Problem> {
    let is_leaf = match bytes.first() {
        Some(&LEAF) => true,
        Some(&INTERIOR) => false,
        Some(&other) => return Err(Problem::NodeType(other)),
        None => return Err(Problem::NodeEmpty),
    };
    if bytes.len() == FIRST_ENTRY {
        return Err(Problem::NodeEmpty);
    }
    let mut at = FIRST_ENTRY;
    let mut last: Option<&[u8]> = None;
    while at < bytes.len() {
        let here = at as u32;
        if bytes.len() - at < LENGTHS_BYTES {
            return Err(Problem::EntryLength(here));
        }
        let (key, value) = lengths_at(bytes, at);
        let end = at + LENGTHS_BYTES + key + value;
        let entry = bytes
            .get(at + LENGTHS_BYTES..end)
            .ok_or(Problem::EntryLength(here))?;
        let (key, value) = entry.split_at(key);
        if last.is_some_and(|last| last >= key) {
            return Err(Problem::KeyOrder(here));
        }
        if is_leaf {
            if !T::is_sound(key, value) {
                return Err(Problem::EntryShape(here));
            }
        } else {
            check_child::<T>(offset, value).ok_or(Problem::EntryShape(here))??;
        }
        last = Some(key);
        at = end;
    }
    Ok(())
}

/// `None` if the value has not the shape of a pointer.
fn check_child<T: Tree>(parent: u64, value: &[u8]) -> Option<Result<(), Problem>> {
    Pointer::<T::Reduce>::take_value(value)?;
    let child = u48_at(value, 0);
    Some(if child == 0 || child >= parent {
        Err(Problem::ChildOffset(child))
    } else {
        Ok(())
    })
}

#[cfg(test)]
mod tests;
