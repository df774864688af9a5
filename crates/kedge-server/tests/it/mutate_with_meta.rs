//! Tests of MUTATE_WITH_META: metadata behind the value, and CAS and seqno written into xattrs.

use kedge_bucket::ConflictResolution;
use kedge_protocol::binary::{Feature, Opcode};
use kedge_types::{Datatype, DurabilityLevel, Status};

use crate::client::{Client, Frame, Reply, SDK_FEATURES};
use crate::evicted::{POLICIES, evict_all, start};
use crate::server::{Kedge, PASSWORD, Setup};
use crate::with_meta::meta_of;
use crate::xattrs::{
    PACKED, PAIRS, XATTR, copy, datatype_of, get_ex, packed, plain, section, whole,
};

/// A MUTATE_WITH_META request.
fn mutate(client: &mut Client, key: &str, datatype: Datatype, value: &[u8], meta: &str) -> Reply {
    let frame = mutation(client, key, datatype, value, meta);
    client.call(&frame)
}

pub(crate) fn mutation(
    client: &mut Client,
    key: &str,
    datatype: Datatype,
    value: &[u8],
    meta: &str,
) -> Frame {
    let both = [value, meta.as_bytes()].concat();
    let both = match datatype.contains(Datatype::SNAPPY) {
        true => packed(&both),
        false => both,
    };
    let frame = client.request(Opcode::MutateWithMeta).key(key);
    let extras = (meta.len() as u32).to_be_bytes();
    frame.extras(&extras).value(&both).datatype(datatype)
}

/// The offsets of a text in a value.
fn places(value: &[u8], text: &str) -> Vec<usize> {
    let windows = value.windows(text.len()).enumerate();
    let found = windows.filter(|(_, window)| *window == text.as_bytes());
    found.map(|(at, _)| at).collect()
}

