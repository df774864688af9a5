//! The kinds of damage.

/// The kind of a damage. The error that contains it has file and offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DamageKind {
    /// Unknown type byte of a block.
    #[error("expected a block type of 0, 1 or 2, found {0}")]
    BlockType(u8),
    /// The file ends within a header.
    #[error("expected a whole header, the file ends within it")]
    HeaderShort,
    /// Impossible length of a header.
    #[error("expected a header length of 4 to 1024, found {0}")]
    HeaderLength(u32),
    /// Wrong checksum of a header.
    #[error("expected another checksum of the header")]
    HeaderChecksum,
    /// The parts of a header do not add up to its length.
    #[error("expected the parts of the header to fill it exactly")]
    HeaderParts,
    /// The size of a root record is neither 0 nor that of its tree.
    #[error("expected a root record of {expected} bytes or none, found {found}")]
    RootSize {
        /// The size for this tree.
        expected: u16,
        /// The size in the header.
        found: u16,
    },
    /// The offset of a root is 0, or not before its header.
    #[error("expected the root before its header, found it at byte {0}")]
    RootOffset(u64),
    /// The purge pointer is not before its header.
    #[error("expected the purge pointer before its header, found {0}")]
    PurgePointer(u64),
    /// There is no header at this offset.
    #[error("expected a header here")]
    NotAHeader,
    /// The metadata header of an encrypted file is damaged.
    #[error("expected a sound metadata header of an encrypted file")]
    MetadataHeader,
    /// The metadata header does not belong to the key.
    #[error("expected the metadata header to fit the encryption key")]
    MetadataKey,
    /// The flag in a chunk's length is that of the other kind of chunk.
    #[error("expected the length of a data chunk, found its flag wrong")]
    ChunkFlag,
    /// A chunk extends beyond the header that refers to it, or is larger than any valid one.
    #[error("expected the chunk to end before its header, its length is {0}")]
    ChunkLength(u64),
    /// Wrong checksum of a chunk.
    #[error("expected another checksum of the chunk")]
    ChunkChecksum,
    /// An encrypted chunk cannot be decrypted: it is damaged, or the key is wrong.
    #[error("expected the chunk to decrypt with the file's key")]
    ChunkSeal,
    /// Compressed bytes cannot be decompressed.
    #[error("expected sound Snappy data")]
    Snappy,
    /// The stated length of compressed bytes is impossible.
    #[error("expected Snappy data of a possible length, found {0}")]
    SnappyLength(u64),
    /// The type byte of a node is neither leaf nor interior.
    #[error("expected a node type of 0 or 1, found {0}")]
    NodeType(u8),
    /// An empty node.
    #[error("expected a node with entries, found none")]
    NodeEmpty,
    /// An entry extends beyond its node.
    #[error("expected the entry to end within its node, at byte {0} of it")]
    EntryLength(u32),
    /// The value of an entry is too short for its tree, or the length of its key is wrong.
    #[error("expected an entry of this tree, at byte {0} of the node")]
    EntryShape(u32),
    /// Keys are not in ascending order.
    #[error("expected keys in ascending order, at byte {0} of the node")]
    KeyOrder(u32),
    /// The offset of a child is 0, or not before its parent.
    #[error("expected the child before its parent, found it at byte {0}")]
    ChildOffset(u64),
    /// The tree by id has a seqno that is missing in the tree by seqno.
    #[error("expected the seqno {0} in the tree by seqno")]
    SeqnoMissing(u64),
    /// The key in an interior node is not the last key of the child.
    #[error("expected the last key below an entry to be its own, at byte {0} of the node")]
    LastKey(u32),
    /// The reduce values of a subtree are not the sums of its entries.
    #[error("expected other sums of the subtree")]
    Reduce,
    /// The stated size of a subtree is not that of its nodes.
    #[error("expected {expected} bytes of nodes in the subtree, its pointer says {found}")]
    SubtreeBytes {
        /// The size of the nodes.
        expected: u64,
        /// The size in the pointer.
        found: u64,
    },
    /// The trees by id and by seqno contradict each other.
    #[error("expected both trees to have the same documents, they differ at seqno {0}")]
    TreesDiffer(u64),
    /// An entry has a seqno above the highest one in the header.
    #[error("expected seqnos up to {newest}, found {found}")]
    SeqnoAbove {
        /// The seqno of the entry.
        found: u64,
        /// The seqno in the header.
        newest: u64,
    },
    /// The bodies take more space than the file has, so entries share them.
    #[error("expected each entry to have a body of its own, together they have {0} bytes")]
    BodiesOverlap(u64),
    /// A tree has too many levels.
    #[error("expected a tree of at most 64 levels")]
    Depth,
    /// A body pointer and its size contradict each other, or point beyond the header.
    #[error("expected a body before its header, found it at byte {0}")]
    BodyPointer(u64),
    /// The size of a body's chunk is not that in the entry.
    #[error("expected a body of {expected} bytes on disk, found {found}")]
    BodySize {
        /// The size in the entry.
        expected: u32,
        /// The size of the chunk.
        found: u64,
    },
}
