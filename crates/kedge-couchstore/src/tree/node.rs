//! One node, decompressed and validated: after [`Node::check`] its entries can be read without further checks.

use std::sync::Arc;

use super::Tree;
use crate::DamageKind;
use crate::compress::{inflate_into, inflated_bytes};
use crate::format::bytes::{lengths_at, u48_at};
use crate::format::pointer::Pointer;
use crate::limits::NODE_BYTES_MAX;

const INTERIOR: u8 = 0;
/// Type byte of a leaf.
pub(crate) const LEAF: u8 = 1;
/// Size of the two lengths before an entry, in bytes.
pub(crate) const LENGTHS_BYTES: usize = 5;
/// Offset of the first entry in a node.
pub(crate) const FIRST_ENTRY: usize = 1;

/// Returns the type byte of a node at this height above the leaves.
pub(crate) fn type_byte(height: usize) -> u8 {
    if height == 0 { LEAF } else { INTERIOR }
}

/// A node that passed [`Node::check`]. It is cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    /// Memory whose first `len` bytes are the node.
    memory: Arc<[u8]>,
    len: usize,
}

impl Node {
    /// Decodes the node in the body of a chunk at `offset`.
    pub(crate) fn decode<T: Tree>(offset: u64, compressed: &[u8]) -> Result<Self, DamageKind> {
        let len = inflated_bytes(compressed, NODE_BYTES_MAX)?;
        let mut memory: Arc<[u8]> = std::iter::repeat_n(0, len).collect();
        let inside = Arc::get_mut(&mut memory).expect("nobody else has it yet");
        inflate_into(compressed, inside)?;
        check::<T>(offset, &memory)?;
        Ok(Node { memory, len })
    }

    /// Decodes a node like [`Node::decode`], into the memory of this one, if it is large enough and has no other owner.
    pub(crate) fn decode_again<T: Tree>(
        &mut self,
        offset: u64,
        compressed: &[u8],
    ) -> Result<(), DamageKind> {
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

    /// Wraps bytes that this crate has just encoded.
    pub(crate) fn trusted(bytes: &[u8]) -> Self {
        Node {
            memory: bytes.into(),
            len: bytes.len(),
        }
    }

    /// Returns the bytes of the node.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.memory[..self.len]
    }

    /// Returns shared memory that begins with the node's bytes.
    pub(crate) fn memory(&self) -> &Arc<[u8]> {
        &self.memory
    }

    pub(crate) fn is_leaf(&self) -> bool {
        self.memory[0] == LEAF
    }

    /// Returns the entry at `at`, which is [`FIRST_ENTRY`] or the end of another one; `None` at the end of the node.
    pub(crate) fn entry(&self, at: usize) -> Option<NodeEntry<'_>> {
        entry_at(self.bytes(), at)
    }

    /// Iterates over all entries.
    pub(crate) fn entries(&self) -> NodeEntries<'_> {
        NodeEntries {
            bytes: self.bytes(),
            at: FIRST_ENTRY,
        }
    }
}

/// An entry of a node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NodeEntry<'a> {
    /// Its start within the node.
    pub(crate) start: usize,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    /// The entry with its lengths, which is copied when the entry moves to another node.
    pub(crate) raw: &'a [u8],
}

impl NodeEntry<'_> {
    /// Returns its end within the node.
    pub(crate) fn end(&self) -> usize {
        self.start + self.raw.len()
    }

    /// Returns the child that an entry of an interior node points to.
    pub(crate) fn pointer<T: Tree>(&self) -> Pointer<T::Reduce> {
        Pointer::take_value(self.value).expect("the node was checked")
    }
}

/// An iterator over the entries of a node.
#[derive(Debug, Clone)]
pub(crate) struct NodeEntries<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Iterator for NodeEntries<'a> {
    type Item = NodeEntry<'a>;

    fn next(&mut self) -> Option<NodeEntry<'a>> {
        let entry = entry_at(self.bytes, self.at)?;
        self.at = entry.end();
        Some(entry)
    }
}

/// Returns the entry at `at` of a validated node.
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

/// Validates everything in a node that does not depend on another node.
fn check<T: Tree>(offset: u64, bytes: &[u8]) -> Result<(), DamageKind> {
    let is_leaf = match bytes.first() {
        Some(&LEAF) => true,
        Some(&INTERIOR) => false,
        Some(&other) => return Err(DamageKind::NodeType(other)),
        None => return Err(DamageKind::NodeEmpty),
    };
    if bytes.len() == FIRST_ENTRY {
        return Err(DamageKind::NodeEmpty);
    }
    let mut at = FIRST_ENTRY;
    let mut last: Option<&[u8]> = None;
    while at < bytes.len() {
        let here = at as u32;
        if bytes.len() - at < LENGTHS_BYTES {
            return Err(DamageKind::EntryLength(here));
        }
        let (key, value) = lengths_at(bytes, at);
        let end = at + LENGTHS_BYTES + key + value;
        let entry = bytes
            .get(at + LENGTHS_BYTES..end)
            .ok_or(DamageKind::EntryLength(here))?;
        let (key, value) = entry.split_at(key);
        if last.is_some_and(|last| last >= key) {
            return Err(DamageKind::KeyOrder(here));
        }
        if is_leaf {
            if !T::is_sound(key, value) {
                return Err(DamageKind::EntryShape(here));
            }
        } else {
            check_child::<T>(offset, value).ok_or(DamageKind::EntryShape(here))??;
        }
        last = Some(key);
        at = end;
    }
    Ok(())
}

/// Validates a pointer to a child. Returns `None` if the value does not have the form of a pointer.
fn check_child<T: Tree>(parent: u64, value: &[u8]) -> Option<Result<(), DamageKind>> {
    Pointer::<T::Reduce>::take_value(value)?;
    let child = u48_at(value, 0);
    Some(if child == 0 || child >= parent {
        Err(DamageKind::ChildOffset(child))
    } else {
        Ok(())
    })
}

#[cfg(test)]
mod tests;
