//! DCP connections: the part of a session after DCP_OPEN.
//!
//! `kedge_replication` has the messages, the bucket has the streams. A stream with new items notifies its connection's
//! [`Mailbox`], which wakes the front-end thread once; the thread then lets the producer fill the
//! output from the streams that are ready, in turn, as far as output and flow control have room.
//!
//! Invariants:
//! * Only the thread of its connection reads a stream. The stream gives its cursor back when the connection ends.
//! * Of two connections to a bucket with the same name, the first one ends.

pub(crate) mod connections;
mod mailbox;

use std::sync::Arc;

use kedge_bucket::{Bucket, ConnectionStreams, StreamConnection, StreamRefused};
use kedge_protocol::binary::commands::dcp::{DcpControl, DcpOpen};
use kedge_protocol::binary::{Opcode, ReplyFrame, Request};
use kedge_replication::{
    Disconnect, FillResult, Producer, ProducerAction, ProducerConfig, RequestRejection,
    Source as _, StreamFlags, StreamId, StreamRequest,
};
use kedge_types::{Seqno, Status, VbId};

use crate::cookie::ConnectionId;
use crate::dcp::connections::DcpRegistration;
use crate::dcp::mailbox::Mailbox;
use crate::session::{CommandFailure, Rights, SessionTurn};

/// The number of bytes up to which streams fill the output. More would delay replies and the items of other streams.
const FILL_BYTES: usize = 256 << 10;

/// The DCP state of a connection.
pub(crate) struct DcpSession {
    producer: Producer,
    bucket: Arc<Bucket>,
    connection: StreamConnection,
    streams: ConnectionStreams,
    mailbox: Arc<Mailbox>,
    registered: DcpRegistration,
    ready: Vec<VbId>,
    /// Acknowledgements of the consumer that the bucket has not received yet.
    acks: Vec<(VbId, Seqno)>,
}

impl DcpSession {
    /// Opens a session for DCP.
    ///
    /// # Errors
    /// The status for the client.
    pub(crate) fn open(
        open: &DcpOpen<'_>,
        id: ConnectionId,
        bucket: &Arc<Bucket>,
        rights: Rights,
        features: kedge_protocol::binary::Features,
        turn: &SessionTurn<'_>,
    ) -> Result<Self, CommandFailure> {
        let limits = &turn.shared.limits;
        let config = ProducerConfig {
            features,
            idle_timeout_ns: limits.dcp_idle.as_nanos() as u64,
            stuck_timeout_ns: limits.dcp_stuck.as_nanos() as u64,
            map_epoch: turn.shared.cluster().map_epoch(),
        };
        let producer = Producer::open(open, &config, turn.now.mono_ns).map_err(failure)?;
        if producer.consumer_name().is_some() {
            may_acknowledge(rights)?;
        }
        let name = String::from_utf8_lossy(open.name).into_owned();
        let mailbox = Arc::new(Mailbox::new(id, turn.shared.front_ends.clone()));
        let connection = bucket
            .dcp()
            .connect_streams(&name, mailbox.clone())
            .map_err(|_| Status::TemporaryFailure)?;
        let connection = connection.with_values(producer.values());
        let registered = turn.shared.dcp.register(bucket.name(), &name, id);
        tracing::info!(bucket = bucket.name(), name, "a DCP connection was opened");
        Ok(Self {
            producer,
            bucket: bucket.clone(),
            connection,
            streams: ConnectionStreams::default(),
            mailbox,
            registered,
            ready: Vec::new(),
            acks: Vec::new(),
        })
    }

    pub(crate) fn name(&self) -> &str {
        self.registered.name()
    }

    /// Returns true for the opcodes of DCP.
    pub(crate) fn takes(opcode: u8) -> bool {
        (Opcode::DcpOpen.wire()..=Opcode::DcpCacheTransferEnd.wire()).contains(&opcode)
    }

