//! Tests of evicted documents: every command returns what it returns for one in memory.

use std::collections::BTreeSet;
use std::net::Shutdown;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kedge_bucket::{Bucket, BucketChange, EvictionPolicy};
use kedge_protocol::binary::commands::{GetMetaReply, decode_counter};
use kedge_protocol::binary::{Feature, Opcode};
use kedge_types::{DurabilityLevel, Status};

use crate::client::{Client, Frame, Reply, SDK_FEATURES};
use crate::commands::count;
use crate::server::{Kedge, Setup};

pub(crate) const POLICIES: [EvictionPolicy; 2] =
    [EvictionPolicy::ValueOnly, EvictionPolicy::FullEviction];
/// A generous deadline.
const DEADLINE: Duration = Duration::from_secs(60);

/// A server on a real disk whose bucket evicts: front-end threads read documents with a known file position themselves.
pub(crate) fn start(policy: EvictionPolicy, quota_bytes: u64) -> (Kedge, Arc<Bucket>) {
    let mut setup = Setup::default();
    setup.bucket.eviction_policy = policy;
    setup.bucket.quota_bytes = quota_bytes;
    setup.bucket.apply_max_lag_ms = 50;
    let kedge = Kedge::with(setup.on_a_real_disk());
    let bucket = kedge.server().registry().get("default").unwrap();
    (kedge, bucket)
}

pub(crate) fn figure(bucket: &Bucket, name: &str) -> u64 {
    let figures = bucket.figures();
    let found = figures.iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("no {name}")).1
}

/// Number of commands that waited for the disk.
pub(crate) fn waited(bucket: &Bucket) -> u64 {
    figure(bucket, "ep_bg_num_samples")
}

pub(crate) fn until(why: &str, mut what: impl FnMut() -> bool) {
    let began = Instant::now();
    while !what() {
        assert!(began.elapsed() < DEADLINE, "{why}");
        std::thread::yield_now();
    }
}

/// Lowers the quota until no value stays in memory, and restores it.
pub(crate) fn evict_all(bucket: &Bucket) {
    let quota = |quota_bytes| BucketChange {
        quota_bytes: Some(quota_bytes),
        ..BucketChange::default()
    };
    let before = bucket.config().quota_bytes;
    bucket.update(&quota(1)).unwrap();
    until("all values leave", || {
        bucket.persistence().apply().unwrap();
        figure(bucket, "ep_num_non_resident") == figure(bucket, "curr_items")
    });
    bucket.update(&quota(before)).unwrap();
}

/// A command on a key. Its reply for an evicted document must be that for one in memory.
struct Case {
    opcode: Opcode,
    extras: Vec<u8>,
    value: &'static [u8],
    /// The status for a document "10", and the value of the reply as text, or as a number.
    status: Status,
    reply: &'static str,
    /// The document afterwards; `None` if it was deleted.
    then: Option<&'static str>,
}

fn case(
    opcode: Opcode,
    extras: &[u8],
    value: &'static [u8],
    reply: &'static str,
    then: &'static str,
) -> Case {
    Case {
        opcode,
        extras: extras.to_vec(),
        value,
        status: Status::Success,
        reply,
        then: Some(then),
    }
}

fn cases() -> Vec<Case> {
    let hour = 3_600_u32.to_be_bytes();
    let half_a_minute = 30_u32.to_be_bytes();
    vec![
        case(Opcode::Get, &[], b"", "10", "10"),
        case(Opcode::Getk, &[], b"", "10", "10"),
        case(Opcode::GetLocked, &half_a_minute, b"", "10", "10"),
        case(Opcode::Gat, &hour, b"", "10", "10"),
        case(Opcode::Touch, &hour, b"", "", "10"),
        case(Opcode::Set, &[0; 8], b"11", "", "11"),
        Case {
            status: Status::KeyExists,
            ..case(Opcode::Add, &[0; 8], b"11", "", "10")
        },
        case(Opcode::Replace, &[0; 8], b"11", "", "11"),
        case(Opcode::Append, &[], b"1", "", "101"),
        case(Opcode::Prepend, &[], b"1", "", "110"),
        case(Opcode::Increment, &count(5, 0, 0), b"", "15", "15"),
        case(Opcode::Decrement, &count(4, 0, 0), b"", "6", "6"),
        Case {
            then: None,
            ..case(Opcode::Delete, &[], b"", "", "")
        },
    ]
}

