//! Tests of replication between two nodes, and of SyncWrites.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kedge_bucket::{Bucket, BucketConfig, CompactionConfig, CompactionRate, VbRole, VbState};
use kedge_coordinator::replication::{NodeIdentity, ReplicationSource};
use kedge_node::coordination::{LinkStatus, PeerAddress, ReplicationLinks as _, StreamPhase};
use kedge_protocol::binary::Opcode;
use kedge_types::{DurabilityLevel, Seqno, Status, VbId};
use kedge_vbucket::{NodeName, Topology};

use crate::client::{Client, Reply};
use crate::server::{Kedge, PASSWORD, Setup};
use crate::stats::{stat, stat_with};

/// A generous deadline.
const DEADLINE: Duration = Duration::from_secs(30);
const VBUCKETS: u16 = 16;
const LEVELS: [DurabilityLevel; 3] = [
    DurabilityLevel::Majority,
    DurabilityLevel::MajorityAndPersistOnActive,
    DurabilityLevel::PersistToMajority,
];

fn until(why: &str, mut what: impl FnMut() -> bool) {
    let began = Instant::now();
    while !what() {
        assert!(began.elapsed() < DEADLINE, "{why}");
        std::thread::yield_now();
    }
}

fn all() -> impl Iterator<Item = VbId> {
    (0..VBUCKETS).map(VbId)
}

pub(crate) fn bucket(kedge: &Kedge) -> Arc<Bucket> {
    kedge.server().registry().get("default").unwrap()
}

/// Makes a node active for all vBuckets, with these nodes in the chain.
pub(crate) fn activate(kedge: &Kedge, chain: &[&str]) {
    let chain = chain.iter().map(|name| NodeName::new(name)).collect();
    let topology = Topology::new(vec![chain]).unwrap();
    for vb in all() {
        let role = VbRole {
            topology: Some(topology.clone()),
            ..VbState::Active.into()
        };
        bucket(kedge).states().set_vbucket(vb, role).unwrap();
    }
}

pub(crate) fn make_replica(kedge: &Kedge) {
    for vb in all() {
        bucket(kedge)
            .states()
            .set_vbucket(vb, VbState::Replica)
            .unwrap();
    }
}

pub(crate) fn peer(name: &str, kedge: &Kedge) -> PeerAddress {
    PeerAddress {
        name: name.to_owned(),
        host: "127.0.0.1".to_owned(),
        port: kedge.server().kv_addr().unwrap().port(),
    }
}

/// Replicates all vBuckets of another node to a node.
pub(crate) fn follow(kedge: &Kedge, node: &str, peer: PeerAddress) {
    follow_with(kedge, node, peer, BTreeSet::new(), true);
}

/// Replicates all vBuckets of another node to a node, some as new copies, which may come from files.
fn follow_with(
    kedge: &Kedge,
    node: &str,
    peer: PeerAddress,
    copies: BTreeSet<VbId>,
    from_files: bool,
) {
    let replicator = kedge.server().replicator();
    replicator.set_identity(NodeIdentity {
        node: node.to_owned(),
        user: "root".to_owned(),
        password: PASSWORD.to_owned().into(),
        tls: None,
    });
    let vbuckets = all().collect();
    let takeovers = BTreeMap::new();
    let source = ReplicationSource {
        from_files,
        map_epoch: None,
        peer,
        vbuckets,
        takeovers,
        copies,
    };
    replicator.set_plan("default", vec![source]);
}

/// An active node and its replica.
struct Pair {
    active: Kedge,
    replica: Kedge,
}

impl Pair {
    fn new() -> Self {
        Self::with(Setup::default(), Setup::default())
    }

    fn with(active: Setup, replica: Setup) -> Self {
        let (active, replica) = (Kedge::with(active), Kedge::with(replica));
        activate(&active, &["n_0", "n_1"]);
        make_replica(&replica);
        follow(&replica, "n_1", peer("n_0", &active));
        Self { active, replica }
    }

    fn status(&self) -> Vec<LinkStatus> {
        self.replica.server().replicator().links()
    }

