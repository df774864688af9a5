//! Tests of commands about a whole node or bucket, beside a client with short commands.
//!
//! The waits of the other client are printed only. `KEDGE_LONG_COMMANDS=full` uses the default number of vBuckets, and
//! nearly the largest number of collections.

use kedge_protocol::binary::Opcode;
use kedge_types::{Status, VbId};

use crate::canary::{Canary, is_full};
use crate::client::{Client, Frame, SDK_FEATURES};
use crate::collections::{create, create_scope, edit};
use crate::range_scan::{create_in, go_on, range};
use crate::server::{Kedge, PASSWORD, Setup};
use crate::stats::stat;

struct Size {
    vbuckets: u16,
    collections: usize,
    /// A key of the first vBucket.
    documents: usize,
}

fn client(kedge: &Kedge) -> Client {
    let mut client = kedge.connect();
    client.hello(SDK_FEATURES);
    client.log_in("root", PASSWORD);
    client.select("default");
    client
}

/// Stores documents of the first vBucket, many at a time.
fn store(client: &mut Client, documents: usize) {
    let keys: Vec<String> = (0..documents)
        .map(|number| format!("key-{number:06}"))
        .collect();
    for keys in keys.chunks(1_000) {
        let mut bytes = Vec::new();
        for key in keys {
            let mut frame = client.request(Opcode::Set).store(key, b"v");
            frame.vb = 0;
            bytes.extend(frame.bytes());
        }
        client.send(&bytes);
        for _ in keys {
            client.reply().ok();
        }
    }
}

fn first_vbucket(client: &mut Client, opcode: Opcode) -> Frame {
    let mut frame = client.request(opcode).key("key-000000");
    frame.vb = 0;
    frame
}

#[test]
fn node_wide_commands_do_not_block_others() {
    let size = match is_full() {
        true => Size {
            vbuckets: 1_024,
            collections: 1_190,
            documents: 300_000,
        },
        false => Size {
            vbuckets: 16,
            collections: 20,
            documents: 2_000,
        },
    };
    let mut setup = Setup::default();
    setup.bucket.vbuckets = size.vbuckets;
    setup.bucket.quota_bytes = 2 << 30;
    let kedge = Kedge::with(setup);
    let name = |number: usize| {
        format!(
            "{}-{number:04}",
            "c".repeat(if is_full() { 200 } else { 9 })
        )
    };
    let names: Vec<String> = (0..size.collections).map(name).collect();
    let mut edits = vec![create_scope("s")];
    edits.extend(names.iter().map(|name| create("s", name)));
    edit(&kedge, &edits);
    let mut asks = client(&kedge);
    store(&mut asks, size.documents);
    let canary = Canary::default();
    std::thread::scope(|scope| {
        let other = client(&kedge);
        let canary = &canary;
        scope.spawn(move || canary.run_in(other, VbId(0), "key-000000"));
        let _over = canary.ends();
        let say = |what: &str| {
            let server = kedge.server().metrics().snapshot();
            println!(
                "{what:<32} others waited {:?}, turns over 10 ms so far: {}, the longest {} us",
                canary.waited(),
                server.long_turns,
                server.longest_turn_us
            );
        };
        say("");
        for group in [
            "",
            "collections",
            "collections-details",
            "scopes",
            "scopes-details",
            "vbucket",
            "vbucket-details",
            "vbucket-seqno",
            "hash",
            "failovers",
            "checkpoint",
            "diskinfo",
            "diskinfo detail",
            "durability-monitor",
            "vbucket-durability-state",
            "timings",
            "kvtimings",
            "tasks-all",
            "runtimes",
            "scheduler",
            "dcp",
            "dcpagg",
            "config",
            "memory",
            "manifest",
            "connections",
            "settings",
            "conns",
            "frequency-counters",
            "eviction",
        ] {
            let lines = stat(&mut asks, group).unwrap().len();
            say(&format!("STAT {group}: {lines} lines"));
        }
        for opcode in [
            Opcode::CollectionsGetManifest,
            Opcode::GetAllVbSeqnos,
            Opcode::GetClusterConfig,
            Opcode::ListBuckets,
            Opcode::GetRandomKey,
        ] {
            let frame = asks.request(opcode);
            asks.call(&frame).ok();
            say(opcode.name());
        }
        // In the last collection, which has no document, so each vBucket is searched.
        let last = u32::try_from(size.collections).unwrap() + 7;
        let state = 1_u32.to_be_bytes();
        let frame = asks.request(Opcode::GetAllVbSeqnos);
        let frame = frame.extras(&[state, last.to_be_bytes()].concat());
        let seqnos = asks.call(&frame).ok().value;
        assert_eq!(seqnos.len(), usize::from(size.vbuckets) * 10);
        say("GET_ALL_VB_SEQNOS of a collection");
        let frame = asks
            .request(Opcode::GetRandomKey)
            .extras(&last.to_be_bytes());
        assert_eq!(asks.call(&frame).status, Status::KeyNotFound);
        say("GET_RANDOM_KEY of none");
        let path = format!("s.{}", names[names.len() - 1]);
        let frame = asks
            .request(Opcode::CollectionsGetId)
            .value(path.as_bytes());
        asks.call(&frame).ok();
        say("COLLECTIONS_GET_ID");
        let frame = first_vbucket(&mut asks, Opcode::GetKeys).extras(&10_000_u32.to_be_bytes());
        asks.call(&frame).ok();
        say("GET_KEYS");
        let created = create_in(&mut asks, 0, &range("a", "z")).ok();
        say("RANGE_SCAN_CREATE");
        let id =
            kedge_protocol::binary::commands::range_scan::ScanId(created.value.try_into().unwrap());
        let limits = crate::range_scan::Limits {
            items: 0,
            ms: 0,
            bytes: 0,
        };
        let replies = go_on(&mut asks, id, limits);
        assert_eq!(replies.last().unwrap().status, Status::RangeScanComplete);
        say("RANGE_SCAN_CONTINUE");
        let compact = Frame {
            vb: 0,
            ..asks.request(Opcode::CompactDb).extras(&[0; 24])
        };
        asks.call(&compact).ok();
        say("COMPACT_DB");
        let replica = Frame {
            vb: 1,
            ..asks.request(Opcode::SetVbucket).extras(&[2])
        };
        asks.call(&replica).ok();
        say("SET_VBUCKET");
        let delete = Frame {
            vb: 1,
            ..asks.request(Opcode::DelVbucket)
        };
        asks.call(&delete).ok();
        say("DEL_VBUCKET");
    });
}