/// The key of case number `n` in a variant of the test.
fn name(way: &str, n: usize) -> String {
    format!("{way}-{n}")
}

fn frame(client: &mut Client, case: &Case, key: &str) -> Frame {
    let frame = client.request(case.opcode).key(key);
    frame.extras(&case.extras).value(case.value)
}

#[track_caller]
fn check(case: &Case, reply: &Reply) {
    let what = format!("{:?}: {reply:?}", case.opcode);
    assert_eq!(reply.status, case.status, "{what}");
    if reply.status != Status::Success {
        return;
    }
    let text = match case.opcode {
        Opcode::Increment | Opcode::Decrement => decode_counter(&reply.value).unwrap().to_string(),
        _ => reply.text(),
    };
    assert_eq!(text, case.reply, "{what}");
    assert!(reply.cas > 0, "{what}");
}

#[track_caller]
fn check_then(client: &mut Client, case: &Case, key: &str) {
    let reply = client.get(key);
    match case.then {
        Some(text) => assert_eq!(reply.ok().text(), text, "{:?}", case.opcode),
        None => assert_eq!(reply.status, Status::KeyNotFound, "{:?}", case.opcode),
    }
}

#[test]
fn every_command_answers_the_same_for_evicted_documents() {
    for policy in POLICIES {
        let (kedge, bucket) = start(policy, 256 << 20);
        let mut client = kedge.client();
        let cases = cases();
        let ways = ["one by one", "pipelined", "durable", "again"];
        for way in ways {
            for n in 0..cases.len() {
                client.set(&name(way, n), b"10").ok();
            }
        }
        evict_all(&bucket);
        // A store needs no fetch while keys are in memory, and none without a CAS.
        let in_memory = |case: &&Case| {
            let full = policy == EvictionPolicy::FullEviction;
            let of_keys = [Opcode::Add, Opcode::Replace, Opcode::Delete].contains(&case.opcode);
            case.opcode == Opcode::Set || of_keys && !full
        };
        let wait = cases.len() - cases.iter().filter(in_memory).count();

        let before = waited(&bucket);
        for (n, case) in cases.iter().enumerate() {
            let frame = frame(&mut client, case, &name(ways[0], n));
            check(case, &client.call(&frame));
        }
        assert_eq!(waited(&bucket) - before, wait as u64, "they waited");

        // All in one write: the replies come in the order of the commands.
        let frames = cases.iter().enumerate().map(|(n, case)| {
            let frame = frame(&mut client, case, &name(ways[1], n));
            (frame.opaque, frame.bytes())
        });
        let (opaques, bytes): (Vec<u32>, Vec<Vec<u8>>) = frames.unzip();
        client.send(&bytes.concat());
        for (case, opaque) in cases.iter().zip(opaques) {
            let reply = client.reply();
            assert_eq!(reply.opaque, opaque);
            check(case, &reply);
        }

        let locked = cases
            .iter()
            .position(|case| case.opcode == Opcode::GetLocked);
        let locked = name(ways[1], locked.unwrap());
        assert_eq!(client.set(&locked, b"x").status, Status::Locked);

        // Commands that write, until they are on disk.
        let reads = [Opcode::Get, Opcode::Getk, Opcode::GetLocked, Opcode::Gat];
        let writes = |case: &&Case| !reads.contains(&case.opcode) && case.opcode != Opcode::Touch;
        for (n, case) in cases.iter().enumerate() {
            if writes(&case) {
                let frame = frame(&mut client, case, &name(ways[2], n));
                check(
                    case,
                    &client.call(&frame.durable(DurabilityLevel::PersistToMajority)),
                );
            }
        }

        for (n, case) in cases.iter().enumerate() {
            for way in &ways[..2] {
                check_then(&mut client, case, &name(way, n));
            }
            if writes(&case) {
                check_then(&mut client, case, &name(ways[2], n));
            }
            assert_eq!(client.get(&name(ways[3], n)).ok().text(), "10");
        }
        assert_eq!(client.get("never").status, Status::KeyNotFound);
    }
}

