//! What a consumer asks for.

use crate::filter::Filter;
use kedge_protocol::binary::commands::dcp::StreamFlags;
use kedge_types::{ManifestUid, Seqno, VbId, VbUuid};
use kedge_vbucket::NodeName;

/// Names a stream of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    /// The vBucket.
    pub vb: VbId,
    /// Which of several streams of it; 0 on a connection that has one for each vBucket.
    pub sid: u16,
}

/// A stream to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamRequest {
    /// The vBucket.
    pub vb: VbId,
    /// What kind of stream.
    pub flags: StreamFlags,
    /// The consumer has everything up to here.
    pub start: Seqno,
    /// The stream ends behind this seqno; `u64::MAX`: it does not end.
    pub end: Seqno,
    /// The branch of history that `start` is on.
    pub uuid: VbUuid,
    /// The last snapshot that the consumer has something of: `snap_start <= start <= snap_end`.
    pub snap_start: Seqno,
    /// Its end.
    pub snap_end: Seqno,
    /// Up to where tombstones were purged when the consumer last looked.
    pub purge_seen: Option<Seqno>,
    /// The manifest that the consumer knows.
    pub manifest_seen: Option<ManifestUid>,
    /// What of the vBucket.
    pub filter: Filter,
    /// Whether what comes from the disk may be in another order than that of seqnos, where a filter by collections makes
    /// that shorter: [`crate::StreamItem::UnorderedBegin`].
    pub unordered: bool,
    /// Whether the consumer gets prepares and their ends. Otherwise it gets what clients may see.
    pub sync_writes: bool,
    /// What the consumer is called in chains, if it has said so.
    pub consumer: Option<NodeName>,
}
