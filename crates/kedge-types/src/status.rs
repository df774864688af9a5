//! The statuses of the binary protocol.

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $code:literal,)*) => {
        /// The status of a response, with its number on the wire. The protocol crate knows which of them require
        /// XERROR, and the text of each in the error map.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u16)]
        #[non_exhaustive]
        pub enum Status {
            $($(#[$doc])* $name = $code,)*
        }

        impl Status {
            /// All statuses, in order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Returns the status with this number, or `None` if the number is undefined.
            #[must_use]
            pub const fn from_wire(code: u16) -> Option<Self> {
                match code {
                    $($code => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// Returns the name of the variant, for logs and metrics.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }
        }
    };
}

statuses! {
    /// Success.
    Success = 0x00,
    /// The key does not exist. Commands that name another kind of object use it for that.
    KeyNotFound = 0x01,
    /// The key exists, or the given CAS is not that of the document.
    KeyExists = 0x02,
    /// The value or the request is too big.
    TooBig = 0x03,
    /// The request is malformed.
    Invalid = 0x04,
    /// Append or prepend to a missing key, or a condition of add failed.
    NotStored = 0x05,
    /// The value to increment or decrement is not a number.
    DeltaBadValue = 0x06,
    /// The vBucket is not on this node, or in another state. The body is the cluster map.
    NotMyVbucket = 0x07,
    /// No bucket selected.
    NoBucket = 0x08,
    /// Locked by GetLocked. Clients without XERROR receive TemporaryFailure.
    Locked = 0x09,
    /// Unknown DCP stream.
    StreamNotFound = 0x0a,
    /// Wrong DCP opaque.
    OpaqueNoMatch = 0x0b,
    /// Throttled (non-blocking mode).
    EwouldThrottle = 0x0c,
    /// The bucket has no vBuckets on this node, only a configuration.
    ConfigOnly = 0x0d,
    /// Unlock of an unlocked key.
    NotLocked = 0x0e,
    /// Unacceptable CAS of a with-meta command.
    CasValueInvalid = 0x0f,
    /// The credentials have changed: authenticate again.
    AuthStale = 0x1f,
    /// Bad credentials.
    AuthError = 0x20,
    /// The client continues with SASL_STEP.
    AuthContinue = 0x21,
    /// Number out of range (DCP seqno ranges…).
    OutOfRange = 0x22,
    /// The DCP consumer must roll back to the seqno in the body (u64).
    Rollback = 0x23,
    /// No privilege.
    AccessDenied = 0x24,
    /// The node is not initialised yet.
    NotInitialized = 0x25,
    /// Encryption key missing.
    EncryptionKeyNotAvailable = 0x26,
    /// Checksum mismatch (file fragments).
    ChecksumMismatch = 0x27,
    /// The expiry would overflow 32 bits.
    ExpiryOverflow = 0x28,
    /// The lock time would overflow.
    LockExpiryOverflow = 0x29,
    /// Rate limit: ingress.
    RateLimitedNetworkIngress = 0x30,
    /// Rate limit: egress.
    RateLimitedNetworkEgress = 0x31,
    /// Rate limit: connections.
    RateLimitedMaxConnections = 0x32,
    /// Rate limit: commands.
    RateLimitedMaxCommands = 0x33,
    /// Bucket data limit hit.
    BucketSizeLimitExceeded = 0x35,
    /// Bucket resident ratio too low.
    BucketResidentRatioTooLow = 0x36,
    /// Bucket data size too big.
    BucketDataSizeTooBig = 0x37,
    /// Disk space too low.
    BucketDiskSpaceTooLow = 0x38,
    /// The bucket is paused.
    BucketPaused = 0x50,
    /// Cancelled without effect.
    Cancelled = 0x51,
    /// Unknown frame info id.
    UnknownFrameInfo = 0x80,
    /// Unknown opcode.
    UnknownCommand = 0x81,
    /// Out of memory: the quota is exhausted, and the write is refused.
    NoMemory = 0x82,
    /// Not supported here.
    NotSupported = 0x83,
    /// Internal error.
    Internal = 0x84,
    /// Busy: try again.
    Busy = 0x85,
    /// Temporary failure: memory above the mutation ratio, warmup, and so on.
    TemporaryFailure = 0x86,
    /// Malformed section of extended attributes.
    XattrInvalid = 0x87,
    /// Unknown collection. The body has the uid of the manifest.
    UnknownCollection = 0x88,
    /// The manifest cannot be applied.
    CannotApplyCollectionsManifest = 0x8a,
    /// Unknown scope.
    UnknownScope = 0x8c,
    /// Invalid use of a DCP stream id.
    DcpStreamIdInvalid = 0x8d,
    /// Invalid durability level.
    DurabilityInvalidLevel = 0xa0,
    /// The chain has too few nodes, or too many.
    DurabilityImpossible = 0xa1,
    /// Another SyncWrite is pending on the key.
    SyncWriteInProgress = 0xa2,
    /// The SyncWrite timed out, or its outcome is unknown.
    SyncWriteAmbiguous = 0xa3,
    /// A SyncWrite from before a failover is being committed again.
    SyncWriteReCommitInProgress = 0xa4,
    /// Range scan cancelled.
    RangeScanCancelled = 0xa5,
    /// The scan has more items: send another RANGE_SCAN_CONTINUE.
    RangeScanMore = 0xa6,
    /// The scan is complete.
    RangeScanComplete = 0xa7,
    /// The vBucket UUID is not that of the snapshot requirement.
    VbUuidNotEqual = 0xa8,
    /// The path does not exist in the document.
    SubdocPathEnoent = 0xc0,
    /// The path expects a dictionary and the document has an array there, or the reverse.
    SubdocPathMismatch = 0xc1,
    /// The path is malformed, or makes no sense for this operation.
    SubdocPathEinval = 0xc2,
    /// The path is longer than the limit.
    SubdocPathE2big = 0xc3,
    /// The path has more components, or the document more levels, than the limit.
    SubdocPathE2deep = 0xc4,
    /// The value is not valid JSON at that path, or the sum does not fit into 64 bits.
    SubdocValueCantinsert = 0xc5,
    /// The body is not JSON.
    SubdocDocNotjson = 0xc6,
    /// The whole number at the path does not fit into a signed 64-bit integer.
    SubdocNumErange = 0xc7,
    /// The delta is zero, or not a 64-bit integer.
    SubdocDeltaEinval = 0xc8,
    /// The path exists already.
    SubdocPathEexists = 0xc9,
    /// The result would have too many levels.
    SubdocValueEtoodeep = 0xca,
    /// A request mixes lookup and mutation specs.
    SubdocInvalidCombo = 0xcb,
    /// At least one spec failed. The body has the details.
    SubdocMultiPathFailure = 0xcc,
    /// Success on a tombstone.
    SubdocSuccessDeleted = 0xcd,
    /// The flags exclude each other.
    SubdocXattrInvalidFlagCombo = 0xce,
    /// A request names several xattr keys, and one is allowed.
    SubdocXattrInvalidKeyCombo = 0xcf,
    /// Unknown macro.
    SubdocXattrUnknownMacro = 0xd0,
    /// Unknown virtual attribute.
    SubdocXattrUnknownVattr = 0xd1,
    /// Virtual attributes are read-only.
    SubdocXattrCantModifyVattr = 0xd2,
    /// At least one spec failed on a tombstone.
    SubdocMultiPathFailureDeleted = 0xd3,
    /// Specs of xattrs must precede specs of the body.
    SubdocInvalidXattrOrder = 0xd4,
    /// Unknown field of a virtual attribute macro.
    SubdocXattrUnknownVattrMacro = 0xd5,
    /// A revive of a live document.
    SubdocCanOnlyReviveDeletedDocuments = 0xd6,
    /// A tombstone cannot have a body.
    SubdocDeletedDocumentCantHaveValue = 0xd7,
    /// A binary read of an xattr without a binary value.
    SubdocFieldNotBinaryValue = 0xd8,
}

impl Status {
    /// Returns the number on the wire.
    #[must_use]
    pub const fn wire(self) -> u16 {
        self as u16
    }

    /// Returns `true` if the command succeeded, at least in part (replies to multi-path requests).
    #[must_use]
    pub const fn is_success(self) -> bool {
        matches!(
            self,
            Self::Success
                | Self::SubdocSuccessDeleted
                | Self::SubdocMultiPathFailure
                | Self::SubdocMultiPathFailureDeleted
                | Self::RangeScanMore
                | Self::RangeScanComplete
        )
    }
}