    /// Closes the connection by opening another one with its name.
    fn cut(&self) {
        let mut thief = self.active.connect();
        thief.hello(crate::client::SDK_FEATURES);
        thief.log_in("root", PASSWORD);
        thief.select("default");
        let open = thief.request(Opcode::DcpOpen);
        let mut open = open.extras(&[0, 0, 0, 0, 0, 0, 0, 1]);
        open.key = b"replication:n_0->n_1:default".to_vec();
        thief.call(&open).ok();
    }

    /// Waits until every vBucket replicates.
    fn wait(&self) {
        until("all follow", || {
            self.status().first().is_some_and(|link| {
                let streaming = |phase| phase == StreamPhase::Streaming;
                link.connected
                    && link.vbuckets.len() == usize::from(VBUCKETS)
                    && link.vbuckets.values().all(|vb| streaming(vb.phase))
            })
        });
    }

    /// Waits until the replica equals the active.
    fn apply_down(&self) {
        let seqnos = |kedge: &Kedge| bucket(kedge).vbucket_seqnos(None, false, None);
        until("the replica has everything", || {
            seqnos(&self.active) == seqnos(&self.replica)
        });
    }
}

fn get_replica(client: &mut Client, key: &str) -> Reply {
    let frame = client.request(Opcode::GetReplica).key(key);
    client.call(&frame)
}

fn set_durable(client: &mut Client, key: &str, value: &[u8], level: DurabilityLevel) -> Status {
    let frame = client.request(Opcode::Set).store(key, value).durable(level);
    client.call(&frame).status
}

#[test]
fn link_between_maps_of_different_epochs_waits_for_the_older_one() {
    let pair = Pair::new();
    pair.wait();
    let plan = |epoch| {
        vec![ReplicationSource {
            from_files: false,
            map_epoch: Some(epoch),
            peer: peer("n_0", &pair.active),
            vbuckets: all().collect(),
            takeovers: BTreeMap::new(),
            copies: BTreeSet::new(),
        }]
    };
    let follow = |epoch| {
        pair.replica
            .server()
            .replicator()
            .set_plan("default", plan(epoch));
    };
    let active = pair.active.server().registry().cluster();
    let is_refused = || {
        pair.status().first().is_some_and(|link| {
            let why = link.last_error.as_deref().unwrap_or_default();
            !link.connected && why.contains("different epochs")
        })
    };
    active.follow_epoch(5);
    follow(4);
    // An open link stays; the next one is refused.
    pair.wait();
    pair.cut();
    until("the older consumer is refused", is_refused);
    follow(5);
    pair.wait();
    follow(6);
    pair.cut();
    until("the older producer is refused", is_refused);
    active.follow_epoch(6);
    pair.wait();
}

#[test]
fn writes_are_replicated() {
    let pair = Pair::new();
    let mut client = pair.active.client();
    let mut before = Vec::new();
    for number in 0..200 {
        let key = format!("k{number}");
        before.push(client.set(&key, key.as_bytes()).ok().cas);
    }
    let gone = client.request(Opcode::Delete).key("k7");
    client.call(&gone).ok();
    pair.wait();
    pair.apply_down();
    let mut reader = pair.replica.client();
    for (number, cas) in before.iter().enumerate() {
        let key = format!("k{number}");
        let reply = get_replica(&mut reader, &key);
        if number == 7 {
            assert_eq!(reply.status, Status::KeyNotFound);
            continue;
        }
        let reply = reply.ok();
        assert_eq!((reply.value.as_slice(), reply.cas), (key.as_bytes(), *cas));
    }
    // Writes during the replication.
    client.set("k7", b"again").ok();
    until("it comes", || {
        get_replica(&mut reader, "k7").status == Status::Success
    });
    // The first document of the key and its deletion are two items, or one if the link was not open yet.
    let items = pair.status()[0].items;
    assert!((201..=202).contains(&items), "{items}");
}

