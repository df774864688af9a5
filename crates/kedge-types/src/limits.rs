//! Every limit of the server, in one place. `docs/reference/limits.md` says what a client sees when it meets one.

/// Longest logical key in the default collection, and of a client without collections, in bytes.
pub const KEY_BYTES_MAX: usize = 250;
/// Longest logical key in any other collection: a five-byte collection id must fit beside it.
pub const KEY_IN_COLLECTION_BYTES_MAX: usize = 246;
/// Longest key as stored, collection prefix included.
pub const STORED_KEY_BYTES_MAX: usize = 251;
/// Largest document value after inflation, in bytes (20 MiB).
pub const VALUE_BYTES_MAX: usize = 20 << 20;
/// What the system's extended attributes of a document may take, in bytes (1 MiB), beside [`VALUE_BYTES_MAX`] for the
/// body and all others.
pub const SYSTEM_XATTR_BYTES_MAX: usize = 1 << 20;
/// Longest name of an extended attribute, in bytes.
pub const XATTR_NAME_BYTES_MAX: usize = 15;
/// Largest frame body a client may send, in bytes (30 MiB). A longer one closes the connection unanswered.
pub const FRAME_BODY_BYTES_MAX: usize = 30 << 20;
/// Values of this length and longer, in bytes and without compression, are looked through, inflated and copied by tasks
/// (256 KiB): that takes too long for the event loop that other clients wait for.
pub const LONG_VALUE_BYTES: usize = 256 << 10;
/// Most bytes that a compressed value may claim to inflate to.
pub const INFLATED_BYTES_MAX: usize = 30 << 20;
/// Longest agent text in HELLO, in bytes.
pub const AGENT_BYTES_MAX: usize = 250;
/// Longest bucket name, in bytes.
pub const BUCKET_NAME_BYTES_MAX: usize = 100;
/// Most buckets of one server.
pub const BUCKETS_MAX: usize = 30;
/// Most scopes of a bucket, the default one among them.
pub const SCOPES_MAX: usize = 1_000;
/// Most collections of a bucket, the default one among them.
pub const COLLECTIONS_MAX: usize = 1_200;
/// Longest name of a scope or a collection, in bytes.
pub const MANIFEST_NAME_BYTES_MAX: usize = 251;
/// Longest time to live that a collection can be given, in seconds.
pub const COLLECTION_TTL_SECS_MAX: u32 = i32::MAX as u32;
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
/// How far ahead of the clock the CAS of a with-meta command may be, in milliseconds (65 minutes).
pub const CAS_AHEAD_MS_MAX: u64 = 3_900_000;
/// A CAS from elsewhere that is further from the clock is counted as drift, in milliseconds.
pub const CAS_DRIFT_MS: u64 = 5_000;
/// Highest revision that a with-meta command may bring; a document cannot be changed as often.
pub const WITH_META_REV_MAX: u64 = (1 << 47) - 1;
/// How long a shutdown goes on bringing into the vBuckets' files what the log has, in milliseconds; all buckets together.
pub const SHUTDOWN_APPLY_MS: u64 = 2_000;
/// Password checks that may wait for their turn: logins with SASL PLAIN and requests to management together.
pub const PASSWORD_CHECKS_WAITING_MAX: usize = 1_024;
/// Those of them that come from one address; of IPv6 from one network of 64 bits.
pub const PASSWORD_CHECKS_PER_ADDRESS_MAX: usize = 512;
/// Those of them that come from one address for one user.
pub const PASSWORD_CHECKS_PER_USER_MAX: usize = 256;
/// Connections of the management port at a time, in all.
pub const MGMT_CONNECTIONS_MAX: usize = 512;
/// Those of them on which no request had a right password yet.
pub const MGMT_UNAUTHENTICATED_MAX: usize = 128;
/// Those without a right password that come from one address; of IPv6 from one network of 64 bits.
pub const MGMT_UNAUTHENTICATED_PER_ADDRESS_MAX: usize = 32;
/// How long a connection of the management port may take to have a right password, in milliseconds.
pub const MGMT_UNAUTHENTICATED_MS_MAX: u64 = 5_000;
/// Connections of the management port that are kept for the other nodes of a cluster.
pub const MGMT_KEPT_FOR_NODES: usize = 128;
/// Connections of the management port that are kept for administrators, and nodes.
pub const MGMT_KEPT_FOR_ADMINISTRATORS: usize = 32;
/// Connections of the KV port that are kept for the other nodes of a cluster, at most a quarter of all.
pub const KV_KEPT_FOR_NODES: u32 = 128;

