//! Statuses of the binary protocol.

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $code:literal,)*) => {
        /// Status of a reply, with the numbers of the wire. Which of them a client must have asked for (XERROR) and
        /// what the error map says of each is the protocol crate's business.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u16)]
        #[non_exhaustive]
        pub enum Status {
            $($(#[$doc])* $name = $code,)*
        }

        impl Status {
            /// Every status, in order of its number.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The status with this number.
            #[must_use]
            pub const fn from_wire(code: u16) -> Option<Self> {
                match code {
                    $($code => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// Its name in this enum, for logs and metrics.
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
    /// No such key; also no such thing where a command names something else.
    KeyNotFound = 0x01,
    /// The key exists, or the CAS given is not its CAS.
    KeyExists = 0x02,
    /// Too big.
    TooBig = 0x03,
    /// The request is malformed.
    Invalid = 0x04,
    /// Append/prepend to a missing key, add under some conditions.
    NotStored = 0x05,
    /// Incr/decr on a non-number.
    DeltaBadValue = 0x06,
    /// VBucket not here in the needed state; body = cluster map.
    NotMyVbucket = 0x07,
    /// No bucket selected.
    NoBucket = 0x08,
    /// Locked by GetLocked (needs XERROR, else Etmpfail).
    Locked = 0x09,
    /// DCP stream unknown.
    StreamNotFound = 0x0a,
    /// DCP opaque wrong.
    OpaqueNoMatch = 0x0b,
    /// Throttled (non-blocking mode).
    EwouldThrottle = 0x0c,
    /// Bucket on this node holds configuration only.
    ConfigOnly = 0x0d,
    /// Unlock of an unlocked key.
    NotLocked = 0x0e,
    /// New: CAS supplied for with-meta is not acceptable.
    CasValueInvalid = 0x0f,
    /// Credentials changed, authenticate again.
    AuthStale = 0x1f,
    /// Bad credentials.
    AuthError = 0x20,
    /// Send SASL_STEP.
    AuthContinue = 0x21,
    /// Number out of range (DCP seqno ranges…).
    OutOfRange = 0x22,
    /// DCP must roll back (u64 seqno in the body).
    Rollback = 0x23,
    /// No privilege.
    AccessDenied = 0x24,
    /// Node not initialised yet.
    NotInitialized = 0x25,
    /// Encryption key missing.
    EncryptionKeyNotAvailable = 0x26,
    /// Checksum mismatch (file fragments).
    ChecksumMismatch = 0x27,
    /// New: expiry would overflow 32 bit.
    ExpiryOverflow = 0x28,
    /// New: lock time would overflow.
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
    /// Bucket paused.
    BucketPaused = 0x50,
    /// Cancelled without effect.
    Cancelled = 0x51,
    /// Frame info id not known.
    UnknownFrameInfo = 0x80,
    /// Opcode not known.
    UnknownCommand = 0x81,
    /// Hard out of memory (quota), write refused.
    NoMemory = 0x82,
    /// Not supported here.
    NotSupported = 0x83,
    /// Internal.
    Internal = 0x84,
    /// Busy, try again.
    Busy = 0x85,
    /// Temporary failure (memory above mutation ratio, warmup, …).
    TemporaryFailure = 0x86,
    /// Xattr blob malformed.
    XattrInvalid = 0x87,
    /// Unknown collection (body: manifest uid).
    UnknownCollection = 0x88,
    /// Manifest cannot be applied.
    CannotApplyCollectionsManifest = 0x8a,
    /// Unknown scope.
    UnknownScope = 0x8c,
    /// Stream-id use wrong.
    DcpStreamIdInvalid = 0x8d,
    /// Bad durability level.
    DurabilityInvalidLevel = 0xa0,
    /// Not enough nodes in the chain (or chain too long).
    DurabilityImpossible = 0xa1,
    /// Another sync write is pending on the key.
    SyncWriteInProgress = 0xa2,
    /// Timed out / outcome unknown.
    SyncWriteAmbiguous = 0xa3,
    /// Pending from before a failover, being re-committed.
    SyncWriteReCommitInProgress = 0xa4,
    /// Range scan cancelled.
    RangeScanCancelled = 0xa5,
    /// More to come: send another continue.
    RangeScanMore = 0xa6,
    /// Scan finished.
    RangeScanComplete = 0xa7,
    /// Vb uuid differs from the snapshot requirement.
    VbUuidNotEqual = 0xa8,
    /// Path not in the document.
    SubdocPathEnoent = 0xc0,
    /// Path asks for a dictionary where an array is, or the reverse.
    SubdocPathMismatch = 0xc1,
    /// Path does not parse, or makes no sense for this operation.
    SubdocPathEinval = 0xc2,
    /// Path longer than the limit.
    SubdocPathE2big = 0xc3,
    /// The path has more components, or the document more levels, than the limit.
    SubdocPathE2deep = 0xc4,
    /// The value is not valid JSON at that place, or the sum does not fit 64 bits.
    SubdocValueCantinsert = 0xc5,
    /// Body is not JSON.
    SubdocDocNotjson = 0xc6,
    /// The whole number there does not fit a signed integer of 64 bits.
    SubdocNumErange = 0xc7,
    /// The delta is zero, or no whole number of 64 bits.
    SubdocDeltaEinval = 0xc8,
    /// Path is there already.
    SubdocPathEexists = 0xc9,
    /// Result would nest too deep.
    SubdocValueEtoodeep = 0xca,
    /// Lookup and mutation specs mixed in one request.
    SubdocInvalidCombo = 0xcb,
    /// One or more specs failed: see the body.
    SubdocMultiPathFailure = 0xcc,
    /// Worked, on a tombstone.
    SubdocSuccessDeleted = 0xcd,
    /// Flags exclude each other.
    SubdocXattrInvalidFlagCombo = 0xce,
    /// Several xattr keys in one request where one is allowed.
    SubdocXattrInvalidKeyCombo = 0xcf,
    /// Macro not known.
    SubdocXattrUnknownMacro = 0xd0,
    /// Virtual attribute not known.
    SubdocXattrUnknownVattr = 0xd1,
    /// Virtual attributes are read only.
    SubdocXattrCantModifyVattr = 0xd2,
    /// One or more specs failed, on a tombstone.
    SubdocMultiPathFailureDeleted = 0xd3,
    /// Xattr specs must come before body specs.
    SubdocInvalidXattrOrder = 0xd4,
    /// Field of a virtual attribute macro not known.
    SubdocXattrUnknownVattrMacro = 0xd5,
    /// Revive asked on a live document.
    SubdocCanOnlyReviveDeletedDocuments = 0xd6,
    /// A tombstone takes no body.
    SubdocDeletedDocumentCantHaveValue = 0xd7,
    /// Binary read of an xattr that holds none.
    SubdocFieldNotBinaryValue = 0xd8,
}

impl Status {
    /// The number on the wire.
    #[must_use]
    pub const fn wire(self) -> u16 {
        self as u16
    }

    /// Whether the command did what was asked (some of it, for multi-path replies).
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
