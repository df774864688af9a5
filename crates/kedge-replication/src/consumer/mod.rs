//! The receiving end of a DCP connection.
//!
//! Invariants:
//! * A message for a stream that does not exist, or no longer exists, is counted and ignored: the producer sent it
//!   before it knew.
//! * Changes are returned in the order of their arrival. The vBucket checks their seqno order, and that they fit their
//!   snapshots.
//! * Every takeover was requested. The vBucket becomes pending first, then active, and the producer gets one reply for
//!   each. Anything else is refused.
//! * Every byte that the producer counts is acknowledged once, after it was reported as consumed.

mod acks;
mod receive;

use crate::disconnect::Disconnect;
use crate::request::{COPY_RATE_KEY, MAP_EPOCH_KEY};
use acks::BufferAcks;
use kedge_protocol::binary::commands::dcp::{
    DcpBody, DcpControl, DcpHeader, DcpMessage, DcpOpen, DcpStreamRequest, EndReason, OpenFlags,
    PeerFrame, SeqnoAck, StreamFlags, StreamReply,
};
use kedge_protocol::binary::{Opcode, ReplyFrame, Request, Response};
use kedge_types::limits::{DCP_NAME_BYTES_MAX, DCP_NOOP_INTERVAL_SECS_MAX};
use kedge_types::{Seqno, Status, VbId};
use kedge_vbucket::{DcpSnapshot, FailoverTable, NodeName, Received, ResumePoint, VbState};
use std::collections::{BTreeMap, VecDeque};

const SECOND_NS: u64 = 1_000_000_000;
/// The number of NOOP intervals without any message after which the other end counts as gone.
const SILENT_INTERVALS: u64 = 2;

/// The configuration of a consumer.
#[derive(Clone, Debug)]
pub struct ConsumerConfig {
    /// The name of the connection, not empty: the producer closes an older connection of the same name. If it is longer
    /// than [`DCP_NAME_BYTES_MAX`], only its end is used.
    pub name: String,
    /// The name of this node in the topology of vBuckets.
    pub node: NodeName,
    /// The size of the buffer: bytes that the producer may send before they are acknowledged.
    pub buffer_bytes: u32,
    /// Seconds of silence after which the producer sends a NOOP, 1 to [`DCP_NOOP_INTERVAL_SECS_MAX`].
    pub noop_interval_secs: u32,
    /// True if HELLO negotiated Collections, so that keys have their prefix.
    pub collections: bool,
    /// The epoch of the map that this node follows: a producer with another one opens no stream. `None` if the compatibility
    /// level of the cluster does not have that.
    pub map_epoch: Option<i64>,
}

/// The meaning of a frame.
#[derive(Clone, Debug)]
pub enum ConsumerEvent {
    /// No action is needed.
    Nothing,
    /// A requested stream begins, with the failover log of the producer's vBucket.
    Begins {
        /// The vBucket.
        vb: VbId,
        /// The resume point of the request.
        from: ResumePoint,
        /// The failover log.
        failover: FailoverTable,
    },
    /// The vBucket has to roll back to a seqno; then the stream may be requested again.
    Rollback {
        /// The vBucket.
        vb: VbId,
        /// The seqno.
        to: Seqno,
    },
    /// The producer refused the stream. It may be the wrong node, or not be ready.
    Refused {
        /// The vBucket.
        vb: VbId,
        /// The status code, which may be an unknown one.
        status: u16,
    },
    /// A snapshot begins.
    Snapshot {
        /// The vBucket.
        vb: VbId,
        /// The snapshot.
        snapshot: DcpSnapshot,
    },
    /// A change.
    Received {
        /// The vBucket.
        vb: VbId,
        /// The change.
        received: Received,
    },
    /// The vBucket gets this state in a takeover; then [`Consumer::state_is_set`] must be called.
    SetState {
        /// The vBucket.
        vb: VbId,
        /// The state.
        state: VbState,
    },
    /// The stream ended.
    Ended {
        /// The vBucket.
        vb: VbId,
        /// The reason.
        reason: EndReason,
    },
}

/// The outcome of a frame.
#[derive(Clone, Debug)]
pub struct ConsumerStep {
    /// The meaning of the frame.
    pub event: ConsumerEvent,
    /// The number of bytes for [`Consumer::consumed`] after the event is processed.
    pub bytes: usize,
}

/// Figures of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConsumerFigures {
    /// The number of streams that are requested or open.
    pub streams: usize,
    /// The number of received changes.
    pub items: u64,
    /// The number of bytes of all messages of streams.
    pub bytes: u64,
    /// The number of bytes that are consumed but not yet acknowledged.
    pub unacknowledged: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConsumerStreamState {
    Asked,
    Open,
    /// The producer waits for the reply to a SET_VBUCKET_STATE.
    Taking,
}

