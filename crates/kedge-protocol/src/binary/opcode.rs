//! Every opcode and its attributes, one row each.
//!
//! Numbers: memcached `doc/protocol-binary.xml` section 3 (0x00 to 0x24), Couchbase `docs/BinaryProtocol.md` section
//! "Command opcodes" (the rest). 0x23 and 0x24 are GATK and GATKQ for memcached's clients, and reading and writing an
//! ioctl property for Couchbase's. The [`ConnectionKind`], which depends on the listening port, decides.

use kedge_types::Status;

/// The dialect of a connection, which depends on the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConnectionKind {
    /// An SDK or tool: 0x23 and 0x24 are IOCTL_GET and IOCTL_SET; FLUSH is known but not supported.
    Couchbase,
    /// A plain memcached client: 0x23 and 0x24 are GATK and GATKQ; FLUSH empties the bucket.
    Memcached,
}

/// The group of users that need a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Audience {
    /// Every SDK, for bootstrap or basic key-value.
    A,
    /// Common in applications.
    B,
    /// Operators, cluster managers, replication.
    C,
    /// Rare, legacy, test-only or very new.
    D,
    /// A number that is assigned but has no command any more.
    Reserved,
}

const SUPPORTED: u16 = 1;
const DURABLE: u16 = 1 << 1;
const REORDERABLE: u16 = 1 << 2;
const PRESERVE_TTL: u16 = 1 << 3;
const WRITE: u16 = 1 << 4;
const QUIET: u16 = 1 << 5;
const DCP: u16 = 1 << 6;
const MEMCACHED: u16 = 1 << 7;

/// Returns the attribute bits for the letters of the table: S supported on Couchbase connections, M supported on
/// memcached connections only, D may carry durability, R may be answered out of order, P may keep the expiry, W changes
/// a document, Q quiet, N part of DCP.
const fn attributes(letters: &str) -> u16 {
    let letters = letters.as_bytes();
    let mut bits = 0;
    let mut at = 0;
    while at < letters.len() {
        bits |= match letters[at] {
            b'S' => SUPPORTED,
            b'M' => MEMCACHED,
            b'D' => DURABLE,
            b'R' => REORDERABLE,
            b'P' => PRESERVE_TTL,
            b'W' => WRITE,
            b'Q' => QUIET,
            b'N' => DCP,
            _ => panic!("a letter that means nothing"),
        };
        at += 1;
    }
    bits
}

macro_rules! opcodes {
    ($($name:ident = $code:literal, $text:literal, $audience:ident, $letters:literal, $doc:literal;)*) => {
        /// A command.
        ///
        /// Exhaustive, so that tables of other crates do not compile without a row for each.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Opcode {
            $(#[doc = $doc] $name,)*
        }

        impl Opcode {
            /// Every opcode, in order of number; GATK and GATKQ, which share theirs, come last.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            const WIRE: &'static [u8] = &[$($code,)*];
            const NAMES: &'static [&'static str] = &[$($text,)*];
            const AUDIENCES: &'static [Audience] = &[$(Audience::$audience,)*];
            const ATTRIBUTES: &'static [u16] = &[$(attributes($letters),)*];
        }
    };
}

