//! Tests of the effect of bucket settings on commands, from the moment of their change.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use kedge_bucket::{BucketChange, CompressionMode};
use kedge_disk::Rng;
use kedge_protocol::binary::Opcode;
use kedge_protocol::binary::commands::GetMetaReply;
use kedge_types::{Datatype, DurabilityLevel, Status};

use crate::client::{Client, Frame};
use crate::commands::count;
use crate::server::{Kedge, Setup};

fn change(kedge: &Kedge, change: &BucketChange) {
    let registry = kedge.server().registry();
    registry.update("default", change).unwrap();
}

const LEVELS: [DurabilityLevel; 3] = [
    DurabilityLevel::Majority,
    DurabilityLevel::MajorityAndPersistOnActive,
    DurabilityLevel::PersistToMajority,
];

/// The number of committed SyncWrites of each level.
fn committed(kedge: &Kedge) -> [u64; 3] {
    let bucket = kedge.server().registry().get("default").unwrap();
    [
        "sync_write_commit_majority",
        "sync_write_commit_majority_and_persist_to_active",
        "sync_write_commit_persist_to_majority",
    ]
    .map(|name| bucket.timings().snapshot(name).unwrap().count)
}

/// Every kind of write, of existing documents.
fn writes(client: &mut Client, round: usize) -> Vec<Frame> {
    let mut frame = |opcode: Opcode| client.request(opcode);
    let new = format!("new-{round}");
    vec![
        frame(Opcode::Set).store("set", b"v"),
        frame(Opcode::Add).store(&new, b"v"),
        frame(Opcode::Replace).store("set", b"w"),
        frame(Opcode::Append).key("set").value(b"x"),
        frame(Opcode::Prepend).key("set").value(b"x"),
        frame(Opcode::Increment).key("n").extras(&count(1, 1, 0)),
        frame(Opcode::Decrement).key("n").extras(&count(1, 1, 0)),
        frame(Opcode::Delete).key(&new),
    ]
}

#[test]
fn durability_min_level_raises_every_write() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    let rows = [None, Some(0), Some(1), Some(2)];
    let mut round = 0;
    for least in rows {
        change(
            &kedge,
            &BucketChange {
                durability_min_level: Some(least.map_or(0, |at: usize| LEVELS[at] as u8)),
                ..BucketChange::default()
            },
        );
        for asked in rows {
            round += 1;
            for write in writes(&mut client, round) {
                let write = match asked {
                    Some(level) => write.durable(LEVELS[level]),
                    None => write,
                };
                let mut expected = committed(&kedge);
                client.call(&write).ok();
                if let Some(level) = least.max(asked) {
                    expected[level] += 1;
                }
                let case = format!("{:?}: {least:?}, {asked:?}", write.opcode);
                assert_eq!(committed(&kedge), expected, "{case}");
            }
        }
    }
}

fn now_secs() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u32::try_from(since.as_secs()).unwrap()
}

fn expiry_of(client: &mut Client, key: &str) -> u32 {
    let frame = client.request(Opcode::GetMeta).key(key);
    let reply = client.call(&frame).ok();
    GetMetaReply::decode(&reply.extras).unwrap().expiry
}

#[test]
fn max_ttl_caps_every_expiry() {
    const MAX: u32 = 10_000;
    let limit = |secs| BucketChange {
        max_ttl_secs: Some(secs),
        ..BucketChange::default()
    };
    let store = |expiry: u32| [[0; 4], expiry.to_be_bytes()].concat();
    let kedge = Kedge::start();
    let mut client = kedge.client();
    client.set("before", b"1").ok();
    client.set("touched", b"1").ok();
    change(&kedge, &limit(MAX));
    assert_eq!(expiry_of(&mut client, "before"), 0, "what is there stays");
    let far = now_secs() + 10 * MAX;
    // (opcode, key, extras, requested seconds, or more than the bucket allows)
    for (opcode, key, extras, asked) in [
        (Opcode::Set, "a", store(0), None),
        (Opcode::Set, "a", store(5_000), Some(5_000)),
        (Opcode::Set, "a", store(MAX), Some(MAX)),
        (Opcode::Set, "a", store(MAX + 1_000), None),
        (Opcode::Set, "a", store(far), None),
        (Opcode::Replace, "a", store(0), None),
        (Opcode::Add, "b", store(far), None),
        (Opcode::Increment, "n", count(1, 1, 0), None),
        (Opcode::Increment, "m", count(1, 1, 60), Some(60)),
        (Opcode::Touch, "touched", far.to_be_bytes().to_vec(), None),
        (
            Opcode::Touch,
            "touched",
            60_u32.to_be_bytes().to_vec(),
            Some(60),
        ),
        (Opcode::Gat, "touched", vec![0; 4], None),
    ] {
        let frame = client.request(opcode).key(key).extras(&extras);
        let frame = match opcode {
            Opcode::Set | Opcode::Add | Opcode::Replace => frame.value(b"1"),
            _ => frame,
        };
        let earliest = now_secs();
        client.call(&frame).ok();
        let latest = now_secs();
        let secs = asked.unwrap_or(MAX);
        let expiry = expiry_of(&mut client, key);
        assert!(
            (earliest + secs..=latest + secs).contains(&expiry),
            "{opcode:?} {extras:?}: {expiry}, {earliest}"
        );
    }
    change(&kedge, &limit(0));
    assert_ne!(expiry_of(&mut client, "a"), 0, "what it did stays");
    client.set("a", b"1").ok();
    assert_eq!(expiry_of(&mut client, "a"), 0);
}

