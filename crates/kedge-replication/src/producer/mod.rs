//! The sending end of a DCP connection.
//!
//! Invariants:
//! * A stream that may have data is in the list of ready streams exactly once, and streams are read round-robin.
//! * Sent bytes are counted as the consumer counts them: whole frames of all messages of a stream.
//! * A consumer that states the epoch of its map gets streams only if the map of this node has the same.
//! * Nothing of a stream is sent while the consumer's reply to its last message is outstanding.

mod compose;
mod control;
mod format;
mod liveness;
mod requests;
mod stream;
mod system_event;
mod value;
mod window;

pub use stream::ProducerStreamFigures;

use crate::disconnect::Disconnect;
use crate::filter::Filter;
use crate::request::{StreamId, StreamRequest};
use crate::source::{Source, SourceState, StreamItem, Values};
use format::MessageFormat;
use kedge_protocol::binary::Features;
use kedge_protocol::binary::commands::dcp::{
    DcpBody, DcpHeader, DcpMessage, DcpOpen, EndReason, OpenFlags, StreamEnd,
};
use kedge_types::{Seqno, Status, VbId};
use kedge_vbucket::{NodeName, VbState};
use liveness::Liveness;
use std::collections::{BTreeMap, VecDeque};
use stream::{ProducerStream, SendResult};
use value::ValueEncoder;
use window::FlowControlWindow;

/// The largest number of items that are read of a stream before the next stream.
const READ_ITEMS_MAX: usize = 128;
/// The largest number of bytes that are read of a stream before the next stream.
const READ_BYTES_MAX: usize = 64 << 10;
/// The opaque of NOOPs, which no client uses for a stream.
const NOOP_OPAQUE: u32 = 10_000_000;

/// The configuration of a producer.
#[derive(Clone, Copy, Debug)]
pub struct ProducerConfig {
    /// The features that HELLO negotiated.
    pub features: Features,
    /// The longest time that a NOOP may remain without a reply, in nanoseconds.
    pub idle_timeout_ns: u64,
    /// The longest time that the consumer's buffer may be full without an acknowledgement, in nanoseconds.
    pub stuck_timeout_ns: u64,
    /// The epoch of the map that this node follows; `None` if it is in no cluster.
    pub map_epoch: Option<i64>,
}

/// The rejection of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestRejection {
    /// The status for the client.
    pub status: Status,
    /// The reason, for a person.
    pub reason: &'static str,
}

/// An action that a message requires of the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProducerAction {
    /// No action.
    Nothing,
    /// DcpOpen a stream, then report the result with [`Producer::stream_opened`], [`Producer::stream_rolls_back`] or
    /// [`Producer::stream_refused`].
    OpenStream(StreamId, Box<StreamRequest>),
    /// Close the stream at the source.
    CloseStream(StreamId),
    /// Look up the failover log of a vBucket, then call [`Producer::failover_log`].
    FailoverLog {
        /// The vBucket.
        vb: VbId,
        /// The opaque of the request.
        opaque: u32,
    },
    /// Record that the consumer, [`Producer::consumer_name`], has every prepare up to this seqno.
    Acknowledge {
        /// The vBucket.
        vb: VbId,
        /// The seqno.
        prepared: Seqno,
    },
    /// Limit the rate at which backfills for new copies read, in bytes per second; 0 is no limit.
    LimitCopies {
        /// The rate.
        bytes_per_sec: u64,
    },
    /// Record that the consumer's vBucket has the state of [`StreamItem::State`]. The stream goes on.
    TakeoverAnswered {
        /// The stream.
        stream: StreamId,
        /// The state.
        state: VbState,
    },
}

/// The reason why no more was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FillResult {
    /// No stream has data.
    Idle,
    /// The consumer's buffer is full; sending goes on after an acknowledgement.
    WindowFull,
    /// The output has no room; sending goes on when it has.
    NoRoom,
}

/// Figures of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProducerFigures {
    /// The number of open streams.
    pub streams: usize,
    /// The number of open streams that send from disk.
    pub backfilling: usize,
    /// The number of sent changes.
    pub items: u64,
    /// The number of bytes of all messages of streams.
    pub bytes: u64,
    /// The number of bytes that the consumer has not yet acknowledged.
    pub unacknowledged: u64,
    /// The size of the consumer's buffer in bytes; 0 without flow control.
    pub buffer_bytes: u32,
    /// True if NOOPs are sent.
    pub noop_enabled: bool,
}

#[derive(Debug)]
struct Opening {
    opaque: u32,
    filter: Filter,
    start: Seqno,
}