#[derive(Clone, Copy, Debug)]
struct ConsumerStream {
    opaque: u32,
    /// The resume point.
    from: ResumePoint,
    state: ConsumerStreamState,
    /// The next state of the vBucket in the requested takeover.
    next: Option<VbState>,
}

/// A DCP connection that receives the changes of vBuckets.
#[derive(Debug)]
pub struct Consumer {
    collections: bool,
    next_opaque: u32,
    /// The properties that were set, in the order of the expected replies.
    controls: VecDeque<(u32, &'static str)>,
    is_open: bool,
    streams: BTreeMap<VbId, ConsumerStream>,
    acks: BufferAcks,
    silence_ns: u64,
    last_received_ns: u64,
    items: u64,
    bytes: u64,
}

impl Consumer {
    /// Opens a connection whose other end has logged in and has selected the bucket: appends DCP_OPEN and the
    /// DCP_CONTROL messages. Streams may be requested at once, without waiting for a reply.
    ///
    /// # Panics
    /// When the NOOP interval is out of the range that [`ConsumerConfig`] gives.
    #[must_use]
    pub fn open(config: &ConsumerConfig, now_ns: u64, out: &mut Vec<u8>) -> Self {
        assert!(
            (1..=DCP_NOOP_INTERVAL_SECS_MAX).contains(&config.noop_interval_secs),
            "a producer takes such an interval between NOOPs"
        );
        let interval_ns = u64::from(config.noop_interval_secs) * SECOND_NS;
        let mut consumer = Self {
            collections: config.collections,
            next_opaque: 1,
            controls: VecDeque::new(),
            is_open: false,
            streams: BTreeMap::new(),
            acks: BufferAcks::new(config.buffer_bytes),
            silence_ns: interval_ns * SILENT_INTERVALS,
            last_received_ns: now_ns,
            items: 0,
            bytes: 0,
        };
        let flags = OpenFlags::PRODUCER
            .union(OpenFlags::XATTRS)
            .union(OpenFlags::DELETE_TIMES)
            .union(OpenFlags::DELETED_USER_XATTRS);
        let name = config.name.as_bytes();
        let open = DcpOpen {
            flags,
            name: &name[name.len().saturating_sub(DCP_NAME_BYTES_MAX)..],
            value: b"",
        };
        let opaque = consumer.take_opaque();
        send(opaque, VbId(0), DcpBody::Open(open), out);
        let buffer = config.buffer_bytes.to_string();
        let interval = config.noop_interval_secs.to_string();
        for (key, value) in [
            ("enable_noop", "true"),
            ("set_noop_interval", &interval),
            ("connection_buffer_size", &buffer),
            ("enable_sync_writes", "true"),
            ("consumer_name", config.node.as_str()),
            ("max_marker_version", "2.2"),
            ("enable_expiry_opcode", "true"),
            ("include_deleted_user_xattrs", "true"),
            ("supports_hifi_MFU", "true"),
            ("supports_cursor_dropping_vulcan", "true"),
            ("v7_dcp_status_codes", "true"),
        ] {
            consumer.control(key, value, out);
        }
        if let Some(epoch) = config.map_epoch {
            consumer.control(MAP_EPOCH_KEY, &epoch.to_string(), out);
        }
        consumer
    }

    fn control(&mut self, key: &'static str, value: &str, out: &mut Vec<u8>) {
        let opaque = self.take_opaque();
        self.controls.push_back((opaque, key));
        let control = DcpControl {
            key: key.as_bytes(),
            value: value.as_bytes(),
        };
        send(opaque, VbId(0), DcpBody::Control(control), out);
    }

    /// Asks the producer to limit the rate of backfills for new copies, in bytes per second; 0 is no limit. Nothing else is
    /// limited.
    pub fn limit_copies(&mut self, bytes_per_sec: u64, out: &mut Vec<u8>) {
        self.control(COPY_RATE_KEY, &bytes_per_sec.to_string(), out);
    }

    fn take_opaque(&mut self) -> u32 {
        let opaque = self.next_opaque;
        // 0 is the opaque of messages without a stream.
        self.next_opaque = self.next_opaque.checked_add(1).unwrap_or(1);
        opaque
    }

    /// Returns whether the producer has accepted DCP_OPEN.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Requests a stream of a vBucket from its resume point. An existing stream is forgotten; close it first.
    pub fn add_stream(
        &mut self,
        vb: VbId,
        from: &ResumePoint,
        flags: StreamFlags,
        out: &mut Vec<u8>,
    ) {
        let opaque = self.take_opaque();
        let stream = ConsumerStream {
            opaque,
            from: *from,
            state: ConsumerStreamState::Asked,
            next: flags
                .contains(StreamFlags::TAKEOVER)
                .then_some(VbState::Pending),
        };
        self.streams.insert(vb, stream);
        let request = DcpStreamRequest {
            flags,
            start: from.start,
            end: DcpStreamRequest::NO_END,
            vb_uuid: from.uuid,
            snap_start: from.snap_start,
            snap_end: from.snap_end,
            filter: b"",
        };
        send(opaque, vb, DcpBody::StreamRequest(request), out);
    }

