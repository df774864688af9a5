//! Tests of the scopes and collections in each vBucket, and of the purge of dropped ones.

use kedge_cluster::ManifestEdit;
use kedge_protocol::binary::Opcode;
use kedge_types::Status;

use crate::client::Client;
use crate::collections::{as_user, create, create_scope, edit};
use crate::evicted::{figure, until};
use crate::replication::bucket;
use crate::server::Kedge;
use crate::stats::stat;

#[test]
fn collections_details_show_each_vbucket() {
    let kedge = Kedge::start();
    edit(
        &kedge,
        &[create_scope("s"), create("s", "a"), create("s", "b")],
    );
    let mut client = kedge.client();
    let mut frame = client.request(Opcode::Set).store("one", b"v");
    frame.key[0] = 9;
    client.call(&frame).ok();
    let vb = frame.vb;
    bucket(&kedge).persistence().apply().unwrap();
    // Events of the scope and both collections come first.
    let of_vbucket = |seqno: &str, items: &str| {
        [
            ("manifest:uid", "0x3"),
            ("collections", "3"),
            ("0x0:name", "_default"),
            ("0x0:start_seqno", "0"),
            ("0x9:name", "b"),
            ("0x9:scope", "0x8"),
            ("0x9:items", items),
            ("0x9:start_seqno", "3"),
            ("0x9:high_seqno", seqno),
            ("0x9:persisted_high_seqno", seqno),
            ("0x9:ops_store", items),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
    };
    let all = stat(&mut client, "collections-details").unwrap();
    assert_eq!(all["manifest_uid"], "0x3");
    assert_eq!(all["0x8:0x9:name"], "b");
    let one = stat(&mut client, &format!("collections-details {vb}")).unwrap();
    let other = (vb + 1) % 16;
    for (of, figures) in [(vb, of_vbucket("4", "1")), (other, of_vbucket("3", "0"))] {
        for (name, value) in figures {
            let name = format!("vb_{of}:{name}");
            assert_eq!(all.get(&name), Some(&value), "{name}");
            assert_eq!(one.get(&name), (of == vb).then_some(&value), "{name}");
        }
    }
    assert!(
        one.keys()
            .all(|name| name.starts_with(&format!("vb_{vb}:")))
    );

    let all = stat(&mut client, "scopes-details").unwrap();
    let one = stat(&mut client, &format!("scopes-details {vb}")).unwrap();
    for (name, value) in [
        ("0x8:name", "s"),
        ("0x8:collections", "2"),
        ("0x8:0x8:name", "a"),
    ] {
        assert_eq!(all[name], value, "{name}");
        assert!(!one.contains_key(name), "{name}");
    }
    for (name, value) in [
        ("manifest:uid", "0x3"),
        ("0x0:0x0:items", "0"),
        ("0x8:name", "s"),
        ("0x8:collections", "2"),
        ("0x8:0x9:items", "1"),
    ] {
        let name = format!("vb_{vb}:{name}");
        assert_eq!((&*all[&name], &*one[&name]), (value, value), "{name}");
    }
    let mut watches = as_user(&kedge, "watches", "data_monitoring[default:s:b]");
    let mut reads = as_user(&kedge, "only_reads", "data_reader[default:s:b]");
    for group in ["collections-details", "scopes-details"] {
        for (argument, status) in [("16", Status::NotMyVbucket), ("s.a", Status::Invalid)] {
            let refused = stat(&mut client, &format!("{group} {argument}"));
            assert_eq!(refused, Err(status), "{group} {argument}");
        }
        let seen = stat(&mut watches, &format!("{group} {vb}")).unwrap();
        assert!(seen.keys().any(|name| name.contains(":0x9")), "{group}");
        let hidden = |name: &String| name.contains(":0x0") || name.contains(":0x8:0x8");
        assert!(!seen.keys().any(hidden), "{group}");
        assert_eq!(seen[&format!("vb_{vb}:manifest:uid")], "0x3");
        let refused = stat(&mut reads, group);
        assert_eq!(refused, Err(Status::AccessDenied), "{group}");
    }
}

#[test]
fn dropped_collection_is_unknown_to_observe_and_purged_from_memory() {
    let kedge = Kedge::start();
    edit(
        &kedge,
        &[create_scope("s"), create("s", "a"), create("s", "b")],
    );
    let mut client = kedge.client();
    for (collection, key) in [(8, "one"), (8, "two"), (9, "one")] {
        let mut frame = client.request(Opcode::Set).store(key, b"v");
        frame.key[0] = collection;
        client.call(&frame).ok();
    }
    let observe = |client: &mut Client, collection: u8| {
        let key = client.request(Opcode::Get).key("one");
        let stored = [&[collection], b"one".as_slice()].concat();
        let len = stored.len() as u16;
        let value = [&key.vb.to_be_bytes(), &len.to_be_bytes(), &stored[..]].concat();
        let frame = client.request(Opcode::Observe).value(&value);
        client.call(&frame)
    };
    observe(&mut client, 8).ok();
    let drop = ManifestEdit::DropCollection {
        scope: "s".to_owned(),
        collection: "a".to_owned(),
    };
    edit(&kedge, &[drop]);
    let unknown = observe(&mut client, 8);
    assert_eq!(unknown.status, Status::UnknownCollection);
    assert_eq!(unknown.text(), r#"{"manifest_uid":"4"}"#);
    observe(&mut client, 9).ok();
    let never = observe(&mut client, 77);
    assert_eq!(never.status, Status::UnknownCollection);
    let bucket = bucket(&kedge);
    until("all vBuckets are swept", || {
        figure(&bucket, "ep_dropped_collection_sweeps") >= 16
    });
    assert_eq!(figure(&bucket, "ep_dropped_collection_items_swept"), 2);
    let metrics = stat(&mut client, "").unwrap();
    assert_eq!(metrics["ep_dropped_collection_items_swept"], "2");
}