opcodes! {
    Get = 0x00, "GET", A, "SR", "Reads a document; the reply's extras are its flags.";
    Set = 0x01, "SET", A, "SDRPW", "Stores a document whether or not it exists; a CAS makes it compare-and-swap.";
    Add = 0x02, "ADD", A, "SDRW", "Stores a document only if it is absent.";
    Replace = 0x03, "REPLACE", A, "SDRPW", "Stores a document only if it is present.";
    Delete = 0x04, "DELETE", A, "SDRW", "Deletes a document and leaves a tombstone.";
    Increment = 0x05, "INCREMENT", A, "SDRPW", "Adds to a decimal number; wraps at 2^64.";
    Decrement = 0x06, "DECREMENT", A, "SDRPW", "Subtracts from a decimal number; stops at 0.";
    Quit = 0x07, "QUIT", B, "S", "Closes the connection after a reply.";
    Flush = 0x08, "FLUSH", D, "M", "Empties the bucket. memcached clients only; refused on Couchbase connections.";
    Getq = 0x09, "GETQ", D, "SQ", "Quiet Get: a miss is not answered.";
    Noop = 0x0a, "NOOP", A, "S", "Does nothing; answers what quiet commands left open.";
    Version = 0x0b, "VERSION", B, "S", "The server's version.";
    Getk = 0x0c, "GETK", D, "SR", "Get that returns the key too.";
    Getkq = 0x0d, "GETKQ", D, "SQ", "Quiet GetK.";
    Append = 0x0e, "APPEND", A, "SDRPW", "Appends bytes to a value.";
    Prepend = 0x0f, "PREPEND", A, "SDRPW", "Puts bytes in front of a value.";
    Stat = 0x10, "STAT", B, "S", "Statistics: one reply per key and value, the last one with an empty key.";
    Setq = 0x11, "SETQ", D, "SPWQ", "Quiet Set: only errors are answered.";
    Addq = 0x12, "ADDQ", D, "SWQ", "Quiet Add.";
    Replaceq = 0x13, "REPLACEQ", D, "SPWQ", "Quiet Replace.";
    Deleteq = 0x14, "DELETEQ", D, "SQW", "Quiet Delete.";
    Incrementq = 0x15, "INCREMENTQ", D, "SPWQ", "Quiet Increment.";
    Decrementq = 0x16, "DECREMENTQ", D, "SPWQ", "Quiet Decrement.";
    Quitq = 0x17, "QUITQ", D, "SQ", "Closes the connection without a reply.";
    Flushq = 0x18, "FLUSHQ", D, "QM", "Quiet Flush.";
    Appendq = 0x19, "APPENDQ", D, "SPWQ", "Quiet Append.";
    Prependq = 0x1a, "PREPENDQ", D, "SPWQ", "Quiet Prepend.";
    Verbosity = 0x1b, "VERBOSITY", D, "S", "Sets the log verbosity.";
    Touch = 0x1c, "TOUCH", A, "SDRW", "Gives a document a new expiry.";
    Gat = 0x1d, "GAT", A, "SDRW", "Reads a document and gives it a new expiry.";
    Gatq = 0x1e, "GATQ", D, "SWQ", "Quiet GAT: a miss is not answered.";
    Hello = 0x1f, "HELLO", A, "S", "Negotiates features.";
    SaslListMechs = 0x20, "SASL_LIST_MECHS", A, "S", "Lists SASL mechanisms.";
    SaslAuth = 0x21, "SASL_AUTH", A, "S", "Starts SASL.";
    SaslStep = 0x22, "SASL_STEP", A, "S", "Continues SASL.";
    IoctlGet = 0x23, "IOCTL_GET", C, "S", "Reads an ioctl property by name. On memcached connections the number is GATK.";
    IoctlSet = 0x24, "IOCTL_SET", C, "S", "Sets an ioctl property. On memcached connections the number is GATKQ.";
    ConfigValidate = 0x25, "CONFIG_VALIDATE", C, "S", "Checks a configuration text without applying it.";
    ConfigReload = 0x26, "CONFIG_RELOAD", C, "S", "Reads the configuration again.";
    AuditPut = 0x27, "AUDIT_PUT", C, "S", "Puts an audit event.";
    AuditConfigReload = 0x28, "AUDIT_CONFIG_RELOAD", C, "S", "Reads the audit configuration again.";
    Shutdown = 0x29, "SHUTDOWN", C, "S", "Shuts the server down.";
    SetBucketThrottleProperties = 0x2a, "SET_BUCKET_THROTTLE_PROPERTIES", C, "SR", "Sets the throttle limits of a bucket.";
    SetBucketDataLimitExceeded = 0x2b, "SET_BUCKET_DATA_LIMIT_EXCEEDED", C, "SR", "Makes writes to a bucket fail with a given status.";
    SetNodeThrottleProperties = 0x2c, "SET_NODE_THROTTLE_PROPERTIES", D, "", "Sets a node's throttle capacity. Known, not supported.";
    SetActiveEncryptionKeys = 0x2d, "SET_ACTIVE_ENCRYPTION_KEYS", C, "SR", "Installs active keys for encryption at rest.";
    PruneEncryptionKeys = 0x2e, "PRUNE_ENCRYPTION_KEYS", C, "SR", "Drops old encryption keys, rewriting what still uses them.";
    RegisterAuthToken = 0x2f, "REGISTER_AUTH_TOKEN", C, "S", "Registers a token that a frame info can then name by number.";
    Rget = 0x30, "RGET", Reserved, "", "Reserved number of an abandoned command.";
    Rset = 0x31, "RSET", Reserved, "", "Reserved number of an abandoned command.";
    Rsetq = 0x32, "RSETQ", Reserved, "", "Reserved number of an abandoned command.";
    Rappend = 0x33, "RAPPEND", Reserved, "", "Reserved number of an abandoned command.";
    Rappendq = 0x34, "RAPPENDQ", Reserved, "", "Reserved number of an abandoned command.";
    Rprepend = 0x35, "RPREPEND", Reserved, "", "Reserved number of an abandoned command.";
    Rprependq = 0x36, "RPREPENDQ", Reserved, "", "Reserved number of an abandoned command.";
    Rdelete = 0x37, "RDELETE", Reserved, "", "Reserved number of an abandoned command.";
    Rdeleteq = 0x38, "RDELETEQ", Reserved, "", "Reserved number of an abandoned command.";
    Rincr = 0x39, "RINCR", Reserved, "", "Reserved number of an abandoned command.";
    Rincrq = 0x3a, "RINCRQ", Reserved, "", "Reserved number of an abandoned command.";
    Rdecr = 0x3b, "RDECR", Reserved, "", "Reserved number of an abandoned command.";
    Rdecrq = 0x3c, "RDECRQ", Reserved, "", "Reserved number of an abandoned command.";
    SetVbucket = 0x3d, "SET_VBUCKET", C, "S", "Sets a vBucket's state.";
    GetVbucket = 0x3e, "GET_VBUCKET", C, "S", "Reads a vBucket's state.";
    DelVbucket = 0x3f, "DEL_VBUCKET", C, "S", "Deletes a vBucket.";
    TapConnect = 0x40, "TAP_CONNECT", Reserved, "", "Reserved number of an abandoned command.";
    TapMutation = 0x41, "TAP_MUTATION", Reserved, "", "Reserved number of an abandoned command.";
    TapDelete = 0x42, "TAP_DELETE", Reserved, "", "Reserved number of an abandoned command.";
    TapFlush = 0x43, "TAP_FLUSH", Reserved, "", "Reserved number of an abandoned command.";
    TapOpaque = 0x44, "TAP_OPAQUE", Reserved, "", "Reserved number of an abandoned command.";
    TapVbucketSet = 0x45, "TAP_VBUCKET_SET", Reserved, "", "Reserved number of an abandoned command.";
    TapCheckpointStart = 0x46, "TAP_CHECKPOINT_START", Reserved, "", "Reserved number of an abandoned command.";
    TapCheckpointEnd = 0x47, "TAP_CHECKPOINT_END", Reserved, "", "Reserved number of an abandoned command.";
    GetAllVbSeqnos = 0x48, "GET_ALL_VB_SEQNOS", B, "SR", "High seqnos of all vBuckets, optionally by state and collection.";
    GetEx = 0x49, "GET_EX", D, "SR", "Reads a whole document, xattrs included, as it is stored.";
    GetExReplica = 0x4a, "GET_EX_REPLICA", D, "SR", "GetEx from a replica vBucket.";
    MutateWithMeta = 0x4b, "MUTATE_WITH_META", D, "SRW", "Add, set or delete with metadata given as a JSON trailer.";
    DcpOpen = 0x50, "DCP_OPEN", C, "SN", "Opens a DCP connection.";
    DcpAddStream = 0x51, "DCP_ADD_STREAM", C, "SN", "Tells a consumer to create a passive stream.";
    DcpCloseStream = 0x52, "DCP_CLOSE_STREAM", C, "SN", "Close a stream.";
    DcpStreamReq = 0x53, "DCP_STREAM_REQ", C, "SN", "Asks a producer for a stream.";
    DcpGetFailoverLog = 0x54, "DCP_GET_FAILOVER_LOG", C, "SN", "Failover log of a vBucket, DCP form.";
    DcpStreamEnd = 0x55, "DCP_STREAM_END", C, "SN", "Stream ended (u32 reason).";
    DcpSnapshotMarker = 0x56, "DCP_SNAPSHOT_MARKER", C, "SN", "Snapshot marker.";
    DcpMutation = 0x57, "DCP_MUTATION", C, "SN", "Mutation.";
    DcpDeletion = 0x58, "DCP_DELETION", C, "SN", "Deletion, V1 or V2 (delete time).";
    DcpExpiration = 0x59, "DCP_EXPIRATION", C, "SN", "Expiration.";
    DcpFlush = 0x5a, "DCP_FLUSH", D, "", "DCP flush. Known, not supported.";
    DcpSetVbucketState = 0x5b, "DCP_SET_VBUCKET_STATE", C, "SN", "Sets the state of the vBucket on the consumer (takeover).";
    DcpNoop = 0x5c, "DCP_NOOP", C, "SN", "No-op that must be answered.";
    DcpBufferAcknowledgement = 0x5d, "DCP_BUFFER_ACKNOWLEDGEMENT", C, "SN", "Flow control: bytes consumed.";
    DcpControl = 0x5e, "DCP_CONTROL", C, "SN", "Sets a property of the DCP connection.";
    DcpSystemEvent = 0x5f, "DCP_SYSTEM_EVENT", C, "SN", "Collection/scope system event.";
    DcpPrepare = 0x60, "DCP_PREPARE", C, "SN", "Sync-write prepare.";
    DcpSeqnoAcknowledged = 0x61, "DCP_SEQNO_ACKNOWLEDGED", C, "SN", "Consumer to producer: prepared up to a seqno.";
    DcpCommit = 0x62, "DCP_COMMIT", C, "SN", "Sync-write commit.";
    DcpAbort = 0x63, "DCP_ABORT", C, "SN", "Sync-write abort.";
    DcpSeqnoAdvanced = 0x64, "DCP_SEQNO_ADVANCED", C, "SN", "The seqno advanced past what a filtered stream sends.";
    DcpOsoSnapshot = 0x65, "DCP_OSO_SNAPSHOT", C, "SN", "Start or end of a snapshot that is not in seqno order.";
    DcpCacheTransfer = 0x66, "DCP_CACHE_TRANSFER", D, "SN", "A batch of resident items that warms a destination's cache.";
    DcpCacheTransferEnd = 0x67, "DCP_CACHE_TRANSFER_END", D, "SN", "End of the cache transfer.";
    GetFusionStorageSnapshot = 0x70, "GET_FUSION_STORAGE_SNAPSHOT", D, "S", "Makes a snapshot of object storage.";
    ReleaseFusionStorageSnapshot = 0x71, "RELEASE_FUSION_STORAGE_SNAPSHOT", D, "S", "Releases a snapshot of object storage.";
    MountFusionVbucket = 0x72, "MOUNT_FUSION_VBUCKET", D, "S", "Mounts volumes for a vBucket.";
    UnmountFusionVbucket = 0x73, "UNMOUNT_FUSION_VBUCKET", D, "S", "Unmounts a vBucket's volumes.";
    SyncFusionLogstore = 0x74, "SYNC_FUSION_LOGSTORE", D, "S", "Syncs the log store now.";
    StartFusionUploader = 0x75, "START_FUSION_UPLOADER", D, "S", "Starts the uploader.";
    StopFusionUploader = 0x76, "STOP_FUSION_UPLOADER", D, "S", "Stops the uploader.";
    DeleteFusionNamespace = 0x77, "DELETE_FUSION_NAMESPACE", D, "S", "Deletes a namespace of object storage.";
    GetFusionNamespaces = 0x78, "GET_FUSION_NAMESPACES", D, "S", "Lists namespaces of object storage.";
    CreateFusionNamespace = 0x79, "CREATE_FUSION_NAMESPACE", D, "S", "Creates a namespace of object storage.";
    StopPersistence = 0x80, "STOP_PERSISTENCE", C, "S", "Stops writing to disk (maintenance).";
    StartPersistence = 0x81, "START_PERSISTENCE", C, "S", "Starts writing to disk again.";
    SetParam = 0x82, "SET_PARAM", C, "S", "Sets a parameter of a bucket.";
    GetReplica = 0x83, "GET_REPLICA", B, "SR", "Read from a replica vBucket.";
    SetChronicleAuthToken = 0x84, "SET_CHRONICLE_AUTH_TOKEN", D, "S", "Installs the token for a metadata store.";
    CreateBucket = 0x85, "CREATE_BUCKET", C, "S", "Creates a bucket.";
    DeleteBucket = 0x86, "DELETE_BUCKET", C, "S", "Deletes a bucket.";
    ListBuckets = 0x87, "LIST_BUCKETS", C, "S", "Names of the buckets that the caller may see.";
    SelectBucket = 0x89, "SELECT_BUCKET", A, "S", "Chooses the connection's bucket.";
    PauseBucket = 0x8a, "PAUSE_BUCKET", C, "S", "Pauses a bucket.";
    ResumeBucket = 0x8b, "RESUME_BUCKET", C, "S", "Resume a bucket.";
    ValidateBucketConfig = 0x8c, "VALIDATE_BUCKET_CONFIG", C, "S", "Validate a bucket configuration string.";
    ObserveSeqno = 0x91, "OBSERVE_SEQNO", B, "S", "Persisted and current seqno of a vBucket, aware of failover.";
    Observe = 0x92, "OBSERVE", D, "S", "State of keys, the old form.";
    EvictKey = 0x93, "EVICT_KEY", C, "SR", "Evicts one value from memory.";
    GetLocked = 0x94, "GET_LOCKED", B, "SR", "Reads and locks a document.";
    UnlockKey = 0x95, "UNLOCK_KEY", B, "SR", "Unlocks a document.";
    GetFailoverLog = 0x96, "GET_FAILOVER_LOG", C, "S", "Failover log of a vBucket.";
    LastClosedCheckpoint = 0x97, "LAST_CLOSED_CHECKPOINT", Reserved, "", "Reserved number of an abandoned command.";
    DeregisterTapClient = 0x9e, "DEREGISTER_TAP_CLIENT", Reserved, "", "Reserved number of an abandoned command.";
    ResetReplicationChain = 0x9f, "RESET_REPLICATION_CHAIN", Reserved, "", "Reserved number of an abandoned command.";
    GetMeta = 0xa0, "GET_META", B, "S", "Metadata of a key, tombstones too.";
    GetqMeta = 0xa1, "GETQ_META", D, "SQ", "Quiet GetMeta.";
    SetWithMeta = 0xa2, "SET_WITH_META", C, "SW", "Set with metadata.";
    SetqWithMeta = 0xa3, "SETQ_WITH_META", D, "SWQ", "Quiet SetWithMeta.";
    AddWithMeta = 0xa4, "ADD_WITH_META", C, "SW", "Add with metadata.";
    AddqWithMeta = 0xa5, "ADDQ_WITH_META", D, "SWQ", "Quiet AddWithMeta.";
    SnapshotVbStates = 0xa6, "SNAPSHOT_VB_STATES", Reserved, "", "Reserved number of an abandoned command.";
    VbucketBatchCount = 0xa7, "VBUCKET_BATCH_COUNT", Reserved, "", "Reserved number of an abandoned command.";
    DelWithMeta = 0xa8, "DEL_WITH_META", C, "SW", "Delete with metadata.";
    DelqWithMeta = 0xa9, "DELQ_WITH_META", D, "SQW", "Quiet DelWithMeta.";
    CreateCheckpoint = 0xaa, "CREATE_CHECKPOINT", Reserved, "", "Reserved number of an abandoned command.";
    NotifyVbucketUpdate = 0xac, "NOTIFY_VBUCKET_UPDATE", Reserved, "", "Reserved number of an abandoned command.";
    EnableTraffic = 0xad, "ENABLE_TRAFFIC", C, "S", "Opens the bucket to traffic.";
    DisableTraffic = 0xae, "DISABLE_TRAFFIC", C, "S", "Closes the bucket to traffic.";
    Ifconfig = 0xaf, "IFCONFIG", C, "S", "Defines, deletes or lists interfaces.";
    ChangeVbFilter = 0xb0, "CHANGE_VB_FILTER", Reserved, "", "Reserved number of an abandoned command.";
    CheckpointPersistence = 0xb1, "CHECKPOINT_PERSISTENCE", Reserved, "", "Reserved number of an abandoned command.";
    ReturnMeta = 0xb2, "RETURN_META", D, "SW", "Set, add or delete that returns the new metadata.";
    CompactDb = 0xb3, "COMPACT_DB", C, "S", "Compacts a vBucket.";
    SetClusterConfig = 0xb4, "SET_CLUSTER_CONFIG", C, "S", "Sets a cluster map.";
    GetClusterConfig = 0xb5, "GET_CLUSTER_CONFIG", A, "SR", "Fetches the cluster map, optionally only if newer.";
    GetRandomKey = 0xb6, "GET_RANDOM_KEY", B, "S", "A random document.";
    SeqnoPersistence = 0xb7, "SEQNO_PERSISTENCE", C, "S", "Waits until a seqno is persisted.";
    GetKeys = 0xb8, "GET_KEYS", D, "S", "Lists keys from a start key.";
    CollectionsSetManifest = 0xb9, "COLLECTIONS_SET_MANIFEST", C, "S", "Set the collections manifest.";
    CollectionsGetManifest = 0xba, "COLLECTIONS_GET_MANIFEST", B, "S", "Get the collections manifest.";
    CollectionsGetId = 0xbb, "COLLECTIONS_GET_ID", A, "S", "Resolves `scope.collection` to an id.";
    CollectionsGetScopeId = 0xbc, "COLLECTIONS_GET_SCOPE_ID", B, "S", "Resolve a scope name to an id.";
    SetDriftCounterState = 0xc1, "SET_DRIFT_COUNTER_STATE", Reserved, "", "Reserved number of an abandoned command.";
    GetAdjustedTime = 0xc2, "GET_ADJUSTED_TIME", Reserved, "", "Reserved number of an abandoned command.";
    SubdocGet = 0xc5, "SUBDOC_GET", A, "SR", "Reads a path.";
    SubdocExists = 0xc6, "SUBDOC_EXISTS", A, "SR", "Whether a path exists.";
    SubdocDictAdd = 0xc7, "SUBDOC_DICT_ADD", A, "SDRPW", "Adds a dictionary entry.";
    SubdocDictUpsert = 0xc8, "SUBDOC_DICT_UPSERT", A, "SDRPW", "Adds or replaces a dictionary entry.";
    SubdocDelete = 0xc9, "SUBDOC_DELETE", A, "SDRPW", "Remove a path.";
    SubdocReplace = 0xca, "SUBDOC_REPLACE", A, "SDRPW", "Replace a path's value.";
    SubdocArrayPushLast = 0xcb, "SUBDOC_ARRAY_PUSH_LAST", A, "SDRPW", "Append to array.";
    SubdocArrayPushFirst = 0xcc, "SUBDOC_ARRAY_PUSH_FIRST", A, "SDRPW", "Prepend to array.";
    SubdocArrayInsert = 0xcd, "SUBDOC_ARRAY_INSERT", A, "SDRPW", "Insert into array at index.";
    SubdocArrayAddUnique = 0xce, "SUBDOC_ARRAY_ADD_UNIQUE", A, "SDRPW", "Adds a primitive to an array if it is absent.";
    SubdocCounter = 0xcf, "SUBDOC_COUNTER", A, "SDRPW", "Adds to the number at a path.";
    SubdocMultiLookup = 0xd0, "SUBDOC_MULTI_LOOKUP", A, "SR", "Reads several paths.";
    SubdocMultiMutation = 0xd1, "SUBDOC_MULTI_MUTATION", A, "SDRPW", "Changes several paths.";
    SubdocGetCount = 0xd2, "SUBDOC_GET_COUNT", A, "SR", "Number of elements at a path.";
    SubdocReplaceBodyWithXattr = 0xd3, "SUBDOC_REPLACE_BODY_WITH_XATTR", B, "SDRPW", "Replaces the body with an xattr's value; only inside a multi mutation.";
    RangeScanCreate = 0xda, "RANGE_SCAN_CREATE", B, "SR", "Creates a range scan.";
    RangeScanContinue = 0xdb, "RANGE_SCAN_CONTINUE", B, "S", "Continues a range scan; the replies are streamed.";
    RangeScanCancel = 0xdc, "RANGE_SCAN_CANCEL", B, "S", "Cancels a range scan.";
    PrepareSnapshot = 0xe0, "PREPARE_SNAPSHOT", D, "S", "Prepares a file snapshot of a vBucket and returns its manifest.";
    ReleaseSnapshot = 0xe1, "RELEASE_SNAPSHOT", D, "S", "Releases a file snapshot.";
    DownloadSnapshot = 0xe2, "DOWNLOAD_SNAPSHOT", D, "S", "Downloads a snapshot from another node.";
    GetFileFragment = 0xe3, "GET_FILE_FRAGMENT", D, "S", "Read a byte range of a snapshot file.";
    Scrub = 0xf0, "SCRUB", Reserved, "", "Reserved number of an abandoned command.";
    IsaslRefresh = 0xf1, "ISASL_REFRESH", C, "S", "Reads the password database again.";
    SslCertsRefresh = 0xf2, "SSL_CERTS_REFRESH", Reserved, "", "Reserved number of an abandoned command.";
    GetCmdTimer = 0xf3, "GET_CMD_TIMER", C, "S", "Latency histogram of an opcode.";
    SetCtrlToken = 0xf4, "SET_CTRL_TOKEN", C, "S", "Sets the control token.";
    GetCtrlToken = 0xf5, "GET_CTRL_TOKEN", C, "S", "Reads the control token.";
    UpdateExternalUserPermissions = 0xf6, "UPDATE_EXTERNAL_USER_PERMISSIONS", C, "S", "Pushes the permissions of an external user.";
    RbacRefresh = 0xf7, "RBAC_REFRESH", C, "S", "Reads the access rules again.";
    AuthProvider = 0xf8, "AUTH_PROVIDER", C, "S", "Makes the client the external authentication provider.";
    DropPrivilege = 0xfb, "DROP_PRIVILEGE", C, "S", "Drops a privilege of this connection.";
    AdjustTimeofday = 0xfc, "ADJUST_TIMEOFDAY", D, "S", "Moves the server's clock (tests).";
    EwouldblockCtl = 0xfd, "EWOULDBLOCK_CTL", D, "S", "Controls fault injection (tests).";
    GetErrorMap = 0xfe, "GET_ERROR_MAP", A, "S", "The error map in an asked version.";
    Gatk = 0x23, "GATK", D, "WM", "Get, touch and return the key. memcached connections only.";
    Gatkq = 0x24, "GATKQ", D, "WQM", "Quiet GATK: a miss is not answered. memcached connections only.";
}

