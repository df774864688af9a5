//! Tests of sessions without sockets: bytes in, bytes out, and commands that stay parked until the test syncs the log.

mod lease;
mod long_stat_answers;
mod parked;
mod privileges;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use kedge_auth::HashCost;
use kedge_bucket::{BucketConfig, Completion, RecoveryMode};
use kedge_cluster::Ports;
use kedge_disk::SimDisk;
use kedge_node::coordination::{LinkStatus, ReplicationLinks};
use kedge_node::inbox::Inbox;
use kedge_node::output::Output;
use kedge_node::password_checks::PasswordChecks;
use kedge_node::pools::{ONE_THREAD_EACH, TaskPools};
use kedge_node::registry::{BucketRegistry, RegistrySetup};
use kedge_node::users::Users;
use kedge_protocol::binary::commands::Hello;
use kedge_protocol::binary::{
    Feature, Features, FrameInfos, Opcode, ParseReply, RequestWriter, parse_response,
};
use kedge_types::{Cas, Datatype, Durability, DurabilityLevel, Status, SystemClock, VbId};
use mio::{Poll, Waker};

use super::*;
use crate::client_addresses::ClientAddresses;
use crate::dcp::connections::DcpConnections;
use crate::delayed_flush::DelayedFlush;
use crate::inbox::{FrontEndMessage, FrontEnds};
use crate::limits::FrontendLimits;
use crate::metrics::Metrics;
use crate::request_memory::RequestMemory;
use crate::server_context::MemcachedContext;
use crate::stat_timings::StatTimings;
use crate::text_exec::recache::RecacheStates;

pub(crate) use parked::{item, mutation, read};

/// Flush interval that is never reached: the test decides when the log is written.
const NEVER_MS: u64 = 1 << 40;

pub(crate) struct Rig {
    pub(crate) shared: ServerContext,
    front_ends: Arc<FrontEnds>,
    bucket: Arc<Bucket>,
    pub(crate) session: Session,
    pub(crate) out: Output,
    pub(crate) flush_requests: Vec<Arc<Bucket>>,
    /// The bytes that were given to the session and not consumed.
    pub(crate) waiting: Vec<u8>,
    /// Number of reply bytes that the test has read.
    read: usize,
    _poll: Poll,
}

pub(crate) fn shared(front_ends: &Arc<FrontEnds>) -> ServerContext {
    let mut store = UserStore::new().unwrap();
    store.set_hash_cost(HashCost::new(64, 1).unwrap());
    store
        .add(
            "app",
            "password",
            "bucket_full_access[default]".parse().unwrap(),
            1,
        )
        .unwrap();
    let clock = Arc::new(SystemClock::new());
    let pools = Arc::new(TaskPools::start(ONE_THREAD_EACH).unwrap());
    let setup = RegistrySetup {
        disk: Arc::new(SimDisk::new(1)),
        data_dir: PathBuf::from("/data"),
        master_keys: None,
        clock: clock.clone(),
        executor: pools.executor().clone(),
        owner: pools.owner(),
        completions: front_ends.clone(),
        serving: Arc::default(),
        threads: 1,
        recovery: RecoveryMode::Strict,
        clustered: false,
        on_fatal: Arc::new(|why| panic!("{why}")),
    };
    let registry = BucketRegistry::open(setup, Ports::plain(1, 2)).unwrap();
    let mut config = BucketConfig::new("default", 4, 64 << 20);
    config.log_interval_ms = NEVER_MS;
    registry.create(config).unwrap().wait_loaded().unwrap();
    let registry = Arc::new(registry);
    ServerContext {
        replication: Arc::new(NoLinks),
        registry,
        users: Arc::new(Users::new(store, Box::new(|_| Ok(())))),
        limits: FrontendLimits {
            queued_bytes_max: 4 << 10,
            ..FrontendLimits::default()
        },
        request_memory: Arc::new(RequestMemory::new(
            FrontendLimits::default().request_memory_max,
        )),
        metrics: Arc::new(Metrics::new(1)),
        memcached: MemcachedContext {
            bucket: Some("default".to_owned()),
            ..MemcachedContext::default()
        },
        tls: None,
        delayed_flush: DelayedFlush::start(&pools, &clock).unwrap(),
        clock,
        checks: Arc::new(PasswordChecks::start(&pools).unwrap()),
        front_ends: front_ends.clone(),
        dcp: Arc::new(DcpConnections::new(front_ends.clone())),
        pools,
        recache_states: RecacheStates::default(),
        client_addresses: ClientAddresses::default(),
        unauthenticated: Arc::default(),
        handshakes: Arc::default(),
        stat_timings: StatTimings::default(),
        return_memory: || {},
    }
}

