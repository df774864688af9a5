//! The end of a DCP connection that sends changes.
//!
//! Invariants:
//! * A stream that may have something stands in the list of those that are ready exactly once, and streams are read in
//!   turn.
//! * What is sent counts as the consumer counts it: whole frames of everything that a stream consists of.
//! * Nothing of a stream is sent while the consumer has to answer its last message.

mod compose;
mod control;
mod format;
mod liveness;
mod requests;
mod stream;
mod system_event;
mod value;
mod window;

pub use stream::StreamFigures;

use crate::disconnect::Disconnect;
use crate::filter::Filter;
use crate::request::{StreamId, StreamRequest};
use crate::source::{Source, SourceState, StreamItem, Values};
use format::Format;
use kedge_protocol::binary::Features;
use kedge_protocol::binary::commands::dcp::{
    Body, EndReason, Head, Message, Open, OpenFlags, StreamEnd,
};
use kedge_types::{Seqno, Status, VbId};
use kedge_vbucket::{NodeName, VbState};
use liveness::Liveness;
use std::collections::{BTreeMap, VecDeque};
use stream::{Sent, Stream};
use value::Shaper;
use window::Window;

/// Most steps read of a stream before it is the next one's turn.
const READ_ITEMS_MAX: usize = 128;
/// Most bytes of items read of a stream before it is the next one's turn.
const READ_BYTES_MAX: usize = 64 << 10;
/// Opaque of NOOPs, which no client uses for a stream.
const NOOP_OPAQUE: u32 = 10_000_000;

/// What a producer is made with.
#[derive(Clone, Copy, Debug)]
pub struct ProducerConfig {
    /// What HELLO negotiated.
    pub features: Features,
    /// How long a NOOP may stay without an answer, in nanoseconds.
    pub idle_timeout_ns: u64,
    /// How long the consumer's buffer may be full without an acknowledgement, in nanoseconds.
    pub stuck_timeout_ns: u64,
}

/// A request that is not done, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What the client is told.
    pub status: Status,
    /// The same for a person.
    pub reason: &'static str,
}

/// What has to be done for a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Todo {
    /// Nothing more.
    Nothing,
    /// Open a stream, then say what came of it: [`Producer::stream_opened`], [`Producer::stream_rolls_back`] or
    /// [`Producer::stream_refused`].
    OpenStream(StreamId, Box<StreamRequest>),
    /// The source does not need the stream any more.
    CloseStream(StreamId),
    /// Look up the failover log of a vBucket, then call [`Producer::failover_log`].
    FailoverLog {
        /// The vBucket.
        vb: VbId,
        /// Of the request.
        opaque: u32,
    },
    /// The consumer, [`Producer::consumer_name`], has every prepare up to here.
    Acknowledge {
        /// The vBucket.
        vb: VbId,
        /// The seqno.
        prepared: Seqno,
    },
    /// The consumer's vBucket is now what [`StreamItem::State`] said. The stream goes on.
    TakeoverAnswered {
        /// The stream.
        stream: StreamId,
        /// The state.
        state: VbState,
    },
}

/// Why nothing more was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filled {
    /// No stream has anything.
    Idle,
    /// The consumer's buffer is full: it goes on when it acknowledges.
    WindowFull,
    /// The output has no room: it goes on when it has.
    NoRoom,
}

/// What a connection has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProducerFigures {
    /// Streams that are open.
    pub streams: usize,
    /// Of these, streams that send what is on the disk.
    pub backfilling: usize,
    /// Changes that were sent.
    pub items: u64,
    /// Bytes of all that streams consist of.
    pub bytes: u64,
    /// Bytes that the consumer has yet to acknowledge.
    pub unacknowledged: u64,
    /// The consumer's buffer, in bytes; 0: no flow control.
    pub buffer_bytes: u32,
    /// Whether NOOPs are sent.
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
    format: Format,
    has_stream_ids: bool,
    has_v7_statuses: bool,
    ends_closed_streams: bool,
    opening: BTreeMap<StreamId, Opening>,
    streams: BTreeMap<StreamId, Stream>,
    ready: VecDeque<StreamId>,
    batch: Vec<StreamItem>,
    shaper: Shaper,
    window: Window,
    liveness: Liveness,
    stuck_timeout_ns: u64,
    backfilling: usize,
    items: u64,
    bytes: u64,
}