    /// Closes a stream: no more events of it are returned. Returns false if there is none.
    pub fn close_stream(&mut self, vb: VbId, out: &mut Vec<u8>) -> bool {
        let is_there = self.streams.remove(&vb).is_some();
        if is_there {
            let opaque = self.take_opaque();
            send(opaque, vb, DcpBody::CloseStream, out);
        }
        is_there
    }

    /// Returns whether a stream of the vBucket is requested or open.
    #[must_use]
    pub fn has_stream(&self, vb: VbId) -> bool {
        self.streams.contains_key(&vb)
    }

    /// Acknowledges to the producer that this node has every prepare of the vBucket up to a seqno. Without an open
    /// stream, nothing is sent; the caller repeats the acknowledgement when there is one.
    pub fn acknowledge(&mut self, vb: VbId, prepared: Seqno, out: &mut Vec<u8>) {
        let stream = self.streams.get(&vb);
        if let Some(stream) = stream.filter(|stream| stream.state != ConsumerStreamState::Asked) {
            let ack = SeqnoAck { prepared };
            send(stream.opaque, vb, DcpBody::SeqnoAck(ack), out);
        }
    }

    /// Counts bytes from [`ConsumerStep::bytes`] as consumed, so that the producer may send as many more.
    pub fn consumed(&mut self, now_ns: u64, bytes: usize, out: &mut Vec<u8>) {
        if let Some(ack) = self.acks.consumed(now_ns, bytes) {
            send(0, VbId(0), DcpBody::BufferAck(ack), out);
        }
    }

    /// Replies to [`ConsumerEvent::SetState`]. If `status` is not success, the producer ends the connection.
    pub fn state_is_set(&mut self, vb: VbId, status: Status, out: &mut Vec<u8>) {
        let stream = self.streams.get_mut(&vb);
        if let Some(stream) = stream.filter(|stream| stream.state == ConsumerStreamState::Taking) {
            stream.state = ConsumerStreamState::Open;
            let opcode = Opcode::DcpSetVbucketState.wire();
            Response::new(opcode, stream.opaque, status).write(out);
        }
    }

    /// Processes a frame. Immediate replies are appended to `out`.
    ///
    /// # Errors
    /// The connection must be closed.
    pub fn on_frame(
        &mut self,
        now_ns: u64,
        frame: &PeerFrame<'_>,
        out: &mut Vec<u8>,
    ) -> Result<ConsumerStep, Disconnect> {
        self.last_received_ns = now_ns;
        match frame {
            PeerFrame::Request(request) => self.on_request(request, out),
            PeerFrame::Reply(reply) => self
                .on_reply(reply)
                .map(|event| ConsumerStep { event, bytes: 0 }),
        }
    }

    fn on_reply(&mut self, reply: &ReplyFrame<'_>) -> Result<ConsumerEvent, Disconnect> {
        let is_done = reply.status() == Some(Status::Success);
        let refused = Disconnect::Refused {
            opcode: reply.opcode,
            status: reply.status_code,
        };
        if reply.opcode == Opcode::DcpStreamReq.wire() {
            return self.on_stream_reply(reply);
        }
        if reply.opcode == Opcode::DcpOpen.wire() {
            self.is_open = is_done;
            return if is_done {
                Ok(ConsumerEvent::Nothing)
            } else {
                Err(refused)
            };
        }
        if reply.opcode == Opcode::DcpControl.wire() {
            let key = match self.controls.pop_front() {
                Some((opaque, key)) if opaque == reply.opaque => key,
                _ => return Err(refused),
            };
            if key == MAP_EPOCH_KEY && reply.status() == Some(Status::TemporaryFailure) {
                return Err(Disconnect::OtherEpoch);
            }
            // An earlier release knows no limit.
            return if is_done || key == COPY_RATE_KEY {
                Ok(ConsumerEvent::Nothing)
            } else {
                Err(Disconnect::ControlRefused {
                    key,
                    status: reply.status_code,
                })
            };
        }
        // CLOSE_STREAM and SEQNO_ACK may come too late for a stream that has just ended.
        let may_fail = [Opcode::DcpCloseStream, Opcode::DcpSeqnoAcknowledged];
        if is_done || may_fail.iter().any(|opcode| opcode.wire() == reply.opcode) {
            Ok(ConsumerEvent::Nothing)
        } else {
            Err(refused)
        }
    }

