//! The end of a DCP connection that receives changes.
//!
//! Invariants:
//! * What comes for a stream that is not there, or not any more, is counted and forgotten: the producer sent it before it
//!   knew.
//! * Changes are given out in the order in which they came. Whether that is the order of the vBucket, and whether they
//!   fit their snapshots, the vBucket checks.
//! * A takeover is one that was asked for: the vBucket becomes pending first, then active, and the producer hears of each
//!   once. Anything else is refused.
//! * Every byte that the producer counts is acknowledged once, when it was said to be consumed.

mod acks;
mod receive;

use crate::disconnect::Disconnect;
use acks::Acks;
use kedge_protocol::binary::commands::dcp::{
    Body, Control, EndReason, Head, Message, Open, OpenFlags, PeerFrame, SeqnoAck, StreamFlags,
    StreamReply, StreamRequest,
};
use kedge_protocol::binary::{Opcode, ReplyFrame, Request, Response};
use kedge_types::limits::{DCP_NAME_BYTES_MAX, DCP_NOOP_INTERVAL_SECS_MAX};
use kedge_types::{Seqno, Status, VbId};
use kedge_vbucket::{FailoverTable, NodeName, Received, Resume, Snapshot, VbState};
use std::collections::{BTreeMap, VecDeque};

const SECOND_NS: u64 = 1_000_000_000;
/// The other end is gone when it is silent for so many intervals of its NOOPs.
const SILENT_INTERVALS: u64 = 2;

/// What a consumer is made with.
#[derive(Clone, Debug)]
pub struct ConsumerConfig {
    /// Name of the connection, not empty: the producer closes an older one of the same name. If it is longer than
    /// [`DCP_NAME_BYTES_MAX`], its end counts.
    pub name: String,
    /// What this node is called in the topology of vBuckets.
    pub node: NodeName,
    /// Bytes that the producer may send before they are acknowledged.
    pub buffer_bytes: u32,
    /// Seconds of quiet after which the producer sends a NOOP, 1 to [`DCP_NOOP_INTERVAL_SECS_MAX`].
    pub noop_interval_secs: u32,
    /// Whether HELLO negotiated Collections, so that keys have their prefix.
    pub collections: bool,
}

/// What a frame means.
#[derive(Clone, Debug)]
pub enum Event {
    /// Nothing to do.
    Nothing,
    /// A stream that was asked for begins, with the history of the producer's vBucket.
    Begins {
        /// The vBucket.
        vb: VbId,
        /// Where it stood when it was asked for.
        from: Resume,
        /// The history.
        failover: FailoverTable,
    },
    /// The vBucket has to go back to a seqno; then the stream may be asked for again.
    Rollback {
        /// The vBucket.
        vb: VbId,
        /// The seqno.
        to: Seqno,
    },
    /// There is no stream. The producer may be the wrong node, or not be ready.
    Refused {
        /// The vBucket.
        vb: VbId,
        /// The status, which need not be a known one.
        status: u16,
    },
    /// A snapshot begins.
    Snapshot {
        /// The vBucket.
        vb: VbId,
        /// The snapshot.
        snapshot: Snapshot,
    },
    /// A change.
    Received {
        /// The vBucket.
        vb: VbId,
        /// The change.
        received: Received,
    },
    /// The vBucket becomes this in a takeover; then [`Consumer::state_is_set`] is to be called.
    SetState {
        /// The vBucket.
        vb: VbId,
        /// The state.
        state: VbState,
    },
    /// Nothing more comes in this stream.
    Ended {
        /// The vBucket.
        vb: VbId,
        /// Why.
        reason: EndReason,
    },
}

/// A frame was read.
#[derive(Clone, Debug)]
pub struct Step {
    /// What it means.
    pub event: Event,
    /// Bytes to give to [`Consumer::consumed`] when that is done.
    pub bytes: usize,
}

/// What a connection has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConsumerFigures {
    /// Streams that were asked for or are open.
    pub streams: usize,
    /// Changes that came.
    pub items: u64,
    /// Bytes of all that streams consist of.
    pub bytes: u64,
    /// Bytes that are consumed but not acknowledged yet.
    pub unacknowledged: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamState {
    Asked,
    Open,
    /// The producer waits for the answer to a SET_VBUCKET_STATE.
    Taking,
}

#[derive(Clone, Copy, Debug)]
struct Stream {
    opaque: u32,
    /// Where it goes on.
    from: Resume,
    state: StreamState,
    /// What the vBucket is to become next in the takeover that was asked for.
    next: Option<VbState>,
}

