//! A producer and a consumer with a pipe between them.

use crate::script::Script;
use kedge_protocol::binary::commands::dcp::{
    DcpBody, DcpMessage, DcpOpen, OpenFlags, ParsePeer, PeerFrame, parse_peer,
};
use kedge_protocol::binary::{Feature, Features, Opcode, Response};
use kedge_replication::{
    Consumer, ConsumerConfig, ConsumerEvent, Disconnect, FillResult, Producer, ProducerAction,
    ProducerConfig, StreamFlags, StreamId, StreamRequest,
};
use kedge_types::{Seqno, Status, VbId, VbUuid};
use kedge_vbucket::{FailoverTable, NodeName, Received, ResumePoint};
use std::collections::BTreeMap;

pub(crate) const SECOND_NS: u64 = 1_000_000_000;
const MAX_BODY: usize = 1 << 20;

/// The bucket's answer to a request for a stream.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Open,
    Rollback(u64),
    Refuse(Status),
}

pub(crate) fn features() -> Features {
    Features::of(&[
        Feature::Xerror,
        Feature::Json,
        Feature::Snappy,
        Feature::Collections,
    ])
}

pub(crate) fn producer_config(features: Features) -> ProducerConfig {
    ProducerConfig {
        features,
        idle_timeout_ns: 360 * SECOND_NS,
        stuck_timeout_ns: 720 * SECOND_NS,
        map_epoch: Some(5),
    }
}

pub(crate) fn producer(flags: OpenFlags, features: Features) -> Producer {
    let open = DcpOpen {
        flags: OpenFlags::PRODUCER.union(flags),
        name: b"test",
        value: b"",
    };
    Producer::open(&open, &producer_config(features), 0).unwrap()
}

pub(crate) fn consumer_config() -> ConsumerConfig {
    ConsumerConfig {
        name: "replication:n_0->n_1:default".to_owned(),
        node: NodeName::new("n_1").unwrap(),
        buffer_bytes: 1 << 20,
        noop_interval_secs: 20,
        collections: true,
        map_epoch: None,
    }
}

pub(crate) fn resume(start: u64) -> ResumePoint {
    ResumePoint {
        start: Seqno(start),
        snap_start: Seqno(start),
        snap_end: Seqno(start),
        uuid: VbUuid(7),
    }
}

pub(crate) fn history() -> FailoverTable {
    let mut table = FailoverTable::new(VbUuid(7));
    table.begin(VbUuid(8), Seqno(100));
    table
}

/// Two ends, and what is on its way between them.
pub(crate) struct Pair {
    pub(crate) now_ns: u64,
    pub(crate) producer: Option<Producer>,
    pub(crate) consumer: Consumer,
    pub(crate) script: Script,
    pub(crate) answers: BTreeMap<VbId, Answer>,
    pub(crate) requests: Vec<StreamRequest>,
    pub(crate) todos: Vec<ProducerAction>,
    pub(crate) to_producer: Vec<u8>,
    pub(crate) to_consumer: Vec<u8>,
    /// The events of the consumer, as text.
    pub(crate) events: Vec<String>,
    /// True if the consumer consumes received data at once.
    pub(crate) consumes: bool,
    pub(crate) unconsumed: usize,
    pub(crate) room: usize,
    pub(crate) filled: FillResult,
    /// The sizes of the pieces in which bytes arrive.
    pub(crate) cuts: Vec<usize>,
    next_cut: usize,
    see: Option<See>,
}

/// Sees events, and answers nothing.
type See = Box<dyn FnMut(&ConsumerEvent)>;

impl Pair {
    pub(crate) fn new(script: Script) -> Self {
        Self::with(script, &consumer_config())
    }

    pub(crate) fn with(script: Script, config: &ConsumerConfig) -> Self {
        let mut to_producer = Vec::new();
        let consumer = Consumer::open(config, 0, &mut to_producer);
        Self {
            now_ns: 0,
            producer: None,
            consumer,
            script,
            answers: BTreeMap::new(),
            requests: Vec::new(),
            todos: Vec::new(),
            to_producer,
            to_consumer: Vec::new(),
            events: Vec::new(),
            consumes: true,
            unconsumed: 0,
            room: 1 << 20,
            filled: FillResult::Idle,
            cuts: vec![usize::MAX],
            next_cut: 0,
            see: None,
        }
    }

