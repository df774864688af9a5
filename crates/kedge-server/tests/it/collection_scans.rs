//! Tests of range scans, GET_RANDOM_KEY and GET_KEYS in a named collection.

use std::collections::BTreeSet;

use kedge_cluster::ManifestEdit;
use kedge_protocol::binary::commands::range_scan::{RangeScanCreate, ScanKind};
use kedge_protocol::binary::commands::{GetKeys, GetRandomKey, KeyList};
use kedge_protocol::binary::{Feature, Opcode, RequestWriter};
use kedge_types::{CollectionId, Status};

use crate::client::{Client, Reply};
use crate::collections::{as_user, create_scope, edit};
use crate::range_scan::{self, Limits, go_on, kedge, keys_of, scan};
use crate::server::Kedge;

/// The ids of `s.a` and `s.b`, the first ids of a bucket.
const A: u8 = 8;
const B: u8 = 9;

/// A server whose bucket has one vBucket and the collections `s.a` and `s.b`; with the keys `a00` to `a19` in `s.a`,
/// and others in `s.b` and the default collection.
fn with_collections() -> (Kedge, Client) {
    let kedge = kedge();
    edit(&kedge, &[create_scope("s")]);
    let mut client = kedge.client();
    for (collection, name) in [(A, "a"), (B, "b"), (0, "d")] {
        if collection > 0 {
            edit(&kedge, &[crate::collections::create("s", name)]);
        }
        for n in 0..20 {
            set_in(&mut client, collection, &format!("{name}{n:02}"));
        }
    }
    (kedge, client)
}

fn set_in(client: &mut Client, collection: u8, key: &str) {
    let mut frame = client.request(Opcode::Set).store(key, key.as_bytes());
    frame.vb = 0;
    frame.key[0] = collection;
    client.call(&frame).ok();
}

fn drop_a(kedge: &Kedge) {
    let dropped = ManifestEdit::DropCollection {
        scope: "s".to_owned(),
        collection: "a".to_owned(),
    };
    edit(kedge, &[dropped]);
}

fn wanted(collection: u8, start: &str, end: &str) -> RangeScanCreate {
    RangeScanCreate {
        collection: CollectionId(collection.into()),
        ..range_scan::range(start, end)
    }
}

fn sample(collection: u8, samples: u64) -> RangeScanCreate {
    RangeScanCreate {
        kind: ScanKind::Sampling { seed: 1, samples },
        ..wanted(collection, "", "")
    }
}

fn a_keys(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|n| format!("a{n:02}")).collect()
}

fn random_key(client: &mut Client, collection: u8) -> Reply {
    let mut bytes = Vec::new();
    GetRandomKey {
        collection: Some(CollectionId(collection.into())),
        include_xattrs: false,
    }
    .encode(&RequestWriter::new(Opcode::GetRandomKey), &mut bytes);
    client.send(&bytes);
    client.reply()
}

fn list_from(client: &mut Client, collection: u8, start: &str, count: u32) -> Reply {
    let mut bytes = Vec::new();
    let start = [&[collection], start.as_bytes()].concat();
    GetKeys {
        count,
        start: &start,
    }
    .encode(&RequestWriter::new(Opcode::GetKeys), &mut bytes);
    client.send(&bytes);
    client.reply()
}

fn listed(reply: &Reply) -> Vec<String> {
    KeyList::new(&reply.value)
        .map(|key| String::from_utf8(key.unwrap().to_vec()).unwrap())
        .collect()
}

#[test]
fn scans_and_key_lists_are_limited_to_their_collection() {
    let (_kedge, mut client) = with_collections();
    let none = Limits::default();
    let all = scan(&mut client, &wanted(A, "", "\u{7f}"), none);
    assert_eq!(keys_of(&all), a_keys(0..20));
    let some = scan(&mut client, &wanted(A, "a05", "a09"), none);
    assert_eq!(keys_of(&some), a_keys(5..10));
    let sampled = scan(&mut client, &sample(A, 100), none);
    assert_eq!(keys_of(&sampled), a_keys(0..20));
    let few = keys_of(&scan(&mut client, &sample(A, 5), none));
    assert_eq!(few.len(), 5);
    assert!(few.iter().all(|key| a_keys(0..20).contains(key)), "{few:?}");
    let nothing = range_scan::create(&mut client, &wanted(A, "b", "z"));
    assert_eq!(nothing, Err(Status::KeyNotFound));

    let mut seen = BTreeSet::new();
    for _ in 0..200 {
        let reply = random_key(&mut client, A).ok();
        assert_eq!(reply.key, reply.value);
        seen.insert(String::from_utf8(reply.key).unwrap());
    }
    assert!(seen.len() > 1, "another each time");
    assert!(seen.iter().all(|key| a_keys(0..20).contains(key)));

    assert_eq!(
        listed(&list_from(&mut client, A, "a", 100).ok()),
        a_keys(0..20)
    );
    assert_eq!(
        listed(&list_from(&mut client, A, "a05", 3).ok()),
        a_keys(5..8)
    );
    assert_eq!(list_from(&mut client, A, "b", 100).ok().value, b"");
}

