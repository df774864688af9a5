//! Requests of a consumer to a producer.

use super::format::OsoSupport;
use super::stream::ProducerStream;
use super::{Opening, Producer, ProducerAction, RequestRejection};
use crate::disconnect::Disconnect;
use crate::filter::Filter;
use crate::request::{StreamId, StreamRequest};
use kedge_protocol::binary::commands::FailoverEntry;
use kedge_protocol::binary::commands::dcp::{
    self, DcpBody, DcpHeader, DcpMessage, EndReason, SeqnoAck, StreamEnd, StreamFilter,
    StreamFlags, StreamReply, encode_failover_log,
};
use kedge_protocol::binary::{
    Feature, Opcode, Remap, ReplyFrame, Request, Response, remap_without_xerror,
    write_error_context,
};
use kedge_types::limits::DCP_STREAMS_MAX;
use kedge_types::{CollectionId, Datatype, ManifestUid, ScopeId, Seqno, Status, VbId};
use kedge_vbucket::FailoverTable;

const fn refuse<T>(status: Status, reason: &'static str) -> Result<T, RequestRejection> {
    Err(RequestRejection { status, reason })
}

impl Producer {
    /// Processes a DCP request. Immediate replies are appended to `out`; the action for the caller is returned.
    ///
    /// # Errors
    /// The connection must be closed.
    pub fn on_request(
        &mut self,
        now_ns: u64,
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> Result<ProducerAction, Disconnect> {
        self.liveness.received(now_ns);
        let before = out.len();
        let done = DcpMessage::decode(request)
            .map_err(|status| RequestRejection {
                status,
                reason: "the message is malformed",
            })
            .and_then(|message| self.execute(&message, out));
        let todo = match done {
            Ok(todo) => todo,
            Err(refusal) => {
                self.refuse(request.opcode, request.opaque, refusal, out)?;
                ProducerAction::Nothing
            }
        };
        if out.len() > before {
            self.liveness.sent(now_ns);
        }
        Ok(todo)
    }

    fn execute(
        &mut self,
        message: &DcpMessage<'_>,
        out: &mut Vec<u8>,
    ) -> Result<ProducerAction, RequestRejection> {
        let head = &message.head;
        let success = |opcode: Opcode, out| {
            Response::new(opcode.wire(), head.opaque, Status::Success).write(out);
        };
        match &message.body {
            DcpBody::Control(control) => {
                let todo = self.control(control)?;
                success(Opcode::DcpControl, out);
                return Ok(todo);
            }
            DcpBody::Noop => success(Opcode::DcpNoop, out),
            DcpBody::BufferAck(ack) => {
                if self.window.size == 0 {
                    return refuse(Status::Invalid, "the connection has no flow control");
                }
                self.window.acknowledge(ack.bytes);
            }
            DcpBody::StreamRequest(request) => return self.stream_request(head, request),
            DcpBody::CloseStream => return self.close_stream(head, out),
            DcpBody::GetFailoverLog => {
                return Ok(ProducerAction::FailoverLog {
                    vb: head.vb,
                    opaque: head.opaque,
                });
            }
            DcpBody::SeqnoAck(ack) => return self.seqno_ack(head.vb, *ack),
            DcpBody::Open(_) => return refuse(Status::Invalid, "the connection is open already"),
            _ => {
                return refuse(Status::NotSupported, "a producer takes no such message");
            }
        }
        Ok(ProducerAction::Nothing)
    }

    fn stream_id(&self, vb: VbId, sid: Option<u16>) -> Result<StreamId, RequestRejection> {
        let status = Status::DcpStreamIdInvalid;
        match (self.has_stream_ids, sid) {
            (true, Some(sid)) if sid > 0 => Ok(StreamId { vb, sid }),
            (true, _) => refuse(status, "the streams of this connection have ids"),
            (false, None) => Ok(StreamId { vb, sid: 0 }),
            (false, Some(_)) => refuse(status, "the streams of this connection have no ids"),
        }
    }

    fn stream_request(
        &mut self,
        head: &DcpHeader,
        wire: &dcp::DcpStreamRequest<'_>,
    ) -> Result<ProducerAction, RequestRejection> {
        if self.is_fenced {
            return refuse(
                Status::TemporaryFailure,
                "the maps of the two nodes have different epochs",
            );
        }
        let Ok(json) = StreamFilter::parse(wire.filter) else {
            return refuse(Status::Invalid, "the filter is malformed");
        };
        let id = self.stream_id(head.vb, json.stream_id)?;
        self.check_flags(wire.flags)?;
        if self.streams.contains_key(&id) || self.opening.contains_key(&id) {
            return refuse(Status::KeyExists, "the stream is there already");
        }
        if self.streams.len() + self.opening.len() >= DCP_STREAMS_MAX {
            return refuse(
                Status::TemporaryFailure,
                "the connection has too many streams",
            );
        }
        let in_snapshot = (wire.snap_start..=wire.snap_end).contains(&wire.start);
        if wire.start > wire.end || !in_snapshot {
            return refuse(
                Status::OutOfRange,
                "the start is behind the end, or not in the snapshot",
            );
        }
        let filter = self.filter(&json)?;
        self.opening.insert(
            id,
            Opening {
                opaque: head.opaque,
                filter: filter.clone(),
                start: wire.start,
            },
        );
        let request = StreamRequest {
            vb: head.vb,
            flags: wire.flags,
            start: wire.start,
            end: wire.end,
            uuid: wire.vb_uuid,
            snap_start: wire.snap_start,
            snap_end: wire.snap_end,
            purge_seen: json.purge_seqno,
            manifest_seen: json.manifest_uid.map(ManifestUid),
            filter,
            unordered: self.format.unordered != OsoSupport::No && self.format.collections,
            sync_writes: self.format.sync_writes,
            consumer: self.consumer_name.clone(),
        };
        Ok(ProducerAction::OpenStream(id, Box::new(request)))
    }

    fn check_flags(&self, flags: StreamFlags) -> Result<(), RequestRejection> {
        if !StreamFlags::ALL.contains(flags) {
            return refuse(Status::Invalid, "a flag has no meaning");
        }
        if flags.contains(StreamFlags::NO_VALUE) {
            return refuse(
                Status::NotSupported,
                "DCP_OPEN says that values are not wanted",
            );
        }
        if flags.contains(StreamFlags::CACHE_TRANSFER) {
            return refuse(Status::NotSupported, "the cache is not transferred");
        }
        let is_new = self.format.xattrs || self.format.collections;
        if is_new && !self.liveness.noop_enabled {
            return refuse(
                Status::Invalid,
                "with extended attributes or collections, enable_noop has to be true",
            );
        }
        Ok(())
    }

    fn filter(&self, json: &StreamFilter) -> Result<Filter, RequestRejection> {
        if json.cache_transfer.is_some() {
            return refuse(Status::NotSupported, "the cache is not transferred");
        }
        let has_collections = self.format.collections;
        Ok(match (&json.collections, json.scope) {
            (None, None) if has_collections => Filter::Everything,
            // A consumer without collections has a stream of the default collection. When that is dropped, the stream
            // ends.
            (None, None) => Filter::Collections(vec![CollectionId::DEFAULT]),
            _ if !has_collections => {
                return refuse(Status::Invalid, "HELLO did not negotiate Collections");
            }
            (Some(ids), _) => Filter::Collections(ids.clone()),
            (None, Some(scope)) => Filter::Scope {
                scope: ScopeId(scope),
                collections: Vec::new(),
            },
        })
    }

    fn close_stream(
        &mut self,
        head: &DcpHeader,
        out: &mut Vec<u8>,
    ) -> Result<ProducerAction, RequestRejection> {
        let id = self.stream_id(head.vb, head.stream)?;
        let stream = self.remove_stream(id);
        if stream.is_none() && self.opening.remove(&id).is_none() {
            let status = if self.has_v7_statuses {
                Status::StreamNotFound
            } else {
                Status::KeyNotFound
            };
            return refuse(status, "no such stream");
        }
        Response::new(Opcode::DcpCloseStream.wire(), head.opaque, Status::Success).write(out);
        if let Some(stream) = stream.filter(|_| self.ends_closed_streams) {
            let before = out.len();
            StreamEnd {
                reason: EndReason::Closed,
            }
            .encode(&stream.head, out);
            self.window.sent(out.len() - before);
        }
        Ok(ProducerAction::CloseStream(id))
    }

    fn seqno_ack(&self, vb: VbId, ack: SeqnoAck) -> Result<ProducerAction, RequestRejection> {
        if !self.format.sync_writes || self.consumer_name.is_none() {
            return refuse(
                Status::Invalid,
                "enable_sync_writes and consumer_name were not set",
            );
        }
        let Some(stream) = self.streams.get(&StreamId { vb, sid: 0 }) else {
            return refuse(Status::StreamNotFound, "no such stream");
        };
        // Otherwise the acknowledgement is of a history from which the consumer has rolled back.
        if ack.prepared > stream.figures.last_seqno {
            return refuse(Status::OutOfRange, "it was not sent in this stream");
        }
        Ok(ProducerAction::Acknowledge {
            vb,
            prepared: ack.prepared,
        })
    }

    /// Processes the consumer's reply to a message.
    ///
    /// # Errors
    /// The connection must be closed: the consumer refused a message.
    pub fn on_reply(
        &mut self,
        now_ns: u64,
        reply: &ReplyFrame<'_>,
    ) -> Result<ProducerAction, Disconnect> {
        self.liveness.received(now_ns);
        if reply.opcode == Opcode::DcpNoop.wire() {
            self.liveness.answered();
            return Ok(ProducerAction::Nothing);
        }
        // A closed stream may have sent messages before.
        let is_late = matches!(
            reply.status(),
            Some(Status::KeyNotFound | Status::StreamNotFound | Status::OpaqueNoMatch)
        );
        if is_late {
            return Ok(ProducerAction::Nothing);
        }
        if reply.status() != Some(Status::Success) {
            return Err(Disconnect::Refused {
                opcode: reply.opcode,
                status: reply.status_code,
            });
        }
        if reply.opcode != Opcode::DcpSetVbucketState.wire() {
            return Ok(ProducerAction::Nothing);
        }
        let answered = self.streams.iter_mut().find_map(|(id, stream)| {
            let is_it = stream.head.opaque == reply.opaque;
            is_it
                .then(|| stream.waits_for.take())
                .flatten()
                .map(|state| (*id, state))
        });
        let Some((stream, state)) = answered else {
            return Ok(ProducerAction::Nothing);
        };
        self.queue(stream);
        Ok(ProducerAction::TakeoverAnswered { stream, state })
    }

    /// Sets the filter of [`ProducerAction::OpenStream`] as the source resolved it. Called before [`Producer::stream_opened`].
    pub fn filter_is(&mut self, id: StreamId, filter: Filter) {
        if let Some(opening) = self.opening.get_mut(&id) {
            opening.filter = filter;
        }
    }

    /// Reports that the stream of [`ProducerAction::OpenStream`] is open. The consumer gets the failover log of the vBucket, then
    /// the data of the source. Returns false if the consumer has closed the stream in the meantime.
    pub fn stream_opened(
        &mut self,
        now_ns: u64,
        id: StreamId,
        failover: &FailoverTable,
        out: &mut Vec<u8>,
    ) -> bool {
        let Some(opening) = self.opening.remove(&id) else {
            return false;
        };
        encode_failover_log(Opcode::DcpStreamReq, opening.opaque, log(failover), out);
        self.liveness.sent(now_ns);
        let head = DcpHeader {
            vb: id.vb,
            opaque: opening.opaque,
            stream: self.has_stream_ids.then_some(id.sid),
        };
        let skips_deletes = self.format.skip_deletes;
        let stream = ProducerStream::new(head, opening.filter, opening.start, skips_deletes);
        self.streams.insert(id, stream);
        self.queue(id);
        true
    }

    /// Reports that the stream of [`ProducerAction::OpenStream`] begins only after the consumer has rolled back to `to`.
    pub fn stream_rolls_back(&mut self, now_ns: u64, id: StreamId, to: Seqno, out: &mut Vec<u8>) {
        if let Some(opening) = self.opening.remove(&id) {
            StreamReply::encode_rollback(opening.opaque, to, out);
            self.liveness.sent(now_ns);
        }
    }

    /// Reports that the stream is refused. `map` is the cluster map for a consumer that asked the wrong node, or empty.
    ///
    /// # Errors
    /// The connection must be closed, because the consumer does not know the status.
    pub fn stream_refused(
        &mut self,
        now_ns: u64,
        id: StreamId,
        status: Status,
        map: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Disconnect> {
        let Some(opening) = self.opening.remove(&id) else {
            return Ok(());
        };
        self.liveness.sent(now_ns);
        let opcode = Opcode::DcpStreamReq.wire();
        self.refuse_with(opcode, opening.opaque, status, map, out)
    }

    /// Replies to [`ProducerAction::FailoverLog`].
    ///
    /// # Errors
    /// The connection must be closed, because the consumer does not know the status.
    pub fn failover_log(
        &mut self,
        now_ns: u64,
        opaque: u32,
        failover: Result<&FailoverTable, Status>,
        out: &mut Vec<u8>,
    ) -> Result<(), Disconnect> {
        self.liveness.sent(now_ns);
        let opcode = Opcode::DcpGetFailoverLog;
        match failover {
            Ok(table) => {
                encode_failover_log(opcode, opaque, log(table), out);
                Ok(())
            }
            Err(status) => self.refuse_with(opcode.wire(), opaque, status, &[], out),
        }
    }

    fn refuse(
        &self,
        opcode: u8,
        opaque: u32,
        refusal: RequestRejection,
        out: &mut Vec<u8>,
    ) -> Result<(), Disconnect> {
        let body = if self.format.json {
            write_error_context(refusal.reason, None)
        } else {
            String::new()
        };
        self.refuse_with(opcode, opaque, refusal.status, body.as_bytes(), out)
    }

    fn refuse_with(
        &self,
        opcode: u8,
        opaque: u32,
        mut status: Status,
        json: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Disconnect> {
        if !self.features.contains(Feature::Xerror) {
            match remap_without_xerror(status, self.format.collections) {
                Remap::Send(known) => status = known,
                Remap::Close => return Err(Disconnect::BadMessage { opcode, status }),
            }
        }
        Response {
            datatype: if json.is_empty() {
                Datatype::RAW
            } else {
                Datatype::JSON
            },
            value: json,
            ..Response::new(opcode, opaque, status)
        }
        .write(out);
        Ok(())
    }
}

fn log(failover: &FailoverTable) -> impl Iterator<Item = FailoverEntry> {
    let entries = failover.entries().iter();
    entries.map(|(vb_uuid, seqno)| FailoverEntry {
        vb_uuid: *vb_uuid,
        seqno: *seqno,
    })
}
