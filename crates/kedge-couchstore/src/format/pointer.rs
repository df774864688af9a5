//! Pointers to subtrees in interior nodes and root records, and their sums over the subtree: the reduce values
//! (couchstore file format, sections 1.6, 2 and 2.1).

use super::bytes::{be40, be48, u40_at, u48_at};

/// The sums that a tree keeps of its entries.
pub(crate) trait Reduce: Copy + Default + PartialEq + std::fmt::Debug {
    /// Size of an encoded reduce value, in bytes.
    const BYTES: usize;

    /// Appends the encoded form.
    fn put(&self, out: &mut Vec<u8>);

    /// Decodes the value from exactly [`Reduce::BYTES`] bytes.
    fn take(bytes: &[u8]) -> Self;

    /// Adds the value of another part of the tree. A hostile file may cause an overflow; its totals are wrong in any
    /// case.
    fn add(&mut self, other: &Self);
}

/// The reduce value of the tree by seqno: the number of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SeqnoReduce {
    pub(crate) count: u64,
}

/// The reduce value of the tree by id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct IdReduce {
    /// Number of documents that are not tombstones.
    pub(crate) live: u64,
    /// Number of tombstones.
    pub(crate) deleted: u64,
    /// Size of all bodies, in bytes on disk.
    pub(crate) body_bytes: u64,
}

/// The reduce value of the tree of local documents, which is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct NoReduce;

impl Reduce for SeqnoReduce {
    const BYTES: usize = 5;

    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&be40(self.count));
    }

    fn take(bytes: &[u8]) -> Self {
        SeqnoReduce {
            count: u40_at(bytes, 0),
        }
    }

    fn add(&mut self, other: &Self) {
        self.count = self.count.wrapping_add(other.count);
    }
}

impl Reduce for IdReduce {
    const BYTES: usize = 16;

    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&be40(self.live));
        out.extend_from_slice(&be40(self.deleted));
        out.extend_from_slice(&be48(self.body_bytes));
    }

    fn take(bytes: &[u8]) -> Self {
        IdReduce {
            live: u40_at(bytes, 0),
            deleted: u40_at(bytes, 5),
            body_bytes: u48_at(bytes, 10),
        }
    }

    fn add(&mut self, other: &Self) {
        self.live = self.live.wrapping_add(other.live);
        self.deleted = self.deleted.wrapping_add(other.deleted);
        self.body_bytes = self.body_bytes.wrapping_add(other.body_bytes);
    }
}

impl Reduce for NoReduce {
    const BYTES: usize = 0;

    fn put(&self, _: &mut Vec<u8>) {}

    fn take(_: &[u8]) -> Self {
        NoReduce
    }

    fn add(&mut self, _: &Self) {}
}

/// Size of a pointer's two fixed fields, in bytes.
const FIXED_BYTES: usize = 12;

/// A reference to a node and everything below it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Pointer<R> {
    /// Offset of the node's chunk.
    pub(crate) offset: u64,
    /// Size of the node and all nodes below it, in bytes on disk, without bodies.
    pub(crate) subtree_bytes: u64,
    /// The reduce value of its entries.
    pub(crate) reduce: R,
}

impl<R: Reduce> Pointer<R> {
    /// Size of a root record, in bytes.
    pub(crate) const ROOT_BYTES: usize = FIXED_BYTES + R::BYTES;
    /// Size of an interior node's value, in bytes.
    pub(crate) const VALUE_BYTES: usize = FIXED_BYTES + 2 + R::BYTES;

    /// Appends the root record.
    pub(crate) fn put_root(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&be48(self.offset));
        out.extend_from_slice(&be48(self.subtree_bytes));
        self.reduce.put(out);
    }

    /// Decodes the root record from exactly [`Pointer::ROOT_BYTES`] bytes.
    pub(crate) fn take_root(bytes: &[u8]) -> Self {
        Pointer {
            offset: u48_at(bytes, 0),
            subtree_bytes: u48_at(bytes, 6),
            reduce: R::take(&bytes[FIXED_BYTES..]),
        }
    }

    /// Appends the value of an interior node's entry.
    pub(crate) fn put_value(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&be48(self.offset));
        out.extend_from_slice(&be48(self.subtree_bytes));
        out.extend_from_slice(&(R::BYTES as u16).to_be_bytes());
        self.reduce.put(out);
    }

    /// Decodes the value of an interior node's entry, if it has the size of this tree's.
    pub(crate) fn take_value(bytes: &[u8]) -> Option<Self> {
        let sound =
            bytes.len() == Self::VALUE_BYTES && bytes[12..14] == (R::BYTES as u16).to_be_bytes();
        sound.then(|| Pointer {
            offset: u48_at(bytes, 0),
            subtree_bytes: u48_at(bytes, 6),
            reduce: R::take(&bytes[FIXED_BYTES + 2..]),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn survives<R: Reduce>(reduce: R) {
        let pointer = Pointer {
            offset: 0x1234_5678_9abc,
            subtree_bytes: 99,
            reduce,
        };
        let mut root = Vec::new();
        pointer.put_root(&mut root);
        assert_eq!(root.len(), Pointer::<R>::ROOT_BYTES);
        assert_eq!(Pointer::take_root(&root), pointer);
        let mut value = Vec::new();
        pointer.put_value(&mut value);
        assert_eq!(Pointer::take_value(&value), Some(pointer));
        assert_eq!(Pointer::<R>::take_value(&value[1..]), None);
        value[13] ^= 1;
        assert_eq!(Pointer::<R>::take_value(&value), None);
    }

    #[test]
    fn pointers_round_trip() {
        survives(SeqnoReduce { count: 7 });
        survives(NoReduce);
        survives(IdReduce {
            live: (1 << 40) - 1,
            deleted: 3,
            body_bytes: (1 << 48) - 1,
        });
    }
}
