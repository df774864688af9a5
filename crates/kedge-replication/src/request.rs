//! Requests of a consumer.

use crate::filter::Filter;
use kedge_protocol::binary::commands::dcp::StreamFlags;
use kedge_types::{ManifestUid, Seqno, VbId, VbUuid};
use kedge_vbucket::NodeName;

/// The key of the DCP_CONTROL by which a consumer limits the rate of new copies, in bytes per second. It is Kedge's own: producers
/// without it refuse the key, and send at their own rate.
pub(crate) const COPY_RATE_KEY: &str = "max_copy_bytes_per_sec";

/// The key of the DCP_CONTROL by which a node of a cluster states the epoch of the map that it follows. It is Kedge's own.
pub(crate) const MAP_EPOCH_KEY: &str = "map_epoch";

/// The id of a stream on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    /// The vBucket.
    pub vb: VbId,
    /// The stream id among several streams of the vBucket; 0 on a connection with one stream per vBucket.
    pub sid: u16,
}

/// A request to open a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamRequest {
    /// The vBucket.
    pub vb: VbId,
    /// The flags of the stream.
    pub flags: StreamFlags,
    /// The seqno up to which the consumer has everything.
    pub start: Seqno,
    /// The last seqno of the stream; `u64::MAX` if it does not end.
    pub end: Seqno,
    /// The branch of history that `start` is on.
    pub uuid: VbUuid,
    /// The start of the last snapshot of which the consumer has a part: `snap_start <= start <= snap_end`.
    pub snap_start: Seqno,
    /// The end of that snapshot.
    pub snap_end: Seqno,
    /// The purge seqno that the consumer last saw.
    pub purge_seen: Option<Seqno>,
    /// The uid of the manifest that the consumer knows.
    pub manifest_seen: Option<ManifestUid>,
    /// The filter of the stream.
    pub filter: Filter,
    /// True if data from disk may be sent out of seqno order, where a filter by collections makes that shorter:
    /// [`crate::StreamItem::UnorderedBegin`].
    pub unordered: bool,
    /// True if the consumer gets prepares, commits and aborts. Otherwise it gets what clients see.
    pub sync_writes: bool,
    /// The name of the consumer in chains, if it gave one.
    pub consumer: Option<NodeName>,
}
