//! DCP, the protocol by which nodes and clients follow the changes of vBuckets.
//!
//! Both ends of a DCP connection send requests and replies, so [`parse_peer`] accepts both. [`DcpMessage::decode`] reads a
//! request, and `encode` of the message's own type writes one. The header carries the vBucket. Every message of a
//! stream has the opaque of the request that opened the stream. If several streams of a vBucket share a connection, a
//! frame info carries the stream id.
//!
//! Source: Couchbase `docs/dcp/documentation/commands/`, one page per message.

mod cache_transfer;
mod connection;
mod document;
mod filter;
mod marker;
mod peer;
mod reply;
mod stream;
mod sync_write;
mod system_event;

pub use cache_transfer::{CacheTransfer, CachedDocument};
pub use connection::{BufferAck, DcpControl, DcpOpen, OpenFlags};
pub use document::{DcpDeletion, DcpExpiration, DcpMutation};
pub use filter::{CacheTransferFilter, StreamFilter};
pub use marker::{DiskMarker, MarkerVersion, SnapshotFlags, SnapshotMarker, VisibleMarker};
pub use peer::{ParsePeer, PeerFrame, parse_peer};
pub use reply::{AddStreamReply, StreamReply, encode_failover_log};
pub use stream::{
    AddStream, DcpStreamRequest, EndReason, OsoSnapshot, SeqnoAdvanced, SetVbucketState, StreamEnd,
    StreamFlags,
};
pub use sync_write::{DcpAbort, DcpCommit, DcpPrepare, SeqnoAck};
pub use system_event::{DcpSystemEvent, DcpSystemEventKind, SystemEventPayload};

use crate::binary::commands::HeaderOnly;
use crate::binary::fields::{ALL_DATATYPES, FieldReader, PartRule, RequestShape};
use crate::binary::{ConnectionKind, FrameInfos, Opcode, Request, RequestWriter};
use kedge_types::{Cas, Datatype, RevSeqno, Seqno, Status, VbId};

/// The header fields that every message of a stream has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DcpHeader {
    /// The vBucket.
    pub vb: VbId,
    /// The opaque of the request that opened the stream. For any other request, the opaque that its reply repeats.
    pub opaque: u32,
    /// The id of the stream, if the connection uses stream ids.
    pub stream: Option<u16>,
}

impl DcpHeader {
    fn writer(&self, opcode: Opcode) -> RequestWriter<'static> {
        RequestWriter {
            vb: self.vb,
            opaque: self.opaque,
            infos: FrameInfos {
                stream_id: self.stream,
                ..FrameInfos::default()
            },
            ..RequestWriter::new(opcode)
        }
    }

    /// Returns the writer of a message about one version of a document.
    fn document_writer(
        &self,
        opcode: Opcode,
        cas: Cas,
        datatype: Datatype,
    ) -> RequestWriter<'static> {
        RequestWriter {
            cas,
            datatype,
            ..self.writer(opcode)
        }
    }
}

/// A request of either end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DcpMessage<'a> {
    /// vBucket, opaque and stream id.
    pub head: DcpHeader,
    /// The fields of the message.
    pub body: DcpBody<'a>,
}