/// A node without replication links.
struct NoLinks;

impl ReplicationLinks for NoLinks {
    fn links(&self) -> Vec<LinkStatus> {
        Vec::new()
    }

    fn stats(&self, _: &mut dyn FnMut(&str, &str)) {}
}

/// A turn of the only front-end thread, which begins now.
pub(crate) fn turn<'t>(
    shared: &'t ServerContext,
    flush_requests: &'t mut Vec<Arc<Bucket>>,
) -> SessionTurn<'t> {
    let now = shared.now();
    SessionTurn {
        shared,
        thread: 0,
        now,
        last_ns: now.mono_ns,
        until_ns: u64::MAX,
        longest: None,
        may_offload: false,
        flush_requests,
    }
}

impl Rig {
    /// A session on `port`, logged in where that is needed, with these features.
    pub(crate) fn new(port: Port, features: Features) -> Self {
        let poll = Poll::new().unwrap();
        let waker = Waker::new(poll.registry(), crate::front_end::WAKER).unwrap();
        let front_ends = Arc::new(FrontEnds::new(vec![Inbox::new(waker)]));
        let shared = shared(&front_ends);
        let host = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let (local, peer) = (SocketAddr::new(host, 11_210), SocketAddr::new(host, 9));
        let mut session = Session::new(ConnectionId::new(0, 5, 77), port, local, peer, &shared);
        let bucket = shared.registry.get("default").unwrap();
        if port == Port::Kv {
            session.login.log_in("app", None);
            session.bucket = Some(bucket.clone());
            session.refresh(&shared);
        }
        let mut rig = Self {
            shared,
            front_ends,
            bucket,
            session,
            out: Output::default(),
            flush_requests: Vec::new(),
            waiting: Vec::new(),
            read: 0,
            _poll: poll,
        };
        if features != Features::NONE {
            let mut bytes = Vec::new();
            let writer = RequestWriter::new(Opcode::Hello);
            Hello {
                agent: b"",
                features,
            }
            .encode(&writer, &mut bytes);
            rig.give(&bytes);
            assert_eq!(rig.replies(), [(0, Status::Success)]);
        }
        rig
    }

    pub(crate) fn give(&mut self, bytes: &[u8]) -> Halt {
        self.waiting.extend_from_slice(bytes);
        let mut turn = turn(&self.shared, &mut self.flush_requests);
        let (consumed, halt) = self
            .session
            .on_bytes(&mut turn, &self.waiting, &mut self.out);
        self.waiting.drain(..consumed);
        halt
    }

    /// Syncs the log, gives the completions to the session, and lets it continue. Returns their number.
    fn sync(&mut self) -> usize {
        self.bucket.persistence().sync().unwrap();
        let mut messages = Vec::new();
        self.front_ends.inbox(0).take(&mut messages);
        let mut count = 0;
        for message in messages {
            let FrontEndMessage::Completed(cookie, completion) = message else {
                continue;
            };
            let (id, slot) = ConnectionId::of(cookie);
            assert_eq!(id, self.session.id());
            let mut turn = turn(&self.shared, &mut self.flush_requests);
            self.session
                .on_completion(&mut turn, slot, completion, &mut self.out);
            count += 1;
        }
        self.give(&[]);
        count
    }