#[test]
fn sync_write_waits_for_the_replica() {
    let pair = Pair::new();
    let mut client = pair.active.client();
    for (number, level) in (0..30).zip(LEVELS.iter().cycle()) {
        let key = format!("k{number}");
        let status = set_durable(&mut client, &key, b"v", *level);
        assert_eq!(status, Status::Success, "{key} {level:?}");
    }
    pair.apply_down();
    let mut reader = pair.replica.client();
    for number in 0..30 {
        get_replica(&mut reader, &format!("k{number}")).ok();
    }
}

#[test]
fn receiver_limits_the_peer_while_it_gets_new_copies() {
    let throttled = |throttle| {
        let setup = Setup::default();
        let compaction = CompactionConfig {
            throttle,
            ..setup.bucket.compaction
        };
        let bucket = BucketConfig {
            compaction,
            ..setup.bucket.clone()
        };
        Kedge::with(Setup { bucket, ..setup })
    };
    const RATE: u64 = 2 << 20;
    // A server that runs alone takes no receiver for a new copy, so that nothing is slowed down here.
    let active = throttled(CompactionRate::Off);
    let receiver = throttled(CompactionRate::BytesPerSec(RATE));
    activate(&active, &["n_0"]);
    make_replica(&receiver);
    let mut client = active.client();
    for number in 0..40 {
        let value = vec![b'x'; 16 << 10];
        client.set(&format!("k{number}"), &value).ok();
    }
    bucket(&active).persistence().apply().unwrap();
    follow_with(
        &receiver,
        "n_1",
        peer("n_0", &active),
        all().collect(),
        true,
    );
    let pair = Pair {
        active,
        replica: receiver,
    };
    pair.apply_down();
    let limit = pair.status()[0].copy_bytes_per_sec;
    assert!((1..=RATE).contains(&limit), "{limit}");
    // The copies count, and the limit ends.
    follow(&pair.replica, "n_1", peer("n_0", &pair.active));
    until("no limit", || pair.status()[0].copy_bytes_per_sec == 0);
}

#[test]
fn sync_write_without_replica_is_ambiguous() {
    let active = Kedge::start();
    activate(&active, &["n_0", "n_1"]);
    let mut client = active.client();
    let mut frame = client.request(Opcode::Set).store("k", b"v");
    frame.infos.durability = Some(kedge_types::Durability {
        level: DurabilityLevel::Majority,
        timeout_ms: Some(50),
    });
    assert_eq!(client.call(&frame).status, Status::SyncWriteAmbiguous);
    assert_eq!(client.get("k").status, Status::KeyNotFound);
}

#[test]
fn replica_catches_up_after_a_disconnect() {
    let pair = Pair::new();
    pair.wait();
    let mut client = pair.active.client();
    client.set("k1", b"1").ok();
    pair.apply_down();
    let replicator = pair.replica.server().replicator();
    replicator.set_plan("default", Vec::new());
    until("it is gone", || replicator.links().is_empty());
    for number in 0..100 {
        client.set(&format!("k{number}"), b"2").ok();
    }
    bucket(&pair.active).persistence().apply().unwrap();
    follow(&pair.replica, "n_1", peer("n_0", &pair.active));
    pair.apply_down();
    let mut reader = pair.replica.client();
    for number in 0..100 {
        assert_eq!(
            get_replica(&mut reader, &format!("k{number}")).ok().value,
            b"2"
        );
    }
    assert_eq!(pair.status()[0].vbuckets[&VbId(0)].rollbacks, 0);
}

#[test]
fn replica_with_another_history_rolls_back() {
    let (active, replica) = (Kedge::start(), Kedge::start());
    let mut client = replica.client();
    for number in 0..50 {
        client.set(&format!("k{number}"), b"wrong").ok();
    }
    active.client().set("k1", b"right").ok();
    activate(&active, &["n_0", "n_1"]);
    make_replica(&replica);
    follow(&replica, "n_1", peer("n_0", &active));
    let pair = Pair { active, replica };
    pair.wait();
    pair.apply_down();
    let mut reader = pair.replica.client();
    assert_eq!(get_replica(&mut reader, "k1").ok().value, b"right");
    assert_eq!(get_replica(&mut reader, "k2").status, Status::KeyNotFound);
    let status = pair.status();
    let rollbacks = status[0].vbuckets.values().map(|vb| vb.rollbacks);
    assert!(rollbacks.sum::<u64>() > 0);
}