/// The opcode of each number, on Couchbase connections.
const BY_NUMBER: [Option<Opcode>; 256] = {
    let mut table = [None; 256];
    let mut at = Opcode::ALL.len();
    // Filled from the back, so that the earlier of two opcodes with one number remains.
    while at > 0 {
        at -= 1;
        table[Opcode::WIRE[at] as usize] = Some(Opcode::ALL[at]);
    }
    table
};

impl Opcode {
    /// Returns the opcode with this number on a connection of this kind, or `None` if the number is not assigned.
    #[must_use]
    #[inline]
    pub const fn from_wire(number: u8, kind: ConnectionKind) -> Option<Self> {
        match (BY_NUMBER[number as usize], kind) {
            (Some(Self::IoctlGet), ConnectionKind::Memcached) => Some(Self::Gatk),
            (Some(Self::IoctlSet), ConnectionKind::Memcached) => Some(Self::Gatkq),
            (opcode, _) => opcode,
        }
    }

    /// Returns the number on the wire.
    #[must_use]
    #[inline]
    pub const fn wire(self) -> u8 {
        Self::WIRE[self as usize]
    }

    /// Returns the name in logs, metrics and histograms, such as `GET` or `SUBDOC_MULTI_LOOKUP`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// Returns the group of users that need the command.
    #[must_use]
    pub const fn audience(self) -> Audience {
        Self::AUDIENCES[self as usize]
    }