#[test]
fn eviction_preserves_cas_and_metadata() {
    for policy in POLICIES {
        let (kedge, bucket) = start(policy, 256 << 20);
        let mut client = kedge.client();
        let flags = [0, 0, 0, 7, 0, 0, 0, 0];
        let frame = client.request(Opcode::Set).store("k", b"10").extras(&flags);
        let stored = client.call(&frame).ok();
        client.set("gone", b"1").ok();
        let frame = client.request(Opcode::Delete).key("gone");
        client.call(&frame).ok();
        evict_all(&bucket);
        let frame = client.request(Opcode::GetMeta).key("k");
        let meta = client.call(&frame).ok();
        assert_eq!(meta.cas, stored.cas);
        let meta = GetMetaReply::decode(&meta.extras).unwrap();
        assert_eq!((meta.flags, meta.deleted), (7, false));
        let frame = client
            .request(Opcode::Set)
            .store("k", b"11")
            .cas(stored.cas + 1);
        assert_eq!(client.call(&frame).status, Status::KeyExists);
        let read = client.get("k").ok();
        assert_eq!(
            (read.cas, read.flags(), read.text()),
            (stored.cas, 7, "10".to_owned())
        );
        evict_all(&bucket);
        let frame = client
            .request(Opcode::Append)
            .key("k")
            .value(b"0")
            .cas(stored.cas);
        let appended = client.call(&frame).ok();
        let read = client.get("k").ok();
        assert_eq!(
            (read.cas, read.flags(), read.text()),
            (appended.cas, 7, "100".to_owned())
        );
        assert_eq!(client.get("gone").status, Status::KeyNotFound);
        let frame = client.request(Opcode::Add).store("gone", b"2");
        client.call(&frame).ok();
        assert_eq!(client.get("gone").ok().text(), "2");
    }
}