/// A DCP connection that sends the changes of vBuckets.
#[derive(Debug)]
pub struct Producer {
    name: Box<[u8]>,
    consumer_name: Option<NodeName>,
    features: Features,
    format: MessageFormat,
    has_stream_ids: bool,
    has_v7_statuses: bool,
    map_epoch: Option<i64>,
    /// True if the consumer follows a map of another epoch.
    is_fenced: bool,
    ends_closed_streams: bool,
    opening: BTreeMap<StreamId, Opening>,
    streams: BTreeMap<StreamId, ProducerStream>,
    ready: VecDeque<StreamId>,
    batch: Vec<StreamItem>,
    shaper: ValueEncoder,
    window: FlowControlWindow,
    liveness: Liveness,
    stuck_timeout_ns: u64,
    backfilling: usize,
    items: u64,
    bytes: u64,
}

impl Producer {
    /// Creates the producer of a connection for a DCP_OPEN request. The caller replies to the request.
    ///
    /// # Errors
    /// The rejection for the client.
    pub fn open(
        open: &DcpOpen<'_>,
        config: &ProducerConfig,
        now_ns: u64,
    ) -> Result<Self, RequestRejection> {
        const KNOWN: OpenFlags = OpenFlags::PRODUCER
            .union(OpenFlags::XATTRS)
            .union(OpenFlags::NO_VALUE)
            .union(OpenFlags::DELETE_TIMES)
            .union(OpenFlags::NO_VALUE_WITH_DATATYPE)
            .union(OpenFlags::DELETED_USER_XATTRS)
            .union(OpenFlags::SKIP_DELETES);
        let refuse = |status, reason| Err(RequestRejection { status, reason });
        let has = |flag| open.flags.contains(flag);
        if !KNOWN.contains(open.flags) {
            return refuse(Status::Invalid, "a flag has no meaning");
        }
        if !has(OpenFlags::PRODUCER) {
            return refuse(
                Status::NotSupported,
                "replicas fetch changes themselves: only producers are opened",
            );
        }
        if has(OpenFlags::NO_VALUE) && has(OpenFlags::NO_VALUE_WITH_DATATYPE) {
            return refuse(Status::Invalid, "two flags say which datatype is sent");
        }
        let Ok(consumer_name) = open.consumer_name() else {
            return refuse(Status::Invalid, "the value is malformed");
        };
        let mut producer = Self {
            name: open.name.into(),
            consumer_name: None,
            features: config.features,
            format: MessageFormat::new(open, config.features),
            has_stream_ids: false,
            has_v7_statuses: false,
            map_epoch: config.map_epoch,
            is_fenced: false,
            ends_closed_streams: false,
            opening: BTreeMap::new(),
            streams: BTreeMap::new(),
            ready: VecDeque::new(),
            batch: Vec::new(),
            shaper: ValueEncoder::default(),
            window: FlowControlWindow::default(),
            liveness: Liveness::new(config.idle_timeout_ns, now_ns),
            stuck_timeout_ns: config.stuck_timeout_ns,
            backfilling: 0,
            items: 0,
            bytes: 0,
        };
        if let Some(name) = consumer_name {
            producer.set_consumer_name(name.as_bytes())?;
        }
        Ok(producer)
    }

    /// Returns the name of the connection.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Returns the part of documents' values that is sent; a [`Source`] may leave the rest out.
    #[must_use]
    pub fn values(&self) -> Values {
        self.format.values()
    }

    /// Returns the consumer's name in the topology of vBuckets.
    #[must_use]
    pub fn consumer_name(&self) -> Option<&NodeName> {
        self.consumer_name.as_ref()
    }

    /// Marks the streams of a vBucket as ready, because the source may have data for them.
    pub fn ready(&mut self, vb: VbId) {
        if !self.has_stream_ids {
            return self.queue(StreamId { vb, sid: 0 });
        }
        let all = StreamId { vb, sid: 0 }..=StreamId { vb, sid: u16::MAX };
        let ids: Vec<StreamId> = self.streams.range(all).map(|(id, _)| *id).collect();
        ids.into_iter().for_each(|id| self.queue(id));
    }