    /// Handles a request of the consumer.
    ///
    /// # Errors
    /// The connection has to be closed.
    pub(crate) fn on_request(
        &mut self,
        turn: &SessionTurn<'_>,
        rights: Rights,
        map: impl FnOnce() -> Vec<u8>,
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Disconnect> {
        let now_ns = turn.now.mono_ns;
        if is_consumer_name(request) && may_acknowledge(rights).is_err() {
            return Err(denied(request.opcode));
        }
        let todo = self.producer.on_request(now_ns, request, out)?;
        self.carry_out(turn, rights, map, todo, request.opcode, out)
    }

    /// Handles a response of the consumer.
    ///
    /// # Errors
    /// The connection has to be closed.
    pub(crate) fn on_reply(
        &mut self,
        turn: &SessionTurn<'_>,
        reply: &ReplyFrame<'_>,
    ) -> Result<(), Disconnect> {
        let todo = self.producer.on_reply(turn.now.mono_ns, reply)?;
        if let ProducerAction::TakeoverAnswered { stream, .. } = todo {
            self.streams.state_answered(stream);
        }
        Ok(())
    }

    fn carry_out(
        &mut self,
        turn: &SessionTurn<'_>,
        rights: Rights,
        map: impl FnOnce() -> Vec<u8>,
        todo: ProducerAction,
        opcode: u8,
        out: &mut Vec<u8>,
    ) -> Result<(), Disconnect> {
        let now_ns = turn.now.mono_ns;
        match todo {
            ProducerAction::OpenStream(id, request) => {
                self.open_stream(now_ns, rights, map, id, &request, out)
            }
            ProducerAction::CloseStream(id) => {
                self.streams.close(id);
                self.forget_acks(id.vb);
                Ok(())
            }
            ProducerAction::FailoverLog { vb, opaque } => {
                let table = self.bucket.failover_table(turn.ctx(), vb);
                let table = table.as_ref().map_err(|status| *status);
                self.producer.failover_log(now_ns, opaque, table, out)
            }
            ProducerAction::Acknowledge { vb, prepared } => {
                if may_acknowledge(rights).is_err() {
                    return Err(denied(opcode));
                }
                self.acks.push((vb, prepared));
                Ok(())
            }
            ProducerAction::LimitCopies { bytes_per_sec } => {
                self.connection.limit_copies(bytes_per_sec);
                Ok(())
            }
            ProducerAction::Nothing | ProducerAction::TakeoverAnswered { .. } => Ok(()),
        }
    }

    fn open_stream(
        &mut self,
        now_ns: u64,
        rights: Rights,
        map: impl FnOnce() -> Vec<u8>,
        id: StreamId,
        request: &StreamRequest,
        out: &mut Vec<u8>,
    ) -> Result<(), Disconnect> {
        let takes_over = request.flags.contains(StreamFlags::TAKEOVER);
        // A stream has the whole bucket or the default collection, and no role is for that collection alone.
        let needed = if takes_over {
            Rights::STREAM.and(Rights::MANAGE)
        } else {
            Rights::STREAM
        };
        let opened = if !rights.allow(needed) {
            Err(Status::AccessDenied.into())
        } else {
            self.connection.open_stream(request)
        };
        match opened {
            Ok(opened) => {
                self.producer.filter_is(id, opened.filter);
                if self
                    .producer
                    .stream_opened(now_ns, id, &opened.failover, out)
                {
                    self.forget_acks(id.vb);
                    self.streams.insert(id, opened.stream);
                }
                Ok(())
            }
            Err(StreamRefused::Rollback(to)) => {
                tracing::info!(
                    bucket = self.bucket.name(),
                    connection = self.name(),
                    vbucket = %id.vb,
                    start = %request.start,
                    %to,
                    "a consumer has to roll back"
                );
                self.producer.stream_rolls_back(now_ns, id, to, out);
                Ok(())
            }
            Err(StreamRefused::Status(status)) => {
                let map = if status == Status::NotMyVbucket {
                    map()
                } else {
                    Vec::new()
                };
                self.producer.stream_refused(now_ns, id, status, &map, out)
            }
        }
    }

    /// Gives the bucket the acknowledgements since the last call.
    pub(crate) fn flush_acks(&mut self) {
        if self.acks.is_empty() {
            return;
        }
        if let Some(node) = self.producer.consumer_name() {
            self.bucket.dcp().acknowledge(node, &self.acks);
        }
        self.acks.clear();
    }

    /// Forgets the acknowledgements of a vBucket, as its stream begins or has ended.
    fn forget_acks(&mut self, vb: VbId) {
        self.acks.retain(|(acked, _)| *acked != vb);
        if let Some(node) = self.producer.consumer_name() {
            self.bucket.dcp().forget_acks(vb, node);
        }
    }

    /// Takes the vBuckets from the mailbox.
    pub(crate) fn collect(&mut self) {
        self.mailbox.take(&mut self.ready);
        for vb in self.ready.drain(..) {
            self.producer.ready(vb);
        }
    }

    /// Appends items of the streams, while there is room beside the `queued` bytes of the output.
    pub(crate) fn fill(&mut self, now_ns: u64, queued: usize, out: &mut Vec<u8>) {
        let room = FILL_BYTES.saturating_sub(queued);
        if room > 0 && self.producer.has_ready() {
            let filled = self.producer.fill(now_ns, &mut self.streams, out, room);
            debug_assert!(filled != FillResult::Idle || !self.producer.has_ready());
        }
        self.registered.note(self.producer.figures());
    }

    /// Returns true if [`Self::fill`] would append something to an output with room.
    pub(crate) fn has_ready(&self) -> bool {
        self.producer.has_ready()
    }

    /// The time of the next call of [`Self::on_time`].
    pub(crate) fn next_deadline_ns(&self) -> Option<u64> {
        self.producer.next_deadline_ns()
    }

    /// Sends a NOOP to the consumer when it is due.
    ///
    /// # Errors
    /// The consumer did not answer the last one: the connection has to be closed.
    pub(crate) fn on_time(&mut self, now_ns: u64, out: &mut Vec<u8>) -> Result<(), Disconnect> {
        self.producer.on_time(now_ns, out)
    }
}

/// Checks that the user may acknowledge prepares. That decides on the writes of other clients, so only nodes of the
/// cluster may.
fn may_acknowledge(rights: Rights) -> Result<(), CommandFailure> {
    if rights.allow(Rights::MANAGE) {
        return Ok(());
    }
    Err(CommandFailure::new(
        Status::AccessDenied,
        "only nodes of the cluster are replicas",
    ))
}

fn is_consumer_name(request: &Request<'_>) -> bool {
    request.opcode == Opcode::DcpControl.wire()
        && DcpControl::decode(request).is_ok_and(|control| control.key == b"consumer_name")
}

fn denied(opcode: u8) -> Disconnect {
    Disconnect::BadMessage {
        opcode,
        status: Status::AccessDenied,
    }
}

fn failure(refusal: RequestRejection) -> CommandFailure {
    CommandFailure::new(refusal.status, refusal.reason)
}
