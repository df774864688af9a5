//! Tests of statistics of memory.

use std::collections::HashMap;
use std::sync::Arc;

use kedge_bucket::EvictionPolicy;
use kedge_disk::PosixDisk;
use kedge_protocol::binary::Opcode;
use kedge_types::{Status, VbId};
use serde_json::Value;

use crate::client::Client;
use crate::collections::{as_user, create, create_scope, edit};
use crate::compact::manager;
use crate::dcp::{Follower, keys_of};
use crate::evicted::{evict_all, start};
use crate::key_stats::in_memory_only;
use crate::replication::bucket;
use crate::server::{Kedge, Setup};
use crate::stats::stat;

/// Statistics of one vBucket as numbers.
fn numbers(of: &HashMap<String, String>, vb: VbId, names: &[&str]) -> Vec<u64> {
    let number = |name| {
        let text = &of[&format!("vb_{vb}:{name}")];
        text.parse().unwrap_or_else(|_| panic!("{name}: {text}"))
    };
    names.iter().map(number).collect()
}

#[test]
fn checkpoints_hold_unpersisted_and_unsent_items() {
    const NAMES: [&str; 7] = [
        "num_checkpoint_items",
        "num_open_checkpoint_items",
        "num_items_for_persistence",
        "persistence:num_items_for_cursor",
        "persistence:cursor_seqno",
        "num_conn_cursors",
        "num_checkpoints",
    ];
    let kedge = in_memory_only();
    let mut client = kedge.client();
    let (vb, other) = (VbId(3), VbId(4));
    bucket(&kedge).persistence().sync().unwrap();
    let mut of = |vb: VbId, names: &[&str]| {
        let one = stat(&mut client, &format!("checkpoint {vb}")).unwrap();
        assert_eq!(one[&format!("vb_{vb}:state")], "active");
        numbers(&one, vb, names)
    };
    assert_eq!(of(vb, &NAMES), [0, 0, 0, 0, 0, 1, 1]);
    let keys = keys_of(vb, 10);
    let mut writer = kedge.client();
    let mut uuid = 0;
    for key in &keys[..7] {
        uuid = writer.set(key, b"v").ok().token().vb_uuid.get();
    }
    assert_eq!(of(vb, &NAMES), [7, 7, 7, 7, 0, 1, 1]);
    assert_eq!(of(other, &NAMES), [0, 0, 0, 0, 0, 1, 1]);
    let memory = of(vb, &["mem_usage"])[0];
    assert!(memory > 7 * 2, "{memory}");
    let ids = ["open_checkpoint_id", "last_closed_checkpoint_id"];
    assert_eq!(of(vb, &ids), [1, 0]);
    bucket(&kedge).persistence().sync().unwrap();
    assert_eq!(of(vb, &NAMES), [0, 0, 0, 0, 7, 1, 1]);
    assert_eq!(of(vb, &["mem_usage"]), [0]);
    // A stream keeps what it has not sent.
    let mut follower = Follower::open(&kedge, "f", &[("connection_buffer_size", "1")]);
    follower.stream(vb, 7, uuid);
    for key in &keys[7..] {
        writer.set(key, b"v").ok();
    }
    bucket(&kedge).persistence().sync().unwrap();
    assert_eq!(of(vb, &NAMES)[5], 2);
    let sent = of(vb, &["f:cursor_seqno", "f:num_items_for_cursor"]);
    assert_eq!(sent.iter().sum::<u64>(), 10, "{sent:?}");
    let all = stat(&mut writer, "checkpoint").unwrap();
    assert_eq!(numbers(&all, vb, &["num_conn_cursors"]), [2]);
    assert_eq!(numbers(&all, other, &["num_conn_cursors"]), [1]);
    let refused = |group| stat(&mut kedge.client(), group).unwrap_err();
    assert_eq!(refused("checkpoint x"), Status::Invalid);
    assert_eq!(refused("checkpoint 16"), Status::NotMyVbucket);
}

