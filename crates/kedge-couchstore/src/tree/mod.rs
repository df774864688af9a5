//! B+trees, copy-on-write: nodes and how to read, search, update and build them (couchstore file format, section 2).
//!
//! Properties of a sound tree, on which readers rely only after a check:
//! * A child was written before its parent, so its offset is smaller: no tree has a cycle.
//! * Keys ascend within a node; an interior node has the last key below each child.
//! * No node is empty; an empty tree has no root.

pub(crate) mod build;
pub(crate) mod count;
pub(crate) mod cursor;
pub(crate) mod node;
pub(crate) mod pack;
pub(crate) mod search;
pub(crate) mod update;

use crate::format::bytes::{u32_at, u48_at};
use crate::format::entry::{EntryFields, ID_FIXED_BYTES, SEQNO_FIXED_BYTES};
use crate::format::pointer::{IdReduce, NoReduce, Reduce, SeqnoReduce};

/// One of the three trees, with the format of its leaves.
pub(crate) trait Tree: Copy + std::fmt::Debug {
    /// The type of its reduce values.
    type Reduce: Reduce;

    /// The number of the tree, from 0 to 3.
    const NUMBER: u64;

    /// `true` if its entries are documents.
    const IS_OF_DOCUMENTS: bool = true;

    /// Returns the cache key of a node. A hostile file may refer to one node from two trees, which have different
    /// checks.
    fn cache_key(offset: u64) -> u64 {
        offset << 2 | Self::NUMBER
    }

    /// Returns `true` if an entry of a leaf has the form of this tree's.
    fn is_sound(key: &[u8], value: &[u8]) -> bool;

    /// Returns the reduce value of one entry.
    fn reduce(value: &[u8]) -> Self::Reduce;

    /// Returns the number of bytes at the end of a leaf's entry that resemble the end of the entry before it, even if
    /// the keys have different lengths. `None` if entries do not resemble each other.
    fn tail_bytes(value: &[u8]) -> Option<usize>;
}

/// The tree by document key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ById;

/// The tree by seqno.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BySeqno;

/// The tree of local documents.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Local;

impl Tree for ById {
    type Reduce = IdReduce;
    const NUMBER: u64 = 0;

    fn is_sound(_: &[u8], value: &[u8]) -> bool {
        value.len() >= ID_FIXED_BYTES
    }

    fn reduce(value: &[u8]) -> IdReduce {
        let deleted = u64::from(value[10] >> 7);
        IdReduce {
            live: 1 - deleted,
            deleted,
            body_bytes: u32_at(value, 6).into(),
        }
    }

    fn tail_bytes(value: &[u8]) -> Option<usize> {
        Some(value.len())
    }
}

impl Tree for BySeqno {
    type Reduce = SeqnoReduce;
    const NUMBER: u64 = 1;

    fn is_sound(key: &[u8], value: &[u8]) -> bool {
        key.len() == 6 && EntryFields::take_seqno(u48_at(key, 0), value).is_some()
    }

    fn reduce(_: &[u8]) -> SeqnoReduce {
        SeqnoReduce { count: 1 }
    }

    fn tail_bytes(value: &[u8]) -> Option<usize> {
        let (_, key_bytes) = EntryFields::take_seqno(0, value)?;
        Some(value.len() - SEQNO_FIXED_BYTES - key_bytes)
    }
}

impl Tree for Local {
    type Reduce = NoReduce;
    const NUMBER: u64 = 2;
    const IS_OF_DOCUMENTS: bool = false;

    fn is_sound(_: &[u8], _: &[u8]) -> bool {
        true
    }

    fn reduce(_: &[u8]) -> NoReduce {
        NoReduce
    }

    fn tail_bytes(_: &[u8]) -> Option<usize> {
        None
    }
}