/// A shutdown leaves in a short log what would change the files of more vBuckets than this: the next start reads such a log
/// within milliseconds, and so many files are not written as fast.
pub const SHUTDOWN_APPLY_VBUCKETS: usize = 64;
/// Bytes of the disk that each bucket keeps for compactions on a full disk (16 MiB), where there is eight times as much room.
pub const COMPACTION_RESERVE_BYTES: u64 = 16 << 20;
/// Commands of one bucket that may wait for documents to be read from the disk, and as many for memory.
pub const COMMANDS_WAITING_MAX: usize = 100_000;
/// Documents that a front-end thread reads from the disk itself at a time; what is beyond that is read by tasks.
pub const FRONT_END_READS_MAX: u32 = 256;
/// Bytes of the disk that it reads for one document; larger ones are read by tasks.
pub const FRONT_END_READ_BYTES_MAX: u64 = 64 << 10;
/// How long a write may wait for memory, in milliseconds: less than the 2.5 s that SDKs wait for an answer.
pub const MEMORY_WAIT_MS_MAX: u64 = 2_000;
/// Range scans of a bucket that are open at a time.
pub const RANGE_SCANS_MAX: usize = 256;
/// How long a range scan stays open that nobody continues, in seconds.
pub const RANGE_SCAN_IDLE_SECS: u64 = 180;
/// How long RANGE_SCAN_CREATE waits for its vBucket's file, unless it says how long to wait for a seqno; and at most. In
/// milliseconds.
pub const RANGE_SCAN_WAIT_MS_MAX: u64 = 60_000;
/// Bytes of keys and values that one RANGE_SCAN_CONTINUE gives at most, one document more or less (8 MiB).
pub const RANGE_SCAN_CONTINUE_BYTES_MAX: u64 = 8 << 20;
/// Longest name of a DCP connection, in bytes.
pub const DCP_NAME_BYTES_MAX: usize = 200;
/// Longest interval between two NOOPs of a DCP connection, in seconds.
pub const DCP_NOOP_INTERVAL_SECS_MAX: u32 = 10_000;
/// Streams of a DCP connection.
pub const DCP_STREAMS_MAX: usize = 16_384;
/// Longest name of a node, in bytes: it is part of the names of connections, which have at most 200.
pub const NODE_NAME_BYTES_MAX: usize = 100;
/// Nodes of a cluster.
pub const CLUSTER_NODES_MAX: usize = 64;
/// Chains of a vBucket's topology: two while it moves.
pub const TOPOLOGY_CHAINS_MAX: usize = 2;
/// Places of a chain, the active's among them.
pub const CHAIN_NODES_MAX: usize = 4;
/// Nodes of a chain with which SyncWrites are made.
pub const SYNC_WRITE_NODES_MAX: usize = 3;
/// Nodes whose acknowledgements a vBucket remembers, those that no chain names among them.
pub const ACKNOWLEDGING_NODES_MAX: usize = 16;
/// Items of a vBucket that STAT `hash` counts one by one, with the vBucket locked.
pub const STAT_COUNTED_ITEMS_MAX: usize = 50_000;

const _: () = assert!(PASSWORD_CHECKS_PER_USER_MAX < PASSWORD_CHECKS_PER_ADDRESS_MAX);
const _: () = assert!(PASSWORD_CHECKS_PER_ADDRESS_MAX < PASSWORD_CHECKS_WAITING_MAX);
const _: () = assert!(MGMT_UNAUTHENTICATED_PER_ADDRESS_MAX < MGMT_UNAUTHENTICATED_MAX);
// Each node asks each other one for two things at a time: how it is, and what a person wants to know.
const _: () = assert!(MGMT_KEPT_FOR_NODES >= 2 * (CLUSTER_NODES_MAX - 1));
const _: () = assert!(
    MGMT_UNAUTHENTICATED_MAX + MGMT_KEPT_FOR_NODES + MGMT_KEPT_FOR_ADMINISTRATORS
        < MGMT_CONNECTIONS_MAX
);
const _: () = assert!(KEY_BYTES_MAX < STORED_KEY_BYTES_MAX);
const _: () =
    assert!(KEY_IN_COLLECTION_BYTES_MAX + crate::LEB128_MAX_BYTES <= STORED_KEY_BYTES_MAX);
const _: () = assert!(STORED_KEY_BYTES_MAX <= u8::MAX as usize);
const _: () = assert!(
    VALUE_BYTES_MAX + SYSTEM_XATTR_BYTES_MAX + STORED_KEY_BYTES_MAX + 64 < FRAME_BODY_BYTES_MAX
);
const _: () = assert!(LOCK_SECS_DEFAULT <= LOCK_SECS_MAX);
const _: () = assert!(SYNC_WRITE_NODES_MAX <= CHAIN_NODES_MAX);
const _: () = assert!(TOPOLOGY_CHAINS_MAX * CHAIN_NODES_MAX <= ACKNOWLEDGING_NODES_MAX);