#[test]
fn hash_stats_match_the_tables() {
    let kedge = in_memory_only();
    let mut client = kedge.client();
    let vb = VbId(3);
    let keys = keys_of(vb, 20);
    for key in &keys {
        client.set(key, &[7; 1_000]).ok();
    }
    for key in &keys[..5] {
        let delete = client.request(Opcode::Delete).key(key);
        client.call(&delete).ok();
    }
    let one = stat(&mut client, &format!("hash {vb}")).unwrap();
    let names = [
        "reported",
        "counted",
        "num_deleted_items",
        "num_non_resident",
    ];
    assert_eq!(numbers(&one, vb, &names), [20, 20, 5, 0]);
    let sizes = numbers(&one, vb, &["mem_size", "mem_size_counted", "size"]);
    assert_eq!(sizes[0], sizes[1], "{one:?}");
    assert!((15_000..25_000).contains(&sizes[0]), "{one:?}");
    assert!(sizes[2] >= 20, "{one:?}");
    let all = stat(&mut client, "hash").unwrap();
    assert_eq!(numbers(&all, vb, &names[..1]), [20]);
    assert_eq!(numbers(&all, VbId(4), &names[..1]), [0]);
    assert_eq!(
        numbers(&all, vb, &["counted", "min_depth", "max_depth"]),
        [20, 0, 1]
    );
    assert_eq!(
        numbers(&all, VbId(4), &["counted", "min_depth", "max_depth"]),
        [0, 0, 0]
    );
    assert_eq!(all["vb_15:state"], "active");
    assert_eq!(stat(&mut client, "hash 16"), Err(Status::NotMyVbucket));
}

fn histogram(of: &HashMap<String, String>, name: &str) -> Vec<(u64, u64)> {
    let json: Value = serde_json::from_str(&of[name]).unwrap();
    let rows = json["data"].as_array().unwrap();
    let row = |row: &Value| (row[0].as_u64().unwrap(), row[1].as_u64().unwrap());
    rows.iter().map(row).collect()
}

#[test]
fn frequency_counters_and_evictions() {
    /// The initial frequency counter of a document.
    const FIRST: u64 = 64;
    let (kedge, bucket) = start(EvictionPolicy::ValueOnly, 256 << 20);
    let mut client = kedge.client();
    let empty = stat(&mut client, "frequency-counters").unwrap();
    assert_eq!(empty, HashMap::new());
    for n in 0..50 {
        client.set(&format!("k{n}"), b"value").ok();
    }
    // Only persisted documents may be evicted.
    bucket.persistence().apply().unwrap();
    client.get("k0").ok();
    let counters = stat(&mut client, "frequency-counters").unwrap();
    assert_eq!(counters.len(), 1, "{counters:?}");
    let counts = histogram(&counters, "vb_active_evictable_mfu");
    assert_eq!(counts, [(FIRST, 49), (FIRST + 1, 1)]);
    assert_eq!(stat(&mut client, "eviction").unwrap(), HashMap::new());
    evict_all(&bucket);
    let evicted = stat(&mut client, "eviction").unwrap();
    assert_eq!(evicted.len(), 1, "{evicted:?}");
    let counts = histogram(&evicted, "ep_active_or_pending_eviction_values_evicted");
    assert_eq!(counts.iter().map(|(_, count)| count).sum::<u64>(), 50);
    assert!(counts.iter().all(|(at, _)| *at <= FIRST + 1), "{counts:?}");
    stat(&mut client, "reset").unwrap();
    assert_eq!(stat(&mut client, "eviction").unwrap(), HashMap::new());
}