#[test]
fn text_protocol_answers_evicted_documents_in_order() {
    let rows = [
        ("get a\r\n", "VALUE a 7 2\r\n10\r\nEND\r\n"),
        (
            "get a no b a c\r\n",
            "VALUE a 7 2\r\n10\r\nVALUE b 7 2\r\n10\r\nVALUE a 7 2\r\n10\r\nVALUE c 7 2\r\n10\r\nEND\r\n",
        ),
        (
            "gat 3600 a no d\r\n",
            "VALUE a 7 2\r\n10\r\nVALUE d 7 2\r\n10\r\nEND\r\n",
        ),
        ("touch e 3600\r\n", "TOUCHED\r\n"),
        ("add f 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
        ("replace g 0 0 1\r\nx\r\n", "STORED\r\n"),
        ("append h 0 0 1\r\nx\r\n", "STORED\r\n"),
        ("prepend i 0 0 1\r\nx\r\n", "STORED\r\n"),
        ("incr j 5\r\n", "15\r\n"),
        ("decr k 5\r\n", "5\r\n"),
        ("delete l\r\n", "DELETED\r\n"),
        ("append m 0 0 1 noreply\r\ny\r\n", ""),
        ("mg n v f\r\n", "VA 2 f7\r\n10\r\n"),
        ("mg o q v\r\n", "VA 2\r\n10\r\n"),
        ("ms p 1 MA\r\nz\r\n", "HD\r\n"),
        ("ma q v\r\n", "VA 2\r\n11\r\n"),
        ("md r\r\n", "HD\r\n"),
        ("me no\r\n", "EN\r\n"),
        ("mn\r\n", "MN\r\n"),
    ];
    let after = "get f g h i j k l m p q r\r\n";
    let found = "VALUE f 7 2\r\n10\r\nVALUE g 0 1\r\nx\r\nVALUE h 7 3\r\n10x\r\nVALUE i 7 3\r\nx10\r\n\
                 VALUE j 7 2\r\n15\r\nVALUE k 7 1\r\n5\r\nVALUE m 7 3\r\n10y\r\nVALUE p 7 3\r\n10z\r\n\
                 VALUE q 7 2\r\n11\r\nEND\r\n";
    for policy in POLICIES {
        for at_once in [false, true] {
            let (kedge, bucket) = start(policy, 256 << 20);
            let mut text = kedge.text();
            for key in 'a'..='r' {
                text.expect(&format!("set {key} 7 0 2\r\n10\r\n"), "STORED\r\n");
            }
            evict_all(&bucket);
            if at_once {
                let (sent, expected): (Vec<&str>, Vec<&str>) = rows.iter().copied().unzip();
                text.expect(&sent.concat(), &expected.concat());
            } else {
                for (sent, expected) in rows {
                    text.expect(sent, expected);
                }
            }
            assert!(waited(&bucket) > 10, "{} waited", waited(&bucket));
            evict_all(&bucket);
            text.expect(after, found);
        }
    }
}

/// The value of document number `n`; it cannot be compressed to nothing.
fn value(n: u32) -> Vec<u8> {
    (0..600_u32)
        .map(|at| (at * at * 7 + n * 31 + at * n) as u8)
        .collect()
}

const DOCUMENTS: u32 = 3_000;

/// Several times as many documents as fit into memory.
fn with_more_than_fits(policy: EvictionPolicy) -> (Kedge, Arc<Bucket>) {
    let (kedge, bucket) = start(policy, 1 << 20);
    let mut client = kedge.client();
    for n in 0..DOCUMENTS {
        until("there is room", || {
            match client.set(&name("key", n as usize), &value(n)).status {
                Status::Success => true,
                Status::TemporaryFailure => false,
                other => panic!("{other:?}"),
            }
        });
    }
    let left = figure(&bucket, "ep_num_value_ejects") + figure(&bucket, "ep_num_item_ejects");
    assert!(left > u64::from(DOCUMENTS) / 4, "{left} left");
    (kedge, bucket)
}

#[test]
fn pipeline_reads_more_than_fits_in_memory() {
    for policy in POLICIES {
        let (kedge, bucket) = with_more_than_fits(policy);
        let mut client = kedge.client();
        let order = |n: u32| n * 7 % DOCUMENTS;
        let mut bytes = Vec::new();
        for n in 0..DOCUMENTS {
            let key = name("key", order(n) as usize);
            bytes.extend(client.request(Opcode::Get).key(&key).bytes());
        }
        let mut sender = client.stream.try_clone().unwrap();
        let sending = std::thread::spawn(move || std::io::Write::write_all(&mut sender, &bytes));
        let first = client.reply();
        let mut last = first.opaque;
        assert!(first.ok().value == value(order(0)));
        for n in 1..DOCUMENTS {
            let reply = client.reply().ok();
            assert_eq!(reply.opaque, last + 1);
            assert!(reply.value == value(order(n)), "{n}");
            last = reply.opaque;
        }
        sending.join().unwrap().unwrap();
        assert!(waited(&bucket) > 500, "{} waited", waited(&bucket));
    }
}

#[test]
fn front_end_threads_read_located_documents_themselves() {
    if kedge_disk::ReadRing::new(1).is_err() {
        return;
    }
    for policy in POLICIES {
        let (kedge, bucket) = start(policy, 256 << 20);
        let mut client = kedge.client();
        for n in 0..DOCUMENTS {
            client.set(&name("key", n as usize), &value(n)).ok();
        }
        let mut read = |from: u32| {
            let before = figure(&bucket, "ep_bg_fetched_by_front_ends");
            evict_all(&bucket);
            for n in from..DOCUMENTS {
                let reply = client.get(&name("key", n as usize)).ok();
                assert!(reply.value == value(n), "{n}");
            }
            figure(&bucket, "ep_bg_fetched_by_front_ends") - before
        };
        // Tasks read the nodes of the B-trees, which stay in memory.
        read(0);
        assert_eq!(read(100), u64::from(DOCUMENTS - 100));
        assert_eq!(figure(&bucket, "ep_bg_fetch_failures"), 0);
        let reads = bucket.pending_io(Duration::ZERO).reads;
        assert_eq!(reads, 0, "none is under way");
    }
}

#[test]
fn unordered_execution_answers_each_fetch_once() {
    for policy in POLICIES {
        let (kedge, _) = with_more_than_fits(policy);
        let mut client = kedge.client();
        client.hello(SDK_FEATURES.with(Feature::UnorderedExecution));
        let mut waiting = BTreeSet::new();
        let mut keys = Vec::new();
        let mut bytes = Vec::new();
        for n in (0..DOCUMENTS).step_by(10) {
            let frame = client.request(Opcode::Get).key(&name("key", n as usize));
            waiting.insert(frame.opaque);
            keys.push((frame.opaque, n));
            bytes.extend(frame.bytes());
        }
        client.send(&bytes);
        while !waiting.is_empty() {
            let reply = client.reply().ok();
            assert!(waiting.remove(&reply.opaque), "{} came twice", reply.opaque);
            let (_, n) = keys
                .iter()
                .find(|(opaque, _)| *opaque == reply.opaque)
                .unwrap();
            assert!(reply.value == value(*n), "{n}");
        }
    }
}

#[test]
fn disconnect_leaves_no_waiting_fetch() {
    for policy in POLICIES {
        let (kedge, bucket) = start(policy, 256 << 20);
        let mut client = kedge.client();
        let keys: Vec<String> = (0..300).map(|n| name("key", n)).collect();
        for key in &keys {
            client.set(key, b"10").ok();
        }
        for round in 0..4 {
            evict_all(&bucket);
            let mut other = kedge.client();
            if round % 2 == 1 {
                other.hello(SDK_FEATURES.with(Feature::UnorderedExecution));
            }
            let mut bytes = Vec::new();
            for (n, key) in keys.iter().enumerate() {
                let frame = if n % 3 == 0 {
                    other.request(Opcode::Append).key(key).value(b"1")
                } else {
                    other.request(Opcode::Get).key(key)
                };
                bytes.extend(frame.bytes());
            }
            if round < 2 {
                // In the middle of a frame.
                bytes.truncate(bytes.len() - 3);
            }
            other.send(&bytes);
            let read = other.reply();
            assert_eq!(read.status, Status::Success);
            other.stream.shutdown(Shutdown::Both).unwrap();
            drop(other);
            until("nothing waits", || {
                let waits = figure(&bucket, "ep_bg_remaining_items");
                let parked = figure(&bucket, "ep_parked_commands");
                let connections = kedge.server().metrics().snapshot().curr_connections;
                waits == 0 && parked == 0 && connections == 1
            });
        }
        for (n, key) in keys.iter().enumerate() {
            // Each append was executed once or not at all.
            let text = client.get(key).ok().text();
            let ones = text
                .strip_prefix("10")
                .unwrap_or_else(|| panic!("{key}: {text}"));
            assert!(
                ones.len() <= if n % 3 == 0 { 4 } else { 0 },
                "{key}: {text}"
            );
            assert!(ones.bytes().all(|byte| byte == b'1'), "{key}: {text}");
        }
        assert_eq!(
            client.get(&keys[0]).ok().text(),
            "101111",
            "the first of each was done"
        );
    }
}