    fn on_stream_reply(&mut self, reply: &ReplyFrame<'_>) -> Result<ConsumerEvent, Disconnect> {
        let bad = |status| Disconnect::BadMessage {
            opcode: reply.opcode,
            status,
        };
        let asked = self.streams.iter_mut().find(|(_, stream)| {
            stream.opaque == reply.opaque && stream.state == ConsumerStreamState::Asked
        });
        let Some((&vb, stream)) = asked else {
            // The stream was closed in the meantime.
            return Ok(ConsumerEvent::Nothing);
        };
        match StreamReply::decode(reply).map_err(bad)? {
            StreamReply::Accepted(log) => {
                stream.state = ConsumerStreamState::Open;
                let from = stream.from;
                let entries = log.iter().map(|entry| (entry.vb_uuid, entry.seqno));
                let failover = FailoverTable::from_entries(entries.collect());
                let failover = failover.ok_or(bad(Status::Invalid))?;
                Ok(ConsumerEvent::Begins { vb, from, failover })
            }
            StreamReply::Rollback(to) => {
                self.streams.remove(&vb);
                Ok(ConsumerEvent::Rollback { vb, to })
            }
            StreamReply::Refused(status) => {
                self.streams.remove(&vb);
                Ok(ConsumerEvent::Refused { vb, status })
            }
        }
    }

    fn on_request(
        &mut self,
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> Result<ConsumerStep, Disconnect> {
        let bad = |status| Disconnect::BadMessage {
            opcode: request.opcode,
            status,
        };
        let DcpMessage { head, body } = DcpMessage::decode(request).map_err(bad)?;
        if body == DcpBody::Noop {
            let opcode = Opcode::DcpNoop.wire();
            Response::new(opcode, head.opaque, Status::Success).write(out);
            return Ok(ConsumerStep {
                event: ConsumerEvent::Nothing,
                bytes: 0,
            });
        }
        let bytes = request.frame_bytes();
        self.bytes += bytes as u64;
        let stream = self.streams.get_mut(&head.vb);
        let stream = stream.filter(|stream| {
            stream.opaque == head.opaque && stream.state != ConsumerStreamState::Asked
        });
        let Some(stream) = stream else {
            let event = ConsumerEvent::Nothing;
            return Ok(ConsumerStep { event, bytes });
        };
        let event = receive::event(head.vb, &body, self.collections).map_err(bad)?;
        match &event {
            ConsumerEvent::SetState { state, .. } => {
                let expected = stream.next;
                if expected != Some(*state) || stream.state == ConsumerStreamState::Taking {
                    let refused = expected.map_or(Status::NotSupported, |_| Status::Invalid);
                    let opcode = Opcode::DcpSetVbucketState.wire();
                    Response::new(opcode, head.opaque, refused).write(out);
                    let event = ConsumerEvent::Nothing;
                    return Ok(ConsumerStep { event, bytes });
                }
                stream.state = ConsumerStreamState::Taking;
                stream.next = (*state == VbState::Pending).then_some(VbState::Active);
            }
            ConsumerEvent::Ended { .. } => {
                self.streams.remove(&head.vb);
            }
            ConsumerEvent::Received { .. } => self.items += 1,
            _ => {}
        }
        Ok(ConsumerStep { event, bytes })
    }

    /// Notes that this end reads nothing for now, because it cannot process more: so the producer does not count as
    /// silent.
    pub fn not_reading(&mut self, now_ns: u64) {
        self.last_received_ns = now_ns;
    }

    /// Returns the time at which [`Consumer::on_time`] must be called, if nothing happens until then.
    #[must_use]
    pub fn next_deadline_ns(&self) -> u64 {
        let silent = self.last_received_ns + self.silence_ns;
        self.acks
            .deadline_ns()
            .map_or(silent, |deadline| deadline.min(silent))
    }

    /// Acknowledges bytes whose acknowledgement is due, and checks that the producer is alive. All received data must
    /// be read before, as it proves that the producer is alive.
    ///
    /// # Errors
    /// The producer is gone: the connection must be closed.
    pub fn on_time(&mut self, now_ns: u64, out: &mut Vec<u8>) -> Result<(), Disconnect> {
        if now_ns >= self.last_received_ns + self.silence_ns {
            return Err(Disconnect::Silent);
        }
        if let Some(ack) = self.acks.on_time(now_ns) {
            send(0, VbId(0), DcpBody::BufferAck(ack), out);
        }
        Ok(())
    }

    /// Returns the figures of the connection.
    #[must_use]
    pub fn figures(&self) -> ConsumerFigures {
        ConsumerFigures {
            streams: self.streams.len(),
            items: self.items,
            bytes: self.bytes,
            unacknowledged: self.acks.pending(),
        }
    }
}

fn send(opaque: u32, vb: VbId, body: DcpBody<'_>, out: &mut Vec<u8>) {
    let head = DcpHeader {
        vb,
        opaque,
        stream: None,
    };
    DcpMessage { head, body }.encode(out);
}
