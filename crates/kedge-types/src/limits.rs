//! Every limit of the server, in one place. `docs/reference/limits.md` describes the response of the server at each.

/// Length of the longest logical key in the default collection, in bytes. It also holds for clients without collection
/// support.
pub const KEY_BYTES_MAX: usize = 250;
/// Length of the longest logical key in any other collection, in bytes. A five-byte collection id has to fit beside it.
pub const KEY_IN_COLLECTION_BYTES_MAX: usize = 246;
/// Length of the longest stored key, in bytes, collection prefix included.
pub const STORED_KEY_BYTES_MAX: usize = 251;
/// Size of the largest document value after inflation, in bytes (20 MiB).
pub const VALUE_BYTES_MAX: usize = 20 << 20;
/// Size of the largest set of system attributes of a document, in bytes (1 MiB). The body and all other attributes
/// share [`VALUE_BYTES_MAX`].
pub const SYSTEM_XATTR_BYTES_MAX: usize = 1 << 20;
/// Length of the longest name of an extended attribute, in bytes.
pub const XATTR_NAME_BYTES_MAX: usize = 15;
/// Size of the largest frame body that a client may send, in bytes (30 MiB). A longer one closes the connection without
/// a response.
pub const FRAME_BODY_BYTES_MAX: usize = 30 << 20;
/// Uncompressed size in bytes from which a value is long (256 KiB). Tasks parse, inflate and copy long values, because
/// the work would delay the other clients of the event loop.
pub const LONG_VALUE_BYTES: usize = 256 << 10;
/// Largest inflated size, in bytes, that a compressed value may declare.
pub const INFLATED_BYTES_MAX: usize = 30 << 20;
/// Length of the longest agent text in HELLO, in bytes.
pub const AGENT_BYTES_MAX: usize = 250;
/// Length of the longest bucket name, in bytes.
pub const BUCKET_NAME_BYTES_MAX: usize = 100;
/// Largest number of buckets of a server.
pub const BUCKETS_MAX: usize = 64;
/// Largest number of scopes of a bucket, the default scope included.
pub const SCOPES_MAX: usize = 1_000;
/// Largest number of collections of a bucket, the default collection included.
pub const COLLECTIONS_MAX: usize = 1_200;
/// Length of the longest name of a scope or a collection, in bytes.
pub const MANIFEST_NAME_BYTES_MAX: usize = 251;
/// Longest time to live of a collection, in seconds.
pub const COLLECTION_TTL_SECS_MAX: u32 = i32::MAX as u32;
/// Largest number of vBuckets of a bucket. A vBucket id has 16 bits, and the hash has 15.
pub const VBUCKETS_MAX: u16 = u16::MAX;
/// Largest number of commands of a connection that run out of order at the same time.
pub const UNORDERED_COMMANDS_MAX: usize = 32;
/// Lock time in seconds of a GET_LOCKED that requests none, or more than [`LOCK_SECS_MAX`].
pub const LOCK_SECS_DEFAULT: u32 = 15;
/// Longest lock time, in seconds.
pub const LOCK_SECS_MAX: u32 = 30;
/// Largest expiry value that is relative, in seconds (30 days). Larger values are Unix seconds.
pub const RELATIVE_EXPIRY_SECS_MAX: u32 = 30 * 24 * 60 * 60;
/// Timeout in milliseconds of a SyncWrite whose client gives none.
pub const DURABILITY_TIMEOUT_MS_DEFAULT: u32 = 30_000;
/// Timeout of SEQNO_PERSISTENCE, in seconds.
pub const SEQNO_PERSISTENCE_SECS: u64 = 30;
/// Largest number of entries of a vBucket's failover table.
pub const FAILOVER_ENTRIES_MAX: usize = 25;
/// Age in seconds from which a tombstone may be purged (3 days).
pub const TOMBSTONE_PURGE_AGE_SECS: u64 = 259_200;
/// Largest lead of a with-meta command's CAS over the clock, in milliseconds (65 minutes).
pub const CAS_AHEAD_MS_MAX: u64 = 3_900_000;
/// Smallest distance in milliseconds between the clock and the CAS of a replicated mutation that counts as drift.
pub const CAS_DRIFT_MS: u64 = 5_000;
/// Highest revision that a with-meta command may set. No document is changed as often.
pub const WITH_META_REV_MAX: u64 = (1 << 47) - 1;
/// Longest time in milliseconds that a shutdown spends on applying the log to the vBuckets' files, over all buckets.
pub const SHUTDOWN_APPLY_MS: u64 = 2_000;
/// Largest number of queued password checks: logins with SASL PLAIN and management requests together.
pub const PASSWORD_CHECKS_WAITING_MAX: usize = 1_024;
/// Largest number of queued password checks from one address, or from one 64-bit network with IPv6.
pub const PASSWORD_CHECKS_PER_ADDRESS_MAX: usize = 512;
/// Largest number of queued password checks from one address for one user.
pub const PASSWORD_CHECKS_PER_USER_MAX: usize = 256;
/// Largest number of logins of external users that wait for a directory.
pub const EXTERNAL_LOGINS_WAITING_MAX: usize = 1_024;
/// Largest number of logins of external users from one address, or from one 64-bit network with IPv6, that wait for a directory.
pub const EXTERNAL_LOGINS_PER_ADDRESS_MAX: usize = 512;
/// Largest number of connections of the management port.
pub const MGMT_CONNECTIONS_MAX: usize = 512;
/// Largest number of management connections without a successful login.
pub const MGMT_UNAUTHENTICATED_MAX: usize = 128;
/// Largest number of management connections without a successful login from one address, or from one 64-bit network
/// with IPv6.
pub const MGMT_UNAUTHENTICATED_PER_ADDRESS_MAX: usize = 32;
/// Login timeout of a management connection, in milliseconds.
pub const MGMT_UNAUTHENTICATED_MS_MAX: u64 = 5_000;
/// Largest number of sessions of the console.
pub const MGMT_SESSIONS_MAX: usize = 1_024;
/// Largest number of sessions of the console of one user.
pub const MGMT_SESSIONS_PER_USER_MAX: usize = 16;
/// Number of management connections that are reserved for the other nodes of a cluster.
pub const MGMT_KEPT_FOR_NODES: usize = 128;
/// Number of management connections that are reserved for administrators and nodes.
pub const MGMT_KEPT_FOR_ADMINISTRATORS: usize = 32;
/// Number of KV connections that are reserved for the other nodes of a cluster, up to a quarter of all.
pub const KV_KEPT_FOR_NODES: u32 = 128;

