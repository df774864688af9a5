//! The limits of this crate. Those of the format follow from its fields. The others bound the time and memory that a
//! hostile file can take by its size.

/// Size of a block in bytes. Each begins with a type byte.
pub(crate) const BLOCK_BYTES: u64 = 4096;
/// Length of the longest key, in bytes: a field of 12 bits.
pub const KEY_BYTES_MAX: usize = (1 << 12) - 1;
/// Size of the largest value of a node's entry, and of the largest body on disk, in bytes: fields of 28 bits.
pub const VALUE_BYTES_MAX: usize = (1 << 28) - 1;
/// Length of the longest private metadata of a document, in bytes. The format allows more, but no program writes as
/// much.
pub const REV_META_BYTES_MAX: usize = 4096;
/// Size of the largest stored body, in bytes. With the head of its chunk it must fit into [`VALUE_BYTES_MAX`],
/// encrypted or not.
pub const BODY_BYTES_MAX: usize = VALUE_BYTES_MAX - 64;
/// Size of the largest local document, in bytes.
pub const LOCAL_BYTES_MAX: usize = 16 << 20;
/// Highest seqno, revision, and root offset: fields of 48 bits.
pub(crate) const U48_MAX: u64 = (1 << 48) - 1;
/// Largest offset in a body pointer or a pointer to a header: 47 bits, of which the last value means "none".
pub(crate) const OFFSET_MAX: u64 = (1 << 47) - 2;
/// Length of the longest header, checksum included, in bytes.
pub(crate) const HEADER_BYTES_MAX: u32 = 1024;
/// Size of the largest chunk of a node that is read, in bytes on disk.
pub(crate) const NODE_CHUNK_BYTES_MAX: u32 = 64 << 20;
/// Size of the largest decompressed node, in bytes.
pub(crate) const NODE_BYTES_MAX: usize = 64 << 20;
/// Size of the largest decompressed body, in bytes.
pub(crate) const INFLATED_BODY_BYTES_MAX: usize = 1 << 30;
/// Largest number of levels of a tree. A tree with two children per node and 2^48 entries has fewer.
pub(crate) const DEPTH_MAX: usize = 64;
/// Size in bytes above which a node is split, whatever the number of its entries.
pub(crate) const NODE_SPLIT_BYTES: usize = 64 << 10;

const _: () = assert!(NODE_SPLIT_BYTES + LOCAL_BYTES_MAX < NODE_BYTES_MAX / 2);
const _: () = assert!(BODY_BYTES_MAX < INFLATED_BODY_BYTES_MAX);
const _: () = assert!(HEADER_BYTES_MAX as u64 <= BLOCK_BYTES - 1 - 4);
const _: () = assert!(OFFSET_MAX < U48_MAX);