#[test]
fn recreated_collection_does_not_show_keys_of_the_dropped_one() {
    let (kedge, mut client) = with_collections();
    drop_a(&kedge);
    for anew in [false, true] {
        if anew {
            // A new collection of the same name has another id.
            edit(&kedge, &[crate::collections::create("s", "a")]);
        }
        for wanted in [wanted(A, "a", "z"), sample(A, 5)] {
            let reply = range_scan::create_in(&mut client, 0, &wanted);
            assert_eq!(reply.status, Status::UnknownCollection, "{wanted:?}");
        }
        assert_eq!(random_key(&mut client, A).status, Status::UnknownCollection);
        let reply = list_from(&mut client, A, "a", 5);
        assert_eq!(reply.status, Status::UnknownCollection);
    }
    let anew = B + 1;
    assert_eq!(random_key(&mut client, anew).status, Status::KeyNotFound);
    let empty = range_scan::create(&mut client, &sample(anew, 5));
    assert_eq!(empty, Err(Status::KeyNotFound));
    assert_eq!(list_from(&mut client, anew, "a", 5).ok().value, b"");
    let others = scan(&mut client, &wanted(B, "", "z"), Limits::default());
    assert_eq!(keys_of(&others).len(), 20);
}

#[test]
fn dropping_a_collection_ends_only_its_scans() {
    let (kedge, mut client) = with_collections();
    let five = Limits {
        items: 5,
        ..Limits::default()
    };
    let mut begun = Vec::new();
    for wanted in [wanted(A, "a", "z"), sample(A, 20), wanted(B, "b", "z")] {
        let id = range_scan::create(&mut client, &wanted).unwrap();
        let replies = go_on(&mut client, id, five);
        assert_eq!(replies.last().unwrap().status, Status::RangeScanMore);
        assert_eq!(keys_of(&replies).len(), 5);
        begun.push(id);
    }
    drop_a(&kedge);
    let other = begun.pop().unwrap();
    for id in begun {
        let replies = go_on(&mut client, id, five);
        assert_eq!(replies.len(), 1, "{replies:?}");
        assert_eq!(replies[0].status, Status::UnknownCollection);
        let replies = go_on(&mut client, id, five);
        assert_eq!(replies[0].status, Status::KeyNotFound, "the scan is gone");
    }
    let rest = go_on(&mut client, other, Limits::default());
    assert_eq!(rest.last().unwrap().status, Status::RangeScanComplete);
    assert_eq!(keys_of(&rest).len(), 15);
}

/// A collection without any privilege is answered like a missing one; one without the privilege to read is denied.
#[test]
fn scans_and_key_lists_need_read_in_the_collection() {
    let (kedge, mut root) = with_collections();
    assert!(root.features.contains(Feature::Collections));
    random_key(&mut root, B).ok();
    for (user, roles, in_a, in_b) in [
        (
            "reads_a",
            "data_reader[default:s:a]",
            Status::Success,
            Status::UnknownCollection,
        ),
        (
            "writes_a",
            "data_writer[default:s:a],data_reader[default:s:b]",
            Status::AccessDenied,
            Status::Success,
        ),
    ] {
        let mut client = as_user(&kedge, user, roles);
        for (collection, status) in [(A, in_a), (B, in_b)] {
            let made = range_scan::create_in(&mut client, 0, &wanted(collection, "a", "z"));
            assert_eq!(made.status, status, "{user} scans {collection}");
            let drawn = random_key(&mut client, collection);
            assert_eq!(drawn.status, status, "{user} draws from {collection}");
            let listed = list_from(&mut client, collection, "a", 5);
            assert_eq!(listed.status, status, "{user} lists {collection}");
        }
    }
}