    pub(crate) fn add_stream(&mut self, vb: u16, start: u64) {
        let from = resume(start);
        let flags = StreamFlags::default();
        self.consumer
            .add_stream(VbId(vb), &from, flags, &mut self.to_producer);
    }

    pub(crate) fn producer(&mut self) -> &mut Producer {
        self.producer.as_mut().expect("DCP_OPEN was received")
    }

    /// Both ends work until nothing is on its way and the producer has nothing to send.
    pub(crate) fn run(&mut self) -> Result<(), Disconnect> {
        loop {
            let before = (self.to_producer.len(), self.to_consumer.len());
            let arrived = self.deliver_to_producer()?;
            if let Some(producer) = &mut self.producer {
                self.filled = producer.fill(
                    self.now_ns,
                    &mut self.script,
                    &mut self.to_consumer,
                    self.room,
                );
            }
            let arrived = self.deliver_to_consumer()? || arrived;
            if !arrived && before == (self.to_producer.len(), self.to_consumer.len()) {
                return Ok(());
            }
        }
    }

    /// Advances the clock of both ends.
    pub(crate) fn tick(&mut self, ns: u64) {
        self.now_ns += ns;
        let out = &mut self.to_producer;
        self.consumer.on_time(self.now_ns, out).unwrap();
        let producer = self.producer.as_mut().unwrap();
        producer
            .on_time(self.now_ns, &mut self.to_consumer)
            .unwrap();
    }

    fn cut(&mut self, len: usize) -> usize {
        let cut = self.cuts[self.next_cut % self.cuts.len()];
        self.next_cut += 1;
        cut.clamp(1, len.max(1))
    }

    fn deliver_to_producer(&mut self) -> Result<bool, Disconnect> {
        let sent = std::mem::take(&mut self.to_producer);
        let mut rest = Pieces::new(&sent);
        while rest.arrive(self.cut(sent.len())) {
            while let Some(frame) = rest.next_frame() {
                self.on_producer_frame(&frame)?;
            }
        }
        assert!(rest.is_done(), "frames are sent whole");
        Ok(!sent.is_empty())
    }

    fn on_producer_frame(&mut self, frame: &PeerFrame<'_>) -> Result<(), Disconnect> {
        let now = self.now_ns;
        let out = &mut self.to_consumer;
        let Some(producer) = &mut self.producer else {
            let PeerFrame::Request(request) = frame else {
                panic!("a connection begins with a request");
            };
            let DcpMessage { head, body } = DcpMessage::decode(request).unwrap();
            let DcpBody::Open(open) = body else {
                panic!("a connection begins with DCP_OPEN");
            };
            let config = producer_config(features());
            self.producer = Some(Producer::open(&open, &config, now).unwrap());
            Response::new(Opcode::DcpOpen.wire(), head.opaque, Status::Success).write(out);
            return Ok(());
        };
        let todo = match frame {
            PeerFrame::Request(request) => producer.on_request(now, request, out)?,
            PeerFrame::Reply(reply) => producer.on_reply(now, reply)?,
        };
        match &todo {
            ProducerAction::OpenStream(id, request) => {
                self.requests.push((**request).clone());
                let answer = self.answers.get(&id.vb).cloned();
                answer_stream(producer, now, *id, answer, out);
            }
            ProducerAction::FailoverLog { opaque, .. } => {
                producer
                    .failover_log(now, *opaque, Ok(&history()), out)
                    .unwrap();
            }
            _ => {}
        }
        if todo != ProducerAction::Nothing {
            self.todos.push(todo);
        }
        Ok(())
    }

    fn deliver_to_consumer(&mut self) -> Result<bool, Disconnect> {
        let sent = std::mem::take(&mut self.to_consumer);
        let mut rest = Pieces::new(&sent);
        while rest.arrive(self.cut(sent.len())) {
            while let Some(frame) = rest.next_frame() {
                let out = &mut self.to_producer;
                let step = self.consumer.on_frame(self.now_ns, &frame, out)?;
                if let Some(see) = &mut self.see {
                    see(&step.event);
                } else if let ConsumerEvent::SetState { vb, .. } = &step.event {
                    self.consumer.state_is_set(*vb, Status::Success, out);
                }
                if self.consumes {
                    self.consumer.consumed(self.now_ns, step.bytes, out);
                } else {
                    self.unconsumed += step.bytes;
                }
                if !matches!(step.event, ConsumerEvent::Nothing) {
                    self.events.push(told(&step.event));
                }
            }
        }
        assert!(rest.is_done(), "frames are sent whole");
        Ok(!sent.is_empty())
    }