    #[inline]
    const fn has(self, bits: u16) -> bool {
        Self::ATTRIBUTES[self as usize] & bits != 0
    }

    /// Returns whether the protocol has the command on connections of this kind.
    #[must_use]
    pub const fn is_supported(self, kind: ConnectionKind) -> bool {
        match kind {
            ConnectionKind::Couchbase => self.has(SUPPORTED),
            ConnectionKind::Memcached => self.has(SUPPORTED | MEMCACHED),
        }
    }

    /// Returns whether the command may be answered out of order if UnorderedExecution was negotiated.
    #[must_use]
    #[inline]
    pub const fn is_reorderable(self) -> bool {
        self.has(REORDERABLE)
    }

    /// Returns whether the command may carry a durability level.
    #[must_use]
    #[inline]
    pub const fn supports_durability(self) -> bool {
        self.has(DURABLE)
    }

    /// Returns whether the command may ask to keep the document's expiry.
    #[must_use]
    #[inline]
    pub const fn supports_preserve_ttl(self) -> bool {
        self.has(PRESERVE_TTL)
    }

    /// Returns whether the command changes a document.
    #[must_use]
    #[inline]
    pub const fn is_write(self) -> bool {
        self.has(WRITE)
    }

    /// Returns whether the command belongs to DCP.
    #[must_use]
    pub const fn is_dcp(self) -> bool {
        self.has(DCP)
    }