impl Producer {
    /// What becomes of a connection that DCP_OPEN opens. Whoever calls this answers the request.
    ///
    /// # Errors
    /// What the client is told.
    pub fn open(open: &Open<'_>, config: &ProducerConfig, now_ns: u64) -> Result<Self, Refusal> {
        const KNOWN: OpenFlags = OpenFlags::PRODUCER
            .union(OpenFlags::XATTRS)
            .union(OpenFlags::NO_VALUE)
            .union(OpenFlags::DELETE_TIMES)
            .union(OpenFlags::NO_VALUE_WITH_DATATYPE)
            .union(OpenFlags::DELETED_USER_XATTRS)
            .union(OpenFlags::SKIP_DELETES);
        let refuse = |status, reason| Err(Refusal { status, reason });
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
            format: Format::new(open, config.features),
            has_stream_ids: false,
            has_v7_statuses: false,
            ends_closed_streams: false,
            opening: BTreeMap::new(),
            streams: BTreeMap::new(),
            ready: VecDeque::new(),
            batch: Vec::new(),
            shaper: Shaper::default(),
            window: Window::default(),
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

    /// The connection's name.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// What of documents' values is sent; a [`Source`] may leave others out.
    #[must_use]
    pub fn values(&self) -> Values {
        self.format.values()
    }

    /// What the consumer is called in the topology of vBuckets.
    #[must_use]
    pub fn consumer_name(&self) -> Option<&NodeName> {
        self.consumer_name.as_ref()
    }

    /// The source may have something for the streams of a vBucket.
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

    /// Whether [`Producer::fill`] would send something if there is room.
    #[must_use]
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty() && !self.window.is_full()
    }

    /// Appends what streams have to `out`, in turn, until about `room` bytes are appended, the consumer's buffer is
    /// full, or no stream has anything.
    pub fn fill(
        &mut self,
        now_ns: u64,
        source: &mut dyn Source,
        out: &mut Vec<u8>,
        room: usize,
    ) -> Filled {
        let begin = out.len();
        let filled = loop {
            if self.ready.is_empty() {
                break Filled::Idle;
            }
            if self.window.is_full() {
                self.window.note_full(now_ns);
                break Filled::WindowFull;
            }
            if out.len() - begin >= room {
                break Filled::NoRoom;
            }
            let Some(id) = self.ready.pop_front() else {
                break Filled::Idle;
            };
            self.fill_from(id, source, out, begin.saturating_add(room));
        };
        if out.len() > begin {
            self.liveness.sent(now_ns);
        }
        filled
    }

    /// Sends what one stream has, as far as there is room, and puts it back in the list unless it has to wait.
    fn fill_from(
        &mut self,
        id: StreamId,
        source: &mut dyn Source,
        out: &mut Vec<u8>,
        out_len_max: usize,
    ) {
        // It may have been closed since.
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
                Ok(Sent::Next | Sent::Waits) => {}
                Ok(Sent::Last) => ended = Some(EndReason::FilterEmpty),
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

    fn remove_stream(&mut self, id: StreamId) -> Option<Stream> {
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

    /// When [`Producer::on_time`] is to be called, if nothing happens until then.
    #[must_use]
    pub fn next_deadline_ns(&self) -> Option<u64> {
        let stuck = self.window.full_since_ns();
        let stuck = stuck.map(|since| since + self.stuck_timeout_ns);
        match (stuck, self.liveness.deadline_ns()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Time has passed: asks whether the consumer is there.
    ///
    /// # Errors
    /// It is not: the connection has to be closed.
    pub fn on_time(&mut self, now_ns: u64, out: &mut Vec<u8>) -> Result<(), Disconnect> {
        let full_since = self.window.full_since_ns();
        if full_since.is_some_and(|since| now_ns >= since + self.stuck_timeout_ns) {
            return Err(Disconnect::Stuck);
        }
        if self.liveness.on_time(now_ns)? {
            let head = Head {
                opaque: NOOP_OPAQUE,
                ..Head::default()
            };
            Message {
                head,
                body: Body::Noop,
            }
            .encode(out);
            self.liveness.sent(now_ns);
        }
        Ok(())
    }

    /// What the connection has done.
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

    /// What each stream has done.
    pub fn streams(&self) -> impl Iterator<Item = (StreamId, StreamFigures)> {
        self.streams
            .iter()
            .map(|(id, stream)| (*id, stream.figures))
    }
}