    /// Runs, and shows what the consumer gives out.
    pub(crate) fn run_seeing(&mut self, see: impl FnMut(&ConsumerEvent) + 'static) {
        self.see = Some(Box::new(see));
        self.run().unwrap();
        self.see = None;
    }

    /// Runs, and what the consumer gave out meanwhile is this.
    #[track_caller]
    pub(crate) fn check(&mut self, expected: &[&str]) {
        self.run().unwrap();
        assert_eq!(std::mem::take(&mut self.events), expected);
    }
}

fn answer_stream(
    producer: &mut Producer,
    now: u64,
    id: StreamId,
    answer: Option<Answer>,
    out: &mut Vec<u8>,
) {
    match answer.unwrap_or(Answer::Open) {
        Answer::Open => assert!(producer.stream_opened(now, id, &history(), out)),
        Answer::Rollback(to) => producer.stream_rolls_back(now, id, Seqno(to), out),
        Answer::Refuse(status) => producer.stream_refused(now, id, status, b"", out).unwrap(),
    }
}

/// Bytes of which only a part has arrived.
struct Pieces<'a> {
    bytes: &'a [u8],
    arrived: usize,
    at: usize,
}

impl<'a> Pieces<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            arrived: 0,
            at: 0,
        }
    }

    fn arrive(&mut self, len: usize) -> bool {
        let more = self.arrived < self.bytes.len();
        self.arrived = self.bytes.len().min(self.arrived + len);
        more
    }

    fn next_frame(&mut self) -> Option<PeerFrame<'a>> {
        match parse_peer(&self.bytes[self.at..self.arrived], MAX_BODY) {
            ParsePeer::Frame { frame, consumed } => {
                self.at += consumed;
                Some(frame)
            }
            ParsePeer::Incomplete { .. } => None,
            ParsePeer::Fatal(error) => panic!("{error}"),
        }
    }

    fn is_done(&self) -> bool {
        self.at == self.bytes.len()
    }
}

/// An event as text: vBucket, what, and what of it matters.
pub(crate) fn told(event: &ConsumerEvent) -> String {
    match event {
        ConsumerEvent::Nothing => String::new(),
        ConsumerEvent::Begins { vb, failover, .. } => {
            format!("{vb} begins, {} branches", failover.entries().len())
        }
        ConsumerEvent::Rollback { vb, to } => format!("{vb} back to {to}"),
        ConsumerEvent::Refused { vb, status } => format!("{vb} refused {status:#x}"),
        ConsumerEvent::Snapshot { vb, snapshot } => {
            let kind = format!("{:?}", snapshot.kind).to_lowercase();
            format!("{vb} {kind} {}..{}", snapshot.start, snapshot.end)
        }
        ConsumerEvent::Received { vb, received } => format!("{vb} {}", change(received)),
        ConsumerEvent::SetState { vb, state } => format!("{vb} becomes {state:?}"),
        ConsumerEvent::Ended { vb, reason } => format!("{vb} ended {reason:?}"),
    }
}

fn change(received: &Received) -> String {
    let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
    match received {
        Received::Document(item) if item.is_deleted() => {
            format!("{} deletes {}", item.seqno(), text(item.key()))
        }
        Received::Document(item) => {
            let value = text(item.value());
            format!("{} sets {} {value}", item.seqno(), text(item.key()))
        }
        Received::Prepare(item) => {
            let value = text(item.value());
            format!("{} prepares {} {value}", item.seqno(), text(item.key()))
        }
        Received::Commit {
            key,
            prepared,
            seqno,
        } => format!("{seqno} commits {} {prepared}", text(key)),
        Received::Abort {
            key,
            prepared,
            seqno,
        } => format!("{seqno} aborts {} {prepared}", text(key)),
        Received::System { event, seqno } => format!("{:?} at {seqno}", event.kind),
        Received::Advance(seqno) => format!("{seqno} advances"),
    }
}
