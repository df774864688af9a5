//! What a producer sends, and where it comes from.

use crate::request::StreamId;
use kedge_protocol::binary::commands::dcp::EndReason;
use kedge_types::Seqno;
use kedge_vbucket::{Change, Snapshot, VbState};

/// One step of a stream. In a snapshot from the disk a committed SyncWrite is a [`Change::Document`].
#[derive(Clone, Debug)]
pub enum StreamItem {
    /// A snapshot begins. `max_visible` should be said whenever the snapshot may have prepares or aborts; one that turns
    /// out to be too low costs another marker, one too high is told to the consumer as it is.
    Marker(Snapshot),
    /// A change, in the snapshot that was begun last, in the order of seqnos unless that has none. Only changes that have an item are sent.
    Change(Change),
    /// What follows is a snapshot of the disk whose changes are not in the order of seqnos: all that the vBucket has of the
    /// collections that the stream asked for, each document once.
    UnorderedBegin,
    /// The last change of that snapshot was given. It has everything up to this seqno, the last one that clients may see.
    UnorderedEnd(Seqno),
    /// There is nothing up to this seqno: the last change of the snapshot is one that the vBucket does not have any more.
    SeqnoAdvanced(Seqno),
    /// The receiver's vBucket becomes this, in a takeover. What follows is sent when the receiver has answered.
    State(VbState),
}

/// Whether there is more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceState {
    /// There is: something was read, and reading again gives more.
    More,
    /// Not now; [`crate::Producer::ready`] is to be called when there is.
    Idle,
    /// The stream ended, with what was read last. It is not read any more.
    Ended(EndReason),
}

/// What of documents' values a stream needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Values {
    /// All of them.
    #[default]
    Whole,
    /// Those with extended attributes, which are sent without the bodies behind.
    Xattrs,
    /// None.
    None,
}

/// Where streams read from.
pub trait Source {
    /// Appends the next steps of a stream to `out`: at most `max_items`, and no more than about `max_bytes` of items
    /// unless the first alone is larger.
    fn read(
        &mut self,
        stream: StreamId,
        max_items: usize,
        max_bytes: usize,
        out: &mut Vec<StreamItem>,
    ) -> SourceState;

    /// The producer has ended the stream, as something that was read cannot be sent. It is not read any more.
    fn close(&mut self, stream: StreamId);
}