#[test]
fn unreachable_peer_is_retried() {
    let replica = Kedge::start();
    make_replica(&replica);
    let active = Kedge::start();
    activate(&active, &["n_0", "n_1"]);
    let nobody = PeerAddress {
        name: "n_0".to_owned(),
        host: "127.0.0.1".to_owned(),
        port: 1,
    };
    follow(&replica, "n_1", nobody);
    let replicator = replica.server().replicator();
    until("it failed", || {
        replicator
            .links()
            .first()
            .is_some_and(|link| link.last_error.is_some())
    });
    assert!(!replicator.links()[0].connected);
    // The plan names another node.
    follow(&replica, "n_1", peer("n_0", &active));
    let pair = Pair { active, replica };
    pair.wait();
    // And now with a wrong password.
    pair.replica
        .server()
        .replicator()
        .set_identity(NodeIdentity {
            node: "n_1".to_owned(),
            user: "root".to_owned(),
            password: "wrong".to_owned().into(),
            tls: None,
        });
    until("it is refused", || {
        let status = pair.status();
        let why = status[0].last_error.clone().unwrap_or_default();
        !status[0].connected && why.contains("SASL")
    });
}

/// Returns a pair with documents that were written and applied before the replica followed, and the statistics of the
/// replication when it has them.
fn pair_with_files(
    min_bytes: u64,
    from_files: bool,
    are_copies: bool,
) -> (Pair, BTreeMap<String, String>) {
    let mut setup = Setup::default();
    setup.bucket.file_copy_min_bytes = min_bytes;
    let (active, replica) = (Kedge::start(), Kedge::with(setup));
    activate(&active, &["n_0", "n_1"]);
    let mut client = active.client();
    for number in 0..200 {
        let key = format!("k{number}");
        client.set(&key, key.as_bytes()).ok();
    }
    let gone = client.request(Opcode::Delete).key("k7");
    client.call(&gone).ok();
    bucket(&active).persistence().apply().unwrap();
    make_replica(&replica);
    let copies = all().filter(|_| are_copies).collect();
    follow_with(&replica, "n_1", peer("n_0", &active), copies, from_files);
    let pair = Pair { active, replica };
    pair.wait();
    pair.apply_down();
    let mut stats = BTreeMap::new();
    let replicator = pair.replica.server().replicator();
    replicator.stats(&mut |name, value| {
        stats.insert(name.to_owned(), value.to_owned());
    });
    (pair, stats)
}

#[test]
fn empty_replicas_are_filled_with_files_and_follow() {
    let (pair, stats) = pair_with_files(1, true, true);
    let of = |name: &str| stats[name].parse::<u64>().unwrap();
    assert_eq!(of("replication_files"), 16);
    assert_eq!(
        (of("replication_items"), of("replication_file_failures")),
        (0, 0)
    );
    assert!(of("replication_file_bytes") > 16 * 4_096);
    let figures: BTreeMap<_, _> = bucket(&pair.active).figures().into_iter().collect();
    let sent = figures["ep_file_copy_sent_bytes"];
    assert_eq!(sent, of("replication_file_bytes"));
    assert_eq!(
        bucket(&pair.active).copies().sending(),
        0,
        "all are released"
    );
    let mut client = pair.active.client();
    for level in LEVELS {
        let status = set_durable(&mut client, "k3", b"later", level);
        assert_eq!(status, Status::Success);
    }
    pair.apply_down();
    let mut reader = pair.replica.client();
    for number in 0..200 {
        let key = format!("k{number}");
        let reply = get_replica(&mut reader, &key);
        match number {
            3 => assert_eq!(reply.ok().value, b"later"),
            7 => assert_eq!(reply.status, Status::KeyNotFound),
            _ => assert_eq!(reply.ok().value, key.as_bytes()),
        }
    }
}