/// The fields of a message. The consumer sends the messages up to [`DcpBody::SeqnoAck`], the producer the others and NOOP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is documented where it is defined")]
pub enum DcpBody<'a> {
    Open(DcpOpen<'a>),
    Control(DcpControl<'a>),
    AddStream(AddStream),
    /// Ends a stream. Has only a header.
    CloseStream,
    StreamRequest(DcpStreamRequest<'a>),
    /// Asks for the failover log of the vBucket. Has only a header.
    GetFailoverLog,
    BufferAck(BufferAck),
    SeqnoAck(SeqnoAck),
    /// Asks for a reply, as a sign of life. Has only a header.
    Noop,
    StreamEnd(StreamEnd),
    SnapshotMarker(SnapshotMarker),
    Mutation(DcpMutation<'a>),
    Deletion(DcpDeletion<'a>),
    Expiration(DcpExpiration<'a>),
    SetVbucketState(SetVbucketState),
    SystemEvent(DcpSystemEvent<'a>),
    Prepare(DcpPrepare<'a>),
    Commit(DcpCommit<'a>),
    Abort(DcpAbort<'a>),
    SeqnoAdvanced(SeqnoAdvanced),
    OsoSnapshot(OsoSnapshot),
    CacheTransfer(CacheTransfer<'a>),
    /// Ends the cache transfer. Has only a header.
    CacheTransferEnd,
}

impl<'a> DcpMessage<'a> {
    /// Checks and reads a request.
    ///
    /// # Errors
    /// [`Status::UnknownCommand`] when it is not of DCP, [`Status::UnknownFrameInfo`] for an undefined frame info,
    /// [`Status::Invalid`] when a part is missing, forbidden, of the wrong length or undefined.
    pub fn decode(request: &Request<'a>) -> Result<Self, Status> {
        let stream = if request.framing.is_empty() {
            None
        } else {
            FrameInfos::parse(request.framing)?.stream_id
        };
        Ok(Self {
            head: DcpHeader {
                vb: request.vb,
                opaque: request.opaque,
                stream,
            },
            body: DcpBody::decode(request)?,
        })
    }

    /// Appends the request.
    ///
    /// # Panics
    /// When a part is too long for its length field.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let head = &self.head;
        let bare = |opcode, out| HeaderOnly.encode(&head.writer(opcode), out);
        match &self.body {
            DcpBody::Open(open) => open.encode(head, out),
            DcpBody::Control(control) => control.encode(head, out),
            DcpBody::AddStream(add) => add.encode(head, out),
            DcpBody::CloseStream => bare(Opcode::DcpCloseStream, out),
            DcpBody::StreamRequest(request) => request.encode(head, out),
            DcpBody::GetFailoverLog => bare(Opcode::DcpGetFailoverLog, out),
            DcpBody::BufferAck(ack) => ack.encode(head, out),
            DcpBody::SeqnoAck(ack) => ack.encode(head, out),
            DcpBody::Noop => bare(Opcode::DcpNoop, out),
            DcpBody::StreamEnd(end) => end.encode(head, out),
            DcpBody::SnapshotMarker(marker) => marker.encode(head, out),
            DcpBody::Mutation(mutation) => mutation.encode(head, out),
            DcpBody::Deletion(deletion) => deletion.encode(head, out),
            DcpBody::Expiration(expiration) => expiration.encode(head, out),
            DcpBody::SetVbucketState(state) => state.encode(head, out),
            DcpBody::SystemEvent(event) => event.encode(head, out),
            DcpBody::Prepare(prepare) => prepare.encode(head, out),
            DcpBody::Commit(commit) => commit.encode(head, out),
            DcpBody::Abort(abort) => abort.encode(head, out),
            DcpBody::SeqnoAdvanced(advanced) => advanced.encode(head, out),
            DcpBody::OsoSnapshot(snapshot) => snapshot.encode(head, out),
            DcpBody::CacheTransfer(transfer) => transfer.encode(head, out),
            DcpBody::CacheTransferEnd => bare(Opcode::DcpCacheTransferEnd, out),
        }
    }
}

impl<'a> DcpBody<'a> {
    fn decode(request: &Request<'a>) -> Result<Self, Status> {
        let opcode = Opcode::from_wire(request.opcode, ConnectionKind::Couchbase);
        let bare = |body| HeaderOnly::decode(request).map(|_| body);
        match opcode.ok_or(Status::UnknownCommand)? {
            Opcode::DcpOpen => DcpOpen::decode(request).map(Self::Open),
            Opcode::DcpControl => DcpControl::decode(request).map(Self::Control),
            Opcode::DcpAddStream => AddStream::decode(request).map(Self::AddStream),
            Opcode::DcpCloseStream => bare(Self::CloseStream),
            Opcode::DcpStreamReq => DcpStreamRequest::decode(request).map(Self::StreamRequest),
            Opcode::DcpGetFailoverLog => bare(Self::GetFailoverLog),
            Opcode::DcpBufferAcknowledgement => BufferAck::decode(request).map(Self::BufferAck),
            Opcode::DcpSeqnoAcknowledged => SeqnoAck::decode(request).map(Self::SeqnoAck),
            Opcode::DcpNoop => bare(Self::Noop),
            Opcode::DcpStreamEnd => StreamEnd::decode(request).map(Self::StreamEnd),
            Opcode::DcpSnapshotMarker => SnapshotMarker::decode(request).map(Self::SnapshotMarker),
            Opcode::DcpMutation => DcpMutation::decode(request).map(Self::Mutation),
            Opcode::DcpDeletion => DcpDeletion::decode(request).map(Self::Deletion),
            Opcode::DcpExpiration => DcpExpiration::decode(request).map(Self::Expiration),
            Opcode::DcpSetVbucketState => {
                SetVbucketState::decode(request).map(Self::SetVbucketState)
            }
            Opcode::DcpSystemEvent => DcpSystemEvent::decode(request).map(Self::SystemEvent),
            Opcode::DcpPrepare => DcpPrepare::decode(request).map(Self::Prepare),
            Opcode::DcpCommit => DcpCommit::decode(request).map(Self::Commit),
            Opcode::DcpAbort => DcpAbort::decode(request).map(Self::Abort),
            Opcode::DcpSeqnoAdvanced => SeqnoAdvanced::decode(request).map(Self::SeqnoAdvanced),
            Opcode::DcpOsoSnapshot => OsoSnapshot::decode(request).map(Self::OsoSnapshot),
            Opcode::DcpCacheTransfer => CacheTransfer::decode(request).map(Self::CacheTransfer),
            Opcode::DcpCacheTransferEnd => bare(Self::CacheTransferEnd),
            _ => Err(Status::UnknownCommand),
        }
    }
}

/// Returns the shape of a message about one document: key, value, CAS and datatype as stored.
const fn document(extras: &'static [usize], value: PartRule) -> RequestShape {
    RequestShape {
        extras,
        key: PartRule::Required,
        value,
        cas: PartRule::Optional,
        datatype: ALL_DATATYPES,
    }
}

/// Returns the shape of a message that has only extras.
const fn extras_only(extras: &'static [usize]) -> RequestShape {
    RequestShape {
        extras,
        ..RequestShape::EMPTY
    }
}

/// Reads the two fields that begin the extras of a message about a document: the seqno and the revision number.
fn place(extras: &mut FieldReader<'_>) -> Result<(Seqno, RevSeqno), Status> {
    Ok((Seqno(extras.u64()?), RevSeqno(extras.u64()?)))
}

/// Returns the datatype of a request whose shape was checked.
fn datatype(request: &Request<'_>) -> Datatype {
    Datatype::from_bits(request.datatype).unwrap_or_default()
}

/// A buffer of big-endian fields, for extras of at most `N` bytes.
struct Extras<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Extras<N> {
    const fn new() -> Self {
        Self {
            bytes: [0; N],
            len: 0,
        }
    }

    /// Creates extras that begin with the fields that [`place`] reads.
    fn of_place(seqno: Seqno, rev: RevSeqno) -> Self {
        Self::new().u64(seqno.get()).u64(rev.get())
    }

    fn put<const M: usize>(mut self, field: [u8; M]) -> Self {
        self.bytes[self.len..self.len + M].copy_from_slice(&field);
        self.len += M;
        self
    }

    fn u8(self, field: u8) -> Self {
        self.put([field])
    }

    fn u16(self, field: u16) -> Self {
        self.put(field.to_be_bytes())
    }

    fn u32(self, field: u32) -> Self {
        self.put(field.to_be_bytes())
    }

    fn u64(self, field: u64) -> Self {
        self.put(field.to_be_bytes())
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}
