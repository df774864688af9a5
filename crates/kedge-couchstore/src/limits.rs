//! Every limit of this crate. Those of the format are what its fields can hold; the others keep a hostile file from
//! taking more time or memory than its own size justifies.

/// Bytes of a block: each begins with a byte that says what it is.
pub(crate) const BLOCK_BYTES: u64 = 4096;
/// Longest key, in bytes: a field of 12 bits.
pub const KEY_BYTES_MAX: usize = (1 << 12) - 1;
/// Largest value of a node's entry, and largest size of a body on disk, in bytes: fields of 28 bits.
pub const VALUE_BYTES_MAX: usize = (1 << 28) - 1;
/// Longest private metadata of a document, in bytes. The format would take more; nobody writes as much.
pub const REV_META_BYTES_MAX: usize = 4096;
/// Largest document body as stored, in bytes: its size with the chunk's head must fit [`VALUE_BYTES_MAX`], also when it
/// is encrypted.
pub const BODY_BYTES_MAX: usize = VALUE_BYTES_MAX - 64;
/// Largest local document, in bytes.
pub const LOCAL_BYTES_MAX: usize = 16 << 20;
/// Highest seqno, revision, and root offset: fields of 48 bits.
pub(crate) const U48_MAX: u64 = (1 << 48) - 1;
/// Offsets that a body pointer or the pointer to a header can hold have 47 bits; the last of them means "none".
pub(crate) const OFFSET_MAX: u64 = (1 << 47) - 2;
/// Longest header, checksum included, in bytes.
pub(crate) const HEADER_BYTES_MAX: u32 = 1024;
/// Largest chunk of a node that is read, in bytes on disk.
pub(crate) const NODE_CHUNK_BYTES_MAX: u32 = 64 << 20;
/// Largest node after decompression, in bytes.
pub(crate) const NODE_BYTES_MAX: usize = 64 << 20;
/// Largest body after decompression, in bytes.
pub(crate) const INFLATED_BODY_BYTES_MAX: usize = 1 << 30;
/// Levels of a tree. A tree of two children a node with 2^48 entries has fewer.
pub(crate) const DEPTH_MAX: usize = 64;
/// A node above this many bytes is split whatever number of entries it has.
pub(crate) const NODE_SPLIT_BYTES: usize = 64 << 10;

const _: () = assert!(NODE_SPLIT_BYTES + LOCAL_BYTES_MAX < NODE_BYTES_MAX / 2);
const _: () = assert!(BODY_BYTES_MAX < INFLATED_BODY_BYTES_MAX);
const _: () = assert!(HEADER_BYTES_MAX as u64 <= BLOCK_BYTES - 1 - 4);
const _: () = assert!(OFFSET_MAX < U48_MAX);