#[test]
fn mutate_with_meta_writes_the_new_cas_into_attributes() {
    let zero = "0x0000000000000000";
    let with = |cas: &str, seqno: &str| {
        let version = format!(r#"{{"cas":"{cas}","seqno":"{seqno}"}}"#);
        let copy = format!(r#"["{cas}"]"#);
        whole(&[("_vv", &version), ("copy", &copy)], br#"{"body":true}"#)
    };
    let value = with(zero, zero);
    let [cas, seqno, copy] = places(&value, zero)[..] else {
        panic!("three places");
    };
    let meta = format!(
        r#"{{"command":"set","rev_seqno":"0x9","flags":7,"options":"0x4","cas_offsets":[{cas},{copy}],"seqno_offsets":[{seqno}]}}"#
    );
    for policy in POLICIES {
        let (kedge, bucket) = start(policy, 256 << 20);
        let mut client = kedge.client();
        for (key, datatype) in [("plain", XATTR), ("packed", PACKED)] {
            for evicted in [false, true] {
                let key = format!("{key}-{evicted}");
                copy_in(&mut client, &key);
                if evicted {
                    evict_all(&bucket);
                }
                let reply = mutate(&mut client, &key, datatype, &value, &meta).ok();
                let cas = format!("{:#018x}", reply.cas.swap_bytes());
                let seqno = format!("{:#018x}", reply.token().seqno.get());
                let got = get_ex(&mut client, &key).ok();
                assert_eq!(got.cas, reply.cas, "{policy:?} {key}");
                assert_eq!(got.flags(), 7);
                let stored = String::from_utf8(plain(datatype_of(&got), &got.value)).unwrap();
                let expected = String::from_utf8(with(&cas, &seqno)).unwrap();
                assert_eq!(stored, expected, "{policy:?} {key}");
                assert_eq!(meta_of(&mut client, &key).0.rev_seqno.get(), 9);
            }
        }
    }
}

/// A document of revision 5.
fn copy_in(client: &mut Client, key: &str) {
    copy(client, Opcode::SetWithMeta, key, 5, Datatype::RAW, b"{}").ok();
}

/// The outcome with a document of revision 5, and without one; datatype, value, and all metadata with that outcome.
type Case<'a> = (Status, Status, Datatype, &'a [u8], &'a [&'a str]);

fn check(client: &mut Client, resolution: ConflictResolution, number: usize, case: &Case<'_>) {
    let (with, without, datatype, value, all) = case;
    for meta in *all {
        for (is_there, expected) in [(true, with), (false, without)] {
            let key = format!("{number} {is_there} {meta}");
            // A document of revision 5.
            for _ in 0..if is_there { 5 } else { 0 } {
                client.set(&key, b"{}").ok();
            }
            let reply = mutate(client, &key, *datatype, value, meta);
            assert_eq!(reply.status, *expected, "{resolution:?} {meta} {is_there}");
            if *expected == Status::Success {
                let (found, cas) = meta_of(client, &key);
                assert_eq!(found.deleted, meta.contains("delete"), "{meta}");
                assert_eq!(cas, reply.cas, "{meta}");
            }
        }
    }
}

#[test]
fn mutate_with_meta_equals_the_with_meta_commands() {
    use Status::{CasValueInvalid, Invalid, KeyExists, Success, XattrInvalid};
    let attributes = section(&PAIRS);
    let none = Datatype::RAW;
    let seqno: &[Case<'_>] = &[
        (
            Success,
            Success,
            none,
            b"1",
            &[
                r#"{"command":"set","rev_seqno":6,"cas":"0x9"}"#,
                r#"{"command":"set","rev_seqno":4,"cas":9,"options":8}"#,
                r#"{"command":"set","rev_seqno":5,"options":"0x4"}"#,
                r#"{"command":"set","rev_seqno":5}"#,
            ],
        ),
        (
            KeyExists,
            Success,
            none,
            b"1",
            &[
                r#"{"command":"set","rev_seqno":4,"cas":"0x9"}"#,
                r#"{"command":"add","rev_seqno":6,"options":12}"#,
            ],
        ),
        (
            Invalid,
            Invalid,
            none,
            b"1",
            &[
                r#"{"command":"delete","rev_seqno":6,"cas":9}"#,
                r#"{"command":"set","rev_seqno":6,"cas":9,"options":16}"#,
                r#"{"command":"set","rev_seqno":6,"cas":9,"options":2}"#,
                r#"{"command":"set","rev_seqno":6,"cas":9,"options":32}"#,
                r#"{"command":"set","rev_seqno":6,"seqno_offsets":[0]}"#,
                r#"{"command":"set"#,
            ],
        ),
        (
            CasValueInvalid,
            CasValueInvalid,
            none,
            b"1",
            &[r#"{"command":"set","rev_seqno":6,"cas":0}"#],
        ),
        (
            Success,
            Success,
            none,
            b"",
            &[r#"{"command":"delete","rev_seqno":6,"cas":9,"options":16}"#],
        ),
        (
            Success,
            Success,
            XATTR,
            &attributes,
            &[r#"{"command":"delete","rev_seqno":6,"cas":9}"#],
        ),
        (
            Invalid,
            Invalid,
            XATTR,
            &attributes,
            &[r#"{"command":"set","rev_seqno":6,"seqno_offsets":[4]}"#],
        ),
        (
            XattrInvalid,
            XattrInvalid,
            XATTR,
            b"{}",
            &[r#"{"command":"set","rev_seqno":6,"cas":9}"#],
        ),
    ];
    let lww: &[Case<'_>] = &[
        (
            Invalid,
            Invalid,
            none,
            b"1",
            &[r#"{"command":"set","rev_seqno":6,"cas":9}"#],
        ),
        (
            KeyExists,
            Success,
            none,
            b"1",
            &[
                r#"{"command":"set","rev_seqno":6,"cas":9,"options":2}"#,
                r#"{"command":"set","rev_seqno":6,"cas":9,"options":"0x20"}"#,
            ],
        ),
        (
            Success,
            Success,
            none,
            b"1",
            &[r#"{"command":"set","rev_seqno":1,"options":6}"#],
        ),
    ];
    for (resolution, cases) in [
        (ConflictResolution::Seqno, seqno),
        (ConflictResolution::Lww, lww),
    ] {
        let mut setup = Setup::default();
        setup.bucket.conflict_resolution = resolution;
        let kedge = Kedge::with(setup);
        let mut client = kedge.client();
        for (number, case) in cases.iter().enumerate() {
            check(&mut client, resolution, number, case);
        }
    }
}

#[test]
fn mutate_with_meta_checks_privileges() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    let cas = client.set("k", b"1").ok().cas;
    let meta = r#"{"command":"set","rev_seqno":9}"#;
    let mut frame = mutation(&mut client, "k", Datatype::RAW, b"2", meta);
    frame.cas = cas + 1;
    assert_eq!(client.call(&frame).status, Status::KeyExists, "another CAS");
    frame.cas = cas;
    client.call(&frame).ok();
    let durable = mutation(&mut client, "k", Datatype::RAW, b"2", meta);
    let durable = durable.durable(DurabilityLevel::Majority);
    assert_eq!(client.call(&durable).status, Status::Invalid);
    let mut writer = kedge.connect();
    writer.hello(SDK_FEATURES);
    writer.log_in("writer", PASSWORD);
    writer.select("default");
    let reply = mutate(&mut writer, "k", Datatype::RAW, b"3", meta);
    assert_eq!(reply.status, Status::AccessDenied);
    assert_eq!(client.get("k").ok().text(), "2");
    let mut asks = kedge.connect();
    asks.hello(SDK_FEATURES.with(Feature::MutateWithMeta));
    assert!(asks.features.contains(Feature::MutateWithMeta));
}