/// A DCP connection that receives the changes of vBuckets.
#[derive(Debug)]
pub struct Consumer {
    collections: bool,
    next_opaque: u32,
    /// What was set, in the order of the answers to come.
    controls: VecDeque<(u32, &'static str)>,
    is_open: bool,
    streams: BTreeMap<VbId, Stream>,
    acks: Acks,
    silence_ns: u64,
    last_received_ns: u64,
    items: u64,
    bytes: u64,
}

impl Consumer {
    /// Opens a connection whose other end has logged in and has selected the bucket: appends DCP_OPEN and what is to be
    /// set. Streams may be asked for at once; no answer has to be waited for.
    ///
    /// # Panics
    /// When the interval is not as [`ConsumerConfig`] says.
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
            acks: Acks::new(config.buffer_bytes),
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
        let open = Open {
            flags,
            name: &name[name.len().saturating_sub(DCP_NAME_BYTES_MAX)..],
            value: b"",
        };
        let opaque = consumer.take_opaque();
        send(opaque, VbId(0), Body::Open(open), out);
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
        consumer
    }

    fn control(&mut self, key: &'static str, value: &str, out: &mut Vec<u8>) {
        let opaque = self.take_opaque();
        self.controls.push_back((opaque, key));
        let control = Control {
            key: key.as_bytes(),
            value: value.as_bytes(),
        };
        send(opaque, VbId(0), Body::Control(control), out);
    }

    fn take_opaque(&mut self) -> u32 {
        let opaque = self.next_opaque;
        // 0 is that of messages that belong to nothing.
        self.next_opaque = self.next_opaque.checked_add(1).unwrap_or(1);
        opaque
    }

    /// Whether the producer has accepted DCP_OPEN.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Asks for a stream of a vBucket from where it stands. One that is there is forgotten; close it first.
    pub fn add_stream(&mut self, vb: VbId, from: &Resume, flags: StreamFlags, out: &mut Vec<u8>) {
        let opaque = self.take_opaque();
        let stream = Stream {
            opaque,
            from: *from,
            state: StreamState::Asked,
            next: flags
                .contains(StreamFlags::TAKEOVER)
                .then_some(VbState::Pending),
        };
        self.streams.insert(vb, stream);
        let request = StreamRequest {
            flags,
            start: from.start,
            end: StreamRequest::NO_END,
            vb_uuid: from.uuid,
            snap_start: from.snap_start,
            snap_end: from.snap_end,
            filter: b"",
        };
        send(opaque, vb, Body::StreamRequest(request), out);
    }

    /// Gives a stream up: nothing more of it is given out. `false`: there is none.
    pub fn close_stream(&mut self, vb: VbId, out: &mut Vec<u8>) -> bool {
        let is_there = self.streams.remove(&vb).is_some();
        if is_there {
            let opaque = self.take_opaque();
            send(opaque, vb, Body::CloseStream, out);
        }
        is_there
    }

    /// Whether a stream of the vBucket was asked for or is open.
    #[must_use]
    pub fn has_stream(&self, vb: VbId) -> bool {
        self.streams.contains_key(&vb)
    }

    /// Tells the producer that this node has every prepare of the vBucket up to a seqno. Without an open stream, nothing
    /// is told: the acknowledgement is to be repeated when there is one.
    pub fn acknowledge(&mut self, vb: VbId, prepared: Seqno, out: &mut Vec<u8>) {
        let stream = self.streams.get(&vb);
        if let Some(stream) = stream.filter(|stream| stream.state != StreamState::Asked) {
            let ack = SeqnoAck { prepared };
            send(stream.opaque, vb, Body::SeqnoAck(ack), out);
        }
    }

    /// What [`Step::bytes`] said is worked off, so the producer may send as much more.
    pub fn consumed(&mut self, now_ns: u64, bytes: usize, out: &mut Vec<u8>) {
        if let Some(ack) = self.acks.consumed(now_ns, bytes) {
            send(0, VbId(0), Body::BufferAck(ack), out);
        }
    }

    /// Answers [`Event::SetState`]; when it did not succeed the producer ends the connection.
    pub fn state_is_set(&mut self, vb: VbId, status: Status, out: &mut Vec<u8>) {
        let stream = self.streams.get_mut(&vb);
        if let Some(stream) = stream.filter(|stream| stream.state == StreamState::Taking) {
            stream.state = StreamState::Open;
            let opcode = Opcode::DcpSetVbucketState.wire();
            Response::new(opcode, stream.opaque, status).write(out);
        }
    }

    /// A frame came. What can be answered at once is appended to `out`.
    ///
    /// # Errors
    /// The connection has to be closed.
    pub fn on_frame(
        &mut self,
        now_ns: u64,
        frame: &PeerFrame<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Step, Disconnect> {
        self.last_received_ns = now_ns;
        match frame {
            PeerFrame::Request(request) => self.on_request(request, out),
            PeerFrame::Reply(reply) => self.on_reply(reply).map(|event| Step { event, bytes: 0 }),
        }
    }

    fn on_reply(&mut self, reply: &ReplyFrame<'_>) -> Result<Event, Disconnect> {
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
                Ok(Event::Nothing)
            } else {
                Err(refused)
            };
        }
        if reply.opcode == Opcode::DcpControl.wire() {
            let key = match self.controls.pop_front() {
                Some((opaque, key)) if opaque == reply.opaque => key,
                _ => return Err(refused),
            };
            return if is_done {
                Ok(Event::Nothing)
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
            Ok(Event::Nothing)
        } else {
            Err(refused)
        }
    }

