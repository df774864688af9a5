//! The kinds of damage: what a place of a file should have contained.

/// What a damaged place should have contained. The error it comes in names file and offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The first byte of a block is none of the known types.
    #[error("expected a block type of 0, 1 or 2, found {0}")]
    BlockType(u8),
    /// The file ends within a header.
    #[error("expected a whole header, the file ends within it")]
    HeaderShort,
    /// A header's length is impossible.
    #[error("expected a header length of 4 to 1024, found {0}")]
    HeaderLength(u32),
    /// A header's checksum does not fit.
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
        /// The size found.
        found: u16,
    },
    /// A root lies at or behind its own header, or at 0.
    #[error("expected the root before its header, found it at byte {0}")]
    RootOffset(u64),
    /// The purge pointer lies behind its own header.
    #[error("expected the purge pointer before its header, found {0}")]
    PurgePointer(u64),
    /// There should be a header here.
    #[error("expected a header here")]
    NotAHeader,
    /// The metadata header of an encrypted file is not sound.
    #[error("expected a sound metadata header of an encrypted file")]
    MetadataHeader,
    /// The metadata header does not fit the key.
    #[error("expected the metadata header to fit the encryption key")]
    MetadataKey,
    /// The flag of a chunk's length is that of the other kind of chunk.
    #[error("expected the length of a data chunk, found its flag wrong")]
    ChunkFlag,
    /// A chunk reaches beyond the header that refers to it, or is above what is ever written.
    #[error("expected the chunk to end before its header, its length is {0}")]
    ChunkLength(u64),
    /// A chunk's checksum does not fit.
    #[error("expected another checksum of the chunk")]
    ChunkChecksum,
    /// An encrypted chunk does not decrypt: damaged, or another key.
    #[error("expected the chunk to decrypt with the file's key")]
    ChunkSeal,
    /// Compressed bytes cannot be decompressed.
    #[error("expected sound Snappy data")]
    Snappy,
    /// Compressed bytes state a length that they cannot have.
    #[error("expected Snappy data of a possible length, found {0}")]
    SnappyLength(u64),
    /// A node's first byte is neither leaf nor interior.
    #[error("expected a node type of 0 or 1, found {0}")]
    NodeType(u8),
    /// A node has no entries.
    #[error("expected a node with entries, found none")]
    NodeEmpty,
    /// An entry reaches beyond its node.
    #[error("expected the entry to end within its node, at byte {0} of it")]
    EntryLength(u32),
    /// An entry's value is too short, or a key has the wrong length, for its tree.
    #[error("expected an entry of this tree, at byte {0} of the node")]
    EntryShape(u32),
    /// Keys are not in ascending order.
    #[error("expected keys in ascending order, at byte {0} of the node")]
    KeyOrder(u32),
    /// A child lies at or behind its parent, or at 0.
    #[error("expected the child before its parent, found it at byte {0}")]
    ChildOffset(u64),
    /// The tree by id knows a seqno that the tree by seqno does not have.
    #[error("expected the seqno {0} in the tree by seqno")]
    SeqnoMissing(u64),
    /// An interior node does not have the last key of its child.
    #[error("expected the last key below an entry to be its own, at byte {0} of the node")]
    LastKey(u32),
    /// The sums of a subtree are not those of its entries.
    #[error("expected other sums of the subtree")]
    Reduce,
    /// The size of a subtree is not that of its nodes.
    #[error("expected {expected} bytes of nodes in the subtree, its pointer says {found}")]
    SubtreeBytes {
        /// What the nodes have.
        expected: u64,
        /// What the pointer says.
        found: u64,
    },
    /// The trees by id and by seqno do not say the same.
    #[error("expected both trees to have the same documents, they differ at seqno {0}")]
    TreesDiffer(u64),
    /// An entry has a seqno above the highest that the header says was reached.
    #[error("expected seqnos up to {newest}, found {found}")]
    SeqnoAbove {
        /// The seqno found.
        found: u64,
        /// What the header says.
        newest: u64,
    },
    /// Bodies add up to more than the file has room for, so entries share them.
    #[error("expected each entry to have a body of its own, together they have {0} bytes")]
    BodiesOverlap(u64),
    /// A tree has more levels than are possible.
    #[error("expected a tree of at most 64 levels")]
    Depth,
    /// A body pointer and its size contradict each other or lie behind the header.
    #[error("expected a body before its header, found it at byte {0}")]
    BodyPointer(u64),
    /// A body's chunk does not have the size that its entry states.
    #[error("expected a body of {expected} bytes on disk, found {found}")]
    BodySize {
        /// What the entry states.
        expected: u32,
        /// What the chunk has.
        found: u64,
    },
}