#[test]
fn prev_vbucket_shows_states_before_the_restart() {
    let dir = tempfile::tempdir().unwrap();
    let start = || {
        Kedge::with(Setup {
            disk: Arc::new(PosixDisk),
            data_dir: dir.path().to_owned(),
            ..Setup::default()
        })
    };
    let set_state = |client: &mut Client, vb, state| {
        let mut frame = client.request(Opcode::SetVbucket).extras(&[state]);
        frame.vb = vb;
        client.call(&frame).ok();
    };
    let kedge = start();
    let mut manager = manager(&kedge);
    let before = stat(&mut manager, "prev-vbucket").unwrap();
    let dead = |vb: u16| before[&format!("vb_{vb}")] == "dead";
    assert!(
        before.len() == 16 && (0..16).all(dead),
        "there were none: {before:?}"
    );
    set_state(&mut manager, 3, 2);
    set_state(&mut manager, 4, 4);
    let mut delete = manager.request(Opcode::DelVbucket).value(b"async=0");
    delete.vb = 4;
    manager.call(&delete).ok();
    kedge.stop();
    let kedge = start();
    let mut manager = crate::compact::manager(&kedge);
    set_state(&mut manager, 3, 1);
    let before = stat(&mut manager, "prev-vbucket").unwrap();
    for (vb, state) in [(2, Some("active")), (3, Some("replica")), (4, None)] {
        let found = before.get(&format!("vb_{vb}")).map(String::as_str);
        assert_eq!(found, state, "{vb}");
    }
    let now = stat(&mut manager, "vbucket 3").unwrap();
    assert_eq!(now["vb_3"], "active");
    let one = stat(&mut manager, "prev-vbucket 3").unwrap();
    assert_eq!((one.len(), &*one["vb_3"]), (1, "replica"));
    let gone = stat(&mut manager, "prev-vbucket 4");
    assert_eq!(gone, Err(Status::NotMyVbucket));
}

#[test]
fn manifest_stats() {
    let kedge = Kedge::start();
    edit(
        &kedge,
        &[create_scope("s"), create("s", "a"), create("s", "b")],
    );
    let mut client = kedge.client();
    let all = stat(&mut client, "manifest").unwrap();
    for (name, value) in [
        ("manifest_uid", "0x3"),
        ("scopes", "2"),
        ("collections", "3"),
        ("vb_0:manifest:uid", "0x3"),
        ("vb_15:manifest:uid", "0x3"),
    ] {
        assert_eq!(all[name], value, "{name}");
    }
    let one = stat(&mut client, "manifest 7").unwrap();
    assert_eq!(one.len(), 1);
    assert_eq!(one["vb_7:manifest:uid"], "0x3");
    let mut narrow = as_user(&kedge, "narrow", "data_monitoring[default:s:a]");
    let seen = stat(&mut narrow, "manifest").unwrap();
    assert_eq!((&*seen["scopes"], &*seen["collections"]), ("1", "1"));
}

#[test]
fn takeover_stats_estimate_remaining_items() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    let vb = VbId(3);
    let mut uuid = 0;
    for key in keys_of(vb, 10) {
        uuid = client.set(&key, b"v").ok().token().vb_uuid.get();
    }
    let mut ask = |name: &str| {
        let all = stat(&mut client, &format!("dcp-vbtakeover {vb} {name}")).unwrap();
        assert_eq!(
            (all["name"].as_str(), all["vb_items"].as_str()),
            (name, "10")
        );
        let estimate = all["estimate"].parse::<u64>().unwrap();
        let parts =
            ["backfillRemaining", "chk_items"].map(|name| all[name].parse::<u64>().unwrap());
        (all["status"].clone(), estimate, parts.iter().sum::<u64>())
    };
    let nothing = ("connection_does_not_exist".to_owned(), 10, 0);
    assert_eq!(ask("f"), nothing);
    let mut follower = Follower::open(&kedge, "f", &[("connection_buffer_size", "1")]);
    assert_eq!(ask("f"), ("stream_does_not_exist".to_owned(), 10, 0));
    follower.stream(vb, 4, uuid);
    let (status, estimate, parts) = ask("f");
    assert!(["in-memory", "backfilling"].contains(&&*status), "{status}");
    assert!(estimate <= 6 && parts == estimate, "{estimate} {parts}");
    assert_eq!(ask("g"), nothing);
    let mut refused = |group: &str| stat(&mut client, group).unwrap_err();
    assert_eq!(refused("dcp-vbtakeover 3"), Status::Invalid);
    assert_eq!(refused("dcp-vbtakeover x f"), Status::Invalid);
    assert_eq!(refused("dcp-vbtakeover 16 f"), Status::NotMyVbucket);
}