#[test]
fn small_files_those_of_older_clusters_and_for_chains_are_not_copied() {
    for (min_bytes, from_files, are_copies) in [
        (0, true, true),
        (1 << 20, true, true),
        (1, false, true),
        (1, true, false),
    ] {
        let (_pair, stats) = pair_with_files(min_bytes, from_files, are_copies);
        assert_eq!(stats["replication_files"], "0");
        assert_eq!(stats["replication_file_failures"], "0");
        assert_eq!(stats["replication_items"], "200", "one key was deleted");
    }
}

#[test]
fn promoted_replica_has_acknowledged_writes() {
    let pair = Pair::new();
    let mut client = pair.active.client();
    for (number, level) in (0..30).zip(LEVELS.iter().cycle()) {
        let key = format!("k{number}");
        let status = set_durable(&mut client, &key, key.as_bytes(), *level);
        assert_eq!(status, Status::Success);
    }
    let Pair { active, replica } = pair;
    active.stop();
    replica
        .server()
        .replicator()
        .set_plan("default", Vec::new());
    activate(&replica, &["n_1"]);
    let mut client = replica.client();
    for number in 0..30 {
        let key = format!("k{number}");
        // A prepare without a commit is committed first.
        until("it is readable", || {
            let reply = client.get(&key);
            match reply.status {
                Status::Success => {
                    assert_eq!(reply.value, key.as_bytes());
                    true
                }
                status => {
                    assert_eq!(status, Status::SyncWriteReCommitInProgress);
                    false
                }
            }
        });
    }
    let uuid = bucket(&replica).vbucket_figures(VbId(0)).unwrap().failover;
    assert!(uuid.len() > 1, "a branch began");
    assert!(uuid[0].1 >= Seqno(0));
}