/// Largest number of vBuckets whose files a shutdown updates from a short log. Above it, the log is left to the next
/// start, which reads it within milliseconds; writing so many files would take longer.
pub const SHUTDOWN_APPLY_VBUCKETS: usize = 64;
/// Disk space in bytes that each bucket reserves for compactions on a full disk (16 MiB), if eight times as much is
/// free.
pub const COMPACTION_RESERVE_BYTES: u64 = 16 << 20;
/// Duration in milliseconds from which on a call to the disk is slow, for the judgement of a node's disk.
pub const DISK_CALL_SLOW_MS: u64 = 1_000;
/// Largest number of a bucket's commands that wait for reads from disk. As many may wait for memory.
pub const COMMANDS_WAITING_MAX: usize = 100_000;
/// Largest number of concurrent reads from disk of a front-end thread. Tasks do further reads.
pub const FRONT_END_READS_MAX: u32 = 256;
/// Size in bytes of the largest document that a front-end thread reads from disk. Tasks read larger ones.
pub const FRONT_END_READ_BYTES_MAX: u64 = 64 << 10;
/// Longest time in milliseconds that a write waits for memory. SDKs wait 2.5 s for a response.
pub const MEMORY_WAIT_MS_MAX: u64 = 2_000;
/// Largest number of open range scans of a bucket.
pub const RANGE_SCANS_MAX: usize = 256;
/// Idle time in seconds after which a range scan is closed.
pub const RANGE_SCAN_IDLE_SECS: u64 = 180;
/// Longest time in milliseconds that RANGE_SCAN_CREATE waits for its vBucket's file, and the default when the request
/// sets no timeout.
pub const RANGE_SCAN_WAIT_MS_MAX: u64 = 60_000;
/// Size in bytes of the keys and values of one RANGE_SCAN_CONTINUE (8 MiB), exceeded by one document at most.
pub const RANGE_SCAN_CONTINUE_BYTES_MAX: u64 = 8 << 20;
/// Largest number of files of a bucket that are open for copies on other nodes.
pub const FILE_COPIES_SENT_MAX: usize = 64;
/// Size in bytes of the largest part of a file that one GET_FILE_FRAGMENT reads (4 MiB).
pub const FILE_PART_BYTES_MAX: u64 = 4 << 20;
/// Idle time in seconds after which a file that is open for a copy is closed.
pub const FILE_COPY_IDLE_SECS: u64 = 60;
/// Length of the longest name of a DCP connection, in bytes.
pub const DCP_NAME_BYTES_MAX: usize = 200;
/// Longest interval between two NOOPs of a DCP connection, in seconds.
pub const DCP_NOOP_INTERVAL_SECS_MAX: u32 = 10_000;
/// Largest number of streams of a DCP connection.
pub const DCP_STREAMS_MAX: usize = 16_384;
/// Number of the last changes of the cluster map whose ids the map keeps. A node that has missed more does not notice that
/// the map is of another branch of a restored store.
pub const MAP_LINEAGE_MAX: usize = 64;
/// Length of the longest node name, in bytes. It is part of the names of DCP connections, which have at most 200 bytes.
pub const NODE_NAME_BYTES_MAX: usize = 100;
/// Length of the longest name of a server group, in bytes.
pub const SERVER_GROUP_BYTES_MAX: usize = 64;
/// Default of the largest number of vBuckets that a node sends, and receives, at the same time while copies are made or move
/// (`rebalanceMovesPerNode`). It is the original's.
pub const REBALANCE_MOVES_PER_NODE: u8 = 4;
/// Largest value of `rebalanceMovesPerNode`.
pub const REBALANCE_MOVES_PER_NODE_MAX: u8 = 64;
/// Largest multiple of `rebalanceMovesPerNode` that begins in a round of a rebalance while vBuckets are so small that copies end
/// within one.
pub const SMALL_MOVES_TIMES_MAX: usize = 8;
/// Largest number of actives that move away from a node, and to a node, at the same time in a drain or a graceful failover.
pub const DRAIN_MOVES_PER_NODE: usize = 16;
/// Time in seconds after the restart of a node before vBuckets move to it. SDKs that have lost a node try to connect again after up to
/// five seconds (gocbcore's wait after a failed attempt), and operations on its vBuckets wait until then.
pub const SDK_RECONNECT_SECS: u64 = 6;
/// Time in seconds for which nodes to remove stay in the map without vBuckets. It is twice the interval at which SDKs fetch
/// the map, 2.5 s.
pub const REMOVAL_LINGER_SECS: u64 = 5;
/// Largest number of nodes of a cluster.
pub const CLUSTER_NODES_MAX: usize = 64;
/// Largest number of chains of a vBucket's topology. A vBucket that moves has two.
pub const TOPOLOGY_CHAINS_MAX: usize = 2;
/// Largest number of nodes of a chain, the active included.
pub const CHAIN_NODES_MAX: usize = 4;
/// Largest number of nodes of a chain that accepts SyncWrites.
pub const SYNC_WRITE_NODES_MAX: usize = 3;
/// Largest number of nodes whose acknowledgements a vBucket stores, those outside of all chains included.
pub const ACKNOWLEDGING_NODES_MAX: usize = 16;
/// Largest number of items that STAT `hash` counts one by one while it holds the vBucket's lock.
pub const STAT_COUNTED_ITEMS_MAX: usize = 50_000;

