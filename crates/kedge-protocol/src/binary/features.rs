//! The features that HELLO negotiates.
//!
//! Codes and rules: Couchbase `docs/BinaryProtocol.md`, section "HELLO". Unknown codes are skipped, among them the
//! withdrawn codes 0x01, 0x09 and 0x16, as clients ask for features that are newer than the server.

use kedge_types::{Datatype, Status};
use std::fmt;

macro_rules! features {
    ($($(#[$doc:meta])* $name:ident = $code:literal,)*) => {
        /// A feature that a client can ask for in HELLO.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        #[non_exhaustive]
        pub enum Feature {
            $($(#[$doc])* $name = $code,)*
        }

        impl Feature {
            /// Every feature, in order of its code.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Returns the feature with this code.
            #[must_use]
            pub const fn from_wire(code: u16) -> Option<Self> {
                match code {
                    $($code => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

features! {
    /// Never granted; old SDKs ask for it.
    Tls = 0x02,
    /// Nagle's algorithm off.
    TcpNodelay = 0x03,
    /// Mutation replies carry vBucket uuid and seqno.
    MutationSeqno = 0x04,
    /// Never granted.
    TcpDelay = 0x05,
    /// Extended attributes: sub-document path flags, the xattr datatype.
    Xattr = 0x06,
    /// Extended statuses and the error map.
    Xerror = 0x07,
    /// The client will choose its bucket.
    SelectBucket = 0x08,
    /// Compressed values both ways.
    Snappy = 0x0a,
    /// The JSON datatype bit.
    Json = 0x0b,
    /// The server may send requests.
    Duplex = 0x0c,
    /// New cluster maps are pushed.
    ClustermapChangeNotification = 0x0d,
    /// Replies may come out of order.
    UnorderedExecution = 0x0e,
    /// Replies carry the server duration.
    Tracing = 0x0f,
    /// Flexible framing in requests.
    AltRequestSupport = 0x10,
    /// Durable writes.
    SyncReplication = 0x11,
    /// Keys start with a collection id.
    Collections = 0x12,
    /// Any frame may be compressed.
    SnappyEverywhere = 0x13,
    /// The preserve-TTL frame info.
    PreserveTtl = 0x14,
    /// Virtual extended attributes.
    VAttr = 0x15,
    /// Documents may be created as tombstones.
    SubdocCreateAsDeleted = 0x17,
    /// `$document.*` macros.
    SubdocDocumentMacroSupport = 0x18,
    /// The body may be replaced with an xattr's value.
    SubdocReplaceBodyWithXattr = 0x19,
    /// Replies carry read and write units.
    ReportUnitUsage = 0x1a,
    /// Throttled requests fail instead of waiting.
    NonBlockingThrottling = 0x1b,
    /// Sub-document reads from a replica.
    SubdocReplicaRead = 0x1c,
    /// A map is sent only if it is newer than the client's.
    GetClusterConfigWithKnownVersion = 0x1d,
    /// The same map is not sent twice.
    DedupeNotMyVbucketClustermap = 0x1e,
    /// Only the version of a new map is pushed.
    ClustermapChangeNotificationBrief = 0x1f,
    /// Several xattr keys in one command.
    SubdocAllowsAccessOnMultipleXattrKeys = 0x20,
    /// Binary values in xattrs.
    SubdocBinaryXattr = 0x21,
    /// Range scans may return xattrs.
    RangeScanIncludeXattr = 0x22,
    /// Replica reads may return tombstones.
    SubdocAllowReplicaReadOnDeletedDocs = 0x23,
    /// Random documents may come with their xattrs.
    GetRandomKeyIncludeXattr = 0x24,
    /// The mutate-with-meta command.
    MutateWithMeta = 0x25,
    /// The initial backfill of DCP may leave out tombstones.
    DcpSkipDeletesInInitialBackfill = 0x26,
}

impl Feature {
    /// Returns the code on the wire.
    #[must_use]
    pub const fn wire(self) -> u16 {
        self as u16
    }

    const fn bit(self) -> u64 {
        1 << self.wire()
    }

    /// Returns whether the feature changes the server's behaviour on the connection. The others only announce a
    /// capability; the server accepts their frames without negotiation.
    #[must_use]
    pub const fn switches_behaviour(self) -> bool {
        matches!(
            self,
            Self::TcpNodelay
                | Self::MutationSeqno
                | Self::Xattr
                | Self::Json
                | Self::Snappy
                | Self::SnappyEverywhere
                | Self::Xerror
                | Self::Duplex
                | Self::ClustermapChangeNotification
                | Self::ClustermapChangeNotificationBrief
                | Self::UnorderedExecution
                | Self::Tracing
                | Self::Collections
                | Self::DedupeNotMyVbucketClustermap
                | Self::ReportUnitUsage
                | Self::NonBlockingThrottling
        )
    }

    /// Returns the features that this feature requires.
    const fn needs(self) -> Features {
        match self {
            Self::ClustermapChangeNotification | Self::ClustermapChangeNotificationBrief => {
                Features(Self::Duplex.bit())
            }
            Self::VAttr | Self::SubdocDocumentMacroSupport | Self::RangeScanIncludeXattr => {
                Features(Self::Xattr.bit())
            }
            Self::GetRandomKeyIncludeXattr => {
                Features(Self::Xattr.bit() | Self::Json.bit() | Self::SnappyEverywhere.bit())
            }
            _ => Features::NONE,
        }
    }
}

// Every code is the number of a bit in the set.
const _: () = {
    let mut at = 0;
    while at < Feature::ALL.len() {
        assert!(Feature::ALL[at].wire() < u64::BITS as u16);
        at += 1;
    }
};

/// A set of features.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Features(u64);

impl Features {
    /// No feature: the state of a connection before HELLO.
    pub const NONE: Self = Self(0);
    /// Every feature.
    pub const ALL: Self = Self::of(Feature::ALL);

    /// Returns the set of the given features.
    #[must_use]
    pub const fn of(features: &[Feature]) -> Self {
        let mut set = 0;
        let mut at = 0;
        while at < features.len() {
            set |= features[at].bit();
            at += 1;
        }
        Self(set)
    }

    /// Reads the list of a HELLO: two bytes per code. Unknown codes are skipped, repeated ones count once.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the length is odd, or when features exclude or require each other: TcpNodelay with
    /// TcpDelay; a cluster map notification without Duplex; VAttr, SubdocDocumentMacroSupport or RangeScanIncludeXattr
    /// without Xattr; GetRandomKeyIncludeXattr without Xattr, Json and SnappyEverywhere.
    pub fn parse(list: &[u8]) -> Result<Self, Status> {
        let (codes, rest) = list.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(Status::Invalid);
        }
        let set = codes
            .iter()
            .filter_map(|code| Feature::from_wire(u16::from_be_bytes(*code)))
            .fold(Self::NONE, Self::with);
        let lacking = set.iter().any(|feature| !set.contains_all(feature.needs()));
        let nagle = set.contains(Feature::TcpNodelay) && set.contains(Feature::TcpDelay);
        if lacking || nagle {
            return Err(Status::Invalid);
        }
        Ok(set)
    }

    /// Appends the codes, two bytes each, in ascending order.
    pub fn encode(self, out: &mut Vec<u8>) {
        for feature in self.iter() {
            out.extend_from_slice(&feature.wire().to_be_bytes());
        }
    }

    /// Returns whether `feature` is in the set.
    #[must_use]
    #[inline]
    pub const fn contains(self, feature: Feature) -> bool {
        self.0 & feature.bit() != 0
    }

    /// Returns whether all of `other` is in the set.
    #[must_use]
    pub const fn contains_all(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns this set with `feature` added.
    #[must_use]
    pub const fn with(self, feature: Feature) -> Self {
        Self(self.0 | feature.bit())
    }

    /// Returns this set without `feature`.
    #[must_use]
    pub const fn without(self, feature: Feature) -> Self {
        Self(self.0 & !feature.bit())
    }

    /// Returns the features of both sets.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the features of this set that are not in `other`.
    #[must_use]
    pub const fn difference(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Iterates over the features, in order of their codes.
    pub fn iter(self) -> impl Iterator<Item = Feature> {
        Feature::ALL
            .iter()
            .copied()
            .filter(move |feature| self.contains(*feature))
    }

    /// Returns the datatype bits that a connection with these features may send and receive.
    #[must_use]
    #[inline]
    pub const fn datatypes(self) -> Datatype {
        let mut datatypes = Datatype::RAW;
        if self.contains(Feature::Json) {
            datatypes = datatypes.union(Datatype::JSON);
        }
        if self.contains(Feature::Snappy) || self.contains(Feature::SnappyEverywhere) {
            datatypes = datatypes.union(Datatype::SNAPPY);
        }
        if self.contains(Feature::Xattr) {
            datatypes = datatypes.union(Datatype::XATTR);
        }
        datatypes
    }
}

impl fmt::Debug for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