    fn on_stream_reply(&mut self, reply: &ReplyFrame<'_>) -> Result<Event, Disconnect> {
        let bad = |status| Disconnect::BadMessage {
            opcode: reply.opcode,
            status,
        };
        let asked = self.streams.iter_mut().find(|(_, stream)| {
            stream.opaque == reply.opaque && stream.state == StreamState::Asked
        });
        let Some((&vb, stream)) = asked else {
            // It was closed since.
            return Ok(Event::Nothing);
        };
        match StreamReply::decode(reply).map_err(bad)? {
            StreamReply::Accepted(log) => {
                stream.state = StreamState::Open;
                let from = stream.from;
                let entries = log.iter().map(|entry| (entry.vb_uuid, entry.seqno));
                let failover = FailoverTable::from_entries(entries.collect());
                let failover = failover.ok_or(bad(Status::Invalid))?;
                Ok(Event::Begins { vb, from, failover })
            }
            StreamReply::Rollback(to) => {
                self.streams.remove(&vb);
                Ok(Event::Rollback { vb, to })
            }
            StreamReply::Refused(status) => {
                self.streams.remove(&vb);
                Ok(Event::Refused { vb, status })
            }
        }
    }

    fn on_request(&mut self, request: &Request<'_>, out: &mut Vec<u8>) -> Result<Step, Disconnect> {
        let bad = |status| Disconnect::BadMessage {
            opcode: request.opcode,
            status,
        };
        let Message { head, body } = Message::decode(request).map_err(bad)?;
        if body == Body::Noop {
            let opcode = Opcode::DcpNoop.wire();
            Response::new(opcode, head.opaque, Status::Success).write(out);
            return Ok(Step {
                event: Event::Nothing,
                bytes: 0,
            });
        }
        let bytes = request.frame_bytes();
        self.bytes += bytes as u64;
        let stream = self.streams.get_mut(&head.vb);
        let stream = stream
            .filter(|stream| stream.opaque == head.opaque && stream.state != StreamState::Asked);
        let Some(stream) = stream else {
            let event = Event::Nothing;
            return Ok(Step { event, bytes });
        };
        let event = receive::event(head.vb, &body, self.collections).map_err(bad)?;
        match &event {
            Event::SetState { state, .. } => {
                let expected = stream.next;
                if expected != Some(*state) || stream.state == StreamState::Taking {
                    let refused = expected.map_or(Status::NotSupported, |_| Status::Invalid);
                    let opcode = Opcode::DcpSetVbucketState.wire();
                    Response::new(opcode, head.opaque, refused).write(out);
                    let event = Event::Nothing;
                    return Ok(Step { event, bytes });
                }
                stream.state = StreamState::Taking;
                stream.next = (*state == VbState::Pending).then_some(VbState::Active);
            }
            Event::Ended { .. } => {
                self.streams.remove(&head.vb);
            }
            Event::Received { .. } => self.items += 1,
            _ => {}
        }
        Ok(Step { event, bytes })
    }

    /// This end reads nothing for now, as it cannot work off what came: so the producer is not silent.
    pub fn not_reading(&mut self, now_ns: u64) {
        self.last_received_ns = now_ns;
    }

    /// When [`Consumer::on_time`] is to be called, if nothing happens until then.
    #[must_use]
    pub fn next_deadline_ns(&self) -> u64 {
        let silent = self.last_received_ns + self.silence_ns;
        self.acks
            .deadline_ns()
            .map_or(silent, |deadline| deadline.min(silent))
    }

    /// Time has passed: acknowledges what has waited long enough for more. Everything that came has to be read before, as
    /// it says that the producer is there.
    ///
    /// # Errors
    /// The producer is gone: the connection has to be closed.
    pub fn on_time(&mut self, now_ns: u64, out: &mut Vec<u8>) -> Result<(), Disconnect> {
        if now_ns >= self.last_received_ns + self.silence_ns {
            return Err(Disconnect::Silent);
        }
        if let Some(ack) = self.acks.on_time(now_ns) {
            send(0, VbId(0), Body::BufferAck(ack), out);
        }
        Ok(())
    }

    /// What the connection has done.
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

fn send(opaque: u32, vb: VbId, body: Body<'_>, out: &mut Vec<u8>) {
    let head = Head {
        vb,
        opaque,
        stream: None,
    };
    Message { head, body }.encode(out);
}