    /// Opaque and status of the replies since the last call.
    fn replies(&mut self) -> Vec<(u32, Status)> {
        let all = self.out.to_vec();
        let mut replies = Vec::new();
        while let ParseReply::Reply { reply, consumed } = parse_response(&all[self.read..], 1 << 20)
        {
            replies.push((reply.opaque, reply.status().unwrap()));
            self.read += consumed;
        }
        replies
    }
}

fn frame(opcode: Opcode, opaque: u32, key: &str, infos: FrameInfos<'_>) -> Vec<u8> {
    let extras: &[u8] = if matches!(opcode, Opcode::Set) {
        &[0; 8]
    } else {
        &[]
    };
    let mut bytes = Vec::new();
    RequestWriter {
        opaque,
        infos,
        vb: VbId::of_key(key.as_bytes(), 4),
        ..RequestWriter::new(opcode)
    }
    .write(extras, key.as_bytes(), &[], &mut bytes);
    bytes
}

const DURABLE: FrameInfos<'static> = FrameInfos {
    durability: Some(Durability {
        level: DurabilityLevel::PersistToMajority,
        timeout_ms: None,
    }),
    barrier: false,
    stream_id: None,
    impersonate: None,
    preserve_ttl: false,
    token_id: None,
    privilege: None,
};

fn durable_set(opaque: u32) -> Vec<u8> {
    frame(Opcode::Set, opaque, &format!("key{opaque}"), DURABLE)
}

fn get(opaque: u32) -> Vec<u8> {
    frame(Opcode::Get, opaque, "nothing", FrameInfos::default())
}

const UNORDERED: Features = Features::of(&[Feature::Xerror, Feature::UnorderedExecution]);
const OK: Status = Status::Success;
const MISS: Status = Status::KeyNotFound;

#[test]
fn replies_stay_in_order_behind_a_parked_command() {
    let mut rig = Rig::new(Port::Kv, Features::of(&[Feature::Xerror]));
    let bytes = [get(1), durable_set(2), get(3), durable_set(4), get(5)].concat();
    assert_eq!(rig.give(&bytes), Halt::Parked);
    assert_eq!(rig.replies(), [(1, MISS)], "nothing overtakes");
    assert_eq!(rig.flush_requests.len(), 1, "the bucket is to be told once");
    assert_eq!(rig.sync(), 1);
    assert_eq!(rig.replies(), [(2, OK), (3, MISS)]);
    assert_eq!(rig.sync(), 1);
    assert_eq!(rig.replies(), [(4, OK), (5, MISS)]);
    assert!(rig.waiting.is_empty());
}

#[test]
fn unordered_commands_overtake_a_parked_one() {
    let mut rig = Rig::new(Port::Kv, UNORDERED);
    let bytes = [durable_set(1), get(2), durable_set(3), get(4)].concat();
    assert_eq!(rig.give(&bytes), Halt::NeedBytes(24));
    assert_eq!(rig.replies(), [(2, MISS), (4, MISS)]);
    assert_eq!(rig.session.in_flight(), 2);
    assert_eq!(rig.sync(), 2);
    let mut replies = rig.replies();
    replies.sort_by_key(|(opaque, _)| *opaque);
    assert_eq!(replies, [(1, OK), (3, OK)]);
}

#[test]
fn barrier_waits_for_earlier_commands_and_blocks_later_ones() {
    let mut rig = Rig::new(Port::Kv, UNORDERED);
    let barrier = FrameInfos {
        barrier: true,
        ..DURABLE
    };
    let bytes = [
        durable_set(1),
        frame(Opcode::Set, 2, "b", barrier),
        get(3),
        durable_set(4),
    ]
    .concat();
    assert_eq!(rig.give(&bytes), Halt::Parked);
    assert_eq!(rig.replies(), [], "the barrier has not begun");
    assert_eq!(rig.session.in_flight(), 1);
    assert_eq!(rig.sync(), 1);
    assert_eq!(rig.replies(), [(1, OK)]);
    assert_eq!(rig.session.in_flight(), 1, "the barrier is alone in flight");
    assert_eq!(rig.give(&get(5)), Halt::Parked);
    assert_eq!(rig.replies(), []);
    assert_eq!(rig.sync(), 1);
    assert_eq!(rig.replies(), [(2, OK), (3, MISS), (5, MISS)]);
    assert_eq!(rig.sync(), 1);
    assert_eq!(rig.replies(), [(4, OK)]);
}

