//! An active vBucket and a replica of it, with a DCP connection between them.
//!
//! Documents are written, deleted and expire on the active, at any level of durability; either log, the connection and the
//! acknowledgements go on whenever the test lets them. When all is quiet, both vBuckets are the same, and every SyncWrite
//! was committed.

use crate::pair::{consumer_config, producer_config};
use kedge_protocol::binary::commands::dcp::{
    DcpBody, DcpMessage, ParsePeer, PeerFrame, parse_peer,
};
use kedge_protocol::binary::{Feature, Features, Opcode, Response};
use kedge_replication::{
    Consumer, ConsumerConfig, ConsumerEvent, Producer, ProducerAction, Source, SourceState,
    StreamFlags, StreamId, StreamItem,
};
use kedge_types::{
    Cas, CollectionId, Datatype, DocKey, Durability, DurabilityLevel, Expiry, Now, Seqno, Status,
    VbId, VbUuid,
};
use kedge_vbucket::{
    Change, CompletedCommand, Completion, Cookie, CursorOpening, DcpSnapshot, Item, ItemMeta,
    MinRatio, NewValue, NodeName, PersistenceMode, RandomState, SnapshotKind, StateChange,
    StepWrite, StoreMode, StreamCursor, Topology, VBucket, ValueCompressor, VbSetup, VbState,
};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;

const VB: VbId = VbId(7);

fn vbucket(change: StateChange) -> VBucket {
    let mut vb = VBucket::new(VbSetup {
        id: VB,
        uuid: VbUuid(0xabc),
        shards: 4,
        hasher: RandomState::default(),
        persistence: PersistenceMode::LogThenFile,
        topology: None,
    });
    vb.set_state(change);
    vb
}

/// The changes of the active, each batch a snapshot.
struct Queue<'v> {
    active: &'v mut VBucket,
    cursor: StreamCursor,
}

impl Source for Queue<'_> {
    fn read(
        &mut self,
        _stream: StreamId,
        max_items: usize,
        max_bytes: usize,
        out: &mut Vec<StreamItem>,
    ) -> SourceState {
        let mut changes = Vec::new();
        let read =
            self.active
                .changes_mut()
                .read_cursor(self.cursor, max_items, max_bytes, &mut changes);
        read.expect("nobody drops the cursor");
        changes.retain(|change| change.seqno().is_some());
        let (Some(first), Some(last)) = (changes.first(), changes.last()) else {
            return SourceState::Idle;
        };
        let ends = [first, last].map(|change| change.seqno().unwrap());
        let visible =
            |change: &&Change| !matches!(change, Change::Prepare(_) | Change::Abort { .. });
        let visible = changes.iter().rfind(visible).and_then(Change::seqno);
        out.push(StreamItem::Marker(DcpSnapshot {
            max_visible: Some(visible.unwrap_or_default()),
            ..DcpSnapshot::new(SnapshotKind::Memory, ends[0], ends[1])
        }));
        out.extend(changes.into_iter().map(StreamItem::Change));
        SourceState::More
    }

    fn close(&mut self, _stream: StreamId) {
        panic!("everything can be sent");
    }
}

struct Nodes {
    active: VBucket,
    replica: VBucket,
    cursor: StreamCursor,
    producer: Producer,
    consumer: Consumer,
    to_producer: Vec<u8>,
    to_consumer: Vec<u8>,
    now: Now,
    committed: usize,
    parked: usize,
}

impl Nodes {
    fn new(features: &[Feature], buffer_bytes: u32) -> Self {
        let name = |name: &str| NodeName::new(name);
        let topology = Topology::new(vec![vec![name("n_0"), name("n_1")]]).unwrap();
        let mut active = vbucket(StateChange {
            topology: Some(topology),
            ..StateChange::to(VbState::Active, VbUuid(0xabc))
        });
        let replica = vbucket(StateChange::to(VbState::Replica, VbUuid(0xdef)));
        let CursorOpening::InMemory(cursor) = active.open_cursor(Seqno(0)) else {
            panic!("there is nothing on disk");
        };
        let features = Features::of(features);
        let mut to_producer = Vec::new();
        let config = ConsumerConfig {
            buffer_bytes,
            collections: features.contains(Feature::Collections),
            ..consumer_config()
        };
        let mut consumer = Consumer::open(&config, 0, &mut to_producer);
        let from = replica.history().resume_point();
        consumer.add_stream(VB, &from, StreamFlags::ACTIVE_ONLY, &mut to_producer);
        let ParsePeer::Frame {
            frame: PeerFrame::Request(request),
            consumed,
        } = parse_peer(&to_producer, 1 << 20)
        else {
            panic!("DCP_OPEN comes first");
        };
        let message = DcpMessage::decode(&request).unwrap();
        let DcpBody::Open(open) = message.body else {
            panic!("{message:?}");
        };
        let producer = Producer::open(&open, &producer_config(features), 0).unwrap();
        let mut to_consumer = Vec::new();
        let (opcode, opaque) = (Opcode::DcpOpen.wire(), message.head.opaque);
        Response::new(opcode, opaque, Status::Success).write(&mut to_consumer);
        to_producer.drain(..consumed);
        Self {
            active,
            replica,
            cursor,
            producer,
            consumer,
            to_producer,
            to_consumer,
            now: Now {
                unix_ns: 1_700_000_000_000_000_000,
                mono_ns: 1,
            },
            committed: 0,
            parked: 0,
        }
    }