    /// Returns whether the command is a quiet form, which leaves out the expected reply. See [`Opcode::suppresses`].
    #[must_use]
    #[inline]
    pub const fn is_quiet(self) -> bool {
        self.has(QUIET)
    }

    /// Returns the loud form of a quiet opcode, or the opcode itself.
    #[must_use]
    pub const fn base(self) -> Self {
        match self {
            Self::Getq => Self::Get,
            Self::Getkq => Self::Getk,
            Self::Setq => Self::Set,
            Self::Addq => Self::Add,
            Self::Replaceq => Self::Replace,
            Self::Deleteq => Self::Delete,
            Self::Incrementq => Self::Increment,
            Self::Decrementq => Self::Decrement,
            Self::Quitq => Self::Quit,
            Self::Flushq => Self::Flush,
            Self::Appendq => Self::Append,
            Self::Prependq => Self::Prepend,
            Self::Gatq => Self::Gat,
            Self::Gatkq => Self::Gatk,
            Self::GetqMeta => Self::GetMeta,
            Self::SetqWithMeta => Self::SetWithMeta,
            Self::AddqWithMeta => Self::AddWithMeta,
            Self::DelqWithMeta => Self::DelWithMeta,
            other => other,
        }
    }

    /// Returns whether a reply with this status is left out: quiet reads do not answer a miss, other quiet commands do
    /// not answer success.
    #[must_use]
    #[inline]
    pub const fn suppresses(self, status: Status) -> bool {
        if !self.is_quiet() {
            return false;
        }
        match self {
            Self::Getq | Self::Getkq | Self::Gatq | Self::Gatkq | Self::GetqMeta => {
                matches!(status, Status::KeyNotFound)
            }
            _ => matches!(status, Status::Success),
        }
    }

    /// Returns the status for a client that sends a number that is not served. A Couchbase client receives
    /// [`Status::NotSupported`] if the number belongs to a command (FLUSH, withdrawn ones). A plain memcached server
    /// replies to all such numbers as to an unknown one, and its clients' test suites check that.
    #[must_use]
    pub const fn unsupported_status(number: u8, kind: ConnectionKind) -> Status {
        match (kind, BY_NUMBER[number as usize]) {
            (ConnectionKind::Couchbase, Some(_)) => Status::NotSupported,
            _ => Status::UnknownCommand,
        }
    }
}

#[cfg(test)]
mod tests;
