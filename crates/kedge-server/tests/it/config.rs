//! Tests of the cluster map: requests, NotMyVbucket, notifications.

use kedge_bucket::BucketChange;
use kedge_protocol::binary::{Feature, Features, Opcode};
use kedge_types::{Datatype, Status};
use serde_json::Value;

use crate::client::{Came, Client, Frame, SDK_FEATURES};
use crate::server::{Kedge, PASSWORD, USER};

/// The features of SDKs without compression, so that maps can be read.
fn plain() -> Features {
    SDK_FEATURES
        .without(Feature::SnappyEverywhere)
        .without(Feature::Snappy)
}

fn with(kedge: &Kedge, features: Features) -> Client {
    let mut client = kedge.client();
    client.hello(features);
    client
}

fn fetch(client: &mut Client, known: Option<(i64, i64)>) -> Vec<u8> {
    let extras = known.map_or(Vec::new(), |(epoch, rev)| {
        [epoch.to_be_bytes(), rev.to_be_bytes()].concat()
    });
    let frame = client.request(Opcode::GetClusterConfig).extras(&extras);
    client.call(&frame).ok().value
}

fn revision(map: &[u8]) -> (i64, i64) {
    let map: Value = serde_json::from_slice(map).unwrap();
    (
        map["revEpoch"].as_i64().unwrap(),
        map["rev"].as_i64().unwrap(),
    )
}

/// A change of the map.
fn change(kedge: &Kedge) {
    let change = BucketChange {
        max_ttl_secs: Some(100),
        ..BucketChange::default()
    };
    kedge
        .server()
        .registry()
        .update("default", &change)
        .unwrap();
}

#[test]
fn cluster_map_has_the_address_that_the_client_connected_to() {
    let kedge = Kedge::start();
    let mut client = with(&kedge, plain());
    let bucket: Value = serde_json::from_slice(&fetch(&mut client, None)).unwrap();
    assert_eq!(bucket["name"], "default");
    assert_eq!(bucket["nodesExt"][0]["hostname"], "127.0.0.1");
    assert_eq!(
        bucket["nodesExt"][0]["services"]["kv"],
        kedge.server().kv_addr().unwrap().port()
    );
    assert_eq!(
        bucket["nodesExt"][0]["services"]["mgmt"],
        kedge.server().mgmt_addr().unwrap().port()
    );
    assert_eq!(
        bucket["vBucketServerMap"]["vBucketMap"]
            .as_array()
            .unwrap()
            .len(),
        16
    );
    let mut client = kedge.connect();
    client.hello(plain());
    client.log_in(USER, PASSWORD);
    let global: Value = serde_json::from_slice(&fetch(&mut client, None)).unwrap();
    assert!(global["name"].is_null() && global["nodeLocator"].is_null());
    assert_eq!(global["rev"], bucket["rev"]);
}

#[test]
fn known_cluster_map_is_not_sent_again() {
    let kedge = Kedge::start();
    let mut client = with(&kedge, plain());
    let (epoch, rev) = revision(&fetch(&mut client, None));
    for (known, sent) in [
        ((epoch, rev), false),
        ((epoch, rev + 1), false),
        ((epoch + 1, 0), false),
        ((epoch, rev - 1), true),
        ((0, rev + 100), true),
        ((-1, -1), true),
    ] {
        assert_eq!(
            !fetch(&mut client, Some(known)).is_empty(),
            sent,
            "{known:?}"
        );
    }
    change(&kedge);
    let newer = revision(&fetch(&mut client, Some((epoch, rev))));
    assert!(newer > (epoch, rev));
}

#[test]
fn cluster_map_is_compressed_only_if_negotiated() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    let reply = client.simple(Opcode::GetClusterConfig).ok();
    assert_eq!(
        reply.datatype,
        Datatype::JSON.union(Datatype::SNAPPY).bits()
    );
    let map = snap::raw::Decoder::new()
        .decompress_vec(&reply.value)
        .unwrap();
    assert!(revision(&map).1 > 0);
}

#[test]
fn not_my_vbucket_includes_the_cluster_map() {
    let kedge = Kedge::start();
    for (dedupe, second) in [(false, true), (true, false)] {
        let mut client = with(&kedge, plain());
        if dedupe {
            client.hello(plain().with(Feature::DedupeNotMyVbucketClustermap));
        }
        let ask = |client: &mut Client| {
            let frame = Frame {
                vb: 16,
                ..client.request(Opcode::Get).key("k")
            };
            let reply = client.call(&frame);
            assert_eq!(reply.status, Status::NotMyVbucket);
            reply.value
        };
        assert!(revision(&ask(&mut client)).1 > 0);
        assert_eq!(!ask(&mut client).is_empty(), second, "dedupe {dedupe}");
        change(&kedge);
        assert!(
            !ask(&mut client).is_empty(),
            "a newer map is sent in any case"
        );
    }
}

#[test]
fn cluster_map_notifications_have_the_negotiated_form() {
    let kedge = Kedge::start();
    let duplex = plain().with(Feature::Duplex);
    let full = Feature::ClustermapChangeNotification;
    let brief = Feature::ClustermapChangeNotificationBrief;
    for (features, has_map) in [
        (duplex.with(full), true),
        (duplex.with(brief), false),
        (duplex.with(full).with(brief), false),
    ] {
        let mut client = with(&kedge, features);
        let known = revision(&fetch(&mut client, None));
        change(&kedge);
        let Came::Push(push) = client.next() else {
            panic!("no push")
        };
        assert_eq!(push.opcode, 1);
        assert_eq!(push.key, b"default");
        let told = push.extras.as_chunks::<8>().0;
        let told = (i64::from_be_bytes(told[0]), i64::from_be_bytes(told[1]));
        assert!(told > known);
        assert_eq!(!push.value.is_empty(), has_map);
        if has_map {
            assert_eq!(revision(&push.value), told);
        }
        // Only once: the next frame is the reply.
        client.simple(Opcode::Noop).ok();
        assert_eq!(revision(&fetch(&mut client, Some(known))), told);
    }
}

#[test]
fn clients_without_the_feature_get_no_map_notification() {
    let kedge = Kedge::start();
    let mut client = with(&kedge, plain().with(Feature::Duplex));
    let mut told = with(
        &kedge,
        plain()
            .with(Feature::Duplex)
            .with(Feature::ClustermapChangeNotificationBrief),
    );
    change(&kedge);
    assert!(matches!(told.next(), Came::Push(_)));
    // All connections of a thread are notified together, so this one would have been by now.
    client.simple(Opcode::Noop).ok();
}

#[test]
fn list_buckets_shows_visible_buckets() {
    let kedge = Kedge::start();
    kedge
        .server()
        .registry()
        .create(kedge_bucket::BucketConfig::new("other", 4, 64 << 20))
        .unwrap();
    for (user, expected) in [("root", "default other"), ("reader", "default")] {
        let mut client = kedge.connect();
        client.hello(plain());
        client.log_in(user, PASSWORD);
        assert_eq!(client.simple(Opcode::ListBuckets).ok().text(), expected);
    }
}