const _: () = assert!(PASSWORD_CHECKS_PER_USER_MAX < PASSWORD_CHECKS_PER_ADDRESS_MAX);
const _: () = assert!(PASSWORD_CHECKS_PER_ADDRESS_MAX < PASSWORD_CHECKS_WAITING_MAX);
const _: () = assert!(EXTERNAL_LOGINS_PER_ADDRESS_MAX < EXTERNAL_LOGINS_WAITING_MAX);
const _: () = assert!(MGMT_UNAUTHENTICATED_PER_ADDRESS_MAX < MGMT_UNAUTHENTICATED_MAX);
const _: () = assert!(MGMT_SESSIONS_PER_USER_MAX < MGMT_SESSIONS_MAX);
// Each node has two requests open to each other node: one for its status, and one on behalf of a user.
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
const _: () = assert!(FILE_PART_BYTES_MAX < FRAME_BODY_BYTES_MAX as u64);
const _: () = assert!(LOCK_SECS_DEFAULT <= LOCK_SECS_MAX);
const _: () = assert!(SYNC_WRITE_NODES_MAX <= CHAIN_NODES_MAX);
const _: () = assert!(TOPOLOGY_CHAINS_MAX * CHAIN_NODES_MAX <= ACKNOWLEDGING_NODES_MAX);