#[test]
fn non_reorderable_command_waits_and_blocks() {
    let mut rig = Rig::new(Port::Kv, UNORDERED);
    let noop = frame(Opcode::Noop, 2, "", FrameInfos::default());
    let bytes = [durable_set(1), noop, get(3)].concat();
    assert_eq!(rig.give(&bytes), Halt::Parked);
    assert_eq!(rig.replies(), []);
    rig.sync();
    assert_eq!(rig.replies(), [(1, OK), (2, OK), (3, MISS)]);
}

#[test]
fn in_flight_commands_are_limited() {
    let mut rig = Rig::new(Port::Kv, UNORDERED);
    let limit = kedge_types::limits::UNORDERED_COMMANDS_MAX as u32;
    let bytes: Vec<u8> = (1..=limit + 3).flat_map(durable_set).collect();
    assert_eq!(rig.give(&bytes), Halt::Parked);
    assert_eq!(rig.session.in_flight() as u32, limit);
    assert_eq!(rig.sync() as u32, limit);
    assert_eq!(rig.session.in_flight(), 3);
    assert_eq!(rig.sync(), 3);
    assert_eq!(rig.replies().len() as u32, limit + 3);
}

#[test]
fn hello_and_select_bucket_are_refused_while_commands_are_in_flight() {
    let mut rig = Rig::new(Port::Kv, UNORDERED);
    let mut hello = Vec::new();
    let writer = RequestWriter {
        opaque: 2,
        ..RequestWriter::new(Opcode::Hello)
    };
    Hello {
        agent: b"",
        features: Features::NONE,
    }
    .encode(&writer, &mut hello);
    let select = frame(Opcode::SelectBucket, 3, "default", FrameInfos::default());
    rig.give(&[durable_set(1), hello.clone(), select].concat());
    assert_eq!(rig.replies(), [(2, Status::Invalid), (3, Status::Invalid)]);
    rig.sync();
    rig.give(&hello);
    assert_eq!(rig.replies(), [(1, OK), (2, OK)]);
    assert_eq!(rig.session.protocol.features, Features::NONE);
}

#[test]
fn full_output_stops_execution() {
    let mut rig = Rig::new(Port::Kv, Features::of(&[Feature::Xerror]));
    let bytes: Vec<u8> = (0..1_000).flat_map(get).collect();
    assert_eq!(rig.give(&bytes), Halt::Full);
    let queued = rig.out.queued();
    assert!(
        (4 << 10..5 << 10).contains(&queued),
        "the limit and one reply: {queued}"
    );
    let mut count = rig.replies().len();
    while count < 1_000 {
        let mut sink = Vec::new();
        rig.out.write_to(&mut sink).unwrap();
        rig.out.recycle();
        rig.read = 0;
        rig.give(&[]);
        count += rig.replies().len();
    }
    assert!(rig.waiting.is_empty());
}

#[test]
fn frames_split_anywhere_execute_the_same() {
    let bytes = [durable_set(1), get(2), durable_set(3)].concat();
    for cut in 0..=bytes.len() {
        let mut rig = Rig::new(Port::Kv, Features::of(&[Feature::Xerror]));
        rig.give(&bytes[..cut]);
        rig.give(&bytes[cut..]);
        rig.sync();
        rig.sync();
        assert_eq!(rig.replies(), [(1, OK), (2, MISS), (3, OK)], "cut at {cut}");
    }
}