    fn queue(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id)
            && !stream.queued
            && stream.waits_for.is_none()
        {
            stream.queued = true;
            self.ready.push_back(id);
        }
    }

    /// Returns whether [`Producer::fill`] would send anything if there is room.
    #[must_use]
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty() && !self.window.is_full()
    }

    /// Appends data of the streams to `out`, round-robin, until about `room` bytes are appended, the consumer's buffer
    /// is full, or no stream has data.
    pub fn fill(
        &mut self,
        now_ns: u64,
        source: &mut dyn Source,
        out: &mut Vec<u8>,
        room: usize,
    ) -> FillResult {
        let begin = out.len();
        let filled = loop {
            if self.ready.is_empty() {
                break FillResult::Idle;
            }
            if self.window.is_full() {
                self.window.note_full(now_ns);
                break FillResult::WindowFull;
            }
            if out.len() - begin >= room {
                break FillResult::NoRoom;
            }
            let Some(id) = self.ready.pop_front() else {
                break FillResult::Idle;
            };
            self.fill_from(id, source, out, begin.saturating_add(room));
        };
        if out.len() > begin {
            self.liveness.sent(now_ns);
        }
        filled
    }

    /// Sends data of one stream, as far as there is room, and puts the stream back into the list unless it has to wait.
    fn fill_from(
        &mut self,
        id: StreamId,
        source: &mut dyn Source,
        out: &mut Vec<u8>,
        out_len_max: usize,
    ) {
        // It may have been closed in the meantime.
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        stream.queued = false;
        let mut batch = std::mem::take(&mut self.batch);
        let has_ended = matches!(stream.after, SourceState::Ended(_));
        if stream.rest.is_empty() && !has_ended {
            stream.after = source.read(id, READ_ITEMS_MAX, READ_BYTES_MAX, &mut batch);
        } else {
            batch.extend(std::mem::take(&mut stream.rest));
        }
        let was_backfilling = stream.is_backfilling();
        let mut steps = batch.drain(..);
        let mut ended = None;
        while ended.is_none()
            && stream.waits_for.is_none()
            && !self.window.is_full()
            && out.len() < out_len_max
        {
            let Some(step) = steps.next() else {
                break;
            };
            let (before, items) = (out.len(), stream.figures.items);
            let sent = stream.send(&step, &self.format, &mut self.shaper, out);
            let bytes = out.len() - before;
            self.window.sent(bytes);
            self.items += stream.figures.items - items;
            self.bytes += bytes as u64;
            stream.figures.bytes += bytes as u64;
            match sent {
                Ok(SendResult::Next | SendResult::Waits) => {}
                Ok(SendResult::Last) => ended = Some(EndReason::FilterEmpty),
                Err(_) => ended = Some(EndReason::BackfillFailed),
            }
        }
        if ended.is_none() {
            stream.rest.extend(steps);
        } else {
            drop(steps);
        }
        self.backfilling += usize::from(stream.is_backfilling());
        self.backfilling -= usize::from(was_backfilling);
        self.batch = batch;
        if ended.is_some() {
            source.close(id);
        } else if let SourceState::Ended(reason) = stream.after {
            let is_sent = stream.rest.is_empty() && stream.waits_for.is_none();
            ended = (is_sent && !self.window.is_full()).then_some(reason);
        }
        if let Some(reason) = ended {
            self.end_stream(id, reason, out);
        } else if !stream.rest.is_empty() || stream.after != SourceState::Idle {
            self.queue(id);
        }
    }

    fn remove_stream(&mut self, id: StreamId) -> Option<ProducerStream> {
        let stream = self.streams.remove(&id)?;
        self.backfilling -= usize::from(stream.is_backfilling());
        Some(stream)
    }

    fn end_stream(&mut self, id: StreamId, reason: EndReason, out: &mut Vec<u8>) {
        if let Some(stream) = self.remove_stream(id) {
            let before = out.len();
            StreamEnd { reason }.encode(&stream.head, out);
            self.window.sent(out.len() - before);
            self.bytes += (out.len() - before) as u64;
        }
    }

    /// Returns the time at which [`Producer::on_time`] must be called, if nothing happens until then.
    #[must_use]
    pub fn next_deadline_ns(&self) -> Option<u64> {
        let stuck = self.window.full_since_ns();
        let stuck = stuck.map(|since| since + self.stuck_timeout_ns);
        match (stuck, self.liveness.deadline_ns()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Checks that the consumer is alive, and sends a NOOP if one is due.
    ///
    /// # Errors
    /// The consumer is gone: the connection must be closed.
    pub fn on_time(&mut self, now_ns: u64, out: &mut Vec<u8>) -> Result<(), Disconnect> {
        let full_since = self.window.full_since_ns();
        if full_since.is_some_and(|since| now_ns >= since + self.stuck_timeout_ns) {
            return Err(Disconnect::Stuck);
        }
        if self.liveness.on_time(now_ns)? {
            let head = DcpHeader {
                opaque: NOOP_OPAQUE,
                ..DcpHeader::default()
            };
            DcpMessage {
                head,
                body: DcpBody::Noop,
            }
            .encode(out);
            self.liveness.sent(now_ns);
        }
        Ok(())
    }

    /// Returns the figures of the connection.
    #[must_use]
    pub fn figures(&self) -> ProducerFigures {
        ProducerFigures {
            streams: self.streams.len(),
            backfilling: self.backfilling,
            items: self.items,
            bytes: self.bytes,
            unacknowledged: self.window.unacknowledged,
            buffer_bytes: self.window.size,
            noop_enabled: self.liveness.noop_enabled,
        }
    }

    /// Returns the figures of each stream.
    pub fn streams(&self) -> impl Iterator<Item = (StreamId, ProducerStreamFigures)> {
        self.streams
            .iter()
            .map(|(id, stream)| (*id, stream.figures))
    }
}
