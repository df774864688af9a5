//! The source of the changes that a producer sends.

use crate::request::StreamId;
use kedge_protocol::binary::commands::dcp::EndReason;
use kedge_types::Seqno;
use kedge_vbucket::{Change, DcpSnapshot, VbState};

/// One step of a stream. In a snapshot from disk, a committed SyncWrite is a [`Change::Document`].
#[derive(Clone, Debug)]
pub enum StreamItem {
    /// The start of a snapshot. `max_visible` should be set whenever the snapshot may have prepares or aborts. A value
    /// that is too low costs another marker; one that is too high is sent to the consumer unchanged.
    Marker(DcpSnapshot),
    /// A change in the last snapshot, in seqno order unless the snapshot is out of order. Only changes that have an
    /// item are sent.
    Change(Change),
    /// The start of a disk snapshot that is not in seqno order: everything that the vBucket has of the requested
    /// collections, each document once.
    UnorderedBegin,
    /// The end of that snapshot. It has everything up to this seqno, the last one that clients see.
    UnorderedEnd(Seqno),
    /// No change up to this seqno follows: the vBucket no longer has the last change of the snapshot.
    SeqnoAdvanced(Seqno),
    /// The new state of the receiver's vBucket in a takeover. The following steps are sent after the receiver's reply.
    State(VbState),
}

/// The state of a stream at its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceState {
    /// There is more: reading again returns more.
    More,
    /// There is nothing now; [`crate::Producer::ready`] must be called when there is.
    Idle,
    /// The stream ended with the last step. It is not read again.
    Ended(EndReason),
}

/// The part of documents' values that a stream needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Values {
    /// Whole values.
    #[default]
    Whole,
    /// The values with extended attributes, which are sent without their bodies.
    Xattrs,
    /// No values.
    None,
}

/// The source of streams.
pub trait Source {
    /// Appends the next steps of a stream to `out`: at most `max_items`, and at most about `max_bytes` of items unless
    /// the first alone is larger.
    fn read(
        &mut self,
        stream: StreamId,
        max_items: usize,
        max_bytes: usize,
        out: &mut Vec<StreamItem>,
    ) -> SourceState;

    /// Closes a stream that the producer has ended, because a step cannot be sent. It is not read again.
    fn close(&mut self, stream: StreamId);
}