#[test]
fn replication_statistics_of_both_ends() {
    let pair = Pair::new();
    let mut client = pair.active.client();
    for level in LEVELS {
        let status = set_durable(&mut client, "k", b"v", level);
        assert_eq!(status, Status::Success);
    }
    pair.wait();
    let vb = VbId::of_key(b"k", VBUCKETS);
    let name = "eq_dcpq:replication:n_0->n_1:default";
    let mut of_producer = Default::default();
    until("the producer has told all", || {
        of_producer = stat(&mut client, "dcp").unwrap();
        of_producer[&format!("{name}:num_streams")] == "16"
            && of_producer[&format!("{name}:stream_{vb}_last_sent_seqno")] == "6"
    });
    assert_eq!(of_producer["ep_dcp_producer_count"], "1");
    assert_eq!(of_producer[&format!("{name}:type")], "producer");
    assert_eq!(of_producer[&format!("{name}:max_buffer_bytes")], "16777216");
    let sums = stat(&mut client, "dcpagg").unwrap();
    assert_eq!(sums["replication:producer_count"], "1");
    assert_eq!(sums[":total:count"], "1");
    let monitor = stat(&mut client, &format!("durability-monitor {vb}")).unwrap();
    assert_eq!(monitor[&format!("vb_{vb}:num_committed")], "3");
    assert_eq!(monitor[&format!("vb_{vb}:num_accepted:majority")], "1");
    let topology = &monitor[&format!("vb_{vb}:replication_topology")];
    assert_eq!(topology, r#"[["n_0","n_1"]]"#);
    let acked = format!("vb_{vb}:replication_chain:n_1:acked_seqno");
    assert_eq!(monitor[&acked], "5", "the last prepare");

    let mut client = pair.replica.client();
    let name = "eq_dcpq:replication:n_0";
    let of_consumer = stat(&mut client, "dcp").unwrap();
    assert_eq!(of_consumer["ep_dcp_consumer_count"], "1");
    assert_eq!(of_consumer[&format!("{name}:connected")], "true");
    assert_eq!(of_consumer[&format!("{name}:stream_{vb}_acked_seqno")], "5");
    let as_json = stat_with(&mut client, "dcp", r#"{"stream_format":"json"}"#).unwrap();
    let stream: serde_json::Value =
        serde_json::from_str(&as_json[&format!("{name}:stream_{vb}")]).unwrap();
    assert_eq!(stream["acked_seqno"], 5);
    let general = stat(&mut client, "").unwrap();
    assert_eq!(general["replication_following"], "16");
    assert_eq!(general["replication_links_up"], "1");
}

#[test]
fn replication_reconnects_after_a_cut() {
    let pair = Pair::new();
    pair.wait();
    let mut client = pair.active.client();
    for round in 1..4 {
        pair.cut();
        until("it is back", || pair.status()[0].connects > round);
        for level in LEVELS {
            let status = set_durable(&mut client, "k", b"v", level);
            assert_eq!(status, Status::Success);
        }
        pair.wait();
    }
    pair.apply_down();
}

#[test]
fn replica_without_memory_delays_items_without_loss() {
    let mut setup = Setup::default();
    setup.bucket.quota_bytes = 24 << 20;
    setup.bucket.apply_max_lag_ms = 20;
    let (active, replica) = (Kedge::start(), Kedge::with(setup));
    activate(&active, &["n_0", "n_1"]);
    make_replica(&replica);
    let mut client = active.client();
    let value = vec![7; 20_000];
    for number in 0..4_000 {
        client.set(&format!("k{number}"), &value).ok();
    }
    follow(&replica, "n_1", peer("n_0", &active));
    let pair = Pair { active, replica };
    pair.apply_down();
    let mut reader = pair.replica.client();
    for number in (0..4_000).step_by(97) {
        let reply = get_replica(&mut reader, &format!("k{number}")).ok();
        assert_eq!(reply.value, value);
    }
}

/// Writes of all kinds, reproducible by `seed`.
fn write_a_lot(client: &mut Client, seed: u64) {
    let mut random = kedge_disk::Rng::new(seed);
    for number in 0..1_500 {
        let key = format!("k{}", random.below(200));
        let value = format!("{seed}:{number}");
        let set = client.request(Opcode::Set).store(&key, value.as_bytes());
        let frame = match random.below(8) {
            0 => client.request(Opcode::Delete).key(&key),
            1 => {
                let touch = client.request(Opcode::Touch).key(&key);
                touch.extras(&1_000_u32.to_be_bytes())
            }
            2 => client.request(Opcode::Append).key(&key).value(b"+"),
            3 => set.durable(LEVELS[random.below(3) as usize]),
            _ => set,
        };
        let status = client.call(&frame).status;
        let expected = [
            Status::Success,
            Status::KeyNotFound,
            Status::NotStored,
            // Another writer was faster, or a SyncWrite of this key is in flight.
            Status::SyncWriteInProgress,
        ];
        assert!(expected.contains(&status), "{status:?}");
    }
}

#[test]
fn replica_equals_the_active_after_random_cuts() {
    for commit_log in [true, false] {
        let setup = || {
            let mut setup = Setup::default();
            setup.bucket.commit_log = commit_log;
            setup.bucket.apply_max_lag_ms = 30;
            setup
        };
        let pair = Pair::with(setup(), setup());
        let mut writers: Vec<Client> = (0..3).map(|_| pair.active.client()).collect();
        std::thread::scope(|scope| {
            let writers: Vec<_> = (1..)
                .zip(&mut writers)
                .map(|(seed, client)| scope.spawn(move || write_a_lot(client, seed)))
                .collect();
            // Each wait before a retry is longer.
            for round in 1..=5 {
                let connects = pair.status().first().map_or(0, |link| link.connects);
                if round % 3 == 0 {
                    let replicator = pair.replica.server().replicator();
                    replicator.set_plan("default", Vec::new());
                    follow(&pair.replica, "n_1", peer("n_0", &pair.active));
                } else {
                    pair.cut();
                }
                until("it comes back", || {
                    let status = pair.status();
                    let back = |link: &LinkStatus| link.connected && link.connects != connects;
                    status.first().is_some_and(back)
                        || writers.iter().all(|writer| writer.is_finished())
                });
            }
        });
        pair.wait();
        pair.apply_down();
        let (mut client, mut reader) = (pair.active.client(), pair.replica.client());
        for number in 0..200 {
            let key = format!("k{number}");
            let (is, copy) = (client.get(&key), get_replica(&mut reader, &key));
            assert_eq!(
                (is.status, is.cas, is.value),
                (copy.status, copy.cas, copy.value),
                "{key}"
            );
        }
    }
}