    fn act(&mut self, action: &Action) {
        self.now.unix_ns += 1_000_000_000;
        self.now.mono_ns += 1_000_000;
        match action {
            Action::Write(key, write, level) => self.write(*key, *write, *level),
            Action::Log(max) => {
                log(&mut self.active, *max);
                self.count_done();
            }
            Action::ReplicaLog(max) => log(&mut self.replica, *max),
            Action::Send(room) => self.send(*room),
            Action::Arrive(len) => self.arrive(*len),
            Action::Acknowledge => self.acknowledge(),
        }
    }

    fn write(&mut self, key: u8, what: What, level: Option<DurabilityLevel>) {
        let key = DocKey::new(CollectionId::DEFAULT, format!("key{key}").as_bytes()).unwrap();
        let write = StepWrite {
            key: &key,
            cas: Cas(0),
            durability: level.map(|level| Durability {
                level,
                timeout_ms: Some(60_000),
            }),
            new_cas: Cas(0),
            preserve_ttl: false,
            cookie: Cookie(1),
            prebuilt: None,
        };
        let now = self.now;
        let text = vec![b'x'; 200];
        let packed = ValueCompressor::default()
            .pack(&text, MinRatio::DEFAULT)
            .unwrap()
            .to_vec();
        let (bytes, datatype): (&[u8], _) = match what {
            What::Json => (br#"{"a":1}"#, Datatype::RAW),
            What::Packed => (&packed, Datatype::SNAPPY),
            _ => (b"plain", Datatype::RAW),
        };
        let value = NewValue::check(bytes, datatype, MinRatio::DEFAULT).unwrap();
        let expiry = match what {
            What::Expires => Expiry(now.unix_secs() as u32 + 3),
            _ => Expiry::NEVER,
        };
        let result = if what == What::Delete {
            self.active.at(now).delete(&write)
        } else {
            let flags = 0x0200_0006;
            self.active
                .at(now)
                .store(&write, StoreMode::Set, &value, flags, expiry)
        };
        match result {
            Ok(kedge_vbucket::StepOutcome::Parked) => self.parked += 1,
            Ok(_) | Err(Status::KeyNotFound | Status::SyncWriteInProgress) => {}
            Err(other) => panic!("{other:?}"),
        }
        (0..4).for_each(|shard| self.active.at(now).sweep(shard));
    }

    fn count_done(&mut self) {
        let mut done: Vec<CompletedCommand> = Vec::new();
        done.extend(self.active.take_effects().unwrap_or_default().completions);
        for done in done {
            match done.completion {
                Completion::SyncWrite { result: Ok(_), .. } => self.committed += 1,
                other => panic!("{other:?}"),
            }
        }
    }

    fn send(&mut self, room: usize) {
        self.producer.ready(VB);
        let queue = &mut Queue {
            active: &mut self.active,
            cursor: self.cursor,
        };
        let now_ns = self.now.mono_ns;
        self.producer
            .fill(now_ns, queue, &mut self.to_consumer, room);
    }

    /// Delivers so many bytes on each side, and processes whole frames.
    fn arrive(&mut self, len: usize) {
        let now_ns = self.now.mono_ns;
        let (mut at, out) = (0, &mut self.to_consumer);
        let arrived = len.min(self.to_producer.len());
        while let ParsePeer::Frame { frame, consumed } =
            parse_peer(&self.to_producer[at..arrived], 1 << 20)
        {
            let todo = match frame {
                PeerFrame::Request(request) => self.producer.on_request(now_ns, &request, out),
                PeerFrame::Reply(reply) => self.producer.on_reply(now_ns, &reply),
            };
            match todo.unwrap() {
                ProducerAction::Nothing => {}
                ProducerAction::OpenStream(id, request) => {
                    assert!(request.sync_writes && request.start == Seqno(0));
                    let failover = self.active.failover().clone();
                    self.producer.stream_opened(now_ns, id, &failover, out);
                }
                ProducerAction::Acknowledge { vb, prepared } => {
                    assert_eq!(vb, VB);
                    let node = self.producer.consumer_name().unwrap();
                    self.active.acknowledge(node, prepared).unwrap();
                }
                other => panic!("{other:?}"),
            }
            at += consumed;
        }
        self.to_producer.drain(..at);
        self.count_done();
        let (mut at, out) = (0, &mut self.to_producer);
        let arrived = len.min(self.to_consumer.len());
        while let ParsePeer::Frame { frame, consumed } =
            parse_peer(&self.to_consumer[at..arrived], 1 << 20)
        {
            let step = self.consumer.on_frame(now_ns, &frame, out).unwrap();
            match step.event {
                ConsumerEvent::Nothing => {}
                ConsumerEvent::Begins { failover, .. } => {
                    self.replica.begin_stream(failover).unwrap();
                }
                ConsumerEvent::Snapshot { snapshot, .. } => {
                    self.replica.begin_snapshot(snapshot).unwrap();
                }
                ConsumerEvent::Received { received, .. } => {
                    self.replica.receive(self.now, received).unwrap();
                }
                other => panic!("{other:?}"),
            }
            self.consumer.consumed(now_ns, step.bytes, out);
            at += consumed;
        }
        self.to_consumer.drain(..at);
    }

    fn acknowledge(&mut self) {
        if let Some(prepared) = self.replica.take_ack() {
            self.consumer
                .acknowledge(VB, prepared, &mut self.to_producer);
        }
    }

    fn settle(&mut self) {
        let all = usize::MAX;
        for round in 0..1_000 {
            let before = (self.active.high_seqno(), self.replica.high_seqno());
            for action in [
                Action::Send(all),
                Action::Arrive(all),
                Action::Log(all),
                Action::ReplicaLog(all),
                Action::Acknowledge,
                Action::Arrive(all),
            ] {
                self.act(&action);
            }
            let out = &mut self.to_producer;
            self.consumer.on_time(self.now.mono_ns, out).unwrap();
            // What waits for the rest of a fifth of the buffer is acknowledged after 5 s.
            self.now.mono_ns += 5_000_000_000;
            let after = (self.active.high_seqno(), self.replica.high_seqno());
            let is_quiet = self.to_producer.is_empty() && self.to_consumer.is_empty();
            if before == after && before.0 == before.1 && is_quiet && round > 2 {
                return;
            }
        }
        panic!("it does not come to rest");
    }
}

fn log(vb: &mut VBucket, max: usize) {
    let to = vb.changes().for_log(max, usize::MAX, &mut Vec::new());
    vb.on_logged(to);
}

fn documents(vb: &VBucket) -> BTreeMap<Vec<u8>, (ItemMeta, Vec<u8>)> {
    let entry = |item: &Item| (item.key().to_vec(), (item.meta(), item.value().to_vec()));
    vb.table().iter().map(entry).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Plain,
    Json,
    Packed,
    Expires,
    Delete,
}

#[derive(Clone, Debug)]
enum Action {
    Write(u8, What, Option<DurabilityLevel>),
    Log(usize),
    ReplicaLog(usize),
    Send(usize),
    Arrive(usize),
    Acknowledge,
}

fn action() -> impl Strategy<Value = Action> {
    let what = prop::sample::select(vec![
        What::Plain,
        What::Json,
        What::Packed,
        What::Expires,
        What::Delete,
    ]);
    let level = prop::sample::select(vec![
        None,
        Some(DurabilityLevel::Majority),
        Some(DurabilityLevel::MajorityAndPersistOnActive),
        Some(DurabilityLevel::PersistToMajority),
    ]);
    prop_oneof![
        5 => (0_u8..6, what, level).prop_map(|(key, what, level)| Action::Write(key, what, level)),
        1 => (1_usize..10).prop_map(Action::Log),
        1 => (1_usize..10).prop_map(Action::ReplicaLog),
        2 => (1_usize..1_000).prop_map(Action::Send),
        2 => (1_usize..1_000).prop_map(Action::Arrive),
        1 => Just(Action::Acknowledge),
    ]
}

proptest! {
    #[test]
    fn replica_equals_its_active_when_idle(
        actions in vec(action(), 0..150),
        collections in any::<bool>(),
        buffer_bytes in prop::sample::select(vec![1_u32, 300, 1 << 20]),
    ) {
        let all = [Feature::Xerror, Feature::Json, Feature::Snappy, Feature::Collections];
        let features = if collections { &all[..] } else { &all[..3] };
        let mut nodes = Nodes::new(features, buffer_bytes);
        for action in &actions {
            nodes.act(action);
        }
        nodes.settle();
        prop_assert_eq!(documents(&nodes.active), documents(&nodes.replica));
        let standing = |vb: &VBucket| {
            let seqnos = [vb.high_seqno(), vb.history().visible_seqno(), vb.persisted_seqno()];
            (seqnos, vb.durability().high_completed_seqno(), vb.failover().clone(), vb.history().last_cas())
        };
        prop_assert_eq!(standing(&nodes.active), standing(&nodes.replica));
        prop_assert_eq!(nodes.committed, nodes.parked, "each SyncWrite was committed");
        for vb in [&nodes.active, &nodes.replica] {
            prop_assert_eq!(vb.durability_figures().tracked, 0);
        }
        let unacknowledged = nodes.producer.figures().unacknowledged;
        prop_assert_eq!(unacknowledged, nodes.consumer.figures().unacknowledged);
    }
}
