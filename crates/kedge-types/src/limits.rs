//! Every limit of the server, in one place. `docs/limits.md` says what a client sees when it meets one.

/// Longest logical key in the default collection, and of a client without collections, in bytes.
pub const KEY_BYTES_MAX: usize = 250;
/// Longest logical key in any other collection: a five-byte collection id must fit beside it.
pub const KEY_IN_COLLECTION_BYTES_MAX: usize = 246;
/// Longest key as stored, collection prefix included.
pub const STORED_KEY_BYTES_MAX: usize = 251;
/// Largest document value after inflation, in bytes (20 MiB).
pub const VALUE_BYTES_MAX: usize = 20 << 20;
/// Largest frame body a client may send, in bytes (30 MiB). A longer one closes the connection unanswered.
pub const FRAME_BODY_BYTES_MAX: usize = 30 << 20;
/// Most bytes that a compressed value may claim to inflate to.
pub const INFLATED_BYTES_MAX: usize = 30 << 20;
/// Longest agent text in HELLO, in bytes.
pub const AGENT_BYTES_MAX: usize = 250;
/// Longest bucket name, in bytes.
pub const BUCKET_NAME_BYTES_MAX: usize = 100;
/// Most buckets of one server.
pub const BUCKETS_MAX: usize = 30;
/// Most vBuckets of a bucket; a vBucket id has 16 bits and the hash 15.
pub const VBUCKETS_MAX: u16 = u16::MAX;
/// Commands of one connection that may be in flight out of order.
pub const UNORDERED_COMMANDS_MAX: usize = 32;
/// Seconds that GET_LOCKED locks when the client gives none, or too many.
pub const LOCK_SECS_DEFAULT: u32 = 15;
/// Longest lock, in seconds.
pub const LOCK_SECS_MAX: u32 = 30;
/// Expiry values up to this are relative, larger ones are Unix seconds (30 days).
pub const RELATIVE_EXPIRY_SECS_MAX: u32 = 30 * 24 * 60 * 60;
/// How long a SyncWrite may take when the client gives no timeout, in milliseconds.
pub const DURABILITY_TIMEOUT_MS_DEFAULT: u32 = 30_000;
/// How long SEQNO_PERSISTENCE waits, in seconds.
pub const SEQNO_PERSISTENCE_SECS: u64 = 30;
/// Entries kept of a vBucket's failover table.
pub const FAILOVER_ENTRIES_MAX: usize = 25;
/// Age after which a tombstone may go, in seconds (3 days).
pub const TOMBSTONE_PURGE_AGE_SECS: u64 = 259_200;
/// How long a shutdown goes on bringing into the vBuckets' files what the log has, in milliseconds; all buckets together.
pub const SHUTDOWN_SETTLE_MS: u64 = 2_000;
/// Commands of one bucket that may wait for documents to be read from the disk, and as many for memory.
pub const COMMANDS_WAITING_MAX: usize = 100_000;
/// How long a write may wait for memory, in milliseconds: less than the 2.5 s that SDKs wait for an answer.
pub const MEMORY_WAIT_MS_MAX: u64 = 2_000;

const _: () = assert!(KEY_BYTES_MAX < STORED_KEY_BYTES_MAX);
const _: () =
    assert!(KEY_IN_COLLECTION_BYTES_MAX + crate::LEB128_MAX_BYTES <= STORED_KEY_BYTES_MAX);
const _: () = assert!(STORED_KEY_BYTES_MAX <= u8::MAX as usize);
const _: () = assert!(VALUE_BYTES_MAX + STORED_KEY_BYTES_MAX + 64 < FRAME_BODY_BYTES_MAX);
const _: () = assert!(LOCK_SECS_DEFAULT <= LOCK_SECS_MAX);