#[test]
fn session_forgets_a_dropped_bucket() {
    let mut rig = Rig::new(Port::Kv, Features::of(&[Feature::Xerror]));
    rig.give(&get(1));
    rig.shared.registry.drop_bucket("default").unwrap();
    rig.session.refresh(&rig.shared);
    assert!(rig.session.bucket.is_none());
    rig.give(&get(2));
    // Bug: the map of the cluster came, and the Go SDK took it for that of its bucket, and served nobody any more.
    rig.give(&frame(
        Opcode::GetClusterConfig,
        3,
        "",
        FrameInfos::default(),
    ));
    assert_eq!(
        rig.replies(),
        [(1, MISS), (2, Status::NoBucket), (3, Status::NoBucket)]
    );
    rig.shared
        .registry
        .create(BucketConfig::new("default", 4, 64 << 20))
        .unwrap();
    rig.session.refresh(&rig.shared);
    assert!(
        rig.session.bucket.is_none(),
        "another bucket of that name is another bucket"
    );
}

#[test]
fn first_byte_selects_binary_or_text_on_the_memcached_port() {
    let mut rig = Rig::new(Port::Memcached, Features::NONE);
    assert_eq!(rig.give(&[]), Halt::NeedBytes(1));
    rig.give(b"mn\r\n");
    assert_eq!(rig.out.to_vec(), b"MN\r\n");
    let mut rig = Rig::new(Port::Memcached, Features::NONE);
    rig.give(&frame(Opcode::Noop, 1, "", FrameInfos::default()));
    assert_eq!(rig.replies(), [(1, OK)]);
    assert_eq!(rig.give(b"get a\r\n"), Halt::Malformed, "and it stays");
}

#[test]
fn completion_without_a_parked_command_is_ignored() {
    let mut rig = Rig::new(Port::Kv, UNORDERED);
    rig.give(&durable_set(1));
    rig.session.in_flight = InFlightRequests::default();
    assert_eq!(rig.sync(), 1);
    assert_eq!(rig.replies(), []);
}

/// Executes one frame at a time with an empty output, like a connection that sends all.
fn execute_each(rig: &mut Rig, frames: &[Vec<u8>]) {
    for frame in frames {
        let mut turn = turn(&rig.shared, &mut rig.flush_requests);
        let (consumed, _) = rig.session.on_bytes(&mut turn, frame, &mut rig.out);
        assert_eq!(consumed, frame.len());
        let reply = rig.out.buffer();
        assert_eq!(reply[6..8], [0, 0], "the status of the reply");
        reply.clear();
    }
}

#[test]
fn neither_get_nor_set_of_a_short_document_allocates() {
    const COMMANDS: u64 = 1_000;
    let features = Features::of(&[Feature::Xerror, Feature::MutationSeqno, Feature::Json]);
    let mut rig = Rig::new(Port::Kv, features);
    rig.out.buffer().clear();
    let frames = |opcode| -> Vec<Vec<u8>> {
        let key = |n: u64| format!("key-{}", n % 100);
        let infos = FrameInfos::default;
        (0..COMMANDS)
            .map(|n| frame(opcode, n as u32, &key(n), infos()))
            .collect()
    };
    let (sets, gets) = (frames(Opcode::Set), frames(Opcode::Get));
    execute_each(&mut rig, &sets);
    execute_each(&mut rig, &gets);
    assert_eq!(counting::allocations(|| execute_each(&mut rig, &gets)), 0);
    // Documents are in slabs. The queues for the log grow now and then.
    let set = counting::allocations(|| execute_each(&mut rig, &sets));
    assert!(set < 20, "{set} allocations");
}

/// Whatever the next commands are, a look ahead changes nothing, and sees as many of them as its limit.
#[test]
fn look_ahead_counts_the_next_commands() {
    let rig = Rig::new(Port::Kv, Features::NONE);
    let one = get(1);
    let many: Vec<u8> = (0..40).flat_map(get).collect();
    let look = |bytes: &[u8]| rig.session.look_ahead(bytes, 1 << 20);
    assert_eq!(look(&one), 1);
    assert_eq!(
        look(&many[..one.len() * 3 + 5]),
        3,
        "the last one is incomplete"
    );
    assert_eq!(look(&many), 16);
    assert_eq!(look(&[]), 0);
    let mut odd = frame(Opcode::Noop, 1, "", FrameInfos::default());
    odd.extend(frame(Opcode::Get, 2, "", FrameInfos::default()));
    assert_eq!(look(&odd), 2, "commands without a key");
}
