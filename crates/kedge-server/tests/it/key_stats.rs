//! Tests of statistics of single keys.

use std::collections::HashMap;

use kedge_bucket::BucketConfig;
use kedge_protocol::binary::Opcode;
use kedge_types::{Status, VbId};

use crate::client::Client;
use crate::collections::{as_user, create, create_scope, edit};
use crate::compact::manager;
use crate::evicted::{POLICIES, evict_all, start, waited};
use crate::replication::bucket;
use crate::server::{Kedge, Setup};
use crate::stats::stat;

/// Nothing is written to the disk unless a test requests it.
pub(crate) fn in_memory_only() -> Kedge {
    let mut setup = Setup::default();
    setup.bucket = BucketConfig {
        log_interval_ms: 3_600_000,
        apply_max_lag_ms: 3_600_000,
        ..setup.bucket
    };
    Kedge::with(setup)
}

fn of(key: &str) -> u16 {
    VbId::of_key(key.as_bytes(), 16).get()
}

fn ask(client: &mut Client, group: &str, key: &str) -> Result<HashMap<String, String>, Status> {
    stat(client, &format!("{group} {key} {}", of(key)))
}

#[track_caller]
fn check(got: &HashMap<String, String>, expected: &[(&str, &str)]) {
    for (name, value) in expected {
        assert_eq!(got.get(*name).map(String::as_str), Some(*value), "{got:?}");
    }
}

#[test]
fn key_stats_follow_a_document_to_its_file() {
    let kedge = in_memory_only();
    let mut client = kedge.client();
    let extras = [7_u32.to_be_bytes(), 2_000_000_000_u32.to_be_bytes()].concat();
    let set = client.request(Opcode::Set).store("k", b"{}");
    let cas = client.call(&set.extras(&extras)).ok().cas.to_string();
    let same = [
        ("key_exptime", "2000000000"),
        ("key_flags", "7"),
        ("key_cas", &*cas),
        ("key_datatype", "json"),
        ("key_vb_state", "active"),
        ("key_is_resident", "true"),
    ];
    let bucket = bucket(&kedge);
    let (sync, apply) = (
        || bucket.persistence().sync().unwrap(),
        || bucket.persistence().apply().unwrap(),
    );
    for (step, is_dirty, validity) in [
        (&(|| ()) as &dyn Fn(), "true", "dirty"),
        (&sync, "false", "dirty"),
        (&apply, "false", "valid"),
    ] {
        step();
        let key = ask(&mut client, "key", "k").unwrap();
        check(&key, &same);
        check(&key, &[("key_is_dirty", is_dirty)]);
        assert_eq!(key.len(), same.len() + 1, "{key:?}");
        let key = ask(&mut client, "vkey", "k").unwrap();
        check(&key, &same);
        check(&key, &[("key_is_dirty", is_dirty), ("key_valid", validity)]);
    }
    // Key statistics change neither the access time nor a lock of the document.
    assert_eq!(client.get("k").ok().cas.to_string(), cas);
    let mut manager = manager(&kedge);
    let set_state = |manager: &mut Client, state| {
        let mut frame = manager.request(Opcode::SetVbucket).extras(&[state]);
        frame.vb = of("k");
        manager.call(&frame).ok();
    };
    set_state(&mut manager, 2);
    let key = ask(&mut client, "vkey", "k").unwrap();
    check(&key, &[("key_vb_state", "replica"), ("key_valid", "valid")]);
    set_state(&mut manager, 1);
    let delete = client.request(Opcode::Delete).key("k");
    client.call(&delete).ok();
    assert_eq!(ask(&mut client, "key", "k"), Err(Status::KeyNotFound));
    let key = ask(&mut client, "vkey", "k").unwrap();
    check(&key, &[("key_valid", "item_deleted")]);
}

#[test]
fn key_stats_of_an_evicted_document() {
    for policy in POLICIES {
        let (kedge, bucket) = start(policy, 256 << 20);
        let mut client = kedge.client();
        let cas = client.set("k", b"value").ok().cas.to_string();
        evict_all(&bucket);
        let before = waited(&bucket);
        let known = [
            ("key_is_dirty", "false"),
            ("key_is_resident", "false"),
            ("key_cas", &*cas),
            ("key_datatype", "raw"),
        ];
        let key = ask(&mut client, "vkey", "k").unwrap();
        check(&key, &known);
        check(&key, &[("key_valid", "valid")]);
        assert_eq!(waited(&bucket), before + 1, "the file was looked at");
        check(&ask(&mut client, "key", "k").unwrap(), &known);
        for group in ["key", "vkey"] {
            assert_eq!(ask(&mut client, group, "none"), Err(Status::KeyNotFound));
        }
        assert_eq!(client.get("k").ok().value, b"value");
    }
}

#[test]
fn key_stats_of_collections_check_privileges() {
    let kedge = Kedge::start();
    edit(&kedge, &[create_scope("s"), create("s", "c")]);
    let mut client = kedge.client();
    let mut set = client.request(Opcode::Set).store("k", b"v");
    set.key[0] = 8;
    set.extras[3] = 5;
    client.call(&set).ok();
    let vb = of("k");
    let mut narrow = as_user(&kedge, "narrow", "data_monitoring[default:s:c]");
    let mut reader = as_user(&kedge, "curious", "data_reader[default]");
    for group in ["key", "vkey"] {
        let flags = |client: &mut Client, group: &str| {
            stat(client, group).map(|found| found["key_flags"].clone())
        };
        let (named, by_id) = (format!("{group} k {vb}"), format!("{group}-byid k {vb}"));
        for (asked, expected) in [
            (format!("{named} s.c"), Ok("5".to_owned())),
            (format!("{by_id} 0x8"), Ok("5".to_owned())),
            (format!("{by_id} 8"), Ok("5".to_owned())),
            (named.clone(), Err(Status::KeyNotFound)),
            (
                format!("{named} _default._default"),
                Err(Status::KeyNotFound),
            ),
            (format!("{named} s.none"), Err(Status::UnknownCollection)),
            (format!("{named} none.c"), Err(Status::UnknownScope)),
            (format!("{named} s"), Err(Status::Invalid)),
            (format!("{named} s.c more"), Err(Status::Invalid)),
            (by_id.clone(), Err(Status::Invalid)),
            (format!("{by_id} 0x9"), Err(Status::UnknownCollection)),
            (group.to_owned(), Err(Status::Invalid)),
            (format!("{group} k"), Err(Status::Invalid)),
            (format!("{group} k x"), Err(Status::Invalid)),
            (format!("{group} k 16"), Err(Status::NotMyVbucket)),
        ] {
            assert_eq!(flags(&mut client, &asked), expected, "{asked}");
        }
        assert!(flags(&mut narrow, &format!("{named} s.c")).is_ok());
        assert_eq!(flags(&mut narrow, &by_id), Err(Status::Invalid));
        let denied = flags(&mut narrow, &named).unwrap_err();
        assert!(
            matches!(denied, Status::AccessDenied | Status::UnknownCollection),
            "{denied:?}"
        );
        let denied = flags(&mut reader, &named);
        assert_eq!(denied, Err(Status::AccessDenied));
    }
    let answer = kedge.text().until("stats key k 0\r\n", "ERROR");
    assert_eq!(answer, "ERROR\r\n", "the text protocol does not have it");
}