#[test]
fn compression_mode_applies_to_stored_values() {
    let mut setup = Setup::default();
    setup.bucket.compression = CompressionMode::Off;
    let kedge = Kedge::with(setup);
    let mut client = kedge.client();
    let value = b"0123456789".repeat(500);
    let packed = snap::raw::Encoder::new().compress_vec(&value).unwrap();
    let mut stored_as = |kedge: &Kedge, mode| {
        change(
            kedge,
            &BucketChange {
                compression: Some(mode),
                ..BucketChange::default()
            },
        );
        let set = client.request(Opcode::Set).store("k", &packed);
        client.call(&set.datatype(Datatype::SNAPPY)).ok();
        let got = client.get("k").ok();
        let is_packed = got.datatype & Datatype::SNAPPY.bits() != 0;
        assert_eq!(&got.value, if is_packed { &packed } else { &value });
        assert_eq!(kedge.bare().get("k").ok().value, value);
        is_packed
    };
    assert!(!stored_as(&kedge, CompressionMode::Off));
    assert!(stored_as(&kedge, CompressionMode::Passive));
    assert!(stored_as(&kedge, CompressionMode::Active));
    assert!(!stored_as(&kedge, CompressionMode::Off));
}

#[test]
fn flush_enabled_changes_at_runtime() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    for allowed in [false, true, false] {
        change(
            &kedge,
            &BucketChange {
                flush_enabled: Some(allowed),
                ..BucketChange::default()
            },
        );
        client.set("k", b"v").ok();
        let expected = if allowed {
            (Status::Success, Status::KeyNotFound)
        } else {
            (Status::NotSupported, Status::Success)
        };
        let flushed = client.simple(Opcode::Flush).status;
        assert_eq!((flushed, client.get("k").status), expected);
    }
}

/// Random letters, which do not compress.
fn noise(seed: u32) -> Vec<u8> {
    Rng::new(seed.into()).bytes(10_000)
}

#[test]
fn lower_quota_evicts_documents() {
    const DOCUMENTS: u32 = 600;
    let mut setup = Setup::default();
    setup.bucket.quota_bytes = 64 << 20;
    let kedge = Kedge::with(setup);
    let mut client = kedge.client();
    for n in 0..DOCUMENTS {
        client.set(&n.to_string(), &noise(n)).ok();
    }
    let bucket = kedge.server().registry().get("default").unwrap();
    let quota = 2_u64 << 20;
    let used = || {
        let figures = bucket.figures();
        figures
            .iter()
            .find(|(name, _)| *name == "mem_used")
            .unwrap()
            .1
    };
    assert!(used() > 2 * quota);
    change(
        &kedge,
        &BucketChange {
            quota_bytes: Some(quota),
            ..BucketChange::default()
        },
    );
    let deadline = Instant::now() + Duration::from_secs(60);
    for n in 0..DOCUMENTS {
        let key = format!("later-{n}");
        loop {
            let reply = client.set(&key, &noise(n));
            if reply.status != Status::TemporaryFailure {
                reply.ok();
                break;
            }
            assert!(Instant::now() < deadline, "writes do not recover");
        }
    }
    while used() > quota {
        assert!(Instant::now() < deadline, "documents stay in memory");
        std::thread::yield_now();
    }
    for n in 0..DOCUMENTS {
        assert!(client.get(&n.to_string()).ok().value == noise(n), "{n}");
    }
}
